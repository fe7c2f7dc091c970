"""Listings of layout `tree`, alone and beside changes of directories at each of their requests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

import pytest

from s3k_async.errors import PathNotFoundError
from s3k_async.listing.listings import (
    Filter,
    Listing,
    find_pages,
    glob_pages,
    list_pages,
    summary,
    walk_pages,
)
from s3k_async.model import ContentSummary, FileStatus
from s3k_async.namespace.consistent_listing import SnapshotView
from s3k_async.namespace.store import MetadataStore
from s3k_async.testing import Call
from tests.layouts.trees import Client, TreeVolume

PATHS = ("/a/", "/a/b/", "/a/b/c/", "/a/b/c/f", "/a/b/g", "/a/h?", "/k/", "/k/l/", "/k/l/m", "/n")
SHOWN = {path.rstrip("/") for path in PATHS if not path.endswith("?")}


async def volume(request: pytest.FixtureRequest, *paths: str) -> TreeVolume:
    return await TreeVolume(request.node.name).start(*(paths or PATHS))


async def statuses(pages: AsyncIterator[list[FileStatus]]) -> list[FileStatus]:
    return [status async for page in pages for status in page]


async def listed(store: MetadataStore, path: str = "/", **options: bool) -> list[str]:
    listing = Listing(recursive=True, **options)
    return [status.path for status in await statuses(list_pages(store, path, listing))]


async def test_every_form_of_a_listing_shows_paths(request: pytest.FixtureRequest) -> None:
    store = (await volume(request)).client().store
    assert set(await listed(store)) == SHOWN
    assert await listed(store, sorted=True) == sorted(SHOWN)
    assert set(await listed(store, include_uncommitted=True)) == SHOWN | {"/a/h"}
    assert await listed(store, "/a/b", sorted=True) == ["/a/b/c", "/a/b/c/f", "/a/b/g"]
    assert await listed(store, "/a/b/g") == ["/a/b/g"]
    children = await statuses(list_pages(store, "/a", Listing()))
    assert [status.path for status in children] == ["/a/b"]
    found = await statuses(find_pages(store, "/", Filter(pattern="[fgm]")))
    assert {status.path for status in found} == {"/a/b/c/f", "/a/b/g", "/k/l/m"}
    for pattern, matches in {
        "/a/*/g": {"/a/b/g"},
        "/**/m": {"/k/l/m"},
        "/a/b/c/f": {"/a/b/c/f"},
        "/{a,k}/{b,l}/*": {"/a/b/c", "/a/b/g", "/k/l/m"},
    }.items():
        assert {s.path for s in await statuses(glob_pages(store, pattern))} == matches
    assert await summary(store, "/") == ContentSummary(length=12, file_count=4, directory_count=6)
    walked = [walked async for page in walk_pages(store, "/k") for walked in page]
    assert [path for path, _, _ in walked] == ["/k", "/k/l"]
    with pytest.raises(PathNotFoundError):
        await listed(store, "/a/x")


async def test_what_is_in_the_trash_is_not_listed(request: pytest.FixtureRequest) -> None:
    client = (await volume(request)).client()
    await client.delete("/a/b")
    assert set(await listed(client.store)) == {"/a", "/k", "/k/l", "/k/l/m", "/n"}
    with pytest.raises(PathNotFoundError):
        await listed(client.store, "/a/b")


async def test_requests_of_a_listing(request: pytest.FixtureRequest) -> None:
    """Warm: the chain and the top in one batch, the suffixes of each directory, and the second
    reading of all directories in one batch."""
    client = (await volume(request)).client()
    await listed(client.store, "/a/b")
    client.requests()
    await listed(client.store, "/a/b")
    assert client.requests() == ["get_many", *["query"] * 4, "get_many"]


Change = Callable[[Client], Awaitable[object]]


def moved(paths: Sequence[str], source: str, target: str) -> set[str]:
    """The paths after a directory has moved."""
    return {
        target + path[len(source) :] if path == source or path.startswith(source + "/") else path
        for path in paths
    }


@pytest.mark.parametrize(
    ("top", "change", "after"),
    [
        ("/", lambda client: client.rename("/a/b", "/k/b"), moved(list(SHOWN), "/a/b", "/k/b")),
        ("/", lambda client: client.rename("/a/b", "/a/q"), moved(list(SHOWN), "/a/b", "/a/q")),
        ("/", lambda client: client.rename("/k/l", "/l"), moved(list(SHOWN), "/k/l", "/l")),
        ("/", lambda client: client.rename("/k", "/a/b/c/k"), moved(list(SHOWN), "/k", "/a/b/c/k")),
        (
            "/",
            lambda client: client.delete("/a"),
            {path for path in SHOWN if not path.startswith("/a")},
        ),
        (
            "/a",
            lambda client: client.rename("/a/b/c", "/a/c"),
            {path for path in moved(list(SHOWN), "/a/b/c", "/a/c") if path.startswith("/a/")},
        ),
    ],
    ids=["into another", "within one", "into the root", "deeper", "delete", "below the top"],
)
async def test_a_listing_beside_a_change_is_that_of_before_or_after(
    request: pytest.FixtureRequest, top: str, change: Change, after: set[str]
) -> None:
    """The change commits before each of the listing's requests in turn, by a cold and by a warm
    client."""
    before = {path for path in SHOWN if path.startswith(top if top == "/" else top + "/")}
    for warm in (False, True):
        number = 0
        while True:
            there = await TreeVolume(f"{request.node.name} {warm} {number}").start(*PATHS)
            client = there.client()
            if warm:
                await listed(client.store, top)
            intervention = Intervention(number, partial(change, there.client()))
            client.faults.gate = intervention
            found = await listed(client.store, top)
            assert len(found) == len(set(found))
            assert set(found) in (before, after), number
            if not intervention.done:
                break
            number += 1
        assert number >= 5


class Intervention:
    """An action before the request with a given number, from 0."""

    def __init__(self, number: int, change: Callable[[], Awaitable[object]]) -> None:
        self.left = number
        self.done = False
        self._change = change

    async def __call__(self, call: Call) -> None:
        assert call.store == "items"
        self.left -= 1
        if self.left < 0 and not self.done:
            self.done = True
            await self._change()


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
async def test_a_rename_above_the_top_is_noticed(
    request: pytest.FixtureRequest, *, warm: bool
) -> None:
    """A listing of a directory whose ancestor moves has its entries at the old path, or the path is
    missing, or another directory has taken its place."""

    async def put_another_in_place(client: Client) -> None:
        await client.rename("/a", "/old")
        await client.rename("/k", "/a")
        await client.rename("/a/l", "/a/b")

    old, new = {"/a/b/c", "/a/b/c/f", "/a/b/g"}, {"/a/b/m"}
    seen = set()
    number = 0
    while True:
        there = await TreeVolume(f"{request.node.name} {number}").start(*PATHS)
        client = there.client()
        if warm:
            await listed(client.store, "/a/b")
        intervention = Intervention(number, partial(put_another_in_place, there.client()))
        client.faults.gate = intervention
        found = set(await listed(client.store, "/a/b"))
        assert found in (old, new), number
        seen.add(found == new)
        if not intervention.done:
            break
        number += 1
    assert seen == {False, True}


async def test_what_is_created_after_a_rename_above_the_top_is_not_listed_at_the_old_path(
    request: pytest.FixtureRequest,
) -> None:
    """The creation changes nothing in the directories that the listing visits again."""
    old = {"/a/b/c", "/a/b/c/f", "/a/b/g"}
    number, missing = 0, 0
    while True:
        there = await TreeVolume(f"{request.node.name} {number}").start(*PATHS)
        client, other = there.client(), there.client()
        await listed(client.store, "/a/b")

        async def move_and_create(there: TreeVolume = there, other: Client = other) -> None:
            await other.rename("/a", "/old")
            await there.put("/old/b/c/new", "/old/b/new")

        intervention = Intervention(number, move_and_create)
        client.faults.gate = intervention
        try:
            assert set(await listed(client.store, "/a/b")) == old, number
        except PathNotFoundError:
            missing += 1
        if not intervention.done:
            break
        number += 1
    assert missing == number > 2


async def test_a_directory_that_was_listed_at_two_paths_invalidates_the_listing(
    request: pytest.FixtureRequest,
) -> None:
    """DynamoDB may show the effects of a rename one after the other, with unchanged stamps."""
    view = SnapshotView((await volume(request)).client().store)
    entry = await view.get("/a/b")
    assert entry is not None
    directory = view.keys.directory(entry)
    for listed_at in (directory, directory):
        assert [page async for page in view.children(listed_at)]
    assert await view.is_unchanged()
    assert [page async for page in view.children(replace(directory, path="/k/b"))]
    assert not await view.is_unchanged()


async def test_a_directory_that_was_seen_in_two_states_invalidates_the_listing(
    request: pytest.FixtureRequest,
) -> None:
    """An entry that was looked up below the directory before a rename is no longer at its path,
    even if the directory is in the last of these states when it is read again."""
    there = await volume(request)
    view, other = SnapshotView(there.client().store), there.client()
    assert await view.get("/a/b/g") is not None
    assert await view.get("/n") is not None
    await other.rename("/a", "/old")
    await other.rename("/old", "/a")
    assert await view.get("/a/b/c/f") is not None
    assert not await view.is_unchanged()
    again = SnapshotView(there.client().store)
    assert [await again.get(path) is not None for path in ("/a/b/g", "/a/b/c/f")] == [True, True]
    assert await again.is_unchanged()
