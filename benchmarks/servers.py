"""The other ends: the canned server with its own rate, and the engines of the tests."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.environment import ROOT
from s3k_async.config import AwsConfig, DynamoTable, S3Bucket, Tuning, VolumeConfig
from tests.engines import dynamodb_local, dynoxide, redis_server, seaweedfs
from tests.engines.process import Engine, Process, engine, running

__all__ = ["TABLE", "VOLUME", "Canned", "canned", "config_for", "engine_named"]

VOLUME = "bench"
TABLE = "bench-table"
BUCKET = "bench-bucket"
CONNECTIONS = 256
BINARIES = ROOT / "target" / "canned" / "release"
_ENGINES: dict[str, ModuleType] = {
    "dynamodb_local": dynamodb_local,
    "dynoxide": dynoxide,
    "redis_server": redis_server,
    "seaweedfs": seaweedfs,
}


class Canned:
    """The canned server: what it answers, and how fast by itself."""

    def __init__(self, server: Engine) -> None:
        self.engine = server

    def command(self, name: str, **values: object) -> Any:
        """Say something to the server."""
        query = urllib.parse.urlencode(values)
        asked = urllib.request.Request(f"{self.engine.endpoint}/_/{name}?{query}", method="POST")
        with urllib.request.urlopen(asked) as answer:
            return json.load(answer)

    def directory(self, path: str, entries: int, suffixes: int) -> None:
        """Let a directory of files exist."""
        self.command("directory", volume=VOLUME, path=path, entries=entries, suffixes=suffixes)

    def latency(self, milliseconds: float) -> None:
        """Answer so much later from now on."""
        self.command("latency", us=round(milliseconds * 1000))

    def latency_of(self, *, table: float, write: float, read: float, list: float) -> None:
        """As `latency`, by what a request does: to the table, writing or reading an object, or
        listing a thousand of them."""
        milliseconds = {"table": table, "write": write, "read": read, "list": list}
        self.command("latency", **{name: round(of * 1000) for name, of in milliseconds.items()})

    def keep_files(self, *, keep: bool = True) -> None:
        """Keep what is written to items of files, until everything is forgotten; or no longer."""
        self.command("keep", files=int(keep))

    def reset(self) -> None:
        """Forget entries and objects, but not the volume."""
        self.command("reset", keep="s3k-volume.json")

    def counts(self) -> dict[str, int]:
        """Requests by operation since the last reset."""
        counts: dict[str, int] = self.command("counts")
        return counts

    def own_rate(
        self, target: str, request: dict[str, Any], *, connections: int, seconds: float = 1.0
    ) -> float:
        """Answers a second to a client that does nothing but send one request again and again."""
        headers = {
            "x-amz-target": f"DynamoDB_20120810.{target}",
            "content-type": "application/x-amz-json-1.0",
        }
        return self.own_rate_of(
            "POST",
            "/",
            headers,
            json.dumps(request).encode(),
            connections=connections,
            seconds=seconds,
        )

    def own_rate_of(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        *,
        connections: int,
        seconds: float,
    ) -> float:
        """As `own_rate`, of any request."""
        told = {"host": "127.0.0.1", **headers, "content-length": str(len(body))}
        head = "".join(
            [
                f"{method} {path} HTTP/1.1\r\n",
                *(f"{name}: {value}\r\n" for name, value in told.items()),
                "\r\n",
            ]
        )
        with tempfile.NamedTemporaryFile() as file:
            file.write(head.encode() + body)
            file.flush()
            address = self.engine.endpoint.removeprefix("http://")
            words = [str(BINARIES / "load"), address, str(connections), str(seconds), file.name]
            said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        rate: float = json.loads(said)["per_second"]
        return rate


@contextmanager
def canned(processor: int | None = None) -> Iterator[Canned]:
    """The canned server on a free port, on one processor if that is given."""

    def start(directory: Path, log: Path) -> tuple[Process, Engine]:
        process = Process([str(BINARIES / "canned")], log, environment={}, directory=directory)
        process.wait_until(lambda: "port " in log.read_text())
        if processor is not None:
            os.sched_setaffinity(process.pid, {processor})
        said = re.search(r"^port (\d+)$", log.read_text(), re.MULTILINE)
        assert said is not None
        return process, engine(int(said[1]), process.pid)

    with (
        tempfile.TemporaryDirectory() as directory,
        running(start, Path(directory) / "canned.log") as server,
    ):
        yield Canned(server)


@contextmanager
def engine_named(name: str) -> Iterator[Engine]:
    """One of the engines that the tests use."""
    module = _ENGINES[name]
    reason = module.missing()
    if reason is not None:
        raise RuntimeError(reason)
    with (
        tempfile.TemporaryDirectory() as directory,
        running(module.start, Path(directory) / f"{name}.log") as server,
    ):
        yield server


def config_for(
    table: Engine,
    data: Engine,
    *,
    suffixes: int = 16,
    log: bool = True,
    connections: int = CONNECTIONS,
) -> VolumeConfig:
    """A volume on two engines, with as many requests in flight as a contender may have."""

    def aws(server: Engine) -> AwsConfig:
        given = server.aws()
        return AwsConfig(
            region=given.region,
            endpoint=given.endpoint,
            access_key_id=given.access_key_id,
            secret_access_key=given.secret_access_key,
            max_connections=connections,
        )

    return VolumeConfig(
        VOLUME,
        DynamoTable(TABLE, aws(table)),
        S3Bucket(BUCKET, "", aws(data)),
        suffix_count=suffixes,
        log_mode="native" if log else "disabled",
        tuning=Tuning(max_concurrency=connections),
    )
