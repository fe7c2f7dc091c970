"""Paths that cannot be, and paths that lead to the wrong thing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from s3k_async.bulk.transfer import upload
from s3k_async.client import S3kClient
from tests.bad_input.kinds import (
    ARGUMENT,
    BAD_PATH,
    CROSS_VOLUME,
    DENIED,
    END_OF_FILE,
    EXISTS,
    INTO_SELF,
    IS_DIRECTORY,
    NOT_DIRECTORY,
    NOT_EMPTY,
    NOT_FOUND,
    TYPE,
    UNCOMMITTED,
    UNSUPPORTED,
)
from tests.bad_input.rows import (
    Row,
    Scene,
    check,
    check_line,
    drained,
    opened,
    rows_of,
    run_command,
)

LONG = "/" + "n" * 1025
LONG_IN_BYTES = "/" + "é" * 513
DEEP = "/" + "/".join(["d" * 1000] * 4)
NUL = "/dir/a\0b"
HALF = "/dir/\udc80"

ANY: Any = b"/file"
"""A path of a type that no path has."""

PATHS = (
    Row(
        "write to a name of 1025 bytes",
        BAD_PATH,
        LONG,
        lambda fs: fs.write(LONG, b""),
        "put {local} {vol}:" + LONG,
    ),
    Row(
        "513 letters of 1026 bytes",
        BAD_PATH,
        LONG_IN_BYTES,
        lambda fs: fs.makedirs(LONG_IN_BYTES),
        "mkdir {vol}:" + LONG_IN_BYTES,
    ),
    Row(
        "rename to a name of 1025 bytes",
        BAD_PATH,
        LONG,
        lambda fs: fs.rename("/file", LONG),
        "mv {vol}:/file {vol}:" + LONG,
    ),
    Row(
        "read at a key over 2048 bytes",
        BAD_PATH,
        DEEP,
        lambda fs: fs.read(DEEP),
        "cat {vol}:" + DEEP,
    ),
    Row(
        "write at a key over 2048 bytes",
        BAD_PATH,
        DEEP,
        lambda fs: fs.write(DEEP, b""),
        "put {local} {vol}:" + DEEP,
    ),
    Row(
        "copy to a key over 2048 bytes",
        BAD_PATH,
        DEEP,
        lambda fs: fs.copy("/file", DEEP),
        "cp {vol}:/file {vol}:" + DEEP,
    ),
    Row(
        "NUL",
        BAD_PATH,
        NUL,
        lambda fs: fs.write(NUL, b""),
        "put {local} {vol}:" + NUL,
        told="/dir/a\\x00b",
    ),
    Row("empty path", BAD_PATH, "the path is empty", lambda fs: fs.stat("")),
    Row(
        "dotdot above the root",
        BAD_PATH,
        "/dir/../../x",
        lambda fs: fs.stat("/dir/../../x"),
        "stat {vol}:/dir/../../x",
    ),
    Row(
        "half of a surrogate pair",
        BAD_PATH,
        "/dir/\\udc80",
        lambda fs: fs.write(HALF, b""),
        "put {local} {vol}:" + HALF,
    ),
    Row("path that is not text", TYPE, "b'/file'", lambda fs: fs.stat(ANY)),
    Row(
        "read from another volume",
        CROSS_VOLUME,
        "s3k://other/file",
        lambda fs: fs.read("s3k://other/file"),
    ),
    Row(
        "rename to another volume",
        CROSS_VOLUME,
        "s3k://other/x",
        lambda fs: fs.rename("/file", "s3k://other/x"),
    ),
)

THROUGH_A_FILE = (
    Row(
        "read through a file",
        NOT_FOUND,
        "/file/x",
        lambda fs: fs.read("/file/x"),
        "cat {vol}:/file/x",
    ),
    Row(
        "list through a file",
        NOT_FOUND,
        "/file/x",
        lambda fs: drained(fs.list("/file/x")),
        "ls {vol}:/file/x",
    ),
    Row(
        "write through a file",
        NOT_DIRECTORY,
        "/file",
        lambda fs: fs.write("/file/a/b", b""),
        "put {local} {vol}:/file/a/b",
    ),
    Row(
        "open through a file",
        NOT_DIRECTORY,
        "/dir/file",
        lambda fs: opened(fs, "/dir/file/x", "wb"),
    ),
    Row(
        "touch through a file",
        NOT_DIRECTORY,
        "/dir/file",
        lambda fs: fs.touch("/dir/file/x"),
        "touch {vol}:/dir/file/x",
    ),
    Row(
        "mkdir through a file",
        NOT_DIRECTORY,
        "/dir/file",
        lambda fs: fs.makedirs("/dir/file/x/y"),
        "mkdir -p {vol}:/dir/file/x/y",
    ),
    Row(
        "rename a file through a file",
        NOT_DIRECTORY,
        "/file",
        lambda fs: fs.rename("/dir/other", "/file/x"),
        "mv {vol}:/dir/other {vol}:/file/x",
    ),
    Row(
        "rename a directory through a file",
        NOT_DIRECTORY,
        "/file",
        lambda fs: fs.rename("/dir/sub", "/file/x"),
        "mv {vol}:/dir/sub {vol}:/file/x",
    ),
    Row(
        "copy through a file",
        NOT_DIRECTORY,
        "/file",
        lambda fs: fs.copy("/dir/other", "/file/x"),
        "cp {vol}:/dir/other {vol}:/file/x",
    ),
)

WRONG_KIND = (
    Row("read a directory", IS_DIRECTORY, "/dir", lambda fs: fs.read("/dir"), "cat {vol}:/dir"),
    Row(
        "read ranges of a directory",
        IS_DIRECTORY,
        "/dir",
        lambda fs: fs.read_ranges("/dir", [(0, 1)]),
        "cat --range 0-0 {vol}:/dir",
    ),
    Row(
        "open a directory",
        IS_DIRECTORY,
        "/dir",
        lambda fs: opened(fs, "/dir"),
        "get {vol}:/dir {out}",
    ),
    Row(
        "open a directory for writing",
        IS_DIRECTORY,
        "/empty",
        lambda fs: opened(fs, "/empty", "wb"),
        "put - {vol}:/empty",
    ),
    Row("write over a directory", IS_DIRECTORY, "/dir", lambda fs: fs.write("/dir", b"")),
    Row("write over the root", IS_DIRECTORY, "/", lambda fs: fs.write("/", b"")),
    Row("touch a directory", IS_DIRECTORY, "/dir", lambda fs: fs.touch("/dir"), "touch {vol}:/dir"),
    Row("checksum of a directory", IS_DIRECTORY, "/dir", lambda fs: fs.checksum("/dir")),
    Row("physical path of the root", IS_DIRECTORY, "/", lambda fs: fs.physical_path("/")),
    Row(
        "copy a directory as a file",
        IS_DIRECTORY,
        "/dir",
        lambda fs: fs.copy("/dir", "/new"),
        "cp {vol}:/dir {vol}:/new",
    ),
    Row(
        "mkdir over a file",
        EXISTS,
        "/file",
        lambda fs: fs.makedirs("/file"),
        "mkdir -p {vol}:/file",
    ),
    Row(
        "rename a directory over a file",
        EXISTS,
        "/file",
        lambda fs: fs.rename("/dir", "/file", overwrite=True),
        "mv -f {vol}:/dir {vol}:/file",
    ),
    Row(
        "rename a file over a directory",
        EXISTS,
        "/empty",
        lambda fs: fs.rename("/file", "/empty", overwrite=True),
    ),
    Row(
        "copy a directory over a file",
        EXISTS,
        "/file",
        lambda fs: fs.copy("/dir", "/file", recursive=True, overwrite=True),
        "cp -r {vol}:/dir {vol}:/file",
    ),
)

MISSING = (
    Row(
        "stat of nothing",
        NOT_FOUND,
        "/dir/none",
        lambda fs: fs.stat("/dir/none"),
        "stat {vol}:/dir/none",
    ),
    Row(
        "read of nothing", NOT_FOUND, "/none/x", lambda fs: fs.read("/none/x"), "cat {vol}:/none/x"
    ),
    Row(
        "open of nothing",
        NOT_FOUND,
        "/none",
        lambda fs: opened(fs, "/none"),
        "get {vol}:/none {out}",
    ),
    Row(
        "list of nothing",
        NOT_FOUND,
        "/none",
        lambda fs: drained(fs.list("/none", recursive=True)),
        "ls -R {vol}:/none",
    ),
    Row(
        "walk of nothing",
        NOT_FOUND,
        "/none",
        lambda fs: drained(fs.walk("/none")),
        "tree {vol}:/none",
    ),
    Row(
        "find below nothing",
        NOT_FOUND,
        "/none",
        lambda fs: drained(fs.find("/none")),
        "find {vol}:/none",
    ),
    Row(
        "sum of nothing",
        NOT_FOUND,
        "/none",
        lambda fs: fs.content_summary("/none"),
        "du {vol}:/none",
    ),
    Row("delete of nothing", NOT_FOUND, "/none", lambda fs: fs.delete("/none"), "rm {vol}:/none"),
    Row(
        "recursive delete of nothing",
        NOT_FOUND,
        "/none",
        lambda fs: fs.delete("/none", recursive=True),
        "rm -r {vol}:/none",
    ),
    Row(
        "rename of nothing",
        NOT_FOUND,
        "/none",
        lambda fs: fs.rename("/none", "/x"),
        "mv {vol}:/none {vol}:/x",
    ),
    Row(
        "copy of nothing",
        NOT_FOUND,
        "/none",
        lambda fs: fs.copy("/none", "/x"),
        "cp {vol}:/none {vol}:/x",
    ),
    Row("checksum of nothing", NOT_FOUND, "/none", lambda fs: fs.checksum("/none")),
    Row("fsck of nothing", NOT_FOUND, "/none", lambda fs: fs.stat("/none"), "fsck {vol}:/none"),
    Row(
        "rename a file below nothing",
        NOT_FOUND,
        "/none",
        lambda fs: fs.rename("/file", "/none/x"),
        "mv {vol}:/file {vol}:/none/x",
    ),
    Row(
        "rename a directory below nothing",
        NOT_FOUND,
        "/none",
        lambda fs: fs.rename("/dir", "/none/x"),
        "mv {vol}:/dir {vol}:/none/x",
    ),
    Row(
        "put of no local file",
        NOT_FOUND,
        "no-such-file",
        lambda fs: upload(fs, fs._volume(), "no-such-file", "/x"),
        "put no-such-file {vol}:/x",
    ),
)

IN_THE_WAY = (
    Row(
        "write without overwriting",
        EXISTS,
        "/file",
        lambda fs: fs.write("/file", b"", overwrite=False),
        "put --no-overwrite {local} {vol}:/file",
    ),
    Row("create what exists", EXISTS, "/file", lambda fs: opened(fs, "/file", "xb")),
    Row(
        "make a directory that exists",
        EXISTS,
        "/dir",
        lambda fs: fs.makedirs("/dir", exist_ok=False),
        "mkdir {vol}:/dir",
    ),
    Row(
        "rename to a file that exists",
        EXISTS,
        "/dir/file",
        lambda fs: fs.rename("/file", "/dir/file"),
        "mv {vol}:/file {vol}:/dir/file",
    ),
    Row(
        "rename to a directory that exists",
        EXISTS,
        "/dir",
        lambda fs: fs.rename("/empty", "/dir"),
        "mv {vol}:/empty {vol}:/dir",
    ),
    Row("rename to the root", EXISTS, "/", lambda fs: fs.rename("/file", "/")),
    Row(
        "copy to a file that exists",
        EXISTS,
        "/dir/file",
        lambda fs: fs.copy("/file", "/dir/file"),
        "cp --no-overwrite {vol}:/file {vol}:/dir/file",
    ),
    Row(
        "rename a directory into itself",
        INTO_SELF,
        "/dir/sub/x",
        lambda fs: fs.rename("/dir", "/dir/sub/x"),
        "mv {vol}:/dir {vol}:/dir/sub/x",
    ),
    Row(
        "rename a directory to itself",
        INTO_SELF,
        "/dir",
        lambda fs: fs.rename("/dir", "/dir"),
        "mv {vol}:/dir {vol}:/dir",
    ),
    Row("rename the root", INTO_SELF, "/x", lambda fs: fs.rename("/", "/x"), "mv {vol}:/ {vol}:/x"),
    Row(
        "copy a directory into itself",
        INTO_SELF,
        "/dir/sub/x",
        lambda fs: fs.copy("/dir", "/dir/sub/x", recursive=True),
        "cp -r {vol}:/dir {vol}:/dir/sub/x",
    ),
    Row(
        "delete a directory with something in it",
        NOT_EMPTY,
        "/dir",
        lambda fs: fs.delete("/dir"),
        "rm {vol}:/dir",
    ),
    Row("delete the root", DENIED, "/", lambda fs: fs.delete("/", recursive=True), "rm -r {vol}:/"),
)

RESERVED = (
    Row(
        "read a reservation",
        UNCOMMITTED,
        "/dir/reserved",
        lambda fs: fs.read("/dir/reserved"),
        "cat {vol}:/dir/reserved",
    ),
    Row(
        "open a reservation",
        UNCOMMITTED,
        "/dir/reserved",
        lambda fs: opened(fs, "/dir/reserved"),
        "get {vol}:/dir/reserved {out}",
    ),
    Row(
        "rename a reservation",
        UNCOMMITTED,
        "/dir/reserved",
        lambda fs: fs.rename("/dir/reserved", "/x"),
        "mv {vol}:/dir/reserved {vol}:/x",
    ),
    Row(
        "copy a reservation",
        UNCOMMITTED,
        "/dir/reserved",
        lambda fs: fs.copy("/dir/reserved", "/x"),
        "cp {vol}:/dir/reserved {vol}:/x",
    ),
    Row(
        "touch a reservation",
        UNCOMMITTED,
        "/dir/reserved",
        lambda fs: fs.touch("/dir/reserved"),
        "touch {vol}:/dir/reserved",
    ),
    Row(
        "create a reservation again",
        EXISTS,
        "/dir/reserved",
        lambda fs: opened(fs, "/dir/reserved", "xb"),
    ),
)


async def seek_before_the_start(fs: S3kClient) -> None:
    async with fs.open("/file") as file:
        await file.seek(-1)


async def seek_from_nowhere(fs: S3kClient) -> None:
    async with fs.open("/file") as file:
        await file.seek(0, 7)


async def read_at_a_negative_offset(fs: S3kClient) -> None:
    async with fs.open("/file") as file:
        await file.read_at(-1, 2)


async def write_text_to_a_file(fs: S3kClient) -> None:
    async with fs.open("/file", "wb") as file:
        await file.write(TEXT)


TEXT: Any = "text"
"""What no file takes."""
MANY = "/dir/" + "{a,b}" * 20

ARGUMENTS = (
    Row("mode that is none", ARGUMENT, "/file", lambda fs: opened(fs, "/file", "rw")),
    Row("mode to append text", UNSUPPORTED, "/file", lambda fs: opened(fs, "/file", "a")),
    Row("mode to change", UNSUPPORTED, "/file", lambda fs: opened(fs, "/file", "r+b")),
    Row("mode for text", UNSUPPORTED, "/file", lambda fs: opened(fs, "/file", "r")),
    Row(
        "range before the start",
        ARGUMENT,
        "/file",
        lambda fs: fs.read_ranges("/file", [(0, 2), (-1, 2)]),
        "cat --range=--1 {vol}:/file",
        told="--range",
    ),
    Row(
        "range that ends before it begins",
        ARGUMENT,
        "/file",
        lambda fs: fs.read_ranges("/file", [(5, 2)]),
        "cat --range 5-2 {vol}:/file",
        told="5-2",
    ),
    Row("seek before the start", ARGUMENT, "/file", seek_before_the_start),
    Row("seek from nowhere", ARGUMENT, "/file", seek_from_nowhere),
    Row("read at a negative offset", ARGUMENT, "/file", read_at_a_negative_offset),
    Row("write text", TYPE, "/new/text", lambda fs: fs.write("/new/text", TEXT)),
    Row("overwrite with text", TYPE, "/file", lambda fs: fs.write("/file", TEXT)),
    Row("write text to an open file", TYPE, "/file", write_text_to_a_file),
    Row("glob of too many alternatives", ARGUMENT, MANY, lambda fs: drained(fs.glob(MANY))),
)


@rows_of(*PATHS, *THROUGH_A_FILE, *WRONG_KIND, *MISSING, *IN_THE_WAY, *RESERVED, *ARGUMENTS)
def test_row(row: Row, scene: Scene, tmp_path: Path) -> None:
    check(row, scene, tmp_path)


def test_a_part_of_a_file_past_its_end(scene: Scene) -> None:
    """The line of a command whose call has no error: reading past the end gives nothing."""
    ran = run_command("cat", "--range", "10-", f"{scene.volume}:/file")
    check_line(ran, END_OF_FILE.exit, "/file")
