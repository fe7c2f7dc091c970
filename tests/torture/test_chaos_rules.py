"""The check of the chaos that each lifecycle rule was carried out once: what it accepts, and what
it finds."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from time import time

import pytest

from s3k_async.attributes import Attributes
from s3k_async.model import LayoutName
from s3k_async.namespace.attribute_changes import make_read_only
from s3k_async.testing import Died, FaultPlan
from tests.support import FakeClock, from_call
from tests.torture.chaos import DUE, LIFECYCLES, RULED, Chaos
from tests.torture.chaos_rules import check_rules
from tests.torture.crash import Arm, Scenario, World, world_of
from tests.torture.overlap import Call, Kind

EVER = 10**9
FILES: dict[Kind, str] = {
    "expire": f"{DUE}/e",
    "keep": f"{DUE}/k",
    "protect": f"{DUE}/p",
    "ruled": f"{RULED}/r",
}
CHAOS = Chaos([Call(kind, 0.0, files={path: kind}, outcome="done") for kind, path in FILES.items()])


def place(layout: LayoutName) -> AbstractAsyncContextManager[World]:
    """A volume with the directories of the rules, whose time is about that of the check."""

    async def run(*_: object) -> None: ...

    before = {DUE: None, RULED: None}
    scenario = Scenario(before, run, before, layout=layout, features=("rules",))
    return world_of(scenario, clock=FakeClock(time()))


async def write_files(
    world: World, metadata: Mapping[str, Mapping[str, bytes]] = LIFECYCLES
) -> None:
    async with world.client() as (fs, _):
        await fs.set_rule(RULED, expire_at=1)
        for kind, path in FILES.items():
            await fs.write(path, b"1", attributes=Attributes(metadata=metadata[kind]))


async def protect(world: World, arm: Arm | None = None) -> None:
    """What a runner does to a file."""
    async with world.client(arm) as (fs, _):
        store = fs._volume().store
        entry = await store.get(FILES["protect"])
        assert entry is not None
        await make_read_only(store, entry)


@pytest.mark.layouts("path", "tree")
async def test_a_runner_that_dies_at_any_call_is_repaired(layout: LayoutName) -> None:
    """Then the version of the file is higher than that of a file that was changed once."""
    number, died = 0, True
    versions: set[int] = set()
    while died:
        number += 1
        async with place(layout) as world:
            await write_files(world)

            def arm(faults: FaultPlan, number: int = number) -> None:
                faults.fail_when(from_call(number), Died("is dead"), times=EVER)

            try:
                await protect(world, arm)
            except Died:
                died = True
            else:
                died = False
            world.clock.advance(1000)
            await world.repair()
            await check_rules(world.config, CHAOS)
            async with world.client() as (fs, _):
                versions.add((await fs.stat(FILES["protect"])).version)
    assert 3 in versions
    assert max(versions) > 3


@pytest.mark.layouts("path", "tree")
async def test_an_action_that_is_done_twice_is_found(layout: LayoutName) -> None:
    async with place(layout) as world:
        await write_files(world)
        await protect(world)
        await protect(world)
        with pytest.raises(AssertionError, match=FILES["protect"]):
            await check_rules(world.config, CHAOS)


@pytest.mark.layouts("path", "tree")
@pytest.mark.parametrize("kind", ["expire", "protect"])
async def test_an_action_that_is_never_done_is_found(layout: LayoutName, kind: str) -> None:
    async with place(layout) as world:
        await write_files(world, {**LIFECYCLES, kind: {}})
        with pytest.raises(AssertionError):
            await check_rules(world.config, CHAOS)


@pytest.mark.layouts("path", "tree")
async def test_an_action_that_was_not_due_is_found(layout: LayoutName) -> None:
    async with place(layout) as world:
        await write_files(world, {**LIFECYCLES, "keep": LIFECYCLES["protect"]})
        with pytest.raises(AssertionError):
            await check_rules(world.config, CHAOS)
