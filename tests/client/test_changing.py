"""write, touch, makedirs, rename, delete, copy, copy_to."""

from __future__ import annotations

import anyio
import pytest

from s3k_async.client import S3kClient
from s3k_async.config import Tuning, VolumeConfig
from s3k_async.errors import (
    ConflictError,
    CorruptDataError,
    DataMissingError,
    DirectoryNotEmptyError,
    IsDirectoryError,
    NotDirectoryError,
    PartialFailureError,
    PathExistsError,
    PathNotFoundError,
    PermissionDeniedError,
    RenameIntoSelfError,
    UncommittedFileError,
)
from s3k_async.model import ChangeResult, ContentSummary, Progress
from s3k_async.volumes import init_volume
from tests.client.rig import memory_config, paths
from tests.engines.volumes import volume_backends

pytestmark = pytest.mark.layouts("path", "tree")

backends = volume_backends("memory", "embedded", "shared")

DATA = bytes(index % 251 for index in range(1000))


# Writing


@backends
@pytest.mark.parametrize("data", [b"", b"x", bytearray(b"abc"), memoryview(b"abcdef")[::1], DATA])
async def test_writing_makes_parents_and_replaces(fs: S3kClient, data: bytes) -> None:
    await fs.write("/a/b/f", b"old")
    first = await fs.stat("/a/b/f")
    status = await fs.write("/a/b/f", data)
    assert await fs.read("/a/b/f") == bytes(data)
    assert (status.id, status.version, status.size) == (first.id, 3, len(data))
    assert (await fs.stat("/a/b")).is_dir


@backends
async def test_writing_where_something_else_is(fs: S3kClient) -> None:
    await fs.write("/f", b"1")
    await fs.makedirs("/d")
    with pytest.raises(PathExistsError):
        await fs.write("/f", b"2", overwrite=False)
    for path in ("/d", "/"):
        with pytest.raises(IsDirectoryError):
            await fs.write(path, b"2")
    for path in ("/f/x", "/f/x/y"):
        with pytest.raises(NotDirectoryError):
            await fs.write(path, b"2")
    assert await fs.read("/f") == b"1"
    assert await paths(fs) == {"/f", "/d"}


@backends
async def test_writing_takes_over_a_reservation(fs: S3kClient) -> None:
    writer = await fs.open("/f", "wb")
    await fs.write("/f", b"whole")
    assert await fs.read("/f") == b"whole"
    await writer.discard()
    assert await fs.read("/f") == b"whole"


@backends
async def test_touching(fs: S3kClient) -> None:
    created = await fs.touch("/a/f")
    assert (created.size, created.version, created.committed) == (0, 2, True)
    assert await fs.read("/a/f") == b""
    written = await fs.write("/a/f", DATA)
    touched = await fs.touch("/a/f")
    assert (touched.id, touched.version) == (written.id, written.version + 1)
    assert touched.mtime_ms >= written.mtime_ms
    assert (touched.size, touched.checksum, touched.physical) == (
        1000,
        written.checksum,
        written.physical,
    )
    assert await fs.read("/a/f") == DATA
    with pytest.raises(IsDirectoryError):
        await fs.touch("/a")


@backends
async def test_making_directories(fs: S3kClient) -> None:
    made = await fs.makedirs("/a/b/c")
    assert (made.path, made.is_dir) == ("/a/b/c", True)
    assert await fs.makedirs("/a/b/c") == made
    assert (await fs.makedirs("/")).path == "/"
    with pytest.raises(PathExistsError):
        await fs.makedirs("/a/b/c", exist_ok=False)
    await fs.write("/f", b"")
    with pytest.raises(PathExistsError):
        await fs.makedirs("/f")
    with pytest.raises(NotDirectoryError):
        await fs.makedirs("/f/x")


# Renaming


@backends
async def test_a_renamed_file_keeps_its_bytes_where_they_are(fs: S3kClient) -> None:
    before = await fs.write("/a/f", DATA)
    await fs.makedirs("/b")
    assert await fs.rename("/a/f", "/b/g") == ChangeResult(1, 0, 1000)
    after = await fs.stat("/b/g")
    assert (after.id, after.physical, after.version) == (
        before.id,
        before.physical,
        before.version + 1,
    )
    assert not await fs.exists("/a/f")
    assert await fs.read("/b/g") == DATA


@backends
async def test_renaming_onto_something(fs: S3kClient) -> None:
    await fs.write("/f", b"f")
    await fs.write("/g", b"g")
    await fs.write("/d/x", b"x")
    with pytest.raises(PathExistsError):
        await fs.rename("/f", "/g")
    for overwrite in (False, True):
        for source, target in (("/f", "/d"), ("/d", "/g"), ("/f", "/")):
            with pytest.raises(PathExistsError):
                await fs.rename(source, target, overwrite=overwrite)
    assert await fs.rename("/f", "/g", overwrite=True) == ChangeResult(1, 0, 1)
    assert await fs.read("/g") == b"f"
    assert await paths(fs) == {"/g", "/d", "/d/x"}


@backends
async def test_renaming_nowhere(fs: S3kClient) -> None:
    await fs.write("/f", b"f")
    await fs.write("/d/x", b"x")
    for source in ("/f", "/d"):
        with pytest.raises(PathNotFoundError):
            await fs.rename(source, "/none/y")
        with pytest.raises(NotDirectoryError):
            await fs.rename(source, "/d/x/y" if source == "/f" else "/f/y")
    for target in ("/none", "/new"):
        with pytest.raises(PathNotFoundError):
            await fs.rename("/none", target)
    assert await paths(fs) == {"/f", "/d", "/d/x"}


@backends
async def test_renaming_into_itself_is_told_by_components(fs: S3kClient) -> None:
    await fs.write("/a/f", b"1")
    for target in ("/a", "/a/b", "/a/f/c"):
        with pytest.raises(RenameIntoSelfError):
            await fs.rename("/a", target)
    for target in ("/", "/x"):
        with pytest.raises(RenameIntoSelfError):
            await fs.rename("/", target)
    assert await fs.rename("/a/f", "/a/f") == ChangeResult()
    await fs.rename("/a", "/ab")
    await fs.rename("/ab/f", "/ab/f.bak")
    assert await paths(fs) == {"/ab", "/ab/f.bak"}


@backends
async def test_a_reservation_is_not_renamed(fs: S3kClient) -> None:
    async with fs.open("/f", "wb") as writer:
        with pytest.raises(UncommittedFileError):
            await fs.rename("/f", "/g")
        await writer.write(b"1")
    assert await paths(fs) == {"/f"}


async def plant(fs: S3kClient, top: str) -> dict[str, bytes]:
    """Three levels of three directories with three files each: 39 files, 40 directories."""
    files: dict[str, bytes] = {}
    below = [top]
    for _ in range(3):
        below = [f"{parent}/d{number}" for parent in below for number in range(3)]
        for parent in below:
            files[f"{parent}/file"] = parent.encode() * 20
    async with anyio.create_task_group() as tasks:
        for path, data in files.items():
            tasks.start_soon(fs.write, path, data)
    return files


@pytest.mark.layouts("path")
@backends
async def test_renaming_a_tree(fs: S3kClient) -> None:
    files = await plant(fs, "/src")
    await fs.makedirs("/dst")
    told: list[Progress] = []
    size = sum(map(len, files.values()))
    result = await fs.rename("/src", "/dst/new", progress=told.append)
    assert result == ChangeResult(39, 40, size)
    assert await fs.content_summary("/dst/new") == ContentSummary(size, 39, 40)
    assert not await fs.exists("/src")
    for path, data in files.items():
        assert await fs.read("/dst/new" + path.removeprefix("/src")) == data
    assert (told[-1].operation, told[-1].done, told[-1].bytes) == ("rename", 79, size)
    assert [each.done for each in told] == sorted(each.done for each in told)


# Deleting


@backends
async def test_deleting(fs: S3kClient) -> None:
    await fs.write("/d/f", DATA)
    await fs.makedirs("/e")
    with pytest.raises(DirectoryNotEmptyError):
        await fs.delete("/d")
    assert await fs.delete("/d/f") == ChangeResult(1, 0, 1000)
    assert await fs.delete("/e") == ChangeResult(0, 1, 0)
    assert await fs.delete("/d", recursive=True) == ChangeResult(0, 1, 0)
    with pytest.raises(PathNotFoundError):
        await fs.delete("/d")
    for recursive in (False, True):
        assert await fs.delete("/d", recursive=recursive, missing_ok=True) == ChangeResult()
    assert await paths(fs) == set()


@backends
async def test_the_root_stays(fs: S3kClient) -> None:
    await fs.write("/f", b"")
    for recursive in (False, True):
        with pytest.raises(PermissionDeniedError):
            await fs.delete("/", recursive=recursive, missing_ok=True)
    assert await paths(fs) == {"/f"}


@pytest.mark.layouts("path")
@backends
async def test_deleting_a_tree(fs: S3kClient) -> None:
    files = await plant(fs, "/src")
    await fs.write("/src2", b"stays")
    told: list[Progress] = []
    result = await fs.delete("/src", recursive=True, progress=told.append)
    assert result == ChangeResult(39, 40, sum(map(len, files.values())))
    assert await paths(fs) == {"/src2"}
    assert told[-1].done == 79


@backends
async def test_many_deleters_of_one_file(fs: S3kClient) -> None:
    await fs.write("/f", b"")
    outcomes: list[str] = []

    async def delete() -> None:
        try:
            await fs.delete("/f")
        except PathNotFoundError:
            outcomes.append("gone")
        else:
            outcomes.append("deleted")

    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(delete)
    assert sorted(outcomes) == ["deleted"] + ["gone"] * 7


# Copying


@backends
async def test_a_copied_file_is_another_file(fs: S3kClient) -> None:
    source = await fs.write("/a/f", DATA)
    told: list[Progress] = []
    assert await fs.copy("/a/f", "/new/g", progress=told.append) == ChangeResult(1, 0, 1000)
    target = await fs.stat("/new/g")
    assert target.id != source.id
    assert target.physical != source.physical
    assert (target.physical or "").endswith(f".id={target.id}")
    assert (target.checksum, target.size, target.version) == (source.checksum, 1000, 2)
    await fs.delete("/a/f")
    assert await fs.read("/new/g") == DATA
    assert [(each.operation, each.done, each.path) for each in told] == [("copy", 1, "/new/g")]


@backends
async def test_copying_onto_something(fs: S3kClient) -> None:
    await fs.write("/f", b"f")
    await fs.write("/g", b"g")
    await fs.makedirs("/d")
    with pytest.raises(PathExistsError):
        await fs.copy("/f", "/g")
    with pytest.raises(PathExistsError):
        await fs.copy("/f", "/f")
    with pytest.raises(IsDirectoryError):
        await fs.copy("/f", "/d", overwrite=True)
    with pytest.raises(NotDirectoryError):
        await fs.copy("/f", "/g/x")
    with pytest.raises(PathNotFoundError):
        await fs.copy("/none", "/x")
    with pytest.raises(IsDirectoryError):
        await fs.copy("/d", "/x")
    await fs.copy("/f", "/g", overwrite=True)
    await fs.copy("/f", "/f", overwrite=True)
    assert [await fs.read(path) for path in ("/f", "/g")] == [b"f", b"f"]


@backends
async def test_copying_what_has_no_data_creates_no_directories(fs: S3kClient) -> None:
    await fs.makedirs("/d")
    async with await fs.open("/d/coming", "wb"):
        with pytest.raises(UncommittedFileError):
            await fs.copy("/d/coming", "/new/deep/f")
        with pytest.raises(PathNotFoundError):
            await fs.copy("/d/none", "/new/deep/f")
        with pytest.raises(IsDirectoryError):
            await fs.copy("/d", "/new/deep/f")
        assert not await fs.exists("/new")


@backends
async def test_copying_a_tree(fs: S3kClient) -> None:
    files = await plant(fs, "/src")
    await fs.makedirs("/src/empty")
    told: list[Progress] = []
    size = sum(map(len, files.values()))
    assert await fs.copy("/src", "/far/dst", recursive=True, progress=told.append) == ChangeResult(
        39, 41, size
    )
    assert len(told) == 80
    assert await paths(fs, "/far/dst") == {
        "/far/dst" + path.removeprefix("/src") for path in await paths(fs, "/src")
    }
    for path, data in files.items():
        assert await fs.read("/far/dst" + path.removeprefix("/src")) == data
    with pytest.raises(PathExistsError):
        await fs.copy("/src", "/far/dst", recursive=True)
    await fs.write("/far/dst/more", b"stays")
    await fs.write("/far/dst/d0/file", b"goes")
    await fs.copy("/src", "/far/dst", recursive=True, overwrite=True)
    assert await fs.read("/far/dst/more") == b"stays"
    assert await fs.read("/far/dst/d0/file") == files["/src/d0/file"]


@backends
async def test_a_directory_is_not_copied_below_itself(fs: S3kClient) -> None:
    await fs.write("/a/f", b"1")
    for source, target in (("/a", "/a"), ("/a", "/a/b"), ("/", "/x")):
        with pytest.raises(RenameIntoSelfError):
            await fs.copy(source, target, recursive=True, overwrite=True)
    await fs.copy("/a", "/ab", recursive=True)
    assert await paths(fs) == {"/a", "/a/f", "/ab", "/ab/f"}


@backends
async def test_what_of_a_tree_cannot_be_copied_is_listed_and_the_rest_is_copied(
    fs: S3kClient,
) -> None:
    await fs.write("/a/good", b"1")
    await fs.write("/a/lost", b"2")
    await fs._volume().storage.delete((await fs.stat("/a/lost")).physical or "")
    with pytest.raises(PartialFailureError) as raised:
        await fs.copy("/a", "/b", recursive=True)
    ((path, error),) = raised.value.failures
    assert path == "/a/lost"
    assert isinstance(error, DataMissingError)
    assert error.path == "/a/lost"
    assert await paths(fs, "/b") == {"/b/good"}


async def test_copying_a_file_whose_bytes_are_cut_off() -> None:
    config = memory_config()
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        status = await fs.write("/f", DATA)
        await fs._volume().blobs.put(status.physical or "", DATA[:-1])
        with pytest.raises(CorruptDataError):
            await fs.copy("/f", "/g")
        assert await paths(fs, include_uncommitted=True) == {"/f"}


@pytest.mark.layouts("path")
@pytest.mark.parametrize("verb", ["rename", "delete", "copy"])
@backends
async def test_an_exception_in_a_progress_callback_ends_the_work_and_comes_out(
    fs: S3kClient, verb: str
) -> None:
    await plant(fs, "/src")

    def stop(progress: Progress) -> None:
        if progress.done >= 10:
            raise InterruptedError("enough")

    work = {
        "rename": lambda: fs.rename("/src", "/dst", progress=stop),
        "delete": lambda: fs.delete("/src", recursive=True, progress=stop),
        "copy": lambda: fs.copy("/src", "/dst", recursive=True, progress=stop),
    }
    with pytest.raises(InterruptedError, match="enough"):
        await work[verb]()
    if verb == "copy":
        return
    # The same call again finishes the work.
    if verb == "rename":
        await fs.rename("/src", "/dst")
        assert (await fs.content_summary("/dst")).file_count == 39
    else:
        await fs.delete("/src", recursive=True)
    assert not await fs.exists("/src")


@backends
async def test_from_one_volume_to_another(config: VolumeConfig) -> None:
    there = memory_config(Tuning(part_size=64, multipart_threshold=128))
    await init_volume(there)
    async with S3kClient(config=config) as fs, S3kClient(config=there) as other:
        files = await plant(fs, "/src")
        await fs.copy_to(other, "/src", f"s3k://{other.name}/got", recursive=True)
        for path, data in files.items():
            assert await other.read("/got" + path.removeprefix("/src")) == data
        await fs.copy_to(other, "/src/d0/file", "/src")
        await other.copy_to(fs, "/got", "/back", recursive=True)
        assert await fs.content_summary("/back") == await fs.content_summary("/src")
        one, two = await fs.stat("/src/d0/file"), await fs.stat("/back/d0/file")
        assert one.id != two.id
        assert one.checksum == two.checksum


async def test_only_the_expected_version_is_deleted(fs: S3kClient) -> None:
    seen = await fs.write("/f", b"1")
    await fs.write("/f", b"2")
    with pytest.raises(ConflictError, match="/f"):
        await fs.delete("/f", expected=seen)
    assert await fs.read("/f") == b"2"
    await fs.delete("/f", expected=await fs.stat("/f"))
    directory = await fs.makedirs("/d")
    await fs.write("/d/f", b"")
    await fs.delete("/d", recursive=True, expected=directory)
    await fs.makedirs("/d")
    for recursive in (False, True):
        with pytest.raises(ConflictError, match="/d"):
            await fs.delete("/d", recursive=recursive, expected=directory)
    assert await fs.is_dir("/d")


async def test_a_file_in_the_place_of_a_directory_that_was_waited_for_is_not_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = memory_config()
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        store = fs._volume().store
        directory = await store.make_directory("/d")
        async with store.transactions.hold("mark", "/d") as txn:
            pending = await store.hold(directory, txn)

            async def resolve(_: object) -> None:
                monkeypatch.undo()
                await store.drop_intent(pending, txn)
                await fs.delete("/d")
                await fs.write("/d", b"acknowledged")

            monkeypatch.setattr(store.resolver, "resolve", resolve)
            with pytest.raises(NotDirectoryError):
                await store.remove_directory(pending)
        assert await fs.read("/d") == b"acknowledged"
