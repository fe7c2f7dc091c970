"""Detection of files closed by an exception or by a finaliser.

`with` around a wrapper, `io.TextIOWrapper` and Arrow's streams close the file below them during an
exception without passing the exception. It is visible in the closing thread nevertheless.
"""

from __future__ import annotations

import inspect
import sys
from types import FrameType

__all__ = ["Unwinding"]


class Unwinding:
    """State of exceptions, recorded when a file is opened, compared when it is closed.

    An exception that was being handled when the file was opened does not count: a file opened and
    closed in an `except` block is published.
    """

    __slots__ = ("_before",)

    def __init__(self) -> None:
        self._before = sys.exception()

    @property
    def by_exception(self) -> bool:
        """Whether an exception other than at opening is propagating or being handled in this
        thread."""
        now = sys.exception()
        return now is not None and now is not self._before

    @property
    def by_finaliser(self) -> bool:
        """Whether a `__del__` closes: the finaliser of the file's owner would publish a partial
        file."""
        frame: FrameType | None = inspect.currentframe()
        while frame is not None:
            if frame.f_code.co_name == "__del__":
                return True
            frame = frame.f_back
        return False
