"""s3k stats, of services that expose what a client did."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import anyio
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import choose_encoder

from s3k_async.adapters.prometheus import PrometheusMetrics
from s3k_async.cli.examples import EXAMPLES
from s3k_async.cli.metric_source import LONGEST
from s3k_async.errors import PathNotFoundError, ThrottledError
from s3k_async.testing import FaultPlan
from s3k_async.volumes import init_volume
from tests.backends.aws.doors import Authority
from tests.cli.conftest import Cli
from tests.cli.test_examples import at_a_terminal, with_a_closed_pipe
from tests.client.rig import memory_config
from tests.observation.recorder import observed_client


class Service:
    """A process with metrics at `/metrics`; each scrape calls `before` first and `after` at
    its end."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = PrometheusMetrics(self.registry)
        self.volume = memory_config()
        self.is_made = False
        self.before: Callable[[int], None] = lambda scrape: None
        self.after: Callable[[int], None] = lambda scrape: None
        self.answer: tuple[int, dict[str, str], bytes] | None = None
        self.is_modern = True
        """Whether it knows OpenMetrics."""
        self.targets: list[str] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                service.targets.append(self.path)
                service.before(len(service.targets))
                status, headers, body = service.answer or service.scraped(self.headers["Accept"])
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                with suppress(ConnectionError):  # the command may have ended
                    self.end_headers()
                    self.wfile.write(body)
                    self.wfile.flush()
                service.after(len(service.targets))

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.place = f"127.0.0.1:{self.server.server_port}"
        self.url = f"http://{self.place}/metrics"

    def scraped(self, accepted: str) -> tuple[int, dict[str, str], bytes]:
        encode, kind = choose_encoder(accepted if self.is_modern else "")
        return 200, {"Content-Type": kind}, encode(self.registry)

    def restart(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = PrometheusMetrics(self.registry)

    def work(self) -> None:
        """Two writes, a read that is throttled once, and a failure; in one volume."""
        anyio.run(self._work)

    async def _work(self) -> None:
        if not self.is_made:
            self.is_made = True
            await init_volume(self.volume)
        faults = FaultPlan()
        async with observed_client(self.metrics, faults, config=self.volume) as client:
            await client.write("/f", b"data")
            await client.write("/g", b"other")
            faults.fail_when(lambda call: call.method == "get", ThrottledError("slow down"))
            assert await client.read("/f") == b"data"
            with pytest.raises(PathNotFoundError):
                await client.stat("/missing")


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()
    thread = Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


def documents(cli: Cli, *words: str) -> list[list[dict[str, Any]]]:
    """The documents of each scrape, the one about the scrape itself first."""
    found: list[list[dict[str, Any]]] = []
    for each in cli.ok("stats", "--json", *words).json_lines():
        if each["kind"] == "scrape":
            found.append([])
        found[-1].append(each)
    return found


def of(documents: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """The one document with some fields."""
    (found,) = (each for each in documents if fields.items() <= each.items())
    return found


@pytest.mark.parametrize("is_modern", [True, False])
def test_the_documents_agree_with_what_was_done(
    cli: Cli, service: Service, is_modern: bool
) -> None:
    service.is_modern = is_modern
    service.work()
    ((scrape, *rows),) = documents(cli, service.url)
    assert scrape["target"] == service.url
    assert (scrape["seconds"], scrape["restarted"]) == (None, False)
    assert {each["volume"] for each in rows} == {service.volume.name}

    verbs = {each["verb"]: (each["count"], each["errors"]) for each in rows if "verb" in each}
    assert verbs == {"read": (1, {}), "stat": (1, {"PathNotFoundError": 1}), "write": (2, {})}
    looked_up = of(rows, part="table", operation="GetItem")
    assert looked_up["errors"] == {"ThrottledError": 1}
    assert (looked_up["retries"], looked_up["throttles"], looked_up["sent_bytes"]) == (1, 1, 0)
    assert of(rows, part="data", operation="GetObject")["received_bytes"] >= 4
    written = of(rows, part="data", operation="PutObject")
    assert (written["count"], written["sent_bytes"], written["errors"]) == (2, 9, {})
    for part in ("table", "data", "log"):
        sent = [
            each["count"] for each in rows if each["kind"] == "request" and each["part"] == part
        ]
        assert of(rows, kind="queue", part=part)["count"] == sum(sent) > 0

    totals = service.metrics.snapshot()
    latency = totals.verbs[service.volume.name, "read", ""]
    assert of(rows, verb="read")["p99"] == latency.quantile(0.99) * 1000
    assert all(each["p50"] <= each["p95"] <= each["p99"] for each in rows if "p50" in each)
    assert all("per_second" not in each for each in rows)


def test_the_tables(cli: Cli, service: Service) -> None:
    """Sorted, and in 80 columns."""
    service.work()
    service.metrics.event("zoo", "conflict")
    shown = cli.ok("stats", service.url).lines
    assert shown[0] == f"{service.url}: since it started"
    assert max(map(len, shown[1:])) <= 80
    name = service.volume.name
    headings = [line for line in shown if " of " in line]
    kinds = ("calls", "requests", "queue time")
    assert headings == [*(f"{kind} of {name}" for kind in kinds), "events of zoo"]
    calls = [line.split() for line in shown[3:8]]
    assert calls[0] == ["count", "errors", "p50", "p95", "p99"]
    assert [row[:3] for row in calls[1:3]] == [["read", "1", "0"], ["stat", "1", "1"]]
    assert shown[6] == "  errors: PathNotFoundError 1"
    assert calls[4][:3] == ["write", "2", "0"]
    at = next(at for at, line in enumerate(shown) if line.startswith("table GetItem "))
    assert shown[at + 1] == "  errors: ThrottledError 1, retries 1, throttles 1"
    order = ["table", "data", "log"]
    parts = [line.split()[0] for line in shown if line.startswith((*order,))]
    assert parts == [*sorted(parts[:-3], key=order.index), *order]
    assert shown[-1].split() == ["conflict", "1"]


def test_the_metrics_of_one_volume(cli: Cli, service: Service) -> None:
    service.metrics.event("a", "conflict")
    service.metrics.event("b", "conflict")
    ((_, row),) = documents(cli, service.url, "--volume", "s3k://b")
    assert row["volume"] == "b"
    done = cli.fails(2, "stats", service.url, "--volume", "c")
    assert "no metrics of the volume 'c', but of: a, b" in done.errors
    service.restart()
    assert cli.ok("stats", service.url, "--volume", "c").out.endswith("no calls\n")


def test_a_service_that_does_not_answer(cli: Cli, service: Service) -> None:
    ended = Event()

    def wait(_: int) -> None:
        ended.wait()

    service.before = wait
    try:
        done = cli.fails(8, "stats", service.url, "--read-timeout", "0.05")
    finally:
        ended.set()
    assert "no answer within the time allowed; --read-timeout is 0.05 seconds" in done.errors


def test_names_are_shown_as_they_are(cli: Cli, service: Service) -> None:
    for name in ('quo"te', "back\\slash\\n", "line\nfeed", "a,b={}", ""):
        service.metrics.event(name, "conflict")
    ((_, *rows),) = documents(cli, service.url)
    names = ["", "a,b={}", "back\\slash\\n", "line\nfeed", 'quo"te']
    assert [each["volume"] for each in rows] == names


def test_differences_and_a_restart(cli: Cli, service: Service) -> None:
    def before(scrape: int) -> None:
        if scrape == 5:
            service.restart()
        if scrape != 2:
            service.work()

    service.before = before
    first, *later = documents(cli, service.url, "--interval", "0.01", "--count", "4")
    assert len(later) == 4
    assert of(first, verb="write")["count"] == 2
    assert len(later[0]) == 1
    for found, restarted in zip(later, (False, False, False, True), strict=True):
        assert found[0]["restarted"] is restarted
        assert found[0]["seconds"] > 0
    for found in later[1:]:
        write = of(found, verb="write")
        assert write["count"] == 2
        assert write["per_second"] == pytest.approx(2 / found[0]["seconds"], rel=0.2)
        assert of(found, verb="stat")["errors"] == {"PathNotFoundError": 1}
        assert of(found, operation="PutObject", part="data")["sent_bytes"] == 9

    shown = cli.ok("stats", service.url, "--interval", "0.01", "--count", "1").lines
    assert max(len(line) for line in shown if not line.startswith("http")) <= 80
    assert "per s" in "".join(shown)
    assert f"{service.url}: in the last " in "".join(shown)


def test_a_scrape_that_fails_between_others_is_reported(cli: Cli, service: Service) -> None:
    def before(scrape: int) -> None:
        service.work()
        service.answer = (503, {}, b"") if scrape == failing else None

    service.before = before
    failing = 2
    done = cli("stats", service.url, "--interval", "0.01", "--count", "2", "--json")
    assert done.code == 0
    assert "the service answered 503" in done.errors
    first, last = (each for each in done.json_lines() if each.get("verb") == "write")
    assert (first["count"], last["count"]) == (2, 4)
    failing = len(service.targets) + 2
    done = cli("stats", service.url, "--interval", "0.01", "--count", "1")
    assert done.code == 8


@pytest.mark.parametrize(
    ("answer", "code", "message"),
    [
        ((404, {}, b""), 3, "often ends with /metrics"),
        ((401, {}, b""), 5, "give them as a file or as -"),
        ((403, {}, b""), 5, "give them as a file or as -"),
        ((429, {}, b""), 8, "at a longer interval"),
        ((500, {}, b""), 8, "try again when it is ready"),
        ((302, {"Location": "http://elsewhere/m?token=x"}, b""), 1, "to http://elsewhere/m, which"),
        ((204, {}, b""), 1, "204 instead of metrics"),
        ((200, {}, b"<!DOCTYPE html><title>s3k_</title>\n"), 2, "it is a page, not metrics"),
        ((200, {}, b"http_requests_total 1\n"), 2, "needs a client with PrometheusMetrics"),
        ((200, {}, b""), 2, "needs a client with PrometheusMetrics"),
        ((200, {}, b"\x1f\x8b\xff"), 2, "not text in UTF-8"),
        ((200, {}, b"s3k_events_total 1\n"), 2, "line 1 is not a sample"),
        ((200, {"Content-Length": str(LONGEST + 1)}, b""), 8, "more than the 16777216 bytes"),
        ((200, {"Content-Length": "100"}, b"s3k_"), 8, "does the service run"),
    ],
)
def test_an_answer_without_metrics_is_an_error_with_a_remedy(
    cli: Cli, service: Service, answer: Any, code: int, message: str
) -> None:
    service.answer = answer
    done = cli.fails(code, "stats", service.url)
    assert message in done.errors
    assert service.url in done.errors
    assert "token" not in done.errors
    assert cli("stats", "--json", service.url).error()["path"] == service.url
    assert service.targets == ["/metrics"] * 2


def test_an_address_that_cannot_be_meant(cli: Cli, service: Service) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    refused = cli.fails(8, "stats", f"http://127.0.0.1:{port}/metrics").errors
    assert "ConnectionRefusedError); does the service run" in refused
    for word, message in {
        f"{service.place}/metrics": f"write {service.url}",
        "s3k://analytics": "an http or https URL of a service, a file, or -",
        "ftp://host/metrics": "an http or https URL of a service, a file, or -",
        "http://host:x/": "malformed",
        "http:///metrics": "no valid host",
        ".": "it is a directory",
    }.items():
        assert message in cli.fails(2, "stats", word).errors
    secret = cli.fails(2, "stats", "http://me:secret@host/metrics").errors
    assert "secret" not in secret
    assert "as a file or as -" in secret
    cli.fails(3, "stats", "missing.txt")
    assert "--count needs --interval" in cli.fails(2, "stats", service.url, "--count", "1").errors
    assert "--interval reads again" in cli.fails(2, "stats", "-", "--interval", "1").errors
    cli.fails(2, "stats", service.url, "--interval", "0")


def test_saved_metrics(cli: Cli, service: Service) -> None:
    service.work()
    saved = generate_latest(service.registry)
    Path("saved.txt").write_bytes(saved)
    expected = documents(cli, service.url)[0][1:]
    assert documents(cli, "saved.txt")[0][1:] == expected
    given = cli.ok("stats", "-", "--json", stdin=saved).json_lines()
    assert given[1:] == expected
    assert "incomplete" in cli.fails(2, "stats", "-", stdin=saved[:-200]).errors
    Path("large.txt").write_bytes(b"#" * (LONGEST + 1))
    assert "more than 16,777,216 bytes" in cli.fails(2, "stats", "large.txt").errors


WITHOUT_THE_EXTRA = """
import sys
sys.modules["prometheus_client"] = None
from s3k_async.cli import main
sys.exit(main(["stats", "-"]))
"""


def test_the_extra_is_not_needed(service: Service) -> None:
    service.metrics.event("v", "conflict")
    command = [sys.executable, "-c", WITHOUT_THE_EXTRA]
    saved = generate_latest(service.registry)
    done = subprocess.run(command, input=saved, capture_output=True, check=True)
    assert b"conflict" in done.stdout


def test_certificates_and_proxies_are_those_of_the_settings(
    cli: Cli, service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.metrics.event("v", "conflict")
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    elsewhere = "http://metrics.invalid/metrics"
    cli.ok("stats", elsewhere, "--proxy", f"http://{service.place}")
    monkeypatch.setenv("http_proxy", f"http://{service.place}")
    cli.ok("stats", elsewhere)
    assert service.targets == [elsewhere] * 2
    # Not through one to this machine.
    cli.ok("stats", service.url, "--proxy", "http://127.0.0.1:1")

    authority = Authority.new(tmp_path)
    server = service.server
    server.socket = authority.server("127.0.0.1").wrap_socket(server.socket, server_side=True)
    secure = f"https://{service.place}/metrics"
    assert "SSLCertVerificationError" in cli.fails(8, "stats", secure).errors
    cli.ok("stats", secure, "--ca-bundle", str(authority.bundle))
    cli.ok("stats", secure, "--verify-tls", "false")


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
)
def test_a_signal_ends_it(cli: Cli, service: Service, number: int, code: int, word: str) -> None:
    """During a scrape, and while it waits for the next one."""
    service.metrics.event("v", "conflict")

    def kill(scrape: int) -> None:
        if scrape == last:
            os.kill(os.getpid(), number)

    last, service.before = 3, kill
    done = cli("stats", service.url, "--interval", "0.01")
    assert (done.code, done.errors) == (code, f"s3k: {word}\n")
    assert done.out.count(service.url) == 2
    last, service.before, service.after = 4, service.after, kill
    done = cli("stats", service.url, "--interval", "3600")
    assert (done.code, done.errors) == (code, f"s3k: {word}\n")


def test_the_examples(
    cli: Cli, service: Service, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """To the end at a terminal, and into a pipe that is closed."""
    service.work()
    Path("saved-metrics.txt").write_bytes(generate_latest(service.registry))
    first, second = (shlex.split(each)[1:] for each in EXAMPLES["stats"])
    assert first[-2:] == ["--interval", "5"]
    watching = ["stats", service.url, "--interval", "0.01"]
    assert first[1].replace("localhost:8000", service.place) == service.url
    code, shown = at_a_terminal([*watching, "--count", "2"])
    assert (code, shown.count(service.url)) == (0, 3)
    with_a_closed_pipe(watching, capsysbinary)
    assert at_a_terminal(second)[0] == 0
    with_a_closed_pipe(second, capsysbinary)
