"""What importing the package costs: none of the heavy libraries, no thread, no event loop."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

HEAVY = ("botocore", "aiobotocore", "aioboto3", "boto3", "aiohttp", "pyarrow", "pyspark")

PROBE = f"""
import importlib, json, sys, threading
importlib.import_module(sys.argv[1])
print(json.dumps({{
    "loaded": [name for name in {HEAVY!r} if name in sys.modules],
    "threads": [thread.name for thread in threading.enumerate()],
    "tasks": len(__import__("os").listdir("/proc/self/task")) if sys.platform == "linux" else 1,
}}))
"""


@pytest.mark.parametrize("module", ["s3k_async", "s3k_async.config"])
def test_importing_the_package_or_the_locations_is_cheap(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, module],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert json.loads(done.stdout) == {"loaded": [], "threads": ["MainThread"], "tasks": 1}
    assert done.stderr == ""


PACKAGES = ("s3k_async", "s3k_async.migrate", "s3k_async.objects", "s3k_async.volumes")


@pytest.mark.parametrize("name", PACKAGES)
def test_every_public_name_can_be_had(name: str) -> None:
    package = importlib.import_module(name)
    assert package.__all__
    assert [each for each in package.__all__ if not hasattr(package, each)] == []


def test_the_version_is_that_of_the_project() -> None:
    import s3k_async

    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))
    assert s3k_async.__version__ == project["project"]["version"]
