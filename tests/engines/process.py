"""Engines as child processes: started on free loopback ports, watched until ready, stopped by
process id.

A child dies with the process that started it (the kernel sends it a signal), so an aborted test run
leaves nothing.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from s3k_async.config import AwsConfig, Secret

__all__ = [
    "ENGINES",
    "PATIENCE",
    "ROOT",
    "Engine",
    "EngineStartError",
    "Process",
    "engine",
    "free_ports",
    "listening_addresses",
    "running",
]

ROOT = Path(__file__).resolve().parents[2]
ENGINES = ROOT / ".engines"
"""Where `make engines` puts what does not come with the virtual environment."""

START_ATTEMPTS = 3
READY_SECONDS = 600.0
STOP_SECONDS = 1.0
PATIENCE = 300.0
"""Seconds that clients wait for a connection and for an answer: a loaded machine is slow, and not
at fault."""

_DIE_WITH_PARENT = (
    "import ctypes, os, sys\n"
    "ctypes.CDLL(None).prctl(1, 9)\n"  # PR_SET_PDEATHSIG, SIGKILL; kept across exec
    "if os.getppid() != int(sys.argv[1]): sys.exit(1)\n"
    "os.execv(sys.argv[2], sys.argv[2:])\n"
)


class EngineStartError(Exception):
    """An engine did not become ready; the message holds the end of its log."""


@dataclass(frozen=True, slots=True)
class Engine:
    """A running server and how to reach it."""

    endpoint: str
    access_key: str
    secret_key: str
    region: str
    pid: int

    def aws(self) -> AwsConfig:
        """The settings of a client of this engine."""
        return AwsConfig(
            region=self.region,
            endpoint=self.endpoint,
            access_key_id=Secret(self.access_key),
            secret_access_key=Secret(self.secret_key),
            connect_timeout=PATIENCE,
            read_timeout=PATIENCE,
        )


class Process:
    """A child process that writes to a log file. `leaves` are files that it makes and does not
    remove."""

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        environment: Mapping[str, str],
        directory: Path,
        leaves: Sequence[Path] = (),
    ) -> None:
        self.log = log
        self._leaves = leaves
        with log.open("wb") as output:
            self._child = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=directory,
                env={**_base_environment(), **environment},
                # an interrupt from the keyboard is for the tests, which stop their engines
                start_new_session=True,
            )
        self.pid = self._child.pid

    def wait_until(self, ready: Callable[[], bool]) -> None:
        """Return once `ready()` is true. Raises EngineStartError when the child ends first or takes
        too long."""
        deadline = time.monotonic() + READY_SECONDS
        while not ready():
            if self._child.poll() is not None:
                raise EngineStartError(
                    f"ended with {self._child.returncode} before it was ready\n{self.tail()}"
                )
            if time.monotonic() > deadline:
                self.stop()
                raise EngineStartError(f"not ready after {READY_SECONDS:.0f} s\n{self.tail()}")
            time.sleep(0.02)

    def listening(self) -> list[tuple[str, int]]:
        """The addresses at which the child accepts TCP connections."""
        return listening_addresses(self.pid)

    def stop(self) -> None:
        """Terminate the child, kill it if it takes too long, reap it, and remove what it left."""
        self._child.terminate()
        try:
            self._child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        for path in self._leaves:
            path.unlink(missing_ok=True)

    def tail(self, lines: int = 40) -> str:
        """The end of the log."""
        text = self.log.read_text(errors="replace").splitlines()
        return "\n".join([f"{self.log}:", *text[-lines:]])


@contextmanager
def running(start: Callable[[Path, Path], tuple[Process, Engine]], log: Path) -> Iterator[Engine]:
    """An engine with a temporary directory of its own, stopped at the end.

    `start(directory, log)` makes one attempt. One can fail because somebody took a port between our
    asking for it and the engine's using it.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="s3k-engine-", ignore_cleanup_errors=True) as directory:
        process, server = _attempts(start, Path(directory), log)
        try:
            yield server
        finally:
            process.stop()


def _attempts(
    start: Callable[[Path, Path], tuple[Process, Engine]], directory: Path, log: Path
) -> tuple[Process, Engine]:
    for attempt in range(START_ATTEMPTS):
        place = directory / str(attempt)
        place.mkdir()
        try:
            return start(place, log)
        except EngineStartError:
            if attempt == START_ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def free_ports(count: int) -> list[int]:
    """Distinct ports of 127.0.0.1 that nobody listens on at this moment."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def listening_addresses(pid: int) -> list[tuple[str, int]]:
    """The TCP addresses that the process listens on, from the kernel's tables (IPv4-mapped ones as
    IPv4)."""
    inodes = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(descriptor)
        except OSError:
            continue  # closed meanwhile
        if target.startswith("socket:["):
            inodes.add(target[len("socket:[") : -1])
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            columns = line.split()
            if columns[3] == "0A" and columns[9] in inodes:  # state LISTEN
                address, port = columns[1].split(":")
                found.append((_address(address), int(port, 16)))
    return found


def _address(text: str) -> str:
    words = b"".join(bytes.fromhex(text[at : at + 8])[::-1] for at in range(0, len(text), 8))
    if len(words) == 4:
        return socket.inet_ntop(socket.AF_INET, words)
    mapped = b"\x00" * 10 + b"\xff\xff"
    if words.startswith(mapped):
        return socket.inet_ntop(socket.AF_INET, words[12:])
    return socket.inet_ntop(socket.AF_INET6, words)


def engine(port: int, pid: int, *, access_key: str = "test", secret_key: str = "test") -> Engine:
    """The engine at a loopback port."""
    return Engine(f"http://127.0.0.1:{port}", access_key, secret_key, "us-east-1", pid)


def _base_environment() -> dict[str, str]:
    return {
        name: os.environ[name]
        for name in ("PATH", "HOME", "LANG", "JAVA_HOME")
        if name in os.environ
    }
