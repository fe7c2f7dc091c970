"""Facts about a volume, gathered by one machine: table, log and bytes are read once and joined by object id.

The three cannot be read at one moment, so they are read in the order in which a change reaches them last: table, log,
bytes. What was changed meanwhile is then young in the log.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from s3k_async import _native
from s3k_async.concurrency import merge
from s3k_async.errors import BlobNotFoundError, InvalidArgumentError, ItemFormatError, LogFormatError
from s3k_async.fsck.facts import Facts, ItemFacts, LogObjectFacts, objects_of
from s3k_async.fsck.parts import Child, Parts, Pile, State
from s3k_async.metadata.codec import from_item, from_items
from s3k_async.metadata.jobs import JOB_PARTITION, JobRecord, record_from
from s3k_async.metadata.keys import ENTRY_PREFIX
from s3k_async.metadata.marks import parse_mark
from s3k_async.metadata.store import MetadataStore
from s3k_async.model import ROOT, Entry, Progress
from s3k_async.oplog.checkpoints import FORMAT as CHECKPOINT_FORMAT
from s3k_async.oplog.entries import FORMAT as ENTRY_FORMAT
from s3k_async.oplog.entries import parse_line
from s3k_async.oplog.reader import DamagedLog, JavaLogReader, LogReader, Truth, latest
from s3k_async.oplog.segments import FORMAT as SEGMENT_FORMAT
from s3k_async.sources import Sources
from s3k_async.stores.blobs import BlobStore
from s3k_async.stores.items import PARTITION, SORT, Item, Key

__all__ = ["Counts", "Gatherer", "Ground", "is_newer_format", "jobs_of", "read_item"]

SEGMENTS: Final = 4
HEX: Final = "0123456789abcdef"
JAVA_LOG_SUFFIX: Final = ".info"
"""S3-FileSystem 1.0 keeps its log among the data."""
OWN_PARTITIONS: Final = frozenset({"s3k:volume", "s3k:root", JOB_PARTITION})
JOB_PART: Final = "#"
"""In the sort key of an item that belongs to a job's record."""
STATE_FORMAT: Final = 1
_NEWEST: Final = {
    "oplog-entry": ENTRY_FORMAT,
    "oplog-segment": SEGMENT_FORMAT,
    "oplog-checkpoint": CHECKPOINT_FORMAT,
    "oplog-checkpoint-part": CHECKPOINT_FORMAT,
}
"""The newest format of each kind of log object that this version reads."""

Tell = Callable[[Progress], object]


@dataclass(slots=True)
class Counts:
    """What the scans have counted."""

    files: int = 0
    directories: int = 0
    reservations: int = 0
    bytes: int = 0
    log_records: int = 0
    blobs: int = 0
    blob_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Ground:
    """What is compared: a volume, or what is below a path of it."""

    store: MetadataStore
    blobs: BlobStore
    log: LogReader | JavaLogReader | None
    """None for a volume without one."""
    log_blobs: BlobStore | None
    """Where the log is; None without one."""
    sources: Sources
    grace_ms: int
    path: str = ROOT

    @property
    def is_legacy(self) -> bool:
        """Whether S3-FileSystem 1.0 wrote the volume."""
        return isinstance(self.log, JavaLogReader) or self.store.keys.hash == "java31"

    def holds(self, path: str) -> bool:
        """Whether a path is one of those to be checked."""
        return self.path in (ROOT, path) or path.startswith(self.path + "/")


@dataclass(slots=True)
class Loose:
    """What has no object id: few, unless a table is full of foreign things."""

    items: list[ItemFacts] = field(default_factory=list)
    log_objects: list[LogObjectFacts] = field(default_factory=list)
    jobs: list[JobRecord] = field(default_factory=list)


class Gatherer:
    """One pass over a volume, in stages that a later run does not repeat if the parts are kept."""

    def __init__(self, ground: Ground, parts: Parts) -> None:
        self.ground = ground
        self.parts = parts
        self.counts = Counts()
        self.loose = Loose()
        self.now_ms = ground.sources.now_ms()
        self.decided = 0
        """Parts that an earlier run has decided."""
        self._done: list[str] = []
        self._resume(parts.load_state())

    async def scan(self, tell: Tell) -> None:
        """Read all three. Raises the stores' errors; damage is a fact, never an error."""
        counts = self.counts
        await self._stage("table", ("entries", "directories", "children"), self._scan_table)
        tell(Progress("fsck", counts.files + counts.directories, path="table"))
        await self._stage("log", ("records",), self._scan_log)
        tell(Progress("fsck", counts.log_records, path="log"))
        await self._stage("data", ("blobs",), self._scan_blobs)
        tell(Progress("fsck", counts.blobs, path="data"))

    def save(self) -> None:
        """Keep how far this has come."""
        self.parts.save_state(
            {
                "format": STATE_FORMAT,
                "scope": self._scope(),
                "now_ms": self.now_ms,
                "done": self._done,
                "decided": self.decided,
                "counts": asdict(self.counts),
                "items": [asdict(each) for each in self.loose.items],
                "log_objects": [asdict(each) for each in self.loose.log_objects],
                "jobs": [asdict(each) for each in self.loose.jobs],
            }
        )

    def facts(self, number: int) -> list[Facts]:
        """What is known of the objects of one part, by id, marks not looked up yet."""
        entries: dict[str, list[Entry]] = {}
        for entry in self.parts.read("entries", number):
            entries.setdefault(entry.id, []).append(entry)
        truths = latest(self.parts.read("records", number))
        blobs: dict[str, list[Any]] = {}
        for blob in self.parts.read("blobs", number):
            blobs.setdefault(_native.object_id_of(blob.key) or blob.key, []).append(blob)
        return [
            self._facts(object_id, entries.get(object_id, ()), truths.get(object_id), blobs.get(object_id, ()))
            for object_id in sorted(self._ids(entries, truths, blobs))
        ]

    def lonely(self, number: int) -> Iterator[Child]:
        """Of each parent that is no directory of the table, in one part, the first of its children."""
        directories = {ROOT, *self.parts.read("directories", number)}
        seen: set[str] = set()
        for child in self.parts.read("children", number):
            if child[0] not in directories and child[0] not in seen:
                seen.add(child[0])
                yield child

    def _facts(self, object_id: str, entries: Sequence[Entry], truth: Truth | None, blobs: Sequence[Any]) -> Facts:
        binary = isinstance(self.ground.log, JavaLogReader)
        is_dir = bool(entries) and entries[0].is_dir
        return Facts(
            object_id=object_id,
            now_ms=self.now_ms,
            grace_ms=self.ground.grace_ms,
            entries=entries,
            truth=truth,
            blobs=blobs,
            logged=self.ground.log is not None and not (binary and is_dir),
            binary_log=binary,
        )

    def _ids(self, entries: dict[str, list[Entry]], truths: dict[str, Truth], blobs: Iterable[str]) -> set[str]:
        if self.ground.path == ROOT:
            return entries.keys() | truths.keys() | set(blobs)

        def is_below(truth: Truth) -> bool:
            state = truth.committed.operation.after if truth.committed else None
            return state is not None and self.ground.holds(state.path)

        return entries.keys() | {object_id for object_id, truth in truths.items() if is_below(truth)}

    # Stages

    async def _stage(self, name: str, piles: tuple[Pile, ...], scan: Callable[[], Any]) -> None:
        if name in self._done:
            return
        self.parts.forget(piles)
        await scan()
        self._done.append(name)
        self.save()

    async def _scan_table(self) -> None:
        async for items in merge([self._segment(segment) for segment in range(SEGMENTS)], limit=SEGMENTS):
            ours = [item for item in items if self._is_ours(item)]
            entries = self._understood(ours)
            keys = self.ground.store.keys.keys([entry.path for entry in entries])
            for (item, entry), key in zip(zip(ours, entries, strict=False), keys, strict=False):
                found = Key(str(item[PARTITION]), str(item[SORT]))
                if key != found:
                    self.loose.items.append(ItemFacts(*found, is_foreign=False, problem=""))
                elif self.ground.holds(entry.path):
                    self._add(entry)

    def _understood(self, items: list[Item]) -> list[Entry]:
        """The entries of the items; those that are none are taken out of the list and noted."""
        keys = self.ground.store.keys
        try:
            return list(from_items(items, keys))
        except ItemFormatError:
            entries: list[Entry] = []
            good: list[Item] = []
            for item in items:
                try:
                    entries.append(from_item(item, keys))
                except ItemFormatError as error:
                    place = (str(item[PARTITION]), str(item[SORT]))
                    self.loose.items.append(ItemFacts(*place, is_foreign=False, problem=str(error)))
                else:
                    good.append(item)
            items[:] = good
            return entries

    def _is_ours(self, item: Item) -> bool:
        """Whether the item is to be an entry of this volume. `ks://name` is not `ks://name-2`."""
        partition, sort = str(item[PARTITION]), str(item[SORT])
        if partition.startswith(f"{ENTRY_PREFIX}{self.ground.store.keys.volume}/"):
            return True
        if partition == JOB_PARTITION and JOB_PART not in sort:
            try:
                self.loose.jobs.append(record_from(item))
            except ItemFormatError as error:
                self.loose.items.append(ItemFacts(partition, sort, is_foreign=True, problem=str(error)))
        elif partition not in OWN_PARTITIONS and not (self.ground.is_legacy and partition.startswith(ENTRY_PREFIX)):
            self.loose.items.append(ItemFacts(partition, sort, is_foreign=True, problem=""))
        return False

    def _add(self, entry: Entry) -> None:
        counts, parts = self.counts, self.parts
        for object_id in objects_of(entry):
            parts.add("entries", object_id, entry)
        if entry.is_dir:
            counts.directories += 1
            parts.add("directories", entry.path, entry.path)
        elif entry.committed:
            counts.files += 1
            counts.bytes += entry.size
        else:
            counts.reservations += 1
        parent = _native.split(entry.path)[0]
        if parent != ROOT and entry.path != self.ground.path:
            parts.add("children", parent, (parent, entry.path, entry.id, entry.mtime_ms))

    async def _segment(self, segment: int) -> AsyncIterator[list[Item]]:
        cursor: str | None = None
        while True:
            page = await self.ground.store.items.scan(segment, SEGMENTS, cursor=cursor)
            yield list(page.items)
            if page.next is None:
                return
            cursor = page.next

    async def _scan_log(self) -> None:
        if self.ground.log is None:
            return
        async for record in self.ground.log.records():
            if isinstance(record, DamagedLog):
                newer = await is_newer_format(self.ground.log_blobs, record.key)
                self.loose.log_objects.append(LogObjectFacts(record.key, str(record.error), newer))
            else:
                self.counts.log_records += 1
                self.parts.add("records", record.operation.object_id, record)

    async def _scan_blobs(self) -> None:
        binary = isinstance(self.ground.log, JavaLogReader)
        async for blob in merge([self.ground.blobs.list_all(digit) for digit in HEX], limit=len(HEX)):
            object_id = _native.object_id_of(blob.key)
            if object_id is None and binary and blob.key.endswith(JAVA_LOG_SUFFIX):
                continue
            self.counts.blobs += 1
            self.counts.blob_bytes += blob.size
            self.parts.add("blobs", object_id or blob.key, blob)

    # Going on

    def _scope(self) -> list[Any]:
        keys = self.ground.store.keys
        return [keys.volume, keys.suffix_count, self.ground.path, self.ground.grace_ms]

    def _resume(self, state: State) -> None:
        if not state:
            return
        if state.get("format") != STATE_FORMAT or state.get("scope") != self._scope():
            raise InvalidArgumentError("the directory holds an interrupted fsck of something else, or by other options")
        self.now_ms = state["now_ms"]
        self._done = list(state["done"])
        self.decided = state["decided"]
        self.counts = Counts(**state["counts"])
        self.loose = Loose(
            [ItemFacts(**each) for each in state["items"]],
            [LogObjectFacts(**each) for each in state["log_objects"]],
            [JobRecord(**each) for each in state["jobs"]],
        )


async def is_newer_format(log_blobs: BlobStore | None, key: str) -> bool:
    """Whether a log object says of itself that it is of a format, or a kind, that this version does not know."""
    if log_blobs is None:
        return False
    try:
        head = (await log_blobs.get(key)).partition(b"\n")[0]
        document = parse_line(head, key)
    except (BlobNotFoundError, LogFormatError):
        return False
    kind, found = document.get("s3k"), document.get("format")
    return isinstance(kind, str) and type(found) is int and found > _NEWEST.get(kind, 0)


async def jobs_of(store: MetadataStore, entries: Iterable[Entry]) -> tuple[dict[str, JobRecord], frozenset[str]]:
    """The records of the jobs that mark the entries, and the ids of those whose record cannot be read."""
    ids = set()
    for entry in entries:
        if entry.pending:
            try:
                ids.add(parse_mark(entry.pending).job)
            except ItemFormatError:
                continue
    if not ids:
        return {}, frozenset()
    items = await store.items.get_many([Key(JOB_PARTITION, job_id) for job_id in sorted(ids)])
    records: dict[str, JobRecord] = {}
    unreadable = set()
    for key, item in items.items():
        try:
            records[key.sort] = record_from(item)
        except ItemFormatError:
            unreadable.add(key.sort)
    return records, frozenset(unreadable)


async def read_item(store: MetadataStore, path: str) -> Entry | None:
    """The stored item at a path as an entry; None if nothing is there that can be understood."""
    item = await store.items.get(store.keys.key(path))
    try:
        return None if item is None else from_item(item, store.keys)
    except ItemFormatError:
        return None
