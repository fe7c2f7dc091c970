"""Objects of other buckets become files where they are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from s3k_async.backends.s3 import S3Bucket
from s3k_async.backends.s3.s3_wire import WireBlobs
from s3k_async.client import S3kClient
from s3k_async.config import AwsConfig, MemoryBlobs
from s3k_async.errors import CorruptDataError, DataMissingError, UnsupportedError
from s3k_async.integrity.repair import repair_volume
from s3k_async.storage.object_uris import find_elsewhere
from s3k_async.trees import BucketTree, open_bucket
from s3k_async.volumes import destroy_volume
from tests.client.test_adopting import collect, findings
from tests.engines.volumes import VolumeMaker, fresh_name, volume_backends

pytestmark = pytest.mark.layouts("path")

everywhere = volume_backends("memory", "dynoxide+moto", "dynoxide+seaweedfs")

OBJECTS = {"raw/a": b"alpha", "raw/b c%41": b"with a name that a URI escapes", "raw/none": b""}


@pytest.fixture
async def other(fs: S3kClient, new_volume: VolumeMaker) -> AsyncIterator[BucketTree]:
    """Another bucket of the service of the volume's data, with objects."""
    assert new_volume is not None
    data = fs._volume().config.data
    name = fresh_name("other")
    location = S3Bucket(name, "", data.aws) if isinstance(data, S3Bucket) else MemoryBlobs(name)
    async with open_bucket(location) as bucket:
        await bucket.blobs.create()
        for key, content in OBJECTS.items():
            await bucket.blobs.put(key, content)
        yield bucket
        await bucket.blobs.drop()


async def adopt_all(fs: S3kClient, other: BucketTree) -> dict[str, bytes]:
    """Every object as a file; the contents of the files."""
    pairs = [(f"/in/{number}", other.uri(key)) for number, key in enumerate(OBJECTS)]
    result = await fs.adopt_many(pairs)
    assert not result.failures
    return {f"/in/{number}": data for number, data in enumerate(OBJECTS.values())}


@everywhere
async def test_they_are_read_and_copied(fs: S3kClient, other: BucketTree) -> None:
    files = await adopt_all(fs, other)
    assert await fs.read_many(list(files)) == list(files.values())
    for (path, data), key in zip(files.items(), OBJECTS, strict=True):
        info = await other.blobs.head(key)
        status = await fs.stat(path)
        assert info is not None
        assert (status.physical, status.etag) == (other.uri(key), info.etag)
        assert await fs.read_ranges(path, [(0, 3)]) == [data[:3]]
        await fs.copy(path, f"/copy{path}")
        assert await fs.read(f"/copy{path}") == data
        copied = (await fs.stat(f"/copy{path}")).physical
        assert copied is not None
        assert "://" not in copied
    async with fs.transaction() as tx:
        await tx.adopt("/again", other.uri("raw/a"))
    async with fs.open("/again") as file:
        assert await file.read() == OBJECTS["raw/a"]
    assert await findings(fs) == []


@everywhere
async def test_fsck_finds_what_was_replaced_or_deleted(fs: S3kClient, other: BucketTree) -> None:
    await adopt_all(fs, other)
    # The key exists in the data location too, which says nothing about the object.
    await fs._volume().place.put("raw/none", b"")
    await other.blobs.put("raw/a", b"ALPHA")
    await other.blobs.delete("raw/none")
    with pytest.raises(CorruptDataError, match="replaced since it was adopted"):
        await fs.read("/in/0")
    with pytest.raises(DataMissingError):
        await fs.read("/in/2")
    found = {kind for kind, _ in await findings(fs)}
    assert {"etag_mismatch", "data_missing"} <= found


@everywhere
async def test_nothing_deletes_them(fs: S3kClient, other: BucketTree, tmp_path: Path) -> None:
    await adopt_all(fs, other)
    await fs.write("/in/0", b"new")
    await fs.delete("/in/1")
    await repair_volume(fs._volume(), dry_run=False, grace=0.0)
    assert await collect(fs, tmp_path) == 0
    await fs.delete("/in", recursive=True)
    await collect(fs, tmp_path)
    config = fs._volume().config
    await fs.close()
    await destroy_volume(config)
    assert {key: await other.blobs.get(key) for key in OBJECTS} == OBJECTS


@everywhere
async def test_no_object_of_another_bucket_is_the_volumes_own(
    fs: S3kClient, other: BucketTree
) -> None:
    """Not even one whose key lies below the same scope."""
    volume = fs._volume()
    uri = other.uri(f"{volume.record.scope}raw/a")
    assert volume.record.scope
    assert volume.storage.own_key(uri) is None
    with pytest.raises(UnsupportedError, match="not the volume's own"):
        await volume.storage.delete(uri)


@everywhere
async def test_the_data_of_volumes_there_is_refused(fs: S3kClient, other: BucketTree) -> None:
    await fs.write("/own", b"bytes")
    own = (await fs.stat("/own")).physical
    assert own is not None
    await other.blobs.put(f"elsewhere/{own}", b"bytes")
    with pytest.raises(UnsupportedError, match="belongs to a volume"):
        async with fs.transaction() as tx:
            await tx.adopt("/f", other.uri(f"elsewhere/{own}"))


@pytest.mark.parametrize(
    "uri",
    [
        "s3://arn:aws:s3:us-east-1:123456789012:accesspoint/mine/key",
        "s3://user@host/key",
        "s3://host:9000/key",
        "s3://../key",
        "s3:///key",
        "s3://bucket",
        "http://bucket/key",
        "gs://bucket/key",
    ],
)
async def test_a_uri_names_no_host(uri: str) -> None:
    blobs = WireBlobs("data", "", AwsConfig(endpoint="http://127.0.0.1:1"))
    assert find_elsewhere(blobs, uri) is None


async def test_the_buckets_of_a_store_share_its_client() -> None:
    blobs = WireBlobs("data", "prefix/", AwsConfig(endpoint="http://127.0.0.1:1"))
    for number in range(200):
        found = find_elsewhere(blobs, f"s3a://other-{number}/some/key")
        assert found is not None
        store, key = found
        assert isinstance(store, WireBlobs)
        assert (store.uri(key), store.aws) == (f"s3://other-{number}/some/key", blobs.aws)
    assert len(blobs._others) < 200
