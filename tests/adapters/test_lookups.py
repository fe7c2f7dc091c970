"""Verbs of the libraries that look before they act: what others put in the place of what was seen
stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyarrow.fs import PyFileSystem
from upath import UPath

from s3k_async import S3kClient, S3kSyncClient
from s3k_async.adapters import fsspec as fsspec_module
from s3k_async.adapters.arrow import S3kHandler
from s3k_async.adapters.fsspec import S3kFileSystem
from s3k_async.adapters.universal_pathlib import S3kPath
from s3k_async.config import VolumeConfig
from s3k_async.errors import ConflictError, IsDirectoryError
from s3k_async.volumes import init_volume
from tests.client.rig import memory_config


@pytest.fixture
async def config() -> VolumeConfig:
    made = memory_config()
    await init_volume(made)
    return made


@pytest.fixture
def others(config: VolumeConfig) -> Iterator[S3kSyncClient]:
    """Another client of the volume."""
    with S3kSyncClient(config=config) as client:
        yield client


@pytest.fixture
def arrow(config: VolumeConfig) -> Iterator[PyFileSystem]:
    with S3kSyncClient(config=config) as client:
        yield PyFileSystem(S3kHandler(client))


@pytest.fixture
def fs(config: VolumeConfig) -> S3kFileSystem:
    return S3kFileSystem(config=config, skip_instance_cache=True)


def file_instead(client: S3kSyncClient, path: str) -> Callable[[], object]:
    def change() -> None:
        client.delete(path, recursive=True)
        client.write(path, b"acknowledged")

    return change


def directory_instead(client: S3kSyncClient, path: str) -> Callable[[], object]:
    def change() -> None:
        client.delete(path)
        client.write(f"{path}/below", b"acknowledged")

    return change


def then(
    monkeypatch: pytest.MonkeyPatch, holder: Any, name: str, change: Callable[[], object]
) -> None:
    """Make a change right after the first call of a blocking function."""
    original, left = getattr(holder, name), [change]

    def patched(*arguments: Any, **options: Any) -> Any:
        found = original(*arguments, **options)
        if left:
            left.pop()()
        return found

    monkeypatch.setattr(holder, name, patched)


def soon(
    monkeypatch: pytest.MonkeyPatch,
    holder: Any,
    name: str,
    config: VolumeConfig,
    path: str,
    kind: str,
) -> None:
    """Put a file or a directory in the place of another thing right after the first call of a
    coroutine function."""
    original, left = getattr(holder, name), [kind]

    async def patched(*arguments: Any, **options: Any) -> Any:
        found = await original(*arguments, **options)
        if left:
            below = "/below" if left.pop() == "directory" else ""
            async with S3kClient(config=config) as client:
                await client.delete(path, recursive=True)
                await client.write(f"{path}{below}", b"acknowledged")
        return found

    monkeypatch.setattr(holder, name, patched)


# pyarrow


def test_a_file_in_the_place_of_a_directory_is_not_deleted(
    arrow: PyFileSystem, others: S3kSyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    others.write("/d/f", b"")
    then(monkeypatch, S3kHandler, "_need", file_instead(others, "/d"))
    with pytest.raises(ConflictError):
        arrow.delete_dir("/d")
    assert others.read("/d") == b"acknowledged"


def test_a_directory_in_the_place_of_a_file_is_not_deleted(
    arrow: PyFileSystem, others: S3kSyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    others.write("/f", b"")

    def change() -> None:
        others.delete("/f")
        others.makedirs("/f")

    then(monkeypatch, S3kHandler, "_need", change)
    with pytest.raises(IsDirectoryError):
        arrow.delete_file("/f")
    assert others.is_dir("/f")


def test_a_file_that_is_written_anew_meanwhile_is_deleted(
    arrow: PyFileSystem, others: S3kSyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    others.write("/f", b"1")
    then(monkeypatch, S3kHandler, "_need", lambda: others.write("/f", b"2"))
    arrow.delete_file("/f")
    assert not others.exists("/f")


def test_a_file_in_the_place_of_an_empty_target_is_not_replaced_by_a_directory(
    arrow: PyFileSystem, others: S3kSyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    others.write("/d/f", b"")
    others.makedirs("/empty")
    then(monkeypatch, arrow.handler.client, "stat_many", file_instead(others, "/empty"))
    with pytest.raises(ConflictError):
        arrow.move("/d", "/empty")
    assert others.read("/empty") == b"acknowledged"
    assert others.exists("/d/f")


# fsspec


def test_rmdir_removes_no_file(
    fs: S3kFileSystem, config: VolumeConfig, others: S3kSyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    others.makedirs("/d")
    soon(monkeypatch, fsspec_module, "status_of", config, "/d", "file")
    with pytest.raises(ConflictError):
        fs.rmdir("/d")
    assert others.read("/d") == b"acknowledged"


def test_rm_of_files_removes_no_tree(
    fs: S3kFileSystem, config: VolumeConfig, others: S3kSyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    others.write_many([("/a", b""), ("/b", b"")])
    soon(monkeypatch, S3kClient, "stat_many", config, "/b", "directory")
    with pytest.raises(OSError, match="/b"):
        fs.rm(["/a", "/b"])
    assert others.read("/b/below") == b"acknowledged"


def test_what_takes_the_place_of_an_emptied_directory_stays(
    fs: S3kFileSystem, config: VolumeConfig, others: S3kSyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    others.write("/a/f", b"")
    others.makedirs("/b")
    soon(monkeypatch, fsspec_module, "rename", config, "/a", "file")
    fs.mv("/a/", "/b", recursive=True)
    assert others.read("/a") == b"acknowledged"
    assert others.exists("/b/f")


def test_a_path_moved_elsewhere_leaves_what_was_written_meanwhile(
    config: VolumeConfig, others: S3kSyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    others.write_many([("/d/f", b"1"), ("/d/g", b"1")])
    then(monkeypatch, S3kPath, "copy", lambda: others.write("/d/f", b"acknowledged"))
    with pytest.raises(ConflictError, match="/d/f"):
        UPath(f"s3k://{config.name}/d", config=config).move(UPath(f"memory://{config.name}"))
    assert others.read("/d/f") == b"acknowledged"
    assert not others.exists("/d/g")
    assert (UPath(f"memory://{config.name}") / "f").read_bytes() == b"1"
