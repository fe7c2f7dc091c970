"""The event loop of blocking callers, in a daemon thread of this process.

It is started by the first call. A forked child makes one of its own and neither uses nor frees what
it inherited, because closing an inherited selector or connection would disturb the parent.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import logging
import os
import threading
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from s3k_async.errors import ClosedClientError, ForkedClientError, WrongLoopError

__all__ = ["Bridge", "current_bridge", "run_on"]

_LOG = logging.getLogger(__name__)

T = TypeVar("T")

THREAD_NAME: Final = "s3k-io"
WAKE_SECONDS: Final = 1.0
"""Waiting wakes up so often, so that an interrupt is noticed on platforms whose locks cannot be
interrupted."""
CANCEL_SECONDS: Final = 15.0
"""How long an interrupted call may take to clean up behind itself."""
EXIT_SECONDS: Final = 10.0
"""How long closing everything may take when the interpreter exits."""

_bridges: Final[dict[int, Bridge]] = {}
"""By process id. Those of parent processes stay, so that nothing of theirs is ever finalised here.
"""


def current_bridge() -> Bridge:
    """The bridge of this process."""
    pid = os.getpid()
    found = _bridges.get(pid)
    # setdefault, not a lock: a lock could have been held by another thread at the moment of a fork.
    return found if found is not None else _bridges.setdefault(pid, Bridge(pid))


def run_on(loop: asyncio.AbstractEventLoop, call: Callable[[], Awaitable[T]]) -> T:
    """Await `call()` on a loop that another thread runs, and return its result. The caller's
    context variables are those of the call; an interrupt (Ctrl-C) cancels it and is raised when it
    has cleaned up. Raises RuntimeError for a loop that is closed.
    """
    pending = _BlockingCall(call)
    try:
        loop.call_soon_threadsafe(pending.start)
        pending.wait(None)
    except BaseException:
        loop.call_soon_threadsafe(pending.cancel)
        pending.wait(CANCEL_SECONDS)
        raise
    try:
        return pending.result()
    finally:
        # An error's traceback refers to this frame, and must not keep itself alive through the
        # call.
        del pending


class Bridge:
    """An event loop in a daemon thread, and blocking calls into it. Usable from any other thread of
    its process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closers: dict[object, Callable[[], Awaitable[object]]] = {}
        self._posted: set[asyncio.Task[None]] = set()
        self._exiting = False

    def run(self, call: Callable[[], Awaitable[T]]) -> T:
        """Await `call()` on the loop and return its result. The caller's context variables are
        those of the call.

        An interrupt (Ctrl-C) cancels the call and is raised when the call has cleaned up. Raises
        ForkedClientError in another process, WrongLoopError on the loop's own thread (a callback
        cannot block it), ClosedClientError when the interpreter is exiting.
        """
        loop = self._ready()
        if threading.current_thread() is self._thread:
            raise WrongLoopError("a blocking call cannot be made from a callback of the client")
        return run_on(loop, call)

    def post(self, call: Callable[[], Awaitable[object]]) -> None:
        """Have `call()` awaited some time soon; for finalizers, which must not wait. Nothing in
        another process."""
        loop = self._loop
        if loop is None or self._exiting or self.pid != os.getpid():
            return
        loop.call_soon_threadsafe(self._start_posted, call)

    def register(self, owner: object, closer: Callable[[], Awaitable[object]]) -> None:
        """Have `closer` awaited when the interpreter exits, unless `unregister` comes first."""
        self._closers[owner] = closer

    def unregister(self, owner: object) -> None:
        """Forget what `register` said."""
        self._closers.pop(owner, None)

    def _start_posted(self, call: Callable[[], Awaitable[object]]) -> None:
        async def posted() -> None:
            try:
                await call()
            except Exception as error:  # noqa: BLE001
                _LOG.warning("cleaning up behind an abandoned object failed: %s", error)

        task = asyncio.get_running_loop().create_task(posted())
        self._posted.add(task)
        task.add_done_callback(self._posted.discard)

    def _ready(self) -> asyncio.AbstractEventLoop:
        if self.pid != os.getpid():
            raise ForkedClientError("opened in a parent process; open a new client in this one")
        if self._exiting:
            raise ClosedClientError("the interpreter is exiting")
        if self._loop is None:
            with self._lock:
                if self._loop is None:
                    self._start()
        assert self._loop is not None
        return self._loop

    def _start(self) -> None:
        loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._serve, args=(loop,), name=THREAD_NAME, daemon=True
        )
        self._thread.start()
        atexit.register(self._exit)
        self._loop = loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        while not self._exiting:
            try:
                loop.run_forever()
            except BaseException as error:  # noqa: BLE001
                # SystemExit or KeyboardInterrupt raised by a caller's callback: its call was told
                # already.
                _LOG.debug("the loop goes on after %r", error)

    def _exit(self) -> None:
        """Close open files and clients, and stop the loop. Failures are ignored: no caller could
        handle them."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None or self.pid != os.getpid():
            return
        closing = _BlockingCall(self._close_all)
        loop.call_soon_threadsafe(closing.start)
        closing.wait(EXIT_SECONDS)
        self._exiting = True
        loop.call_soon_threadsafe(loop.stop)
        thread.join(EXIT_SECONDS)
        if not thread.is_alive():
            loop.close()

    async def _close_all(self) -> None:
        closers = list(self._closers.values())
        self._closers.clear()
        if self._posted:
            await asyncio.wait(self._posted, timeout=EXIT_SECONDS / 2)
        await asyncio.gather(*(closer() for closer in closers), return_exceptions=True)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.get_running_loop().shutdown_asyncgens()


class _BlockingCall(Generic[T]):
    """One call on its way through the bridge. `start` and `cancel` run on the loop, the rest on the
    caller's thread."""

    def __init__(self, call: Callable[[], Awaitable[T]]) -> None:
        self._call = call
        self._future: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._task: asyncio.Task[T] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._main())
        self._task.add_done_callback(self._finish)

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        elif not self._future.done():
            # The interrupt came before the call was on its way.
            self._future.set_exception(
                ClosedClientError("the call was interrupted before it was sent")
            )

    def wait(self, seconds: float | None) -> None:
        """Return when the call is over, or after so many seconds."""
        rounds = None if seconds is None else int(seconds / WAKE_SECONDS)
        while rounds is None or rounds > 0:
            try:
                self._future.exception(WAKE_SECONDS)
                return
            except concurrent.futures.TimeoutError:
                rounds = None if rounds is None else rounds - 1

    def result(self) -> T:
        return self._future.result()

    async def _main(self) -> T:
        return await self._call()

    def _finish(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            error: BaseException | None = ClosedClientError(
                "the call was cancelled: the interpreter is exiting"
            )
        else:
            error = task.exception()
        if error is None:
            self._future.set_result(task.result())
        else:
            self._future.set_exception(error)
