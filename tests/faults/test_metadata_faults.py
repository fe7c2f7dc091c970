"""Faults of S3-FileSystem 1.0's metadata store, each shown not to be ours."""

from __future__ import annotations

import pytest

from s3k_async._core.concurrency import gather
from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.ports.items import ItemPage
from s3k_async.errors import (
    ConflictError,
    OutcomeUnknownError,
    PathExistsError,
    PathNotFoundError,
    ResponseLostError,
)
from s3k_async.table.keys import Directory
from s3k_async.testing import FaultPlan
from tests.namespace.rig import Rig, calls, nth


@pytest.fixture
async def rig(request: pytest.FixtureRequest) -> Rig:
    return await Rig(request.node.name).start()


async def test_two_renames_of_one_source_leave_one_entry(rig: Rig) -> None:
    source = await rig.write("/a")
    other = rig.client()
    await rig.store.rename_file(source, "/b")
    # The second client still holds the entry it read before the first rename.
    with pytest.raises(PathNotFoundError):
        await other.rename_file(source, "/c")
    assert await rig.paths() == {"/b"}


async def test_a_stale_delete_spares_a_file_that_was_written_anew(rig: Rig) -> None:
    stale = await rig.write("/a")
    fresh = await rig.write("/a")
    with pytest.raises(ConflictError):
        await rig.store.delete_file(stale)
    assert await rig.store.get("/a") == fresh


async def test_a_stale_delete_spares_a_file_that_was_created_anew(rig: Rig) -> None:
    stale = await rig.write("/a")
    await rig.store.delete_file(stale)
    fresh = await rig.write("/a")
    with pytest.raises(ConflictError):
        await rig.store.delete_file(stale)
    assert await rig.store.get("/a") == fresh


async def test_of_many_exclusive_creators_one_wins(rig: Rig) -> None:
    async def create(_: int) -> bool:
        try:
            await rig.write("/a", overwrite=False)
        except PathExistsError:
            return False
        return True

    assert sum(await gather(create, range(64), limit=64)) == 1


async def test_a_file_and_a_directory_never_replace_each_other(rig: Rig) -> None:
    target = await rig.store.prepare("/a")
    await rig.store.make_directory("/a")
    with pytest.raises(ConflictError):
        await rig.store.publish(target, rig.content(target.object_id))
    assert (await rig.need("/a")).is_dir
    await rig.write("/f")
    with pytest.raises(PathExistsError):
        await rig.store.make_directory("/f")
    assert not (await rig.need("/f")).is_dir


async def test_the_loser_of_a_race_leaves_the_winners_log_entry(rig: Rig) -> None:
    first = await rig.write("/a")
    target = await rig.store.prepare("/a")
    late = await rig.store.prepare("/a")
    winner = await rig.store.publish(target, rig.content(first.id))
    with pytest.raises(ConflictError):
        await rig.store.publish(late, rig.content(first.id))
    truth = (await rig.truths())[first.id]
    assert truth.committed is not None
    assert truth.committed.operation.after == winner
    assert truth.pending == ()
    assert truth.conflict == ()


@pytest.mark.parametrize("method", ["write", "transact"])
async def test_a_write_whose_answer_was_lost_is_a_success(rig: Rig, method: str) -> None:
    source = await rig.write("/a")
    rig.faults.fail_when(nth(method, 1), ResponseLostError("the answer was lost"), when="after")
    if method == "write":
        entry = await rig.write("/a")
        assert entry.version == source.version + 1
    else:
        entry = await rig.store.rename_file(source, "/b")
    assert await rig.store.get(entry.path) == entry
    truth = (await rig.truths())[entry.id]
    assert truth.committed is not None
    assert truth.committed.operation.after == entry
    assert truth.pending == ()


async def test_an_answer_that_never_comes_is_unknown_and_stays_pending(rig: Rig) -> None:
    first = await rig.write("/a")
    rig.faults.fail_when(
        lambda call: (
            call.store == "items"
            and call.method in {"write", "get_many"}
            and len(rig.faults.calls) > 0
        ),
        ResponseLostError("the answer was lost"),
        when="before",
        times=1000,
    )
    target = await rig.client().prepare("/a")
    with pytest.raises(OutcomeUnknownError):
        await rig.store.publish(target, rig.content(first.id))
    truth = (await rig.truths())[first.id]
    assert [record.operation.version for record in truth.pending] == [first.version + 1]


async def test_all_suffixes_of_a_directory_are_asked_at_once() -> None:
    rig = Rig("all-suffixes", suffix_count=16)
    await rig.start()
    waiting: list[int] = []

    async def gate(call: object) -> None:
        # Nobody is answered before all have asked: a listing that asks one after the other would
        # wait for ever.
        waiting.append(1)
        while len(waiting) < 16:
            await rig.runtime.sleep(0)

    store = rig.client(FaultPlan(gate))
    assert [page async for page in store.children(Directory.at("/"))] == [[]] * 16


async def test_a_listing_streams(rig: Rig) -> None:
    for number in range(20):
        await rig.write(f"/d/{number}")
    listing = rig.store.children(Directory.at("/d"))
    first = await anext(listing)
    assert 0 < len(first) < 20
    await listing.aclose()


async def test_an_empty_page_does_not_end_a_listing_or_a_scan(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(9):
        await rig.write(f"/d/{number}")
    query, scan = MemoryItems.query, MemoryItems.scan

    async def sparse_query(
        self: MemoryItems,
        partition: str,
        *,
        cursor: str | None = None,
        after: str = "",
        limit: int | None = None,
    ) -> ItemPage:
        assert not after
        if cursor is None or cursor.startswith("gap:"):
            real = None if cursor is None else cursor.removeprefix("gap:")
            page = await query(self, partition, cursor=real or None, limit=1)
            return ItemPage(page.items, page.next and "skip:" + page.next)
        return ItemPage([], "gap:" + cursor.removeprefix("skip:"))

    async def sparse_scan(
        self: MemoryItems,
        segment: int,
        segments: int,
        *,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> ItemPage:
        if cursor is None:
            return ItemPage([], "start")
        return await scan(
            self, segment, segments, cursor=None if cursor == "start" else cursor, limit=2
        )

    monkeypatch.setattr(MemoryItems, "query", sparse_query)
    monkeypatch.setattr(MemoryItems, "scan", sparse_scan)
    expected = {"/d"} | {f"/d/{number}" for number in range(9)}
    assert await rig.paths() == expected
    assert await rig.scanned() == expected
    # Iterating again starts anew.
    assert await rig.paths() == expected


async def test_a_name_that_hashes_to_the_least_integer_is_an_ordinary_name(rig: Rig) -> None:
    entry = await rig.write("/d/polygenelubricants")
    assert await rig.store.get("/d/polygenelubricants") == entry
    assert "/d/polygenelubricants" in await rig.paths()


async def test_a_name_with_a_colon_is_an_ordinary_name(rig: Rig) -> None:
    await rig.write("/d/x:y")
    assert "/d/x:y" in await rig.paths()
    await rig.tree.rename(await rig.need("/d"), "/e")
    assert await rig.paths() == {"/e", "/e/x:y"}


async def test_creating_a_file_costs_as_many_calls_as_documented(rig: Rig) -> None:
    await rig.write("/d/first")
    before = len(rig.faults.calls)
    await rig.write("/d/second")
    made = rig.faults.calls[before:]
    # The path alone, since its directory was just seen; pending; put; the parent; committed.
    assert [call.method for call in made] == ["get", "put", "write", "get", "put"]
    assert calls(rig.faults, "transact") == 1
