"""Directories: create, hold by a write intent, and remove."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from itertools import pairwise
from typing import Final, Self, TypeVar

from s3k_async._core.active_calls import incidental
from s3k_async._core.concurrency import run_all
from s3k_async._core.runtime import Runtime
from s3k_async.backends.ports.items import (
    ABSENT,
    MAX_TRANSACTION,
    OPERATION,
    PARTITION,
    SORT,
    Action,
    Check,
    Condition,
    Delete,
    Item,
    ItemStore,
    Put,
    Update,
    Value,
)
from s3k_async.config import Tuning
from s3k_async.errors import (
    BusyError,
    ConditionFailedError,
    ConflictError,
    DirectoryNotEmptyError,
    NotDirectoryError,
    OutcomeUnknownError,
    PathExistsError,
    PathNotFoundError,
    PermissionDeniedError,
    ReadOnlyVolumeError,
    S3kError,
)
from s3k_async.model import ROOT, Entry
from s3k_async.namespace.access_control import AccessControl
from s3k_async.namespace.entry_indexes import EntryIndexes
from s3k_async.namespace.entry_reader import EntryReader
from s3k_async.namespace.layout import Chain, Layout
from s3k_async.oplog.entries import Operation
from s3k_async.oplog.log_writer import OperationLog
from s3k_async.permissions import NO_OWNER, SUPERUSER, Identity, Ownership
from s3k_async.table.codec import NEXT, from_item, to_item, unchanged
from s3k_async.table.keys import ROOT_KEY, Directory, KeyScheme
from s3k_async.txn.bucket_counters import BucketCounters
from s3k_async.txn.executor import Withheld
from s3k_async.txn.intent_resolver import IntentResolver
from s3k_async.txn.logged_write import LoggedOutcome, LoggedWriter
from s3k_async.txn.txn_record import OwnedTransaction, TransactionRecords

__all__ = ["CONFIRMED_SECONDS", "DirectoryStore", "require_directories", "requiring_directory"]

_LOG = logging.getLogger(__name__)

T = TypeVar("T")

CHAIN_PART = 90
"""Directories created in one transaction, which also checks their parent."""
DIRECTORIES: Final = 16
"""Directories that are created at the same time."""
CONFIRMED_SECONDS: Final = 5.0
"""In layout `tree`: how long after its directories were read an entry is changed without reading
them again."""


_REQUIRED: ContextVar[tuple[str, str]] = ContextVar("s3k_required_directory", default=("", ""))
"""The path of a directory, and its object id or nothing."""


@contextmanager
def requiring_directory(path: str, object_id: str = "") -> Iterator[None]:
    """A creation in the body does not create this directory as a missing one above the new entry:
    it raises PathNotFoundError with its path, and leaves no entry. With `object_id`, so does a
    commit of changes below another directory at the path."""
    token = _REQUIRED.set((path, object_id))
    try:
        yield
    finally:
        _REQUIRED.reset(token)


class DirectoryStore(EntryReader):
    """Directories. A client that removes or moves one puts an intent on it before listing it, and
    a client that creates an entry below one checks that it carries none before acknowledging.
    """

    def __init__(
        self,
        items: ItemStore,
        keys: KeyScheme,
        log: OperationLog,
        runtime: Runtime,
        tuning: Tuning,
        layout: Callable[[Self], Layout],
        *,
        read_only: bool = False,
        identity: Identity | None = None,
        root: Ownership = NO_OWNER,
        rules: bool = False,
        counters: BucketCounters | None = None,
    ) -> None:
        """`identity`: whom the client acts for, in a volume that evaluates permissions. `root`: the
        owner of its root. `rules`: whether the volume has lifecycle rules. `counters`: those of its
        buckets, if it has them."""
        super().__init__(items, keys)
        self.access = AccessControl(self, identity, root)
        self.indexes = EntryIndexes(items, runtime, rules=rules, counters=counters)
        self.changes = LoggedWriter(log, runtime, self.indexes, counters)
        self.transactions = TransactionRecords(items, runtime)
        self.runtime = runtime
        self.tuning = tuning
        self.read_only = read_only
        self.root_has_record = False
        """Whether the record that indicates changes in the root is known to exist."""
        self.layout = layout(self)
        self._make_layout = layout
        self._root = root
        self.resolver = IntentResolver(
            self, self.transactions, runtime, tuning.busy_timeout, self.layout.end_trees
        )

    def refuse_read_only(self, *entries: Entry | None) -> None:
        """Raise PermissionDeniedError if one of the entries, which a verb is about to change, move
        or remove, is read-only."""
        for entry in entries:
            if entry is not None and entry.read_only:
                raise PermissionDeniedError(
                    "it is read-only: s3k attr --writable lets it be changed, moved and deleted",
                    path=entry.path,
                )

    def unrestricted(self) -> Self:
        """A store of the same volume in which no permission is evaluated, for work that is not that
        of the identity."""
        if not self.access.is_enforced:
            return self
        return type(self)(
            self.items,
            self.keys,
            self.changes.log,
            self.runtime,
            self.tuning,
            self._make_layout,  # type: ignore[arg-type] # of a store of this type
            read_only=self.read_only,
            identity=replace(self.access.identity, uid=SUPERUSER),
            root=self._root,
            rules=self.indexes.due is not None,
            counters=self.changes.counters,
        )

    def require_writable(self, path: str) -> None:
        """Raise ReadOnlyVolumeError if the volume is open for reading only."""
        if self.read_only:
            raise ReadOnlyVolumeError("the volume is open for reading only", path=path)

    async def make_directory(
        self, path: str, *, parents: bool = True, exist_ok: bool = True, attributes: str = ""
    ) -> Entry:
        """Create a directory, with `parents` its missing ancestors too, and return it.
        `attributes`: of a new one, in their stored form.

        Raises PathExistsError (a file is there; or a directory, unless `exist_ok`),
        NotDirectoryError (the path leads through a file), PathNotFoundError (no parent, and not
        `parents`), BusyError.
        """
        self.require_writable(path)
        deadline = self.deadline()
        while True:
            chain = await self.layout.chain(path)
            target = chain[-1][1]
            for position, (ancestor, entry) in enumerate(chain):
                if entry is not None and not entry.is_dir:
                    if position == len(chain) - 1:
                        raise PathExistsError("a file is at the path", path=path)
                    raise NotDirectoryError("the path leads through a file", path=ancestor)
            if target is not None:
                if not exist_ok:
                    raise PathExistsError("the directory exists", path=path)
                if all(entry is not None for _, entry in chain):
                    return self._seen(target)
            if not parents and len(chain) > 1 and chain[-2][1] is None:
                raise PathNotFoundError("no such parent directory", path=chain[-2][0])
            await self.access.permit_creation(path, chain)
            try:
                return self._seen(await self.make_missing(chain, attributes=attributes))
            except ConditionFailedError as error:
                self.still_time(deadline, path)
                await self.resolve_refusal(error, path)
            except ConflictError:
                self.still_time(deadline, path)

    def _seen(self, directory: Entry) -> Entry:
        """Tell the layout of a directory that was just read or created, and return it."""
        if not directory.pending:
            self.layout.remember(directory)
        return directory

    def new_directory(self, path: str, parent: Entry) -> Entry:
        """A new directory, created now. Raises PathNotFoundError within `requiring_directory` of
        its path, or of another directory at the path of the parent."""
        self.required_among({path: None, parent.path: parent})
        now, operation = self.runtime.now_ms(), self.runtime.uuid()
        made = Entry(
            path,
            True,
            self.runtime.uuid(),
            1,
            now // 1000,
            now,
            operation=operation,
            attributes=self.access.attributes_of_new("", path, is_dir=True),
        )
        return self.keys.placed(made, parent.id)

    async def make_missing(self, chain: Chain, *checks: Check, attributes: str = "") -> Entry:
        """Create the missing directories of a chain. Raises ConditionFailedError when the chain has
        changed or carries an intent, or one of the checks fails.
        """
        made, bases = self.missing_directories(chain)
        if made and attributes:
            stored = self.access.attributes_of_new(attributes, made[-1].path, is_dir=True)
            made[-1] = replace(made[-1], attributes=stored)
        since = self.runtime.monotonic()
        for base in bases:
            await self.resolve(base)
        for start in range(0, len(made), CHAIN_PART):
            part = made[start : start + CHAIN_PART]
            operations, actions = self.plan_directories(
                part, bases if start == 0 else [made[start - 1]]
            )
            await self.transact(
                operations, [*actions, *checks], [part[0]] if part[0].directory else [], since
            )
        return made[-1] if chain[-1][1] is None else chain[-1][1]

    def missing_directories(
        self, chain: Sequence[tuple[str, Entry | None]]
    ) -> tuple[list[Entry], list[Entry]]:
        """New directories for the missing ones of a chain, topmost first, and the existing
        directories that will contain one of them."""
        made: list[Entry] = []
        bases: list[Entry] = []
        for (_, above), (path, entry) in pairwise(chain):
            if entry is None:
                if above is not None:
                    bases.append(above)
                made.append(self.new_directory(path, above or made[-1]))
        return made, bases

    def plan_directories(
        self, made: Sequence[Entry], bases: Iterable[Entry]
    ) -> tuple[list[Operation], list[Action]]:
        """The log records and actions that create directories; `bases`: the existing directories
        that will contain one of them."""
        actions: list[Action] = [Put(to_item(entry, self.keys), ABSENT) for entry in made]
        for base in bases:
            actions += self.require_parent(self.keys.directory(base))
        return [self.changes.operation("create", None, entry) for entry in made], actions

    async def transact(
        self,
        operations: Sequence[Operation],
        actions: Sequence[Action],
        placed: Sequence[Entry] = (),
        since: float = 0.0,
        counted_at: str = "",
    ) -> None:
        """Apply logged operations in one transaction. Raises ConditionFailedError,
        OutcomeUnknownError, and, with nothing changed, ConflictError if it has no room for all
        index items, because rules were changed after `LoggedWriter.index_size` counted them.
        `placed`: in layout `tree` entries to `confirm`. `counted_at`: as for `LoggedWriter.run`."""

        async def apply(outcome: LoggedOutcome) -> None:
            if len(actions) + outcome.journal_size() > MAX_TRANSACTION:
                raise ConflictError("a lifecycle rule was changed; no changes were applied")
            if placed:
                await self.confirm(placed, since)
            await outcome.transact(self.items, actions, self.runtime.uuid)

        await self.changes.run(operations, apply, counted_at)

    async def confirm(self, entries: Sequence[Entry], since: float) -> None:
        """Called in layout `tree` right before entries are changed: if their directories were read
        a while ago (`since`, monotonic), read them again. Raises ConflictError if a path leads
        elsewhere by now, with nothing changed."""
        if self.runtime.monotonic() - since < CONFIRMED_SECONDS:
            return
        for path in await self.layout.misplaced(entries):
            raise ConflictError(
                "another client moved or deleted a directory of the path; no changes were applied",
                path=path,
            )

    def withheld(self, entries: Callable[[int], Sequence[Entry]], since: float) -> Withheld | None:
        """As `confirm` for the transactions of a batch, by the entries of each row."""
        if not self.keys.by_id:
            return None

        async def misplaced(rows: Sequence[int]) -> Collection[int]:
            if self.runtime.monotonic() - since < CONFIRMED_SECONDS:
                return ()
            placed = {row: entries(row) for row in rows}
            paths = await self.layout.misplaced([one for each in placed.values() for one in each])
            return [row for row in rows if any(entry.path in paths for entry in placed[row])]

        return misplaced

    async def resolve(self, entry: Entry, path: str = "") -> None:
        """Wait until no live transaction has an intent on the entry, and resolve an intent left
        behind. The entry may have changed by then. Raises BusyError, which names `path` if the
        entry was read without its path.
        """
        if not entry.pending:
            return
        try:
            await self.resolver.resolve(entry)
        except BusyError as error:
            if path and not entry.path.startswith(ROOT):
                error.name(path)
            raise

    async def end_removal(self, directory: Entry, path: str) -> bool:
        """As `resolve`, for a reader, of a directory that a client is removing as empty. False if
        the lease of that client has expired, and this one may not write: the intent stays, and what
        it holds back can be read."""
        try:
            await self.resolve(directory, path)
        except PermissionDeniedError:
            # Resolution writes only after it has read that the lease has expired.
            return False
        return True

    async def resolved(self, entry: Entry) -> Entry | None:
        """The entry at the path once it carries no intent. Raises BusyError."""
        deadline = self.deadline()
        current: Entry | None = entry
        while current is not None and current.pending:
            self.still_time(deadline, entry.path)
            await self.resolver.resolve(current)
            current = await self.stored_again(entry)
        return current

    async def resolve_refusal(self, error: ConditionFailedError, path: str) -> bool:
        """Resolve the intents on items whose conditions failed; returns whether there were any.
        Raises BusyError, which names `path`."""
        held = self.obstacles(error.current.values())
        for entry in held:
            await self.resolve(entry, path)
        return bool(held)

    def obstacles(self, items: Iterable[Item | None]) -> list[Entry]:
        """The entries with intents among items whose conditions failed."""
        return [from_item(item, self.keys) for item in items if item is not None and item.get(NEXT)]

    async def retry_past_intents(self, change: Callable[[], Awaitable[T]], path: str) -> T:
        """Make a change, repeated after resolving intents whenever they made it fail. Raises its
        other errors, and BusyError.
        """
        deadline = self.deadline()
        while True:
            try:
                return await change()
            except ConditionFailedError as error:
                late = self.runtime.monotonic() >= deadline
                if not await self.resolve_refusal(error, path):
                    raise
                if late:  # before this wait, after which the change may succeed
                    raise BusyError(
                        "gave up: other transactions kept changing this path", path=path
                    ) from error

    async def hold(self, entry: Entry, txn: OwnedTransaction, text: str = "") -> Entry:
        """Put a transaction's intent on a directory; `text`: the intent, by default the one that
        only holds the entry. Raises BusyError (the intent of another live transaction),
        ConflictError (the directory changed; read it again).
        """
        intent = text or txn.hold_intent
        if entry.pending == intent:
            return entry
        current = await self.resolved(entry)
        # It may be a file now, if the transaction that held it is over.
        if current is None or current.id != entry.id:
            raise ConflictError("another client removed the directory", path=entry.path)
        return await self._set_intent(current, intent)

    async def drop_intent(self, entry: Entry, txn: OwnedTransaction) -> None:
        """Remove a transaction's intent, if the entry still carries it."""
        try:
            await self._set_intent(replace(entry, pending=txn.hold_intent), "")
        except ConflictError:
            # Another client considered the transaction expired, removed the intent and changed the
            # entry: no intent of this transaction is left.
            return

    async def release(self, entry: Entry, txn: OwnedTransaction) -> None:
        """Remove a transaction's intent after a failure. An error of this is only logged, so that
        the caller gets the failure."""
        try:
            await self.drop_intent(entry, txn)
        except S3kError as error:
            # The intent blocks no client once the transaction is over; the next one that needs the
            # entry removes it.
            _LOG.warning(
                "the intent of transaction %s on %s could not be dropped: %s",
                txn.id,
                entry.path,
                error,
            )

    async def need_directory(self, path: str) -> None:
        """Create a directory for a new entry, or wait for the transaction that holds it. Raises as
        `make_directory`.
        """
        with incidental():
            await self.resolve(await self.make_directory(path))

    async def need_directories(self, paths: Iterable[str]) -> dict[str, S3kError]:
        """As `need_directory`, for directories of one depth. Returns the errors by path; a file at
        the path is a NotDirectoryError.

        If the answer to a creation is lost while another one creates an ancestor that both need,
        the outcome is unknown. Such a directory is created once more, after the others.
        """
        errors: dict[str, S3kError] = {}

        async def create(path: str) -> None:
            try:
                await self.need_directory(path)
            except PathExistsError as error:
                errors[path] = NotDirectoryError("the path leads through a file", path=path)
                errors[path].__cause__ = error
            except S3kError as error:
                errors[path] = error

        await run_all(create, paths, limit=DIRECTORIES)
        unknown = {
            path: error for path, error in errors.items() if isinstance(error, OutcomeUnknownError)
        }
        for path, error in unknown.items():
            del errors[path]
            await create(path)
            if path in errors:
                errors[path] = error
        return errors

    async def recreate_directory(self, path: str) -> None:
        """Create the directory of an existing entry again if it was removed, and wait for a
        transaction that moves or removes it. Raises BusyError, NotDirectoryError, PathExistsError
        (a file is there).
        """
        deadline = self.deadline()
        while True:
            made = await self.make_directory(path)
            if not made.pending:
                return
            self.still_time(deadline, path)
            await self.resolve(made)

    async def _set_intent(self, entry: Entry, intent: str) -> Entry:
        if intent:
            self.layout.discard(self.keys.directory(entry))
        operation = self.runtime.uuid()
        stamp = {OPERATION: operation}
        action = Update(
            self.keys.of(entry),
            unchanged(entry),
            set=stamp | {NEXT: intent} if intent else stamp,
            remove=() if intent else (NEXT,),
        )
        try:
            await self.items.write(action)
        except ConditionFailedError as error:
            raise ConflictError("another client changed the directory", path=entry.path) from error
        return replace(entry, pending=intent, operation=operation)

    async def remove_directory(self, entry: Entry) -> None:
        """Remove an empty directory. Raises DirectoryNotEmptyError, PathNotFoundError,
        NotDirectoryError, ConflictError (another directory is there), BusyError.
        """
        self.require_writable(entry.path)
        directory = self.keys.directory(entry)
        await self.access.permit_removal(entry)
        await self.refuse_content(entry)
        async with self.transactions.hold("mark", entry.path) as txn:
            held = await self.hold_current(entry, txn, same=True)
            try:
                await self.need_empty(directory)
                await self.layout.remove_empty(held, txn)
            except S3kError:
                await self.release(held, txn)
                raise

    async def refuse_content(self, entry: Entry) -> None:
        """Raise DirectoryNotEmptyError if something is in a directory that is to be removed: called
        before the directory is held, so that a refusal changes nothing."""
        directory = self.keys.directory(entry)
        if await self.has_children(directory) and not await self.layout.is_leaving(entry):
            raise DirectoryNotEmptyError("the directory is not empty", path=entry.path)

    async def need_empty(self, directory: Directory) -> None:
        """Raise DirectoryNotEmptyError unless no item is stored below a directory: a hidden entry
        of a transaction would be left without a parent. Waits for the end of transactions with
        intents there.
        """
        async with aclosing(self.stored_children(directory)) as pages:
            async for page in pages:
                for entry in page:
                    if not entry.pending or await self.resolved(entry) is not None:
                        raise DirectoryNotEmptyError(
                            "the directory is not empty", path=directory.path
                        )

    async def hold_current(
        self,
        entry: Entry,
        txn: OwnedTransaction,
        text: str = "",
        *,
        same: bool = False,
        named: bool = True,
    ) -> Entry:
        """Hold a directory, reading it again when it changed. `named`: the caller has named it,
        instead of a directory above, so that a read-only one is refused.

        Raises as `hold`, PathNotFoundError or NotDirectoryError when it is no longer there,
        PermissionDeniedError (read-only); with `same`, ConflictError when another object is there.
        """
        deadline = self.deadline()
        current: Entry | None = entry
        while True:
            if current is None:
                raise PathNotFoundError("no such directory", path=entry.path)
            if not current.is_dir:
                raise NotDirectoryError("not a directory", path=entry.path)
            if same and current.id != entry.id:
                raise ConflictError("another directory is now at this path", path=entry.path)
            if named:
                await self.access.permit_removal(current)
                self.refuse_read_only(current)
            try:
                return await self.hold(current, txn, text)
            except ConflictError:
                late = self.runtime.monotonic() >= deadline
                current = await self.get(entry.path)
                if late and current is not None:
                    raise BusyError(
                        "gave up: concurrent changes to this path", path=entry.path
                    ) from None

    async def delete_held(self, held: Entry, txn: OwnedTransaction) -> None:
        """Remove a directory that carries this transaction's intent. Raises ConflictError if it no
        longer does."""
        txn.check()
        try:
            await self.transact(
                [self.changes.operation("delete", held, None)],
                [Delete(self.keys.of(held), unchanged(held))],
            )
        except ConditionFailedError as error:
            raise ConflictError(
                "another client changed the directory during its removal", path=held.path
            ) from error

    async def directory_exists(self, directory: Directory) -> bool:
        """Whether a directory without an intent of a live transaction is at this key now. In layout
        `tree` it must have the same id, and a removal as empty that is in progress is ended, since
        the directory is not empty."""
        entry = await self.stored(directory.entry_key)
        if (
            entry is not None
            and entry.is_dir
            and (not entry.directory or entry.id == directory.key)
            and (
                not entry.pending
                or await self.resolver.keeps_directory(entry, end_removal=self.keys.by_id)
            )
        ):
            self.layout.remember(entry)
            return True
        self.layout.discard(directory)
        return False

    def require_parent(self, parent: Directory) -> list[Check]:
        """The condition of a transaction that a parent is a directory without an intent; none for
        the root."""
        if parent.path == ROOT:
            return []
        return [Check(self.keys.key(parent.entry_key), self._is_in_place(parent))]

    def _is_in_place(self, directory: Directory) -> Condition:
        """`Layout.is_directory`, and that it is the one of `requiring_directory`."""
        condition = self.layout.is_directory(directory)
        path, object_id = _REQUIRED.get()
        if not object_id or directory.path != path:
            return condition
        return replace(condition, equals={**condition.equals, "id": object_id})

    def required_among(self, found: Mapping[str, Entry | None]) -> list[Directory]:
        """The directory of `requiring_directory`, if it has to have an object id and is among
        these. Raises PathNotFoundError if nothing, or another one, is at its path."""
        path, object_id = _REQUIRED.get()
        if path not in found:
            return []
        there = found[path]
        if there is None or (object_id and there.id != object_id):
            raise PathNotFoundError("the directory was removed or renamed", path=path)
        return [self.keys.directory(there)] if object_id else []

    def touching(self, parent: Directory, stamp: Mapping[str, Value]) -> Update:
        """The write of `touch` as an action of a transaction, for a parent that must be a directory
        without an intent. That of the root needs its record (`root_has_record`)."""
        if parent.path == ROOT:
            return Update(ROOT_KEY, Condition(), set=stamp)
        return Update(self.keys.key(parent.entry_key), self._is_in_place(parent), set=stamp)

    async def touch(self, directory: Directory, *, required: bool = False) -> None:
        """Change only the operation id of a directory, so that clients that have read it detect a
        change in it. For the root a separate record serves this purpose.

        A missing directory is ignored; with `required`, raises ConditionFailedError if it is
        missing or carries an intent.
        """
        try:
            await self._touch_once(directory, required)
        except OutcomeUnknownError:  # repeating it is harmless
            await self._touch_once(directory, required)
        self.root_has_record |= directory.path == ROOT

    async def _touch_once(self, directory: Directory, required: bool) -> None:
        stamp: dict[str, Value] = {OPERATION: self.runtime.uuid()}
        if directory.path != ROOT:
            there = Condition(equals={"isdir": True})
            when = self.layout.is_directory(directory) if required else there
            key = self.keys.key(directory.entry_key)
            try:
                await self.items.write(Update(key, when, set=stamp))
            except ConditionFailedError:
                if required:
                    raise
            return
        try:
            await self.items.write(Update(ROOT_KEY, Condition(), set=stamp))
        except ConditionFailedError:
            record: dict[str, Value] = {PARTITION: ROOT_KEY.partition, SORT: ROOT_KEY.sort, **stamp}
            with suppress(ConditionFailedError):  # another client has created it
                await self.items.write(Put(record, ABSENT))

    def deadline(self) -> float:
        """The monotonic time until which an operation may be retried."""
        return self.runtime.monotonic() + self.tuning.busy_timeout

    def still_time(self, deadline: float, path: str) -> None:
        """Raise BusyError once the deadline has passed."""
        if self.runtime.monotonic() >= deadline:
            raise BusyError("gave up: concurrent changes to this path", path=path)


def require_directories(
    above: Iterable[tuple[str, Entry | None]], *, missing_ok: bool = False
) -> None:
    """Raise NotDirectoryError if one of a path's ancestors is a file, and PathNotFoundError if one
    is missing, unless `missing_ok`."""
    for path, entry in above:
        if entry is None and not missing_ok:
            raise PathNotFoundError("no such parent directory", path=path)
        if entry is not None and not entry.is_dir:
            raise NotDirectoryError("the path leads through a file", path=path)
