"""Extended attributes: HDFS's tests of them that need no superuser, no snapshot and no restart."""

from __future__ import annotations

import asyncio

import pytest

from s3k_async.adapters.hadoop import HadoopFileSystem, XAttrSetFlag
from s3k_async.attributes import MAX_BYTES, MAX_NAME
from s3k_async.client import S3kClient
from s3k_async.errors import (
    InvalidArgumentError,
    MetadataExistsError,
    MetadataNotFoundError,
    PathNotFoundError,
    PermissionDeniedError,
    ResponseLostError,
)
from s3k_async.model import LayoutName
from s3k_async.testing import FaultPlan
from s3k_async.volumes import init_volume
from tests.client.rig import memory_config
from tests.hadoop.ground import Ground

pytestmark = pytest.mark.asyncio(loop_scope="session")

CREATE, REPLACE = XAttrSetFlag.CREATE, XAttrSetFlag.REPLACE
INVALID = ["", "x", "user", "user.", ".x", "us.x", "wackynamespace.x", "userx", "user.#x"]


async def test_create_x_attr(ground: Ground) -> None:
    await ground.write(ground.path("dir/file"), b"x")
    for path in (ground.path("dir"), ground.path("dir/file")):
        await ground.fs.set_xattr(path, "user.a1", b"\x31\x32", CREATE)
        with pytest.raises(MetadataExistsError) as raised:
            await ground.fs.set_xattr(path, "user.a1", b"other", CREATE)
        assert isinstance(raised.value, OSError)
        await ground.fs.set_xattr(path, "user.a2", None, CREATE)
        await ground.fs.set_xattr(path, "user.A1", b"\xff", CREATE)
        assert await ground.fs.get_xattrs(path) == {
            "user.A1": b"\xff",
            "user.a1": b"\x31\x32",
            "user.a2": b"",
        }
    status = await ground.client.stat("/dir/file")
    assert status.attributes.metadata == {"A1": b"\xff", "a1": b"\x31\x32", "a2": b""}
    assert await ground.read(ground.path("dir/file")) == b"x"


async def test_replace_x_attr(ground: Ground) -> None:
    await ground.write(ground.path("file"))
    with pytest.raises(MetadataNotFoundError) as raised:
        await ground.fs.set_xattr(ground.path("file"), "user.a1", b"1", REPLACE)
    assert isinstance(raised.value, OSError)
    assert not isinstance(raised.value, FileNotFoundError)
    assert await ground.fs.get_xattrs(ground.path("file")) == {}
    await ground.fs.set_xattr(ground.path("file"), "user.a1", b"1", CREATE)
    await ground.fs.set_xattr(ground.path("file"), "user.a1", b"2", REPLACE)
    assert await ground.fs.get_xattr(ground.path("file"), "user.a1") == b"2"
    await ground.fs.set_xattr(ground.path("file"), "user.a1", None, REPLACE)
    assert await ground.fs.get_xattr(ground.path("file"), "user.a1") == b""


async def test_set_x_attr(ground: Ground) -> None:
    await ground.write(ground.path("file"))
    for value in (b"1", b"2", b"2"):
        await ground.fs.set_xattr(ground.path("file"), "user.a1", value)
        assert await ground.fs.get_xattr(ground.path("file"), "user.a1") == value
    await ground.fs.set_xattr(ground.path("file"), "user.a1", b"3", CREATE | REPLACE)
    await ground.fs.set_xattr(ground.path("file"), "USER.a1", b"4", REPLACE)
    await ground.fs.set_xattr(ground.path("file"), "user." + "n" * MAX_NAME, b"")
    before = await ground.fs.get_xattrs(ground.path("file"))
    assert before == {"user.a1": b"4", "user." + "n" * MAX_NAME: b""}
    with pytest.raises(InvalidArgumentError):
        await ground.fs.set_xattr(ground.path("file"), "user.a1", b"5", XAttrSetFlag(0))
    for name, value in (("user.a", bytes(MAX_BYTES)), ("user." + "n" * (MAX_NAME + 1), b"")):
        with pytest.raises(InvalidArgumentError):
            await ground.fs.set_xattr(ground.path("file"), name, value)
    assert await ground.fs.get_xattrs(ground.path("file")) == before


async def test_get_x_attrs(ground: Ground) -> None:
    path = ground.path("file")
    await ground.write(path)
    await ground.fs.set_xattr(path, "user.a1", b"1")
    await ground.fs.set_xattr(path, "user.a2", b"2")
    assert await ground.fs.get_xattr(path, "USER.a2") == b"2"
    assert await ground.fs.get_xattrs(path, ["user.a2"]) == {"user.a2": b"2"}
    assert await ground.fs.get_xattrs(path) == {"user.a1": b"1", "user.a2": b"2"}
    with pytest.raises(MetadataNotFoundError):
        await ground.fs.get_xattr(path, "user.a3")
    with pytest.raises(MetadataNotFoundError):
        await ground.fs.get_xattrs(path, ["user.a1", "user.a3"])
    with pytest.raises(InvalidArgumentError):
        await ground.fs.get_xattrs(path, [])
    for missing in (
        ground.fs.get_xattr(ground.path("missing"), "user.a1"),
        ground.fs.get_xattrs(ground.path("missing")),
        ground.fs.list_xattrs(ground.path("missing")),
        ground.fs.set_xattr(ground.path("missing"), "user.a1", b""),
        ground.fs.remove_xattr(ground.path("missing"), "user.a1"),
    ):
        with pytest.raises(PathNotFoundError):
            await missing


async def test_list_x_attrs(ground: Ground) -> None:
    await ground.write(ground.path("dir/file"))
    assert await ground.fs.list_xattrs(ground.path("dir")) == []
    await ground.fs.set_xattr(ground.path("dir"), "user.b.c", b"1")
    await ground.fs.set_xattr(ground.path("dir"), "user.a", b"2")
    assert await ground.fs.list_xattrs(ground.path("dir")) == ["user.a", "user.b.c"]
    assert await ground.fs.list_xattrs(ground.path("dir/file")) == []
    assert await ground.fs.list_xattrs(ground.path()) == []


async def test_remove_x_attr(ground: Ground) -> None:
    path = ground.path("file")
    await ground.write(path)
    for name in ("user.a1", "user.a2"):
        await ground.fs.set_xattr(path, name, b"1")
    await ground.fs.remove_xattr(path, "user.a1")
    assert await ground.fs.list_xattrs(path) == ["user.a2"]
    with pytest.raises(MetadataNotFoundError):
        await ground.fs.remove_xattr(path, "user.a1")
    await ground.fs.remove_xattr(path, "user.a2")
    assert await ground.fs.list_xattrs(path) == []


async def test_rename_file_with_x_attr(ground: Ground) -> None:
    await ground.write(ground.path("file"))
    await ground.fs.set_xattr(ground.path("file"), "user.a1", b"1")
    await ground.fs.set_permission(ground.path("file"), 0o640)
    assert await ground.fs.rename(ground.path("file"), ground.path("moved"))
    with pytest.raises(PathNotFoundError):
        await ground.fs.get_xattrs(ground.path("file"))
    assert await ground.fs.get_xattrs(ground.path("moved")) == {"user.a1": b"1"}
    assert (await ground.fs.get_file_status(ground.path("moved"))).permission == 0o640
    await ground.fs.remove_xattr(ground.path("moved"), "user.a1")


@pytest.mark.parametrize("name", INVALID)
async def test_invalid_names_are_illegal_arguments(ground: Ground, name: str) -> None:
    await ground.write(ground.path("file"))
    for call in (
        ground.fs.set_xattr(ground.path("file"), name, b"1"),
        ground.fs.get_xattr(ground.path("file"), name),
        ground.fs.get_xattrs(ground.path("file"), [name]),
        ground.fs.remove_xattr(ground.path("file"), name),
    ):
        with pytest.raises(InvalidArgumentError):
            await call


@pytest.mark.parametrize("namespace", ["trusted", "security", "system", "raw", "TRUSTED"])
async def test_other_namespaces_are_denied(ground: Ground, namespace: str) -> None:
    await ground.write(ground.path("file"))
    name = f"{namespace}.x"
    for call in (
        ground.fs.set_xattr(ground.path("file"), name, b"1"),
        ground.fs.get_xattr(ground.path("file"), name),
        ground.fs.get_xattrs(ground.path("file"), [name]),
        ground.fs.remove_xattr(ground.path("file"), name),
    ):
        with pytest.raises(PermissionDeniedError):
            await call
    assert await ground.fs.list_xattrs(ground.path("file")) == []


async def test_of_racing_creators_of_an_attribute_one_wins(ground: Ground) -> None:
    await ground.write(ground.path("file"))

    async def create(number: int) -> bool:
        try:
            await ground.fs.set_xattr(ground.path("file"), "user.a", b"%d" % number, CREATE)
        except MetadataExistsError:
            return False
        return True

    won = await asyncio.gather(*(create(number) for number in range(8)))

    assert won.count(True) == 1
    value = await ground.fs.get_xattr(ground.path("file"), "user.a")
    assert value == b"%d" % won.index(True)


async def test_of_racing_removers_of_an_attribute_one_wins(ground: Ground) -> None:
    await ground.write(ground.path("file"))
    await ground.fs.set_xattr(ground.path("file"), "user.a", b"")

    outcomes = await asyncio.gather(
        *(ground.fs.remove_xattr(ground.path("file"), "user.a") for _ in range(8)),
        return_exceptions=True,
    )

    assert outcomes.count(None) == 1
    assert sum(isinstance(each, MetadataNotFoundError) for each in outcomes) == 7


@pytest.mark.parametrize("layout_name", ["path", "tree"])
async def test_a_lost_response_is_not_an_existing_attribute(layout_name: LayoutName) -> None:
    """A write that was applied is found again, and not taken for that of another client."""
    config = memory_config(layout=layout_name)
    await init_volume(config)
    async with S3kClient(config=config) as client:
        await client.write("/file", b"")
    number, calls = 0, 1
    while number < calls:
        number += 1
        faults = FaultPlan()
        faults.fail(number, ResponseLostError("lost"), when="after")
        with faults.injected():
            async with S3kClient(config=config) as client:
                await HadoopFileSystem(client).set_xattr("/file", f"user.{number}", b"", CREATE)
        calls = len(faults.calls)
    async with S3kClient(config=config) as client:
        found = (await client.stat("/file")).attributes.metadata
    assert len(found) == number > 10
