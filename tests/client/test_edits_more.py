"""Files that grow and change in place: data that is left behind, and buffers that are reused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from s3k_async.client import S3kClient
from s3k_async.errors import (
    ConflictError,
    DataMissingError,
    OutcomeUnknownError,
    ResponseLostError,
)
from s3k_async.model import LayoutName
from s3k_async.storage.extents import physical_keys
from s3k_async.testing import Call, FaultPlan
from s3k_async.volumes import init_volume
from tests.client.rig import TUNING, faulty_client, memory_config
from tests.client.test_edits import VERBS, Verb, data_keys, live_keys, racing
from tests.client.transacting import contents, problems
from tests.engines.volumes import volume_backends

pytestmark = pytest.mark.layouts("path", "tree")

CHANGES: dict[str, Verb] = {
    **{verb: change for verb, (change, _) in VERBS.items()},
    "append, joined": lambda fs: fs.append("/f", b"?" * 20),
}


@pytest.mark.parametrize("verb", CHANGES)
async def test_data_of_a_lost_attempt_is_removed(layout: LayoutName, verb: str) -> None:
    """What a change uploaded before another client replaced the content, and what it needs no
    more."""
    kept: set[str] = set()

    async def theirs(other: S3kClient) -> None:
        kept.update(await live_keys(other))
        await other.write("/f", b"theirs")
        kept.update(await live_keys(other))

    async with racing(layout, theirs) as fs:
        before = await data_keys(fs)
        await CHANGES[verb](fs)
        assert await data_keys(fs) == before | kept | await live_keys(fs)


@volume_backends("memory", "embedded", "redis")
async def test_a_hole_overwrites_the_buffer_with_zeros(fs: S3kClient) -> None:
    await fs.write("/f", b"0123456789")
    await fs.truncate("/f", 20)
    buffer = bytearray(b"x" * 25)
    storage, status = fs._volume().storage, await fs.stat("/f")
    read = await storage.read_into(str(status.physical), 5, memoryview(buffer), size=20)
    assert read == 15
    assert bytes(buffer) == b"56789" + bytes(10) + b"x" * 10


@volume_backends("memory", "embedded", "redis", "dynoxide+seaweedfs")
async def test_a_copy_of_which_an_object_is_lost_leaves_no_data(fs: S3kClient) -> None:
    await fs.write("/f", b"a" * 30)
    await fs.append("/f", b"b" * 10)
    _, second = physical_keys((await fs.stat("/f")).physical)
    await fs._volume().blobs.delete(second)
    before = await data_keys(fs)
    with pytest.raises(DataMissingError):
        await fs.copy("/f", "/g")
    assert await data_keys(fs) == before
    assert await fs.stat_many(["/g"]) == [None]


@pytest.mark.parametrize("verb", CHANGES)
async def test_after_an_unknown_outcome_no_data_is_removed(layout: LayoutName, verb: str) -> None:
    """The change is made; neither the answer nor what was stored reaches the client."""
    config = memory_config(TUNING, layout)
    await init_volume(config)
    faults = FaultPlan()
    async with S3kClient(config=config) as other, faulty_client(faults, config) as fs:
        await fs.write("/f", b"0123456789")
        await fs.append("/f", b"abcdef")
        await fs.write("/g", b"g")
        before = await contents(other)
        method, is_cut_off = "transact" if verb == "concat" else "write", False

        def cut_off(call: Call) -> bool:
            nonlocal is_cut_off
            is_cut_off |= call.store == "items" and call.method == method
            return is_cut_off and call.store == "items"

        faults.fail_when(cut_off, ResponseLostError("lost"), when="after", times=100)
        with pytest.raises(OutcomeUnknownError):
            await CHANGES[verb](fs)
        faults._faults.clear()
        after = await contents(other)
        assert verb == "compact" or after != before
        assert await live_keys(other) <= await data_keys(other)


async def test_a_file_that_replaced_a_removed_one_can_be_changed(layout: LayoutName) -> None:
    """Nothing that was uploaded for the removed file is used for the new one."""

    async def theirs(other: S3kClient) -> None:
        await other.delete("/f")
        await other.write("/f", b"theirs")

    async with racing(layout, theirs) as fs:
        await fs.append("/f", b"?")
        await fs.append("/f", b"!")
        assert await fs.read("/f") == b"theirs?!"
        assert await problems(fs) == []


async def test_an_append_that_loses_every_race_ends_in_a_conflict(layout: LayoutName) -> None:
    """The file is missing whenever it is looked for, and there whenever it is to be created."""
    config = memory_config(replace(TUNING, busy_timeout=0.1), layout)
    await init_volume(config)
    faults = FaultPlan()
    async with S3kClient(config=config) as other, faulty_client(faults, config) as fs:
        await fs.write("/g", b"g")
        await fs._volume().log.drained()

        async def gate(call: Call) -> None:
            if call.store == "items" and call.method in ("get", "get_many"):
                await other.delete("/f", missing_ok=True)
            elif call.store == "items" and call.method == "write":
                await other.write("/f", b"theirs")

        faults.gate = gate
        with pytest.raises(ConflictError):
            await fs.append("/f", b"!")
        faults.gate = None
        assert await contents(other) == {"/f": b"theirs", "/g": b"g"}
        assert await problems(other) == []


async def test_a_new_file_that_was_withdrawn_is_created_as_another_object() -> None:
    """Its directory was removed as empty, and another one has a file at the path, which is gone
    when it is looked for. The log, which has the withdrawn file as removed, has the new one."""
    config = memory_config(TUNING, "tree")
    await init_volume(config)
    faults, done = FaultPlan(), list[str]()
    async with S3kClient(config=config) as other, faulty_client(faults, config) as fs:
        await other.makedirs("/d")
        file = await fs.open("/d/f", "ab")
        await file.write(b"in parts" * 50)

        async def gate(call: Call) -> None:
            if call.store != "items":
                return
            if not done and call.method == "write":
                done.append("removed")
                await other.delete("/d")
            elif done == ["removed"]:
                done.append("taken")
                await other.write("/d/f", b"theirs")
            elif done == ["removed", "taken"] and call.method == "transact":
                done.extend(["withdrawn"] * call.key.endswith("/f"))
            elif done == ["removed", "taken", "withdrawn"]:
                done.append("free")
                await other.delete("/d/f")

        faults.gate = gate
        await file.close()
        faults.gate = None
        assert done == ["removed", "taken", "withdrawn", "free"]
        assert await contents(other) == {"/d": None, "/d/f": b"in parts" * 50}
        assert await live_keys(other) <= await data_keys(other)
        assert await problems(fs) == []
