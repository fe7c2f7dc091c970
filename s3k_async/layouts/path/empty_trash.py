"""The trash of layout `path`, which is always empty: recursive deletes do not use it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable

from s3k_async._native import Entries
from s3k_async.errors import PathNotFoundError
from s3k_async.model import ChangeResult, Entry, TrashItem
from s3k_async.namespace.layout import OnProgress

__all__ = ["EmptyTrash"]


class EmptyTrash:
    """An implementation of `namespace.layout.TrashStore`."""

    async def items(self) -> list[TrashItem]:
        """An empty list."""
        return []

    async def newest(self, path: str) -> TrashItem:
        """Raise PathNotFoundError."""
        raise PathNotFoundError("no such directory in the trash", path=path)

    async def restore(self, item: TrashItem, target: str) -> Entry:
        """Raise PathNotFoundError."""
        raise PathNotFoundError("no such directory in the trash", path=item.was)

    async def walk(self, item: TrashItem) -> AsyncGenerator[Entries, None]:
        """Raise PathNotFoundError."""
        raise PathNotFoundError("no such directory in the trash", path=item.was)
        yield  # makes it a generator

    async def empty(
        self,
        items: Iterable[TrashItem] | None = None,
        *,
        before_ms: int | None = None,
        progress: OnProgress = None,
    ) -> ChangeResult:
        """Do nothing."""
        return ChangeResult()

    async def collect(
        self,
        clock: Callable[[], Awaitable[int]],
        *,
        retention_ms: int,
        dry_run: bool = False,
        progress: OnProgress = None,
    ) -> ChangeResult:
        """Do nothing."""
        return ChangeResult()
