"""Results of reading the log: records, and damaged objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from s3k_async.errors import LogFormatError
from s3k_async.oplog.entries import LogRecord

__all__ = ["DamagedLog", "Finding"]


@dataclass(frozen=True, slots=True)
class DamagedLog:
    """A log object that cannot be understood. It is still there."""

    key: str
    error: LogFormatError


Finding: TypeAlias = LogRecord | DamagedLog
