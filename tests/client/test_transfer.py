"""Trees from this machine into a volume and back, and from one volume to another."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from anyio.lowlevel import checkpoint

from s3k_async.bulk import local_tree, transfer
from s3k_async.bulk.file_writes import LARGE
from s3k_async.bulk.transfer import download, upload
from s3k_async.bulk.volume_moves import move_to
from s3k_async.client import S3kClient
from s3k_async.config import MemoryBlobs, MemoryTable, VolumeConfig
from s3k_async.errors import (
    ConflictError,
    CorruptDataError,
    IsDirectoryError,
    NoSpaceError,
    NotDirectoryError,
    PathExistsError,
    PathNotFoundError,
    RenameIntoSelfError,
    UnsupportedError,
)
from s3k_async.files.open_files import FileWriter
from s3k_async.model import FileStatus, LayoutName, Progress
from s3k_async.testing import Call, FaultPlan
from s3k_async.volumes import init_volume
from tests.client.rig import faulty_client, memory_config

_numbers = itertools.count(1)

TURNS = 200
"""Turns of the event loop in which a write in memory comes to its end, unless something holds it
up."""


async def new_client() -> S3kClient:
    name = f"transfer-{os.getpid()}-{next(_numbers)}"
    config = VolumeConfig(name, MemoryTable(name), MemoryBlobs(name), suffix_count=3)
    await init_volume(config)
    return S3kClient(config=config)


@pytest.fixture
async def fs() -> AsyncIterator[S3kClient]:
    async with await new_client() as client:
        yield client


@pytest.fixture
async def other() -> AsyncIterator[S3kClient]:
    async with await new_client() as client:
        yield client


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> int:
    """Files of more than a thousand bytes are large."""
    monkeypatch.setattr(transfer, "CHUNK", 1000)
    monkeypatch.setattr(transfer, "LARGE", 1000)
    return 1000


FILES = {
    "a": b"",
    "sub/b": b"b" * 999,
    "sub/deep/c": b"c" * 1000,
    "sub/deep/d": b"d" * 1001,
    "e": os.urandom(5432),
}


@pytest.fixture
def local(tmp_path: Path) -> Path:
    top = tmp_path / "local"
    for name, data in FILES.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_bytes(data)
    (top / "empty" / "below").mkdir(parents=True)
    return top


def on_disk(top: Path) -> dict[str, bytes | None]:
    """Everything below a directory; directories are None."""
    return {
        str(path.relative_to(top)): None if path.is_dir() else path.read_bytes()
        for path in sorted(top.rglob("*"))
    }


async def in_volume(fs: S3kClient, top: str) -> dict[str, bytes | None]:
    found: dict[str, bytes | None] = {}
    async for status in fs.list(top, recursive=True, include_uncommitted=True):
        found[status.path[len(top) :].lstrip("/")] = (
            None if status.is_dir else await fs.read(status.path)
        )
    return found


# There and back


@pytest.mark.parametrize("target", ["/in", "/deep/er/in", "/"])
async def test_a_tree_there_and_back(
    fs: S3kClient, local: Path, tmp_path: Path, small_chunks: int, target: str
) -> None:
    up = await upload(fs, fs._volume(), local, target)
    assert (up.files, up.directories, up.bytes) == (5, 5, sum(map(len, FILES.values())))
    assert up.failures == ()
    assert await in_volume(fs, target) == on_disk(local)
    down = await download(fs, target, tmp_path / "copy")
    assert (down.files, down.directories, down.bytes, down.failures) == (5, 5, up.bytes, ())
    assert on_disk(tmp_path / "copy") == on_disk(local)


async def test_one_file_there_and_back(
    fs: S3kClient, local: Path, tmp_path: Path, small_chunks: int
) -> None:
    for name, data in FILES.items():
        result = await upload(fs, fs._volume(), local / name, f"/in/{name}")
        assert (result.files, result.directories, result.bytes) == (1, 0, len(data))
        result = await download(fs, f"/in/{name}", tmp_path / "copies" / name)
        assert (result.files, result.bytes) == (1, len(data))
    assert on_disk(tmp_path / "copies") == {
        k: v for k, v in on_disk(local).items() if not k.startswith("empty")
    }


async def test_a_file_is_at_version_2_whatever_its_size(
    fs: S3kClient, local: Path, small_chunks: int
) -> None:
    await upload(fs, fs._volume(), local, "/in")
    async for status in fs.find("/in", type="file"):
        assert status.committed
        assert status.version == 2
        assert status.checksum.startswith("xxh128:")


async def test_progress_is_told_with_the_total(fs: S3kClient, local: Path, tmp_path: Path) -> None:
    seen: list[Progress] = []
    await upload(fs, fs._volume(), local, "/in", progress=seen.append)
    assert [each.done for each in seen] == [1, 2, 3, 4, 5]
    assert {(each.operation, each.total) for each in seen} == {("put", 5)}
    assert seen[-1].bytes == sum(map(len, FILES.values()))
    seen.clear()
    await download(fs, "/in", tmp_path / "copy", progress=seen.append)
    assert [(each.operation, each.done, each.total) for each in seen] == [
        ("get", n, 5) for n in range(1, 6)
    ]


async def test_what_a_progress_callback_raises_ends_the_transfer(
    fs: S3kClient, local: Path
) -> None:
    def stop(_: Progress) -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        await upload(fs, fs._volume(), local, "/in", progress=stop)


async def test_again_with_and_without_overwriting(
    fs: S3kClient, local: Path, tmp_path: Path
) -> None:
    await upload(fs, fs._volume(), local, "/in")
    (local / "new").write_bytes(b"new")
    (local / "e").write_bytes(b"changed")
    result = await upload(fs, fs._volume(), local, "/in", overwrite=False)
    assert (result.files, len(result.failures)) == (1, 5)
    assert all(isinstance(error, PathExistsError) for _, error in result.failures)
    assert await fs.read("/in/e") == FILES["e"]
    assert (await upload(fs, fs._volume(), local, "/in")).failures == ()
    assert await in_volume(fs, "/in") == on_disk(local)
    await download(fs, "/in", tmp_path / "copy")
    (tmp_path / "copy" / "e").write_bytes(b"mine")
    (tmp_path / "copy" / "a").unlink()
    result = await download(fs, "/in", tmp_path / "copy", overwrite=False)
    assert (result.files, len(result.failures)) == (1, 5)
    assert (tmp_path / "copy" / "e").read_bytes() == b"mine"
    await download(fs, "/in", tmp_path / "copy")
    assert on_disk(tmp_path / "copy") == on_disk(local)


@pytest.mark.parametrize("layout", ["path", "tree"])
async def test_a_small_file_of_a_tree_takes_one_request_for_its_data(
    tmp_path: Path, layout: LayoutName
) -> None:
    """And a twentieth of one for the log."""
    files = 1000
    for number in range(files):
        place = tmp_path / f"d{number % 10}" / str(number)
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(b"%d" % number)
    config = replace(memory_config(), layout=layout)
    await init_volume(config)
    for call, operation in (
        (lambda fs: upload(fs, fs._volume(), tmp_path, "/in"), "PutObject"),
        (lambda fs: fs.copy("/in", "/out", recursive=True), "CopyObject"),
    ):
        async with S3kClient(config=config) as fs:
            with fs.count() as counter:
                result = await call(fs)
            await fs.close()
        assert (result.files, result.failures) == (files, ())
        data = [count for count in counter.requests.counts if count.part == "data"]
        assert [(count.operation, count.requests) for count in data] == [(operation, files)]
        assert counter.requests.of("log") <= files // 20
    async with S3kClient(config=config) as fs:
        assert await in_volume(fs, "/out") == on_disk(tmp_path)


async def test_files_that_change_while_a_tree_is_uploaded(
    fs: S3kClient, local: Path, small_chunks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a file holds when it is read is stored, whatever its size was before; a file that is
    gone is a failure."""
    survey = local_tree.survey

    def then_changes(root: str) -> local_tree.LocalTree:
        found = survey(root)
        (local / "a").write_bytes(b"grown" * 1000)
        (local / "e").write_bytes(b"shrunk")
        (local / "sub" / "b").unlink()
        return found

    monkeypatch.setattr(local_tree, "survey", then_changes)
    result = await upload(fs, fs._volume(), local, "/in")
    assert [(path, type(error)) for path, error in result.failures] == [
        (str(local / "sub" / "b"), PathNotFoundError)
    ]
    assert await in_volume(fs, "/in") == on_disk(local)


# What goes wrong with one file


async def test_what_cannot_be_put_is_listed_and_the_rest_is_put(fs: S3kClient, local: Path) -> None:
    os.symlink("sub", local / "dirlink")
    os.symlink("loop", local / "loop")
    os.symlink("a", local / "link")
    os.mkfifo(local / "pipe")
    (local / os.fsdecode(b"bad\xff")).write_bytes(b"")
    (local / os.fsdecode(b"worse\xff")).mkdir()
    await fs.write("/in/sub", b"a file is where a directory should go")
    result = await upload(fs, fs._volume(), local, "/in")
    assert result.files == 3
    failed = {
        path.removeprefix(f"{local}/"): type(error).__name__ for path, error in result.failures
    }
    assert failed == {
        "dirlink": "UnsupportedError",
        "loop": failed["loop"],
        "pipe": "UnsupportedError",
        os.fsdecode(b"bad\xff"): "InvalidPathError",
        os.fsdecode(b"worse\xff"): "InvalidPathError",
        "sub": "PathExistsError",
        "sub/deep": "NotDirectoryError",
        "sub/b": "NotDirectoryError",
        "sub/deep/c": "NotDirectoryError",
        "sub/deep/d": "NotDirectoryError",
    }
    assert failed["loop"] in ("UnsupportedError", "InvalidPathError")
    assert await fs.read("/in/link") == FILES["a"]


async def test_what_cannot_be_put_at_all(fs: S3kClient, local: Path) -> None:
    with pytest.raises(PathNotFoundError, match="gone"):
        await upload(fs, fs._volume(), local / "gone", "/in")
    os.mkfifo(local / "pipe")
    with pytest.raises(UnsupportedError, match="pipe"):
        await upload(fs, fs._volume(), local / "pipe", "/in")
    os.symlink("nowhere", local / "broken")
    with pytest.raises(PathNotFoundError, match="broken"):
        await upload(fs, fs._volume(), local / "broken", "/in")
    await fs.write("/file", b"")
    with pytest.raises(NotDirectoryError, match="/file"):
        await upload(fs, fs._volume(), local, "/file/below")
    with pytest.raises(PathExistsError, match="/file"):
        await upload(fs, fs._volume(), local, "/file")


async def test_what_cannot_be_got(fs: S3kClient, local: Path, tmp_path: Path) -> None:
    await upload(fs, fs._volume(), local, "/in")
    with pytest.raises(PathNotFoundError, match="/gone"):
        await download(fs, "/gone", tmp_path / "copy")
    (tmp_path / "file").write_bytes(b"mine")
    with pytest.raises(NotDirectoryError, match="file"):
        await download(fs, "/in", tmp_path / "file")
    with pytest.raises(NotDirectoryError, match="file"):
        await download(fs, "/in/e", tmp_path / "file" / "e")
    (tmp_path / "directory").mkdir()
    with pytest.raises(IsDirectoryError, match="directory"):
        await download(fs, "/in/e", tmp_path / "directory")
    (tmp_path / "copy" / "e").mkdir(parents=True)
    (tmp_path / "copy" / "sub").write_bytes(b"mine")
    result = await download(fs, "/in", tmp_path / "copy")
    failed = {path: type(error).__name__ for path, error in result.failures}
    assert failed == dict.fromkeys(
        ["/in/sub", "/in/sub/deep", "/in/sub/b", "/in/sub/deep/c", "/in/sub/deep/d"],
        "NotDirectoryError",
    ) | {"/in/e": "IsDirectoryError"}
    assert on_disk(tmp_path / "copy") == {
        "a": b"",
        "e": None,
        "empty": None,
        "empty/below": None,
        "sub": b"mine",
    }


async def test_a_name_that_the_local_disk_cannot_have_is_listed(
    fs: S3kClient, tmp_path: Path
) -> None:
    await fs.write(f"/in/{'n' * 1000}", b"")
    await fs.write("/in/fine", b"fine")
    result = await download(fs, "/in", tmp_path / "copy")
    assert [type(error).__name__ for _, error in result.failures] == ["InvalidPathError"]
    assert on_disk(tmp_path / "copy") == {"fine": b"fine"}


async def test_the_longest_local_name_can_be_got(fs: S3kClient, tmp_path: Path) -> None:
    await fs.write(f"/{'n' * 255}", b"data")
    await download(fs, f"/{'n' * 255}", tmp_path / ("n" * 255))
    assert on_disk(tmp_path) == {"n" * 255: b"data"}


async def test_bytes_that_are_not_those_written_leave_no_local_file(
    fs: S3kClient, tmp_path: Path
) -> None:
    await fs.write("/a", b"what was written")
    (tmp_path / "copy").write_bytes(b"old")
    await fs._volume().blobs.put(str((await fs.stat("/a")).physical), b"that was written")
    with pytest.raises(CorruptDataError, match="/a"):
        await download(fs, "/a", tmp_path / "copy")
    assert on_disk(tmp_path) == {"copy": b"old"}


# What would go wrong with every file


@pytest.mark.parametrize("large", [LARGE, 1000])
async def test_a_full_disk_ends_an_upload(
    local: Path, large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the file is written with others or individually."""
    faults = FaultPlan()
    config = memory_config()
    await init_volume(config)
    monkeypatch.setattr(transfer, "LARGE", large)
    async with faulty_client(faults, config) as fs:
        faults.fail_when(lambda call: ".id=" in call.key, NoSpaceError("full"), times=len(FILES))
        with pytest.raises(NoSpaceError):
            await upload(fs, fs._volume(), local, "/in")
        assert set((await in_volume(fs, "/in")).values()) == {None}


async def test_a_full_disk_ends_a_download(
    fs: S3kClient, local: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await upload(fs, fs._volume(), local, "/in")

    def full(*_: object) -> None:
        raise NoSpaceError("full", path="copy")

    monkeypatch.setattr("s3k_async.bulk.local_tree.write", full)
    with pytest.raises(NoSpaceError):
        await download(fs, "/in", tmp_path / "copy")
    assert not [name for name in on_disk(tmp_path / "copy") if "part" in name]


async def test_a_large_file_that_fails_half_way_is_not_published(
    fs: S3kClient, local: Path, small_chunks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = FileWriter.write

    async def breaks(self: FileWriter, data: bytes) -> int:
        if await self.tell() >= 2000:
            raise NoSpaceError("full", path=self.name)
        return await write(self, data)

    monkeypatch.setattr(FileWriter, "write", breaks)
    with pytest.raises(NoSpaceError):
        await upload(fs, fs._volume(), local / "e", "/in/e")
    assert await in_volume(fs, "/in") == {}


# Between volumes


async def test_a_tree_moves_to_another_volume(fs: S3kClient, other: S3kClient, local: Path) -> None:
    await upload(fs, fs._volume(), local, "/in")
    result = await move_to(fs, other, "/in", "/out")
    assert (result.files, result.directories, result.failures) == (5, 5, ())
    assert await in_volume(other, "/out") == on_disk(local)
    assert await in_volume(fs, "/") == {}


async def test_a_file_moves_to_another_volume(fs: S3kClient, other: S3kClient) -> None:
    await fs.write("/a", b"data")
    await other.write("/there", b"old")
    with pytest.raises(PathExistsError):
        await move_to(fs, other, "/a", "/there")
    assert await fs.read("/a") == b"data"
    result = await move_to(fs, other, "/a", "/there", overwrite=True)
    assert (result.files, result.bytes) == (1, 4)
    assert await other.read("/there") == b"data"
    assert not await fs.exists("/a")


async def test_the_root_does_not_move(fs: S3kClient, other: S3kClient) -> None:
    with pytest.raises(UnsupportedError):
        await move_to(fs, other, "/", "/out")
    with pytest.raises(PathNotFoundError):
        await move_to(fs, other, "/gone", "/out")


async def test_nothing_is_deleted_when_the_copy_fails(
    fs: S3kClient, other: S3kClient, local: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await upload(fs, fs._volume(), local, "/in")
    before = await in_volume(fs, "/in")

    async def full(*_: object, **__: object) -> None:
        raise NoSpaceError("full", path="/out")

    monkeypatch.setattr(S3kClient, "copy_to", full)
    with pytest.raises(NoSpaceError):
        await move_to(fs, other, "/in", "/out")
    assert await in_volume(fs, "/in") == before


async def test_one_volume_by_two_addresses(fs: S3kClient, local: Path) -> None:
    """A copy into the source never ends, and a move onto it replaces what it is about to delete."""
    await upload(fs, fs._volume(), local, "/in")
    async with S3kClient(config=fs.config) as same:
        for target in ("/in", "/in/sub/deep"):
            with pytest.raises(RenameIntoSelfError):
                await fs.copy_to(same, "/in", target, overwrite=True, recursive=True)
        with pytest.raises(RenameIntoSelfError):
            await move_to(fs, same, "/in", "/in/sub/deep", overwrite=True)
        before = await fs.stat("/in/sub/b")
        await move_to(fs, same, "/in", f"s3k://{same.name}/out")
        after = await same.stat("/out/sub/b")
        assert (after.id, after.physical) == (before.id, before.physical)
        assert not await fs.exists("/in")


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        (lambda fs: fs.write("/in/sub/b", b"written meanwhile"), "sub/b"),
        (lambda fs: fs.write("/in/sub/new", b"made meanwhile"), "sub/new"),
    ],
    ids=["changed", "created"],
)
async def test_what_changes_during_a_move_stays(
    fs: S3kClient,
    other: S3kClient,
    local: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[S3kClient], object],
    kept: str,
) -> None:
    await upload(fs, fs._volume(), local, "/in")
    copy_to = S3kClient.copy_to

    async def meanwhile(self: S3kClient, *arguments: object, **options: object) -> object:
        result = await copy_to(self, *arguments, **options)  # type: ignore[arg-type]
        await change(self)  # type: ignore[misc]
        return result

    monkeypatch.setattr(S3kClient, "copy_to", meanwhile)
    result = await move_to(fs, other, "/in", "/out")
    left = await in_volume(fs, "/in")
    assert left.keys() == {"sub", kept}
    assert (left[kept] or b"").endswith(b"meanwhile")
    assert [path for path, _ in result.failures if path not in ("/in", "/in/sub")] in (
        [],
        [f"/in/{kept}"],
    )
    assert len(result.failures) >= 2
    monkeypatch.undo()
    again = await move_to(fs, other, "/in", "/out", overwrite=True)
    assert again.failures == ()
    assert (await other.read(f"/out/{kept}")).endswith(b"meanwhile")
    assert await in_volume(fs, "/") == {}


async def test_a_conflict_says_what_happened(
    fs: S3kClient, other: S3kClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fs.write("/a", b"1")
    copy_to = S3kClient.copy_to

    async def meanwhile(self: S3kClient, *arguments: object, **options: object) -> object:
        result = await copy_to(self, *arguments, **options)  # type: ignore[arg-type]
        await self.write("/a", b"2")
        return result

    monkeypatch.setattr(S3kClient, "copy_to", meanwhile)
    result = await move_to(fs, other, "/a", "/a")
    ((path, error),) = result.failures
    assert path == "/a"
    assert isinstance(error, ConflictError)
    assert await fs.read("/a") == b"2"


async def moved_while_writing(step: int) -> bool:
    """Move a tree to another volume; another client writes a file of it before the request of this
    number, or, if a transaction of the move blocks it, as soon as it can. That write is at its old
    path, or was moved too. Returns whether there was such a request.
    """
    config, there = memory_config(), memory_config()
    await init_volume(config)
    await init_volume(there)
    requests = 0
    writing: list[asyncio.Task[FileStatus]] = []

    async def meanwhile(_: Call) -> None:
        nonlocal requests
        requests += 1
        if requests == step:
            writing.append(asyncio.create_task(writer.write("/in/sub/b", b"meanwhile")))
            for _turn in range(TURNS):
                await checkpoint()

    faults = FaultPlan()
    async with (
        S3kClient(config=config) as writer,
        S3kClient(config=there) as other,
        faulty_client(faults, config) as fs,
    ):
        await writer.write_many([("/in/a", b"a"), ("/in/sub/b", b"old")])
        faults.gate = meanwhile
        result = await move_to(fs, other, "/in", "/out")
        faults.gate = None
        for task in writing:
            await task
        left = await in_volume(writer, "/in") if await writer.exists("/in") else {}
        taken = await other.read("/out/sub/b")
        if not writing:
            assert (left, taken, result.failures) == ({}, b"old", ())
        elif left:
            assert (left, taken) == ({"sub": None, "sub/b": b"meanwhile"}, taken)
        else:
            assert (taken, result.failures) == (b"meanwhile", ())
        failed = {path: type(error) for path, error in result.failures}
        assert failed.pop("/in/sub/b", ConflictError) is ConflictError
        assert failed.keys() <= {"/in/sub", "/in"}
    return bool(writing)


async def test_what_another_client_writes_at_any_step_of_a_move_is_kept() -> None:
    step = 1
    while await moved_while_writing(step):
        step += 1
    assert step > 20
