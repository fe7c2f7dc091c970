"""A SQLite database in a temporary directory, for sorting data that does not fit into memory.

It is removed at the end, so it has no journal.
"""

from __future__ import annotations

import os
import sqlite3
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

__all__ = ["CACHE_BYTES", "SpillDatabase"]

CACHE_BYTES = 16 * 1024 * 1024
"""Page cache of the database."""


class SpillDatabase:
    """A temporary database with one schema. `directory`: parent of the temporary directory; None:
    the system's default. Several threads may use it, one at a time."""

    def __init__(self, schema: str, directory: str | None = None) -> None:
        self._room = TemporaryDirectory(prefix="s3k-", dir=directory, ignore_cleanup_errors=True)
        path = os.path.join(self._room.name, "spill")
        self.database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        for pragma in ("journal_mode=OFF", "synchronous=OFF", f"cache_size=-{CACHE_BYTES // 1024}"):
            self.database.execute(f"PRAGMA {pragma}")
        self.database.execute(schema)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the temporary directory."""
        self.database.close()
        self._room.cleanup()

    def many(self, statement: str, rows: list[Any]) -> None:
        """Execute a statement for each row, in one transaction."""
        if rows:
            self.database.execute("BEGIN")
            self.database.executemany(statement, rows)
            self.database.execute("COMMIT")
