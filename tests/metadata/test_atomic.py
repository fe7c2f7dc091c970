"""Atomic renames and deletions: at every moment all of it or nothing, whoever dies, and whoever comes next."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import pytest

from s3k_async.errors import (
    PathNotFoundError,
    S3kError,
    ServiceError,
)
from s3k_async.metadata.marks import parse_mark
from s3k_async.model import Entry
from s3k_async.stores.faults import Call, Died, FaultPlan, Moment
from tests.metadata.world import GROWN, Client, Paths, World

EVER: Final = 10**9
MOMENTS: Final[tuple[Moment, ...]] = ("before", "after")
MOVED: Final[Paths] = {"/e/z" + path[2:] if path.startswith("/d") else path: data for path, data in GROWN.items()}
GONE: Final[Paths] = {path: data for path, data in GROWN.items() if not path.startswith("/d")}
LEFT_FOR_FSCK: Final = {"log_pending", "orphan_data", "stale_mark"}
"""`stale_mark` only where nobody has come who had to settle it."""


async def rename(client: Client) -> None:
    await client.atomic.rename(await client.need("/d"), "/e/z")


async def delete(client: Client) -> None:
    await client.atomic.delete(await client.need("/d"))


CHANGES: Final[dict[str, tuple[Callable[[Client], Awaitable[None]], Paths]]] = {
    "rename": (rename, MOVED),
    "delete": (delete, GONE),
}


@asynccontextmanager
async def grown(name: str) -> AsyncIterator[World]:
    world = await World(name).start()
    client = world.client()
    for path, data in GROWN.items():
        if data is None:
            await client.store.make_directory(path)
        else:
            await client.write(path, data)
    await client.store.changes.log.drained()
    world.clock.advance(100)
    try:
        yield world
    finally:
        await world.drop()


async def seen(world: World) -> dict[str, bytes | None]:
    """What a reader sees who takes every item as it is stored, and then asks each job once."""
    client = world.client()
    found: dict[str, bytes | None] = {}
    records = {record.id: record async for record in client.store.jobs.records()}
    for path, entry in (await world.scanned()).items():
        shown: Entry | None = entry
        if entry.pending:
            mark = parse_mark(entry.pending)
            shown = mark.side(entry, published=mark.job in records and records[mark.job].is_published)
        if shown is not None:
            found[path] = None if shown.is_dir else await client.storage.read(str(shown.physical))
    return found


async def settled(world: World) -> None:
    """Nothing is left of any job."""
    assert [entry for entry in (await world.scanned()).values() if entry.pending] == []
    assert [record async for record in world.client().store.jobs.records()] == []


async def check_log(world: World) -> None:
    world.clock.advance(1000)
    assert {finding.kind for finding in await world.findings() if finding.is_problem} <= LEFT_FOR_FSCK


async def again(world: World, name: str) -> None:
    """The same call, by another client."""
    change, after = CHANGES[name]
    try:
        await world.client().run_change(change)
    except PathNotFoundError:
        assert await seen(world) == after
    assert await seen(world) == after


async def a_write(world: World, name: str) -> None:
    """Another client writes into the old place and into the new one, and then everything else comes to its end."""
    before = await seen(world)
    client = world.client()
    await client.write("/d/x/new", b"new")
    assert await seen(world) == {"/d": None, "/d/x": None, **before, "/d/x/new": b"new"}
    await client.write("/e/z/new", b"newer")
    await client.write("/e/k", b"newest")
    expected = {"/d": None, "/d/x": None, "/e/z": None, **before}
    assert await seen(world) == expected | {"/d/x/new": b"new", "/e/z/new": b"newer", "/e/k": b"newest"}
    await everything(world, name)


async def everything(world: World, name: str) -> None:
    """Whoever is asked to settles what is left."""
    before = await seen(world)
    store = world.client().store
    for record in [record async for record in store.jobs.records()]:
        assert await store.settling.complete(record)
    assert await seen(world) == before


RECOVERIES: Final[dict[str, Callable[[World, str], Awaitable[None]]]] = {
    "the same call": again,
    "a write": a_write,
    "settling": everything,
}


async def die_at(world: World, name: str, number: int, when: Moment) -> Paths:
    change, after = CHANGES[name]
    faults = FaultPlan()
    faults.die(number, when=when)
    faults.fail_when(lambda call: call.number > number, Died("is dead"), times=EVER)
    with pytest.raises(Died):
        await world.client(faults).run_change(change)
    found = await seen(world)
    assert found in (GROWN, after)
    world.clock.advance(1000)
    assert await seen(world) == found, "time does not decide"
    return found


async def calls_of(name: str) -> int:
    async with grown(f"atomic-{name}-probe") as world:
        faults = FaultPlan()
        await world.client(faults).run_change(CHANGES[name][0])
        assert await seen(world) == CHANGES[name][1]
        await settled(world)
        world.clock.advance(1000)
        assert [finding for finding in await world.findings() if finding.is_problem] == []
        return len(faults.calls)


async def die_and_recover(name: str, number: int, when: Moment, recovery: str) -> None:
    async with grown(f"atomic-{name}-{recovery}-{number}-{when}") as world:
        try:
            await die_at(world, name, number, when)
            await RECOVERIES[recovery](world, name)
            if recovery != "the same call":
                await settled(world)
            await check_log(world)
        except BaseException as error:
            error.add_note(f"{name}: death {when} call {number}, then {recovery}")
            raise


@pytest.mark.parametrize("name", CHANGES)
async def test_T1_death_at_every_call_leaves_all_or_nothing(name: str) -> None:
    tried = 0
    for number in range(1, await calls_of(name) + 1):
        for when in MOMENTS:
            # Every point is died at; who comes next takes turns.
            await die_and_recover(name, number, when, [*RECOVERIES][tried % len(RECOVERIES)])
            tried += 1
    sys.stdout.write(f"{name}: {tried} points\n")
    assert tried > 40


@pytest.mark.slow
@pytest.mark.parametrize("recovery", RECOVERIES)
@pytest.mark.parametrize("name", CHANGES)
async def test_T1_death_at_every_call_and_every_recovery(name: str, recovery: str) -> None:
    for number in range(1, await calls_of(name) + 1):
        for when in MOMENTS:
            await die_and_recover(name, number, when, recovery)


def is_from(number: int, call: Call) -> bool:
    return call.number >= number


@pytest.mark.parametrize("times", [1, EVER], ids=["once", "for ever"])
@pytest.mark.parametrize("name", CHANGES)
async def test_a_failure_at_every_call_changes_nothing_or_is_none(name: str, times: int) -> None:
    change, after = CHANGES[name]
    for number in range(1, await calls_of(name) + 1):
        async with grown(f"atomic-{name}-failing-{times}-{number}") as world:
            faults = FaultPlan()
            faults.fail_when(partial(is_from, number), ServiceError("refused"), times=times)
            try:
                await world.client(faults).run_change(change)
            except S3kError:
                assert await seen(world) == GROWN, number
            else:
                assert await seen(world) == after, number
            if times == 1:
                world.clock.advance(1000)
                await everything(world, name)
                await settled(world)
            await check_log(world)
