"""PySpark 3.5, which has no data sources in Python, in an environment of its own: the functions
read and write."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from s3k_async import S3kSyncClient
from tests.conftest import unavailable
from tests.spark.conftest import ROOT, spark_environment
from tests.spark.contents import content
from tests.spark.functions_only import ROWS, config_of
from tests.spark.places import HANGS

pytestmark = [pytest.mark.spark, pytest.mark.slow]

INSTALLED = ("pyspark==3.5.*", "pandas==2.3.*")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with what the package needs, these versions, and the
    package as it is here."""
    place = tmp_path_factory.mktemp("pyspark-3.5")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = place / "bin" / "python"
    pip = [str(found), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for command in (
        [sys.executable, "-m", "venv", str(place)],
        [*pip, *project["dependencies"], *INSTALLED],
    ):
        subprocess.run(command, check=True)
    [packages] = place.glob("lib/python*/site-packages")
    (packages / "here.pth").write_text(f"{ROOT}\n")
    return found


def test_the_functions_write_in_all_modes_whatever_becomes_of_tasks(
    python: Path, tmp_path: Path
) -> None:
    if shutil.which("java") is None:
        unavailable("Java is not installed")
    own = {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
    inherited = {
        name: value
        for name, value in spark_environment().items()
        if name not in ("PYTHONPATH", "SPARK_HOME")
    }
    told = subprocess.run(
        [python, "-m", "tests.spark.functions_only", str(tmp_path)],
        capture_output=True,
        cwd=ROOT,
        env=inherited | own,
        timeout=HANGS,
        check=False,
    )
    assert told.returncode == 0, told.stderr.decode()[-5000:]
    answer = json.loads(told.stdout)
    assert answer["version"].startswith("3.5.")
    even, odd = list(range(0, ROWS, 2)), list(range(1, ROWS, 2))
    assert answer["found"] == {
        "append": {"0": even, "1": odd},
        "dynamic": {"0": even, "1": even, "2": odd},
        "failed": {"0": even, "1": even, "2": odd},
        "filtered": {"2": [1, 3, 5]},
        "overwrite": {"4": list(range(ROWS))},
    }
    with S3kSyncClient(config=config_of(str(tmp_path))) as fs:
        assert content(fs, "/out") == {"/out/day=4": list(range(ROWS))}
