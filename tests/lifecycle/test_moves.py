"""Files and directories that are moved into, out of and below directories with rules; files that
were there before a rule, or were written by clients that did not know it."""

from __future__ import annotations

import pytest

from s3k_async.attributes import Attributes
from s3k_async.client import S3kClient
from s3k_async.namespace import due_index
from s3k_async.namespace.due_items import DueItem
from s3k_async.testing import FaultPlan
from tests.client.rig import faulty_client
from tests.lifecycle.ruled import DAY, HOUR, Ruled

pytestmark = pytest.mark.layouts("path", "tree")


async def expired(place: Ruled) -> int:
    """Runs the rules, and returns how many files expired."""
    result = await place.client.run_rules()
    assert result.failures == ()
    return result.expired


async def remaining(place: Ruled) -> set[str]:
    """Runs the rules, and returns what is left."""
    await expired(place)
    return await place.paths()


async def test_a_file_moved_into_and_out_of_a_directory(place: Ruled, fs: S3kClient) -> None:
    await fs.set_rule("/d", expire_after=100)
    await fs.makedirs("/e")
    await fs.write("/e/in", b"1")
    await fs.write("/d/out", b"1")
    await fs.write("/d/renamed", b"1")
    await fs.write("/d/first", b"1")
    await fs.write("/e/second", b"1")
    await fs.rename("/e/in", "/d/in")
    await fs.rename("/d/out", "/e/out")
    await fs.rename("/d/renamed", "/d/other")
    await fs.exchange("/d/first", "/e/second")
    place.clock.advance(100)
    assert await expired(place) == 3
    assert await place.paths() == {"/e/out", "/e/second"}
    place.clock.advance(2 * DAY)
    assert await expired(place) == 0
    assert await place.due_items() == []
    assert await place.findings() == []


@pytest.mark.parametrize("atomic", [True, False])
async def test_a_directory_moved_below_a_rule(place: Ruled, fs: S3kClient, atomic: bool) -> None:
    await fs.set_rule("/d", expire_after=86_400)
    await fs.makedirs("/d")
    for number in range(5):
        await fs.write(f"/e/x/{number}", b"1")
    place.clock.advance(HOUR)
    assert await expired(place) == 0
    assert len(await place.stored()) == 1  # the rule: no scan of `/d` will find them
    await fs.rename("/e/x", "/d/x", atomic=atomic)
    await place.after("/d/x/4", DAY - 0.001)
    assert "/d/x/4" in await remaining(place)
    await place.after("/d/x/4", DAY)
    await expired(place)
    assert await place.paths() == set()
    assert await place.findings() == []


async def test_a_directory_moved_out_of_a_rule(place: Ruled, fs: S3kClient) -> None:
    await fs.set_rule("/d", expire_after=100)
    await fs.write("/d/x/f", b"1")
    await fs.write("/d/x/own", b"1", attributes=Attributes(metadata={"ExpiresAfter": b"100"}))
    await fs.makedirs("/e")
    await fs.rename("/d/x", "/e/x")
    place.clock.advance(100)
    due = [each async for each in fs.due_actions()]
    assert [each.action for each in due] == ["expire"]
    assert await expired(place) == 1
    assert await place.paths() == {"/e/x/f"}
    assert await place.findings() == []
    await expired(place)
    assert await place.stored() != []  # the rule
    assert await place.due_items() == []


async def test_a_moved_directory_is_ruled_at_its_new_path_only(place: Ruled, fs: S3kClient) -> None:
    """The rule belongs to the path, not to the directory that was there."""
    await fs.set_rule("/d", expire_after=100)
    await fs.write("/d/f", b"1")
    await fs.rename("/d", "/e")
    await fs.write("/x/g", b"1")
    await fs.rename("/x", "/d")
    place.clock.advance(100)
    assert await expired(place) == 1
    assert await place.paths() == {"/e/f"}


async def test_a_directory_above_the_path_of_a_rule(place: Ruled, fs: S3kClient) -> None:
    await fs.set_rule("/a/b", expire_after=100)
    await fs.write("/x/b/f", b"1")
    await fs.write("/x/c/f", b"1")
    await expired(place)
    await fs.rename("/x", "/a")
    place.clock.advance(100)
    assert await expired(place) == 1
    assert await place.paths() == {"/a/c/f"}


async def test_a_directory_moved_to_a_shorter_rule_and_back(place: Ruled, fs: S3kClient) -> None:
    await fs.set_rule("/", expire_after=20 * 86_400)
    await fs.set_rule("/d", expire_after=10 * 86_400)
    await fs.makedirs("/d")
    for name in ("short", "long"):
        await fs.write(f"/{name}/f", b"1")
    await fs.rename("/short", "/d/short")
    await fs.rename("/long", "/d/long")
    await expired(place)
    await fs.rename("/d/long", "/long")
    await place.after("/long/f", 10 * DAY)
    assert await remaining(place) == {"/long/f"}
    await place.after("/long/f", 20 * DAY - 0.001)
    assert await remaining(place) == {"/long/f"}
    await place.after("/long/f", 20 * DAY)
    assert await remaining(place) == set()


@pytest.mark.layouts("tree")
async def test_what_comes_back_from_the_trash(place: Ruled, fs: S3kClient) -> None:
    await fs.set_rule("/d", expire_after=100)
    await fs.write("/d/x/f", b"1")
    await fs.write("/e/x/f", b"1")
    await fs.delete("/d/x", recursive=True)
    await fs.delete("/e/x", recursive=True)
    place.clock.advance(100)
    assert await expired(place) == 0  # nothing is deleted in the trash
    await fs.trash().restore("/d/x")
    await fs.trash().restore("/e/x", "/d/y")
    assert await place.paths() == {"/d/x/f", "/d/y/f"}
    assert await expired(place) == 2
    assert await place.findings() == []


@pytest.mark.layouts("tree")
async def test_metadata_of_a_file_counts_in_the_trash(place: Ruled, fs: S3kClient) -> None:
    own = Attributes(metadata={"ExpiresAfter": b"1000"})
    await fs.write("/d/x/f", b"1", attributes=own)
    await fs.write("/d/x/g", b"1")
    await fs.delete("/d", recursive=True)
    place.clock.advance(1000)
    assert await expired(place) == 1
    await fs.trash().restore("/d")
    assert await place.paths() == {"/d/x/g"}
    assert await place.findings() == []


@pytest.mark.parametrize("files", [1, 40])
async def test_a_transaction_that_fills_directories(
    place: Ruled, fs: S3kClient, files: int
) -> None:
    await fs.set_rule("/d", expire_after=100)
    await fs.write("/d/old/f", b"1")
    await fs.makedirs("/e")
    async with fs.transaction() as tx:
        for number in range(files):
            await tx.write(f"/d/new/{number}", b"1")
        await tx.write("/e/f", b"1")
        await tx.rename("/d/old/f", "/e/g")
    place.clock.advance(100)
    assert await expired(place) == files
    assert await place.paths() == {"/e/f", "/e/g"}
    assert await place.findings() == []


async def test_many_files_that_were_there_before(place: Ruled, fs: S3kClient) -> None:
    for number in range(300):
        await fs.write_many([(f"/d/{number}/{each}", b"1") for each in range(10)])
    await fs.write("/e/f", b"1")
    await fs.set_rule("/d", expire_after=100)
    place.clock.advance(100)
    result = await fs.run_rules()
    assert (result.expired, result.scanned, result.failures) == (3000, 1, ())
    assert await place.paths() == {"/e/f"}
    assert await place.due_items() == []


async def test_a_client_that_does_not_know_a_rule_yet(place: Ruled, fs: S3kClient) -> None:
    """Its file is found by the first run after an hour, and by that only."""
    async with faulty_client(FaultPlan(), place.config, place.runtime) as other:
        await other.write("/d/known", b"1")
        await fs.set_rule("/d", expire_after=100)
        assert (await fs.run_rules()).scanned == 1
        place.clock.advance(59)
        await other.write("/d/f", b"1")
        place.clock.advance(1)
        await other.write("/d/g", b"1")
    place.clock.advance(100)
    result = await fs.run_rules()
    assert (result.expired, result.scanned) == (2, 0)
    assert await place.paths() == {"/d/f"}
    place.clock.advance(HOUR - 161)
    assert (await fs.run_rules()).expired == 0
    place.clock.advance(1)
    result = await fs.run_rules()
    assert (result.expired, result.scanned) == (1, 1)
    assert len(await place.stored()) == 1  # the rule
    assert (await fs.run_rules()).scanned == 0


async def test_a_client_whose_clock_is_behind(place: Ruled, fs: S3kClient) -> None:
    await fs.set_rule("/d", expire_after=1)
    await fs.makedirs("/d")
    for _ in range(3):
        place.clock.advance(HOUR)
        await fs.run_rules()
    assert len(await place.stored()) == 1
    place.clock.advance(-1.9 * HOUR)
    await fs.write("/d/f", b"1")
    place.clock.advance(1.9 * HOUR)
    assert await expired(place) == 1


async def test_a_request_stays_until_a_directory_can_not_come_any_more(
    place: Ruled, fs: S3kClient
) -> None:
    await fs.set_rule("/d", expire_after=10)
    for _ in range(3):
        assert (await fs.run_rules()).expired == 0
        place.clock.advance(DAY / 2 - 1)
    assert len(await place.stored()) == 2
    place.clock.advance(2)
    await fs.run_rules()
    assert len(await place.stored()) == 1


async def test_the_longest_keys(place: Ruled, fs: S3kClient) -> None:
    longest = "n" * 1000 if place.client._volume().store.keys.by_id else "n" * 1024
    path = f"/{'d' * 200}/{longest}"
    await fs.set_rule(f"/{'d' * 200}", expire_after=10)
    await fs.write(path, b"1")
    (item,) = await place.due_items()
    assert DueItem.from_item(item).path == path
    place.clock.advance(10)
    assert await expired(place) == 1


async def test_an_item_whose_change_never_came(
    place: Ruled, fs: S3kClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is looked at again after as long as it is old, and removed when it is a day old."""
    await fs.set_rule("/d", expire_after=10)
    await fs.write("/d/f", b"1")
    await fs.delete("/d/f")
    began = place.clock.seconds
    runs = 0
    while await place.due_items():
        place.clock.advance(600)
        runs += (await fs.run_rules()).stale
        assert len(await place.due_items()) <= 1
    assert runs == 1
    assert due_index.STALE_MS / 1000 <= place.clock.seconds - began <= 2 * DAY
