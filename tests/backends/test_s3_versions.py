"""Reads of one version of an object, through both S3 adapters."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from anyio import to_thread

from s3k_async.backends.ports.object_versions import at_version
from s3k_async.backends.retrying.prefixed_blobs import PrefixedBlobs
from s3k_async.backends.s3.s3_blobs import S3Blobs
from s3k_async.config import AwsConfig, Secret
from s3k_async.errors import BlobChangedError, BlobNotFoundError
from tests.backends.conftest import S3Way
from tests.engines.object_versions import delete_version, drop_versioned, set_versioning
from tests.engines.volumes import fresh_name
from tests.proxy import Answer, FaultProxy

KEY = "given/a b?c%é+"
OLD, NEW = b"what was there", b"what replaced it"
_TIME = "Fri, 27 Nov 2026 10:00:00 GMT"


@pytest.fixture
async def blobs(s3_way: S3Way) -> AsyncIterator[S3Blobs]:
    """A bucket."""
    store = s3_way.adapter(fresh_name("versions"), "", s3_way.engine.aws())
    await store.create()
    yield store
    await store.close()
    await to_thread.run_sync(drop_versioned, s3_way.engine, store.bucket)


async def version_of(blobs: S3Blobs) -> str:
    """The id of the newest version."""
    found = await blobs.head(KEY)
    assert found is not None
    return found.version


async def test_a_version_is_read_after_it_was_replaced_and_deleted(blobs: S3Blobs) -> None:
    await set_versioning(blobs, "Enabled")
    etag = (await blobs.put(KEY, OLD)).etag
    version = await version_of(blobs)
    assert version
    old = at_version(blobs, version)
    await blobs.put(KEY, NEW)
    assert await blobs.get(KEY) == NEW
    await blobs.delete(KEY)
    assert await blobs.head(KEY) is None
    found = await old.head(KEY)
    assert found is not None
    assert (found.size, found.etag, found.version) == (len(OLD), etag, version)
    assert await old.get(KEY, if_match=etag, if_size=len(OLD)) == OLD
    assert await old.get(KEY, 5, 8) == OLD[5:8]
    with pytest.raises(BlobChangedError):
        await old.get(KEY, if_match="another")
    buffer = bytearray(4)
    assert await PrefixedBlobs(old, "given/").get_into("a b?c%é+", 2, memoryview(buffer)) == 4
    assert bytes(buffer) == OLD[2:6]
    assert (await blobs.copy(old, KEY, "copy", if_match=etag)).size == len(OLD)
    upload = await blobs.start_upload("parts")
    await upload.copy_part(1, old, KEY, 3, 9, if_match=etag)
    await upload.complete()
    assert [await blobs.get(key) for key in ("copy", "parts")] == [OLD, OLD[3:9]]


async def test_a_deleted_version_does_not_exist(blobs: S3Blobs) -> None:
    await set_versioning(blobs, "Enabled")
    await blobs.put(KEY, OLD)
    version = await version_of(blobs)
    await blobs.put(KEY, NEW)
    await delete_version(blobs, KEY, version)
    old = at_version(blobs, version)
    assert await old.head(KEY) is None
    with pytest.raises(BlobNotFoundError):
        await old.get(KEY)
    with pytest.raises(BlobNotFoundError):
        await blobs.copy(old, KEY, "copy")
    upload = await blobs.start_upload("parts")
    with pytest.raises(BlobNotFoundError):
        await upload.copy_part(1, old, KEY, 3, 9)
    await upload.abort()
    assert await blobs.get(KEY) == NEW


async def test_the_null_version_counts_as_no_version(blobs: S3Blobs) -> None:
    """As of objects stored before versioning was enabled, or while it is suspended."""
    await blobs.put(KEY, OLD)
    assert await version_of(blobs) == ""
    await set_versioning(blobs, "Enabled")
    assert await version_of(blobs) == ""
    await blobs.put(KEY, NEW)
    assert await version_of(blobs) != ""
    await set_versioning(blobs, "Suspended")
    await blobs.put(KEY, OLD)
    assert await version_of(blobs) == ""
    assert at_version(blobs, "") is blobs


async def test_null_in_a_response_counts_as_no_version(s3_adapter: type[S3Blobs]) -> None:
    """As S3 answers for an object that was stored while versioning was suspended."""
    headers = {"Content-Length": "3", "ETag": '"e"', "Last-Modified": _TIME}
    async with FaultProxy() as proxy:
        aws = AwsConfig("us-east-1", proxy.url, None, Secret("test"), Secret("test"))
        blobs = s3_adapter("bucket", "", aws)
        for version in ("null", "v.1"):
            proxy.rule(Answer(200, headers={**headers, "x-amz-version-id": version}), times=1)
        assert [await version_of(blobs), await version_of(blobs)] == ["", "v.1"]
        await blobs.close()
