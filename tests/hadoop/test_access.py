"""Permissions in the Hadoop-shaped surface, in a volume that evaluates them."""

from __future__ import annotations

import grp
import pwd
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import pytest

from s3k_async.adapters.hadoop import FsAction, HadoopFileStatus, HadoopFileSystem
from s3k_async.config import VolumeConfig
from s3k_async.errors import PathNotFoundError, PermissionDeniedError
from s3k_async.volumes import init_volume
from tests.client.rig import memory_config
from tests.client.test_permissions import acting

A, B = 1000, 1001


@pytest.fixture
async def config() -> VolumeConfig:
    """A volume with `/shared`, mode 0777, and `/a`, which belongs to A."""
    config = memory_config()
    await init_volume(acting(config, 0, 0).config, enable=["permissions"])
    async with filesystem(config, 0) as fs:
        for path, owner, mode in (("/shared", 0, 0o777), ("/a", A, 0o750)):
            await fs.mkdirs(path)
            await fs.set_owner(path, str(owner), str(owner))
            await fs.set_permission(path, mode)
    return config


@asynccontextmanager
async def filesystem(config: VolumeConfig, uid: int) -> AsyncIterator[HadoopFileSystem]:
    async with acting(config, uid, uid) as client:
        yield HadoopFileSystem(client, user="tester")


async def refused(call: Awaitable[object]) -> None:
    with pytest.raises(PermissionDeniedError):
        await call


async def write(fs: HadoopFileSystem, path: str) -> None:
    async with await fs.create(path, True) as stream:
        await stream.write(b"x")


async def test_a_status_shows_what_is_evaluated(config: VolumeConfig) -> None:
    def shown(status: HadoopFileStatus) -> tuple[int, str, str]:
        return status.permission, status.owner, status.group

    root = (pwd.getpwuid(0).pw_name, grp.getgrgid(0).gr_name)
    async with filesystem(config, A) as fs:
        await write(fs, "/a/f")
        assert shown(await fs.get_file_status("/")) == (0o755, *root)
        assert shown(await fs.get_file_status("/a/f"))[0] == 0o644
        assert {each.permission for each in await fs.list_status("/")} == {0o777, 0o750}


async def test_access_asks_for_mode_bits_and_read_only(config: VolumeConfig) -> None:
    every = FsAction.READ | FsAction.WRITE | FsAction.EXECUTE
    async with filesystem(config, A) as fs:
        await write(fs, "/shared/f")
        await fs.set_permission("/shared/f", 0o640)
        await fs.access("/a", every)
        await fs.access("/shared/f", FsAction.READ | FsAction.WRITE)
        await fs.access("/shared/f", FsAction.NONE)
        await refused(fs.access("/shared/f", every))
        await refused(fs.access("/", FsAction.WRITE))
        with pytest.raises(PathNotFoundError):
            await fs.access("/missing", FsAction.READ)
        await fs._client.set_attributes("/shared/f", read_only=True)
        await refused(fs.access("/shared/f", FsAction.WRITE))
        await fs.access("/shared/f", FsAction.READ)
    async with filesystem(config, B) as fs:
        for action in (FsAction.READ, FsAction.WRITE, FsAction.EXECUTE):
            await refused(fs.access("/a", action))
            await refused(fs.access("/shared/f", action))
        await fs.access("/", FsAction.READ | FsAction.EXECUTE)
    async with filesystem(config, 0) as fs:
        await fs.access("/a", every)


async def test_access_is_permitted_where_nothing_is_evaluated() -> None:
    config = memory_config()
    await init_volume(config)
    async with filesystem(config, B) as fs:
        await fs.mkdirs("/d")
        await fs.set_permission("/d", 0)
        await fs.access("/d", FsAction.READ | FsAction.WRITE | FsAction.EXECUTE)


async def test_a_copy_that_keeps_owners_is_for_the_superuser(config: VolumeConfig) -> None:
    """As DistCp with `-pugp` does: it writes, and then sets owner and permission."""
    async with filesystem(config, A) as fs:
        await write(fs, "/shared/source")
        await fs.set_permission("/shared/source", 0o604)
    async with filesystem(config, B) as fs:
        status = await fs.get_file_status("/shared/source")
        await write(fs, "/shared/copy")
        await fs.set_permission("/shared/copy", status.permission)
        await refused(fs.set_owner("/shared/copy", str(A), None))
        await refused(fs.set_owner("/shared/copy", None, str(A)))
        await fs.set_owner("/shared/copy", str(B), str(B))
        await refused(fs.set_permission("/shared/source", 0o777))
        await refused(fs.set_times("/shared/source", 5, -1))
        await refused(fs.set_xattr("/shared/source", "user.a", b"1"))
    async with filesystem(config, 0) as fs:
        await fs.set_owner("/shared/copy", str(A), str(A))
        status = await fs.get_file_status("/shared/copy")
        assert status.permission == 0o604
        kept = (await fs._client.stat("/shared/copy")).attributes
        assert (kept.uid, kept.gid) == (A, A)


async def test_denied_calls_raise_and_change_nothing(config: VolumeConfig) -> None:
    async with filesystem(config, A) as fs:
        await write(fs, "/a/f")
    async with filesystem(config, B) as fs:
        for call in (
            fs.open("/a/f"),
            fs.create("/a/new"),
            fs.mkdirs("/a/new"),
            fs.delete("/a/f", False),
            fs.delete("/a", True),
            fs.rename("/a/f", "/shared/f"),
            fs.rename("/a", "/shared/a"),
            fs.list_status("/a"),
            fs.get_file_status("/a/f"),
            fs.get_content_summary("/"),
            fs.set_owner("/a", str(B), None),
        ):
            await refused(call)
    async with filesystem(config, A) as fs:
        assert [each.path.rpartition("/")[2] for each in await fs.list_status("/a")] == ["f"]
