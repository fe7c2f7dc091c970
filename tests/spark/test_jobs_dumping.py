"""A dump by Spark is the dump of one machine, in parts."""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from s3k_async import S3kClient, S3kSyncClient
from s3k_async._core.metering import Requests
from s3k_async._sync.sync_client import S3kSyncClient as Blocking
from s3k_async.config import VolumeConfig
from s3k_async.errors import InvalidArgumentError, InvalidPathError, PathNotFoundError
from s3k_async.migrate import dump_volume, load_volume
from s3k_async.migrate.dump import dump_top
from s3k_async.migrate.dump_parts import (
    MANIFEST,
    DumpPart,
    Manifest,
    make_room,
    read_manifest,
    sweep_parts,
    write_manifest,
)
from s3k_async.migrate.dump_reader import open_dump
from s3k_async.model import Entry, LayoutName, Progress
from s3k_async.spark import dump, dump_job
from s3k_async.spark.listing_job import subtrees
from s3k_async.volumes import init_volume, open_volume
from tests.engines.volumes import VolumeMaker, volume_backends
from tests.migrate.rig import HURRIED, config, opened
from tests.spark.places import FIVE_LEVELS, five_levels

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
both = volume_backends("dynoxide+seaweedfs", slow=["embedded"], tree=["embedded"])
embedded = volume_backends("embedded")


@pytest.fixture
async def volume(new_volume: VolumeMaker, layout: LayoutName) -> VolumeConfig:
    """A tree of five levels, with odd names, an empty directory and a reservation."""
    return await five_levels(new_volume, layout)


async def alone(config: VolumeConfig, target: str, **options: Any) -> list[Entry]:
    """What one machine dumps."""
    opened = await open_volume(config)
    try:
        await dump_volume(opened, target, form="parquet", **options)
    finally:
        await opened.close()
    return entries(target)


def entries(target: str) -> list[Entry]:
    return [entry for chunk in open_dump(target).chunks() for entry in chunk]


def by_path(found: Iterable[Entry]) -> list[Entry]:
    return sorted(found, key=lambda entry: entry.path)


@both
async def test_a_dump_by_spark_is_that_of_one_machine(
    spark: SparkSession, volume: VolumeConfig, tmp_path: Path
) -> None:
    """Record for record, wherever it begins and however it is divided, and in an order that can be
    loaded."""
    asked: list[tuple[str, int, dict[str, Any]]] = [
        ("/", 1, {}),
        ("/", 8, {"include_uncommitted": True}),
        ("/a", 4, {}),
        ("/top", 2, {}),
    ]
    for number, (path, partitions, options) in enumerate(asked):
        wanted = await alone(volume, str(tmp_path / f"{number}.parquet"), path=path, **options)
        target = tmp_path / str(number)
        done = dump(spark, volume, target.as_uri(), path=path, tasks=partitions, **options)
        found = entries(str(target))
        assert by_path(found) == by_path(wanted)
        for place, entry in enumerate(found):
            parent = os.path.dirname(entry.path)
            assert (
                entry.path == path
                or parent == path
                or parent in {before.path for before in found[:place]}
            )
        assert (done.entries, done.files) == (
            len(wanted),
            sum(not entry.is_dir for entry in wanted),
        )
        assert done.bytes == sum(entry.size for entry in wanted)
        assert done.requests != Requests()
    assert len(read_manifest(str(tmp_path / "1")).parts) > 8


@embedded
async def test_it_can_be_loaded(spark: SparkSession, volume: VolumeConfig, tmp_path: Path) -> None:
    target, told = str(tmp_path / "dump"), list[Progress]()
    done = dump(spark, volume, target, tasks=6, progress=told.append)
    assert (told[-1].operation, told[-1].done) == ("dump", done.entries)
    other = VolumeConfig("other", *_elsewhere(tmp_path))
    source = await open_volume(volume)
    try:
        loaded = await load_volume(target, other, bytes_from=source, runtime=HURRIED)
    finally:
        await source.close()
    assert (loaded.entries, loaded.made) == (done.entries, 0)
    with S3kSyncClient(config=other) as fs:
        assert fs.read(FIVE_LEVELS[7]) == FIVE_LEVELS[7].encode()
        assert fs.content_summary("/").file_count == len(FIVE_LEVELS) + 3


def _elsewhere(place: Path) -> tuple[Any, Any]:
    from s3k_async.config import LocalDirectory, SqliteFile

    return SqliteFile(str(place / "other.db")), LocalDirectory(str(place / "other"))


@embedded
async def test_what_cannot_be_dumped_or_written_to(
    spark: SparkSession, volume: VolumeConfig, tmp_path: Path
) -> None:
    target = str(tmp_path / "dump")
    with pytest.raises(PathNotFoundError):
        dump(spark, volume, target, path="/missing")
    assert "dump" not in os.listdir(tmp_path)
    with pytest.raises(InvalidArgumentError, match="share"):
        dump(spark, volume, "s3a://bucket/dump")
    dump(spark, volume, target, tasks=2)
    with pytest.raises(InvalidArgumentError, match="already"):
        dump(spark, volume, target)
    # One that was interrupted.
    os.unlink(os.path.join(target, MANIFEST))
    before = set(os.listdir(target))
    dump(spark, volume, target, tasks=2)
    assert MANIFEST in os.listdir(target)
    assert not before & set(os.listdir(target))


class _Sum:
    def add(self, more: object) -> None:
        """As an accumulator."""


class _Failing(Blocking):
    """A client whose task fails in its last subtree."""

    left = 6

    def _iterate(self, pages_of: Any) -> Generator[Any, None, None]:
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("the task fails")
        return super()._iterate(pages_of)


@embedded
async def test_only_the_attempts_that_count_are_in_a_dump(
    volume: VolumeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt that fails, one that was killed and one that ran at the same time leave nothing
    that counts."""
    target = str(tmp_path / "dump")
    wanted = await alone(volume, f"{target}.parquet")
    async with S3kClient(config=volume) as client:
        _, header = await dump_top(client._volume(), "/", include_uncommitted=False)
    sums: Any = _Sum()
    work = dump_job.Dumper(header, target, sums, sums)
    make_room(target)

    def attempt(number: int, fs: Blocking) -> list[DumpPart]:
        context = SimpleNamespace(partitionId=lambda: 0, taskAttemptId=lambda: number)
        monkeypatch.setattr("s3k_async.spark.task_rows.TaskContext.get", lambda: context)
        return [
            DumpPart(**json.loads(part))
            for batch in work(fs, subtrees(fs, "/", 4))
            for part in batch.column(0).to_pylist()
        ]

    with S3kSyncClient(config=volume) as fs, _Failing(config=volume) as failing:
        with pytest.raises(RuntimeError, match="the task fails"):
            attempt(1, failing)
        assert os.listdir(target) == []
        twin, parts = attempt(2, fs), attempt(3, fs)
    assert {part.name for part in twin}.isdisjoint(part.name for part in parts)
    write_manifest(target, Manifest.of(header, parts))
    assert by_path(entries(target)) == by_path(wanted)
    sweep_parts(target, keep=parts)
    assert set(os.listdir(target)) == {MANIFEST, *(part.name for part in parts)}


@embedded
async def test_a_task_that_outlives_its_driver_leaves_the_next_dump_alone(
    volume: VolumeConfig, tmp_path: Path
) -> None:
    """Each application numbers its attempts from 0. A task of the dump before fails when that of
    the next is done."""
    target = str(tmp_path / "dump")
    async with S3kClient(config=volume) as client:
        _, header = await dump_top(client._volume(), "/", include_uncommitted=False)
    written: list[DumpPart] = []

    def dumped(kind: type[Blocking]) -> Iterator[DumpPart]:
        sums: Any = _Sum()
        make_room(target)
        with kind(config=volume) as fs:
            for batch in dump_job.Dumper(header, target, sums, sums)(fs, [("/", True)]):
                yield from (DumpPart(**json.loads(part)) for part in batch.column(0).to_pylist())

    class Outlived(Blocking):
        def _iterate(self, pages_of: Any) -> Generator[Any, None, None]:
            yield from super()._iterate(pages_of)
            written.extend(dumped(Blocking))
            raise RuntimeError("the driver is gone")

    with pytest.raises(RuntimeError, match="the driver is gone"):
        list(dumped(Outlived))
    write_manifest(target, Manifest.of(header, written))
    assert by_path(entries(target)) == by_path(await alone(volume, f"{target}.parquet"))


async def test_a_path_that_has_become_too_long_is_not_dumped_by_tasks() -> None:
    """No volume could load it."""
    long, source = "/" + "d" * 1000, config(layout="tree")
    await init_volume(source)
    async with S3kClient(config=source) as fs:
        await fs.write(f"/a{long}{long}/f", b"x")
        await fs.makedirs(long)
        await fs.rename("/a", f"{long}{long}")
    async with opened(source) as volume:
        _, header = await dump_top(volume, "/", include_uncommitted=False)
        with pytest.raises(InvalidPathError, match="rename a directory above it"):
            _ = [page async for page in dump_job._PagesOf(header, "/", whole=True)(volume)]
        pages = [page async for page in dump_job._PagesOf(header, "/", whole=False)(volume)]
    assert [each.paths() for (each,) in pages] == [[long]]
