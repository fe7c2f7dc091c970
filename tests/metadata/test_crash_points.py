"""Every change, interrupted at every call it makes: by death, by a lost answer, by a failure, by cancellation."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import pytest

from s3k_async.errors import OutcomeUnknownError, PathNotFoundError, ResponseLostError, S3kError, ServiceError
from s3k_async.stores.faults import Call, Died, FaultPlan, Moment
from tests.metadata.crash import SCENARIOS, Paths, Scenario, World

RECOVERABLE = {"log_pending", "stale_mark", "duplicate_id", "reservation_expired", "orphan_data"}
"""What a death may leave for fsck to finish."""
EVER = 10**9


@asynccontextmanager
async def world_of(name: str, scenario: Scenario) -> AsyncIterator[World]:
    world = await World(name).start()
    client = world.client()
    for path, data in scenario.before.items():
        if data is None:
            await client.store.make_directory(path)
        else:
            await client.write(path, data)
    world.clock.advance(100)
    try:
        yield world
    finally:
        await world.drop()


async def calls_of(name: str, scenario: Scenario) -> int:
    """How many calls the change makes when nothing interrupts it."""
    async with world_of(f"{name}-probe", scenario) as world:
        faults = FaultPlan()
        await world.client(faults).run(scenario)
        assert await world.tree() == scenario.after
        world.clock.advance(1000)
        assert [finding for finding in await world.findings() if finding.is_problem] == []
        return len(faults.calls)


async def check_tree(world: World, scenario: Scenario) -> dict[str, bytes | None]:
    """The tree holds together, and holds what it may hold."""
    found = await world.tree()
    scanned = await world.scanned()
    assert {path for path, entry in scanned.items() if not entry.is_reservation} == found.keys()
    if scenario.by_file:
        for path in scenario.before.keys() | scenario.after.keys():
            assert found.get(path, "none") in {sides.get(path, "none") for sides in (scenario.before, scenario.after)}
        assert found.keys() <= scenario.after.keys()
    elif scenario.atomic:
        assert found in (scenario.before, scenario.after, {**scenario.before, **scenario.between})
    else:
        files = sorted(data for data in found.values() if data is not None)
        old, new = (
            [data for data in paths.values() if data is not None] for paths in (scenario.before, scenario.after)
        )
        assert all(data in old for data in files)
        assert set(new) <= set(files)
        assert len(files) == len(set(files))
        for paths in (scenario.before, scenario.after):
            assert all(found[path] == data for path, data in paths.items() if path in found)
    return found


async def finish(world: World, scenario: Scenario, found: Paths) -> None:
    """The same call again, by somebody else."""
    try:
        await world.client().run(scenario)
    except PathNotFoundError:
        assert scenario.gone
        assert found == scenario.after
    assert await world.tree() == scenario.after
    assert {path for path, entry in (await world.scanned()).items()} == scenario.after.keys()


async def die_at(name: str, scenario: Scenario, number: int, when: Moment) -> None:
    async with world_of(f"{name}-{number}-{when}", scenario) as world:
        faults = FaultPlan()
        faults.die(number, when=when)
        faults.fail_when(lambda call: call.number > number, Died("is dead"), times=EVER)
        with pytest.raises(Died):
            await world.client(faults).run(scenario)
        world.clock.advance(1000)
        problems = {finding.kind for finding in await world.findings() if finding.is_problem}
        assert problems <= RECOVERABLE
        found = await check_tree(world, scenario)
        await finish(world, scenario, found)
        world.clock.advance(1000)
        problems = {finding.kind for finding in await world.findings() if finding.is_problem}
        assert problems <= {"log_pending", "orphan_data", "stale_mark"}


@pytest.mark.parametrize("name", SCENARIOS)
async def test_death_at_every_call(name: str) -> None:
    scenario = SCENARIOS[name]
    count = await calls_of(name, scenario)
    tried = 0
    for number in range(1, count + 1):
        for when in ("before", "after"):
            await tell(f"{name}: death {when} call {number}", die_at(name, scenario, number, when))
            tried += 1
    sys.stdout.write(f"{name}: {tried} points\n")
    assert tried == 2 * count > 0


async def tell(what: str, work: Awaitable[object]) -> None:
    try:
        await work
    except BaseException as error:
        error.add_note(what)
        raise


async def fail_at(
    name: str, scenario: Scenario, number: int, when: Moment, error: S3kError, times: int
) -> BaseException | None:
    """One call fails, or it and those after it; what is reported agrees with what is stored."""
    async with world_of(f"{name}-{number}-{when}-{error.code}-{times}", scenario) as world:
        faults = FaultPlan()
        faults.fail_when(lambda call: call.number >= number, error, when=when, times=times)
        raised: S3kError | None = None
        try:
            await world.client(faults).run(scenario)
        except S3kError as caught:
            raised = caught
        world.clock.advance(1000)
        found = await check_tree(world, scenario)
        findings = await world.findings()
        problems = {finding.kind for finding in findings if finding.is_problem}
        if raised is None:
            assert found == scenario.after
            assert problems <= {"log_pending", "stale_mark", "reservation_expired"}
        elif scenario.after != scenario.before and not isinstance(raised, OutcomeUnknownError):
            assert found != scenario.after, f"false failure: {raised!r}"
        assert problems <= RECOVERABLE
        await finish(world, scenario, found)
        return raised


async def lose_at(name: str, scenario: Scenario, number: int, when: Moment, times: int) -> None:
    raised = await fail_at(name, scenario, number, when, ResponseLostError("lost"), times)
    # As long as attempts are left, a lost answer is nothing that anybody hears of.
    assert raised is None or times > 3


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_lost_answer_at_every_call(name: str) -> None:
    scenario = SCENARIOS[name]
    count = await calls_of(name, scenario)
    for number in range(1, count + 1):
        for when in ("before", "after"):
            for times in (1, 2, 5):
                what = f"{name}: {times} answers lost {when} from call {number}"
                await tell(what, lose_at(name, scenario, number, when, times))


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_failure_at_every_call(name: str) -> None:
    scenario = SCENARIOS[name]
    count = await calls_of(name, scenario)
    for number in range(1, count + 1):
        for times in (1, EVER):
            error = ServiceError("no", service_code="X")
            await tell(
                f"{name}: failure ({times}) at call {number}",
                fail_at(name, scenario, number, "before", error, times),
            )


async def cancel_at(name: str, scenario: Scenario, number: int) -> None:
    async with world_of(f"{name}-{number}-cancel", scenario) as world:

        async def gate(call: Call) -> None:
            if call.number == number:
                task.cancel()

        task = asyncio.ensure_future(world.client(FaultPlan(gate)).run(scenario))
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(asyncio.all_tasks()) == 1
        world.clock.advance(1000)
        found = await check_tree(world, scenario)
        problems = {finding.kind for finding in await world.findings() if finding.is_problem}
        assert problems <= RECOVERABLE - {"log_pending"}
        await finish(world, scenario, found)


@pytest.mark.parametrize("name", SCENARIOS)
async def test_cancellation_at_every_call(name: str) -> None:
    scenario = SCENARIOS[name]
    count = await calls_of(name, scenario)
    for number in range(1, count + 1):
        await tell(f"{name}: cancelled at call {number}", cancel_at(name, scenario, number))
