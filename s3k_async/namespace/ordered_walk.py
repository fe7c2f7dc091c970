"""Ordered walks and listings: a merge of sorted streams, with a page or two of each in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from s3k_async._core.concurrency import gather, merge, to_the_end
from s3k_async._native import Entries, Rows
from s3k_async.model import Entry
from s3k_async.table.keys import Directory, KeyScheme

__all__ = ["in_order", "resume_in_order", "walk", "walk_in_order"]

STREAMS = 64
"""Up to this many streams, each is read one page ahead; with more, this many are read at the same
time."""
DIRECTORIES = 8
"""Concurrent listings of a walk."""
AHEAD = 4
"""Directories of one level that a walk in order reads ahead, one page of each."""

_NOTHING = Rows([]).entries("none")


class Reader(Protocol):
    """What walking reads of a metadata store."""

    @property
    def keys(self) -> KeyScheme: ...
    def children(self, directory: Directory) -> AsyncGenerator[Entries, None]: ...


class OrderedReader(Protocol):
    """What walking in order reads of a metadata store."""

    @property
    def keys(self) -> KeyScheme: ...
    def children_in_order(
        self, directory: Directory, *, after: str = "", rows: int | None = None
    ) -> AsyncGenerator[Entries, None]: ...


class _Stream:
    """A stream of sorted pages, of which the next one may be prefetched."""

    def __init__(self, pages: AsyncIterator[Entries], *, ahead: bool) -> None:
        self._pages = pages
        self._ahead = ahead
        self._next: asyncio.Task[Entries | None] | None = None
        self.rest = _NOTHING
        self.ended = False

    def start(self) -> None:
        """Begin to read the first page."""
        self._next = asyncio.create_task(self._read())

    async def page(self) -> Entries | None:
        """The next page; None at the end."""
        await self.fill()
        page, self.rest = self.rest, _NOTHING
        return page or None

    async def fill(self) -> None:
        """Wait for a row, or the end."""
        while not self.rest and not self.ended:
            page = await (self._next or self._read())
            self._next = None
            if page is None:
                self.ended = True
                return
            self.rest = page
            if self._ahead:
                self._next = asyncio.create_task(self._read())

    async def _read(self) -> Entries | None:
        return await anext(self._pages, None)

    async def close(self) -> None:
        """Stop reading."""
        if self._next is not None:
            self._next.cancel()
            await asyncio.gather(self._next, return_exceptions=True)
        if isinstance(self._pages, AsyncGenerator):
            await self._pages.aclose()


class _Closing(Protocol):
    async def close(self) -> None: ...


async def _close(each: Sequence[_Closing]) -> None:
    for one in each:
        await one.close()


async def in_order(streams: Sequence[AsyncIterator[Entries]]) -> AsyncGenerator[Entries, None]:
    """Merge streams that are each sorted by path.

    Rows up to the smallest of the last known rows of all streams can be returned, since no stream
    can have an earlier row any more. Leaving the iteration cancels the reads.
    """
    left = [_Stream(stream, ahead=len(streams) <= STREAMS) for stream in streams]
    everything = list(left)
    try:
        while left:
            await gather(
                _Stream.fill, [stream for stream in left if not stream.rest], limit=STREAMS
            )
            ready, rests = Entries.merged(
                [stream.rest for stream in left], [stream.ended for stream in left]
            )
            for stream, rest in zip(left, rests, strict=True):
                stream.rest = rest
            left = [stream for stream in left if stream.rest or not stream.ended]
            if ready:
                yield ready
    finally:
        if unread := [stream for stream in everything if not stream.ended]:
            await to_the_end(partial(_close, unread))


async def walk(reader: Reader, directory: Directory) -> AsyncGenerator[Entries, None]:
    """Every descendant of a directory in pages, without a barrier between levels, each directory
    before what is below it; the directory itself excluded, reservations included. The directory
    itself is not checked.
    """

    def below(page: Entries) -> list[AsyncIterator[Entries]]:
        return [reader.children(each) for each in reader.keys.directories(page)]

    async for page in merge([reader.children(directory)], limit=DIRECTORIES, expand=below):
        if page:
            yield page


@dataclass(slots=True)
class _Level:
    """A directory whose children are being returned: those up to `place` of `page` were."""

    stream: _Stream
    page: Entries = field(default_factory=lambda: _NOTHING)
    place: int = 0
    opened: dict[int, _Stream] = field(default_factory=dict)
    """Directories of the page that are read ahead, by their places in it."""

    def read_ahead(self, start: int, below: Callable[[Entry], _Stream]) -> None:
        """Begin to read the next directories of the page, from a place on."""
        place = self.page.next_directory(max([start, *(each + 1 for each in self.opened)]))
        while place is not None and len(self.opened) < AHEAD:
            self.opened[place] = below(self.page[place])
            self.opened[place].start()
            place = self.page.next_directory(place + 1)

    async def close(self) -> None:
        """Stop reading."""
        for stream in (*self.opened.values(), self.stream):
            await stream.close()


def walk_in_order(reader: OrderedReader, directory: Directory) -> AsyncGenerator[Entries, None]:
    """Every descendant of a directory, each directory's children by name and each directory
    followed by its content.

    The directory itself is excluded and not checked; reservations are included. The listings of all
    ancestors of the current directory are open, and those of a few that follow, with a few pages of
    each in memory.
    """
    return resume_in_order(reader, [(directory, "")])


async def resume_in_order(
    reader: OrderedReader, levels: Sequence[tuple[Directory, str]], *, rows: int | None = None
) -> AsyncGenerator[Entries, None]:
    """The rest of a walk in order, from a place in it: the directories above that place, topmost
    first, each with the name after which its children follow. `rows`: about as many are needed, and
    nothing is read ahead; None: all."""
    ahead = rows is None

    def below(entry: Entry) -> _Stream:
        directory = reader.keys.directory(entry)
        return _Stream(reader.children_in_order(directory, rows=rows), ahead=ahead)

    stack = [
        _Level(_Stream(reader.children_in_order(directory, after=after, rows=rows), ahead=ahead))
        for directory, after in levels
    ]
    try:
        while stack:
            top = stack[-1]
            if top.place >= len(top.page):
                page = await top.stream.page()
                if page is None:
                    stack.pop()
                else:
                    top.page, top.place = page, 0
                continue
            found = top.page.next_directory(top.place)
            end = len(top.page) if found is None else found + 1
            yield top.page[top.place : end]
            top.place = end
            if found is None:
                continue
            opened = found in top.opened
            stack.append(_Level(top.opened.pop(found) if opened else below(top.page[found])))
            if ahead:
                top.read_ahead(found + 1, below)
    finally:
        if stack:
            await to_the_end(partial(_close, stack[::-1]))
