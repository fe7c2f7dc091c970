"""The fault plan: calls are numbered across stores, and fail where they are told to."""

from __future__ import annotations

import asyncio
import re
from itertools import count
from pathlib import Path

import anyio
import pytest

from s3k_async import S3kClient, S3kSyncClient
from s3k_async.backends.memory.memory_blobs import MemoryBlobs
from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.ports.items import ABSENT, Key, Put
from s3k_async.errors import (
    ConditionFailedError,
    PermissionDeniedError,
    ResponseLostError,
    ThrottledError,
)
from s3k_async.testing import Call, Died, FaultPlan, FaultyBlobs, FaultyItems
from s3k_async.volumes import init_volume

_names = (f"test-faults-{number}" for number in count())
PUT = Put({"path": "p", "children": "a", "ver": 1}, ABSENT)


async def stores(plan: FaultPlan) -> tuple[FaultyItems, FaultyBlobs]:
    name = next(_names)
    await MemoryItems(name).create()
    await MemoryBlobs(name).create()
    return plan.items(MemoryItems(name)), plan.blobs(MemoryBlobs(name))


async def test_calls_are_numbered_across_the_stores() -> None:
    plan = FaultPlan()
    items, blobs = await stores(plan)
    await items.write(PUT)
    await blobs.put("k", b"")
    await items.query("p")
    assert plan.calls == [
        Call(1, "items", "write", "p/a"),
        Call(2, "blobs", "put", "k"),
        Call(3, "items", "query", "p"),
    ]


async def test_a_fault_before_applies_nothing() -> None:
    plan = FaultPlan()
    items, _ = await stores(plan)
    plan.fail(1, ThrottledError("slow down"))
    with pytest.raises(ThrottledError):
        await items.write(PUT)
    assert await items.get(PUT.key) is None


async def test_a_fault_after_applies_and_loses_the_answer() -> None:
    plan = FaultPlan()
    items, _ = await stores(plan)
    plan.fail(2, ResponseLostError("lost"), when="after")
    assert await items.get(PUT.key) is None
    with pytest.raises(ResponseLostError):
        await items.write(PUT)
    assert await items.get(PUT.key) == PUT.item


async def test_a_failure_can_be_the_answer_that_is_lost() -> None:
    plan = FaultPlan()
    items, _ = await stores(plan)
    await items.write(PUT)
    plan.fail(2, ResponseLostError("lost"), when="after")
    with pytest.raises(ResponseLostError):
        await items.write(PUT)
    with pytest.raises(ConditionFailedError):
        await items.write(PUT)


@pytest.mark.parametrize(("when", "stored"), [("before", None), ("after", b"x")])
async def test_dying_is_no_error_that_a_handler_catches(when: str, stored: bytes | None) -> None:
    plan = FaultPlan()
    _, blobs = await stores(plan)
    plan.die(1, when="after" if when == "after" else "before")
    with pytest.raises(Died):
        await blobs.put("k", b"x")
    assert not issubclass(Died, Exception)
    assert (None if await blobs.head("k") is None else await blobs.get("k")) == stored


async def test_a_fault_strikes_as_often_as_it_was_told_to() -> None:
    plan = FaultPlan()
    _, blobs = await stores(plan)
    plan.fail_when(lambda call: call.method == "get", ThrottledError("slow down"), times=2)
    await blobs.put("k", b"x")
    for _ in range(2):
        with pytest.raises(ThrottledError):
            await blobs.get("k")
    assert await blobs.get("k") == b"x"


async def test_a_refused_key_is_left_by_delete_many() -> None:
    plan = FaultPlan()
    _, blobs = await stores(plan)
    for key in ("a", "b", "c"):
        await blobs.put(key, b"")
    plan.refuse("b", PermissionDeniedError("no"))
    assert [failure.key for failure in await blobs.delete_many(["a", "b", "c"])] == ["b"]
    assert [info.key for info in (await blobs.list()).blobs] == ["b"]


async def test_a_volume_opened_in_the_block_uses_the_plan_until_it_is_closed(
    tmp_path: Path,
) -> None:
    config = S3kClient(str(tmp_path / "volume")).config
    await init_volume(config)
    plan = FaultPlan()
    with plan.injected():
        fs = S3kClient(config=config)
        await fs.open_volume()
    try:
        plan.calls.clear()
        await fs.write("/a", b"x")
        assert {(call.store, call.method) for call in plan.calls} >= {
            ("items", "write"),
            ("blobs", "put"),
        }
        plan.fail_when(lambda call: call.method == "put", PermissionDeniedError("no"))
        with pytest.raises(PermissionDeniedError):
            await fs.write("/b", b"x")
    finally:
        await fs.close()
    count = len(plan.calls)
    async with S3kClient(config=config) as other:
        assert await other.read("/a") == b"x"
    assert len(plan.calls) == count


def test_a_blocking_client_uses_the_plan(tmp_path: Path) -> None:
    plan = FaultPlan()
    config = S3kClient(str(tmp_path / "volume")).config
    with plan.injected():
        asyncio.run(init_volume(config))
        with S3kSyncClient(config=config) as fs:
            fs.write("/a", b"x")
    assert {"create", "write", "put"} <= {call.method for call in plan.calls}


async def test_uploads_and_copies_go_through_the_plan() -> None:
    plan = FaultPlan()
    _, blobs = await stores(plan)
    upload = await blobs.start_upload("a")
    await upload.put_part(1, b"x")
    await upload.complete()
    assert blobs.can_copy_from(blobs)
    await blobs.copy(blobs, "a", "b")
    assert [call.method for call in plan.calls] == ["start_upload", "put_part", "complete", "copy"]
    assert await blobs.get("b") == b"x"


def test_the_page_is_run(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs/testing.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    exec(compile(code, "docs/testing.md", "exec"), {"__name__": "example"})
    first, second = capsys.readouterr().out.splitlines()
    assert "the data cannot be reached" in first
    assert second.startswith("False ")


async def test_the_gate_holds_a_call_while_another_proceeds() -> None:
    opened = anyio.Event()
    order: list[str] = []

    async def gate(call: Call) -> None:
        if call == Call(1, "blobs", "put", "held"):
            await opened.wait()

    _, blobs = await stores(FaultPlan(gate))

    async def put(key: str) -> None:
        await blobs.put(key, b"")
        order.append(key)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(put, "held")
        await anyio.wait_all_tasks_blocked()
        await put("free")
        assert await blobs.head("held") is None
        opened.set()
    assert order == ["free", "held"]


async def test_tasks_interleave_at_each_call() -> None:
    items, _ = await stores(FaultPlan())
    seen: list[bool] = []

    async def create_if_free() -> None:
        free = await items.get(Key("p", "a")) is None
        seen.append(free)

    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(create_if_free)
    assert seen == [True, True]
