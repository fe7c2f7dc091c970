"""Hadoop's contract of opening files, by `open` and by the builder."""

from __future__ import annotations

import asyncio

import pytest

from s3k_async.adapters.hadoop.streams import END
from s3k_async.errors import InvalidArgumentError, PathNotFoundError, UncommittedFileError
from tests.hadoop.ground import Ground, dataset

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_open_read_zero_byte_file(ground: Ground) -> None:
    await ground.write(ground.path("zero.txt"))

    async with await ground.fs.open(ground.path("zero.txt")) as stream:
        assert await stream.get_pos() == 0
        assert await stream.read() == END == -1


async def test_fs_is_encrypted(ground: Ground) -> None:
    await ground.write(ground.path("file"))

    status = await ground.fs.get_file_status(ground.path("file"))

    assert not status.is_encrypted


async def test_open_read_dir(ground: Ground) -> None:
    await ground.fs.mkdirs(ground.path("zero.dir"))

    with pytest.raises(PathNotFoundError) as raised:
        await ground.fs.open(ground.path("zero.dir"))

    assert isinstance(raised.value, FileNotFoundError)


async def test_open_read_dir_with_child(ground: Ground) -> None:
    await ground.fs.mkdirs(ground.path("zero.dir/child"))

    with pytest.raises(PathNotFoundError):
        await ground.fs.open(ground.path("zero.dir"))


async def test_open_file_twice(ground: Ground) -> None:
    data = dataset(64, ord("a"), ord("z"))
    await ground.write(ground.path("file"), data)

    first, second = (
        await ground.fs.open(ground.path("file")),
        await ground.fs.open(ground.path("file")),
    )
    assert await first.read() == data[0]
    assert await second.read() == data[0]
    assert await first.read() == data[1]
    assert (await first.get_pos(), await second.get_pos()) == (2, 1)
    await first.close()
    await first.close()
    assert await second.read() == data[1]
    await second.close()
    await second.close()


async def test_sequential_read(ground: Ground) -> None:
    await ground.write(ground.path("file"), dataset(4, ord("a")))

    async with await ground.fs.open(ground.path("file")) as stream:
        assert [await stream.read() for _ in range(6)] == [
            ord("a"),
            ord("b"),
            ord("c"),
            ord("d"),
            END,
            END,
        ]


async def test_open_of_a_file_that_is_being_written(ground: Ground) -> None:
    async with await ground.fs.create(ground.path("file")):
        with pytest.raises(UncommittedFileError) as raised:
            await ground.fs.open(ground.path("file"))

    assert isinstance(raised.value, OSError)


async def test_open_file_read_zero_byte(ground: Ground) -> None:
    await ground.write(ground.path("zero.txt"))

    async with (
        await ground.fs.open_file(ground.path("zero.txt"))
        .opt("fs.test.something", True)
        .build() as stream
    ):
        assert await stream.read() == END


async def test_open_file_unknown_option(ground: Ground) -> None:
    await ground.write(ground.path("file"), b"x")

    builder = ground.fs.open_file(ground.path("file")).opt("fs.test.something", 3)
    builder = builder.must("fs.test.something", True)

    with pytest.raises(InvalidArgumentError) as raised:
        builder.build()
    assert isinstance(raised.value, ValueError)


async def test_open_file_unknown_option_long(ground: Ground) -> None:
    await ground.write(ground.path("file"), b"x")

    with pytest.raises(InvalidArgumentError):
        ground.fs.open_file(ground.path("file")).must("fs.test.something", 2**40).build()


async def test_open_file_lazy_fail(ground: Ground) -> None:
    opening = ground.fs.open_file(ground.path("absent")).opt("fs.test.something", True).build()

    with pytest.raises(FileNotFoundError):
        await opening


async def test_open_file_fail_exceptionally(ground: Ground) -> None:
    task = asyncio.ensure_future(ground.fs.open_file(ground.path("absent")).build())

    await asyncio.wait([task])

    assert isinstance(task.exception(), FileNotFoundError)


async def test_await_future_fail_to_fnfe(ground: Ground) -> None:
    with pytest.raises(FileNotFoundError):
        await asyncio.wait_for(ground.fs.open_file(ground.path("absent")).build(), timeout=60)


async def test_open_file_apply_read(ground: Ground) -> None:
    await ground.write(ground.path("file"), dataset(16))

    async def read_four() -> bytes:
        buffer = bytearray(4)
        async with (
            await ground.fs.open_file(ground.path("file"))
            .must("fs.option.openfile.read.policy", "random, vector")
            .build() as stream
        ):
            await stream.read_fully(8, buffer)
        return bytes(buffer)

    assert list(await asyncio.gather(read_four(), read_four())) == [dataset(4, 8)] * 2


async def test_open_file_null_status_but_file_length(ground: Ground) -> None:
    await ground.write(ground.path("file"), dataset(16))

    builder = (
        ground.fs.open_file(ground.path("file"))
        .with_file_status(None)
        .opt("fs.option.openfile.length", 16)
    )

    async with await builder.build() as stream:
        assert await stream.available() == 16


async def test_open_file_with_status(ground: Ground) -> None:
    await ground.write(ground.path("file"), dataset(16))
    await ground.write(ground.path("other"), b"x")
    await ground.fs.mkdirs(ground.path("dir"))
    status = await ground.fs.get_file_status(ground.path("file"))

    async with (
        await ground.fs.open_file(ground.path("file")).with_file_status(status).build() as stream
    ):
        assert await stream.available() == 16
    with pytest.raises(InvalidArgumentError):
        ground.fs.open_file(ground.path("other")).with_file_status(status)
    directory = await ground.fs.get_file_status(ground.path("dir"))
    with pytest.raises(PathNotFoundError):
        await ground.fs.open_file(ground.path("dir")).with_file_status(directory).build()


async def test_open_file_floating_point_length(ground: Ground) -> None:
    await ground.write(ground.path("file"), dataset(16))

    async with (
        await ground.fs.open_file(ground.path("file"))
        .must("fs.option.openfile.length", 32.5)
        .build() as stream
    ):
        assert await stream.available() == 16
