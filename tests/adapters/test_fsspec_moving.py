"""`mv` of fsspec: what is renamed as a whole, what is moved file by file, and what stays."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import fsspec
import pytest

from s3k_async.adapters.fsspec import S3kFileSystem
from s3k_async.client import S3kClient
from s3k_async.config import VolumeConfig
from s3k_async.errors import PathExistsError, PathNotFoundError
from s3k_async.volumes import init_volume
from tests.client.rig import memory_config


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


TREE = {
    "/a/1": b"new 1",
    "/a/b/2": b"new 2",
    "/a/b/c/3": b"new 3",
    "/to/1": b"old 1",
    "/to/b/kept": b"kept",
}


def identities(fs: S3kFileSystem, path: str) -> dict[str, str]:
    return {found: info["id"] for found, info in fs.find(path, detail=True).items()}


def test_mv_is_the_rename(fs: S3kFileSystem) -> None:
    fs.pipe({"/a/1": b"1", "/a/b/2": b"2", "/c/3": b"3"})
    ids = {info["id"] for info in fs.find("/a", detail=True).values()}
    physical = fs.info("/a/1")["checksum"]
    fs.mv("/a", "/new/place")
    assert fs.find("/") == ["/c/3", "/new/place/1", "/new/place/b/2"]
    assert {info["id"] for info in fs.find("/new", detail=True).values()} == ids
    assert fs.info("/new/place/1")["checksum"] == physical
    fs.mv("/c/3", "/new/place")
    fs.mv("/new/place/1", "/d/")
    fs.mv("/d/1", "/new/place/3")
    assert fs.find("/") == ["/new/place/3", "/new/place/b/2"]
    assert fs.cat("/new/place/3") == b"1"
    fs.mv("/new/place/*", "/all", recursive=True)
    assert fs.find("/") == ["/all/3", "/all/b/2"]
    fs.mv("/all/", "/new", recursive=True)
    assert fs.find("/") == ["/new/3", "/new/b/2", "/new/place"] or fs.find("/") == [
        "/new/3",
        "/new/b/2",
    ]
    with pytest.raises(PathNotFoundError):
        fs.mv("/nowhere", "/somewhere/else")
    assert not fs.exists("/somewhere")


def test_what_is_in_a_directory_moves_among_what_is_in_another(fs: S3kFileSystem) -> None:
    fs.pipe(TREE)
    before = identities(fs, "/a")
    fs.mv("/a/", "/to", recursive=True)
    after = identities(fs, "/")
    assert after.keys() == {"/to/1", "/to/b/2", "/to/b/c/3", "/to/b/kept"}
    # Renamed, not copied: they are the same files.
    assert [after[path] for path in ("/to/1", "/to/b/2", "/to/b/c/3")] == list(before.values())
    assert fs.cat("/to/1") == b"new 1"
    assert not fs.exists("/a")


def test_what_is_in_a_directory_moves_into_the_root(fs: S3kFileSystem) -> None:
    fs.pipe({"/a/1": b"1", "/a/b/2": b"2"})
    fs.mv("/a/", "/", recursive=True)
    assert fs.find("/", withdirs=True) == ["/", "/1", "/b", "/b/2"]


def test_it_ends_as_it_does_on_another_filesystem(fs: S3kFileSystem) -> None:
    other: Any = fsspec.filesystem("memory", skip_instance_cache=True)
    other.store.clear()
    other.pseudo_dirs[:] = [""]
    for each in (fs, other):
        each.pipe(TREE)
        each.mv("/a/", "/to", recursive=True)
    assert fs.find("/") == other.find("/")
    assert {path: fs.cat(path) for path in fs.find("/")} == {
        path: other.cat(path) for path in other.find("/")
    }


def test_what_is_added_meanwhile_stays_with_its_directory(
    fs: S3kFileSystem, config: VolumeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs.pipe(TREE)
    rename_many = S3kClient.rename_many

    async def somebody_adds(client: S3kClient, *args: Any, **options: Any) -> Any:
        async with S3kClient(config=config) as another:
            await another.write("/a/b/late", b"late")
        return await rename_many(client, *args, **options)

    monkeypatch.setattr(S3kClient, "rename_many", somebody_adds)
    fs.mv("/a/", "/to", recursive=True)
    assert fs.find("/") == ["/a/b/late", "/to/1", "/to/b/2", "/to/b/c/3", "/to/b/kept"]
    assert fs.cat("/a/b/late") == b"late"
    assert not fs.exists("/a/b/c")


def test_what_is_deeper_than_maxdepth_stays(fs: S3kFileSystem) -> None:
    fs.pipe(TREE)
    fs.mv("/a", "/new", recursive=True, maxdepth=2)
    assert fs.find("/") == ["/a/b/c/3", "/new/1", "/new/b/2", "/to/1", "/to/b/kept"]


def test_a_file_that_cannot_move_is_named_and_the_others_have_moved(fs: S3kFileSystem) -> None:
    fs.pipe({"/a/1": b"1", "/a/2": b"2", "/to/1/x": b"x"})
    with pytest.raises(PathExistsError, match="/to/1"):
        fs.mv("/a/", "/to", recursive=True)
    assert fs.find("/") == ["/a/1", "/to/1/x", "/to/2"]


def test_a_directory_among_what_is_in_itself_stays_as_it_is(fs: S3kFileSystem) -> None:
    fs.pipe(TREE)
    fs.makedirs("/a/empty")
    before = fs.find("/", withdirs=True)
    fs.mv("/a/", "/a", recursive=True)
    assert fs.find("/", withdirs=True) == before
    fs.rm("/a", recursive=True)
    fs.makedirs("/a")
    fs.mv("/a/", "/a", recursive=True)
    assert fs.isdir("/a")


def test_a_directory_that_is_a_target_as_well_is_not_removed(fs: S3kFileSystem) -> None:
    fs.pipe("/a/b/1", b"1")
    fs.makedirs("/a/b/b")
    fs.mv("/a/b/", "/a", recursive=True)
    assert fs.find("/", withdirs=True) == ["/", "/a", "/a/1", "/a/b"]
    fs.mv("/", "/x", maxdepth=1)
    assert fs.find("/") == ["/a/1"]


@pytest.mark.parametrize("options", [{}, {"maxdepth": 1}])
@pytest.mark.parametrize(
    ("source", "target", "moved"),
    [
        ("/a", "/new/", "/new/a/1"),
        ("/a/1", "/new/", "/new/1"),
        ("/a/*", "/to", "/to/1"),
        (["/a"], ["/new"], "/new/1"),
    ],
)
def test_maxdepth_changes_nothing_of_what_the_target_means(
    fs: S3kFileSystem,
    source: str | list[str],
    target: str | list[str],
    moved: str,
    options: dict[str, int],
) -> None:
    fs.pipe({"/a/1": b"1", "/to/kept": b"kept"})
    fs.mv(source, target, **options)
    assert fs.find("/") == sorted([moved, "/to/kept"])
