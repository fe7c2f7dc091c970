"""Faults on demand: every call of the stores that share a plan is numbered, and any of them can
fail."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, TypeAlias

from anyio.lowlevel import checkpoint

__all__ = ["Call", "Died", "FaultPlan", "Moment", "guarded"]

Moment: TypeAlias = Literal["before", "after"]
"""Before the call is applied (nothing happened), or after it (what is lost is the answer)."""


class Died(BaseException):
    """The process is taken to have died here: no handler of ours may run on as if it were an
    error."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a store: its number within the plan (from 1), and what was asked."""

    number: int
    store: str
    method: str
    key: str
    """The key asked for; of a transaction or batch, the first one; the partition or prefix of a
    listing."""


@dataclass(slots=True)
class _Fault:
    matches: Callable[[Call], bool]
    error: BaseException
    when: Moment
    times: int


class FaultPlan:
    """Numbers the calls of all stores that share it and fails those it was told to.

    `calls` is the record so far. `gate`, if set, is awaited with each call before anything happens
    to it, so that a test can hold one task there while another proceeds.
    """

    def __init__(self, gate: Callable[[Call], Awaitable[None]] | None = None) -> None:
        self.gate = gate
        self.calls: list[Call] = []
        self._faults: list[_Fault] = []
        self._refused: dict[str, Exception] = {}

    def fail(self, number: int, error: BaseException, *, when: Moment = "before") -> None:
        """Make call `number` raise `error`, before or after it is applied."""
        self.fail_when(lambda call: call.number == number, error, when=when)

    def die(self, number: int, *, when: Moment = "before") -> None:
        """Make call `number` raise Died, before or after it is applied."""
        self.fail(number, Died(f"died {when} call {number}"), when=when)

    def fail_when(
        self,
        matches: Callable[[Call], bool],
        error: BaseException,
        *,
        when: Moment = "before",
        times: int = 1,
    ) -> None:
        """Make the next `times` calls that match raise `error`."""
        self._faults.append(_Fault(matches, error, when, times))

    def refuse(self, key: str, error: Exception) -> None:
        """Make every `delete_many` leave this key, with `error` as the reason."""
        self._refused[key] = error

    def refusal(self, key: str) -> Exception | None:
        """Why `delete_many` leaves the key, or None."""
        return self._refused.get(key)

    def _take(self, call: Call, when: Moment) -> BaseException | None:
        for fault in self._faults:
            if fault.when == when and fault.times > 0 and fault.matches(call):
                fault.times -= 1
                return fault.error
        return None


class _Guarded:
    """The body is the application of one call. Its own failure is an answer, too, and is lost with
    it."""

    __slots__ = ("_call", "_plan")

    def __init__(self, plan: FaultPlan, store: str, method: str, key: str) -> None:
        self._plan = plan
        self._call = Call(len(plan.calls) + 1, store, method, key)
        plan.calls.append(self._call)

    async def __aenter__(self) -> None:
        if self._plan.gate is not None:
            await self._plan.gate(self._call)
        await checkpoint()
        error = self._plan._take(self._call, "before")
        if error is not None:
            raise error

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        error = self._plan._take(self._call, "after")
        if error is not None:
            raise error
        await checkpoint()


class _Unguarded:
    """Between request and answer other tasks run, as they would around a real store."""

    __slots__ = ()

    async def __aenter__(self) -> None:
        await checkpoint()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if raised is None:
            await checkpoint()


def guarded(
    plan: FaultPlan | None, store: str, method: str, key: str
) -> contextlib.AbstractAsyncContextManager[None, None]:
    """Wrap the application of one call to `store`; without a plan, only the points where other
    tasks may run."""
    return _Unguarded() if plan is None else _Guarded(plan, store, method, key)
