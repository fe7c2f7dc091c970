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

from s3k_async import S3kSyncClient
from s3k_async.cli import main
from tests.engines.process import Engine

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


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with volumes and local files, which is copied for each command."""
    top = tmp_path_factory.mktemp("model")
    before = os.getcwd()
    os.chdir(top)
    try:
        for name in ("vol", "other", "lost"):
            more = ["--enable", "rules"] if name == "vol" else []
            assert main(["init", "-q", f"./{name}", *more]) == 0
        with S3kSyncClient("./vol") as fs:
            paths = ("/raw/a.csv", "/raw/day=1/part-0", "/raw/day=2/part-0", "/logs/app.log")
            for path in (*paths, "/photos/2026/a.jpg", "/old/f"):
                fs.write(path, b"1\n2\n3\n")
            fs.makedirs("/empty")
            fs.delete("/old", recursive=True)
            fs.write("/published/f", b"x")
            fs.write("/gone.csv", b"5\n")
            fs.delete("/gone.csv")
        with S3kSyncClient("./lost") as fs:
            fs.write("/f", b"x")
        os.unlink("lost/metadata.sqlite")
        assert main(["rules", "set", "-q", "--expire-after", "9d", "./vol:/logs"]) == 0
        assert main(["dump", "-q", "./vol", "-o", "dump.jsonl"]) == 0
        Path("local").mkdir()
        Path("local/f").write_bytes(b"x")
        Path("report.csv").write_bytes(b"4\n")
        Path("pairs.txt").write_text("/raw/a.csv\t/raw/b.csv\n")
        Path("paths.txt").write_text("/raw/a.csv\n")
    finally:
        os.chdir(before)
    return top


@pytest.fixture
def service(moto_s3: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of the environment, for moto's DynamoDB and S3."""
    own = moto_s3.aws()
    monkeypatch.setenv("S3K_ENDPOINT", moto_s3.endpoint)
    monkeypatch.setenv("S3K_REGION", str(own.region))
    monkeypatch.setenv("S3K_ACCESS_KEY_ID", own.access_key_id.reveal())
    monkeypatch.setenv("S3K_SECRET_ACCESS_KEY", own.secret_access_key.reveal())
