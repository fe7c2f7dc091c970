"""`with fs.transaction:` of fsspec: all of it at its end, or nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async.adapters.fsspec import S3kFileSystem
from s3k_async.config import VolumeConfig
from s3k_async.errors import (
    ConflictError,
    InvalidArgumentError,
    PathExistsError,
    UnsupportedError,
)
from s3k_async.volumes import init_volume
from tests.client.rig import memory_config


class StopError(Exception):
    pass


@pytest.fixture
def config() -> VolumeConfig:
    config = memory_config()
    asyncio.run(init_volume(config))
    return config


@pytest.fixture
def fs(config: VolumeConfig) -> Iterator[S3kFileSystem]:
    fs = S3kFileSystem(config=config)
    fs.pipe({"/old": b"old", "/dir/1": b"1", "/dir/2": b"2", "/gone": b"3", "/empty/x": b""})
    fs.rm("/empty/x")
    yield fs
    fs.close_session()


def change(fs: S3kFileSystem, local: Path) -> None:
    """One of everything."""
    local.write_bytes(b"local" * 200)
    with fs.open("/written", "wb") as file:
        file.write(b"w" * 1000)
    with fs.open("/text", "w") as text:
        text.write("text")
    with fs.open("/old", "ab") as file:
        file.write(b" and new")
    fs.pipe({"/p/1": b"1", "/p/2": b"2"})
    fs.put_file(local, "/put")
    fs.touch("/touched")
    fs.makedirs("/made/below", exist_ok=True)
    fs.copy("/dir/1", "/copied")
    fs.mv("/dir", "/far/away")
    fs.rm("/gone")
    fs.rmdir("/empty")


def contents(config: VolumeConfig) -> dict[str, bytes]:
    """What others see: files with their bytes, directories that are empty."""
    with S3kSyncClient(config=config) as other:
        found = {each.path: each.is_dir for each in other.list("/", recursive=True)}
        return {path: b"" if is_dir else other.read(path) for path, is_dir in found.items()}


def test_everything_happens_at_the_end(
    fs: S3kFileSystem, config: VolumeConfig, tmp_path: Path
) -> None:
    before = contents(config)
    with fs.transaction:
        change(fs, tmp_path / "local")
        assert contents(config) == before
    assert contents(config) == {
        "/written": b"w" * 1000,
        "/text": b"text",
        "/old": b"old and new",
        "/p": b"",
        "/p/1": b"1",
        "/p/2": b"2",
        "/put": b"local" * 200,
        "/touched": b"",
        "/made": b"",
        "/made/below": b"",
        "/copied": b"1",
        "/far": b"",
        "/far/away": b"",
        "/far/away/1": b"1",
        "/far/away/2": b"2",
    }
    fs.pipe("/after", b"1")
    assert contents(config)["/after"] == b"1"


def test_an_exception_leaves_everything_as_it_was(
    fs: S3kFileSystem, config: VolumeConfig, tmp_path: Path
) -> None:
    before = contents(config)

    def fail() -> None:
        with fs.transaction:
            change(fs, tmp_path / "local")
            raise StopError

    with pytest.raises(StopError):
        fail()
    assert contents(config) == before
    fs.pipe("/after", b"1")
    assert contents(config) == before | {"/after": b"1"}


def test_a_file_that_fails_is_no_part_of_the_transaction(fs: S3kFileSystem) -> None:
    def fail() -> None:
        with fs.open("/b", "wb") as file:
            file.write(b"half")
            raise StopError

    with fs.transaction:
        fs.pipe("/a", b"1")
        with pytest.raises(StopError):
            fail()
    assert (fs.exists("/a"), fs.exists("/b")) == (True, False)


def test_without_with(fs: S3kFileSystem) -> None:
    fs.start_transaction()
    fs.pipe("/a", b"1")
    assert not fs.exists("/a")
    with pytest.raises(InvalidArgumentError):
        fs.start_transaction()
    fs.end_transaction()
    assert fs.cat("/a") == b"1"


def test_an_end_without_a_beginning_is_nothing(fs: S3kFileSystem) -> None:
    fs.end_transaction()
    with fs.transaction:
        fs.pipe("/a", b"1")
        fs.end_transaction()
        assert fs.cat("/a") == b"1"
    with fs.transaction:
        fs.pipe("/b", b"2")
    assert fs.cat("/b") == b"2"


def test_what_a_transaction_refuses_changes_nothing(
    fs: S3kFileSystem, config: VolumeConfig
) -> None:
    before = contents(config)

    def unfinished() -> None:
        with fs.transaction:
            fs.pipe("/a", b"1")
            fs.open("/b", "wb").write(b"half")

    with pytest.raises(InvalidArgumentError):
        unfinished()
    with fs.transaction:
        with pytest.raises(UnsupportedError):
            fs.touch("/old", truncate=False)
        with pytest.raises(UnsupportedError):
            fs.rm("/dir", recursive=True, maxdepth=1)
        with pytest.raises(FileExistsError):
            fs.pipe_file("/old", b"1", mode="create")
        with pytest.raises(FileExistsError):
            fs.mkdir("/dir")
        with pytest.raises(FileNotFoundError):
            fs.rm("/nowhere")
    assert contents(config) == before


@pytest.mark.parametrize("path", ["/old", "/new"])
def test_an_append_keeps_what_others_have_written(
    fs: S3kFileSystem, config: VolumeConfig, path: str
) -> None:
    """An append in a transaction writes the file again, so it may only replace what it copied."""

    def append() -> None:
        with fs.transaction:
            fs.pipe("/too", b"1")
            with fs.open(path, "ab") as file:
                file.write(b"mine")
            with S3kSyncClient(config=config) as other:
                other.append(path, b"theirs")

    before = contents(config)
    with pytest.raises((ConflictError, PathExistsError)):
        append()
    assert contents(config) == before | {path: before.get(path, b"") + b"theirs"}


def test_a_copy_has_the_attributes_of_its_source(fs: S3kFileSystem) -> None:
    fs.setxattr("/old", source="sensor")
    fs.chmod("/old", 0o640)
    with fs.transaction:
        fs.copy("/old", "/copied")
        fs.copy("/old", "/gone")
        fs.copy("/gone", "/plain")
    for path in ("/copied", "/gone"):
        assert fs.metadata(path) == {"source": "sensor"}
        assert fs.info(path)["mode"] == fs.info("/old")["mode"]
    assert (fs.metadata("/plain"), fs.cat("/plain")) == ({}, b"3")
