"""The search in layout `path`: every call has one moment, but for new files that are seen early."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from s3k_async.errors import S3kError
from tests.torture.histories_places import Verb
from tests.torture.histories_search import Event, Next, Search, Step
from tests.torture.model import (
    Delete,
    Early,
    File,
    Filling,
    Refusal,
    Rename,
    Tree,
    is_below,
    matches,
    with_parents,
)

__all__ = ["PathSearch"]


class PathSearch(Search):
    """The search in layout `path`."""

    def __init__(self, events: Sequence[Event], excused: tuple[type[S3kError], ...]) -> None:
        super().__init__(events, excused)
        self._exposed = {
            number for number, event in enumerate(events) if _is_exposed(event, events)
        }

    def configuration(self, step: Step) -> Hashable:
        return step.done, step.early, frozenset(step.tree.items())

    def follow(
        self, number: int, event: Event, step: Step, ready: Sequence[tuple[int, Event]]
    ) -> Next:
        done, early, tree, order, trash, places = step
        after, order = done | 1 << number, (*order, number)
        if early >> number & 1:
            return Next(
                [Step(after, early, grown, order, trash, places) for grown in _ends(event, tree)],
                [step._replace(tree=grown) for grown in _turns_up(event, tree)],
            )
        is_exposed = number in self._exposed
        outcomes = list(self._outcomes(event, tree))
        if tree in outcomes and event.changes_nothing and not is_exposed:
            return Next([Step(after, early, tree, order, trash, places)], is_free=True)
        likely = [Step(after, early, grown, order, trash, places) for grown in outcomes]
        odd = [
            step._replace(tree=grown) for grown in event.operation.leftovers(tree) if grown != tree
        ]
        odd += [
            step._replace(early=early | 1 << number, tree=grown)
            for grown in _begins(event, tree, exposed=is_exposed)
        ]
        return Next(likely, odd)

    def _outcomes(self, event: Event, tree: Tree) -> Iterator[Tree]:
        """The trees that the event may lead to, with its recorded result, if it happens now."""
        result = event.operation.apply(tree)
        if event.is_unknown:
            if not isinstance(result, Refusal):
                yield result.tree
        elif event.is_failure and issubclass(event.outcome, self.excused):
            yield tree
        elif isinstance(result, Refusal):
            if matches(result, event.outcome):
                yield tree
        elif matches(result.value, event.outcome):
            yield result.tree


def _is_exposed(event: Event, events: Sequence[Event]) -> bool:
    """Whether, while a file is being written, a directory above it is moved or removed and the file
    is met: only then does it matter that it may be there early.
    """
    writing = event.operation
    if not isinstance(writing, Filling):
        return False
    beside = [
        other
        for other in events
        if other.begin < event.end and event.begin < other.end and other is not event
    ]
    return any(_meets(other, writing) for other in beside) and any(
        path != writing.path and is_below(writing.path, path)
        for other in beside
        for path in _changed(other.operation)
    )


def _meets(event: Event, writing: Filling) -> bool:
    """Whether the event may have found the file that is being written, at its path or in the way of
    a directory."""
    operation = event.operation
    if event.is_failure:
        return isinstance(operation, Rename) and is_below(writing.path, operation.target)
    if isinstance(operation, Rename | Delete):
        return any(is_below(writing.path, path) for path in _changed(operation))
    return getattr(operation, "path", "/") in (writing.path, "/")


def _changed(operation: Verb) -> Sequence[str]:
    if isinstance(operation, Rename):
        return operation.source, operation.target
    return (operation.path,) if isinstance(operation, Delete) else ()


def _begins(event: Event, tree: Tree, *, exposed: bool) -> Iterator[Tree]:
    """The trees in which a new file is seen before its creation is acknowledged: early, below a
    directory that is moved or removed; or written by a request whose answer was lost. Once: a file
    that was seen does not disappear and come back.
    """
    if not isinstance(event.operation, Filling) or event.operation.path in tree:
        return
    if exposed and (early := event.operation.early(tree)) is not None:
        yield early
    if (
        event.is_resent
        and not event.is_failure
        and not isinstance(answer := event.operation.apply(tree), Refusal)
    ):
        yield answer.tree


def _turns_up(event: Event, tree: Tree) -> Iterator[Tree]:
    """The tree in which a file that was seen early belongs to its directory: it was listed, or
    moved along."""
    path = event.operation.path if isinstance(event.operation, Filling) else ""
    there = tree.get(path)
    if isinstance(there, Early) and (grown := with_parents(tree, path)) is not None:
        yield {**grown, path: File(there.data, there.stamp, there.label)}


def _ends(event: Event, tree: Tree) -> Iterator[Tree]:
    """The trees when the creation of a file that was seen ends. A failed creation has withdrawn the
    file; one with an unknown outcome may have.
    """
    writing = event.operation
    assert isinstance(writing, Filling)
    there = tree.get(writing.path)
    if there is None or there.stamp != writing.stamp:
        if not event.is_failure:
            yield tree
        # Sent again, it comes where nothing is, and goes again if it fails then.
        if (
            event.is_resent
            and there is None
            and not isinstance(answer := writing.apply(tree), Refusal)
        ):
            yield tree if event.is_failure else answer.tree
        return
    if event.is_failure or event.is_unknown:
        yield {path: node for path, node in tree.items() if path != writing.path}
    if not event.is_failure:
        yield from _turns_up(event, tree)
        if not isinstance(there, Early):
            yield tree
