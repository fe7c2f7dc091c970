"""SIGTERM in the middle of each command: it ends with code 143, leaves consistent volumes and no
temporary files, and can be repeated."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from s3k_async import S3kSyncClient
from s3k_async.cli import main
from s3k_async.cli.examples import EXAMPLES
from s3k_async.cli.termination import TerminatedError, Termination
from s3k_async.testing import Call, FaultPlan
from s3k_async.txn import volume_lock
from tests.cli.conftest import Cli, Done
from tests.cli.example_places import ELSEWHERE, OFFLINE, example_words
from tests.level import FULL

UNFINISHED = {
    "destroy": "the volume is being destroyed; repeat s3k destroy to finish",
    "load": "was interrupted; repeat the load to finish it",
    "migrate": "was interrupted; repeat the migration to finish it",
    "reshard": "was interrupted; repeat the reshard to finish it",
}
"""Commands whose volume stays locked until they are repeated, and the message of other commands on
it."""


@pytest.mark.parametrize("command", sorted({*EXAMPLES} - {*ELSEWHERE} - OFFLINE))
def test_it_leaves_a_clean_volume_and_can_be_repeated(
    command: str, model: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(volume_lock, "QUIET_SECONDS", 0.0)
    monkeypatch.setenv("S3K_VOLUME", "./vol")
    for number, example in enumerate(EXAMPLES[command][: None if FULL else 1]):

        def words(name: str, example: str = example, number: int = number) -> list[str]:
            return example_words(example, tmp_path / f"{number}{name}", model, cli, monkeypatch)

        arguments = words("")
        with (plan := FaultPlan()).injected():
            cli.ok(*arguments)
        complete = found(cli)
        calls = len(plan.calls)
        # A load locks its volume in the second half of its calls.
        parts = (1, 2, 3) if FULL else (3,) if command == "load" else (2,)
        for call in {calls * part // 4 + 1 for part in parts}:
            arguments = words(f"-{call}")
            before = set(local_files())
            done = terminated(cli, arguments, call)
            assert (done.code, done.errors) == (143, "s3k: terminated\n"), (example, call, done)
            assert set(local_files()) <= before | made_by(command), (example, call)
            for volume in volumes():
                checked = cli("fsck", volume, "--grace", "0")
                unfinished = UNFINISHED.get(command, "it is clean")
                assert not checked.code or unfinished in checked.errors, (call, checked)
            cli.ok(*arguments)
            assert found(cli) == complete, (example, call)


def terminated(cli: Cli, arguments: list[str], number: int) -> Done:
    """Run a command that receives SIGTERM before one of its calls, twice, as from `timeout`."""

    async def gate(call: Call) -> None:
        if call.number == number:
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)

    with FaultPlan(gate).injected():
        return cli(*arguments)


def made_by(command: str) -> set[str]:
    """The local files that an unfinished command may leave."""
    return {"copy/a.csv", "copy/day=1/part-0", "copy/day=2/part-0"} if command == "get" else set()


def volumes() -> list[str]:
    """The embedded volumes in the working directory."""
    return sorted(f"./{each.parent}" for each in Path().glob("*/metadata.sqlite"))


def local_files() -> list[str]:
    """The files in the working directory that belong to no volume."""
    own = {Path(each) for each in (*volumes(), "lost", "fast", "lab", "new", ".home")}
    files = (each for each in Path().rglob("*") if each.is_file())
    return sorted(str(each) for each in files if own.isdisjoint(each.parents))


def found(cli: Cli) -> dict[str, Any]:
    """Local files, and the entries of each volume."""
    entries = {
        volume: sorted(
            (each["path"], each["type"], each["size"], each["checksum"])
            for each in cli.ok("ls", "-R", "-a", "--json", volume).json_lines()
        )
        for volume in volumes()
    }
    return {"": local_files(), **entries}


COMMAND = [sys.executable, "-m", "s3k_async.cli"]
LIMIT = 60
"""Seconds after which a test gives up on a process."""


@pytest.mark.parametrize("ignored", [False, True])
def test_a_process_that_waits_for_input(model: Path, tmp_path: Path, ignored: bool) -> None:
    """A process that ignores SIGINT, as a shell's background job does, also ends, and still ignores
    SIGINT."""
    shell = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh"] if ignored else []
    volume = tmp_path / "vol"
    assert main(["init", "-q", str(volume)]) == 0
    with subprocess.Popen(
        [*shell, *COMMAND, "put", "-", f"{volume}:/half"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"x" * 100_000)
        process.stdin.flush()
        with S3kSyncClient(str(volume)) as fs:
            while not fs.exists("/half"):
                assert process.poll() is None
            if ignored:
                process.send_signal(signal.SIGINT)
            process.terminate()
            assert process.wait(LIMIT) == 143
            assert process.stderr.read() == b"s3k: terminated\n"
            assert not fs.exists("/half")


PROGRAM = """
import importlib.abc, signal, sys
from s3k_async.cli import main, termination
{}
sys.exit(main())
"""

SECOND = """
from s3k_async.testing import FaultPlan
termination.REPEAT_SECONDS = -1.0
async def gate(call):
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)
injected = FaultPlan(gate).injected()
injected.__enter__()
"""

IMPORT = """
class Terminate(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "s3k_async.cli.commands.browse":
            signal.raise_signal(signal.SIGTERM)
sys.meta_path.insert(0, Terminate())
"""

IGNORED = """
import weakref
class Referenced: pass
class Terminate(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "s3k_async.cli.commands.browse":
            referenced = Referenced()
            watched = weakref.ref(referenced, lambda _: signal.raise_signal(signal.SIGTERM))
            del referenced
            while True:
                time.sleep(0.01)
import time
sys.meta_path.insert(0, Terminate())
"""

WRAPPED = """
class Field:
    def __set_name__(self, owner, name):
        signal.raise_signal(signal.SIGTERM)
class Terminate(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "{}":
            type("Owner", (), {{"field": Field()}})
sys.meta_path.insert(0, Terminate())
"""

INNERMOST = """
class Terminate(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "anyio" or name.startswith("anyio._"):
            signal.raise_signal(signal.SIGTERM)
sys.meta_path.insert(0, Terminate())
"""

SCHEDULING = """
import asyncio, itertools
calls = itertools.count()
usual = asyncio.BaseEventLoop.call_soon
def call_soon(self, callback, *arguments, context=None):
    if {}:
        signal.raise_signal(signal.SIGTERM)
    return usual(self, callback, *arguments, context=context)
asyncio.BaseEventLoop.call_soon = call_soon
"""

BEGINNING = SCHEDULING.format("next(calls) == 0")
"""When the event loop schedules the first step of the command."""

ENDING = SCHEDULING.format('getattr(callback, "__qualname__", "") == "WorkerThread.stop"')
"""When it has ended, and the end of its worker threads is scheduled."""

TERMINATED = 143, b"s3k: terminated\n"


@pytest.mark.parametrize(
    ("text", "code", "errors"),
    [
        (IMPORT, *TERMINATED),
        (IGNORED, *TERMINATED),
        (WRAPPED.format("s3k_async.cli.application"), *TERMINATED),
        (WRAPPED.format("s3k_async.cli.commands.browse"), *TERMINATED),
        (INNERMOST, *TERMINATED),
        (BEGINNING, *TERMINATED),
        (SECOND, -signal.SIGTERM, b""),
    ],
    ids=[
        "during an import",
        "in a callback whose errors are ignored",
        "in the definition of a class, at first",
        "in the definition of a class",
        "during an import that the clock needs",
        "at the begin of the event loop",
        "a second time",
    ],
)
def test_a_process_that(text: str, code: int, errors: bytes, model: Path) -> None:
    command = [sys.executable, "-c", PROGRAM.format(text), "ls", f"{model}/vol:/"]
    done = subprocess.run(command, timeout=LIMIT, check=False, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (code, b"", errors)


def test_a_process_that_ends_its_threads(model: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy"
    words = ["get", "-q", f"{model}/vol:/raw/a.csv", str(target)]
    command = [sys.executable, "-c", PROGRAM.format(ENDING), *words]
    done = subprocess.run(command, timeout=LIMIT, check=False, capture_output=True)
    assert (done.returncode, done.stderr) == TERMINATED
    assert target.exists()


def test_an_interrupt_that_python_wraps() -> None:
    class Field:
        def __set_name__(self, owner: type, name: str) -> None:
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(TerminatedError), Termination().handled():
        type("Owner", (), {"field": Field()})


@pytest.mark.parametrize("handler", ["SIG_DFL", "SIG_IGN", "default_int_handler"])
def test_a_program_that_calls_a_command(handler: str, model: Path) -> None:
    """Its handlers are the same afterwards, whatever it does on SIGINT."""
    program = f"""
import signal, sys
from s3k_async.cli import main
from s3k_async.testing import FaultPlan
async def gate(call):
    signal.raise_signal(signal.SIGTERM)
signal.signal(signal.SIGINT, signal.{handler})
def state():
    return [signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT),
            signal.pthread_sigmask(signal.SIG_BLOCK, []), sys.unraisablehook]
before = state()
with FaultPlan(gate).injected():
    code = main()
assert state() == before
sys.exit(code)
"""
    command = [sys.executable, "-c", program, "ls", f"{model}/vol:/"]
    done = subprocess.run(command, timeout=LIMIT, check=False, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (143, b"", b"s3k: terminated\n")


def test_engines_that_are_not_ready_are_ended(tmp_path: Path) -> None:
    for name in ("dynoxide", "weed"):
        (tmp_path / name).write_text(f"#!/bin/sh\necho >{tmp_path}/started\nexec sleep 1000\n")
        (tmp_path / name).chmod(0o755)
    directory = tmp_path / "engines"
    with subprocess.Popen(
        [*COMMAND, "dev", "up", "--directory", str(directory)],
        stderr=subprocess.PIPE,
        env={**os.environ, "S3K_ENGINES": str(tmp_path)},
    ) as process:
        assert process.stderr is not None
        while not (tmp_path / "started").exists():
            assert process.poll() is None
        process.terminate()
        assert process.wait(LIMIT) == 143
        assert process.stderr.read() == b"s3k: terminated\n"
    with open(directory / "table.lock", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # once it has ended
    assert not (directory / "engines.json").exists()
