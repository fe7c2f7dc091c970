"""The examples at the end of the help of the `s3k spark` commands: all are run, one after another,
in one volume and in the session of the tests, each with one task."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from s3k_async.cli.examples import EXAMPLES
from s3k_async.txn import volume_lock
from tests.cli.conftest import Cli, clean_environment, cli, model
from tests.spark.places import copy_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["clean_environment", "cli", "model"]

pytestmark = pytest.mark.spark

OUTPUT = {
    "listing": r"listed 5 entries to \S+/listing",
    "du": r" +\d+ +\d+ +\d+  /raw(/day=[12])?",
    "dump": r"dumped 6 files, 8 directories of \S+/vol:/ to \S+/vol\.dump",
    "load": r"loaded 6 files, 8 directories into \./new",
    "rename": r"renamed 1 file, 6 bytes; .*",
    "delete": r"deleted 1 file, 1 bytes; .*",
    "import": r"imported 1 file, \d bytes; .*",
    "purge": r"deleted 1 file, 1 directory, 6 bytes; .*",
    "reshard": r"\./vol has suffix count 8, hash xxh3; moved \d+ entries",
    "fsck-verify": r"clean: 6 files, 10 directories, .*",  # with those in the trash
    "fsck-repair": r"repaired: 0 findings.*",
    "gc": r"(reclaimed from the trash|kept, \w+|deleted).*",
    "fsck-restore": r"would restore 1 file, .*",
}
"""By command, in the order in which they are run: what each line of the output is."""


@pytest.fixture
def place(cli: Cli, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: a copy of the model, and the files that the examples need."""
    place = tmp_path / "place"
    shutil.copytree(model, place)
    (place / "paths.csv").write_text("path\n/published/f\n")
    (place / "pairs.csv").write_text("source,target\n/raw/a.csv,/raw/b.csv\n")
    old = place / "vol/data/old"
    old.mkdir()
    (old / "x").write_bytes(b"old")
    (place / "objects.csv").write_text(f"uri,path\n{(old / 'x').as_uri()},/in/x\n")
    monkeypatch.chdir(place)
    copy_bytes(Path("vol"), Path("new"))
    monkeypatch.setattr(volume_lock, "QUIET_SECONDS", 0.0)
    return place


def test_the_examples_can_be_run(spark: SparkSession, cli: Cli, place: Path) -> None:
    assert {f"spark {command}" for command in OUTPUT} == {
        command for command in EXAMPLES if command.startswith("spark ")
    }
    others: list[tuple[str, str]] = []
    for command, pattern in OUTPUT.items():
        for example in EXAMPLES[f"spark {command}"]:
            words = [word.replace("/tmp/", f"{place}/") for word in shlex.split(example)[1:]]
            lines = cli.ok(*words, "--tasks", "1").lines
            assert lines, example
            others += [(example, line) for line in lines if not re.fullmatch(pattern, line)]
    assert others == []
    listed = [line["path"] for line in cli.ok("ls", "-R", "--json", "./new").json_lines()]
    assert {"/raw/a.csv", "/published/f", "/logs/app.log"} <= set(listed)
    assert sorted(
        line["path"] for line in cli.ok("find", "./vol:/", "--type", "f", "--json").json_lines()
    ) == ["/in/x", "/photos/2026/a.jpg", "/raw/b.csv", "/raw/day=1/part-0", "/raw/day=2/part-0"]
