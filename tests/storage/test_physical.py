"""Physical objects: reading, copying, URIs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from s3k_async.backends.local.local_blobs import LocalBlobs
from s3k_async.backends.memory.memory_blobs import MemoryBlobs as MemoryBlobStore
from s3k_async.backends.ports.pagination import list_all
from s3k_async.config import Tuning
from s3k_async.errors import CorruptDataError, DataMissingError, UnsupportedError
from s3k_async.model import Content
from s3k_async.storage.physical import PhysicalStorage, checksum_of
from tests.storage.rig import OBJECT, TUNING, StorageRig
from tests.support import fake_runtime


class _Bucket(MemoryBlobStore):
    """Memory that says that it is an S3 bucket, below a prefix."""

    def uri(self, key: str) -> str:
        return f"s3://data/team/{key}"


async def bucket() -> PhysicalStorage:
    store = _Bucket(f"s3-{id(object())}")
    await store.create()
    await store.put("k 1%20", b"adopted")
    return PhysicalStorage(store, fake_runtime(), TUNING)


async def test_ranges_are_cut_at_the_end() -> None:
    rig = await StorageRig().start()
    content = await rig.storage.put(OBJECT, b"0123456789")
    assert await rig.storage.read(content.physical, 3, 5) == b"34"
    assert await rig.storage.read(content.physical, 8, 100) == b"89"
    assert await rig.storage.read(content.physical, 10) == b""


async def test_missing_bytes_are_data_missing() -> None:
    rig = await StorageRig().start()
    content = await rig.storage.put(OBJECT, b"x")
    assert await rig.storage.exists(content.physical)
    await rig.storage.delete(content.physical)
    await rig.storage.delete(content.physical)
    assert not await rig.storage.exists(content.physical)
    with pytest.raises(DataMissingError) as raised:
        await rig.storage.read(content.physical)
    assert raised.value.path == content.physical


async def test_two_uploads_for_one_object_have_different_keys() -> None:
    rig = await StorageRig().start()
    first, second = await rig.storage.put(OBJECT, b"1"), await rig.storage.put(OBJECT, b"2")
    assert first.physical != second.physical
    assert await rig.storage.read(first.physical) == b"1"


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n", "S3A"])
async def test_a_uri_in_the_volumes_own_bucket_is_read_whatever_its_scheme(scheme: str) -> None:
    storage = await bucket()
    assert await storage.read(f"{scheme}://data/team/k 1%20") == b"adopted"
    assert storage.uri(f"{scheme}://data/team/k 1%20") == f"{scheme}://data/team/k 1%20"
    assert storage.uri("k 1%20") == "s3://data/team/k 1%20"


@pytest.mark.parametrize(
    "uri",
    [
        "s3://other/team/k",
        "s3://data/elsewhere/k",
        "s3://data2/team/k",
        "file:///data/team/k",
        "s3://data/team",
    ],
)
async def test_a_uri_elsewhere_is_unsupported(uri: str) -> None:
    storage = await bucket()
    with pytest.raises(UnsupportedError) as raised:
        await storage.read(uri)
    assert raised.value.path == uri


async def test_a_uri_of_a_local_directory_is_decoded(tmp_path: Path) -> None:
    blobs = LocalBlobs(str(tmp_path / "a b"))
    await blobs.create()
    storage = PhysicalStorage(blobs, fake_runtime(), TUNING)
    content = await storage.put(OBJECT, b"here")
    assert await storage.read(storage.uri(content.physical)) == b"here"


async def test_a_copy_within_a_service_keeps_the_checksum_and_reads_nothing() -> None:
    rig, other = await StorageRig().start(), await StorageRig().start()
    data = b"x" * 1000
    content = await rig.storage.put(OBJECT, data)
    copied = await other.storage.copy_from(rig.storage, content, "other")
    assert copied == Content(copied.physical, 1000, content.etag, content.checksum)
    assert copied.physical.endswith(".id=other")
    assert await other.storage.read(copied.physical) == data
    assert rig.count("get") == 0


async def test_a_copy_between_services_is_streamed_and_verified(tmp_path: Path) -> None:
    blobs = LocalBlobs(str(tmp_path / "blobs"))
    await blobs.create()
    local = PhysicalStorage(blobs, fake_runtime(), TUNING)
    rig = await StorageRig().start()
    data = bytes(range(256)) * 4
    content = await rig.storage.put(OBJECT, data)
    copied = await local.copy_from(rig.storage, content, "other")
    assert (copied.size, copied.checksum) == (1024, checksum_of(data))
    assert await local.read(copied.physical) == data
    assert rig.count("get") == 11

    with pytest.raises(CorruptDataError):
        await local.copy_from(
            rig.storage, replace(content, checksum=checksum_of(b"something else")), "other"
        )
    with pytest.raises(CorruptDataError):
        await local.copy_from(rig.storage, replace(content, size=content.size + 1), "other")
    assert [info.key async for info in list_all(blobs)] == [copied.physical]


async def test_a_copy_of_missing_bytes_and_of_a_wrong_size() -> None:
    rig, other = await StorageRig().start(), await StorageRig().start()
    content = await rig.storage.put(OBJECT, b"abc")
    with pytest.raises(CorruptDataError):
        await other.storage.copy_from(rig.storage, replace(content, size=4), "other")
    await rig.storage.delete(content.physical)
    with pytest.raises(DataMissingError) as raised:
        await other.storage.copy_from(rig.storage, content, "other")
    assert raised.value.path == content.physical


async def test_parts_are_never_smaller_than_the_service_allows() -> None:
    store = MemoryBlobStore("min-part", min_part=64)
    await store.create()
    storage = PhysicalStorage(store, fake_runtime(), Tuning(part_size=10, multipart_threshold=20))
    content = await storage.put(OBJECT, b"x" * 1000)
    assert await storage.read(content.physical) == b"x" * 1000
