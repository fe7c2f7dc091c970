"""The layout of a directory's children in partitions and pages of a Query."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Final

from s3k_async.oplog.group_commit import GROUPED_CALLS

__all__ = ["ChildCount", "Page", "Partition", "even_partitions", "page_runs", "paged"]

LIKELY_GROUP: Final = 8
"""Changes in a group, expected (docs/design/012-small-and-fast.md)."""


@dataclass(frozen=True, slots=True)
class ChildCount:
    """A number of requests: the expected value, and bounds where it depends on name hashes."""

    likely: int = 0
    low: int = 0
    high: int = 0

    @classmethod
    def of(cls, number: int) -> ChildCount:
        """A certain number."""
        return cls(number, number, number)

    @property
    def exact(self) -> bool:
        """Whether the number is certain."""
        return self.low == self.high

    def __add__(self, other: ChildCount) -> ChildCount:
        return ChildCount(self.likely + other.likely, self.low + other.low, self.high + other.high)

    def __mul__(self, times: int) -> ChildCount:
        return ChildCount(self.likely * times, self.low * times, self.high * times)

    def shared_with(self, changes: int) -> ChildCount:
        """The same objects of the log, and those of single changes at the same time, which
        share objects (`oplog.group_commit`): about eight of them."""
        return ChildCount(
            self.likely + -(-changes // LIKELY_GROUP),
            -(-(self.low + changes) // GROUPED_CALLS),
            self.high + changes,
        )


@dataclass(frozen=True, slots=True)
class Page:
    """A run of equal pages: the files and directories on each, and the number of pages."""

    files: int
    directories: int
    times: int = 1


@dataclass(frozen=True, slots=True)
class Partition:
    """Equal partitions of one directory: the pages of each, and the number of partitions."""

    pages: tuple[Page, ...]
    times: int = 1

    @property
    def page_count(self) -> int:
        """Requests for reading the partition: one for an empty one, too."""
        return sum(page.times for page in self.pages)

    @property
    def files(self) -> int:
        return sum(page.files * page.times for page in self.pages)

    @property
    def directories(self) -> int:
        return sum(page.directories * page.times for page in self.pages)


def page_runs(files: int, directories: int, capacity: int) -> tuple[Page, ...]:
    """The pages of a partition whose names sort directories first."""
    if not files and not directories:
        return (Page(0, 0),)
    runs: list[Page] = []
    full, rest = divmod(directories, capacity)
    if full:
        runs.append(Page(0, capacity, full))
    if rest:
        beside = min(files, capacity - rest)
        runs.append(Page(beside, rest))
        files -= beside
    full, rest = divmod(files, capacity)
    if full:
        runs.append(Page(capacity, 0, full))
    if rest:
        runs.append(Page(rest, 0))
    return tuple(runs)


def paged(
    children: Iterable[tuple[bool, int]], capacity: int | None, page_bytes: int
) -> tuple[Page, ...]:
    """The pages of a partition with children, (is it a directory, bytes of its item), in the order
    of names.

    A page ends after `capacity` items or, without one, before the item that would exceed
    `page_bytes`.
    """
    pages: list[Page] = []
    files = directories = filled = 0
    for is_directory, size in children:
        full = files + directories >= capacity if capacity else filled + size > page_bytes
        if full and files + directories:
            pages.append(Page(files, directories))
            files = directories = filled = 0
        files += not is_directory
        directories += is_directory
        filled += size
    if files or directories or not pages:
        pages.append(Page(files, directories))
    return tuple(Page(page.files, page.directories, len(list(run))) for page, run in groupby(pages))


def even_partitions(
    files: int, directories: int, suffix_count: int, capacity: int
) -> tuple[Partition, ...]:
    """The partitions of a directory whose names hash perfectly evenly."""
    few, more = divmod(files, suffix_count)
    some, further = divmod(directories, suffix_count)
    # The larger share of files first, the larger share of directories last.
    edges = sorted({0, more, suffix_count - further, suffix_count})
    return tuple(
        Partition(
            page_runs(few + (start < more), some + (start >= suffix_count - further), capacity),
            end - start,
        )
        for start, end in pairwise(edges)
    )


def alike(layouts: Sequence[tuple[Page, ...]]) -> tuple[Partition, ...]:
    """Partitions, with equal ones combined."""
    counted: dict[tuple[Page, ...], int] = {}
    for pages in layouts:
        counted[pages] = counted.get(pages, 0) + 1
    return tuple(Partition(pages, times) for pages, times in counted.items())
