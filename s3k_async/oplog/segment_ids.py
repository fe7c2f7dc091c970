"""Sets of segment ids. Those of group commits are numbered in series (`entries.numbered_segment`),
of which a set holds only runs."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Final

from s3k_async.oplog.entries import is_id, numbered_segment

__all__ = ["SegmentIds"]

_NUMBERED: Final = re.compile(
    r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-([0-9]{12})(?:\.\.([0-9]{12}))?", re.ASCII
)


class SegmentIds:
    """A set of segment ids. As texts, it is the ids, and runs of numbered ones as
    `<series>-<first>..<last>`."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        """Raises ValueError for a text that is neither an id nor a run."""
        self._others: set[str] = set()
        self._runs: dict[str, list[tuple[int, int]]] = {}
        """The first and last numbers of each series' runs, in order."""
        self._run_count = 0
        for text in texts:
            self.add(text)

    def add(self, text: str) -> None:
        """Add an id, or the ids of a run. Raises ValueError as the constructor."""
        numbered = _NUMBERED.fullmatch(text)
        if numbered is not None:
            first = int(numbered[2])
            self._add_run(numbered[1], first, first if numbered[3] is None else int(numbered[3]))
        elif is_id(text):
            self._others.add(text)
        else:
            raise ValueError(f"not a segment id: {text!r:.200}")

    def update(self, texts: Iterable[str]) -> None:
        """Add several."""
        for text in texts:
            self.add(text)

    def last_of_run(self, segment: str) -> str | None:
        """The last id of the run that contains a numbered one; None for another id, and for one
        that is not in the set."""
        numbered = _NUMBERED.fullmatch(segment)
        run = None if numbered is None else self._run_of(numbered[1], int(numbered[2]))
        return None if numbered is None or run is None else numbered_segment(numbered[1], run[1])

    def __contains__(self, segment: object) -> bool:
        if not isinstance(segment, str):
            return False
        return segment in self._others or self.last_of_run(segment) is not None

    def __iter__(self) -> Iterator[str]:
        """The texts, in order."""
        runs = (
            _text(series, first, last)
            for series, found in self._runs.items()
            for first, last in found
        )
        return iter(sorted([*self._others, *runs]))

    def __len__(self) -> int:
        """The number of texts."""
        return len(self._others) + self._run_count

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, SegmentIds) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"SegmentIds({list(self)})"

    @property
    def has_runs(self) -> bool:
        """Whether one of the texts is a run."""
        return any(first < last for runs in self._runs.values() for first, last in runs)

    def _run_of(self, series: str, number: int) -> tuple[int, int] | None:
        runs = self._runs.get(series, [])
        place = bisect_right(runs, number, key=lambda run: run[0])
        return runs[place - 1] if place and number <= runs[place - 1][1] else None

    def _add_run(self, series: str, first: int, last: int) -> None:
        if not 0 < first <= last:
            raise ValueError(f"not a run of segments: {_text(series, first, last)}")
        runs = self._runs.setdefault(series, [])
        start = bisect_right(runs, first, key=lambda run: run[0])
        if start and runs[start - 1][1] >= first - 1:
            start -= 1
            first = runs[start][0]
        end = start
        while end < len(runs) and runs[end][0] <= last + 1:
            last = max(last, runs[end][1])
            end += 1
        self._run_count += 1 - len(runs[start:end])
        runs[start:end] = [(first, last)]


def _text(series: str, first: int, last: int) -> str:
    segment = numbered_segment(series, first)
    return segment if first == last else f"{segment}..{last:012d}"
