"""Bytes and log entries that are gone, cut short, changed, or somebody else's."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

import pytest

from s3k_async.backends.local.local_blobs import LocalBlobs
from s3k_async.client import S3kClient
from s3k_async.errors import S3kError
from s3k_async.oplog.log_reader import DamagedLog, LogReader
from tests.bad_input.kinds import CORRUPT, GONE_DATA, LOG
from tests.bad_input.rows import (
    Row,
    Scene,
    changes,
    check,
    check_error,
    check_line,
    reported,
    rows_of,
    run_command,
    snapshot,
)

DATA = b"0123456789"
"""What every file of the scene holds."""


def blob(scene: Scene, path: str = "/dir/file") -> Path:
    """Where the bytes of a file are."""

    async def look() -> str:
        async with scene.client() as fs:
            return await fs.physical_path(path)

    return local_path(asyncio.run(look()))


def local_path(uri: str) -> Path:
    return Path(unquote(uri.removeprefix("file://")))


def gone(scene: Scene) -> None:
    blob(scene).unlink()


def cut_short(scene: Scene) -> None:
    blob(scene).write_bytes(DATA[:7])


def grown(scene: Scene) -> None:
    blob(scene).write_bytes(DATA + b"more")


def changed(scene: Scene) -> None:
    blob(scene).write_bytes(DATA[::-1])


def a_directory(scene: Scene) -> None:
    place = blob(scene)
    place.unlink()
    place.mkdir()


async def read_on(fs: S3kClient) -> None:
    async with fs.open("/dir/file") as file:
        await file.seek(2)
        await file.read()


async def read_at(fs: S3kClient) -> None:
    async with fs.open("/dir/file") as file:
        await file.read_at(8, 2)


async def drop_the_bytes_while_open(fs: S3kClient) -> None:
    """A reader whose bytes disappear under it."""
    async with fs.open("/dir/file") as file:
        place = local_path(await fs.physical_path("/dir/file"))
        held = place.rename(place.with_suffix(".away"))
        try:
            await file.read()
        finally:
            held.rename(place)


ROWS = (
    Row(
        "read of bytes that are gone",
        GONE_DATA,
        "/dir/file",
        lambda fs: fs.read("/dir/file"),
        "cat {vol}:/dir/file",
        arrange=gone,
    ),
    Row(
        "open of bytes that are gone",
        GONE_DATA,
        "/dir/file",
        read_on,
        "get {vol}:/dir/file {out}",
        arrange=gone,
    ),
    Row(
        "range of bytes that are gone",
        GONE_DATA,
        "/dir/file",
        lambda fs: fs.read_ranges("/dir/file", [(1, 2)]),
        "cat --range 1-1 {vol}:/dir/file",
        arrange=gone,
    ),
    Row(
        "copy of bytes that are gone",
        GONE_DATA,
        "/dir/file",
        lambda fs: fs.copy("/dir/file", "/new"),
        "cp {vol}:/dir/file {vol}:/new",
        arrange=gone,
    ),
    Row("bytes that go while a file is open", GONE_DATA, "/dir/file", drop_the_bytes_while_open),
    Row(
        "bytes that are a directory",
        GONE_DATA,
        "/dir/file",
        lambda fs: fs.read("/dir/file"),
        "cat {vol}:/dir/file",
        arrange=a_directory,
    ),
    Row(
        "read of bytes cut short",
        CORRUPT,
        "/dir/file",
        lambda fs: fs.read("/dir/file"),
        "cat {vol}:/dir/file",
        arrange=cut_short,
    ),
    Row(
        "open of bytes cut short",
        CORRUPT,
        "/dir/file",
        read_on,
        "get {vol}:/dir/file {out}",
        arrange=cut_short,
    ),
    Row(
        "part of bytes cut short",
        CORRUPT,
        "/dir/file",
        read_at,
        "cat --range 8-9 {vol}:/dir/file",
        arrange=cut_short,
    ),
    Row(
        "copy of bytes cut short",
        CORRUPT,
        "/dir/file",
        lambda fs: fs.copy("/dir/file", "/new"),
        "cp {vol}:/dir/file {vol}:/new",
        arrange=cut_short,
    ),
    Row(
        "copy of bytes that have grown",
        CORRUPT,
        "/dir/file",
        lambda fs: fs.copy("/dir/file", "/new"),
        "cp {vol}:/dir/file {vol}:/new",
        arrange=grown,
    ),
    Row(
        "read of other bytes",
        CORRUPT,
        "/dir/file",
        lambda fs: fs.read("/dir/file"),
        "cat {vol}:/dir/file",
        arrange=changed,
    ),
    Row(
        "get of other bytes",
        CORRUPT,
        "/dir/file",
        lambda fs: fs.read("/dir/file"),
        "get {vol}:/dir/file {out}",
        arrange=changed,
    ),
)


@rows_of(*ROWS)
def test_row(row: Row, scene: Scene, tmp_path: Path) -> None:
    check(row, scene, tmp_path)


def log_place(scene: Scene) -> Path:
    """Where the volume's log is: below the prefix that carries its id."""
    (place,) = (scene.volume / "oplog").glob("s3k-*/")
    return place


def log_file(scene: Scene, kind: str) -> Path:
    """A committed object of the log."""
    return next((log_place(scene) / kind).rglob("*.committed"))


def truncated_entry(scene: Scene) -> str:
    place = log_file(scene, "entries")
    place.write_bytes(place.read_bytes()[:-20])
    return place.name


def truncated_segment(scene: Scene) -> str:
    place = log_file(scene, "segments")
    place.write_bytes(place.read_bytes()[:-20])
    return place.name


def empty_entry(scene: Scene) -> str:
    place = log_file(scene, "entries")
    place.write_bytes(b"")
    return place.name


def newer_entry(scene: Scene) -> str:
    place = log_file(scene, "entries")
    data = place.read_bytes()
    place.write_bytes(re.sub(rb'"format":\d+', b'"format":99', data, count=1))
    assert place.read_bytes() != data
    return place.name


def foreign_content(scene: Scene) -> str:
    place = log_file(scene, "entries")
    place.write_bytes(b"PAR1 not a log entry at all")
    return place.name


def foreign_entry(scene: Scene) -> str:
    place = log_place(scene) / "entries" / "ab" / "notes.txt"
    place.parent.mkdir(exist_ok=True)
    place.write_text("mine")
    return place.name


def foreign_segment(scene: Scene) -> str:
    place = log_place(scene) / "segments" / "notes.committed"
    place.write_text("mine")
    return place.name


@pytest.mark.parametrize(
    "damage",
    [
        truncated_entry,
        truncated_segment,
        empty_entry,
        newer_entry,
        foreign_content,
        foreign_entry,
        foreign_segment,
    ],
)
def test_a_damaged_log_is_reported_and_files_are_as_they_were(
    scene: Scene, tmp_path: Path, damage: Callable[[Scene], str]
) -> None:
    scene = scene.copied(tmp_path)
    key = damage(scene)
    before = snapshot(scene.root)
    (error,) = asyncio.run(log_errors(scene))
    check_error(error, LOG, key)
    check_line(reported(error), LOG.exit, key)
    ran = run_command("fsck", "--grace", "0", str(scene.volume))
    assert (ran.code, ran.stderr) == (9, "")
    lines = ran.stdout.decode().splitlines()
    kind = "log_newer" if damage is newer_entry else "log_damaged"
    assert [key in line for line in lines if line.startswith(f"{kind}: ")] == [True]
    assert lines[-1].startswith("found ")
    assert run_command("cat", f"{scene.volume}:/dir/file").stdout == DATA
    assert run_command("ls", "-R", f"{scene.volume}:/").code == 0
    assert changes(before, snapshot(scene.root)) == []


async def log_errors(scene: Scene) -> list[S3kError]:
    """What a reader of the log complains of."""
    log = LogReader(LocalBlobs(log_place(scene)))
    return [found.error async for found in log.records() if isinstance(found, DamagedLog)]


def test_the_undamaged_volume_is_clean(scene: Scene) -> None:
    assert asyncio.run(log_errors(scene)) == []
    ran = run_command("fsck", "--grace", "0", str(scene.volume))
    assert (ran.code, ran.stderr) == (0, "")
