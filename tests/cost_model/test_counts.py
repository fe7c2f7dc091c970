"""The model's counts are those of real runs, on trees of several shapes and suffix counts, in both
layouts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from s3k_async._core.concurrency import run_all
from s3k_async._core.runtime import SYSTEM
from s3k_async.client import S3kClient
from s3k_async.config import Tuning
from s3k_async.cost_model import (
    SINGLE_VERBS,
    ChildCount,
    LaidTree,
    TreeShape,
    VerbArguments,
    Workload,
    deletion,
    first_reads,
    lay_out,
    listing,
    loading,
    mixed,
    on_files,
    on_tree,
    reclamation,
    renaming,
    single,
)
from s3k_async.cost_model.service_limits import Service
from s3k_async.layouts.tree.trash_items import SETTLE_MS
from s3k_async.model import LayoutName
from s3k_async.namespace import directories
from s3k_async.table.keys import Directory
from s3k_async.volumes import init_volume
from tests.cost_model.counting import (
    LAYOUTS,
    MEMORY,
    Counts,
    client_of,
    laid,
    made,
    plant,
    predicted,
)
from tests.engines.volumes import VolumeMaker, volume_backends

SERVICE = Service()
both = pytest.mark.parametrize("layout", LAYOUTS)

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


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uploads take no time: after five seconds, chains would be confirmed again."""
    monkeypatch.setattr(directories, "CONFIRMED_SECONDS", 3600.0)


@pytest.mark.parametrize("suffix_count", [1, pytest.param(3, marks=pytest.mark.slow), 10])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("verb", ["list", "rename", "delete", "rename plainly", "delete plainly"])
@both
async def test_trees(layout: LayoutName, verb: str, shape: str, suffix_count: int) -> None:
    async with client_of(suffix_count, layout) as client:
        await plant(client, "/in/tree", SHAPES[shape])
        tree = await laid(client, "/in/tree", MEMORY)
        assert (tree.files, tree.layout, tree.above) == (len(SHAPES[shape]), layout, 1)
        with client.count() as counter:
            match verb:
                case "list":
                    found = [status async for status in client.list("/in/tree", recursive=True)]
                    assert len(found) == tree.files + tree.directories - 1
                    work = listing(tree, SERVICE)
                case "rename" | "rename plainly":
                    await client.rename("/in/tree", "/in/moved", atomic=verb == "rename")
                    work = renaming(tree, SERVICE, atomic=verb == "rename")
                case _:
                    await client.delete("/in/tree", recursive=True, atomic=verb == "delete")
                    work = deletion(tree, SERVICE, atomic=verb == "delete")
            counts = await made(client, counter)
    if layout == "path" and verb.endswith("plainly"):
        # Directories that are changed at the same time share objects of the log.
        within_bounds(work, counts, {"PutObject"})
    else:
        assert predicted(work) == counts


@pytest.mark.parametrize("suffix_count", [1, 3, 10])
@pytest.mark.parametrize("shape", SHAPES)
async def test_reclamation(shape: str, suffix_count: int) -> None:
    async with client_of(suffix_count, "tree") as client:
        await plant(client, "/in/tree", SHAPES[shape])
        tree = await laid(client, "/in/tree", MEMORY)
        await client.delete("/in/tree", recursive=True)
        with client.count() as counter:
            assert await reclaim(client) == (tree.files, tree.directories)
            assert reclaimed(tree) == await made(client, counter)


def test_nothing_is_reclaimed_in_layout_path() -> None:
    assert reclamation(lay_out(TreeShape(100), 4, SERVICE), SERVICE) == Workload(SERVICE.latency)


@volume_backends("dynoxide+seaweedfs")
@pytest.mark.parametrize("suffix_count", [1, pytest.param(4, marks=pytest.mark.slow)])
@both
async def test_trees_on_an_engine(
    new_volume: VolumeMaker, suffix_count: int, layout: LayoutName
) -> None:
    """It cuts pages by bytes: 900 items of more than a kilobyte in one partition are two."""
    config = new_volume(suffix_count=suffix_count, layout=layout)
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
            assert predicted(renaming(tree, SERVICE)) == await made(client, counter)
        moved = await laid(client, "/in/moved", SERVICE)
        with client.count() as counter:
            await client.delete("/in/moved", recursive=True)
            assert predicted(deletion(moved, SERVICE)) == await made(client, counter)
        if layout == "tree":
            with client.count() as counter:
                assert await reclaim(client) == (moved.files, moved.directories)
                assert reclaimed(moved) == await made(client, counter)


@pytest.mark.parametrize("target", ["/moved", "/a/b/c/moved"])
@pytest.mark.parametrize("source", ["/tree", "/in/here/tree"])
@both
async def test_renames_to_elsewhere(layout: LayoutName, source: str, target: str) -> None:
    async with client_of(3, layout) as client:
        await client.makedirs("/a/b/c")
        await client.stat("/a/b/c")
        await plant(client, source, SHAPES["two levels"])
        tree = await laid(client, source, MEMORY)
        with client.count() as counter:
            await client.rename(source, target)
            here = (source, target) == ("/tree", "/moved")
            parents = None if here else target.count("/") - 1
            work = renaming(tree, SERVICE, target_parents=parents)
            assert predicted(work) == await made(client, counter)


@both
async def test_the_root_has_no_item_to_read(layout: LayoutName) -> None:
    async with client_of(3, layout) as client:
        await plant(client, "/tree", SHAPES["mixed"])
        tree = await laid(client, "/", MEMORY)
        with client.count() as counter:
            found = [status async for status in client.list("/", recursive=True)]
            assert len(found) == tree.files + tree.directories - 1
            assert predicted(listing(tree, SERVICE)) == await made(client, counter)


@pytest.mark.parametrize("known", [False, True], ids=["new client", "parent known"])
@pytest.mark.parametrize("parents", [0, 1, 4])
@pytest.mark.parametrize("verb", SINGLE_VERBS)
@both
async def test_single_verbs(layout: LayoutName, verb: str, parents: int, known: bool) -> None:
    directory = "".join(f"/d{number}" for number in range(parents))
    path = f"{directory}/file"
    async with client_of(4, layout) as maker:
        await maker.makedirs(directory or "/")
        if verb not in {"write", "makedirs"}:
            await maker.write(path, b"x" * 120)
        async with S3kClient(config=maker.config) as client:
            if known and parents:
                await client.makedirs(directory)
            with client.count() as counter:
                await run_single(client, verb, path)
                subject = VerbArguments(
                    parents,
                    file_bytes=120,
                    tuning=client.config.tuning,
                    known_parent=known,
                    layout=layout,
                )
                work = single(verb, subject, SERVICE)
                if layout == "tree" and not known and verb != "makedirs":
                    work.get(times=ChildCount.of(parents))  # each directory once, to know its id
                assert predicted(work) == await made(client, counter)


@pytest.mark.parametrize(
    "files",
    [SHAPES["two levels"], ["f"], [f"a/d{number}/f" for number in range(130)]],
    ids=["two levels", "one file", "many directories"],
)
@pytest.mark.parametrize("verb", ["list", "rename", "delete", "load", "stat", "write"])
async def test_a_new_client_in_layout_tree(verb: str, files: list[str]) -> None:
    """It reads each directory once to know its id, and then as any other client."""
    async with client_of(3, "tree") as maker:
        if verb in {"load", "write"}:
            await directories_of(maker, "/in/here/tree", files)
        else:
            await plant(maker, "/in/here/tree", files)
        paths = [f"/in/here/tree/{file}" for file in files]
        tree = None if verb in {"load", "write"} else await laid(maker, "/in/here/tree", MEMORY)
        async with S3kClient(config=maker.config) as client:
            await client._volume().store.touch(Directory.at("/"))
            with client.count() as counter:
                match verb:
                    case "list":
                        assert [each async for each in client.list("/in/here/tree", recursive=True)]
                    case "rename":
                        await client.rename("/in/here/tree", "/in/here/moved")
                    case "delete":
                        await client.delete("/in/here/tree", recursive=True)
                    case "load":
                        await client.write_many([(path, b"1") for path in paths])
                    case _:
                        for path in paths:
                            await run_single(client, verb, path)
                counts = await made(client, counter)
        tree = tree or await laid(maker, "/in/here/tree", MEMORY)
        subject = VerbArguments(3, file_bytes=1, tuning=maker.config.tuning)
        work = on_tree(verb, tree, subject, SERVICE)
        work.precede(first_reads(verb, tree, SERVICE))
        uncertain = {"load": {"BatchGetItem"}, "write": {"GetItem", "PutObject"}}
        within_bounds(work, counts, uncertain.get(verb, {"GetItem"}))


@pytest.mark.parametrize("missing", [1, 2, 4, 95])
@pytest.mark.parametrize("existing", [0, 1, 3])
@both
async def test_makedirs_below_a_directory(layout: LayoutName, existing: int, missing: int) -> None:
    directory = "".join(f"/d{number}" for number in range(existing))
    async with client_of(4, layout) as client:
        await client.makedirs(directory or "/")
        await client.stat(directory or "/")
        with client.count() as counter:
            await client.makedirs(directory + "/new" * missing)
            subject = VerbArguments(existing + missing - 1, missing=missing, layout=layout)
            assert predicted(single("makedirs", subject, SERVICE)) == await made(client, counter)


async def run_single(client: S3kClient, verb: str, path: str, content: bytes = b"x" * 120) -> None:
    match verb:
        case "stat":
            await client.stat(path)
        case "read":
            await client.read(path)
        case "write" | "overwrite":
            await client.write(path, content)
        case "rename-file":
            await client.rename(path, f"{path}-renamed")
        case "delete-file":
            await client.delete(path)
        case "makedirs":
            await client.makedirs("/new" + path.rpartition("/")[0])


@pytest.mark.parametrize("shape", ["one file", "flat", "two levels", "deep", "mixed"])
@pytest.mark.parametrize("top", ["/", "/in/tree"])
@both
async def test_loading(layout: LayoutName, shape: str, top: str) -> None:
    """Into directories that are there; one window, of which everything is certain."""
    files = SHAPES[shape]
    async with client_of(5, layout) as maker:
        known = await directories_of(maker, top, files)
        async with S3kClient(config=maker.config) as client:
            if layout == "tree":
                await client.stat_many(known)
            with client.count() as counter:
                result = await client.write_many([(f"{top}/{file}", b"12345") for file in files])
                assert (result.files, result.failures) == (len(files), ())
                counts = await made(client, counter)
        work = loading(await laid(maker, top, MEMORY), SERVICE, maker.config.tuning)
        assert predicted(work) == counts


@pytest.mark.parametrize("files_each", [3, 60, 130])
async def test_loading_into_several_directories_in_layout_tree(files_each: int) -> None:
    """Each batch has the directories of its files: how many it takes depends on where it ends."""
    files = [f"a/d{day}/part-{n:03}" for day in range(7) for n in range(files_each)]
    async with client_of(5, "tree") as maker:
        known = await directories_of(maker, "/in/tree", files)
        async with S3kClient(config=maker.config) as client:
            await client.stat_many(known)
            with client.count() as counter:
                await client.write_many([(f"/in/tree/{file}", b"12345") for file in files])
                counts = await made(client, counter)
        work = loading(await laid(maker, "/in/tree", MEMORY), SERVICE, maker.config.tuning)
    within_bounds(work, counts, {"BatchGetItem"})


@both
async def test_loading_in_several_windows(layout: LayoutName) -> None:
    """What depends on how far one window is when the next begins is within bounds; the rest is
    certain."""
    files = [f"day={number // 700}/part-{number}" for number in range(3300)]
    async with client_of(5, layout) as maker:
        known = await directories_of(maker, "/in", files)
        async with S3kClient(config=maker.config) as client:
            if layout == "tree":
                await client.stat_many(known)
            with client.count() as counter:
                await client.write_many([(f"/in/{file}", b"12345") for file in files])
                counts = await made(client, counter)
        work = loading(await laid(maker, "/in", MEMORY), SERVICE, maker.config.tuning)
    within_bounds(work, counts, {"GetItem", "BatchGetItem"})


@pytest.mark.parametrize("verb", ["write", "overwrite", "stat"])
@both
async def test_many_single_calls_at_once_are_within_bounds(layout: LayoutName, verb: str) -> None:
    async with client_of(3, layout) as maker:
        paths = [f"/in/{'ab'[number % 2]}/{number}" for number in range(300)]
        known = await directories_of(maker, "/in", ["a/x", "b/x"])
        if verb != "write":
            await maker.write_many([(path, b"12345") for path in paths])
        tuning = replace(maker.config.tuning, max_concurrency=32)
        async with S3kClient(config=replace(maker.config, tuning=tuning)) as client:
            if layout == "tree":
                await client.stat_many(known)
            with client.count() as counter:
                await run_all(lambda path: run_single(client, verb, path), paths, limit=32)
                counts = await made(client, counter)
        tree = await laid(maker, "/in", MEMORY)
        subject = VerbArguments(2, file_bytes=5, tuning=maker.config.tuning)
        work = on_files(verb, tree, subject, SERVICE)
    uncertain = {"write": {"GetItem", "PutObject"}, "overwrite": {"PutObject"}, "stat": set()}
    within_bounds(work, counts, uncertain[verb])


@both
async def test_a_mixture(layout: LayoutName) -> None:
    calls = {"stat": 35, "list": 5, "overwrite": 35, "rename": 5, "delete": 5}
    files = SHAPES["two levels"]
    days = [f"/in/tree/day={day}" for day in range(5)]
    async with client_of(1, layout) as maker:
        await plant(maker, "/in/tree", files)
        tree = await laid(maker, "/in/tree", MEMORY)
        async with S3kClient(config=maker.config) as client:
            await client._volume().store.touch(Directory.at("/"))
            if layout == "tree":
                await client.stat_many(days)
            with client.count() as counter:
                for verb in ("stat", "overwrite"):
                    for file in files:
                        await run_single(client, verb, f"/in/tree/{file}", b"")
                for day in days:
                    assert len([each async for each in client.list(day, recursive=True)]) == 7
                    await client.rename(day, f"{day}-2")
                    await client.delete(f"{day}-2", recursive=True)
                counts = await made(client, counter)
        subject = VerbArguments.below(tree, maker.config.tuning)
        work, later = mixed(calls, tree, subject, SERVICE)
        # The model takes the calls for concurrent ones, which share objects of the log.
        within_bounds(work, counts, {"PutObject"})
        assert bool(later.requests) == (layout == "tree")


@both
def test_a_mixture_makes_single_directories(layout: LayoutName) -> None:
    tree = lay_out(TreeShape(100, leaves=10), 4, SERVICE, layout)
    subject = VerbArguments.below(tree, Tuning())
    work, _ = mixed({"makedirs": 3}, tree, subject, SERVICE)
    one = single("makedirs", replace(subject, missing=1), SERVICE)
    logged = work.requests.pop(("log", "PutObject"))
    assert logged.high == one.requests.pop(("log", "PutObject")).likely * 3
    assert work.requests == {key: number * 3 for key, number in one.requests.items()}


async def directories_of(maker: S3kClient, top: str, files: list[str]) -> list[str]:
    """Make the directories of files below a top, and return them."""
    below = sorted({file.rpartition("/")[0] for file in files} - {""})
    directories = [top, *(f"{top.rstrip('/')}/{directory}" for directory in below)]
    for directory in directories:
        await maker.makedirs(directory)
    return directories


async def reclaim(client: S3kClient) -> tuple[int, int]:
    """The files and directories that two runs of garbage collection reclaim."""
    trash = client._volume().store.layout.trash()
    files = directories = 0
    for later in (0, SETTLE_MS + 1):

        async def clock(later: int = later) -> int:
            return SYSTEM.now_ms() + 1 + later

        result = await trash.collect(clock, retention_ms=0)
        assert not result.failures
        files, directories = files + result.files, result.directories
    return files, directories


def reclaimed(tree: LaidTree) -> Counts:
    """The requests of a reclamation, and those with which two runs read the trash."""
    work = reclamation(tree, SERVICE)
    work.query(ChildCount.of(2 * tree.suffix_count), 0)
    return predicted(work)


def within_bounds(work: Workload, counts: Counts, uncertain: set[str]) -> None:
    assert {(part, name) for part in counts for name in counts[part]} == set(work.requests)
    for (part, name), number in work.requests.items():
        assert number.low <= counts[part][name] <= number.high, (part, name)
        assert number.exact or name in uncertain


def test_work_of_nothing_is_nothing() -> None:
    assert predicted(Workload(SERVICE.latency)) == {}
