"""Request statistics of a command, on standard error."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import Final, get_args

from s3k_async._core.metering import Part, Requests
from s3k_async._core.metric_totals import (
    Histogram,
    MetricTotals,
    RequestTotals,
    TotalsSnapshot,
)
from s3k_async._core.observation import Observer, observing
from s3k_async._core.runtime import SYSTEM
from s3k_async.cli.output import plural
from s3k_async.model import CacheStatistics, FillStatistics

__all__ = ["PARTS", "Statistics", "milliseconds"]

FINE_BOUNDS: Final = tuple(0.0001 * 1.1**step for step in range(160))
"""Upper bounds of latencies, seconds, from 0.1 ms to 6 minutes: percentiles are up to a tenth too
high."""
_QUANTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
PARTS: Final[tuple[str, ...]] = get_args(Part)
_PARTITIONS: Final = 5
"""Throttled partitions that are shown."""


class Statistics:
    """The observations of a command, from its creation on."""

    def __init__(self) -> None:
        self._totals = MetricTotals(FINE_BOUNDS)
        self._began = SYSTEM.monotonic()
        self._observer = Observer([self._totals])

    def observed(self) -> AbstractContextManager[None]:
        """Context in which clients that are opened are observed."""
        return observing(self._observer)

    def tell(
        self, requests: Requests, cache: CacheStatistics, fills: FillStatistics, *, as_json: bool
    ) -> None:
        """Print them, with the requests of the command, what its read caches did, and what its
        reads copied to a hot location."""
        seconds = SYSTEM.monotonic() - self._began
        _tell(requests, self._totals.snapshot(), cache, fills, seconds, as_json=as_json)


def _tell(
    requests: Requests,
    totals: TotalsSnapshot,
    cache: CacheStatistics,
    fills: FillStatistics,
    seconds: float,
    *,
    as_json: bool,
) -> None:
    """Print the requests by kind, with retries, bytes of content and seconds, their latency, the
    partitions that were throttled, the events, what a read cache did, and what was copied to a hot
    location."""
    latency = _latency(totals)
    if as_json:
        document: dict[str, object] = {
            "requests": requests.as_dict(),
            "total": requests.total,
            "sent_again": requests.retries,
            "bytes": requests.bytes,
            "seconds": round(seconds, 3),
            "throttled": _throttled(totals),
            "partitions": dict(_partitions(totals)),
            "latency": [
                {"part": part, "operation": operation, **milliseconds(histogram)}
                for (part, operation), histogram in latency.items()
            ],
        }
        if events := _events(totals):
            document["events"] = events
        if cache != CacheStatistics():
            document["cache"] = asdict(cache)
        if fills != FillStatistics():
            document["fills"] = asdict(fills)
        print(json.dumps({"stats": document}), file=sys.stderr)
        return
    for line in (
        *_lines(requests, seconds),
        *_latency_lines(latency),
        *_throttle_lines(totals),
        *_event_lines(totals),
        *_cache_lines(cache),
        *_fill_lines(fills),
    ):
        print(line, file=sys.stderr)


def _lines(requests: Requests, seconds: float) -> list[str]:
    again = f"{requests.retries:,} of them sent again, " if requests.retries else ""
    parts = [] if not requests else [f"  {part}" for part in str(requests).split("; ")]
    size = plural(requests.bytes, "byte")
    return [f"{plural(requests.total, 'request')}, {again}{size}, {seconds:.2f} s", *parts]


def _latency(totals: TotalsSnapshot) -> dict[tuple[str, str], Histogram]:
    """The latencies of the requests of each kind, in all volumes, failed or not."""
    found: dict[tuple[str, str], RequestTotals] = {}
    for (_, part, operation, _), each in sorted(totals.requests.items(), key=_order):
        kind = found.setdefault((part, operation), RequestTotals(Histogram(totals.bounds)))
        kind.merge(each)
    return {kind: each.latency for kind, each in found.items()}


def _order(row: tuple[tuple[str, str, str, str], RequestTotals]) -> tuple[int, str]:
    _, part, operation, _ = row[0]
    return PARTS.index(part), operation


def milliseconds(histogram: Histogram) -> dict[str, float]:
    """Percentiles of a latency: `p50`, `p95` and `p99`."""
    return {name: round(histogram.quantile(share) * 1000, 1) for name, share in _QUANTILES.items()}


def _latency_lines(latency: dict[tuple[str, str], Histogram]) -> Iterator[str]:
    for (part, operation), histogram in latency.items():
        texts = [f"{name} {value:g}" for name, value in milliseconds(histogram).items()]
        yield f"  latency, ms: {part} {operation} {', '.join(texts)}"


def _throttled(totals: TotalsSnapshot) -> int:
    return sum(each.throttles for each in totals.requests.values())


def _partitions(totals: TotalsSnapshot) -> list[tuple[str, int]]:
    """The partitions that were throttled most often."""
    found = sorted(totals.partitions.items(), key=lambda pair: (-pair[1], pair[0]))
    return found[:_PARTITIONS]


def _throttle_lines(totals: TotalsSnapshot) -> Iterator[str]:
    if number := _throttled(totals):
        yield f"  throttled: {plural(number, 'request')}"
        for partition, times in _partitions(totals):
            yield f"  throttled: {times:,} of partition {partition}"


def _events(totals: TotalsSnapshot) -> dict[str, int]:
    """The number of events by name, in all volumes."""
    found: Counter[str] = Counter()
    for (_, name), number in totals.events.items():
        found[name] += number
    return dict(sorted(found.items()))


def _event_lines(totals: TotalsSnapshot) -> Iterator[str]:
    for name, number in _events(totals).items():
        yield f"  event: {number:,} {name}"


def _cache_lines(cache: CacheStatistics) -> list[str]:
    if cache == CacheStatistics():
        return []
    hits = f"{plural(cache.hits, 'block')}, {plural(cache.hit_bytes, 'byte')} read"
    misses = f"{plural(cache.misses, 'block')}, {plural(cache.fetched_bytes, 'byte')} fetched"
    failures = f"; {plural(cache.failures, 'failure')}" if cache.failures else ""
    return [f"  cache: {hits}; {misses}{failures}"]


def _fill_lines(fills: FillStatistics) -> list[str]:
    if fills == FillStatistics():
        return []
    done = f"{plural(fills.filled, 'object')}, {plural(fills.filled_bytes, 'byte')} copied"
    left = {"dropped": fills.dropped, "damaged": fills.damaged, "failed": fills.failures}
    rest = [f"{number:,} {how}" for how, number in left.items() if number]
    return [f"  hot location: {', '.join([done, *rest])}"]
