"""What SQLite is told about the disk, by every connection of a table."""

from __future__ import annotations

from pathlib import Path

from s3k_async.backends.sqlite.sqlite_connections import connect
from s3k_async.backends.sqlite.sqlite_items import SqliteItems


async def test_every_connection_waits_for_the_disk(tmp_path: Path) -> None:
    """A commit is on the disk before it is acknowledged: with NORMAL a power failure could take it
    back."""
    place = str(tmp_path / "table.db")
    items = SqliteItems(place)
    await items.create()
    await items.close()
    for _ in range(2):
        connection = connect(place)
        try:
            assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        finally:
            connection.close()
