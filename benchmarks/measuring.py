"""Contenders in turn, round by round: times of each, medians and spread."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

__all__ = ["Case", "Clock", "Result", "Run", "measure"]

Clock = Literal["wall", "processor"]
"""What counts: seconds that pass, or seconds of this process's processor time where it works alone
and never waits."""

Run = Callable[[], Awaitable[object]]
"""One repetition of a contender's work. What it returns must be `Case.expected`, if that is given.
"""


@dataclass(frozen=True)
class Case:
    """The same work for several contenders."""

    row: str
    """What is measured, such as `list`."""
    case: str
    """Of what size and where, such as `100,000 entries, 16 suffixes, 0 ms`."""
    amount: int
    """Units of work of one repetition."""
    unit: str
    """Such as `entries`; results are in units a second."""
    contenders: Mapping[str, Run]
    baseline: str = "aiobotocore"
    rounds: int = 5
    before: Callable[[str], Awaitable[object]] | None = None
    """What makes things ready for a contender's next repetition; not timed."""
    expected: object = None
    warm: bool = True
    """Whether one round goes before those that count."""
    limit: str = ""
    """What the other side can do at most, where that is known."""
    clock: Clock = "wall"
    collector: bool = True
    """Whether garbage is collected meanwhile: what that costs depends on all that the process
    holds."""


@dataclass(frozen=True)
class Result:
    """What one contender needed: seconds of each repetition by the clock and of this process's
    processor time."""

    row: str
    case: str
    contender: str
    amount: int
    unit: str
    seconds: list[float]
    processor: list[float]
    baseline: str
    limit: str = ""
    clock: Clock = "wall"
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def times(self) -> list[float]:
        """Seconds of each repetition, by the clock that counts."""
        return self.seconds if self.clock == "wall" else self.processor

    @property
    def median(self) -> float:
        """Seconds of the median repetition."""
        return statistics.median(self.times)

    @property
    def rate(self) -> float:
        """Units a second, at the median."""
        return self.amount / self.median

    @property
    def spread(self) -> tuple[float, float]:
        """Units a second of the slowest and the fastest repetition."""
        return self.amount / max(self.times), self.amount / min(self.times)

    def as_json(self) -> dict[str, Any]:
        """The result with its figures rounded."""
        times = {
            name: [round(value, 9) for value in getattr(self, name)]
            for name in ("seconds", "processor")
        }
        return {**asdict(self), **times}


async def measure(case: Case) -> list[Result]:
    """Run every contender in turn, `rounds` times; each round begins with another one."""
    names = list(case.contenders)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    processor: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(-1 if case.warm else 0, case.rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            if case.before is not None:
                await case.before(name)
            wall, busy = await _once(case, name)
            if turn >= 0:
                seconds[name].append(wall)
                processor[name].append(busy)
    return [
        Result(
            case.row,
            case.case,
            name,
            case.amount,
            case.unit,
            seconds[name],
            processor[name],
            case.baseline,
            case.limit,
            case.clock,
        )
        for name in names
    ]


async def _once(case: Case, name: str) -> tuple[float, float]:
    gc.collect()
    if not case.collector:
        gc.disable()
    # what the benchmark itself holds is no contender's garbage, and is not searched again
    gc.freeze()
    try:
        began, busy = time.perf_counter(), time.process_time()
        answer = await case.contenders[name]()
        wall, busy = time.perf_counter() - began, time.process_time() - busy
    finally:
        gc.enable()
    if case.expected is not None and answer != case.expected:
        raise AssertionError(
            f"{case.row}, {case.case}: {name} did {answer!r} instead of {case.expected!r}"
        )
    return wall, busy
