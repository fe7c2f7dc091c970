"""The item port on RocksDB: one database on a local disk, used by one process at a time.

Format 1. The first byte of a key tells its purpose:

    i PARTITION 00 01 SORT   an item: its attributes besides the key, a JSON object as in SQLite
    t NAME                   a tag of the table
    k TOKEN                  an idempotency token: expiry (8 bytes) and digest of the actions
    e EXPIRY TOKEN           the same tokens by expiry (8 bytes, big-endian, milliseconds)

In PARTITION a byte 00 is written as 00 FF, so that 00 01 ends it and sorts before any continuation:
the order of the keys' bytes is that of (partition, sort) by their UTF-8 bytes, and no partition's
keys are between those of another one. A scan reads the keys of its segment alone, and seeks past
the partitions of others.

RocksDB verifies the checksum of each block that it reads.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Final

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
from s3k_async.backends.ports.items import (
    PARTITION,
    SORT,
    Action,
    Check,
    Delete,
    Item,
    ItemPage,
    Key,
    Put,
    Update,
    Value,
)
from s3k_async.backends.rocksdb.open_databases import SharedDatabase
from s3k_async.backends.rocksdb.rocksdb_database import Batch, Database, Rows
from s3k_async.backends.sqlite.sqlite_rows import Row, item_of, items_of
from s3k_async.storage_space import StorageSpace

__all__ = ["RocksdbItemStore"]

_KIND: Final = b"s3k-table 1"
_PAGE: Final = 1000
_FEW: Final = 64
"""Items that are read on the event loop."""
_PRUNED_A_WRITE: Final = 100
_ITEM, _TAG, _TOKEN, _EXPIRY = b"i", b"t", b"k", b"e"
_END: Final = b"\0\1"
_AFTER_END: Final = b"\0\2"
_ITEMS_END: Final = b"j"


class RocksdbItemStore:
    """An ItemStore and ItemTable in the RocksDB database in the directory `path`.

    Only `create` makes it. Reads of a few items run on the event loop while they are fast, others
    in worker threads; writes that wait at the same time share a synced batch.
    """

    def __init__(self, path: str, runtime: Runtime = SYSTEM) -> None:
        self._runtime = runtime
        self._database = SharedDatabase(path, path, _KIND, runtime)

    def __repr__(self) -> str:
        return f"RocksdbItemStore({self._database.path!r})"

    async def get(self, key: Key) -> Item | None:
        place = _key(key)
        return await self._database.read(
            lambda database: _found(key, database.get(place)), is_short=True
        )

    async def get_many(self, keys: Sequence[Key]) -> dict[Key, Item]:
        places = [_key(key) for key in keys]

        def read(database: Database) -> dict[Key, Item]:
            values = database.get_many(places)
            found = [
                (key, _row(key, value))
                for key, value in zip(keys, values, strict=True)
                if value is not None
            ]
            items = items_of([row for _, row in found])
            return {key: item for (key, _), item in zip(found, items, strict=True)}

        return await self._database.read(read, is_short=len(keys) <= _FEW)

    async def write(self, action: Put | Update | Delete) -> None:
        validate(action)
        await self._database.write(lambda batch: _change(batch, [action]))

    async def transact(self, actions: Sequence[Action], token: str) -> None:
        validate_transaction(actions, token)
        actions = list(actions)
        await self._database.write(
            lambda batch: _transact(batch, actions, token, self._runtime.now_ms())
        )

    async def load(self, items: Sequence[Item]) -> None:
        rows = [
            (_key(key), _value(item)) for key, item in zip(validate_load(items), items, strict=True)
        ]

        def put(batch: Batch) -> None:
            for key, value in rows:
                batch.put(key, value)

        await self._database.write(put)

    async def query(
        self,
        partition: str,
        *,
        cursor: str | None = None,
        after: str = "",
        limit: int | None = None,
    ) -> ItemPage:
        validate_page(limit)
        size = limit or _PAGE
        start = _partition(partition) + _END
        last = cursor or after
        first = start + last.encode() + b"\0" if last else start
        end = _partition(partition) + _AFTER_END

        def page(database: Database) -> ItemPage:
            rows = database.rows(first, end, size + 1)
            items = _items(rows[:size])
            return ItemPage(items, str(items[-1][SORT]) if len(rows) > size else None)

        return await self._database.read(page, is_short=size <= _FEW)

    async def scan(
        self, segment: int, segments: int, *, cursor: str | None = None, limit: int | None = None
    ) -> ItemPage:
        validate_segment(segment, segments)
        validate_page(limit)
        size = limit or _PAGE
        after = _ITEM if cursor is None else _key(key_of(cursor)) + b"\0"
        inside = b""

        def next_of(key: bytes) -> bytes | None:
            """None for a key of the segment, for others the end of their partition."""
            nonlocal inside
            if inside and key.startswith(inside):
                return None
            partition = key[: key.index(_END)]
            if segment_of(_key_of(partition).partition) % segments != segment:
                return partition + _AFTER_END
            inside = partition + _END
            return None

        def page(database: Database) -> ItemPage:
            rows = database.rows(after, _ITEMS_END, size + 1, accept=next_of)
            items = _items(rows[:size])
            following = cursor_of(_key_of(rows[size - 1][0])) if len(rows) > size else None
            return ItemPage(items, following)

        return await self._database.read(page)

    async def close(self) -> None:
        await self._database.close()

    async def space(self) -> StorageSpace:
        return await self._database.space()

    async def create(self) -> bool:
        return await self._database.create()

    async def exists(self) -> bool:
        return await self._database.exists()

    async def drop(self) -> None:
        await self._database.drop()

    async def read_tag(self, name: str) -> str | None:
        key = _TAG + name.encode()
        value = await self._database.read(lambda database: database.get(key), is_short=True)
        return None if value is None else value.decode()

    async def write_tag(self, name: str, value: str) -> None:
        key = _TAG + name.encode()
        await self._database.write(lambda batch: batch.put(key, value.encode()))


def _change(batch: Batch, actions: Sequence[Action]) -> None:
    """Apply all actions. Raises ConditionFailedError, and has applied none."""
    keys = [_key(action.key) for action in actions]
    current = [
        _found(action.key, batch.get(key)) for action, key in zip(actions, keys, strict=True)
    ]
    refused = refusal(actions, current)
    if refused is not None:
        raise refused
    for action, key, before in zip(actions, keys, current, strict=True):
        after = outcome(action, before)
        if isinstance(action, Delete):
            batch.delete(key)
        elif after is not None and not isinstance(action, Check):
            batch.put(key, _value(after))


def _transact(batch: Batch, actions: Sequence[Action], token: str, now_ms: int) -> None:
    wanted = hashlib.blake2b(fingerprint(actions).encode(), digest_size=16).digest()
    name = token.encode()
    known = batch.get(_TOKEN + name)
    if known is not None and int.from_bytes(known[:8]) > now_ms:
        if known[8:] != wanted:
            raise token_mismatch(actions)
        return
    _change(batch, actions)
    _prune(batch, now_ms)
    expiry = (now_ms + TOKEN_LIFE_MS).to_bytes(8)
    batch.put(_TOKEN + name, expiry + wanted)
    batch.put(_EXPIRY + expiry + name, b"")


def _prune(batch: Batch, now_ms: int) -> None:
    """Remove some of the expired tokens."""
    until = _EXPIRY + now_ms.to_bytes(8)
    for entry, _ in batch.stored.rows(_EXPIRY, until, _PRUNED_A_WRITE, values=False):
        expiry, name = entry[1:9], entry[9:]
        if batch.get(entry) is not None:
            batch.delete(entry)
            if (batch.get(_TOKEN + name) or b"").startswith(expiry):
                batch.delete(_TOKEN + name)


def _partition(partition: str) -> bytes:
    """Start of the keys of a partition, without its end."""
    return _ITEM + partition.encode().replace(b"\0", b"\0\xff")


def _key(key: Key) -> bytes:
    return _partition(key.partition) + _END + key.sort.encode()


def _key_of(place: bytes) -> Key:
    partition, _, sort = place[1:].partition(_END)
    return Key(partition.replace(b"\0\xff", b"\0").decode(), sort.decode())


def _value(item: Item) -> bytes:
    attributes = {name: value for name, value in item.items() if name not in (PARTITION, SORT)}
    return json.dumps(attributes).encode()


def _row(key: Key, value: bytes) -> Row:
    """The row of SQLite with the same meaning, without a checksum. A value that is no text is
    served as a damaged row."""
    try:
        text: str | bytes = value.decode()
    except UnicodeDecodeError:
        text = value
    return key.partition, key.sort, segment_of(key.partition), text


def _found(key: Key, value: bytes | None) -> dict[str, Value] | None:
    return None if value is None else item_of(_row(key, value))


def _items(rows: Rows) -> list[dict[str, Value]]:
    return items_of([_row(_key_of(place), value) for place, value in rows])
