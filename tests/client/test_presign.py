"""presign: URLs that others read, and where there are none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import anyio.to_thread
import pytest

from s3k_async import S3kSyncClient
from s3k_async._core.runtime import SYSTEM
from s3k_async.backends.s3.s3_wire import WireBlobs
from s3k_async.client import S3kClient
from s3k_async.config import S3Bucket, VolumeConfig
from s3k_async.errors import (
    ArgumentTypeError,
    InvalidArgumentError,
    IsDirectoryError,
    PathNotFoundError,
    UncommittedFileError,
    UnsupportedError,
)
from s3k_async.testing import FaultPlan
from s3k_async.volumes import init_volume
from tests.client.rig import faulty_client, memory_config
from tests.engines.volumes import volume_backends

WEEK = 7 * 24 * 3600
NAME = "/d/ä b+c%2F&=?#.csv"


def fetched(url: str, method: str = "GET") -> tuple[int, bytes]:
    """Status and body, by a client that knows nothing but the URL."""
    try:
        with urlopen(Request(url, method=method), timeout=60) as answer:
            return answer.status, answer.read()
    except HTTPError as refusal:
        with refusal:
            return refusal.code, b""


async def fetch(url: str, method: str = "GET") -> tuple[int, bytes]:
    return await anyio.to_thread.run_sync(fetched, url, method)


@volume_backends("dynoxide+seaweedfs")
async def test_a_url_reads_the_file_without_credentials(
    fs: S3kClient, config: VolumeConfig
) -> None:
    await fs.write(NAME, b"first")
    with fs.count() as counter:
        url = await fs.presign(NAME, expires=timedelta(minutes=5))
    assert counter.requests.total == 1
    assert await fetch(url) == (200, b"first")
    assert await fetch(await fs.presign(NAME, method="HEAD"), "HEAD") == (200, b"")
    assert (await fetch(url, "HEAD"))[0] == 403
    assert (await fetch(url.replace("X-Amz-Expires=300", "X-Amz-Expires=301")))[0] == 403
    await fs.write(NAME, b"second")
    assert await fetch(url) == (200, b"first")
    assert await fetch(await fs.presign(NAME, expires=WEEK)) == (200, b"second")
    earlier = replace(SYSTEM, now_ms=lambda: SYSTEM.now_ms() - 7_200_000)
    assert isinstance(config.data, S3Bucket)
    root = f"s3://{config.data.bucket}/"
    blobs = WireBlobs(config.data.bucket, "", config.data.aws, runtime=earlier)
    key = (await fs.physical_path(NAME)).removeprefix(root)
    assert await fetch(await blobs.presign(key, 8000, "GET")) == (200, b"second")
    assert (await fetch(await blobs.presign(key, 3600, "GET")))[0] == 403
    await blobs.close()


@volume_backends("dynoxide+seaweedfs")
def test_the_blocking_client(sync_fs: S3kSyncClient) -> None:
    sync_fs.write("/f", b"x")
    assert fetched(sync_fs.presign("/f")) == (200, b"x")


@volume_backends("dynoxide+seaweedfs")
async def test_a_file_in_several_objects_has_no_url(fs: S3kClient) -> None:
    await fs.write("/f", b"x" * 90)
    await fs.write_range("/f", 10, b"1")
    with pytest.raises(UnsupportedError, match="s3k compact --whole") as refused:
        await fs.presign("/f")
    assert refused.value.path == "/f"
    await fs.compact("/f", whole=True)
    assert await fetch(await fs.presign("/f")) == (200, b"x" * 10 + b"1" + b"x" * 79)


@volume_backends("dynoxide+seaweedfs")
async def test_an_empty_file_without_an_object_has_no_url(fs: S3kClient) -> None:
    await fs.write_many([("/written", b"")])
    await fs.write("/truncated", b"x")
    await fs.truncate("/truncated", 0)
    for path in ("/written", "/truncated"):
        with pytest.raises(UnsupportedError, match="s3k put of this file alone") as refused:
            await fs.presign(path)
        assert refused.value.path == path
        await fs.write(path, b"")
        assert await fetch(await fs.presign(path)) == (200, b"")


@volume_backends("memory", "embedded", "rocksdb", "redis")
async def test_only_data_in_s3_has_urls(fs: S3kClient) -> None:
    await fs.write("/d/f", b"x")
    with pytest.raises(UnsupportedError, match="only data in S3") as refused:
        await fs.presign("/d/f")
    assert refused.value.path == "/d/f"


async def test_a_volume_with_tiers_has_no_urls() -> None:
    config = memory_config()
    await init_volume(config, hot=f"memory://{config.name}-hot")
    async with S3kClient(config=config) as fs:
        await fs.write("/f", b"x")
        with pytest.raises(UnsupportedError, match="hot location"):
            await fs.presign("/f")


@pytest.mark.parametrize(
    ("error", "call"),
    [
        (InvalidArgumentError, lambda fs: fs.presign("/f", expires=0)),
        (InvalidArgumentError, lambda fs: fs.presign("/f", expires=WEEK + 1)),
        (InvalidArgumentError, lambda fs: fs.presign("/f", expires=timedelta(milliseconds=1500))),
        (InvalidArgumentError, lambda fs: fs.presign("/f", expires=float("nan"))),
        (ArgumentTypeError, lambda fs: fs.presign("/f", expires="1h")),
        (ArgumentTypeError, lambda fs: fs.presign("/f", expires=True)),
        (InvalidArgumentError, lambda fs: fs.presign("/f", method="PUT")),
        (PathNotFoundError, lambda fs: fs.presign("/none")),
        (IsDirectoryError, lambda fs: fs.presign("/")),
        (UncommittedFileError, lambda fs: fs.presign("/open")),
    ],
)
async def test_what_has_no_url(
    error: type[Exception], call: Callable[[Any], Awaitable[str]]
) -> None:
    async with faulty_client(FaultPlan()) as fs:
        await fs.write("/f", b"x")
        async with fs.open("/open", "wb"):
            with pytest.raises(error):
                await call(fs)
