"""The contract's atomic options: a directory is renamed and deleted at once or not at all, whatever
fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from s3k_async import S3kClient
from s3k_async._core.retry import Retries, RetryPolicy
from s3k_async.adapters.hadoop import HadoopFileSystem
from s3k_async.errors import ServiceError
from s3k_async.testing import Call, FaultPlan
from s3k_async.volumes import init_volume
from tests.client.rig import TUNING, faulty_client, memory_config, paths

Verb: TypeAlias = Callable[[HadoopFileSystem], Awaitable[object]]

TREE = {"/dir", "/dir/sub", "/dir/sub/b", "/dir/a"}
EVER = 10**9


def is_from(number: int, call: Call) -> bool:
    return call.number >= number


async def attempt(verb: Verb, number: int) -> tuple[set[str], Exception | None, int]:
    """What others see after a change whose call `number`, and all later ones, the services refused;
    its error; and how many calls there were."""
    config = memory_config(replace(TUNING, retry=Retries.alike(RetryPolicy(attempts=1))))
    await init_volume(config)
    async with S3kClient(config=config) as other:
        for path in ("/dir/sub/b", "/dir/a"):
            await other.write(path, b"x")
        faults = FaultPlan()
        raised: Exception | None = None
        async with faulty_client(faults, config) as client:
            faults.fail_when(partial(is_from, number), ServiceError("refused"), times=EVER)
            try:
                await verb(HadoopFileSystem(client, user="tester"))
            except OSError as error:
                raised = error
            made = len(faults.calls)
        return await paths(other), raised, made


async def check(verb: Verb, after: set[str]) -> None:
    seen, raised, calls = await attempt(verb, EVER)
    assert (seen, raised) == (after, None)
    outcomes = []
    for number in range(1, calls + 1):
        seen, raised, _ = await attempt(verb, number)
        assert seen == (after if raised is None else TREE), number
        outcomes.append(raised is None)
    assert not all(outcomes)


async def test_a_directory_is_renamed_at_once_or_not_at_all() -> None:
    async def rename(fs: HadoopFileSystem) -> None:
        assert await fs.rename("/dir", "/moved")

    await check(rename, {path.replace("/dir", "/moved", 1) for path in TREE})


async def test_a_directory_is_deleted_at_once_or_not_at_all() -> None:
    async def delete(fs: HadoopFileSystem) -> None:
        assert await fs.delete("/dir", recursive=True)

    await check(delete, set())
