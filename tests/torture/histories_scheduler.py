"""Clients in memory whose every call waits until a seeded choice lets it go on: a run is repeated
by its seed.

Time is the scheduler's too: it passes when nobody can go on, or when the choice falls on those who
sleep. Answers are lost, calls refused and clients killed by the same choice.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from s3k_async.errors import ResponseLostError, S3kError, ThrottledError
from s3k_async.testing import Call, Died, FaultPlan
from tests.support import FakeClock
from tests.torture.model_volume import EVER

__all__ = ["Rates", "Scheduler"]

STEP = 0.001
"""Seconds that a call takes."""
QUIET_TURNS = 2
"""Turns of the loop with nothing to run, after which all wait."""
PATIENCE = 1_000_000
"""Choices after which a run is held for one that never ends."""


@dataclass(frozen=True)
class Rates:
    """How often, of all calls, an answer is lost, a call throttled, and its client killed."""

    lost: float = 0.0
    throttled: float = 0.0
    killed: float = 0.0


@dataclass
class _Waiting:
    go: asyncio.Future[None]
    call: Call
    plan: FaultPlan
    killable: bool


@dataclass
class Scheduler:
    """Lets one call go on at a time."""

    seed: str
    clock: FakeClock
    rates: Rates = Rates()
    faults: Counter[str] = field(default_factory=Counter)
    """What was done to calls so far, by kind."""
    _waiting: list[_Waiting] = field(default_factory=list)
    _asleep: list[tuple[float, asyncio.Future[None]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._choice = random.Random(self.seed)

    def govern(self, plan: FaultPlan, *, killable: bool) -> None:
        """From now on the calls that go through the plan wait for their turn."""

        async def gate(call: Call) -> None:
            go = asyncio.get_running_loop().create_future()
            self._waiting.append(_Waiting(go, call, plan, killable))
            await go

        plan.gate = gate

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock, which others move, has come so far."""
        wake = asyncio.get_running_loop().create_future()
        self._asleep.append((self.clock.seconds + seconds, wake))
        await wake

    async def run(self, work: Callable[[], Awaitable[object]]) -> None:
        """Let the calls of `work` go on, one after the other, until it has ended."""
        task = asyncio.ensure_future(work())
        for _ in range(PATIENCE):
            await self._until_all_wait(task)
            if task.done():
                await task
                return
            self._next()
        raise AssertionError("the run does not end")

    async def _until_all_wait(self, task: asyncio.Future[Any]) -> None:
        # What the loop is about to run: looking at all tasks took a third of the time of a history.
        ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
        quiet = 0
        while not task.done() and quiet < QUIET_TURNS:
            quiet = 0 if ready else quiet + 1
            await asyncio.sleep(0)

    def _next(self) -> None:
        self._waiting = [each for each in self._waiting if not each.go.done()]
        self._asleep = [each for each in self._asleep if not each[1].done()]
        if self._waiting and (not self._asleep or self._choice.random() < 0.95):
            self._let_go(self._waiting.pop(self._choice.randrange(len(self._waiting))))
            return
        assert self._asleep, "nobody can go on"
        until, wake = min(self._asleep, key=lambda each: each[0])
        self._asleep.remove((until, wake))
        self.clock.seconds = max(self.clock.seconds, until)
        wake.set_result(None)

    def _let_go(self, waiting: _Waiting) -> None:
        self.clock.advance(STEP)
        chance = self._choice.random()
        when = self._choice.choice(("before", "after"))
        number = waiting.call.number
        error: S3kError | None = None
        if chance < self.rates.lost:
            error = ResponseLostError("lost")
            self.faults[f"answer lost {when}"] += 1
        elif chance < self.rates.lost + self.rates.throttled:
            error, when = ThrottledError("slower"), "before"
            self.faults["throttled"] += 1
        elif (
            chance < self.rates.lost + self.rates.throttled + self.rates.killed and waiting.killable
        ):
            waiting.plan.die(number, when="before" if when == "before" else "after")
            waiting.plan.fail_when(lambda call: call.number != number, Died("is dead"), times=EVER)
            self.faults["killed"] += 1
        if error is not None:
            waiting.plan.fail(number, error, when="before" if when == "before" else "after")
        waiting.go.set_result(None)
