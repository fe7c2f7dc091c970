"""Pagination of scans, queries and listings, and detection of endless listings."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Final

from s3k_async.backends.ports.blobs import BlobInfo, BlobStore
from s3k_async.backends.ports.items import Item, ItemStore
from s3k_async.errors import ServiceError

__all__ = [
    "LAST",
    "PageGuard",
    "list_all",
    "list_first_level",
    "list_pages",
    "query_all",
    "repeated",
    "scan_all",
]

LAST: Final = "\U0010ffff"
"""Appended to a key: a key after all keys with that prefix."""


async def scan_all(
    items: ItemStore, segment: int = 0, segments: int = 1, *, limit: int | None = None
) -> AsyncGenerator[Sequence[Item], None]:
    """The items of one segment of the table, page by page; a page may be empty. `limit`: most items
    in a page. One page is in memory."""
    cursor: str | None = None
    while True:
        page = await items.scan(segment, segments, cursor=cursor, limit=limit)
        yield page.items
        if page.next is None:
            return
        cursor = page.next


async def query_all(
    items: ItemStore,
    partition: str,
    *,
    after: str = "",
    limit: int | None = None,
    first: int | None = None,
) -> AsyncGenerator[Sequence[Item], None]:
    """The items of one partition by sort key, page by page; a page may be empty. `after`: only
    those whose sort key follows it; `limit`: most items in a page; `first`: in the first page."""
    cursor: str | None = None
    while True:
        page = await items.query(partition, cursor=cursor, after=after, limit=first or limit)
        yield page.items
        if page.next is None:
            return
        cursor, first = page.next, None


async def list_pages(
    blobs: BlobStore, prefix: str = "", *, after: str = ""
) -> AsyncGenerator[Sequence[BlobInfo], None]:
    """The blobs whose key starts with `prefix` and follows `after`, page by page. Raises
    ServiceError for a listing that returns to an earlier page."""
    cursor: str | None = None
    guard = PageGuard(_uri(blobs, prefix))
    while True:
        page = await blobs.list(prefix, cursor=cursor, after=after)
        yield page.blobs
        if page.next is None:
            return
        cursor = page.next
        guard.follow(cursor)


async def list_all(
    blobs: BlobStore, prefix: str = "", *, after: str = ""
) -> AsyncGenerator[BlobInfo, None]:
    """As `list_pages`, blob by blob."""
    async for page in list_pages(blobs, prefix, after=after):
        for info in page:
            yield info


async def list_first_level(
    blobs: BlobStore, prefix: str = ""
) -> AsyncGenerator[Sequence[BlobInfo], None]:
    """Pages of blobs whose key starts with `prefix`. Each skips the rest of the directory in which
    the previous page ended, so that every name of the first level occurs."""
    cursor: str | None = None
    after = ""
    guard = PageGuard(_uri(blobs, prefix))
    while True:
        page = await blobs.list(prefix, cursor=cursor, after=after)
        yield page.blobs
        if page.next is None:
            return
        if page.blobs:
            name, slash, _ = page.blobs[-1].key[len(prefix) :].partition("/")
            cursor, after = None, prefix + name + (slash and slash + LAST)
        else:
            cursor = page.next
        guard.follow(cursor or after)


class PageGuard:
    """Cycle detection over the cursors of one listing, in constant memory.

    Brent's algorithm: one cursor is kept, and replaced after 1, 2, 4, ... pages, so that a cycle of
    any length is found before its third pass.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._kept: str | None = None
        self._steps = 0
        self._limit = 1

    def follow(self, cursor: str) -> None:
        """Record the cursor of the next page. Raises ServiceError for a repeated cursor."""
        if cursor == self._kept:
            raise repeated(self._path)
        self._steps += 1
        if self._steps == self._limit:
            self._kept, self._steps, self._limit = cursor, 0, self._limit * 2


def repeated(path: str) -> ServiceError:
    """The error for a listing that returns to an earlier page."""
    return ServiceError(
        "the listing does not end: the service names a page as the next one that it gave before",
        path=path,
        service_code="RepeatedPage",
    )


def _uri(blobs: BlobStore, prefix: str) -> str:
    # A prefix need not be a valid key.
    return blobs.uri("-").removesuffix("-") + prefix
