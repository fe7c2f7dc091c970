"""Directories of a scan by directory key, in a file for the lookups of other processes.

The file is a SQLite database that is never changed once it is written, so that readers need no
locks, and hold no more of it in memory than a page cache.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Final

__all__ = ["CACHE_BYTES", "DirectoryFile"]

CACHE_BYTES: Final = 16 * 1024 * 1024
"""Page cache of a reader."""

_SCHEMA: Final = (
    "CREATE TABLE directories (key TEXT PRIMARY KEY, entry_key TEXT NOT NULL) WITHOUT ROWID"
)


class DirectoryFile:
    """The entry keys of directories, read from a file that `write` has made."""

    def __init__(self, path: str) -> None:
        place = f"{Path(path).absolute().as_uri()}?mode=ro&immutable=1"
        # Threads may use it one after the other.
        self._database = sqlite3.connect(place, uri=True, check_same_thread=False)
        self._database.execute(f"PRAGMA cache_size=-{CACHE_BYTES // 1024}")

    @staticmethod
    def write(path: str, directories: Iterable[tuple[str, str]]) -> None:
        """Make the file `path` of directory keys, each once, with the entry keys of their items.
        The fastest order is that of the directory keys."""
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            for pragma in ("journal_mode=OFF", "synchronous=OFF"):
                database.execute(f"PRAGMA {pragma}")
            database.execute(_SCHEMA)
            database.execute("BEGIN")
            database.executemany("INSERT INTO directories VALUES (?, ?)", directories)
            database.execute("COMMIT")

    def entry_key(self, key: str) -> str | None:
        """The entry key of a directory's item; None for an unknown directory."""
        row: tuple[str] | None = self._database.execute(
            "SELECT entry_key FROM directories WHERE key = ?", (key,)
        ).fetchone()
        return None if row is None else row[0]

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._database.close()
