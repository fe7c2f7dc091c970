"""Changes of directories by several clients at once: every outcome is that of some order, and every
directory is at one place, to which a path leads."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass

import pytest

from s3k_async.backends.ports.interception import TableStore
from s3k_async.errors import (
    ConflictError,
    DirectoryNotEmptyError,
    PathNotFoundError,
)
from s3k_async.model import Content
from s3k_async.testing import Call
from tests.contracts.subjects import params
from tests.engines.volumes import fresh_name
from tests.layouts.interleavings import interleavings, outcome_of
from tests.layouts.moves import TRASH, Move, Restoration, require_explained, tree_of
from tests.layouts.trees import KEYS, Client, TreeVolume
from tests.races.arena import seed_of_run
from tests.races.operations import Outcome


async def begin(
    volume: TreeVolume, client: Client, verb: str, path: str, target: str, *, warm: bool
) -> tuple[Move, Awaitable[object]]:
    """A call that is not awaited yet; `warm`: its client has read both paths."""
    if warm and target:
        await client.store.get(target)
    if verb == "restore":
        (trashed,) = await volume.trashed()
        move: Move = Restoration(f"{TRASH}/{trashed.entry.id}", target)
        return move, client.changes.restore(trashed, target)
    if warm:
        await client.store.get(path)
    if verb == "rename":
        return Move(path, target), client.rename(path, target)
    entry = await volume.client().need(path)
    return Move(path, f"{TRASH}/{entry.id}", entry.id), client.layout.delete_directory(entry)


@dataclass(frozen=True)
class Scene:
    """Entries, directories that are deleted before, and the changes that are made at once."""

    paths: Sequence[str]
    changes: Sequence[tuple[str, str, str]]
    """Verb, path and target; empty for none."""
    succeed: int | None = None
    """How many of them succeed, if it is the same in every order."""
    deleted: str = ""


def renames(*pairs: tuple[str, str]) -> list[tuple[str, str, str]]:
    return [("rename", source, target) for source, target in pairs]


TREE = ("/a/", "/a/b/", "/a/b/c/", "/a/b/c/f", "/z/", "/z/y/", "/z/h")
PAIRS = {
    "into each other": Scene(("/a/", "/b/"), renames(("/a", "/b/a"), ("/b", "/a/b")), 1),
    "below each other": Scene(
        ("/a/", "/a/x/", "/b/", "/b/y/"), renames(("/a", "/b/y/a"), ("/b", "/a/x/b")), 1
    ),
    "into each other, below others": Scene(
        ("/p/", "/p/a/", "/q/", "/q/b/"), renames(("/p/a", "/q/b/a"), ("/q/b", "/p/a/b")), 1
    ),
    "an ancestor below what it contains": Scene(
        TREE, renames(("/a/b", "/z/y/b"), ("/z", "/a/b/z")), 1
    ),
    "from one source": Scene(TREE, renames(("/a/b", "/z/b"), ("/a/b", "/z/y/b")), 1),
    "to one target": Scene(TREE, renames(("/a/b", "/q"), ("/z/y", "/q")), 1),
    "a directory and its child": Scene(TREE, renames(("/a", "/q"), ("/a/b", "/z/b"))),
    "a directory and the target of another": Scene(
        TREE, renames(("/z/y", "/q"), ("/a/b", "/z/y/b"))
    ),
    "an ancestor of both paths": Scene(TREE, renames(("/a", "/q"), ("/a/b/c", "/a/c"))),
    "one after another": Scene(TREE, renames(("/a/b", "/z/b"), ("/z/b", "/q"))),
    "to a place that becomes free": Scene(TREE, renames(("/z/y", "/q"), ("/a/b", "/z/y"))),
    "delete the source": Scene(TREE, [("rename", "/a/b", "/z/b"), ("delete", "/a/b", "")]),
    "delete the parent of the source": Scene(
        TREE, [("rename", "/a/b", "/z/b"), ("delete", "/a", "")]
    ),
    "delete an ancestor of the source": Scene(
        TREE, [("rename", "/a/b/c", "/z/c"), ("delete", "/a", "")]
    ),
    "delete an ancestor of source and target": Scene(
        TREE, [("rename", "/a/b/c", "/a/b/d"), ("delete", "/a", "")]
    ),
    "delete the parent of the target": Scene(
        TREE, [("rename", "/a/b", "/z/y/b"), ("delete", "/z/y", "")]
    ),
    "delete an ancestor of the target": Scene(
        TREE, [("rename", "/a/b", "/z/y/b"), ("delete", "/z", "")]
    ),
    "delete twice": Scene(TREE, [("delete", "/a", ""), ("delete", "/a", "")], 1),
    "delete a directory and its child": Scene(TREE, [("delete", "/a", ""), ("delete", "/a/b", "")]),
    "delete below the root": Scene(TREE, [("delete", "/a/b", ""), ("delete", "/z/y", "")], 2),
    "restore twice": Scene(
        TREE, [("restore", "", "/a/b"), ("restore", "", "/z/b")], 1, deleted="/a/b"
    ),
    "restore twice to one place": Scene(
        TREE, [("restore", "", "/a/b"), ("restore", "", "/a/b")], 1, deleted="/a/b"
    ),
    "restore below a directory that is renamed": Scene(
        TREE, [("restore", "", "/z/y/b"), ("rename", "/z/y", "/a/y")], 2, deleted="/a/b"
    ),
    "restore below a directory that is deleted": Scene(
        TREE, [("restore", "", "/z/y/b"), ("delete", "/z/y", "")], 2, deleted="/a/b"
    ),
    "restore below an ancestor that is deleted": Scene(
        TREE, [("restore", "", "/z/y/b"), ("delete", "/z", "")], 2, deleted="/a/b"
    ),
    "restore to a place that is taken": Scene(
        TREE, [("restore", "", "/a/b"), ("rename", "/z/y", "/a/b")], 1, deleted="/a/b"
    ),
    "restore beside a deletion in the same directory": Scene(
        TREE, [("restore", "", "/z/b"), ("delete", "/z/y", "")], 2, deleted="/a/b"
    ),
}
MANY = {
    "three into each other": Scene(
        ("/a/", "/b/", "/c/"), renames(("/a", "/b/a"), ("/b", "/c/b"), ("/c", "/a/c")), 2
    ),
    "three of a circle and a deletion": Scene(
        TREE, [("rename", "/a/b", "/z/y/b"), ("rename", "/z", "/a/z"), ("delete", "/a", "")]
    ),
    "restore, delete beside it and move": Scene(
        TREE,
        [("restore", "", "/z/b"), ("delete", "/z/y", ""), ("rename", "/a", "/z/a")],
        3,
        deleted="/a/b",
    ),
}
FIVE = Scene(
    tuple(f"/{name}/" for name in "abcde"),
    renames(*((f"/{one}", f"/{two}/{one}") for one, two in zip("abcde", "bcdea", strict=True))),
)


def require_successes(scene: Scene, outcomes: Sequence[Outcome]) -> None:
    """At least one change succeeds, since changes fail for those of others only."""
    succeeded = outcomes.count(None)
    assert succeeded == scene.succeed if scene.succeed is not None else succeeded > 0


REQUESTS = ("get", "get_many", "transact")
"""What is ordered. The other requests touch the record of the root before it is first needed."""


async def play_all(scene: Scene, *, warm: bool, methods: Sequence[str] = REQUESTS) -> int:
    """Every order of the requests; how many there are."""
    count = 0
    async for run in interleavings(*scene.paths, ordered=lambda call: call.method in methods):
        count += 1
        volume = run.volume
        if scene.deleted:
            await volume.client().delete(scene.deleted)
        start = await tree_of(volume)
        clients = [run.client() for _ in scene.changes]
        calls = [
            await begin(volume, client, *change, warm=warm)
            for client, change in zip(clients, scene.changes, strict=True)
        ]
        moves = [move for move, _ in calls]
        works = [(client, call) for client, (_, call) in zip(clients, calls, strict=True)]
        outcomes = await run.outcomes(*works)
        await require_explained(volume, start, moves, outcomes)
        require_successes(scene, outcomes)
    return count


@pytest.mark.parametrize("name", PAIRS)
async def test_two_clients_in_every_order_of_their_requests(name: str) -> None:
    assert await play_all(PAIRS[name], warm=True) > 1


@pytest.mark.parametrize(
    "name",
    [
        "into each other",
        "one after another",
        "a directory and its child",
        "delete an ancestor of the source",
        "restore twice",
    ],
)
async def test_two_clients_that_read_level_by_level(name: str) -> None:
    assert await play_all(PAIRS[name], warm=False) > 1


@pytest.mark.parametrize("source", ["/a/b", "/a/b/c", "/a/b/c/d"])
@pytest.mark.parametrize("deleted", ["/a", "/a/b"])
async def test_no_directory_leaves_a_deleted_one(source: str, deleted: str) -> None:
    """A rename that has read its paths before the deletion is refused: what is below a deleted
    directory may be reclaimed at once."""
    volume = await TreeVolume(fresh_name("races")).start(*TREE, "/a/b/c/d/")
    renamer, deleter = volume.client(), volume.client()
    before = await volume.tree()

    async def delete(call: Call) -> None:
        if call.method == "transact" and await deleter.store.get(deleted) is not None:
            await deleter.delete(deleted)

    renamer.faults.gate = delete
    with pytest.raises(PathNotFoundError):
        await renamer.rename(source, "/z/q")
    place = f"{TRASH}/{before[deleted]}"
    assert (await volume.tree())[place + source.removeprefix(deleted)] == before[source]


@pytest.mark.parametrize("name", MANY)
async def test_three_clients_in_every_order_of_their_requests(name: str) -> None:
    assert await play_all(MANY[name], warm=True) > 6


async def test_five_clients_in_every_order_of_their_transactions() -> None:
    """Each renames its directory into the next one's, in a circle."""
    assert await play_all(FIVE, warm=True, methods=["transact"]) >= 120


async def create(client: Client, path: str) -> None:
    target = await client.store.prepare(path)
    runtime = client.store.runtime
    content = Content(runtime.physical_key(target.object_id), 3, "e", "xxh128:" + "0" * 32)
    await client.store.publish(target, content, overwrite=False)


async def test_the_removal_of_an_empty_directory_and_a_creation_below_it_in_every_order() -> None:
    """The file exists afterwards, whether the directory was removed before or kept. The creator may
    make the removal fail with ConflictError, after which `S3kClient.delete` begins again."""
    seen = set()

    def ordered(call: Call) -> bool:
        """All but the transaction record of the removal, and the partition without the file."""
        return not call.key.startswith("s3k:job") and (
            call.method != "query" or call.key == partition
        )

    partition = ""
    async for run in interleavings("/z/", "/z/y/", ordered=ordered):
        volume = run.volume
        remover, creator = run.client(), run.client()
        entry = await remover.need("/z/y")
        await creator.store.get("/z/y/f")
        partition = KEYS.key(f"{entry.id}/f").partition
        outcomes = await run.outcomes(
            (remover, remover.store.remove_directory(entry)), (creator, create(creator, "/z/y/f"))
        )
        assert outcomes[1] is None
        tree = await volume.tree()
        assert tree.keys() == {"/z", "/z/y", "/z/y/f"}
        kept = tree["/z/y"] == entry.id
        assert outcomes[0] in ((DirectoryNotEmptyError, ConflictError) if kept else (None,))
        assert [marker.id for marker in await volume.markers()] == ([] if kept else [entry.id])
        assert [each.path for each in await volume.stored() if each.pending] == []
        seen.add(kept)
    assert seen == {True, False}


@pytest.mark.parametrize("table", params(("memory", "sqlite", "dynoxide")), indirect=True)
@pytest.mark.parametrize("name", ["into each other", "three into each other", "five"])
async def test_clients_at_the_same_time(table: TableStore, name: str, rounds: int) -> None:
    scene = {**PAIRS, **MANY, "five": FIVE}[name]
    seed = seed_of_run()
    for number in range(rounds):
        choice = random.Random(f"{seed}-{number}")
        top = f"/{fresh_name('round')}"
        volume = TreeVolume(fresh_name("races"), table, real_time=True)
        await volume.start(f"{top}/", *(top + path for path in scene.paths))
        start = await tree_of(volume)
        clients = [volume.client(busy_timeout=60.0) for _ in scene.changes]
        calls = [
            await begin(volume, client, verb, top + path, top + target, warm=choice.random() < 0.5)
            for client, (verb, path, target) in zip(clients, scene.changes, strict=True)
        ]

        async def after(delay: float, call: Awaitable[object]) -> Outcome:
            await asyncio.sleep(delay)
            return await outcome_of(call)

        delays = [choice.choice((0.0, choice.uniform(0.0, 0.02))) for _ in calls]
        outcomes = await asyncio.gather(
            *(after(delay, call) for delay, (_, call) in zip(delays, calls, strict=True))
        )
        await require_explained(volume, start, [move for move, _ in calls], outcomes)
        require_successes(scene, outcomes)
