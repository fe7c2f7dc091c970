"""Faults of older systems in trees that change during an operation, through the client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from s3k_async._native import object_id_of
from s3k_async.backends.memory.memory_blobs import MemoryBlobs
from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.ports.blobs import BlobInfo, Buffer
from s3k_async.backends.ports.items import OPERATION, Condition, Update
from s3k_async.backends.ports.pagination import list_all
from s3k_async.client import S3kClient
from s3k_async.errors import (
    BusyError,
    ConflictError,
    CorruptDataError,
    DirectoryNotEmptyError,
    UncommittedFileError,
)
from s3k_async.table.codec import NEXT
from s3k_async.testing import Call, FaultPlan
from tests.client.rig import faulty_client, memory_config, paths
from tests.engines.volumes import fresh_name
from tests.namespace.rig import Rig


@pytest.fixture
async def fs() -> AsyncIterator[S3kClient]:
    async with faulty_client(FaultPlan()) as client:
        yield client


async def test_a_subtree_ends_at_a_component(fs: S3kClient) -> None:
    for path in ("/a/f", "/ab/f", "/a.b/f", "/a/b/f"):
        await fs.write(path, b"1")
    assert (await fs.content_summary("/a")).file_count == 2
    assert (await fs.delete("/a", recursive=True)).files == 2
    assert await paths(fs) == {"/ab", "/ab/f", "/a.b", "/a.b/f"}


async def test_a_directory_that_is_no_longer_empty_stays() -> None:
    """Somebody writes into the directory at each point of its removal: he is refused or it stays,
    never both gone."""
    from s3k_async.volumes import init_volume

    calls = 1
    number = 0
    outcomes = set()
    while number < calls:
        number += 1
        config = memory_config()
        await init_volume(config)
        plan = FaultPlan()
        async with (
            faulty_client(plan, config) as remover,
            faulty_client(FaultPlan(), config) as writer,
        ):
            await remover.makedirs("/d")
            plan.calls.clear()
            name = fresh_name("f")

            async def gate(
                call: Call, at: int = number, fs: S3kClient = writer, path: str = f"/d/{name}"
            ) -> None:
                if call.number == at and not await fs.exists("/d"):
                    return
                if call.number == at:
                    entry = await fs._volume().store.get("/d")
                    if entry is not None and not entry.pending:
                        await fs.write(path, b"1")

            plan.gate = gate
            try:
                await remover.delete("/d")
                removed = True
            except DirectoryNotEmptyError:
                removed = False
            calls = max(calls, len(plan.calls))
            found = await paths(writer)
            assert found == set() if removed else found == {"/d", f"/d/{name}"}
            outcomes.add(removed)
    assert outcomes == {True, False}


async def test_a_file_that_is_being_written_is_not_renamed_and_still_closes(
    fs: S3kClient,
) -> None:
    async with fs.open("/f", "wb") as file:
        await file.write(b"data")
        with pytest.raises(UncommittedFileError):
            await fs.rename("/f", "/g")
    assert await fs.read("/f") == b"data"
    assert await paths(fs) == {"/f"}


@pytest.fixture
async def rig(request: pytest.FixtureRequest) -> Rig:
    return await Rig(request.node.name).start()


async def test_a_rename_moves_what_is_there_and_not_what_was_read_before(rig: Rig) -> None:
    stale = await rig.write("/a")
    fresh = await rig.write("/a")
    assert (await rig.store.rename_file(stale, "/b")).physical == fresh.physical
    assert await rig.paths() == {"/b"}


async def test_a_file_is_not_moved_into_a_directory_that_gets_an_intent_meanwhile(rig: Rig) -> None:
    """The intent comes between the read of the target's parent and the transaction, which must see
    it itself."""
    rig.stop_renewing()
    source = await rig.write("/a/f")
    await rig.store.make_directory("/z")
    async with rig.store.transactions.hold("delete", "/z") as txn:

        async def add_intent(call: Call) -> None:
            if call.method == "transact":
                pending = Update(
                    rig.store.keys.key("/z"),
                    Condition(),
                    set={NEXT: txn.hold_intent, OPERATION: "an intent"},
                )
                await MemoryItems(rig.name).write(pending)

        with pytest.raises(BusyError):
            await rig.client(FaultPlan(add_intent)).rename_file(source, "/z/f")
    assert await rig.paths() == {"/a", "/a/f", "/z"}


async def test_a_file_of_which_less_was_stored_than_sent_is_not_published(
    fs: S3kClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = MemoryBlobs.put

    async def less(self: MemoryBlobs, key: str, data: Buffer, **conditions: Any) -> BlobInfo:
        return await put(self, key, bytes(data)[:-1] if object_id_of(key) else data, **conditions)

    monkeypatch.setattr(MemoryBlobs, "put", less)
    with pytest.raises(CorruptDataError):
        await fs.write("/f", b"data")
    assert await paths(fs) == set()


async def test_the_loser_of_a_race_takes_its_pending_entry_back(rig: Rig) -> None:
    first = await rig.write("/a")
    late = await rig.store.prepare("/a")
    await rig.write("/a")
    with pytest.raises(ConflictError):
        await rig.store.publish(late, rig.content(first.id))
    await rig.truths()
    keys = {info.key async for info in list_all(MemoryBlobs(rig.name), "entries/")}
    pending = {key.removesuffix(".pending") for key in keys if key.endswith(".pending")}
    assert pending == {key.removesuffix(".committed") for key in keys if key.endswith(".committed")}
