"""dev: local engines, started, used and ended."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from s3k_async.cli import local_engines
from tests.cli.conftest import Cli
from tests.cli.test_examples import at_a_terminal, interrupted, with_a_closed_pipe
from tests.conftest import unavailable
from tests.engines import dynoxide, seaweedfs
from tests.engines.process import ENGINES


@pytest.fixture
def programs(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The programs can be found; what was started is ended."""
    for engine in (dynoxide, seaweedfs):
        if reason := engine.missing():
            unavailable(reason)
    monkeypatch.setenv("S3K_ENGINES", str(ENGINES))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    yield
    cli.ok("dev", "down")


@pytest.mark.engine
def test_up_and_down(cli: Cli, programs: None, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = cli.ok("dev", "up").lines
    assert [line.split()[:2] for line in shown[:2]] == [["table", "runs"], ["data", "runs"]]
    name, _, value = shown[2].removeprefix("export ").partition("=")
    assert value == f"{Path.cwd()}/.s3k-dev/config.toml"
    assert Path(value).stat().st_mode & 0o077 == 0
    monkeypatch.setenv(name, value)
    cli.ok("put", "-", "/a/f", stdin=b"x")
    before = [each["pid"] for each in cli.ok("dev", "up", "--json").json_lines()]
    states = cli.ok("dev", "status", "--json").json_lines()
    assert [each["pid"] for each in states] == before
    assert all(each["runs"] for each in states)
    assert cli.ok("doctor", "--role", "operator", "--quiet").code == 0
    assert cli.ok("dev", "down").out == "ended dynoxide, weed\n"
    assert not any(each["runs"] for each in cli.ok("dev", "status", "--json").json_lines())
    for pid in before:
        assert os.waitpid(pid, 0)[0] == pid
    assert cli.ok("dev", "down").out == "ended nothing\n"


@pytest.mark.engine
def test_at_a_terminal(
    cli: Cli, programs: None, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """After Ctrl-C before the volume is made, and output into a closed pipe: the engines run."""
    assert interrupted(cli, ["dev", "up"])
    before = cli.ok("dev", "status").lines
    with_a_closed_pipe(["dev", "up"], capsysbinary)
    code, shown = at_a_terminal(["dev", "up"])
    assert code == 0
    assert shown.splitlines()[:2] == before
    assert all(" runs " in line for line in before)


@pytest.mark.engine
@pytest.mark.slow
def test_data_is_kept(cli: Cli, programs: None, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.ok("dev", "up")
    monkeypatch.setenv("S3K_CONFIG", ".s3k-dev/config.toml")
    cli.ok("put", "-", "/a/f", stdin=b"kept")
    cli.ok("dev", "down")
    cli.ok("dev", "up")
    assert cli.ok("cat", "/a/f").out == "kept"


def test_without_the_programs(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "s3k dev up starts them" in cli.ok("dev", "status").out
    monkeypatch.setenv("PATH", "/nonexistent")
    error = cli.fails(11, "dev", "up").errors
    assert "npm install" in error
    assert not Path(".s3k-dev").exists()


def test_a_program_that_ends(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("dynoxide", "weed"):
        program = Path("bin") / name
        program.parent.mkdir(exist_ok=True)
        program.write_text("#!/bin/sh\necho broken\nexit 1\n")
        program.chmod(0o755)
    monkeypatch.setenv("S3K_ENGINES", str(Path("bin").absolute()))
    assert "table.log" in cli.fails(8, "dev", "up").errors
    assert Path(".s3k-dev/table.log").read_text() == "broken\n"


@pytest.mark.engine
def test_an_engine_that_ends_takes_the_other_one_along(
    cli: Cli, programs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("bin").mkdir()
    Path("bin/dynoxide").symlink_to(ENGINES / "dynoxide")
    Path("bin/weed").write_text("#!/bin/sh\nexit 1\n")
    Path("bin/weed").chmod(0o755)
    monkeypatch.setenv("S3K_ENGINES", str(Path("bin").absolute()))
    assert "data.log" in cli.fails(8, "dev", "up").errors
    lock = os.open(".s3k-dev/table.lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)  # once it has ended
    os.close(lock)
    assert cli.ok("dev", "status", "--json").out == ""


def test_a_damaged_state(cli: Cli) -> None:
    Path(".s3k-dev").mkdir()
    Path(".s3k-dev/engines.json").write_text("[{}")
    cli.fails(11, "dev", "status")
    assert local_engines.VOLUME == "dev"
    shutil.rmtree(".s3k-dev")
