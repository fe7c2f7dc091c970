"""The children of a directory in chunks: each is changed together and logged in one segment."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import aclosing

from s3k_async._native import Entries
from s3k_async.model import Entry
from s3k_async.oplog.log_writer import SEGMENT_OPERATIONS
from s3k_async.table.codec import in_columns
from s3k_async.table.keys import KeyScheme

__all__ = ["CHUNK", "PARTS", "chunks", "cost", "cost_of_files", "mixed_chunks", "reread"]

PARTS = 64
"""Portions and subdirectories of one recursive change that are worked on at the same time."""
CHUNK = SEGMENT_OPERATIONS
"""Entries of one directory that are changed together, and logged in one segment."""
FULL_CHUNK = 8
"""Of the `PARTS`, what a portion of `CHUNK` entries counts as: they and their segment are held in
memory."""


def cost(chunk: Entries) -> int:
    """How many of the `PARTS` a portion counts as."""
    return 1 + (FULL_CHUNK - 1) * len(chunk) // CHUNK


def cost_of_files(chunk: Entries) -> int:
    """As `cost`, where directories are not held."""
    return cost(chunk.files())


async def chunks(pages: AsyncGenerator[Entries, None]) -> AsyncGenerator[Entries, None]:
    """The children of a directory: files by the `CHUNK`, directories as they come.

    The files of a portion are in the order of their names, and hence come from all suffixes in
    turn: no partition is hammered, and a transaction is full however few files each suffix has.
    """
    held = _EntryBuffer()
    async with aclosing(pages):
        async for page in pages:
            directories = page.directories()
            if len(directories) > 0:
                yield directories
            for chunk in held.add(page.files(), page):
                yield chunk
    for chunk in held.rest():
        yield chunk


async def mixed_chunks(pages: AsyncGenerator[Entries, None]) -> AsyncGenerator[Entries, None]:
    """As `chunks`, with the directories among the files."""
    held = _EntryBuffer()
    async with aclosing(pages):
        async for page in pages:
            for chunk in held.add(page, page):
                yield chunk
    for chunk in held.rest():
        yield chunk


async def reread(
    entries: Entries,
    places: Collection[int],
    current: Callable[[Entry], Awaitable[Entry | None]],
    keys: KeyScheme,
) -> Entries:
    """The entries, those at some places as `current` gives them; without those that are gone."""
    if not places:
        return entries
    kept = []
    for place, entry in enumerate(entries):
        found = await current(entry) if place in places else entry
        kept += [found] if found is not None else []
    return in_columns(kept, keys)


class _EntryBuffer:
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
        while self._count >= CHUNK:
            ordered = Entries.sorted(self._parts)
            full.append(ordered[:CHUNK])
            self._parts, self._count = [ordered[CHUNK:]], self._count - CHUNK
        return full

    def rest(self) -> list[Entries]:
        return [Entries.sorted(self._parts)] if self._count > 0 else []
