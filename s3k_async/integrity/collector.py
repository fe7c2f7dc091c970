"""The collector of the local runner: table, log and data listing, each read once and joined by
object id.

There is no snapshot across the three, so they are read in the order in which a change reaches them
last: table, log, data. A concurrent change is then young in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from s3k_async import _native
from s3k_async._core.concurrency import merge
from s3k_async.errors import InvalidArgumentError, ItemFormatError
from s3k_async.integrity.facts import ChangeFacts, Facts, ItemFacts, LogObjectFacts, OpenSegment
from s3k_async.integrity.scans import Thing, blob_things, log_things, table_things
from s3k_async.integrity.scope import ScanCounts, Scope
from s3k_async.integrity.shuffle import Child, Pile, Shuffle, State
from s3k_async.metadata.codec import from_item
from s3k_async.metadata.store import MetadataStore
from s3k_async.metadata.txn_record import JOB_PARTITION, TransactionRecord, record_from
from s3k_async.metadata.write_intent import parse_intent
from s3k_async.model import ROOT, Entry, Progress
from s3k_async.oplog.entries import segment_key
from s3k_async.oplog.log_reader import LogReader, ObjectState, latest
from s3k_async.oplog.tail import LogPosition, LogTail, position_of
from s3k_async.stores.items import Key
from s3k_async.stores.key_ranges import HEX

__all__ = ["LOOSE", "Collector", "Unkeyed", "jobs_of", "read_item"]

SEGMENTS: Final = 4
LISTINGS: Final = 4
"""Listings of bytes at once: each holds a page, of 10,000 keys in a directory."""
LOOSE: Final = frozenset({"items", "log_objects", "jobs", "segments"})
"""Piles of what has no object id."""
STATE_FORMAT: Final = 4
_POSITION: Final = tuple(LogPosition.__dataclass_fields__)

Tell = Callable[[Progress], object]


@dataclass(slots=True)
class Unkeyed:
    """Facts without an object id: few, unless the table is full of foreign items."""

    items: list[ItemFacts] = field(default_factory=list)
    log_objects: list[LogObjectFacts] = field(default_factory=list)
    jobs: list[TransactionRecord] = field(default_factory=list)
    segments: list[OpenSegment] = field(default_factory=list)

    def add(self, pile: Pile, thing: Any) -> None:
        """Add to the list that is called as a pile."""
        getattr(self, pile).append(thing)


class Collector:
    """One pass over a volume, in stages that a later run does not repeat if the parts are kept."""

    def __init__(
        self,
        ground: Scope,
        parts: Shuffle,
        *,
        now_ms: int | None = None,
        position: LogPosition | None = None,
    ) -> None:
        """`now_ms`: when the volume was looked at, if that was before; `position`: where the log
        ended then."""
        self.ground = ground
        self.parts = parts
        self.counts = ScanCounts()
        self.loose = Unkeyed()
        self.now_ms = ground.sources.now_ms() if now_ms is None else now_ms
        self.position = position or LogPosition()
        self.decided = 0
        """Parts that an earlier run has decided."""
        self.unfinished: set[str] = set()
        """As of `Facts`."""
        self._tail: LogTail | None = None
        self._done: list[str] = []
        self._resume(parts.load_state())

    async def scan(self, tell: Tell) -> None:
        """Read all three. Raises the stores' errors; damage is a fact, never an error."""
        table: tuple[Pile, ...] = ("entries", "directories", "children", "adopted")
        await self._stage("table", table, lambda: self._scan_table(tell))
        await self._stage("log", ("records",), lambda: self._scan_log(tell))
        await self._stage("data", ("blobs",), lambda: self._scan_blobs(tell))

    @property
    def tail(self) -> LogTail | None:
        """What was logged since the log was scanned; None for a log without segments."""
        if self._tail is None and isinstance(self.ground.log, LogReader):
            self._tail = LogTail(self.ground.log, self.position)
        return self._tail

    def close(self) -> None:
        """Remove the temporary files, those of the parts included."""
        self.close_tail()
        self.parts.close()

    def close_tail(self) -> None:
        """Remove the temporary file of what was logged since the scan."""
        if self._tail is not None:
            self._tail.close()

    def save(self) -> None:
        """Keep how far this has come."""
        self.parts.save_state(
            {
                "format": STATE_FORMAT,
                "scope": self._scope(),
                "now_ms": self.now_ms,
                "done": self._done,
                "decided": self.decided,
                "log": {name: sorted(getattr(self.position, name)) for name in _POSITION},
                "counts": asdict(self.counts),
                **asdict(self.loose),
            }
        )

    def facts(self, number: int) -> list[Facts]:
        """What is known of the objects of one part, by id, marks not looked up yet."""
        entries: dict[str, list[Entry]] = {}
        for entry in self.parts.read("entries", number):
            entries.setdefault(entry.id, []).append(entry)
        truths = latest(self.parts.read("records", number))
        blobs: dict[str, list[Any]] = {}
        adopted = set(self.parts.read("adopted", number))
        for blob in self.parts.read("blobs", number):
            # Which object an adopted one is of its key does not tell: `look.with_adopted` asks for
            # it.
            if blob.key not in adopted:
                blobs.setdefault(_native.object_id_of(blob.key) or blob.key, []).append(blob)
        return [
            self._facts(
                object_id,
                entries.get(object_id, ()),
                truths.get(object_id),
                blobs.get(object_id, ()),
            )
            for object_id in sorted(self._ids(entries, truths, blobs))
        ]

    def changes(self) -> list[ChangeFacts]:
        """What is known of each change of many entries that is not over."""
        segments: dict[str, list[OpenSegment]] = {}
        for segment in self.loose.segments:
            segments.setdefault(segment.job or segment_key(segment.id, "pending"), []).append(
                segment
            )
        jobs = {job.id: job for job in self.loose.jobs}
        elsewhere = {job.id for job in self.loose.jobs if not self._concerns(job)}
        return [
            ChangeFacts(
                key, jobs.get(key), tuple(segments.get(key, ())), self.now_ms, self.ground.grace_ms
            )
            for key in sorted((jobs.keys() | segments.keys()) - elsewhere)
        ]

    def _concerns(self, job: TransactionRecord) -> bool:
        """Whether a job may have marked what is looked at."""
        tops = [path for path in (job.source, job.target) if path]
        below = [self.ground.path.startswith(path + "/") for path in tops]
        return not tops or any(map(self.ground.holds, tops)) or any(below)

    def lonely(self, number: int) -> Iterator[Child]:
        """Of each parent that is no directory of the table, in one part, the first of its children
        by name."""
        directories = {ROOT, *self.parts.read("directories", number)}
        first: dict[str, Child] = {}
        for child in self.parts.read("children", number):
            parent = child[0]
            if parent not in directories and (parent not in first or child[1] < first[parent][1]):
                first[parent] = child
        yield from first.values()

    def _facts(
        self,
        object_id: str,
        entries: Sequence[Entry],
        truth: ObjectState | None,
        blobs: Sequence[Any],
    ) -> Facts:
        legacy = self.ground.is_legacy
        is_dir = bool(entries) and entries[0].is_dir
        return Facts(
            object_id=object_id,
            now_ms=self.now_ms,
            grace_ms=self.ground.grace_ms,
            entries=entries,
            truth=truth,
            blobs=blobs,
            logged=self.ground.log is not None and not (legacy and is_dir),
            legacy=legacy,
            unfinished=frozenset(self.unfinished),
        )

    def _ids(
        self, entries: dict[str, list[Entry]], truths: dict[str, ObjectState], blobs: Iterable[str]
    ) -> set[str]:
        if self.ground.path == ROOT:
            return entries.keys() | truths.keys() | set(blobs)

        def is_below(truth: ObjectState) -> bool:
            state = truth.committed.operation.after if truth.committed else None
            return state is not None and self.ground.holds(state.path)

        return entries.keys() | {
            object_id for object_id, truth in truths.items() if is_below(truth)
        }

    # Stages

    async def _stage(self, name: str, piles: tuple[Pile, ...], scan: Callable[[], Any]) -> None:
        if name in self._done:
            return
        self.parts.forget(piles)
        await scan()
        self.parts.flush()
        self._done.append(name)
        self.save()

    async def _scan_table(self, tell: Tell) -> None:
        segments = [
            table_things(self.ground, segment, SEGMENTS, self.counts) for segment in range(SEGMENTS)
        ]
        async for things in merge(segments, limit=SEGMENTS):
            self.put(things)
            done = self.counts.files + self.counts.directories
            tell(Progress("fsck", done, phase="table", unit="entries"))

    async def _scan_log(self, tell: Tell) -> None:
        if self.ground.log is None:
            return
        if isinstance(self.ground.log, LogReader):
            self.position = await position_of(self.ground.log)
        async for things in log_things(self.ground, self.ground.log.records(), self.counts):
            self.put(things)
            tell(Progress("fsck", self.counts.log_records, phase="log", unit="operations"))

    async def _scan_blobs(self, tell: Tell) -> None:
        ranges = [
            blob_things(self.ground, keys, self.counts)
            for group in self.ground.ranges(len(HEX))
            for keys in group
        ]
        async for things in merge(ranges, limit=LISTINGS):
            self.put(things)
            tell(Progress("fsck", self.counts.blobs, phase="data", unit="objects"))

    def put(self, things: Iterable[Thing]) -> None:
        """Put things where they belong."""
        for pile, key, thing in things:
            if pile in LOOSE:
                self.loose.add(pile, thing)
            else:
                self.parts.add(pile, key, thing)

    # Going on

    def _scope(self) -> list[Any]:
        keys = self.ground.store.keys
        return [keys.volume, keys.suffix_count, self.ground.path, self.ground.grace_ms]

    def _resume(self, state: State) -> None:
        if not state:
            return
        if state.get("format") != STATE_FORMAT or state.get("scope") != self._scope():
            raise InvalidArgumentError(
                "the directory holds an interrupted fsck of another volume or with other options; "
                "give another directory"
            )
        self.now_ms = state["now_ms"]
        self._done = list(state["done"])
        self.decided = state["decided"]
        self.position = LogPosition(**{name: frozenset(state["log"][name]) for name in _POSITION})
        self.counts = ScanCounts(**state["counts"])
        self.loose = Unkeyed(
            [ItemFacts(**each) for each in state["items"]],
            [LogObjectFacts(**each) for each in state["log_objects"]],
            [TransactionRecord(**each) for each in state["jobs"]],
            [OpenSegment(**each) for each in state["segments"]],
        )


async def jobs_of(
    store: MetadataStore, entries: Iterable[Entry]
) -> tuple[dict[str, TransactionRecord], frozenset[str]]:
    """The records of the jobs that mark the entries, and the ids of those whose record cannot be
    read."""
    ids = set()
    for entry in entries:
        if entry.pending:
            try:
                ids.add(parse_intent(entry.pending).job)
            except ItemFormatError:
                continue
    if not ids:
        return {}, frozenset()
    items = await store.items.get_many([Key(JOB_PARTITION, job_id) for job_id in sorted(ids)])
    records: dict[str, TransactionRecord] = {}
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
