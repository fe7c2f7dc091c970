"""Metrics and traces for OpenTelemetry, through its API (extra `opentelemetry`).

    from s3k_async.adapters.opentelemetry import OpenTelemetryMetrics

    async with S3kClient("s3k://analytics", metrics=OpenTelemetryMetrics()) as client: ...

The instruments, spans and attributes are those of docs/metrics.md. Attributes that have a name in
the semantic conventions have that name: `error.type`, `rpc.method`, `network.io.direction`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from opentelemetry import context, metrics, trace
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.util.types import AttributeValue

from s3k_async._core.metric_totals import LATENCY_BOUNDS
from s3k_async._core.observation import (
    RequestAttempt,
    RequestResult,
    VerbCall,
    VerbResult,
    error_type,
)

__all__ = ["OpenTelemetryMetrics"]

_SCOPE: Final = "s3k_async"
_Attributes: TypeAlias = dict[str, AttributeValue]


@dataclass(frozen=True, slots=True)
class _VerbSpan:
    span: Span
    context: Context
    """With the span, for its requests."""


@dataclass(frozen=True, slots=True)
class _RequestSpan:
    span: Span
    token: Any
    """Of the context in which it is current."""


class OpenTelemetryMetrics:
    """A receiver of observations that records instruments, and a span for each verb and each
    request.

    The parent of a verb's span is the current span of the caller; the parent of a request's span is
    the span of its verb, whichever task sends the request. While a request is in progress its span
    is the current one. `meter_provider`, `tracer_provider`: None for the global ones. `paths`:
    whether spans have the paths of verbs, partition keys of throttled requests, and error messages,
    which contain paths; metrics never have them.
    """

    def __init__(
        self,
        *,
        meter_provider: MeterProvider | None = None,
        tracer_provider: TracerProvider | None = None,
        paths: bool = False,
    ) -> None:
        self._paths = paths
        self._tracer = trace.get_tracer(_SCOPE, tracer_provider=tracer_provider)
        meter = metrics.get_meter(_SCOPE, meter_provider=meter_provider)
        bounds = LATENCY_BOUNDS
        self._verbs = meter.create_histogram(
            "s3k.client.verb.duration",
            "s",
            "Duration of calls of verbs",
            explicit_bucket_boundaries_advisory=bounds,
        )
        self._requests = meter.create_histogram(
            "s3k.client.request.duration",
            "s",
            "Duration of requests, each attempt, without the time in the queue",
            explicit_bucket_boundaries_advisory=bounds,
        )
        self._queue = meter.create_histogram(
            "s3k.client.request.queue.duration",
            "s",
            "Time that requests waited for the concurrency limit",
            explicit_bucket_boundaries_advisory=bounds,
        )
        self._retries = meter.create_counter(
            "s3k.client.request.retries", "{request}", "Requests that repeated another one"
        )
        self._throttles = meter.create_counter(
            "s3k.client.request.throttles",
            "{request}",
            "Requests that the service throttled, as a whole or in part",
        )
        self._bytes = meter.create_counter(
            "s3k.client.request.io", "By", "Content in requests and answers"
        )
        self._events = meter.create_counter(
            "s3k.client.events", "{event}", "Events of the log, of transactions and of repairs"
        )

    def verb_started(self, verb: VerbCall) -> object:
        """Start the span of a verb."""
        attributes: _Attributes = {
            "s3k.volume": verb.volume,
            "s3k.verb": verb.verb,
            "s3k.call.id": verb.id,
        }
        if self._paths and verb.path is not None:
            attributes["s3k.path"] = verb.path
        span = self._tracer.start_span(f"s3k.{verb.verb}", attributes=attributes)
        return _VerbSpan(span, trace.set_span_in_context(span))

    def verb_ended(self, verb: VerbCall, result: VerbResult, state: Any) -> None:
        """End the span of a verb, and record its duration."""
        attributes: _Attributes = {"s3k.volume": verb.volume, "s3k.verb": verb.verb}
        error = error_type(result.outcome, result.error)
        if error:
            attributes["error.type"] = error
        self._verbs.record(result.seconds, attributes)
        if isinstance(state, _VerbSpan):
            state.span.set_attributes(
                {
                    "s3k.outcome": result.outcome,
                    "s3k.requests": result.requests.total,
                    "s3k.retries": result.requests.retries,
                    "s3k.bytes": result.requests.bytes,
                }
            )
            self._end(state.span, error, result.error)

    def request_started(self, request: RequestAttempt, verb_state: Any) -> object:
        """Start the span of a request, and make it the current one."""
        parent = verb_state.context if isinstance(verb_state, _VerbSpan) else None
        span = self._tracer.start_span(
            f"{request.part}.{request.operation}",
            parent,
            SpanKind.CLIENT,
            {
                **_of_request(request),
                "s3k.retry": request.is_retry,
                "s3k.deferred": request.is_deferred,
                "s3k.queue.duration": request.queued,
            },
        )
        return _RequestSpan(span, context.attach(trace.set_span_in_context(span, parent)))

    def request_ended(self, request: RequestAttempt, result: RequestResult, state: Any) -> None:
        """End the span of a request, and record what it took."""
        attributes = _of_request(request)
        self._queue.record(request.queued, {"s3k.volume": request.volume, "s3k.part": request.part})
        for number, direction in ((result.sent, "transmit"), (result.received, "receive")):
            if number:
                self._bytes.add(number, {**attributes, "network.io.direction": direction})
        if request.is_retry:
            self._retries.add(1, attributes)
        if result.throttled:
            self._throttles.add(1, attributes)
        error = error_type(result.outcome, result.error)
        if error:
            attributes["error.type"] = error
        self._requests.record(result.seconds, attributes)
        if isinstance(state, _RequestSpan):
            context.detach(state.token)
            if result.throttled:
                state.span.set_attribute("s3k.throttled", True)
                if self._paths and result.partitions:
                    state.span.set_attribute("s3k.partitions", result.partitions)
            self._end(state.span, error, result.error)

    def event(self, volume: str, name: str) -> None:
        """Count an event."""
        self._events.add(1, {"s3k.volume": volume, "s3k.event": name})

    def _end(self, span: Span, error: str, raised: BaseException | None) -> None:
        """End a span; one that failed with the class of its error, and on request its message."""
        if error:
            span.set_attribute("error.type", error)
            if error != "abandoned":
                span.set_status(Status(StatusCode.ERROR, str(raised) if self._paths else None))
        span.end()


def _of_request(request: RequestAttempt) -> _Attributes:
    return {
        "s3k.volume": request.volume,
        "s3k.part": request.part,
        "rpc.method": request.operation,
    }
