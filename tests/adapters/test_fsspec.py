"""`s3k://` for fsspec: volumes and paths, what is looked up, what a writer leaves, what travels in
a pickle."""

from __future__ import annotations

import _thread
import asyncio
import gc
import io
import json
import pickle
import threading
import time
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import fsspec
import pytest
from fsspec.callbacks import Callback
from fsspec.dircache import DirCache

from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async.adapters import fsspec_listing, fsspec_transfer
from s3k_async.adapters.fsspec import S3kFileSystem
from s3k_async.adapters.fsspec_changes import AtOnce
from s3k_async.client import S3kClient
from s3k_async.config import AwsConfig, DynamoTable, S3Bucket, Secret, VolumeConfig
from s3k_async.errors import (
    ArgumentTypeError,
    BusyError,
    ConfigError,
    CrossVolumeError,
    DirectoryNotEmptyError,
    InvalidArgumentError,
    InvalidPathError,
    IsDirectoryError,
    NotDirectoryError,
    OutcomeUnknownError,
    PathExistsError,
    PathNotFoundError,
    PermissionDeniedError,
    UnsupportedError,
    VolumeMismatchError,
    WrongLoopError,
)
from s3k_async.model import FileStatus
from s3k_async.volumes import init_volume
from tests.client.rig import memory_config

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def config() -> VolumeConfig:
    config = memory_config()
    asyncio.run(init_volume(config))
    return config


@pytest.fixture
def fs(config: VolumeConfig) -> Iterator[S3kFileSystem]:
    fs = S3kFileSystem(config=config)
    yield fs
    fs.close_session()


@pytest.fixture
def embedded(tmp_path: Path) -> Path:
    directory = tmp_path / "lake"
    asyncio.run(init_volume(S3kSyncClient(directory).config))
    return directory


# Volumes and paths


def test_the_entry_point_is_the_filesystem() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["fsspec.specs"] == {
        "s3k": "s3k_async.adapters.fsspec:S3kFileSystem"
    }
    assert fsspec.get_filesystem_class("s3k") is S3kFileSystem


def test_a_url_names_the_volume_of_an_option(embedded: Path) -> None:
    with fsspec.open("s3k://lake/raw/x", "w", volume=str(embedded)) as file:
        file.write("text")
    fs, path = fsspec.url_to_fs("s3k://lake/raw/x", volume=str(embedded))
    assert (path, fs.volume, fs.unstrip_protocol(path)) == ("/raw/x", "lake", "s3k://lake/raw/x")
    assert fs.cat("s3k://lake/raw/x") == fs.cat("/raw/x") == fs.cat("raw/x") == b"text"


def test_a_url_of_another_volume_than_the_option_is_refused(embedded: Path) -> None:
    with pytest.raises(VolumeMismatchError), fsspec.open("s3k://sea/raw/x", volume=str(embedded)):
        pass
    with pytest.raises(ConfigError):
        fsspec.filesystem("s3k", volume="s3k://sea", name="lake", table="table", bucket="bucket")


def test_an_object_never_touches_its_own_path_for_the_url_of_another_volume(
    embedded: Path, fs: S3kFileSystem
) -> None:
    unopened = S3kFileSystem(embedded)
    for each in (fs, unopened):
        for call in (
            each.info,
            each.ls,
            each.rm,
            each.cat,
            each.touch,
            each.isdir,
            each.find,
            each.glob,
            each.walk,
        ):
            with pytest.raises(CrossVolumeError):
                list(call("s3k://other/x"))
        with pytest.raises(CrossVolumeError):
            each.mv("/x", "s3k://other/x")
        with pytest.raises(CrossVolumeError):
            each.rm(["/x", "s3k://other/x"], recursive=True)
        with pytest.raises(CrossVolumeError):
            each.open("s3k://other/x", "wb")


def test_the_name_of_an_embedded_volume_is_found_out_before_a_url_is_taken(embedded: Path) -> None:
    assert S3kFileSystem(embedded).exists("s3k://lake/") is True
    assert repr(S3kFileSystem(embedded)).startswith("<S3kFileSystem ")

    async def asked() -> bool:
        fs = S3kFileSystem(embedded, asynchronous=True)
        with pytest.raises(CrossVolumeError):
            await fs._exists("s3k://sea/")
        return bool(await fs._exists("s3k://lake/"))

    assert asyncio.run(asked()) is True


def test_a_relative_directory_is_the_one_of_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for name in ("one", "two"):
        home = tmp_path / name
        home.mkdir()
        asyncio.run(init_volume(S3kSyncClient(home / "lake").config))
        monkeypatch.chdir(home)
        fs = S3kFileSystem("./lake")
        fs.touch(f"/{name}")
        found.append(fs.ls("/", detail=False))
    assert found == [["/one"], ["/two"]]


def test_an_unknown_option_is_refused_with_the_one_that_was_meant(embedded: Path) -> None:
    with pytest.raises(ConfigError, match="max_concurrency"):
        S3kFileSystem(embedded, max_concurency=3)
    assert S3kFileSystem(embedded, max_concurrency=3)._config.tuning.max_concurrency == 3


# Looking


def test_what_info_says(fs: S3kFileSystem) -> None:
    fs.pipe("/a/b", b"12345")
    info = fs.info("/a/b")
    assert {
        "name": "/a/b",
        "size": 5,
        "type": "file",
        "version": 2,
        "committed": True,
    }.items() <= info.items()
    assert isinstance(info["mtime"], float)
    assert isinstance(info["created"], float)
    assert fs.ls("/a") == [info]
    assert fs.ls("/a/b") == [info]
    assert fs.info("/a/")["type"] == fs.info("/")["type"] == "directory"
    now = datetime.now(UTC)
    assert abs(now - fs.modified("/a/b")).total_seconds() < 60
    assert abs(now - fs.created("/a/b")).total_seconds() < 60


def test_checksum_and_ukey_change_with_every_write(fs: S3kFileSystem) -> None:
    seen = set()
    for data in (b"1", b"2", b"2"):
        fs.pipe("/a", data)
        assert fs.ukey("/a") == fs.ukey("/a")
        seen.add((fs.ukey("/a"), fs.checksum("/a")))
    fs.rm("/a")
    fs.pipe("/a", b"2")
    seen.add((fs.ukey("/a"), fs.checksum("/a")))
    assert len(seen) == len({ukey for ukey, _ in seen}) == 4


def test_nothing_is_remembered_unless_it_was_asked_for(
    fs: S3kFileSystem, config: VolumeConfig
) -> None:
    with S3kSyncClient(config=config) as other:
        assert fs.ls("/", detail=False) == []
        assert not fs.exists("/a/b")
        other.write("/a/b", b"1")
        assert (fs.ls("/", detail=False), fs.exists("/a/b"), fs.find("/")) == (
            ["/a"],
            True,
            ["/a/b"],
        )
        other.delete("/a", recursive=True)
        assert (fs.ls("/", detail=False), fs.exists("/a/b"), fs.glob("/*/*")) == ([], False, [])
        with pytest.raises(PathNotFoundError):
            fs.info("/a/b")


def test_a_listing_in_memory_forgets_what_the_object_changes(config: VolumeConfig) -> None:
    fs = S3kFileSystem(config=config, use_listings_cache=True)
    fs.pipe("/a/b", b"1")
    with S3kSyncClient(config=config) as other:
        assert fs.ls("/a", detail=False) == ["/a/b"]
        other.write("/a/c", b"1")
        assert fs.ls("/a", detail=False) == ["/a/b"], "it was asked to remember"
        assert not fs.exists("/a/c")
        assert fs.ls("/a", detail=False, refresh=True) == ["/a/b", "/a/c"]
        other.write("/a/d", b"1")
        fs.invalidate_cache()
        assert fs.exists("/a/d")
    changes: list[Any] = [
        lambda: fs.pipe("/a/e", b"1"),
        lambda: fs.touch("/a/f"),
        lambda: fs.mv("/a/e", "/a/g"),
        lambda: fs.makedirs("/a/h/i"),
        lambda: fs.copy("/a/g", "/a/j"),
        lambda: fs.rm("/a/h", recursive=True),
        lambda: fs.rm_file("/a/j"),
        lambda: fs.write_text("/a/k", "text"),
    ]
    for change in changes:
        before = fs.ls("/a", detail=False)
        change()
        found = fs.ls("/a", detail=False)
        assert found != before
        assert found == fs.ls("/a", detail=False, refresh=True)
    fs.close_session()


def test_a_change_during_a_listing_keeps_the_listing_out_of_memory(
    config: VolumeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = S3kFileSystem(config=config, use_listings_cache=True)
    fs.pipe("/a/b", b"1")
    children = fsspec_listing.children

    async def overtaken(client: S3kClient, path: str) -> list[FileStatus]:
        found = await children(client, path)
        await fs._pipe_file("/a/c", b"1")
        return found

    with monkeypatch.context() as patched:
        patched.setattr(fsspec_listing, "children", overtaken)
        assert fs.ls("/a", detail=False) == ["/a/b"]
    assert fs.ls("/a", detail=False) == ["/a/b", "/a/c"]
    fs.close_session()


def test_a_change_by_another_thread_keeps_a_listing_out_of_memory(
    config: VolumeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = S3kFileSystem(config=config, use_listings_cache=True)
    fs.pipe("/a/b", b"1")

    store = DirCache.__setitem__

    def overtaken(cache: object, key: str, value: object) -> None:
        fs.invalidate_cache("/a/c")
        store(cache, key, value)

    monkeypatch.setattr(DirCache, "__setitem__", overtaken)
    assert fs.ls("/a", detail=False) == ["/a/b"]
    assert list(fs.dircache) == []
    fs.close_session()


@pytest.mark.parametrize("verb", ["mkdir", "makedirs", "rmdir"])
def test_a_change_with_an_unknown_outcome_is_forgotten(
    config: VolumeConfig, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """It may have been made, like an interrupted one."""
    fs = S3kFileSystem(config=config, use_listings_cache=True)
    fs.makedirs("/a/old")
    assert len(fs.ls("/a")) == 1

    def unknown(change: Any) -> Any:
        async def lost(*given: object, **options: object) -> None:
            await change(*given, **options)
            raise OutcomeUnknownError("the answer is lost")

        return lost

    for name in ("make_directory", "remove_directory"):
        monkeypatch.setattr(AtOnce, name, unknown(getattr(AtOnce, name)))
    path = "/a/old" if verb == "rmdir" else "/a/new"
    with pytest.raises(OutcomeUnknownError):
        getattr(fs, verb)(path)
    assert fs.exists(path) == (verb != "rmdir")
    fs.close_session()


def test_a_file_that_is_being_written_is_not_there(fs: S3kFileSystem) -> None:
    fs.mkdir("/a")
    with fs.open("/a/new", "wb") as file:
        file.write(b"1")
        assert (
            fs.exists("/a/new"),
            fs.isfile("/a/new"),
            fs.ls("/a"),
            fs.find("/"),
            fs.glob("/a/*"),
        ) == ((False, False, [], [], []))
        for call in (fs.info, fs.cat, fs.open, fs.ls, fs.ukey, fs.rm):
            with pytest.raises(PathNotFoundError):
                call("/a/new")
    assert fs.cat("/a/new") == b"1"


# Writing


class StopError(Exception):
    pass


@pytest.mark.parametrize(
    "how", ["wb", "w", "gzip", "text over gzip", "fsspec.open", "fsspec.open gzip", "finally", "ab"]
)
def test_a_writer_that_raises_publishes_nothing(embedded: Path, how: str) -> None:
    fs = S3kFileSystem(embedded)
    fs.pipe("/old", b"old")
    for path in ("/old", "/new"):
        with pytest.raises(StopError):
            fail_to_write(fs, path, how, volume=str(embedded))
        assert fs.cat("/old") == b"old"
        assert fs.find("/") == ["/old"]
    fs.pipe("/new", b"1", mode="create")  # nothing is reserved any more


def fail_to_write(fs: S3kFileSystem, path: str, how: str, volume: str) -> None:
    opened: Any
    if how == "finally":
        file = fs.open(path, "wb")
        try:
            file.write(b"half")
            raise StopError
        finally:
            file.close()
    elif how.startswith("fsspec.open"):
        compression = "gzip" if "gzip" in how else None
        opened = fsspec.open(f"s3k://lake{path}", "wt", volume=volume, compression=compression)
    elif "gzip" in how:
        opened = fs.open(path, "w" if "text" in how else "wb", compression="gzip")
    else:
        opened = fs.open(path, how)
    with opened as file:
        file.write("half" if isinstance(file, io.TextIOBase) else b"half")
        raise StopError


def test_a_file_written_while_an_exception_is_handled_is_published(fs: S3kFileSystem) -> None:
    try:
        raise StopError
    except StopError:
        with fs.open("/report", "w") as file:
            file.write("what went wrong")
    assert fs.read_text("/report") == "what went wrong"


def test_a_close_that_does_not_publish_says_so(
    fs: S3kFileSystem, caplog: pytest.LogCaptureFixture
) -> None:
    file = fs.open("/report", "wb")
    try:
        raise StopError
    except StopError:
        file.write(b"half")
        file.close()
    assert not fs.exists("/report")
    # Other tests of this process may have left clients, whose logs end in the background.
    said = [each.getMessage() for each in caplog.records if each.name.endswith(".fsspec_files")]
    assert said == ["/report is not published: an exception closes it"]


@pytest.mark.parametrize("mode", ["wb", "w", "gzip"])
def test_a_forgotten_file_is_discarded(fs: S3kFileSystem, mode: str) -> None:
    file = fs.open(
        "/new", "wb" if mode == "gzip" else mode, compression="gzip" if mode == "gzip" else None
    )
    file.write("half" if mode == "w" else b"half")
    with pytest.warns(ResourceWarning, match="not closed: /new"):  # noqa: PT031
        del file
        gc.collect()
    assert not fs.exists("/new")


@pytest.mark.parametrize("codec", ["gzip", "bz2", "xz", "zip"])
def test_a_compressed_file_is_published_when_it_is_closed(fs: S3kFileSystem, codec: str) -> None:
    with fs.open("/a", "wb", compression=codec) as file:
        file.write(b"data" * 100)
    with fs.open("/a", "rb", compression=codec) as file:
        assert file.read() == b"data" * 100


def test_modes(fs: S3kFileSystem) -> None:
    with fs.open("/a", "xb") as file:
        file.write(b"1")
    for mode in ("xb", "x"):
        with pytest.raises(PathExistsError):
            fs.open("/a", mode)
    with pytest.raises(PathExistsError):
        fs.pipe_file("/a", b"2", mode="create")
    with fs.open("/a", "ab") as file:
        assert file.tell() == 1
        file.write(b"2" * 1000)
    assert fs.cat("/a") == b"1" + b"2" * 1000
    with fs.open("/b", "a") as file:
        file.write("new")
    assert fs.cat("/b") == b"new"
    for mode in ("w+b", "rwb", "z"):
        with pytest.raises(ValueError, match="mode"):
            fs.open("/a", mode)
    with pytest.raises(UnsupportedError, match=r"open with r\+b changes it in place"):
        fs.open("/a", "a+b")
    with pytest.raises(IsDirectoryError):
        fs.open("/", "rb")


def test_an_open_file_stays_at_its_version(fs: S3kFileSystem) -> None:
    fs.pipe("/a", b"old" * 100)
    with fs.open("/a", "rb", block_size=10) as file:
        assert file.read(3) == b"old"
        fs.pipe("/a", b"new")
        copy = pickle.loads(pickle.dumps(file))
        assert file.read() == copy.read() == b"old" * 99
        assert file.size == 300
    assert fs.cat("/a") == b"new"
    with pytest.raises(ValueError, match="closed"):
        file.read()


@pytest.mark.parametrize(
    "cache_type", ["readahead", "none", "bytes", "blockcache", "all", "first", "background"]
)
def test_block_caches(fs: S3kFileSystem, cache_type: str) -> None:
    data = bytes(range(256)) * 20
    fs.pipe("/a", data)
    with fs.open("/a", "rb", block_size=100, cache_type=cache_type) as file:
        assert file.read(7) == data[:7]
        assert (file.seek(-10, 2), file.read()) == (len(data) - 10, data[-10:])
        assert (file.seek(1000), file.read(2000), file.tell()) == (1000, data[1000:3000], 3000)
        for size in (2000, 20, 150, 600):
            buffer = bytearray(size)
            place = file.seek(-2000, 1)
            assert file.readinto(buffer) == size
            assert bytes(buffer) == data[place : place + size]
            assert file.tell() == place + size
            file.seek(3000)
        assert (file.seek(-150, 2), file.readinto(buffer), file.readinto(buffer)) == (
            len(data) - 150,
            150,
            0,
        )
        assert buffer[:150] == data[-150:]


def test_block_sizes(fs: S3kFileSystem) -> None:
    """fsspec's caches return wrong bytes for negative ones."""
    data = bytes(range(256)) * 4
    fs.pipe("/a", data)
    sizes: list[Any] = [None, "default", 0, 100, 100.0]
    for size in sizes:
        assert fs.open("/a", block_size=size).read() == data
    for cache_type, number in [("readahead", -1), ("mmap", -7), ("bytes", -1), ("blockcache", 0)]:
        with pytest.raises(InvalidArgumentError, match=f"the block size of cache {cache_type}"):
            fs.open("/a", block_size=number, cache_type=cache_type)
    with pytest.raises(ArgumentTypeError, match="number of bytes, not '1MiB'"):
        fs.open("/a", block_size=cast("int", "1MiB"))
    with pytest.raises(InvalidArgumentError, match=r"blockcache.*readahead.*not 'disk'"):
        fs.open("/a", cache_type="disk")


def test_a_buffer_is_filled_without_the_cache(fs: S3kFileSystem) -> None:
    data = bytes(range(256)) * 20
    fs.pipe("/a", data)
    with fs.open("/a", "rb", block_size=100) as file:
        buffer = bytearray(500)
        assert file.readinto(buffer) == 500
        assert bytes(buffer) == data[:500]
        assert file.cache.end == 0
        assert (file.read(50), file.readinto(buffer)) == (data[500:550], 500)
        assert bytes(buffer) == data[550:1050]
        assert file.cache.end > 1050


def test_lines(fs: S3kFileSystem) -> None:
    fs.write_text("/a", "one\ntwo\n\nthree")
    with fs.open("/a", "r") as text:
        assert list(text) == ["one\n", "two\n", "\n", "three"]
    with fs.open("/a") as file:
        assert (file.readline(2), file.readline(), file.readline(-1)) == (b"on", b"e\n", b"two\n")
        assert file.readlines() == [b"\n", b"three"]
    with fs.open("/a") as file:
        assert (file.readlines(3), file.readlines(None)) == (
            [b"one\n"],
            [b"two\n", b"\n", b"three"],
        )


# Changing the tree


def test_rm(fs: S3kFileSystem) -> None:
    fs.pipe({"/a/1": b"1", "/a/b/2": b"2", "/c": b"3", "/d": b"4", "/e/f": b"5"})
    with pytest.raises(IsDirectoryError):
        fs.rm("/a")
    with pytest.raises(PathNotFoundError):
        fs.rm(["/c", "/nowhere"])
    with pytest.raises(IsDirectoryError):
        fs.rm_file("/a")
    with pytest.raises(PermissionDeniedError):
        fs.rm("/", recursive=True)
    with pytest.raises(DirectoryNotEmptyError):
        fs.rmdir("/a")
    with pytest.raises(NotDirectoryError):
        fs.rmdir("/c")
    assert fs.find("/") == ["/a/1", "/a/b/2", "/c", "/d", "/e/f"]
    fs.rm("/a", recursive=True)
    fs.rm(["/c", "/e", "/e/f"], recursive=True)
    assert fs.find("/", withdirs=True) == ["/", "/d"]
    fs.mkdir("/empty")
    fs.rmdir("/empty")
    fs.rm("/*")
    assert fs.ls("/") == []


def test_directories(fs: S3kFileSystem) -> None:
    fs.mkdir("/a/b")
    for call in (fs.mkdir, fs.makedirs):
        with pytest.raises(FileExistsError):
            call("/a/b")
    fs.makedirs("/a/b", exist_ok=True)
    with pytest.raises(FileNotFoundError):
        fs.mkdir("/x/y", create_parents=False)
    fs.pipe("/file", b"")
    with pytest.raises(NotADirectoryError):
        fs.mkdir("/file/x")
    with pytest.raises(FileExistsError):
        fs.makedirs("/file", exist_ok=True)
    assert fs.find("/", withdirs=True) == ["/", "/a", "/a/b", "/file"]


def test_touch(fs: S3kFileSystem) -> None:
    fs.pipe("/a", b"1")
    before = fs.info("/a")
    fs.touch("/a", truncate=False)
    after = fs.info("/a")
    assert (after["size"], after["version"]) == (1, before["version"] + 1)
    fs.touch("/a")
    assert fs.cat("/a") == b""


# Many paths


def test_cat_ranges_reads_each_entry_once_and_joins_what_is_near(fs: S3kFileSystem) -> None:
    data = bytes(range(256)) * 2
    fs.pipe({"/a": data, "/b": data[::-1]})
    starts, ends = [0, 300, 10, -5, None, 5, 700], [4, 310, 20, None, None, 3, 800]
    found = fs.cat_ranges(["/a", "/a", "/b", "/a", "/b", "/a", "/a"], starts, ends)
    sources = [data, data, data[::-1], data, data[::-1], data, data]
    wanted = [source[start:end] for source, start, end in zip(sources, starts, ends, strict=True)]
    assert found == wanted
    assert fs.cat_ranges(["/a", "/a", "/b"], 1, 3, max_gap=0) == [
        data[1:3],
        data[1:3],
        data[::-1][1:3],
    ]

    async def requests() -> tuple[int, int]:
        client = await fs._client()
        with client.count() as counted:
            await fs._cat_ranges(["/a"] * 20, list(range(0, 200, 10)), list(range(5, 205, 10)))
        return counted.requests.of("table"), counted.requests.of("data")

    assert fs.run_blocking(requests) == (1, 2)  # 195 bytes, in parts of 100

    missing = fs.cat_ranges(["/a", "/nowhere"], 0, 1)
    assert missing[0] == data[:1]
    assert isinstance(missing[1], PathNotFoundError)
    with pytest.raises(PathNotFoundError):
        fs.cat_ranges(["/a", "/nowhere"], 0, 1, on_error="raise")


def test_a_busy_directory_is_not_left_out_of_a_walk(
    fs: S3kFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs.pipe({"/a/b/1": b"1", "/a/2": b"2"})
    listing = fs._ls

    async def busy(path: str, *arguments: Any, **options: Any) -> Any:
        if path == "/a/b":
            raise BusyError("gave up", path=path)
        return await listing(path, *arguments, **options)

    monkeypatch.setattr(fs, "_ls", busy)
    with pytest.raises(BusyError):
        list(fs.walk("/a"))


def test_cat(fs: S3kFileSystem) -> None:
    fs.pipe({"/a/1": b"1", "/a/b/2": b"2"})
    assert fs.cat("/a", recursive=True) == {"/a/1": b"1", "/a/b/2": b"2"}
    assert fs.cat("/a/*", on_error="omit") == {"/a/1": b"1"}
    assert fs.cat(["/a/1"]) == {"/a/1": b"1"}
    assert fs.cat("/a/1") == b"1"
    with pytest.raises(PathNotFoundError):
        fs.cat(["/a/1", "/nowhere"])
    with pytest.raises(PathNotFoundError):
        fs.cat("/nowhere")
    assert (
        fs.cat_file("/a/1", start=-1)
        == fs.read_block("/a/1", 0, 10)
        == fs.head("/a/1")
        == fs.tail("/a/1")
        == b"1"
    )


def test_cat_of_many_files_asks_the_table_once(fs: S3kFileSystem) -> None:
    files = {f"/d/{number}": bytes([number]) for number in range(20)}
    fs.pipe(files)

    async def requests() -> tuple[dict[str, Any], int, int]:
        client = await fs._client()
        paths = [*files, "/d", "/nowhere", "/new"]
        with client.count() as counted:
            async with client.open("/new", "xb"):
                before = counted.requests
                found = await fs._cat(paths, on_error="return")
                spent = counted.requests - before
        return found, spent.of("table"), spent.of("data")

    found, table, data = fs.run_blocking(requests)
    assert (table, data) == (1, 20)
    assert {path: found.pop(path) for path in files} == files
    assert {path: type(error) for path, error in found.items()} == {
        "/d": IsDirectoryError,
        "/new": PathNotFoundError,
        "/nowhere": PathNotFoundError,
    }


def test_transfers_tell_their_callback(fs: S3kFileSystem, tmp_path: Path) -> None:
    local, back = tmp_path / "local", tmp_path / "back"
    local.write_bytes(b"x" * 1000)
    up, down = Callback(), Callback()
    fs.put_file(local, "/a/b", callback=up)
    fs.get_file("/a/b", back, callback=down)
    assert back.read_bytes() == b"x" * 1000
    assert [(each.size, each.value) for each in (up, down)] == [(1000, 1000)] * 2
    with pytest.raises(FileExistsError):
        fs.put_file(local, "/a/b", mode="create")
    with pytest.raises(FileNotFoundError):
        fs.get_file("/nowhere", tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        fs.put_file(tmp_path / "none", "/none")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["back", "local"]
    buffer = io.BytesIO()
    fs.get_file("/a/b", buffer)
    assert buffer.getvalue() == b"x" * 1000


def test_small_files_of_a_tree_are_put_together(fs: S3kFileSystem, tmp_path: Path) -> None:
    files = {f"d{number % 5}/{number}": b"%d" % number for number in range(1000)}
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    (tmp_path / "large").write_bytes(bytes(fsspec_transfer.CHUNK + 1))

    async def requests() -> tuple[int, int]:
        with (await fs._client()).count() as counted:
            await fs._put(f"{tmp_path}/", "/in", recursive=True, callback=progress)
        return counted.requests.of("data", "PutObject"), counted.requests.of("log")

    progress = Callback()
    puts, log = fs.run_blocking(requests)
    assert puts - len(files) <= 2
    assert log <= len(files) // 10
    assert (progress.size, progress.value) == (1001, 1001)
    found = fs.cat("/in", recursive=True)
    assert len(found.pop("/in/large")) == fsspec_transfer.CHUNK + 1
    assert found == {f"/in/{name}": data for name, data in files.items()}


def test_a_put_of_many_files_raises_the_error_of_one(fs: S3kFileSystem, tmp_path: Path) -> None:
    names = [f"{number}" for number in range(20)]
    for name in names:
        (tmp_path / name).write_bytes(name.encode())
    sources = [str(tmp_path / name) for name in names]
    fs.pipe("/in/7", b"old")
    with pytest.raises(FileExistsError, match="/in/7"):
        fs.put(sources, [f"/in/{name}" for name in names], mode="create")
    assert fs.cat("/in/7") == b"old"
    with pytest.raises(FileNotFoundError, match="gone"):
        fs.put([*sources, str(tmp_path / "gone")], [f"/in/{name}" for name in (*names, "gone")])
    fs.put(sources, [f"/in/{name}" for name in names])
    assert fs.cat("/in/7") == b"7"
    fs.put(sources, ["/same"] * len(sources))
    assert fs.cat("/same").decode() in names


def test_what_ends_a_put_of_many_files_is_raised_as_itself(
    fs: S3kFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: object, **__: object) -> None:
        raise PermissionDeniedError("refused", path="/in")

    (tmp_path / "a").write_bytes(b"a")
    monkeypatch.setattr(S3kClient, "write_many", refused)
    with pytest.raises(PermissionDeniedError):
        fs.put(str(tmp_path), "/in", recursive=True)


def test_a_mapping(fs: S3kFileSystem) -> None:
    mapping = fs.get_mapper("/store", create=True)
    mapping["a/b"] = b"1"
    mapping.setitems({"c": b"2", "d": b"3"})
    assert (dict(mapping), len(mapping), "c" in mapping) == (
        {"a/b": b"1", "c": b"2", "d": b"3"},
        3,
        True,
    )
    assert mapping.getitems(["c", "missing"], on_error="omit") == {"c": b"2"}
    with pytest.raises(KeyError):
        mapping["missing"]
    del mapping["c"]
    mapping.clear()
    assert list(mapping) == []


# What travels


def test_a_pickle_holds_no_secret() -> None:
    aws = AwsConfig(
        "eu-west-1", access_key_id=Secret("the key id"), secret_access_key=Secret("the secret")
    )
    config = VolumeConfig("lake", DynamoTable("table", aws), S3Bucket("bucket", aws=aws))
    options: Any = {"table": "table", "bucket": "bucket"}
    options |= {"access_key_id": "the key id", "secret_access_key": "the secret"}
    for fs in (
        S3kFileSystem("s3k://lake", region="eu-west-1", **options),
        S3kFileSystem(config=config),
    ):
        for text in (
            pickle.dumps(fs),
            repr(fs).encode(),
            fs._fs_token.encode(),
            repr(fs.storage_options).encode(),
        ):
            assert b"the key id" not in text
            assert b"the secret" not in text
        assert pickle.loads(pickle.dumps(fs)).volume == "lake"
    text = S3kFileSystem("s3k://lake", **options).to_json()
    assert "the secret" not in text
    assert json.loads(text)["table"] == "table"


def test_other_credentials_are_another_object() -> None:
    options: Any = {"table": "table", "bucket": "bucket", "access_key_id": "key"}
    one = S3kFileSystem("s3k://lake", secret_access_key="1", **options)
    assert one is S3kFileSystem("s3k://lake", secret_access_key="1", **options)
    assert one is not S3kFileSystem("s3k://lake", secret_access_key="2", **options)
    assert one is not S3kFileSystem("s3k://lake", secret_access_key=Secret("2"), **options)


def test_a_pickle_and_json_are_the_same_filesystem(embedded: Path) -> None:
    fs = S3kFileSystem(embedded)
    fs.pipe("/a", b"1")
    for other in (pickle.loads(pickle.dumps(fs)), S3kFileSystem.from_json(fs.to_json())):
        assert other == fs
        assert hash(other) == hash(fs)
        assert other.cat("/a") == b"1"


# Loops


def test_every_loop_has_its_own_client(embedded: Path) -> None:
    fs = S3kFileSystem(embedded)
    fs.pipe("/a", b"1")
    asynchronous = S3kFileSystem(embedded, asynchronous=True)

    async def read(which: S3kFileSystem) -> bytes:
        return bytes(await which._cat_file("/a"))

    for which in (fs, asynchronous, fs, asynchronous):
        assert asyncio.run(read(which)) == b"1"
    assert fs.cat("/a") == b"1"
    with pytest.raises(WrongLoopError):
        asynchronous.cat("/a")


def test_an_object_that_nobody_holds_closes_its_client(embedded: Path) -> None:
    fs = S3kFileSystem(embedded, skip_instance_cache=True)
    fs.pipe("/a", b"1")
    client = fs.run_blocking(fs._client)
    del fs
    gc.collect()

    while not client.closed:
        time.sleep(0.01)


def test_an_interrupt_cancels_the_call(embedded: Path) -> None:
    fs = S3kFileSystem(embedded)
    cancelled = threading.Event()

    async def endless() -> None:
        _thread.interrupt_main()
        try:
            await asyncio.sleep(600)
        finally:
            cancelled.set()

    with pytest.raises(KeyboardInterrupt):
        fs.run_blocking(endless)
    assert cancelled.is_set()
    fs.pipe("/a", b"1")


def test_blocking_calls_work_while_a_loop_runs(embedded: Path) -> None:
    fs = S3kFileSystem(embedded)

    async def notebook() -> bytes:
        fs.pipe("/a", b"1")
        with fs.open("/a") as file:
            return bytes(file.read())

    assert asyncio.run(notebook()) == b"1"

    async def on_its_own_loop() -> None:
        fs.cat("/a")

    with pytest.raises(WrongLoopError):
        fs.run_blocking(on_its_own_loop)


async def test_files_for_coroutines(config: VolumeConfig) -> None:
    fs = S3kFileSystem(config=config, asynchronous=True, skip_instance_cache=True)
    async with await fs.open_async("/a", "wb") as file:
        await file.write(b"x" * 1000)
    async with await fs.open_async("/a") as file:
        assert (await file.read(3), file.seek(-2, 2), await file.read(), file.size) == (
            b"xxx",
            998,
            b"xx",
            1000,
        )

    async def fail() -> None:
        async with await fs.open_async("/b", "wb") as file:
            await file.write(b"half")
            raise StopError

    async def fail_without_a_word() -> None:
        file = await fs.open_async("/b", "wb")
        try:
            raise StopError
        finally:
            await file.close()

    for failing in (fail, fail_without_a_word):
        with pytest.raises(StopError):
            await failing()
    assert await fs._find("/") == ["/a"]
    with pytest.raises(ValueError, match="bytes"):
        await fs.open_async("/a", "r")
    await fs.close()
    assert await fs._cat_file("/a", 0, 1) == b"x"
    await fs.close()


@pytest.mark.parametrize("path", ["/a\0b", "/" + "x" * 1025, "/.."])
def test_at_a_path_that_cannot_be_one_there_is_nothing(fs: S3kFileSystem, path: str) -> None:
    assert (fs.exists(path), fs.lexists(path), fs.isfile(path), fs.isdir(path)) == (False,) * 4
    with pytest.raises(InvalidPathError):
        fs.info(path)


def test_names_that_other_stores_cannot_hold(fs: S3kFileSystem) -> None:
    names = ["/a:b", "/ä", "/a b", "/{x}", "/[y]", "/a%20b", "/.hidden"]
    fs.pipe({name: name.encode() for name in names})
    assert fs.find("/") == sorted(names)
    assert fs.glob("/{x}*") == ["/{x}"]
    assert fs.glob("/[[]y*") == ["/[y]"]
    assert fs.cat_file("/[y]") == b"/[y]"


@pytest.mark.parametrize("name", ["x*", "x?", "x[1]"])
def test_what_is_moved_or_removed_is_no_pattern_if_it_exists(fs: S3kFileSystem, name: str) -> None:
    """Nothing happens to the others that it would match."""
    others = {"/d/x1": b"1", "/d/x2/f": b"2"}
    fs.pipe(others | {f"/d/{name}": b"mine", f"/d/{name}d/f": b"below", "/d/x1d/f": b"other"})
    fs.mv(f"/d/{name}", "/moved")
    fs.mv(f"/d/{name}d", "/directory", recursive=True)
    assert (fs.cat("/moved"), fs.find("/directory")) == (b"mine", ["/directory/f"])
    fs.mv("/moved", f"/d/{name}")
    fs.mv("/directory", f"/d/{name}d")
    fs.mv([f"/d/{name}"], "/into/")
    assert fs.find("/into") == [f"/into/{name}"]
    fs.mv(f"/into/{name}", f"/d/{name}")
    with fs.transaction:
        fs.rm([f"/d/{name}"])
        fs.rm(f"/d/{name}d", recursive=True)
    left = others | {"/d/x1d/f": b"other"}
    assert fs.cat("/d", recursive=True) == left
    with pytest.raises(FileNotFoundError):
        fs.rm(["/nowhere*", "/nowhere"])
    fs.rm(["/d/x[0-9]d", "/nowhere*"], recursive=True)
    assert fs.cat("/d", recursive=True) == others


def test_a_cancelled_put_leaves_no_tasks(
    config: VolumeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither those that wait for a write with others, nor those that have not begun."""
    for number in range(100):
        (tmp_path / str(number)).write_bytes(b"x" * 100)
    write = fsspec_transfer.GatheredWrites.write

    async def left() -> set[asyncio.Task[Any]]:
        begun = asyncio.Event()

        async def noted(writes: fsspec_transfer.GatheredWrites, path: str, data: bytes) -> None:
            begun.set()
            await write(writes, path, data)

        monkeypatch.setattr(fsspec_transfer.GatheredWrites, "write", noted)
        fs = S3kFileSystem(config=config, asynchronous=True)
        assert not await fs._exists("/put")
        before = asyncio.all_tasks()
        task = asyncio.ensure_future(fs._put(str(tmp_path), "/put", recursive=True))
        await begun.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        if tasks := asyncio.all_tasks() - before:
            await asyncio.wait(tasks, timeout=5)
        return asyncio.all_tasks() - before

    assert asyncio.run(left()) == set()


@pytest.mark.parametrize(
    ("call", "step"),
    [
        (lambda fs, place: fs._get("/d", place, recursive=True), "fsspec_reading.download"),
        (lambda fs, _: fs._copy("/d", "/e", recursive=True), "fsspec_changes.AtOnce.copy"),
        (lambda fs, place: fs._put(f"{place}/local", "/e"), "fsspec.upload"),
        (lambda fs, place: fs._put([f"{place}/local"] * 3, ["/e", "/f", "/g"]), "fsspec.upload"),
    ],
    ids=["get", "copy", "put", "put of several"],
)
def test_a_cancelled_call_has_ended(
    config: VolumeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Any, step: str
) -> None:
    """fsspec leaves the tasks of the files running."""
    (tmp_path / "local").write_bytes(b"1")

    async def cancelled() -> tuple[int, int]:
        begun, ended = asyncio.Event(), []
        calls = 0

        async def endless(*_: object, **__: object) -> None:
            nonlocal calls
            calls += 1
            begun.set()
            try:
                await asyncio.sleep(600)
            finally:
                await asyncio.sleep(0.01)
                ended.append(calls)

        fs = S3kFileSystem(config=config, asynchronous=True)
        await fs._pipe({f"/d/{number}": b"1" for number in range(3)})
        monkeypatch.setattr(f"s3k_async.adapters.{step}", endless)
        task = asyncio.ensure_future(call(fs, str(tmp_path)))
        await begun.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        return calls, len(ended)

    calls, ended = asyncio.run(cancelled())
    assert calls == ended > 0
