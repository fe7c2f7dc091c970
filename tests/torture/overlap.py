"""Whether a tree is one that calls of many clients on the same paths can have led to.

Every content is written once, so a file is known wherever it is. Each call has the interval in
which it ran, by a clock that all processes share. The rules err on the side of the volume: what
they refuse no order of the calls explains.

* A content is where its write, and moves that may have followed it, can have brought it; never at
  two places.
* What was acknowledged is there, unless a call that did not certainly fail can have removed or
  replaced it.
* What was removed or replaced, acknowledged, stays away: unless the content can have come to the
  place afterwards.

In layout `tree` a call on files finds its directory first and takes effect in it later: if the
directory is renamed in between, at its new path (docs/design/011-directories-by-id.md, section
6.12). So a move brings along what arrives after it (`late`).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

__all__ = ["IN_FLIGHT", "Call", "Kind", "Outcome", "check_overlapping"]

IN_FLIGHT = 10.0
"""Seconds that a request may be on its way after its process is dead, or has given it up."""

Kind: TypeAlias = Literal[
    "write",
    "move",
    "move tree",
    "move many",
    "delete",
    "delete tree",
    "delete many",
    "label",
    "expire",
    "keep",
    "protect",
    "ruled",
]
Outcome: TypeAlias = Literal["under way", "done", "failed", "unknown"]


@dataclass
class Call:
    """A call of a client, and what it was told."""

    kind: Kind
    began: float
    source: str = ""
    """The path that is moved or deleted."""
    target: str = ""
    """Where it is moved."""
    overwrite: bool = False
    """Whether a move replaces a file at its target."""
    files: dict[str, str] = field(default_factory=dict)
    """Of a write: paths to the names of the contents. Of a move of many: sources to targets. Of a
    deletion of many: paths, to nothing."""
    outcome: Outcome = "under way"
    ended: float = math.inf
    error: str = ""

    @property
    def is_possible(self) -> bool:
        """Whether it may have happened."""
        return self.outcome != "failed"

    @property
    def over(self) -> float:
        """When it can have removed or moved something at the latest. A call without an answer ended
        with its process: what others finish for the dead was visible before."""
        return self.ended if self.outcome == "done" else self.ended + IN_FLIGHT

    @property
    def arrived(self) -> float:
        """When it can have brought its contents at the latest: fsck publishes what a dead writer
        had uploaded."""
        return self.ended if self.outcome == "done" else math.inf

    def moved(self, place: str) -> str | None:
        """Where it brings what is at a place; None if it does not move it."""
        if self.kind == "move many":
            return self.files.get(place)
        if self.kind == "move" and place == self.source:
            return self.target
        if self.kind == "move tree" and place.startswith(self.source + "/"):
            return self.target + place[len(self.source) :]
        return None

    def destroys(self, place: str, name: str) -> bool:
        """Whether it removes or replaces a content at a place, for good."""
        if self.kind == "write":
            return self.files.get(place, name) != name
        if self.kind == "move":
            return self.overwrite and place == self.target
        if self.kind == "move many":
            return self.overwrite and place in self.files.values()
        if self.kind == "delete many":
            return place in self.files
        return self.kind.startswith("delete") and (
            place == self.source
            or (self.kind == "delete tree" and place.startswith(self.source + "/"))
        )


@dataclass(frozen=True)
class _Stay:
    """When a content can have come to a place."""

    earliest: float
    latest: float


class _History:
    """The calls that may have happened, by the places that they concern."""

    def __init__(self, calls: Iterable[Call], *, late: bool) -> None:
        self._late = late
        self._calls = sorted(
            (call for call in calls if call.is_possible), key=lambda call: call.over
        )
        self._moves: dict[str, list[tuple[Call, str]]] = {}
        self._removals: dict[str, list[Call]] = {}

    def moves(self, place: str) -> list[tuple[Call, str]]:
        """The moves of what is at a place, and where they bring it, by `over`."""
        if place not in self._moves:
            targets = ((call, call.moved(place)) for call in self._calls)
            self._moves[place] = [(call, target) for call, target in targets if target is not None]
        return self._moves[place]

    def removals(self, place: str) -> list[Call]:
        """The calls that remove or replace what is at a place, by `over`."""
        if place not in self._removals:
            self._removals[place] = [call for call in self._calls if call.destroys(place, "")]
        return self._removals[place]

    def destroyed(self, name: str, place: str, since: float) -> bool:
        """Whether a content may have been removed or replaced at a place from a moment on."""
        return any(
            call.over >= since and call.destroys(place, name)
            for call in reversed(self.removals(place))
        )

    def stays(self, write: Call, path: str) -> dict[str, _Stay]:
        """Each place that a content can have been at."""
        stays = {path: _Stay(write.began, write.arrived)}
        fresh = [path]
        while fresh:
            place = fresh.pop()
            stay, moves = stays[place], self.moves(place)
            for move, target in moves[
                bisect_left(moves, stay.earliest, key=lambda each: each[0].over) :
            ]:
                earliest, latest = max(stay.earliest, move.began), move.over
                if self._late:
                    latest = max(latest, stay.latest)
                before = stays.get(target)
                if before is None or earliest < before.earliest or latest > before.latest:
                    known = before or _Stay(earliest, latest)
                    stays[target] = _Stay(min(known.earliest, earliest), max(known.latest, latest))
                    fresh.append(target)
        return stays


def check_overlapping(
    tree: Mapping[str, str], calls: Iterable[Call], *, late: bool = False
) -> None:
    """Raises AssertionError for a tree (paths to names of contents) that the calls do not explain.
    `late`: whether a call may take effect in a directory that was renamed since it began."""
    known = list(calls)
    history = _History(known, late=late)
    found: dict[str, str] = {}
    for path, name in tree.items():
        assert name not in found, f"{name} is at {path} and at {found[name]}"
        found[name] = path
    writes = {
        name: (call, path)
        for call in known
        if call.kind == "write"
        for path, name in call.files.items()
    }
    assert found.keys() <= writes.keys(), (
        f"foreign contents: {sorted(found.keys() - writes.keys())}"
    )
    for name, (write, path) in writes.items():
        if name in found:
            assert write.is_possible, f"{name} was refused ({write.error}) and is at {found[name]}"
            _check_present(name, found[name], history.stays(write, path), history)
        elif write.outcome == "done" and not history.destroyed(name, path, write.began):
            explained = any(
                history.destroyed(name, place, stay.earliest)
                for place, stay in history.stays(write, path).items()
            )
            assert explained, f"{name} was acknowledged at {path} and is lost: {write}"


def _check_present(name: str, place: str, stays: Mapping[str, _Stay], history: _History) -> None:
    assert place in stays, f"{name} is at {place}, where nothing can have brought it"
    removals = [call for call in history.removals(place) if call.destroys(place, name)]
    for call in removals + [call for call, _ in history.moves(place)]:
        is_later = call.outcome == "done" and call.began > stays[place].latest
        assert not is_later, f"{name} is at {place}, from where it was removed by {call}"
