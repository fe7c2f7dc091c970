"""`python -m benchmarks.simulated_log [CALLS ...]`: group commit of the log in simulated time.

Small files are written to a volume in memory whose calls take as long as those of the services, on
an event loop whose clock jumps to the next timer: the result depends only on the rules of
`oplog.group_commit`, not on processors. For each number of calls that are written beside other
groups (ENOUGH_CALLS) it prints, by calls in flight, the files per second, the median and 99th
percentile of a call in milliseconds, and the objects that were written per file, one of them its
data.
"""

from __future__ import annotations

import asyncio
import random
import selectors
import sys
from typing import Final

from s3k_async.client import S3kClient
from s3k_async.config import MemoryBlobs, MemoryTable, Tuning, VolumeConfig
from s3k_async.oplog import group_commit
from s3k_async.testing import Call, FaultPlan
from s3k_async.volumes import init_volume

IN_FLIGHT: Final = (1, 8, 16, 32, 64, 128)
FILES: Final = 2_000
SECONDS: Final = {"blobs": 0.025, "items": 0.004}
"""Median time of a call. The times are log-normal, with two thirds within 30 % of the median."""
BETWEEN_SECONDS: Final = 0.0003
"""Time between two calls of one worker."""


class _Clock(selectors.SelectSelector):
    """Never waits: its time jumps to that of the next timer."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is not None:
            self.seconds += timeout
        return ready


class _SimulatedLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._clock = _Clock()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.seconds


async def _measured(in_flight: int) -> str:
    name = f"simulated-{group_commit.ENOUGH_CALLS}-{in_flight}"
    config = VolumeConfig(
        name,
        MemoryTable(name),
        MemoryBlobs(name),
        tuning=Tuning(max_concurrency=2 * max(IN_FLIGHT)),
    )
    await init_volume(config)
    plan = FaultPlan()
    with plan.injected():
        async with S3kClient(config=config) as fs:
            await fs.write("/d/first", b"data")
            seconds = await _written(fs, plan, in_flight)
        seconds, calls = seconds[:-1], seconds[-1]
    puts = sum(call.store == "blobs" and call.method == "put" for call in plan.calls)
    middle, late = seconds[len(seconds) // 2], seconds[len(seconds) * 99 // 100]
    return (
        f"{in_flight:>4} in flight: {FILES / calls:6.0f}/s, {middle * 1000:4.0f} and "
        f"{late * 1000:4.0f} ms, {puts / FILES:.3f} objects"
    )


async def _written(fs: S3kClient, plan: FaultPlan, in_flight: int) -> list[float]:
    """The time of each write, ascending, and the total time."""
    loop, chance = asyncio.get_running_loop(), random.Random(1)
    numbers, seconds = iter(range(FILES)), []
    plan.calls.clear()

    async def delay(call: Call) -> None:
        await asyncio.sleep(SECONDS[call.store] * chance.lognormvariate(0, 0.3))

    async def work() -> None:
        for number in numbers:
            await asyncio.sleep(BETWEEN_SECONDS)
            began = loop.time()
            await fs.write(f"/d/{number}", b"data")
            seconds.append(loop.time() - began)

    plan.gate = delay
    began = loop.time()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(in_flight):
            tasks.create_task(work())
    together = loop.time() - began
    plan.gate = None
    return [*sorted(seconds), together]


def main() -> None:
    """Print the figures of each number of calls."""
    for calls in map(int, sys.argv[1:] or [str(group_commit.ENOUGH_CALLS)]):
        setattr(group_commit, "ENOUGH_CALLS", calls)  # noqa: B010 - a constant, but here
        print(f"groups of {calls} calls are written beside others")
        for in_flight in IN_FLIGHT:
            with asyncio.Runner(loop_factory=_SimulatedLoop) as runner:
                print(runner.run(_measured(in_flight)))


if __name__ == "__main__":
    main()
