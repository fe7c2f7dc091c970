"""The executor of decided changes: transactions of the table, logged as one segment.

A transaction in which some conditions failed is sent again without their rows; one that conflicts
with other transactions at every attempt is divided in half. After an unknown outcome, only the rows
of that transaction stay pending in the log.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from typing import Protocol, TypeAlias

from anyio.lowlevel import checkpoint_if_cancelled

from s3k_async._core.concurrency import run_all, to_the_end
from s3k_async.backends.ports.items import MAX_TRANSACTION, Action, Item, ItemStore
from s3k_async.errors import (
    BusyError,
    ConditionFailedError,
    OutcomeUnknownError,
    S3kError,
    TransactionConflictError,
)
from s3k_async.oplog.entries import Operation
from s3k_async.oplog.segments import Operations
from s3k_async.txn.logged_write import LoggedOutcome

__all__ = [
    "ExecutionResult",
    "Lane",
    "Log",
    "Plan",
    "Refusal",
    "Turn",
    "Withheld",
    "by_transaction",
    "execute",
    "unlogged",
]

TRANSACTIONS = 8
"""Concurrent transactions of one segment."""

Refusal: TypeAlias = dict[int, Item | None]
"""The actions of a row whose conditions failed, by role, each with the stored item; none for a row
that was withheld."""
Lane: TypeAlias = Iterable[Sequence[int]]
"""Rows divided into transactions, which are sent one after the other."""
Turn: TypeAlias = Callable[[], Awaitable[None]]
"""Returns when a transaction may be sent."""
Withheld: TypeAlias = Callable[[Sequence[int]], Awaitable[Collection[int]]]
"""The rows of a transaction that must not be sent, by a read right before it."""
LoggedBody: TypeAlias = Callable[[LoggedOutcome], Awaitable[object]]
Log: TypeAlias = Callable[[Operations, LoggedBody], Awaitable[None]]
"""Logs operations around the table writes of a body, which records their outcome:
`LoggedWriter.run_parts` or, to wait for the end after a cancellation, `LoggedWriter.run`."""


class Plan(Protocol):
    """Rows of changes: their log records, and their actions on the table."""

    def __len__(self) -> int:
        """How many rows there are."""

    @property
    def operations(self) -> Sequence[Operation]:
        """The operations to log, for all rows."""

    def identities(self, rows: Iterable[int]) -> list[str]:
        """The operation ids of the rows."""

    def actions(self, rows: Sequence[int]) -> Sequence[Action]:
        """One transaction for the rows."""

    def roles(self, rows: Sequence[int], position: int) -> Iterable[tuple[int, int]]:
        """The rows that the action at a position of `actions(rows)` belongs to, and its role in
        each."""

    def path(self, row: int) -> str:
        """The path in errors about the row."""


@dataclass(slots=True)
class ExecutionResult:
    """The outcome of the rows; rows in no list were never sent."""

    succeeded: list[int] = field(default_factory=list)
    """In no order; each row once."""
    refused: dict[int, Refusal] = field(default_factory=dict)
    failed: dict[int, S3kError] = field(default_factory=dict)
    unknown: set[int] = field(default_factory=set)
    """Rows that may have been changed, including failed ones."""

    def raise_failure(self) -> None:
        """Raise the error of a failed row; refused rows have none."""
        for error in self.failed.values():
            raise error


Confirm: TypeAlias = Callable[[ExecutionResult], Awaitable[object]]


def by_transaction(rows: Sequence[int], width: int = 1) -> list[Sequence[int]]:
    """Rows of `width` actions each, in full transactions."""
    size = MAX_TRANSACTION // width
    return [rows[start : start + size] for start in range(0, len(rows), size)]


async def unlogged(operations: Operations, body: LoggedBody) -> None:  # noqa: ARG001
    """The log for changes that are already logged: writes nothing."""
    await body(LoggedOutcome())


async def execute(
    items: ItemStore,
    log: Log,
    plan: Plan,
    lanes: Sequence[Lane],
    token: Callable[[], str],
    *,
    turn: Turn = checkpoint_if_cancelled,
    withheld: Withheld | None = None,
    confirm: Confirm | None = None,
) -> ExecutionResult:
    """Log the plan's operations as pending, send the transactions of all lanes, and log the
    outcome.

    `turn` is awaited before each transaction; an error of it ends the work. So does a cancellation:
    transactions in flight are awaited, the others are not sent. Withheld rows are refused, without
    items; if that cannot be read, the rows fail. `confirm` reads the entries that
    the successful rows depend on, and moves rows to `unknown` if that fails. Raises S3kError, with
    nothing changed, if the log cannot be written.
    """
    report = ExecutionResult()

    async def body(outcome: LoggedOutcome) -> None:
        work = _PlanExecution(items, plan, token, turn, withheld, report, outcome)
        left = iter(lanes)

        async def go(_: int) -> None:
            for lane in left:  # a task for each lane would cost more than it gives
                await work.go_along(lane)

        try:
            await run_all(go, range(min(TRANSACTIONS, len(lanes))), limit=TRANSACTIONS)
            if confirm is not None:
                await confirm(report)
        finally:
            whole = len(report.succeeded) == len(plan)
            outcome.succeeded = None if whole else set(plan.identities(report.succeeded))
            outcome.unknown = set(plan.identities(report.unknown))

    await log(plan.operations, body)
    return report


@dataclass(slots=True)
class _PlanExecution:
    """The transactions of one plan."""

    items: ItemStore
    plan: Plan
    token: Callable[[], str]
    turn: Turn
    withheld: Withheld | None
    report: ExecutionResult
    outcome: LoggedOutcome

    async def go_along(self, lane: Lane) -> None:
        for rows in lane:
            for part in self._fitting(rows):
                await self._transact(part)

    def _fitting(self, rows: Sequence[int]) -> Iterable[Sequence[int]]:
        """The rows of a transaction, in equal parts if it has no room for its journal and its
        index items."""
        if not self.outcome.has_journal or len(rows) == 1:
            return [rows]
        others = self.outcome.journal_size(self.plan.identities(rows))
        needed = len(self.plan.actions(rows)) + others
        if needed <= MAX_TRANSACTION:
            return [rows]
        size = ceil(len(rows) / ceil(needed / MAX_TRANSACTION))
        parts = (rows[start : start + size] for start in range(0, len(rows), size))
        return [fitting for part in parts for fitting in self._fitting(part)]

    async def _transact(self, rows: Sequence[int]) -> None:
        """Change the rows, excluding those whose conditions fail."""
        left = rows
        while left:
            # A shielded transaction does not detect the cancellation of the others.
            await checkpoint_if_cancelled()
            await self.turn()
            if self.withheld is not None:
                left = await self._without_withheld(left, self.withheld)
                if not left:
                    return
            try:
                await to_the_end(partial(self._send, left))
            except ConditionFailedError as error:
                left = self._without_refused(left, error)
            except TransactionConflictError as error:
                if len(left) == 1:
                    self._fail(left, error, _busy)
                    return
                await self._transact(left[: len(left) // 2])
                left = left[len(left) // 2 :]
            else:
                return

    async def _without_withheld(self, rows: Sequence[int], withheld: Withheld) -> Sequence[int]:
        try:
            kept_back = set(await withheld(rows))
        except S3kError as error:
            self._fail(rows, error)
            return []
        self.report.refused |= {row: {} for row in kept_back}
        return [row for row in rows if row not in kept_back]

    async def _send(self, rows: Sequence[int]) -> None:
        try:
            applied = self.plan.identities(rows) if self.outcome.has_journal else ()
            await self.outcome.transact(self.items, self.plan.actions(rows), self.token, applied)
        except (ConditionFailedError, TransactionConflictError):
            raise
        except OutcomeUnknownError as error:
            self.report.unknown.update(rows)
            message, operation = error.message, error.operation
            self._fail(
                rows,
                error,
                lambda path: OutcomeUnknownError(message, path=path, operation=operation),
            )
        except S3kError as error:
            self._fail(rows, error)
        except BaseException:
            # The event loop ends, or the store fails unexpectedly: the outcome is unknown.
            self.report.unknown.update(rows)
            raise
        else:
            self.report.succeeded.extend(rows)

    def _without_refused(self, rows: Sequence[int], error: ConditionFailedError) -> Sequence[int]:
        refused: dict[int, Refusal] = {}
        changed = len(self.plan.actions(rows))  # the journal follows, whose items are new
        for position, item in error.current.items():
            if position >= changed:
                continue
            for row, role in self.plan.roles(rows, position):
                refused.setdefault(row, {})[role] = item
        if not refused:
            self._fail(rows, error)
            return []
        self.report.refused |= refused
        return [row for row in rows if row not in refused]

    def _fail(
        self, rows: Iterable[int], error: S3kError, as_seen: Callable[[str], S3kError] | None = None
    ) -> None:
        for row in rows:
            self.report.failed[row] = error
            if as_seen is not None:
                self.report.failed[row] = as_seen(self.plan.path(row))
                self.report.failed[row].__cause__ = error


def _busy(path: str) -> BusyError:
    return BusyError(
        "gave up: every attempt conflicted with transactions of other clients", path=path
    )
