"""What a client writes to the operation log, and what of it is waited for."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from s3k_async.client import S3kClient
from s3k_async.oplog.log_reader import LogReader
from s3k_async.testing import Call, FaultPlan
from tests.client.rig import faulty_client


class HeldMarks:
    """Holds every committed object that is being written until it is let go."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def __call__(self, call: Call) -> None:
        if call.key.endswith(".committed"):
            await self.go.wait()


def log_writes(calls: list[Call]) -> Counter[tuple[str, str]]:
    """The calls that went to the log, by method and state."""
    return Counter(
        (call.method, call.key.rpartition(".")[2])
        for call in calls
        if "entries/" in call.key or "segments/" in call.key
    )


ONE_CHANGE = Counter({("put", "pending"): 1, ("put", "committed"): 1})


@pytest.mark.parametrize(
    "verb", ["new file", "overwrite", "rename", "rename over a file", "delete", "makedirs"]
)
async def test_a_single_change_writes_two_log_objects_and_waits_for_the_first(verb: str) -> None:
    faults = FaultPlan()
    async with faulty_client(faults) as fs:
        log = fs._volume().log
        await fs.write("/d/f", b"one")
        await fs.write("/d/g", b"two")
        await log.drained()
        changes: dict[str, Callable[[], Awaitable[object]]] = {
            "new file": lambda: fs.write("/d/h", b"new"),
            "overwrite": lambda: fs.write("/d/f", b"new"),
            "rename": lambda: fs.rename("/d/f", "/d/h"),
            "rename over a file": lambda: fs.rename("/d/f", "/d/g", overwrite=True),
            "delete": lambda: fs.delete("/d/f"),
            "makedirs": lambda: fs.makedirs("/d/e"),
        }
        before = len(faults.calls)
        faults.gate = gate = HeldMarks()
        await changes[verb]()  # answered although no mark can be written
        gate.go.set()
        await log.drained()
        assert log_writes(faults.calls[before:]) == ONE_CHANGE


async def test_closing_a_client_waits_for_its_marks() -> None:
    faults = FaultPlan()
    async with faulty_client(faults) as fs:
        faults.gate = gate = HeldMarks()
        await fs.write("/f", b"data")
        closing = asyncio.create_task(fs.close())
        for _ in range(50):
            await asyncio.sleep(0)
        assert not closing.done()
        gate.go.set()
        await closing
    async with S3kClient(config=fs.config) as again:
        log_blobs = again._volume().log_blobs
        assert log_blobs is not None
        records = [record async for record in LogReader(log_blobs).records()]
        assert [getattr(record, "state", None) for record in records] == ["committed"]


async def test_a_caller_that_is_cancelled_leaves_its_mark_to_the_client() -> None:
    faults = FaultPlan()
    async with faulty_client(faults) as fs:
        done = asyncio.Event()

        async def write_and_wait() -> None:
            await fs.write("/f", b"data")
            done.set()
            await asyncio.Event().wait()

        faults.gate = gate = HeldMarks()
        task = asyncio.create_task(write_and_wait())
        await done.wait()
        task.cancel()
        gate.go.set()
        await asyncio.wait({task})
        await fs._volume().log.drained()
        assert log_writes(faults.calls) == ONE_CHANGE
