"""Ranges of bytes that are streamed into objects: from other objects, local files and patterns."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from functools import partial

from s3k_async.backends.ports.blobs import Buffer
from s3k_async.bulk.copying import copied
from s3k_async.bulk.publish import publish_new
from s3k_async.client import S3kClient, reader_of, volume_of
from s3k_async.errors import ConflictError, InvalidArgumentError, PathExistsError
from s3k_async.files.edits import need_extents, need_range, publish_range
from s3k_async.files.file_ranges import naming_file, need_readable, require_readable
from s3k_async.files.open_files import FileReader, bytes_of
from s3k_async.files.range_writer import open_range_writer
from s3k_async.model import Content, Entry, FileStatus, status_of
from s3k_async.namespace.entry_reader import existing
from s3k_async.namespace.store import WriteTarget
from s3k_async.objects.local_bytes import CHUNK
from s3k_async.storage.extents import Extent, content_of, extents_of, whole_object
from s3k_async.storage.upload import LEAST_COPY
from s3k_async.volumes.volume import Volume

__all__ = [
    "copy_range",
    "create_from_pieces",
    "create_from_range",
    "pieces_of",
    "repeated",
    "write_pieces",
]


async def create_from_pieces(
    client: S3kClient, path: str, parts: AsyncIterator[bytes]
) -> FileStatus:
    """Create a file: a short one by one write, a longer one by a reservation of its path. Raises
    PathExistsError."""
    head: list[bytes] = []
    async for part in parts:
        head.append(part)
        if sum(map(len, head)) >= CHUNK:
            break
    else:
        return await client.write(path, b"".join(head), overwrite=False)
    async with client.open(path, "xb") as writer:
        for part in head:
            await writer.write(part)
        head.clear()
        async for part in parts:
            await writer.write(part)
        return await writer.commit()


async def create_from_range(
    client: S3kClient, source: Entry, path: str, offset: int, size: int | None
) -> FileStatus:
    """Create a file from a range of another one. Raises PathExistsError."""
    if not offset and (size is None or size >= source.size):
        volume = volume_of(client)
        upload = copied(volume, source, volume)
        return status_of(await publish_new(volume, path, upload, overwrite=False))
    start, end = _span(source.size, offset, size)
    require_readable(volume_of(client).store, source)
    if end - start >= LEAST_COPY:
        return await _create_stored(volume_of(client), source, start, end, path, 0)
    async with reader_of(client, source, cached=False) as reader:
        return await create_from_pieces(client, path, pieces_of(reader, offset, size))


async def copy_range(
    client: S3kClient,
    origin: str,
    origin_offset: int,
    size: int | None,
    path: str,
    offset: int,
) -> FileStatus:
    """Replace bytes of a file by a range of one version of another one, or of the same."""
    volume = volume_of(client)
    source = await existing(volume.store, origin)
    require_readable(volume.store, source)
    start, end = _span(source.size, origin_offset, size)
    if end - start >= LEAST_COPY:
        return await _write_stored(volume, source, start, end, path, offset)
    async with reader_of(client, source, cached=False) as reader:
        return await write_pieces(client, path, offset, pieces_of(reader, origin_offset, size))


async def _write_stored(
    volume: Volume, source: Entry, start: int, end: int, path: str, offset: int
) -> FileStatus:
    """Replace bytes of a file by a long range of another one, or of the same, inside the service
    where it can; a missing file is created."""
    need_range(path, offset, end - start)
    need_extents(volume, path)
    target = await volume.store.prepare(path)
    current = target.current
    if current is None:
        try:
            return await _create_stored(volume, source, start, end, path, offset)
        except PathExistsError as error:
            raise ConflictError("another client created the file meanwhile", path=path) from error
    need_readable(current)
    extents_of(current.content, current.id)  # it can be changed
    with naming_file(source):
        storage = volume.storage.at(path)
        content = await storage.copy_range(source.content, target.object_id, start, end)
    return status_of(
        await publish_range(
            volume, path, offset, content, expected=current.id, lease_ms=target.lease_ms
        )
    )


async def _create_stored(
    volume: Volume, source: Entry, start: int, end: int, path: str, offset: int
) -> FileStatus:
    """Create a file with a long range of another one at an offset. Raises PathExistsError."""

    async def upload(target: WriteTarget) -> Content:
        with naming_file(source):
            storage = volume.storage.at(path)
            content = await storage.copy_range(source.content, target.object_id, start, end)
        if not offset:
            return content
        stored = whole_object(content)
        return content_of(target.object_id, [Extent("", 0, offset), stored])

    return status_of(await publish_new(volume, path, upload, overwrite=False))


async def write_pieces(
    client: S3kClient, path: str, offset: int, parts: AsyncIterator[bytes]
) -> FileStatus:
    """Replace the bytes of a file from an offset on, in one change; a missing file is created.
    Raises ConflictError if it was removed, replaced or created meanwhile."""
    writer = await open_range_writer(partial(volume_of, client), path, offset)
    async with writer:
        async for part in parts:
            await writer.write(part)
        return await writer.commit()


async def pieces_of(
    reader: FileReader, offset: int, size: int | None
) -> AsyncGenerator[bytes, None]:
    """At most `size` bytes of an open file from an offset on, in pieces of up to CHUNK."""
    start, end = _span(reader.size, offset, size)
    left = end - start
    await reader.seek(start)
    while left:
        piece = await reader.read(min(CHUNK, left))
        yield piece
        left -= len(piece)


def _span(length: int, offset: int, size: int | None) -> tuple[int, int]:
    """The range of at most `size` bytes from an offset on, cut at the end of a file of a length."""
    start = min(offset, length)
    return start, length if size is None else min(start + size, length)


def repeated(pattern: Buffer, size: int, path: str) -> AsyncGenerator[bytes, None]:
    """So many bytes of a repeated pattern, in pieces of up to CHUNK and one pattern. Raises
    InvalidArgumentError for an empty pattern."""
    unit = bytes(bytes_of(pattern, path))
    if size and not unit:
        raise InvalidArgumentError("an empty pattern cannot be repeated", path=path)
    return _repeated(unit, size)


async def _repeated(unit: bytes, size: int) -> AsyncGenerator[bytes, None]:
    if not size:
        return
    block = unit * (min(CHUNK, size) // len(unit) + 1)
    for start in range(0, size, len(block)):
        yield block[: size - start]
