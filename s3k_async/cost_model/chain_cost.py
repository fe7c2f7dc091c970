"""Cost of finding an entry by its path: the directories above it, as each layout reads them."""

from __future__ import annotations

from dataclasses import dataclass

from s3k_async.cost_model.item_size import read_units
from s3k_async.cost_model.work_load import Workload
from s3k_async.model import LayoutName

__all__ = ["Chain"]


@dataclass(frozen=True, slots=True)
class Chain:
    """The directories above an entry, as known to a client that has read them before."""

    directories: int
    """Their number, without the root."""
    layout: LayoutName = "path"
    item: int = 200
    """Bytes of the item of a directory."""

    def find(self, work: Workload, size: int = 0) -> None:
        """A read by path, of an item of `size` bytes (0: a missing one). Layout `tree` reads the
        directories in the same request."""
        if self.layout == "path":
            work.get(size)
        else:
            self.read(work, size)

    def read(self, work: Workload, size: int = 0, *, others: int = 0) -> None:
        """An entry and the directories above it in one batch, with `others` missing entries or
        directories of another path."""
        keys = self.directories + 1 + others
        if self.layout == "tree" and keys == 1:
            work.get(size)
            return
        work.get_many(keys)
        work.read_units += read_units(size) - 1 + self.directories * (read_units(self.item) - 1)
        if self.directories:
            work.topmost_read += read_units(self.item)
