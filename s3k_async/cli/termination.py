"""SIGTERM, which ends a command as Ctrl-C does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

__all__ = ["TerminatedError", "Termination"]

REPEAT_SECONDS: Final = 1.0
"""A further SIGTERM within this time is part of the first one: `timeout` sends it to the process,
and then to its group."""


class TerminatedError(KeyboardInterrupt):
    """The process received SIGTERM."""


class Termination:
    """SIGTERM during one command.

    The first signal calls the handler of SIGINT: that of a running event loop cancels its main
    task, that of Spark its jobs, any other one interrupts the main thread. A later one ends the
    process immediately.
    """

    def __init__(self) -> None:
        self._received_at: float | None = None

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handle the signal in the body, unless it is ignored or has a handler already, or the body
        does not run in the main thread. Raises TerminatedError instead of KeyboardInterrupt after
        it."""
        is_main = threading.current_thread() is threading.main_thread()
        if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            yield
            return
        signal.signal(signal.SIGTERM, self._receive)
        try:
            with _sigint_handler():
                yield
        except KeyboardInterrupt as error:
            raise self.cause(error) from error
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def cause(self, error: BaseException) -> BaseException:
        """TerminatedError for an interrupt that the signal caused, else the error itself."""
        if self._received_at is None or not isinstance(error, KeyboardInterrupt):
            return error
        return TerminatedError()

    def _receive(self, number: int, frame: FrameType | None) -> None:
        # Imported here: a signal is rare, and the imports of a command are interruptible, too.
        from s3k_async._core.runtime import SYSTEM

        now = SYSTEM.monotonic()
        if self._received_at is not None:
            if now - self._received_at > REPEAT_SECONDS:
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)
            return
        self._received_at = now
        interrupt = signal.getsignal(signal.SIGINT)
        try:
            if callable(interrupt):
                interrupt(signal.SIGINT, frame)
        except BaseException as error:
            # Also a failure of the handler, as of Spark's if its JVM was terminated as well.
            raise TerminatedError from error


@contextmanager
def _sigint_handler() -> Iterator[None]:
    """A handler of SIGINT, which event loops replace by their own. If it was ignored, as in a
    background job, it stays blocked."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        yield
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
