"""What the blocking object API has beside its verbs, which are generated (`sync_store`)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from typing import TypeVar

from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async._sync.sync_session import each_of_client, on_client
from s3k_async.objects.object_store import ObjectStore

__all__ = ["BlockingObjectStore"]

T = TypeVar("T")


class BlockingObjectStore:
    """The files of a volume as objects in buckets, blocking; `client` is an `S3kSyncClient`. The
    same verbs and parameters as `ObjectStore`.

    Any number of threads may use it, and a forked or spawned child that has it opens the volume for
    itself.
    """

    def __init__(self, client: S3kSyncClient) -> None:
        self._client = client

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._client.name!r}>"

    def _call(self, verb: Callable[[ObjectStore], Awaitable[T]]) -> T:
        return on_client(self._client, lambda fs: verb(ObjectStore(fs)))

    def _each(self, verb: Callable[[ObjectStore], AsyncIterator[T]]) -> Generator[T, None, None]:
        return each_of_client(self._client, lambda fs: verb(ObjectStore(fs)))
