"""fsspec's `chmod`, `chown`, `metadata`, `getxattr` and `setxattr`, and read-only entries."""

from __future__ import annotations

import asyncio
import importlib
import stat
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from upath import UPath

from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async.adapters.fsspec import S3kFileSystem
from s3k_async.attributes import Attributes
from s3k_async.config import VolumeConfig
from s3k_async.errors import (
    ArgumentTypeError,
    CrossVolumeError,
    InvalidArgumentError,
    PathNotFoundError,
    PermissionDeniedError,
    UnsupportedError,
)
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


@pytest.fixture
def client(config: VolumeConfig) -> Iterator[S3kSyncClient]:
    with S3kSyncClient(config=config) as client:
        yield client


def owned(info: dict[str, Any]) -> dict[str, Any]:
    return {name: info[name] for name in ("mode", "uid", "gid") if name in info}


# Mode and owner


def test_mode_and_owner_are_in_descriptions(fs: S3kFileSystem, client: S3kSyncClient) -> None:
    fs.pipe("/d/f", b"one")
    assert owned(fs.info("/d/f")) == owned(fs.info("/d")) == {}
    fs.chmod("/d/f", 0o640)
    fs.chown("/d/f", 7, 8)
    fs.chmod("/d", stat.S_IFDIR | 0o2750)
    wanted = {"mode": stat.S_IFREG | 0o640, "uid": 7, "gid": 8}
    assert owned(fs.info("/d/f")) == wanted
    assert [owned(info) for info in fs.ls("/d", detail=True)] == [wanted]
    assert owned(fs.find("/", detail=True)["/d/f"]) == wanted
    with fs.open("/d/f") as file:
        assert owned(file.details) == wanted
    assert owned(fs.info("/d")) == {"mode": stat.S_IFDIR | 0o2750}
    assert client.stat("/d/f").attributes == Attributes(0o640, 7, 8)
    assert client.stat("/d").attributes == Attributes(0o2750)


def test_an_owner_is_set_alone(fs: S3kFileSystem, client: S3kSyncClient) -> None:
    fs.pipe("/f", b"")
    fs.chown("/f", 7)
    fs.chown("/f", gid=8)
    fs.chown("/f", -1, 9)
    fs.chown("/f")
    assert client.stat("/f").attributes == Attributes(uid=7, gid=9)


def test_mode_and_owner_survive_what_writes_the_file(fs: S3kFileSystem) -> None:
    fs.pipe("/f", b"one")
    fs.chmod("/f", 0o600)
    fs.setxattr("/f", a="1")
    fs.pipe("/f", b"two")
    with fs.open("/f", "ab") as file:
        file.write(b"!")
    with fs.open("/f", "r+b") as file:
        file.write(b"T")
    fs.touch("/f", truncate=False)
    fs.mv("/f", "/g")
    fs.cp_file("/g", "/h")
    fs.touch("/g", truncate=True)
    for path, data in (("/g", b""), ("/h", b"Two!")):
        assert fs.cat(path) == data
        assert stat.S_IMODE(fs.info(path)["mode"]) == 0o600
        assert fs.metadata(path) == {"a": "1"}


def test_a_path_of_universal_pathlib_has_a_mode(config: VolumeConfig, fs: S3kFileSystem) -> None:
    fs.pipe("/d/f", b"one")
    fs.chmod("/d/f", 0o640)
    fs.chmod("/d", 0o700)
    directory = UPath("s3k:///d", config=config)
    assert stat.filemode(directory.stat().st_mode) == "drwx------"
    assert stat.filemode((directory / "f").stat().st_mode) == "-rw-r-----"
    assert directory.is_dir()
    assert (directory / "f").is_file()


def test_the_fuse_operations_of_fsspec_see_and_set_a_mode(
    fs: S3kFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are called as libfuse calls them: the binding alone, which has no part in it, is
    replaced."""
    binding = ModuleType("fuse")
    vars(binding).update(FUSE=object, FuseOSError=OSError, LoggingMixIn=object, Operations=object)
    monkeypatch.setitem(sys.modules, "fuse", binding)
    operations = importlib.import_module("fsspec.fuse").FUSEr(fs, "/d")
    fs.pipe("/d/x/f", b"one")
    operations.chmod("/x/f", stat.S_IFREG | 0o640)
    operations.chmod("/x", stat.S_IFDIR | 0o750)
    fs.chown("/d/x/f", 7, 8)
    found = operations.getattr("/x/f")
    assert stat.filemode(found["st_mode"]) == "-rw-r-----"
    assert (found["st_uid"], found["st_gid"], found["st_size"]) == (7, 8, 3)
    info = fs.info("/d/x/f")
    assert (found["st_mtime"], found["st_ctime"]) == (info["mtime"], info["ctime"])
    assert info["created"] <= info["mtime"] <= info["ctime"]
    assert stat.filemode(operations.getattr("/x")["st_mode"]) == "drwxr-x---"
    assert stat.S_ISDIR(operations.getattr("/")["st_mode"])


# User metadata


def test_user_metadata_are_set_and_removed(fs: S3kFileSystem, client: S3kSyncClient) -> None:
    fs.pipe("/d/f", b"one")
    for path in ("/d/f", "/d"):
        assert fs.metadata(path) == {}
        assert fs.getxattr(path, "a") is None
        fs.setxattr(path, a="1", b="zwölf")
        fs.setxattr(path, copy_kwargs={"StorageClass": "GLACIER"}, a=None, c="", **{"x-y": "2"})
        assert fs.metadata(path) == {"b": "zwölf", "c": "", "x-y": "2"}
        assert fs.getxattr(path, "b") == "zwölf"
        assert client.stat(path).attributes.metadata == {
            "b": "zwölf".encode(),
            "c": b"",
            "x-y": b"2",
        }
    assert sorted(each.path for each in client.find("/", metadata="b")) == ["/d", "/d/f"]


def test_bytes_that_are_no_text_survive(fs: S3kFileSystem, client: S3kSyncClient) -> None:
    data = bytes(range(256))
    fs.pipe("/f", b"")
    fs.setxattr("/f", a=data)
    text = fs.getxattr("/f", "a")
    assert isinstance(text, str)
    fs.setxattr("/f", b=text)
    assert client.stat("/f").attributes.metadata == {"a": data, "b": data}


def test_coroutines_do_the_same(config: VolumeConfig) -> None:
    async def main() -> None:
        fs = S3kFileSystem(config=config, asynchronous=True)
        await fs._pipe_file("/f", b"one")
        await fs._chmod("s3k:///f", 0o600)
        await fs._chown("/f", 1, 2)
        await fs._setxattr("/f", a="1")
        assert owned(await fs._info("/f")) == {"mode": stat.S_IFREG | 0o600, "uid": 1, "gid": 2}
        assert await fs._metadata("/f") == {"a": "1"}
        assert await fs._getxattr("/f", "a") == "1"
        await fs.close()

    asyncio.run(main())


# Listings, errors


def test_cached_listings_are_dropped(config: VolumeConfig) -> None:
    fs = S3kFileSystem(config=config, use_listings_cache=True)
    fs.pipe("/d/f", b"one")
    changes: list[Callable[[], None]] = [
        lambda: fs.chmod("/d/f", 0o600),
        lambda: fs.chown("/d/f", 1, 2),
        lambda: fs.setxattr("/d/f", a="1"),
    ]
    for change in changes:
        fs.ls("/d")
        version = fs.info("/d/f")["version"]
        change()
        assert fs.info("/d/f")["version"] == version + 1
        assert fs.ls("/d", detail=True)[0]["version"] == version + 1
    assert owned(fs.ls("/d", detail=True)[0]) == {"mode": stat.S_IFREG | 0o600, "uid": 1, "gid": 2}
    fs.close_session()


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda fs: fs.chmod("/none", 0o600), PathNotFoundError),
        (lambda fs: fs.chown("/none", 1), PathNotFoundError),
        (lambda fs: fs.setxattr("/none", a="1"), PathNotFoundError),
        (lambda fs: fs.metadata("/none"), PathNotFoundError),
        (lambda fs: fs.getxattr("/none", "a"), PathNotFoundError),
        (lambda fs: fs.chmod("/", 0o600), PermissionDeniedError),
        (lambda fs: fs.chmod("/f", "rw"), ArgumentTypeError),
        (lambda fs: fs.chown("/f", 2**32), InvalidArgumentError),
        (lambda fs: fs.chown("/f", gid=-2), InvalidArgumentError),
        (lambda fs: fs.setxattr("/f", a=1), ArgumentTypeError),
        (lambda fs: fs.setxattr("/f", a="x" * 9000), InvalidArgumentError),
        (lambda fs: fs.setxattr("/f", **{"#a": "1"}), InvalidArgumentError),
        (lambda fs: fs.chmod("s3k://other/f", 0o600), CrossVolumeError),
        (lambda fs: fs.metadata("s3k://other/f"), CrossVolumeError),
    ],
)
def test_what_is_refused_changes_nothing(
    fs: S3kFileSystem, call: Callable[[S3kFileSystem], object], error: type[Exception]
) -> None:
    fs.pipe("/f", b"one")
    before = fs.info("/f")
    with pytest.raises(error):
        call(fs)
    assert fs.info("/f") == before


def test_a_transaction_sets_no_attributes(fs: S3kFileSystem) -> None:
    fs.pipe("/f", b"one")

    def change() -> None:
        with fs.transaction:
            fs.pipe("/g", b"")
            fs.chmod("/f", 0o600)

    with pytest.raises(UnsupportedError):
        change()
    assert owned(fs.info("/f")) == {}
    assert not fs.exists("/g")


def test_a_volume_without_attributes_refuses_them() -> None:
    config = memory_config()
    asyncio.run(init_volume(config, without=["attributes"]))
    fs = S3kFileSystem(config=config)
    fs.pipe("/f", b"one")
    with pytest.raises(UnsupportedError, match="s3k migrate --enable attributes"):
        fs.chmod("/f", 0o600)
    assert fs.metadata("/f") == {}
    fs.close_session()


# Read-only


def opened(fs: S3kFileSystem, mode: str) -> None:
    with fs.open("/d/f", mode) as file:
        file.write(b"!")


@pytest.mark.parametrize(
    "change",
    [
        lambda fs: fs.pipe("/d/f", b"other"),
        lambda fs: fs.pipe({"/d/f": b"other"}),
        lambda fs: opened(fs, "wb"),
        lambda fs: opened(fs, "ab"),
        lambda fs: opened(fs, "r+b"),
        lambda fs: fs.touch("/d/f"),
        lambda fs: fs.touch("/d/f", truncate=False),
        lambda fs: fs.rm("/d/f"),
        lambda fs: fs.rm(["/d/f"]),
        lambda fs: fs.rm_file("/d/f"),
        lambda fs: fs.mv("/d/f", "/d/h"),
        lambda fs: fs.mv("/d/g", "/d/f"),
        lambda fs: fs.cp_file("/d/g", "/d/f"),
    ],
)
def test_a_read_only_file_does_not_change(
    fs: S3kFileSystem, client: S3kSyncClient, change: Callable[[S3kFileSystem], object]
) -> None:
    fs.pipe({"/d/f": b"one", "/d/g": b"two"})
    client.set_attributes("/d/f", read_only=True)
    with pytest.raises(PermissionError) as raised:
        change(fs)
    assert raised.value.filename == "/d/f"
    assert fs.cat("/d", recursive=True) == {"/d/f": b"one", "/d/g": b"two"}
    fs.chmod("/d/f", 0o600)
    fs.setxattr("/d/f", a="1")
    assert client.stat("/d/f").attributes == Attributes(0o600, None, None, True, {"a": b"1"})
    client.set_attributes("/d/f", read_only=False)
    change(fs)


def test_a_read_only_directory_is_not_removed(fs: S3kFileSystem, client: S3kSyncClient) -> None:
    fs.mkdirs("/d/x")
    client.set_attributes("/d/x", read_only=True)
    changes: list[Callable[[], object]] = [
        lambda: fs.rmdir("/d/x"),
        lambda: fs.rm("/d/x", recursive=True),
        lambda: fs.mv("/d/x", "/d/y"),
    ]
    for change in changes:
        with pytest.raises(PermissionError):
            change()
    assert fs.isdir("/d/x")
