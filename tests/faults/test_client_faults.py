"""A fault of older systems that the client must not have: closing a file again after a failed close
repeats the commit.

If the stream's second close then does nothing and says nothing, the tree gets a file whose bytes do
not exist.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from s3k_async._sync.loop_thread import current_bridge
from s3k_async._sync.sync_files import SyncFileWriter
from s3k_async.client import S3kClient
from s3k_async.errors import (
    CorruptDataError,
    NoSpaceError,
    OutcomeUnknownError,
    ResponseLostError,
    ServiceError,
)
from s3k_async.files.open_files import FileWriter
from s3k_async.testing import Call, FaultPlan
from tests.client.rig import faulty_client, paths

DATA = b"0123456789" * 100


async def open_and_write(fs: S3kClient, *, existing: bool) -> FileWriter:
    if existing:
        await fs.write("/f", b"old")
    writer = await fs.open("/f", "wb")
    await writer.write(DATA)
    return writer


def writes_of_the_entry(faults: FaultPlan) -> int:
    return sum(
        call.method in {"write", "transact"} and call.store == "items" for call in faults.calls
    )


@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize("method", ["put_part", "complete"])
async def test_a_close_whose_upload_failed_never_commits(method: str, existing: bool) -> None:
    faults = FaultPlan()
    async with faulty_client(faults) as fs:
        writer = await open_and_write(fs, existing=existing)
        faults.fail_when(lambda call: call.method == method, NoSpaceError("full"))
        with pytest.raises(NoSpaceError) as first:
            await writer.close()
        faults.calls.clear()
        for call in (writer.close, writer.commit, lambda: writer.write(b"x")):
            with pytest.raises(NoSpaceError) as again:
                await call()
            assert again.value is first.value
        await writer.discard()
        assert faults.calls == []
        if existing:
            assert await fs.read("/f") == b"old"
        else:
            assert not await fs.exists("/f")


@pytest.mark.parametrize("existing", [False, True])
async def test_a_close_whose_commit_failed_never_commits_again(existing: bool) -> None:
    faults = FaultPlan()
    async with faulty_client(faults) as fs:
        writer = await open_and_write(fs, existing=existing)

        def commits(call: Call) -> bool:
            return call.store == "items" and call.method == "write"

        faults.fail_when(commits, ServiceError("not now"))
        with pytest.raises(ServiceError):
            await writer.close()
        faults.calls.clear()
        for _ in range(3):
            with pytest.raises(ServiceError):
                await writer.close()
        assert faults.calls == []
        there = await paths(fs, include_uncommitted=True)
        assert there == ({"/f"} if existing else set())
        if existing:
            assert await fs.read("/f") == b"old"


async def test_leaving_the_with_block_by_a_failed_close_never_commits() -> None:
    faults = FaultPlan()
    async with faulty_client(faults) as fs:
        faults.fail_when(lambda call: call.method == "complete", NoSpaceError("full"))
        writer = await open_and_write(fs, existing=False)
        with pytest.raises(NoSpaceError):
            await close_inside(writer)
        with pytest.raises(NoSpaceError):
            await writer.close()
        assert await paths(fs, include_uncommitted=True) == set()


async def close_inside(writer: FileWriter) -> None:
    async with writer:
        await writer.close()


async def test_a_stored_object_that_is_not_what_was_sent_is_not_committed() -> None:
    faults = FaultPlan()
    async with faulty_client(faults) as fs:
        writer = await open_and_write(fs, existing=False)
        # The service takes the upload and keeps less of it than it was given.
        upload: Any = writer._upload._upload
        await asyncio.wait(writer._upload._parts)
        upload._upload._upload._upload._parts[1] = b"less"
        for _ in range(2):
            with pytest.raises(CorruptDataError):
                await writer.close()
        assert await paths(fs, include_uncommitted=True) == set()


async def test_a_commit_whose_answer_was_lost_is_not_sent_again_by_a_second_close() -> None:
    faults = FaultPlan()
    async with faulty_client(faults) as fs:
        writer = await open_and_write(fs, existing=False)

        def touches_the_table(call: Call) -> bool:
            return call.store == "items"

        faults.fail_when(touches_the_table, ResponseLostError("silence"), when="after", times=100)
        with pytest.raises(OutcomeUnknownError) as raised:
            await writer.close()
        assert raised.value.path is not None
        faults.calls.clear()
        with pytest.raises(OutcomeUnknownError):
            await writer.close()
        assert writes_of_the_entry(faults) == 0


def test_a_close_that_failed_never_commits_in_the_blocking_client() -> None:
    """Also when the file is closed by its finaliser."""
    faults = FaultPlan()
    bridge = current_bridge()
    opened = faulty_client(faults)
    fs = bridge.run(opened.__aenter__)
    faults.fail_when(lambda call: call.method == "complete", NoSpaceError("full"))
    writer = SyncFileWriter(bridge, bridge.run(lambda: open_and_write(fs, existing=False)), None)
    for _ in range(2):
        with pytest.raises(NoSpaceError):
            writer.close()
    with pytest.raises(NoSpaceError):
        writer.write(b"x")
    del writer
    assert bridge.run(lambda: paths(fs, include_uncommitted=True)) == set()
    bridge.run(lambda: opened.__aexit__(None, None, None))
