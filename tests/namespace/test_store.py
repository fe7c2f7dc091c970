"""The metadata store where the inventory of the old one does not reach."""

from __future__ import annotations

import pytest

from s3k_async.backends.ports.items import Value
from s3k_async.errors import (
    InvalidPathError,
    ItemFormatError,
    LeaseExpiredError,
    NotDirectoryError,
    PathExistsError,
)
from s3k_async.layouts.path.parent_cache import KNOWN_SECONDS
from s3k_async.layouts.path.recursive import forget
from s3k_async.model import Entry
from s3k_async.table.codec import from_item, to_item
from s3k_async.table.keys import Directory, KeyScheme
from tests.namespace.rig import Rig


@pytest.fixture
async def rig(request: pytest.FixtureRequest) -> Rig:
    return await Rig(request.node.name).start()


async def test_a_directory_whose_path_leaves_no_room_for_a_child_is_empty_and_can_go(
    rig: Rig,
) -> None:
    # ks://v/ and -sf2 leave 2,036 bytes for the parent; the directory itself is longer than a
    # parent may be.
    path = "/" + "/".join(["d" * 1000, "e" * 1000, "f" * 500])
    entry = await rig.store.make_directory(path)
    with pytest.raises(InvalidPathError):
        await rig.write(path + "/x")
    assert [page async for page in rig.store.children(Directory.at(path))] == []
    await rig.store.remove_directory(entry)
    assert await rig.store.get(path) is None


async def test_a_deep_chain_is_made_in_several_transactions(rig: Rig) -> None:
    path = "/" + "/".join("x" for _ in range(400))
    await rig.store.make_directory(path)
    assert len(await rig.paths()) == 400
    result = await rig.tree.rename(await rig.need("/x"), "/y")
    assert (result.directories, result.failures) == (400, ())
    result = await rig.tree.delete(await rig.need("/y"))
    assert (result.directories, result.failures) == (400, ())


async def test_a_writer_past_its_lease_publishes_nothing(rig: Rig) -> None:
    target = await rig.store.prepare("/a")
    reservation = await rig.store.reserve(target, exclusive=True)
    rig.clock.advance(601)
    with pytest.raises(LeaseExpiredError):
        await rig.store.commit(reservation, rig.content(reservation.id))
    with pytest.raises(LeaseExpiredError):
        await rig.store.publish(target, rig.content(target.object_id))
    # The next writer finds the lease over and takes the path.
    assert (await rig.write("/a", overwrite=False)).committed


async def test_an_exclusive_writer_respects_a_live_reservation(rig: Rig) -> None:
    await rig.store.reserve(await rig.store.prepare("/a"), exclusive=True)
    with pytest.raises(PathExistsError):
        await rig.write("/a", overwrite=False)


async def test_a_path_through_a_file_is_refused_everywhere(rig: Rig) -> None:
    file = await rig.write("/f")
    await rig.write("/g")
    with pytest.raises(NotDirectoryError):
        await rig.write("/f/x")
    with pytest.raises(NotDirectoryError):
        await rig.store.make_directory("/f/x/y")
    with pytest.raises(NotDirectoryError):
        await rig.store.rename_file(await rig.need("/g"), "/f/x")
    assert await rig.scanned() == {"/f", "/g"}
    assert await rig.store.get("/f") == file


async def test_missing_ancestors_are_made_good(rig: Rig) -> None:
    await rig.write("/a/b/c/f")
    await forget(rig.store, await rig.need("/a"))
    rig.clock.advance(KNOWN_SECONDS)
    await rig.write("/a/b/c/g")
    assert await rig.scanned() == await rig.paths()


FILE = Entry(
    "/d/f",
    False,
    "id",
    3,
    1_600_000_000,
    1_600_000_000_123,
    5,
    "key",
    True,
    "etag",
    "xxh128:0",
    "op",
)


@pytest.mark.parametrize(
    "entry",
    [
        FILE,
        Entry("/d", True, "id", 1, 1, 1, operation="op", pending='{"job":"x"}'),
        Entry("/r", False, "id", 1, 1, 1, physical="<uncommitted>", lease_ms=99, operation="op"),
    ],
)
def test_entries_survive_the_table(entry: Entry) -> None:
    keys = KeyScheme("v", 4)
    assert from_item(to_item(entry, keys), keys) == entry


def test_the_items_of_s3_filesystem_are_read() -> None:
    keys = KeyScheme("v", 4)
    item: dict[str, Value] = {
        "path": keys.key("/f").partition,
        "children": "f",
        "isdir": False,
        "ctime": 7,
        "ver": 2,
        "id": "i",
        "size": 9,
    }
    # The flag is younger than the format: a file without it is committed.
    assert from_item(item | {"physpath": "s3a://b/k"}, keys).committed
    assert from_item(item | {"physpath": "s3a://b/k"}, keys).mtime_ms == 7000


@pytest.mark.parametrize(
    "damage",
    [
        {"isdir": "false"},
        {"ctime": 0},
        {"ver": 0},
        {"ver": True},
        {"id": ""},
        {"size": -1},
        {"physpath": "<uncommitted>"},
        {"physpath": 7},
        {"path": "ks://w/-sf0"},
        {"path": "ks://v/nosuffix"},
        {"next": 1},
    ],
)
def test_an_item_that_cannot_be_an_entry_is_refused(damage: dict[str, str | int | bool]) -> None:
    keys = KeyScheme("v", 4)
    with pytest.raises(ItemFormatError):
        from_item(to_item(FILE, keys) | damage, keys)
