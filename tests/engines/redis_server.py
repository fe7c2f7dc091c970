"""Redis, as the distribution has it: every write synced before its answer, with a password."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from collections.abc import Sequence
from pathlib import Path

from s3k_async.backends.redis import RedisBlobs, RedisServer, RedisTable
from tests.engines.process import Engine, Process, free_ports

__all__ = ["DURABLE", "PASSWORD", "USER", "Server", "launch", "missing", "start"]

USER = "default"
PASSWORD = "s3k-test-secret"
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")


def missing() -> str | None:
    """Why it cannot be started here, or None."""
    return None if shutil.which("redis-server") else "redis-server is not installed"


def start(directory: Path, log: Path) -> tuple[Process, Engine]:
    """Start it on a free port and wait until it answers."""
    (port,) = free_ports(1)
    process = launch(directory, log, port)
    return process, Engine(f"redis://127.0.0.1:{port}", USER, PASSWORD, "us-east-1", process.pid)


def launch(
    directory: Path, log: Path, port: int, *options: str, durable: Sequence[str] = DURABLE
) -> Process:
    """Start it in a directory, with the data that it left there before. Its `durable` settings
    precede `options`."""
    binary = shutil.which("redis-server")
    assert binary is not None
    process = Process(
        [
            *(binary, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(directory)),
            *("--save", "", "--requirepass", PASSWORD),
            *durable,
            *options,
        ],
        log,
        environment={},
        directory=directory,
    )
    process.wait_until(lambda: _answers(port))
    return process


class Server:
    """A server of one test, which may be killed and started again with what is in its directory."""

    def __init__(self, directory: Path, *options: str, durable: Sequence[str] = DURABLE) -> None:
        (self.port,) = free_ports(1)
        self.directory = directory
        self._arguments = (options, durable)
        self.process = self._launch()

    @property
    def engine(self) -> Engine:
        """How to reach it; `pid` until it is started again."""
        address = f"redis://127.0.0.1:{self.port}"
        return Engine(address, USER, PASSWORD, "us-east-1", self.process.pid)

    def places(self, prefix: str) -> tuple[RedisTable, RedisBlobs]:
        """Places for a table and for blobs."""
        server, aws = RedisServer("127.0.0.1", self.port, user=USER), self.engine.aws()
        return RedisTable(server, prefix, aws), RedisBlobs(server, prefix, aws)

    def kill(self) -> None:
        """End it by SIGKILL."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.stop()

    def restart(self) -> None:
        """Start it on the same port and data; what is left of it is stopped before."""
        self.process.stop()
        self.process = self._launch()

    def _launch(self) -> Process:
        options, durable = self._arguments
        log = self.directory / "log"
        return launch(self.directory, log, self.port, *options, durable=durable)


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(f"AUTH {PASSWORD}\r\nPING\r\n".encode())
            answer = b""
            while answer.count(b"\r\n") < 2 and (more := connection.recv(200)):
                answer += more
    except OSError:
        return False
    return answer == b"+OK\r\n+PONG\r\n"
