"""The search for an order of a history: that of Wing and Gong, with the memory of Lowe.

Take any call that began before every other that is left has ended, and go on from the tree that it
leaves. A configuration (calls that are done, and what they have left) that was seen before is not
tried again. A call that changes nothing and fits is taken at once, and nothing else is tried in its
place.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from s3k_async.errors import OutcomeUnknownError, PartialFailureError, S3kError
from tests.torture.histories_places import Place, Purge, Trash, Undelete, Verb
from tests.torture.model import (
    Delete,
    Filling,
    Label,
    MakeDirectory,
    Outcome,
    Rename,
    Tree,
    Truncate,
    WriteRange,
    ancestors,
)

__all__ = ["NEVER", "UNKNOWN", "Event", "Next", "Places", "Search", "Step", "UndecidedError"]

UNKNOWN: Final = "unknown"
"""No result, or an unknown one: the call took effect at any time since it began, or never does."""
NEVER: Final = math.inf

BUDGET: Final = 100_000
"""Configurations visited before a history is undecided; about ten seconds."""

Places: TypeAlias = Mapping[tuple[int, int], tuple[Place, ...]]
"""Of events that are not done: where each of their paths may lead to, beside where it leads now."""


@dataclass(frozen=True, slots=True)
class Event:
    """One call of a history. The times are of one clock; a call without an observed end ends at
    NEVER."""

    client: int
    operation: Verb
    outcome: Outcome
    begin: float
    end: float
    is_resent: bool = False
    """Whether an answer was lost meanwhile: the creation is sent again, and takes effect again if
    its entry was removed in between."""

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
        """Whether the call failed: it changed nothing in any tree."""
        return (
            isinstance(self.outcome, type)
            and issubclass(self.outcome, S3kError)
            and not self.is_unknown
        )

    @property
    def may_make_parents(self) -> bool:
        """Whether it may have made directories although it failed."""
        operation = self.operation
        return isinstance(operation, Filling | Undelete) and bool(ancestors(operation.path))

    @property
    def changes_nothing(self) -> bool:
        """Whether it leaves every tree as it is: it only looks, without a stamp, or has failed, and
        was no call that may have made parents before, or dropped its reservation.
        """
        operation = self.operation
        if self.is_unknown or not hasattr(operation, "stamp"):
            return not self.is_unknown
        known = (
            Delete
            | Filling
            | Label
            | MakeDirectory
            | Purge
            | Rename
            | Truncate
            | Undelete
            | WriteRange
        )
        return self.is_failure and isinstance(operation, known) and not self.may_make_parents


class UndecidedError(Exception):
    """A history of which it could not be found out in time whether an order explains it."""


class Step(NamedTuple):
    """A configuration of the search, and how it was reached."""

    done: int
    """The events that are done,"""
    early: int
    """and those of which something was seen before."""
    tree: Tree
    order: tuple[int, ...]
    trash: Trash
    places: Places


class Next(NamedTuple):
    """The steps that one event leads to."""

    likely: Sequence[Step]
    """Those in which it is done,"""
    odd: Sequence[Step] = ()
    """and those in which something of it is there."""
    is_free: bool = False
    """Whether it changes nothing: if any order begins here, one does in which it comes first."""


class Search(ABC):
    """The search for an order of the events in one layout. Errors of the classes `excused` may come
    at any time and mean that nothing happened."""

    def __init__(self, events: Sequence[Event], excused: tuple[type[S3kError], ...]) -> None:
        self.events = events
        self.excused = excused
        self._numbered = list(enumerate(events))

    def run(self, start: Tree) -> tuple[list[Event] | None, int]:
        """An order, None if there is none, and which events can be ordered at best. Raises
        UndecidedError."""
        events = self.events
        needed = sum(1 << number for number, event in enumerate(events) if not event.is_unknown)
        seen: set[Hashable] = set()
        stack = [Step(0, 0, start, (), (), {})]
        furthest = 0
        while stack:
            step = stack.pop()
            if step.done & needed == needed:
                return [events[number] for number in step.order], step.done
            configuration = self.configuration(step)
            if configuration in seen:
                continue
            if len(seen) >= BUDGET:
                raise UndecidedError(
                    f"no order was found among {BUDGET} configurations, and not all were looked at"
                )
            seen.add(configuration)
            furthest = max(furthest, step.done, key=int.bit_count)
            stack += self._after(step)
        return None, furthest

    def _after(self, step: Step) -> list[Step]:
        """The steps that may come next; the last is to be tried first."""
        done = step.done
        left = [pair for pair in self._numbered if not done >> pair[0] & 1]
        limit = min([event.end for _, event in left])
        ready = [pair for pair in left if pair[1].begin < limit]
        odd: list[Step] = []
        likely: list[Step] = []
        for number, event in ready:
            following = self.follow(number, event, step, ready)
            if following.is_free:
                return list(following.likely)
            likely += following.likely
            odd += following.odd
        # What ended first is tried first.
        return [*odd, *reversed(likely)]

    @abstractmethod
    def configuration(self, step: Step) -> Hashable:
        """What the events that are left depend on."""

    @abstractmethod
    def follow(
        self, number: int, event: Event, step: Step, ready: Sequence[tuple[int, Event]]
    ) -> Next:
        """The steps that the event leads to; `ready` are all that may come next."""
