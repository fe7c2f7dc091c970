"""A limit on the capacity units that the requests of a run consume in the table.

The units of a request are known only after its answer. A request therefore waits until one unit is
available, and the rest are deducted afterwards: the limit holds on average.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from s3k_async._core.pace import Pace
from s3k_async._core.runtime import Runtime

__all__ = ["CapacityLimit", "current_capacity_limit"]

_READS: Final = frozenset({"BatchGetItem", "GetItem", "Query", "Scan"})


class CapacityLimit:
    """Read and write units per second at most; None: no limit. Belongs to one event loop."""

    def __init__(
        self, read_units: float | None, write_units: float | None, runtime: Runtime
    ) -> None:
        self._reads = Pace(read_units, runtime)
        self._writes = Pace(write_units, runtime)
        self.read_units = 0.0
        """Units that the service has reported."""
        self.write_units = 0.0

    @property
    def is_reported(self) -> bool:
        """Whether the service has reported any consumed units."""
        return self.read_units + self.write_units > 0

    async def turn(self, operation: str) -> None:
        """Wait until a request of this operation may be sent."""
        await self._pace(operation).turn()

    def deduct(self, operation: str, units: float) -> None:
        """Deduct the units that a request consumed, except the one that it waited for."""
        self._pace(operation).deduct(units - 1)
        if operation in _READS:
            self.read_units += units
        else:
            self.write_units += units

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Apply the limit to the requests of the body, and of the tasks that it starts."""
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)

    def _pace(self, operation: str) -> Pace:
        return self._reads if operation in _READS else self._writes


_CURRENT: ContextVar[CapacityLimit | None] = ContextVar("s3k_capacity_limit", default=None)


def current_capacity_limit() -> CapacityLimit | None:
    """The limit of the current run; None without one."""
    return _CURRENT.get()
