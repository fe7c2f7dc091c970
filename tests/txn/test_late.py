"""Clients that stop just before a write of a transaction and continue after another client has
acted: their conditions fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from s3k_async._core.runtime import SYSTEM
from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.ports.items import OPERATION, Condition, Delete, Put, Update
from s3k_async.errors import LeaseExpiredError
from s3k_async.testing import Call, FaultPlan
from s3k_async.txn.txn_record import TransactionRecords, transaction_key
from s3k_async.txn.write_intent import REMOVED
from tests.engines.volumes import fresh_name
from tests.namespace.manual_transactions import Hand
from tests.namespace.world import World


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = await World(fresh_name("late")).start()
    yield made
    await made.drop()


async def test_a_late_publish_finds_the_transaction_aborted(world: World) -> None:
    """The new owner is still removing its intents: published now, a part of it would happen."""
    faults = FaultPlan()
    transactions = world.client(faults).store.transactions
    async with transactions.hold("rename", "/d", "/e") as txn:

        async def take_over(call: Call) -> None:
            assert call.method == "write"
            faults.gate = None
            taken = Update(
                transaction_key(txn.id),
                Condition(equals={"owner": txn.owner, "state": "preparing"}),
                set={"state": "aborted", "owner": "another", OPERATION: "taken over"},
            )
            await MemoryItems(world.name).write(taken)

        faults.gate = take_over
        with pytest.raises(LeaseExpiredError):
            await transactions.publish(txn)
        assert faults.gate is None
        record = await transactions.record(txn.id)
        assert record is not None
        assert (record.state, record.owner) == ("aborted", "another")


async def test_a_late_resolution_leaves_later_changes(world: World) -> None:
    """Of two clients that find the intent of a published removal, the faster one writes a new file
    in its place."""
    faults = FaultPlan()
    slow, fast = world.client(faults), world.client()
    await fast.write("/d/f", b"old")
    hand = Hand(MemoryItems(world.name), fast.store.keys)
    await hand.record("job", "published", kind="delete")
    await hand.add_intent("/d/f", "job", REMOVED)
    met = await slow.store.stored("/d/f")
    assert met is not None

    async def write(call: Call) -> None:
        if call.method in ("write", "transact"):
            faults.gate = None
            await fast.write("/d/f", b"new")

    faults.gate = write
    await slow.store.resolve(met)
    assert faults.gate is None
    found = await fast.need("/d/f")
    assert await fast.storage.read(str(found.physical)) == b"new"


async def test_a_transaction_that_is_cancelled_while_its_record_is_written_leaves_none(
    world: World,
) -> None:
    written, answered = asyncio.Event(), asyncio.Event()

    class SlowAnswers(MemoryItems):
        async def write(self, action: Put | Update | Delete) -> None:
            await super().write(action)
            written.set()
            await answered.wait()

    async def begin() -> None:
        async with TransactionRecords(SlowAnswers(world.name), SYSTEM).hold("rename", "/d", "/e"):
            raise AssertionError("it was cancelled")

    beginning = asyncio.create_task(begin())
    await written.wait()
    beginning.cancel()
    await asyncio.sleep(0)
    answered.set()
    with pytest.raises(asyncio.CancelledError):
        await beginning
    assert [record async for record in world.client().store.transactions.records()] == []
