"""The list of defects fits the code: `make mutants` plants them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.torture.mutants.defects import DEFECTS, Defect

ROOT = Path(__file__).resolve().parents[3]


def test_there_are_many_and_each_has_its_name() -> None:
    assert len({defect.name for defect in DEFECTS}) == len(DEFECTS) >= 20


def obstacles(defect: Defect) -> Iterator[str]:
    """Why the defect cannot be planted, or not be found."""
    place = ROOT / "s3k_async" / defect.file
    whole = place.read_text(encoding="utf-8")
    if whole.count(defect.old) != 1:
        yield f"{defect.name}: the text is not in {defect.file} exactly once"
    planted = whole.replace(defect.old, defect.new)
    if planted == whole:
        yield f"{defect.name}: nothing changes in {defect.file}"
    try:
        compile(planted, str(place), "exec")
    except SyntaxError as error:
        yield f"{defect.name}: {error}"
    file, _, test = defect.test.partition("::")
    text = (ROOT / file).read_text(encoding="utf-8") if test else ""
    if test and f"def {test.partition('[')[0]}(" not in text:
        yield f"{defect.name}: {file} has no {test}"


def test_every_defect_can_be_planted() -> None:
    found = [obstacle for defect in DEFECTS for obstacle in obstacles(defect)]
    assert not found, "\n".join(found)


def test_no_defect_is_found_by_an_undefined_name(tmp_path: Path) -> None:
    """It would show nothing about its test."""
    for number, defect in enumerate(DEFECTS):
        whole = (ROOT / "s3k_async" / defect.file).read_text(encoding="utf-8")
        planted = whole.replace(defect.old, defect.new)
        (tmp_path / f"{number}.py").write_text(planted, encoding="utf-8")
    words = ["-m", "ruff", "check", "--isolated", "--no-cache", "--select", "F821", "--quiet"]
    found = subprocess.run(
        [sys.executable, *words, "--output-format", "concise", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, found.stdout) == (0, ""), found.stdout + found.stderr
