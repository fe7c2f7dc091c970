"""Handling of the errors of a block."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

__all__ = ["on_error"]


class on_error:  # noqa: N801 - used as a function
    """Call `handle` with an error of the body. It may raise another one from it; otherwise the
    error is raised. (A class, since a generator costs three times as much, for every request.)"""

    __slots__ = ("_handle",)

    def __init__(self, handle: Callable[[BaseException], object]) -> None:
        self._handle = handle

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._handle(error)
