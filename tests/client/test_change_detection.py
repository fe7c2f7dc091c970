"""Objects that another program has replaced: each mode of detection, each way of reading."""

from __future__ import annotations

import os
import shutil
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from s3k_async.backends.local.local_blobs import LocalBlobs
from s3k_async.client import S3kClient
from s3k_async.config import LocalDirectory, MemoryTable, S3Bucket, VolumeConfig
from s3k_async.errors import CorruptDataError, DataMissingError
from s3k_async.files.file_ranges import naming_file
from s3k_async.integrity.repair import verify_volume
from s3k_async.model import Content, Entry
from s3k_async.testing import FaultPlan
from s3k_async.volumes import init_volume
from tests.client.rig import TUNING, faulty_client, memory_config
from tests.engines.process import Engine
from tests.engines.volumes import fresh_name, volume_backends
from tests.proxy import FaultProxy

DATA = b"what was written " * 60
OTHER = b"what replaced it " * 60
everywhere = volume_backends("memory", "embedded", "dynoxide+seaweedfs", "redis", "rocksdb")


def with_mode(config: VolumeConfig, mode: str) -> VolumeConfig:
    return replace(config, tuning=replace(config.tuning, change_detection=mode))  # type: ignore[arg-type]


async def entry_of(fs: S3kClient, path: str) -> Entry:
    entry = await fs._volume().store.get(path)
    assert entry is not None
    return entry


async def replaced(fs: S3kClient, path: str, data: bytes = OTHER) -> Entry:
    """The entry of a file whose object another program has written over."""
    entry = await entry_of(fs, path)
    await fs._volume().blobs.put(str(entry.physical), data)
    return entry


def readers(fs: S3kClient, path: str) -> Mapping[str, Callable[[], Awaitable[bytes]]]:
    """Ways of reading bytes 100 to 600, none of which reads the whole file."""

    async def opened() -> bytes:
        async with fs.open(path) as file:
            await file.seek(100)
            return await file.read(500)

    async def into() -> bytes:
        buffer = bytearray(500)
        async with fs.open(path) as file:
            await file.seek(100)
            await file.readinto(buffer)
        return bytes(buffer)

    async def at() -> bytes:
        async with fs.open(path) as file:
            return await file.read_at(100, 500)

    async def ranges() -> bytes:
        return b"".join(await fs.read_ranges(path, [(100, 350), (350, 600)]))

    async def composed() -> bytes:
        """A copy of the range, inside the service where that is possible."""
        storage, entry = fs._volume().storage, await entry_of(fs, path)
        with naming_file(entry):
            content = await storage.copy_range(entry.content, entry.id, 100, 600)
        data = await storage.read(content.physical, 0, 500)
        await storage.delete(content.physical)
        return data

    return {
        "open": opened,
        "readinto": into,
        "read_at": at,
        "ranges": ranges,
        "copy_range": composed,
    }


@everywhere
@pytest.mark.parametrize("mode", ["server", "client"])
async def test_ranges_of_a_replaced_object_are_never_returned(
    config: VolumeConfig, mode: str
) -> None:
    """The error has the file, the object and both tags."""
    async with S3kClient(config=with_mode(config, mode)) as fs:
        await fs.write("/f", DATA)
        for read in readers(fs, "/f").values():
            assert await read() == DATA[100:600]
        entry = await replaced(fs, "/f")
        found = await fs._volume().blobs.head(str(entry.physical))
        assert found is not None
        for name, read in readers(fs, "/f").items():
            with pytest.raises(CorruptDataError) as raised:
                await read()
            text = str(raised.value)
            assert raised.value.path == "/f", name
            assert all(each in text for each in (found.etag, entry.etag, str(entry.physical))), name
        with pytest.raises(CorruptDataError):
            await fs.copy("/f", "/copy")
        (many,) = await fs.read_each(["/f"])
        assert isinstance(many, CorruptDataError)
        assert not await fs.exists("/copy")


@everywhere
@pytest.mark.parametrize("mode", ["server", "client"])
@pytest.mark.parametrize("change", ["append", "write_range"])
async def test_ranges_of_a_replaced_extent_are_never_returned(
    config: VolumeConfig, mode: str, change: str
) -> None:
    """Of files that grew, or were changed in place: the object is there as a whole, or in parts."""
    async with S3kClient(config=with_mode(config, mode)) as fs:
        await fs.write("/f", DATA)
        entry = await entry_of(fs, "/f")
        if change == "append":
            await fs.append("/f", b"more")
        else:
            await fs.write_range("/f", 50, b"changed")
        for name, read in readers(fs, "/f").items():
            assert await read() == DATA[100:600], name
        await fs._volume().blobs.put(str(entry.physical), OTHER)
        for name, read in readers(fs, "/f").items():
            with pytest.raises(CorruptDataError) as raised:
                await read()
            assert entry.etag in str(raised.value), name
        with pytest.raises(CorruptDataError):
            await fs.copy("/f", "/copy")
        if change == "write_range":
            assert await fs.read_ranges("/f", [(50, 57)]) == [b"changed"]


@everywhere
async def test_a_whole_extent_is_verified_without_a_comparison_of_tags(
    config: VolumeConfig,
) -> None:
    async with S3kClient(config=with_mode(config, "none")) as fs:
        await fs.write("/f", b"written")
        entry = await entry_of(fs, "/f")
        await fs.append("/f", b"more")
        await fs._volume().blobs.put(str(entry.physical), b"another")
        for read in (fs.read("/f"), fs.read_ranges("/f", [(0, 7)])):
            with pytest.raises(CorruptDataError, match="checksum of the bytes"):
                await read
        assert await fs.read_ranges("/f", [(7, 11)]) == [b"more"]


@everywhere
async def test_a_long_extent_is_verified_by_reads_in_order(config: VolumeConfig) -> None:
    """By several requests, of which none is for a whole extent."""
    async with S3kClient(config=with_mode(config, "none")) as fs:
        await fs.write("/f", DATA)
        entry = await entry_of(fs, "/f")
        await fs.append("/f", b"more")
        await fs.truncate("/f", len(DATA) + 50)
        whole = DATA + b"more" + bytes(46)
        assert await fs.read("/f") == whole
        await fs._volume().blobs.put(str(entry.physical), OTHER)
        for read in (fs.read, partial(read_in_pieces, fs)):
            with pytest.raises(
                CorruptDataError, match=f"checksum of the bytes of {entry.physical}"
            ):
                await read("/f")
        async with fs.open("/f") as file:
            assert len(await file.read(len(DATA) - 1)) == len(DATA) - 1
            for _ in range(2):
                with pytest.raises(CorruptDataError):
                    await file.read(10)
            await file.seek(0)
            for _ in range(2):
                with pytest.raises(CorruptDataError):
                    await file.read(len(DATA))
            await file.seek(0)
            buffer = bytearray(len(DATA))
            with pytest.raises(CorruptDataError) as raised:
                await file.readinto(buffer)
            buffer.clear()  # refused while the error has a view of it
            assert raised.value.path == "/f"
            await file.seek(len(DATA) + 4)
            assert await file.read() == whole[len(DATA) + 4 :]


async def read_in_pieces(fs: S3kClient, path: str) -> bytes:
    read = b""
    async with fs.open(path) as file:
        while chunk := await file.read(100):
            read += chunk
    return read


@everywhere
async def test_an_open_file_reads_its_version_or_raises(config: VolumeConfig) -> None:
    async with S3kClient(config=config) as fs:
        await fs.write("/f", DATA)
        async with fs.open("/f") as file:
            assert await file.read(50) == DATA[:50]
            await replaced(fs, "/f")
            read = [DATA[:50]]

            async def rest() -> None:
                while chunk := await file.read(64):
                    read.append(chunk)

            with pytest.raises(CorruptDataError):
                await rest()
            assert DATA.startswith(b"".join(read))


async def test_a_warning_is_logged_once_and_none_compares_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = memory_config()
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        await fs.write("/f", DATA)
        entry = await replaced(fs, "/f")
    for mode, warnings in (("warn", 1), ("none", 0)):
        caplog.clear()
        async with S3kClient(config=with_mode(config, mode)) as fs:
            for read in readers(fs, "/f").values():
                assert await read() == OTHER[100:600]
            said = [each.message for each in caplog.records if entry.etag in each.message]
            assert len(said) == warnings
            # Size and checksum are verified in every mode.
            with pytest.raises(CorruptDataError, match="checksum"):
                await fs.read("/f")
            await replaced(fs, "/f", OTHER[:-1])
            with pytest.raises(CorruptDataError, match="1019 bytes instead of 1020"):
                await fs.read_ranges("/f", [(1, 5)])
            await replaced(fs, "/f", OTHER)


async def test_an_adopted_object_is_read_as_it_is_in_mode_warn(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = memory_config()
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        place = fs._volume().place
        await place.put("feed", DATA)
        async with fs.transaction() as tx:
            await tx.adopt("/f", place.uri("feed"))
        await place.put("feed", OTHER)
        with pytest.raises(CorruptDataError, match="adopt"):
            await fs.read("/f")
    async with S3kClient(config=with_mode(config, "warn")) as fs:
        assert await fs.read("/f") == OTHER
        await fs._volume().place.put("feed", OTHER[::-1])
        assert await fs.read("/f") == OTHER[::-1]
    assert sum("was replaced by another program" in each.message for each in caplog.records) == 2


async def test_a_copied_volume_is_read_as_before(tmp_path: Path) -> None:
    """A copy keeps the bytes and not the tags: each object is read once to see that. What was
    replaced in the copy is still found."""
    config = VolumeConfig(
        "", MemoryTable(name := fresh_name("copied")), LocalDirectory(str(tmp_path / "data"))
    )
    config = replace(config, name=name, tuning=TUNING)
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        for path in ("/f", "/g", "/changed"):
            await fs.write(path, DATA)
        await fs.write_range("/changed", 50, b"changed")
        entry = await entry_of(fs, "/f")
    for found in (tmp_path / "data").rglob("*id=*"):
        shutil.copyfile(found, tmp_path / "copy")
        os.replace(tmp_path / "copy", found)
    faults = FaultPlan()
    async with faulty_client(faults, config) as fs:
        for read in readers(fs, "/f").values():
            assert await read() == DATA[100:600]
        looked = [call.key for call in faults.calls if call.method == "head"]
        assert sum(key.endswith(str(entry.physical)) for key in looked) == 1
        assert await fs.read("/g") == DATA
        await fs.copy("/g", "/copy")
        assert await fs.read("/copy") == DATA
        for read in readers(fs, "/changed").values():
            assert await read() == DATA[100:600]
        await fs.copy("/changed", "/other")
        assert await fs.read("/other") == DATA[:50] + b"changed" + DATA[57:]
        blobs = LocalBlobs(tmp_path / "data")
        key = str((await entry_of(fs, "/f")).physical)
        await fs._volume().blobs.put(key, OTHER)
        await blobs.close()
        with pytest.raises(CorruptDataError, match="checksum"):
            await fs.read_ranges("/f", [(1, 9)])


async def test_a_composed_object_has_nothing_but_its_tag() -> None:
    config = memory_config()
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        store, storage = fs._volume().store, fs._volume().storage
        target = await store.prepare("/f")
        content = await storage.put(target.object_id, DATA)
        await store.publish(target, Content(content.physical, len(DATA), content.etag, ""))
        assert await fs.read("/f") == DATA
        await replaced(fs, "/f")
        with pytest.raises(CorruptDataError, match="change_detection = warn"):
            await fs.read("/f")
        report = await verify_volume(fs._volume(), grace=-60.0, deep=True)
        assert [each.kind for each in report.problems] == ["etag_mismatch"]
        await fs._volume().blobs.delete(content.physical)
        with pytest.raises(DataMissingError):
            await fs.read("/f")
    async with S3kClient(config=with_mode(config, "warn")) as fs:
        await fs._volume().blobs.put(content.physical, OTHER)
        assert await fs.read("/f") == OTHER


async def test_what_may_have_been_replaced_is_not_cached(tmp_path: Path) -> None:
    config = memory_config()
    config = replace(config, tuning=replace(TUNING, cache=str(tmp_path / "cache"), cache_block=64))
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        await fs.write("/f", DATA)
        await replaced(fs, "/f")
        await fs.write("/short", DATA[:50])
        await replaced(fs, "/short", OTHER[:50])
        with pytest.raises(CorruptDataError):
            await fs.read("/short")
    async with S3kClient(config=with_mode(config, "warn")) as fs:
        assert await fs.read_ranges("/f", [(1, 200)]) == [OTHER[1:200]]
        assert fs.cache_statistics is not None
        assert fs.cache_statistics.stored == 0
    async with S3kClient(config=config) as fs:
        for path in ("/f", "/short"):
            with pytest.raises(CorruptDataError):
                await fs.read_ranges(path, [(1, 40)])
        await replaced(fs, "/f", DATA)
        assert await fs.read_ranges("/f", [(1, 200)]) == [DATA[1:200]]
    async with S3kClient(config=config) as fs:
        await replaced(fs, "/f")
        assert await fs.read_ranges("/f", [(1, 200)]) == [DATA[1:200]]


@pytest.mark.parametrize(
    ("mode", "conditions"), [("server", True), ("warn", True), ("client", False), ("none", False)]
)
async def test_what_s3_is_asked(mode: str, conditions: bool, moto_s3: Engine) -> None:
    """Every read of a file and every copy has a condition, or none has."""
    name = fresh_name("asked")
    async with FaultProxy(moto_s3.endpoint) as proxy:
        aws = replace(moto_s3.aws(), endpoint=proxy.url)
        config = VolumeConfig(name, MemoryTable(name), S3Bucket(name, "", aws), tuning=TUNING)
        await init_volume(config)
        async with S3kClient(config=with_mode(config, mode)) as fs:
            await fs.write("/f", DATA)
            entry = await entry_of(fs, "/f")
            proxy.clear()
            for read in readers(fs, "/f").values():
                assert await read() == DATA[100:600]
            await fs.copy("/f", "/copy")
            own = [call for call in proxy.calls if call.path.endswith(str(entry.physical))]
            reads = [call for call in own if call.method == "GET"]
            tags = {call.headers.get("if-match") for call in reads}
            assert tags == ({f'"{entry.etag}"'} if conditions else {None})
            copies = [call for call in proxy.calls if "x-amz-copy-source" in call.headers]
            assert copies or entry.etag.endswith("-")
            tags = {call.headers.get("x-amz-copy-source-if-match") for call in copies}
            assert tags == ({f'"{entry.etag}"'} if conditions else {None})


@pytest.mark.parametrize("mode", ["server", "client", "warn"])
async def test_whole_reads_of_a_copy_with_another_tag_send_one_request(
    tmp_path: Path, mode: str
) -> None:
    """All but the first. An object that is replaced later is found by them, and by others."""
    name = fresh_name("copied")
    config = VolumeConfig(
        name, MemoryTable(name), LocalDirectory(str(tmp_path / "data")), tuning=TUNING
    )
    await init_volume(config)
    data, other = DATA[:50], OTHER[:50]
    async with S3kClient(config=config) as fs:
        for path in ("/f", "/g"):
            await fs.write(path, data)
    for found in (tmp_path / "data").rglob("*id=*"):
        shutil.copyfile(found, tmp_path / "copy")
        os.replace(tmp_path / "copy", found)
    plan = FaultPlan()

    def requests() -> list[str]:
        made = [call.method for call in plan.calls if call.store == "blobs"]
        plan.calls.clear()
        return made

    async with faulty_client(plan, with_mode(config, mode)) as fs:
        for path in ("/f", "/g"):
            assert await fs.read(path) == data
            assert len(requests()) == 2
            for _ in range(2):
                assert await fs.read(path) == data
                assert len(requests()) == 1
        assert await fs.read_ranges("/f", [(1, 5)]) == [data[1:5]]
        assert "head" in requests()
        assert await fs.read("/f") == data
        assert len(requests()) == 1
        for path in ("/f", "/g"):
            await replaced(fs, path, other)
            with pytest.raises(CorruptDataError):
                await fs.read(path)
        if mode != "warn":
            with pytest.raises(CorruptDataError):
                await fs.read_ranges("/g", [(1, 5)])
