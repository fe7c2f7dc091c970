"""Permission, owner and group of entries, and read-only entries, in the Hadoop-shaped surface."""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Awaitable, Callable

import pytest

from s3k_async.adapters.hadoop import CreateFlag, HadoopFileSystem
from s3k_async.attributes import Attributes
from s3k_async.client import S3kClient
from s3k_async.errors import (
    InvalidArgumentError,
    PathNotFoundError,
    PermissionDeniedError,
    UncommittedFileError,
    UnsupportedError,
)
from s3k_async.volumes import init_volume
from tests.client.rig import memory_config
from tests.hadoop.ground import Ground, collect

pytestmark = pytest.mark.asyncio(loop_scope="session")


def nameless(taken: Callable[[int], object]) -> int:
    """An id that has no name on this machine."""
    for number in range(2_000_000_000, 2_000_001_000):
        try:
            taken(number)
        except KeyError:
            return number
    raise AssertionError("every id has a name")


async def test_permission_owner_and_group_are_in_every_status(ground: Ground) -> None:
    user, group = pwd.getpwuid(os.getuid()).pw_name, grp.getgrgid(os.getgid()).gr_name
    await ground.write(ground.path("dir/file"), b"x")
    await ground.fs.set_permission(ground.path("dir/file"), 0o640)
    await ground.fs.set_permission(ground.path("dir"), 0o1777)
    await ground.fs.set_owner(ground.path("dir/file"), user, group)

    status = await ground.fs.get_file_status(ground.path("dir/file"))
    assert (status.permission, status.owner, status.group) == (0o640, user, group)
    assert (await ground.fs.get_file_status(ground.path("dir"))).permission == 0o1777
    assert await ground.fs.list_status(ground.path("dir")) == [status]
    assert await collect(ground.fs.list_status_iterator(ground.path("dir"))) == [status]
    assert await ground.fs.glob_status(ground.path("d*/f*")) == [status]
    [located] = await collect(ground.fs.list_files(ground.path(), recursive=True))
    assert (located.permission, located.owner, located.group) == (0o640, user, group)
    kept = (await ground.client.stat("/dir/file")).attributes
    assert kept == Attributes(0o640, os.getuid(), os.getgid())


async def test_an_id_without_a_name_is_shown_as_its_number(ground: Ground) -> None:
    uid, gid = nameless(pwd.getpwuid), nameless(grp.getgrgid)
    await ground.write(ground.path("file"))
    await ground.fs.set_owner(ground.path("file"), str(uid), None)
    status = await ground.fs.get_file_status(ground.path("file"))
    assert (status.owner, status.group) == (str(uid), "tester")
    await ground.fs.set_owner(ground.path("file"), None, str(gid))
    status = await ground.fs.get_file_status(ground.path("file"))
    assert (status.owner, status.group) == (str(uid), str(gid))


async def test_invalid_owners_and_permissions_change_nothing(ground: Ground) -> None:
    await ground.write(ground.path("file"))
    before = await ground.client.stat("/file")
    for call in (
        ground.fs.set_owner(ground.path("file"), None, None),
        ground.fs.set_owner(ground.path("file"), "no such user", None),
        ground.fs.set_owner(ground.path("file"), None, "no such group"),
        ground.fs.set_owner(ground.path("file"), str(2**32), None),
        ground.fs.set_owner(ground.path("file"), "", None),
        ground.fs.set_owner(ground.path("file"), "a\0b", None),
        ground.fs.set_permission(ground.path("file"), 0o10000),
        ground.fs.set_permission(ground.path("file"), -1),
    ):
        with pytest.raises(InvalidArgumentError) as raised:
            await call
        assert raised.value.path == "/file"
    for missing in (
        ground.fs.set_owner(ground.path("missing"), "0", None),
        ground.fs.set_permission(ground.path("missing"), 0o600),
    ):
        with pytest.raises(PathNotFoundError):
            await missing
    assert await ground.client.stat("/file") == before


async def test_permissions_are_not_enforced(ground: Ground) -> None:
    await ground.write(ground.path("dir/file"), b"old")
    await ground.fs.set_permission(ground.path("dir/file"), 0)
    await ground.fs.set_permission(ground.path("dir"), 0)
    assert await ground.read(ground.path("dir/file")) == b"old"
    await ground.write(ground.path("dir/file"), b"new", overwrite=True)
    assert (await ground.fs.get_file_status(ground.path("dir/file"))).permission == 0
    assert await ground.fs.delete(ground.path("dir"), recursive=True)


async def test_the_root_and_a_file_being_written_have_no_attributes(ground: Ground) -> None:
    with pytest.raises(PermissionDeniedError):
        await ground.fs.set_permission(ground.path(), 0o700)
    async with await ground.fs.create(ground.path("file")) as stream:
        with pytest.raises(UncommittedFileError):
            await ground.fs.set_permission(ground.path("file"), 0o700)
        await stream.write(b"x")
    await ground.fs.set_permission(ground.path("file"), 0o700)


async def test_a_volume_without_attributes_refuses_them() -> None:
    config = memory_config()
    await init_volume(config, without=["attributes"])
    async with S3kClient(config=config) as client:
        fs = HadoopFileSystem(client)
        await fs.mkdirs("/dir")
        for call in (
            fs.set_permission("/dir", 0o700),
            fs.set_owner("/dir", "0", "0"),
            fs.set_times("/dir", 1, -1),
            fs.set_xattr("/dir", "user.a", b""),
            fs.remove_xattr("/dir", "user.a"),
        ):
            with pytest.raises(UnsupportedError, match="s3k migrate --enable attributes"):
                await call
        assert await fs.get_xattrs("/dir") == {}
        assert (await fs.get_file_status("/dir")).permission == 0o777


async def written(ground: Ground, flags: CreateFlag) -> None:
    async with await ground.fs.create_non_recursive(ground.path("dir/file"), flags) as stream:
        await stream.write(b"!")


CHANGES: dict[str, Callable[[Ground], Awaitable[object]]] = {
    "create": lambda ground: written(ground, CreateFlag.OVERWRITE),
    "append": lambda ground: written(ground, CreateFlag.APPEND),
    "truncate": lambda ground: ground.fs.truncate(ground.path("dir/file"), 1),
    "concat": lambda ground: ground.fs.concat(ground.path("dir/other"), [ground.path("dir/file")]),
    "delete": lambda ground: ground.fs.delete(ground.path("dir/file"), recursive=False),
    "delete, recursively": lambda ground: ground.fs.delete(ground.path("dir/file"), recursive=True),
    "rename": lambda ground: ground.fs.rename(ground.path("dir/file"), ground.path("moved")),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_read_only_file_does_not_change(ground: Ground, change: str) -> None:
    await ground.write(ground.path("dir/file"), b"one")
    await ground.write(ground.path("dir/other"), b"two")
    await ground.client.set_attributes("/dir/file", read_only=True)
    with pytest.raises(PermissionError) as raised:
        await CHANGES[change](ground)
    assert raised.value.filename == "/dir/file"
    assert await ground.read(ground.path("dir/file")) == b"one"
    await ground.expect_tree(ground.path(), {"dir": {"file": 3, "other": 3}})
    await ground.fs.set_permission(ground.path("dir/file"), 0o600)
    await ground.client.set_attributes("/dir/file", read_only=False)
    await CHANGES[change](ground)


async def test_a_read_only_directory_is_not_moved_or_deleted(ground: Ground) -> None:
    await ground.write(ground.path("dir/file"), b"one")
    await ground.client.set_attributes("/dir", read_only=True)
    with pytest.raises(PermissionError):
        await ground.fs.delete(ground.path("dir"), recursive=True)
    with pytest.raises(PermissionError):
        await ground.fs.rename(ground.path("dir"), ground.path("moved"))
    await ground.expect_tree(ground.path(), {"dir": {"file": 3}})
