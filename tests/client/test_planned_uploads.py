"""Planned uploads: the data of small files is uploaded while the write is being logged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote

import pytest

from s3k_async._core.runtime import SYSTEM, Runtime
from s3k_async.backends.ports.blobs import BlobInfo, Buffer
from s3k_async.bulk import file_writes
from s3k_async.client import S3kClient
from s3k_async.errors import LeaseExpiredError, S3kError, ServiceError
from s3k_async.model import ChangeResult, LayoutName
from s3k_async.oplog.entries import LogRecord
from s3k_async.oplog.log_reader import LogReader
from s3k_async.storage.planned_upload import PLANNED_BYTES
from s3k_async.testing import Call, FaultPlan
from s3k_async.volumes import init_volume
from tests.client.rig import TUNING, faulty_client, memory_config
from tests.support import FakeClock, fake_runtime

KINDS = ("data", "log")


def kind_of(call: Call) -> str:
    """Kind of a put: data, a pending object of the log, or anything else."""
    if call.method != "put" or call.store != "blobs":
        return ""
    if call.key.endswith(".pending"):
        return "log"
    return "" if call.key.endswith(".committed") else "data"


@dataclass
class Held:
    """Blocks puts of the kinds until they are released, and records those that have arrived."""

    kinds: Sequence[str] = KINDS
    come: dict[str, asyncio.Event] = field(
        default_factory=lambda: {kind: asyncio.Event() for kind in KINDS}
    )
    go: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, call: Call) -> None:
        kind = kind_of(call)
        if kind:
            self.come[kind].set()
        if kind in self.kinds:
            await self.go.wait()


@asynccontextmanager
async def warm_client(
    faults: FaultPlan, layout: LayoutName = "path", runtime: Runtime = SYSTEM, **tuning: Any
) -> AsyncIterator[S3kClient]:
    """A client that has stored a file, so that it knows the entity tags of its store."""
    config = memory_config(replace(TUNING, multipart_threshold=1 << 20, **tuning), layout)
    await init_volume(config)
    async with faulty_client(faults, config, runtime) as fs:
        await fs.write("/d/first", b"first")
        await fs._volume().log.drained()
        faults.calls.clear()
        yield fs


async def writes(fs: S3kClient) -> list[LogRecord]:
    """The log's writes of files, one for each write, except that of the first file."""
    await fs._volume().log.drained()
    log = fs._volume().log_blobs
    assert log is not None
    found = [each async for each in LogReader(log).records()]
    return [
        each
        for each in found
        if isinstance(each, LogRecord)
        and (after := each.operation.after) is not None
        and not after.is_dir
        and (after.path, each.operation.before) != ("/d/first", None)
    ]


async def states(fs: S3kClient) -> list[str]:
    """The states of the writes."""
    return [each.state for each in await writes(fs)]


async def data_keys(fs: S3kClient) -> set[str]:
    storage = fs._volume().storage
    page = await storage.blobs.list(limit=1000)
    return {each.key for each in page.blobs}


def give_other_tags(fs: S3kClient) -> None:
    """Let the store return other entity tags than before."""
    blobs = fs._volume().storage.blobs
    put = blobs.put

    async def tagged(key: str, data: Buffer, **conditions: Any) -> BlobInfo:
        return (await put(key, data, **conditions))._replace(etag="other")

    blobs.put = tagged  # type: ignore[method-assign] # mypy has no other way to replace a method


async def logged_tags(fs: S3kClient) -> list[tuple[str, str]]:
    """State and entity tag of the writes."""
    logged = await writes(fs)
    return [(each.state, each.operation.after.etag) for each in logged if each.operation.after]


@pytest.mark.parametrize("layout", ["path", "tree"])
@pytest.mark.parametrize("path", ["/d/new", "/d/first"])
async def test_data_is_stored_while_the_write_is_logged(layout: LayoutName, path: str) -> None:
    faults = FaultPlan()
    async with warm_client(faults, layout) as fs:
        faults.gate = held = Held()
        writing = asyncio.create_task(fs.write(path, b"small"))
        async with asyncio.timeout(60):
            await asyncio.gather(*(each.wait() for each in held.come.values()))
        assert not [call for call in faults.calls if call.method in ("write", "transact")]
        held.go.set()
        written = await writing
        assert await fs.read(path) == b"small"
        assert (await fs.stat(path)).etag == written.etag


@pytest.mark.parametrize("held", KINDS)
async def test_the_table_waits_for_both(held: str) -> None:
    faults = FaultPlan()
    async with warm_client(faults) as fs:
        faults.gate = gate = Held([held])
        writing = asyncio.create_task(fs.write("/d/f", b"small"))
        async with asyncio.timeout(60):
            await asyncio.gather(*(each.wait() for each in gate.come.values()))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not writing.done()
        assert not await fs.exists("/d/f")
        gate.go.set()
        await writing
        assert await states(fs) == ["committed"]


@pytest.mark.parametrize("size", [PLANNED_BYTES, PLANNED_BYTES + 1])
async def test_longer_data_is_stored_before(size: int) -> None:
    faults = FaultPlan()
    async with warm_client(faults) as fs:
        faults.gate = held = Held(["data"])
        writing = asyncio.create_task(fs.write("/d/f", bytes(size)))
        async with asyncio.timeout(60):
            await held.come["data"].wait()
        for _ in range(50):
            await asyncio.sleep(0)
        assert held.come["log"].is_set() == (size <= PLANNED_BYTES)
        held.go.set()
        await writing


@pytest.mark.parametrize("failing", KINDS)
async def test_a_failure_of_either_leaves_nothing(failing: str) -> None:
    faults = FaultPlan()
    async with warm_client(faults) as fs:
        before = await data_keys(fs)

        async def refuse(call: Call) -> None:
            if kind_of(call) == failing:
                raise ServiceError("refused")

        faults.gate = refuse
        with pytest.raises(S3kError):
            await fs.write("/d/f", b"small")
        faults.gate = None
        assert not await fs.exists("/d/f")
        assert await states(fs) == []
        assert await data_keys(fs) == before
        await fs.write("/d/f", b"again")
        assert await states(fs) == ["committed"]


@pytest.mark.parametrize("held", [["data"], ["log"], ["data", "log"]])
async def test_a_cancelled_write_leaves_nothing_pending(held: list[str]) -> None:
    faults = FaultPlan()
    async with warm_client(faults) as fs:
        faults.gate = gate = Held(held)
        writing = asyncio.create_task(fs.write("/d/f", b"small"))
        async with asyncio.timeout(60):
            await asyncio.gather(*(each.wait() for each in gate.come.values()))
        writing.cancel()
        gate.go.set()
        with suppress(asyncio.CancelledError):
            await writing
        assert writing.cancelled()
        faults.gate = None
        assert not await fs.exists("/d/f")
        assert await states(fs) == []


async def test_a_cancellation_as_the_log_answers_leaves_nothing_pending() -> None:
    faults = FaultPlan()
    async with warm_client(faults) as fs:
        gate = Held(["data"])

        async def cancel(call: Call) -> None:
            await gate(call)

        faults.gate = cancel
        writing = asyncio.create_task(fs.write("/d/f", b"small"))
        async with asyncio.timeout(60):
            await gate.come["log"].wait()
        for _ in range(50):  # the operation is pending by then
            await asyncio.sleep(0)
        writing.cancel()
        gate.go.set()
        await asyncio.wait({writing})
        faults.gate = None
        assert writing.cancelled()
        assert await states(fs) == []


async def test_another_tag_than_the_expected_one_is_logged_and_published() -> None:
    faults = FaultPlan()
    async with warm_client(faults, change_detection="none") as fs:
        give_other_tags(fs)
        before = await data_keys(fs)
        for turn, path in enumerate(["/d/f", "/d/g", "/d/first"]):
            faults.calls.clear()
            assert (await fs.write(path, b"small")).etag == "other"
            assert await fs.read(path) == b"small"
            puts = [kind for call in faults.calls if (kind := kind_of(call))]
            # The first one logs twice: what it expected, and what was stored.
            assert sorted(puts) == ["data", "log", "log"][: 3 - bool(turn)]
        assert len(await data_keys(fs)) == len(before) + 3
        assert await logged_tags(fs) == [("committed", "other")] * 3


async def test_a_conflict_publishes_the_data_that_was_stored() -> None:
    faults = FaultPlan()
    async with warm_client(faults) as fs:
        await fs.write("/d/f", b"old")
        before = await data_keys(fs)
        faults.gate = held = Held(["data"])
        writing = asyncio.create_task(fs.write("/d/f", b"mine"))
        async with asyncio.timeout(60):
            await held.come["data"].wait()
        async with S3kClient(config=fs.config) as other:
            await other.write("/d/f", b"theirs")
        held.go.set()
        await writing
        assert await fs.read("/d/f") == b"mine"
        assert len(await data_keys(fs)) == len(before) + 2


async def test_a_lease_that_ended_during_the_upload_is_noticed() -> None:
    """Garbage collection may delete the data from then on."""
    faults, clock = FaultPlan(), FakeClock()
    async with warm_client(faults, runtime=fake_runtime(clock)) as fs:
        faults.gate = held = Held(["data"])
        writing = asyncio.create_task(fs.write("/d/f", b"small"))
        async with asyncio.timeout(60):
            await held.come["data"].wait()
        clock.advance(fs.config.tuning.lease + 1)
        held.go.set()
        with pytest.raises(LeaseExpiredError):
            await writing
        assert not await fs.exists("/d/f")
        assert await states(fs) == []


LIST = [(f"/d/f{number}", b"small") for number in range(3)]


async def written(fs: S3kClient) -> ChangeResult:
    return await fs.write_many(LIST)


@pytest.mark.parametrize("layout", ["path", "tree"])
async def test_a_list_is_logged_while_its_data_is_stored(layout: LayoutName) -> None:
    faults = FaultPlan()
    async with warm_client(faults, layout) as fs:
        faults.gate = held = Held()
        writing = asyncio.create_task(written(fs))
        async with asyncio.timeout(60):
            await asyncio.gather(*(each.wait() for each in held.come.values()))
        assert not [call for call in faults.calls if call.method in ("write", "transact")]
        held.go.set()
        assert (await writing).files == len(LIST)
        for path, data in LIST:
            assert await fs.read(path) == data


@pytest.mark.parametrize("held", KINDS)
async def test_the_entries_of_a_list_wait_for_both(held: str) -> None:
    faults = FaultPlan()
    async with warm_client(faults) as fs:
        faults.gate = gate = Held([held])
        writing = asyncio.create_task(written(fs))
        async with asyncio.timeout(60):
            await asyncio.gather(*(each.wait() for each in gate.come.values()))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not writing.done()
        assert not [path for path, _ in LIST if await fs.exists(path)]
        gate.go.set()
        await writing
        assert await states(fs) == ["committed"] * len(LIST)


async def test_a_failed_upload_of_a_list_is_not_published() -> None:
    faults = FaultPlan()
    async with warm_client(faults) as fs:
        before, seen = await data_keys(fs), 0

        async def refuse_second(call: Call) -> None:
            nonlocal seen
            if kind_of(call) == "data":
                seen += 1
                if seen == 2:
                    raise ServiceError("refused")

        faults.gate = refuse_second
        result = await written(fs)
        faults.gate = None
        assert [(path, type(error)) for path, error in result.failures] == [("/d/f1", ServiceError)]
        assert result.files == len(LIST) - 1
        assert not await fs.exists("/d/f1")
        logged = [each.operation.after for each in await writes(fs)]
        assert [after.path for after in logged if after] == ["/d/f0", "/d/f2"]
        assert len(await data_keys(fs)) == len(before) + 2


@pytest.mark.parametrize("held", [["data"], ["log"], ["data", "log"]])
async def test_a_cancelled_list_leaves_nothing_pending(held: list[str]) -> None:
    faults = FaultPlan()
    async with warm_client(faults) as fs:
        faults.gate = gate = Held(held)
        writing = asyncio.create_task(written(fs))
        async with asyncio.timeout(60):
            await asyncio.gather(*(each.wait() for each in gate.come.values()))
        writing.cancel()
        gate.go.set()
        await asyncio.wait({writing})
        faults.gate = None
        assert writing.cancelled()
        assert not [path for path, _ in LIST if await fs.exists(path)]
        assert await states(fs) == []


async def test_other_tags_than_the_expected_ones_of_a_list_are_published() -> None:
    faults = FaultPlan()
    async with warm_client(faults, change_detection="none") as fs:
        give_other_tags(fs)
        before = await data_keys(fs)
        assert (await written(fs)).files == len(LIST)
        for path, data in LIST:
            assert (await fs.stat(path)).etag == "other"
            assert await fs.read(path) == data
        assert len(await data_keys(fs)) == len(before) + len(LIST)
        assert await logged_tags(fs) == [("committed", "other")] * len(LIST)


async def test_files_of_a_list_are_uploaded_again_after_the_end_of_their_lease() -> None:
    """Garbage collection may delete the data from then on."""
    faults, clock = FaultPlan(), FakeClock()
    async with warm_client(faults, runtime=fake_runtime(clock)) as fs:
        before = await data_keys(fs)
        faults.gate = held = Held(["data"])
        writing = asyncio.create_task(written(fs))
        async with asyncio.timeout(60):
            await held.come["data"].wait()
            await held.come["log"].wait()
        old = [call.key.rpartition("/")[2] for call in faults.calls if kind_of(call) == "data"]
        clock.advance(fs.config.tuning.lease + 1)
        held.go.set()
        assert (await writing).files == len(LIST)
        for path, data in LIST:
            assert await fs.read(path) == data
        now = await data_keys(fs)
        assert len(now) == len(before) + len(LIST)
        assert len(old) == len(LIST)
        assert not {key.rpartition("/")[2] for key in now} & set(old)
        assert await states(fs) == ["committed"] * len(LIST)


async def test_windows_upload_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the first one is published while the next one uploads."""
    monkeypatch.setattr(file_writes, "WINDOW_FILES", 4)
    monkeypatch.setattr(file_writes, "UPLOADS", 2)
    faults = FaultPlan()
    async with warm_client(faults) as fs:
        flying = most = 0

        async def count(call: Call) -> None:
            nonlocal flying, most
            if kind_of(call) == "data":
                flying += 1
                most = max(most, flying)
                for _ in range(5):
                    await asyncio.sleep(0)
                flying -= 1

        faults.gate = count
        files = [(f"/d/w{number:02}", f"{number}".encode()) for number in range(12)]
        assert (await fs.write_many(files)).files == 12
        assert most == 2
        faults.gate = None
        window_of = {}
        for number, (path, _) in enumerate(files):
            key = unquote(await fs.physical_path(path)).rpartition("/")[2]
            window_of[key] = number // 4
        puts = [call.key.rpartition("/")[2] for call in faults.calls if kind_of(call) == "data"]
        windows = [window_of[key] for key in puts]
        assert windows == sorted(windows)
