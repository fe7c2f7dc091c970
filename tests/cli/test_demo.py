"""The demonstration of `make demo`, on a small tree."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "docs" / "demo.py"


@pytest.fixture
def demo() -> ModuleType:
    spec = importlib.util.spec_from_file_location("demo", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.long  # it waits for a lease, half a minute
def test_the_demonstration(tmp_path: Path) -> None:
    for number in range(40):
        path = tmp_path / f"dir{number % 4}" / "sub" / f"file {number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"%d" % number * number)
    (tmp_path / "dir1" / "one more").write_bytes(b"")
    (tmp_path / "top").write_bytes(b"top")
    done = run(str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    first, *rest = done.stdout.splitlines()
    assert first.startswith("42 files, ")
    rows = [re.fullmatch(r"(.+?) +(\d+\.\d\d)  (.+)", line) for line in rest[2:9]]
    assert [row and (row[1], row[3].partition(",")[0]) for row in rows] == [
        ("s3k init", "an embedded volume"),
        ("s3k put -r", "put 42 files"),
        ("list", "50 entries"),
        ("rename the top directory", "42 files moved"),
        ("read and compare", "42 files equal"),
        ("delete /library/dir1", "11 files moved into the trash"),
        ("s3k fsck", "clean: 42 files"),
    ]
    assert rest[-1].startswith("left: 31 files, 8 directories with the root, ")


def test_a_source_that_cannot_be_shown(tmp_path: Path) -> None:
    (tmp_path / "only").write_bytes(b"")
    done = run(str(tmp_path))
    assert (done.returncode, done.stderr) == (1, "the source has no subdirectory to delete\n")


def test_the_default_source_has_at_least_3000_files(demo: ModuleType) -> None:
    places = [relative for _, relative in demo.default_tree()]
    assert len(places) >= 3000
    assert len(set(places)) == len(places)
