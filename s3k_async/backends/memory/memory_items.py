"""The item port in this process's memory: exact semantics."""

from __future__ import annotations

import os
import threading
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Sequence

from s3k_async._core.concurrency import interleaved
from s3k_async._core.runtime import SYSTEM, Runtime
from s3k_async.backends.ports.item_semantics import (
    TOKEN_LIFE_MS,
    cursor_of,
    fingerprint,
    key_of,
    outcome,
    refusal,
    segment_of,
    token_mismatch,
    validate,
    validate_load,
    validate_page,
    validate_segment,
    validate_transaction,
)
from s3k_async.backends.ports.items import Action, Delete, Item, ItemPage, Key, Put, Update, Value
from s3k_async.errors import VolumeNotFoundError
from s3k_async.storage_space import StorageSpace

__all__ = ["MemoryItems"]

_PAGE = 1000


class _Table:
    """Items, tags and tokens. Methods that change or iterate over them run under `lock`, because
    clients of several threads may share a table; a forked child gets a new lock, since its copy may
    be held."""

    def __init__(self) -> None:
        self.items: dict[Key, dict[str, Value]] = {}
        self.partitions: dict[str, list[Key]] = {}
        """The keys of each partition that has any, in ascending order."""
        self.order: list[str] = []
        """The partitions, in ascending order."""
        self.tags: dict[str, str] = {}
        self.tokens: OrderedDict[str, tuple[int, str]] = OrderedDict()
        self._lock = threading.Lock()
        self._process = os.getpid()

    @property
    def lock(self) -> threading.Lock:
        if self._process != os.getpid():
            self._lock = threading.Lock()
            self._process = os.getpid()
        return self._lock

    def apply(self, actions: Sequence[Action]) -> None:
        """Apply all actions or none. Raises ConditionFailedError."""
        keys = [action.key for action in actions]
        current = [self.items.get(key) for key in keys]
        refused = refusal(actions, current)
        if refused is not None:
            raise refused
        for action, key, before in zip(actions, keys, current, strict=True):
            after = outcome(action, before)
            if after is not None:
                self._put(key, after)
            elif before is not None:
                self._delete(key)

    def load(self, items: Sequence[Item], keys: Sequence[Key]) -> None:
        for key, item in zip(keys, items, strict=True):
            self._put(key, dict(item))

    def transact(self, actions: Sequence[Action], token: str, now_ms: int) -> None:
        # The oldest tokens come first: a check of all would take longer than the transaction.
        while self.tokens and next(iter(self.tokens.values()))[0] <= now_ms:
            self.tokens.popitem(last=False)
        wanted = fingerprint(actions)
        expiry, known = self.tokens.get(token, (0, ""))
        if expiry > now_ms:
            if known != wanted:
                raise token_mismatch(actions)
            return
        self.apply(actions)
        self.tokens[token] = (now_ms + TOKEN_LIFE_MS, wanted)
        self.tokens.move_to_end(token)

    def page(self, segment: int, segments: int, after: Key | None, size: int) -> list[Key]:
        """The next keys of a scan segment, at most `size`."""
        keys: list[Key] = []
        begin = 0 if after is None else bisect_left(self.order, after.partition)
        for place in range(begin, len(self.order)):
            partition = self.order[place]
            if segment_of(partition) % segments == segment:
                found = self.partitions[partition]
                start = 0 if after is None else bisect_right(found, after)
                keys += found[start : start + size - len(keys)]
                if len(keys) == size:
                    break
        return keys

    def _put(self, key: Key, item: dict[str, Value]) -> None:
        if key not in self.items:
            keys = self.partitions.get(key.partition)
            if keys is None:
                self.partitions[key.partition] = [key]
                insort(self.order, key.partition)
            else:
                insort(keys, key)
        self.items[key] = item

    def _delete(self, key: Key) -> None:
        keys = self.partitions[key.partition]
        del keys[bisect_left(keys, key)]
        if not keys:
            del self.partitions[key.partition]
            del self.order[bisect_left(self.order, key.partition)]
        del self.items[key]


_tables: dict[str, _Table] = {}


class MemoryItems:
    """An ItemStore and ItemTable, shared by all clients in this process with the same name.

    Sort keys ascend by code point, which is the order of their UTF-8 bytes. A forked child has a
    copy.
    """

    def __init__(self, name: str, runtime: Runtime = SYSTEM) -> None:
        self._name = name
        self._runtime = runtime

    def __repr__(self) -> str:
        return f"MemoryItems({self._name!r})"

    def _table(self) -> _Table:
        table = _tables.get(self._name)
        if table is None:
            raise VolumeNotFoundError("no such table", path=f"memory://{self._name}")
        return table

    async def get(self, key: Key) -> Item | None:
        async with interleaved:
            item = self._table().items.get(key)
            return None if item is None else dict(item)

    async def get_many(self, keys: Sequence[Key]) -> dict[Key, Item]:
        async with interleaved:
            table = self._table()
            with table.lock:
                return {key: dict(table.items[key]) for key in keys if key in table.items}

    async def write(self, action: Put | Update | Delete) -> None:
        validate(action)
        async with interleaved:
            table = self._table()
            with table.lock:
                table.apply([action])

    async def transact(self, actions: Sequence[Action], token: str) -> None:
        validate_transaction(actions, token)
        actions = list(actions)
        async with interleaved:
            table = self._table()
            with table.lock:
                table.transact(actions, token, self._runtime.now_ms())

    async def load(self, items: Sequence[Item]) -> None:
        keys = validate_load(items)
        async with interleaved:
            table = self._table()
            with table.lock:
                table.load(items, keys)

    async def query(
        self,
        partition: str,
        *,
        cursor: str | None = None,
        after: str = "",
        limit: int | None = None,
    ) -> ItemPage:
        validate_page(limit)
        async with interleaved:
            table = self._table()
            with table.lock:
                found = table.partitions.get(partition, [])
                begin = bisect_right(found, Key(partition, cursor or after))
                stop = begin + (limit or _PAGE)
                keys = found[begin:stop]
                return ItemPage(
                    [dict(table.items[key]) for key in keys],
                    keys[-1].sort if stop < len(found) else None,
                )

    async def scan(
        self, segment: int, segments: int, *, cursor: str | None = None, limit: int | None = None
    ) -> ItemPage:
        validate_segment(segment, segments)
        validate_page(limit)
        async with interleaved:
            table = self._table()
            size = limit or _PAGE
            with table.lock:
                after = None if cursor is None else key_of(cursor)
                keys = table.page(segment, segments, after, size + 1)
                page = keys[:size]
                return ItemPage(
                    [dict(table.items[key]) for key in page],
                    cursor_of(page[-1]) if len(keys) > size else None,
                )

    async def close(self) -> None:
        """No effect: the table lives as long as the process."""

    async def space(self) -> StorageSpace:
        async with interleaved:
            return StorageSpace()

    async def create(self) -> bool:
        async with interleaved:
            return _tables.setdefault(self._name, table := _Table()) is table

    async def exists(self) -> bool:
        async with interleaved:
            return self._name in _tables

    async def drop(self) -> None:
        async with interleaved:
            _tables.pop(self._name, None)

    async def read_tag(self, name: str) -> str | None:
        async with interleaved:
            return self._table().tags.get(name)

    async def write_tag(self, name: str, value: str) -> None:
        async with interleaved:
            self._table().tags[name] = value
