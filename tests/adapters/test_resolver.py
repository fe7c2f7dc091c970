"""The extras resolve, beside the newest releases of what people install with them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conftest import unavailable
from tests.engines.process import ROOT

BESIDE = ("s3fs", "pandas", "pyspark", "moto")
EXTRAS = ("fsspec", "pandas", "polars", "duckdb", "dask", "zarr", "universal-pathlib")


def resolved(requirements: Sequence[str], directory: Path, *options: str) -> dict[str, str]:
    """Names to versions, as the resolver would install them for this Python."""
    file = directory / "requirements.in"
    file.write_text("\n".join(requirements), encoding="utf-8")
    uv = Path(sys.executable).parent / "uv"
    command = [
        str(uv),
        "pip",
        "compile",
        "--quiet",
        "--no-header",
        "--no-annotate",
        "--python",
        sys.executable,
    ]
    done = subprocess.run(
        [*command, *options, str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if re.search(
        r"dns error|tcp connect error|network is unreachable|error sending request",
        done.stderr,
        re.IGNORECASE,
    ):
        unavailable(f"the package index cannot be asked: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr
    lines = [line.partition(" ;")[0].strip() for line in done.stdout.splitlines()]
    return dict(line.split("==") for line in lines if "==" in line)


@pytest.fixture(scope="module")
def newest(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The newest releases of the four, each as if it were alone."""
    return resolved(BESIDE, tmp_path_factory.mktemp("newest"), "--no-deps")


@pytest.mark.slow
def test_all_extras_resolve_beside_the_newest_s3fs_pandas_pyspark_and_moto(
    newest: dict[str, str], tmp_path: Path
) -> None:
    found = resolved([f"{ROOT}[{','.join(EXTRAS)}]", *BESIDE], tmp_path)
    assert {name: found[name] for name in BESIDE} == newest
