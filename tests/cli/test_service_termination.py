"""SIGTERM in the middle of the commands that need a service, or a volume of S3-FileSystem 1.0: they
end with code 143 and without a traceback, lose nothing, and can be repeated."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import anyio
import pytest

from s3k_async.alerts.alert_queue import AlertQueue
from s3k_async.backends.dynamodb.dynamodb_items import DynamoTableAdmin
from s3k_async.backends.memory.memory_blobs import MemoryBlobs
from s3k_async.backends.ports.pagination import list_all
from s3k_async.backends.retrying.retrying_blobs import RetryingBlobs
from s3k_async.cli.examples import EXAMPLES
from s3k_async.migrate.retirement import GUARD, RETIRED
from tests.cli.conftest import Cli
from tests.cli.example_places import ELSEWHERE
from tests.cli.old_volumes import old_and_new
from tests.cli.test_alerts import example, queue
from tests.cli.test_check import lose_bytes
from tests.cli.test_termination import terminated
from tests.engines.process import Engine
from tests.engines.volumes import fresh_bucket, fresh_name
from tests.level import FULL

__all__ = ["queue"]

HERE = {"alerts drain", "alerts purge", "oplog retire", "presign", "set-capacity"}


def test_every_command_is_covered() -> None:
    """Here and in test_service_terminal.py; `dev up` is in test_termination.py and test_dev.py,
    `stats` in test_service_stats.py, and the jobs on Spark are in test_command_process.py and
    test_command_examples.py."""
    others = {"dev up", "stats", *(each for each in EXAMPLES if each.startswith("spark "))}
    assert others | HERE == ELSEWHERE.keys()


@pytest.fixture
def terminating(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Callable[..., bytes]:
    """Runs a command that receives SIGTERM before a call of an asynchronous method, twice, as from
    `timeout`; returns its output."""

    def run(arguments: list[str], owner: type, name: str, number: int = 1) -> bytes:
        method = getattr(owner, name)
        calls = 0

        async def counted(*values: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == number:
                signal.raise_signal(signal.SIGTERM)
                signal.raise_signal(signal.SIGTERM)
            return await method(*values, **options)

        with monkeypatch.context() as patch:
            patch.setattr(owner, name, counted)
            done = cli(*arguments)
        assert (done.code, done.errors, calls) == (143, "s3k: terminated\n", number)
        return done.output

    return run


def test_a_queue_loses_no_message(
    cli: Cli,
    volume: str,
    small_tree: dict[str, bytes],
    queue: str,
    terminating: Callable[..., bytes],
) -> None:
    lose_bytes(cli, volume, "/top.txt")
    cli("fsck", "--grace", "0", "--alerts", f"sqs:{queue}")
    count = ("alerts", "purge", f"sqs:{queue}", "--json")
    # Written, and not yet deleted: shown again once the queue's visibility timeout is over.
    assert b'"/top.txt"' in terminating(example("alerts drain"), AlertQueue, "delete")
    assert cli.ok(*count).json()["messages"] == 1
    assert terminating(example("alerts purge"), AlertQueue, "purge") == b""
    assert cli.ok(*count).json()["messages"] == 1
    assert cli.ok(*example("alerts purge")).lines == [f"deleted about 1 message in sqs:{queue}"]
    assert cli.ok(*count).json()["messages"] == 0


@pytest.mark.usefixtures("service")
def test_urls_that_were_printed_are_complete(
    cli: Cli, moto_s3: Engine, terminating: Callable[..., bytes]
) -> None:
    with fresh_bucket(moto_s3) as bucket:
        volume = f"s3k://{bucket.bucket}"
        cli.ok("init", volume, "--table", f"memory://{bucket.bucket}", "--bucket", bucket.bucket)
        for name in ("a", "b"):
            cli.ok("put", "-", f"{volume}/{name}", stdin=f"/{name}".encode())
        command = ["presign", f"{volume}/*"]
        shown = terminating(command, RetryingBlobs, "presign", 2)
        # Signing sends no request, so that the second one may be completed.
        assert shown.endswith(b"\n")
        for url, content in zip(shown.decode().splitlines(), (b"/a", b"/b"), strict=False):
            with urlopen(url, timeout=60) as answer:
                assert answer.read() == content
        assert len(cli.ok(*command).lines) == 2
        assert cli.ok("fsck", volume).out.startswith("clean: 2 files")


@pytest.mark.usefixtures("service")
def test_a_change_of_the_capacity_goes_on_without_the_command(
    cli: Cli, terminating: Callable[..., bytes]
) -> None:
    """The table is described before each change, and again until it is active."""
    name = fresh_name("capacity")
    cli.ok("init", f"s3k://{name}", "--table", name, "--data-location", f"memory://{name}")
    command = ["set-capacity", f"s3k://{name}", "--read-units", "5", "--write-units", "6"]
    # The first two are made before the change.
    for number, found in ((2, "on demand"), (3, "provisioned, 5 read and 6 write units")):
        assert terminating(command, DynamoTableAdmin, "_describe", number) == b""
        shown = cli.ok("info", f"s3k://{name}", "--json").json()
        assert shown["table"]["capacity"] == found
    assert cli.ok(*command).out.endswith("5 read units, 6 write units (unchanged)\n")
    assert cli.ok("fsck", f"s3k://{name}").out.startswith("clean")


def test_each_log_object_is_at_one_of_its_keys(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = old_and_new(monkeypatch)
    old, file = f"s3k://{name}", str(tmp_path / "old.dump")
    cli.ok("dump", old, "-o", file)
    cli.ok("load", file, "s3k://new", "--adopt")
    command = ["oplog", "retire", old, "--successor", "s3k://new", "--grace", "0", "--yes"]
    before = log_objects(name)
    number, done = 1, None
    while done is None or done.code:
        done = terminated(cli, command, number)
        assert done.code in (0, 143)
        assert done.errors == ("s3k: terminated\n" if done.code else "")
        now = log_objects(name)
        for key, data in before.items():
            assert data in (now.get(key), now.get(RETIRED + key)), (number, key)
        number += 1 if FULL else 4
    cli.ok(*command)
    now = log_objects(name)
    guard = f"{GUARD}.info"
    assert now.keys() == {guard, *(RETIRED + key for key in before)}
    assert cli.ok("cat", "s3k://new/d/f").out == "bytes"


def log_objects(name: str) -> dict[str, bytes]:
    """The log of a volume in memory, at whatever keys."""

    async def read() -> dict[str, bytes]:
        blobs = MemoryBlobs(name)
        infos = [info async for info in list_all(blobs) if info.key.endswith(".info")]
        return {info.key: await blobs.get(info.key) for info in infos}

    return anyio.run(read)
