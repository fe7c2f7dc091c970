"""Blocks whose errors are handled."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Self

__all__ = ["ErrorHandling", "on_error"]


class ErrorHandling(ABC):
    """A block whose errors are handed to `handle`. (Not a generator, which would cost every request
    three times as much.)"""

    __slots__ = ()

    @abstractmethod
    def handle(self, error: BaseException) -> None:
        """Called with an error of the block, which is raised again unless this raises another."""

    def __enter__(self) -> Self:
        return self

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
