"""Whether the results of concurrent calls are those of some sequential order.

A history is a list of calls with their results and the times of their begin and end. It is
linearizable if each call can take effect at one moment between these times, so that the results are
those of the sequential model (Herlihy, Wing). In layout `tree` a call on files has two: it finds
its directories at one and takes effect in them at the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from s3k_async.errors import S3kError
from s3k_async.model import LayoutName
from tests.torture.histories_path import PathSearch
from tests.torture.histories_search import NEVER, UNKNOWN, Event, Search, UndecidedError
from tests.torture.histories_tree import TreeSearch
from tests.torture.model import Tree

__all__ = [
    "NEVER",
    "UNKNOWN",
    "Event",
    "UndecidedError",
    "Violation",
    "check",
    "find_order",
]

_SEARCHES: Final[Mapping[LayoutName, type[Search]]] = {"path": PathSearch, "tree": TreeSearch}


class Violation(AssertionError):  # noqa: N818 - what is found, not what failed
    """A history that no order explains."""


def check(
    start: Tree,
    events: Sequence[Event],
    *,
    excused: tuple[type[S3kError], ...] = (),
    layout: LayoutName = "path",
) -> list[Event]:
    """An order that explains the history in a volume of the layout. Errors of the classes `excused`
    may come at any time and mean that nothing happened. Raises Violation with the longest part that
    can be explained; UndecidedError.
    """
    order, stuck = _SEARCHES[layout](events, excused).run(start)
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
    start: Tree,
    events: Sequence[Event],
    *,
    excused: tuple[type[S3kError], ...] = (),
    layout: LayoutName = "path",
) -> list[Event] | None:
    """As `check`; None if there is no order."""
    return _SEARCHES[layout](events, excused).run(start)[0]
