"""SIGTERM, which cancels a command as Ctrl-C does."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

__all__ = ["TerminatedError", "Termination"]

REPEAT_SECONDS: Final = 1.0
"""Seconds in which a further SIGTERM is ignored: `timeout` sends one to the process, and then one
to its group."""
_REPEAT: Final = 0.05
"""Seconds after which a lost interrupt is repeated."""


class TerminatedError(KeyboardInterrupt):
    """The process received SIGTERM."""


class Termination:
    """SIGTERM during one command.

    The first signal calls the handler of SIGINT: that of a running event loop cancels its main
    task, that of Spark its jobs, any other one interrupts the main thread. A later one ends the
    process immediately. An interrupt in a callback whose errors Python ignores, such as those of
    weak references during imports, is repeated.
    """

    def __init__(self) -> None:
        self._received_at: float | None = None
        self._repetition: threading.Timer | None = None

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
            with _sigint_handler(), self._lost_interrupts():
                yield
        except BaseException as error:
            cause = self.cause(error)
            if cause is error:
                raise
            raise cause from error
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    @contextmanager
    def _lost_interrupts(self) -> Iterator[None]:
        """Repeat the signal if its interrupt was ignored in the body."""
        usual = sys.unraisablehook

        def ignored(args: sys.UnraisableHookArgs) -> None:
            if not isinstance(args.exc_value, TerminatedError):
                usual(args)
                return
            self._received_at = None
            self._repetition = threading.Timer(_REPEAT, os.kill, (os.getpid(), signal.SIGTERM))
            self._repetition.daemon = True
            self._repetition.start()

        sys.unraisablehook = ignored
        try:
            yield
        finally:
            sys.unraisablehook = usual
            if self._repetition is not None:
                self._repetition.cancel()
                self._repetition.join()

    def cause(self, error: BaseException) -> BaseException:
        """TerminatedError for an interrupt that the signal caused, otherwise the error itself.
        Python wraps some interrupts, such as those in a class definition."""
        if self._received_at is None:
            return error
        found: BaseException | None = error
        while found is not None:
            if isinstance(found, KeyboardInterrupt):
                return TerminatedError()
            found = found.__cause__
        return error

    def _receive(self, number: int, frame: FrameType | None) -> None:
        # Not the clock of a Runtime: an import here would find modules that the signal interrupted
        # while they were being imported.
        now = time.monotonic()
        if self._received_at is not None:
            if now - self._received_at > REPEAT_SECONDS:
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)
            return
        self._received_at = now
        interrupt = signal.getsignal(signal.SIGINT)
        try:
            if not callable(interrupt):
                raise TerminatedError
            interrupt(signal.SIGINT, frame)
        except TerminatedError:
            raise
        except BaseException as error:
            # Also a failure of the handler, as of Spark's if its JVM was terminated as well.
            raise TerminatedError from error


@contextmanager
def _sigint_handler() -> Iterator[None]:
    """Handle SIGINT if it was ignored, as in a background job, so that event loops replace the
    handler with their own. The signal itself stays blocked."""
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
