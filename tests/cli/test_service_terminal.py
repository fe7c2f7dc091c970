"""The commands that need a service, or a volume of S3-FileSystem 1.0: Ctrl-C before their first
request, a terminal, and a pipe that is closed."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from s3k_async.alerts.alert_queue import AlertQueue
from s3k_async.backends.dynamodb.dynamodb_items import DynamoTableAdmin
from tests.cli.conftest import Cli
from tests.cli.old_volumes import old_and_new
from tests.cli.test_alerts import example, queue
from tests.cli.test_check import lose_bytes
from tests.cli.test_examples import at_a_terminal, interrupted, with_a_closed_pipe
from tests.engines.process import Engine
from tests.engines.volumes import fresh_bucket, fresh_name

__all__ = ["queue"]

ClosedPipe = Callable[[list[str]], None]
CtrlC = Callable[[list[str], type, str], None]


@pytest.fixture
def closed_pipe(capsysbinary: pytest.CaptureFixture[bytes]) -> ClosedPipe:
    """Runs a command whose output pipe is closed."""
    return lambda words: with_a_closed_pipe(words, capsysbinary)


@pytest.fixture
def ctrl_c(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> CtrlC:
    """Runs a command that receives SIGINT before it calls an asynchronous method."""

    def run(words: list[str], owner: type, name: str) -> None:
        method = getattr(owner, name)

        async def called(*values: Any, **options: Any) -> Any:
            signal.raise_signal(signal.SIGINT)
            return await method(*values, **options)

        with monkeypatch.context() as patch:
            patch.setattr(owner, name, called)
            done = cli(*words)
        assert (done.code, done.output, done.errors) == (130, b"", "s3k: interrupted\n")

    return run


def lines_at_a_terminal(words: list[str]) -> list[str]:
    """What a command shows that ends with code 0."""
    code, shown = at_a_terminal(words)
    assert (code, "\x1b" in shown) == (0, False), shown
    return shown.splitlines()


def test_the_messages_of_a_queue(
    cli: Cli,
    volume: str,
    small_tree: dict[str, bytes],
    queue: str,
    closed_pipe: ClosedPipe,
    ctrl_c: CtrlC,
) -> None:
    lose_bytes(cli, volume, "/top.txt")
    drain, purge = example("alerts drain"), example("alerts purge")
    count = ("alerts", "purge", f"sqs:{queue}", "--json")
    cli("fsck", "--grace", "0", "--alerts", f"sqs:{queue}")
    for command in (drain, purge):
        ctrl_c(command, AlertQueue, "_ask")
    closed_pipe(drain)
    assert cli.ok(*count).json()["messages"] == 1  # not received yet
    cli("fsck", "--grace", "0", "--alerts", f"sqs:{queue}")
    (shown,) = lines_at_a_terminal(drain)
    assert '"/top.txt"' in shown
    closed_pipe(purge[:-1])
    assert lines_at_a_terminal(purge) == [f"deleted about 1 message in sqs:{queue}"]
    assert cli.ok(*count).json()["messages"] == 0


@pytest.mark.usefixtures("service")
def test_urls(cli: Cli, moto_s3: Engine, closed_pipe: ClosedPipe) -> None:
    with fresh_bucket(moto_s3) as bucket:
        volume = f"s3k://{bucket.bucket}"
        cli.ok("init", volume, "--table", f"memory://{bucket.bucket}", "--bucket", bucket.bucket)
        for name in ("a", "b"):
            cli.ok("put", "-", f"{volume}/{name}", stdin=b"x")
        command = ["presign", f"{volume}/*"]
        assert interrupted(cli, command)
        closed_pipe(command)
        first, second = lines_at_a_terminal(command)
        assert first != second
        assert first.startswith(moto_s3.endpoint)


@pytest.mark.usefixtures("service")
def test_the_capacity_of_a_table(cli: Cli, closed_pipe: ClosedPipe, ctrl_c: CtrlC) -> None:
    name = fresh_name("capacity")
    cli.ok("init", f"s3k://{name}", "--table", name, "--data-location", f"memory://{name}")
    command = ["set-capacity", f"s3k://{name}", "--read-units", "5", "--write-units", "6"]
    ctrl_c(command, DynamoTableAdmin, "_describe")
    found = cli.ok("info", f"s3k://{name}", "--json").json()
    assert found["table"]["capacity"] == "on demand"
    closed_pipe(command)
    (shown,) = lines_at_a_terminal(command)
    assert shown.endswith("5 read units, 6 write units (unchanged)")


def test_the_log_of_an_old_volume(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed_pipe: ClosedPipe
) -> None:
    name = old_and_new(monkeypatch)
    old, file = f"s3k://{name}", str(tmp_path / "old.dump")
    cli.ok("dump", old, "-o", file)
    cli.ok("load", file, "s3k://new", "--adopt")
    command = ["oplog", "retire", old, "--successor", "s3k://new", "--grace", "0"]
    assert interrupted(cli, command)
    closed_pipe(command)
    (shown,) = lines_at_a_terminal([*command, "--yes"])
    assert shown.startswith("moved 2 log objects below retired-1.0-log/")
