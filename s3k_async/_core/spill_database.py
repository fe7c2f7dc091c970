"""A SQLite database in a temporary directory, for sorting data that does not fit into memory.

It is removed at the end, so it has no journal.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

from s3k_async._core.os_errors import TEMPORARY_ROOM, os_errors
from s3k_async.errors import NoSpaceError, ServiceError

__all__ = ["CACHE_BYTES", "SpillDatabase"]

CACHE_BYTES = 16 * 1024 * 1024
"""Page cache of the database."""


class SpillDatabase:
    """A temporary database with one schema. `directory`: parent of the temporary directory; None:
    the system's default. Several threads may use it, one at a time. Raises NoSpaceError if the disk
    is full, PermissionDeniedError and ServiceError."""

    def __init__(self, schema: str, directory: str | None = None) -> None:
        with os_errors(directory or "the directory of temporary files", TEMPORARY_ROOM):
            self._room = TemporaryDirectory("", "s3k-", directory, ignore_cleanup_errors=True)
        path = os.path.join(self._room.name, "spill")
        self.database = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, factory=_SpillConnection
        )
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


class _SpillConnection(sqlite3.Connection):
    """A connection that raises errors of this package."""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        with _spill_errors():
            return super().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> sqlite3.Cursor:
        with _spill_errors():
            return super().executemany(sql, parameters)


@contextmanager
def _spill_errors() -> Iterator[None]:
    """Map errors of SQLite."""
    try:
        yield
    except sqlite3.OperationalError as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        if code & 0xFF == sqlite3.SQLITE_FULL or code == sqlite3.SQLITE_IOERR_WRITE:
            raise NoSpaceError(
                "the disk for temporary files is full, or a file is larger than allowed: "
                f"{TEMPORARY_ROOM}"
            ) from error
        name = getattr(error, "sqlite_errorname", "SQLITE_ERROR")
        raise ServiceError(f"a temporary database failed: {error}", service_code=name) from error
