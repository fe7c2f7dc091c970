"""Spans and instruments in the in-memory exporters of OpenTelemetry's SDK."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from s3k_async.adapters.opentelemetry import OpenTelemetryMetrics
from s3k_async.errors import PathNotFoundError, ThrottledError
from s3k_async.testing import Call, FaultPlan
from tests.observation.recorder import observed_client


class Telemetry:
    """A receiver of observations with exporters in memory."""

    def __init__(self, *, paths: bool = False) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.metrics = OpenTelemetryMetrics(
            meter_provider=MeterProvider([self.reader]),
            tracer_provider=self.provider,
            paths=paths,
        )

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def children(self, parent: ReadableSpan) -> list[str]:
        assert parent.context is not None
        return sorted(
            each.name
            for each in self.spans
            if each.parent is not None and each.parent.span_id == parent.context.span_id
        )

    def points(self, name: str) -> list[tuple[dict[str, Any], Any]]:
        """Attributes and values of an instrument; of a histogram, its count."""
        data = self.reader.get_metrics_data()
        assert data is not None
        return [
            (dict(point.attributes or {}), getattr(point, "count", getattr(point, "value", None)))
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


def named(spans: list[ReadableSpan], name: str) -> ReadableSpan:
    (span,) = [each for each in spans if each.name == name]
    return span


async def test_requests_are_children_of_their_verb_and_that_of_the_caller() -> None:
    """Also requests that are sent in other tasks, and those of concurrent calls."""
    telemetry = Telemetry()
    tracer = telemetry.provider.get_tracer("test")
    async with observed_client(telemetry.metrics) as client:
        await client.write("/d/f", b"data")
        telemetry.exporter.clear()
        with tracer.start_as_current_span("caller") as caller:

            async def listed() -> None:
                async for _ in client.list("/d"):
                    assert trace.get_current_span() is caller

            await asyncio.gather(client.read("/d/f"), listed())
        assert trace.get_current_span() is trace.INVALID_SPAN
    spans = telemetry.spans
    read, listing = named(spans, "s3k.read"), named(spans, "s3k.list")
    for span in (read, listing):
        assert span.parent is not None
        assert span.parent.span_id == caller.get_span_context().span_id
        assert span.kind == SpanKind.INTERNAL
    assert telemetry.children(read) == ["data.GetObject", "table.GetItem"]
    assert telemetry.children(listing) == [
        "table.BatchGetItem",
        "table.GetItem",
        *["table.Query"] * 10,
    ]
    request = named([each for each in spans if "Get" in each.name], "data.GetObject")
    assert request.kind == SpanKind.CLIENT
    assert request.attributes is not None
    assert request.attributes["rpc.method"] == "GetObject"
    assert request.attributes["s3k.part"] == "data"


async def test_the_span_of_a_request_is_the_current_one_while_it_is_sent() -> None:
    """So that spans of an instrumented HTTP client become its children."""
    telemetry, faults, seen = Telemetry(), FaultPlan(), []

    async def gate(call: Call) -> None:
        seen.append(getattr(trace.get_current_span(), "name", ""))

    async with observed_client(telemetry.metrics, faults) as client:
        faults.gate = gate
        await client.exists("/f")
        faults.gate = None
    assert seen == ["table.GetItem"]


async def test_deferred_requests_belong_to_their_verb() -> None:
    telemetry = Telemetry()
    async with observed_client(telemetry.metrics) as client:
        await client.write("/f", b"data")
    deferred = [
        each for each in telemetry.spans if each.attributes and each.attributes.get("s3k.deferred")
    ]
    write = named(telemetry.spans, "s3k.write")
    assert [each.name for each in deferred] == ["log.PutObject"]
    assert deferred[0].parent is not None
    assert write.context is not None
    assert deferred[0].parent.span_id == write.context.span_id


@pytest.mark.parametrize("shown", [False, True])
async def test_paths_are_in_spans_only_on_request(shown: bool) -> None:
    telemetry, faults = Telemetry(paths=shown), FaultPlan()
    async with observed_client(telemetry.metrics, faults) as client:
        faults.fail_when(lambda call: call.method == "get", ThrottledError("slow down"))
        with pytest.raises(PathNotFoundError):
            await client.stat("/secret/f")
    text = " ".join(each.to_json() for each in telemetry.spans)
    assert ("secret" in text) == shown
    stat = named(telemetry.spans, "s3k.stat")
    assert stat.status.status_code == StatusCode.ERROR
    assert stat.attributes is not None
    assert stat.attributes["error.type"] == "PathNotFoundError"
    assert (stat.attributes["s3k.requests"], stat.attributes["s3k.retries"]) == (2, 1)
    throttled, again = [each for each in telemetry.spans if each.name == "table.GetItem"][-2:]
    assert throttled.attributes is not None
    assert again.attributes is not None
    assert throttled.attributes["s3k.throttled"] is True
    assert ("s3k.partitions" in throttled.attributes) == shown
    assert again.attributes["s3k.retry"] is True


async def test_instruments() -> None:
    telemetry, faults = Telemetry(paths=True), FaultPlan()
    async with observed_client(telemetry.metrics, faults) as client:
        await client.write("/secret/f", b"data")
        faults.fail_when(lambda call: call.method == "get", ThrottledError("slow down"))
        await client.read("/secret/f")
        with pytest.raises(PathNotFoundError):
            await client.read("/missing")
        name = client.name
    verbs = telemetry.points("s3k.client.verb.duration")
    assert ({"s3k.volume": name, "s3k.verb": "write"}, 1) in verbs
    failed = {"s3k.volume": name, "s3k.verb": "read", "error.type": "PathNotFoundError"}
    assert (failed, 1) in verbs
    kind = {"s3k.volume": name, "s3k.part": "table", "rpc.method": "GetItem"}
    requests = telemetry.points("s3k.client.request.duration")
    assert ({**kind, "error.type": "ThrottledError"}, 1) in requests
    assert telemetry.points("s3k.client.request.throttles") == [(kind, 1)]
    assert telemetry.points("s3k.client.request.retries") == [(kind, 1)]
    put = {"s3k.volume": name, "s3k.part": "data", "rpc.method": "PutObject"}
    assert ({**put, "network.io.direction": "transmit"}, 4) in telemetry.points(
        "s3k.client.request.io"
    )
    queue = telemetry.points("s3k.client.request.queue.duration")
    assert {attributes["s3k.part"] for attributes, _ in queue} == {"table", "data", "log"}
    everything = [
        str(attributes)
        for instrument in ("verb.duration", "request.duration", "request.io")
        for attributes, _ in telemetry.points(f"s3k.client.{instrument}")
    ]
    assert not [each for each in everything if "secret" in each]
