"""Copies of dataclasses with other values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from typing import Any, Final, TypeAlias, TypeVar

__all__ = ["replaced"]

T = TypeVar("T")
_Fields: TypeAlias = tuple[tuple[str, ...], Callable[[object], tuple[object, ...]]]

_known: Final[dict[type[Any], _Fields]] = {}


def replaced(record: T, **changes: Any) -> T:
    """As `dataclasses.replace`, for a class with two fields or more. It takes a fourth of the time,
    for what every call does."""
    make: type[Any] = type(record)
    names, values = _known.get(make) or _fields(make)
    copy: T = make(**(dict(zip(names, values(record), strict=True)) | changes))
    return copy


def _fields(cls: type[Any]) -> _Fields:
    names = tuple(field.name for field in fields(cls))
    _known[cls] = found = names, attrgetter(*names)
    return found
