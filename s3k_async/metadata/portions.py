"""The children of a directory by the portion: what is changed together and logged in one
segment."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from s3k_async._native import Entries
from s3k_async.oplog.log import SEGMENT_OPERATIONS

__all__ = ["PARTS", "PORTION", "cost", "cost_of_files", "mixed_portions", "portions"]

PARTS = 64
"""Portions and subdirectories of one recursive change that are worked on at the same time."""
PORTION = SEGMENT_OPERATIONS
"""Entries of one directory that are changed together, and logged in one segment."""
FULL_PORTION = 8
"""Of the `PARTS`, what a portion of `PORTION` entries counts as: they and their segment are held in
memory."""


def cost(portion: Entries) -> int:
    """How many of the `PARTS` a portion counts as."""
    return 1 + (FULL_PORTION - 1) * len(portion) // PORTION


def cost_of_files(portion: Entries) -> int:
    """As `cost`, where directories are not held."""
    return cost(portion.files())


async def portions(pages: AsyncGenerator[Entries, None]) -> AsyncGenerator[Entries, None]:
    """The children of a directory: files by the `PORTION`, directories as they come.

    The files of a portion are in the order of their names, and hence come from all suffixes in
    turn: no partition is hammered, and a transaction is full however few files each suffix has.
    """
    held = _Held()
    async with aclosing(pages):
        async for page in pages:
            directories = page.directories()
            if len(directories) > 0:
                yield directories
            for portion in held.add(page.files(), page):
                yield portion
    for portion in held.rest():
        yield portion


async def mixed_portions(pages: AsyncGenerator[Entries, None]) -> AsyncGenerator[Entries, None]:
    """As `portions`, with the directories among the files."""
    held = _Held()
    async with aclosing(pages):
        async for page in pages:
            for portion in held.add(page, page):
                yield portion
    for portion in held.rest():
        yield portion


class _Held:
    """Entries until there are enough of them."""

    def __init__(self) -> None:
        self._parts: list[Entries] = []
        self._count = 0

    def add(self, entries: Entries, page: Entries) -> list[Entries]:
        """The portions that are full with these entries of a page."""
        if len(entries) > 0:
            # A view would keep the page, of which it may be a small part.
            self._parts.append(entries if len(entries) == len(page) else Entries.joined([entries]))
            self._count += len(entries)
        full = []
        while self._count >= PORTION:
            ordered = Entries.sorted(self._parts)
            full.append(ordered[:PORTION])
            self._parts, self._count = [ordered[PORTION:]], self._count - PORTION
        return full

    def rest(self) -> list[Entries]:
        return [Entries.sorted(self._parts)] if self._count > 0 else []
