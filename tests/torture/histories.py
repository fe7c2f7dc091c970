"""Whether what clients were told at the same time could have been told one after the other.

A history is what each call was, what its caller was told, and when it began and ended. It is
linearizable if every call can be given one moment between its beginning and its end at which it
happened as the dictionary says (Herlihy, Wing). The search is that of Wing and Gong: take any call
that began before every other that is left has ended, and go on from the tree that it leaves; a
configuration (calls that are done, tree) that was seen before is not tried again (Lowe). A call
that changes nothing and fits is taken at once, and nothing else is tried in its place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from s3k_async.errors import OutcomeUnknownError, PartialFailureError, S3kError
from tests.torture.model import (
    Delete,
    Early,
    File,
    Filling,
    MakeDirectory,
    Operation,
    Outcome,
    Refusal,
    Rename,
    Tree,
    ancestors,
    is_below,
    matches,
    with_parents,
)

__all__ = ["NEVER", "UNKNOWN", "Event", "UndecidedError", "Violation", "check", "find_order"]

UNKNOWN: Final = "unknown"
"""Nobody was told, or was told that it is unknown: it happened at any time since, or never will."""
NEVER: Final = math.inf

BUDGET: Final = 100_000
"""Configurations that are looked at, in some ten seconds, before a history is given up."""

_Step: TypeAlias = tuple[int, int, Tree, tuple[int, ...]]
"""The events that are done, those of which something was seen before, the tree, and the order."""
_Configuration: TypeAlias = tuple[int, int, frozenset[tuple[str, object]]]


@dataclass(frozen=True, slots=True)
class Event:
    """One call of a history. The times are of one clock; a call that nobody saw the end of ends at
    NEVER."""

    client: int
    operation: Operation
    outcome: Outcome
    begin: float
    end: float
    is_resent: bool = False
    """Whether an answer was lost meanwhile: a creation is sent again, and if somebody has removed
    what it had created, it comes a second time."""

    def __str__(self) -> str:
        told = self.outcome.__name__ if isinstance(self.outcome, type) else self.outcome
        return f"{self.begin:6} to {self.end:6}  client {self.client}: {self.operation} -> {told}"

    @property
    def is_unknown(self) -> bool:
        """Whether its caller does not know if it happened."""
        kind = self.outcome
        return kind == UNKNOWN or (
            isinstance(kind, type) and issubclass(kind, OutcomeUnknownError | PartialFailureError)
        )

    @property
    def is_failure(self) -> bool:
        """Whether its caller was told that it failed: nothing happened, whatever the tree was
        like."""
        return (
            isinstance(self.outcome, type)
            and issubclass(self.outcome, S3kError)
            and not self.is_unknown
        )

    @property
    def changes_nothing(self) -> bool:
        """Whether it leaves every tree as it is: it only looks, without a stamp, or has failed, and
        was no call that may have made parents before, or dropped its reservation.
        """
        operation = self.operation
        if self.is_unknown or not hasattr(operation, "stamp"):
            return not self.is_unknown
        whole = isinstance(operation, Delete | MakeDirectory | Rename)
        return self.is_failure and (
            whole or (isinstance(operation, Filling) and not ancestors(operation.path))
        )


class UndecidedError(Exception):
    """A history of which it could not be found out in time whether an order explains it."""


class Violation(AssertionError):  # noqa: N818 - what is found, not what failed
    """A history that no order explains."""


def check(
    start: Tree, events: Sequence[Event], *, excused: tuple[type[S3kError], ...] = ()
) -> list[Event]:
    """An order that explains the history. Errors of the classes `excused` may come at any time and
    mean that nothing happened. Raises Violation with the longest part that can be explained;
    UndecidedError.
    """
    order, stuck = _search(start, events, excused)
    if order is None:
        done = [event for number, event in enumerate(events) if stuck >> number & 1]
        left = [event for number, event in enumerate(events) if not stuck >> number & 1]
        story = (
            "\n  ".join(map(str, done))
            + "\nand then none of\n  "
            + "\n  ".join(map(str, left[:12]))
        )
        raise Violation(f"no order explains the history from {dict(start)}; at best\n  {story}")
    return order


def find_order(
    start: Tree, events: Sequence[Event], *, excused: tuple[type[S3kError], ...] = ()
) -> list[Event] | None:
    """As `check`; None if there is no order."""
    return _search(start, events, excused)[0]


def _search(
    start: Tree, events: Sequence[Event], excused: tuple[type[S3kError], ...]
) -> tuple[list[Event] | None, int]:
    needed = sum(1 << number for number, event in enumerate(events) if not event.is_unknown)
    exposed = {number for number, event in enumerate(events) if _is_exposed(event, events)}
    seen: set[_Configuration] = set()
    stack: list[_Step] = [(0, 0, start, ())]
    furthest = 0
    while stack:
        done, early, tree, order = stack.pop()
        if done & needed == needed:
            return [events[number] for number in order], done
        configuration = done, early, frozenset(tree.items())
        if configuration in seen:
            continue
        if len(seen) >= BUDGET:
            raise UndecidedError(
                f"no order was found among {BUDGET} configurations, and not all were looked at"
            )
        seen.add(configuration)
        furthest = max(furthest, done, key=int.bit_count)
        limit = min(event.end for number, event in enumerate(events) if not done >> number & 1)
        ready = [
            (number, event)
            for number, event in enumerate(events)
            if not done >> number & 1 and event.begin < limit
        ]
        odd: list[_Step] = []
        likely: list[_Step] = []
        for number, event in ready:
            after, marked = done | 1 << number, early | 1 << number
            if early & 1 << number:
                likely += [(after, early, grown, (*order, number)) for grown in _ends(event, tree)]
                odd += [(done, early, grown, order) for grown in _turns_up(event, tree)]
                continue
            outcomes = list(_outcomes(event, tree, excused))
            if tree in outcomes and event.changes_nothing and number not in exposed:
                # If any order begins here, one does in which this comes first.
                odd, likely = [], [(after, early, tree, (*order, number))]
                break
            likely += [(after, early, grown, (*order, number)) for grown in outcomes]
            odd += [
                (done, early, grown, order)
                for grown in event.operation.leftovers(tree)
                if grown != tree
            ]
            odd += [
                (done, marked, grown, order)
                for grown in _begins(event, tree, exposed=number in exposed)
            ]
        # What ended first is tried first.
        stack += [*odd, *reversed(likely)]
    return None, furthest


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


def _changed(operation: Operation) -> Sequence[str]:
    if isinstance(operation, Rename):
        return operation.source, operation.target
    return (operation.path,) if isinstance(operation, Delete) else ()


def _begins(event: Event, tree: Tree, *, exposed: bool) -> Iterator[Tree]:
    """The trees in which a new file is seen before its writer is told: early, below a directory
    that is moved or removed; or written by a request whose answer was lost. Once: what was seen
    does not go and come again.
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
        yield {**grown, path: File(there.data, there.stamp)}


def _ends(event: Event, tree: Tree) -> Iterator[Tree]:
    """The trees when the writer of a file that was seen is told. One that fails has taken the file
    back; so may one of which nobody knows.
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


def _outcomes(event: Event, tree: Tree, excused: tuple[type[S3kError], ...]) -> Iterator[Tree]:
    """The trees that the event may lead to, with what was told of it, if it happens now."""
    result = event.operation.apply(tree)
    if event.is_unknown:
        if not isinstance(result, Refusal):
            yield result.tree
    elif event.is_failure and issubclass(event.outcome, excused):
        yield tree
    elif isinstance(result, Refusal):
        if matches(result, event.outcome):
            yield tree
    elif matches(result.value, event.outcome):
        yield result.tree
