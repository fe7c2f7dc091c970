"""load over Spark: what one machine loads, whatever becomes of its tasks."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PythonException

from s3k_async import S3kSyncClient
from s3k_async.backends.ports.items import Condition, Delete
from s3k_async.config import VolumeConfig
from s3k_async.errors import (
    BusyError,
    CorruptDataError,
    DataMissingError,
    DirectoryNotEmptyError,
    InvalidArgumentError,
    LeaseExpiredError,
    NotDirectoryError,
    PathNotFoundError,
    S3kError,
)
from s3k_async.migrate import load_volume
from s3k_async.migrate.dump_parts import Manifest, PartWriter, make_room, write_manifest
from s3k_async.migrate.dump_reader import open_dump
from s3k_async.migrate.load_batch import LoadTarget
from s3k_async.model import Entry, Progress
from s3k_async.oplog.log_reader import LogReader, latest
from s3k_async.spark import dump, load, load_job
from s3k_async.table.codec import in_columns
from s3k_async.table.keys import KeyScheme
from s3k_async.txn import volume_lock
from s3k_async.volumes import Volume, open_volume
from tests.engines.volumes import VolumeMaker, volume_backends
from tests.migrate.rig import entries, keys
from tests.spark.cluster import first
from tests.spark.places import embedded, entry_items, filled, on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(volume_lock, "QUIET_SECONDS", 0.0)


@pytest.fixture(scope="module")
def dumped(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A volume and dumps of it: whole, and of a path."""
    directory = tmp_path_factory.mktemp("dumped")
    place = embedded(directory)
    asyncio.run(filled(place, 100))
    dump(spark, place, str(directory / "dump"), tasks=4)
    dump(spark, place, str(directory / "deep"), path="/a/deep/er", tasks=2)
    return directory


@pytest.fixture(scope="module")
def alone(dumped: Path, tmp_path_factory: pytest.TempPathFactory) -> VolumeConfig:
    """What one machine has loaded."""
    place = lost(dumped, tmp_path_factory.mktemp("alone") / "volume")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(volume_lock, "QUIET_SECONDS", 0.0)
        asyncio.run(load_volume(str(dumped / "dump"), place))
    return place


def lost(dumped: Path, directory: Path) -> VolumeConfig:
    """The same volume, its table lost."""
    shutil.copytree(dumped / "data", directory / "data")
    return embedded(directory)


async def logged(volume: Volume) -> dict[str, tuple[Any, int]]:
    """What the log says last of each object, and of how many contradictions."""
    assert volume.log_blobs is not None
    truths = latest([record async for record in LogReader(volume.log_blobs).records()])
    return {
        found: (
            truth.committed and replace(truth.committed.operation, time_ms=0),
            len(truth.conflict),
        )
        for found, truth in truths.items()
    }


def test_what_is_loaded_is_what_one_machine_loads(
    spark: SparkSession, dumped: Path, tmp_path: Path
) -> None:
    one, many = lost(dumped, tmp_path / "one"), lost(dumped, tmp_path / "many")
    source = str(dumped / "dump")
    expected = asyncio.run(load_volume(source, one, check=True))
    told: list[Progress] = []
    done = load(spark, many, Path(source).as_uri(), check=True, tasks=3, progress=told.append)
    assert replace(done, requests=expected.requests) == expected
    assert done.requests.of("table", "BatchWriteItem") > 0
    assert on(many, entry_items) == on(one, entry_items) == on(embedded(dumped), entry_items)
    assert on(many, logged) == on(one, logged)
    assert {each.phase: each.done for each in told} == {
        "judging": done.entries,
        "directories": done.directories,
        "files": done.files,
    }
    with S3kSyncClient(config=many) as fs:
        assert fs.read("/a/1") == b"one, again"
    with pytest.raises(DirectoryNotEmptyError):
        load(spark, many, source)


@pytest.mark.slow
def test_parents_that_the_dump_lacks_are_made(
    spark: SparkSession, dumped: Path, tmp_path: Path
) -> None:
    place = lost(dumped, tmp_path / "volume")
    done = load(spark, place, str(dumped / "deep"), tasks=2)
    assert (done.entries, done.made) == (2, 2)
    found = asyncio.run(entries(place))
    assert found.keys() == {"/a", "/a/deep", "/a/deep/er", "/a/deep/er/3"}
    assert found["/a/deep/er"] == asyncio.run(entries(embedded(dumped)))["/a/deep/er"]
    ids = {entry.id for entry in found.values()}
    assert {
        operation.after.path for each, (operation, _) in on(place, logged).items() if each in ids
    } == found.keys()


@pytest.mark.slow
@volume_backends("dynoxide+seaweedfs")
async def test_on_services(spark: SparkSession, new_volume: VolumeMaker, tmp_path: Path) -> None:
    place, source = new_volume(), str(tmp_path / "dump")
    await filled(place)
    wanted = await entries(place)
    await asyncio.to_thread(dump, spark, place, source, tasks=2)
    volume = await open_volume(place)
    for path in wanted:
        await volume.items.write(Delete(volume.store.keys.key(path), Condition()))
    await volume.close()
    done = await asyncio.to_thread(load, spark, place, source, check=True, tasks=2)
    assert (done.entries, done.made) == (len(wanted), 0)
    assert await entries(place) == wanted
    await keys(place)


# Tasks that fail, or live on


@dataclass(frozen=True)
class Failing(load_job._Delegates):
    """The task that is the first to be done with a portion fails then."""

    directory: str = ""

    def rows(self, parts: Any) -> Iterator[pa.RecordBatch]:
        directory = self.directory

        judge, load = LoadTarget.judge, LoadTarget.load

        def fail() -> None:
            if first(directory, "failed"):
                raise RuntimeError("the task fails when it has done a portion")

        def judged(self: LoadTarget, chunk: Sequence[Entry]) -> None:
            judge(self, chunk)
            fail()

        async def loaded(
            self: LoadTarget, entries: Sequence[Entry], held: Callable[[], object]
        ) -> None:
            await load(self, entries, held)
            fail()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LoadTarget, "judge", judged)
            patch.setattr(LoadTarget, "load", loaded)
            yield from load_job._Delegates.rows(self, parts)


def failing_at(
    patch: pytest.MonkeyPatch, stage: str, directory: Path, *, repeated: bool = False
) -> None:
    """A task of the stage fails; if it is `repeated`, the stage is run again then, under the same
    lock."""
    once = load_job._TaskLoader._stage

    def failing(self: Any, aim: Any, parts: Any, lock: str, what: str) -> list[Any]:
        if what == stage or repeated:
            # A place of its own: the tasks beside the one that fails live on, into the next stage.
            own = tempfile.mkdtemp(dir=directory)
            with patch.context() as inner:
                inner.setattr(load_job, "_Delegates", partial(Failing, directory=own))
                if not repeated:
                    return once(self, aim, parts, lock, what)
                with pytest.raises(PythonException, match="done a portion"):
                    once(self, aim, parts, lock, what)
        return once(self, aim, parts, lock, what)

    patch.setattr(load_job._TaskLoader, "_stage", failing)


@pytest.mark.parametrize(
    ("at", "by"),
    [
        pytest.param("judging", "tasks", marks=pytest.mark.slow),
        pytest.param("directories", "tasks", marks=pytest.mark.slow),
        ("files", "one machine"),
    ],
)
def test_an_interrupted_load_is_finished_by_the_same_call(
    spark: SparkSession,
    dumped: Path,
    alone: VolumeConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    at: str,
    by: str,
) -> None:
    place, source = lost(dumped, tmp_path / "volume"), str(dumped / "dump")
    with monkeypatch.context() as patch:
        failing_at(patch, at, tmp_path)
        with pytest.raises(PythonException, match="done a portion"):
            load(spark, place, source, tasks=3)
    if at == "judging":
        assert on(place, entry_items) == []
    else:
        with pytest.raises(BusyError, match="a load of the volume"):
            load(spark, place, str(dumped / "deep"))
    done = (
        load(spark, place, source, tasks=2)
        if by == "tasks"
        else asyncio.run(load_volume(source, place))
    )
    assert (done.skipped > 0) == (at == "files")
    assert on(place, entry_items) == on(embedded(dumped), entry_items)
    assert on(place, logged) == on(alone, logged)


@pytest.mark.slow
def test_one_machine_begins_and_tasks_finish(
    spark: SparkSession, dumped: Path, tmp_path: Path
) -> None:
    place, source = lost(dumped, tmp_path / "volume"), str(dumped / "dump")
    done: list[int] = []

    def interrupted(progress: Progress) -> None:
        done.append(progress.done)
        if len(done) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(load_volume(source, place, progress=interrupted))
    assert load(spark, place, source, tasks=2).skipped == done[-1] > 0
    assert on(place, entry_items) == on(embedded(dumped), entry_items)


@pytest.mark.slow
def test_tasks_are_repeated(
    spark: SparkSession,
    dumped: Path,
    alone: VolumeConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = lost(dumped, tmp_path / "volume")
    failing_at(monkeypatch, "", tmp_path, repeated=True)
    done = load(spark, place, str(dumped / "dump"), tasks=3)
    assert done.skipped == 0
    assert on(place, entry_items) == on(embedded(dumped), entry_items)
    assert on(place, logged) == on(alone, logged)


def test_a_task_that_outlives_the_lock_does_nothing(
    spark: SparkSession, dumped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Had it been let, it would bring back what was deleted."""
    place, begun = lost(dumped, tmp_path / "volume"), list[tuple[Any, str]]()
    once = load_job._TaskLoader._stage

    def noted(self: Any, aim: Any, parts: Any, lock: str, what: str) -> list[Any]:
        begun.append((parts, lock))
        return once(self, aim, parts, lock, what)

    monkeypatch.setattr(load_job._TaskLoader, "_stage", noted)
    load(spark, place, str(dumped / "dump"), tasks=2)
    with S3kSyncClient(config=place) as fs:
        fs.delete("/many", recursive=True)
    before, log = on(place, entry_items), on(place, logged)
    _, facts = load_job._opened(str(dumped / "dump"))
    for parts, lock in begun:
        late = load_job._Delegates(place, lock, "load", facts, _Ignored(), _Ignored())  # type: ignore[arg-type]
        with pytest.raises(LeaseExpiredError):
            asyncio.run(late._over(parts))
    assert (on(place, entry_items), on(place, logged)) == (before, log)


class _Ignored:
    def add(self, term: object) -> None:
        pass


# Refusals


def changed(source: Path, target: Path, change: Callable[[list[Entry]], list[Entry]]) -> Path:
    """The dump with other entries, each in a part of its own."""
    found = change([entry for chunk in open_dump(str(source)).chunks() for entry in chunk])
    header = open_dump(str(source)).header
    make_room(str(target))
    parts = []
    for number, entry in enumerate(found):
        writer = PartWriter(
            str(target), header, f"{number:06d}", "directories" if entry.is_dir else "files"
        )
        writer.write(in_columns([entry], KeyScheme("moving", 4)))
        parts += writer.finish()
    write_manifest(str(target), Manifest.of(header, parts))
    return target


def test_a_dump_that_no_volume_can_hold_is_refused_before_anything_is_made(
    spark: SparkSession, dumped: Path, tmp_path: Path
) -> None:
    place = lost(dumped, tmp_path / "volume")

    def some(entries: list[Entry]) -> list[Entry]:
        return [entry for entry in entries if not entry.path.startswith("/many")]

    def twice(entries: list[Entry]) -> list[Entry]:
        return [*some(entries), next(entry for entry in entries if entry.path == "/top")]

    def through(entries: list[Entry]) -> list[Entry]:
        return [
            replace(entry, path="/top/x") if entry.path == "/a/2" else entry
            for entry in some(entries)
        ]

    cases: list[tuple[Any, type[S3kError], str]] = [
        (twice, CorruptDataError, "twice"),
        (through, NotDirectoryError, "through a file"),
    ]
    for change, kind, message in cases:
        source = changed(dumped / "dump", tmp_path / change.__name__, change)
        with pytest.raises(kind, match=message):
            load(spark, place, str(source), tasks=2)
    cut = tmp_path / "cut"
    shutil.copytree(dumped / "deep", cut)
    part = next(cut.glob("*.parquet"))
    part.write_bytes(part.read_bytes()[:-10])
    with pytest.raises(CorruptDataError, match="cut"):
        load(spark, place, str(cut))
    with pytest.raises(PathNotFoundError):
        load(spark, place, str(tmp_path / "none"))
    with pytest.raises(InvalidArgumentError, match="s3k load"):
        load(spark, place, str(part))
    assert not (tmp_path / "volume" / "table.db").exists()


def test_bytes_that_are_not_here_are_found(
    spark: SparkSession, dumped: Path, tmp_path: Path
) -> None:
    place, other = lost(dumped, tmp_path / "volume"), embedded(tmp_path / "other")
    source = str(dumped / "dump")
    with pytest.raises(InvalidArgumentError, match="another volume"):
        load(spark, other, source)
    for found in (tmp_path / "volume" / "data").glob("s3k-*/*.id=*"):
        if found.stat().st_size == 3:
            found.unlink()
    with pytest.raises(DataMissingError, match="/top"):
        load(spark, place, source, check=True, tasks=2)
    with pytest.raises(DataMissingError, match="and others"):
        load(spark, other, source, check=True, tasks=2)
    for each in (place, other):
        assert on(each, entry_items) == []
