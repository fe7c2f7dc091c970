"""The driver is killed in the middle of a bulk rename and of several writes; run again, all of it
ends right."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from s3k_async import S3kSyncClient
from s3k_async.config import VolumeConfig
from s3k_async.integrity.repair import repair_volume
from s3k_async.spark import register, rename_files
from s3k_async.volumes import open_volume
from tests.conftest import unavailable
from tests.engines.volumes import volume_backends
from tests.spark.conftest import ROOT, spark_environment
from tests.spark.contents import collect, content, garbage, paths
from tests.spark.killed_driver import FILES, MOVED, WRITES, Orders, pairs, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PATIENCE = 1_800.0
"""Seconds after which a driver that has not come to where it is killed is taken to hang. It takes
20 on an idle machine."""


def killed(orders: Orders) -> None:
    """Run the driver until all of it stands still; then it, its JVM and the processes that wait are
    killed."""
    place = Path(orders.place)
    with (
        (place / "errors").open("wb") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "tests.spark.killed_driver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            cwd=ROOT,
            env=spark_environment(),
            start_new_session=True,
        ) as driver,
    ):
        assert driver.stdin is not None
        driver.stdin.write(pickle.dumps(orders))
        driver.stdin.close()
        waiting = [place / where for where in (MOVED, *WRITES)]
        deadline = time.monotonic() + PATIENCE
        try:
            while not all(path.exists() for path in waiting):
                assert driver.poll() is None, (place / "errors").read_text()[-5000:]
                assert time.monotonic() < deadline, (place / "errors").read_text()[-5000:]
                time.sleep(0.05)
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
            for path in waiting:
                if path.exists():
                    os.kill(int(path.read_text()), signal.SIGKILL)


@volume_backends("embedded")
async def test_what_a_killed_driver_was_doing_is_done_by_another_one(
    spark: SparkSession, volume: VolumeConfig, tmp_path: Path
) -> None:
    if shutil.which("java") is None:
        unavailable("Java is not installed")
    orders = Orders(volume, str(tmp_path))
    fs = S3kSyncClient(config=volume)
    with fs:
        fs.write_many((f"/in/{number}", str(number).encode()) for number in range(FILES))
        fs.makedirs("/out")
        for where in WRITES:
            fs.write(f"/{where}/old", b"old")
        ids = {status.name: status.id for status in fs.list("/in")}
    killed(orders)
    with fs:
        moved = {status.name: status.id for status in fs.list("/out")}
        left = {status.name: status.id for status in fs.list("/in")}
        assert len(moved) == 20
        assert moved | left == ids
        assert len(moved) + len(left) == FILES
        for where in ("uploaded", "prepared"):
            assert paths(fs, f"/{where}") == {f"/{where}/old"}
        assert content(fs, "/published") == {"/published": list(range(WRITES["published"]))}
        assert len(await garbage(volume)) >= WRITES["uploaded"] + WRITES["prepared"]

    report = rename_files(
        spark, volume, pairs(spark), state=f"{orders.place}/state", dry_run=False, tasks=1
    ).report
    assert (report.done, report.already, report.failed) == (FILES - 20, 20, 0)
    register(spark, volume=volume)
    for where in WRITES:
        write(spark, where)
    with fs:
        assert {status.name: status.id for status in fs.list("/out")} == ids
        assert not list(fs.list("/in"))
        for where in WRITES:
            assert content(fs, f"/{where}") == {f"/{where}": list(range(WRITES[where]))}
    opened = await open_volume(volume)
    try:
        await repair_volume(
            opened, grace=0.0, dry_run=False
        )  # clears away what its commits were at
    finally:
        await opened.close()
    await collect(volume)
    assert await garbage(volume) == set()
    with fs:
        assert fs.transactions() == []
        for where in WRITES:
            assert content(fs, f"/{where}") == {f"/{where}": list(range(WRITES[where]))}
