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
"""Chunks and subdirectories of one recursive change that are processed concurrently."""
CHUNK = SEGMENT_OPERATIONS
"""Entries of one directory that are changed together, and logged in one segment."""
FULL_CHUNK = 8
"""The share of `PARTS` that a chunk of `CHUNK` entries takes: the entries and their segment are
held in memory."""


def cost(chunk: Entries) -> int:
    """The share of `PARTS` that a chunk takes."""
    return 1 + (FULL_CHUNK - 1) * len(chunk) // CHUNK


def cost_of_files(chunk: Entries) -> int:
    """As `cost`, where directories are not held."""
    return cost(chunk.files())


async def chunks(pages: AsyncGenerator[Entries, None]) -> AsyncGenerator[Entries, None]:
    """The children of a directory: files in chunks of `CHUNK`, directories in arrival order.

    The files of a chunk are sorted by name, and hence alternate between the suffixes: no partition
    gets all requests at once, and transactions are full even if each suffix has few files.
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
    """The entries, with those at some places read again by `current`; without missing ones."""
    if not places:
        return entries
    kept = []
    for place, entry in enumerate(entries):
        found = await current(entry) if place in places else entry
        kept += [found] if found is not None else []
    return in_columns(kept, keys)


class _EntryBuffer:
    """Buffers entries until a chunk is full."""

    def __init__(self) -> None:
        self._parts: list[Entries] = []
        self._count = 0

    def add(self, entries: Entries, page: Entries) -> list[Entries]:
        """Add the entries of a page; returns the chunks that are full."""
        if len(entries) > 0:
            # A slice would keep the whole page in memory.
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
