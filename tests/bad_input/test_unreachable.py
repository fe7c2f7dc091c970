"""Services that cannot be reached or do not answer, and credentials that nobody gave. All in
bounded time."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from s3k_async.client import S3kClient
from tests.bad_input.kinds import CONFIG, CREDENTIALS, TIMEOUT, UNREACHABLE, Kind
from tests.bad_input.rows import BOUND, check_error, check_line, error_of, run_command, snapshot

QUICK = {"connect_timeout": 0.3, "read_timeout": 0.3, "retry_attempts": 2, "retry_base": 0.001}
PLACES = {"table": "meta-table", "bucket": "data-bucket", "region": "us-east-1"}
KEYS = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "made-up-secret"}


@pytest.fixture
def closed_port() -> int:
    """Nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Connections are accepted by the kernel, and nobody ever says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield int(listener.getsockname()[1])


@pytest.fixture
def ports(closed_port: int, silent_port: int) -> dict[str, str]:
    return {
        "closed": f"http://127.0.0.1:{closed_port}",
        "silent": f"http://127.0.0.1:{silent_port}",
    }


@dataclass(frozen=True)
class Service:
    """A row: where the service is said to be, and what comes of it."""

    name: str
    kind: Kind
    about: str
    endpoint: str
    settings: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=lambda: KEYS)


ROWS = (
    Service("nobody listens", UNREACHABLE, "meta-table", "closed"),
    Service("nobody answers", TIMEOUT, "meta-table", "silent"),
    Service("a host that does not exist", UNREACHABLE, "meta-table", "http://nowhere.invalid:80"),
    Service(
        "a proxy that nobody runs",
        UNREACHABLE,
        "meta-table",
        "closed",
        {"proxy": "http://127.0.0.1:9"},
    ),
    Service("no credentials", CREDENTIALS, "meta-table", "closed", environment={}),
    Service(
        "half of the credentials",
        CREDENTIALS,
        "AWS",
        "closed",
        environment={"AWS_ACCESS_KEY_ID": "AKID"},
    ),
    Service(
        "a profile that does not exist",
        CONFIG,
        "no-such-profile",
        "closed",
        {"profile": "no-such-profile"},
    ),
    Service("an endpoint that is none", CONFIG, "nonsense", "nonsense"),
    Service("a region that is none", CONFIG, "no region", "closed", {"region": "no region"}),
    Service(
        "certificates that are not there",
        CONFIG,
        "meta-table",
        "https://127.0.0.1:9",
        {"ca_bundle": "/no/ca.pem"},
    ),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name.replace(" ", "-"))
def test_row(
    row: Service, ports: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "aws-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "aws-credentials"))
    for name, value in row.environment.items():
        monkeypatch.setenv(name, value)
    settings: dict[str, Any] = (
        PLACES | QUICK | {"endpoint": ports.get(row.endpoint, row.endpoint)} | row.settings
    )

    async def play() -> None:
        async with S3kClient("s3k://x", **settings):
            pass

    check_error(error_of(play), row.kind, row.about)
    flags = [
        word
        for name, value in settings.items()
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    began = time.monotonic()
    ran = run_command("ls", "s3k://x/", *flags)
    assert time.monotonic() - began < BOUND
    check_line(ran, row.kind.exit, row.about)
    assert "made-up-secret" not in ran.stderr


@pytest.mark.parametrize(("where", "kind"), [("closed", UNREACHABLE), ("silent", TIMEOUT)])
def test_a_volume_that_cannot_be_made(
    where: str, kind: Kind, ports: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bucket cannot be reached: no table is left behind, and nothing is saved."""
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    before = snapshot(tmp_path)
    settings = QUICK | {"endpoint": ports[where], "bucket": "data-bucket", "region": "us-east-1"}
    settings["table"] = f"sqlite:{tmp_path}/table.sqlite"
    flags = [
        word
        for name, value in settings.items()
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    check_line(run_command("init", "s3k://x", *flags), kind.exit, "data-bucket")
    assert snapshot(tmp_path) == before
