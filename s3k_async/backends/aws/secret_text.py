"""Strings that are kept out of logs, reprs and pickles."""

from __future__ import annotations

from typing import Any

__all__ = ["Secret"]


class Secret:
    """A string that reprs, log lines and pickles omit. After unpickling it is empty, and is
    resolved again."""

    __slots__ = ("_value",)

    def __init__(self, value: str = "") -> None:
        self._value = value

    def reveal(self) -> str:
        """The text itself."""
        return self._value

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other.reveal() == self._value

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __repr__(self) -> str:
        return "Secret('***')" if self._value else "Secret('')"

    def __reduce__(self) -> tuple[Any, ...]:
        return Secret, ()
