"""Blobs over a store that loses answers."""

from __future__ import annotations

from itertools import count

import pytest

from s3k_async._core.retry import RetryPolicy
from s3k_async.backends.memory.memory_blobs import MemoryBlobs
from s3k_async.backends.ports.pagination import list_all
from s3k_async.backends.retrying.retrying_blobs import RetryingBlobs
from s3k_async.errors import (
    BlobChangedError,
    BlobExistsError,
    NoSpaceError,
    OutcomeUnknownError,
    PermissionDeniedError,
    RequestTimeoutError,
    ResponseLostError,
    S3kError,
    ThrottledError,
)
from s3k_async.testing import Call, FaultPlan
from tests.support import FakeClock, fake_runtime

_names = (f"test-reliable-blobs-{number}" for number in count())
LOST = [ResponseLostError("lost"), RequestTimeoutError("no answer")]


class Rig:
    """A reliable store over memory with faults, and a way around both."""

    def __init__(self) -> None:
        name = next(_names)
        self.plan = FaultPlan()
        self.clock = FakeClock()
        self.other = MemoryBlobs(name)
        self.store = RetryingBlobs(
            self.plan.blobs(MemoryBlobs(name)), RetryPolicy(attempts=4), fake_runtime(self.clock)
        )

    async def holding(self, **blobs: bytes) -> Rig:
        await self.other.create()
        for key, data in blobs.items():
            await self.other.put(key, data)
        return self

    def methods(self) -> list[str]:
        return [call.method for call in self.plan.calls]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("error", LOST, ids=lambda error: type(error).__name__)
async def test_a_lost_creation_is_ours_when_the_bytes_are(when: str, error: S3kError) -> None:
    rig = await Rig().holding()
    rig.plan.fail(1, error, when="after" if when == "after" else "before")
    info = await rig.store.put("a", memoryview(b"ours"), if_absent=True)
    assert info == await rig.other.head("a")
    assert rig.methods() == (["put", "put"] if when == "before" else ["put", "put", "head", "get"])


@pytest.mark.parametrize("data", [b"them", b"theirs"])
async def test_another_clients_blob_after_a_lost_creation_leaves_the_outcome_unknown(
    data: bytes,
) -> None:
    rig = await Rig().holding(a=data)
    rig.plan.fail(1, ResponseLostError("lost"))
    with pytest.raises(OutcomeUnknownError) as unknown:
        await rig.store.put("a", b"ours", if_absent=True)
    assert isinstance(unknown.value.__cause__, BlobExistsError)
    assert unknown.value.path == "a"


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_lost_replacement_is_ours_when_the_bytes_are(when: str) -> None:
    rig = await Rig().holding(a=b"old")
    old = await rig.other.head("a")
    assert old is not None
    rig.plan.fail(1, ResponseLostError("lost"), when="after" if when == "after" else "before")
    await rig.store.put("a", b"new", if_match=old.etag)
    assert await rig.other.get("a") == b"new"


async def test_a_plain_conflict_passes_through() -> None:
    rig = await Rig().holding(a=b"old")
    with pytest.raises(BlobExistsError):
        await rig.store.put("a", b"old", if_absent=True)
    with pytest.raises(BlobChangedError):
        await rig.store.put("a", b"new", if_match="another")
    assert len(rig.plan.calls) == 2


async def test_a_creation_whose_every_answer_is_lost_is_resolved_by_reading() -> None:
    rig = await Rig().holding()
    rig.plan.fail_when(
        lambda call: call.method == "put", ResponseLostError("lost"), when="after", times=100
    )
    await rig.store.put("a", b"ours", if_absent=True)
    assert rig.methods() == ["put"] * 4 + ["head", "get"]


async def test_the_outcome_is_unknown_when_nothing_answers_any_more() -> None:
    rig = await Rig().holding()
    rig.plan.fail_when(lambda call: True, ResponseLostError("lost"), when="after", times=100)
    with pytest.raises(OutcomeUnknownError):
        await rig.store.put("a", b"ours", if_absent=True)


async def test_a_creation_that_is_throttled_until_the_policy_ends_was_not_applied() -> None:
    rig = await Rig().holding()
    rig.plan.fail_when(lambda call: True, ThrottledError("slow down"), times=100)
    with pytest.raises(ThrottledError):
        await rig.store.put("a", b"ours", if_absent=True)
    assert await rig.other.head("a") is None
    assert len(rig.plan.calls) == 4


async def test_a_full_device_is_no_reason_to_try_again() -> None:
    rig = await Rig().holding()
    rig.plan.fail(1, NoSpaceError("full"))
    with pytest.raises(NoSpaceError):
        await rig.store.put("a", b"ours")
    assert len(rig.plan.calls) == 1


async def test_everything_else_is_sent_again() -> None:
    rig = await Rig().holding(a=b"1", b=b"2", c=b"3")

    async def once_lost(call: Call) -> None:
        if call.number % 2:
            rig.plan.fail(call.number, ResponseLostError("lost"), when="after")

    rig.plan.gate = once_lost
    await rig.store.put("d", b"4")
    assert await rig.store.get("a", 0, 1) == b"1"
    assert (await rig.store.head("a")) == (await rig.other.head("a"))
    assert (await rig.store.copy(rig.store, "a", "e")).key == "e"
    assert [info.key for info in (await rig.store.list()).blobs] == ["a", "b", "c", "d", "e"]
    assert [info.key async for info in list_all(rig.store, "d")] == ["d"]
    await rig.store.delete("a")
    assert await rig.store.delete_many(["b", "c"]) == []
    upload = await rig.store.start_upload("f")
    await upload.put_part(1, b"5")
    assert (await upload.complete()).size == 1
    await upload.abort()
    assert await rig.store.exists()
    await rig.store.drop()
    assert not await rig.other.exists()
    assert all(
        first == second
        for first, second in zip(rig.methods()[::2], rig.methods()[1::2], strict=True)
    )


async def test_it_copies_from_what_its_store_can_copy_from() -> None:
    rig, other = await Rig().holding(), await Rig().holding(a=b"1")
    assert rig.store.can_copy_from(other.store)
    assert rig.store.can_copy_from(other.other)
    await rig.store.copy(other.store, "a", "b")
    assert await rig.other.get("b") == b"1"


async def test_delete_many_asks_again_for_what_was_throttled_only() -> None:
    rig = await Rig().holding(a=b"1", b=b"2", c=b"3")
    rig.plan.refuse("a", PermissionDeniedError("no"))
    rig.plan.refuse("b", ThrottledError("slow down"))

    async def relent(call: Call) -> None:
        if call.number == 3:
            rig.plan._refused.pop("b")

    rig.plan.gate = relent
    failures = await rig.store.delete_many(["a", "b", "c"])
    assert [failure.key for failure in failures] == ["a"]
    assert [info.key for info in (await rig.other.list()).blobs] == ["a"]
    assert [call.key for call in rig.plan.calls] == ["a", "b", "b"]


async def test_delete_many_names_what_stays_throttled() -> None:
    rig = await Rig().holding(a=b"1", b=b"2")
    rig.plan.refuse("b", ThrottledError("slow down"))
    assert [failure.key for failure in await rig.store.delete_many(["a", "b"])] == ["b"]
    assert len(rig.plan.calls) == 4


@pytest.mark.parametrize("prefix", ["", "d", "d/", "d/e/", "/", "../"])
async def test_a_prefix_that_is_no_key_is_listed(prefix: str) -> None:
    rig = await Rig().holding(**{"d/e/f": b"", "d/g": b"", "h": b""})
    wanted = [key for key in ("d/e/f", "d/g", "h") if key.startswith(prefix)]
    assert [info.key async for info in list_all(rig.store, prefix)] == wanted


async def test_a_read_into_a_buffer_is_repeated_and_counted() -> None:
    rig = await Rig().holding(a=b"content")
    rig.plan.fail(1, ThrottledError("slow"))
    rig.plan.fail(2, ResponseLostError("lost"), when="after")
    view = memoryview(bytearray(5))
    assert await rig.store.get_into("a", 1, view) == 5
    assert bytes(view) == b"onten"
    assert rig.methods() == ["get", "get", "get"]


async def test_a_store_that_only_returns_bytes_is_read_into_a_buffer() -> None:
    class Plain(MemoryBlobs):
        get_into = None  # type: ignore[assignment]

    rig = await Rig().holding(a=b"content")
    store = RetryingBlobs(Plain(rig.other._name), RetryPolicy(), fake_runtime(rig.clock))
    view = memoryview(bytearray(b"?" * 9))
    assert await store.get_into("a", 2, view) == 5
    assert bytes(view) == b"ntent????"
