"""What readers of two tiers see while blobs are moved and deleted. The rest is in the contract
suite (`tests/contracts`), where the store is one more backend."""

from __future__ import annotations

import pytest

from s3k_async.backends.ports.blobs import BlobPage
from s3k_async.errors import BlobNotFoundError, UnsupportedError
from s3k_async.storage.tier_moves import move_object
from s3k_async.storage.tiered_blobs import TieredBlobs, need_tiers
from s3k_async.testing import Died, FaultPlan
from s3k_async.testing.faults import Call, FaultyBlobs
from tests.tiers.rig import key, sizes, stores


class MovedInBetween(FaultyBlobs):
    """A hot store, all of whose blobs are moved as soon as it was asked for one, or listed."""

    tiers: TieredBlobs

    async def list(self, *arguments: object, **options: object) -> BlobPage:
        page = await super().list(*arguments, **options)  # type: ignore[arg-type]
        for info in page.blobs:
            await move_object(self.tiers, info, 100)
        return page


async def test_a_blob_that_is_moved_between_the_listings_of_both_is_listed_once() -> None:
    hot, cold = await stores()
    listed = MovedInBetween(hot, FaultPlan())
    listed.tiers = TieredBlobs(hot, cold)
    await hot.put("a", b"one")
    await cold.put("b", b"two")
    page = await TieredBlobs(listed, cold).list()
    assert [info.key for info in page.blobs] == ["a", "b"]
    assert await sizes(hot) == {}


async def test_a_reader_at_every_call_of_a_move_finds_the_blob() -> None:
    hot, cold = await stores()
    await hot.put("key", bytes(range(100)))
    plain = TieredBlobs(hot, cold)
    seen = 0

    async def look(_: Call) -> None:
        nonlocal seen
        seen += 1
        assert await plain.get("key", 40, 60) == bytes(range(40, 60))
        found = await plain.head("key")
        assert found is not None
        assert found.size == 100
        assert [info.key for info in (await plain.list()).blobs] == ["key"]

    plan = FaultPlan(look)
    moved = TieredBlobs(FaultyBlobs(hot, plan), FaultyBlobs(cold, plan))
    info = await hot.head("key")
    assert info is not None
    assert await move_object(moved, info, 32)
    assert seen > 8
    assert await sizes(cold) == {"key": 100}


@pytest.mark.parametrize("verb", ["delete", "delete_many"])
async def test_a_deletion_that_dies_half_way_leaves_the_hot_blob(verb: str) -> None:
    hot, cold = await stores()
    for store in (hot, cold):
        await store.put("key", b"bytes")
    plan = FaultPlan()
    plan.fail_when(lambda call: call.method == verb, Died("died"), when="after")
    half = TieredBlobs(FaultyBlobs(hot, plan), FaultyBlobs(cold, plan))
    with pytest.raises(Died):
        await (half.delete("key") if verb == "delete" else half.delete_many(["key"]))
    assert (await sizes(hot), await sizes(cold)) == ({"key": 5}, {})
    await TieredBlobs(hot, cold).delete_many(["key"])
    assert await sizes(hot) == {}


async def test_a_blob_that_one_store_keeps_is_reported_and_kept_in_both() -> None:
    hot, cold = await stores()
    for store in (hot, cold):
        await store.put("kept", b"bytes")
        await store.put("gone", b"bytes")
    plan = FaultPlan()
    plan.refuse("kept", PermissionError("kept"))
    failures = await TieredBlobs(hot, FaultyBlobs(cold, plan)).delete_many(["kept", "gone"])
    assert [failure.key for failure in failures] == ["kept"]
    assert set(await sizes(hot)) == set(await sizes(cold)) == {"kept"}


async def test_unfinished_uploads_of_both_stores_are_listed_and_aborted() -> None:
    hot, cold = await stores()
    blobs = TieredBlobs(hot, cold)
    await blobs.start_upload("new")
    await cold.start_upload("moved")
    uploads = [each async for each in blobs.list_uploads()]
    assert [each.key for each in uploads] == ["new", "moved"]
    for each in uploads:
        await blobs.abort_upload(each)
    assert [each async for each in blobs.list_uploads()] == []


async def test_the_earlier_of_both_clocks_counts() -> None:
    hot, cold = await stores()

    class Late(FaultyBlobs):
        async def now_ms(self) -> int:
            return 5

    assert await TieredBlobs(hot, Late(cold, FaultPlan())).now_ms() == 5
    assert await TieredBlobs(Late(hot, FaultPlan()), cold).now_ms() == 5


async def test_a_copy_is_found_where_a_former_blob_was_hot() -> None:
    hot, cold = await stores()
    blobs = TieredBlobs(hot, cold)
    await cold.put("source", b"new")
    await hot.put("target", b"old")
    await blobs.copy(blobs, "source", "target")
    assert await blobs.get("target") == b"new"
    with pytest.raises(BlobNotFoundError):
        await blobs.copy(blobs, "nothing", "target")


async def test_one_store_has_no_tiers() -> None:
    hot, _ = await stores()
    with pytest.raises(UnsupportedError, match="s3k migrate --hot"):
        need_tiers(hot, "volume")
    assert key(1) < key(2)
