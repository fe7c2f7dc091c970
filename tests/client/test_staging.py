"""Uploads that another process publishes: what they are before, and what becomes of them."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from s3k_async._core.runtime import SYSTEM
from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async._sync.sync_files import SyncStagedWriter
from s3k_async.backends.ports.pagination import list_all
from s3k_async.bulk.staged_uploads import StagedWriter
from s3k_async.client import S3kClient
from s3k_async.config import VolumeConfig
from s3k_async.errors import (
    ArgumentTypeError,
    InvalidArgumentError,
    IsDirectoryError,
    LeaseExpiredError,
    NotDirectoryError,
    OutcomeUnknownError,
    PartialFailureError,
    PathExistsError,
    S3kError,
    ServiceError,
    StreamClosedError,
    UnsupportedError,
)
from s3k_async.model import StagedFile
from s3k_async.namespace import multi_path_commit
from s3k_async.testing import Call, FaultPlan, Moment
from s3k_async.txn.txn_record import TRANSACTION_PARTITION
from s3k_async.volumes import init_volume
from tests.client.rig import faulty_client, memory_config
from tests.client.transacting import both_ways, contents, fill, problems, stored_bytes
from tests.engines.volumes import volume_backends

pytestmark = pytest.mark.layouts("path", "tree")

everywhere = volume_backends("memory", "embedded", "dynoxide+seaweedfs")


async def stage(fs: S3kClient, data: bytes) -> StagedFile:
    async with fs.stage() as file:
        await file.write(data)
    return file.staged


async def keys_of(fs: S3kClient) -> set[str]:
    """What is in the place of the data, the volume's mark apart."""
    return {info.key async for info in list_all(fs._volume().blobs) if ".id=" in info.key}


async def publish(
    fs: S3kClient, files: Iterable[tuple[str, StagedFile]], *, overwrite: bool = False
) -> None:
    async with fs.transaction() as tx:
        for path, file in files:
            await tx.publish(path, file, overwrite=overwrite)


@pytest.mark.layouts("path")
@everywhere
@both_ways
async def test_what_one_client_stages_another_publishes(
    fs: S3kClient, config: VolumeConfig
) -> None:
    await fs.write("/d/f", b"old")
    before = await fs.stat("/d/f")
    async with S3kClient(config=config) as other:
        sent = pickle.dumps(
            [await stage(other, b"new"), await stage(other, b"long" * 200), await stage(other, b"")]
        )
        assert await contents(other) == {"/d": None, "/d/f": b"old"}
    files: list[StagedFile] = pickle.loads(sent)
    async with fs.transaction() as tx:
        await tx.publish("/d/f", files[0], overwrite=True)
        await tx.publish("/n/m/g", files[1])
        await tx.publish("/d/h", files[2])
        assert await contents(fs) == {"/d": None, "/d/f": b"old"}
    expected = {"/d/f": b"new", "/d/h": b"", "/n/m/g": b"long" * 200}
    assert await contents(fs) == {"/d": None, "/n": None, "/n/m": None, **expected}
    assert (tx.result.files, tx.result.directories, tx.result.bytes) == (3, 2, 803)
    assert (await fs.stat("/d/f")).id == files[0].object_id != before.id
    assert (
        (await fs.stat("/d/f")).checksum == files[0].content.checksum == await fs.checksum("/d/f")
    )
    assert await problems(fs) == []


@everywhere
async def test_nothing_names_what_is_staged(fs: S3kClient) -> None:
    with fs.count() as counted:
        staged = await stage(fs, b"bytes")
    assert counted.requests.of("table") == counted.requests.of("log") == 0
    assert await keys_of(fs) == {staged.content.physical}
    assert await problems(fs) == []
    await fs.discard_staged([staged, staged])
    await fs.discard_staged([staged])
    await fs.discard_staged([])
    assert await keys_of(fs) == set()


@everywhere
async def test_what_is_left_by_an_exception_or_discarded_leaves_nothing(fs: S3kClient) -> None:
    files: list[StagedWriter] = []

    async def left(data: bytes) -> None:
        async with fs.stage() as file:
            files.append(file)
            await file.write(data)
            raise KeyError("no")

    for data in (b"short", b"long" * 200):
        with pytest.raises(KeyError):
            await left(data)
        file = files[-1]
        assert file.closed
        with pytest.raises(UnsupportedError):
            file.staged  # noqa: B018  # asking is what raises
        async with fs.stage() as file:
            await file.write(data)
            await file.discard()
        with pytest.raises(StreamClosedError):
            await file.write(b"more")
    assert await keys_of(fs) == set()
    assert [each async for each in fs._volume().blobs.list_uploads()] == []


async def test_the_writer_says_what_it_has() -> None:
    async with faulty_client(FaultPlan()) as fs:
        async with fs.stage() as file:
            assert await file.write(b"some") == 4
            assert (file.size, await file.tell()) == (4, 4)
            with pytest.raises(UnsupportedError):
                file.staged  # noqa: B018  # asking is what raises
            status = await file.commit()
        assert repr(file) == f"<StagedWriter {file.name!r} 4 bytes>"
        assert file.name == status.path == file.staged.content.physical
        assert (status.size, status.committed, status.id) == (4, False, file.staged.object_id)


async def test_a_client_that_closes_drops_what_is_being_staged() -> None:
    config = memory_config()
    await init_volume(config)
    async with faulty_client(FaultPlan(), config) as fs:
        file = await fs.stage()
        await file.write(b"some" * 100)
    with pytest.raises(S3kError, match="closed before the file was"):
        await file.close()
    assert await stored_bytes(config) == set()


@both_ways
async def test_the_lease_runs_from_when_the_upload_began() -> None:
    config = memory_config()
    await init_volume(config)
    now = SYSTEM.now_ms()
    lease = int(config.tuning.lease * 1000)

    def client(time_ms: int) -> AbstractAsyncContextManager[S3kClient]:
        return faulty_client(FaultPlan(), config, replace(SYSTEM, now_ms=lambda: time_ms))

    async with client(now) as fs:
        in_time, late = await stage(fs, b"one"), await stage(fs, b"two")
        assert in_time.lease_ms == late.lease_ms == now + lease
    async with client(now + lease) as fs:
        await publish(fs, [("/f", in_time)])
    async with client(now + lease + 1) as fs:
        with pytest.raises(LeaseExpiredError):
            await publish(fs, [("/g", late)])
        assert await contents(fs) == {"/f": b"one"}
        assert await keys_of(fs) == {in_time.content.physical, late.content.physical}


@both_ways
@pytest.mark.parametrize(
    ("path", "error"),
    [("/d/f", PathExistsError), ("/d", IsDirectoryError), ("/d/f/g", NotDirectoryError)],
)
async def test_what_is_refused_at_the_end_leaves_what_was_staged(
    path: str, error: type[S3kError]
) -> None:
    async with faulty_client(FaultPlan()) as fs:
        await fill(fs)
        before, data = await keys_of(fs), await contents(fs)
        one, other = await stage(fs, b"one"), await stage(fs, b"other")
        with pytest.raises(error):
            await publish(fs, [("/n", one), (path, other)])
        assert await contents(fs) == data
        await publish(fs, [("/n", one)])
        assert await fs.read("/n") == b"one"
        await fs.discard_staged([other])
        assert await keys_of(fs) == before | {one.content.physical}


async def test_what_the_body_raises_leaves_what_was_staged() -> None:
    async with faulty_client(FaultPlan()) as fs:
        staged = await stage(fs, b"one")

        async def body() -> None:
            async with fs.transaction() as tx:
                await tx.publish("/f", staged)
                raise KeyError("no")

        with pytest.raises(KeyError):
            await body()
        assert await keys_of(fs) == {staged.content.physical}


async def test_a_path_is_published_once() -> None:
    async with faulty_client(FaultPlan()) as fs:
        one, other = await stage(fs, b"one"), await stage(fs, b"other")
        async with fs.transaction() as tx:
            await tx.publish("/d/f", one)
            for path, file in [("/d/f", other), ("/d/f/g", other), ("/d", other), ("/g", one)]:
                with pytest.raises(InvalidArgumentError):
                    await tx.publish(path, file)
            with pytest.raises(IsDirectoryError):
                await tx.publish("/", other)
            with pytest.raises(ArgumentTypeError):
                await tx.publish("/h", b"other")  # type: ignore[arg-type]
            await tx.publish("/h", other)
        assert await contents(fs) == {"/d": None, "/d/f": b"one", "/h": b"other"}
        with pytest.raises(StreamClosedError):
            await tx.publish("/k", one)


async def test_what_was_staged_elsewhere_is_refused() -> None:
    async with faulty_client(FaultPlan()) as fs, faulty_client(FaultPlan()) as other:
        staged = await stage(other, b"one")
        adopted = replace(staged, content=replace(staged.content, physical="some/file"))
        for client, file in [(fs, staged), (other, adopted)]:
            with pytest.raises(InvalidArgumentError):
                await publish(client, [("/f", file)])
            with pytest.raises(InvalidArgumentError):
                await client.discard_staged([file])
        await publish(other, [("/f", staged)])
        assert await other.read("/f") == b"one"


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_after_an_unknown_outcome_the_bytes_stay_and_it_can_be_tried_again(
    moment: Moment,
) -> None:
    """As a driver does whose answer was lost."""
    config = memory_config()
    await init_volume(config)
    faults = FaultPlan()
    async with faulty_client(faults, config) as fs, faulty_client(FaultPlan(), config) as other:
        files = [("/d/f", await stage(fs, b"one")), ("/d/g", await stage(fs, b"two"))]
        faults.fail_when(
            lambda call: call.method == "transact", OutcomeUnknownError("lost"), when=moment
        )
        with pytest.raises(OutcomeUnknownError):
            await publish(fs, files)
        assert await keys_of(other) == {file.content.physical for _, file in files}
        await publish(other, files)
        expected = {"/d": None, "/d/f": b"one", "/d/g": b"two"}
        assert await contents(other) == expected
        versions = await other.stat_many([path for path, _ in files])
        await publish(other, files, overwrite=True)
        assert await other.stat_many([path for path, _ in files]) == versions
        assert set(await problems(other)) <= {"interrupted_change"}


@both_ways
async def test_what_was_published_before_is_not_dropped_with_what_fails() -> None:
    """The second try after an unknown outcome may fail for another reason, or be given up, and by
    then the file may be at another path.
    """
    async with faulty_client(FaultPlan()) as fs:
        await fs.write("/taken", b"x")
        there, new = await stage(fs, b"there"), await stage(fs, b"new")
        await publish(fs, [("/d/f", there)])
        with pytest.raises(PathExistsError):
            await publish(fs, [("/d/f", there), ("/taken", new)])
        assert await fs.read("/d/f") == b"there"
        tx = fs.transaction()
        await tx.publish("/d/f", there)
        await tx.discard()
        assert await fs.read("/d/f") == b"there"
        await fs.rename("/d/f", "/elsewhere")
        with pytest.raises(PathExistsError):
            await publish(fs, [("/d/f", there), ("/taken", new)])
        assert await fs.read("/elsewhere") == b"there"
        assert new.content.physical in await keys_of(fs)


async def test_files_of_an_active_transaction_are_not_discarded() -> None:
    """Another process is publishing these files by an active transaction when this one gives up."""
    config = memory_config()
    await init_volume(config)
    held, arrived = asyncio.Event(), asyncio.Event()

    async def gate(call: Call) -> None:
        of_transaction.extend(
            [call] if call.method == "write" and call.key.startswith(TRANSACTION_PARTITION) else []
        )
        if len(of_transaction) == 2 and of_transaction[-1] is call:  # it is made, and now published
            arrived.set()
            await held.wait()

    faults, of_transaction = FaultPlan(), list[Call]()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(multi_path_commit, "AT_ONCE", 0)
        async with faulty_client(faults, config) as fs, faulty_client(FaultPlan(), config) as other:
            await fs.write("/d/f", b"old")
            files = [("/d/f", await stage(fs, b"one")), ("/d/g", await stage(fs, b"two"))]
            faults.gate = gate
            task = asyncio.create_task(publish(fs, files, overwrite=True))
            await asyncio.wait_for(arrived.wait(), 10)
            tx = other.transaction()
            for path, file in files:
                await tx.publish(path, file, overwrite=True)
            await tx.discard()
            held.set()
            await task
            assert await contents(other) == {"/d": None, "/d/f": b"one", "/d/g": b"two"}


async def test_bytes_that_cannot_be_dropped_are_told() -> None:
    faults = FaultPlan()
    async with faulty_client(faults) as fs:
        one, other = await stage(fs, b"one"), await stage(fs, b"other")
        faults.refuse(
            fs._volume().record.scope + one.content.physical, ServiceError("no", service_code="No")
        )
        with pytest.raises(PartialFailureError) as raised:
            await fs.discard_staged([one, other])
        assert [key for key, _ in raised.value.failures] == [one.content.physical]
        assert await keys_of(fs) == {one.content.physical}


async def test_many_are_published_at_once() -> None:
    """Asked for together, and dropped by the thousand."""
    faults = FaultPlan()
    async with faulty_client(faults) as fs:
        files = [
            (f"/d/p={number % 7}/{number}", await stage(fs, b"%d" % number))
            for number in range(250)
        ]
        tx = fs.transaction()
        with fs.count() as counted:
            for path, file in files:
                await tx.publish(path, file)
        assert counted.requests.total == 0
        assert (await tx.commit()).files == 250
        assert len(await contents(fs)) == 258
        assert await problems(fs) == []
        more = [await stage(fs, b"%d" % number) for number in range(250)]
        with fs.count() as counted:
            await fs.discard_staged(more)
        assert counted.requests.of("data") == counted.requests.of("data", "DeleteObjects") == 1


@everywhere
def test_blocking(sync_fs: S3kSyncClient) -> None:
    table = pa.table({"a": list(range(1000)), "b": ["text"] * 1000})
    with sync_fs.stage() as file:
        with pq.ParquetWriter(file, table.schema) as writer:
            writer.write_table(table)
        assert repr(file) == f"<SyncStagedWriter {file.name!r}>"
    with sync_fs.stage() as another:
        another.write(b"another")
    with sync_fs.transaction() as tx:
        tx.publish("/t/part-0.parquet", file.staged)
    assert pq.read_table(sync_fs.open("/t/part-0.parquet")).equals(table)
    sync_fs.discard_staged([another.staged])
    second = sync_fs.transaction()
    second.publish("/t/part-0.parquet", another.staged)
    with pytest.raises(PathExistsError):
        second.commit()


@volume_backends("memory")
def test_blocking_left_by_an_exception_leaves_nothing(sync_fs: S3kSyncClient) -> None:
    def left() -> None:
        with sync_fs.stage() as file:
            files.append(file)
            file.write(b"some" * 200)
            raise KeyError("no")

    files: list[SyncStagedWriter] = []
    with pytest.raises(KeyError):
        left()
    file = files[0]
    with pytest.raises(UnsupportedError):
        file.staged  # noqa: B018  # asking is what raises
    sync_fs.stage().discard()
