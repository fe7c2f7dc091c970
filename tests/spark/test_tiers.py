"""Volumes with a hot location: checks, repairs and a restore over Spark read both locations."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from s3k_async import S3kClient
from s3k_async.config import VolumeConfig
from s3k_async.integrity.repair import verify_volume
from s3k_async.spark.fsck_job import repair, verify
from s3k_async.spark.restore_job import restore
from s3k_async.storage.extents import physical_keys
from s3k_async.storage.tiered_blobs import need_tiers
from s3k_async.txn import volume_lock
from s3k_async.volumes import Volume, init_volume
from tests.integrity.restore_ground import lose_table
from tests.spark.places import embedded, on
from tests.tiers.rig import move_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NOW = -60.0
"""A grace period in which nothing is young."""
FILES = {"/cold": b"cold", "/d/hot": b"hot", "/d/both": b"in both"}


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[VolumeConfig]:
    """A volume with files in the cold location, in the hot one and in both, which no other client
    has open."""
    monkeypatch.setattr(volume_lock, "QUIET_SECONDS", 0.0)
    # Short, since the text of the hot location has to fit into the tag of the table.
    with TemporaryDirectory(prefix="t", dir="/tmp") as directory:
        config = embedded(Path(directory))
        asyncio.run(_fill(config, f"{directory}/hot"))
        yield config


async def _fill(config: VolumeConfig, hot: str) -> None:
    await init_volume(config, hot=hot)
    async with S3kClient(config=config) as fs:
        await fs.write("/cold", FILES["/cold"])
        await asyncio.to_thread(on, config, lambda volume: move_all(need_tiers(volume.blobs, "")))
        await fs.write("/d/hot", FILES["/d/hot"])
        await fs.write("/d/both", FILES["/d/both"])
    await asyncio.to_thread(on, config, lambda volume: _double(volume, "/d/both", b"in BOTH"))


async def _double(volume: Volume, path: str, data: bytes) -> None:
    """Put an object with these bytes into the cold location, beside the hot one of a file."""
    blobs = need_tiers(volume.blobs, "")
    for key in physical_keys((await volume.store.lookup(path)).physical):
        await blobs.cold.put(key, data)


async def _read_all(config: VolumeConfig) -> dict[str, bytes]:
    async with S3kClient(config=config) as fs:
        return {path: await fs.read(path) for path in FILES}


@pytest.mark.slow
def test_both_locations_are_checked_repaired_and_restored(
    spark: SparkSession, place: VolumeConfig
) -> None:
    _, report = verify(spark, place, grace=NOW, deep=True, tasks=2)
    expected = on(place, lambda volume: verify_volume(volume, grace=NOW, deep=True))
    assert report.kinds == expected.kinds == {"copies_differ": 1}
    assert [(each.path, each.action) for each in report.findings] == [
        ("/d/both", "replace_cold_copy")
    ]
    frame, done = repair(spark, place, grace=NOW, deep=True, dry_run=False, tasks=2)
    assert [(row.path, row.outcome) for row in frame.collect()] == [("/d/both", "done")]
    assert done.left.clean
    asyncio.run(lose_table(place))
    _, restored = restore(spark, place, dry_run=False, tasks=2)
    assert restored.clean
    assert (restored.files, restored.written) == (3, restored.restored)
    assert asyncio.run(_read_all(place)) == FILES
