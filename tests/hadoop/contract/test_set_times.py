"""Hadoop's contract of `setTimes`."""

from __future__ import annotations

import pytest

from s3k_async.errors import InvalidArgumentError, PathNotFoundError, PermissionDeniedError
from tests.hadoop.ground import Ground

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_set_times_nonexistent_file(ground: Ground) -> None:
    for time in (1, -1):
        with pytest.raises(PathNotFoundError):
            await ground.fs.set_times(ground.path("missing"), time, -1)


async def test_set_times(ground: Ground) -> None:
    await ground.write(ground.path("dir/file"), b"x")
    for path in ("dir/file", "dir"):
        before = await ground.fs.get_file_status(ground.path(path))
        await ground.fs.set_times(ground.path(path), 1234, 5678)
        after = await ground.fs.get_file_status(ground.path(path))
        assert (after.modification_time, after.access_time) == (1234, 0)
        assert before.modification_time > 1234
        await ground.fs.set_times(ground.path(path), -1, 5678)
        assert await ground.fs.get_file_status(ground.path(path)) == after
    [listed] = await ground.fs.list_status(ground.path("dir"))
    assert listed.modification_time == 1234
    assert await ground.read(ground.path("dir/file")) == b"x"


async def test_set_times_refuses(ground: Ground) -> None:
    await ground.write(ground.path("file"), b"x")
    before = await ground.fs.get_file_status(ground.path("file"))
    with pytest.raises(InvalidArgumentError):
        await ground.fs.set_times(ground.path("file"), -2, -1)
    await ground.client.set_attributes("/file", read_only=True)
    with pytest.raises(PermissionDeniedError):
        await ground.fs.set_times(ground.path("file"), 1, -1)
    with pytest.raises(PermissionDeniedError):
        await ground.fs.set_times(ground.path(), 1, -1)
    assert await ground.fs.get_file_status(ground.path("file")) == before
