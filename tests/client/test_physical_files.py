"""Where bytes are, as the JVM's readers take it, with the partition values of the logical path."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async.client import S3kClient
from s3k_async.config import LocalDirectory, S3Bucket, VolumeConfig
from s3k_async.errors import PathNotFoundError
from s3k_async.listing.hive_partitions import NO_VALUE
from s3k_async.listing.physical_files import PhysicalFile
from tests.engines.volumes import volume_backends

pytestmark = pytest.mark.layouts("path", "tree")

everywhere = volume_backends("memory", "embedded", "dynoxide+seaweedfs")

FILES: dict[str, dict[str, str | None]] = {
    "/top/p=0/t/at=10%3A30/who=a%2Fb/part-0": {"at": "10:30", "who": "a/b"},
    f"/top/p=0/t/at={NO_VALUE}/part-1": {"at": None},
    "/top/p=0/t/part-2": {},
    "/top/p=0/t/x=1.parquet": {},
}
"""By logical path: the values below `/top/p=0/t`."""


async def files_of(fs: S3kClient, path: str, *, recursive: bool = True) -> dict[str, PhysicalFile]:
    return {file.path: file async for file in fs.physical_paths(path, recursive=recursive)}


def stored(uri: str) -> bytes:
    with open(uri.removeprefix("file://"), "rb") as file:
        return file.read()


async def fill(fs: S3kClient) -> None:
    for path in FILES:
        await fs.write(path, path.encode())
    await fs.makedirs("/top/p=0/t/empty=1")


@everywhere
async def test_files_and_where_they_are(fs: S3kClient, config: VolumeConfig) -> None:
    await fill(fs)
    reserved = await fs.open("/top/p=0/t/reserved", "wb")
    found = await files_of(fs, "/top/p=0/t")
    await reserved.discard()
    scope = fs._volume().record.scope
    assert {path: file.partitions for path, file in found.items()} == FILES
    for path, file in found.items():
        status = await fs.stat(path)
        assert (file.size, file.mtime_ms) == (len(path), status.mtime_ms)
        assert status.physical is not None
        if isinstance(config.data, S3Bucket):
            assert (
                file.uri
                == f"s3a://{config.data.bucket}/{config.data.prefix}{scope}{status.physical}"
            )
        elif isinstance(config.data, LocalDirectory):
            assert stored(file.uri) == path.encode()
        else:
            assert urlsplit(file.uri).scheme == "memory"


@everywhere
async def test_values_are_counted_from_the_path_that_was_asked_for(fs: S3kClient) -> None:
    await fill(fs)
    path = "/top/p=0/t/part-2"
    for top, values in [("/", {"p": "0"}), ("/top", {"p": "0"}), ("/top/p=0", {}), (path, {})]:
        assert (await files_of(fs, top))[path].partitions == values
    assert set(await files_of(fs, "/top/p=0/t", recursive=False)) == {
        path,
        "/top/p=0/t/x=1.parquet",
    }
    assert await files_of(fs, "/top", recursive=False) == {}
    with pytest.raises(PathNotFoundError):
        await files_of(fs, "/nowhere")


@everywhere
async def test_adopted_objects_are_told_unescaped(fs: S3kClient, config: VolumeConfig) -> None:
    key = "bronze/a b%41é"
    blobs = fs._volume().place
    await blobs.put(key, b"x")
    async with fs.transaction() as tx:
        await tx.adopt("/f", blobs.uri(key))
    uri = (await files_of(fs, "/f"))["/f"].uri
    assert uri.endswith(f"/{key}")
    assert uri.startswith("s3a://") == isinstance(config.data, S3Bucket)


@everywhere
def test_blocking(sync_fs: S3kSyncClient) -> None:
    sync_fs._call(fill)
    assert {file.path: file.partitions for file in sync_fs.physical_paths("/top/p=0/t")} == FILES
