"""How much of each row is measured."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.measuring import Run

__all__ = ["CANNED_PROCESSOR", "CLIENT_PROCESSOR", "Scope", "plain"]

_PROCESSORS = sorted(os.sched_getaffinity(0))
CLIENT_PROCESSOR = _PROCESSORS[0] if len(_PROCESSORS) > 1 else None
CANNED_PROCESSOR = _PROCESSORS[-1] if len(_PROCESSORS) > 1 else None
"""Against the canned server the client has one processor and the server another."""


@dataclass(frozen=True)
class Scope:
    """The whole run, or the quick one."""

    quick: bool
    rounds: int
    large: bool = False
    """Whether rows that have an optional size measure it as well."""

    def pick(self, quick: Any, full: Any) -> Any:
        """One of two sizes."""
        return quick if self.quick else full


def plain(work: Callable[[], object]) -> Run:
    """Work that does not wait, as a run."""

    async def run() -> object:
        return work()

    return run


def several(times: int, work: Callable[[], object]) -> Run:
    """Short work, so many times in one repetition."""

    async def run() -> None:
        for _ in range(times):
            work()

    return run


Teardown = Callable[[], Awaitable[object]]
