"""The public trash: `S3kClient.trash()`, its blocking counterpart, and `delete(wait=True)`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from s3k_async import S3kClient, S3kSyncClient, TrashItem, VolumeConfig, model
from s3k_async.adapters.arrow import arrow_filesystem
from s3k_async.adapters.fsspec import S3kFileSystem
from s3k_async.adapters.hadoop import HadoopFileSystem
from s3k_async.errors import (
    BusyError,
    ConflictError,
    InvalidArgumentError,
    ItemFormatError,
    NotDirectoryError,
    PartialFailureError,
    PathExistsError,
    PathNotFoundError,
    ResponseLostError,
    ServiceError,
)
from s3k_async.model import (
    LISTED_FAILURES,
    ChangeResult,
    ChangeTally,
    ContentSummary,
    LayoutName,
    Progress,
)
from s3k_async.testing import Call, Died, FaultPlan
from s3k_async.txn.txn_record import LEASE_SECONDS
from s3k_async.volumes import init_volume
from tests.client.rig import faulty_client, memory_config, paths
from tests.engines.volumes import fresh_name
from tests.layouts.trees import Client, TreeVolume
from tests.support import FakeClock, fake_runtime

FILES = {"/a/b/c/f": b"one", "/a/b/g": b"second", "/a/h": b"x", "/z/k": b"left"}


async def config_of(layout: LayoutName = "tree") -> VolumeConfig:
    config = replace(memory_config(), layout=layout)
    await init_volume(config)
    return config


async def fill(fs: S3kClient) -> None:
    for path, data in FILES.items():
        await fs.write(path, data)


async def test_a_deleted_directory_is_listed_and_restored() -> None:
    async with S3kClient(config=await config_of()) as fs:
        await fill(fs)
        before, old = await paths(fs), await fs.stat("/a/b")
        assert await fs.delete("/a/b", recursive=True) == ChangeResult(directories=1)
        trash = fs.trash()
        (item,) = await trash.list()
        assert (item.id, item.was, item.name, item.state) == (old.id, "/a/b", "b", "")
        assert "@" in item.by
        assert item.when == datetime.fromtimestamp(item.when_ms / 1000, UTC)
        found = {status.path: status.size async for status in trash.walk(item)}
        assert found == {"/a/b/c": 0, "/a/b/c/f": 3, "/a/b/g": 6}
        assert await trash.summary(item) == await trash.summary() == ContentSummary(9, 2, 2)
        assert (await trash.restore(item)).path == "/a/b"
        assert await paths(fs) == before
        assert await fs.read("/a/b/c/f") == b"one"
        assert await trash.list() == []
        for call in (trash.restore(item), trash.restore("/a/b"), trash.summary(item)):
            with pytest.raises(PathNotFoundError):
                await call
        assert await trash.summary() == ContentSummary(0, 0, 0)


async def test_the_newest_is_first_and_is_restored_by_its_former_path() -> None:
    clock, faults = FakeClock(), FaultPlan()
    config = await config_of()
    async with faulty_client(faults, config, fake_runtime(clock)) as fs:
        for data in (b"1", b"2", b"3"):
            await fs.write("/a/f", data)
            await fs.delete("/a", recursive=True)
            clock.advance(1)
        await fs.makedirs("/empty")
        await fs.delete("/empty")
        trash = fs.trash()
        items = await trash.list()
        assert [item.was for item in items] == ["/a"] * 3
        assert items == sorted(items, key=lambda item: -item.when_ms)
        assert (await trash.restore("/a", "/new/place")).path == "/new/place"
        assert await fs.read("/new/place/f") == b"3"
        await trash.restore(items[2])
        assert await fs.read("/a/f") == b"1"
        with pytest.raises(PathExistsError):
            await trash.restore("/a")
        with pytest.raises(NotDirectoryError):
            await trash.restore("/a", "/a/f/x")
        assert [item.id for item in await trash.list()] == [items[1].id]


async def test_what_is_emptied_is_counted_and_cannot_be_restored() -> None:
    clock = FakeClock()
    async with faulty_client(FaultPlan(), await config_of(), fake_runtime(clock)) as fs:
        await fill(fs)
        await fs.delete("/a", recursive=True)
        clock.advance(10)
        await fs.delete("/z", recursive=True)
        trash = fs.trash()
        new, old = await trash.list()
        assert (new.was, old.was) == ("/z", "/a")
        assert await trash.empty(older_than=old.when_ms) == ChangeResult()
        assert await trash.empty(older_than=old.when) == ChangeResult()
        with pytest.raises(InvalidArgumentError):
            await trash.empty(older_than=datetime(2030, 1, 1))  # noqa: DTZ001 - refused for that
        seen: list[Progress] = []
        emptied = await trash.empty(older_than=new.when, progress=seen.append)
        assert emptied == ChangeResult(files=3, directories=3, bytes=10)
        assert emptied.requests.total > 0
        assert seen[-1].done == 6
        states = {item.was: item.state for item in await trash.list()}
        assert states == {"/a": "reclaiming", "/z": ""}
        for call in (trash.restore(old), trash.restore("/a")):
            with pytest.raises(PathNotFoundError):
                await call
        assert await trash.empty([new, old]) == ChangeResult(1, 1 + 3, 4)
        assert await trash.empty() == ChangeResult(0, 1 + 3, 0)
        assert await trash.summary() == ContentSummary(0, 0, 4)


async def test_files_that_are_being_written_are_not_shown() -> None:
    async with S3kClient(config=await config_of()) as fs:
        await fs.makedirs("/a")
        writer = await fs.open("/a/f", "wb")
        await fs.delete("/a", recursive=True)
        trash = fs.trash()
        (item,) = await trash.list()
        assert [status async for status in trash.walk(item)] == []
        assert await trash.summary(item) == ContentSummary(0, 0, 1)
        assert await trash.empty() == ChangeResult(1, 1, 0)
        with pytest.raises(ConflictError):
            await writer.close()


async def test_the_trash_of_layout_path_is_empty() -> None:
    async with S3kClient(config=await config_of("path")) as fs:
        await fill(fs)
        await fs.delete("/a", recursive=True)
        trash, item = fs.trash(), TrashItem("id", "/a", 1)
        assert await trash.list() == []
        assert await trash.empty() == await trash.empty([item]) == ChangeResult()
        assert await trash.summary() == ContentSummary(0, 0, 0)
        for call in (trash.restore("/a"), trash.restore(item), trash.summary(item)):
            with pytest.raises(PathNotFoundError):
                await call
        with pytest.raises(PathNotFoundError):
            assert [status async for status in trash.walk(item)]
        store = fs._volume().store
        clock = fs._volume().blobs.now_ms
        assert await store.layout.trash().collect(clock, retention_ms=0) == ChangeResult()


@pytest.mark.parametrize("layout", ["path", "tree"])
async def test_a_deletion_that_waits_counts_what_is_deleted(layout: LayoutName) -> None:
    async with S3kClient(config=await config_of(layout)) as fs:
        await fill(fs)
        seen: list[Progress] = []
        deleted = await fs.delete("/a", recursive=True, wait=True, progress=seen.append)
        assert deleted == ChangeResult(files=3, directories=3, bytes=10)
        assert seen[-1].done == 6
        assert await paths(fs) == {"/z", "/z/k"}
        items = await fs.trash().list()
        assert [item.state for item in items] == (["reclaiming"] if layout == "tree" else [])
        with pytest.raises(PathNotFoundError):
            await fs.trash().restore("/a")


def test_the_blocking_trash_does_the_same() -> None:
    config = replace(memory_config(), layout="tree")
    asyncio.run(init_volume(config))
    with S3kSyncClient(config=config) as fs:
        for path, data in FILES.items():
            fs.write(path, data)
        fs.delete("/a", recursive=True)
        fs.delete("/z", recursive=True)
        trash = fs.trash()
        assert repr(trash) == f"<SyncTrash of {config.name!r}>"
        assert {item.was for item in trash.list()} == {"/a", "/z"}
        item = next(each for each in trash.list() if each.was == "/a")
        assert len([status.path for status in trash.walk(item)]) == 5
        assert trash.summary(item) == ContentSummary(10, 3, 3)
        assert trash.restore("/a").path == "/a"
        assert fs.read("/a/h") == b"x"
        assert trash.empty() == ChangeResult(1, 1, 4)


def test_a_long_reclamation_keeps_a_few_failures_and_counts_the_others() -> None:
    tally = ChangeTally()
    for number in range(1000):
        tally.fail(f"/{number}", BusyError("held"))
    tally.fail("/damaged", ItemFormatError("damaged"))
    result = tally.result()
    assert [path for path, _ in result.failures] == [
        *(f"/{number}" for number in range(LISTED_FAILURES)),
        "/damaged",
    ]
    assert (result.unlisted, result.failed) == (1000 - LISTED_FAILURES, 1001)
    with pytest.raises(PartialFailureError, match="1001 of 1001"):
        result.raise_for_failures()


async def test_failures_of_a_reclamation_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "LISTED_FAILURES", 2)
    faults = FaultPlan()
    async with faulty_client(faults, await config_of(), fake_runtime(FakeClock())) as fs:
        for number in range(5):
            await fs.makedirs(f"/{number}")
            await fs.delete(f"/{number}", recursive=True)
        error = ServiceError("no", service_code="X")
        faults.fail_when(lambda call: call.method == "write", error, times=1000)
        result = await fs.trash().empty()
    assert (len(result.failures), result.unlisted) == (2, 3)


# Deaths and lost responses of a restoration


async def restore(client: Client) -> None:
    trash = client.layout.trash()
    await trash.restore(await trash.newest("/a/b"), "/a/b")


async def begun(plan: FaultPlan) -> tuple[TreeVolume, Client]:
    """A volume in which a directory and then its parent were deleted."""
    volume = await TreeVolume(fresh_name("trash")).start("/a/", "/a/b/", "/a/b/f", "/a/g")
    other = volume.client()
    await other.delete("/a/b")
    await other.delete("/a")
    return volume, volume.client(plan)


async def calls_of(work: Callable[[Client], Awaitable[object]]) -> int:
    volume, client = await begun(FaultPlan())
    await work(client)
    await volume.truths()
    return len(client.faults.calls)


def after(number: int) -> Callable[[Call], bool]:
    return lambda call: call.number > number


@pytest.mark.parametrize("when", ["before", "after"])
async def test_after_a_death_at_any_call_a_restoration_can_be_repeated(when: str) -> None:
    for number in range(1, await calls_of(restore) + 1):
        plan = FaultPlan()
        plan.die(number, when="before" if when == "before" else "after")
        plan.fail_when(after(number), Died("is dead"), times=999)
        volume, client = await begun(plan)
        with suppress(Died):
            await restore(client)
        volume.clock.advance(LEASE_SECONDS)
        other = volume.client()
        with suppress(PathNotFoundError):  # it was restored
            await restore(other)
        assert {"/a", "/a/b", "/a/b/f"} <= set(await volume.tree())
        assert [item.was for item in await other.layout.trash().items()] == ["/a"]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_lost_answer_at_any_call_of_a_restoration_changes_nothing(when: str) -> None:
    for number in range(1, await calls_of(restore) + 1):
        plan = FaultPlan()
        plan.fail(number, ResponseLostError("lost"), when="after" if when == "after" else "before")
        volume, client = await begun(plan)
        await restore(client)
        assert {"/a", "/a/b", "/a/b/f"} <= set(await volume.tree())
        assert all(truth.pending == () for truth in (await volume.truths()).values())


async def test_delete_many_passes_wait_on() -> None:
    async with S3kClient(config=await config_of()) as fs:
        await fill(fs)
        assert await fs.delete_many(["/a", "/z/k"], recursive=True) == ChangeResult(1, 1, 4)
        (item,) = await fs.trash().list()
        assert (item.was, item.state) == ("/a", "")
        await fs.trash().restore(item)
        gone = await fs.delete_many(["/a", "/z"], recursive=True, wait=True)
        assert gone == ChangeResult(3, 4, 10)
        assert {each.state for each in await fs.trash().list()} == {"reclaiming"}


def test_library_filesystems_delete_directories_into_the_trash() -> None:
    """fsspec, pyarrow and Hadoop's interface delete recursively as `delete` does without `wait`."""
    config = asyncio.run(config_of())
    with S3kSyncClient(config=config) as fs:
        for path in ("/fsspec/f", "/two/f", "/arrow/f", "/in/arrow/f", "/hadoop/f"):
            fs.write(path, path.encode())
        other = S3kFileSystem(config=config)
        other.rm("/fsspec", recursive=True)
        other.rm(["/two"], recursive=True)
        arrow = arrow_filesystem(config=config)
        arrow.delete_dir("/arrow")
        arrow.delete_dir_contents("/in")

        async def hadoop() -> None:
            async with S3kClient(config=config) as client:
                assert await HadoopFileSystem(client).delete("/hadoop", True)

        asyncio.run(hadoop())
        found = {item.was: item for item in fs.trash().list()}
        assert found.keys() == {"/fsspec", "/two", "/arrow", "/in/arrow", "/hadoop"}
        for path, item in found.items():
            assert item.state == ""
            fs.trash().restore(item)
            assert fs.read(f"{path}/f") == f"{path}/f".encode()
        other.close_session()
        arrow.handler.client.close()
