"""Chains: the directories of a path and the entry at it, as one resolution has read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from s3k_async.model import Entry
from s3k_async.table.stored_reader import ROOT_ENTRY

__all__ = ["Chain"]


@dataclass(frozen=True, slots=True)
class Chain:
    """A path's ancestors below the root and the entry at the path, topmost first; None for missing
    entries. Below a missing entry or a file everything is missing.

    All directories above the entry were in place at one moment, `read_at`.
    """

    steps: Sequence[tuple[str, Entry | None]]
    read_at: float
    """Monotonic time at which the confirming read was sent."""

    @property
    def entry(self) -> Entry | None:
        """The entry at the path."""
        return self.steps[-1][1]

    @property
    def parent(self) -> Entry | None:
        """The entry at the parent's path: a directory, a file, or None."""
        return self.steps[-2][1] if len(self.steps) > 1 else ROOT_ENTRY
