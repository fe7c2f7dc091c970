"""The machine, the versions and the commit that a run was made with."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

__all__ = ["ROOT", "environment", "load", "speed"]

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = (
    "aiobotocore",
    "aiohttp",
    "boto3",
    "aioboto3",
    "aiodynamo",
    "s3fs",
    "pyarrow",
    "obstore",
    "xxhash",
    "redis",
    "rocksdict",
)
ADDITIONS = 10_000_000


def environment() -> dict[str, str]:
    """What a reader needs to know to compare figures."""
    versions = ", ".join(f"{name} {_version(name)}" for name in PACKAGES)
    return {
        "processor": _processor(),
        "processors": str(os.cpu_count()),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "system": platform.platform(),
        "python": sys.version.split()[0],
        "packages": versions,
        "commit": _commit(),
        "load": load(),
        "speed": speed(),
    }


def load() -> str:
    """The load of the machine over one, five and fifteen minutes."""
    return " ".join(f"{average:.2f}" for average in os.getloadavg())


def speed() -> str:
    """How long a loop of known work takes now, the best and the worst of five: on a shared machine
    the same code may run at half of its usual speed."""
    taken = sorted(_loop() for _ in range(5))
    return f"{ADDITIONS:,} additions in {taken[0]:.2f} to {taken[-1]:.2f} s"


def _loop() -> float:
    began = time.perf_counter()
    total = 0
    for number in range(ADDITIONS):
        total += number
    return time.perf_counter() - began


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "missing"


def _processor() -> str:
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        return next(
            (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), ""
        )


def _commit() -> str:
    git = ["git", "-C", str(ROOT)]
    asked = subprocess.run(
        [*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    if asked.returncode != 0:
        return "unknown"
    status = [*git, "status", "--porcelain", "-uno", "--", ".", ":!benchmarks/results"]
    changed = subprocess.run(status, capture_output=True, text=True, check=False)
    return asked.stdout.strip() + (" with changes" if changed.stdout.strip() else "")
