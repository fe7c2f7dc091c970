"""doctor: lines, JSON and exit codes. What is found: tests/diagnosis/test_faults.py."""

from __future__ import annotations

import io
import os
import sys
import tempfile
from pathlib import Path

import pytest

from s3k_async.cli import main
from tests.cli.conftest import Cli
from tests.support import fork_and_run

NOBODY = 65534


def test_a_healthy_volume(cli: Cli) -> None:
    cli.ok("init", "./vol")
    done = cli.ok("doctor", "./vol", "--role", "writer")
    assert done.lines[0].startswith("ok       versions: s3k-async ")
    assert all(line.startswith("ok ") for line in done.lines[:-1])
    assert done.lines[-1] == f"{len(done.lines) - 1} checks: 0 failures, 0 warnings, 0 skipped"
    assert cli.ok("doctor", "./vol", "--quiet").lines[-1].startswith("ok ")


def test_each_line_of_a_failure_says_what_to_do(cli: Cli) -> None:
    done = cli("doctor", "./none")
    assert (done.code, done.errors) == (3, "")
    place = Path.cwd() / "none"
    assert (
        f"failure  table access: the table does not exist: {place}/metadata.sqlite; to do: "
        "s3k init makes it; or correct its path"
    ) in done.lines
    assert not Path("none").exists()


@pytest.mark.parametrize("locked", ["vol", "vol/data"])
def test_a_directory_that_may_not_be_read(cli: Cli, locked: str) -> None:
    """As a user without privileges, in a child process after the imports."""
    cli.ok("init", "./imported")
    cli.ok("doctor", "./imported", "--role", "writer")
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        work.chmod(0o755)
        cli.ok("init", f"{work}/vol")
        (work / "results").touch()
        (work / "results").chmod(0o666)
        (work / locked).chmod(0)

        def run() -> None:
            os.chdir(work)
            os.environ["HOME"] = str(work)
            if os.geteuid() == 0:
                os.setgroups([])
                os.setegid(NOBODY)
                os.seteuid(NOBODY)
            sys.stdout = io.StringIO()
            code = main(["doctor", "./vol", "--role", "writer"])
            Path("results").write_text(f"{sys.stdout.getvalue()}{code}")

        try:
            assert fork_and_run(run) == 0
        finally:
            (work / locked).chmod(0o755)
        *lines, code = (work / "results").read_text().splitlines()
    assert code == "5"
    text = "\n".join(lines)
    assert "exist:" not in text
    assert "credentials" not in text
    assert "s3k policy" not in text
    if locked == "vol":
        for part, what, path in (
            ("table", "table", f"{work}/vol/metadata.sqlite"),
            ("data", "directory", f"file://{work}/vol/data/"),
        ):
            assert (
                f"failure  {part} access: the {what} may not be read: {path}; to do: "
                f"change the owner or mode of the {what} and of the directories above it, or run "
                "as another user"
            ) in lines


def test_a_warning_is_no_failure(cli: Cli) -> None:
    cli.ok("init", "./vol")
    Path("vol/data/s3k-volume.json").unlink()
    done = cli.ok("doctor", "./vol", "--json").json()
    assert (done["ok"], done["failures"], done["warnings"]) == (True, 0, 1)
    mark = next(each for each in done["checks"] if each["name"] == "data mark")
    assert mark["status"] == "warning"
    assert mark["remedy"] == "s3k init --take-over writes it again"


def test_without_a_volume_the_settings_are_the_failure(cli: Cli) -> None:
    for arguments in ((), ("s3k://unknown",)):
        done = cli("doctor", "--json", *arguments)
        assert (done.code, done.errors) == (11, "")
        failure = done.json()["checks"][-1]
        assert (failure["name"], failure["status"]) == ("settings", "failure")
        assert failure["code"] == "config"
        assert failure["remedy"]


def test_adopted_objects_where_there_are_no_buckets(cli: Cli) -> None:
    cli.ok("init", "./vol")
    done = cli.ok("doctor", "./vol", "--role", "reader", "--adopted", "drop/2026")
    assert "skipped  adopted drop/2026: only data in S3 adopts from other buckets" in done.lines


def test_arguments_that_cannot_be_meant(cli: Cli) -> None:
    for arguments in (
        ("./vol:/a",),
        ("./vol", "--role", "king"),
        ("./vol", "--timeout", "0"),
        ("./vol", "--adopted", "drop"),
        ("./vol", "--role", "reader", "--adopted", ""),
    ):
        cli.fails(2, "doctor", *arguments)
