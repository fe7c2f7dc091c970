"""Who is told of which requests: a result, a block, a client; the blocking client too."""

from __future__ import annotations

import asyncio
import threading

import pytest

from s3k_async._core.metering import Requests
from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async.client import S3kClient
from s3k_async.errors import ClosedClientError, PathNotFoundError
from s3k_async.volumes import init_volume
from tests.client.rig import memory_config, paths
from tests.engines.volumes import VolumeMaker, volume_backends


async def renamed(fs: S3kClient, number: int) -> Requests:
    return (await fs.rename(f"/d/f{number}", f"/d/g{number}")).requests


async def test_concurrent_calls_are_told_apart() -> None:
    """Other renames, a listing and a recursive deletion run at the same time, and count for
    themselves. Renames that share an object of the log have its requests once, together."""
    config = memory_config()
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        for number in range(21):
            await fs.write(f"/d/f{number}", b"")
            await fs.write(f"/e/f{number}", b"")
        alone = await renamed(fs, 20)
        assert alone.of("table", "TransactWriteItems") == 1
        with fs.count() as counter:
            several, deleted, _ = await asyncio.gather(
                asyncio.gather(*(renamed(fs, number) for number in range(20))),
                fs.delete("/e", recursive=True),
                paths(fs),
            )
            await fs._volume().log.drained()
        assert [requests.as_dict()["table"] for requests in several] == [
            alone.as_dict()["table"]
        ] * 20
        rest = counter.requests - deleted.requests
        assert rest.of("table", "TransactWriteItems") == 20
        logged = sum(requests.of("log", "PutObject") for requests in several)
        assert 0 < logged < 20
        assert counter.requests.deferred == logged + deleted.requests.of("log", "PutObject")


async def test_a_call_that_fails_counts_in_the_block() -> None:
    config = memory_config()
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        with fs.count() as counter, pytest.raises(PathNotFoundError):
            await fs.rename("/missing", "/target")
        assert counter.requests.as_dict() == {"table": {"BatchGetItem": 1}}


async def test_two_clients_count_for_themselves() -> None:
    config = memory_config()
    await init_volume(config)
    async with S3kClient(config=config) as one, S3kClient(config=config) as other:
        with one.count() as ours, other.count() as theirs:
            await one.write("/f", b"four")
            await other.read("/f")
        assert ours.requests.of("data", "PutObject") == 1
        assert ours.requests.of("data", "GetObject") == 0
        assert theirs.requests.as_dict() == {"table": {"GetItem": 1}, "data": {"GetObject": 1}}
        assert theirs.requests.bytes == 4


async def test_a_copy_between_volumes_has_the_requests_to_both() -> None:
    here, there = memory_config(), memory_config()
    await init_volume(here)
    await init_volume(there)
    async with S3kClient(config=here) as source, S3kClient(config=there) as target:
        await source.write("/f", b"four")
        with source.count() as read, target.count() as written:
            result = await source.copy_to(target, "/f", "/f")
            await target._volume().log.drained()
        assert read.requests
        assert written.requests
        assert (
            result.requests.total + written.requests.deferred
            == (read.requests + written.requests).total
        )


async def test_a_client_goes_on_counting_when_it_is_opened_again() -> None:
    config = memory_config()
    await init_volume(config)
    client = S3kClient(config=config)
    assert client.requests == Requests()
    async with client:
        opening = client.requests
        await client.makedirs("/d")
    closed = client.requests
    assert closed.total > opening.total > 0
    async with client:
        assert client.requests - closed == opening


@volume_backends("memory", "embedded")
def test_the_blocking_client_counts(new_volume: VolumeMaker) -> None:
    config = new_volume()
    asyncio.run(init_volume(config))
    client = S3kSyncClient(config=config)
    assert client.requests == Requests()
    with client as fs:
        fs.write("/d/f", b"four")
        with fs.count() as counter:
            assert [status.name for status in fs.list("/d")] == ["f"]
            assert fs.read("/d/f") == b"four"
        assert counter.requests.of("table", "Query") == fs.config.suffix_count
        assert counter.requests.of("data", "GetObject") == 1
        assert fs.rename("/d/f", "/d/g").requests.of("table", "TransactWriteItems") == 1
        assert fs.requests.total > counter.requests.total
    with pytest.raises(ClosedClientError):
        client.count()


def test_threads_count_for_themselves() -> None:
    config = memory_config()
    asyncio.run(init_volume(config))
    counted: dict[int, int] = {}

    def work(fs: S3kSyncClient, number: int) -> None:
        with fs.count() as counter:
            for _ in range(number):
                fs.exists("/missing")
        counted[number] = counter.requests.total

    with S3kSyncClient(config=config) as fs:
        threads = [threading.Thread(target=work, args=(fs, number)) for number in range(1, 9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert counted == {number: number for number in range(1, 9)}
