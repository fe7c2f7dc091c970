"""The item port in this process's memory: exact semantics."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Sequence

from s3k_async._core.concurrency import interleaved
from s3k_async._core.runtime import SYSTEM, Runtime
from s3k_async.backends.memory.sorted_keys import SortedKeys
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
        self.partitions: dict[str, SortedKeys[Key]] = {}
        """The keys of each partition that has any."""
        self.order: SortedKeys[str] = SortedKeys()
        """The partitions."""
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

    def query(self, partition: str, after: str, size: int) -> list[Key]:
        """The next keys of a partition, at most `size`."""
        keys = self.partitions.get(partition)
        return [] if keys is None else keys.page(_next(partition, after), size)

    def page(self, segment: int, segments: int, after: Key | None, size: int) -> list[Key]:
        """The next keys of a scan segment, at most `size`."""
        keys: list[Key] = []
        start = Key("", "") if after is None else _next(*after)
        for partition in self.order.since(start.partition):
            if segment_of(partition) % segments == segment:
                keys += self.partitions[partition].page(start, size - len(keys))
                if len(keys) == size:
                    break
        return keys

    def _put(self, key: Key, item: dict[str, Value]) -> None:
        if key not in self.items:
            keys = self.partitions.get(key.partition)
            if keys is None:
                keys = self.partitions[key.partition] = SortedKeys()
                self.order.add(key.partition)
            keys.add(key)
        self.items[key] = item

    def _delete(self, key: Key) -> None:
        keys = self.partitions[key.partition]
        keys.remove(key)
        if not keys:
            del self.partitions[key.partition]
            self.order.remove(key.partition)
        del self.items[key]


def _next(partition: str, sort: str) -> Key:
    """The least key after a key."""
    return Key(partition, sort + "\0")


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
            size = limit or _PAGE
            with table.lock:
                keys = table.query(partition, cursor or after, size + 1)
                page = keys[:size]
                return ItemPage(
                    [dict(table.items[key]) for key in page],
                    page[-1].sort if len(keys) > size else None,
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
