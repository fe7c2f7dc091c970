"""An exposition is read back as the totals that it was made of, whole or not at all."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from s3k_async._core.metering import Requests
from s3k_async._core.metric_totals import Histogram, RequestTotals, TotalsSnapshot
from s3k_async._core.observation import RequestAttempt, RequestResult, VerbCall, VerbResult
from s3k_async.adapters.prometheus import PrometheusMetrics
from s3k_async.adapters.prometheus_exposition import parse_exposition
from s3k_async.errors import InvalidArgumentError, PathNotFoundError, ThrottledError
from tests.observation.test_prometheus import scraped

WRITERS = {
    "0.0.4": generate_latest,
    "openmetrics": generate_openmetrics,
}
FORMATS = pytest.mark.parametrize("form", WRITERS)

LABELS = st.text(st.sampled_from('ab"\\n\n\r{},=# \u2028é'), max_size=6)
SECONDS = st.sampled_from([0.0, 0.0005, 0.003, 1.0, 299.0, 301.0])


def exposed(form: str, registry: CollectorRegistry) -> str:
    write: Any = WRITERS[form]
    return str(write(registry).decode())


def plain(value: object) -> object:
    """Totals as values that can be compared."""
    if isinstance(value, Histogram):
        return tuple(value.bounds), value.buckets, value.sum
    if isinstance(value, RequestTotals):
        latency = plain(value.latency)
        return latency, value.retries, value.throttles, value.sent, value.received
    if isinstance(value, TotalsSnapshot):
        parts = (value.verbs, value.requests, value.queues, value.events)
        return tuple({key: plain(each) for key, each in part.items()} for part in parts)
    return value


def call(metrics: PrometheusMetrics, volume: str, verb: str, seconds: float, bad: bool) -> None:
    error = PathNotFoundError("missing") if bad else None
    result = VerbResult("error" if bad else "success", error, seconds, Requests())
    metrics.verb_ended(VerbCall(volume, verb, None, "id"), result, None)


def send(
    metrics: PrometheusMetrics, volume: str, operation: str, seconds: float, bad: bool, size: int
) -> None:
    attempt = RequestAttempt(volume, "data", operation, bad, False, seconds, None)
    error = ThrottledError("slow down") if bad else None
    outcome: Any = "error" if bad else "success"
    result = RequestResult(outcome, error, seconds, size, size * 2, bad)
    metrics.request_ended(attempt, result, None)


@FORMATS
@given(
    verbs=st.lists(st.tuples(LABELS, LABELS, SECONDS, st.booleans()), max_size=6),
    requests=st.lists(
        st.tuples(LABELS, LABELS, SECONDS, st.booleans(), st.integers(0, 2**50)), max_size=6
    ),
    events=st.lists(st.tuples(LABELS, LABELS), max_size=6),
)
@settings(max_examples=60, deadline=None)
def test_totals_are_read_back(form: str, verbs: Any, requests: Any, events: Any) -> None:
    registry = CollectorRegistry()
    metrics = PrometheusMetrics(registry)
    for verb in verbs:
        call(metrics, *verb)
    for request in requests:
        send(metrics, *request)
    for event in events:
        metrics.event(*event)
    found = parse_exposition(exposed(form, registry))
    assert plain(found) == plain(metrics.snapshot())


@FORMATS
async def test_metrics_of_other_software_are_skipped(form: str) -> None:
    registry = CollectorRegistry()
    Counter("http_requests", "Others", ["path"], registry=registry).labels("/s3k_x{").inc()
    Gauge("s3k_gateway_open_files", "Of another program", registry=registry).set(math.nan)
    text, _ = await scraped(registry)
    alone = "".join(
        f"{line}\n"
        for line in text.splitlines()
        if "http_requests" not in line and "s3k_gateway" not in line
    )
    found = plain(parse_exposition(exposed(form, registry)))
    assert found == plain(parse_exposition(alone))


def test_optional_parts_of_a_sample() -> None:
    """White space, a comma after the last label, labels of a scraper, a timestamp, an exemplar."""
    registry = CollectorRegistry()
    PrometheusMetrics(registry).event("v", "conflict")
    text = exposed("openmetrics", registry)
    (line,) = (each for each in text.splitlines() if each.startswith("s3k_events_total"))
    for other in (
        's3k_events_total {event = "conflict", volume="v" , } 1e0',
        's3k_events_total{event="conflict",volume="v",instance="host:1"} 1.0 1700000000.123',
        's3k_events_total{event="conflict",volume="v"} +1 # {trace_id="a b"} 1.0 1700000000',
    ):
        assert parse_exposition(text.replace(line, other)).events == {("v", "conflict"): 1}


@FORMATS
async def test_an_exposition_that_ends_early_is_refused(form: str) -> None:
    """At every line. Format 0.0.4 has no mark of its end: it can lack events, which are last."""
    registry = CollectorRegistry()
    await scraped(registry)
    lines = exposed(form, registry).splitlines(keepends=True)
    whole = len(lines)
    if form == "0.0.4":
        whole = 1 + next(at for at, line in enumerate(lines) if "TYPE s3k_events_total" in line)
    for count in range(whole):
        with pytest.raises(InvalidArgumentError, match=r"incomplete|differ|no metrics of s3k"):
            parse_exposition("".join(lines[:count]))
    for count in range(0, len(lines), 9):
        with pytest.raises(InvalidArgumentError):
            parse_exposition("".join(lines[: count + 1]).removesuffix("\n")[:-1])


EVENT = 's3k_events_total{event="conflict",volume="v"} 1.0'
COUNT = 's3k_verb_duration_seconds_count{error="",verb="read",volume="v"} 1.0'


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (EVENT, 's3k_events_total{event="conflict,volume="v"} 1.0', "line 81 is not a sample"),
        (EVENT, 's3k_events_total{event="conflict"} 1.0', "is not a sample"),
        (EVENT, 's3k_events_total{event="a",event="b",volume="v"} 1.0', "is not a sample"),
        (EVENT, EVENT.replace("1.0", "-1.0"), "is not a sample"),
        (EVENT, EVENT.replace("1.0", "NaN"), "is not a sample"),
        (EVENT, EVENT.replace("1.0", "+Inf"), "is not a sample"),
        (EVENT, EVENT.replace("1.0", "1e999"), "is not a sample"),
        (EVENT, EVENT.replace("1.0", "1_000"), "is not a sample"),
        (EVENT, EVENT.replace("1.0", "\u0661"), "is not a sample"),
        (EVENT, EVENT.replace("1.0", "1.5"), "not a whole number"),
        (EVENT, f"{EVENT}\n{EVENT}", "as if there were several processes"),
        (COUNT, COUNT.replace("1.0", "2.0"), "contradict each other"),
        (COUNT, "", "incomplete"),
        ('le="0.001"', 'le="0.00x"', "is not a sample"),
        ('le="0.001"', 'le="0.7"', "buckets of its histograms differ"),
        (
            'le="0.0005",verb="read",volume="v"} 0.0',
            'le="0.0005",verb="read",volume="v"} 7.0',
            "con",
        ),
    ],
)
def test_malformed_metrics_are_refused(old: str, new: str, message: str) -> None:
    registry = CollectorRegistry()
    metrics = PrometheusMetrics(registry)
    call(metrics, "v", "read", 0.01, bad=False)
    send(metrics, "v", "GetObject", 0.01, bad=False, size=1)
    metrics.event("v", "conflict")
    text = exposed("0.0.4", registry)
    assert old in text
    with pytest.raises(InvalidArgumentError, match=message):
        parse_exposition(text.replace(old, new, 1))


REAL = CollectorRegistry()
call(PrometheusMetrics(REAL), "v", "read", 0.01, bad=False)


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_a_damaged_exposition_is_read_or_a_named_error(data: st.DataObject) -> None:
    text = exposed("openmetrics", REAL)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 40)))
    put = data.draw(st.text(st.sampled_from('s3k_{}",=\\ \n#0159.e+-InfEOF'), max_size=20))
    with suppress(InvalidArgumentError):
        parse_exposition(text[:start] + put + text[end:])


def test_a_restart_is_a_count_that_went_back() -> None:
    metrics, later = PrometheusMetrics(None), PrometheusMetrics(None)
    for each in (metrics, later):
        call(each, "v", "read", 0.01, bad=False)
        send(each, "v", "GetObject", 0.01, bad=True, size=5)
        each.event("v", "conflict")
    before = metrics.snapshot()
    call(later, "v", "read", 2.0, bad=False)
    call(later, "w", "list", 2.0, bad=False)
    send(later, "v", "GetObject", 0.01, bad=True, size=7)
    later.event("v", "conflict")
    after = later.snapshot()
    assert not after.is_reset(before)
    assert not after.is_reset(PrometheusMetrics(None, bounds=(1.0,)).snapshot())
    assert before.is_reset(after)
    for part in ("verbs", "requests", "queues", "events"):
        assert TotalsSnapshot(**{**fields_of(after), part: {}}).is_reset(before)
    assert PrometheusMetrics(None).snapshot().is_reset(before)

    added = after.since(before)
    assert {key: each.count for key, each in added.verbs.items()} == {
        ("v", "read", ""): 1,
        ("w", "list", ""): 1,
    }
    assert added.verbs["v", "read", ""].sum == pytest.approx(2.0)
    (request,) = added.requests.values()
    assert (request.latency.count, request.retries, request.throttles) == (1, 1, 1)
    assert (request.sent, request.received) == (7, 14)
    assert [each.count for each in added.queues.values()] == [1]
    assert added.events == {("v", "conflict"): 1}


def fields_of(totals: TotalsSnapshot) -> dict[str, Any]:
    names = ("bounds", "verbs", "requests", "queues", "events")
    return {name: getattr(totals, name) for name in names}
