"""Blocks whose errors are handled."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

__all__ = ["ErrorHandling", "on_error"]


class ErrorHandling:
    """A block whose errors are handed to `handle`. (Classes, since a generator costs three times as
    much, for every request.)"""

    __slots__ = ()

    def handle(self, error: BaseException) -> None:
        """May raise another error from this one, which is raised otherwise."""
        raise NotImplementedError

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.handle(error)


class on_error(ErrorHandling):  # noqa: N801 - used as a function
    """Handle the errors of a block by a function."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[[BaseException], object]) -> None:
        self._function = function

    def handle(self, error: BaseException) -> None:
        self._function(error)
