"""Dumps between the layouts, and what a load into layout `tree` does by the ids of directories."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from anyio.lowlevel import checkpoint

from s3k_async import S3kClient
from s3k_async._core.runtime import Runtime
from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.ports.pagination import list_all
from s3k_async.config import VolumeConfig
from s3k_async.errors import (
    CorruptDataError,
    DirectoryNotEmptyError,
    InvalidPathError,
    PermissionDeniedError,
    S3kError,
)
from s3k_async.integrity.repair import repair_volume, verify_volume
from s3k_async.layouts.tree import path_index
from s3k_async.migrate import LoadResult, dump_directories, dump_volume, load_volume
from s3k_async.migrate.dump_format import FORMAT, DumpForm
from s3k_async.migrate.dump_reader import open_dump
from s3k_async.model import LayoutName
from s3k_async.table.keys import TRASH_ID
from s3k_async.table.stored_reader import ROOT_ENTRY
from s3k_async.testing import Call, Died, FaultPlan
from s3k_async.volumes import init_volume
from tests.engines.volumes import VolumeMaker, volume_backends
from tests.migrate.rig import (
    FILES,
    HURRIED,
    Lines,
    config,
    digest,
    entries,
    keys,
    made,
    opened,
    rewritten,
    share,
    stored,
)
from tests.support import after_call, under

ALL_AGES = -3600.0
"""A grace under which nothing is young."""
LATER = replace(HURRIED, now_ms=lambda: HURRIED.now_ms() + 100_000)
ways = pytest.mark.parametrize(
    ("first", "second"), [("path", "tree"), ("tree", "path"), ("tree", "tree")]
)


@pytest.fixture
def target(tmp_path: Path) -> str:
    return str(tmp_path / "volume.dump")


def text_of(path: str) -> str:
    return Path(path).read_text(encoding="ascii")


def put(path: str, text: str) -> None:
    Path(path).write_text(text, encoding="ascii")


def in_chunks_of(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("dump_format", "dump_jsonl", "dump_parquet", "dump"):
        monkeypatch.setattr(f"s3k_async.migrate.{module}.CHUNK", count)


async def dump(settings: VolumeConfig, target: str, **options: Any) -> None:
    async with opened(settings) as volume:
        await dump_volume(volume, target, **options)


async def load(target: str, other: VolumeConfig, source: VolumeConfig) -> LoadResult:
    async with opened(source) as volume:
        return await load_volume(target, other, bytes_from=volume, runtime=HURRIED)


async def load_shared(target: str, other: VolumeConfig, runtime: Runtime = HURRIED) -> LoadResult:
    """Load into a volume that has the bytes. Copies have other keys at each attempt, which fsck
    finds in the log of an interrupted load."""
    return await load_volume(target, other, check=True, runtime=runtime)


async def require_sound(settings: VolumeConfig, *, interrupted: bool = False) -> None:
    """Every item is in its place and visible, and fsck has no findings; after an interruption,
    nothing but segments of the log to finish, which changes no entry."""
    await keys(settings)
    found = await entries(settings)
    assert len(await stored(settings)) == len(found)
    async with opened(settings) as volume:
        if interrupted:
            report = await repair_volume(volume, dry_run=False, grace=ALL_AGES)
            assert {each.finding.kind for each in report.repairs} <= {"interrupted_change"}
        assert (await verify_volume(volume, grace=ALL_AGES, deep=True)).problems == []
    assert await entries(settings) == found


async def a_tree(settings: VolumeConfig, *paths: str) -> VolumeConfig:
    """A volume with these files, and their paths as content."""
    await init_volume(settings)
    async with S3kClient(config=settings) as fs:
        for path in paths:
            await fs.write(path, path.encode())
    return settings


async def contents(settings: VolumeConfig) -> dict[str, bytes]:
    async with S3kClient(config=settings) as fs:
        return {each.path: await fs.read(each.path) async for each in fs.find("/", type="file")}


# Both ways


@ways
@pytest.mark.parametrize("form", ["jsonl", "parquet"])
async def test_the_listing_of_a_loaded_volume_has_the_digest_of_the_dumped_one(
    first: LayoutName, second: LayoutName, form: DumpForm, target: str
) -> None:
    source, other = await made(config(4, layout=first)), config(9, layout=second)
    await dump(source, target, form=form)
    done = await load(target, other, source)
    assert await digest(other) == await digest(source)
    assert (done.made, done.new_ids) == (0, 0)
    await require_sound(other)
    async with S3kClient(config=other) as fs:
        assert await fs.read("/a/deep/er/3") == FILES["/a/deep/er/3"]
        await fs.rename("/a", "/new/a")
        assert await fs.read("/new/a/deep/er/3") == FILES["/a/deep/er/3"]
        await fs.delete("/new", recursive=True)
        assert not await fs.exists("/new")


@volume_backends("embedded", "dynoxide+seaweedfs")
async def test_there_and_back_through_both_layouts(new_volume: VolumeMaker, tmp_path: Path) -> None:
    volumes = [new_volume(layout=layout) for layout in ("path", "tree", "path")]
    await made(volumes[0])
    for number, (source, other) in enumerate(pairwise(volumes)):
        path = str(tmp_path / f"{number}.dump")
        await dump(source, path)
        await load(path, other, source)
    assert len({await digest(each) for each in volumes}) == 1


async def test_dumps_of_both_layouts_have_the_same_form(target: str) -> None:
    source = await a_tree(config(layout="path"), "/a/b/f")
    await dump(source, target)
    other = config(layout="tree")
    await load(target, other, source)
    names = []
    for settings in (source, other):
        await dump(settings, target)
        lines = [json.loads(line) for line in text_of(target).splitlines()]
        names.append([list(line) for line in lines])
        assert lines[0]["format"] == FORMAT
    assert names[0] == names[1]


async def test_directory_keys_in_a_dump_are_ignored(target: str) -> None:
    """A draft of layout `tree` wrote them."""
    source = await a_tree(config(layout="tree"), "/a/b/f")
    await dump(source, target)
    rewritten(target, lambda found: [{**entry, "directory": "x" * 36} for entry in found])
    for layout in ("path", "tree"):
        other = config(layout=layout)
        await load(target, other, source)
        assert await digest(other) == await digest(source)
        await require_sound(other)


async def test_what_is_in_the_trash_is_in_no_dump(target: str) -> None:
    source = await made(config(layout="tree"))
    assert len(await stored(source)) > len(await entries(source))
    await dump(source, target)
    found = [entry for chunk in open_dump(target).chunks() for entry in chunk]
    assert {entry.path for entry in found} == set(await entries(source))
    assert not any("trash" in entry.path for entry in found)


async def test_a_volume_with_a_trash_is_not_empty(target: str) -> None:
    source, other = await a_tree(config(layout="path"), "/f"), config(layout="tree")
    await dump(source, target)
    await a_tree(other, "/d/f")
    async with S3kClient(config=other) as fs:
        await fs.delete("/d", recursive=True)
    with pytest.raises(DirectoryNotEmptyError, match="trash counts"):
        await load(target, other, source)


async def test_a_path_that_has_become_too_long_is_not_dumped(target: str) -> None:
    """No volume could load it."""
    long = "/" + "d" * 1000
    source = await a_tree(config(layout="tree"), f"/a{long}{long}/f")
    put(target, "before")
    async with S3kClient(config=source) as fs:
        await fs.makedirs(long)
        await fs.rename("/a", f"{long}{long}")
        with pytest.raises(InvalidPathError, match="rename a directory above it"):
            await dump(source, target)
        assert text_of(target) == "before"
        assert os.listdir(os.path.dirname(target)) == [os.path.basename(target)]
        await fs.rename(f"{long}{long}", "/short")
    await dump(source, target)
    assert open_dump(target).verify().files == 1


# One id at two paths


def renamed_during_the_dump(found: Lines) -> Lines:
    """The directory `/a/d` with all below it, seen under `/b/d` too; its files have other ids
    there."""
    again = [
        {**line, "path": f"/b{line['path'][2:]}"}
        for line in found
        if line["path"].startswith("/a/d")
    ]
    for line in again:
        if not line["is_dir"]:
            line["id"] = other_id(line["id"])
            line["physical"] = f"{line['physical'].partition('=')[0]}={line['id']}"
    return [*found, *again]


def other_id(text: str) -> str:
    return f"{text[:-1]}{(int(text[-1], 16) + 1) % 16:x}"


async def share_twice(source: VolumeConfig, other: VolumeConfig) -> None:
    """The bytes, and those of the files that `renamed_during_the_dump` has under other ids."""
    await share(source, other)
    async with opened(other) as volume:
        async for info in list_all(volume.blobs):
            head, mark, object_id = info.key.partition(".id=")
            if mark:
                twin = f"{head}{mark}{other_id(object_id)}"
                await volume.blobs.put(twin, await volume.blobs.get(info.key))


async def load_twice(target: str, other: VolumeConfig, source: VolumeConfig) -> LoadResult:
    await share_twice(source, other)
    return await load_shared(target, other)


async def test_a_directory_at_two_paths_gets_an_id_for_the_later_one(target: str) -> None:
    source = await a_tree(config(layout="tree"), "/a/d/e/f", "/a/d/g", "/b/h")
    await dump(source, target)
    rewritten(target, renamed_during_the_dump)
    other = config(layout="tree")
    done = await load_twice(target, other, source)
    assert (done.new_ids, done.made) == (2, 0)
    wanted, found = await entries(source), await entries(other)
    assert found.keys() == {*wanted, "/b/d", "/b/d/e", "/b/d/e/f", "/b/d/g"}
    for path in wanted:
        assert found[path].id == wanted[path].id
    assert len({entry.id for entry in found.values()}) == len(found)
    await require_sound(other)
    async with S3kClient(config=other) as fs:
        await fs.delete("/a/d", recursive=True)
        assert {each.path async for each in fs.find("/b/d", type="file")} == {"/b/d/e/f", "/b/d/g"}


async def test_new_ids_are_the_same_in_every_load_of_a_dump(target: str, tmp_path: Path) -> None:
    source = await a_tree(config(layout="tree"), "/a/d/e/f", "/b/h")
    await dump(source, target)
    rewritten(target, renamed_during_the_dump)
    found = []
    for _ in range(2):
        other = config(layout="tree")
        await load_twice(target, other, source)
        found.append({path: entry.id for path, entry in (await entries(other)).items()})
    assert found[0] == found[1]


async def test_ids_are_compared_however_many_directories_there_are(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(path_index.PathIndex.__init__, "__defaults__", (2,))
    monkeypatch.setattr(path_index, "BUFFERED", 1)
    monkeypatch.setattr(dump_directories, "_KNOWN", 6)
    in_chunks_of(3, monkeypatch)
    source = await a_tree(config(layout="tree"), "/a/d/e/f", "/b/h", *(f"/{n}/f" for n in range(9)))
    await dump(source, target)
    rewritten(target, renamed_during_the_dump)
    other = config(layout="tree")
    assert (await load_twice(target, other, source)).new_ids == 2
    await require_sound(other)


@pytest.mark.parametrize("layout", ["path", "tree"])
async def test_a_file_at_two_paths_is_left_to_fsck(layout: LayoutName, target: str) -> None:
    """The load ended with an error of the log, and could never be finished."""
    source, other = await a_tree(config(layout="tree"), "/a/d/f", "/b/h"), config(layout=layout)
    await dump(source, target)
    rewritten(
        target,
        lambda found: [
            *found,
            *({**line, "path": "/b/f"} for line in found if line["path"] == "/a/d/f"),
        ],
    )
    await share(source, other)
    await load_shared(target, other)
    wanted = {"/a/d/f": b"/a/d/f", "/b/f": b"/a/d/f", "/b/h": b"/b/h"}
    assert await contents(other) == wanted
    async with opened(other) as volume:
        report = await repair_volume(volume, dry_run=False, grace=ALL_AGES)
        assert ("duplicate_id", "renumber") in {
            (each.finding.kind, each.finding.action) for each in report.repairs
        }
        assert (await verify_volume(volume, grace=ALL_AGES, deep=True)).problems == []
    assert await contents(other) == wanted
    found = await entries(other)
    assert len({entry.id for entry in found.values()}) == len(found)


async def test_layout_path_takes_directories_with_one_id_as_they_are(target: str) -> None:
    source = await a_tree(config(layout="tree"), "/a/d/f", "/b/h")
    await dump(source, target)
    rewritten(target, renamed_during_the_dump)
    other = config(layout="path")
    assert (await load_twice(target, other, source)).new_ids == 0
    found = await entries(other)
    assert found["/a/d"].id == found["/b/d"].id


@pytest.mark.parametrize("reserved", [ROOT_ENTRY.id, TRASH_ID])
async def test_the_ids_of_root_and_trash_are_refused(reserved: str, target: str) -> None:
    source, other = await a_tree(config(layout="path"), "/a/f"), config(layout="tree")
    await init_volume(other)
    await dump(source, target)
    rewritten(target, lambda found: [{**found[0], "id": reserved}, *found[1:]])
    with pytest.raises(CorruptDataError, match="invalid"):
        await load(target, other, source)
    assert await stored(other) == []


@pytest.mark.parametrize("known", [2, 100_000])
async def test_a_directory_that_is_in_the_dump_twice_is_refused(
    known: int, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its children would be in either."""
    in_chunks_of(4, monkeypatch)
    source, other = await a_tree(config(layout="path"), "/a/f", "/b/g"), config(layout="tree")
    await dump(source, target)

    def twice(found: Lines) -> Lines:
        first = next(line for line in found if line["path"] == "/a")
        return [*found, {**first, "id": other_id(first["id"])}]

    rewritten(target, twice)
    monkeypatch.setattr(dump_directories, "_KNOWN", known)
    with pytest.raises(CorruptDataError, match="twice"):
        await load(target, other, source)


# Parents


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
async def test_directories_that_are_no_longer_remembered_are_read_again(
    form: DumpForm, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_chunks_of(2, monkeypatch)
    monkeypatch.setattr(dump_directories, "_KNOWN", 2)
    files = [f"/{a}/{b}/{c}/f" for a in range(3) for b in range(2) for c in range(2)]
    source, other = await a_tree(config(layout="path"), *files), config(layout="tree")
    await dump(source, target, form=form)
    plan = FaultPlan()
    done = await under(plan, load(target, other, source))
    assert (done.made, done.new_ids) == (0, 0)
    assert await digest(other) == await digest(source)
    await require_sound(other)
    assert await contents(other) == await contents(source)


async def test_a_dump_of_a_path_brings_its_parents_along(target: str) -> None:
    source, other = await a_tree(config(layout="tree"), "/a/b/c/f"), config(layout="tree")
    await dump(source, target, path="/a/b/c")
    done = await load(target, other, source)
    assert (done.made, await contents(other)) == (2, {"/a/b/c/f": b"/a/b/c/f"})
    found, header = await entries(other), open_dump(target).header
    assert {found[path].mtime_ms for path in ("/a", "/a/b")} == {header.time_ms}
    await require_sound(other)


async def of_a_part(target: str) -> VolumeConfig:
    """A dump with more files than a batch of the table, and no parents of theirs."""
    source = config(2, layout="path")
    await init_volume(source)
    async with S3kClient(config=source) as fs:
        await fs.write_many([(f"/x/y/{number:02}", b"x") for number in range(60)])
    await dump(source, target, path="/x/y")
    rewritten(target, lambda found: [line for line in found if not line["is_dir"]])
    return source


async def test_files_that_were_loaded_before_their_parent_are_in_it_after_another_load(
    target: str,
) -> None:
    """With a new id at every attempt, they were in a directory that nothing led to."""
    source, other = await of_a_part(target), config(3, layout="tree")
    loads: list[Call] = []

    async def last(call: Call) -> None:
        """The batch with the parents comes after the others."""
        if call.method == "load":
            loads.append(call)
            if loads[0] is call:
                for _ in range(100):
                    await checkpoint()

    plan = FaultPlan(last)
    plan.fail_when(lambda call: call in loads[:1], PermissionDeniedError("no more"))
    await share(source, other)
    with pytest.raises(PermissionDeniedError):
        await under(plan, load_shared(target, other))
    loaded = await MemoryItems(other.name).scan(0, 1, limit=1000)
    assert any("physpath" in item for item in loaded.items)
    assert not any(item.get("isdir") for item in loaded.items)
    assert (await load_shared(target, other)).made == 2
    assert len(await entries(other)) == 62
    await require_sound(other, interrupted=True)


@pytest.mark.parametrize("moment", [pytest.param("before", marks=pytest.mark.slow), "after"])
async def test_a_load_that_makes_parents_and_dies_at_any_call_is_finished(
    moment: Any, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_chunks_of(4, monkeypatch)
    source = await a_tree(config(2, layout="tree"), "/a/d/e/f", "/a/d/g", "/b/h")
    await dump(source, target)

    def without_a(found: Lines) -> Lines:
        """And with one directory under two paths."""
        return [line for line in renamed_during_the_dump(found) if line["path"] != "/a"]

    rewritten(target, without_a)
    calls, other = FaultPlan(), config(3, layout="tree")
    await share_twice(source, other)
    await under(calls, load_shared(target, other))
    wanted = None
    for number in range(1, len(calls.calls) + 1):
        other, plan = config(3, layout="tree"), FaultPlan()
        await share_twice(source, other)

        def is_late(call: Call, number: int = number) -> bool:
            return call.number >= number

        plan.fail_when(is_late, Died("died"), when=moment)
        plan.fail_when(after_call(number), Died("dead"), times=10**9)
        with suppress(Died, BaseExceptionGroup):
            await under(plan, load_shared(target, other))
        with suppress(DirectoryNotEmptyError):  # it died at the very end
            await load_shared(target, other, LATER)
        await require_sound(other, interrupted=True)
        found = {path: entry.id for path, entry in (await entries(other)).items()}
        assert wanted in (None, found)
        wanted = found
    assert wanted is not None
    assert len(wanted) == 11


async def test_a_parent_that_is_a_file_is_refused(target: str) -> None:
    source, other = await a_tree(config(layout="path"), "/a/f", "/b/g"), config(layout="tree")
    await dump(source, target)

    def through(found: Lines) -> Lines:
        return [{**line, "path": "/a/f/g"} if line["path"] == "/b/g" else line for line in found]

    rewritten(target, through)
    with pytest.raises(S3kError, match="leads through a file"):
        await load(target, other, source)
