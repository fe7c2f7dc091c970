"""The item port on Redis: each request is one Lua script, which the server runs as one step.

Format 1, under the keys `s3k:{PREFIX}:table:...`. `table` is a hash of the format and the id of the
table, `tags` a hash of its tags. `order` is a sorted set with a member for each item, all of score
0, so that its order is that of the members' bytes; `item:MEMBER` is a hash of the item's
attributes. `token:ID:TOKEN` is the digest of a transaction's actions, which expires.

A member is the CRC-32 of the partition key, the length of the partition key in bytes (each 8
hexadecimal digits), the partition key and the sort key. A partition is a range of members, and a
segment of a scan is a range of checksums. A value is its type (`s`, `i` or `b`) and its text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from s3k_async._core.runtime import SYSTEM, Runtime
from s3k_async.backends.ports.item_semantics import (
    TOKEN_LIFE_MS,
    cursor_of,
    fingerprint,
    key_of,
    refused,
    segment_of,
    token_mismatch,
    validate,
    validate_load,
    validate_page,
    validate_segment,
    validate_transaction,
)
from s3k_async.backends.ports.items import (
    MAX_BATCH,
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
    Update,
    Value,
)
from s3k_async.backends.redis.redis_connection import RedisConnection, Script
from s3k_async.errors import ItemFormatError, NotAVolumeError, ServiceError, VolumeNotFoundError
from s3k_async.storage_space import StorageSpace

__all__ = ["RedisItemStore"]

_FORMAT: Final = "1"
_PAGE: Final = 1000
_PAGE_BYTES: Final = 1 << 20
"""A page ends with the item that reaches this size."""
_CHECKSUMS: Final = 1 << 32

_OPENED: Final = """
local p = KEYS[1]
local known = redis.call('HMGET', p .. 'table', 'format', 'id')
if not known[2] then return {'missing'} end
if known[1] ~= '1' then return {'format', known[1] or ''} end
local id = known[2]
"""
_GET: Final = Script(
    _OPENED
    + """
local found = {}
for i, member in ipairs(ARGV) do found[i] = redis.call('HGETALL', p .. 'item:' .. member) end
return {'done', found}
""",
    writes=False,
)
_APPLIED: Final = (
    _OPENED
    + """
local token = p .. 'token:' .. id .. ':' .. ARGV[1]
if ARGV[1] ~= '' then
    local before = redis.call('GET', token)
    if before then return {before == ARGV[2] and 'done' or 'mismatch'} end
end
local actions, failed = cjson.decode(ARGV[4]), {}
for i, action in ipairs(actions) do
    local key = p .. 'item:' .. action.member
    local always = action.exists == cjson.null
    local holds = always or (redis.call('EXISTS', key) == 1) == action.exists
    if holds and action.exists == true then
        for _, each in ipairs(action.equals) do
            holds = holds and redis.call('HGET', key, each[1]) == each[2]
        end
        for _, name in ipairs(action.missing) do
            holds = holds and redis.call('HEXISTS', key, name) == 0
        end
    end
    if not holds then table.insert(failed, {i - 1, redis.call('HGETALL', key)}) end
end
if #failed > 0 then return {'refused', failed} end
for _, action in ipairs(actions) do
    local key = p .. 'item:' .. action.member
    if action.kind == 'put' or action.kind == 'delete' then redis.call('DEL', key) end
    if action.kind == 'delete' then redis.call('ZREM', p .. 'order', action.member) end
    if action.kind == 'put' then redis.call('ZADD', p .. 'order', 0, action.member) end
    for _, each in ipairs(action.set) do redis.call('HSET', key, each[1], each[2]) end
    for _, name in ipairs(action.remove) do redis.call('HDEL', key, name) end
end
if ARGV[1] ~= '' then redis.call('SET', token, ARGV[2], 'PX', ARGV[3]) end
return {'done'}
"""
)
_APPLY: Final = Script(_APPLIED, writes=True)
_REMOVE: Final = Script(_APPLIED, writes=True, frees=True)
"""As `_APPLY`, for deletions."""
_RANGE: Final = Script(
    _OPENED
    + """
local members = redis.call('ZRANGEBYLEX', p .. 'order', ARGV[1], ARGV[2], 'LIMIT', 0, ARGV[3] + 1)
local found, size, most = {}, 0, tonumber(ARGV[4])
for i, member in ipairs(members) do
    if i > tonumber(ARGV[3]) or size >= most then return {'done', found, 'more'} end
    found[i] = redis.call('HGETALL', p .. 'item:' .. member)
    for _, each in ipairs(found[i]) do size = size + #each end
end
return {'done', found}
""",
    writes=False,
)
_CREATE: Final = Script(
    """
local p = KEYS[1]
local known = redis.call('HGET', p .. 'table', 'format')
if known then
    if known ~= '1' then return {'format', known} end
    return {'done', 0}
end
redis.call('HSET', p .. 'table', 'format', '1', 'id', ARGV[1])
return {'done', 1}
""",
    writes=True,
)
_DROP: Final = Script(
    """
local p = KEYS[1]
for _, member in ipairs(redis.call('ZRANGE', p .. 'order', 0, -1)) do
    redis.call('UNLINK', p .. 'item:' .. member)
end
redis.call('UNLINK', p .. 'order', p .. 'tags', p .. 'table')
return {'done'}
""",
    writes=True,
    frees=True,
)
_READ_TAG: Final = Script(
    _OPENED + "return {'done', redis.call('HGET', p .. 'tags', ARGV[1])}", writes=False
)
_WRITE_TAG: Final = Script(
    _OPENED + "redis.call('HSET', p .. 'tags', ARGV[1], ARGV[2]) return {'done'}", writes=True
)


class RedisItemStore:
    """An ItemStore and ItemTable in a Redis database, under a prefix of keys.

    After a fork the child opens its own connections.
    """

    def __init__(self, connection: RedisConnection, prefix: str, runtime: Runtime = SYSTEM) -> None:
        self._connection = connection
        self._key = f"s3k:{{{prefix}}}:table:".encode()
        self._runtime = runtime

    def __repr__(self) -> str:
        return f"RedisItemStore({self._connection.label!r})"

    async def get(self, key: Key) -> Item | None:
        (found,) = (await self._run(_GET, _member(key)))[0]
        return _item(found)

    async def get_many(self, keys: Sequence[Key]) -> dict[Key, Item]:
        items: dict[Key, Item] = {}
        for start in range(0, len(keys), MAX_BATCH):
            wanted = keys[start : start + MAX_BATCH]
            found = (await self._run(_GET, *map(_member, wanted)))[0]
            for key, each in zip(wanted, found, strict=True):
                item = _item(each)
                if item is not None:
                    items[key] = item
        return items

    async def write(self, action: Put | Update | Delete) -> None:
        validate(action)
        await self._apply([action], "")

    async def transact(self, actions: Sequence[Action], token: str) -> None:
        validate_transaction(actions, token)
        await self._apply(list(actions), token)

    async def load(self, items: Sequence[Item]) -> None:
        changes = [
            _change("put", key, None, item.items())
            for key, item in zip(validate_load(items), items, strict=True)
        ]
        await self._run(_APPLY, "", "", 0, _json(changes))

    async def query(
        self,
        partition: str,
        *,
        cursor: str | None = None,
        after: str = "",
        limit: int | None = None,
    ) -> ItemPage:
        validate_page(limit)
        start = _partition(partition)
        last = cursor or after
        first = b"(" + start + last.encode() if last else b"[" + start
        items, more = await self._range(first, b"(" + start + b"\xff", limit)
        return ItemPage(items, str(items[-1][SORT]) if more else None)

    async def scan(
        self, segment: int, segments: int, *, cursor: str | None = None, limit: int | None = None
    ) -> ItemPage:
        validate_segment(segment, segments)
        validate_page(limit)
        low, high = (each * _CHECKSUMS // segments for each in (segment, segment + 1))
        after = b"[%08x" % low if cursor is None else b"(" + _member(key_of(cursor))
        until = b"+" if high == _CHECKSUMS else b"(%08x" % high
        items, more = await self._range(after, until, limit)
        return ItemPage(items, cursor_of(_key(items[-1])) if more else None)

    async def close(self) -> None:
        await self._connection.close()

    async def space(self) -> StorageSpace:
        return await self._connection.space()

    async def create(self) -> bool:
        return bool((await self._run(_CREATE, self._runtime.uuid()))[0])

    async def exists(self) -> bool:
        try:
            await self._run(_GET)
        except VolumeNotFoundError:
            return False
        return True

    async def drop(self) -> None:
        await self._run(_DROP)

    async def read_tag(self, name: str) -> str | None:
        answer = await self._run(_READ_TAG, name)
        return answer[0].decode() if answer and answer[0] is not None else None

    async def write_tag(self, name: str, value: str) -> None:
        await self._run(_WRITE_TAG, name, value)

    async def _apply(self, actions: Sequence[Action], token: str) -> None:
        digest = hashlib.blake2b(fingerprint(actions).encode(), digest_size=16).hexdigest()
        changes = _json([_change_of(action) for action in actions])
        removes = all(isinstance(action, Delete | Check) for action in actions)
        script = _REMOVE if removes else _APPLY
        await self._run(script, token, digest, TOKEN_LIFE_MS, changes, actions=actions)

    async def _range(
        self, after: bytes, until: bytes, limit: int | None
    ) -> tuple[list[dict[str, Value]], bool]:
        found, *more = await self._run(_RANGE, after, until, limit or _PAGE, _PAGE_BYTES)
        items = [_item(each) for each in found]
        if None in items:
            raise ServiceError("a key of the table is missing", path=self._connection.label)
        return [item for item in items if item is not None], bool(more)

    async def _run(
        self, script: Script, *arguments: bytes | str | int, actions: Sequence[Action] = ()
    ) -> list[Any]:
        """The script's answer without its state. Raises S3kError for another state than `done`."""
        answer: list[Any]
        state, *answer = await self._connection.run(script, self._key, *arguments)
        label = self._connection.label
        match state:
            case b"done":
                return answer
            case b"refused":
                raise refused(actions, {position: _item(found) for position, found in answer[0]})
            case b"mismatch":
                raise token_mismatch(actions)
            case b"missing":
                raise VolumeNotFoundError("no such table", path=label)
        raise NotAVolumeError(
            f"the table has format {answer[0].decode()}, not {_FORMAT}: use the version of "
            "s3k_async that made it",
            path=label,
        )


def _partition(partition: str) -> bytes:
    """The start of the members of a partition."""
    name = partition.encode()
    return b"%08x%08x%s" % (segment_of(partition), len(name), name)


def _member(key: Key) -> bytes:
    return _partition(key.partition) + key.sort.encode()


def _key(item: Item) -> Key:
    return Key(str(item[PARTITION]), str(item[SORT]))


def _json(changes: Sequence[object]) -> bytes:
    return json.dumps(changes, ensure_ascii=False).encode()


def _change_of(action: Action) -> dict[str, object]:
    match action:
        case Put():
            return _change("put", action.key, action.when, action.item.items())
        case Update():
            return _change("update", action.key, action.when, action.set.items(), action.remove)
        case Delete():
            return _change("delete", action.key, action.when)
        case Check():
            return _change("check", action.key, action.when)


def _change(
    kind: str,
    key: Key,
    when: Condition | None,
    values: Iterable[tuple[str, Value]] = (),
    remove: Sequence[str] = (),
) -> dict[str, object]:
    return {
        "kind": kind,
        "member": _member(key).decode(),
        "exists": None if when is None else when.exists,
        "equals": [] if when is None else [(n, _text(v)) for n, v in when.equals.items()],
        "missing": [] if when is None else list(when.missing),
        "set": [(name, _text(value)) for name, value in values],
        "remove": list(remove),
    }


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return f"b{value:d}"
    return f"i{value}" if isinstance(value, int) else f"s{value}"


def _value(data: bytes) -> Value:
    match data[:1]:
        case b"s":
            return data[1:].decode()
        case b"i":
            return int(data[1:])
        case b"b":
            return data == b"b1"
    raise ItemFormatError("an attribute in Redis has an unknown type")


def _item(found: Sequence[bytes]) -> dict[str, Value] | None:
    pairs = iter(found)
    return {name.decode(): _value(value) for name, value in zip(pairs, pairs, strict=True)} or None
