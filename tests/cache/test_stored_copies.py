"""Content that is stored again is never taken from the cache: whatever its blocks hold, a copy has
the bytes of its source."""

from __future__ import annotations

import io
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from pyarrow.fs import PyFileSystem

from s3k_async._native import Xxh3_128
from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async.adapters.arrow import S3kHandler
from s3k_async.adapters.fsspec import S3kFileSystem
from s3k_async.backends.memory.memory_blobs import MemoryBlobs
from s3k_async.client import S3kClient
from s3k_async.config import Tuning, VolumeConfig
from s3k_async.model import Feature
from s3k_async.objects import ObjectStore, byte_ranges
from s3k_async.storage.change_detection import checksum_of
from s3k_async.volumes import init_volume
from tests.cache.rig import block_files
from tests.client.rig import memory_config

DATA = bytes(range(256)) * 40
BLOCK = 1000
FILE = "/bucket/file"


def poison(place: Path) -> None:
    """Give all blocks of a cache other bytes, and valid digests of them."""
    files = block_files(place)
    assert files
    for file in files:
        content = file.read_bytes()
        (length,) = struct.unpack(">H", content[24:26])
        start = 26 + length
        changed = content[24:start] + bytes(each ^ 0xFF for each in content[start:])
        digest = Xxh3_128()
        digest.update(changed)
        file.write_bytes(content[:8] + bytes.fromhex(digest.hexdigest()) + changed)


def cached(config: VolumeConfig, place: Path) -> VolumeConfig:
    tuning = Tuning(cache=str(place), cache_block=BLOCK, part_size=3000, multipart_threshold=5000)
    return replace(config, tuning=tuning)


@pytest.fixture
def streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service can copy nothing by itself."""
    monkeypatch.setattr(MemoryBlobs, "can_copy_from", lambda *_: False)


@asynccontextmanager
async def poisoned(config: VolumeConfig, place: Path) -> AsyncIterator[S3kClient]:
    """A client whose cache has wrong blocks of all files."""
    async with S3kClient(config=cached(config, place)) as fs:
        async for status in fs.list("/bucket"):
            await fs.read(status.path)
        poison(place)
        yield fs


async def stored(config: VolumeConfig, path: str) -> bytes:
    """The content of a file for a client without a cache."""
    async with S3kClient(config=config) as fs:
        data = await fs.read(path)
        recorded = (await fs.stat(path)).checksum
        assert recorded in ("", checksum_of(data))
        return data


async def _copy(fs: S3kClient) -> None:
    await fs.copy(FILE, "/bucket/copy")


async def _write_range(fs: S3kClient) -> None:
    await ObjectStore(fs).write_copy("bucket", "file", "copy", source_offset=100, size=5000)


async def _write_long_range(fs: S3kClient) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(byte_ranges, "LEAST_COPY", 5000)
        await _write_range(fs)


async def _create_range(fs: S3kClient) -> None:
    await ObjectStore(fs).create_copy("bucket", "file", "copy", offset=100, size=5000)


async def _copy_part(fs: S3kClient) -> None:
    objects = ObjectStore(fs)
    upload = await objects.create_upload("bucket", "copy")
    await objects.copy_part(upload.id, 0, "bucket", "file", offset=100, size=5000)
    await objects.complete_upload(upload.id)


WHOLE, RANGE = DATA, DATA[100:5100]


@pytest.mark.usefixtures("streamed")
@pytest.mark.parametrize(
    ("store", "wanted"),
    [
        (_copy, WHOLE),
        (_write_range, RANGE),
        (_write_long_range, RANGE),
        (_create_range, RANGE),
        (_copy_part, RANGE),
    ],
)
async def test_a_copy_has_the_bytes_of_the_source(
    tmp_path: Path, store: Callable[[S3kClient], Awaitable[None]], wanted: bytes
) -> None:
    config = memory_config()
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        await ObjectStore(fs).create_bucket("bucket")
        await fs.write(FILE, DATA)
    async with poisoned(config, tmp_path) as fs:
        await store(fs)
    assert await stored(config, "/bucket/copy") == wanted


async def _append(fs: S3kClient) -> bytes:
    await fs.append(FILE, b"more" * 3000)
    return b"more" * 3000


async def _compact(fs: S3kClient) -> bytes:
    await fs.compact(FILE, whole=True)
    return b""


async def _concat(fs: S3kClient) -> bytes:
    await fs.concat(FILE, ["/bucket/other"])
    return DATA


@pytest.mark.usefixtures("streamed")
@pytest.mark.parametrize("edit", [_append, _compact, _concat])
async def test_an_edit_keeps_the_bytes_that_it_stores_again(
    tmp_path: Path, edit: Callable[[S3kClient], Awaitable[bytes]]
) -> None:
    config = memory_config()
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        await fs.write("/bucket/other", DATA)
        await fs.write(FILE, DATA)
        await fs.write_range(FILE, 2000, bytes(3000))
    async with poisoned(config, tmp_path) as fs:
        added = await edit(fs)
    assert await stored(config, FILE) == DATA[:2000] + bytes(3000) + DATA[5000:] + added


@pytest.mark.usefixtures("streamed")
async def test_a_file_of_extents_is_copied_to_a_volume_without_them(tmp_path: Path) -> None:
    config, other = memory_config(), memory_config()
    await init_volume(config)
    await init_volume(other, without=["extents"])
    async with S3kClient(config=config) as fs:
        await fs.write(FILE, DATA)
        await fs.write_range(FILE, 2000, bytes(3000))
    async with poisoned(config, tmp_path) as fs, S3kClient(config=other) as target:
        await fs.copy_to(target, FILE, FILE)
    assert await stored(other, FILE) == DATA[:2000] + bytes(3000) + DATA[5000:]


def test_fsspec_appends_to_the_bytes_of_the_source(tmp_path: Path) -> None:
    config = memory_config()
    _prepare(config, tmp_path, without=["extents"])
    fs = S3kFileSystem(config=cached(config, tmp_path), skip_instance_cache=True)
    try:
        with fs.open(FILE, "ab") as file:
            file.write(b"more")
        with fs.transaction:
            fs.cp_file("/bucket/other", "/bucket/copy")
    finally:
        fs.close_session()
    assert anyio.run(stored, config, FILE) == DATA + b"more"
    assert anyio.run(stored, config, "/bucket/copy") == DATA


def test_a_buffer_stores_what_it_reads_between_two_writes(tmp_path: Path) -> None:
    """`io.BufferedRandom` writes all from the first to the last changed byte of its buffer."""
    config = memory_config()
    _prepare(config, tmp_path)
    fs = S3kFileSystem(config=cached(config, tmp_path), skip_instance_cache=True)
    try:
        with io.BufferedRandom(fs.open(FILE, "r+b")) as file:
            file.read(100)
            file.write(b"one")
            file.seek(200)
            file.write(b"two")
    finally:
        fs.close_session()
    wanted = DATA[:100] + b"one" + DATA[103:200] + b"two" + DATA[203:]
    assert anyio.run(stored, config, FILE) == wanted


def test_arrow_appends_to_the_bytes_of_the_source(tmp_path: Path) -> None:
    config = memory_config()
    _prepare(config, tmp_path, without=["extents"])
    with (
        S3kSyncClient(config=cached(config, tmp_path)) as client,
        PyFileSystem(S3kHandler(client)).open_append_stream(FILE) as stream,
    ):
        stream.write(b"more")
    assert anyio.run(stored, config, FILE) == DATA + b"more"


def _prepare(config: VolumeConfig, place: Path, without: Sequence[Feature] = ()) -> None:
    """A volume, and a cache with wrong blocks of its files."""

    async def prepare() -> None:
        await init_volume(config, without=without)
        async with S3kClient(config=config) as fs:
            await fs.write(FILE, DATA)
            await fs.write("/bucket/other", DATA)
        async with poisoned(config, place):
            pass

    anyio.run(prepare)
