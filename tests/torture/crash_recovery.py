"""What must hold after a crash, and the ways to recover from one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from s3k_async.errors import (
    OutcomeUnknownError,
    PartialFailureError,
    PathExistsError,
    PathNotFoundError,
    S3kError,
)
from s3k_async.model import LayoutName
from s3k_async.testing import FaultPlan
from tests.level import FULL
from tests.torture.crash import Marks, Paths, Scenario, World, world_of

__all__ = [
    "AFTER_USE",
    "RECOVERABLE",
    "RECOVERIES",
    "WAYS",
    "calls_of",
    "check_tree",
    "is_complete",
    "is_definite",
    "try_again",
]

RECOVERABLE = {
    "interrupted_change",
    "log_pending",
    "stale_intent",
    "duplicate_id",
    "reservation_expired",
    "orphan_data",
}
"""What a death may leave for fsck to finish."""
AFTER_USE: Mapping[LayoutName, set[str]] = {
    "path": {"interrupted_change", "log_pending", "orphan_data", "stale_intent"},
    "tree": {
        "interrupted_change",
        "log_pending",
        "orphan_data",
        "stale_intent",
        "reservation_expired",
    },
}
"""What may be left after other clients have used the volume. In layout `tree` a deletion moves an
abandoned reservation into the trash, with its directory."""


async def calls_of(scenario: Scenario, **places: Any) -> int:
    """How many calls the verb makes when nothing interrupts it; `places`: as for `world_of`."""
    plans: list[FaultPlan] = []
    async with world_of(scenario, **places) as world:
        await world.run(scenario, plans.append)
        assert await is_complete(world, scenario, await world.tree())
        world.clock.advance(1000)
        assert await world.problems() == set()
        return len(plans[0].calls)


async def is_complete(world: World, scenario: Scenario, found: Paths) -> bool:
    """Whether what is there, of which `found` is the tree, is what is to be there afterwards."""
    return found == scenario.after and await world.marks() == scenario.marks[1]


async def check_tree(world: World, scenario: Scenario) -> dict[str, bytes | None]:
    """The tree holds together, and holds what it may hold."""
    found, marks = await world.tree(), await world.marks()
    assert await world.visible() == found.keys()
    sides = (scenario.before, scenario.after)
    if scenario.rule == "atomic":
        before, after = zip(sides, scenario.marks, strict=True)
        half = {**scenario.before, **scenario.between}, scenario.marks[0]
        assert (found, marks) in (before, after, half)
        return found
    assert marks.rules in [each.rules for each in scenario.marks]
    check_attributes(marks, scenario)
    for path in found.keys() | scenario.before.keys() | scenario.after.keys():
        assert found.get(path, "none") in {side.get(path, "none") for side in sides}, path
    if scenario.rule == "moves":
        assert files_of(found) == files_of(scenario.before)
    return found


def check_attributes(marks: Marks, scenario: Scenario) -> None:
    """Each path has the attributes of before or those of after."""
    paths = {path for each in (marks, *scenario.marks) for path in each.attributes}
    for path in paths:
        assert marks.attributes.get(path) in [
            each.attributes.get(path) for each in scenario.marks
        ], path


def files_of(tree: Paths) -> list[bytes]:
    """The bytes of all files."""
    return sorted(data for data in tree.values() if data is not None)


async def try_again(world: World, scenario: Scenario, found: Paths) -> None:
    """The same call again, by somebody else."""
    try:
        await world.run(scenario)
    except PathNotFoundError:
        assert scenario.gone
        assert found == scenario.after
        await resolve_transactions(world)
    except PathExistsError:
        assert scenario.once
        assert found == scenario.after
    is_repeated = scenario.again is not None and found == scenario.after
    expected = scenario.again if scenario.again is not None and is_repeated else scenario.after
    assert await world.tree() == expected
    assert await world.marks() == scenario.marks[1]
    assert (await world.items()).keys() == expected.keys()


async def resolve_transactions(world: World) -> None:
    """Resolve all transactions. An atomic rename or deletion is visible before its intents are
    resolved, and a client that finds no entry does not resolve them.
    """
    async with world.volume() as volume:
        async for record in volume.store.transactions.records():
            await volume.store.resolver.complete(record)


async def use(world: World, scenario: Scenario, found: Paths) -> None:
    """Somebody else uses what is there, without knowing that anything happened; at last all of it
    is deleted."""
    expected = dict(found)
    marks = await world.marks()
    async with world.client() as (fs, _):
        for path, attributes in marks.attributes.items():
            if attributes.read_only:
                await fs.set_attributes(path, read_only=False)
        for path, data in found.items():
            place = f"{path}/another" if data is None else path
            expected[place] = b"other"
            await fs.write(place, b"other")
    assert await world.tree() == expected
    async with world.client() as (fs, _):
        async for status in fs.list("/"):
            await fs.delete(status.path, recursive=True)
    assert await world.tree() == {}
    await resolve_transactions(world)
    left = await world.items()
    assert all(entry.is_reservation for entry in left.values())
    async with world.client() as (fs, _):
        for path in left:
            await fs.write(path, b"taken over")  # an abandoned reservation blocks no client


async def repair_action(world: World, scenario: Scenario, found: Paths) -> None:
    """fsck repairs; garbage is collected; the table is lost and comes back from the log, to the
    last attribute of every item."""
    await world.repair()
    assert await world.problems() == set()
    repairs = await check_tree(world, scenario)
    assert (await world.items()).keys() == repairs.keys()
    for path in found.keys() | repairs.keys():
        # What was seen stays; what was begun may be brought to its end.
        assert repairs.get(path, "none") in (
            found.get(path, "none"),
            scenario.after.get(path, "none"),
        ), path
    world.clock.advance(2000)
    in_use = await (world.named() if scenario.layout == "path" else world.referenced())
    assert await world.collect() == in_use
    assert await world.tree() == repairs
    table = await world.table()
    await world.lose_table()
    assert await world.table() == table
    assert await world.tree() == repairs
    world.clock.advance(1000)
    assert await world.problems() == set()


async def lose_table(world: World, scenario: Scenario, found: Paths) -> None:
    """The table is lost before the operations of the dead client are resolved. What was there
    before and is to be there afterwards is there, and so is what the client has published; fsck
    resolves the rest. Rules are not in the log (docs/rules.md).

    A rename that is not atomic creates a directory at the target before it moves an entry. Until it
    has moved all entries, the log has only a pending creation of that directory, which the restore
    rolls back; every file is at its old or its new path.
    """
    await world.lose_table()
    restored = await world.tree()
    assert await world.visible() == restored.keys()
    sides = (scenario.before, scenario.after, scenario.between, found)
    for path, data in restored.items():
        assert data in {side.get(path, "none") for side in sides}, path
    for side in (scenario.before, found):
        for path, data in side.items():
            is_taken_back = scenario.rule == "moves" and data is None and side is found
            if scenario.after.get(path, "none") == data and not is_taken_back:
                assert restored.get(path, "none") == data, path
    if scenario.rule == "moves":
        assert files_of(restored) == files_of(scenario.before)
    check_attributes(await world.marks(), scenario)
    # An abandoned reservation is not restored, and the log still has it.
    assert await world.problems() <= RECOVERABLE | {"entry_missing", "contradiction"}
    await world.repair()
    assert await world.problems() == set()
    assert (await world.tree()).keys() >= scenario.before.keys() & scenario.after.keys()


async def collect_only(world: World, scenario: Scenario, found: Paths) -> None:
    """Garbage collection deletes no object that an entry names, in the trash or elsewhere. It may
    keep more objects than these, since the operations of the dead client are pending until fsck has
    repaired the log."""
    world.clock.advance(2000)
    left = await world.collect()
    assert await world.tree() == found
    assert left >= await world.referenced()
    await try_again(world, scenario, found)


RECOVERIES: Mapping[str, Callable[[World, Scenario, Paths], Awaitable[None]]] = {
    "again": try_again,
    "use": use,
    "repair": repair_action,
    "collect": collect_only,
    "lose": lose_table,
}
WAYS: Mapping[LayoutName, Sequence[str]] = {
    "path": ["again", "use", "repair", *(["lose"] if FULL else [])],
    "tree": ["again", "use", "collect", "repair", "lose"],
}
"""How to recover in each layout. In layout `path`, collection is a part of the way by repair."""


def is_definite(raised: S3kError, scenario: Scenario) -> bool:
    """Whether an error says that what was asked for is not what is there."""
    errors = (
        [error for _, error in raised.failures]
        if isinstance(raised, PartialFailureError)
        else [raised]
    )
    return not scenario.implied and not any(
        isinstance(error, OutcomeUnknownError) for error in errors
    )
