"""Metrics for Prometheus: a collector for its Python client library (extra `prometheus`).

    from s3k_async.adapters.prometheus import PrometheusMetrics

    metrics = PrometheusMetrics()       # registered with the default registry
    async with S3kClient("s3k://analytics", metrics=metrics) as client: ...

The metrics and their labels are those of docs/metrics.md. No label contains a path.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from s3k_async._core.metric_totals import LATENCY_BOUNDS, Histogram, MetricTotals, TotalsSnapshot

__all__ = ["PrometheusMetrics"]

_Row: TypeAlias = tuple[Sequence[str], float]


class PrometheusMetrics(MetricTotals, Collector):
    """A receiver of observations that Prometheus scrapes. Clients of several threads may share it.

    `registry`: where it is registered, by default that of the process; None: nowhere. `bounds`:
    the upper bounds of the buckets of latency, seconds. The values are those of this process; a
    forked child starts at zero.
    """

    def __init__(
        self,
        registry: CollectorRegistry | None = REGISTRY,
        *,
        bounds: Sequence[float] = LATENCY_BOUNDS,
    ) -> None:
        super().__init__(bounds)
        if registry is not None:
            registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """The metrics now."""
        return _families(self.snapshot())

    def describe(self) -> Iterable[Metric]:
        """The metrics without values, for the check of duplicate names."""
        return _families(TotalsSnapshot(self._bounds))


def _families(totals: TotalsSnapshot) -> Iterator[Metric]:
    yield _histogram(
        "s3k_verb_duration_seconds",
        "Duration of calls of verbs; error is empty for success",
        ("volume", "verb", "error"),
        totals.verbs.items(),
    )
    labels = ("volume", "part", "operation", "error")
    requests = totals.requests.items()
    yield _histogram(
        "s3k_request_duration_seconds",
        "Duration of requests, each attempt, without the time in the queue",
        labels,
        ((key, each.latency) for key, each in requests),
    )
    yield _histogram(
        "s3k_request_queue_seconds",
        "Time that requests waited for the concurrency limit",
        ("volume", "part"),
        totals.queues.items(),
    )
    yield _counter(
        "s3k_request_retries",
        "Requests that repeated another one",
        labels,
        ((key, each.retries) for key, each in requests),
    )
    yield _counter(
        "s3k_request_throttles",
        "Requests that the service throttled, as a whole or in part",
        labels,
        ((key, each.throttles) for key, each in requests),
    )
    yield _counter(
        "s3k_request_sent_bytes",
        "Content in requests",
        labels,
        ((key, each.sent) for key, each in requests),
    )
    yield _counter(
        "s3k_request_received_bytes",
        "Content in answers",
        labels,
        ((key, each.received) for key, each in requests),
    )
    yield _counter(
        "s3k_events",
        "Events of the log, of transactions and of repairs",
        ("volume", "event"),
        totals.events.items(),
    )


def _counter(name: str, text: str, labels: Sequence[str], rows: Iterable[_Row]) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels)
    for values, number in rows:
        family.add_metric(values, number)
    return family


def _histogram(
    name: str, text: str, labels: Sequence[str], rows: Iterable[tuple[Sequence[str], Histogram]]
) -> Metric:
    family = HistogramMetricFamily(name, text, labels=labels)
    for values, histogram in rows:
        family.add_metric(values, list(_cumulative(histogram)), histogram.sum)
    return family


def _cumulative(histogram: Histogram) -> Iterator[tuple[str, float]]:
    total = 0
    bounds = (*map(str, histogram.bounds), "+Inf")
    for bound, number in zip(bounds, histogram.buckets, strict=True):
        total += number
        yield bound, total
