"""What several tests need: time and randomness that they control, a forked child, a program that
may hang."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import traceback
import warnings
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest
from anyio.lowlevel import checkpoint

from s3k_async._core.runtime import Runtime
from s3k_async.testing import Call, FaultPlan

__all__ = ["FakeClock", "fake_runtime", "fork_and_run", "run_program", "under"]

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[1]


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


def fake_runtime(clock: FakeClock | None = None, *, seed: int | str = 0) -> Runtime:
    """A runtime over `clock` (a new one unless given); the same seed repeats its randomness."""
    clock = clock or FakeClock()
    generator = random.Random(seed)
    return Runtime(
        now_ms=clock.now_ms,
        monotonic=clock.monotonic,
        entropy=generator.randbytes,
        uniform=generator.uniform,
        sleep=clock.sleep,
        file_ms=lambda _: clock.now_ms(),
    )


def fork_and_run(work: Callable[[], object]) -> int:
    """Run `work` in a forked child and wait for it.

    The exit code is 0 if `work` returned, 1 if it raised, and negative if a signal ended it:
    SIGALRM when it hung.
    """
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # threads at fork are what some tests are about
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


def run_program(*arguments: str, limit: float) -> str:
    """Run Python with these arguments, in a session of its own, and return all that it printed.

    Fails if it ends with another code than 0, or has not ended within `limit` seconds; then what it
    started ends with it.
    """
    program = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = program.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(program.pid, signal.SIGKILL)
        output, _ = program.communicate()
        pytest.fail(f"hung for {limit} seconds: {output}", pytrace=False)
    assert program.returncode == 0, output
    return output


async def under(faults: FaultPlan | None, call: Awaitable[T]) -> T:
    """What the call returns; the volumes that it opens go through the plan."""
    with (faults or FaultPlan()).injected():
        return await call


def from_call(number: int) -> Callable[[Call], bool]:
    """Whether a call is that of a number, or a later one; for `FaultPlan.fail_when`."""
    return lambda call: call.number >= number


def after_call(number: int) -> Callable[[Call], bool]:
    """Whether a call is later than that of a number."""
    return lambda call: call.number > number
