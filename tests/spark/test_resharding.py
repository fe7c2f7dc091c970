"""reshard over Spark: what one machine does, whatever becomes of its tasks."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PythonException

from s3k_async import S3kSyncClient
from s3k_async.backends.ports.items import ABSENT, OPERATION, Condition, Delete, Item, Put
from s3k_async.config import VolumeConfig
from s3k_async.errors import BusyError, ConfigError, ItemFormatError, LeaseExpiredError
from s3k_async.migrate import reshard as alone
from s3k_async.migrate import reshard_volume
from s3k_async.migrate.reshard_pass import PassName, PassResult, ReshardPass
from s3k_async.model import Progress
from s3k_async.spark import reshard, reshard_job
from s3k_async.txn import volume_lock
from s3k_async.txn.volume_record import LOCK_EPOCH, RECORD_KEY, TAG
from s3k_async.volumes import Volume
from tests.engines.volumes import VolumeMaker, volume_backends
from tests.migrate.rig import entries, keys
from tests.spark.cluster import first
from tests.spark.places import all_items, embedded, filled, on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(volume_lock, "QUIET_SECONDS", 0.0)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a volume with four suffixes; tests take a copy."""
    directory = tmp_path_factory.mktemp("source")
    asyncio.run(filled(embedded(directory), 200))
    return directory


@pytest.fixture
def place(source: Path, tmp_path: Path) -> VolumeConfig:
    shutil.copytree(source, tmp_path / "volume")
    return embedded(tmp_path / "volume")


async def items_of(volume: Volume) -> Sequence[Item]:
    """All of the table, but for what names one holding of the lock."""
    ours = [dict(item) for item in await all_items(volume)]
    for item in ours:
        if (item["path"], item["children"]) == tuple(RECORD_KEY):
            for name in (LOCK_EPOCH, OPERATION):
                item.pop(name, None)
    return ours


async def tag_of(volume: Volume) -> tuple[Any, str]:
    return await volume.table.read_tag(TAG), volume.record.to_tag()


def check_like(place: VolumeConfig, other: VolumeConfig) -> None:
    """Both hold the same, item for item, and are open to everybody."""
    assert on(place, items_of) == on(other, items_of)
    said, wanted = on(place, tag_of)
    assert said == wanted
    with S3kSyncClient(config=place) as fs:
        assert fs.read("/a/1") == b"one, again"


@pytest.fixture
def other(source: Path, tmp_path: Path) -> VolumeConfig:
    """The same, resharded by one machine."""
    shutil.copytree(source, tmp_path / "other")
    asyncio.run(reshard_volume(embedded(tmp_path / "other"), 9, hash="java31"))
    return embedded(tmp_path / "other")


def test_a_volume_is_what_one_machine_makes_of_it(
    spark: SparkSession, place: VolumeConfig, source: Path, tmp_path: Path
) -> None:
    shutil.copytree(source, tmp_path / "other")
    other = embedded(tmp_path / "other")
    expected = asyncio.run(reshard_volume(other, 9, hash="java31"))
    told: list[Progress] = []
    done = reshard(spark, place, 9, hash="java31", tasks=3, progress=told.append)
    assert replace(done, requests=expected.requests) == expected
    assert done.moved > 0
    assert done.requests.of("table", "Scan") >= 9
    check_like(place, other)
    asyncio.run(keys(place))
    seen = {each.phase: each.done for each in told}
    assert list(seen) == ["check", "copy", "clean"]
    assert seen["check"] == seen["clean"] == done.entries
    again = reshard(spark, place, 9, tasks=2)
    assert (again.entries, again.moved) == (0, 0)


def test_layout_tree_with_its_trash(spark: SparkSession, tmp_path: Path) -> None:
    place, other = (
        replace(embedded(tmp_path / name), layout="tree") for name in ("place", "other")
    )
    asyncio.run(filled(place, 50))
    shutil.copytree(tmp_path / "place", tmp_path / "other")
    expected = asyncio.run(reshard_volume(other, 9, hash="java31"))
    done = reshard(spark, place, 9, hash="java31", tasks=3)
    assert replace(done, requests=expected.requests) == expected
    assert done.moved > 0
    check_like(place, other)
    asyncio.run(keys(place))


@pytest.mark.slow
@volume_backends("dynoxide+seaweedfs")
async def test_on_services(spark: SparkSession, new_volume: VolumeMaker) -> None:
    place = new_volume()
    await filled(place)
    before = await entries(place)
    done = await asyncio.to_thread(reshard, spark, place, 7, tasks=3)
    assert done.entries == len(before)
    assert 0 < done.moved <= done.entries
    assert await entries(place) == before
    await keys(place)


# Tasks that fail, run twice, or live on


@dataclass(frozen=True)
class Failing(ReshardPass):
    """The task that is the first to have done a page of one of the passes fails then."""

    directory: str = ""
    at: PassName = "check"

    async def over(
        self, volume: Volume, segment: int, segments: int, held: Callable[[], object]
    ) -> AsyncGenerator[PassResult, None]:
        async for passed in ReshardPass.over(self, volume, segment, segments, held):
            yield passed
            if self.name == self.at and first(self.directory, "failed"):
                raise RuntimeError("the task fails when it has done a page")


@pytest.mark.parametrize(
    ("at", "by"),
    [
        pytest.param("check", "tasks", marks=pytest.mark.slow),
        ("copy", "one machine"),
        pytest.param("clean", "tasks", marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_reshard_is_finished_by_the_same_call(
    spark: SparkSession,
    place: VolumeConfig,
    other: VolumeConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    at: PassName,
    by: str,
) -> None:
    before = on(place, items_of)
    with monkeypatch.context() as patch:
        patch.setattr(alone, "ReshardPass", partial(Failing, directory=str(tmp_path), at=at))
        with pytest.raises(PythonException, match="done a page"):
            reshard(spark, place, 9, hash="java31", tasks=2)
    if at == "check":
        assert on(place, items_of) == before
    else:
        with pytest.raises(BusyError, match="9 java31"), S3kSyncClient(config=place) as fs:
            fs.open_volume()
        with pytest.raises(BusyError, match="9 java31"):
            reshard(spark, place, 8, tasks=2)
    if by == "tasks":
        reshard(spark, place, 9, hash="java31", tasks=3)
    else:
        asyncio.run(reshard_volume(place, 9, hash="java31"))
    check_like(place, other)


@pytest.mark.slow
def test_tasks_are_repeated(
    spark: SparkSession,
    place: VolumeConfig,
    other: VolumeConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each pass begins, fails, and begins again under the same lock, as Spark does with tasks."""
    once = reshard_job._TaskWalker._stage
    failures = []

    def twice(self: Any, work: ReshardPass, lock: str) -> PassResult:
        # A place of its own: the tasks beside the one that fails live on, into the next pass.
        own = tempfile.mkdtemp(dir=tmp_path)
        failing = Failing(work.name, work.old, work.new, own, work.name)
        with pytest.raises(PythonException, match="done a page"):
            once(self, failing, lock)
        failures.append(work.name)
        return once(self, work, lock)

    monkeypatch.setattr(reshard_job._TaskWalker, "_stage", twice)
    done = reshard(spark, place, 9, hash="java31", tasks=3)
    assert failures == ["check", "copy", "clean"]
    assert done.entries == len(asyncio.run(entries(place)))
    check_like(place, other)


def test_a_task_that_outlives_the_lock_does_nothing(
    spark: SparkSession, place: VolumeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Had it been let, it would remove what a later reshard has put back."""
    begun: list[tuple[ReshardPass, str]] = []
    once = reshard_job._TaskWalker._stage

    def noted(self: Any, work: ReshardPass, lock: str) -> PassResult:
        begun.append((work, lock))
        return once(self, work, lock)

    monkeypatch.setattr(reshard_job._TaskWalker, "_stage", noted)
    reshard(spark, place, 9, tasks=2)
    reshard(spark, place, 4, tasks=2)
    before = on(place, items_of)
    for work, lock in begun:
        late = reshard_job._Segments(place, work, lock, 1, _Ignored(), _Ignored())  # type: ignore[arg-type]
        with pytest.raises(LeaseExpiredError):
            asyncio.run(late._over(0))
    assert on(place, items_of) == before


class _Ignored:
    def add(self, term: object) -> None:
        pass


# Refusals


def test_refusals_change_nothing(spark: SparkSession, place: VolumeConfig) -> None:
    before = on(place, items_of)
    for count in (0, 1001):
        with pytest.raises(ConfigError):
            reshard(spark, place, count)
    entry = next(item for item in before if item["children"] == "polygenelubricants")
    number = int(str(entry["path"])[-1])
    stray = Put({**entry, "path": f"{str(entry['path'])[:-1]}{(number + 1) % 4}"}, ABSENT)
    on(place, lambda volume: volume.items.write(stray))
    with pytest.raises(ItemFormatError, match="fsck"):
        reshard(spark, place, 7, tasks=2)
    on(place, lambda volume: volume.items.write(Delete(stray.key, Condition())))
    assert on(place, items_of) == before
    with S3kSyncClient(config=place) as fs:
        assert fs.read("/a/1") == b"one, again"
