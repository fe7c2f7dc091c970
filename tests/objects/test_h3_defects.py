"""The defects that were found in H3, one test for each that concerns the object API.

The numbers are those of the table in docs/objects.md.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest

from s3k_async._core.runtime import SYSTEM, Runtime
from s3k_async.backends.ports.items import PARTITION, Item
from s3k_async.backends.ports.pagination import scan_all
from s3k_async.backends.retrying.retrying_blobs import RetryingBlobs
from s3k_async.client import S3kClient
from s3k_async.config import VolumeConfig
from s3k_async.errors import (
    ConflictError,
    InvalidArgumentError,
    PathExistsError,
    PathNotFoundError,
    PermissionDeniedError,
    S3kError,
    ServiceError,
)
from s3k_async.model import LayoutName
from s3k_async.namespace.metadata_index import META_PREFIX, STALE_SECONDS
from s3k_async.objects import UNCHANGED, Attributes, ObjectStore, buckets, byte_ranges
from s3k_async.testing import Call, FaultPlan
from s3k_async.volumes import Volume, init_volume, open_volume
from tests.client.rig import TUNING, faulty_client, memory_config, paths
from tests.engines.volumes import volume_backends
from tests.torture.crash import client_of

pytestmark = pytest.mark.layouts("path", "tree")

everywhere = volume_backends("memory", "embedded", "dynoxide+seaweedfs")

GIB = 2**30


@everywhere
async def test_01_a_partial_overwrite_does_not_truncate(objects: ObjectStore) -> None:
    data = bytes(index % 251 for index in range(40 * TUNING.part_size))
    await objects.create("b", "short", data[:1000])
    await objects.write("b", "short", b"#" * 10)
    assert await objects.read("b", "short") == b"#" * 10 + data[10:1000]
    await objects.create("b", "long", data)
    await objects.write("b", "long", b"#" * 10)
    assert await objects.read("b", "long") == b"#" * 10 + data[10:]


@everywhere
async def test_02_a_gap_is_kept(objects: ObjectStore) -> None:
    await objects.write("b", "k", b"a" * 10)
    assert (await objects.write("b", "k", b"b" * 10, offset=100)).size == 110
    assert await objects.read("b", "k") == b"a" * 10 + bytes(90) + b"b" * 10


@everywhere
async def test_03_offsets_have_more_than_32_bits(objects: ObjectStore) -> None:
    assert (await objects.write("b", "k", b"far", offset=5 * GIB)).size == 5 * GIB + 3
    assert await objects.read("b", "k", offset=5 * GIB - 1, size=9) == b"\0far"
    assert await objects.read("b", "k", offset=GIB, size=3) == bytes(3)


@everywhere
async def test_04_parts_that_are_far_apart_stay_in_order(objects: ObjectStore) -> None:
    offsets = [7 * GIB, 0, 3 * GIB, 5 * GIB, 4 * GIB]
    for offset in offsets:
        await objects.write("b", "k", offset.to_bytes(8, "big"), offset=offset)
    assert (await objects.info("b", "k")).size == 7 * GIB + 8
    for offset in offsets:
        assert await objects.read("b", "k", offset=offset, size=8) == offset.to_bytes(8, "big")


@everywhere
async def test_05_copies_of_ranges_are_saved(objects: ObjectStore) -> None:
    data = bytes(index % 251 for index in range(3000))
    await objects.create("b", "source", data)
    await objects.create_copy("b", "source", "copy", offset=1000, size=1500)
    assert await objects.read("b", "copy") == data[1000:2500]
    await objects.write_copy("b", "source", "copy", source_offset=5, size=100, offset=1450)
    assert await objects.read("b", "copy") == data[1000:2450] + data[5:105]


@everywhere
async def test_05_copies_of_long_ranges_are_saved(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are copied inside the service: to a new object, into one, and to where none is."""
    monkeypatch.setattr(byte_ranges, "LEAST_COPY", 600)
    data = bytes(index % 251 for index in range(3000))
    await objects.create("b", "source", data)
    made = await objects.create_copy("b", "source", "copy", offset=1000, size=1500)
    assert made == await objects.info("b", "copy")
    assert await objects.read("b", "copy") == data[1000:2500]
    wanted = {"copy": bytearray(data[1000:2500]), "new": bytearray(), "far": bytearray(100)}
    for key, offset in (("copy", 1450), ("copy", 3), ("copy", 4000), ("new", 0), ("far", 100)):
        expected = wanted[key]
        expected += bytes(max(0, offset - len(expected)))
        expected[offset : offset + 700] = data[5:705]
        written = await objects.write_copy(
            "b", "source", key, source_offset=5, size=700, offset=offset
        )
        assert written == await objects.info("b", key)
        assert (written.size, await objects.read("b", key)) == (len(expected), bytes(expected))
    assert await objects.read("b", "source") == data


@everywhere
async def test_06_copy_and_move_onto_itself_lose_nothing(objects: ObjectStore) -> None:
    made = await objects.create("b", "k", b"data", attributes=Attributes(metadata={"n": b"1"}))
    for overwrite in (True, False):
        assert await objects.copy("b", "k", "k", overwrite=overwrite) == made
        assert await objects.move("b", "k", "k", overwrite=overwrite) == made
    assert await objects.read("b", "k") == b"data"
    assert await objects.write_copy("b", "k", "k") == await objects.info("b", "k")
    assert await objects.read("b", "k") == b"data"


async def test_07_a_move_is_one_change(layout: LayoutName) -> None:
    """Whichever request of a move is the last one: the object has one of both names, with its
    metadata."""
    config = memory_config(layout=layout)
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        objects = ObjectStore(fs)
        await objects.create_bucket("b")
        await objects.create("b", "k", b"data", attributes=Attributes(metadata={"n": b"1"}))
        await objects.create("b", "target", b"old")
    ended = False
    for last in range(40):
        faults = FaultPlan()
        seen = 0

        def lose(call: Call, last: int = last) -> bool:
            nonlocal seen
            seen += call.method in ("write", "transact", "put")
            return seen > last

        faults.fail_when(lose, ServiceError("the disk fails"), times=1000)
        async with faulty_client(faults, config) as broken:
            try:
                await ObjectStore(broken).move("b", "k", "target")
            except S3kError:
                pass
            else:
                ended = True
        async with S3kClient(config=config) as fs:
            found = [each async for each in ObjectStore(fs).iterate("b")]
            assert {each.key for each in found} in ({"k", "target"}, {"target"})
            ours = next(each for each in found if each.size == 4)
            assert ours.attributes.metadata == {"n": b"1"}
        if ended:
            break
    assert ended


@everywhere
async def test_08_a_purge_of_several_pages_leaves_nothing(
    objects: ObjectStore, fs: S3kClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buckets, "PURGED", 7)
    await fs.write_many([(f"/b/{number:03}", b"") for number in range(60)])
    for number in range(0, 60, 3):
        await objects.set_metadata("b", f"{number:03}", "n", b"1")
    assert (await objects.purge_bucket("b")).files == 60
    assert await paths(fs) == {"/b"}
    later = replace(SYSTEM, now_ms=lambda: SYSTEM.now_ms() + 2 * STALE_SECONDS * 1000)

    async def store_ms(_: RetryingBlobs) -> int:
        return later.now_ms()

    monkeypatch.setattr(RetryingBlobs, "now_ms", store_ms)
    volume = await open_volume(fs.config, runtime=later)
    try:
        assert len(await indexed(volume)) == 20
        search = await ObjectStore(client_of(volume)).list_with_metadata("b", "n")
        assert search.objects == ()
        assert await indexed(volume) == []
    finally:
        await volume.close()


async def indexed(volume: Volume) -> list[Item]:
    """The items of the index of user metadata."""
    return [
        item
        async for page in scan_all(volume.items)
        for item in page
        if str(item[PARTITION]).startswith(META_PREFIX)
    ]


@everywhere
async def test_09_long_prefixes_are_kept(objects: ObjectStore) -> None:
    folder = "/".join(["x" * 60] * 5)
    await objects.create("b", f"{folder}/{'y' * 300}/z", b"")
    await objects.create("b", f"{folder}/{'y' * 299}", b"")
    page = await objects.list("b", f"{folder}/{'y' * 300}")
    assert [each.key for each in page.objects] == [f"{folder}/{'y' * 300}/z"]


@everywhere
async def test_09_metadata_of_long_keys_is_found(objects: ObjectStore) -> None:
    """H3's prefix of a metadata key is that of the bucket and the object, and its length has 8
    bits: around 256 bytes, and with the longest bucket and name."""
    bucket, name = "b" * 64, "n" * 64
    await objects.create_bucket(bucket)
    folder = "/".join(["x" * 50] * 3)
    ends = [length - len(f"{bucket}#{folder}/#") for length in (255, 256, 257, 511, 513)]
    keys = [f"{folder}/{'y' * end}" for end in ends]
    for number, key in enumerate(keys):
        await objects.create(bucket, key, b"")
        await objects.set_metadata(bucket, key, name, b"%d" % number)
        await objects.set_metadata(bucket, key, name[:-1], b"other")
    found: list[str] = []
    token: str | None = ""
    while token is not None:
        page = await objects.list_with_metadata(bucket, name, after=token, limit=2)
        found += [each.key for each in page.objects]
        assert len(found) <= len(keys)
        token = page.token
    assert sorted(found) == sorted(keys)
    for number, key in enumerate(keys):
        assert await objects.list_metadata(bucket, key) == {
            name: b"%d" % number,
            name[:-1]: b"other",
        }
    await objects.delete_metadata(bucket, keys[0], name)
    rest = await objects.list_with_metadata(bucket, name)
    assert {each.key for each in rest.objects} == {*keys[1:]}


@everywhere
async def test_13_info_has_the_time_of_creation(objects: ObjectStore) -> None:
    made = await objects.create("b", "k", b"1")
    assert made.created_ms > 0
    await objects.write("b", "k", b"2")
    await objects.move("b", "k", "moved")
    assert (await objects.info("b", "moved")).created_ms == made.created_ms


@everywhere
async def test_14_a_time_may_be_now_or_left(objects: ObjectStore) -> None:
    made = await objects.create("b", "k", b"1", attributes=Attributes(uid=1, gid=2))
    await objects.touch("b", "k", modified=5)
    assert (await objects.touch("b", "k", modified=UNCHANGED)).modified_ms == 5
    assert (await objects.touch("b", "k")).modified_ms >= made.modified_ms
    left = await objects.set_attributes("b", "k", gid=3)
    assert left.attributes == Attributes(uid=1, gid=3)


@everywhere
async def test_15_read_only_is_enforced(objects: ObjectStore) -> None:
    await objects.create("b", "k", b"1")
    await objects.set_attributes("b", "k", read_only=True)
    for change in (objects.put("b", "k", b"2"), objects.delete("b", "k")):
        with pytest.raises(PermissionDeniedError):
            await change
    assert await objects.read("b", "k") == b"1"


@everywhere
async def test_16_there_are_checksums_versions_and_conditions(
    objects: ObjectStore, fs: S3kClient
) -> None:
    first = await objects.create("b", "k", b"1")
    assert first.checksum
    assert first.etag
    seen = await fs.stat("/b/k")
    second = await objects.put("b", "k", b"2")
    assert second.version == first.version + 1
    assert second.checksum != first.checksum
    with pytest.raises(ConflictError):
        await fs.delete("/b/k", expected=seen)
    with pytest.raises(PathExistsError):
        await objects.create("b", "k", b"3")


async def test_17_a_read_writes_nothing(layout: LayoutName) -> None:
    config = memory_config(layout=layout)
    await init_volume(config)
    faults = FaultPlan()
    async with faulty_client(faults, config) as fs:
        objects = ObjectStore(fs)
        await objects.create_bucket("b")
        made = await objects.create("b", "k", b"data")
        await fs._volume().log.drained()
        faults.calls.clear()
        await objects.read("b", "k")
        await objects.read("b", "k", offset=1, size=2)
        await objects.read_dummy("b", "k")
        await objects.exists("b", "k")
        await objects.list("b")
        assert await objects.info("b", "k") == made
        methods = {call.method for call in faults.calls}
        assert methods & {"write", "transact", "put", "delete", "delete_many"} == set()
        assert methods & {"get", "get_many"}


@everywhere
@pytest.mark.parametrize("change", ["create before", "delete before", "delete at", "both"])
async def test_18_pages_have_tokens_that_stay_valid(objects: ObjectStore, change: str) -> None:
    """A creation shifts what follows by one place, a deletion by one the other way."""
    for key in "bdfh":
        await objects.create("b", key, b"")
    page = await objects.list("b", limit=2)
    assert [each.key for each in page.objects] == ["b", "d"]
    if change in ("create before", "both"):
        await objects.create("b", "a", b"")
    if change == "delete before":
        await objects.delete("b", "b")
    if change in ("delete at", "both"):
        await objects.delete("b", "d")
    assert page.token is not None
    rest = await objects.list("b", after=page.token)
    assert [each.key for each in rest.objects] == ["f", "h"]


@everywhere
async def test_19_a_refused_copy_and_a_refused_move_raise_the_same(objects: ObjectStore) -> None:
    await objects.create("b", "k", b"1")
    await objects.create("b", "taken", b"2")
    for call in (objects.copy, objects.move):
        with pytest.raises(PathExistsError):
            await call("b", "k", "taken", overwrite=False)
    assert await objects.read("b", "taken") == b"2"
    assert await objects.read("b", "k") == b"1"


async def test_20_a_bucket_is_one_record(layout: LayoutName) -> None:
    """Its creation, with its owner, is one write."""
    config: VolumeConfig = memory_config(layout=layout)
    await init_volume(config)
    faults = FaultPlan()
    async with faulty_client(faults, config) as fs:
        objects = ObjectStore(fs)
        await objects.create_bucket("b", uid=7)
        writes = [each for each in faults.calls if each.store == "items" and changes(each)]
        assert len(writes) == 1
        assert (await objects.bucket_info("b")).uid == 7
        await objects.delete_bucket("b")
        assert await paths(fs) == set()


@pytest.mark.parametrize("force", [False, True])
async def test_20_the_deletion_of_a_bucket_is_one_change(layout: LayoutName, force: bool) -> None:
    """Whichever request is the last one that succeeds: the bucket is there, with its owner, or it
    is not, and every view says the same."""
    config = memory_config(layout=layout)
    await init_volume(config)
    seen = set()
    for last in range(40):
        faults = FaultPlan()
        made = 0

        def lose(call: Call, last: int = last) -> bool:
            nonlocal made
            made += changes(call)
            return made > last

        async with faulty_client(faults, config, after_hours(last)) as broken:
            objects = ObjectStore(broken)
            await objects.create_bucket("b", uid=7)
            faults.fail_when(lose, ServiceError("the disk fails"), times=1000)
            with suppress(S3kError):
                await objects.delete_bucket("b", force=force)
        # When the lease of the one that failed is over.
        async with faulty_client(FaultPlan(), config, after_hours(last + 0.5)) as fs:
            objects = ObjectStore(fs)
            there = [each.uid async for each in objects.list_buckets()]
            seen.add(len(there))
            if there:
                assert there == [7]
                assert (await objects.bucket_info("b")).uid == 7
                with pytest.raises(PathExistsError):
                    await objects.create_bucket("b")
                await objects.delete_bucket("b")
            with pytest.raises(PathNotFoundError):
                await objects.bucket_info("b")
        if made <= last:
            break
    assert made <= last
    assert seen == {0, 1}


def after_hours(hours: float) -> Runtime:
    """The system's runtime, with a clock that is ahead."""
    return replace(SYSTEM, now_ms=lambda: SYSTEM.now_ms() + int(hours * 3_600_000))


def changes(call: Call) -> bool:
    """Whether a call changes a store."""
    return call.method in ("write", "transact", "put", "delete", "delete_many")


@everywhere
async def test_21_every_object_is_listed_and_copied_between_buckets(
    objects: ObjectStore, fs: S3kClient
) -> None:
    await objects.create_bucket("other")
    await fs.write_many([(f"/b/{number:04}", b"") for number in range(1203)])
    assert len([each async for each in objects.iterate("b")]) == 1203
    assert (await objects.copy("b", "0000", "k", target_bucket="other")).bucket == "other"
    assert (await objects.move("b", "0001", "m", target_bucket="other")).bucket == "other"


@everywhere
async def test_23_a_bucket_in_use_is_not_deleted(objects: ObjectStore, fs: S3kClient) -> None:
    """What is being written counts: nothing of a deleted bucket is left behind."""
    async with fs.open("/b/x/coming", "xb") as file:
        await file.write(b"1")
        with pytest.raises(OSError, match="has objects"):
            await objects.delete_bucket("b")
    assert await objects.read("b", "x/coming") == b"1"


@everywhere
async def test_24_names_may_have_any_character(objects: ObjectStore) -> None:
    for key in ("a#b", "#a#", "a#n"):
        await objects.create("b", key, b"", attributes=Attributes(metadata={"n#m": b"1"}))
    page = await objects.list_with_metadata("b", "n#m")
    assert {each.key for each in page.objects} == {"a#b", "#a#", "a#n"}


@everywhere
async def test_an_offset_past_the_end_is_no_error(objects: ObjectStore) -> None:
    await objects.create("b", "k", b"data")
    for offset in (4, 5, 5 * GIB):
        assert await objects.read("b", "k", offset=offset) == b""
        assert await objects.read("b", "k", offset=offset, size=10) == b""
    with pytest.raises(InvalidArgumentError):
        await objects.read("b", "k", offset=-1)


@everywhere
async def test_concurrent_writes_in_place_lose_none(objects: ObjectStore) -> None:
    await objects.create("b", "k", b"")
    await asyncio.gather(
        *(objects.write("b", "k", bytes([number]) * 10, offset=number * 10) for number in range(9))
    )
    wanted = b"".join(bytes([number]) * 10 for number in range(9))
    assert await objects.read("b", "k") == wanted
    with pytest.raises(PathNotFoundError):
        await objects.read("b", "none")
