"""Files whose objects are composed of ranges of others inside the service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from s3k_async._core.metering import Requests
from s3k_async.client import S3kClient
from s3k_async.config import Tuning, VolumeConfig
from s3k_async.errors import CorruptDataError, DataMissingError, ResponseLostError, ThrottledError
from s3k_async.model import LayoutName
from s3k_async.objects import ObjectStore
from s3k_async.storage.extents import has_extents, parse_extents
from s3k_async.testing import Call, FaultPlan
from s3k_async.testing.faults import Moment
from s3k_async.volumes import init_volume
from tests.client.rig import TUNING, faulty_client, memory_config
from tests.client.test_edits import data_keys
from tests.client.transacting import problems
from tests.engines.volumes import VolumeMaker, volume_backends

MIB = 1024 * 1024
SMALL = Tuning(part_size=8 * MIB)
engines = volume_backends("memory", "embedded", "dynoxide+seaweedfs", slow=["dynoxide+moto"])


@pytest.fixture
async def large(new_volume: VolumeMaker, layout: LayoutName) -> AsyncIterator[S3kClient]:
    """A client with parts of the usual size, of a volume with all features."""
    config: VolumeConfig = new_volume(tuning=SMALL, layout=layout)
    await init_volume(config, enable={"uploads"})
    async with S3kClient(config=config) as fs:
        yield fs


async def grown(fs: S3kClient, *sizes: int) -> bytes:
    """A file of extents of these sizes, and its content."""
    pieces = [Random(number).randbytes(size) for number, size in enumerate(sizes)]
    position = 0
    for piece in pieces:
        await (fs.write_range("/f", position, piece) if position else fs.write("/f", piece))
        position += len(piece)
    found = parse_extents(str((await fs.stat("/f")).physical))
    assert [each.length for each in found] == list(sizes)
    return b"".join(pieces)


def data_of(requests: Requests) -> dict[str, tuple[int, int]]:
    """Requests to the data, and their bytes, by operation."""
    return {
        count.operation: (count.requests, count.bytes)
        for count in requests.counts
        if count.part == "data"
    }


@asynccontextmanager
async def moves(fs: S3kClient, expected: dict[str, tuple[int, int]]) -> AsyncIterator[None]:
    """Checks which requests the body sends to the data."""
    with fs.count() as counter:
        yield
    assert data_of(counter.requests) == expected


async def is_one_object(fs: S3kClient, content: bytes, path: str = "/f") -> None:
    status = await fs.stat(path)
    assert not has_extents(status.physical)
    assert await fs.physical_path(path)
    assert (status.size, await fs.read(path)) == (len(content), content)
    assert await problems(fs) == []


@engines
async def test_compaction_of_long_extents_moves_no_byte(large: S3kClient) -> None:
    content = await grown(large, *[8 * MIB] * 8)
    copied = {
        "CreateMultipartUpload": (1, 0),
        "UploadPartCopy": (8, 0),
        "CompleteMultipartUpload": (1, 0),
        "HeadObject": (1, 0),
    }
    async with moves(large, copied):
        await large.compact("/f", whole=True)
    await is_one_object(large, content)


@volume_backends("redis", "rocksdb")
async def test_where_bytes_would_pass_through_they_are_verified(large: S3kClient) -> None:
    """These stores compose nothing by themselves: the file is written anew, with a checksum."""
    content = await grown(large, *[8 * MIB] * 2)
    with large.count() as counter:
        await large.compact("/f", whole=True)
    assert "UploadPartCopy" not in data_of(counter.requests)
    await is_one_object(large, content)
    assert (await large.stat("/f")).checksum


@engines
async def test_short_extents_are_read_and_long_ones_copied(large: S3kClient) -> None:
    """A short one is stored together with as much of the next one as makes a part."""
    least = max(large._volume().blobs.min_part, 5 * MIB)
    alone = large._volume().blobs.min_part == 1
    content = await grown(large, 6 * MIB, MIB, 11 * MIB, 2 * MIB)
    read = MIB if alone else least
    requests = {
        "CreateMultipartUpload": (1, 0),
        "GetObject": (1 if alone else 2, read),
        "UploadPart": (1, read),
        "UploadPartCopy": (3, 0),
        "CompleteMultipartUpload": (1, 0),
        "HeadObject": (1, 0),
    }
    async with moves(large, requests):
        await large.compact("/f", whole=True)
    await is_one_object(large, content)


@engines
async def test_compaction_to_long_objects_ends(large: S3kClient) -> None:
    """A composed object has no checksum, and is not composed again."""
    content = await grown(large, 40 * MIB, 20 * MIB, 10 * MIB, 30 * MIB)
    await large.compact("/f")
    once = await large.stat("/f")
    assert [each.length for each in parse_extents(str(once.physical))] == [60 * MIB, 40 * MIB]
    async with moves(large, {"HeadObject": (2, 0)}):
        await large.compact("/f")
    assert (await large.stat("/f")) == once
    assert await large.read("/f") == content
    assert await problems(large) == []


@engines
async def test_the_unused_part_of_a_long_object_is_dropped(large: S3kClient) -> None:
    await large.write("/f", bytes(20 * MIB))
    await large.truncate("/f", 12 * MIB)
    with large.count() as counter:
        await large.compact("/f")
    assert "GetObject" not in data_of(counter.requests)
    await is_one_object(large, bytes(12 * MIB))
    physical = str((await large.stat("/f")).physical)
    found = await large._volume().blobs.head(physical)
    assert found is not None
    assert found.size == 12 * MIB
    async with moves(large, {}):
        await large.compact("/f", whole=True)


@engines
async def test_an_extent_that_is_all_of_its_object_becomes_the_file(large: S3kClient) -> None:
    """Without a checksum only the object tells."""
    content = await grown(large, 6 * MIB, 6 * MIB)
    await large.compact("/f", whole=True)
    await large.append("/f", b"more")
    await large.truncate("/f", 12 * MIB)
    assert has_extents((await large.stat("/f")).physical)
    async with moves(large, {"HeadObject": (1, 0)}):
        await large.compact("/f", whole=True)
    await is_one_object(large, content)


@engines
async def test_ranges_of_objects_are_copied(large: S3kClient) -> None:
    objects = ObjectStore(large)
    await objects.create_bucket("b")
    data = Random(1).randbytes(14 * MIB)
    await objects.put("b", "source", data)
    with large.count() as counter:
        await objects.create_copy("b", "source", "copy", offset=MIB, size=6 * MIB)
        await objects.put("b", "target", b"0123456789")
        await objects.write_copy("b", "source", "target", source_offset=2 * MIB, offset=4)
        await objects.write_copy("b", "source", "new", size=5 * MIB, offset=3)
        upload = await objects.create_upload("b", "parts")
        await objects.copy_part(upload.id, 0, "b", "source", offset=3, size=5 * MIB)
        await objects.copy_part(upload.id, 1, "b", "target", offset=4)
        await objects.complete_upload(upload.id)
    done = data_of(counter.requests)
    assert "GetObject" not in done
    assert done["UploadPartCopy"] == (5, 0)
    assert await objects.read("b", "copy") == data[MIB : 7 * MIB]
    assert await objects.read("b", "target") == b"0123" + data[2 * MIB :]
    assert await objects.read("b", "new") == bytes(3) + data[: 5 * MIB]
    assert await objects.read("b", "parts") == data[3 : 3 + 5 * MIB] + data[2 * MIB :]
    assert await problems(large) == []


@engines
async def test_files_are_appended_to_others_without_being_read(large: S3kClient) -> None:
    content = await grown(large, 6 * MIB, 6 * MIB)
    await large.write("/g", b"g" * (6 * MIB))
    with large.count() as counter:
        await large.concat("/f", ["/g"])
        await large.compact("/f", whole=True)
    assert "GetObject" not in data_of(counter.requests)
    await is_one_object(large, content + b"g" * (6 * MIB))


# Faults, over small pieces


def is_copy(call: Call) -> bool:
    return call.method == "copy_part"


@asynccontextmanager
async def composing(layout: LayoutName, faults: FaultPlan) -> AsyncIterator[S3kClient]:
    """A client of a volume in memory with a file of two extents that are copied."""
    config = memory_config(TUNING, layout)
    await init_volume(config)
    async with faulty_client(faults, config) as fs:
        await fs.write("/f", b"a" * 300)
        await fs.append("/f", b"b" * 200)
        assert len(parse_extents(str((await fs.stat("/f")).physical))) == 2
        yield fs


@pytest.mark.parametrize("error", [ThrottledError("slow down"), ResponseLostError("lost")])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_the_copy_of_a_part_is_sent_again(
    layout: LayoutName, error: ThrottledError | ResponseLostError, when: Moment
) -> None:
    faults = FaultPlan()
    async with composing(layout, faults) as fs:
        faults.fail_when(is_copy, error, when=when, times=2)
        await fs.compact("/f", whole=True)
        await is_one_object(fs, b"a" * 300 + b"b" * 200)


async def test_a_part_that_cannot_be_copied_leaves_nothing(layout: LayoutName) -> None:
    faults = FaultPlan()
    async with composing(layout, faults) as fs:
        before, keys = await fs.stat("/f"), await data_keys(fs)
        faults.fail_when(is_copy, ThrottledError("slow down"), times=100)
        with pytest.raises(ThrottledError):
            await fs.compact("/f", whole=True)
        assert await fs.stat("/f") == before
        assert await data_keys(fs) == keys
        assert [each async for each in fs._volume().blobs.list_uploads()] == []


async def test_a_lost_object_is_reported_for_the_file(layout: LayoutName) -> None:
    async with composing(layout, FaultPlan()) as fs:
        _, second = parse_extents(str((await fs.stat("/f")).physical))
        await fs._volume().blobs.delete(second.key)
        keys = await data_keys(fs)
        with pytest.raises(DataMissingError) as caught:
            await fs.compact("/f", whole=True)
        assert caught.value.path == "/f"
        assert await data_keys(fs) == keys


async def test_an_object_that_is_too_short_is_no_part(layout: LayoutName) -> None:
    async with composing(layout, FaultPlan()) as fs:
        _, second = parse_extents(str((await fs.stat("/f")).physical))
        await fs._volume().blobs.put(second.key, b"short")
        keys = await data_keys(fs)
        with pytest.raises(CorruptDataError) as caught:
            await fs.compact("/f", whole=True)
        assert caught.value.path == "/f"
        assert await data_keys(fs) == keys


async def test_a_composed_object_of_another_size_is_removed(
    layout: LayoutName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a service that cuts ranges at the end of their source, and does not tell."""
    from s3k_async.backends.memory import memory_blobs

    monkeypatch.setattr(memory_blobs, "check_source", lambda *_: None)
    async with composing(layout, FaultPlan()) as fs:
        _, second = parse_extents(str((await fs.stat("/f")).physical))
        await fs._volume().blobs.put(second.key, b"b" * 150)
        keys, published = await data_keys(fs), await fs.stat("/f")
        with pytest.raises(CorruptDataError, match="composed"):
            await fs.compact("/f", whole=True)
        assert await fs.stat("/f") == published
        assert await data_keys(fs) == keys
