"""Limits of the capacity units that a job consumes in the table, divided among its tasks.

Tasks do not communicate, so each gets an equal share of the limit for the whole job. Unused
shares are not redistributed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import astuple, dataclass
from typing import Final, Protocol, TypeVar

from s3k_async._core.capacity_limit import CapacityLimit
from s3k_async._core.runtime import SYSTEM, Runtime
from s3k_async.errors import InvalidArgumentError
from s3k_async.volumes import Volume
from s3k_async.volumes.table_capacity import need_reported

__all__ = ["UNLIMITED", "Run", "UnitLimits"]

T = TypeVar("T")


class Run(Protocol):
    """Awaits a call on the loop of this process."""

    def __call__(self, call: Callable[[], Awaitable[T]], /) -> T: ...


@dataclass(frozen=True, slots=True)
class UnitLimits:
    """Maximum read and write units of the table per second, on average over some seconds; None: no
    limit. Raises InvalidArgumentError for a limit that is not positive."""

    read_units: float | None = None
    write_units: float | None = None

    def __post_init__(self) -> None:
        for units in astuple(self):
            if units is not None and not units > 0:
                raise InvalidArgumentError(
                    f"a limit of capacity units must be above 0, not {units}"
                )

    def __bool__(self) -> bool:
        return any(units is not None for units in astuple(self))

    def share(self, tasks: int) -> UnitLimits:
        """The limits of each of `tasks` tasks that run at the same time. Raises
        InvalidArgumentError if one is below a unit per second."""
        for kind, units in zip(("read", "write"), astuple(self), strict=True):
            if units is not None and units < tasks:
                raise InvalidArgumentError(
                    f"{units:g} {kind} units per second are less than one for each of {tasks} "
                    f"concurrent tasks: use fewer tasks, or a limit of at least {tasks}"
                )
        read, write = (
            None if units is None else units / tasks
            for units in (self.read_units, self.write_units)
        )
        return UnitLimits(read, write)

    def limited(self, run: Run, runtime: Runtime = SYSTEM) -> LimitedRun:
        """The function that runs coroutines within the limits."""
        made = CapacityLimit(self.read_units, self.write_units, runtime) if self else None
        return LimitedRun(run, made)


class LimitedRun:
    """As Run; the requests of the calls, and of the tasks that they start, share one limit."""

    def __init__(self, run: Run, limit: CapacityLimit | None) -> None:
        self._run = run
        self._limit = limit

    def __call__(self, call: Callable[[], Awaitable[T]], /) -> T:
        limit = self._limit
        if limit is None:
            return self._run(call)

        async def within() -> T:
            with limit.applied():
                return await call()

        return self._run(within)

    def check(self, volume: Volume) -> None:
        """Raises UnsupportedError if the limits have no effect in the table of an opened volume."""
        if self._limit is not None:
            need_reported(self._limit, volume)


UNLIMITED: Final = UnitLimits()
