"""What is particular to the memory adapters; the contract suites hold everything else."""

from __future__ import annotations

from itertools import count

import pytest

from s3k_async.backends.memory.memory_blobs import MemoryBlobs
from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.ports.items import ABSENT, Check, Condition, Delete, Item, Key, Put, Update
from s3k_async.errors import (
    BlobChangedError,
    ConditionFailedError,
    InvalidPathError,
    ServiceError,
    VolumeNotFoundError,
)
from tests.support import FakeClock, fake_runtime, fork_and_run

_names = (f"test-memory-{number}" for number in count())


def item(sort: str, ver: int = 1, partition: str = "p") -> Item:
    return {"path": partition, "children": sort, "ver": ver, "isdir": False}


async def items_of(*names: str) -> MemoryItems:
    store = MemoryItems(next(_names))
    await store.create()
    for name in names:
        await store.write(Put(item(name), ABSENT))
    return store


async def test_clients_that_name_a_table_the_same_share_it() -> None:
    name = next(_names)
    with pytest.raises(VolumeNotFoundError):
        await MemoryItems(name).get(Key("p", "a"))
    assert await MemoryItems(name).create()
    assert not await MemoryItems(name).create()
    await MemoryItems(name).write(Put(item("a"), ABSENT))
    assert await MemoryItems(name).get(Key("p", "a")) == item("a")
    await MemoryItems(name).drop()
    assert not await MemoryItems(name).exists()


async def test_what_is_stored_is_out_of_the_callers_reach() -> None:
    store = await items_of()
    mine = dict(item("a"))
    await store.write(Put(mine, ABSENT))
    mine["ver"] = 9
    read = await store.get(Key("p", "a"))
    assert read == item("a")
    page = await store.query("p")
    assert isinstance(page.items[0], dict)
    page.items[0]["ver"] = 9
    assert await store.get(Key("p", "a")) == item("a")


async def test_sort_keys_ascend_by_their_utf8_bytes() -> None:
    names = ["z", "\U0001f600", "a-b", "a", "\uffff", "é", "a/b"]
    store = await items_of(*names)
    seen: list[str] = []
    cursor = None
    while True:
        page = await store.query("p", cursor=cursor, limit=2)
        seen += [str(found["children"]) for found in page.items]
        cursor = page.next
        if cursor is None:
            break
    assert seen == sorted(names, key=str.encode)


async def test_a_query_sees_only_its_partition() -> None:
    store = await items_of("a")
    for partition in ("o", "p\0", "pp", "q"):
        await store.write(Put(item("a", partition=partition), ABSENT))
    assert [found["path"] for found in (await store.query("p")).items] == ["p"]


async def test_a_failed_transaction_names_every_failed_position_and_applies_nothing() -> None:
    store = await items_of("a", "b")
    with pytest.raises(ConditionFailedError) as failure:
        await store.transact(
            [
                Put(item("new"), ABSENT),
                Check(Key("p", "a"), Condition(equals={"ver": 2})),
                Put(item("b", 5), ABSENT),
                Delete(Key("p", "missing"), Condition()),
            ],
            "token",
        )
    assert failure.value.current == {1: item("a"), 2: item("b"), 3: None}
    assert await store.get(Key("p", "new")) is None


async def test_a_token_is_good_for_one_transaction_within_ten_minutes() -> None:
    clock = FakeClock()
    store = MemoryItems(next(_names), runtime=fake_runtime(clock))
    await store.create()
    create = Put(item("a"), ABSENT)
    await store.transact([create], "token")
    clock.advance(599)
    await store.transact([create], "token")
    with pytest.raises(ServiceError, match="token"):
        await store.transact([Put(item("b"), ABSENT)], "token")
    clock.advance(2)
    with pytest.raises(ConditionFailedError):
        await store.transact([create], "token")


async def test_a_token_whose_transaction_failed_is_not_remembered() -> None:
    store = await items_of()
    change = Update(Key("p", "a"), Condition(equals={"ver": 1}), {"ver": 2})
    with pytest.raises(ConditionFailedError):
        await store.transact([change], "token")
    await store.write(Put(item("a"), ABSENT))
    await store.transact([change], "token")
    assert await store.get(Key("p", "a")) == item("a", 2)


async def test_scan_segments_are_disjoint_and_complete() -> None:
    store = await items_of()
    keys = {Key(f"p{number % 7}", str(number)) for number in range(50)}
    for key in keys:
        await store.write(Put(item(key.sort, partition=key.partition), ABSENT))
    seen: list[Key] = []
    for segment in range(3):
        cursor = None
        while True:
            page = await store.scan(segment, 3, cursor=cursor, limit=4)
            seen += [Key(str(found["path"]), str(found["children"])) for found in page.items]
            cursor = page.next
            if cursor is None:
                break
    assert len(seen) == len(keys)
    assert set(seen) == keys


async def test_a_forked_child_goes_on_with_a_copy() -> None:
    name = next(_names)
    blobs = MemoryBlobs(name)
    await blobs.create()
    await blobs.put("a", b"parent")

    def child() -> None:
        bucket = blobs.bucket()
        with bucket.lock:
            bucket.put("b", b"child", 0)
        assert bucket.blobs["a"].data == b"parent"

    assert fork_and_run(child) == 0
    assert await blobs.head("b") is None


async def test_a_lock_that_was_held_while_forking_does_not_hang_the_child() -> None:
    blobs = MemoryBlobs(next(_names))
    await blobs.create()

    def child() -> None:
        assert blobs.bucket().lock.acquire(blocking=False)

    with blobs.bucket().lock:
        assert fork_and_run(child) == 0


async def test_if_match_needs_the_stored_etag() -> None:
    blobs = MemoryBlobs(next(_names))
    await blobs.create()
    first = await blobs.put("a", b"1")
    second = await blobs.put("a", b"2", if_match=first.etag)
    with pytest.raises(BlobChangedError):
        await blobs.put("a", b"3", if_match=first.etag)
    with pytest.raises(BlobChangedError):
        await blobs.put("absent", b"3", if_match=second.etag)
    assert await blobs.get("a") == b"2"


@pytest.mark.parametrize(
    "key",
    ["", "/a", "a/", "a//b", ".", "..", "a/../b", "a/./b", "a\0b", "x" * 1025, "é" * 513, "\ud800"],
    ids=ascii,
)
async def test_a_bad_blob_key_is_refused(key: str) -> None:
    blobs = MemoryBlobs(next(_names))
    await blobs.create()
    with pytest.raises(InvalidPathError):
        await blobs.put(key, b"")
    with pytest.raises(InvalidPathError):
        await blobs.delete_many(["good", key])


async def test_an_upload_is_invisible_until_it_is_complete() -> None:
    blobs = MemoryBlobs(next(_names), min_part=2)
    await blobs.create()
    upload = await blobs.start_upload("a")
    await upload.put_part(2, b"c")
    await upload.put_part(1, b"x")
    assert await blobs.head("a") is None
    with pytest.raises(ValueError, match="fewer than 2"):
        await upload.complete()
    await upload.put_part(1, b"ab")
    info = await upload.complete()
    assert await upload.complete() == info
    await upload.abort()
    assert await blobs.get("a") == b"abc"
    with pytest.raises(ServiceError):
        await upload.put_part(3, b"late")
