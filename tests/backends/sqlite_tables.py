"""Tables in SQLite, and items for them."""

from __future__ import annotations

from pathlib import Path

from s3k_async.backends.ports.items import Item
from s3k_async.backends.sqlite.sqlite_items import SqliteItems


def item(sort: str, ver: int = 1, partition: str = "p") -> Item:
    return {"path": partition, "children": sort, "ver": ver, "isdir": False}


async def created(path: Path) -> SqliteItems:
    """A table that was just created."""
    store = SqliteItems(path / "t.db")
    assert await store.create()
    return store


async def make_table(path: Path) -> None:
    """Create the table, and close it."""
    await (await created(path)).close()
