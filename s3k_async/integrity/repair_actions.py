"""Repair actions. Each is conditional on the state that was read, and changes nothing if that has
changed.

Physical objects are never deleted. Unreadable items and log objects are copied to `quarantine/` in
the log location before they are removed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final, Protocol
from uuid import UUID

from s3k_async._core.active_calls import Calls
from s3k_async._core.object_version import digest_in
from s3k_async.backends.ports.blobs import BlobStore
from s3k_async.backends.ports.items import (
    ABSENT,
    OPERATION,
    PARTITION,
    SORT,
    Check,
    Condition,
    Delete,
    Item,
    Key,
    Put,
)
from s3k_async.config import VolumeConfig
from s3k_async.errors import (
    BlobExistsError,
    ConditionFailedError,
    ConflictError,
    InvalidPathError,
    ItemFormatError,
    S3kError,
)
from s3k_async.integrity.change_outcome import segment_commit
from s3k_async.integrity.facts import (
    Action,
    ChangeFacts,
    CopyFacts,
    CycleFacts,
    Facts,
    Finding,
    ItemFacts,
    LogObjectFacts,
    ParentFacts,
    visibility_of,
)
from s3k_async.integrity.recheck import CHUNK, copy_facts, fresh_facts, item_facts, still_damaged
from s3k_async.integrity.scans import is_newer_format
from s3k_async.integrity.scope import Scope
from s3k_async.integrity.verify_rules import decide, keeper_of, next_version
from s3k_async.model import Entry
from s3k_async.namespace.store import MetadataStore
from s3k_async.oplog.entries import (
    EntryKey,
    LogRecord,
    Operation,
    encode,
    entry_document,
    entry_key,
    operation_line,
    parse_key,
    segment_key,
    transaction_segments,
)
from s3k_async.oplog.log_objects import QUARANTINE
from s3k_async.oplog.log_reader import LogReader
from s3k_async.oplog.segments import encode_segment_commit
from s3k_async.oplog.tail import LogTail
from s3k_async.storage.object_copies import copy_object
from s3k_async.storage.physical import PhysicalStorage
from s3k_async.storage.tiered_blobs import TieredBlobs
from s3k_async.table.codec import from_item, to_item, unchanged
from s3k_async.txn.lease import expired
from s3k_async.txn.txn_record import TransactionRecord
from s3k_async.txn.volume_record import VolumeRecord

__all__ = ["FsckVolume", "LeftError", "MissingDirectoryError", "Repairer", "Task"]


WAITS: Final = (0.0, 0.05, 0.5, 5.0)
"""Seconds before each check of pending operations."""
_TYPED: Final = re.compile(r'\{"(?:N|B|NULL|L|M|SS|NS|BS)":.*\}', re.DOTALL)
"""The form in which the item port returns an attribute of a DynamoDB type other than text, whole
number or boolean."""
_ALWAYS: Final = ("isdir", "ctime", "ver", "id", OPERATION)
"""Attributes that every entry of the volume has."""
_UNCOUNTED: Final = frozenset({"make_parent", "move_item", "quarantine", "renumber"})
"""Actions that may change what is in a bucket without an operation that says so."""


class FsckVolume(Protocol):
    """The parts of an open volume that fsck works with: `s3k_async.volumes.Volume` is one."""

    @property
    def store(self) -> MetadataStore: ...
    @property
    def blobs(self) -> BlobStore: ...
    @property
    def place(self) -> BlobStore: ...
    @property
    def log_blobs(self) -> BlobStore | None: ...
    @property
    def storage(self) -> PhysicalStorage: ...
    @property
    def config(self) -> VolumeConfig: ...
    @property
    def record(self) -> VolumeRecord: ...
    @property
    def read_only(self) -> bool: ...
    @property
    def calls(self) -> Calls: ...


class LeftError(S3kError):
    """The state has changed since the finding; nothing was done."""


class MissingDirectoryError(LeftError):
    """The parent directory, `path`, of an entry to restore does not exist."""


@dataclass(frozen=True, slots=True)
class Task:
    """A finding to repair, and its facts."""

    finding: Finding
    facts: Facts | ItemFacts | LogObjectFacts | ParentFacts | ChangeFacts | CycleFacts

    def line(self) -> dict[str, Any]:
        """Its line in the audit trail, sufficient to understand and undo the change."""
        finding = self.finding
        line: dict[str, Any] = {
            "action": finding.action,
            "kind": finding.kind,
            "object_id": finding.object_id,
            "path": finding.path,
            "key": finding.key,
            "version": finding.version,
            "detail": finding.detail,
        }
        if isinstance(self.facts, ParentFacts) and self.facts.entry is not None:
            line["entries"] = [entry_document(self.facts.entry)]
        if isinstance(self.facts, CycleFacts):
            line["entries"] = [entry_document(entry) for entry in self.facts.entries]
        if isinstance(self.facts, Facts):
            line["entries"] = [entry_document(entry) for entry in self.facts.entries]
            line["operations"] = [
                json.loads(operation_line(record.operation, record.key))
                for record in self.facts.log_state.pending
            ]
        return line


class Repairer:
    """Carries out actions on one volume."""

    def __init__(self, volume: FsckVolume, scope: Scope, tail: LogTail | None) -> None:
        """`tail`: the operations logged since the volume was scanned."""
        self._scope = scope
        self._tail = tail
        self._store = volume.store
        self._storage = volume.storage
        self._log_blobs = volume.log_blobs
        self._runtime = volume.store.runtime

    async def repair_action(self, task: Task) -> None:
        """Carry out the action of the finding. Raises LeftError and the stores' errors."""
        if task.finding.action in _UNCOUNTED:
            await self._store.indexes.stop_counting()
        await self._actions[task.finding.action](self, task)

    # The log

    async def _commit_log(self, task: Task) -> None:
        """Write the committed entry of an operation that took effect. An operation of a segment
        gets an entry of its own, since a segment's mark covers all of its operations and is written
        once."""
        await self._commit(self._record(task).operation)

    async def _commit(self, operation: Operation) -> None:
        await self._put_log(
            entry_key(operation, "committed"), encode(LogRecord(operation, "committed"))
        )

    async def _roll_back_log(self, task: Task) -> None:
        """Supersede the operation by the next version of the object, or by a tombstone, so that its
        writer, if it is alive after all, cannot change anything that is not in the log. The pending
        object of a single entry is then removed; a segment holds other operations too."""
        record, facts = self._record(task), self._facts(task)
        is_entry = isinstance(parse_key(record.key), EntryKey)
        if facts.entries:
            await self._log_again(task)
        if is_entry:
            await self._log().delete(record.key)
        elif not facts.entries:
            await self._tombstone(facts, record.operation.after or record.operation.before)

    async def _roll_forward(self, task: Task) -> None:
        """Publish the new state of the operation: its data exists, and the reservation is exactly
        the one it began from."""
        operation, entry = self._record(task).operation, self._entry(task)
        assert operation.after is not None
        after = operation.after.without_intent()
        await self._store.indexes.add_subtree(after)
        await self._store.items.write(await self._scope.check.put_for(entry, after))
        await self._commit(operation)

    async def _log_again(self, task: Task) -> None:
        """Log the entry of the table again, at an unused version."""
        facts = self._facts(task)
        entry = self._entry(task)
        after = replace(entry, version=next_version(facts), operation=self._runtime.uuid())
        await self._change("update", entry, after)

    async def _log_removal(self, task: Task) -> None:
        """Write a tombstone for an object that remains only in the log."""
        facts = self._facts(task)
        await self._tombstone(facts, facts.log_state.entry)

    async def _tombstone(self, facts: Facts, state: Entry | None) -> None:
        """A tombstone. Deterministic, since different tombstones of one version would be a
        conflict."""
        if state is None:
            raise LeftError("there is no state to be removed", path=facts.object_id)
        version = next_version(facts)
        operation = self._store.changes.operation(
            "delete", replace(state, version=version - 1), None
        )
        digest = sha256(f"{state.id}\n{version}".encode()).digest()
        await self._commit(replace(operation, id=str(UUID(bytes=digest[:16], version=4))))

    # Entries

    async def _restore_entry(self, task: Task) -> None:
        """Restore the logged entry, at its version, below an existing directory. The object is
        looked up once more: another repair may have restored it, and a client may have moved it
        since."""
        facts = next(iter(await fresh_facts(self._scope, [self._facts(task)], self._tail)), None)
        if facts is None or task.finding not in decide(facts):
            raise LeftError("it is not missing any more", path=task.finding.path)
        state = facts.log_state.entry
        if state is None:
            raise LeftError("the log does not say it any more", path=task.finding.path)
        current = facts.entries[0] if facts.entries else None
        operation = self._restored(facts)
        put = Put(
            self._scope.check.logged_item(operation),
            ABSENT if current is None else unchanged(current),
        )
        checks = await self._parent_checks(state)
        await self._store.indexes.add_subtree(state)
        await self._store.items.transact([put, *checks], self._runtime.uuid())
        if await self._was_changed(facts):
            if current is None and not state.is_dir:
                with suppress(ConditionFailedError):
                    await self._store.items.write(
                        Delete(put.key, unchanged(state.without_intent()))
                    )
            raise LeftError("changed by another client during the restore", path=state.path)
        self._know(state)

    def _know(self, entry: Entry) -> None:
        """Tell the rest of the round where a directory is by now."""
        if entry.is_dir:
            directory = self._store.keys.directory(entry)
            self._scope.check.add_directories([(directory.key, directory.entry_key)])

    def _restored(self, facts: Facts) -> Operation:
        """The operation that led to the logged state, without an intent in it."""
        committed = facts.log_state.committed
        assert committed is not None
        assert committed.operation.after is not None
        after = committed.operation.after.without_intent()
        return replace(committed.operation, after=after)

    async def _parent_checks(self, state: Entry) -> list[Check]:
        """The condition that the parent of an entry to restore exists. Raises
        MissingDirectoryError."""
        check = self._scope.check
        key = self._store.keys.parent_key(state.entry_key)
        if key in check.roots:
            return []
        parent = check.directory(key)
        checks = [] if parent is None else self._store.require_parent(parent)
        if parent is None or (checks and await self._store.items.get(checks[0].key) is None):
            raise MissingDirectoryError("its directory is not there yet", path=key)
        return checks

    async def _was_changed(self, facts: Facts) -> bool:
        """Whether the log has committed another state of the object since `facts`. Another repair
        may have restored the entry first, and a client may have changed it since. Waits for pending
        operations: they may have taken effect before this restore, or depend on it.
        """
        for wait in WAITS:
            await self._runtime.sleep(wait)
            now = next(iter(await fresh_facts(self._scope, [facts], self._tail)), None)
            if now is None:
                continue
            if now.log_state.committed != facts.log_state.committed:
                return True
            if now.log_state == facts.log_state:
                return False
        return False

    async def _remove_entry(self, task: Task) -> None:
        if isinstance(task.facts, ParentFacts):
            assert task.facts.entry is not None
            await self._scope.check.remove_unreachable(task.facts.entry)
            return
        await self._store.delete_file(self._entry(task), anywhere=True)

    async def _remove_item(self, task: Task) -> None:
        """Remove one of two items of a directory, if both of them are there. Not logged: the
        directory remains."""
        facts, entry = self._facts(task), self._entry(task)
        keeper = keeper_of(facts)
        if keeper is None or keeper.entry_key == entry.entry_key:
            raise LeftError("the directory is at one place only", path=entry.path)
        if not keeper.is_dir:
            raise LeftError("a file has the id of the directory", path=entry.path)
        keys = self._store.keys
        actions: list[Delete | Check] = [
            Delete(keys.of(entry), unchanged(entry)),
            Check(keys.of(keeper), unchanged(keeper)),
        ]
        await self._store.items.transact(actions, self._runtime.uuid())

    async def _renumber(self, task: Task) -> None:
        """Give an entry a new id, and a file its own copy of the data."""
        entry = self._entry(task)
        identity = self._runtime.uuid()
        after = replace(
            entry, id=identity, version=1 if entry.is_dir else 2, operation=self._runtime.uuid()
        )
        if not entry.is_dir and entry.committed:
            storage = self._storage.at(entry.path)
            content = await storage.copy_from(self._storage, entry.content, identity)
            checksum = content.checksum or digest_in(entry.checksum)
            after = replace(after, physical=content.physical, etag=content.etag, checksum=checksum)
        operation = self._store.changes.operation(
            "create" if entry.is_dir else "update", None, after
        )
        await self._write(operation, Put(to_item(after, self._store.keys), unchanged(entry)))

    async def _replace_cold_copy(self, task: Task) -> None:
        """Replace the cold object by the hot one, which has the bytes that the entry says."""
        copy, blobs = await self._copies(task)
        await copy_object(blobs.hot, blobs.cold, copy.key, copy.hot_size, CHUNK, copy.hot_checksum)

    async def _remove_hot_copy(self, task: Task) -> None:
        """Delete the hot object: the cold one, from which nothing is ever deleted but an object as
        a whole, has the bytes that the entry says."""
        copy, blobs = await self._copies(task)
        await blobs.hot.delete(copy.key)

    async def _copies(self, task: Task) -> tuple[CopyFacts, TieredBlobs]:
        """The objects that differ, read again, and where they are. Raises LeftError if they are not
        those of the finding."""
        key, blobs = task.finding.key, self._scope.blobs
        copy = await copy_facts(self._scope, key)
        if copy not in self._facts(task).copies or not isinstance(blobs, TieredBlobs):
            raise LeftError("the objects in the two locations have changed", path=key)
        assert copy is not None
        return copy, blobs

    async def _resolve_transaction(self, task: Task) -> None:
        """Finish an abandoned transaction: its write intents are applied or removed, and its
        record is deleted."""
        if isinstance(task.facts, ChangeFacts):
            assert task.facts.record is not None
            await self._complete(await self._abandoned(task.facts.record))
            return
        pending = next(
            entry
            for entry in self._facts(task).entries
            if entry.path == task.finding.path and entry.pending
        )
        await self._store.resolve(pending)

    async def _finish_change(self, task: Task) -> None:
        """Finish an interrupted change as a whole: apply or remove all intents of its transaction,
        and record its outcome with one log write per segment."""
        assert isinstance(task.facts, ChangeFacts)
        record = task.facts.record
        if record is None:
            name = task.facts.segments[0]
            if name.txn and await self._store.transactions.record(name.txn) is not None:
                # The record is written before the first segment, but the scan did not see it.
                raise LeftError(
                    "the transaction began after the table was scanned", path=task.facts.key
                )
            prefix = transaction_segments(name.txn) if name.txn else task.facts.key
            if not await self._end_segments(prefix, name.txn, published=False):
                raise LeftError("another client has finished it", path=task.facts.key)
            return
        current = await self._abandoned(record)
        if current.is_published:
            # The intents identify the deletions; they are lost when they are applied.
            await self._end_segments(transaction_segments(record.id), record.id, published=True)
            await self._complete(current)
            return
        await self._complete(current)
        if isinstance(self._scope.log, LogReader):
            # Aborted, and the record removed: the operations can no longer take effect.
            for segment in await self._scope.log.open_segments(transaction_segments(record.id)):
                await self._log().delete(segment_key(segment, "pending"))

    async def _end_segments(self, prefix: str, txn: str, *, published: bool) -> int:
        """Write the outcome of each open segment below a key prefix; returns their number."""
        log = self._scope.log
        if not isinstance(log, LogReader):
            return 0
        ended = 0
        for segment_id in await log.open_segments(prefix):
            begun = await log.begun(segment_id)
            if begun is None:
                continue
            commit = await segment_commit(self._store, begun, txn, published=published)
            if commit is None:
                await self._log().delete(segment_key(segment_id, "pending"))
            else:
                await self._put_log(
                    segment_key(segment_id, "committed"), encode_segment_commit(commit)
                )
            ended += 1
        return ended

    async def _abandoned(self, record: TransactionRecord) -> TransactionRecord:
        """The record of a transaction with an expired lease, read again."""
        current = await self._store.transactions.record(record.id)
        if current is None or not expired(current.lease_ms, self._runtime.now_ms()):
            raise LeftError("the transaction is active, or has ended", path=record.source)
        return current

    async def _complete(self, record: TransactionRecord) -> None:
        if not await self._store.resolver.complete(record):
            raise LeftError("another client has taken over the transaction", path=record.source)

    async def _make_parent(self, task: Task) -> None:
        """Create a directory that entries are in; or one that the log has, but whose path is
        taken."""
        if isinstance(task.facts, Facts):
            facts = task.facts
            key, before, version = facts.object_id, facts.log_state.entry, next_version(facts)
        else:
            assert isinstance(task.facts, ParentFacts)
            state = task.facts.log_state
            key, before = task.facts.parent, state.entry
            version = max((each.operation.version for each in state.last), default=0) + 1
        await self._scope.check.make_parent(key, before, version)

    # Unreadable and misplaced items

    async def _move_item(self, task: Task) -> None:
        """Move an entry to the partition that its name belongs to; one of the directories of a
        cycle, out of it."""
        if isinstance(task.facts, CycleFacts):
            moved = task.facts.moved
            others = [entry for entry in task.facts.entries if entry is not moved]
            await self._scope.check.break_cycle(moved, others)
            return
        item = await self._item(task)
        try:
            entry = from_item(item, self._store.keys)
        except ItemFormatError as error:
            raise LeftError("the item cannot be read any more", path=task.finding.key) from error
        put = Put(self._scope.check.moved_item(item, entry), ABSENT)
        await self._store.indexes.add_subtree(entry)
        await self._store.items.transact([_removal(item), put], self._runtime.uuid())
        self._know(entry)

    async def _quarantine(self, task: Task) -> None:
        if isinstance(task.facts, LogObjectFacts):
            if not await still_damaged(self._scope, task.facts):
                raise LeftError(
                    "the log object is not there, or can be understood", path=task.facts.key
                )
            await self._quarantine_log(task.facts.key)
            return
        assert isinstance(task.facts, ItemFacts)
        if not await item_facts(self._scope, [task.facts]):
            raise LeftError("the item can be understood", path=task.finding.key)
        item = await self._item(task)
        document = json.dumps(dict(item), sort_keys=True).encode("ascii")
        await self._put_log(f"{QUARANTINE}items/{sha256(document).hexdigest()}.json", document)
        await self._store.items.write(_removal(item))

    async def _quarantine_log(self, key: str) -> None:
        """Quarantine a log object of any size: it is read in chunks, and copied inside the
        store."""
        blobs = self._log()
        if await is_newer_format(blobs, key):
            raise LeftError("the log object is of a newer format", path=key)
        digest, start = sha256(), 0
        while piece := await blobs.get(key, start, start + CHUNK):
            digest.update(piece)
            start += len(piece)
        name = f"{QUARANTINE}{key}.{digest.hexdigest()[:16]}"
        if await blobs.head(name) is None:
            await blobs.copy(blobs, key, name)
        await blobs.delete(key)

    # Reads and writes of the actions

    async def _item(self, task: Task) -> Item:
        """The item as it is now."""
        assert isinstance(task.facts, ItemFacts)
        item = await self._store.items.get(Key(task.facts.partition, task.facts.sort))
        if item is None:
            raise LeftError("the item is gone", path=task.finding.key)
        return item

    async def _change(self, kind: Any, before: Entry, after: Entry) -> None:
        """A logged write, conditional on exactly the state that was seen."""
        check = self._scope.check
        put = await check.put_for(before, after)
        before = before.without_intent()
        operation = self._store.changes.operation(kind, before, after, check.deletion(put.item))
        await self._write(operation, put)

    async def _write(self, operation: Operation, put: Put) -> None:
        """The logged write of one item."""
        store = self._store
        await store.changes.run(
            [operation], lambda outcome: outcome.write(store.items, put, store.runtime.uuid)
        )

    async def _put_log(self, key: str, data: bytes) -> None:
        """Write an object of the log; a concurrent repair may have written the same bytes."""
        blobs = self._log()
        try:
            await blobs.put(key, data, if_absent=True)
        except BlobExistsError as error:
            if await blobs.get(key, 0, len(data) + 1) != data:
                raise ConflictError(
                    "the operation log has another object at this key", path=key
                ) from error

    def _log(self) -> BlobStore:
        if self._log_blobs is None:
            raise LeftError("the volume has no log, where this could be kept")
        return self._log_blobs

    def _facts(self, task: Task) -> Facts:
        assert isinstance(task.facts, Facts)
        return task.facts

    def _record(self, task: Task) -> LogRecord:
        """The pending operation that the finding is about."""
        facts = self._facts(task)
        for record in facts.log_state.pending:
            if (record.key, record.operation.version) == (task.finding.key, task.finding.version):
                return record
        raise LeftError("the operation is not pending any more", path=task.finding.key)

    def _entry(self, task: Task) -> Entry:
        """The stored entry that the finding is about."""
        facts = self._facts(task)
        entries = [entry for entry in facts.entries if entry.path == task.finding.path] or list(
            facts.entries
        )
        if not entries or entries[0] not in visibility_of(facts).entries:
            raise LeftError("the entry is not there, or is being changed", path=task.finding.path)
        return self._loggable(entries[0])

    def _loggable(self, entry: Entry) -> Entry:
        """The entry with a path that the log can hold. In layout `tree`, the rename of a directory
        can make the paths below it too long for that."""
        try:
            self._store.layout.check_path(entry.path)
        except InvalidPathError:
            return self._store.keys.with_path(entry)
        return entry

    _actions: Final[Mapping[Action, Callable[[Repairer, Task], Awaitable[None]]]] = {
        "commit_log": _commit_log,
        "roll_back_log": _roll_back_log,
        "roll_forward": _roll_forward,
        "log_again": _log_again,
        "log_removal": _log_removal,
        "restore_entry": _restore_entry,
        "remove_entry": _remove_entry,
        "resolve_transaction": _resolve_transaction,
        "finish_change": _finish_change,
        "make_parent": _make_parent,
        "remove_item": _remove_item,
        "move_item": _move_item,
        "renumber": _renumber,
        "replace_cold_copy": _replace_cold_copy,
        "remove_hot_copy": _remove_hot_copy,
        "quarantine": _quarantine,
    }


def _removal(item: Item) -> Delete:
    """Remove exactly this item.

    Attributes of foreign types are known by their text form only, which no stored value equals.
    Every write of an entry sets an id and an operation, so the other attributes, present or
    missing, identify this item.
    """
    key = Key(str(item[PARTITION]), str(item[SORT]))
    equals = {
        name: value
        for name, value in item.items()
        if name not in {PARTITION, SORT}
        and not (isinstance(value, str) and _TYPED.fullmatch(value))
    }
    return Delete(
        key, Condition(equals=equals, missing=tuple(name for name in _ALWAYS if name not in item))
    )
