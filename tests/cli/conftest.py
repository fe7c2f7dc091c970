"""The command line, run inside the test's process."""

from __future__ import annotations

import io
import itertools
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from s3k_async.cli import main

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Done:
    """What a command did."""

    code: int
    output: bytes
    errors: str

    @property
    def out(self) -> str:
        return self.output.decode()

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    def json(self) -> Any:
        return json.loads(self.output)

    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.lines]

    def error(self) -> Any:
        """The error document of a command with --json."""
        return json.loads(self.errors)["error"]


class Cli:
    """Runs commands; `cli("ls", "/")` gives what it did, `cli.ok` insists on success."""

    def __init__(
        self, capture: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self._capture = capture
        self._monkeypatch = monkeypatch

    def __call__(self, *arguments: str, stdin: bytes = b"") -> Done:
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        self._capture.readouterr()
        code = main(arguments)
        output, errors = self._capture.readouterr()
        done = Done(code, output, errors.decode())
        assert "Traceback" not in done.errors
        return done

    def ok(self, *arguments: str, stdin: bytes = b"") -> Done:
        done = self(*arguments, stdin=stdin)
        assert (done.code, done.errors) == (0, "")
        return done

    def fails(self, code: int, *arguments: str, stdin: bytes = b"") -> Done:
        """A failure is one line of ours on standard error."""
        done = self(*arguments, stdin=stdin)
        assert done.code == code, done
        assert done.errors.startswith("s3k: ")
        assert done.errors.count("\n") == 1
        return done


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings but the test's own, and a working directory that is empty."""
    for name in os.environ:
        if name.startswith(("S3K_", "AWS_")):
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    work = tmp_path / "work"
    home.mkdir()
    work.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.chdir(work)


@pytest.fixture
def cli(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Cli:
    return Cli(capsysbinary, monkeypatch)


@pytest.fixture
def volume(request: pytest.FixtureRequest, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new volume, in memory, which is the default one."""
    name = f"memory://cli-{os.getpid()}-{next(_numbers)}"
    layout = "tree" if "tree_volume" in request.fixturenames else "path"
    cli.ok("init", name, "--suffix-count", "3", "--layout", layout)
    monkeypatch.setenv("S3K_VOLUME", name)
    return name


@pytest.fixture
def tree_volume(volume: str) -> str:
    """A new volume of layout `tree`, in memory, which is the default one."""
    return volume


@pytest.fixture
def other_volume(cli: Cli) -> str:
    """Another volume."""
    name = f"memory://other-{os.getpid()}-{next(_numbers)}"
    cli.ok("init", name)
    return name


@pytest.fixture
def small_tree(cli: Cli, volume: str) -> dict[str, bytes]:
    """Files in the default volume, and a directory `/empty`."""
    files = {
        "/a/one.txt": b"1" * 10,
        "/a/b/two.csv": b"2" * 2000,
        "/a/b/three.txt": b"",
        "/top.txt": b"top",
    }
    for path, data in files.items():
        cli.ok("put", "-", path, stdin=data)
    cli.ok("mkdir", "/empty")
    return files


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything in memory was stored five hours ago."""
    from s3k_async.backends.memory.memory_blobs import MemoryBlobs

    now = MemoryBlobs.now_ms

    async def ahead(self: MemoryBlobs) -> int:
        return await now(self) + 5 * 3600 * 1000

    monkeypatch.setattr(MemoryBlobs, "now_ms", ahead)
