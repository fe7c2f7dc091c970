"""`s3k spark` in a separate process with its own JVM: its output, and SIGTERM."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from s3k_async import S3kSyncClient
from s3k_async.cli import main
from s3k_async.errors import BusyError
from s3k_async.settings import resolve
from s3k_async.txn import volume_lock
from s3k_async.volumes import init_volume
from tests.cli.test_terminal import at_a_terminal
from tests.spark.conftest import ROOT, spark_environment
from tests.spark.places import HANGS
from tests.spark.waiting_tasks import PLACE

pytestmark = [pytest.mark.spark, pytest.mark.slow]

COMMAND = [sys.executable, "-m", "s3k_async.cli", "spark"]

ENDED = {
    signal.SIGINT: (130, b"s3k: interrupted\n"),
    signal.SIGTERM: (143, b"s3k: terminated\n"),
}
"""The exit code and the errors of a command by the signal that ends it."""


@pytest.fixture
async def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The directory of an embedded volume with two files; the environment is that of Spark."""
    for name, value in spark_environment().items():
        monkeypatch.setenv(name, value)
    place = str(tmp_path / "volume")
    config = resolve(place)
    await init_volume(config)
    with S3kSyncClient(config=config) as fs:
        fs.write_many([("/a/f", b"1"), ("/a/g", b"2")])
    return place


def test_on_a_terminal_nothing_is_shown_but_progress_and_the_result(directory: str) -> None:
    command = [sys.executable, "-c", EAGER, "spark"]
    code, shown = at_a_terminal(
        "fsck-verify", directory, "--master", "local[1]", "--tasks", "1", command=command
    )
    *progress, result = shown.splitlines()
    assert code == 0
    assert "clean: 2 files, 1 directory, 2 bytes" in result
    assert "fsck: table" in shown
    assert "entries" in shown
    for noise in ("WARN", "Setting default log level", "Traceback", "incubator"):
        assert noise not in shown, progress


EAGER = """
import sys
from s3k_async.cli import main, progress
progress.PATIENCE = 0.0
sys.exit(main(sys.argv[1:]))
"""


def test_verbose_shows_the_log(directory: str) -> None:
    done = run("du", f"{directory}:/", "-v")
    assert done.returncode == 0
    assert b"log4j" in done.stderr


def test_sigterm_ends_the_driver_and_its_jvm(directory: str) -> None:
    """Sent to both, while the driver waits for the answer of a service."""
    with socket.create_server(("127.0.0.1", 0)) as service:
        service.settimeout(HANGS)
        endpoint = f"http://127.0.0.1:{service.getsockname()[1]}"
        places = [
            "--table",
            "meta",
            "--bucket",
            "data",
            "--endpoint",
            endpoint,
            "--region",
            "us-east-1",
        ]
        with subprocess.Popen(
            [*COMMAND, "du", "s3k://v/", *places, "--master", "local[1]"],
            stderr=subprocess.PIPE,
            start_new_session=True,
        ) as process:
            assert process.stderr is not None
            request, _ = service.accept()
            (jvm,) = children(process.pid)
            os.killpg(process.pid, signal.SIGTERM)
            assert process.wait(HANGS) == 143
            request.close()
            assert process.stderr.read() == b"s3k: terminated\n"
    wait_for(lambda: not Path(f"/proc/{jvm}").exists())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_cancels_the_tasks_that_are_running(
    directory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """A reshard stays locked, says what to do, and can be finished without Spark. SIGINT is sent to
    all processes, as by a terminal."""
    waiting = tmp_path / "waiting"
    waiting.mkdir()
    monkeypatch.setenv(PLACE, str(waiting))
    monkeypatch.setattr(volume_lock, "QUIET_SECONDS", 0.0)
    reshard = ["reshard", directory, "--suffix-count", "8"]
    command = [sys.executable, "-c", WAITING, "spark", *reshard]
    with subprocess.Popen(
        [*command, "--master", "local[1]", "--tasks", "1"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        wait_for(lambda: process.poll() is not None or any(waiting.iterdir()))
        (jvm,) = children(process.pid)
        if number == signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            process.terminate()
        output, errors = process.communicate(timeout=HANGS)
    assert output == b""
    assert (process.returncode, errors) == ENDED[number]
    (task,) = (int(each.name) for each in waiting.iterdir())
    wait_for(lambda: not any(Path(f"/proc/{each}").exists() for each in (jvm, task)))
    with pytest.raises(BusyError, match="interrupted; repeat the reshard to finish it"):
        S3kSyncClient(directory).open_volume()
    assert main([*reshard, "-q"]) == 0
    with S3kSyncClient(directory) as fs:
        assert fs.read_many(["/a/f", "/a/g"]) == [b"1", b"2"]
    assert main(["fsck", directory, "--grace", "0", "-q"]) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_jvm_starts(
    directory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """The JVM is a program that ends with its standard input, as the gateway of Spark does."""
    started = tmp_path / "started"
    program = tmp_path / "home" / "bin" / "spark-submit"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho $$ >{started}.new\nmv {started}.new {started}\nexec cat\n")
    program.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "home"))
    with subprocess.Popen(
        [*COMMAND, "du", f"{directory}:/"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        wait_for(lambda: process.poll() is not None or started.exists())
        os.killpg(process.pid, number)
        output, errors = process.communicate(timeout=HANGS)
    assert output == b""
    assert (process.returncode, errors) == ENDED[number]
    jvm = started.read_text().strip()
    wait_for(lambda: not Path(f"/proc/{jvm}").exists())


WAITING = """
import sys
from s3k_async.cli import main
from s3k_async.spark import reshard_job
from s3k_async.txn import volume_lock
from tests.spark.waiting_tasks import WaitingSegments
volume_lock.QUIET_SECONDS = 0.0
reshard_job._Segments = WaitingSegments
sys.exit(main())
"""


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + HANGS
    while not condition():
        assert time.monotonic() < end, "it has not happened"
        time.sleep(0.05)


def run(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    words: Sequence[str] = [*COMMAND, *arguments, "--master", "local[1]", "--tasks", "1"]
    return subprocess.run(words, capture_output=True, timeout=HANGS, check=False)


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8")
    return [int(each) for each in text.split()]
