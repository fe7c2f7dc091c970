"""Volumes that are not there, are no volumes, are newer, or are not the ones that were asked
for."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

from s3k_async.client import S3kClient
from s3k_async.config import LocalDirectory, MemoryBlobs, MemoryTable, SqliteFile, VolumeConfig
from s3k_async.volumes import destroy_volume, init_volume, open_volume
from tests.bad_input.kinds import (
    CONFIG,
    CORRUPT,
    ITEM,
    MISMATCH,
    NEWER,
    NO_VOLUME,
    NOT_A_VOLUME,
    NOT_EMPTY,
    READ_ONLY,
    UNSUPPORTED,
    VOLUME_EXISTS,
    Kind,
)
from tests.bad_input.rows import (
    Call,
    Row,
    Scene,
    check,
    check_error,
    check_line,
    drained,
    error_of,
    opened,
    rows_of,
    run_command,
    sql,
)

Damage = Callable[[Scene], None]

TABLE = "{vol}/metadata.sqlite"
UNSEALED = "segment = segment & 0xFFFFFFFF"
"""What makes a row one that was written before rows had a checksum of their own."""
RECORD = "partition = 's3k:volume'"


async def only_open(_: S3kClient) -> None:
    """Nothing: the volume does not even open."""


def no_volume(scene: Scene) -> None:
    shutil.rmtree(scene.volume)
    scene.volume.mkdir()
    (scene.volume / "notes.txt").write_text("mine")


def no_directory(scene: Scene) -> None:
    shutil.rmtree(scene.volume)


def a_file(scene: Scene) -> None:
    shutil.rmtree(scene.volume)
    scene.volume.write_text("mine")


def no_data(scene: Scene) -> None:
    shutil.rmtree(scene.volume / "data")


def no_log(scene: Scene) -> None:
    shutil.rmtree(scene.volume / "oplog")


def text(scene: Scene) -> None:
    (scene.volume / "metadata.sqlite").write_text("not a database " * 1000)


def nothing(scene: Scene) -> None:
    (scene.volume / "metadata.sqlite").write_bytes(b"")


def a_directory(scene: Scene) -> None:
    (scene.volume / "metadata.sqlite").unlink()
    (scene.volume / "metadata.sqlite").mkdir()


def somebody_elses(scene: Scene) -> None:
    (scene.volume / "metadata.sqlite").unlink()
    with closing(sqlite3.connect(scene.volume / "metadata.sqlite")) as database:
        database.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, price REAL)")
        database.execute("INSERT INTO items VALUES (1, 2.5)")
        database.commit()


def broken_pages(scene: Scene) -> None:
    path = scene.volume / "metadata.sqlite"
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xa5" * (len(whole) - 4096))


def newer_table(scene: Scene) -> None:
    with closing(sqlite3.connect(scene.volume / "metadata.sqlite")) as database:
        database.execute("PRAGMA user_version = 2")


def newer_format(scene: Scene) -> None:
    sql(
        scene,
        f"UPDATE items SET {UNSEALED}, attributes = json_set(attributes, '$.format', 2) WHERE "
        f"{RECORD}",
    )


def unknown_feature(scene: Scene) -> None:
    sql(
        scene,
        f"UPDATE items SET {UNSEALED}, attributes = json_set(attributes, '$.flags', 'hyperspace') "
        f"WHERE {RECORD}",
    )


def newer_client_needed(scene: Scene) -> None:
    sql(
        scene,
        f"UPDATE items SET {UNSEALED}, attributes = json_set(attributes, '$.min_client', 9) WHERE "
        f"{RECORD}",
    )


def damaged_record(scene: Scene) -> None:
    sql(
        scene,
        f"UPDATE items SET {UNSEALED}, attributes = json_remove(attributes, '$.suffix_count') "
        f"WHERE {RECORD}",
    )


def damaged_tag(scene: Scene) -> None:
    sql(scene, "UPDATE tags SET value = 'f:1 s:many'")


def record_against_tag(scene: Scene) -> None:
    sql(
        scene,
        f"UPDATE items SET {UNSEALED}, attributes = json_set(attributes, '$.suffix_count', 5) "
        f"WHERE {RECORD}",
    )


def no_record(scene: Scene) -> None:
    sql(scene, f"DELETE FROM items WHERE {RECORD}", "DELETE FROM tags")


def damaged_item(scene: Scene) -> None:
    sql(
        scene,
        f"UPDATE items SET {UNSEALED}, attributes = json_remove(attributes, '$.ver') WHERE sort = "
        "'other'",
    )


def row(
    title: str, expected: Kind, about: str, arrange: Damage | None = None, **settings: object
) -> Row:
    """A volume that does not open; settings of the client are flags of the command."""
    flags = "".join(f" --{name.replace('_', '-')} {value}" for name, value in settings.items())
    command = "ls {vol}:/" + flags
    return Row(
        title,
        expected,
        about,
        only_open,
        command,
        arrange=arrange,
        settings=tuple(settings.items()),
    )


NOT_THERE = (
    row("directory that is no volume", NO_VOLUME, TABLE, no_volume),
    row("no directory", NO_VOLUME, TABLE, no_directory),
    row("file instead of a volume", NO_VOLUME, TABLE, a_file),
    row("no directory of data", NO_VOLUME, "{vol}/data", no_data),
    row("no directory of the log", NO_VOLUME, "{vol}/oplog", no_log),
    row("table that is text", NOT_A_VOLUME, TABLE, text),
    row("table that is empty", NOT_A_VOLUME, TABLE, nothing),
    row("table that is a directory", NOT_A_VOLUME, TABLE, a_directory),
    row("table of somebody else", NOT_A_VOLUME, TABLE, somebody_elses),
    row("table with broken pages", CORRUPT, TABLE, broken_pages),
    row("items without a record", NOT_A_VOLUME, TABLE, no_record),
    row("damaged record", NOT_A_VOLUME, TABLE, damaged_record),
    row("damaged tag", NOT_A_VOLUME, TABLE, damaged_tag),
)

NEWER_ONES = (
    row("table of a newer format", NEWER, TABLE, newer_table),
    row("volume of a newer format", NEWER, TABLE, newer_format),
    row("unknown feature", NEWER, TABLE, unknown_feature),
    row("newer client needed", NEWER, TABLE, newer_client_needed),
)

OTHERS = (
    row("other suffix count", MISMATCH, TABLE, suffix_count=7),
    row("other hash", MISMATCH, TABLE, hash="java31"),
    row("other log mode", MISMATCH, TABLE, log_mode="disabled"),
    row("other name", MISMATCH, TABLE, name="other"),
    row("other place of data", MISMATCH, TABLE, data_location="{root}/elsewhere"),
    row("other kind", MISMATCH, TABLE, kind="s3k-1.0", suffix_count=4),
    row("record that disagrees with the tag", MISMATCH, TABLE, record_against_tag),
)

DAMAGED_ITEMS = (
    Row(
        "list with a damaged item",
        ITEM,
        "other",
        lambda fs: drained(fs.list("/dir")),
        "ls {vol}:/dir",
        arrange=damaged_item,
    ),
    Row(
        "walk over a damaged item",
        ITEM,
        "other",
        lambda fs: drained(fs.walk("/")),
        "ls -R {vol}:/",
        arrange=damaged_item,
    ),
    Row(
        "stat of a damaged item",
        ITEM,
        "other",
        lambda fs: fs.stat("/dir/other"),
        "stat {vol}:/dir/other",
        arrange=damaged_item,
    ),
    Row(
        "write over a damaged item",
        ITEM,
        "other",
        lambda fs: fs.write("/dir/other", b""),
        "put {local} {vol}:/dir/other",
        arrange=damaged_item,
    ),
    Row(
        "delete of a damaged item",
        ITEM,
        "other",
        lambda fs: fs.delete("/dir/other"),
        "rm {vol}:/dir/other",
        arrange=damaged_item,
    ),
)


def root_of(fs: S3kClient) -> Path:
    assert isinstance(fs.config.table, SqliteFile)
    return Path(fs.config.table.path).parents[1]


async def init_beside(fs: S3kClient) -> None:
    """A volume with a table of its own, in the place of the other one's bytes."""
    await init_volume(
        VolumeConfig("second", SqliteFile(str(root_of(fs) / "second.sqlite")), fs.config.data)
    )


SECOND = "init --name second --table sqlite:{root}/second.sqlite --data-location {vol}/data"
LONG_PREFIX = "p" * 200

MAKING = (
    Row("init twice", VOLUME_EXISTS, TABLE, lambda fs: init_volume(fs.config), "init {vol}"),
    Row(
        "init that disagrees",
        MISMATCH,
        TABLE,
        lambda fs: init_volume(replace(fs.config, suffix_count=9), exist_ok=True),
        "init --exist-ok --suffix-count 9 {vol}",
    ),
    Row("init over the bytes of another volume", VOLUME_EXISTS, "{vol}/data", init_beside, SECOND),
    Row(
        "init of an s3k-1.0 volume",
        UNSUPPORTED,
        "third.sqlite",
        lambda fs: init_volume(
            replace(fs.config, kind="s3k-1.0", table=SqliteFile("third.sqlite"))
        ),
        "init --kind s3k-1.0 --suffix-count 10 --name x --table sqlite:third.sqlite "
        "--data-location third",
    ),
    Row(
        "init of a name that is none",
        CONFIG,
        "a/b",
        lambda fs: init_volume(replace(fs.config, name="a/b", table=SqliteFile("third.sqlite"))),
        "init --name a/b --table sqlite:third.sqlite --data-location third",
    ),
    Row(
        "init of places too long for a tag",
        CONFIG,
        "long",
        lambda fs: init_volume(
            replace(fs.config, name="long", table=MemoryTable("t"), data=MemoryBlobs("b" * 300))
        ),
        "init --name long --table memory://t --data-location memory://" + "b" * 300,
    ),
    Row(
        "destroy with files in it",
        NOT_EMPTY,
        TABLE,
        lambda fs: destroy_volume(fs.config),
        "destroy --yes {vol}",
    ),
    Row(
        "destroy of nothing",
        NO_VOLUME,
        "nowhere",
        lambda fs: destroy_volume(replace(fs.config, table=SqliteFile("nowhere/metadata.sqlite"))),
        "destroy --yes ./nowhere",
    ),
)

OLD = (
    " --kind s3k-1.0 --table sqlite:{root}/old.sqlite --data-location {root}/old-data "
    "--suffix-count"
)


def old(title: str, about: str, call: Call, command: str) -> Row:
    """A change of the volume that S3-FileSystem 1.0 wrote."""

    async def on_old(fs: S3kClient) -> None:
        root = root_of(fs)
        async with S3kClient(
            "s3k://bucket",
            kind="s3k-1.0",
            table=f"sqlite:{root}/old.sqlite",
            data_location=root / "old-data",
            suffix_count=10,
        ) as volume:
            await call(volume)

    return Row(title, READ_ONLY, about, on_old, f"{command}{OLD} 10")


OLD_ONES = (
    old(
        "write to s3k-1.0", "/new", lambda fs: fs.write("/new", b""), "put {local} s3k://bucket/new"
    ),
    old(
        "open for writing on s3k-1.0",
        "/file",
        lambda fs: opened(fs, "/file", "wb"),
        "put {local} s3k://bucket/file",
    ),
    old("mkdir on s3k-1.0", "/new", lambda fs: fs.makedirs("/new"), "mkdir s3k://bucket/new"),
    old("touch on s3k-1.0", "/file", lambda fs: fs.touch("/file"), "touch s3k://bucket/file"),
    old("delete on s3k-1.0", "/file", lambda fs: fs.delete("/file"), "rm s3k://bucket/file"),
    old(
        "rmdir on s3k-1.0",
        "/dir0",
        lambda fs: fs.delete("/dir0", recursive=True),
        "rm -r s3k://bucket/dir0",
    ),
    old(
        "rename on s3k-1.0",
        "/new",
        lambda fs: fs.rename("/file", "/new"),
        "mv s3k://bucket/file s3k://bucket/new",
    ),
    old(
        "rename a directory on s3k-1.0",
        "/x",
        lambda fs: fs.rename("/dir0", "/x"),
        "mv s3k://bucket/dir0 s3k://bucket/x",
    ),
    old(
        "copy on s3k-1.0",
        "/new",
        lambda fs: fs.copy("/file", "/new"),
        "cp s3k://bucket/file s3k://bucket/new",
    ),
)


@rows_of(*NOT_THERE, *NEWER_ONES, *OTHERS, *DAMAGED_ITEMS, *MAKING, *OLD_ONES)
def test_row(row: Row, scene: Scene, tmp_path: Path) -> None:
    check(row, scene, tmp_path)


def test_s3k_1_0_with_another_suffix_count(scene: Scene) -> None:
    def config(count: int) -> VolumeConfig:
        data = LocalDirectory(str(scene.root / "old-data"))
        return VolumeConfig(
            "bucket", SqliteFile(str(scene.root / "old.sqlite")), data, None, "s3k-1.0", count
        )

    for count in (1, 7, 11):
        error = error_of(partial(open_volume, config(count)))
        check_error(error, MISMATCH, "old.sqlite")
        ran = run_command(*f"ls s3k://bucket/ {scene.text(OLD)} {count}".split())
        check_line(ran, MISMATCH.exit, "old.sqlite")
    assert run_command(*f"ls s3k://bucket/ {scene.text(OLD)} 10".split()).code == 0
