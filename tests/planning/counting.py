"""Requests that a client made, by the names that the model has for them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from s3k_async.client import S3kClient
from s3k_async.config import Tuning
from s3k_async.model import Entry
from s3k_async.planning import LaidTree, Service, Work, measure
from s3k_async.stores import memory_items
from s3k_async.stores.items import Put

__all__ = ["MEMORY", "ONE_AT_A_TIME", "Counted", "counted", "laid", "predicted"]

ONE_AT_A_TIME = Tuning(max_concurrency=1)
"""So that what calls at the same time would share is not shared."""

MEMORY = Service(page_items=memory_items._PAGE)
"""The engine in memory counts the items of a page."""

Counted = dict[tuple[str, str], int]

_OPERATIONS = {
    "get": "GetItem",
    "get_many": "BatchGetItem",
    "transact": "TransactWriteItems",
    "query": "Query",
    "scan": "Scan",
}
_BLOB_OPERATIONS = {"put": "PutObject", "get": "GetObject", "head": "HeadObject"}


class _Spy:
    """A store whose calls are counted."""

    def __init__(self, store: object, part: str, count: Counter[tuple[str, str]]) -> None:
        self._store = store
        self._part = part
        self._count = count

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        async def call(*arguments: Any, **options: Any) -> Any:
            if self._part == "table":
                put = name == "write" and isinstance(arguments[0], Put)
                operation = _OPERATIONS.get(name, "PutItem" if put else "UpdateItem")
            else:
                operation = _BLOB_OPERATIONS[name]
            self._count[self._part, operation] += 1
            return await method(*arguments, **options)

        return call if callable(method) else method


def counted(client: S3kClient) -> Counter[tuple[str, str]]:
    """Counts from now on."""
    count: Counter[tuple[str, str]] = Counter()
    volume = client._volume()
    for part, store in (("table", volume.items), ("data", volume.blobs), ("log", volume.log_blobs)):
        object.__setattr__(store, "_store", _Spy(store._store, part, count))  # type: ignore[union-attr]
    return count


def predicted(work: Work) -> Counted:
    """What the model says; every count is certain."""
    assert all(number.exact for number in work.requests.values())
    return {key: number.likely for key, number in work.requests.items()}


async def laid(client: S3kClient, path: str, service: Service) -> LaidTree:
    """The layout of a tree as it is stored."""
    store = client._volume().store
    top = await store.get(path)
    assert top is not None
    entries: list[Entry] = [entry async for page in client._volume().tree.walk(path) for entry in page]
    return measure(entries, top, store.keys, service)
