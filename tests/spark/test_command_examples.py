"""The examples at the end of the help of the `s3k spark` commands: all are run, one after another,
in one volume and in the session of the tests, each with one task; interrupted, terminated, into a
pipe that is closed, and to the end at a terminal."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from s3k_async.cli import progress
from s3k_async.cli.examples import EXAMPLES
from s3k_async.spark.runner import JobRun
from s3k_async.txn import volume_lock
from tests.cli.conftest import Cli, clean_environment, cli, model
from tests.cli.test_examples import at_a_terminal, with_a_closed_pipe
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
    "rename": r"renamed 1 file, 6 bytes in \S+/vol:/; .*",
    "delete": r"deleted 1 file, 1 bytes in \S+/vol:/; .*",
    "import": r"imported 1 file, \d bytes in \S+/vol:/; .*",
    "purge": r"deleted 1 file, 1 directory, 6 bytes in \S+/vol:/; .*",
    "reshard": r"\./vol has suffix count 8, hash xxh3; moved \d+ entries",
    "fsck-verify": r"clean: 6 files, 10 directories, .*",  # with those in the trash
    "fsck-repair": r"repaired: 0 findings.*",
    "gc": r"(reclaimed from the trash|kept, \w+|deleted).*",
    "fsck-restore": r"would restore 1 file, .*",
}
"""By command, in the order in which they are run: what each line of the output is."""

SIGNALS = ((signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated"))


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
    monkeypatch.setattr(progress, "PATIENCE", 3600.0)
    return place


def examples(place: Path) -> Iterator[tuple[str, list[str]]]:
    """The examples in the order of `OUTPUT`: command, and the words after `s3k`."""
    for command in OUTPUT:
        for example in EXAMPLES[f"spark {command}"]:
            words = [word.replace("/tmp/", f"{place}/") for word in shlex.split(example)[1:]]
            yield command, [*words, "--tasks", "1"]


def test_the_examples_can_be_run(spark: SparkSession, cli: Cli, place: Path) -> None:
    """At a terminal."""
    assert {f"spark {command}" for command in OUTPUT} == {
        command for command in EXAMPLES if command.startswith("spark ")
    }
    others: list[tuple[str, str]] = []
    for command, words in examples(place):
        code, shown = at_a_terminal(words)
        assert (code, bool(shown)) == (0, True), (words, shown)
        lines = shown.replace("\r\n", "\n").splitlines()
        others += [(command, line) for line in lines if not re.fullmatch(OUTPUT[command], line)]
    assert others == []
    listed = [line["path"] for line in cli.ok("ls", "-R", "--json", "./new").json_lines()]
    assert {"/raw/a.csv", "/published/f", "/logs/app.log"} <= set(listed)
    assert sorted(
        line["path"] for line in cli.ok("find", "./vol:/", "--type", "f", "--json").json_lines()
    ) == ["/in/x", "/photos/2026/a.jpg", "/raw/b.csv", "/raw/day=1/part-0", "/raw/day=2/part-0"]


@pytest.mark.slow
def test_the_examples_are_interrupted_and_then_run_into_a_closed_pipe(
    spark: SparkSession,
    cli: Cli,
    place: Path,
    capsysbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The signals arrive when the job begins."""
    for _, words in examples(place):
        for number, code, word in SIGNALS:
            with monkeypatch.context() as patch:
                patch.setattr(JobRun, "__init__", signalled(number))
                done = cli(*words)
            assert (done.code, done.output, done.errors) == (code, b"", f"s3k: {word}\n"), words
        with_a_closed_pipe(words, capsysbinary)
    assert cli.ok("ls", "./vol").lines == ["empty/", "in/", "photos/", "published/", "raw/"]
    assert cli.ok("fsck", "./new").out.startswith("clean")


def signalled(number: int) -> Callable[..., None]:
    """`JobRun.__init__` in a process that receives a signal at its end."""
    usual = JobRun.__init__

    def made(job: JobRun, *values: Any, **options: Any) -> None:
        usual(job, *values, **options)
        signal.raise_signal(number)

    return made
