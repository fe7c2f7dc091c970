"""Bytes of a SQLite table that have changed: no file is served under another's name, or with
another's attributes."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeAlias

import pytest

from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async.backends.ports.item_semantics import segment_of
from s3k_async.backends.ports.items import Key
from s3k_async.backends.sqlite.sqlite_rows import row_of
from s3k_async.errors import ItemFormatError, PathNotFoundError
from s3k_async.integrity.repair import repair_volume, verify_volume
from s3k_async.settings import resolve
from s3k_async.volumes import init_volume, open_volume

Damage: TypeAlias = Callable[[Path], None]

NAMES = ("f008", "f009")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A volume of layout `path`, of one partition a directory, with two files."""
    directory = tmp_path / "volume"
    asyncio.run(init_volume(resolve(str(directory), suffix_count=1, layout="path")))
    with S3kSyncClient(directory) as fs:
        for name in NAMES:
            fs.write(f"/d/{name}", name.encode())
    return directory


def bytes_changed(table: Path, old: bytes, new: bytes) -> None:
    """Change bytes of the file, where SQLite cannot notice."""
    data = table.read_bytes()
    assert data.count(old) == 1
    assert len(old) == len(new)
    assert not table.with_name("metadata.sqlite-wal").exists()
    table.write_bytes(data.replace(old, new))


def attributes_swapped(table: Path) -> None:
    with closing(sqlite3.connect(table, isolation_level=None)) as database:
        rows = dict(
            database.execute(
                "SELECT sort, attributes FROM items WHERE sort IN (?, ?)", NAMES
            ).fetchall()
        )
        for name, other in zip(NAMES, reversed(NAMES), strict=True):
            database.execute("UPDATE items SET attributes = ? WHERE sort = ?", (rows[other], name))


def size_changed(table: Path) -> None:
    with closing(sqlite3.connect(table, isolation_level=None)) as database:
        database.execute(
            "UPDATE items SET attributes = json_set(attributes, '$.size', 3) WHERE sort = 'f008'"
        )


def segment_changed(table: Path) -> None:
    with closing(sqlite3.connect(table, isolation_level=None)) as database:
        database.execute("UPDATE items SET segment = segment + 1 WHERE sort = 'f008'")


DAMAGES: dict[str, Damage] = {
    "a key becomes its neighbour's": lambda table: bytes_changed(table, b"-sf0f008", b"-sf0f009"),
    "a key becomes its other neighbour's": lambda table: bytes_changed(
        table, b"-sf0f009", b"-sf0f008"
    ),
    "a key becomes nobody's": lambda table: bytes_changed(table, b"-sf0f009", b"-sf0f00x"),
    "a key becomes another directory's": lambda table: bytes_changed(
        table, b"/d-sf0f009", b"/e-sf0f009"
    ),
    "attributes are swapped": attributes_swapped,
    "a digit changes": size_changed,
    "the segment changes": segment_changed,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=list(DAMAGES))
def test_a_changed_byte_serves_no_other_file(directory: Path, damage: Damage) -> None:
    damage(directory / "metadata.sqlite")
    refused = 0
    with S3kSyncClient(directory) as fs:
        for path in ("/d/f008", "/d/f009", "/d/f00x", "/e/f009"):
            try:
                assert fs.read(path) == path.rpartition("/")[2].encode(), path
            except (ItemFormatError, PathNotFoundError):
                refused += 1
            (found,) = fs.read_each([path])
            assert (
                isinstance(found, ItemFormatError | PathNotFoundError)
                or found == path[-4:].encode()
            )
    assert refused >= 3

    async def repaired() -> list[str]:
        volume = await open_volume(resolve(str(directory)))
        try:
            assert "item_damaged" in {
                found.kind for found in (await verify_volume(volume, grace=0.0)).problems
            }
            for _ in range(2):
                await repair_volume(volume, dry_run=False, grace=0.0)
            return [found.kind for found in (await verify_volume(volume, grace=0.0)).problems]
        finally:
            await volume.close()

    assert asyncio.run(repaired()) == []
    with S3kSyncClient(directory) as fs:
        assert {path: fs.read(path) for path in ("/d/f008", "/d/f009")} == {
            f"/d/{name}": name.encode() for name in NAMES
        }


def test_a_listing_names_the_row_that_was_changed(directory: Path) -> None:
    size_changed(directory / "metadata.sqlite")
    with S3kSyncClient(directory) as fs, pytest.raises(ItemFormatError, match="s3k fsck") as raised:
        list(fs.list("/d"))
    assert raised.value.path == "/d/f008"


def test_rows_of_before_there_were_seals_are_read(directory: Path) -> None:
    with closing(sqlite3.connect(directory / "metadata.sqlite", isolation_level=None)) as database:
        database.execute("UPDATE items SET segment = segment & 0xFFFFFFFF")
    with S3kSyncClient(directory) as fs:
        assert fs.read("/d/f008") == b"f008"
        fs.rename("/d/f008", "/d/g")
        assert [status.path for status in fs.list("/d")] == ["/d/f009", "/d/g"]


def test_the_lower_half_of_a_segment_is_that_of_the_partition() -> None:
    """Scans of every version find the row in the same part."""
    for name in ("a", "é", "-" * 1000):
        row = row_of(Key("ks://v/d-sf0", name), "{}")
        assert row[2] & 0xFFFFFFFF == segment_of("ks://v/d-sf0")
        assert 2**32 <= row[2] < 2**63
