"""Limits of the services: quotas, request sizes, latencies. The defaults are published figures; all
can be set.

Sources: Amazon DynamoDB Developer Guide, "Quotas in Amazon DynamoDB", "On-demand capacity mode"
(initial throughput) and "Designing partition keys"; Amazon S3 User Guide, "Best practices design
patterns: optimizing performance".
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["COLD", "WARM", "ClientSpeed", "Latency", "Service", "TableQuota"]


@dataclass(frozen=True, slots=True)
class TableQuota:
    """Throughput: units per second of a whole table, and partitions of a bucket's prefixes."""

    read: float
    write: float
    blob_partitions: int
    """Partitions into which S3 has divided the keys of the data, and those of the log."""


COLD = TableQuota(read=12_000, write=4_000, blob_partitions=1)
"""A new on-demand table and a new bucket."""
WARM = TableQuota(read=40_000, write=40_000, blob_partitions=16)
"""A table at its default account quota and a bucket partitioned by earlier load."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds from a request to its answer without throttling."""

    read: float = 0.004
    write: float = 0.006
    transaction: float = 0.012
    put: float = 0.025
    get: float = 0.015

    @classmethod
    def of(cls, table: float, blobs: float) -> Latency:
        """Latencies derived from that of a table read and of a put to the blobs."""
        return cls(read=table, write=table * 1.5, transaction=table * 3, put=blobs, get=blobs * 0.6)


@dataclass(frozen=True, slots=True)
class ClientSpeed:
    """Seconds of one core for each step of this client: sign and send a request, decode an entry,
    move or delete one, write one file. Estimates from the benchmarks of this project on a small
    machine."""

    request: float = 120e-6
    entry_read: float = 1e-6
    entry_changed: float = 10e-6
    file_written: float = 300e-6


@dataclass(frozen=True, slots=True)
class Service:
    """DynamoDB and S3 in the model."""

    partition_read: float = 3_000
    """Read units a second of one partition."""
    partition_write: float = 1_000
    """Write units a second of one partition."""
    page_bytes: int = 1024 * 1024
    """Bytes of items after which a Query or Scan ends its page."""
    page_items: int | None = None
    """Items of a page for engines that count these instead of bytes."""
    quota: TableQuota = COLD
    blob_puts: float = 3_500
    """Writes, copies and listings a second of one partition of keys in S3."""
    blob_gets: float = 5_500
    """Reads a second of one partition of keys in S3."""
    latency: Latency = field(default_factory=Latency)
    client: ClientSpeed = field(default_factory=ClientSpeed)

    def page_capacity(self, item_bytes: float) -> int:
        """Items of a size in one page."""
        return self.page_items or max(1, int(self.page_bytes // max(1.0, item_bytes)))
