"""The work of a verb: requests by operation, capacity units, load of single partitions, the longest
chain."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from s3k_async._core.metering import Part
from s3k_async.backends.ports.items import MAX_BATCH
from s3k_async.cost_model.item_size import read_units, write_units
from s3k_async.cost_model.partition_layout import ChildCount
from s3k_async.cost_model.service_limits import Latency

__all__ = ["PartitionLoad", "Workload"]

_ONE = ChildCount.of(1)


@dataclass(frozen=True, slots=True)
class PartitionLoad:
    """Load of one partition of the table."""

    partition: str
    """Description of the partition."""
    read_units: float
    write_units: float


@dataclass(slots=True)
class Workload:
    """The sum of a verb's requests."""

    latency: Latency
    requests: dict[tuple[Part, str], ChildCount] = field(default_factory=dict)
    """By part of the volume and operation."""
    waits: dict[Part, float] = field(default_factory=dict)
    """Seconds of the requests of each part in sequence."""
    read_units: float = 0.0
    write_units: float = 0.0
    heats: list[PartitionLoad] = field(default_factory=list)
    topmost_read: float = 0.0
    """Read units on the item of the topmost directory, the one in the root."""
    topmost_write: float = 0.0
    chain: float = 0.0
    """Seconds of the longest chain of sequential requests."""
    streams: int = 1_000_000
    """Most concurrent requests of the verb, independent of the client's limit."""
    entries_read: int = 0
    entries_changed: int = 0
    files_written: int = 0

    def count(self, part: Part, operation: str, number: ChildCount, seconds: float) -> None:
        """Requests of one operation of `seconds` each."""
        if number.high:
            self.requests[part, operation] = (
                self.requests.get((part, operation), ChildCount()) + number
            )
            self.waits[part] = self.waits.get(part, 0.0) + number.likely * seconds

    def get(self, size: int = 0, times: ChildCount = _ONE) -> None:
        """GetItem of an item of `size` bytes (0: a missing one)."""
        self.count("table", "GetItem", times, self.latency.read)
        self.read_units += times.likely * read_units(size)

    def get_many(self, keys: int, size: int = 0, times: int = 1) -> None:
        """BatchGetItem of `keys` keys, `size` bytes each."""
        self.count(
            "table", "BatchGetItem", ChildCount.of(-(-keys // MAX_BATCH) * times), self.latency.read
        )
        self.read_units += times * keys * read_units(size)

    def put(self, size: int, times: ChildCount = _ONE) -> None:
        """PutItem."""
        self._write("PutItem", size, times)

    def update(self, size: int, times: ChildCount = _ONE) -> None:
        """UpdateItem; `size` is the larger of before and after."""
        self._write("UpdateItem", size, times)

    def transact(self, size: int, items: int, transactions: ChildCount) -> None:
        """Transactions with together `items` items of `size` bytes; checks are items, too."""
        self.count("table", "TransactWriteItems", transactions, self.latency.transaction)
        self.write_units += 2 * items * write_units(size)

    def query(self, pages: ChildCount, units: float) -> None:
        """Pages of partitions, with the sum of their read units."""
        self.count("table", "Query", pages, self.latency.read)
        self.read_units += units

    def log(self, objects: ChildCount) -> None:
        """Pending and committed objects of the operation log."""
        self.count("log", "PutObject", objects * 2, self.latency.put)

    def share_log(self, calls: int) -> None:
        """Note that the changes counted so far are those of concurrent calls, which share objects
        of the log."""
        number = self.requests.get(("log", "PutObject"))
        if number is None or calls < 2:
            return
        shared = ChildCount().shared_with(number.likely // 2) * 2
        self.requests["log", "PutObject"] = shared
        self.waits["log"] *= shared.likely / number.likely

    def data(self, operation: str, times: ChildCount) -> None:
        """Requests for the bytes of files."""
        reading = operation in {"GetObject", "HeadObject"}
        self.count("data", operation, times, self.latency.get if reading else self.latency.put)

    def heat(self, partition: str, reads: float, writes: float) -> None:
        """The load of one partition."""
        self.heats.append(PartitionLoad(partition, reads, writes))

    def add(self, other: Workload, times: int = 1, *, at_one_place: float = 0.0) -> None:
        """Add the work of concurrent calls. `at_one_place`: how many of them load the same
        partitions; all of them load the topmost directory."""
        for key, number in other.requests.items():
            self.requests[key] = self.requests.get(key, ChildCount()) + number * times
        for part, seconds in other.waits.items():
            self.waits[part] = self.waits.get(part, 0.0) + seconds * times
        self.read_units += other.read_units * times
        self.write_units += other.write_units * times
        self.topmost_read += other.topmost_read * times
        self.topmost_write += other.topmost_write * times
        self.entries_read += other.entries_read * times
        self.entries_changed += other.entries_changed * times
        self.files_written += other.files_written * times
        if times:
            self.chain = max(self.chain, other.chain)
        if at_one_place:
            loads = {heat.partition: heat for heat in self.heats}
            for heat in other.heats:
                before = loads.get(heat.partition, PartitionLoad(heat.partition, 0.0, 0.0))
                loads[heat.partition] = replace(
                    before,
                    read_units=before.read_units + heat.read_units * at_one_place,
                    write_units=before.write_units + heat.write_units * at_one_place,
                )
            self.heats = list(loads.values())

    def precede(self, first: Workload) -> None:
        """Add requests for which the others wait."""
        chain = self.chain + first.chain
        self.add(first)
        self.chain = chain

    def _write(self, operation: str, size: int, times: ChildCount) -> None:
        self.count("table", operation, times, self.latency.write)
        self.write_units += times.likely * write_units(size)
