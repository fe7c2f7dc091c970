"""`s3k spark` in a separate process with its own JVM: its output, and SIGTERM."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from s3k_async import S3kSyncClient
from s3k_async.settings import resolve
from s3k_async.volumes import init_volume
from tests.cli.test_terminal import at_a_terminal
from tests.spark.conftest import spark_environment
from tests.spark.places import HANGS

pytestmark = [pytest.mark.spark, pytest.mark.slow]

COMMAND = [sys.executable, "-m", "s3k_async.cli", "spark"]


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


@pytest.mark.parametrize("to_all", [False, True], ids=["to the driver", "to its JVM as well"])
def test_sigterm_ends_the_job_and_its_jvm(directory: str, to_all: bool) -> None:
    """While the driver waits for the answer of a service."""
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
            if to_all:
                os.killpg(process.pid, signal.SIGTERM)
            else:
                process.terminate()
            assert process.wait(HANGS) == 143
            request.close()
            assert process.stderr.read() == b"s3k: terminated\n"
    end = time.monotonic() + HANGS
    while Path(f"/proc/{jvm}").exists():
        assert time.monotonic() < end, "the JVM has not ended"
        time.sleep(0.05)


def run(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    words: Sequence[str] = [*COMMAND, *arguments, "--master", "local[1]", "--tasks", "1"]
    return subprocess.run(words, capture_output=True, timeout=HANGS, check=False)


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8")
    return [int(each) for each in text.split()]
