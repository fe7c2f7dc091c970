"""Totals of observations in memory: counts, errors by class, latency histograms, retries,
throttles, bytes and queue times, with bounded memory.

Each thread adds to totals of its own, so that no lock is held when a process forks, and a forked
child starts at zero.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from threading import get_ident
from typing import Any, Final, TypeAlias

from s3k_async._core.observation import (
    RequestAttempt,
    RequestResult,
    VerbCall,
    VerbResult,
    error_type,
)

__all__ = ["LATENCY_BOUNDS", "Histogram", "MetricTotals", "RequestTotals", "TotalsSnapshot"]

LATENCY_BOUNDS: Final = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
)
"""Upper bounds of the buckets of a latency histogram, seconds."""
_PARTITIONS: Final = 64
"""Throttled partitions that are kept."""

VerbKey: TypeAlias = tuple[str, str, str]
"""Volume, verb, class of the error (empty for success)."""
RequestKey: TypeAlias = tuple[str, str, str, str]
"""Volume, part, operation, class of the error."""


class Histogram:
    """Numbers of observations by upper bound, and their sum."""

    __slots__ = ("bounds", "buckets", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)
        """One for each bound, and one for what exceeds the last."""
        self.sum = 0.0

    @property
    def count(self) -> int:
        """Number of observations."""
        return sum(self.buckets)

    def add(self, value: float) -> None:
        """Count an observation."""
        self.buckets[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def merge(self, other: Histogram) -> None:
        """Add the observations of another histogram with the same bounds."""
        self.buckets = [a + b for a, b in zip(self.buckets, other.buckets, strict=True)]
        self.sum += other.sum

    def since(self, earlier: Histogram) -> Histogram:
        """The observations after an earlier state of this histogram."""
        added = Histogram(self.bounds)
        added.buckets = [a - b for a, b in zip(self.buckets, earlier.buckets, strict=True)]
        added.sum = self.sum - earlier.sum
        return added

    def quantile(self, share: float) -> float:
        """The upper bound of the bucket that contains the quantile; 0 without observations. The
        last bound for what exceeds it."""
        wanted, seen = share * self.count, 0
        for bound, number in zip((*self.bounds, self.bounds[-1]), self.buckets, strict=True):
            seen += number
            if number and seen >= wanted:
                return bound
        return 0.0


@dataclass(slots=True)
class RequestTotals:
    """Totals of the requests of one operation, beside their latency."""

    latency: Histogram
    retries: int = 0
    throttles: int = 0
    sent: int = 0
    received: int = 0

    def add(self, request: RequestAttempt, result: RequestResult) -> None:
        """Count a request."""
        self.latency.add(result.seconds)
        self.retries += request.is_retry
        self.throttles += result.throttled
        self.sent += result.sent
        self.received += result.received

    def merge(self, other: RequestTotals) -> None:
        """Add other totals."""
        self.latency.merge(other.latency)
        self.retries += other.retries
        self.throttles += other.throttles
        self.sent += other.sent
        self.received += other.received

    def since(self, earlier: RequestTotals) -> RequestTotals:
        """The requests after an earlier state of these totals."""
        return RequestTotals(
            self.latency.since(earlier.latency),
            self.retries - earlier.retries,
            self.throttles - earlier.throttles,
            self.sent - earlier.sent,
            self.received - earlier.received,
        )


@dataclass(slots=True)
class TotalsSnapshot:
    """Totals at one moment."""

    bounds: Sequence[float]
    verbs: dict[VerbKey, Histogram] = field(default_factory=dict)
    requests: dict[RequestKey, RequestTotals] = field(default_factory=dict)
    queues: dict[tuple[str, str], Histogram] = field(default_factory=dict)
    """Times in the queue of the concurrency limit, by volume and part."""
    events: dict[tuple[str, str], int] = field(default_factory=dict)
    """Numbers of events by volume and name."""
    partitions: dict[str, int] = field(default_factory=dict)
    """Throttled requests by partition key of the table: of those that were throttled most often,
    approximate if there are more than 64."""

    def add_partition(self, partition: str, number: int) -> None:
        """Count throttled requests of a partition. If the table is full, the new one takes the
        place of the least frequent with its count (the space-saving algorithm of Metwally et
        al.)."""
        if partition not in self.partitions and len(self.partitions) >= _PARTITIONS:
            least = min(self.partitions, key=self.partitions.__getitem__)
            number += self.partitions.pop(least)
        self.partitions[partition] = self.partitions.get(partition, 0) + number

    def merge(self, other: TotalsSnapshot) -> None:
        """Add the totals of a thread, which may be adding to them."""
        for verb, histogram in list(other.verbs.items()):
            self.verbs.setdefault(verb, Histogram(self.bounds)).merge(histogram)
        for key, totals in list(other.requests.items()):
            mine = self.requests.setdefault(key, RequestTotals(Histogram(self.bounds)))
            mine.merge(totals)
        for queue, histogram in list(other.queues.items()):
            self.queues.setdefault(queue, Histogram(self.bounds)).merge(histogram)
        for event, number in list(other.events.items()):
            self.events[event] = self.events.get(event, 0) + number
        for partition, number in list(other.partitions.items()):
            self.add_partition(partition, number)

    def is_reset(self, earlier: TotalsSnapshot) -> bool:
        """Whether a count is lower than in an earlier snapshot, or its buckets are others: the
        process was started again."""
        if tuple(self.bounds) != tuple(earlier.bounds):
            return any((earlier.verbs, earlier.requests, earlier.queues, earlier.events))
        counts = dict(_counts(self))
        return any(counts.get(key, 0) < number for key, number in _counts(earlier))

    def since(self, earlier: TotalsSnapshot) -> TotalsSnapshot:
        """What was counted after an earlier snapshot of the same process, without the partitions,
        whose counts are approximate."""
        none = Histogram(self.bounds)
        no_requests = RequestTotals(none)
        return TotalsSnapshot(
            self.bounds,
            {key: each.since(earlier.verbs.get(key, none)) for key, each in self.verbs.items()},
            {
                key: each.since(earlier.requests.get(key, no_requests))
                for key, each in self.requests.items()
            },
            {key: each.since(earlier.queues.get(key, none)) for key, each in self.queues.items()},
            {key: number - earlier.events.get(key, 0) for key, number in self.events.items()},
        )


class MetricTotals:
    """A receiver of observations that keeps their totals. Any thread may read them, and clients of
    several threads may share it."""

    def __init__(self, bounds: Sequence[float] = LATENCY_BOUNDS) -> None:
        self._bounds = tuple(bounds)
        self._pid = os.getpid()
        self._threads: dict[int, TotalsSnapshot] = {}

    def snapshot(self) -> TotalsSnapshot:
        """The totals so far, in this process."""
        merged = TotalsSnapshot(self._bounds)
        if self._pid == os.getpid():
            for each in list(self._threads.values()):
                merged.merge(each)
        return merged

    def verb_started(self, verb: VerbCall) -> object:
        """No effect: a verb counts when it has ended."""

    def verb_ended(self, verb: VerbCall, result: VerbResult, state: Any) -> None:  # noqa: ARG002
        """Count a verb."""
        key = (verb.volume, verb.verb, error_type(result.outcome, result.error))
        totals = self._mine().verbs
        histogram = totals.get(key)
        if histogram is None:
            histogram = totals[key] = Histogram(self._bounds)
        histogram.add(result.seconds)

    def request_started(self, request: RequestAttempt, verb_state: Any) -> object:
        """No effect: a request counts when it has ended."""

    def request_ended(
        self,
        request: RequestAttempt,
        result: RequestResult,
        state: Any,  # noqa: ARG002
    ) -> None:
        """Count a request."""
        mine = self._mine()
        error = error_type(result.outcome, result.error)
        key = (request.volume, request.part, request.operation, error)
        totals = mine.requests.get(key)
        if totals is None:
            totals = mine.requests[key] = RequestTotals(Histogram(self._bounds))
        totals.add(request, result)
        place = (request.volume, request.part)
        queue = mine.queues.get(place)
        if queue is None:
            queue = mine.queues[place] = Histogram(self._bounds)
        queue.add(request.queued)
        for partition in result.partitions:
            mine.add_partition(partition, 1)

    def event(self, volume: str, name: str) -> None:
        """Count an event."""
        events = self._mine().events
        events[volume, name] = events.get((volume, name), 0) + 1

    def _mine(self) -> TotalsSnapshot:
        """The totals of this thread in this process."""
        if self._pid != os.getpid():
            self._threads = {}
            self._pid = os.getpid()
        mine = self._threads.get(get_ident())
        if mine is None:
            mine = self._threads[get_ident()] = TotalsSnapshot(self._bounds)
        return mine


def _counts(totals: TotalsSnapshot) -> Iterator[tuple[tuple[object, ...], int]]:
    """Each count that only grows, by a key of its own."""
    histograms = (
        *(("verb", key, each) for key, each in totals.verbs.items()),
        *(("request", key, each.latency) for key, each in totals.requests.items()),
        *(("queue", key, each) for key, each in totals.queues.items()),
    )
    for kind, key, histogram in histograms:
        for position, number in enumerate(histogram.buckets):
            yield (kind, key, position), number
    for key, each in totals.requests.items():
        numbers = (each.retries, each.throttles, each.sent, each.received)
        for position, number in enumerate(numbers):
            yield ("total", key, position), number
    for key, number in totals.events.items():
        yield ("event", key), number
