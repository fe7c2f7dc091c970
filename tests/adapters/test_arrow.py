"""What pyarrow's filesystem says and does on a volume, beyond pyarrow's own suite."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import cloudpickle
import pyarrow as pa
import pytest
from pyarrow.fs import (
    FileInfo,
    FileSelector,
    FileSystem,
    FileType,
    LocalFileSystem,
    PyFileSystem,
    SubTreeFileSystem,
)
from pyarrow.fs import copy_files as copy_files_between

from s3k_async import Settings
from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async._sync.sync_files import SyncFileReader
from s3k_async.adapters import arrow
from s3k_async.adapters.arrow import arrow_filesystem
from s3k_async.config import VolumeConfig
from s3k_async.errors import (
    BusyError,
    ConflictError,
    CrossVolumeError,
    DirectoryNotEmptyError,
    InvalidArgumentError,
    InvalidPathError,
    IsDirectoryError,
    NotDirectoryError,
    PartialFailureError,
    PathExistsError,
    PathNotFoundError,
    PermissionDeniedError,
    RenameIntoSelfError,
    UncommittedFileError,
    UnsupportedError,
)
from s3k_async.files import edits
from s3k_async.model import ChangeResult
from s3k_async.settings import resolve
from s3k_async.volumes import init_volume
from tests.adapters.arrow_rig import client_of, new_filesystem, put, read
from tests.client.rig import memory_config


@pytest.fixture
def config() -> VolumeConfig:
    """A volume that does not exist yet."""
    return memory_config()


@pytest.fixture
def fs(config: VolumeConfig) -> Iterator[PyFileSystem]:
    """A new volume."""
    with new_filesystem(config) as filesystem:
        yield filesystem


def kind(fs: FileSystem, path: str) -> FileType:
    return fs.get_file_info(path).type


def found(fs: FileSystem, base: str, *, recursive: bool = True) -> set[str]:
    infos: list[FileInfo] = fs.get_file_info(FileSelector(base, recursive=recursive))
    assert len({info.path for info in infos}) == len(infos)
    return {info.path for info in infos}


# Paths


@pytest.mark.parametrize(
    ("base", "above"),
    [
        ("d", "d/"),
        ("d/", "d/"),
        ("/d", "/d/"),
        ("/d/", "/d/"),
        ("x/../d", "x/../d/"),
        ("s3k://{}/d", "s3k://{}/d/"),
    ],
)
def test_paths_come_back_as_they_were_given(fs: PyFileSystem, base: str, above: str) -> None:
    base, above = base.format(client_of(fs).name), above.format(client_of(fs).name)
    put(fs, "/d/e/f")
    put(fs, "/d/g")
    assert found(fs, base) == {f"{above}e", f"{above}e/f", f"{above}g"}
    assert found(fs, base, recursive=False) == {f"{above}e", f"{above}g"}
    asked = [base, f"{above}e/f", f"{above}missing"]
    infos = fs.get_file_info(asked)
    assert [info.path for info in infos] == asked
    assert [info.type for info in infos] == [FileType.Directory, FileType.File, FileType.NotFound]
    assert read(fs, f"{above}e/f") == b"data"


@pytest.mark.parametrize(
    ("base", "above"), [("", ""), ("/", "/"), ("s3k://{}", "s3k://{}/"), ("s3k://{}/",) * 2]
)
def test_the_root_can_be_named_in_four_ways(fs: PyFileSystem, base: str, above: str) -> None:
    base, above = base.format(client_of(fs).name), above.format(client_of(fs).name)
    put(fs, "/d/f")
    assert found(fs, base) == {f"{above}d", f"{above}d/f"}
    assert kind(fs, base) == FileType.Directory


@pytest.mark.parametrize(
    ("path", "normal"),
    [
        ("a", "a"),
        ("a/b", "a/b"),
        ("/a/b", "/a/b"),
        ("a//b/", "a/b/"),
        ("./", ""),
        ("//", "/"),
        ("/a/./b/../c", "/a/c"),
        ("", ""),
        ("/", "/"),
        (".", ""),
        ("s3k://{}/a//b/", "/a/b/"),
        ("S3K://{}", "/"),
    ],
)
def test_normalize_path(fs: PyFileSystem, path: str, normal: str) -> None:
    assert fs.normalize_path(path.format(client_of(fs).name)) == normal


@pytest.mark.parametrize("path", ["s3k://elsewhere/a", "s3k:///a", "s3k://elsewhere"])
def test_the_url_of_another_volume_is_refused(fs: PyFileSystem, path: str) -> None:
    put(fs, "/a")
    for call in (
        fs.normalize_path,
        fs.get_file_info,
        fs.delete_file,
        fs.delete_dir,
        fs.create_dir,
        fs.open_input_file,
    ):
        with pytest.raises(CrossVolumeError):
            call(path)
    for selector in (FileSelector(path), FileSelector(path, allow_not_found=True)):
        with pytest.raises(CrossVolumeError):
            fs.get_file_info(selector)
    assert found(fs, "/") == {"/a"}


@pytest.mark.parametrize("path", ["a/../..", "a\0b", "x" * 1025])
def test_a_path_that_cannot_be_one_is_an_error_of_ours(fs: PyFileSystem, path: str) -> None:
    for call in (
        fs.get_file_info,
        fs.create_dir,
        fs.open_output_stream,
        fs.delete_dir_contents,
        fs.normalize_path,
    ):
        with pytest.raises(InvalidPathError):
            call(path)
    assert found(fs, "/") == set()


def test_a_volume_that_has_no_name_yet_knows_its_url(tmp_path: Path) -> None:
    asyncio.run(init_volume(resolve(tmp_path / "lake")))
    fs = arrow_filesystem(str(tmp_path / "lake"))
    assert client_of(fs).name == ""
    with pytest.raises(CrossVolumeError):
        fs.normalize_path("s3k://elsewhere/a")
    assert fs.normalize_path(f"s3k://{client_of(fs).name}/a") == "/a"
    assert fs == arrow_filesystem(str(tmp_path / "lake"))


# Looking


def test_what_is_being_written_is_not_found(fs: PyFileSystem) -> None:
    stream = fs.open_output_stream("/d/f")
    assert kind(fs, "/d/f") == FileType.NotFound
    assert found(fs, "/d") == set()
    with pytest.raises(UncommittedFileError):
        fs.open_input_stream("/d/f")
    stream.close()
    assert kind(fs, "/d/f") == FileType.File


def test_times_are_in_utc_and_exact(fs: PyFileSystem) -> None:
    put(fs, "/d/f", b"12345")
    for path in ("/d", "/d/f"):
        (info,) = [
            info
            for info in fs.get_file_info(FileSelector("/", recursive=True))
            if info.path == path
        ]
        mtime_ms = client_of(fs).stat(path).mtime_ms
        assert info.mtime_ns == mtime_ms * 1_000_000
        assert info.mtime == datetime.fromtimestamp(mtime_ms / 1000, UTC)
        assert fs.get_file_info(path).mtime_ns == info.mtime_ns
    assert fs.get_file_info("/d").size is None
    assert fs.get_file_info("/d/f").size == 5
    assert fs.get_file_info("/").mtime is None


def test_a_selector_wants_a_directory(fs: PyFileSystem) -> None:
    put(fs, "/f")
    for allow_not_found in (False, True):
        with pytest.raises(NotDirectoryError):
            fs.get_file_info(FileSelector("/f", allow_not_found=allow_not_found))
    with pytest.raises(PathNotFoundError):
        fs.get_file_info(FileSelector("/missing"))
    assert fs.get_file_info(FileSelector("/missing", allow_not_found=True)) == []


def test_infos_of_many_paths_are_one_request_for_a_hundred(fs: PyFileSystem) -> None:
    client_of(fs).write_many([(f"/d/{number}", b"") for number in range(200)])
    before = client_of(fs).requests
    infos = fs.get_file_info([f"/d/{number}" for number in range(200)])
    assert {info.type for info in infos} == {FileType.File}
    assert (client_of(fs).requests - before).as_dict() == {"table": {"BatchGetItem": 2}}


# Changing the tree


def test_move_replaces_a_file_by_a_file(fs: PyFileSystem) -> None:
    put(fs, "/a", b"new")
    put(fs, "/b", b"old")
    fs.move("/a", "b")
    assert found(fs, "/") == {"/b"}
    assert read(fs, "/b") == b"new"


def test_move_replaces_an_empty_directory_by_a_directory(fs: PyFileSystem) -> None:
    put(fs, "/a/f")
    fs.create_dir("/b")
    fs.move("/a", "/b")
    assert found(fs, "/") == {"/b", "/b/f"}


@pytest.mark.parametrize(
    ("source", "target", "error"),
    [
        ("/full", "/other", DirectoryNotEmptyError),
        ("/empty", "/other", DirectoryNotEmptyError),
        ("/file", "/empty", PathExistsError),
        ("/file", "/other", PathExistsError),
        ("/full", "/file", PathExistsError),
        ("/full", "/full/below", RenameIntoSelfError),
        ("/full", "/nowhere/d", PathNotFoundError),
        ("/file", "/nowhere/f", PathNotFoundError),
        ("/missing", "/empty", PathNotFoundError),
        ("/missing", "/new", PathNotFoundError),
        ("/file", "/file/below", NotDirectoryError),
    ],
)
def test_a_move_that_is_refused_changes_nothing(
    fs: PyFileSystem, source: str, target: str, error: type[Exception]
) -> None:
    put(fs, "/full/f")
    put(fs, "/other/g")
    put(fs, "/file")
    fs.create_dir("/empty")
    before = found(fs, "/")
    with pytest.raises(error):
        fs.move(source, target)
    assert found(fs, "/") == before


def test_copy_file_replaces_a_file_and_nothing_else(fs: PyFileSystem) -> None:
    put(fs, "/a", b"new")
    put(fs, "/b", b"old")
    fs.create_dir("/d")
    fs.copy_file("a", "/b")
    assert (read(fs, "/a"), read(fs, "/b")) == (b"new", b"new")
    for source, target, error in (
        ("/a", "/d", IsDirectoryError),
        ("/d", "/c", IsDirectoryError),
        ("/missing", "/b", PathNotFoundError),
    ):
        with pytest.raises(error):
            fs.copy_file(source, target)
    assert found(fs, "/") == {"/a", "/b", "/d"}


def test_create_dir_makes_parents_only_if_told(fs: PyFileSystem) -> None:
    with pytest.raises(PathNotFoundError):
        fs.create_dir("/a/b", recursive=False)
    assert found(fs, "/") == set()
    fs.create_dir("/a/b")
    fs.create_dir("/a/b", recursive=False)
    fs.create_dir("/a/c", recursive=False)
    fs.create_dir("", recursive=False)
    assert found(fs, "/") == {"/a", "/a/b", "/a/c"}
    put(fs, "/f")
    for path, error in (("/f", PathExistsError), ("/f/d", NotDirectoryError)):
        for recursive in (False, True):
            with pytest.raises(error):
                fs.create_dir(path, recursive=recursive)


def test_files_are_deleted_as_files_and_directories_as_directories(fs: PyFileSystem) -> None:
    put(fs, "/f")
    fs.create_dir("/d")
    for call, path, error in (
        (fs.delete_file, "/d", IsDirectoryError),
        (fs.delete_file, "/", IsDirectoryError),
        (fs.delete_file, "/missing", PathNotFoundError),
        (fs.delete_dir, "/f", NotDirectoryError),
        (fs.delete_dir, "/missing", PathNotFoundError),
        (fs.delete_dir, "/", PermissionDeniedError),
        (fs.delete_dir_contents, "/f", NotDirectoryError),
        (fs.delete_dir_contents, "/missing", PathNotFoundError),
    ):
        with pytest.raises(error):
            call(path)
    assert found(fs, "/") == {"/f", "/d"}


@pytest.mark.parametrize("root", ["", "/", "//", ".", "a/..", "s3k://{}/"])
def test_the_root_is_emptied_only_if_told(fs: PyFileSystem, root: str) -> None:
    put(fs, "/d/f")
    put(fs, "/g")
    with pytest.raises(InvalidArgumentError):
        fs.delete_dir_contents(root.format(client_of(fs).name))
    assert found(fs, "/") == {"/d", "/d/f", "/g"}
    fs.delete_dir_contents("/", accept_root_dir=True)
    assert found(fs, "/") == set()


def test_a_large_directory_is_emptied_in_bounded_memory(
    fs: PyFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow, "EMPTYING", 3)
    for number in range(10):
        put(fs, f"/d/{number}")
        put(fs, f"/d/below-{number}/f")
    reserved = fs.open_output_stream("/d/reserved")
    put(fs, "/beside")
    fs.delete_dir_contents("d")
    assert found(fs, "/") == {"/d", "/beside"}
    with pytest.raises(ConflictError):
        reserved.close()


def test_what_cannot_be_deleted_is_said(fs: PyFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    put(fs, "/d/f")
    failed = ChangeResult(failures=(("/d/f", BusyError("held", path="/d/f")),))
    monkeypatch.setattr(client_of(fs), "delete_many", lambda *_, **__: failed)
    with pytest.raises(PartialFailureError) as caught:
        fs.delete_dir_contents("/d")
    assert caught.value.failures == failed.failures


def test_a_read_only_file_does_not_change(fs: PyFileSystem) -> None:
    put(fs, "/d/f", b"one")
    put(fs, "/d/g", b"two")
    client_of(fs).set_attributes("/d/f", read_only=True)

    def append() -> None:
        with fs.open_append_stream("/d/f") as stream:
            stream.write(b"!")

    changes: list[Callable[[], object]] = [
        lambda: put(fs, "/d/f", b"other"),
        append,
        lambda: fs.delete_file("/d/f"),
        lambda: fs.move("/d/f", "/d/h"),
        lambda: fs.move("/d/g", "/d/f"),
        lambda: fs.copy_file("/d/g", "/d/f"),
    ]
    for change in changes:
        with pytest.raises(PermissionError):
            change()
    assert (read(fs, "/d/f"), read(fs, "/d/g")) == (b"one", b"two")
    client_of(fs).set_attributes("/d", read_only=True)
    with pytest.raises(PermissionError):
        fs.delete_dir("/d")
    assert found(fs, "/d") == {"/d/f", "/d/g"}


# Files


def test_a_reader_stays_at_its_version(fs: PyFileSystem) -> None:
    put(fs, "/f", b"first")
    with fs.open_input_file("/f") as file:
        put(fs, "/f", b"second, and longer")
        assert (file.size(), file.read(), file.read_at(2, 3)) == (5, b"first", b"st")


def test_buffers_are_the_bytes_that_were_fetched(
    fs: PyFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(fs, "/f", bytes(1000))
    fetched: list[bytes] = []
    original = SyncFileReader.read

    def spied(reader: SyncFileReader, n: int | None = -1, /) -> bytes:
        fetched.append(original(reader, n))
        return fetched[-1]

    monkeypatch.setattr(SyncFileReader, "read", spied)
    with fs.open_input_file("/f") as file:
        buffer = file.read_buffer(900)
    assert buffer.address == pa.py_buffer(fetched[-1]).address


def test_a_file_that_is_missing_or_a_directory_cannot_be_opened(fs: PyFileSystem) -> None:
    fs.create_dir("/d")
    for opening in (fs.open_input_file, fs.open_input_stream):
        with pytest.raises(PathNotFoundError):
            opening("/missing")
        with pytest.raises(IsDirectoryError):
            opening("/d")
    for opening in (fs.open_output_stream, fs.open_append_stream):
        with pytest.raises(IsDirectoryError):
            opening("/d")


def test_in_a_volume_without_extents_an_append_over_another_change_is_refused(
    fs: PyFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(volume: object, path: str) -> None:
        raise UnsupportedError("no extents", path=path)

    monkeypatch.setattr(edits, "need_extents", refused)
    monkeypatch.setattr(arrow, "APPENDING", 100)
    put(fs, "/f", b"0" * 1000)
    first, second = fs.open_append_stream("/f"), fs.open_append_stream("/f")
    first.write(b"1")
    second.write(b"2")
    first.close()
    with pytest.raises(ConflictError):
        second.close()
    assert read(fs, "/f") == b"0" * 1000 + b"1"


def test_append_adds_to_what_is_there_or_makes_a_file(fs: PyFileSystem) -> None:
    data = bytes(index % 251 for index in range(1000))
    put(fs, "/f", data)
    for path, expected in (("/f", data + b"more"), ("/new", b"more")):
        stream = fs.open_append_stream(path)
        stream.write(b"more")
        assert kind(fs, "/new") == FileType.NotFound
        assert read(fs, "/f") == (data if path == "/f" else data + b"more")
        stream.close()
        assert read(fs, path) == expected


def test_of_two_who_append_at_once_none_loses_the_others_bytes(fs: PyFileSystem) -> None:
    put(fs, "/f", b"0")
    first, second = fs.open_append_stream("/f"), fs.open_append_stream("/f")
    first.write(b"1")
    second.write(b"2")
    first.close()
    second.close()
    assert read(fs, "/f") == b"012"


def test_appending_to_what_is_being_written_is_refused(fs: PyFileSystem) -> None:
    stream = fs.open_output_stream("/f")
    stream.write(b"first")
    with pytest.raises(UncommittedFileError):
        fs.open_append_stream("/f")
    stream.close()
    assert read(fs, "/f") == b"first"


def test_files_are_copied_to_the_local_disk_and_back(fs: PyFileSystem, tmp_path: Path) -> None:
    files = {f"part-{number}": bytes([number]) * number * 100 for number in range(5)}
    for name, data in files.items():
        put(fs, f"/d/sub/{name}", data)
    here = tmp_path / "copy"
    copy_files_between(
        "/d", str(here), source_filesystem=fs, destination_filesystem=LocalFileSystem()
    )
    assert {path.name: path.read_bytes() for path in (here / "sub").iterdir()} == files
    copy_files_between(
        str(here), "back", source_filesystem=LocalFileSystem(), destination_filesystem=fs
    )
    assert {name: read(fs, f"/back/sub/{name}") for name in files} == files
    copy_files_between("/back", "/again", source_filesystem=fs, destination_filesystem=fs)
    assert {name: read(fs, f"/again/sub/{name}") for name in files} == files


def test_a_subtree_is_a_filesystem(fs: PyFileSystem) -> None:
    below = SubTreeFileSystem("/team/data", fs)
    below.create_dir("d")
    put(below, "d/f")
    assert found(below, "") == {"d", "d/f"}
    assert found(fs, "/team") == {"/team/data", "/team/data/d", "/team/data/d/f"}
    assert below.base_fs == fs


# Which volume


def test_filesystems_of_one_volume_are_equal(
    fs: PyFileSystem, config: VolumeConfig, tmp_path: Path
) -> None:
    same = PyFileSystem(arrow.S3kHandler(S3kSyncClient(config=config)))
    other = PyFileSystem(arrow.S3kHandler(S3kSyncClient(config=memory_config())))
    assert fs.equals(same)
    assert hash(fs.handler) == hash(same.handler)
    assert fs != other
    assert fs != LocalFileSystem()
    assert fs.handler != "handler"
    assert fs.type_name == "py::s3k"
    a, b = arrow_filesystem(str(tmp_path / "a")), arrow_filesystem(str(tmp_path / "b"))
    assert a == arrow_filesystem(str(tmp_path / "a"))
    assert a != b


SERVICES: Settings = {
    "table": "meta",
    "bucket": "data",
    "region": "eu-west-1",
    "endpoint": "http://127.0.0.1:1",
}


@pytest.mark.parametrize("pickles", [pickle, cloudpickle])
def test_a_pickle_names_the_volume_and_holds_no_secret(pickles: object) -> None:
    key_id, key = "AKIDEXAMPLE", "s3cr3t-key"
    settings: Settings = {**SERVICES, "access_key_id": key_id, "secret_access_key": key}
    fs = arrow_filesystem("s3k://analytics", **settings)
    pickled = pickles.dumps(fs)  # type: ignore[attr-defined]  # a module
    assert not any(secret.encode() in pickled for secret in (key_id, key))
    restored = pickle.loads(pickled)
    assert restored == fs
    assert restored != arrow_filesystem("s3k://elsewhere", **SERVICES)


# Threads and loops


async def test_a_running_loop_does_not_matter(fs: PyFileSystem) -> None:
    put(fs, "/f")
    assert read(fs, "/f") == b"data"
    infos = await asyncio.to_thread(fs.get_file_info, FileSelector("/"))
    assert [info.path for info in infos] == ["/f"]


def test_many_threads_at_once(fs: PyFileSystem) -> None:
    def work(number: int) -> bytes:
        put(fs, f"/d/{number}", b"%d" % number)
        assert kind(fs, f"/d/{number}") == FileType.File
        return read(fs, f"/d/{number}")

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(work, range(64))) == [b"%d" % number for number in range(64)]
    assert len(found(fs, "/d")) == 64


def test_one_file_is_read_by_many_threads_at_once(fs: PyFileSystem) -> None:
    data = bytes(index % 251 for index in range(20_000))
    put(fs, "/f", data)
    with fs.open_input_file("/f") as file, ThreadPoolExecutor(8) as pool:
        pieces = list(pool.map(lambda start: file.read_at(100, start), range(0, len(data), 100)))
    assert b"".join(pieces) == data
