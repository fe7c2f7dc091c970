"""What readers of two tiers see while blobs are moved and deleted. The rest is in the contract
suite (`tests/contracts`), where the store is one more backend."""

from __future__ import annotations

from functools import partial

import pytest

from s3k_async.backends.ports.blobs import BlobPage
from s3k_async.backends.ports.pagination import list_all
from s3k_async.errors import BlobNotFoundError, ServiceError, UnsupportedError
from s3k_async.storage.tier_moves import move_object
from s3k_async.storage.tiered_blobs import TieredBlobs, need_tiers, require_apart
from s3k_async.testing import Died, FaultPlan
from s3k_async.testing.faults import Call, FaultyBlobs
from tests.tiers.rig import key, sizes, stores


class Moving(FaultPlan):
    """Moves all hot blobs after the first call of a reader to either store."""

    def __init__(self, tiers: TieredBlobs) -> None:
        super().__init__(self._move)
        self.tiers = tiers

    async def _move(self, call: Call) -> None:
        if call.number == 2:
            for info in (await self.tiers.hot.list()).blobs:
                apart = partial(require_apart, self.tiers.hot, self.tiers.cold, "check")
                await move_object(self.tiers, info, 100, apart)


async def test_a_blob_that_is_moved_after_the_listing_of_one_store_is_listed() -> None:
    hot, cold = await stores()
    plan = Moving(TieredBlobs(hot, cold))
    await hot.put("a", b"one")
    await cold.put("b", b"two")
    page = await TieredBlobs(FaultyBlobs(hot, plan), FaultyBlobs(cold, plan)).list()
    assert [info.key for info in page.blobs] == ["a", "b"]
    assert await sizes(hot) == {}


class ShortPages(FaultyBlobs):
    """A store whose pages are shorter than asked for, as those of a service may be."""

    size = 2

    async def list(
        self,
        prefix: str = "",
        *,
        cursor: str | None = None,
        limit: int | None = None,
        after: str = "",
    ) -> BlobPage:
        least = self.size if limit is None else min(limit, self.size)
        return await super().list(prefix, cursor=cursor, limit=least, after=after)


async def test_pages_of_different_lengths_skip_nothing() -> None:
    hot, cold = await stores()
    for number in range(20):
        await (hot if number % 3 else cold).put(f"{number:02}", b"")
    for number in range(20, 30):
        await cold.put(f"{number:02}", b"")
    longer = ShortPages(cold, FaultPlan())
    longer.size = 5
    blobs = TieredBlobs(ShortPages(hot, FaultPlan()), longer)
    found = [info.key async for info in list_all(blobs)]
    assert found == [f"{number:02}" for number in range(30)]


async def test_a_blob_that_is_moved_between_the_looks_of_a_reader_is_found() -> None:
    for there in ("a", "absent"):
        hot, cold = await stores()
        plan = Moving(TieredBlobs(hot, cold))
        await hot.put("a", b"one")
        moving = TieredBlobs(FaultyBlobs(hot, plan), FaultyBlobs(cold, plan))
        if there == "a":
            assert await moving.get("a") == b"one"
            assert await moving.get("a") == b"one"
        else:
            with pytest.raises(BlobNotFoundError):
                await moving.get(there)
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
    assert await move_object(moved, info, 32, partial(require_apart, hot, cold, "check"))
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


async def test_write_through_puts_into_the_cold_store_first() -> None:
    hot, cold = await stores()
    plan = FaultPlan()
    through = TieredBlobs(FaultyBlobs(hot, plan), FaultyBlobs(cold, plan), through=True)
    await through.put("both", b"1")
    assert await sizes(hot) == await sizes(cold) == {"both": 1}
    plan.fail(len(plan.calls) + 2, ServiceError("the hot store is full"))
    await through.put("cold", b"2")
    assert await cold.get("cold") == await through.get("cold") == b"2"
    assert await sizes(hot) == {"both": 1}
    plan.fail(len(plan.calls) + 1, ServiceError("the cold store is full"))
    with pytest.raises(ServiceError):
        await through.put("none", b"3")
    assert await through.head("none") is None
    upload = await through.start_upload("parts")
    await upload.put_part(1, b"4")
    await upload.complete()
    assert "parts" not in await sizes(hot)
    assert await through.get("parts") == b"4"


async def test_one_store_has_no_tiers() -> None:
    hot, _ = await stores()
    with pytest.raises(UnsupportedError, match="s3k migrate --hot"):
        need_tiers(hot, "volume")
    assert key(1) < key(2)
