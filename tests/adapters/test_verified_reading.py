"""Which reads notice that stored bytes are not those that were written: the table of
`docs/semantics.md`. Entity tags are not compared, as if the bytes had decayed under their tag, but
in the last test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyarrow.fs import PyFileSystem

from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async.adapters.arrow import S3kHandler
from s3k_async.adapters.fsspec import S3kFileSystem
from s3k_async.backends.memory.memory_blobs import MemoryBlobs
from s3k_async.backends.ports.pagination import list_all
from s3k_async.bulk.transfer import download
from s3k_async.client import S3kClient
from s3k_async.config import VolumeConfig
from s3k_async.errors import CorruptDataError, PartialFailureError
from s3k_async.files.file_ranges import SequentialCheck
from s3k_async.volumes import init_volume
from tests.client.rig import TUNING, memory_config

DATA = bytes(index % 251 for index in range(1000))
PATH = "/d/f"


@dataclass
class Opened:
    """One volume as each library sees it."""

    config: VolumeConfig
    client: S3kSyncClient
    fsspec: S3kFileSystem
    arrow: PyFileSystem

    def damage(self, harm: Callable[[bytes], bytes]) -> None:
        """Change the stored bytes, as many as there were."""
        key = self.client.stat(PATH).physical
        assert key is not None
        data = harm(DATA)
        assert len(data) == len(DATA)
        assert data != DATA
        asyncio.run(self._put(key, data))

    async def _put(self, key: str, data: bytes) -> None:
        blobs = MemoryBlobs(self.config.name)
        (stored,) = [info.key async for info in list_all(blobs) if info.key.endswith(key)]
        await blobs.put(stored, data)


@pytest.fixture
def opened() -> Iterator[Opened]:
    config = memory_config(replace(TUNING, change_detection="none"))
    asyncio.run(init_volume(config))
    fsspec = S3kFileSystem(config=config)
    with S3kSyncClient(config=config) as client:
        client.write(PATH, DATA)
        yield Opened(config, client, fsspec, PyFileSystem(S3kHandler(client)))
    fsspec.close_session()


def pieces_of(file: Any, size: int) -> bytes:
    with file:
        return b"".join(iter(lambda: file.read(size), b""))


def filled(file: Any) -> bytes:
    buffer, found = bytearray(90), b""
    with file:
        while count := file.readinto(buffer):
            found += buffer[:count]
    return found


def asynchronous(opened: Opened, size: int | None) -> bytes:
    async def read() -> bytes:
        async with S3kClient(config=opened.config) as client, client.open(PATH) as file:
            if size is None:
                return b"".join([chunk async for chunk in file])
            found = b""
            while piece := await file.read(size):
                found += piece
            return found

    return asyncio.run(read())


def asynchronous_fsspec(opened: Opened) -> bytes:
    async def read() -> bytes:
        fs = S3kFileSystem(config=opened.config, asynchronous=True, skip_instance_cache=True)
        found = b""
        try:
            async with await fs.open_async(PATH) as file:
                while piece := await file.read(70):
                    found += piece
        finally:
            await fs.close()
        return found

    return asyncio.run(read())


SEQUENTIAL: Mapping[str, Callable[[Opened], bytes]] = {
    "async, whole": lambda opened: asynchronous(opened, -1),
    "async, pieces": lambda opened: asynchronous(opened, 7),
    "async, long pieces": lambda opened: asynchronous(opened, 300),
    "async, chunks": lambda opened: asynchronous(opened, None),
    "sync, whole": lambda opened: pieces_of(opened.client.open(PATH), -1),
    "sync, pieces": lambda opened: pieces_of(opened.client.open(PATH), 7),
    "sync, to the last byte": lambda opened: pieces_of(opened.client.open(PATH), 1000),
    "sync, readinto": lambda opened: filled(opened.client.open(PATH)),
    "fsspec, whole": lambda opened: pieces_of(opened.fsspec.open(PATH), -1),
    "fsspec, pieces": lambda opened: pieces_of(opened.fsspec.open(PATH, block_size=64), 50),
    "fsspec, blocks": lambda opened: pieces_of(
        opened.fsspec.open(PATH, block_size=64, cache_type="bytes"), 50
    ),
    "fsspec, no cache": lambda opened: pieces_of(opened.fsspec.open(PATH, cache_type="none"), 50),
    "fsspec, readinto": lambda opened: filled(opened.fsspec.open(PATH, block_size=64)),
    "fsspec, readinto by the cache": lambda opened: filled(
        opened.fsspec.open(PATH, block_size=200, cache_type="bytes")
    ),
    "fsspec, async": asynchronous_fsspec,
    "pyarrow, stream": lambda opened: bytes(opened.arrow.open_input_stream(PATH).read()),
    "pyarrow, file": lambda opened: pieces_of(opened.arrow.open_input_file(PATH), 33),
    "hadoop-sized": lambda opened: pieces_of(opened.client.open(PATH), 4096),
}

HARM: Mapping[str, Callable[[bytes], bytes]] = {
    "flipped at the start": lambda data: bytes([data[0] ^ 1]) + data[1:],
    "flipped at the end": lambda data: data[:-1] + bytes([data[-1] ^ 0x80]),
    "zeroed": lambda data: data[:400] + bytes(100) + data[500:],
    "swapped": lambda data: data[500:] + data[:500],
}


@pytest.mark.parametrize("read", SEQUENTIAL.values(), ids=list(SEQUENTIAL))
def test_a_file_read_in_order_to_its_end_is_verified(
    opened: Opened, read: Callable[[Opened], bytes]
) -> None:
    assert read(opened) == DATA
    for name, harm in HARM.items():
        opened.damage(harm)
        with pytest.raises(CorruptDataError) as raised:
            read(opened)
        assert raised.value.path == PATH, name


WHOLE: Mapping[str, Callable[[Opened], object]] = {
    "read": lambda opened: opened.client.read(PATH),
    "a range of everything": lambda opened: opened.client.read_ranges(PATH, [(0, 1), (0, 1000)]),
    "readinto a buffer for everything": lambda opened: opened.client.open(PATH).readinto(
        bytearray(1000)
    ),
    "fsspec's readinto of everything": lambda opened: opened.fsspec.open(
        PATH, block_size=64
    ).readinto(bytearray(1000)),
    "read_at of everything": lambda opened: opened.client.open(PATH).read_at(0, 5000),
    "cat_file": lambda opened: opened.fsspec.cat_file(PATH),
    "cat_ranges": lambda opened: opened.fsspec.cat_ranges([PATH], [0], [1000], on_error="raise"),
}


@pytest.mark.parametrize("read", WHOLE.values(), ids=list(WHOLE))
def test_what_is_read_whole_is_verified(opened: Opened, read: Callable[[Opened], object]) -> None:
    read(opened)
    opened.damage(HARM["zeroed"])
    with pytest.raises(CorruptDataError):
        read(opened)


def test_what_is_copied_to_a_local_file_is_verified_before_it_appears(
    opened: Opened, tmp_path: Path
) -> None:
    opened.damage(HARM["swapped"])
    with pytest.raises(CorruptDataError):
        opened.client._call(lambda client: download(client, PATH, tmp_path / "one"))
    with pytest.raises(CorruptDataError):
        opened.fsspec.get_file(PATH, str(tmp_path / "two"))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(PartialFailureError) as raised:
        opened.client.read_many([PATH])
    assert isinstance(raised.value.failures[0][1], CorruptDataError)


def test_a_part_of_a_file_is_not_verified(opened: Opened) -> None:
    """There is one checksum for each file."""
    damaged = HARM["zeroed"](DATA)
    opened.damage(HARM["zeroed"])
    assert opened.client.read_ranges(PATH, [(390, 510)]) == [damaged[390:510]]
    assert opened.client.open(PATH).read_at(1, 5000) == damaged[1:]
    assert opened.fsspec.cat_file(PATH, 390, 510) == damaged[390:510]
    with opened.client.open(PATH) as file:
        assert file.read(600) == damaged[:600]
    with opened.client.open(PATH) as file:
        file.seek(300)
        assert file.read() == damaged[300:]


def test_places_that_were_read_before_change_nothing(opened: Opened) -> None:
    """A reader that looks at the end first, goes back, and reads parts twice is verified once it
    has fetched all."""
    with opened.client.open(PATH) as file:
        file.seek(-8, 2)
        assert file.read() == DATA[-8:]
        for start, size in ((0, 300), (100, 400), (500, 100), (50, 20), (600, 400)):
            file.seek(start)
            assert file.read(size) == DATA[start : start + size]
    opened.damage(HARM["flipped at the start"])
    with opened.client.open(PATH) as file:
        file.seek(-8, 2)
        assert file.read() == DATA[-8:]
        file.seek(0)
        with pytest.raises(CorruptDataError):
            file.read()
        file.seek(0)
        with pytest.raises(CorruptDataError):
            file.read()


def test_threads_that_fetch_at_the_same_time_end_the_verification(opened: Opened) -> None:
    async def entry() -> Any:
        async with S3kClient(config=opened.config) as client:
            return await client._volume().store.get(PATH)

    check = SequentialCheck(asyncio.run(entry()))
    with check._lock:
        check.add(0, DATA[:10])
    check.add(0, bytes(len(DATA)))


def test_another_entity_tag_is_noticed_by_every_read(opened: Opened) -> None:
    opened.damage(HARM["zeroed"])
    config = replace(opened.config, tuning=TUNING)
    fsspec = S3kFileSystem(config=config)
    with S3kSyncClient(config=config) as client:
        arrow = PyFileSystem(S3kHandler(client))
        parts: tuple[Callable[[], object], ...] = (
            lambda: client.read_ranges(PATH, [(390, 510)]),
            lambda: client.open(PATH).read_at(1, 20),
            lambda: client.open(PATH).read(8),
            lambda: fsspec.cat_file(PATH, 390, 510),
            lambda: fsspec.open(PATH, block_size=64).read(8),
            lambda: arrow.open_input_file(PATH).read_at(8, 100),
        )
        for read in parts:
            with pytest.raises(CorruptDataError):
                read()
    fsspec.close_session()
