"""Lists of files written together."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from s3k_async import S3kClient
from s3k_async._core.runtime import SYSTEM
from s3k_async.errors import (
    ArgumentTypeError,
    BusyError,
    InvalidArgumentError,
    InvalidPathError,
    IsDirectoryError,
    NotDirectoryError,
    OutcomeUnknownError,
    PathExistsError,
    ResponseLostError,
    S3kError,
    ServiceError,
    UnsupportedError,
)
from s3k_async.model import Feature
from s3k_async.oplog.log_reader import LogReader
from s3k_async.oplog.log_writer import SEGMENT_OPERATIONS
from s3k_async.storage.change_detection import checksum_of
from s3k_async.testing import Call, FaultPlan
from s3k_async.volumes import init_volume
from tests.client.rig import TUNING, faulty_client, memory_config, paths
from tests.engines.volumes import volume_backends
from tests.integrity.verifier import Verifier
from tests.level import FULL

pytestmark = pytest.mark.layouts("path", "tree")

backends = volume_backends("memory", "embedded", "dynoxide+seaweedfs")


async def sound(fs: S3kClient) -> None:
    """Table, log and bytes agree, and nobody's bytes are left over."""
    volume = fs._volume()
    await volume.log.drained()
    assert volume.log_blobs is not None
    verifier = Verifier(
        volume.store,
        volume.blobs,
        LogReader(volume.log_blobs),
        SYSTEM,
        grace=-60.0,
        place=volume.place,
    )
    assert (await verifier.verify(deep=True)).findings == []


def failed(result: Any) -> dict[str, type[Exception]]:
    assert len(dict(result.failures)) == len(result.failures)
    return {path: type(error) for path, error in result.failures}


@backends
async def test_the_files_of_a_list_are_there(fs: S3kClient) -> None:
    files = [(f"/a/d{number % 7}/f{number}", b"x" * number) for number in range(250)]
    result = await fs.write_many(files)
    assert (result.files, result.directories, result.bytes, result.failures) == (
        250,
        0,
        sum(range(250)),
        (),
    )
    for path, data in files[::25]:
        status = await fs.stat(path)
        assert (status.version, status.committed, status.size) == (2, True, len(data))
        assert await fs.read(path) == data
    assert [status.size async for status in fs.list("/a/d3") if status.name == "f3"] == [3]
    assert len([status async for status in fs.list("/a", recursive=True) if status.is_file]) == 250


@backends
async def test_an_empty_list_is_nothing(fs: S3kClient) -> None:
    assert await fs.write_many([]) == await fs.write_many(iter(()))
    assert (await fs.write_many([])).files == 0


@backends
async def test_files_that_exist_are_replaced_and_keep_their_ids(fs: S3kClient) -> None:
    before = await fs.write("/d/f1", b"old")
    result = await fs.write_many([(f"/d/f{number}", b"new") for number in range(3)])
    assert (result.files, result.failures) == (3, ())
    after = await fs.stat("/d/f1")
    assert (after.id, after.version) == (before.id, before.version + 1)
    assert await fs.read("/d/f1") == b"new"


@pytest.mark.parametrize("extents", [True, False])
async def test_an_empty_file_among_many_needs_no_object(tmp_path: Path, extents: bool) -> None:
    (tmp_path / "tree").mkdir()
    for name in ("one", "two", "three"):
        (tmp_path / "tree" / name).write_bytes(b"x" if name == "one" else b"")
    without: list[Feature] = [] if extents else ["extents"]
    config = memory_config()
    await init_volume(config, without=without)
    async with S3kClient(config=config) as fs:
        before = fs.requests.of("data", "PutObject")
        await fs.write_many([("/d/full", b"x"), ("/d/empty", b"")])
        await fs.upload(tmp_path / "tree", "/t")
        assert fs.requests.of("data", "PutObject") - before == (2 if extents else 5)
        empty = {"/d/empty", "/t/two", "/t/three"}
        for path in empty:
            assert await fs.read(path) == b""
            assert await fs.checksum(path) == checksum_of(b"")
            await fs.copy(path, f"{path}.copy")
            assert await fs.read(f"{path}.copy") == b""
        shown = {file.path async for file in fs.physical_paths("/")}
        assert shown >= {"/d/full", "/t/one"}
        assert (shown & empty == set()) == extents
        if extents:
            with pytest.raises(UnsupportedError, match="empty, and has no physical object"):
                await fs.physical_path("/d/empty")
        await sound(fs)
        if extents:
            await fs.append("/d/empty", b"more")
            assert await fs.read("/d/empty") == b"more"


async def test_each_file_fails_by_itself() -> None:
    async with faulty_client(FaultPlan()) as fs:
        await fs.write("/d/there", b"old")
        await fs.makedirs("/d/dir")
        files: list[tuple[Any, Any]] = [
            ("/d/there", b"new"),
            ("/d/there/below", b"new"),
            ("/d/dir", b"new"),
            ("/", b"new"),
            ("/d/" + "n" * 1025, b"new"),
            ("/d/\0", b"new"),
            ("/d/text", "text"),
            ("/d/twice", b"one"),
            ("d//twice", b"two"),
            (17, b"new"),
            ("/d/good", b"new"),
            ("/e/good", bytearray(b"new")),
        ]
        result = await fs.write_many(files, overwrite=False)
        assert result.files == 2
        assert failed(result) == {
            "/d/there": PathExistsError,
            "/d/there/below": NotDirectoryError,
            "/d/dir": IsDirectoryError,
            "/": IsDirectoryError,
            "/d/" + "n" * 1025: InvalidPathError,
            "/d/\0": InvalidPathError,
            "/d/text": ArgumentTypeError,
            "/d/twice": InvalidArgumentError,
            "17": ArgumentTypeError,
        }
        assert await fs.read("/d/there") == b"old"
        assert await paths(fs) == {"/d", "/d/there", "/d/dir", "/d/good", "/e", "/e/good"}
        await sound(fs)


@backends
@pytest.mark.parametrize("wrong", [["/a"], [("/a",)], [("/a", b"1", 2)], [7]])
async def test_what_is_no_list_of_pairs_is_refused(fs: S3kClient, wrong: Any) -> None:
    with pytest.raises(ArgumentTypeError, match=r"\(path, data\)"):
        await fs.write_many(wrong)


def tables(faults: FaultPlan) -> Counter[str]:
    return Counter(call.method for call in faults.calls if call.store == "items")


async def test_three_thousand_new_files_need_few_requests() -> None:
    faults = FaultPlan()
    async with faulty_client(faults) as fs:
        result = await fs.write_many([(f"/a/b/c/f{number}", b"data") for number in range(3000)])
        await fs._volume().log.drained()
        assert (result.files, result.failures) == (3000, ())
        assert result.requests.of("table", "TransactWriteItems") == 30 + 1
        # A hundred paths in each; the first window's come with the chain, which is read again to
        # make it.
        assert result.requests.of("table", "BatchGetItem") == 30 + 2
        assert result.requests.of("table", "GetItem") <= 3
        assert (
            fs.requests.of("log", "PutObject") == 8
        )  # the directories, and three windows: pending and committed
        assert len([status async for status in fs.list("/a/b/c")]) == 3000
        await sound(fs)


async def test_many_concurrent_writes_touch_their_directory_a_handful_of_times() -> None:
    count = 10_000 if FULL else 2_000
    faults = FaultPlan()
    async with faulty_client(faults) as fs:
        await asyncio.gather(*(fs.write(f"/a/b/c/f{number}", b"") for number in range(count)))
        asked = fs.requests
        # Each file's own path, and now and then the directory; the chain with the first file, and
        # to make it.
        assert asked.of("table", "GetItem") < count + 100
        assert asked.of("table", "BatchGetItem") == 2
        assert tables(faults)["write"] == count
        assert tables(faults)["transact"] == 1


async def test_a_list_that_touches_many_directories_reads_each_once() -> None:
    faults = FaultPlan()
    async with faulty_client(faults) as fs:
        await fs.write_many([(f"/a/d{number % 20}/f{number}", b"1") for number in range(400)])
        faults.calls.clear()
        result = await fs.write_many(
            [(f"/a/d{number % 20}/g{number}", b"1") for number in range(400)]
        )
        assert result.requests.of("table", "GetItem") == 20
        assert result.requests.of("table", "BatchGetItem") == 4
        assert result.requests.of("table", "TransactWriteItems") == 4


class AtTransaction:
    """Does something once, right before a transaction of many puts."""

    def __init__(self, fs: S3kClient, path: str) -> None:
        self.fs, self.path, self.done = fs, path, False

    async def __call__(self, call: Call) -> None:
        if call.method == "transact" and not self.done and "/f" in call.key:
            self.done = True
            await self.fs.write(self.path, b"theirs")


@pytest.mark.parametrize("overwrite", [True, False])
async def test_a_file_that_others_create_meanwhile_costs_the_others_nothing(
    overwrite: bool,
) -> None:
    faults = FaultPlan()
    async with faulty_client(faults) as fs, S3kClient(config=fs.config) as other:
        await fs.makedirs("/d")
        faults.gate = AtTransaction(other, "/d/f7")
        result = await fs.write_many(
            [(f"/d/f{number}", b"ours") for number in range(20)], overwrite=overwrite
        )
        assert result.files == (20 if overwrite else 19)
        assert failed(result) == ({} if overwrite else {"/d/f7": PathExistsError})
        assert await fs.read("/d/f7") == (b"ours" if overwrite else b"theirs")
        assert await fs.read("/d/f8") == b"ours"
        await other._volume().log.drained()
        assert {finding.kind for finding in await found(fs)} <= (
            {"collectable_data"} if overwrite else set()
        )


async def found(fs: S3kClient) -> list[Any]:
    volume = fs._volume()
    await volume.log.drained()
    assert volume.log_blobs is not None
    return (
        await Verifier(
            volume.store,
            volume.blobs,
            LogReader(volume.log_blobs),
            SYSTEM,
            grace=-60.0,
            place=volume.place,
        ).verify()
    ).findings


async def test_what_is_written_below_a_directory_that_is_going_away_waits_for_that() -> None:
    """The directory gets an intent of an active transaction after the files were prepared: none of
    them may be acknowledged there."""
    faults = FaultPlan()
    async with faulty_client(faults) as fs, S3kClient(config=fs.config) as other:
        await fs.makedirs("/d")
        await fs.makedirs("/e")
        store = other._volume().store
        async with store.transactions.hold("mark", "/d") as txn:
            pending: list[Any] = []

            async def add_intent(call: Call) -> None:
                if call.method == "transact" and "/f" in call.key and not pending:
                    entry = await store.get("/d")
                    assert entry is not None
                    pending.append(await store.hold(entry, txn))

            faults.gate = add_intent
            files = [(f"/{place}/f{number}", b"data") for number in range(5) for place in "de"]
            task = asyncio.create_task(fs.write_many(files))
            seen: set[str] = set()
            while not pending or not any(path.startswith("/d/") for path in seen):
                seen = await paths(other)
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.1)
            assert not task.done()
            await store.drop_intent(pending[0], txn)
        result = await task
        assert (result.files, result.failures) == (10, ())
        assert {status.version async for status in fs.list("/d")} == {2}
        await other._volume().log.drained()
        assert {finding.kind for finding in await found(fs)} <= {"collectable_data"}


async def test_files_below_a_directory_with_an_intent_are_busy_and_the_others_are_written() -> None:
    config = memory_config(replace(TUNING, busy_timeout=0.05))
    await init_volume(config)
    async with faulty_client(FaultPlan(), config) as fs:
        await fs.makedirs("/d")
        store = fs._volume().store
        async with store.transactions.hold("mark", "/d") as txn:
            entry = await store.get("/d")
            assert entry is not None
            pending = await store.hold(entry, txn)
            result = await fs.write_many([("/d/f", b"1"), ("/e/f", b"1")])
            assert (result.files, failed(result)) == (1, {"/d/f": BusyError})
            await store.drop_intent(pending, txn)
        assert await paths(fs) == {"/d", "/e", "/e/f"}


async def test_a_transaction_that_fails_fails_its_files_and_no_others() -> None:
    faults = FaultPlan()
    async with faulty_client(faults) as fs:
        await fs.makedirs("/d")
        error = ServiceError("no", service_code="X")
        seen = 0

        def second(call: Call) -> bool:
            nonlocal seen
            seen += call.method == "transact" and "/f" in call.key
            return seen == 2

        faults.fail_when(second, error)
        result = await fs.write_many([(f"/d/f{number}", b"data") for number in range(300)])
        assert (result.files, len(result.failures)) == (200, 100)
        assert set(failed(result).values()) == {ServiceError}
        assert len(await paths(fs)) == 201
        await sound(fs)


async def test_an_answer_that_never_comes_is_unknown_for_its_files_and_they_stay_pending() -> None:
    faults = FaultPlan()
    async with faulty_client(faults) as fs:
        await fs.makedirs("/d")

        lost = ResponseLostError("lost")
        heard = True

        def second(call: Call) -> bool:
            # One transaction is applied, and neither it nor what it left behind is ever heard of.
            nonlocal heard
            wanted = call.method == "transact" and call.key.endswith("/f100")
            heard = heard and not wanted
            return wanted

        files = [(f"/d/f{number}", b"data") for number in range(200)]
        faults.fail_when(second, lost, when="after", times=10**6)
        faults.fail_when(lambda call: call.method == "get_many" and not heard, lost, times=10**6)
        result = await fs.write_many(files)
        assert result.files == 100
        assert set(failed(result).values()) == {OutcomeUnknownError}
        assert len(result.failures) == 100
        faults._faults.clear()
        assert len(await paths(fs)) == 201
        kinds = Counter(finding.kind for finding in await found(fs))
        assert kinds == {"log_pending": 100}


async def test_a_log_that_cannot_be_written_fails_all_and_leaves_nothing() -> None:
    faults = FaultPlan()
    async with faulty_client(faults) as fs:
        await fs.makedirs("/d")
        await fs._volume().log.drained()
        error = ServiceError("no", service_code="X")
        faults.fail_when(lambda call: call.key.endswith(".pending"), error, times=10**6)
        result = await fs.write_many([(f"/d/f{number}", b"data") for number in range(20)])
        assert (result.files, len(result.failures)) == (0, 20)
        assert all(isinstance(error, S3kError) for _, error in result.failures)
        faults._faults.clear()
        assert await paths(fs) == {"/d"}
        await sound(fs)


async def test_a_failed_upload_fails_its_file_only() -> None:
    faults = FaultPlan()
    async with faulty_client(faults) as fs:
        refused = ServiceError("no", service_code="X")
        faults.fail_when(
            lambda call: call.store == "blobs" and call.method == "put" and ".id=" in call.key,
            refused,
        )
        result = await fs.write_many([(f"/d/f{number}", b"data") for number in range(10)])
        assert (result.files, list(failed(result).values())) == (9, [ServiceError])
        await sound(fs)


async def test_a_window_is_one_segment() -> None:
    faults = FaultPlan()
    async with faulty_client(faults) as fs:
        await fs.makedirs("/d")
        await fs._volume().log.drained()
        faults.calls.clear()
        await fs.write_many([(f"/d/f{number}", b"1") for number in range(500)])
        await fs._volume().log.drained()
        writes = [call.key.rpartition(".")[2] for call in faults.calls if "segments/" in call.key]
        assert writes == ["pending", "committed"]
        assert SEGMENT_OPERATIONS > 500
