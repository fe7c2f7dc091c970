"""Alerts of fsck and gc, and the commands for queues of alerts."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import anyio
import pytest

from s3k_async._core.runtime import SYSTEM
from s3k_async.backends.aws.session import AwsClient
from s3k_async.backends.memory.memory_blobs import MemoryBlobs
from s3k_async.backends.ports.blobs import DeleteFailure
from s3k_async.backends.ports.items import Condition, Delete
from s3k_async.cli.examples import EXAMPLES
from s3k_async.errors import RequestTimeoutError, ThrottledError
from s3k_async.integrity import repair
from s3k_async.integrity.gc_sweep import GarbageCollector
from s3k_async.settings import resolve
from s3k_async.volumes import open_volume
from tests.cli.conftest import Cli
from tests.cli.test_check import lose_bytes
from tests.engines.process import Engine

Tree = dict[str, bytes]
GRACE = ("--grace", "0")


class Hook:
    """A webhook: what was posted to it, and the status that it answers."""

    def __init__(self) -> None:
        self.status = 200
        self.posted: list[dict[str, Any]] = []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hook.posted += json.loads(body)["alerts"]
                self.send_response(hook.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    """A webhook to which the commands send alerts."""
    made = Hook()
    thread = Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv("S3K_ALERTS", made.url)
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


def kinds(hook: Hook) -> list[tuple[str, str, int, list[str]]]:
    found = [(each["kind"], each["finding"], each["count"], each["paths"]) for each in hook.posted]
    hook.posted.clear()
    return found


def add_orphan(volume: str) -> None:
    """Put an object of the volume that neither table nor log know."""

    async def put() -> None:
        opened = await open_volume(resolve(volume))
        await opened.blobs.put(SYSTEM.physical_key(SYSTEM.uuid()), b"orphan")
        await opened.close()

    anyio.run(put)


def test_fsck_sends_an_alert_for_each_kind_of_problem(
    cli: Cli, volume: str, small_tree: Tree, hook: Hook
) -> None:
    cli.ok("fsck", *GRACE)
    assert kinds(hook) == []
    for path in ("/a/one.txt", "/top.txt"):
        lose_bytes(cli, volume, path)
    done = cli("fsck", *GRACE, "--alerts-job", "nightly", "--alerts-email", "ops@example.org")
    assert (done.code, done.errors) == (9, "")
    assert done.lines[-1].startswith("found 2 problems")
    (message,) = hook.posted
    assert (message["operation"], message["volume"]) == ("fsck verify", resolve(volume).name)
    assert (message["jobId"], message["email"]) == ("nightly", "ops@example.org")
    ((kind, finding, count, paths),) = kinds(hook)
    assert (kind, finding, count) == ("missing", "data_missing", 2)
    assert sorted(paths) == ["/a/one.txt", "/top.txt"]


def test_a_repair_tells_what_is_left(cli: Cli, volume: str, small_tree: Tree, hook: Hook) -> None:
    lose_bytes(cli, volume, "/top.txt")
    assert cli("fsck", "repair", *GRACE, "--yes").code == 9
    assert kinds(hook) == [("missing", "data_missing", 1, ["/top.txt"])]


def test_a_repair_tells_what_it_has_repaired(
    cli: Cli, volume: str, small_tree: Tree, hook: Hook
) -> None:
    async def forget() -> None:
        opened = await open_volume(resolve(volume))
        entry = await opened.store.get("/top.txt")
        assert entry is not None
        await opened.items.write(Delete(opened.store.keys.of(entry), Condition()))
        await opened.close()

    anyio.run(forget)
    assert cli("fsck", *GRACE).code == 9
    assert kinds(hook) == [("missing", "entry_missing", 1, ["/top.txt"])]
    cli.ok("fsck", "repair", *GRACE, "--yes")
    assert kinds(hook) == [("repaired", "entry_missing", 1, ["/top.txt"])]


def test_gc_tells_about_orphans(
    cli: Cli, volume: str, small_tree: Tree, hook: Hook, later: None
) -> None:
    cli.ok("rm", "/top.txt")
    add_orphan(volume)
    arguments = ("gc", *GRACE, "--lease", "0")
    cli.ok(*arguments)
    assert kinds(hook) == [("orphan", "unpublished", 1, [])]
    cli.ok(*arguments, "--yes")
    assert kinds(hook) == [("repaired", "unpublished", 1, [])]
    cli.ok(*arguments, "--yes")
    assert kinds(hook) == []


@pytest.mark.parametrize(
    ("error", "kind"), [(RequestTimeoutError, "timeout"), (ThrottledError, "throttled")]
)
def test_a_run_that_ends_with_a_timeout_is_an_alert(
    cli: Cli,
    volume: str,
    hook: Hook,
    monkeypatch: pytest.MonkeyPatch,
    error: type[RequestTimeoutError | ThrottledError],
    kind: str,
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise error("no answer", path="/p")

    monkeypatch.setattr(repair, "verify", fail)
    monkeypatch.setattr(GarbageCollector, "mark", fail)
    for command in ("fsck", "gc"):
        assert "no answer" in cli.fails(8, command).errors
        assert kinds(hook) == [(kind, error.__name__, 1, ["/p"])]
    hook.status = 403
    done = cli("gc", "--alerts-on-error", "error")
    warning, message = done.errors.splitlines()
    assert (done.code, message) == (8, "s3k: no answer: /p")
    assert warning.startswith("s3k: alerts were not sent: ")


def test_a_failure_to_delete_is_not_replaced_by_one_of_alerts(
    cli: Cli,
    volume: str,
    small_tree: Tree,
    hook: Hook,
    later: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse(self: MemoryBlobs, keys: Sequence[str]) -> list[DeleteFailure]:
        return [DeleteFailure(key, ThrottledError("slow")) for key in keys]

    monkeypatch.setattr(MemoryBlobs, "delete_many", refuse)
    cli.ok("rm", "/top.txt")
    hook.status = 403
    done = cli("gc", *GRACE, "--lease", "0", "--yes", "--alerts-on-error", "error")
    warning, message = done.errors.splitlines()
    assert done.code == 8
    assert warning.startswith("s3k: alerts were not sent: ")
    assert message.startswith("s3k: slow: ")


def test_alerts_in_the_log_are_on_standard_error(cli: Cli, volume: str, small_tree: Tree) -> None:
    lose_bytes(cli, volume, "/top.txt")
    done = cli("fsck", *GRACE, "--alerts", "log:")
    assert done.code == 9
    assert json.loads(done.errors)["paths"] == ["/top.txt"]


def test_a_failure_follows_the_policy(cli: Cli, volume: str, small_tree: Tree, hook: Hook) -> None:
    lose_bytes(cli, volume, "/top.txt")
    hook.status = 403
    done = cli("fsck", *GRACE)
    assert (done.code, len(done.lines)) == (9, 2)
    assert done.errors.startswith("s3k: alerts were not sent to http://127.0.0.1:")
    assert "/hook" not in done.errors
    assert cli("fsck", *GRACE, "--alerts-on-error", "ignore").errors == ""
    done = cli.fails(5, "fsck", *GRACE, "--alerts-on-error", "error")
    assert len(done.lines) == 2


def test_what_is_no_address_is_refused_before_the_run(cli: Cli, volume: str) -> None:
    assert "sqs:QUEUE-URL" in cli.fails(11, "fsck", "--alerts", "mail:me").errors
    cli.fails(2, "alerts", "drain", "log:")
    cli.fails(11, "alerts", "drain", "nonsense")
    cli.fails(2, "alerts", "purge")


@pytest.fixture
def queue(moto_s3: Engine, monkeypatch: pytest.MonkeyPatch) -> str:
    """A queue of moto, in the environment of commands."""
    own = moto_s3.aws()
    monkeypatch.setenv("S3K_ALERTS_ENDPOINT", moto_s3.endpoint)
    monkeypatch.setenv("S3K_ALERTS_REGION", str(own.region))
    monkeypatch.setenv("S3K_ALERTS_ACCESS_KEY_ID", own.access_key_id.reveal())
    monkeypatch.setenv("S3K_ALERTS_SECRET_ACCESS_KEY", own.secret_access_key.reveal())

    async def create() -> str:
        client = AwsClient("sqs", own)
        try:
            answer = await (await client.get()).create_queue(QueueName=f"q-{SYSTEM.uuid()}")
            return str(answer["QueueUrl"])
        finally:
            await client.close()

    made = anyio.run(create)
    monkeypatch.setenv("QUEUE", made)
    return made


def example(command: str) -> list[str]:
    return [os.path.expandvars(word) for word in shlex.split(EXAMPLES[command][0])][1:]


def test_a_queue_is_drained_and_purged(cli: Cli, volume: str, small_tree: Tree, queue: str) -> None:
    lose_bytes(cli, volume, "/top.txt")
    for _ in range(2):
        assert cli("fsck", *GRACE, "--alerts", f"sqs:{queue}").errors == ""
    found = cli.ok(*example("alerts drain")).json_lines()
    assert [(each["kind"], each["paths"]) for each in found] == [("missing", ["/top.txt"])] * 2
    assert cli.ok(*example("alerts drain")).lines == []
    cli("fsck", *GRACE, "--alerts", f"sqs:{queue}")
    text = f"would delete about 1 message in sqs:{queue} (--yes deletes)"
    assert cli.ok("alerts", "purge", f"sqs:{queue}").lines == [text]
    assert cli.ok(*example("alerts purge")).lines == [f"deleted about 1 message in sqs:{queue}"]
    assert cli.ok("alerts", "purge", f"sqs:{queue}", "--json").json() == {
        "sink": f"sqs:{queue}",
        "dry_run": True,
        "messages": 0,
    }


def test_a_queue_that_does_not_exist_is_not_found(cli: Cli, queue: str) -> None:
    for command in ("drain", "purge"):
        said = cli.fails(3, "alerts", command, f"sqs:{queue}-gone").errors
        assert said == f"s3k: no such queue: sqs:{queue}-gone\n"
