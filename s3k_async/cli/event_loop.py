"""The event loop of a command, which an interrupt ends in order."""

from __future__ import annotations

import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

if TYPE_CHECKING:
    import asyncio

__all__ = ["run_loop"]

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")


def run_loop(work: Callable[[*Arguments], Awaitable[T]], *arguments: *Arguments) -> T:
    """The result of `work` in an event loop of its own.

    The first interrupt (Ctrl-C, or SIGTERM by `Termination`) cancels the work. KeyboardInterrupt is
    raised when the loop is closed, also if the work had ended. In the loop's own code it would
    interrupt the end of worker threads, for which the process then waits forever. A second Ctrl-C
    is raised at once.
    """
    import anyio

    interrupt = _Interrupt()

    async def main() -> T:
        interrupt.begin()
        return await work(*arguments)

    with interrupt.handled():
        return anyio.run(main)


class _Interrupt:
    """SIGINT while an event loop runs."""

    def __init__(self) -> None:
        self._task: asyncio.Task[object] | None = None
        self._is_received = False

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handle the signal in the body, unless it has a handler of another kind or the body does
        not run in the main thread. Raises KeyboardInterrupt after an interrupt."""
        import asyncio

        is_main = threading.current_thread() is threading.main_thread()
        if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            yield
            return
        signal.signal(signal.SIGINT, self._receive)
        try:
            yield
        except asyncio.CancelledError:
            if not self._is_received:
                raise
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if self._is_received:
            raise KeyboardInterrupt

    def begin(self) -> None:
        """Make the current task the one that an interrupt cancels. Raises CancelledError if one has
        arrived."""
        import asyncio

        self._task = asyncio.current_task()
        if self._is_received:
            raise asyncio.CancelledError

    def _receive(self, _number: int, _frame: FrameType | None) -> None:
        if self._is_received:
            raise KeyboardInterrupt
        self._is_received = True
        if self._task is not None and not self._task.done():
            self._task.cancel()
            # Wakes up a loop that waits.
            self._task.get_loop().call_soon_threadsafe(lambda: None)
