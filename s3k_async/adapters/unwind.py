"""Whether a file is being closed because something failed, or because nobody wanted it any more.

`with` around a wrapper, `io.TextIOWrapper` and Arrow's streams close the file below them on the way
of an exception without telling it of the exception. What is on its way in the closing thread is
visible all the same.
"""

from __future__ import annotations

import sys
from types import FrameType

__all__ = ["Unwinding"]


class Unwinding:
    """Made when a file is opened, asked when it is closed.

    An exception that was being handled when the file was opened does not count: a file that is
    opened and closed in an `except` block is written in spite of that exception, not because of a
    new one.
    """

    __slots__ = ("_before",)

    def __init__(self) -> None:
        self._before = sys.exception()

    @property
    def by_exception(self) -> bool:
        """Whether another exception than at opening is on its way, or being handled, in this
        thread."""
        now = sys.exception()
        return now is not None and now is not self._before

    @property
    def by_finaliser(self) -> bool:
        """Whether a `__del__` is what closes: the owner of the file, forgotten, closes it with what
        it has so far."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_name == "__del__":
                return True
            frame = frame.f_back
        return False
