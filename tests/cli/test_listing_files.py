"""ls -o: listings as files."""

from __future__ import annotations

import gc
import json
import os
import resource
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow.parquet import ParquetFile, read_table

from s3k_async.cli import listing_files
from s3k_async.cli.listing_files import write_jsonl, write_parquet
from s3k_async.cli.output import status_fields
from s3k_async.errors import NoSpaceError, ServiceError
from s3k_async.listing.listings import arrow_schema
from s3k_async.model import FileStatus
from tests.cli.conftest import Cli

Tree = dict[str, bytes]

PATHS = ["/a", "/a/b", "/a/b/three.txt", "/a/b/two.csv", "/a/one.txt", "/empty", "/top.txt"]


def test_parquet_has_what_a_listing_has(cli: Cli, small_tree: Tree) -> None:
    said = cli.ok("ls", "-R", "-o", "all.parquet", "--json").json()
    table = read_table("all.parquet")
    assert said == {"entries": len(PATHS), "file": "all.parquet"}
    assert table.schema.remove_metadata() == arrow_schema()
    rows = sorted(table.to_pylist(), key=lambda row: row["path"])
    assert [row["path"] for row in rows] == PATHS
    assert [row["size"] for row in rows] == [0, 0, 0, 2000, 10, 0, 3]
    assert [row["is_dir"] for row in rows] == [True, True, False, False, False, True, False]


def test_jsonl_is_what_json_says(cli: Cli, small_tree: Tree) -> None:
    assert cli.ok("ls", "-R", "-o", "all.jsonl").out == f"wrote {len(PATHS)} entries to all.jsonl\n"
    wanted = cli.ok("ls", "-R", "--json").json_lines()
    lines = [json.loads(line) for line in Path("all.jsonl").read_text().splitlines()]
    assert sorted(lines, key=lambda line: str(line["path"])) == wanted
    streamed = cli.ok("ls", "-R", "-o", "-").json_lines()
    assert sorted(streamed, key=lambda line: str(line["path"])) == wanted


def test_the_paths_of_several_volumes_are_listed_with_theirs(
    cli: Cli, small_tree: Tree, volume: str
) -> None:
    cli.ok("init", "./other")
    cli.ok("touch", "./other:/raw")
    cli.ok("ls", "/empty", "/top.txt", "./other:/", "-o", "all.jsonl")
    lines = [json.loads(line) for line in Path("all.jsonl").read_text().splitlines()]
    assert [(each["volume"], each["path"]) for each in lines] == [
        (f"{volume}/", "/top.txt"),
        (f"{os.getcwd()}/other:/", "/raw"),
    ]
    refused = cli.fails(2, "ls", "/empty", "./other:/", "-o", "all.parquet")
    assert "no column for the volume" in refused.errors


def test_only_the_directory_without_r(cli: Cli, small_tree: Tree) -> None:
    cli.ok("ls", "/a", "-o", "a.jsonl", "-q")
    assert {json.loads(line)["path"] for line in Path("a.jsonl").read_text().splitlines()} == {
        "/a/b",
        "/a/one.txt",
    }


def test_an_empty_listing_is_a_file_too(cli: Cli, volume: str) -> None:
    cli.ok("ls", "-o", "none.parquet")
    cli.ok("ls", "-o", "none.jsonl")
    assert read_table("none.parquet").num_rows == 0
    assert Path("none.jsonl").read_bytes() == b""


def test_format_goes_before_the_name(cli: Cli, small_tree: Tree) -> None:
    cli.ok("ls", "-o", "x.jsonl", "--format", "parquet")
    assert read_table("x.jsonl").num_rows == 3
    cli.ok("ls", "--output", "y.JSONL")
    cli.ok("ls", "--output", "y", "--format", "jsonl")
    assert len(Path("y").read_text().splitlines()) == 3


@pytest.mark.parametrize(
    "arguments",
    [
        ["-o", "x.txt"],
        ["-o", "x"],
        ["-o", "-", "--format", "parquet"],
        ["--format", "jsonl"],
        ["-o", "x.jsonl", "-l"],
        ["-o", "x.parquet", "-h"],
        ["-o", "x.jsonl", "--format", "csv"],
    ],
)
def test_usage(cli: Cli, volume: str, arguments: list[str]) -> None:
    cli.fails(2, "ls", *arguments)
    assert os.listdir() == []


def test_what_is_no_file_stays(cli: Cli, small_tree: Tree) -> None:
    Path("dir.jsonl").mkdir()
    os.mkfifo("pipe.jsonl")
    assert "dir.jsonl" in cli.fails(1, "ls", "-o", "dir.jsonl").errors
    assert "pipe.jsonl" in cli.fails(1, "ls", "-o", "pipe.jsonl").errors
    assert "no/x.jsonl" in cli.fails(3, "ls", "-o", "no/x.jsonl").errors
    assert sorted(os.listdir()) == ["dir.jsonl", "pipe.jsonl"]


@pytest.mark.parametrize("file", ["x.jsonl", "x.parquet"])
def test_a_failure_leaves_the_old_file(cli: Cli, small_tree: Tree, file: str) -> None:
    Path(file).write_text("old")
    assert "/gone" in cli.fails(3, "ls", "-o", file, "/gone").errors
    assert (os.listdir(), Path(file).read_text()) == ([file], "old")


@pytest.fixture
def small_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No file may grow beyond 100,000 bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def status(number: int) -> FileStatus:
    name = f"{number * 7919 % 10_000_019:032x}"
    return FileStatus(f"/d/{name}", False, number, 1, 1000, name, 2, True, name, name, name)


async def entries(count: int) -> AsyncIterator[dict[str, object]]:
    for number in range(count):
        yield status_fields(status(number))


async def batches(count: int, rows: int = 5000) -> AsyncIterator[pa.RecordBatch]:
    times = pa.array([1000] * rows, pa.timestamp("ms", tz="UTC"))
    for start in range(0, count, rows):
        names = pa.array(
            [f"{number * 7919 % 10_000_019:032x}" for number in range(start, start + rows)]
        )
        numbers = pa.array(range(rows), pa.int64())
        no, yes = pa.array([False] * rows), pa.array([True] * rows)
        columns = [names, no, numbers, times, times, names, numbers, yes, *[names] * 4]
        yield pa.RecordBatch.from_arrays(columns, schema=arrow_schema())


async def test_a_full_disk_leaves_nothing(small_disk: None) -> None:
    with pytest.raises(NoSpaceError, match=r"x\.jsonl"):
        await write_jsonl(entries(20_000), "x.jsonl")
    with pytest.raises(NoSpaceError, match=r"x\.parquet"):
        await write_parquet(batches(20_000), "x.parquet")
    gc.collect()
    assert os.listdir() == []


async def test_a_listing_that_fails_half_way_leaves_nothing() -> None:
    async def failing() -> AsyncIterator[pa.RecordBatch]:
        async for batch in batches(10_000):
            yield batch
        raise ServiceError("half-way", path="/d")

    with pytest.raises(ServiceError, match="half-way"):
        await write_parquet(failing(), "x.parquet")
    gc.collect()
    assert os.listdir() == []


async def test_row_groups_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing_files, "ROW_GROUP", 10_000)
    assert await write_parquet(batches(45_000), "x.parquet") == 45_000
    written = ParquetFile("x.parquet").metadata
    assert [written.row_group(each).num_rows for each in range(written.num_row_groups)] == [
        10_000
    ] * 4 + [5_000]


async def test_lines_do_not_pile_up_in_memory() -> None:
    async def peak(count: int) -> int:
        tracemalloc.start()
        try:
            await write_jsonl(entries(count), "x.jsonl")
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    few, many = await peak(6_000), await peak(18_000)
    assert many < few * 1.5
