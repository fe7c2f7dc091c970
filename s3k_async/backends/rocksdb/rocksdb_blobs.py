"""The blob port on RocksDB: blobs in pieces of 1 MiB, published by one write.

Format 1. The first byte of a key tells its purpose; ID is that of a content, 36 characters:

    h KEY                    a blob: JSON of its content's id, size, etag, time, and whether the
                             content has parts
    p ID / PART / NUMBER     the bytes of a piece; NUMBER has 4 bytes, big-endian
    x ID / END               a part of a content with parts, by the offset of its end (8 bytes,
                             big-endian): JSON of its name and size
    u ID                     an unfinished upload: JSON of its key and of the time of its last part
    v ID / NUMBER            a part of an unfinished upload: JSON of its name, size and digest

A content without parts has one, of no name. A content never changes: a reader that has its blob's
description finds all of its pieces, or the blob was replaced or removed meanwhile.

A blob of up to 4 MiB is one write. A larger one is an upload: its pieces are written without a
sync, and the write that publishes it syncs them too. RocksDB keeps pieces in files of their own,
which compactions do not rewrite.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, TypeVar
from urllib.parse import quote

from s3k_async._core.runtime import SYSTEM, Runtime
from s3k_async.backends.ports.blob_keys import (
    check_copied_part,
    check_key,
    check_page,
    check_put,
    check_range,
    check_unchanged,
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
from s3k_async.backends.rocksdb.open_databases import SharedDatabase
from s3k_async.backends.rocksdb.rocksdb_database import Batch, Database
from s3k_async.errors import (
    BlobChangedError,
    BlobExistsError,
    BlobNotFoundError,
    CorruptDataError,
    ServiceError,
    UnsupportedError,
)
from s3k_async.storage_space import StorageSpace

__all__ = ["RocksdbBlobStore"]

T = TypeVar("T")

_KIND: Final = b"s3k-blobs 1"
_PIECE: Final = 1 << 20
"""Bytes of a piece, the last of a part excepted."""
_ONE_WRITE: Final = 4 << 20
"""Bytes that are written at once."""
_ATTEMPTS: Final = 100
"""Reads of a blob that is replaced each time."""
_PAGE: Final = 1000
_SHORT: Final = 64 << 10
"""Bytes that are read on the event loop."""
_HEAD, _PIECES, _INDEX, _UPLOAD, _PARTS = b"h", b"p", b"x", b"u", b"v"
_AFTER: Final = b"0"
"""The byte after `/`: end of a range of keys with an id."""


class _Part(NamedTuple):
    """A part of a content."""

    name: str
    size: int
    digest: str = ""


@dataclass(frozen=True, slots=True)
class _Head:
    """The stored description of a blob."""

    content: str
    size: int
    etag: str
    mtime_ms: int
    has_parts: bool

    def encoded(self) -> bytes:
        return json.dumps(
            [self.content, self.size, self.etag, self.mtime_ms, self.has_parts]
        ).encode()

    def info(self, key: str) -> BlobInfo:
        return BlobInfo(key, self.size, self.etag, self.mtime_ms)


class _Condition(NamedTuple):
    """Conditions of a put."""

    if_absent: bool = False
    if_match: str | None = None


class _ContentGoneError(Exception):
    """A content was removed while it was read."""


class RocksdbBlobStore:
    """A BlobStore in the RocksDB database in the directory `path`.

    Only `create` makes it. Short reads run on the event loop while they are fast, others in worker
    threads; writes that wait at the same time share a synced batch. A put of more than 4 MiB is an
    upload, listed as unfinished until it is published.
    """

    min_part = 1
    composes = False

    def __init__(self, path: str, label: str, runtime: Runtime = SYSTEM) -> None:
        self._label = label
        self._runtime = runtime
        self._database = SharedDatabase(path, label, _KIND, runtime, with_blobs=True)

    def __repr__(self) -> str:
        return f"RocksdbBlobStore({self._database.path!r})"

    def uri(self, key: str) -> str:
        return f"{self._label}{quote(check_key(key))}"

    async def put(
        self, key: str, data: Buffer, *, if_absent: bool = False, if_match: str | None = None
    ) -> BlobInfo:
        check_key(key)
        check_put(if_absent, if_match)
        content = bytes(data)
        etag, when = await entity_tag(content), _Condition(if_absent, if_match)
        if len(content) <= _ONE_WRITE:
            return await self._put(key, content, etag, when)
        upload = await self.start_upload(key)
        try:
            await upload.put_part(1, content)
            return await upload.publish(etag, when)
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

        def read(database: Database) -> bytes:
            head = _required(database, key)
            check_unchanged(head.info(key), if_match, if_size)
            return _content(database, head, start, head.size if end is None else end)

        size = if_size if end is None else end
        is_short = size is not None and size - start <= _SHORT
        return await self._read(key, read, is_short=is_short)

    async def head(self, key: str) -> BlobInfo | None:
        check_key(key)
        head = await self._database.read(partial(_head, key=key), is_short=True)
        return None if head is None else head.info(key)

    def can_copy_from(self, source: BlobStore) -> bool:
        return isinstance(source, RocksdbBlobStore)

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
        if not isinstance(source, RocksdbBlobStore):
            raise UnsupportedError("RocksDB cannot copy from another kind of store", path=key)
        head, data = await source.first(source_key, if_match)
        if len(data) == head.size:
            return await self._put(key, data, head.etag, _Condition())
        upload = await self.start_upload(key)
        number, offset = 1, 0
        try:
            while data:
                await upload.put_part(number, data)
                number, offset = number + 1, offset + len(data)
                data = await source.get(
                    source_key, offset, offset + _ONE_WRITE, if_match=head.etag, if_size=head.size
                )
            return await upload.publish(head.etag, _Condition())
        except (BlobNotFoundError, BlobChangedError):
            await upload.abort()
            raise

    async def first(self, key: str, if_match: str | None) -> tuple[BlobInfo, bytes]:
        """A blob's description, and its first bytes, for a copy."""

        def read(database: Database) -> tuple[BlobInfo, bytes]:
            head = _required(database, key)
            check_unchanged(head.info(key), if_match)
            return head.info(key), _content(database, head, 0, _ONE_WRITE)

        return await self._read(key, read)

    async def delete(self, key: str) -> None:
        await self.delete_many([key])

    async def delete_many(self, keys: Sequence[str]) -> list[DeleteFailure]:
        for key in keys:
            check_key(key)

        def delete(batch: Batch) -> None:
            for key in keys:
                _discard(batch, key)

        await self._database.write(delete)
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
        least = _HEAD + prefix.encode()
        bound = after if cursor is None else cursor
        start = max(least, _HEAD + bound.encode() + b"\0") if bound else least

        def page(database: Database) -> BlobPage:
            rows = database.rows(start, least + b"\xff", size + 1)  # no UTF-8 text has the byte FF
            blobs = [_decoded(value).info(key[1:].decode()) for key, value in rows[:size]]
            return BlobPage(blobs, blobs[-1].key if len(rows) > size else None)

        return await self._database.read(page)

    async def start_upload(self, key: str) -> RocksdbUpload:
        check_key(key)
        name = self._runtime.uuid()
        await self._database.write(
            lambda batch: _touch(batch, name, key, self._runtime.now_ms()), synced=False
        )
        return RocksdbUpload(self._database, key, name, self._runtime)

    async def list_uploads(self, prefix: str = "") -> AsyncIterator[Unfinished]:
        rows = await self._database.read(lambda database: database.rows(_UPLOAD, _UPLOAD + b"\xff"))
        for place, value in rows:
            key, touched_ms = json.loads(value)
            if key.startswith(prefix):
                yield Unfinished(key, place[1:].decode(), touched_ms)

    async def abort_upload(self, upload: Unfinished) -> None:
        await self._database.write(partial(_abort, name=upload.id))

    async def now_ms(self) -> int:
        await self._database.read(lambda _: None, is_short=True)
        return self._runtime.now_ms()

    async def space(self) -> StorageSpace:
        return await self._database.space()

    async def create(self) -> bool:
        return await self._database.create()

    async def exists(self) -> bool:
        return await self._database.exists()

    async def drop(self, *, if_empty: bool = False) -> bool:
        return await self._database.drop(
            unless=(lambda database: bool(database.rows(_HEAD, _HEAD + b"\xff", 1, values=False)))
            if if_empty
            else None
        )

    async def close(self) -> None:
        await self._database.close()

    async def _read(self, key: str, call: Callable[[Database], T], *, is_short: bool = False) -> T:
        """The result of a read, which is repeated when its content is removed meanwhile."""
        for _ in range(_ATTEMPTS):
            try:
                return await self._database.read(call, is_short=is_short)
            except _ContentGoneError:
                continue
        raise CorruptDataError("pieces of the blob are missing", path=key)

    async def _put(self, key: str, data: bytes, etag: str, when: _Condition) -> BlobInfo:
        content = self._runtime.uuid()

        def put(batch: Batch) -> BlobInfo:
            _refuse(batch, key, when)
            _add_pieces(batch, content, "", 0, data)
            head = _Head(content, len(data), etag, self._runtime.now_ms(), has_parts=False)
            return _publish(batch, key, head)

        return await self._database.write(put)


class RocksdbUpload:
    """An upload whose parts are in the database: another store can list and abort it."""

    def __init__(self, database: SharedDatabase, key: str, id: str, runtime: Runtime) -> None:
        self._database = database
        self._key = key
        self._id = id
        self._runtime = runtime

    async def put_part(self, number: int, data: Buffer) -> None:
        if number < 1:
            raise ValueError("parts are numbered from 1")
        content = bytes(data)
        part = _Part(self._runtime.uuid(), len(content), await entity_tag(content))
        for start in range(0, len(content), _ONE_WRITE):
            data = content[start : start + _ONE_WRITE]
            await self._database.write(
                partial(self._stage, name=part.name, offset=start, data=data), synced=False
            )
        await self._database.write(partial(self._add, number=number, part=part), synced=False)

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
        if not isinstance(source, RocksdbBlobStore):
            raise UnsupportedError("RocksDB cannot copy from another kind of store", path=self._key)
        name, digests, offset = self._runtime.uuid(), b"", 0
        pieces = range_of_version(
            source, source_key, start, end, if_match=if_match, step=_ONE_WRITE
        )
        async with aclosing(pieces):
            async for piece in pieces:
                digests += bytes.fromhex(await entity_tag(piece))
                await self._database.write(
                    partial(self._stage, name=name, offset=offset, data=piece), synced=False
                )
                offset += len(piece)
        part = _Part(name, offset, await entity_tag(digests))
        await self._database.write(partial(self._add, number=number, part=part), synced=False)

    async def complete(self) -> BlobInfo:
        parts, stale = await self._database.read(self._state)
        numbers = sorted(parts)
        digests = b"".join(bytes.fromhex(parts[number].digest) for number in numbers)
        etag = f"{await entity_tag(digests)}-{len(numbers)}"
        return await self._publish(parts, stale, etag, _Condition())

    async def publish(self, etag: str, when: _Condition) -> BlobInfo:
        """Publish the parts with an etag, unless the conditions of a put refuse it."""
        return await self._publish(*await self._database.read(self._state), etag, when)

    async def abort(self) -> None:
        await self._database.write(partial(_abort, name=self._id))

    def _stage(self, batch: Batch, name: str, offset: int, data: bytes) -> None:
        self._require(batch)
        _add_pieces(batch, self._id, name, offset, data)

    def _add(self, batch: Batch, number: int, part: _Part) -> None:
        self._require(batch)
        place = _part_key(self._id, number)
        if replaced := batch.get(place):
            batch.delete_range(*_pieces_of(self._id, _part(replaced).name))
        batch.put(place, json.dumps(part).encode())
        _touch(batch, self._id, self._key, self._runtime.now_ms())

    def _require(self, batch: Batch) -> None:
        if batch.get(_UPLOAD + self._id.encode()) is None:
            raise self._ended()

    def _ended(self) -> ServiceError:
        return ServiceError("no such upload", path=self._key, service_code="NoSuchUpload")

    def _state(self, database: Database) -> tuple[dict[int, _Part], list[str]]:
        """The parts by number, and the names of unfinished or replaced ones."""
        start, end = _below(_PARTS, self._id)
        rows = database.rows(start, end)
        parts = {int.from_bytes(key[-4:]): _part(value) for key, value in rows}
        names = {part.name for part in parts.values()}
        return parts, [name for name in _names(database, self._id) if name not in names]

    async def _publish(
        self, parts: dict[int, _Part], stale: Sequence[str], etag: str, when: _Condition
    ) -> BlobInfo:
        def publish(batch: Batch) -> BlobInfo:
            if batch.get(_UPLOAD + self._id.encode()) is None:
                return self._repeated(batch)
            for number, part in parts.items():
                stored = batch.get(_part_key(self._id, number))
                if stored is None or _part(stored) != part:
                    raise self._ended()
            _refuse(batch, self._key, when)
            size = 0
            for number in part_numbers({number: part.size for number, part in parts.items()}, 1):
                part = parts[number]
                size += part.size
                if part.size:
                    batch.put(_index_key(self._id, size), json.dumps(part[:2]).encode())
            for name in stale:
                batch.delete_range(*_pieces_of(self._id, name))
            _forget(batch, self._id)
            head = _Head(self._id, size, etag, self._runtime.now_ms(), has_parts=True)
            return _publish(batch, self._key, head)

        return await self._database.write(publish)

    def _repeated(self, batch: Batch) -> BlobInfo:
        """The result of an earlier completion. Raises ServiceError if there was none."""
        stored = batch.get(_HEAD + self._key.encode())
        head = None if stored is None else _decoded(stored)
        if head is None or head.content != self._id:
            raise self._ended()
        return head.info(self._key)


def _head(database: Database, key: str) -> _Head | None:
    stored = database.get(_HEAD + key.encode())
    return None if stored is None else _decoded(stored)


def _required(database: Database, key: str) -> _Head:
    head = _head(database, key)
    if head is None:
        raise BlobNotFoundError("no blob has this key", path=key)
    return head


def _decoded(value: bytes) -> _Head:
    try:
        return _Head(*json.loads(value))
    except (ValueError, TypeError) as error:
        raise CorruptDataError("the description of a blob is damaged") from error


def _part(value: bytes) -> _Part:
    return _Part(*json.loads(value))


def _below(kind: bytes, *names: str) -> tuple[bytes, bytes]:
    """The range of the keys below an id, or a name below it."""
    start = kind + "/".join(names).encode()
    return start + b"/", start + _AFTER


def _pieces_of(content: str, part: str) -> tuple[bytes, bytes]:
    return _below(_PIECES, content, part)


def _piece_key(content: str, part: str, number: int) -> bytes:
    return _pieces_of(content, part)[0] + number.to_bytes(4)


def _part_key(content: str, number: int) -> bytes:
    return _below(_PARTS, content)[0] + number.to_bytes(4)


def _index_key(content: str, end: int) -> bytes:
    return _below(_INDEX, content)[0] + end.to_bytes(8)


def _names(database: Database, content: str) -> list[str]:
    """The names of the parts whose pieces are stored."""
    start, end = _below(_PIECES, content)
    seen = b""

    def first_of_part(key: bytes) -> bytes | None:
        nonlocal seen
        part = key[:-5]  # without `/` and the number
        if part == seen:
            return part + _AFTER
        seen = part
        return None

    rows = database.rows(start, end, accept=first_of_part, values=False)
    return [key[len(start) : -5].decode() for key, _ in rows]


def _content(database: Database, head: _Head, start: int, end: int) -> bytes:
    """Bytes [start, end) of a content. Raises _ContentGoneError."""
    end = min(end, head.size)
    if start >= end:
        return b""
    found = []
    for begin, part in _parts_of(database, head, start, end):
        low, high = max(start - begin, 0), min(end - begin, part.size)
        for number in range(low // _PIECE, -(-high // _PIECE)):
            piece = database.get(_piece_key(head.content, part.name, number))
            if piece is None:
                raise _ContentGoneError
            offset = number * _PIECE
            found.append(piece[max(low - offset, 0) : high - offset])
    data = found[0] if len(found) == 1 else b"".join(found)
    if len(data) != end - start:
        raise _ContentGoneError
    return data


def _parts_of(database: Database, head: _Head, start: int, end: int) -> list[tuple[int, _Part]]:
    """The parts with bytes of [start, end), each with its offset."""
    if not head.has_parts:
        return [(0, _Part("", head.size))]
    rows = database.rows(_index_key(head.content, start + 1), _index_key(head.content, end))
    last = database.rows(_index_key(head.content, end), _below(_INDEX, head.content)[1], 1)
    parts = []
    for key, value in rows + last:
        part = _part(value)
        parts.append((int.from_bytes(key[-8:]) - part.size, part))
    return parts


def _refuse(batch: Batch, key: str, when: _Condition) -> None:
    """Raises BlobExistsError, BlobChangedError."""
    if when == _Condition():
        return
    stored = batch.get(_HEAD + key.encode())
    if when.if_absent and stored is not None:
        raise BlobExistsError("a blob has this key already", path=key)
    if when.if_match is not None and (stored is None or _decoded(stored).etag != when.if_match):
        raise BlobChangedError("the blob is not the expected one", path=key)


def _add_pieces(batch: Batch, content: str, part: str, start: int, data: bytes) -> None:
    """Write pieces of a part; `start`: the offset of the data in it, at the begin of a piece."""
    for offset in range(0, len(data), _PIECE):
        number = (start + offset) // _PIECE
        batch.put(_piece_key(content, part, number), data[offset : offset + _PIECE])


def _publish(batch: Batch, key: str, head: _Head) -> BlobInfo:
    _discard(batch, key)
    batch.put(_HEAD + key.encode(), head.encoded())
    return head.info(key)


def _discard(batch: Batch, key: str) -> None:
    """Remove a blob, if there is one."""
    place = _HEAD + key.encode()
    stored = batch.get(place)
    if stored is None:
        return
    head = _decoded(stored)
    batch.delete(place)
    batch.freed += head.size
    if head.has_parts:
        for kind in (_PIECES, _INDEX):
            batch.delete_range(*_below(kind, head.content))
    else:
        for number in range(-(-head.size // _PIECE)):
            batch.delete(_piece_key(head.content, "", number))


def _touch(batch: Batch, name: str, key: str, now_ms: int) -> None:
    batch.put(_UPLOAD + name.encode(), json.dumps([key, now_ms]).encode())


def _forget(batch: Batch, name: str) -> None:
    batch.delete(_UPLOAD + name.encode())
    batch.delete_range(*_below(_PARTS, name))


def _abort(batch: Batch, name: str) -> None:
    """Remove an upload and its pieces, unless it was completed."""
    if batch.get(_UPLOAD + name.encode()) is not None:
        _forget(batch, name)
        batch.delete_range(*_below(_PIECES, name))
