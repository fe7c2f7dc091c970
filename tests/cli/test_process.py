"""The command line as a process of its own: pipes, signals, limits, encodings."""

from __future__ import annotations

import io
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from s3k_async.cli import main
from tests.cli.conftest import Cli
from tests.support import fork_and_run

COMMAND = [sys.executable, "-m", "s3k_async.cli"]
LIMIT = 60
"""Seconds after which a test gives up on a process."""


def s3k(*arguments: str | bytes, **options: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, timeout=LIMIT, check=False, **options
    )


def ok(*arguments: str | bytes, **options: Any) -> bytes:
    done = s3k(*arguments, **options)
    assert (done.returncode, done.stderr) == (0, b"")
    output: bytes = done.stdout
    return output


@pytest.fixture
def embedded() -> str:
    """A new embedded volume, `./vol`."""
    ok("init", "./vol")
    return "./vol"


def wait_until(holds: Callable[[], bool]) -> None:
    """Poll until something is true, for a bounded time."""
    end = time.monotonic() + LIMIT
    while not holds():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def test_help_loads_nothing_that_it_does_not_need() -> None:
    probe = """
import sys
from s3k_async.cli import main
code = main(["--help"])
heavy = {"anyio", "asyncio", "botocore", "aiohttp", "pyarrow", "rich", "sqlite3"}
heavy.add("s3k_async.client")
print(sorted(heavy & set(sys.modules)), file=sys.stderr)
sys.exit(code)
"""
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, timeout=LIMIT, check=True, text=True
    )
    assert done.stderr == "[]\n"


def test_an_embedded_volume_from_process_to_process(embedded: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "file").write_bytes(b"bytes")
    assert ok("put", "-r", str(source), f"{embedded}:/in") == (
        f"put 1 file, 1 directory, 5 bytes to {os.path.abspath(embedded)}:/in\n".encode()
    )
    assert ok("cat", f"{embedded}:/in/file") == b"bytes"
    assert ok("ls", embedded) == b"in/\n"
    assert ok("ls", f"{os.path.abspath(embedded)}:/in") == b"file\n"
    assert ok("mv", "/in", "/out", "--volume", embedded) == (
        f"moved 0 files, 1 directory, 0 bytes to {os.path.abspath(embedded)}:/out\n".encode()
    )
    assert ok("get", "/out/file", "-", env={**os.environ, "S3K_VOLUME": embedded}) == b"bytes"
    assert ok("fsck", "--grace", "0", os.path.abspath(embedded)).startswith(
        b"clean: 1 file, 1 directory, 5 bytes, "
    )
    assert ok("destroy", embedded, "--yes", "--force") == b"destroyed ./vol\n"
    assert not Path(embedded).exists()


def test_the_module_exits_with_the_code(embedded: str) -> None:
    done = s3k("cat", f"{embedded}:/gone")
    assert (done.returncode, done.stdout, done.stderr) == (3, b"", b"s3k: no such file: /gone\n")
    assert s3k("ls", "raw").returncode == 2
    assert s3k("ls", "./none").returncode == 3


def test_a_pipe_that_is_closed_ends_a_listing_quietly(embedded: str) -> None:
    ok("mkdir", *[f"{embedded}:/{number:03}-{'x' * 1000}" for number in range(120)])
    with subprocess.Popen(
        [*COMMAND, "ls", embedded], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"000-")
        process.stdout.close()
        errors = process.stderr.read()
        assert process.wait(LIMIT) == 141
    assert errors == b""


def test_standard_output_that_is_full_or_closed(embedded: str) -> None:
    ok("put", "-", f"{embedded}:/a", input=b"x" * 100_000)
    for command in ("cat", "stat", "ls"):
        with open("/dev/full", "wb") as full:
            done = subprocess.run(
                [*COMMAND, command, f"{embedded}:/a"],
                stdout=full,
                stderr=subprocess.PIPE,
                timeout=LIMIT,
                check=False,
            )
        assert (done.returncode, done.stderr.count(b"\n")) == (12, 1), done
    message = b"s3k: standard output is closed\n"
    for arguments, code, errors in (
        (["cat", f"{embedded}:/a"], 1, message),
        (["get", f"{embedded}:/a", "-"], 1, message),
        (["head", f"{embedded}:/a"], 1, message),
        (["ls", embedded], 1, message),
        (["stat", f"{embedded}:/a"], 1, message),
        (["ls", f"{embedded}:/gone"], 3, b"s3k: no such file or directory: /gone\n"),
        (["touch", "-q", f"{embedded}:/b"], 0, b""),
        (["rm", "-q", f"{embedded}:/a"], 0, b""),
    ):
        done = subprocess.run(
            ["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, *arguments],
            stderr=subprocess.PIPE,
            timeout=LIMIT,
            check=False,
        )
        assert (done.returncode, done.stderr) == (code, errors), done
    assert ok("ls", embedded) == b"b\n"


def test_an_interrupt_publishes_nothing(embedded: str) -> None:
    with subprocess.Popen(
        [*COMMAND, "put", "-", f"{embedded}:/half"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"x" * 100_000)
        process.stdin.flush()
        wait_until(lambda: ok("ls", "-a", embedded) == b"half\n")
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT) == 130
        assert process.stderr.read() == b"s3k: interrupted\n"
    assert ok("ls", "-a", embedded) == b""
    assert ok("fsck", "--grace", "0", embedded).startswith(b"clean: 0 files")


def test_standard_input_from_a_pipe_a_file_and_nothing(embedded: str, tmp_path: Path) -> None:
    data = os.urandom(2_000_000)
    ok("put", "-", f"{embedded}:/pipe", input=data)
    (tmp_path / "data").write_bytes(data)
    with open(tmp_path / "data", "rb") as file:
        ok("put", "-", f"{embedded}:/file", stdin=file)
    ok("put", "-", f"{embedded}:/nothing", stdin=subprocess.DEVNULL)
    assert (
        ok("cat", f"{embedded}:/pipe", f"{embedded}:/file", f"{embedded}:/nothing") == data + data
    )


def test_no_space_left(embedded: str, tmp_path: Path) -> None:
    """A limit on the size of files stands for a full disk."""
    (tmp_path / "large").write_bytes(b"x" * 4_000_000)

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))

    for arguments in (["put", str(tmp_path / "large"), f"{embedded}:/large"],):
        done = s3k(*arguments, preexec_fn=limit)
        assert done.returncode == 12, done
        assert done.stderr.startswith(b"s3k: ")
        assert done.stderr.count(b"\n") == 1
    assert ok("ls", "-a", embedded) == b""
    ok("put", str(tmp_path / "large"), f"{embedded}:/large")
    done = s3k("get", f"{embedded}:/large", "copy", preexec_fn=limit)
    assert (done.returncode, done.stderr.count(b"\n")) == (12, 1)
    assert b"copy" in done.stderr
    assert not any(name.startswith((".", "copy")) for name in os.listdir())


NOBODY = 65534


def test_a_directory_that_cannot_be_written(cli: Cli, volume: str) -> None:
    """As somebody without privileges: in a child that gives its own up, after everything it needs
    is imported."""
    cli.ok("put", "-", "/a", stdin=b"data")
    cli.ok("get", "/a", "copy")
    cli("init", "./vol")
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        (work / "locked").mkdir(mode=0o555)
        (work / "results").touch()
        work.chmod(0o755)
        (work / "results").chmod(0o666)

        def run() -> None:
            os.chdir(work)
            os.environ["HOME"] = str(work)
            if os.geteuid() == 0:
                os.setgroups([])
                os.setegid(NOBODY)
                os.seteuid(NOBODY)
            results = []
            for arguments in (["get", "/a", "locked/a"], ["init", "./locked/vol"]):
                sys.stderr = io.StringIO()
                results.append((main(arguments), sys.stderr.getvalue()))
            Path("results").write_text(json.dumps(results))

        assert fork_and_run(run) == 0
        results = json.loads((work / "results").read_text())
        for code, errors in results:
            assert code == 5
            assert errors.startswith("s3k: ")
            assert "locked" in errors
            assert errors.count("\n") == 1
        assert len(results) == 2
        assert list((work / "locked").iterdir()) == []


@pytest.mark.parametrize(
    "locale",
    [{"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}, {"PYTHONIOENCODING": "ascii"}],
)
def test_names_that_the_encoding_lacks_are_escaped(embedded: str, locale: dict[str, str]) -> None:
    ok("touch", f"{embedded}:/ümlaut")
    environment = {**os.environ, **locale}
    assert ok("ls", embedded, env=environment) == b"\\xfcmlaut\n"
    assert json.loads(ok("ls", "--json", embedded, env=environment))["path"] == "/ümlaut"
    assert ok("tree", embedded, env=environment).splitlines()[1] == b"`-- \\xfcmlaut"


def test_an_argument_that_is_not_utf8_is_an_error_of_one_line(embedded: str) -> None:
    for arguments in (
        [b"ls", b"./vol:/bad\xff"],
        [b"ls", b"./bad\xff"],
        [b"bad\xff"],
        [b"put", b"bad\xff", b"./vol:/a"],
    ):
        done = s3k(*arguments)
        assert done.returncode in (2, 3, 11), done
        assert done.stderr.startswith(b"s3k: ")
        assert done.stderr.count(b"\n") == 1
        assert b"\\udcff" in done.stderr


def test_a_name_with_control_characters_stays_one_line_in_an_error(embedded: str) -> None:
    done = s3k("cat", f"{embedded}:/a\nb\x1b[31m")
    assert (done.returncode, done.stderr) == (3, b"s3k: no such file: /a\\nb\\x1b[31m\n")


def test_closed_standard_input(embedded: str) -> None:
    closed = 'exec "$@" <&-'
    for arguments, code in (
        (["put", "-", f"{embedded}:/x"], 2),
        (["rm", "--from", "-", "--volume", embedded], 2),
        (["destroy", embedded], 2),
        (["ls", embedded], 0),
    ):
        done = subprocess.run(
            ["sh", "-c", closed, "sh", *COMMAND, *arguments],
            timeout=LIMIT,
            check=False,
            stderr=subprocess.PIPE,
        )
        assert done.returncode == code, done
        assert b"internal error" not in done.stderr
    assert ok("ls", "-a", embedded) == b""


@pytest.mark.parametrize(
    "module",
    ["s3k_async.model", "s3k_async.cli.application", "click", "s3k_async.cli.commands.browse"],
)
def test_an_interrupt_while_it_starts_is_no_traceback(module: str, embedded: str) -> None:
    """As the installed command does it: the package is imported, then `main` is called."""
    program = f"""
import importlib.abc, os, signal, sys
class Interrupt(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
from s3k_async.cli import main
sys.exit(main())
"""
    command = [sys.executable, "-c", program, "ls", embedded]
    done = subprocess.run(command, timeout=LIMIT, check=False, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"s3k: interrupted\n")
