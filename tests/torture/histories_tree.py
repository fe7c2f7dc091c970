"""The search in layout `tree`: calls on files are bound to the directories that they have found.

The places of a call are noted where a directory moves that the call may have found before, and
follow the directory from then on. So the search does not branch when a call is bound: it takes
effect at any place noted for it, or where its paths lead to by then. A new file is never seen
without its directory.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Mapping, Sequence

from s3k_async.errors import S3kError
from tests.torture.histories_places import (
    Change,
    Deleted,
    Move,
    Place,
    Undelete,
    apply_at,
    apply_in_tree,
    expected_by,
    find_place,
    follow,
    locate,
    newest_of,
    node_at,
    paths_of,
    published_in_trash,
    restore,
)
from tests.torture.histories_search import Event, Next, Places, Search, Step
from tests.torture.model import (
    Commit,
    Delete,
    Filling,
    MakeDirectory,
    Refusal,
    is_below,
    matches,
)

__all__ = ["TreeSearch"]


class TreeSearch(Search):
    """The search in layout `tree`."""

    def __init__(self, events: Sequence[Event], excused: tuple[type[S3kError], ...]) -> None:
        super().__init__(events, excused)
        operations = [event.operation for event in events]
        self._undeletes = [
            (number, each.path)
            for number, each in enumerate(operations)
            if isinstance(each, Undelete)
        ]
        self._commits = [
            (number, expected_by(each))
            for number, each in enumerate(operations)
            if isinstance(each, Commit)
        ]

    def configuration(self, step: Step) -> Hashable:
        places = frozenset(step.places.items())
        return step.done, step.early, frozenset(step.tree.items()), step.trash, places

    def follow(
        self, number: int, event: Event, step: Step, ready: Sequence[tuple[int, Event]]
    ) -> Next:
        def done(change: Change) -> Step:
            finished = step._replace(done=step.done | 1 << number, order=(*step.order, number))
            return self._changed(finished, step, change, ready)

        if step.early >> number & 1:
            return Next([done(change) for change in self._again(number, event, step)])
        now = list(self._now(event, step))
        if event.changes_nothing:
            unchanged = [each for each in now if each.move is None and each.tree == step.tree]
            if unchanged:
                return Next([done(unchanged[0])], is_free=True)
        bound = list(self._bound(number, event, step))
        odd = list(self._parents(number, event, step))
        if event.is_resent and isinstance(event.operation, Filling) and not event.is_failure:
            found = [(each, find_place(event.operation.path, each.tree)) for each in now]
            odd += self._arrived(number, step, [*found, *bound])
        return Next([done(each) for each in (*now, *(each for each, _ in bound))], odd)

    def _now(self, event: Event, step: Step) -> Iterator[Change]:
        """The changes that the event may make, with its recorded result, if all of it happens
        now."""
        nothing = Change(None, step.tree, step.trash)
        result = apply_in_tree(event.operation, step.tree, step.trash)
        if event.is_unknown:
            if not isinstance(result, Refusal):
                yield result
        elif event.is_failure and issubclass(event.outcome, self.excused):
            yield nothing
        elif isinstance(result, Refusal):
            if matches(result, event.outcome):
                yield nothing
        elif matches(result.value, event.outcome):
            yield result

    def _bound(
        self, number: int, event: Event, step: Step
    ) -> Iterator[tuple[Change, Place | None]]:
        """The changes that the event makes at places noted for it, and the last of the places. What
        is refused is decided anew, at one moment."""
        if event.is_failure:
            return
        operation, tree, trash = event.operation, step.tree, step.trash
        if isinstance(operation, Undelete):
            chosen = {place.directory for place in step.places.get((number, 0), ())}
            for item in trash:
                if item.place in chosen:
                    result = restore(operation, item, tree, trash)
                    if not isinstance(result, Refusal):
                        yield result, None
            return
        choices: list[list[Place | str]] = [
            [path, *step.places.get((number, index), ())]
            for index, path in enumerate(paths_of(operation))
        ]
        if isinstance(operation, Commit):
            choices[0] += published_in_trash(operation, trash)
        for places in itertools.islice(itertools.product(*choices), 1, None):
            change = apply_at(operation, places, tree, trash)
            if change is not None and (event.is_unknown or matches(change.value, event.outcome)):
                last = places[-1]
                yield change, last if isinstance(last, Place) else None

    def _parents(self, number: int, event: Event, step: Step) -> Iterator[Step]:
        """The steps in which parents that the event makes are there before it is done, or a
        reservation is dropped."""
        operation = locate(event.operation, step.tree)
        for grown in operation.leftovers(step.tree):
            if grown != step.tree:
                yield step._replace(tree=grown)
        if not isinstance(operation, Filling):
            return
        key = number, 0
        for place in step.places.get(key, ()):
            above, _, name = place.rest.rpartition("/")
            parent = Place(place.directory, above)
            make = MakeDirectory(operation.stamp, operation.path)
            made = apply_at(make, (parent,), step.tree, step.trash) if above else None
            if made is not None:
                inside = Place(parent.path, f"/{name}")
                noted = tuple(sorted({*step.places[key], inside}))
                places = {**step.places, key: noted}
                yield step._replace(tree=made.tree, trash=made.trash, places=places)

    def _arrived(
        self, number: int, step: Step, changes: Sequence[tuple[Change, Place | None]]
    ) -> Iterator[Step]:
        """The steps in which a new file was written by a request whose answer was lost."""
        for change, place in changes:
            if place is not None and node_at(place.path, step.tree, step.trash) == "missing":
                yield Step(
                    step.done,
                    step.early | 1 << number,
                    change.tree,
                    step.order,
                    change.trash,
                    {**step.places, (number, 0): (place,)},
                )

    def _again(self, number: int, event: Event, step: Step) -> Iterator[Change]:
        """The changes when the creation of a file that was seen ends. A repeated request creates it
        where nothing is; one with an unknown outcome may be withdrawn."""
        writing = event.operation
        assert isinstance(writing, Filling)
        yield Change(None, step.tree, step.trash)
        for place in step.places.get((number, 0), ()):
            there = node_at(place.path, step.tree, step.trash)
            again: Change | None = None
            if there == "missing":
                again = apply_at(writing, (place,), step.tree, step.trash)
            elif event.is_unknown and getattr(there, "stamp", None) == writing.stamp:
                again = apply_at(Delete(writing.stamp, place.path), (place,), step.tree, step.trash)
            if again is not None:
                yield again

    def _changed(
        self, finished: Step, step: Step, change: Change, ready: Sequence[tuple[int, Event]]
    ) -> Step:
        """The step `finished` after a change of `step`: with the places of the events that are
        left, and of the trash what they may reach."""
        done = finished.done
        places: Places = {key: each for key, each in step.places.items() if not done >> key[0] & 1}
        if change.move is not None:
            places = self._follow_all(places, finished, step, change, ready)
        directories = {place.directory for each in places.values() for place in each}
        trash = tuple(
            item
            for item in change.trash
            if any(is_below(directory, item.place) for directory in directories)
            or self._may_return(item, done)
        )
        return finished._replace(tree=change.tree, trash=trash, places=places)

    def _may_return(self, item: Deleted, done: int) -> bool:
        """Whether an event that is left may restore a directory, or publish a file in it."""
        return any(
            path == item.was and not item.is_reclaimed and not done >> number & 1
            for number, path in self._undeletes
        ) or any(
            node == expected and not done >> number & 1
            for number, expected in self._commits
            for _, node in item.content
        )

    def _follow_all(
        self,
        places: Places,
        finished: Step,
        step: Step,
        change: Change,
        ready: Sequence[tuple[int, Event]],
    ) -> Places:
        """The places after a directory has moved, with those of events that may have found it, or
        one below it, before."""
        move = change.move
        assert move is not None
        stored = {item.place for item in change.trash}
        followed: dict[tuple[int, int], set[Place]] = {}
        for key, each in places.items():
            if isinstance(self.events[key[0]].operation, Undelete):
                followed[key] = {place for place in each if place.directory in stored}
            else:
                kept = (self._follow_place(key[0], place, step, move) for place in each)
                followed[key] = {place for place in kept if place is not None}
        for number, event in ready:
            is_found = finished.early >> number & 1
            if is_found and self._from_root(number) in followed.get((number, 0), ()):
                is_found = False
            if not (is_found or finished.done >> number & 1):
                for index, place in self._found(event, step, change, move):
                    followed.setdefault((number, index), set()).add(place)
        for item in change.trash:
            if item not in step.trash and self._is_dead(item, followed, finished.done):
                for noted in followed.values():
                    noted -= {place for place in noted if is_below(place.directory, item.place)}
        return {key: tuple(sorted(each)) for key, each in followed.items() if each}

    def _follow_place(self, number: int, place: Place, step: Step, move: Move) -> Place | None:
        """The place after the move. When a creation is retried whose directory was removed as
        empty, its path is resolved again, and missing directories are created."""
        followed = follow(place, move)
        is_removed = followed is None and step.early >> number & 1
        return self._from_root(number) if is_removed else followed

    def _from_root(self, number: int) -> Place:
        """The place of an event whose path is resolved when it takes effect."""
        return Place("", paths_of(self.events[number].operation)[0])

    def _is_dead(
        self, item: Deleted, places: Mapping[tuple[int, int], set[Place]], done: int
    ) -> bool:
        """Whether what takes effect in a directory that was just deleted might as well have done so
        before: nothing of it is seen any more, not even by the rename of a file out of it."""
        return not (
            item.is_reclaimed
            or self._may_return(item, done)
            or any(
                len(paths_of(self.events[number].operation)) > 1
                and any(is_below(place.directory, item.place) for place in each)
                for (number, _), each in places.items()
            )
        )

    @staticmethod
    def _found(event: Event, step: Step, change: Change, move: Move) -> Iterator[tuple[int, Place]]:
        """The places of the event's paths if it has found their directories before the move."""
        operation = event.operation
        if isinstance(operation, Undelete):
            before, after = (
                newest_of(trash, operation.path) for trash in (step.trash, change.trash)
            )
            if before is not None and before is not after and before in change.trash:
                yield 0, Place(before.place, "")
        if event.is_failure and not event.may_make_parents:
            return
        for index, path in enumerate(paths_of(locate(operation, step.tree))):
            found = find_place(path, step.tree)
            if found is None or not is_below(found.directory, move.source):
                continue
            place = follow(found, move)
            makes_parents = "/" in found.rest[1:]
            if place is not None and (makes_parents or not event.is_failure):
                yield index, place
