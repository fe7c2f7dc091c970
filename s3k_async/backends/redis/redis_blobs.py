"""The blob port on Redis: blobs in pieces of a few MiB, published by one Lua script.

Format 1, under the keys `s3k:{PREFIX}:blobs:...`. `place` is a hash of the format. `order` is a
sorted set of the blobs' keys, all of score 0, so that its order is that of their bytes. `head:KEY`
is a hash of `content` (an id), `size`, `etag` and `mtime`; `pieces:CONTENT` a sorted set of the
pieces' names by their offset; `piece:NAME` the bytes of one. A reader gets the head and the pieces
in one script, a writer replaces both in one.

`uploads` is a sorted set of unfinished uploads by the time of their last part. `upload:ID` is a
hash of an upload's key (`key`) and parts (number to size, digest and pieces), `staged:ID` a set of
its pieces, those of replaced and interrupted parts too. `published:ID` is the result of a completed
upload, for an hour, for a repetition of `complete`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from s3k_async._core.runtime import SYSTEM, Runtime
from s3k_async.backends.ports.blob_keys import (
    check_copied_part,
    check_key,
    check_page,
    check_put,
    check_range,
    part_numbers,
)
from s3k_async.backends.ports.blobs import (
    BlobInfo,
    BlobPage,
    BlobStore,
    Buffer,
    DeleteFailure,
    Unfinished,
)
from s3k_async.backends.ports.entity_tags import entity_tag
from s3k_async.backends.ports.version_reads import range_of_version
from s3k_async.backends.redis.redis_connection import RedisConnection, Script
from s3k_async.errors import (
    BlobChangedError,
    BlobExistsError,
    BlobNotFoundError,
    NotAVolumeError,
    ServiceError,
    UnsupportedError,
    VolumeNotFoundError,
)
from s3k_async.storage_space import StorageSpace

__all__ = ["RedisBlobStore"]

_Answer: TypeAlias = list[Any]

_PIECE: Final = 4 << 20
"""Bytes of a piece, the last of a part or blob excepted."""
_PAGE: Final = 1000
_KEPT_MS: Final = 60 * 60 * 1000
"""Retention of the result of a completed upload, milliseconds."""

_OPENED: Final = """
local p = KEYS[1]
local format = redis.call('HGET', p .. 'place', 'format')
if not format then return {'missing'} end
if format ~= '1' then return {'format', format} end
local function now()
    local time = redis.call('TIME')
    return string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
end
local function whole(number) return string.format('%.0f', number) end
local function head(key)
    return redis.call('HMGET', p .. 'head:' .. key, 'content', 'size', 'etag', 'mtime')
end
local function discard(key)
    local content = redis.call('HGET', p .. 'head:' .. key, 'content')
    if not content then return end
    for _, name in ipairs(redis.call('ZRANGE', p .. 'pieces:' .. content, 0, -1)) do
        redis.call('UNLINK', p .. 'piece:' .. name)
    end
    redis.call('UNLINK', p .. 'pieces:' .. content, p .. 'head:' .. key)
    redis.call('ZREM', p .. 'order', key)
end
local function publish(key, content, size, etag)
    local mtime = now()
    discard(key)
    redis.call('HSET', p .. 'head:' .. key,
        'content', content, 'size', size, 'etag', etag, 'mtime', mtime)
    redis.call('ZADD', p .. 'order', 0, key)
    return {'done', size, etag, mtime}
end
local function refusal(key, absent, match)
    local found = head(key)
    if absent == '1' and found[1] then return {'exists'} end
    if match ~= '' and found[3] ~= match then return {'changed'} end
end
local function finish(id)
    for _, name in ipairs(redis.call('SMEMBERS', p .. 'staged:' .. id)) do
        redis.call('UNLINK', p .. 'piece:' .. name)
    end
    redis.call('UNLINK', p .. 'staged:' .. id, p .. 'upload:' .. id)
    redis.call('ZREM', p .. 'uploads', id)
end
"""
_PUT: Final = Script(
    _OPENED
    + """
local key, content, etag, data = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local refused = refusal(key, ARGV[5], ARGV[6])
if refused then return refused end
local answer = publish(key, content, whole(#data), etag)
if #data > 0 then
    redis.call('SET', p .. 'piece:' .. content, data)
    redis.call('ZADD', p .. 'pieces:' .. content, 0, content)
end
return answer
""",
    writes=True,
)
_GET: Final = Script(
    _OPENED
    + """
local found = head(ARGV[1])
if not found[1] then return {'absent'} end
if (ARGV[4] ~= '' and found[3] ~= ARGV[4]) or (ARGV[5] ~= '' and found[2] ~= ARGV[5]) then
    return {'changed'}
end
local from, to = tonumber(ARGV[2]), tonumber(found[2])
if ARGV[3] ~= '' then to = math.min(to, tonumber(ARGV[3])) end
local parts = {}
if from >= to then return {'done', parts} end
local pieces = p .. 'pieces:' .. found[1]
local first = redis.call('ZREVRANGEBYSCORE', pieces, whole(from), '-inf', 'LIMIT', 0, 1)
local rank = redis.call('ZRANK', pieces, first[1])
local last = redis.call('ZCOUNT', pieces, '-inf', '(' .. whole(to)) - 1
local names = redis.call('ZRANGE', pieces, rank, last, 'WITHSCORES')
for i = 1, #names, 2 do
    local offset = tonumber(names[i + 1])
    local low, high = math.max(from - offset, 0), to - offset - 1
    local part = redis.call('GETRANGE', p .. 'piece:' .. names[i], whole(low), whole(high))
    table.insert(parts, part)
end
return {'done', parts}
""",
    writes=False,
)
_HEAD: Final = Script(
    _OPENED
    + """
local found = head(ARGV[1])
if not found[1] then return {'absent'} end
return {'done', found[2], found[3], found[4]}
""",
    writes=False,
)
_COPY: Final = Script(
    _OPENED
    + """
local from, source, key, content, match = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
if not redis.call('HGET', from .. 'place', 'format') then return {'missing'} end
local found = redis.call('HMGET', from .. 'head:' .. source, 'content', 'size', 'etag')
if not found[1] then return {'absent'} end
if match ~= '' and found[3] ~= match then return {'changed'} end
local names = redis.call('ZRANGE', from .. 'pieces:' .. found[1], 0, -1, 'WITHSCORES')
for i = 1, #names, 2 do
    local name = content .. '.' .. i
    redis.call('COPY', from .. 'piece:' .. names[i], p .. 'piece:' .. name)
    redis.call('ZADD', p .. 'pieces:' .. content, names[i + 1], name)
end
return publish(key, content, found[2], found[3])
""",
    writes=True,
)
_DELETE: Final = Script(
    _OPENED + "for _, key in ipairs(ARGV) do discard(key) end return {'done'}",
    writes=True,
    frees=True,
)
_LIST: Final = Script(
    _OPENED
    + """
local found = redis.call('ZRANGEBYLEX', p .. 'order', ARGV[1], ARGV[2], 'LIMIT', 0, ARGV[3])
local blobs = {}
for i, key in ipairs(found) do
    local each = head(key)
    blobs[i] = {key, each[2], each[3], each[4]}
end
return {'done', blobs}
""",
    writes=False,
)
_START: Final = Script(
    _OPENED
    + """
redis.call('HSET', p .. 'upload:' .. ARGV[1], 'key', ARGV[2])
redis.call('ZADD', p .. 'uploads', now(), ARGV[1])
return {'done'}
""",
    writes=True,
)
_STAGE: Final = Script(
    _OPENED
    + """
local id, name = ARGV[1], ARGV[2]
if redis.call('EXISTS', p .. 'upload:' .. id) == 0 then return {'ended'} end
redis.call('SET', p .. 'piece:' .. name, ARGV[3])
redis.call('SADD', p .. 'staged:' .. id, name)
redis.call('ZADD', p .. 'uploads', now(), id)
return {'done'}
""",
    writes=True,
)
_PART: Final = Script(
    _OPENED
    + """
local upload = p .. 'upload:' .. ARGV[1]
if redis.call('EXISTS', upload) == 0 then return {'ended'} end
redis.call('HSET', upload, ARGV[2], ARGV[3])
redis.call('ZADD', p .. 'uploads', now(), ARGV[1])
return {'done'}
""",
    writes=True,
)
_PARTS: Final = Script(
    _OPENED
    + """
local done = redis.call('HMGET', p .. 'published:' .. ARGV[1], 'size', 'etag', 'mtime')
if done[1] then return {'published', done[1], done[2], done[3]} end
if redis.call('EXISTS', p .. 'upload:' .. ARGV[1]) == 0 then return {'ended'} end
return {'done', redis.call('HGETALL', p .. 'upload:' .. ARGV[1])}
""",
    writes=False,
)
_COMPLETE: Final = Script(
    _OPENED
    + """
local id, key, size, etag = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local published = p .. 'published:' .. id
local done = redis.call('HMGET', published, 'size', 'etag', 'mtime')
if done[1] then return {'done', done[1], done[2], done[3]} end
if redis.call('EXISTS', p .. 'upload:' .. id) == 0 then return {'ended'} end
local refused = refusal(key, ARGV[5], ARGV[6])
if refused then return refused end
for i = 8, #ARGV, 2 do
    if redis.call('EXISTS', p .. 'piece:' .. ARGV[i]) == 0 then return {'ended'} end
end
for i = 8, #ARGV, 2 do
    redis.call('ZADD', p .. 'pieces:' .. id, ARGV[i + 1], ARGV[i])
    redis.call('SREM', p .. 'staged:' .. id, ARGV[i])
end
finish(id)
local answer = publish(key, id, size, etag)
redis.call('HSET', published, 'size', size, 'etag', etag, 'mtime', answer[4])
redis.call('PEXPIRE', published, ARGV[7])
return answer
""",
    writes=True,
)
_ABORT: Final = Script(_OPENED + "finish(ARGV[1]) return {'done'}", writes=True, frees=True)
_UPLOADS: Final = Script(
    _OPENED
    + """
local uploads = redis.call('ZRANGE', p .. 'uploads', 0, -1, 'WITHSCORES')
local found = {}
for i = 1, #uploads, 2 do
    local key = redis.call('HGET', p .. 'upload:' .. uploads[i], 'key')
    table.insert(found, {uploads[i], uploads[i + 1], key})
end
return {'done', found}
""",
    writes=False,
)
_NOW: Final = Script(_OPENED + "return {'done', now()}", writes=False)
_CREATE: Final = Script(
    "return {'done', redis.call('HSETNX', KEYS[1] .. 'place', 'format', '1')}", writes=True
)
_DROP: Final = Script(
    _OPENED
    + """
if ARGV[1] == '1' and redis.call('ZCARD', p .. 'order') > 0 then return {'done', 0} end
for _, key in ipairs(redis.call('ZRANGE', p .. 'order', 0, -1)) do discard(key) end
for _, id in ipairs(redis.call('ZRANGE', p .. 'uploads', 0, -1)) do finish(id) end
redis.call('UNLINK', p .. 'place')
return {'done', 1}
""",
    writes=True,
    frees=True,
)


class RedisBlobStore:
    """A BlobStore in a Redis database, under a prefix of keys.

    A put of more than one piece is an upload, listed as unfinished until it is published. After a
    fork the child opens its own connections.
    """

    min_part = 1
    composes = False

    def __init__(self, connection: RedisConnection, prefix: str, runtime: Runtime = SYSTEM) -> None:
        self._connection = connection
        self._runtime = runtime
        self._root = f"s3k:{{{prefix}}}:blobs:".encode()

    def __repr__(self) -> str:
        return f"RedisBlobStore({self._connection.label!r})"

    @property
    def root(self) -> bytes:
        """Start of the place's keys."""
        return self._root

    @property
    def database(self) -> str:
        """The server and database."""
        return self._connection.server.address

    def uri(self, key: str) -> str:
        return f"{self._connection.label}{quote(check_key(key))}"

    async def put(
        self, key: str, data: Buffer, *, if_absent: bool = False, if_match: str | None = None
    ) -> BlobInfo:
        check_key(key)
        check_put(if_absent, if_match)
        content = bytes(data)
        etag = await entity_tag(content)
        when = (int(if_absent), if_match or "")
        if len(content) <= _PIECE:
            answer = await self.run(_PUT, key, key, self._runtime.uuid(), etag, content, *when)
            return _info(key, answer)
        upload = await self.start_upload(key)
        try:
            await upload.put_part(1, content)
            return await upload.publish([1], etag, when)
        except (BlobExistsError, BlobChangedError):
            await upload.abort()
            raise

    async def get(
        self,
        key: str,
        start: int = 0,
        end: int | None = None,
        *,
        if_match: str | None = None,
        if_size: int | None = None,
    ) -> bytes:
        check_key(key)
        check_range(start, end)
        until, size = ("" if each is None else each for each in (end, if_size))
        (parts,) = await self.run(_GET, key, key, start, until, if_match or "", size)
        return b"".join(parts)

    async def head(self, key: str) -> BlobInfo | None:
        check_key(key)
        try:
            return _info(key, await self.run(_HEAD, key, key))
        except BlobNotFoundError:
            return None

    def can_copy_from(self, source: BlobStore) -> bool:
        return isinstance(source, RedisBlobStore) and source.database == self.database

    async def copy(
        self,
        source: BlobStore,
        source_key: str,
        key: str,
        *,
        found: BlobInfo | None = None,  # noqa: ARG002 - the port's
        if_match: str | None = None,
    ) -> BlobInfo:
        check_key(source_key)
        check_key(key)
        if not (isinstance(source, RedisBlobStore) and self.can_copy_from(source)):
            raise UnsupportedError("Redis copies inside one database only", path=key)
        arguments = (source.root, source_key, key, self._runtime.uuid(), if_match or "")
        return _info(key, await self.run(_COPY, source_key, *arguments))

    async def delete(self, key: str) -> None:
        await self.run(_DELETE, key, check_key(key))

    async def delete_many(self, keys: Sequence[str]) -> list[DeleteFailure]:
        for key in keys:
            check_key(key)
        if keys:
            await self.run(_DELETE, "", *keys)
        return []

    async def list(
        self,
        prefix: str = "",
        *,
        cursor: str | None = None,
        limit: int | None = None,
        after: str = "",
    ) -> BlobPage:
        check_page(limit)
        size = limit or _PAGE
        least, bound = prefix.encode(), (after if cursor is None else cursor).encode()
        low = b"(" + bound if bound and bound >= least else b"[" + least if least else b"-"
        # No UTF-8 text has the byte FF.
        high = b"(" + least + b"\xff"
        (found,) = await self.run(_LIST, prefix, low, high, size + 1)
        blobs = [_info(key.decode(), facts) for key, *facts in found[:size]]
        return BlobPage(blobs, blobs[-1].key if len(found) > size else None)

    async def start_upload(self, key: str) -> RedisUpload:
        check_key(key)
        name = self._runtime.uuid()
        await self.run(_START, key, name, key)
        return RedisUpload(self, key, name, self._runtime)

    async def list_uploads(self, prefix: str = "") -> AsyncIterator[Unfinished]:
        (found,) = await self.run(_UPLOADS, prefix)
        for name, started, target in found:
            key = (target or b"").decode()
            if key.startswith(prefix) or not key:
                yield Unfinished(key, name.decode(), int(float(started)))

    async def abort_upload(self, upload: Unfinished) -> None:
        await self.run(_ABORT, upload.key, upload.id)

    async def now_ms(self) -> int:
        return int((await self.run(_NOW, ""))[0])

    async def space(self) -> StorageSpace:
        return await self._connection.space()

    async def create(self) -> bool:
        return bool((await self.run(_CREATE, ""))[0])

    async def exists(self) -> bool:
        try:
            await self.run(_NOW, "")
        except VolumeNotFoundError:
            return False
        return True

    async def drop(self, *, if_empty: bool = False) -> bool:
        try:
            return bool((await self.run(_DROP, "", int(if_empty)))[0])
        except VolumeNotFoundError:
            return True

    async def close(self) -> None:
        await self._connection.close()

    async def run(self, script: Script, path: str, *arguments: bytes | str | int) -> _Answer:
        """The script's answer without its state. Raises S3kError, about the blob `path`, for
        another state than `done`."""
        answer: _Answer
        state, *answer = await self._connection.run(script, self._root, *arguments)
        match state:
            case b"done":
                return answer
            case b"absent":
                raise BlobNotFoundError("no blob has this key", path=path)
            case b"exists":
                raise BlobExistsError("a blob has this key already", path=path)
            case b"changed":
                raise BlobChangedError("the blob is not the expected one", path=path)
            case b"ended":
                raise ServiceError("no such upload", path=path, service_code="NoSuchUpload")
            case b"published":
                return [state, *answer]
            case b"missing":
                raise VolumeNotFoundError("no such place", path=self._connection.label)
        raise NotAVolumeError(
            f"the place has format {answer[0].decode()}, not 1: use the version of s3k_async that "
            "made it",
            path=self._connection.label,
        )


class RedisUpload:
    """An upload whose parts are in Redis: another process can list and abort it."""

    def __init__(self, store: RedisBlobStore, key: str, id: str, runtime: Runtime) -> None:
        self._store = store
        self._key = key
        self._id = id
        self._runtime = runtime

    async def put_part(self, number: int, data: Buffer) -> None:
        if number < 1:
            raise ValueError("parts are numbered from 1")
        content = bytes(data)
        digest = await entity_tag(content)
        names = [
            await self._stage(content[start : start + _PIECE])
            for start in range(0, len(content), _PIECE)
        ]
        await self._add(number, len(content), digest, names)

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
        check_copied_part(number, start, end)
        if not self._store.can_copy_from(source):
            raise UnsupportedError("Redis copies inside one database only", path=self._key)
        digests, names = b"", []
        pieces = range_of_version(source, source_key, start, end, if_match=if_match, step=_PIECE)
        async with aclosing(pieces):
            async for piece in pieces:
                digests += bytes.fromhex(await entity_tag(piece))
                names.append(await self._stage(piece))
        await self._add(number, end - start, await entity_tag(digests), names)

    async def _stage(self, piece: bytes) -> str:
        """Store a piece; returns its name."""
        name = self._runtime.uuid()
        await self._store.run(_STAGE, self._key, self._id, name, piece)
        return name

    async def _add(self, number: int, size: int, digest: str, names: Sequence[str]) -> None:
        facts = " ".join([str(size), digest, *names])
        await self._store.run(_PART, self._key, self._id, number, facts)

    async def complete(self) -> BlobInfo:
        found = await self._store.run(_PARTS, self._key, self._id)
        if found[0] == b"published":
            return _info(self._key, found[1:])
        parts = _parts(found[0])
        numbers = part_numbers(
            {number: int(facts[0]) for number, facts in parts.items()}, self._store.min_part
        )
        digests = b"".join(bytes.fromhex(parts[number][1]) for number in numbers)
        etag = f"{await entity_tag(digests)}-{len(numbers)}"
        return await self._publish(parts, numbers, etag, (0, ""))

    async def publish(self, numbers: Sequence[int], etag: str, when: tuple[int, str]) -> BlobInfo:
        """Publish these parts with an etag, unless the conditions of a put refuse it."""
        found = await self._store.run(_PARTS, self._key, self._id)
        return await self._publish(_parts(found[0]), numbers, etag, when)

    async def _publish(
        self,
        parts: dict[int, list[str]],
        numbers: Sequence[int],
        etag: str,
        when: tuple[int, str],
    ) -> BlobInfo:
        pieces: list[str | int] = []
        offset = 0
        for number in numbers:
            size, _, *names = parts[number]
            for position, name in enumerate(names):
                pieces += [name, offset + position * _PIECE]
            offset += int(size)
        arguments = (self._id, self._key, offset, etag, *when, _KEPT_MS, *pieces)
        return _info(self._key, await self._store.run(_COMPLETE, self._key, *arguments))

    async def abort(self) -> None:
        await self._store.run(_ABORT, self._key, self._id)


def _parts(found: Sequence[bytes]) -> dict[int, list[str]]:
    """Part number to size, digest and names of pieces."""
    pairs = iter([each.decode() for each in found])
    return {
        int(number): facts.split(" ")
        for number, facts in zip(pairs, pairs, strict=True)
        if number != "key"
    }


def _info(key: str, facts: Sequence[bytes]) -> BlobInfo:
    size, etag, mtime = facts
    return BlobInfo(key, int(size), etag.decode(), int(mtime))
