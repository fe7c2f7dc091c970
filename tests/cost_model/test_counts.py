"""The model's counts are those of real runs, on trees of several shapes and suffix counts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from s3k_async._core.concurrency import run_all
from s3k_async.client import S3kClient
from s3k_async.cost_model import (
    SINGLE_VERBS,
    VerbArguments,
    Workload,
    deletion,
    listing,
    loading,
    on_every_file,
    renaming,
    single,
)
from s3k_async.cost_model.service_limits import Service
from s3k_async.table.keys import Directory
from s3k_async.volumes import init_volume
from tests.client.rig import memory_config
from tests.cost_model.counting import MEMORY, ONE_AT_A_TIME, laid, made, predicted
from tests.engines.volumes import VolumeMaker, volume_backends

SERVICE = Service()

SHAPES = {
    "empty": [],
    "one file": ["f"],
    "flat": [f"part-{number:05}" for number in range(260)],
    "two levels": [f"day={day}/part-{number}" for day in range(5) for number in range(7)],
    "uneven": [f"d{day}/part-{number}" for day in range(6) for number in range(day * day * 4)],
    "deep": ["a/b/c/d/e/f/g/file", "a/b/c/x", "a/b/c/d/y"],
    "mixed": [
        *(f"f{number}" for number in range(30)),
        *(f"d{number}/e{number}/f" for number in range(12)),
    ],
    "several pages": [f"{number:05}" for number in range(2100)],
}


@asynccontextmanager
async def client_of(suffix_count: int) -> AsyncIterator[S3kClient]:
    config = replace(memory_config(ONE_AT_A_TIME), suffix_count=suffix_count)
    await init_volume(config)
    async with S3kClient(config=config) as client:
        # Or the first change of a directory in the root would make a record.
        await client._volume().store.touch(Directory.at("/"))
        yield client


async def plant(client: S3kClient, top: str, files: list[str]) -> None:
    """Make a tree of empty files, past the parts that the tests count."""
    await client.makedirs(top)
    for directory in sorted({file.rpartition("/")[0] for file in files} - {""}):
        await client.makedirs(f"{top}/{directory}")
    seed = await client.write("/seed", b"")
    store = client._volume().store
    entry = await store.get(seed.path)
    assert entry is not None

    async def put(numbered: tuple[int, str]) -> None:
        number, file = numbered
        await store.restore(replace(entry, path=f"{top}/{file}", id=f"{number:036}"), None)

    await run_all(put, enumerate(files), limit=32)


@pytest.mark.parametrize("suffix_count", [1, 3, 10])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("verb", ["list", "rename", "delete", "rename plainly", "delete plainly"])
async def test_trees(verb: str, shape: str, suffix_count: int) -> None:
    async with client_of(suffix_count) as client:
        await plant(client, "/in/tree", SHAPES[shape])
        tree = await laid(client, "/in/tree", MEMORY)
        assert tree.files == len(SHAPES[shape])
        with client.count() as counter:
            match verb:
                case "list":
                    found = [status async for status in client.list("/in/tree", recursive=True)]
                    assert len(found) == tree.files + tree.directories - 1
                    work = listing(tree, SERVICE)
                case "rename" | "rename plainly":
                    await client.rename("/in/tree", "/in/moved", atomic=verb == "rename")
                    work = renaming(tree, SERVICE, target_parents=1, atomic=verb == "rename")
                case _:
                    await client.delete("/in/tree", recursive=True, atomic=verb == "delete")
                    work = deletion(tree, SERVICE, atomic=verb == "delete")
            assert predicted(work) == await made(client, counter)


@volume_backends("dynoxide+seaweedfs")
@pytest.mark.parametrize("suffix_count", [1, 4])
async def test_trees_on_an_engine(new_volume: VolumeMaker, suffix_count: int) -> None:
    """It cuts pages by bytes: 900 items of more than a kilobyte in one partition are two."""
    config = new_volume(suffix_count=suffix_count)
    await init_volume(config)
    files = [*SHAPES["mixed"], *(f"{number:01000}" for number in range(900))]
    async with S3kClient(config=config) as client:
        await plant(client, "/in/tree", files)
        tree = await laid(client, "/in/tree", SERVICE)
        assert (tree.files, tree.top.pages().likely > suffix_count) == (
            len(files),
            suffix_count == 1,
        )
        with client.count() as counter:
            found = [status async for status in client.list("/in/tree", recursive=True)]
            assert (len(found), predicted(listing(tree, SERVICE))) == (
                tree.files + tree.directories - 1,
                await made(client, counter),
            )
        with client.count() as counter:
            await client.rename("/in/tree", "/in/moved")
            assert predicted(renaming(tree, SERVICE, target_parents=1)) == await made(
                client, counter
            )
        moved = await laid(client, "/in/moved", SERVICE)
        with client.count() as counter:
            await client.delete("/in/moved", recursive=True)
            assert predicted(deletion(moved, SERVICE)) == await made(client, counter)


@pytest.mark.parametrize("target", ["/moved", "/a/b/c/moved"])
async def test_renames_to_elsewhere(target: str) -> None:
    async with client_of(3) as client:
        await client.makedirs("/a/b/c")
        await plant(client, "/tree", SHAPES["two levels"])
        tree = await laid(client, "/tree", MEMORY)
        with client.count() as counter:
            await client.rename("/tree", target)
            parents = target.count("/") - 1
            work = renaming(
                tree, SERVICE, target_parents=parents, parents_touched=2 if parents else 1
            )
            assert predicted(work) == await made(client, counter)


async def test_the_root_has_no_item_to_read() -> None:
    async with client_of(3) as client:
        await plant(client, "/tree", SHAPES["mixed"])
        tree = await laid(client, "/", MEMORY)
        with client.count() as counter:
            found = [status async for status in client.list("/", recursive=True)]
            assert len(found) == tree.files + tree.directories - 1
            assert predicted(listing(tree, SERVICE)) == await made(client, counter)


@pytest.mark.parametrize("known", [False, True], ids=["new client", "parent known"])
@pytest.mark.parametrize("parents", [0, 1, 4])
@pytest.mark.parametrize("verb", SINGLE_VERBS)
async def test_single_verbs(verb: str, parents: int, known: bool) -> None:
    directory = "".join(f"/d{number}" for number in range(parents))
    path = f"{directory}/file"
    async with client_of(4) as maker:
        await maker.makedirs(directory or "/")
        if verb not in {"write", "makedirs"}:
            await maker.write(path, b"x" * 120)
        async with S3kClient(config=maker.config) as client:
            if known and parents:
                await client.makedirs(directory)
            with client.count() as counter:
                await run_single(client, verb, path)
                subject = VerbArguments(
                    parents, file_bytes=120, tuning=client.config.tuning, known_parent=known
                )
                assert predicted(single(verb, subject, SERVICE)) == await made(client, counter)


async def run_single(client: S3kClient, verb: str, path: str) -> None:
    match verb:
        case "stat":
            await client.stat(path)
        case "read":
            await client.read(path)
        case "write" | "overwrite":
            await client.write(path, b"x" * 120)
        case "rename-file":
            await client.rename(path, f"{path}-renamed")
        case "delete-file":
            await client.delete(path)
        case "makedirs":
            await client.makedirs("/new" + path.rpartition("/")[0])


@pytest.mark.parametrize("shape", ["one file", "flat", "two levels", "deep", "mixed"])
@pytest.mark.parametrize("top", ["/", "/in/tree"])
async def test_loading(shape: str, top: str) -> None:
    """Into directories that are there; one window, of which everything is certain."""
    files = SHAPES[shape]
    async with client_of(5) as maker:
        await maker.makedirs(top)
        for directory in sorted({file.rpartition("/")[0] for file in files} - {""}):
            await maker.makedirs(f"{top}/{directory}")
        async with S3kClient(config=maker.config) as client:
            with client.count() as counter:
                result = await client.write_many([(f"{top}/{file}", b"12345") for file in files])
                assert (result.files, result.failures) == (len(files), ())
                counts = await made(client, counter)
        tree = await laid(maker, top, MEMORY)
        work = loading(
            tree, SERVICE, maker.config.tuning, parents=top.count("/") if top != "/" else 0
        )
        assert predicted(work) == counts


async def test_loading_in_several_windows() -> None:
    """What depends on how far one window is when the next begins is within bounds; the rest is
    certain."""
    files = [f"day={number // 700}/part-{number}" for number in range(3300)]
    async with client_of(5) as maker:
        for day in range(5):
            await maker.makedirs(f"/in/day={day}")
        async with S3kClient(config=maker.config) as client:
            with client.count() as counter:
                await client.write_many([(f"/in/{file}", b"12345") for file in files])
                counts = await made(client, counter)
        work = loading(await laid(maker, "/in", MEMORY), SERVICE, maker.config.tuning)
    assert {(part, name) for part in counts for name in counts[part]} == set(work.requests)
    for (part, name), number in work.requests.items():
        assert number.low <= counts[part][name] <= number.high, (part, name)
        assert number.exact or name in {"GetItem", "BatchGetItem"}


async def test_many_single_writes_at_once_are_within_bounds() -> None:
    async with client_of(3) as maker:
        await maker.makedirs("/in/a")
        await maker.makedirs("/in/b")
        config = replace(maker.config, tuning=replace(maker.config.tuning, max_concurrency=32))
        paths = [f"/in/{'ab'[number % 2]}/{number}" for number in range(300)]
        async with S3kClient(config=config) as client:
            with client.count() as counter:
                await run_all(lambda path: client.write(path, b"12345"), paths, limit=32)
                counts = await made(client, counter)
        tree = await laid(maker, "/in", MEMORY)
        work = on_every_file(
            "write", tree, VerbArguments(2, file_bytes=5, tuning=maker.config.tuning), SERVICE
        )
    assert {(part, name) for part in counts for name in counts[part]} == set(work.requests)
    for (part, name), number in work.requests.items():
        assert number.low <= counts[part][name] <= number.high, (part, name)
        assert number.exact == (name != "GetItem")


def test_work_of_nothing_is_nothing() -> None:
    assert predicted(Workload(SERVICE.latency)) == {}
