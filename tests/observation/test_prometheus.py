"""Prometheus' own parser reads the exposition."""

from __future__ import annotations

import math

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from s3k_async.adapters.prometheus import PrometheusMetrics
from s3k_async.errors import PathNotFoundError, ServiceError, ThrottledError
from s3k_async.testing import FaultPlan
from tests.observation.recorder import observed_client


async def scraped(registry: CollectorRegistry) -> tuple[str, list[Sample]]:
    """What a client of some calls, one of which is throttled, exposes; and the samples in it."""
    faults = FaultPlan()
    async with observed_client(PrometheusMetrics(registry), faults) as client:
        await client.write("/secret-directory/f", b"data")
        faults.fail_when(lambda call: call.method == "get", ThrottledError("slow down"))
        assert await client.read("/secret-directory/f") == b"data"
        with pytest.raises(PathNotFoundError):
            await client.stat("/missing")
        faults.fail_when(lambda call: call.key.endswith(".committed"), ServiceError("refused"))
        await client.write("/secret-directory/f", b"other")
        await client._volume().log.drained()
        text = generate_latest(registry).decode()
    samples = [each for family in text_string_to_metric_families(text) for each in family.samples]
    return text, samples


async def test_the_exposition_has_every_metric() -> None:
    text, samples = await scraped(CollectorRegistry())

    def of(name: str, **labels: str) -> float:
        return math.fsum(
            each.value
            for each in samples
            if each.name == name and labels.items() <= each.labels.items()
        )

    count = "s3k_verb_duration_seconds_count"
    assert of(count, verb="write", error="") == 2
    assert of(count, verb="stat", error="PathNotFoundError") == 1
    assert of("s3k_verb_duration_seconds_bucket", verb="write", le="+Inf") == 2
    assert of("s3k_verb_duration_seconds_sum", verb="write") > 0
    assert of("s3k_request_duration_seconds_count", part="data", operation="PutObject") == 2
    assert of("s3k_request_queue_seconds_count", part="data") == of(
        "s3k_request_duration_seconds_count", part="data"
    )
    assert of("s3k_request_retries_total", operation="GetItem") == 1
    assert of("s3k_request_throttles_total", error="ThrottledError", operation="GetItem") == 1
    assert of("s3k_request_throttles_total") == 1
    assert of("s3k_request_sent_bytes_total", part="data") == 9
    assert of("s3k_request_received_bytes_total", operation="GetObject", part="data") >= 4
    assert of("s3k_events_total", event="log.commit_failed") == 1
    assert "secret-directory" not in text
    assert "missing" not in text


async def test_buckets_are_cumulative() -> None:
    _, samples = await scraped(CollectorRegistry())
    buckets = [
        (float(each.labels["le"]), each.value)
        for each in samples
        if each.name == "s3k_verb_duration_seconds_bucket" and each.labels["verb"] == "read"
    ]
    assert buckets == sorted(buckets)
    assert [value for _, value in buckets] == sorted(value for _, value in buckets)
    assert buckets[-1] == (math.inf, 1.0)


async def test_openmetrics_are_valid() -> None:
    registry = CollectorRegistry()
    await scraped(registry)
    text = generate_openmetrics(registry).decode()  # type: ignore[no-untyped-call]
    names = {family.name for family in parse_openmetrics(text)}  # type: ignore[no-untyped-call]
    assert {"s3k_verb_duration_seconds", "s3k_request_retries", "s3k_events"} <= names


def test_a_registry_takes_the_metrics_once() -> None:
    registry = CollectorRegistry()
    PrometheusMetrics(registry)
    with pytest.raises(ValueError, match="Duplicated"):
        PrometheusMetrics(registry)
    assert list(PrometheusMetrics(None).collect()) != []
