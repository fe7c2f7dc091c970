"""The Python of docs/spark.md is run as it stands, one block after the other, on one embedded
volume."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from s3k_async import S3kClient, S3kSyncClient
from s3k_async.settings import resolve
from s3k_async.txn import volume_lock
from s3k_async.volumes import init_volume
from tests.spark.places import copy_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
BLOCKS = BLOCK.findall(PAGE.read_text(encoding="utf-8"))


@pytest.fixture
async def directory(tmp_path: Path) -> Path:
    """An embedded volume with what the examples speak of."""
    config = resolve(str(tmp_path / "volume"))
    await init_volume(config)
    with S3kSyncClient(config=config) as fs:
        for place in ("in", "old", "docs", "batch", "attic/a"):
            fs.write_many([(f"/{place}/{number}", b"12345") for number in range(100)])
        fs.write_many([(f"/raw/day={number}/part", b"123") for number in range(10)])
    async with S3kClient(config=config) as client:
        for number in range(10):
            await client._volume().place.put(f"legacy/{number}", b"1")
    return tmp_path


def test_the_package_that_brings_s3a_is_of_the_version_of_pyspark(spark: SparkSession) -> None:
    version = spark.sparkContext._jvm.org.apache.hadoop.util.VersionInfo.getVersion()  # type: ignore[union-attr]
    assert f"org.apache.hadoop:hadoop-aws:{version}" in PAGE.read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_examples_run_one_after_the_other(
    spark: SparkSession,
    directory: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Nobody else has the volume open but this session, which looks at each task's beginning.
    monkeypatch.setattr(volume_lock, "QUIET_SECONDS", 0.0)
    said = []
    for block in BLOCKS:
        here = block.replace("/tmp/", f"{directory}/").replace(
            "s3k://analytics", str(directory / "volume")
        )
        here = here.replace("s3://analytics", (directory / "volume" / "data").as_uri())
        if "s3k://copy" in here:
            copy_bytes(directory / "volume", directory / "copy")
            here = here.replace("s3k://copy", str(directory / "copy"))
        # A name for the module, so that functions in it are pickled by value.
        exec(compile(here, PAGE.name, "exec"), {"spark": spark, "__name__": "__main__"})
        said.append(capsys.readouterr().out)
    spark.sql("DROP VIEW days")
    spark.sql("DROP TABLE visits")
    assert said[0] == "100\n"
    assert said[1] == "0 failed\n"
    assert "500" in said[2]
    assert "false|   10|" in said[3]
    assert "true|       30|" in said[4]
    assert "/raw|   30|   10|         11|" in said[5]
    assert said[6].startswith("100 moved, 0 failed\n")
    assert said[6].endswith("100 deleted\n")
    assert said[7] == "10 imported\n"
    assert said[8] == "100 files would go\n"
    assert said[9].endswith(" files dumped\n")
    assert said[10] == "10 files loaded, 0 directories made above them\n"
    assert said[11].endswith(" entries moved\n")
    assert said[12].endswith(" objects are too young to be judged\n")
    assert said[13].endswith("clean\n")
    assert said[14] == "0 entries are lost\n"
    assert said[15] == "100 rows of a day\n"
    assert said[16] == "2 days\n"
    assert said[17] == "1000 rows, read by the JVM\n"
    with S3kSyncClient(str(directory / "volume")) as fs:
        names = {
            "/in",
            "/old",
            "/docs",
            "/batch",
            "/raw",
            "/out",
            "/moved",
            "/legacy",
            "/warehouse",
        }
        assert {status.path for status in fs.list("/")} == names
        assert fs.content_summary("/out").file_count == 100
        assert fs.content_summary("/old").file_count == 0
