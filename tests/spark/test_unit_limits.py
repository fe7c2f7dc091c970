"""Limits of the capacity units of a job: the shares of its tasks, and that each request has one."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from anyio import to_thread
from pyspark import SparkConf, SparkContext

from s3k_async import S3kClient
from s3k_async._core.capacity_limit import current_capacity_limit
from s3k_async._sync.loop_thread import current_bridge
from s3k_async.config import DynamoTable, LocalDirectory, VolumeConfig
from s3k_async.errors import InvalidArgumentError
from s3k_async.spark import gc
from s3k_async.spark.fsck_job import repair, verify
from s3k_async.spark.runner import JobRun
from s3k_async.spark.unit_limits import UnitLimits
from s3k_async.volumes import init_volume
from tests.cli.conftest import Cli, clean_environment, cli
from tests.engines.process import Engine
from tests.engines.volumes import fresh_name
from tests.proxy import FaultProxy
from tests.spark.places import embedded
from tests.support import FakeClock, fake_runtime

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["clean_environment", "cli"]

pytestmark = pytest.mark.spark


def test_the_shares_of_tasks_add_up_to_the_limit() -> None:
    assert UnitLimits(40, 8).share(4) == UnitLimits(10, 2)
    assert UnitLimits(None, 8).share(8) == UnitLimits(None, 1)
    assert UnitLimits().share(1000) == UnitLimits()
    with pytest.raises(
        InvalidArgumentError,
        match=r"^7\.5 write units per second are less than one for each of 8 concurrent tasks.* 8$",
    ):
        UnitLimits(100, 7.5).share(8)


@pytest.mark.parametrize("units", [0, -1, math.nan])
def test_a_limit_that_is_not_positive(units: float) -> None:
    with pytest.raises(InvalidArgumentError, match="above 0"):
        UnitLimits(units)


def test_all_calls_of_a_task_share_its_units() -> None:
    clock = FakeClock()
    run = UnitLimits(10).limited(current_bridge().run, fake_runtime(clock))

    async def scan() -> None:
        limit = current_capacity_limit()
        assert limit is not None
        await limit.turn("Scan")
        limit.deduct("Scan", 5)

    began = clock.seconds
    for _ in range(21):
        run(scan)
    assert clock.seconds - began == pytest.approx(10.0)

    async def unlimited() -> None:
        assert current_capacity_limit() is None

    current_bridge().run(unlimited)
    UnitLimits().limited(current_bridge().run)(unlimited)


def test_speculation_doubles_the_number_of_shares(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = JobRun(spark, embedded(tmp_path), "fsck", tasks=3)
    assert job.attempts == 3
    conf = SparkConf(loadDefaults=False).set("spark.speculation", "true")
    monkeypatch.setattr(SparkContext, "getConf", lambda _: conf)
    assert job.attempts == 6


@dataclass(frozen=True)
class Place:
    """A volume with its table in DynamoDB, and the requests to the table."""

    config: VolumeConfig
    proxy: FaultProxy


@pytest.fixture
async def place(dynoxide: Engine, tmp_path: Path) -> AsyncIterator[Place]:
    name = fresh_name("units")
    async with FaultProxy(dynoxide.endpoint) as proxy:
        table = DynamoTable(name, replace(dynoxide.aws(), endpoint=proxy.url))
        config = VolumeConfig(name, table, LocalDirectory(str(tmp_path / "data")))
        await init_volume(config)
        async with S3kClient(config=config) as fs:
            await fs.write_many([(f"/a/{number}", b"1") for number in range(9)])
            await fs.delete("/a/0")
        make_old(tmp_path)
        proxy.clear()
        yield Place(config, proxy)


WITHOUT_UNITS = {"DescribeTable", "ListTagsOfResource"}
"""Requests about the table itself."""


def make_old(data: Path) -> None:
    """Give all data the age of half a day."""
    for file in data.rglob("*.id=*"):
        os.utime(file, (time.time() - 50_000, time.time() - 50_000))


async def test_each_request_of_a_job_is_within_a_limit(spark: SparkSession, place: Place) -> None:
    def jobs() -> None:
        assert verify(spark, place.config, read_units=1000, tasks=2).report.clean
        fixed = repair(
            spark, place.config, dry_run=False, read_units=1000, write_units=1000, tasks=2
        )
        assert fixed.report.left.clean
        report = gc(
            spark,
            place.config,
            dry_run=False,
            grace=0,
            lease=60,
            read_units=1000,
            write_units=1000,
            tasks=2,
        ).report
        assert report.swept is not None
        assert report.swept.deleted["deleted"].objects == 1

    await to_thread.run_sync(jobs)
    calls = [call for call in place.proxy.calls if call.target not in WITHOUT_UNITS]
    assert {"GetItem", "Scan"} <= {call.target for call in calls}
    unlimited = {
        call.target
        for call in calls
        if json.loads(call.body).get("ReturnConsumedCapacity") != "TOTAL"
    }
    assert unlimited == set()


async def test_a_limit_that_cannot_be_kept_is_refused_before_the_job(
    spark: SparkSession, place: Place
) -> None:
    def refused() -> None:
        jobs: tuple[Callable[..., object], ...] = (verify, repair, gc)
        for job in jobs:
            with pytest.raises(InvalidArgumentError, match="use fewer tasks"):
                job(spark, place.config, read_units=1.5, tasks=2)

    await to_thread.run_sync(refused)
    assert place.proxy.calls == []


def test_the_commands_say_what_to_do(spark: SparkSession, cli: Cli) -> None:
    cli.ok("init", "./vol")
    for job in ("fsck-verify", "fsck-repair", "gc"):
        command = ("spark", job, "./vol", "--tasks", "2", "--read-units")
        assert "use fewer tasks, or a limit of at least 2" in cli.fails(2, *command, "1").errors
        assert "does not report consumed capacity" in cli.fails(1, *command, "2").errors
