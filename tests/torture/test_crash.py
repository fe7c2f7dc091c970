"""Every verb that changes something, interrupted at every call it makes: by death, by a lost
answer, by a failure, by cancellation; then recovered by each way there is.

In `make test` a process dies at every fifth call, in `make test-full` at each call; the seed
decides whether before or after the call, and the ways of recovery take turns. In `make torture` it
dies before and after each call, with every way of recovery. Apart from concurrent calls, a death
after a call is the same as a death before the next one.
"""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from s3k_async.client import S3kClient
from s3k_async.errors import (
    ResponseLostError,
    S3kError,
    ServiceError,
)
from s3k_async.model import LayoutName
from s3k_async.objects import ObjectStore
from s3k_async.testing import Call, Died, FaultPlan, Moment
from tests.client.request_scenes import downloaded, presigned
from tests.level import FULL, TORTURE
from tests.torture.crash import Arm, Scenario, World, world_of
from tests.torture.crash_objects import (
    EVERY,
    OBJECT_BUILT,
    OBJECT_LOOKS,
    OBJECT_SCENARIOS,
    OBJECT_UPLOADS,
)
from tests.torture.crash_recovery import (
    AFTER_USE,
    RECOVERABLE,
    RECOVERIES,
    WAYS,
    calls_of,
    check_tree,
    is_complete,
    is_definite,
    try_again,
)
from tests.torture.crash_scenarios import LOOKS, OWN, SCENARIOS, verb_of
from tests.torture.measure import report, seed_of_run

EVER = 10**9


def cases(*, slow: Sequence[LayoutName] = ()) -> pytest.MarkDecorator:
    """A test of each scenario in each layout that supports its verb; for the layouts in `slow`,
    only in `make test-full`."""
    return pytest.mark.parametrize(
        ("name", "scenario"),
        [
            pytest.param(
                name,
                replace(scenario, layout=layout),
                id=f"{name}-{layout}",
                marks=[pytest.mark.slow] if layout in slow else [],
            )
            for layout in ("path", "tree")
            for name, scenario in EVERY.items()
            if layout in scenario.layouts
        ],
    )


CHANGING = frozenset(
    {"write", "transact", "put", "copy", "delete", "delete_many", "start_upload", "copy_part"}
)
"""Calls of the stores that change something."""


def test_every_verb_of_the_client_has_a_scenario() -> None:
    public = {name for name in dir(S3kClient) if not name.startswith("_")}
    assert public == LOOKS | OWN | {verb_of(name) for name in SCENARIOS}
    verbs = {
        name: value for name, value in inspect.getmembers(S3kClient, callable) if name in public
    }
    both = {name for name, verb in verbs.items() if "atomic" in inspect.signature(verb).parameters}
    assert both == {verb_of(name) for name in SCENARIOS if name.endswith(":not atomic")}


def test_every_verb_of_the_object_store_has_a_scenario_or_is_built_from_one() -> None:
    public = {name for name in dir(ObjectStore) if not name.startswith("_")}
    own = {verb_of(name) for name in OBJECT_SCENARIOS}
    uploads = {verb_of(name) for name in OBJECT_UPLOADS}
    assert public == OBJECT_LOOKS | uploads | OBJECT_BUILT.keys() | own
    assert not own & (OBJECT_LOOKS | uploads | OBJECT_BUILT.keys())
    assert SCENARIOS.keys() >= set(OBJECT_BUILT.values())


def test_the_page_has_every_scenario() -> None:
    page = Path("docs/reliability.md").read_text(encoding="utf-8")
    found: dict[str, list[str]] = {}
    for name, scenario in EVERY.items():
        only = "" if len(scenario.layouts) == 2 else f" (layout `{scenario.layouts[0]}`)"
        found.setdefault(verb_of(name), []).append((name.partition(":")[2] or "one") + only)
    _, _, rest = page.partition("| verb | scenarios |\n|---|---|\n")
    table, _, _ = rest.partition("\n\n")
    assert table.split("\n") == [f"| `{verb}` | {', '.join(of)} |" for verb, of in found.items()]


async def test_the_verbs_that_look_change_nothing() -> None:
    """What a crash cannot interrupt half-way needs no scenario."""
    looks: Mapping[str, Callable[[S3kClient], Awaitable[object]]] = {
        "checksum": lambda fs: fs.checksum("/d/f"),
        "content_summary": lambda fs: fs.content_summary("/"),
        "due_actions": lambda fs: drain(fs.due_actions()),
        "download": lambda fs: downloaded(fs, "/d"),
        "exists": lambda fs: fs.exists("/d/f"),
        "exists_many": lambda fs: fs.exists_many(["/d/f"]),
        "find": lambda fs: drain(fs.find("/")),
        "glob": lambda fs: drain(fs.glob("/**")),
        "health": lambda fs: fs.health(),
        "is_dir": lambda fs: fs.is_dir("/d"),
        "is_file": lambda fs: fs.is_file("/d"),
        "storage_info": lambda fs: fs.storage_info(),
        "transactions": lambda fs: fs.transactions(),
        "list": lambda fs: drain(fs.list("/", recursive=True)),
        "list_batches": lambda fs: drain(fs.list_batches("/", recursive=True)),
        "physical_path": lambda fs: fs.physical_path("/d/f"),
        "physical_paths": lambda fs: drain(fs.physical_paths("/")),
        "presign": lambda fs: presigned(fs, "/d/f"),
        "read": lambda fs: fs.read("/d/f"),
        "read_each": lambda fs: fs.read_each(["/d/f"]),
        "read_many": lambda fs: fs.read_many(["/d/f"]),
        "read_ranges": lambda fs: fs.read_ranges("/d/f", [(0, 1)]),
        "rules": lambda fs: fs.rules(),
        "stat": lambda fs: fs.stat("/d/f"),
        "stat_many": lambda fs: fs.stat_many(["/d/f"]),
        "versions": lambda fs: fs.versions("/d/f"),
        "walk": lambda fs: drain(fs.walk("/")),
    }
    assert looks.keys() == LOOKS
    plans: list[FaultPlan] = []
    scenario = replace(SCENARIOS["write:over"], features=("rules",))
    async with world_of(scenario) as world, world.client(plans.append) as (fs, _):
        for look in looks.values():
            await look(fs)
        made = [call for call in plans[0].calls if call.method in CHANGING]
        assert made == []
        assert len(plans[0].calls) >= len(looks)


async def drain(values: object) -> int:
    return len([value async for value in values])  # type: ignore[attr-defined]


async def dies(world: World, scenario: Scenario, arm: Arm) -> bool:
    """Whether the caller was answered before the process died."""
    acknowledged = False
    try:
        async with world.client(arm) as (here, there):
            await scenario.run(here, there)
            acknowledged = True
    except Died:
        return acknowledged
    raise AssertionError("it did not die")


async def die_at(scenario: Scenario, number: int, when: Moment, way: str) -> None:
    async with world_of(scenario) as world:

        def arm(faults: FaultPlan) -> None:
            faults.die(number, when=when)
            faults.fail_when(lambda call: call.number > number, Died("is dead"), times=EVER)

        acknowledged = await dies(world, scenario, arm)
        world.clock.advance(1000)
        assert await world.problems() <= RECOVERABLE
        found = await check_tree(world, scenario)
        assert not acknowledged or await is_complete(world, scenario, found)
        await RECOVERIES[way](world, scenario, found)
        world.clock.advance(1000)
        assert await world.problems() <= AFTER_USE[scenario.layout]


@cases()
async def test_death_at_every_call(name: str, scenario: Scenario) -> None:
    count = await calls_of(scenario)
    seed, tried = seed_of_run(), 0
    for number, when, ways in deaths(count, random.Random(f"{seed}-{name}"), WAYS[scenario.layout]):
        for way in ways:
            what = (
                f"{name}, layout {scenario.layout}: death {when} call {number}, {way}; "
                f"S3K_TORTURE_SEED={seed}"
            )
            await tell(what, die_at(scenario, number, when, way))
        tried += 1
    report("crash", name, calls=count, deaths=tried, recoveries=len(ways), seed=seed)
    expected = 2 * count if TORTURE else count if FULL else count // SHARE
    assert tried in (expected, expected if FULL else expected + 1)
    assert tried > 0


def deaths(
    count: int, chance: random.Random, ways: Sequence[str]
) -> Iterator[tuple[int, Moment, Sequence[str]]]:
    """The calls at which to die, when, and how to recover from it."""
    turn = chance.randrange(len(ways))
    for number in (
        range(1, count + 1) if FULL else share_of(count, chance.randrange(min(SHARE, count)))
    ):
        if TORTURE:
            yield from ((number, when, ways) for when in MOMENTS)
        else:
            yield number, chance.choice(MOMENTS), [ways[(number + turn) % len(ways)]]


async def test_what_may_be_under_way_is_no_finding() -> None:
    """A moment after the death fsck cannot know of it; later it does."""
    scenario = SCENARIOS["write:over"]
    later: set[str] = set()
    for number in range(1, await calls_of(scenario) + 1):

        def arm(faults: FaultPlan, number: int = number) -> None:
            faults.fail_when(lambda call: call.number >= number, Died("is dead"), times=EVER)

        async with world_of(scenario) as world:
            await dies(world, scenario, arm)
            assert await world.problems() == set()
            world.clock.advance(1000)
            later |= await world.problems()
    assert "log_pending" in later


SHARE = 3 if FULL else 5


def share_of(count: int, skipped: int = 0) -> range:
    """Calls to fail: every third, in `make test` every fifth; all in `make torture`."""
    return range(1 + skipped, count + 1, 1 if TORTURE else SHARE)


MOMENTS: tuple[Moment, ...] = ("before", "after")


async def tell(what: str, work: Awaitable[object]) -> None:
    try:
        await work
    except BaseException as error:
        error.add_note(what)
        raise


async def fail_at(
    scenario: Scenario, number: int, when: Moment, error: S3kError, times: int
) -> BaseException | None:
    """One call fails, or it and those after it; what is reported agrees with what is stored."""
    async with world_of(scenario) as world:

        def arm(faults: FaultPlan) -> None:
            faults.fail_when(lambda call: call.number >= number, error, when=when, times=times)

        raised: S3kError | None = None
        try:
            await world.run(scenario, arm)
        except S3kError as caught:
            raised = caught
        world.clock.advance(1000)
        found = await check_tree(world, scenario)
        problems = await world.problems()
        complete = await is_complete(world, scenario, found)
        if raised is None:
            assert complete
            assert problems <= {
                "interrupted_change",
                "log_pending",
                "stale_intent",
                "reservation_expired",
            }
        elif scenario.is_seen and is_definite(raised, scenario):
            assert not complete, f"false failure: {raised!r}"
        assert problems <= RECOVERABLE
        await try_again(world, scenario, found)
        return raised


async def lose_at(scenario: Scenario, number: int, when: Moment, times: int) -> None:
    raised = await fail_at(scenario, number, when, ResponseLostError("lost"), times)
    # As long as attempts are left, a lost answer is nothing that anybody hears of.
    assert raised is None or times > 3


@cases(slow=["path"])
async def test_a_lost_answer_at_every_call(name: str, scenario: Scenario) -> None:
    """The answer of one call is lost, of three, and of all that follow: applied, or lost on the way
    there."""
    count = await calls_of(scenario)
    tried = 0
    for number in range(1, count + 1) if FULL else share_of(count):
        for times in (1, 3, EVER) if TORTURE else (1 if number % 2 else EVER,):
            for when in MOMENTS if TORTURE else ("after",):
                what = f"{name}: answers lost {when} call {number}, {times} times"
                await tell(what, lose_at(scenario, number, when, times))
        tried += 1
    report("crash", name, answers_lost=tried)
    assert tried == (count if FULL else len(share_of(count))) > 0


@cases(slow=["tree"])
async def test_a_failure_at_every_call(name: str, scenario: Scenario) -> None:
    count = await calls_of(scenario)
    tried = 0
    for number in share_of(count):
        for times in (1, EVER) if TORTURE else (1 if number % 2 else EVER,):
            error = ServiceError("no", service_code="X")
            await tell(
                f"{name}: failure ({times}) at call {number}",
                fail_at(scenario, number, "before", error, times),
            )
        tried += 1
    report("crash", name, failures=tried)
    assert tried == len(share_of(count)) > 0


async def cancel_at(scenario: Scenario, number: int) -> None:
    async with world_of(scenario) as world:

        async def gate(call: Call) -> None:
            if call.number == number:
                task.cancel()

        def arm(faults: FaultPlan) -> None:
            faults.gate = gate

        task = asyncio.ensure_future(world.run(scenario, arm))
        with pytest.raises(asyncio.CancelledError):
            await task
        await turns()
        assert len(asyncio.all_tasks()) == 1
        world.clock.advance(1000)
        found = await check_tree(world, scenario)
        assert await world.problems() <= RECOVERABLE - {"log_pending"}
        left = [finding for finding in await world.findings() if finding.is_problem]
        assert [finding for finding in left if "log segments" in finding.detail] == []
        await try_again(world, scenario, found)


async def turns() -> None:
    """Generators that were left in the middle are ended by the event loop."""
    for _ in range(20):
        await asyncio.sleep(0)


@cases(slow=["tree"])
async def test_cancellation_at_every_call(name: str, scenario: Scenario) -> None:
    count = await calls_of(scenario)
    tried = 0
    for number in share_of(count):
        await tell(f"{name}: cancelled at call {number}", cancel_at(scenario, number))
        tried += 1
    report("crash", name, cancellations=tried)
    assert tried == len(share_of(count)) > 0
