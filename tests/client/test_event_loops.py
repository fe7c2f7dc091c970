"""Concurrent calls of a client in each event loop that a service may have."""

from __future__ import annotations

import asyncio

import pytest

from s3k_async.client import S3kClient
from s3k_async.config import VolumeConfig
from tests.engines.volumes import volume_backends
from tests.event_loops import EVENT_LOOPS

CALLS = 64


@volume_backends("embedded", "dynoxide+seaweedfs", "redis")
@pytest.mark.parametrize("name", EVENT_LOOPS)
def test_files_are_written_renamed_read_and_deleted(config: VolumeConfig, name: str) -> None:
    async def one(client: S3kClient, number: int) -> None:
        content = bytes([number]) * 1024
        await client.write(f"/new/{number}", content)
        await client.write(f"/new/{number}", content + content)
        await client.rename(f"/new/{number}", f"/done/{number}")
        assert await client.read(f"/done/{number}") == content + content
        await client.append(f"/done/{number}", content)
        assert (await client.stat(f"/done/{number}")).size == 3 * 1024
        if number % 2:
            await client.delete(f"/done/{number}")

    async def work() -> None:
        async with S3kClient(config=config) as client:
            await client.makedirs("/new")
            await client.makedirs("/done")
            async with asyncio.TaskGroup() as group:
                for number in range(CALLS):
                    group.create_task(one(client, number))
            left = {entry.name async for entry in client.list("/done")}
            assert left == {str(number) for number in range(0, CALLS, 2)}

    with asyncio.Runner(loop_factory=EVENT_LOOPS[name]) as runner:
        runner.run(work())
