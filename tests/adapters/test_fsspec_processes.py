"""One filesystem object across fork, spawn and forkserver, pools and loaders: everything works, and
nothing hangs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT, run_program

LIMIT_SECONDS = 300

slow = pytest.mark.slow


@pytest.mark.parametrize(
    "method", ["fork", pytest.param("spawn", marks=slow), pytest.param("forkserver", marks=slow)]
)
def test_a_filesystem_and_its_children(tmp_path: Path, method: str) -> None:
    output = run_program(
        "-m",
        "tests.adapters.fsspec_case",
        method,
        str(tmp_path / "volume"),
        limit=LIMIT_SECONDS,
    )
    assert output == ""


def test_nothing_is_said_and_nothing_lost_at_exit(tmp_path: Path) -> None:
    program = """
import asyncio, sys, fsspec
from s3k_async.settings import resolve
from s3k_async.volumes import init_volume

asyncio.run(init_volume(resolve(sys.argv[1])))
fs = fsspec.filesystem("s3k", volume=sys.argv[1])
fs.pipe({f"/{number}": b"1" for number in range(20)})

async def work():
    other = fsspec.filesystem("s3k", volume=sys.argv[1], asynchronous=True)
    await other._pipe_file("/async", b"1")

asyncio.run(work())
reader = fs.open("/1")
"""
    volume = tmp_path / "volume"
    assert run_program("-W", "error", "-c", program, str(volume), limit=LIMIT_SECONDS) == ""
    verified = subprocess.run(
        [sys.executable, "-m", "s3k_async.cli", "fsck", "verify", str(volume)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (verified.returncode, verified.stderr) == (0, ""), verified.stdout
    assert verified.stdout.startswith("clean: 21 files")


def test_a_forked_child_reads_with_a_cache_whose_thread_is_in_the_parent(tmp_path: Path) -> None:
    program = """
import asyncio, os, signal, sys, fsspec
from s3k_async.settings import resolve
from s3k_async.volumes import init_volume

asyncio.run(init_volume(resolve(sys.argv[1])))
fs = fsspec.filesystem("s3k", volume=sys.argv[1])
data = bytes(range(256)) * 4
fs.pipe("/a", data)
file = fs.open("/a", block_size=100, cache_type="background")
assert file.read(250) == data[:250]
if pid := os.fork():
    assert os.waitpid(pid, 0)[1] == 0
    assert file.read() == data[250:]
else:
    signal.alarm(60)
    assert file.read() == data[250:]
    file.close()
    os._exit(0)
"""
    assert run_program("-c", program, str(tmp_path / "volume"), limit=LIMIT_SECONDS) == ""
