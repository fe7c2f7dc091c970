"""The collector of the local runner: table, log and data listing, each read once and joined by
object id.

There is no snapshot across the three, so they are read in the order in which a change reaches them
last: table, log, data. A concurrent change is then young in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from s3k_async import _native
from s3k_async._core.concurrency import merge
from s3k_async.backends.ports.key_ranges import HEX
from s3k_async.errors import InvalidArgumentError
from s3k_async.integrity.facts import (
    NOT_LOGGED,
    ChangeFacts,
    CopyFacts,
    CycleFacts,
    Facts,
    ItemFacts,
    LogObjectFacts,
    OpenSegment,
)
from s3k_async.integrity.scans import FactPage, FactRecord, blob_facts, log_facts, table_facts
from s3k_async.integrity.scope import ScanCounts, Scope
from s3k_async.integrity.shuffle import (
    Child,
    FactKind,
    LonelyEntry,
    Shuffle,
    State,
    facts_in,
    from_line,
    hash_of,
)
from s3k_async.model import ROOT, Deletion, Entry, Progress
from s3k_async.oplog.entries import LogRecord, segment_key
from s3k_async.oplog.log_reader import LogReader, ObjectState, latest
from s3k_async.oplog.tail import LogPosition, LogTail, position_of
from s3k_async.txn.txn_record import TransactionRecord

__all__ = ["LOOSE", "Collector", "Unkeyed"]

SEGMENTS: Final = 4
LISTINGS: Final = 4
"""Concurrent data listings: each holds a page, for a directory one of 10,000 keys."""
LOOSE: Final = frozenset({"items", "log_objects", "jobs", "segments"})
"""Kinds without an object id."""
STATE_FORMAT: Final = 6

Tell = Callable[[Progress], object]


@dataclass(slots=True)
class Unkeyed:
    """Facts without an object id: few, unless the table is full of foreign items."""

    items: list[ItemFacts] = field(default_factory=list)
    log_objects: list[LogObjectFacts] = field(default_factory=list)
    jobs: list[TransactionRecord] = field(default_factory=list)
    """Transaction records. The name is that in stored states."""
    segments: list[OpenSegment] = field(default_factory=list)

    def add(self, kind: FactKind, fact: Any) -> None:
        """Add to the list of the kind."""
        getattr(self, kind).append(fact)


class Collector:
    """One pass over a volume, in stages that a later run skips if the parts are kept."""

    def __init__(
        self,
        scope: Scope,
        shuffle: Shuffle,
        *,
        now_ms: int | None = None,
        position: LogPosition | None = None,
    ) -> None:
        """`now_ms`: the time of the scan, if it was made before; `position`: the end of the log at
        that time."""
        self.scope = scope
        self.shuffle = shuffle
        self.counts = ScanCounts()
        self.loose = Unkeyed()
        self.now_ms = scope.runtime.now_ms() if now_ms is None else now_ms
        self.position = position or LogPosition()
        self.decided = 0
        """Parts that an earlier run has decided."""
        self.unfinished: set[str] = set()
        """As of `Facts`."""
        self._tail: LogTail | None = None
        self._done: list[str] = []
        self._resume(shuffle.load_state())

    async def scan(self, tell: Tell) -> None:
        """Read all three. Raises the stores' errors; damage is a fact, never an error."""
        table: tuple[FactKind, ...] = ("entries", "directories", "children", "adopted", "trash")
        await self.scope.check.begin(self.scope.path)
        if "table" in self._done:
            self._know_directories()
        await self._stage("table", table, lambda: self._scan_table(tell))
        await self._stage("log", ("records",), lambda: self._scan_log(tell))
        await self._stage("data", ("blobs", "copies"), lambda: self._scan_blobs(tell))

    @property
    def tail(self) -> LogTail | None:
        """The operations logged since the log was scanned; None for a log without segments."""
        if self._tail is None and isinstance(self.scope.log, LogReader):
            self._tail = LogTail(self.scope.log, self.position)
        return self._tail

    def close(self) -> None:
        """Remove the temporary files, those of the parts included."""
        self.close_tail()
        self.scope.check.close()
        self.shuffle.close()

    def close_tail(self) -> None:
        """Remove the temporary file of the operations logged since the scan."""
        if self._tail is not None:
            self._tail.close()

    def end(self) -> None:
        """Save that the run has ended: the next one with its directory reads everything again."""
        self.shuffle.end({"format": STATE_FORMAT, "scope": self._identity(), "ended": True})

    def save(self) -> None:
        """Save the progress of the run."""
        self.shuffle.save_state(
            {
                "format": STATE_FORMAT,
                "scope": self._identity(),
                "now_ms": self.now_ms,
                "done": self._done,
                "decided": self.decided,
                "log": self.position.document(),
                "counts": asdict(self.counts),
                **asdict(self.loose),
            }
        )

    def facts(self, number: int) -> list[Facts]:
        """The facts about the objects of one part, by id, without transaction records, and without
        objects that are certainly clean."""
        entries: dict[str, list[Entry]] = {}
        adopted: set[str] = set(self.shuffle.read("adopted", number))
        trash: dict[str, Deletion] = dict(self.shuffle.read("trash", number))
        copies: dict[str, list[CopyFacts]] = {}
        for copy in self.shuffle.read("copies", number):
            copies.setdefault(_native.object_id_of(copy.key) or copy.key, []).append(copy)
        left = self._undecided(number, adopted, [*trash, *copies])
        for entry in left["entries"]:
            entries.setdefault(entry.id, []).append(entry)
        log_states = latest(left["records"])
        blobs: dict[str, list[Any]] = {}
        for blob in left["blobs"]:
            # The key of an adopted object holds no object id: see `recheck.with_adopted`.
            if blob.key not in adopted:
                blobs.setdefault(_native.object_id_of(blob.key) or blob.key, []).append(blob)
        return [
            self._facts(
                object_id,
                entries.get(object_id, ()),
                log_states.get(object_id, NOT_LOGGED),
                blobs.get(object_id, ()),
                trash.get(object_id),
                copies.get(object_id, ()),
            )
            for object_id in sorted(self._ids(entries, log_states, blobs))
        ]

    def _undecided(
        self, number: int, adopted: set[str], doubtful: list[str]
    ) -> dict[FactKind, Iterable[Any]]:
        """The entries, records and blobs of one part, without those of clean objects. An object is
        clean only if the rules find nothing about it (`rust/clean_objects.rs`)."""
        kinds: tuple[FactKind, ...] = ("entries", "records", "blobs")
        left = None
        if not self.scope.is_legacy:
            left = _native.undecided_facts(
                self.shuffle.lines("entries", number),
                self.shuffle.lines("records", number),
                self.shuffle.lines("blobs", number),
                adopted,
                doubtful,
                self.scope.log is not None,
            )
        if left is None:
            return {kind: self.shuffle.read(kind, number) for kind in kinds}
        return {kind: facts_in(kind, lines) for kind, lines in zip(kinds, left, strict=True)}

    def changes(self) -> list[ChangeFacts]:
        """The facts about each unfinished change of many entries."""
        segments: dict[str, list[OpenSegment]] = {}
        for segment in self.loose.segments:
            segments.setdefault(segment.txn or segment_key(segment.id, "pending"), []).append(
                segment
            )
        records = {record.id: record for record in self.loose.jobs}
        elsewhere = {record.id for record in self.loose.jobs if not self._concerns(record)}
        return [
            ChangeFacts(
                key,
                records.get(key),
                tuple(segments.get(key, ())),
                self.now_ms,
                self.scope.grace_ms,
            )
            for key in sorted((records.keys() | segments.keys()) - elsewhere)
        ]

    def _concerns(self, record: TransactionRecord) -> bool:
        """Whether a transaction may have write intents on entries of the scope."""
        tops = [path for path in (record.source, record.target) if path]
        below = [self.scope.path.startswith(path + "/") for path in tops]
        return not tops or any(map(self.scope.holds, tops)) or any(below)

    def lonely(self, number: int) -> Iterator[LonelyEntry]:
        """For each parent in one part that is not a directory of the table, the first of its
        children by name; in layout `tree` all of them, with what the log says about the parent."""
        left = _native.lonely_children(
            self.shuffle.lines("directories", number), self.shuffle.lines("children", number)
        )
        lonely: list[Child] = list(facts_in("children", left))
        first: dict[str, Child] = {}
        for child in lonely:
            parent = child[0]
            if parent != ROOT and (parent not in first or child[1] < first[parent][1]):
                first[parent] = child
        if not self.scope.check.by_id:
            yield from map(LonelyEntry, first.values())
            return
        records: dict[str, list[LogRecord]] = {}
        for record in self.shuffle.read("records", number) if first else ():
            if record.operation.object_id in first:
                records.setdefault(record.operation.object_id, []).append(record)
        for child in lonely:
            if child[0] in first:
                yield LonelyEntry(child, tuple(records.get(child[0], ())))

    def cycles(self) -> list[CycleFacts]:
        """The directories that the scan has found below themselves, with their states in the
        log."""
        cycles = self.scope.check.cycles()
        logged = self.log_states({each.key for cycle in cycles for each in cycle})
        return [
            CycleFacts(
                tuple(cycle),
                {
                    each.key: state.entry_key
                    for each in cycle
                    if (state := logged.get(each.key, NOT_LOGGED).entry) is not None
                    and state.entry_key != each.entry_key
                },
            )
            for cycle in cycles
        ]

    def log_states(self, object_ids: Collection[str]) -> dict[str, ObjectState]:
        """What the log says about some objects; those that it does not know are left out."""
        parts = {hash_of(each) % self.shuffle.count for each in object_ids}
        return latest(
            record
            for number in sorted(parts)
            for record in self.shuffle.read("records", number)
            if record.operation.object_id in object_ids
        )

    def _know_directories(self) -> None:
        """Add the directories of an earlier scan to the path index."""
        for number in range(self.shuffle.count):
            self.scope.check.add_directories(self.shuffle.read("directories", number))

    def _facts(
        self,
        object_id: str,
        entries: Sequence[Entry],
        log_state: ObjectState,
        blobs: Sequence[Any],
        trash: Deletion | None,
        copies: Sequence[CopyFacts],
    ) -> Facts:
        legacy = self.scope.is_legacy
        is_dir = bool(entries) and entries[0].is_dir
        return Facts(
            object_id=object_id,
            now_ms=self.now_ms,
            grace_ms=self.scope.grace_ms,
            entries=entries,
            log_state=log_state,
            blobs=blobs,
            logged=self.scope.log is not None and not (legacy and is_dir),
            legacy=legacy,
            by_id=self.scope.check.by_id,
            unfinished=frozenset(self.unfinished),
            trash=trash,
            copies=copies,
            retention_ms=self.scope.retention_ms,
        )

    def _ids(
        self,
        entries: dict[str, list[Entry]],
        log_states: dict[str, ObjectState],
        blobs: Iterable[str],
    ) -> set[str]:
        if self.scope.path == ROOT:
            return entries.keys() | log_states.keys() | set(blobs)

        def is_below(log_state: ObjectState) -> bool:
            return log_state.entry is not None and self.scope.holds_entry(log_state.entry)

        return entries.keys() | {
            object_id for object_id, log_state in log_states.items() if is_below(log_state)
        }

    # Stages

    async def _stage(self, name: str, kinds: tuple[FactKind, ...], scan: Callable[[], Any]) -> None:
        if name in self._done:
            return
        self.shuffle.forget(kinds)
        await scan()
        self._done.append(name)
        self.save()

    async def _scan_table(self, tell: Tell) -> None:
        segments = [
            table_facts(self.scope, segment, SEGMENTS, self.counts) for segment in range(SEGMENTS)
        ]
        async for page in merge(segments, limit=SEGMENTS):
            self.put_page(page)
            done = self.counts.files + self.counts.directories
            tell(Progress("fsck", done, phase="table", unit="entries"))

    async def _scan_log(self, tell: Tell) -> None:
        if self.scope.log is None:
            return
        if isinstance(self.scope.log, LogReader):
            self.position = await position_of(self.scope.log)
        log = self.scope.log
        found = log.batches() if isinstance(log, LogReader) else log.records()
        async for page in log_facts(self.scope, found, self.counts):
            self.put_page(page)
            tell(Progress("fsck", self.counts.log_records, phase="log", unit="operations"))

    async def _scan_blobs(self, tell: Tell) -> None:
        ranges = [
            blob_facts(self.scope, keys, self.counts)
            for group in self.scope.ranges(len(HEX))
            for keys in group
        ]
        async for page in merge(ranges, limit=LISTINGS):
            self.put_page(page)
            tell(Progress("fsck", self.counts.blobs, phase="data", unit="objects"))

    def put_page(self, page: FactPage) -> None:
        """Add the facts of a page."""
        self.put(page.facts)
        for kind, lines in page.lines:
            if kind == "directories" and self.scope.check.by_id:
                self.scope.check.add_directories(from_line(kind, line) for _, line in lines.rows())
            self.shuffle.add_lines(kind, lines)

    def put(self, facts: Iterable[FactRecord]) -> None:
        """Add facts to the shuffle, or to the facts without an object id."""
        for kind, key, fact in facts:
            if kind in LOOSE:
                self.loose.add(kind, fact)
                continue
            if kind == "directories":
                self.scope.check.add_directories([fact])
            self.shuffle.add(kind, key, fact)

    # Going on

    def _identity(self) -> list[Any]:
        keys = self.scope.store.keys
        return [
            self.scope.volume_id,
            keys.volume,
            keys.layout,
            keys.suffix_count,
            keys.hash,
            self.scope.path,
            self.scope.grace_ms,
            self.scope.deep,
        ]

    def _resume(self, state: State) -> None:
        if not state:
            return
        if state.get("format") != STATE_FORMAT or state.get("scope") != self._identity():
            raise InvalidArgumentError(
                "the directory is that of an fsck of another volume or with other options; "
                "give another directory"
            )
        if state.get("ended"):
            return
        self.now_ms = state["now_ms"]
        self._done = list(state["done"])
        self.decided = state["decided"]
        self.position = LogPosition.from_document(state["log"])
        self.counts = ScanCounts(**state["counts"])
        self.loose = Unkeyed(
            [ItemFacts(**each) for each in state["items"]],
            [LogObjectFacts(**each) for each in state["log_objects"]],
            [TransactionRecord(**each) for each in state["jobs"]],
            [OpenSegment(**each) for each in state["segments"]],
        )
