"""The ballast file of an embedded volume: what frees space works on a full disk."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from s3k_async.backends import ballast
from s3k_async.backends.ballast import SIZE, Ballast
from s3k_async.backends.sqlite.sqlite_items import SqliteItems
from s3k_async.settings import resolve
from s3k_async.volumes import destroy_volume, init_volume
from tests.conftest import unavailable

DISK = 'mount -t tmpfs -o size=48m tmpfs "$1" && exec "$2" -m tests.backends.full_disk "$1"'


@pytest.fixture(autouse=True)
def _full_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ballast, "SIZE", SIZE)


def test_what_frees_space_works_on_a_full_disk(tmp_path: Path) -> None:
    """The disk is one in memory, which only the test's own process sees."""
    namespace = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    allowed = subprocess.run([*namespace, 'mount -t tmpfs tmpfs "$0"', tmp_path], check=False)
    if allowed.returncode:
        unavailable("no process may mount a disk of its own here")
    ran = subprocess.run(
        [*namespace, DISK, "sh", tmp_path, sys.executable],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        timeout=600,
        check=True,
    )
    done = [json.loads(line) for line in ran.stdout.splitlines()]
    codes = [(command, code) for command, code, _, _ in done]
    assert codes == [
        ("ls ./vol:/big", 0),
        ("put one", 12),
        ("rm ./vol:/big/0", 0),
        ("rm -r", 0),
        ("trash empty", 0),
        ("rm -r", 0),
        ("fsck repair", 0),
        ("gc ./vol", 0),
        ("fsck verify", 0),
        ("put one", 0),
    ], done
    assert "disk" in done[1][2]
    assert "s3k gc" in done[1][2]
    assert "\ndeleted: 1" in done[7][2]
    assert done[-2][2].startswith("clean: 0 files")
    sizes = [size for *_, size in done]
    assert all(SIZE // 2 < size < SIZE for size in sizes[:7])
    assert sizes[7:] == [SIZE] * 3


def test_the_file_comes_and_goes_with_the_table(tmp_path: Path) -> None:
    config = resolve(str(tmp_path / "volume"))
    asyncio.run(init_volume(config))
    file = tmp_path / "volume/metadata.sqlite-ballast"
    facts = file.stat()
    assert facts.st_size == SIZE
    assert facts.st_blocks * 512 >= SIZE
    assert facts.st_mode & 0o777 == 0o600
    asyncio.run(destroy_volume(config))
    assert not file.exists()


async def test_dropping_an_unknown_table_leaves_no_file(tmp_path: Path) -> None:
    items = SqliteItems(tmp_path / "t.sqlite")
    await items.create()
    await items.drop()
    await items.close()
    assert os.listdir(tmp_path) == []


def test_the_file_stays_while_there_is_room(tmp_path: Path) -> None:
    kept = Ballast(str(tmp_path / "ballast"))
    kept.restore()
    with kept.released():
        assert (tmp_path / "ballast").stat().st_size == SIZE


def test_the_last_user_takes_the_room_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, path = Ballast(str(tmp_path / "ballast")), tmp_path / "ballast"
    kept.restore()
    free = 0
    monkeypatch.setattr(os, "statvfs", lambda _: _Disk(free))
    with kept.released():
        with kept.released():
            assert not path.exists()
        assert not path.exists()
        free = 100_000 + ballast.LEFT
    assert path.stat().st_size == 100_000
    free = 10 * SIZE
    with kept.released():
        pass
    assert path.stat().st_size == SIZE


def test_shrinking_ends_at_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Ballast(str(tmp_path / "ballast"))
    assert not kept.shrink()
    kept.restore()
    assert not kept.shrink()
    monkeypatch.setattr(os, "statvfs", lambda _: _Disk(0))
    assert sum(kept.shrink() for _ in range(1000)) == SIZE // ballast.OPENING
    assert (tmp_path / "ballast").stat().st_size == 0


class _Disk:
    """What `statvfs` says of a disk with so many bytes left."""

    f_frsize = 1

    def __init__(self, free: int) -> None:
        self.f_bavail = free
