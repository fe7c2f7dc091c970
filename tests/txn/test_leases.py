"""A transaction keeps its lease while the client or the service is busy with its other requests."""

from __future__ import annotations

import asyncio

import pytest

from s3k_async._core.concurrency import AdaptiveLimit
from s3k_async._core.retry import RetryPolicy
from s3k_async._core.runtime import SYSTEM
from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.ports.items import Key
from s3k_async.backends.retrying.retrying_items import RetryingItems
from s3k_async.testing import Call, FaultPlan
from s3k_async.txn import txn_record as jobs_module
from s3k_async.txn.txn_record import TRANSACTION_PARTITION, TransactionRecords
from tests.engines.volumes import fresh_name


@pytest.fixture(autouse=True)
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module, "RENEW_SECONDS", 0.02)
    monkeypatch.setattr(jobs_module, "LATE_SECONDS", 0.02)


class Service:
    """A table that a client asks one thing at a time, and that does not answer reads, or renewals,
    until it may."""

    def __init__(self) -> None:
        self.answers_reads = asyncio.Event()
        self.answers_renewals = asyncio.Event()
        self.answers_renewals.set()
        self.created = False
        self.renewals: asyncio.Queue[Call] = asyncio.Queue()
        self.name = fresh_name("leases")
        self.items = RetryingItems(
            FaultPlan(self._gate).items(MemoryItems(self.name)),
            RetryPolicy(),
            SYSTEM,
            AdaptiveLimit(1),
        )

    async def _gate(self, call: Call) -> None:
        if call.method == "get":
            await self.answers_reads.wait()
        elif call.key.startswith(TRANSACTION_PARTITION) and self.created:
            self.renewals.put_nowait(call)
            await self.answers_renewals.wait()
        else:
            self.created = True

    async def renewed(self, times: int) -> None:
        async with asyncio.timeout(10):
            for _ in range(times):
                await self.renewals.get()


@pytest.fixture
async def service() -> Service:
    made = Service()
    await MemoryItems(made.name).create()
    return made


async def test_a_renewal_does_not_wait_for_its_turn(service: Service) -> None:
    async with TransactionRecords(service.items, SYSTEM).hold("mark", "/a") as txn:
        reading = asyncio.create_task(service.items.get(Key("p", "s")))
        await service.renewed(3)
        txn.check()
        service.answers_reads.set()
        assert await reading is None


async def test_a_late_renewal_holds_back_what_is_not_sent_yet(service: Service) -> None:
    service.answers_renewals.clear()
    async with TransactionRecords(service.items, SYSTEM).hold("mark", "/a") as txn:
        await txn.turn()
        await service.renewed(1)
        await asyncio.sleep(0.1)
        turn = asyncio.create_task(txn.turn())
        await asyncio.sleep(0.05)
        assert not turn.done()
        service.answers_renewals.set()
        await asyncio.wait_for(turn, 10)
        txn.check()
