"""Who may read what is created on a local disk."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from s3k_async._core.file_modes import make_directories
from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async.backends.local.local_blobs import LocalBlobs
from s3k_async.integrity.audit import AuditTrail
from s3k_async.integrity.shuffle import Shuffle
from s3k_async.migrate import dump_volume
from s3k_async.settings import resolve
from s3k_async.volumes import init_volume, open_volume
from tests.cli.conftest import Cli


@pytest.fixture(params=[0o022, 0o000, 0o077], ids=oct, autouse=True)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(root: Path) -> dict[str, int]:
    """The modes of everything at and below a path."""
    found = [root, *root.rglob("*")]
    return {str(path.relative_to(root)): stat.S_IMODE(path.lstat().st_mode) for path in found}


async def parts_of(directory: Path) -> None:
    """Upload parts that do not join up, and leave an upload unfinished."""
    blobs = LocalBlobs(directory)
    upload = await blobs.start_upload("a/whole")
    await upload.put_part(2, b"b")
    await upload.put_part(1, b"aaaa")
    await upload.complete()
    await (await blobs.start_upload("a/open")).put_part(1, b"x")


def fill(directory: Path) -> None:
    asyncio.run(init_volume(resolve(str(directory))))
    with S3kSyncClient(directory) as fs:
        fs.write("/d/f", b"x")
        fs.delete("/d/f")
        asyncio.run(parts_of(directory / "data"))
        with closing(sqlite3.connect(directory / "metadata.sqlite")) as database:
            database.execute("SELECT count(*) FROM items").fetchone()
            found = modes(directory)
    assert {"metadata.sqlite", "metadata.sqlite-wal", "metadata.sqlite-shm"} <= found.keys()
    assert len(found) > 12


def test_a_volume_is_its_owners_alone(tmp_path: Path) -> None:
    fill(tmp_path / "new" / "volume")
    for path, mode in modes(tmp_path / "new").items():
        assert mode in (0o600, 0o700), path


def test_a_volume_in_a_shared_directory_is_its_groups(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o2770)
    fill(tmp_path / "shared" / "volume")
    for path, mode in modes(tmp_path / "shared").items():
        assert mode in (0o660, 0o2770), path


def test_what_is_written_later_has_the_mode_of_the_root(tmp_path: Path) -> None:
    async def run() -> None:
        blobs = LocalBlobs(tmp_path / "data")
        await blobs.create()
        (tmp_path / "data").chmod(0o750)
        await blobs.put("d/later", b"x")

    asyncio.run(run())
    found = modes(tmp_path / "data")
    assert (found["d"], found["d/later"]) == (0o750, 0o640)


def test_dumps_and_working_files_are_their_owners_alone(tmp_path: Path, cli: Cli) -> None:
    fill(tmp_path / "volume")
    out = tmp_path / "out"
    make_directories(str(out))

    async def dump() -> None:
        volume = await open_volume(resolve(str(tmp_path / "volume")))
        try:
            await dump_volume(volume, str(out / "dump.jsonl"))
        finally:
            await volume.close()

    asyncio.run(dump())
    parts = Shuffle(str(out / "parts"))
    parts.close()
    volume = str(tmp_path / "volume")
    assert cli("gc", volume, "--list", str(out / "candidates")).code == 0
    asyncio.run(AuditTrail(None, "run", str(out / "audit.jsonl")).write([{"deed": "delete"}]))
    found = modes(out)
    assert {"audit.jsonl", "dump.jsonl", "parts", "candidates"} <= found.keys()
    for path, mode in found.items():
        assert mode in (0o600, 0o700), path
