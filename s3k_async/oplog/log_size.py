"""The size of a log: its objects by kind, and how many of them compaction may replace."""

from __future__ import annotations

from dataclasses import dataclass, field

from s3k_async.backends.ports.blobs import BlobStore
from s3k_async.backends.ports.pagination import list_all

__all__ = ["KindSize", "LogSize", "measure_log"]

KINDS = ("entries", "segments", "checkpoints", "audit", "quarantine")
COMPACTED = frozenset({"entries", "segments"})
"""Kinds that compaction replaces by a checkpoint."""


@dataclass(slots=True)
class KindSize:
    """The objects of one kind."""

    objects: int = 0
    bytes: int = 0


@dataclass(slots=True)
class LogSize:
    """The objects of a log."""

    kinds: dict[str, KindSize] = field(default_factory=lambda: {each: KindSize() for each in KINDS})
    """By the first component of their keys."""
    compactable: int = 0
    """Entries and segments that were stored before the grace period of compaction. Those with
    pending operations are among them, and are kept."""

    @property
    def objects(self) -> int:
        """Number of all objects."""
        return sum(each.objects for each in self.kinds.values())

    @property
    def bytes(self) -> int:
        """Size of all objects."""
        return sum(each.bytes for each in self.kinds.values())


async def measure_log(blobs: BlobStore, before_ms: int) -> LogSize:
    """List a log. `before_ms`: the end of compaction's grace period, by the clock of the store.
    Raises the store's errors."""
    found = LogSize()
    for kind, size in found.kinds.items():
        async for info in list_all(blobs, f"{kind}/"):
            size.objects += 1
            size.bytes += info.size
            if kind in COMPACTED and info.mtime_ms < before_ms:
                found.compactable += 1
    return found
