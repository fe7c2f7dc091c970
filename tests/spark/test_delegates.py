"""What runs while the driver holds a volume's exclusive lock."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import anyio
import pytest

from s3k_async.spark.delegate_tasks import while_held

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


async def test_a_stage_that_is_cancelled_is_over_before_the_lock_is_given_up(
    spark: SparkSession,
) -> None:
    """Its Spark jobs as well, those that it begins after it was cancelled included."""
    ended: list[int] = []

    def slow(numbers: Iterable[int]) -> Iterable[int]:
        time.sleep(100)
        return numbers

    def stage() -> None:
        for number in range(2):
            try:
                spark.sparkContext.parallelize(range(2), 2).mapPartitions(slow).collect()
            except Exception:  # noqa: BLE001 - that Spark cancelled it is what is expected
                ended.append(number)

    began = time.monotonic()
    with anyio.move_on_after(3) as scope:
        await while_held(spark, stage)
    assert scope.cancelled_caught
    assert ended == [0, 1]
    assert time.monotonic() - began < 60
    assert list(spark.sparkContext.statusTracker().getActiveJobsIds()) == []


async def test_what_a_stage_returns_and_raises(spark: SparkSession) -> None:
    assert await while_held(spark, lambda: 7) == 7

    def fails() -> None:
        raise OSError("nobody is there")

    with pytest.raises(OSError, match="nobody is there"):
        await while_held(spark, fails)
