"""Fault injection: numbered calls of stores, any of which can fail by a plan."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, TypeAlias

from anyio.lowlevel import checkpoint

from s3k_async.backends.ports.blobs import (
    BlobInfo,
    BlobPage,
    BlobStore,
    Buffer,
    DeleteFailure,
    Unfinished,
    Upload,
    get_into,
)
from s3k_async.backends.ports.interception import INTERCEPTOR, TableStore
from s3k_async.backends.ports.items import (
    PARTITION,
    SORT,
    Action,
    Delete,
    Item,
    ItemPage,
    Key,
    Put,
    Update,
)
from s3k_async.backends.ports.object_versions import at_version
from s3k_async.backends.ports.other_buckets import in_bucket
from s3k_async.storage_space import StorageSpace

__all__ = ["Call", "Died", "FaultPlan", "FaultyBlobs", "FaultyItems", "Moment", "guarded"]

Moment: TypeAlias = Literal["before", "after"]
"""Before the call is applied (no effect), or after it (a lost answer)."""


class Died(BaseException):
    """A simulated crash of the process; not an Exception, so that error handlers do not continue
    after it."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a store: its number within the plan (from 1), method and key."""

    number: int
    store: str
    method: str
    key: str
    """The key; of a transaction or batch, the first one; the partition or prefix of a listing."""


@dataclass(slots=True)
class _Fault:
    matches: Callable[[Call], bool]
    error: BaseException
    when: Moment
    times: int


class FaultPlan:
    """A plan of failures for the numbered calls of the stores that share it.

    `with plan.injected():` lets the calls of every volume that is opened in the body go through
    the plan, for as long as the volume is open. `items` and `blobs` wrap one store.

    `calls` is the record so far. `gate`, if set, is awaited before each call, so that a test can
    hold one task while another proceeds.
    """

    def __init__(self, gate: Callable[[Call], Awaitable[None]] | None = None) -> None:
        self.gate = gate
        self.calls: list[Call] = []
        self._faults: list[_Fault] = []
        self._refused: dict[str, Exception] = {}

    @contextlib.contextmanager
    def injected(self) -> Iterator[None]:
        """Volumes opened in the body, by clients or directly, get stores that share this plan."""
        token = INTERCEPTOR.set(self)
        try:
            yield
        finally:
            INTERCEPTOR.reset(token)

    def items(self, store: TableStore) -> FaultyItems:
        """The table, with its calls through this plan."""
        return FaultyItems(store, self)

    def blobs(self, store: BlobStore) -> FaultyBlobs:
        """The blobs, with their calls through this plan."""
        return FaultyBlobs(store, self)

    def fail(self, number: int, error: BaseException, *, when: Moment = "before") -> None:
        """Make call `number` raise `error`, before or after it is applied."""
        self.fail_when(lambda call: call.number == number, error, when=when)

    def die(self, number: int, *, when: Moment = "before") -> None:
        """Make call `number` raise Died, before or after it is applied."""
        self.fail(number, Died(f"died {when} call {number}"), when=when)

    def fail_when(
        self,
        matches: Callable[[Call], bool],
        error: BaseException,
        *,
        when: Moment = "before",
        times: int = 1,
    ) -> None:
        """Make the next `times` calls that match raise `error`."""
        self._faults.append(_Fault(matches, error, when, times))

    def refuse(self, key: str, error: Exception) -> None:
        """Make every `delete_many` keep this key, with `error` as the reason."""
        self._refused[key] = error

    def refusal(self, key: str) -> Exception | None:
        """The reason why `delete_many` keeps the key, or None."""
        return self._refused.get(key)

    def take(self, call: Call, when: Moment) -> BaseException | None:
        """The planned error of the call before or after it is applied, or None."""
        for fault in self._faults:
            if fault.when == when and fault.times > 0 and fault.matches(call):
                fault.times -= 1
                return fault.error
        return None


class _Guarded:
    """Context in which one call is applied. Its own error is an answer, too, and can be lost."""

    __slots__ = ("_call", "_plan")

    def __init__(self, plan: FaultPlan, store: str, method: str, key: str) -> None:
        self._plan = plan
        self._call = Call(len(plan.calls) + 1, store, method, key)
        plan.calls.append(self._call)

    async def __aenter__(self) -> None:
        if self._plan.gate is not None:
            await self._plan.gate(self._call)
        error = self._plan.take(self._call, "before")
        if error is not None:
            await checkpoint()
            raise error

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        error = self._plan.take(self._call, "after")
        if error is not None:
            raise error


def guarded(
    plan: FaultPlan, store: str, method: str, key: str
) -> contextlib.AbstractAsyncContextManager[None, None]:
    """A context for the application of one call to `store`."""
    return _Guarded(plan, store, method, key)


class FaultyItems:
    """A table with calls through a plan."""

    def __init__(self, store: TableStore, plan: FaultPlan) -> None:
        self.plan = plan
        self._store = store

    def __repr__(self) -> str:
        return f"FaultyItems({self._store!r})"

    def _call(self, method: str, key: str = "") -> contextlib.AbstractAsyncContextManager[None]:
        return guarded(self.plan, "items", method, key)

    async def get(self, key: Key) -> Item | None:
        async with self._call("get", _text(key)):
            return await self._store.get(key)

    async def get_many(self, keys: Sequence[Key]) -> dict[Key, Item]:
        async with self._call("get_many", _text(keys[0]) if keys else ""):
            return await self._store.get_many(keys)

    async def write(self, action: Put | Update | Delete) -> None:
        async with self._call("write", _text(action.key)):
            await self._store.write(action)

    async def transact(self, actions: Sequence[Action], token: str) -> None:
        async with self._call("transact", _text(actions[0].key) if actions else ""):
            await self._store.transact(actions, token)

    async def load(self, items: Sequence[Item]) -> None:
        first = f"{items[0][PARTITION]}/{items[0][SORT]}" if items else ""
        async with self._call("load", first):
            await self._store.load(items)

    async def query(
        self,
        partition: str,
        *,
        cursor: str | None = None,
        after: str = "",
        limit: int | None = None,
    ) -> ItemPage:
        async with self._call("query", partition):
            return await self._store.query(partition, cursor=cursor, after=after, limit=limit)

    async def scan(
        self, segment: int, segments: int, *, cursor: str | None = None, limit: int | None = None
    ) -> ItemPage:
        async with self._call("scan", f"{segment}/{segments}"):
            return await self._store.scan(segment, segments, cursor=cursor, limit=limit)

    async def space(self) -> StorageSpace:
        async with self._call("space"):
            return await self._store.space()

    async def create(self) -> bool:
        async with self._call("create"):
            return await self._store.create()

    async def exists(self) -> bool:
        async with self._call("exists"):
            return await self._store.exists()

    async def drop(self) -> None:
        async with self._call("drop"):
            await self._store.drop()

    async def read_tag(self, name: str) -> str | None:
        async with self._call("read_tag", name):
            return await self._store.read_tag(name)

    async def write_tag(self, name: str, value: str) -> None:
        async with self._call("write_tag", name):
            await self._store.write_tag(name, value)

    async def close(self) -> None:
        await self._store.close()


class FaultyBlobs:
    """Blobs with calls through a plan."""

    def __init__(self, store: BlobStore, plan: FaultPlan) -> None:
        self.plan = plan
        self.store = store
        self.min_part = store.min_part
        self.composes = store.composes

    def __repr__(self) -> str:
        return f"FaultyBlobs({self.store!r})"

    def at_version(self, version: str) -> FaultyBlobs:
        """As `KeepsVersions.at_version`."""
        return FaultyBlobs(at_version(self.store, version), self.plan)

    def in_bucket(self, bucket: str) -> FaultyBlobs | None:
        """As `ReachesBuckets.in_bucket`."""
        store = in_bucket(self.store, bucket)
        return None if store is None else FaultyBlobs(store, self.plan)

    def call(self, method: str, key: str = "") -> contextlib.AbstractAsyncContextManager[None]:
        """A context for the application of one call."""
        return guarded(self.plan, "blobs", method, key)

    def uri(self, key: str) -> str:
        return self.store.uri(key)

    async def put(
        self, key: str, data: Buffer, *, if_absent: bool = False, if_match: str | None = None
    ) -> BlobInfo:
        async with self.call("put", key):
            return await self.store.put(key, data, if_absent=if_absent, if_match=if_match)

    async def get(
        self,
        key: str,
        start: int = 0,
        end: int | None = None,
        *,
        if_match: str | None = None,
        if_size: int | None = None,
    ) -> bytes:
        async with self.call("get", key):
            return await self.store.get(key, start, end, if_match=if_match, if_size=if_size)

    async def get_into(
        self,
        key: str,
        start: int,
        buffer: memoryview,
        *,
        if_match: str | None = None,
        if_size: int | None = None,
    ) -> int:
        async with self.call("get", key):
            return await get_into(
                self.store, key, start, buffer, if_match=if_match, if_size=if_size
            )

    async def head(self, key: str) -> BlobInfo | None:
        async with self.call("head", key):
            return await self.store.head(key)

    def can_copy_from(self, source: BlobStore) -> bool:
        return self.store.can_copy_from(_plain(source))

    async def copy(
        self,
        source: BlobStore,
        source_key: str,
        key: str,
        *,
        found: BlobInfo | None = None,
        if_match: str | None = None,
    ) -> BlobInfo:
        async with self.call("copy", key):
            return await self.store.copy(
                _plain(source), source_key, key, found=found, if_match=if_match
            )

    async def delete(self, key: str) -> None:
        async with self.call("delete", key):
            await self.store.delete(key)

    async def delete_many(self, keys: Sequence[str]) -> list[DeleteFailure]:
        async with self.call("delete_many", keys[0] if keys else ""):
            refused = {key: error for key in keys if (error := self.plan.refusal(key))}
            failures = await self.store.delete_many([key for key in keys if key not in refused])
            return failures + [DeleteFailure(key, error) for key, error in refused.items()]

    async def list(
        self,
        prefix: str = "",
        *,
        cursor: str | None = None,
        limit: int | None = None,
        after: str = "",
    ) -> BlobPage:
        async with self.call("list", prefix):
            return await self.store.list(prefix, cursor=cursor, limit=limit, after=after)

    async def start_upload(self, key: str) -> Upload:
        async with self.call("start_upload", key):
            return _FaultyUpload(self, key, await self.store.start_upload(key))

    async def list_uploads(self, prefix: str = "") -> AsyncIterator[Unfinished]:
        async with self.call("list_uploads", prefix):
            found = [upload async for upload in self.store.list_uploads(prefix)]
        for upload in found:
            yield upload

    async def abort_upload(self, upload: Unfinished) -> None:
        async with self.call("abort_upload", upload.key):
            await self.store.abort_upload(upload)

    async def now_ms(self) -> int:
        async with self.call("now_ms"):
            return await self.store.now_ms()

    async def space(self) -> StorageSpace:
        async with self.call("space"):
            return await self.store.space()

    async def create(self) -> bool:
        async with self.call("create"):
            return await self.store.create()

    async def exists(self) -> bool:
        async with self.call("exists"):
            return await self.store.exists()

    async def drop(self, *, if_empty: bool = False) -> bool:
        async with self.call("drop"):
            return await self.store.drop(if_empty=if_empty)

    async def close(self) -> None:
        await self.store.close()


class _FaultyUpload:
    def __init__(self, blobs: FaultyBlobs, key: str, upload: Upload) -> None:
        self._blobs = blobs
        self._key = key
        self._upload = upload

    async def put_part(self, number: int, data: Buffer) -> None:
        async with self._blobs.call("put_part", self._key):
            await self._upload.put_part(number, data)

    async def copy_part(
        self,
        number: int,
        source: BlobStore,
        source_key: str,
        start: int,
        end: int,
        *,
        if_match: str | None = None,
    ) -> None:
        async with self._blobs.call("copy_part", self._key):
            await self._upload.copy_part(
                number, _plain(source), source_key, start, end, if_match=if_match
            )

    async def complete(self) -> BlobInfo:
        async with self._blobs.call("complete", self._key):
            return await self._upload.complete()

    async def abort(self) -> None:
        async with self._blobs.call("abort", self._key):
            await self._upload.abort()


def _plain(store: BlobStore) -> BlobStore:
    return store.store if isinstance(store, FaultyBlobs) else store


def _text(key: Key) -> str:
    return f"{key.partition}/{key.sort}"
