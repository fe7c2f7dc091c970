"""Messages of alerts, addresses of sinks, and what follows from failures."""

from __future__ import annotations

import json
import logging
import warnings
from typing import Any

import pytest

from s3k_async._core.runtime import SYSTEM
from s3k_async.alerts.alert import AlertOrigin, AlertSource
from s3k_async.alerts.aws_sinks import batches
from s3k_async.alerts.dispatch import send_alerts
from s3k_async.alerts.finding_alerts import (
    collection_alerts,
    error_alerts,
    repair_alerts,
    verify_alerts,
)
from s3k_async.alerts.sink_address import SinkAddress, parse_sinks
from s3k_async.config import AlertSettings, AwsConfig, Secret
from s3k_async.errors import (
    ConfigError,
    PermissionDeniedError,
    RequestTimeoutError,
    ServiceError,
    ThrottledError,
    UnreachableError,
)
from s3k_async.integrity.facts import Finding
from s3k_async.integrity.gc_mark import Marked, ObjectCount
from s3k_async.integrity.gc_sweep import Swept
from s3k_async.integrity.repair import RepairOutcome, RepairReport
from s3k_async.integrity.verify import VerifyReport
from tests.proxy import CLOSE_BEFORE, Answer, Delay, FaultProxy

ORIGIN = AlertOrigin(
    *("host", "user", "job_1", "task_2", "attempt_3", "genie", "in", "ops@example"),
    dataoven_id="oven",
    query_type="Pig",
    query_id="script",
    log_file="/log",
)
SOURCE = AlertSource("fsck verify", "v", ORIGIN)
TOPIC = "arn:aws:sns:eu-west-1:123456789012:alerts"


def verified(*findings: Finding) -> VerifyReport:
    report = VerifyReport()
    report.add(findings)
    return report


def missing(number: int) -> list[Finding]:
    return [Finding("data_missing", "no data", f"id{n}", f"/é{n}") for n in range(number)]


def test_a_message_has_the_fields_of_s3mper_and_its_own() -> None:
    (alert,) = verify_alerts(SOURCE, verified(*missing(3)))
    message = json.loads(alert.json())
    assert message.pop("timestamp").endswith("Z")
    assert abs(message.pop("epoch") - SYSTEM.now_ms()) < 60_000
    assert message == {
        "kind": "missing",
        "finding": "data_missing",
        "operation": "fsck verify",
        "volume": "v",
        "count": 3,
        "paths": ["/é0", "/é1", "/é2"],
        "truncated": False,
        "detail": "no data",
        "missingFiles": 3,
        "recovered": False,
        "hostname": "host",
        "username": "user",
        "jobId": "job_1",
        "taskId": "task_2",
        "attemptId": "attempt_3",
        "dataovenId": "oven",
        "genieId": "genie",
        "inputFile": "in",
        "logFile": "/log",
        "queryType": "Pig",
        "queryId": "script",
        "email": "ops@example",
        "stackTrace": [],
    }


@pytest.mark.parametrize(("number", "truncated"), [(10, False), (11, True)])
def test_ten_paths_are_sent(number: int, truncated: bool) -> None:
    (alert,) = verify_alerts(SOURCE, verified(*missing(number)))
    message = alert.message()
    assert (message["count"], len(message["paths"])) == (number, 10)
    assert message["truncated"] is truncated


def test_the_origin_is_that_of_the_environment() -> None:
    environ = {"mapreduce_job_id": "job_7", "GENIE_JOB_ID": "g", "mapreduce_task_id": "t"}
    origin = AlertOrigin.here(environ=environ, email="a@b")
    assert (origin.job_id, origin.genie_id, origin.task_id) == ("job_7", "g", "t")
    assert origin.hostname
    assert origin.username
    assert AlertOrigin.here(job="mine", environ=environ).job_id == "mine"
    assert (origin.query_type, origin.query_id, origin.log_file) == ("Unknown", "", "")


def test_the_query_is_that_of_the_environment() -> None:
    pig = {"pig_script_id": "s", "pig_logfile": "/pig", "dataoven_job_id": "o"}
    origin = AlertOrigin.here(environ=pig)
    assert (origin.query_type, origin.query_id, origin.log_file) == ("Pig", "s", "/pig")
    assert origin.dataoven_id == "o"
    hive = {**pig, "hive_query_id": "q", "hive_log_file": "/hive"}
    origin = AlertOrigin.here(environ=hive)
    assert (origin.query_type, origin.query_id, origin.log_file) == ("Hive", "q", "/hive")


def test_each_kind_of_problem_is_an_alert_and_no_note_is() -> None:
    report = verified(
        *missing(2),
        Finding("orphan_data", "unreferenced", key="k"),
        Finding("log_conflict", "two", "id", "/c"),
        Finding("collectable_data", "old", key="c"),
    )
    assert [(each.kind, each.finding, each.count) for each in verify_alerts(SOURCE, report)] == [
        ("missing", "data_missing", 2),
        ("conflict", "log_conflict", 1),
        ("orphan", "orphan_data", 1),
    ]


def test_a_repair_tells_what_was_repaired_has_recovered_and_is_left() -> None:
    lost, *others = missing(3)
    report = RepairReport("run", dry_run=False, left=verified(lost))
    outcomes = ("left", "done", "left")
    report.add(RepairOutcome(*each) for each in zip([lost, *others], outcomes, strict=True))
    found = [(each.kind, each.paths) for each in repair_alerts(SOURCE, report)]
    assert found == [("missing", ("/é0",)), ("repaired", ("/é1",)), ("recovered", ("/é2",))]


def test_a_collection_tells_what_normal_operation_does_not_leave() -> None:
    marked = Marked({reason: ObjectCount(2, 20) for reason in ("named", "deleted", "lost")})
    marked.counts["unpublished"] = ObjectCount(3, 30)
    dry = collection_alerts(SOURCE, marked, None)
    assert [(each.kind, each.count) for each in dry] == [("missing", 2), ("orphan", 3)]
    swept = Swept({"unpublished": ObjectCount(3, 30), "deleted": ObjectCount(2, 20)})
    swept.failures = [("k1", ThrottledError("slow")), ("k2", PermissionDeniedError("no"))]
    done = collection_alerts(SOURCE, marked, swept)
    assert [(each.kind, each.finding, each.count) for each in done] == [
        ("missing", "lost", 2),
        ("repaired", "unpublished", 3),
        ("throttled", "ThrottledError", 1),
    ]


def test_an_error_is_an_alert_if_it_is_a_timeout_or_throttling() -> None:
    def fail(depth: int) -> None:
        if depth:
            fail(depth - 1)
        raise RequestTimeoutError("no answer", path="/p")

    try:
        fail(30)
    except RequestTimeoutError as error:
        (alert,) = error_alerts(SOURCE, error)
    assert (alert.kind, alert.finding, alert.paths) == ("timeout", "RequestTimeoutError", ("/p",))
    assert len(alert.frames) == 15
    assert alert.frames[0].startswith("fail (test_alert.py:")
    assert "test_an_error" not in "".join(alert.frames)
    assert error_alerts(SOURCE, ThrottledError("slow"))[0].kind == "throttled"
    assert error_alerts(SOURCE, PermissionDeniedError("no")) == []


def test_addresses() -> None:
    queue = "https://sqs.eu-west-1.amazonaws.com/123456789012/q"
    text = f"log:  https://h/x?token=1 sqs:{queue}\nsns:{TOPIC} cloudwatch:S3k/Alerts"
    found = parse_sinks(text)
    assert found == (
        SinkAddress("log"),
        SinkAddress("webhook", "https://h/x?token=1"),
        SinkAddress("sqs", queue, "eu-west-1"),
        SinkAddress("sns", TOPIC, "eu-west-1"),
        SinkAddress("cloudwatch", "S3k/Alerts"),
    )
    assert "token" not in f"{found}{found[1]}"
    assert parse_sinks("sqs:http://127.0.0.1:1/1/q")[0].region is None


@pytest.mark.parametrize(
    "text",
    [
        "secret",
        "log:x",
        "ftp://secret/",
        "https://",
        "https://user:secret@h/",
        "http://h:port-secret/",
        "sqs:secret",
        "sqs:https://h/1/secret.fifo",
        "sns:arn:aws:sns:eu-west-1:1:secret",
        f"sns:{TOPIC}secret.fifo",
        "cloudwatch:",
        "cloudwatch:AWS/secret",
    ],
)
def test_what_is_no_address_is_refused_and_not_quoted(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_sinks(text)
    assert "secret" not in str(caught.value)


def test_batches_are_bounded_by_number_and_by_bytes() -> None:
    assert [len(each) for each in batches(["x"] * 21)] == [10, 10, 1]
    assert [len(each) for each in batches(["x" * 100_000] * 5)] == [2, 2, 1]
    assert [len(each) for each in batches(["x" * 300_000] * 2)] == [1, 1]
    assert [*batches([])] == []


async def test_the_log_has_each_alert(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "s3k_async.alerts")
    alerts = [SOURCE.alert("missing", "data_missing", 1, ["/a"]), SOURCE.alert("repaired", "x", 2)]
    await send_alerts(AlertSettings(Secret("log:")), alerts)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert json.loads(caplog.messages[0])["paths"] == ["/a"]
    assert vars(caplog.records[1])["alert_count"] == 2


async def test_a_webhook_gets_all_alerts_in_one_request() -> None:
    async with FaultProxy(None) as hook:
        hook.rule(Answer(200, b"ok"))
        alerts = [
            SOURCE.alert("missing", "data_missing", 1, ["/a"]),
            SOURCE.alert("orphan", "x", 2),
        ]
        await send_alerts(AlertSettings(Secret(f"{hook.url}/hook?t=1")), alerts)
        (call,) = hook.calls
        assert (call.method, call.path) == ("POST", "/hook")
        sent = json.loads(call.body)["alerts"]
        assert [each["kind"] for each in sent] == ["missing", "orphan"]


FAULTS: dict[str, tuple[Any, type[Exception]]] = {
    "denied": (Answer(403, b"secret"), PermissionDeniedError),
    "redirect": (Answer(302, headers={"Location": "http://127.0.0.1:1/"}), ServiceError),
    "late": (Delay(30), RequestTimeoutError),
    "lost": (CLOSE_BEFORE, RequestTimeoutError),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("policy", ["error", "warn", "ignore"])
async def test_failures_follow_the_policy(fault: str, policy: Any) -> None:
    rule, expected = FAULTS[fault]
    late = expected is RequestTimeoutError
    async with FaultProxy(None) as hook, FaultProxy(None) as other:
        hook.rule(rule)
        other.rule(Answer(204))
        settings = AlertSettings(
            Secret(f"{hook.url}/token {other.url}/"),
            AwsConfig(),
            on_timeout=policy if late else "ignore",
            on_error="ignore" if late else policy,
            deadline=1.0 if fault != "late" else 0.2,
        )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if policy == "error":
                with pytest.raises(expected) as error:
                    await send_alerts(settings, [SOURCE.alert("orphan", "x", 1)])
                assert "token" not in str(error.value)
            else:
                await send_alerts(settings, [SOURCE.alert("orphan", "x", 1)])
        shown = [str(each.message) for each in caught]
        assert len(shown) == (policy == "warn")
        assert all("alerts were not sent to http://127.0.0.1" in text for text in shown)
        assert not any("token" in text or "secret" in text for text in shown)
        assert len(other.calls) == 1


async def test_a_sink_is_tried_again_after_throttling() -> None:
    async with FaultProxy(None) as hook:
        hook.rule(Answer(429), times=2)
        hook.rule(Answer(200))
        await send_alerts(
            AlertSettings(Secret(f"{hook.url}/"), on_error="error"),
            [SOURCE.alert("orphan", "x", 1)],
        )
        assert len(hook.calls) == 3


async def test_an_unreachable_sink_is_a_named_error() -> None:
    settings = AlertSettings(Secret("http://127.0.0.1:1/"), on_error="error")
    with pytest.raises(UnreachableError):
        await send_alerts(settings, [SOURCE.alert("orphan", "x", 1)])
    await send_alerts(settings, [])


async def test_an_address_that_is_given_twice_gets_one_request() -> None:
    async with FaultProxy(None) as hook:
        # Longer than the message: the alerts have arrived, and are not sent again.
        hook.rule(Answer(200, b"x" * 1024 * 1024))
        settings = AlertSettings(Secret(f"{hook.url}/ {hook.url}/"), on_error="error")
        await send_alerts(settings, [SOURCE.alert("orphan", "x", 1)])
        assert len(hook.calls) == 1


@pytest.mark.parametrize("letter", ["x", "\n", "é", "\U0001f600", "\udcff"])
def test_a_message_is_shorter_than_the_services_accept(letter: str) -> None:
    long = letter * 100_000
    names = (
        *("mapreduce_job_id", "mapreduce_task_id", "mapreduce_task_attempt_id", "GENIE_JOB_ID"),
        *("mapreduce_map_input_file", "dataoven_job_id", "hive_query_id", "hive_log_file"),
    )
    origin = AlertOrigin.here(environ=dict.fromkeys(names, long), email=long)
    alert = AlertSource("fsck verify", long, origin).alert("missing", "x", 12, [long] * 12, long)
    text = alert.json()
    assert text.isascii()
    assert len(text) < 200 * 1024
    assert json.loads(text)["paths"][0].endswith(f"{letter}...")
    assert [len(each) for each in batches([text] * 3)] in ([1, 1, 1], [2, 1], [3])


async def test_a_timeout_of_the_service_is_not_that_of_the_deadline() -> None:
    async with FaultProxy(None) as hook:
        hook.rule(CLOSE_BEFORE)
        settings = AlertSettings(
            Secret(f"{hook.url}/"), AwsConfig(), on_error="error", on_timeout="error", deadline=60
        )
        with pytest.raises(RequestTimeoutError, match="4 attempts"):
            await send_alerts(settings, [SOURCE.alert("orphan", "x", 1)])
