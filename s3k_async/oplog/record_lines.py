"""Committed operations of a whole log object, as lines of JSON that are not decoded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from s3k_async.oplog.damage import Finding

__all__ = ["RecordLines"]


@dataclass(frozen=True, slots=True)
class RecordLines:
    """The operations of a segment all of which succeeded, or of a part of a checkpoint. The object
    is whole and of a known format, but a line may contain anything."""

    key: str
    """The key of their records."""
    lines: Sequence[bytes]
    """One operation each, as `entries.operation_line` writes it."""
    decode: Callable[[], Awaitable[list[Finding]]]
    """Their records, or damage; a segment is read again. Raises the store's errors."""
