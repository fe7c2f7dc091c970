"""Group commit of the log: the operations of concurrent calls share log objects.

A single operation gets an object of its own at once: after a few iterations of the event loop, some
microseconds, without another one. Those that begin while one is being written wait for it, and are
written together as a segment, which is marked when the outcome of each of them is known. An
operation that takes longer than GROUP_SECONDS gets an entry of its own, so that the mark of the
others does not wait for it.

A few operations that wait while the outcome of more is open wait until they are as many, since
those that end are followed by others: at most as long as the last write took. ENOUGH_CALLS wait for
nothing, not even for the end of the write of another group.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from s3k_async._core.concurrency import gather
from s3k_async._core.metering import deferred
from s3k_async._core.runtime import Runtime
from s3k_async.errors import S3kError, copy_of
from s3k_async.oplog.entries import Operation, numbered_segment
from s3k_async.oplog.pending_log import (
    OBJECTS_AT_ONCE,
    EntryObject,
    HeldLog,
    LogObject,
    PendingLog,
    PendingObjects,
    SegmentObject,
    decided,
)
from s3k_async.oplog.segments import segment_lines

__all__ = [
    "ENOUGH_CALLS",
    "GROUPED_BYTES",
    "GROUPED_CALLS",
    "GROUPED_OPERATIONS",
    "GROUP_SECONDS",
    "MOST_WAIT_SECONDS",
    "WRITES",
    "GroupCommit",
]

GROUPED_OPERATIONS: Final = 8
"""Most operations of one call that are grouped with those of others."""
GROUP_SECONDS: Final = 1.0
"""Seconds after which a group is marked without the operations whose outcome is still open."""
GROUPED_CALLS: Final = 256
"""Most calls in one group."""
GROUPED_BYTES: Final = 8 * 1024 * 1024
"""Most bytes of a group's operations, as of other segments: readers refuse objects of twice that
size. Only long paths reach it before the number of calls."""
ENOUGH_CALLS: Final = 16
"""Calls that are written although another group is being written: so many that a call's share of
the two objects of a group is small."""
WRITES: Final = 4
"""Most objects that are written at once."""
_GROUPS: Final = 64
"""Groups without a mark; the next one waits until one of them has it."""
MOST_WAIT_SECONDS: Final = 0.25
"""Seconds that operations wait for the end of another write, so that a request that hangs does not
hold up all that come after it."""
_LINGER_SECONDS: Final = 0.05
"""Most seconds that a few operations wait for others while nothing is being written."""
_TURNS: Final = 20
"""Iterations of the event loop without another call, after which a group is written while the log
is idle. Calls whose writes ended together, as in one commit of SQLite, begin the next ones within
about as many."""
_TURNS_ALONE: Final = 1
"""Likewise if the last group had one call, as when there is only one at a time."""

_logger = logging.getLogger(__name__)


class GroupWriter(Protocol):
    """The part of the log's writer that groups need."""

    def objects(self, operations: Sequence[Operation]) -> list[LogObject]:
        """The objects of operations that are not grouped. Raises LogFormatError for an operation
        that contradicts itself."""

    def pending(self, objects: Sequence[LogObject]) -> PendingObjects:
        """The operations in objects that were written, or may have been."""

    async def write(self, objects: Sequence[LogObject]) -> PendingObjects:
        """Write pending objects. Raises as `OperationLog.begin`."""


class GroupCommit:
    """The groups of one log. Belongs to one event loop and one process."""

    def __init__(self, writer: GroupWriter, runtime: Runtime) -> None:
        self._writer = writer
        self._runtime = runtime
        self._series = ""
        """The first part of the ids of its segments."""
        self._number = 0
        self._writes = 0
        """Objects that are being written."""
        self._waiting: deque[_Grouped] = deque()
        self._is_gathering = False
        """Whether the first call of a group gives others a few iterations to join it."""
        self._turns = _TURNS_ALONE
        self._open = 0
        """Calls in groups that are written, but not settled."""
        self._seconds = 0.0
        """The time that the last write took."""
        self._timer: asyncio.Handle | None = None
        self._due = 0.0
        """The time of the event loop at which the timer is due."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self._pid = 0

    async def begin(self, operations: Sequence[Operation]) -> PendingLog:
        """Write the operations of one call as pending: at once, or in the next group. Raises as
        `OperationLog.begin`."""
        if self._is_idle and not self._is_gathering:
            await self._gather()
            if self._is_idle:
                self._turns = _TURNS_ALONE
                objects = self._writer.objects(operations)
                with self._writing():
                    return await self._writer.write(objects)
        call = _Grouped(self._writer, operations)
        self._waiting.append(call)
        self._write_next()
        return await call.begun()

    async def drained(self) -> None:
        """Wait until all groups have their marks. Raises unexpected errors."""
        while self._tasks and self._pid == os.getpid():
            await asyncio.wait(set(self._tasks))
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def close(self) -> None:
        """As `drained`; if cancelled, it does not wait for open outcomes."""
        try:
            await self.drained()
        except asyncio.CancelledError:
            for task in self._tasks:
                task.cancel()
            raise

    def settled(self) -> None:
        """The outcome of one call of a written group is known."""
        self._open -= 1
        self._write_next()

    @property
    def _is_idle(self) -> bool:
        return not (self._writes or self._waiting or self._open)

    async def _gather(self) -> None:
        """Let the calls that begin at about the same time wait for the caller's."""
        loop = asyncio.get_running_loop()
        gathered: asyncio.Future[None] = loop.create_future()
        self._is_gathering = True
        self._count_turn(gathered, self._turns, 0)
        try:
            await gathered
        except asyncio.CancelledError:
            loop.call_soon(self._write_next)
            raise
        finally:
            self._is_gathering = False

    def _count_turn(self, gathered: asyncio.Future[None], turns: int, seen: int) -> None:
        """End gathering after so many further iterations of the event loop without another call, or
        when an object is being written. `seen`: calls that waited in the last iteration."""
        if gathered.done():  # cancelled
            return
        if len(self._waiting) > seen:
            turns, seen = _TURNS, len(self._waiting)
        if turns and not self._writes:
            asyncio.get_running_loop().call_soon(self._count_turn, gathered, turns - 1, seen)
        else:
            gathered.set_result(None)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """The time in which an object is being written."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._writes += 1
        try:
            yield
        finally:
            self._writes -= 1
            self._seconds = loop.time() - began
            self._write_next()

    def _write_next(self, *, overdue: bool = False) -> None:
        """Start writing the calls that wait, if it is time."""
        if overdue:
            self._timer = None
        if not self._waiting or len(self._tasks) >= _GROUPS:
            return
        is_due = overdue or len(self._waiting) >= ENOUGH_CALLS
        if self._is_gathering and not is_due:
            return
        if self._writes >= (WRITES if is_due else 1):
            self._write_within(MOST_WAIT_SECONDS)
            return
        if len(self._waiting) < self._open and not is_due:
            self._write_within(min(self._seconds, _LINGER_SECONDS))
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if calls := self._taken():
            self._turns = _TURNS if len(calls) > 1 else _TURNS_ALONE
            self._pid = os.getpid()
            writing = ExitStack()
            writing.enter_context(self._writing())
            # The first call's context: the request is counted as one of its own.
            task = asyncio.create_task(self._run(calls, writing), context=calls[0].context)
            self._tasks.add(task)
            task.add_done_callback(partial(self._ended, calls, writing))

    def _write_within(self, seconds: float) -> None:
        """Start writing the calls that wait so much later, if nothing does it before."""
        loop = asyncio.get_running_loop()
        due = loop.time() + seconds
        if self._timer is not None:
            if self._due <= due:
                return
            self._timer.cancel()
        self._due = due
        self._timer = loop.call_at(due, partial(self._write_next, overdue=True))

    def _taken(self) -> list[_Grouped]:
        """The next calls of those that wait; no two of them have the same operation."""
        calls: list[_Grouped] = []
        ids: set[str] = set()
        size = 0
        while self._waiting and len(calls) < GROUPED_CALLS:
            call = self._waiting[0]
            if not call.is_given_up:
                size += len(call.lines)
                if not ids.isdisjoint(call.ids) or (calls and size > GROUPED_BYTES):
                    break
                ids.update(call.ids)
                calls.append(call)
            self._waiting.popleft()
        return calls

    async def _run(self, calls: Sequence[_Grouped], writing: ExitStack) -> None:
        """Write a group, wait for the outcome of its operations, and mark it. `writing`: closed
        when it is written."""
        try:
            with writing:
                pending = await self._writer.write(self._objects(calls))
                self._open += len(calls)
            await _Group(pending, calls, self.settled).end()
        except BaseException as error:
            for call in calls:
                call.refuse(error)
            if not isinstance(error, S3kError):
                raise

    def _objects(self, calls: Sequence[_Grouped]) -> list[LogObject]:
        if len(calls) == 1:
            return self._writer.objects(calls[0].operations)
        self._series = self._series or self._runtime.uuid()
        self._number += 1
        segment = numbered_segment(self._series, self._number)
        ids = [each for call in calls for each in call.ids]
        return [SegmentObject(segment, ids, b"".join(call.lines for call in calls))]

    def _ended(
        self, calls: Sequence[_Grouped], writing: ExitStack, task: asyncio.Task[None]
    ) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            # Perhaps before its first step: then it has done neither.
            for call in calls:
                call.refuse(asyncio.CancelledError())
            writing.close()
        self._write_next()
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._failure = self._failure or failure


class _Group:
    """A group whose pending objects are written."""

    def __init__(
        self,
        pending: PendingObjects,
        calls: Sequence[_Grouped],
        settled: Callable[[], object],
    ) -> None:
        """`settled`: called for each call whose outcome is known."""
        loop = asyncio.get_running_loop()
        self.marked: asyncio.Future[bool] = loop.create_future()
        """Whether the mark, or the removal, was written."""
        self._all: asyncio.Future[None] = loop.create_future()
        self._pending = pending
        self._settled = settled
        self._open = dict.fromkeys(calls)
        self._is_shared = len(calls) > 1
        self._is_kept = False
        """Whether the only call ends the objects itself."""
        self._succeeded: set[str] = set()
        self._unknown: set[str] = set()
        for call in calls:
            call.start(self)

    def settle(
        self, call: _Grouped, succeeded: Collection[str], unknown: Collection[str] = ()
    ) -> None:
        """Note the outcome of a call's operations; those in neither were not applied."""
        del self._open[call]
        self._succeeded.update(succeeded)
        self._unknown.update(unknown)
        if not self._open and not self._all.done():
            self._all.set_result(None)
        self._settled()

    async def end(self) -> None:
        """Wait for the outcomes, and mark the group. If cancelled, as at the end of the event loop,
        it is marked at once. A slow call that shares its objects with no other keeps them."""
        try:
            has_all = (await asyncio.wait({self._all}, timeout=GROUP_SECONDS))[0]
            if self._is_shared and not has_all:
                await gather(_Grouped.move, list(self._open), limit=OBJECTS_AT_ONCE)
        finally:
            for call in list(self._open):
                if self._is_shared:
                    call.leave(is_open=True)
                else:
                    # The entry of its own would be the same object, which the mark removes.
                    self._is_kept = True
                    call.keep(self._pending)
            if not self._is_kept:
                await self._mark()

    async def _mark(self) -> None:
        marked = False
        write = partial(self._pending.commit, self._succeeded, unknown=self._unknown)
        try:
            with deferred():
                try:
                    marked = await write()
                except asyncio.CancelledError:
                    # The event loop is ending, and may have cancelled the write itself. A second
                    # one leaves the same object.
                    marked = await write()
        finally:
            self.marked.set_result(marked)


class _Grouped:
    """PendingLog of one call's operations in a group."""

    def __init__(self, writer: GroupWriter, operations: Sequence[Operation]) -> None:
        # Encoded here, an invalid one fails this call alone.
        self.lines = segment_lines(operations, 0, len(operations))
        self.operations = operations
        self.ids = [operation.id for operation in operations]
        self.context = copy_context()
        self.is_given_up = False
        """Whether the call was cancelled before it learnt that its operations are pending."""
        self._writer = writer
        self._begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._group: _Group | None = None
        self._moved: asyncio.Future[PendingObjects] | None = None
        self._is_settled = False

    async def begun(self) -> PendingLog:
        """Wait until the operations are pending. Raises the errors of the write."""
        try:
            await self._begun
        except asyncio.CancelledError:
            self.is_given_up = True
            if self._group is not None:
                await self.rollback()
            raise
        return self

    def start(self, group: _Group) -> None:
        """The operations are pending."""
        self._group = group
        if self.is_given_up:
            self._settle(())
        elif not self._begun.done():
            self._begun.set_result(None)

    def refuse(self, error: BaseException) -> None:
        """The operations could not be written, unless they are pending already."""
        if self._begun.done():
            return
        if isinstance(error, asyncio.CancelledError):
            self._begun.cancel()
            return
        self._begun.set_exception(copy_of(error))
        # otherwise asyncio would report an exception that was never retrieved if the call is
        # cancelled now
        self._begun.exception()

    async def move(self) -> None:
        """Give open operations entries of their own, so that the group can be marked without
        them."""
        if self._is_settled:
            return
        self._moved = asyncio.get_running_loop().create_future()
        is_open = True
        try:
            await self._writer.write(self._entries())
            is_open = False
        except S3kError as error:
            _logger.warning("operation log: an open operation stays in its group: %s", error)
        finally:
            self.leave(is_open=is_open)

    def leave(self, *, is_open: bool) -> None:
        """From now on the outcome is recorded outside the group. `is_open`: in its mark the
        operations have an unknown outcome; otherwise the mark does not name them."""
        pending = self._writer.pending(self._entries())
        if self._moved is None:
            self._moved = asyncio.get_running_loop().create_future()
        self._moved.set_result(pending)
        self._in_group.settle(self, (), self.ids if is_open else ())

    def keep(self, pending: PendingObjects) -> None:
        """From now on the outcome is recorded in the group's objects, which hold nothing else."""
        self._moved = asyncio.get_running_loop().create_future()
        self._moved.set_result(pending)
        self._in_group.settle(self, ())

    async def commit(
        self, succeeded: Collection[str] | None = None, *, unknown: Collection[str] = ()
    ) -> bool:
        if self._moved is not None:
            return await (await asyncio.shield(self._moved)).commit(succeeded, unknown=unknown)
        self._settle(*decided(self.ids, succeeded, unknown))
        return await asyncio.shield(self._in_group.marked)

    async def commit_later(
        self, succeeded: Collection[str] | None = None, *, unknown: Collection[str] = ()
    ) -> None:
        if self._moved is not None:
            await (await asyncio.shield(self._moved)).commit_later(succeeded, unknown=unknown)
        else:
            self._settle(*decided(self.ids, succeeded, unknown))

    def hold(self, succeeded: Collection[str] | None = None) -> HeldLog:
        decided(self.ids, succeeded, ())
        return _HeldGrouped(self, succeeded)

    def abandon(self) -> None:
        if self._moved is None:
            self._settle((), self.ids)

    async def rollback(self) -> bool:
        if self._moved is not None:
            return await (await asyncio.shield(self._moved)).rollback()
        if self._is_settled:
            _logger.warning("operation log: a rollback after the commit was asked for and refused")
            return False
        self._settle(())
        return True

    def _entries(self) -> list[LogObject]:
        """Entries, not a segment: their committed objects can be read without the pending ones."""
        return [EntryObject(operation) for operation in self.operations]

    @property
    def _in_group(self) -> _Group:
        assert self._group is not None, "the operations are not pending yet"
        return self._group

    def _settle(self, succeeded: Collection[str], unknown: Collection[str] = ()) -> None:
        self._is_settled = True
        self._in_group.settle(self, succeeded, unknown)


@dataclass(frozen=True, slots=True)
class _HeldGrouped:
    """HeldLog of one call's operations in a group."""

    _call: _Grouped
    _succeeded: Collection[str] | None

    async def commit_later(self) -> None:
        await self._call.commit_later(self._succeeded)

    async def rollback(self) -> bool:
        return await self._call.rollback()
