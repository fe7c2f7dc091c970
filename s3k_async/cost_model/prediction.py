"""Predictions: time, capacity units and the bottleneck of the work of a verb."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from s3k_async._core.metering import Part
from s3k_async.cost_model.partition_layout import ChildCount
from s3k_async.cost_model.service_limits import Service
from s3k_async.cost_model.tree_shape import LaidTree
from s3k_async.cost_model.work_load import PartitionLoad, Workload
from s3k_async.model import LayoutName

__all__ = ["Bound", "Prediction", "predict", "suggest_suffix_count"]

MAX_SUFFIX_COUNT: Final = 1000
"""The largest suffix count of a volume."""
WORTH: Final = 0.95
"""More suffixes are suggested only if they reduce the time below this fraction: each costs a
request for each listed directory."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A lower bound of the time by one resource."""

    name: str
    """`partition`, `table`, `data`, `log`, `latency`, `chain` or `client`."""
    seconds: float
    reason: str
    """Text with the figures."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The predicted cost of a verb on a tree."""

    verb: str
    files: int
    directories: int
    suffix_count: int
    layout: LayoutName
    requests: Mapping[tuple[Part, str], ChildCount]
    """By part of the volume and operation, with the names of `s3k_async._core.metering`."""
    read_units: float
    write_units: float
    hottest: PartitionLoad
    """The partition of the table with the longest time for its share."""
    bounds: tuple[Bound, ...]
    """The longest first."""

    @property
    def seconds(self) -> float:
        """The time of the longest bound."""
        return self.bounds[0].seconds

    @property
    def total(self) -> ChildCount:
        """All requests."""
        return sum(self.requests.values(), ChildCount())


def predict(
    verb: str, tree: LaidTree, work: Workload, service: Service, *, concurrency: int
) -> Prediction:
    """Prediction for a verb's work on a service, for a client with `concurrency` requests in flight
    for each part."""

    def seconds(heat: PartitionLoad) -> float:
        return max(
            heat.read_units / service.partition_read, heat.write_units / service.partition_write
        )

    topmost = PartitionLoad(
        "the item of the topmost directory", work.topmost_read, work.topmost_write
    )
    hottest = max([*work.heats, topmost], key=seconds)
    bounds = [
        Bound(
            "partition",
            seconds(hottest),
            f"{hottest.partition}: {hottest.read_units:,.0f} read units at "
            f"{service.partition_read:,.0f}/s,"
            f" {hottest.write_units:,.0f} write units at {service.partition_write:,.0f}/s",
        ),
        Bound(
            "table",
            max(work.read_units / service.quota.read, work.write_units / service.quota.write),
            f"the table: {work.read_units:,.0f} read units at {service.quota.read:,.0f}/s,"
            f" {work.write_units:,.0f} write units at {service.quota.write:,.0f}/s",
        ),
        *_blob_bounds(work, service),
        *_latency_bounds(work, concurrency),
        Bound("client", *_client(work, service)),
    ]
    return Prediction(
        verb,
        tree.files,
        tree.directories,
        tree.suffix_count,
        tree.layout,
        dict(sorted(work.requests.items())),
        work.read_units,
        work.write_units,
        hottest,
        tuple(sorted(bounds, key=lambda bound: -bound.seconds)),
    )


def _blob_bounds(work: Workload, service: Service) -> list[Bound]:
    bounds = []
    parts: tuple[Part, ...] = ("data", "log")
    for part in parts:
        gets = sum(
            count.likely
            for (of, name), count in work.requests.items()
            if of == part and _reads(name)
        )
        puts = sum(
            count.likely
            for (of, name), count in work.requests.items()
            if of == part and not _reads(name)
        )
        partitions = service.quota.blob_partitions
        seconds = max(gets / service.blob_gets, puts / service.blob_puts) / partitions
        reason = (
            f"the bucket of the {part}: {puts:,} writes and {gets:,} reads, keys in {partitions} "
            "partitions"
        )
        bounds.append(Bound(part, seconds, reason))
    return bounds


def _reads(operation: str) -> bool:
    return operation in {"GetObject", "HeadObject"}


def _latency_bounds(work: Workload, concurrency: int) -> list[Bound]:
    at_once = max(1, min(concurrency, work.streams))
    part, longest = max(work.waits.items(), key=lambda each: each[1], default=("table", 0.0))
    number = sum(count.likely for (of, _), count in work.requests.items() if of == part)
    return [
        Bound(
            "latency", longest / at_once, f"{number:,} requests to the {part}, {at_once} at a time"
        ),
        Bound("chain", work.chain, "requests that wait for each other"),
    ]


def _client(work: Workload, service: Service) -> tuple[float, str]:
    requests = sum(count.likely for count in work.requests.values())
    speed = service.client
    seconds = (
        requests * speed.request
        + work.entries_read * speed.entry_read
        + work.entries_changed * speed.entry_changed
        + work.files_written * speed.file_written
    )
    return (
        seconds,
        f"one core of this machine: {requests:,} requests, {work.entries_read:,} entries read",
    )


def suggest_suffix_count(predict_with: Callable[[int], Prediction]) -> int:
    """The suffix count above which more suffixes are not worth their requests.

    `predict_with` predicts for a suffix count. Tries 1, 2, 4, 8, 10, 16 and so on.
    """
    candidates = sorted({10, 100, MAX_SUFFIX_COUNT, *(1 << power for power in range(10))})
    best, fastest = candidates[0], predict_with(candidates[0]).seconds
    for suffix_count in candidates[1:]:
        seconds = predict_with(suffix_count).seconds
        if seconds < fastest * WORTH:
            best, fastest = suffix_count, seconds
    return best
