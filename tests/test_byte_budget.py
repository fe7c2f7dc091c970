"""ByteBudget: bytes under way, first come first served."""

from __future__ import annotations

import asyncio
import random

import anyio
import pytest

from s3k_async._core.concurrency import ByteBudget, run_all


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_no_more_bytes_than_it_has_and_everybody_gets_there() -> None:
    rng = random.Random(7)
    budget, now, most, done = ByteBudget(100), 0, 0, 0

    async def work(size: int) -> None:
        nonlocal now, most, done
        async with budget.hold(size):
            now += min(size, 100)
            most = max(most, now)
            await anyio.lowlevel.checkpoint()
            now -= min(size, 100)
        done += 1

    await run_all(work, [rng.choice([0, 1, 30, 99, 100, 101, 5000]) for _ in range(500)], limit=50)
    assert (done, now) == (500, 0)
    assert 90 <= most <= 100


async def test_a_large_one_is_not_passed_by_small_ones() -> None:
    budget, order = ByteBudget(10), []

    async def work(name: str, size: int) -> None:
        async with budget.hold(size):
            order.append(name)

    async with anyio.create_task_group() as tasks, budget.hold(5):
        for name, size in (("large", 10), ("small", 1)):
            tasks.start_soon(work, name, size)
        await settle()
        assert order == []
    assert order == ["large", "small"]


@pytest.mark.parametrize("given", [False, True])
async def test_whoever_is_cancelled_holds_nothing(given: bool) -> None:
    """While waiting, and in the moment in which room was given."""
    budget = ByteBudget(10)

    async def wait() -> None:
        async with budget.hold(10):
            raise AssertionError("it was cancelled")

    async with budget.hold(10):
        waiting = asyncio.create_task(wait())
        behind = asyncio.create_task(_held(budget, 3))
        await settle()
        if not given:
            waiting.cancel()
            await settle()
    if given:
        waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await behind
    async with asyncio.timeout(1), budget.hold(10):
        pass


async def _held(budget: ByteBudget, size: int) -> None:
    async with budget.hold(size):
        pass
