"""Plant each defect in a copy of the code and run the test that must find it: `make mutants`.

Arguments, if there are any, are parts of the names of the defects to plant. Each processor works in
a copy of its own. Exits with 1 if a defect survives.
"""

from __future__ import annotations

import compileall
import os
import py_compile
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.torture.measure import report
from tests.torture.mutants.defects import DEFECTS, Defect

ROOT = Path(__file__).resolve().parents[3]
COPIED = ("s3k_async", "tests", "docs", "benchmarks", "pyproject.toml")
LINKED = (".engines",)
PATIENCE = 300.0
"""Seconds after which a test is taken to hang, which finds a defect as well."""
PROCESSORS = len(os.sched_getaffinity(0))
FAILED = 1
"""What pytest ends with when a test failed, as opposed to one that could not be run."""


def main(names: Sequence[str]) -> int:
    """Plant the defects; how many survive."""
    chosen = [
        defect for defect in DEFECTS if not names or any(name in defect.name for name in names)
    ]
    with tempfile.TemporaryDirectory(prefix="s3k-mutants-") as directory:
        copies = [Path(directory) / str(number) for number in range(PROCESSORS)]
        for copy in copies:
            make_copy(copy)
        ended, output = run(
            copies[0],
            ["-n", str(PROCESSORS), *sorted({defect.test for defect in chosen})],
            PATIENCE * len(chosen),
        )
        if ended != 0:
            sys.stderr.write(f"{output}\nthe tests fail without a defect\n")
            return 1
        survivors = [defect.name for defect in surviving(chosen, copies)]
    report(
        "mutants",
        "all" if not names else "chosen",
        planted=len(chosen),
        killed=len(chosen) - len(survivors),
    )
    for name in survivors:
        sys.stderr.write(f"survives: {name}\n")
    return 1 if survivors or not chosen else 0


def surviving(defects: Sequence[Defect], copies: Sequence[Path]) -> list[Defect]:
    """The defects that no test finds; each copy of the code takes one defect at a time."""
    idle = SimpleQueue[Path]()
    for copy in copies:
        idle.put(copy)

    def is_killed(defect: Defect) -> bool:
        copy = idle.get()
        try:
            return is_found(copy, defect)
        finally:
            idle.put(copy)

    with ThreadPoolExecutor(len(copies)) as workers:
        killed = workers.map(is_killed, defects)
        return [defect for defect, found in zip(defects, killed, strict=True) if not found]


def make_copy(copy: Path) -> None:
    copy.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, copy / name)
    # Compiled once. A defect is compiled by the run that tests it, which writes nothing: a change
    # of the same length in the same second would not be noticed by size and time.
    compileall.compile_dir(
        copy, quiet=1, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH
    )
    for name in LINKED:
        (copy / name).symlink_to(ROOT / name)


def is_found(copy: Path, defect: Defect) -> bool:
    """Whether the test fails with the defect."""
    place = copy / "s3k_async" / defect.file
    whole = place.read_text(encoding="utf-8")
    if whole.count(defect.old) != 1:
        sys.stderr.write(
            f"{defect.name}: the text is {whole.count(defect.old)} times in {defect.file}\n"
        )
        return False
    began = time.monotonic()
    place.write_text(whole.replace(defect.old, defect.new), encoding="utf-8")
    try:
        ended, output = run(copy, [defect.test])
    finally:
        place.write_text(whole, encoding="utf-8")
    found = ended == FAILED
    report("mutants", defect.name, killed=found, seconds=round(time.monotonic() - began, 1))
    if not found:
        sys.stderr.write(f"{output}\n")
    return found


def run(copy: Path, tests: Sequence[str], patience: float = PATIENCE) -> tuple[int, str]:
    """How pytest ends."""
    command = [
        sys.executable,
        "-B",
        "-m",
        "pytest",
        "-x",
        "-q",
        "--no-header",
        "-p",
        "no:cacheprovider",
        *tests,
    ]
    environment = {**os.environ, "S3K_TEST_LEVEL": "torture"}  # a share might pass a defect by
    try:
        done = subprocess.run(
            command,
            check=False,
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
            timeout=patience,
        )
    except subprocess.TimeoutExpired:
        return FAILED, "it hangs"
    return done.returncode, done.stdout[-4000:] + done.stderr[-2000:]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
