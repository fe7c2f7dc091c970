"""Group commit for an event loop: concurrent writes are applied as one batch, whose short steps run
on the event loop and whose long ones, such as syncs, in threads.

A context switch costs more than a few system calls, and each system call of another thread can
cause one: it releases the interpreter lock (GIL), which a busy event loop then holds.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Executor
from functools import partial
from threading import Lock
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from anyio.lowlevel import RunVar

from s3k_async._core.worker_threads import Threads
from s3k_async.errors import S3kError, copy_of

__all__ = ["BatchQueue", "Rounds", "Steps", "rounds_of"]

W = TypeVar("W")
R = TypeVar("R")

_TURNS: Final = 20
"""Iterations of the event loop without another write, after which a round begins: about as many as
a call takes from one write to the next. One iteration of an idle loop takes 1 to 2 µs."""
_MOST_TURNS: Final = 200
"""Iterations after which a round begins in any case, so that a steady stream of writes does not
postpone it."""
_ROUNDS: Final[RunVar[dict[int, Rounds]]] = RunVar("s3k_rounds")

Steps: TypeAlias = Generator[Sequence[Callable[[], Any]], list[Any], Sequence[R | S3kError]]
"""The steps of a batch. The generator yields blocking calls, which run concurrently in threads, and
receives their results; the code in between is short. It returns the outcome of each write. The
first error of the calls is raised at the `yield`."""


class Rounds:
    """The rounds in which the queues of one event loop write to one device.

    A round runs a batch of each queue that has writes and the highest rank, and of each queue that
    the last round skipped; then the next round begins. A call that writes to several queues should
    use them in ascending order of rank: then calls that once waited together proceed together, and
    share every batch.
    """

    def __init__(self) -> None:
        self._waiting: list[Waiting] = []
        self._passed: Sequence[Waiting] = ()
        """Queues that had writes, but were skipped by the last round."""
        self._running = 0
        self._turns = 0
        """Iterations of the event loop until the next round begins, while writes are gathered; each
        further write restarts the count."""
        self._turns_left = 0
        """Iterations until it begins even if writes still arrive."""

    def join(self, queue: Waiting) -> None:
        """Add a queue, which has received its first write."""
        self._waiting.append(queue)
        self.prolong()
        if not self._running and len(self._waiting) == 1:
            self._begin_gathering()

    def prolong(self) -> None:
        """Wait again for further writes, since one has arrived."""
        self._turns = _TURNS

    def batch_ended(self) -> None:
        """Note the end of a batch; after the last one of a round, begin the next."""
        self._running -= 1
        if not self._running and self._waiting:
            self._begin_gathering()

    def _begin_gathering(self) -> None:
        self._turns = _TURNS
        self._turns_left = _MOST_TURNS
        self._gather()

    def _gather(self) -> None:
        self._turns -= 1
        self._turns_left -= 1
        if self._turns > 0 and self._turns_left > 0:
            # Not an attribute: what a loop keeps must not refer to the loop, or it is never freed.
            asyncio.get_running_loop().call_soon(self._gather)
            return
        highest = max(queue.rank for queue in self._waiting)
        passed = self._passed
        first = [each for each in self._waiting if each.rank == highest or each in passed]
        self._waiting = [each for each in self._waiting if each not in first]
        self._passed = tuple(self._waiting)
        self._running = len(first)
        for queue in first:
            queue.begin()


class Waiting(Protocol):
    """A queue with writes."""

    @property
    def rank(self) -> int: ...

    def begin(self) -> None:
        """Begin a batch; its end calls `Rounds.batch_ended`."""


def rounds_of(path: str) -> Rounds:
    """The rounds of the running event loop for the device of a directory. The directory may be
    missing."""
    while not os.path.exists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    known = _ROUNDS.get(None)
    if known is None:
        _ROUNDS.set(known := {})
    return known.setdefault(os.stat(path).st_dev, Rounds())


class BatchQueue(Generic[W, R]):
    """Queue of the writes of one event loop. The writes that wait when its turn comes are a batch,
    of at most `most`.

    `apply` makes a batch durable. If it raises, nothing of the batch was applied (or the error says
    that this is unknown), and every write of it fails with the error.
    """

    def __init__(
        self,
        apply: Callable[[Sequence[W]], Steps[R]],
        threads: Threads,
        executor: Executor,
        rounds: Rounds,
        *,
        rank: int,
        most: int = 256,
    ) -> None:
        """`threads` runs the short steps while they are slow; `executor` runs the blocking
        calls."""
        self.rank = rank
        self._apply = apply
        self._threads = threads
        self._executor = executor
        self._rounds = rounds
        self._most = most
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[W, asyncio.Future[R]]] = deque()
        self._idle: asyncio.Event = asyncio.Event()
        self._idle.set()

    def submit(self, write: W) -> asyncio.Future[R]:
        """Queue a write: the future is done when it is durable or refused. A write whose future is
        cancelled before its batch is dropped."""
        future: asyncio.Future[R] = self._loop.create_future()
        self._waiting.append((write, future))
        self._idle.clear()
        if len(self._waiting) == 1:
            self._rounds.join(self)
        else:
            self._rounds.prolong()
        return future

    async def drained(self) -> None:
        """Wait until nothing is being written."""
        await self._idle.wait()

    def begin(self) -> None:
        """As `Waiting.begin`."""
        batch: list[tuple[W, asyncio.Future[R]]] = []
        while self._waiting and len(batch) < self._most:
            each = self._waiting.popleft()
            if not each[1].done():
                batch.append(each)
        if self._waiting:
            self._rounds.join(self)
        steps = self._apply([write for write, _ in batch])
        run = _RunningBatch(steps, self._threads, self._executor, partial(self._end, batch))
        run.resume()

    def _end(
        self,
        batch: Sequence[tuple[W, asyncio.Future[R]]],
        outcomes: Sequence[R | S3kError] | BaseException,
    ) -> None:
        """Resolve the futures of a batch."""
        if not self._waiting:
            self._idle.set()
        self._rounds.batch_ended()
        for number, (_, future) in enumerate(batch):
            if future.done():  # cancelled
                continue

            outcome: R | BaseException = (
                copy_of(outcomes) if isinstance(outcomes, BaseException) else outcomes[number]
            )
            if isinstance(outcome, BaseException):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)


class _RunningBatch(Generic[R]):
    """The steps of one batch, driven by callbacks, so that the cancellation of a task does not end
    them."""

    def __init__(
        self,
        steps: Steps[R],
        threads: Threads,
        executor: Executor,
        end: Callable[[Sequence[R | S3kError] | BaseException], None],
    ) -> None:
        """`end` is called on the event loop with the outcomes, or the error of the batch."""
        self._steps = steps
        self._threads = threads
        self._executor = executor
        self._end = end
        self._loop = asyncio.get_running_loop()
        self._lock = Lock()
        self._is_begun = False
        self._results: list[Any] = []
        self._error: BaseException | None = None
        self._running = 0

    def resume(self) -> None:
        """Run the next step on the event loop, or in a thread while such steps are slow."""
        if self._threads.is_paused:
            self._submit(self._step, self._call_back)
            return
        with self._threads.short_step():
            self._step(self._loop.call_soon)

    def _step(self, schedule: Callable[[Callable[[], object]], object]) -> None:
        """Run the next step. `schedule` passes a call to the event loop."""
        results, error = self._results, self._error
        self._error = None
        try:
            if error is not None:
                calls = self._steps.throw(error)
            elif self._is_begun:
                calls = self._steps.send(results)
            else:
                self._is_begun = True
                calls = next(self._steps)
        except StopIteration as ended:
            schedule(partial(self._end, ended.value))
        except BaseException as failure:  # noqa: BLE001 - for the waiters
            schedule(partial(self._end, failure))
        else:
            self._results = [None] * len(calls)
            self._running = len(calls)
            if not calls:
                schedule(self.resume)
            self._start(calls)

    def _start(self, calls: Sequence[Callable[[], Any]]) -> None:
        for number, call in enumerate(calls):
            self._submit(self._run, number, call)

    def _submit(self, work: Callable[..., object], *arguments: object) -> None:
        """Run in a thread, or in this one if no new ones can start since the interpreter is
        exiting."""
        try:
            self._executor.submit(work, *arguments)
        except RuntimeError:
            work(*arguments)

    def _run(self, number: int, call: Callable[[], Any]) -> None:
        """Run one of the calls, in a thread. The last one to end resumes the steps."""
        try:
            self._results[number] = call()
        except BaseException as error:  # noqa: BLE001 - raised in the steps
            self._error = error
        with self._lock:
            self._running -= 1
            is_last = self._running == 0
        if is_last:
            self._call_back(self.resume)

    def _call_back(self, call: Callable[[], object]) -> None:
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:  # the event loop is closed: nothing waits any more
            self._steps.close()
