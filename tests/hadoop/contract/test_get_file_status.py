"""Hadoop's contract of statuses and listings."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from s3k_async._core.concurrency import run_all
from s3k_async.adapters.hadoop.status import HadoopFileStatus
from tests.hadoop.ground import Ground, collect, dataset, names

pytestmark = pytest.mark.asyncio(loop_scope="session")

DEPTH, WIDTH, FILES, FILE_SIZE = 2, 3, 4, 512


def all_paths(path: str) -> bool:
    return True


def no_paths(path: str) -> bool:
    return False


def named(name: str) -> Callable[[str], bool]:
    return lambda path: path.rpartition("/")[2] == name


async def make_tree(ground: Ground, top: str, depth: int = DEPTH) -> tuple[set[str], set[str]]:
    """Directories, `depth` levels of WIDTH each, and FILES files in each but the top; the paths of
    both."""
    directories, files = set(), set()
    for width in range(WIDTH if depth else 0):
        directory = f"{top}/dir-{depth}-{width}"
        await ground.fs.mkdirs(directory)
        directories.add(directory)
        below_it = {f"{directory}/file-{number}" for number in range(FILES)}
        await run_all(lambda path: ground.write(path, dataset(FILE_SIZE)), below_it, limit=FILES)
        files |= below_it
        below = await make_tree(ground, directory, depth - 1)
        directories |= below[0]
        files |= below[1]
    return directories, files


async def tree_walk(ground: Ground, path: str) -> tuple[set[str], set[str]]:
    """Directories and files below a path, by listing each directory."""
    directories, files = set(), set()
    for status in await ground.fs.list_status(path):
        if status.is_directory:
            below = await tree_walk(ground, status.path)
            directories |= below[0] | {status.path}
            files |= below[1]
        else:
            files.add(status.path)
    return directories, files


async def test_get_file_status_nonexistent_file(ground: Ground) -> None:
    with pytest.raises(FileNotFoundError):
        await ground.fs.get_file_status(ground.path("file"))


async def test_list_status_empty_directory(ground: Ground) -> None:
    await ground.fs.mkdirs(ground.path("top/sub"))

    assert await ground.names(ground.path("top")) == ["sub"]
    assert await ground.fs.list_status(ground.path("top/sub")) == []
    assert await collect(ground.fs.list_status_iterator(ground.path("top/sub"))) == []


async def test_list_files_empty_directory_nonrecursive(ground: Ground) -> None:
    await ground.fs.mkdirs(ground.path("top/sub"))

    assert await collect(ground.fs.list_files(ground.path("top/sub"), recursive=False)) == []
    assert await collect(ground.fs.list_files(ground.path("top"), recursive=False)) == []


async def test_list_files_empty_directory_recursive(ground: Ground) -> None:
    await ground.fs.mkdirs(ground.path("top/sub"))

    assert await collect(ground.fs.list_files(ground.path("top/sub"), recursive=True)) == []
    assert await collect(ground.fs.list_files(ground.path("top"), recursive=True)) == []


async def test_list_located_status_empty_directory(ground: Ground) -> None:
    await ground.fs.mkdirs(ground.path("top/sub"))

    located = ground.fs.list_located_status(ground.path("top"))
    status = await anext(located)
    assert (status.path, status.is_directory, status.block_locations) == (
        ground.path("top/sub"),
        True,
        (),
    )
    with pytest.raises(StopAsyncIteration):
        await anext(located)
    assert await collect(ground.fs.list_located_status(ground.path("top/sub"))) == []


async def test_complex_dir_actions(ground: Ground) -> None:
    top = ground.path("top")
    await ground.fs.mkdirs(top)
    directories, files = await make_tree(ground, top)
    assert (len(directories), len(files)) == (12, 48)

    listed = await ground.fs.list_status(top)
    assert [status.path for status in listed] == [f"{top}/dir-2-{width}" for width in range(WIDTH)]
    located = await collect(ground.fs.list_located_status(top))
    assert {status.path for status in located} == {status.path for status in listed}
    assert {status.path for status in await collect(ground.fs.list_status_iterator(top))} == {
        status.path for status in listed
    }
    assert await collect(ground.fs.list_files(top, recursive=False)) == []
    first = await collect(ground.fs.list_files(f"{top}/dir-2-0", recursive=False))
    assert sorted(names(first)) == [f"file-{number}" for number in range(FILES)]
    every = await collect(ground.fs.list_files(top, recursive=True))
    assert len(every) == len(files)
    assert {status.path for status in every} == files
    assert {(status.length, status.is_file) for status in every} == {(FILE_SIZE, True)}
    assert all(
        [location.length for location in status.block_locations] == [FILE_SIZE] for status in every
    )
    assert await tree_walk(ground, top) == (directories, files)


async def test_list_files_no_dir(ground: Ground) -> None:
    for recursive in (True, False):
        with pytest.raises(FileNotFoundError):
            await collect(ground.fs.list_files(ground.path("absent"), recursive=recursive))


async def test_located_status_no_dir(ground: Ground) -> None:
    with pytest.raises(FileNotFoundError):
        await collect(ground.fs.list_located_status(ground.path("absent")))


async def test_list_status_no_dir(ground: Ground) -> None:
    with pytest.raises(FileNotFoundError):
        await ground.fs.list_status(ground.path("absent"))
    with pytest.raises(FileNotFoundError):
        await collect(ground.fs.list_status_iterator(ground.path("absent")))


async def test_list_status_filtered_no_dir(ground: Ground) -> None:
    with pytest.raises(FileNotFoundError):
        await ground.fs.list_status(ground.path("absent"), all_paths)


async def test_list_status_filtered_file(ground: Ground) -> None:
    await ground.write(ground.path("file"), b"x")

    assert await ground.fs.list_status(ground.path("file"), no_paths) == []


async def test_list_status_file(ground: Ground) -> None:
    await ground.write(ground.path("file"), b"x")

    assert await ground.fs.list_status(ground.path("file")) == [
        await ground.fs.get_file_status(ground.path("file"))
    ]
    assert names(await collect(ground.fs.list_status_iterator(ground.path("file")))) == ["file"]


async def test_list_files_file(ground: Ground) -> None:
    await ground.write(ground.path("file"), b"x")

    [status] = await collect(ground.fs.list_files(ground.path("file"), recursive=False))

    assert (status.path, status.length) == (ground.path("file"), 1)


async def test_list_files_file_recursive(ground: Ground) -> None:
    await ground.write(ground.path("file"), b"x")

    [status] = await collect(ground.fs.list_files(ground.path("file"), recursive=True))

    assert (status.path, status.length) == (ground.path("file"), 1)


async def test_list_located_status_file(ground: Ground) -> None:
    await ground.write(ground.path("file"), b"x")

    [status] = await collect(ground.fs.list_located_status(ground.path("file")))

    assert (status.path, status.length) == (ground.path("file"), 1)
    assert (
        await ground.fs.get_file_block_locations(ground.path("file"), 0, 1)
        == status.block_locations
    )


async def _filtering_tree(ground: Ground) -> None:
    await ground.fs.mkdirs(ground.path("top/sub"))
    await ground.write(ground.path("top/file-1.txt"), b"x")
    await ground.write(ground.path("top/file-2.txt"), b"x")


async def test_list_status_filtering(ground: Ground) -> None:
    await _filtering_tree(ground)

    async def filtered(path: str, path_filter: Callable[[str], bool]) -> list[HadoopFileStatus]:
        return await ground.fs.list_status(ground.path(path), path_filter)

    everything = await ground.fs.list_status(ground.path("top"))
    assert await filtered("top", all_paths) == everything
    assert await filtered("top", no_paths) == []
    assert names(await filtered("top", named("file-1.txt"))) == ["file-1.txt"]
    assert await filtered("top/sub", all_paths) == []
    assert names(await filtered("top/file-1.txt", all_paths)) == ["file-1.txt"]
    assert await filtered("top/file-1.txt", no_paths) == []
    assert names(await filtered("top/file-1.txt", named("file-1.txt"))) == ["file-1.txt"]
    assert await filtered("top/file-1.txt", named("file-2.txt")) == []


async def test_list_located_status_filtering(ground: Ground) -> None:
    await _filtering_tree(ground)

    async def filtered(path: str, path_filter: Callable[[str], bool]) -> list[str]:
        return sorted(
            names(await collect(ground.fs.list_located_status(ground.path(path), path_filter)))
        )

    assert await filtered("top", all_paths) == ["file-1.txt", "file-2.txt", "sub"]
    assert await filtered("top", no_paths) == []
    assert await filtered("top", named("file-1.txt")) == ["file-1.txt"]
    assert await filtered("top/sub", all_paths) == []
    assert await filtered("top/file-1.txt", no_paths) == []
    stepped = ground.fs.list_located_status(ground.path("top"), named("file-2.txt"))
    assert (await anext(stepped)).path == ground.path("top/file-2.txt")
    with pytest.raises(StopAsyncIteration):
        await anext(stepped)
