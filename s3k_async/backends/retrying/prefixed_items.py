"""The item port below a prefix of partition keys of another store: items of the other volumes in
the same table cannot be read, changed or removed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, TypeVar

from s3k_async.backends.ports.interception import TableStore
from s3k_async.backends.ports.item_semantics import (
    validate,
    validate_load,
    validate_transaction,
)
from s3k_async.backends.ports.items import (
    ABSENT,
    PARTITION,
    SORT,
    Action,
    Check,
    Condition,
    Delete,
    Item,
    ItemPage,
    Key,
    Put,
    UnloadedItemsError,
    UnprocessedKeysError,
    Update,
    Value,
)
from s3k_async.errors import (
    ConditionFailedError,
    ConfigError,
    InvalidPathError,
    S3kError,
    UnsupportedError,
)
from s3k_async.storage_space import StorageSpace

__all__ = ["CATALOG", "PrefixedItems", "check_table_prefix", "shared_key"]

CATALOG: Final = "s3k:volumes"
"""Partition key of the catalog of a shared table: one item for each volume, by prefix, with the
text that is otherwise a tag of the table."""
_PREFIX: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,62}", re.ASCII)
_MOST: Final = 2048
"""Maximum bytes of a partition key, a limit of DynamoDB that applies to volumes in every table."""
ActionT = TypeVar("ActionT", Put, Update, Delete, Check, Put | Update | Delete, Action)
_EVERY_CHARACTER: Final = 4
"""Bytes of UTF-8 at most."""


def check_table_prefix(prefix: str) -> str:
    """A valid prefix of a volume in a shared table: ASCII letters, digits, `.`, `_` and `-`, at
    most 63. Raises ConfigError for others."""
    if not _PREFIX.fullmatch(prefix):
        raise ConfigError(
            "the prefix of a volume in a table has at most 63 letters, digits, '.', '_' and '-', "
            "and begins with none of '.' and '-'",
            path=repr(prefix),
        )
    return prefix


def shared_key(prefix: str, key: Key) -> Key:
    """The table's key of the item that a volume with this prefix has at `key`. Raises
    InvalidPathError if it is too long."""
    partition = f"{prefix}/{key.partition}"
    if len(partition) * _EVERY_CHARACTER > _MOST and len(partition.encode()) > _MOST:
        raise InvalidPathError(
            "the path is too long: its directories have some 2,000 bytes of UTF-8 at most, with "
            f"the prefix {prefix!r} and the name of the volume; use shorter names",
            path=f"{key.partition}/{key.sort}",
        )
    return Key(partition, key.sort)


class PrefixedItems:
    """A TableStore of the items whose partition keys begin with `<prefix>/`; keys in requests,
    answers and errors are relative to it.

    `create`, `exists`, `space` and `close` act on the whole table. Its tags are attributes of the
    volume's item in the catalog. `scan` reads the whole table and returns only the volume's items.
    """

    def __init__(self, store: TableStore, prefix: str) -> None:
        self._store = store
        self._name = check_table_prefix(prefix)
        self._start = f"{prefix}/"

    def __repr__(self) -> str:
        return f"PrefixedItems({self._store!r}, {self._name!r})"

    async def get(self, key: Key) -> Item | None:
        item = await self._store.get(shared_key(self._name, key))
        return None if item is None else self._relative(item)

    async def get_many(self, keys: Sequence[Key]) -> dict[Key, Item]:
        try:
            found = await self._store.get_many([shared_key(self._name, key) for key in keys])
        except UnprocessedKeysError as error:
            raise UnprocessedKeysError(
                error.message,
                path=error.path or "",
                found=self._found(error.found),
                left=[self._relative_key(key) for key in error.left],
            ) from error
        return self._found(found)

    async def write(self, action: Put | Update | Delete) -> None:
        validate(action)
        try:
            await self._store.write(_moved(action, self._name))
        except ConditionFailedError as error:
            raise self._refused(error) from error

    async def transact(self, actions: Sequence[Action], token: str) -> None:
        validate_transaction(actions, token)
        try:
            await self._store.transact([_moved(action, self._name) for action in actions], token)
        except ConditionFailedError as error:
            raise self._refused(error) from error

    async def load(self, items: Sequence[Item]) -> None:
        validate_load(items)
        try:
            await self._store.load([_below(item, self._name) for item in items])
        except UnloadedItemsError as error:
            raise UnloadedItemsError(
                error.message,
                path=error.path or "",
                left=[self._relative(item) for item in error.left],
            ) from error

    async def query(
        self,
        partition: str,
        *,
        cursor: str | None = None,
        after: str = "",
        limit: int | None = None,
    ) -> ItemPage:
        whole = shared_key(self._name, Key(partition, "")).partition
        page = await self._store.query(whole, cursor=cursor, after=after, limit=limit)
        return ItemPage([self._relative(item) for item in page.items], page.next)

    async def scan(
        self, segment: int, segments: int, *, cursor: str | None = None, limit: int | None = None
    ) -> ItemPage:
        page = await self._store.scan(segment, segments, cursor=cursor, limit=limit)
        own = [item for item in page.items if str(item[PARTITION]).startswith(self._start)]
        return ItemPage([self._relative(item) for item in own], page.next)

    async def close(self) -> None:
        await self._store.close()

    async def create(self) -> bool:
        return await self._store.create()

    async def exists(self) -> bool:
        return await self._store.exists()

    async def space(self) -> StorageSpace:
        return await self._store.space()

    async def drop(self) -> None:
        """Raises UnsupportedError: the table may have other volumes."""
        raise UnsupportedError(
            "a shared table cannot be dropped with one of its volumes", path=self._name
        )

    async def read_tag(self, name: str) -> str | None:
        item = await self._store.get(Key(CATALOG, self._name)) or {}
        value = item.get(name)
        return None if value is None else str(value)

    async def write_tag(self, name: str, value: str) -> None:
        """Set the attribute of the catalog's item, again after each concurrent change. Raises
        TransactionConflictError and the errors of `read_tag`."""
        key = Key(CATALOG, self._name)
        while True:
            before = await self._store.get(key)
            change: Put | Update
            if before is None:
                change = Put({PARTITION: CATALOG, SORT: self._name, name: value}, ABSENT)
            elif before.get(name) == value:
                return None
            elif name in before:
                change = Update(key, Condition(equals={name: before[name]}), {name: value})
            else:
                change = Update(key, Condition(missing=(name,)), {name: value})
            try:
                return await self._store.write(change)
            except ConditionFailedError:
                continue

    def _relative(self, item: Item) -> dict[str, Value]:
        own = dict(item)
        own[PARTITION] = str(own[PARTITION]).removeprefix(self._start)
        return own

    def _relative_key(self, key: Key) -> Key:
        return Key(key.partition.removeprefix(self._start), key.sort)

    def _found(self, found: dict[Key, Item]) -> dict[Key, Item]:
        return {self._relative_key(key): self._relative(item) for key, item in found.items()}

    def _refused(self, error: ConditionFailedError) -> ConditionFailedError:
        current = {
            position: None if item is None else self._relative(item)
            for position, item in error.current.items()
        }
        return ConditionFailedError(error.message, path=self._path(error), current=current)

    def _path(self, error: S3kError) -> str | None:
        return None if error.path is None else error.path.removeprefix(self._start)


def _below(item: Item, prefix: str) -> dict[str, Value]:
    key = shared_key(prefix, Key(str(item[PARTITION]), str(item[SORT])))
    return {**item, PARTITION: key.partition}


def _moved(action: ActionT, prefix: str) -> ActionT:
    """The same action on the item of the shared table."""
    if isinstance(action, Put):
        return replace(action, item=_below(action.item, prefix))
    return replace(action, key=shared_key(prefix, action.key))
