"""Paths of the Hadoop-shaped surface: URLs, the working directory, what belongs to the volume."""

from __future__ import annotations

import pytest

from s3k_async.adapters.hadoop import HadoopFileSystem
from s3k_async.client import S3kClient
from s3k_async.errors import ClosedClientError, CrossVolumeError, InvalidPathError
from tests.hadoop.ground import Ground

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_the_uri_has_no_path(ground: Ground) -> None:
    assert ground.fs.get_uri() == f"s3k://{ground.client.name}"
    assert ground.fs.get_canonical_service_name() == ground.fs.get_uri()
    assert ground.fs.get_scheme() == "s3k"


async def test_relative_paths_start_at_the_root_until_told_otherwise(ground: Ground) -> None:
    assert ground.fs.get_working_directory() == ground.path()
    assert ground.fs.make_qualified("a/b") == ground.path("a/b")

    ground.fs.set_working_directory("base")
    ground.fs.set_working_directory("dir")

    assert ground.fs.get_working_directory() == ground.path("base/dir")
    assert ground.fs.make_qualified("a/../b") == ground.path("base/dir/b")
    assert ground.fs.make_qualified("/a") == ground.path("a")
    await ground.write("file", b"x")
    await ground.expect_tree(ground.path(), {"base": {"dir": {"file": 1}}})


async def test_close_closes_the_client(ground: Ground) -> None:
    client = S3kClient(config=ground.client.config)
    await client.open_volume()
    fs = HadoopFileSystem(client)

    await fs.close()
    await fs.close()

    assert client.closed
    with pytest.raises(ClosedClientError):
        await fs.exists("/")


async def test_the_home_directory_is_the_users(ground: Ground) -> None:
    assert ground.fs.get_home_directory() == ground.path("user/tester")


async def test_the_volume_without_a_slash_is_its_root(ground: Ground) -> None:
    await ground.fs.mkdirs("/dir")

    assert ground.fs.make_qualified(ground.fs.get_uri()) == ground.path()
    assert await ground.names(ground.fs.get_uri()) == ["dir"]


@pytest.mark.parametrize(
    "path", ["s3://{name}/a", "hdfs://{name}/a", "s3k://other/a", "s3k:///a", "s3k://{upper}/a"]
)
async def test_paths_of_other_file_systems_are_refused(ground: Ground, path: str) -> None:
    foreign = path.format(name=ground.client.name, upper=ground.client.name.upper())

    with pytest.raises(CrossVolumeError) as raised:
        ground.fs.check_path(foreign)

    assert isinstance(raised.value, ValueError)
    assert raised.value.path == foreign


async def test_the_scheme_is_compared_without_case(ground: Ground) -> None:
    assert ground.fs.make_qualified(f"S3K://{ground.client.name}//a/./b/") == ground.path("a/b")


async def test_a_colon_is_part_of_a_name(ground: Ground) -> None:
    await ground.write("/dir/12:30:00", b"x")
    await ground.write("s3k:/relative", b"y")

    assert await ground.names("/dir") == ["12:30:00"]
    await ground.expect_tree(ground.path(), {"dir": {"12:30:00": 1}, "s3k:": {"relative": 1}})


@pytest.mark.parametrize("path", ["", "..", "/../a", "/a\0b", "/" + "n" * 1025])
async def test_paths_that_cannot_be_are_refused(ground: Ground, path: str) -> None:
    with pytest.raises(InvalidPathError):
        await ground.fs.get_file_status(path)
    with pytest.raises(InvalidPathError):
        await ground.fs.mkdirs(path)


async def test_names_are_case_sensitive_and_not_decoded(ground: Ground) -> None:
    for name in ("a", "A", "c%20d", "c d", "\u00e9", "e\u0301"):
        await ground.write(f"/dir/{name}", name.encode())

    assert await ground.names("/dir") == sorted(["a", "A", "c%20d", "c d", "\u00e9", "e\u0301"])
    assert await ground.read(ground.path("dir/c%20d")) == b"c%20d"
