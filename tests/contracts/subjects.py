"""What the contract suites are written in terms of."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import pytest

from s3k_async.backends.ports.blobs import BlobInfo, BlobStore
from s3k_async.backends.ports.items import Item, ItemPage, ItemStore, ItemTable, Key, Value
from s3k_async.backends.registry import BLOBS, TABLES, Registry
from s3k_async.errors import ConditionFailedError, TransactionConflictError
from s3k_async.storage_space import StorageSpace

__all__ = [
    "BLOB_STORES",
    "BLOB_SUBJECTS",
    "DYNAMO",
    "ITEM_STORES",
    "ITEM_SUBJECTS",
    "RACING_BLOB_STORES",
    "S3",
    "Blobs",
    "Items",
    "OpenBlobs",
    "OpenItems",
    "Subject",
    "all_blobs",
    "all_items",
    "check_space",
    "key",
    "names",
    "on_blobs",
    "params",
    "row",
    "settled",
    "subjects_of",
    "token",
    "won",
]

T = TypeVar("T")


class Subject(NamedTuple):
    """A location of a registered backend over which the contract suite runs."""

    scheme: str
    url: str
    """How a setting writes it, with `{directory}` of the test, `{server}` of the engine, `{name}`,
    and for blobs `{prefix}`."""
    engine: str | None = None
    """The fixture of the service that it is on."""


def subjects_of(registry: Registry[Any], subjects: Mapping[str, Subject]) -> tuple[str, ...]:
    """The names of the subjects. Raises LookupError if a registered backend has none."""
    registered = {registry.backend(scheme).scheme for scheme in registry.schemes()}
    without = registered - {subject.scheme for subject in subjects.values()}
    if without:
        raise LookupError(
            f"backends without a subject of the contract suite: {', '.join(sorted(without))}"
        )
    return tuple(subjects)


ITEM_SUBJECTS = {
    "memory": Subject("memory", "memory://{name}"),
    "sqlite": Subject("sqlite", "sqlite:{directory}/table.db"),
    "dynamodb_local": Subject("dynamodb", "{name}", "dynamodb_local"),
    "dynoxide": Subject("dynamodb", "dynamodb://{name}", "dynoxide"),
    "extenddb": Subject("dynamodb", "{name}", "extenddb"),
    "reference": Subject("dynamodb", "{name}", "dynoxide"),
    "redis": Subject("redis", "redis://default@{server}/1/{name}", "redis_server"),
    "rocksdb": Subject("rocksdb", "rocksdb://{directory}/table"),
    "prefixed": Subject("memory", "memory://{name}"),
}
"""Over the wire, except `reference`, which uses aioboto3. `prefixed`: one of the volumes of a
shared table."""
BLOB_SUBJECTS = {
    "memory": Subject("memory", "memory://{name}/{prefix}"),
    "local": Subject("file", "{directory}/{name}/{prefix}"),
    "seaweedfs": Subject("s3", "s3://{name}/{prefix}", "seaweedfs"),
    "moto_s3": Subject("s3", "s3://{name}/{prefix}", "moto_s3"),
    "redis": Subject("redis", "redis://default@{server}/2/{name}/{prefix}", "redis_server"),
    "rocksdb": Subject("rocksdb", "rocksdb://{directory}/{name}/{prefix}"),
    "reference_s3": Subject("s3", "s3://{name}/{prefix}", "seaweedfs"),
    "tiered": Subject("memory", "memory://{name}/{prefix}"),
    "tiered_moved": Subject("memory", "memory://{name}/{prefix}"),
}
"""As `ITEM_SUBJECTS`; `reference_s3` is aioboto3's path. `tiered` has a hot store besides;
of `tiered_moved` every second key is moved to the cold one as soon as it is written."""
ITEM_STORES = subjects_of(TABLES, ITEM_SUBJECTS)
BLOB_STORES = subjects_of(BLOBS, BLOB_SUBJECTS)
ON_ENGINES = {
    name
    for subjects in (ITEM_SUBJECTS, BLOB_SUBJECTS)
    for name, subject in subjects.items()
    if subject.engine
}
DYNAMO = {
    name: subject.engine
    for name, subject in ITEM_SUBJECTS.items()
    if subject.engine and subject.scheme == "dynamodb"
}
"""The engine of each in DynamoDB."""
S3 = {
    name: subject.engine
    for name, subject in BLOB_SUBJECTS.items()
    if subject.engine and subject.scheme == "s3"
}
RACING_BLOB_STORES = ("memory", "local", "seaweedfs", "redis", "rocksdb", "tiered")
"""Without moto, which is slow, and neither atomic nor stable under concurrent writes."""


def params(stores: Iterable[str], deviations: Mapping[str, str] | None = None) -> list[Any]:
    """Parameters for the stores, marked where they need an engine. `deviations` tells which engine,
    for what reason, does not keep a rule; a test that passes nevertheless fails."""
    marked = []
    deviations = deviations or {}
    for name in stores:
        marks = [pytest.mark.engine] if name in ON_ENGINES else []
        if reason := deviations.get(S3.get(name, name)):
            marks.append(pytest.mark.xfail(reason=reason, strict=True))
        marked.append(pytest.param(name, marks=marks))
    return marked


def on_blobs(stores: Iterable[str] = BLOB_STORES, **deviations: str) -> pytest.MarkDecorator:
    """Run a test over these blob stores, some of which are known to deviate."""
    return pytest.mark.parametrize("blob_store", params(stores, deviations), indirect=True)


class Items(ItemStore, ItemTable, Protocol):
    """A table and the items in it."""


Blobs = BlobStore
OpenItems = Callable[[], Awaitable[Items]]


class OpenBlobs(Protocol):
    """Opens a place for blobs by its name."""

    async def __call__(self, place: str = "main", prefix: str = "") -> Blobs: ...


PARTITION = "ks://volume/directory-sf0"


def key(name: str, partition: str = PARTITION) -> Key:
    return Key(partition, name)


def row(name: str, partition: str = PARTITION, /, **attributes: Value) -> dict[str, Value]:
    """An item with a few attributes."""
    return {"path": partition, "children": name, **attributes}


def token() -> str:
    """A token of the greatest length. No two tests may share one: DynamoDB remembers it for the
    whole account."""
    return str(uuid.uuid4())


def names(page: Sequence[Item]) -> list[str]:
    return [str(item["children"]) for item in page]


async def all_items(
    fetch: Callable[[str | None], Awaitable[ItemPage]], *, limit: int | None = None
) -> list[Item]:
    """Follow the cursors to the end. No page may hold more than `limit` items."""
    found: list[Item] = []
    cursor = None
    for _ in range(10_000):
        page = await fetch(cursor)
        assert limit is None or len(page.items) <= limit
        found.extend(page.items)
        cursor = page.next
        if cursor is None:
            return found
    raise AssertionError("the pages never end")


async def all_blobs(listing: AsyncIterator[BlobInfo]) -> list[BlobInfo]:
    return [each async for each in listing]


def check_space(space: StorageSpace, store: str) -> None:
    """Check the reported space: all three numbers for disks; the memory in use, and the limit if
    there is one, for Redis; nothing for other stores."""
    if store in ("local", "sqlite", "rocksdb"):
        assert space.total is not None
        assert space.used is not None
        assert space.free is not None
        assert 0 <= space.free <= space.total
        assert space.used + space.free <= space.total
    elif store == "redis":
        assert space.used
        assert (space.total is None) == (space.free is None)
    else:
        assert space == StorageSpace()


async def settled(call: Callable[[], Awaitable[T]]) -> T:
    """Send a request again for as long as it only conflicts, as the layer above the port does."""
    for _ in range(10_000):
        try:
            return await call()
        except TransactionConflictError:
            continue
    raise AssertionError("conflicts never end")


async def won(call: Callable[[], Awaitable[object]]) -> bool:
    """Whether a conditional request was applied, rather than refused because its condition did not
    hold."""
    try:
        await settled(call)
    except ConditionFailedError:
        return False
    return True
