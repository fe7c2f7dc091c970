"""Resolved paths: the directories of a path and its entry, as read by one resolution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from s3k_async.model import Entry
from s3k_async.txn.intent_view import is_held

__all__ = ["ResolvedPath"]


@dataclass(frozen=True, slots=True)
class ResolvedPath:
    """The root, the other ancestors of a path, and the path itself, topmost first; None for missing
    entries. Below a missing entry or a file everything is missing.

    All directories above the entry were in place at one moment. A reader that trusts directories
    may have the root, the parent and the path alone.
    """

    chain: Sequence[tuple[str, Entry | None]]

    @property
    def path(self) -> str:
        return self.chain[-1][0]

    @property
    def entry(self) -> Entry | None:
        """The entry at the path."""
        return self.chain[-1][1]

    @property
    def parent(self) -> Entry | None:
        """The entry at the parent's path: a directory, a file, or None. The root is its own."""
        return self.chain[max(0, len(self.chain) - 2)][1]

    @property
    def removed_parent(self) -> Entry | None:
        """The parent, if the entry is a file and a client is removing the parent as empty."""
        entry, parent = self.entry, self.parent
        if entry is None or entry.is_dir or parent is None or not is_held(parent):
            return None
        return parent
