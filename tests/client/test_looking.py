"""stat, exists, list, walk, find, content_summary, checksum, physical_path."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pytest

import s3k_async
from s3k_async.client import S3kClient
from s3k_async.config import VolumeConfig
from s3k_async.errors import (
    ConfigError,
    CrossVolumeError,
    DataMissingError,
    InvalidArgumentError,
    InvalidPathError,
    IsDirectoryError,
    PathNotFoundError,
    UncommittedFileError,
)
from s3k_async.listing import batch_listing
from s3k_async.listing.batch_listing import BatchListing, RowListing
from s3k_async.listing.listings import arrow_schema
from s3k_async.model import ContentSummary, FileStatus
from s3k_async.storage.physical import checksum_of
from tests.client.rig import paths
from tests.engines.volumes import volume_backends

pytestmark = [volume_backends("memory", "embedded", "shared"), pytest.mark.layouts("path", "tree")]

TREE = {
    "/top": b"t",
    "/a/one.txt": b"1" * 10,
    "/a/two.csv": b"2" * 500,
    "/a/b/three.txt": b"3" * 30,
    "/a/b/c/four.txt": b"",
    "/z/five": b"5" * 5,
}
DIRECTORIES = {"/a", "/a/b", "/a/b/c", "/z", "/empty"}


async def plant(fs: S3kClient) -> None:
    for path, data in TREE.items():
        await fs.write(path, data)
    await fs.makedirs("/empty")


async def test_stat_tells_everything(fs: S3kClient) -> None:
    written = await fs.write("/a/one", b"hello")
    status = await fs.stat("a//./one")
    assert status == written
    assert (status.path, status.name, status.size) == ("/a/one", "one", 5)
    assert (status.is_file, status.is_dir, status.committed, status.version) == (
        True,
        False,
        True,
        2,
    )
    assert status.checksum == checksum_of(b"hello")
    assert status.physical is not None
    assert status.physical.endswith(f".id={status.id}")
    assert abs(status.mtime_ms - status.ctime_ms) <= 1000
    directory = await fs.stat("/a")
    assert (directory.is_dir, directory.size, directory.committed, directory.physical) == (
        True,
        0,
        True,
        None,
    )
    root = await fs.stat("/")
    assert (root.path, root.name, root.is_dir) == ("/", "", True)


@pytest.mark.parametrize("path", ["/none", "/a/none/deeper", "/top/below-a-file"])
async def test_nothing_there(fs: S3kClient, path: str) -> None:
    await plant(fs)
    for verb in (fs.stat, fs.read, fs.checksum, fs.physical_path, fs.content_summary, fs.delete):
        with pytest.raises(PathNotFoundError) as raised:
            await verb(path)
        assert raised.value.path == path
    for look in (fs.list(path), fs.list(path, recursive=True), fs.walk(path), fs.find(path)):
        with pytest.raises(PathNotFoundError):
            await anext(look)
    assert not await fs.exists(path)
    assert not await fs.is_file(path)
    assert not await fs.is_dir(path)


async def test_what_kind_is_there(fs: S3kClient) -> None:
    await plant(fs)
    assert [await fs.exists(path) for path in ("/", "/a", "/top")] == [True, True, True]
    assert [await fs.is_file(path) for path in ("/", "/a", "/top")] == [False, False, True]
    assert [await fs.is_dir(path) for path in ("/", "/a", "/top")] == [True, True, False]


async def test_urls_of_the_volume_are_paths_and_others_are_refused(fs: S3kClient) -> None:
    await plant(fs)
    assert (await fs.stat(f"s3k://{fs.name}/a/one.txt")).path == "/a/one.txt"
    assert (await fs.stat(f"S3K://{fs.name}")).path == "/"
    with pytest.raises(CrossVolumeError):
        await fs.stat(f"s3k://{fs.name}2/a")
    with pytest.raises(CrossVolumeError):
        await fs.rename("/top", "s3k://elsewhere/top")
    with pytest.raises(CrossVolumeError):
        fs.list("s3k://elsewhere/")
    assert not await fs.exists("http://a")


@pytest.mark.parametrize("path", ["", "/..", "/a/../..", "/nul\0", "/" + "x" * 1025, "/\udc80"])
async def test_paths_that_cannot_be(fs: S3kClient, path: str) -> None:
    for verb in (fs.stat, fs.exists, fs.read, fs.makedirs, fs.touch, fs.delete):
        with pytest.raises(InvalidPathError):
            await verb(path)
    with pytest.raises(InvalidPathError):
        await fs.write(path, b"")
    assert await paths(fs) == set()


@pytest.mark.parametrize(
    "name", ["a:b", "polygenelubricants", " ", "näme", "a%2Fb", "s3k:", "a\nb", "*", "-sf0"]
)
async def test_odd_names_are_names(fs: S3kClient, name: str) -> None:
    await fs.write(f"/dir/{name}", name.encode())
    assert await fs.read(f"/dir/{name}") == name.encode()
    assert {status.name async for status in fs.list("/dir")} == {name}


async def test_listing_a_directory(fs: S3kClient) -> None:
    await plant(fs)
    assert sorted([status.path async for status in fs.list("/a")]) == [
        "/a/b",
        "/a/one.txt",
        "/a/two.csv",
    ]
    assert [status async for status in fs.list("/empty")] == []
    assert {status.path async for status in fs.list()} == {"/top", "/a", "/z", "/empty"}


async def test_listing_everything_below(fs: S3kClient) -> None:
    await plant(fs)
    listed = [status async for status in fs.list("/", recursive=True)]
    assert {status.path for status in listed} == set(TREE) | DIRECTORIES
    assert len(listed) == len(TREE) + len(DIRECTORIES)
    assert {status.path: status.size for status in listed if status.is_file} == {
        p: len(d) for p, d in TREE.items()
    }
    assert await paths(fs, "/a/b") == {"/a/b/three.txt", "/a/b/c", "/a/b/c/four.txt"}


@pytest.mark.parametrize("recursive", [False, True])
async def test_listing_a_file_is_the_file(fs: S3kClient, recursive: bool) -> None:
    await plant(fs)
    assert [status async for status in fs.list("/top", recursive=recursive)] == [
        await fs.stat("/top")
    ]


async def test_reservations_are_hidden_unless_asked_for(fs: S3kClient) -> None:
    await fs.write("/d/there", b"1")
    async with fs.open("/d/coming", "wb") as writer:
        assert not (await fs.stat("/d/coming")).committed
        assert await fs.exists("/d/coming")
        assert {status.name async for status in fs.list("/d")} == {"there"}
        assert {s.name: s.committed async for s in fs.list("/d", include_uncommitted=True)} == {
            "there": True,
            "coming": False,
        }
        assert [status async for status in fs.list("/d/coming")] == []
        assert len([status async for status in fs.list("/d/coming", include_uncommitted=True)]) == 1
        assert [status.name async for status in fs.glob("/d/*")] == ["there"]
        assert [status.name async for status in fs.find("/d")] == ["there"]
        assert [[status.name for status in files] async for _, _, files in fs.walk("/d")] == [
            ["there"]
        ]
        assert await fs.content_summary("/d") == ContentSummary(1, 1, 1)
        assert await fs.content_summary("/d/coming") == ContentSummary(0, 0, 0)
        for verb in (fs.read, fs.checksum, fs.physical_path, fs.touch):
            with pytest.raises(UncommittedFileError):
                await verb("/d/coming")
        with pytest.raises(UncommittedFileError):
            await fs.open("/d/coming")
        await writer.write(b"2")
    assert {status.name async for status in fs.list("/d")} == {"there", "coming"}


async def test_a_listing_as_record_batches(fs: S3kClient) -> None:
    await plant(fs)
    batches = [batch async for batch in fs.list_batches("/", recursive=True)]
    table = pa.Table.from_batches(batches)
    assert table.schema == arrow_schema()
    rows = {row["path"]: row for row in table.to_pylist()}
    assert set(rows) == set(TREE) | DIRECTORIES
    status = await fs.stat("/a/two.csv")
    row = rows["/a/two.csv"]
    assert (row["size"], row["is_dir"], row["version"], row["id"]) == (500, False, 2, status.id)
    assert (row["checksum"], row["physical"]) == (status.checksum, status.physical)
    assert row["mtime"].timestamp() * 1000 == pytest.approx(status.mtime_ms)
    assert rows["/a"]["physical"] is None
    assert [batch async for batch in fs.list_batches("/empty")] == []


async def test_walking_top_down(fs: S3kClient) -> None:
    await plant(fs)
    walked = [
        (path, [d.name for d in dirs], [f.name for f in files])
        async for path, dirs, files in fs.walk("/")
    ]
    assert {path: (dirs, files) for path, dirs, files in walked} == {
        "/": (["a", "empty", "z"], ["top"]),
        "/a": (["b"], ["one.txt", "two.csv"]),
        "/a/b": (["c"], ["three.txt"]),
        "/a/b/c": ([], ["four.txt"]),
        "/empty": ([], []),
        "/z": ([], ["five"]),
    }
    order = [path for path, _, _ in walked]
    assert order.index("/") < order.index("/a") < order.index("/a/b") < order.index("/a/b/c")
    assert [each async for each in fs.walk("/top")] == []


async def test_finding_by_what_is_known(fs: S3kClient) -> None:
    await plant(fs)

    async def found(path: str = "/", **conditions: object) -> set[str]:
        return {status.path async for status in fs.find(path, **conditions)}  # type: ignore[arg-type]

    assert await found(pattern="*.txt") == {"/a/one.txt", "/a/b/three.txt", "/a/b/c/four.txt"}
    assert await found("/a", pattern="b/*") == {"/a/b/three.txt", "/a/b/c"}
    assert await found("/a", pattern="b/**") == {"/a/b/three.txt", "/a/b/c", "/a/b/c/four.txt"}
    assert await found(pattern="{t,z}*", type="file") == {"/top", "/a/two.csv", "/a/b/three.txt"}
    assert await found(type="directory") == DIRECTORIES
    assert await found(type="file") == set(TREE)
    assert await found(min_size=10, max_size=30) == {"/a/one.txt", "/a/b/three.txt"}
    assert await found(max_size=0) == {"/a/b/c/four.txt"}
    assert await found("/a/one.txt", pattern="one*") == {"/a/one.txt"}
    assert await found("/a/one.txt", pattern="two*") == set()
    mtime = (await fs.stat("/z/five")).mtime_ms
    everything = set(TREE) | DIRECTORIES
    assert "/z/five" not in await found(newer_than=mtime)
    assert "/z/five" in await found(newer_than=mtime - 1)
    assert "/z/five" in await found(newer_than=mtime - 0.5)
    assert await found(newer_than=0) == everything
    assert await found(older_than=mtime + 3_600_000) == everything
    assert await found(older_than=1) == set()


async def test_finding_by_times_with_a_zone(fs: S3kClient) -> None:
    await plant(fs)

    async def found(**conditions: datetime) -> bool:
        return "/z/five" in [status.path async for status in fs.find("/z", **conditions)]  # type: ignore[arg-type]

    modified = (await fs.stat("/z/five")).modified
    little, hour = timedelta(microseconds=1), timedelta(hours=1)
    assert not await found(newer_than=modified)
    assert await found(newer_than=modified - little)
    assert not await found(older_than=modified)
    assert await found(older_than=modified + little)
    assert await found(older_than=(modified + little).astimezone(timezone(hour)))
    with pytest.raises(InvalidArgumentError):
        await found(older_than=datetime.now())  # noqa: DTZ005 - no zone is the point


async def test_a_status_prints_what_it_is(fs: S3kClient) -> None:
    await plant(fs)
    status = await fs.stat("/z/five")
    assert str(status).startswith("<FileStatus '/z/five' file, 5 bytes, modified 20")
    listed = [each async for each in fs.list("/z")]
    assert str(listed) == f"[{status}]"


async def test_a_listing_as_a_data_frame(fs: S3kClient) -> None:
    await plant(fs)
    frame = await fs.list_batches("/", recursive=True, sorted=True).to_pandas()
    assert list(frame.columns) == s3k_async.arrow_schema().names
    assert list(frame["path"][frame["size"] > 20]) == ["/a/b/three.txt", "/a/two.csv"]
    status = await fs.stat("/z/five")
    (row,) = frame[frame["path"] == "/z/five"].to_dict("records")
    assert str(frame.dtypes["mtime"]) == str(frame.dtypes["ctime"]) == "datetime64[ms, UTC]"
    assert (row["mtime"], row["ctime"]) == (status.modified, status.created)
    kinds = {name: str(frame.dtypes[name]) for name in ("size", "version", "is_dir", "committed")}
    assert kinds == {"size": "int64", "version": "int64", "is_dir": "bool", "committed": "bool"}


async def test_a_listing_as_a_table(fs: S3kClient) -> None:
    await plant(fs)
    listing = fs.list_batches("/", recursive=True, sorted=True)
    table = await listing.to_arrow()
    assert table.column("path").to_pylist() == sorted(set(TREE) | DIRECTORIES)
    assert (await listing.to_arrow()).num_rows == 0
    empty = await fs.list_batches("/empty").to_arrow()
    assert (empty.num_rows, empty.schema) == (0, s3k_async.arrow_schema())
    assert (await fs.list_batches("/empty").to_pandas()).dtypes["size"] == "int64"
    with pytest.raises(PathNotFoundError):
        await fs.list_batches("/nothing").to_arrow()


async def test_every_listing_of_statuses_as_a_data_frame(
    fs: S3kClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_listing, "BATCH_ROWS", 2)
    await plant(fs)
    await fs.set_attributes("/z/five", uid=7)
    wanted = await fs.list_batches("/", recursive=True, sorted=True).to_arrow()
    for listing in (fs.list("/", recursive=True), fs.find("/"), fs.glob("/**")):
        table = await listing.to_arrow()
        assert table.sort_by("path") == wanted.sort_by("path")
    frame = await fs.find("/", min_size=21).to_pandas()
    assert sorted(frame["path"]) == ["/a/b/three.txt", "/a/two.csv"]
    assert frame.dtypes.equals(wanted.to_pandas().dtypes)
    listing = fs.list("/", recursive=True, sorted=True)
    first = await anext(listing)
    assert [first.path, *(await listing.to_pandas())["path"]] == wanted["path"].to_pylist()
    assert (await listing.to_arrow()).num_rows == 0
    assert (await fs.find("/", pattern="nothing").to_pandas()).dtypes["size"] == "int64"
    with pytest.raises(PathNotFoundError):
        await fs.list("/nothing").to_pandas()


async def test_a_data_frame_without_pandas(fs: S3kClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    listings: list[BatchListing | RowListing[FileStatus]] = [fs.list_batches("/"), fs.list("/")]
    for listing in listings:
        with pytest.raises(ConfigError, match=r"s3k-async\[pandas\]"):
            await listing.to_pandas()


async def test_summaries(fs: S3kClient) -> None:
    await plant(fs)
    total = sum(len(data) for data in TREE.values())
    assert await fs.content_summary("/") == ContentSummary(total, len(TREE), len(DIRECTORIES) + 1)
    assert await fs.content_summary("/a/b") == ContentSummary(30, 2, 2)
    assert await fs.content_summary("/a/two.csv") == ContentSummary(500, 1, 0)
    assert await fs.content_summary("/empty") == ContentSummary(0, 0, 1)


async def test_checksums(fs: S3kClient, config: VolumeConfig) -> None:
    data = bytes(range(256)) * 4
    status = await fs.write("/big", data)
    assert await fs.checksum("/big") == checksum_of(data) == status.checksum
    with pytest.raises(IsDirectoryError):
        await fs.checksum("/")


async def test_a_checksum_that_was_not_recorded_is_computed(fs: S3kClient) -> None:
    data = bytes(range(256)) * 4
    await fs.write("/big", data)
    store = fs._volume().store
    entry = await store.get("/big")
    assert entry is not None
    await store.restore(replace(entry, checksum=""), entry)
    assert (await fs.stat("/big")).checksum == ""
    assert await fs.checksum("/big") == checksum_of(data)
    assert await fs.read("/big") == data


async def test_the_physical_path_is_where_the_bytes_are(fs: S3kClient) -> None:
    await fs.write("/a/file", b"bytes")
    uri = await fs.physical_path("/a/file")
    assert uri.startswith(("memory://", "file:///"))
    storage = fs._volume().storage
    assert await storage.read(uri) == b"bytes"
    with pytest.raises(IsDirectoryError):
        await fs.physical_path("/a")
    await storage.delete(uri)
    with pytest.raises(DataMissingError) as raised:
        await fs.read("/a/file")
    assert raised.value.path == "/a/file"
