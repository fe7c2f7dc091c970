"""load over Spark into layout `tree`: what one machine loads, to the last field."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PythonException

from s3k_async import S3kSyncClient
from s3k_async.backends.ports.items import PARTITION, SORT, Condition, Delete, Key
from s3k_async.config import VolumeConfig
from s3k_async.errors import BusyError, CorruptDataError, DirectoryNotEmptyError
from s3k_async.migrate import LoadResult, load_volume
from s3k_async.model import Entry, LayoutName, Progress
from s3k_async.spark import dump, load
from s3k_async.table.keys import TRASH_ID
from s3k_async.table.stored_reader import ROOT_ENTRY
from s3k_async.txn import volume_lock
from s3k_async.volumes import open_volume
from tests.engines.volumes import VolumeMaker, volume_backends
from tests.migrate.rig import entries
from tests.spark.places import embedded, entry_items, filled, on
from tests.spark.test_loading import changed, failing_at, logged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other client has these volumes open."""
    monkeypatch.setattr(volume_lock, "QUIET_SECONDS", 0.0)


def place_at(directory: Path, layout: LayoutName = "tree") -> VolumeConfig:
    return replace(embedded(directory), layout=layout)


@pytest.fixture(scope="module")
def dumped(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A volume of layout `tree`, and its dump."""
    directory = tmp_path_factory.mktemp("dumped")
    asyncio.run(filled(place_at(directory), 100))
    dump(spark, place_at(directory), str(directory / "dump"), tasks=4)
    return directory


@pytest.fixture(scope="module")
def odd(dumped: Path) -> Path:
    """The dump with directories of one id under two paths, and without some parents."""
    return changed(dumped / "dump", dumped / "odd", renamed_and_incomplete)


def renamed_and_incomplete(found: list[Entry]) -> list[Entry]:
    """`/a` is there a second time, as `/c/again`, as if it was renamed during the dump; `/many`,
    `/a/deep` and `/c/again/deep` are missing, but not what is below them."""
    again = [
        replace(each, path=f"/c/again{each.path[2:]}")
        for each in found
        if each.is_dir and each.path.startswith("/a")
    ]
    moved = [
        replace(each, path="/c/again/deep/x:y") if each.path == "/b ä 😀/x:y" else each
        for each in found
    ]
    missing = {"/many", "/a/deep", "/c/again/deep"}
    return [each for each in [*moved, *again] if each.path not in missing]


def lost(dumped: Path, directory: Path) -> VolumeConfig:
    """The same volume, its table lost."""
    shutil.copytree(dumped / "data", directory / "data")
    return place_at(directory)


@pytest.fixture(scope="module")
def alone(
    dumped: Path, odd: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[VolumeConfig, LoadResult]:
    """What one machine has loaded of the dump with odd directories."""
    place = lost(dumped, tmp_path_factory.mktemp("alone") / "volume")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(volume_lock, "QUIET_SECONDS", 0.0)
        return place, asyncio.run(load_volume(str(odd), place))


def require_same(done: LoadResult, expected: LoadResult) -> None:
    assert replace(done, requests=expected.requests) == expected


@pytest.mark.slow
def test_what_is_loaded_is_what_one_machine_loads(
    spark: SparkSession, dumped: Path, tmp_path: Path
) -> None:
    """And what was dumped, without its trash."""
    one, many = lost(dumped, tmp_path / "one"), lost(dumped, tmp_path / "many")
    source = str(dumped / "dump")
    expected = asyncio.run(load_volume(source, one, check=True))
    told: list[Progress] = []
    done = load(spark, many, source, check=True, tasks=3, progress=told.append)
    require_same(done, expected)
    assert (done.made, done.new_ids) == (0, 0)
    assert on(many, entry_items) == on(one, entry_items)
    assert asyncio.run(entries(many)) == asyncio.run(entries(place_at(dumped)))
    assert on(many, logged) == on(one, logged)
    assert {each.phase: each.done for each in told} == {
        "judging": done.entries,
        "directories": done.directories,
        "files": done.files,
    }
    with S3kSyncClient(config=many) as fs:
        assert fs.read("/a/1") == b"one, again"
        fs.rename("/a", "/moved")
        assert fs.read("/moved/deep/er/3") == b"three" * 100
    with pytest.raises(DirectoryNotEmptyError):
        load(spark, many, source)


def test_missing_parents_and_ids_at_two_paths_get_the_ids_that_one_machine_gives_them(
    spark: SparkSession,
    dumped: Path,
    odd: Path,
    alone: tuple[VolumeConfig, LoadResult],
    tmp_path: Path,
) -> None:
    """Every entry is in a part of its own, so that no task reads a directory after its parent."""
    one, expected = alone
    many = lost(dumped, tmp_path / "many")
    done = load(spark, many, str(odd), tasks=3)
    require_same(done, expected)
    assert (done.made, done.new_ids) == (3, 2)
    assert on(many, entry_items) == on(one, entry_items)
    assert on(many, logged) == on(one, logged)
    found = asyncio.run(entries(many))
    assert found.keys() >= {"/c/again/deep/er", "/c/again/deep/x:y", "/many/3/3"}
    directories = [entry.id for entry in found.values() if entry.is_dir]
    assert len(set(directories)) == len(directories)
    assert len(found) == len(on(many, entry_items))


@pytest.mark.slow
@pytest.mark.parametrize("at", ["directories", "files"])
@pytest.mark.parametrize("by", ["tasks", "one machine"])
def test_an_interrupted_load_is_finished_by_the_same_call(
    spark: SparkSession,
    dumped: Path,
    odd: Path,
    alone: tuple[VolumeConfig, LoadResult],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    at: str,
    by: str,
) -> None:
    place, source = lost(dumped, tmp_path / "volume"), str(odd)
    with monkeypatch.context() as patch:
        failing_at(patch, at, tmp_path)
        with pytest.raises(PythonException, match="done a portion"):
            load(spark, place, source, tasks=3)
    assert on(place, entry_items)
    with pytest.raises(BusyError, match="a load of the volume"):
        load(spark, place, str(dumped / "dump"))
    done = (
        load(spark, place, source, tasks=2)
        if by == "tasks"
        else asyncio.run(load_volume(source, place))
    )
    assert (done.skipped > 0, done.new_ids) == (at == "files", 2)
    assert on(place, entry_items) == on(alone[0], entry_items)
    assert on(place, logged) == on(alone[0], logged)


@pytest.mark.slow
@pytest.mark.parametrize("chunks", [2, 20])
def test_one_machine_begins_and_tasks_finish(
    spark: SparkSession,
    dumped: Path,
    odd: Path,
    alone: tuple[VolumeConfig, LoadResult],
    tmp_path: Path,
    chunks: int,
) -> None:
    """In the middle of the directories, and of the files: one machine creates a missing parent when
    it comes to the first entry below it."""
    place, done = lost(dumped, tmp_path / "volume"), list[int]()

    def interrupted(progress: Progress) -> None:
        done.append(progress.done)
        if len(done) == chunks:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(load_volume(str(odd), place, progress=interrupted))
    finished = load(spark, place, str(odd), tasks=2)
    assert (finished.skipped, finished.new_ids) == (done[-1], 2)
    assert on(place, entry_items) == on(alone[0], entry_items)
    assert on(place, logged) == on(alone[0], logged)


@pytest.mark.slow
def test_tasks_are_repeated(
    spark: SparkSession,
    dumped: Path,
    odd: Path,
    alone: tuple[VolumeConfig, LoadResult],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = lost(dumped, tmp_path / "volume")
    failing_at(monkeypatch, "", tmp_path, repeated=True)
    require_same(load(spark, place, str(odd), tasks=3), alone[1])
    assert on(place, entry_items) == on(alone[0], entry_items)
    assert on(place, logged) == on(alone[0], logged)


@pytest.mark.slow
@pytest.mark.parametrize("reserved", [ROOT_ENTRY.id, TRASH_ID])
def test_the_ids_of_root_and_trash_are_refused(
    spark: SparkSession, dumped: Path, tmp_path: Path, reserved: str
) -> None:
    def with_it(found: list[Entry]) -> list[Entry]:
        return [replace(found[0], id=reserved), *found[1:]]

    place = lost(dumped, tmp_path / "volume")
    with pytest.raises(CorruptDataError, match="invalid"):
        load(spark, place, str(changed(dumped / "dump", tmp_path / "odd", with_it)), tasks=2)
    assert on(place, entry_items) == []


@pytest.mark.slow
@volume_backends("dynoxide+seaweedfs")
@pytest.mark.parametrize("kept", [lambda _: True, lambda entry: entry.path != "/a/deep"])
async def test_on_services(
    spark: SparkSession, new_volume: VolumeMaker, tmp_path: Path, kept: Callable[[Entry], bool]
) -> None:
    place, source = replace(new_volume(), layout="tree"), tmp_path / "dump"
    await filled(place)
    wanted = await entries(place)
    await asyncio.to_thread(dump, spark, place, str(source), tasks=2)
    volume = await open_volume(place)
    for item in await entry_items(volume):
        key = Key(str(item[PARTITION]), str(item[SORT]))
        await volume.items.write(Delete(key, Condition()))
    await volume.close()

    def some(found: list[Entry]) -> list[Entry]:
        return list(filter(kept, found))

    part = await asyncio.to_thread(changed, source, tmp_path / "some", some)
    done = await asyncio.to_thread(load, spark, place, str(part), check=True, tasks=2)
    assert done.entries + done.made == len(wanted)
    found = await entries(place)
    if done.made == 0:
        assert found == wanted
    assert found.keys() == wanted.keys()
