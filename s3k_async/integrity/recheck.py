"""Strongly consistent recheck: every finding is re-evaluated before it is reported or repaired."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from s3k_async import _native
from s3k_async._core.concurrency import gather, run_all
from s3k_async._core.object_version import digest_in
from s3k_async.backends.ports.blobs import BlobInfo
from s3k_async.backends.ports.items import Key
from s3k_async.errors import (
    BlobChangedError,
    BlobNotFoundError,
    InvalidPathError,
    ItemFormatError,
    LogFormatError,
)
from s3k_async.integrity.facts import (
    NOT_LOGGED,
    CopyFacts,
    CycleFacts,
    Facts,
    Finding,
    ItemFacts,
    LogObjectFacts,
    ParentFacts,
    ParentState,
    adopted_by,
    intent_of,
    objects_of,
)
from s3k_async.integrity.scans import checked_entry
from s3k_async.integrity.scope import Scope
from s3k_async.integrity.shuffle import LonelyEntry
from s3k_async.integrity.verify_rules import decide
from s3k_async.model import ROOT, UNCOMMITTED, Content, Deletion, Entry
from s3k_async.namespace.due_items import check_lifecycle_item, is_rule_partition
from s3k_async.namespace.store import MetadataStore
from s3k_async.oplog.entries import LogRecord, SegmentKey, parse_key
from s3k_async.oplog.log_reader import DamagedLog, JavaLogReader, ObjectState, latest
from s3k_async.oplog.tail import LogTail
from s3k_async.storage.change_detection import is_uri
from s3k_async.storage.extents import has_extents, object_of, parse_extents, physical_keys
from s3k_async.storage.object_copies import digest_of
from s3k_async.storage.tiered_blobs import TieredBlobs
from s3k_async.table.codec import from_item
from s3k_async.txn.txn_record import TRANSACTION_PARTITION, TransactionRecord, record_from
from s3k_async.txn.upload_items import check_upload_item, is_upload_partition
from s3k_async.txn.upload_records import open_uploads

__all__ = [
    "CHUNK",
    "checked_bytes",
    "confirmed_findings",
    "copy_facts",
    "cycle_facts",
    "fresh_facts",
    "item_facts",
    "parent_facts",
    "parent_states",
    "read_item",
    "still_damaged",
    "with_transactions",
]

READS: Final = 16
BATCH: Final = 500
CHUNK: Final = 8 * 1024 * 1024
"""Bytes of a blob that are read at once."""
ATTEMPTS: Final = 4
"""How often an object that keeps changing is read."""


async def read_item(store: MetadataStore, entry_key: str) -> Entry | None:
    """The stored entry with a key; None if it is missing or unreadable."""
    item = await store.items.get(store.keys.key(entry_key))
    try:
        return None if item is None else from_item(item, store.keys)
    except ItemFormatError:
        return None


async def with_transactions(scope: Scope, facts: Sequence[Facts]) -> list[Facts]:
    """The facts with the transaction records of their write intents."""
    pending = [entry for each in facts for entry in each.entries if entry.pending]
    ids = {intent.txn for entry in pending if (intent := intent_of(entry)) is not None}
    if not ids:
        return list(facts)
    records: dict[str, TransactionRecord] = {}
    unreadable = set()
    keys = [Key(TRANSACTION_PARTITION, txn) for txn in sorted(ids)]
    for key, item in (await scope.store.items.get_many(keys)).items():
        try:
            records[key.sort] = record_from(item)
        except ItemFormatError:
            unreadable.add(key.sort)
    return [
        replace(each, transactions=records, unreadable_transactions=frozenset(unreadable))
        if any(entry.pending for entry in each.entries)
        else each
        for each in facts
    ]


async def with_adopted(scope: Scope, facts: Sequence[Facts]) -> list[Facts]:
    """The facts with the adopted objects that their entries reference: the keys of these contain no
    object id."""
    found: dict[str, list[BlobInfo]] = {}

    async def look(object_id: str, uri: str, version: str) -> None:
        blob = await scope.head(uri, version)
        if blob is not None:
            found.setdefault(object_id, []).append(blob)

    wanted = [
        (each.object_id, *adopted)
        for each in facts
        if not each.blobs
        for adopted in sorted({one for entry in each.entries for one in adopted_by(entry)})
    ]
    await run_all(lambda each: look(*each), wanted, limit=READS)
    return [
        replace(each, blobs=tuple(found[each.object_id])) if each.object_id in found else each
        for each in facts
    ]


async def with_uploads(scope: Scope, facts: Sequence[Facts]) -> list[Facts]:
    """The facts, with those objects noted whose data is that of an open multipart upload."""
    if scope.is_legacy:
        return list(facts)
    unnamed = {each.object_id for each in facts if each.blobs and not each.entries}
    uploading = await open_uploads(scope.store.items, unnamed)
    return [
        replace(each, uploading=True) if each.object_id in uploading else each for each in facts
    ]


async def confirmed_findings(
    scope: Scope, facts: Sequence[Facts], tail: LogTail | None
) -> AsyncIterator[list[tuple[Facts, list[Finding]]]]:
    """The findings about the objects, in batches; problems are decided again from a recheck.
    Objects without findings are left out. `tail`: the operations logged since the scan.
    """
    for start in range(0, len(facts), BATCH):
        batch = await with_transactions(scope, facts[start : start + BATCH])
        batch = await with_uploads(scope, await with_adopted(scope, batch))
        first = [(each, decide(each)) for each in batch]
        suspects = [each for each, found in first if any(finding.is_problem for finding in found)]
        suspected = {each.object_id for each in suspects}
        said = [(each, found) for each, found in first if found and each.object_id not in suspected]
        if scope.check.by_id:
            shown = [_with_paths(scope, each) for each, _ in said]
            said = [(each, decide(each)) for each in shown]
        said += [
            (each, found)
            for each in await fresh_facts(scope, suspects, tail)
            if (found := decide(each))
        ]
        if said:
            yield said


def _with_paths(scope: Scope, facts: Facts) -> Facts:
    """The facts with the paths of entries that a scan of the table has read."""
    return replace(facts, entries=tuple(map(scope.check.with_path, facts.entries)))


@dataclass(slots=True)
class _Seen:
    """The state of the recheck of one object."""

    entries: list[Entry] = field(default_factory=list)
    trash: Deletion | None = None
    occupied: dict[str, bool] = field(default_factory=dict)
    records: list[LogRecord] = field(default_factory=list)
    blobs: list[BlobInfo] = field(default_factory=list)
    copies: list[CopyFacts] = field(default_factory=list)


async def fresh_facts(
    scope: Scope, suspects: Sequence[Facts], tail: LogTail | None = None
) -> list[Facts]:
    """The facts about some objects from strongly consistent reads of table, log and data. Raises
    the stores' errors.

    A change is in the log before it is in the table. So the table is read between two readings of
    the log: the known records, and those read after the table. If both agree about an object, it
    has not changed in between, and an entry that the table lacks was not moved or removed.
    Otherwise everything is read again. No clock is involved. `tail`: the operations logged since
    the facts were collected; without it only the segments with pending operations are read.

    An object is excluded if none of its entries is at its former path, or if it keeps changing:
    only the next scan of the volume can find it.
    """
    fresh: list[Facts] = []
    left = list(suspects)
    for _ in range(ATTEMPTS):
        if not left:
            break
        looked = await _read(scope, left, tail)
        known = {each.object_id: each.log_state for each in left}
        fresh += [each for each in looked if each.log_state == known[each.object_id]]
        left = [each for each in looked if each.log_state != known[each.object_id]]
    were = {each.object_id for each in suspects if each.entries}
    return await with_transactions(
        scope, [each for each in fresh if each.entries or each.object_id not in were]
    )


async def _read(scope: Scope, suspects: Sequence[Facts], tail: LogTail | None) -> list[Facts]:
    now_ms = scope.runtime.now_ms()
    seen = {each.object_id: _Seen() for each in suspects}
    await _entries(scope, suspects, seen)
    await _records(scope, suspects, seen, tail)
    await run_all(lambda each: _heads(scope, each, seen[each.object_id]), suspects, limit=READS)
    return [
        replace(
            each,
            now_ms=now_ms,
            entries=tuple(seen[each.object_id].entries),
            occupied=seen[each.object_id].occupied,
            log_state=latest(seen[each.object_id].records).get(each.object_id, NOT_LOGGED),
            blobs=tuple(seen[each.object_id].blobs),
            copies=tuple(seen[each.object_id].copies),
            trash=seen[each.object_id].trash,
            transactions={},
        )
        for each in suspects
    ]


async def _entries(scope: Scope, suspects: Sequence[Facts], seen: dict[str, _Seen]) -> None:
    store = scope.store
    wanted = {each.object_id: _places(each) for each in suspects}
    every = {place for places in wanted.values() for place in places}
    entry_keys = sorted(filter(store.keys.is_current, every))
    keys = store.keys.keys(entry_keys)
    items = await store.items.get_many(keys) if keys else {}
    found: dict[str, Entry | None] = {}
    for entry_key, key in zip(entry_keys, keys, strict=True):
        if key in items:
            try:
                read = from_item(items[key], store.keys)
                if scope.check.is_object(items[key], read):
                    found[entry_key] = scope.check.with_path(read)
                    if read.is_dir and read.directory in scope.check.roots and read.id in seen:
                        seen[read.id].trash = scope.check.deletion(items[key])
            except ItemFormatError:
                found[entry_key] = None
    for object_id, places in wanted.items():
        for place in sorted(places & found.keys()):
            entry = found[place]
            if entry is not None and object_id in objects_of(entry):
                seen[object_id].entries.append(entry)
            else:
                seen[object_id].occupied[place] = entry is not None and entry.is_dir
    await _below_files(scope, suspects, seen)


async def _below_files(scope: Scope, suspects: Sequence[Facts], seen: dict[str, _Seen]) -> None:
    """A path below a file counts as occupied."""

    async def look(each: Facts) -> None:
        logged = each.log_state.entry
        found = seen[each.object_id]
        if logged is None or found.entries or found.occupied:
            return
        if await scope.check.is_below_file(logged):
            found.occupied[logged.entry_key] = False

    await run_all(look, suspects, limit=READS)


def _states(log_state: ObjectState) -> list[Entry]:
    """Every state of an object in the newest log records."""
    return [
        state
        for record in (*log_state.last, *log_state.pending)
        for state in (record.operation.before, record.operation.after)
        if state
    ]


def _places(facts: Facts) -> set[str]:
    """The entry keys of an object, now and in the log. S3-FileSystem 1.0's log may hold paths that
    are none."""
    return {
        entry.entry_key
        for entry in (*facts.entries, *_states(facts.log_state))
        if entry.directory or (entry.path.startswith("/") and entry.path != ROOT)
    }


async def _records(
    scope: Scope, suspects: Sequence[Facts], seen: dict[str, _Seen], tail: LogTail | None
) -> None:
    """All log entries of the objects, the operations pending in segments, and those logged since.
    Committed operations remain committed and are not read again, unless the log was compacted
    meanwhile.
    """
    log = scope.log
    if log is None:
        return

    async def own(each: Facts) -> None:
        try:
            read = log.history if isinstance(log, JavaLogReader) else log.entries_of
            found = await read(each.object_id)
        except LogFormatError:  # an id that no key of the log can hold
            return
        seen[each.object_id].records += [
            record for record in found if isinstance(record, LogRecord)
        ]

    await run_all(own, suspects, limit=READS)
    if isinstance(log, JavaLogReader):
        return
    for segment in sorted({segment for each in suspects for segment in _segments(each.log_state)}):
        for record in await log.segment(segment):
            if isinstance(record, LogRecord) and record.operation.object_id in seen:
                seen[record.operation.object_id].records.append(record)
    since, is_compacted = await tail.of(seen) if tail is not None else ([], False)
    for each in suspects:
        seen[each.object_id].records += () if is_compacted else each.log_state.last
    for record in since:
        seen[record.operation.object_id].records.append(record)


def _segments(log_state: ObjectState) -> list[str]:
    keys = [parse_key(record.key) for record in log_state.pending]
    return [key.segment_id for key in keys if isinstance(key, SegmentKey)]


async def _heads(scope: Scope, facts: Facts, seen: _Seen) -> None:
    states = [*seen.entries, *_states(latest(seen.records).get(facts.object_id, NOT_LOGGED))]
    names = {blob.key: blob.key for blob in facts.blobs}
    physical = [
        name
        for state in states
        if state.physical != UNCOMMITTED
        for name in physical_keys(state.physical)
    ]
    names |= {scope.key_of(name): name for name in physical}
    # Entries come first, so their version ids take precedence.
    versions: dict[str | None, str] = {}
    for state in states:
        versions.setdefault(state.physical, state.object_version)
    for key in sorted(names.keys() - {""}):
        blob = await scope.head(names[key], versions.get(names[key], ""))
        if blob is not None:
            seen.blobs.append(blob)
    for copy in facts.copies:
        again = await copy_facts(scope, copy.key)
        if again is not None:
            seen.copies.append(again)


async def copy_facts(scope: Scope, key: str) -> CopyFacts | None:
    """What both locations of a volume with tiers have of a physical object, with checksums; None
    unless both have it, and the bytes differ."""
    if not isinstance(scope.blobs, TieredBlobs):
        return None
    hot, cold = scope.blobs.hot, scope.blobs.cold
    one, other = await hot.head(key), await cold.head(key)
    if one is None or other is None:
        return None
    try:
        first = await digest_of(hot, key, one.size, CHUNK)
        second = await digest_of(cold, key, other.size, CHUNK)
    except (BlobNotFoundError, BlobChangedError):
        return None  # moved or deleted; or written by another repair
    return None if first == second else CopyFacts(key, one.size, other.size, first, second)


async def item_facts(scope: Scope, found: Sequence[ItemFacts]) -> list[ItemFacts]:
    """The facts about suspect items from strongly consistent reads, without those that are correct
    now."""

    async def look(facts: ItemFacts) -> ItemFacts | None:
        store = scope.store
        here = Key(facts.partition, facts.sort)
        item = await store.items.get(here)
        if item is None or facts.is_foreign:
            return None if item is None else facts
        try:
            if here.partition == TRANSACTION_PARTITION:
                record_from(item)
                return None
            if is_upload_partition(here.partition):
                check_upload_item(item)
                return None
            if is_rule_partition(here.partition):
                check_lifecycle_item(item)
                return None
            key = store.keys.of(checked_entry(scope, item))
        except (ItemFormatError, InvalidPathError) as error:
            return replace(facts, problem=str(error))
        if key == here:
            return None
        return replace(facts, problem="", is_free=await store.items.get(key) is None)

    return [facts for facts in await gather(look, found, limit=READS) if facts is not None]


async def still_damaged(scope: Scope, facts: LogObjectFacts) -> bool:
    """Whether a log object, read again, exists and is unreadable."""
    if scope.log_blobs is None or isinstance(scope.log, JavaLogReader) or scope.log is None:
        return False
    if await scope.log_blobs.head(facts.key) is None:
        return False
    try:
        key = parse_key(facts.key)
    except LogFormatError:
        return True
    found = await (
        scope.log.segment(key.segment_id)
        if isinstance(key, SegmentKey)
        else scope.log.entries_of(key.object_id)
    )
    return any(isinstance(each, DamagedLog) and each.key == facts.key for each in found)


async def parent_facts(
    scope: Scope, lonely: Iterable[LonelyEntry], tail: LogTail | None = None
) -> list[ParentFacts]:
    """The facts about entries that, read again, have no parent. `tail`: the operations logged since
    the scan.

    In layout `tree` the place of the parent is that of the scan, or one that the log names. An
    entry whose parent was removed is a finding by itself; of the others, the first of each parent.
    """
    everything = list(lonely)
    states: Mapping[str, tuple[ParentState, ObjectState]] = {}
    if scope.check.by_id:
        records = {each.child[0]: each.records for each in everything}
        logged = {key: latest(found).get(key, NOT_LOGGED) for key, found in records.items()}
        states = await parent_states(scope, logged, tail)
        everything = _judged(everything, states)

    async def look(lonely: LonelyEntry) -> ParentFacts | None:
        parent_key, entry_key, object_id, mtime_ms = lonely.child
        place = scope.check.directory(parent_key)
        entry = await read_item(scope.store, entry_key)
        parent = None if place is None else await read_item(scope.store, place.entry_key)
        if entry is None or _is_directory(scope, parent, parent_key):
            return None
        state, log_state = states.get(parent_key, _UNASKED)
        if scope.check.by_id and (state == "" or entry.id != object_id):
            return None
        if await read_item(scope.store, entry_key) != entry:
            return None  # moved or removed, perhaps with its parent before the parent was read
        shown = scope.check.with_path(entry)
        young = mtime_ms > scope.runtime.now_ms() - scope.grace_ms
        by_id = scope.check.by_id
        return ParentFacts(
            parent_key,
            shown.path,
            object_id,
            young,
            parent is not None and not by_id,
            shown if by_id else None,
            state,
            log_state,
        )

    looked = await gather(look, everything, limit=READS)
    return [facts for facts in looked if facts is not None]


def _judged(
    lonely: Iterable[LonelyEntry], states: Mapping[str, tuple[ParentState, ObjectState]]
) -> list[LonelyEntry]:
    """Of the entries in layout `tree` those to read again: all whose directory was removed, and of
    every other missing directory the first by its entry key."""
    found: list[LonelyEntry] = []
    first: dict[str, LonelyEntry] = {}
    for each in lonely:
        parent, entry_key = each.child[:2]
        state, _ = states.get(parent, _UNASKED)
        if state == "removed":
            found.append(each)
        elif state and (parent not in first or entry_key < first[parent].child[1]):
            first[parent] = each
    return [*found, *first.values()]


_UNASKED: Final[tuple[ParentState, ObjectState]] = ("", NOT_LOGGED)


def _is_directory(scope: Scope, entry: Entry | None, key: str) -> bool:
    return entry is not None and entry.is_dir and scope.store.keys.directory(entry).key == key


async def parent_states(
    scope: Scope, logged: Mapping[str, ObjectState], tail: LogTail | None
) -> dict[str, tuple[ParentState, ObjectState]]:
    """What the log says, read again, about directories that the scan has not found, by id. Those
    that exist, or that keep changing, are left out. `logged`: what it said during the scan."""
    if scope.log is None:
        return dict.fromkeys(logged, ("no log", NOT_LOGGED))
    now_ms = scope.runtime.now_ms()
    suspects = [
        Facts(key, now_ms, scope.grace_ms, log_state=state, by_id=True)
        for key, state in logged.items()
    ]
    return {
        facts.object_id: (_parent_state(scope, facts), facts.log_state)
        for facts in await fresh_facts(scope, suspects, tail)
        if not facts.entries
    }


def _parent_state(scope: Scope, facts: Facts) -> ParentState:
    if facts.log_state.pending:
        return "undecided"
    committed = facts.log_state.committed
    if committed is None:
        return "unknown"
    if committed.operation.after is not None:
        return "there"
    settled_ms = facts.now_ms - max(scope.grace_ms, scope.check.settle_ms)
    return "leaving" if committed.operation.time_ms > settled_ms else "removed"


async def cycle_facts(scope: Scope, cycles: Iterable[CycleFacts]) -> list[CycleFacts]:
    """The cycles with their items, where they exist. A directory that leaves its key gets another
    version: if two reads find the same versions, all of them were in place between the reads. If a
    directory of the cycle is also where the log has it, its other item is to be removed instead.
    """

    async def read(places: Iterable[tuple[str, str]]) -> list[Entry | None]:
        wanted = list(places)
        stored = await scope.store.items_at([entry_key for _, entry_key in wanted])
        found: list[Entry | None] = []
        for key, entry_key in wanted:
            item = stored.get(entry_key)
            try:
                entry = None if item is None else from_item(item, scope.store.keys)
            except ItemFormatError:
                entry = None
            found.append(entry if _is_directory(scope, entry, key) else None)
        return found

    async def look(cycle: CycleFacts) -> CycleFacts:
        places = [(each.key, each.entry_key) for each in cycle.members]
        before = [entry for entry in await read(places) if entry is not None and not entry.pending]
        if len(before) < len(places) or await read(places) != before:
            return cycle
        if any(await read(cycle.displaced.items())):
            return cycle
        return replace(cycle, entries=tuple(map(scope.check.with_path, before)))

    return await gather(look, list(cycles), limit=READS)


async def checked_bytes(scope: Scope, entry: Entry) -> Finding | None:
    """Read a file's data and compare the checksum of each physical object; None if they match, or
    if the data is missing. Without a recorded checksum the entity tag is compared."""
    objects = [entry.content]
    if has_extents(entry.physical):
        extents = parse_extents(str(entry.physical))
        by_key = {each.key: each for each in extents if not each.is_hole}
        objects = [object_of(each) for each in by_key.values()]
    for content in objects:
        if not digest_in(content.checksum):
            finding = await _checked_tag(scope, entry, content)
        else:
            finding = await _checked_digest(scope, entry, content)
        if finding is not None:
            return finding
    return None


async def _checked_digest(scope: Scope, entry: Entry, content: Content) -> Finding | None:
    """As `checked_bytes`, of an object with a recorded checksum. `content.size`: 0 if it is not
    known."""
    physical = content.physical
    size = content.size or await _size_of(scope, physical)
    try:
        found = await _checksum(scope, physical, size)
    except (BlobNotFoundError, InvalidPathError):
        return None
    if found == content.checksum:
        return None
    detail = f"the bytes are {found}, the entry says {content.checksum}"
    return Finding("checksum_mismatch", detail, entry.id, entry.path, physical)


async def _size_of(scope: Scope, physical: str) -> int:
    """The size of an object; 0 if it is missing."""
    blob = await scope.head(physical)
    return 0 if blob is None else blob.size


async def _checked_tag(scope: Scope, entry: Entry, content: Content) -> Finding | None:
    """As `checked_bytes`, of a composed object, whose checksum is unknown. That of an adopted one
    is compared by the rules, and objects that move between tiers do not keep it."""
    physical, etag = content.physical, content.etag
    if not etag or is_uri(physical) or isinstance(scope.blobs, TieredBlobs):
        return None
    blob = await scope.head(physical)
    if blob is None or content.size not in (0, blob.size) or blob.etag in ("", etag):
        return None
    detail = f"the entity tag is {blob.etag}, the entry says {etag}: replaced, or copied here"
    return Finding("etag_mismatch", detail, entry.id, entry.path, physical)


async def _checksum(scope: Scope, physical: str, size: int) -> str:
    digest = _native.Xxh3_128()
    for start in range(0, size, CHUNK):
        digest.update(await scope.get(physical, start, start + CHUNK))
    return f"xxh128:{digest.hexdigest()}"
