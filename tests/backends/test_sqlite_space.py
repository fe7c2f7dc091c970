"""What a SQLite table takes up: space is given back, and a read-only disk is enough to read."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest

from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async.backends.ports.items import ABSENT, Condition, Delete, Item, Key, Put
from s3k_async.backends.sqlite.sqlite_items import SqliteItems
from s3k_async.errors import PermissionDeniedError
from s3k_async.integrity.repair import verify_volume
from s3k_async.settings import resolve
from s3k_async.volumes import init_volume, open_volume

ROWS = 60
SIZE = 300_000


def key(number: int) -> Key:
    return Key("p", f"{number:03}")


def item(number: int) -> Item:
    return {"path": "p", "children": f"{number:03}", "ver": 1, "text": "x" * SIZE}


def size(path: Path) -> int:
    return path.stat().st_size


async def fill_and_empty(path: Path) -> None:
    """Write 18 MB of rows and delete all but three."""
    items = SqliteItems(path)
    await items.create()
    for number in range(ROWS):
        await items.write(Put(item(number), ABSENT))
    await items.close()
    assert size(path) > ROWS * SIZE
    for number in range(3, ROWS):
        await items.write(Delete(key(number), Condition()))
    assert [found["children"] for found in (await items.query("p")).items] == ["000", "001", "002"]
    await items.close()


async def test_a_table_shrinks_when_its_rows_go(tmp_path: Path) -> None:
    await fill_and_empty(tmp_path / "t.sqlite")
    assert size(tmp_path / "t.sqlite") < ROWS * SIZE / 2


async def test_a_table_of_before_shrinks_too(tmp_path: Path) -> None:
    await SqliteItems(tmp_path / "t.sqlite").create()
    with closing(sqlite3.connect(tmp_path / "t.sqlite", isolation_level=None)) as database:
        database.executescript(
            "PRAGMA journal_mode=DELETE; PRAGMA auto_vacuum=NONE; VACUUM; PRAGMA journal_mode=WAL;"
        )
        assert database.execute("PRAGMA auto_vacuum").fetchone() == (0,)
    await fill_and_empty(tmp_path / "t.sqlite")
    assert size(tmp_path / "t.sqlite") < ROWS * SIZE / 2


@pytest.fixture
async def volume(tmp_path: Path) -> Path:
    await init_volume(resolve(str(tmp_path / "volume")))
    return tmp_path / "volume"


def read_all(directory: Path) -> None:
    before = sorted(directory.rglob("*"))
    with S3kSyncClient(directory) as fs:
        assert [status.path for status in fs.list("/", recursive=True)] == ["/d", "/d/f"]
        assert fs.read("/d/f") == b"x"
        with pytest.raises(PermissionDeniedError):
            fs.write("/d/g", b"y")
        assert not fs.exists("/d/g")

    async def verified() -> bool:
        volume = await open_volume(resolve(str(directory)))
        try:
            return (await verify_volume(volume, grace=0.0, deep=True)).clean
        finally:
            await volume.close()

    assert asyncio.run(verified())
    assert sorted(directory.rglob("*")) == before


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Say of every file system that it is read-only."""
    statvfs = os.statvfs
    monkeypatch.setattr(os, "statvfs", lambda path: _ReadOnly(statvfs(path)))


class _ReadOnly:
    def __init__(self, facts: os.statvfs_result) -> None:
        self.f_flag = facts.f_flag | os.ST_RDONLY


def test_on_a_read_only_file_system_nothing_is_made_beside_the_table(
    volume: Path, read_only: None
) -> None:
    with S3kSyncClient(volume) as fs:
        assert list(fs.list("/")) == []
        assert not (volume / "metadata.sqlite-wal").exists()


def test_changes_that_only_the_log_of_sqlite_has_are_not_passed_over(
    volume: Path, read_only: None
) -> None:
    (volume / "metadata.sqlite-wal").write_bytes(b"not empty")
    with (
        pytest.raises(PermissionDeniedError, match="where it can be written"),
        S3kSyncClient(volume) as fs,
    ):
        fs.exists("/")


@pytest.fixture
def mounted(volume: Path, tmp_path: Path) -> Iterator[Path]:
    with S3kSyncClient(volume) as fs:
        fs.write("/d/f", b"x")
    abandoned = volume / "data" / ".tmp" / str(uuid4())
    abandoned.write_bytes(b"")
    os.utime(abandoned, (0, 0))
    place = tmp_path / "mounted"
    place.mkdir()
    steps = (
        ["mount", "--bind", str(volume), str(place)],
        ["mount", "-o", "remount,ro,bind", str(place)],
    )
    done = [subprocess.run(step, capture_output=True, check=False).returncode for step in steps]
    try:
        if done != [0, 0]:
            pytest.skip("this machine lets nobody mount; the test above injects the same")
        yield place
    finally:
        subprocess.run(["umount", str(place)], capture_output=True, check=False)


def test_a_volume_on_a_read_only_mount_is_read(mounted: Path) -> None:
    read_all(mounted)
