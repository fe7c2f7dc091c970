"""What several tests need: sources of time and randomness that they control, and a forked child."""

from __future__ import annotations

import os
import random
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

from anyio.lowlevel import checkpoint

from s3k_async.sources import Sources

__all__ = ["FakeClock", "fake_sources", "fork_and_run"]


@dataclass
class FakeClock:
    """Time that passes only when it is told to, or when somebody sleeps."""

    seconds: float = 1_700_000_000.0
    sleeps: list[float] = field(default_factory=list)
    """Every wait so far, seconds."""

    def advance(self, seconds: float) -> None:
        self.seconds += seconds

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.seconds += seconds
        await checkpoint()


def fake_sources(clock: FakeClock | None = None, *, seed: int = 0) -> Sources:
    """Sources over `clock` (a new one unless given) whose randomness repeats for the same seed."""
    clock = clock or FakeClock()
    generator = random.Random(seed)
    return Sources(
        now_ms=clock.now_ms,
        monotonic=clock.monotonic,
        entropy=generator.randbytes,
        uniform=generator.uniform,
        sleep=clock.sleep,
    )


def fork_and_run(work: Callable[[], object]) -> int:
    """Run `work` in a forked child and wait for it.

    The exit code is 0 if `work` returned, 1 if it raised, and negative if a signal ended it: SIGALRM when it hung.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads at fork are what some tests are about
        child = os.fork()
    if child == 0:
        try:
            signal.alarm(20)
            work()
        except BaseException:  # noqa: BLE001 - a copy of the test run must not go on
            traceback.print_exc(file=sys.__stderr__)
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
