"""fsspec on a volume that evaluates permissions."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from s3k_async.adapters.fsspec import S3kFileSystem
from s3k_async.config import VolumeConfig
from s3k_async.volumes import init_volume
from tests.client.rig import memory_config

A, B = 1000, 1001

Filesystems = Callable[[int], S3kFileSystem]


def of(config: VolumeConfig, uid: int) -> VolumeConfig:
    return replace(config, tuning=replace(config.tuning, uid=uid, gids=(uid,)))


@pytest.fixture
def acting() -> Iterator[Filesystems]:
    """Filesystems for identities, on one volume whose root belongs to A."""
    config = memory_config()
    asyncio.run(init_volume(of(config, A), enable=["permissions"]))
    opened: dict[int, S3kFileSystem] = {}

    def filesystem(uid: int) -> S3kFileSystem:
        if uid not in opened:
            opened[uid] = S3kFileSystem(config=of(config, uid))
        return opened[uid]

    yield filesystem
    for each in opened.values():
        each.close_session()


def test_files_belong_to_who_writes_them(acting: Filesystems) -> None:
    fs = acting(A)
    fs.pipe("/d/f", b"one")
    with fs.open("/d/g", "wb") as file:
        file.write(b"two")
    for name in ("f", "g"):
        info = fs.info(f"/d/{name}", refresh=True)
        assert (info["mode"] & 0o7777, info["uid"], info["gid"]) == (0o644, A, A)


def test_denials_are_permission_errors(acting: Filesystems) -> None:
    acting(A).pipe({"/d/f": b"one", "/d/g": b"two"})
    acting(A).chmod("/d/f", 0o600)
    fs = acting(B)
    before = acting(A).find("/", withdirs=True)
    calls: tuple[Callable[[], object], ...] = (
        lambda: fs.cat_file("/d/f"),
        lambda: fs.cat_ranges(["/d/f"], [0], [2], on_error="raise"),
        lambda: fs.open("/d/f", "rb").read(),
        lambda: fs.pipe("/d/g", b"x"),
        lambda: fs.pipe("/d/new", b"x"),
        lambda: fs.open("/d/g", "wb"),
        lambda: fs.open("/d/g", "ab"),
        lambda: fs.open("/d/g", "r+b"),
        lambda: fs.makedirs("/d/s"),
        lambda: fs.rm("/d/g"),
        lambda: fs.rm("/d", recursive=True),
        lambda: fs.mv("/d/g", "/d/h"),
        lambda: fs.cp_file("/d/f", "/x"),
        lambda: fs.chmod("/d/g", 0o777),
        lambda: fs.chown("/d/g", B),
        lambda: fs.setxattr("/d/g", a="1"),
        lambda: fs.touch("/d/g"),
    )
    for call in calls:
        with pytest.raises(PermissionError) as raised:
            call()
        assert raised.value.errno == errno.EACCES
    assert fs.cat_file("/d/g") == b"two"
    assert acting(A).find("/", withdirs=True) == before


def test_owners_change_what_they_own(acting: Filesystems) -> None:
    fs = acting(A)
    fs.pipe("/d/f", b"one")
    fs.chmod("/d/f", 0o640)
    fs.setxattr("/d/f", a="1")
    with pytest.raises(PermissionError):
        fs.chown("/d/f", B)
    with pytest.raises(PermissionError):
        fs.chown("/d/f", gid=B)
    acting(0).chown("/d/f", B, B)
    assert acting(B).cat_file("/d/f") == b"one"
    assert acting(B).getxattr("/d/f", "a") == "1"
