"""The metadata store: files and directories under conditional writes, logged.

Every write is conditional on the id and version that were read, so one of several concurrent
changes succeeds and the others get an error. The operations are those of S3-FileSystem 1.0's
metadata store; docs/semantics.md has their guarantees.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from s3k_async._core.active_calls import is_repeated
from s3k_async._core.concurrency import to_the_end
from s3k_async.backends.ports.items import ABSENT, Action, Check, Delete, Put
from s3k_async.errors import (
    BusyError,
    ConditionFailedError,
    ConflictError,
    IsDirectoryError,
    OutcomeUnknownError,
    PathExistsError,
    PathNotFoundError,
    S3kError,
    TransactionConflictError,
    UncommittedFileError,
)
from s3k_async.model import ROOT, UNCOMMITTED, Content, Entry
from s3k_async.namespace.conflict_backoff import ObstructedError
from s3k_async.namespace.directories import DirectoryStore, require_directories
from s3k_async.namespace.layout import Chain, ConfirmedChain
from s3k_async.oplog.entries import Operation, OperationKind
from s3k_async.permissions import WRITE
from s3k_async.table.codec import from_item, to_item, unchanged
from s3k_async.table.keys import Directory
from s3k_async.txn.lease import Moment, expired, expiry_ms, require_unexpired
from s3k_async.txn.logged_write import DataUpload, LoggedOutcome

__all__ = ["MetadataStore", "WriteTarget", "directories_above"]


@dataclass(frozen=True, slots=True)
class WriteTarget:
    """A path to write: the present entry, and the object id of the new data."""

    path: str
    current: Entry | None
    object_id: str
    lease_ms: int
    """Expiry of the lease for publishing the data, epoch milliseconds."""
    chain: ConfirmedChain | None = None
    """In layout `tree` the directories above the path."""


@dataclass(frozen=True, slots=True)
class RenameTarget:
    """The target of a rename, as it was read."""

    chain: Chain
    """Its path with all of its ancestors."""
    since: Moment
    """The time before they were read."""


class MetadataStore(DirectoryStore):
    """Files: written whole or by reservation, renamed in one transaction, deleted."""

    async def prepare(self, path: str, *, overwrite: bool = True) -> WriteTarget:
        """Read the entry, and create missing parents. Unless `overwrite`, the caller refuses a file
        that exists, also a read-only one.

        Raises IsDirectoryError, NotDirectoryError (the path leads through a file),
        PermissionDeniedError (read-only), BusyError.
        """
        self.require_writable(path)
        if path == ROOT:
            raise IsDirectoryError("the root is a directory", path=path)
        deadline = self.deadline()
        while True:
            current, chain = await self.layout.prepare(path)
            if current is not None and current.is_dir:
                raise IsDirectoryError("a directory is at the path", path=path)
            if current is None or not (current.pending or self.ran_out(current)):
                break
            self.still_time(deadline, path)
            await (self.resolve(current) if current.pending else self.abandon(current))
        await self.access.permit_write(path, current)
        if overwrite:
            self.refuse_read_only(current)
        return self.target(path, current, chain)

    async def prepare_existing(self, path: str) -> WriteTarget:
        """As `prepare`, of a file that exists: no parents are created for a missing one.

        Raises PathNotFoundError, IsDirectoryError, PermissionDeniedError (read-only), BusyError.
        """
        current, chain = await self.read_for_update(path)
        if current.is_dir:
            raise IsDirectoryError("a directory is at the path", path=path)
        self.access.require(current, WRITE)
        self.refuse_read_only(current)
        return self.target(path, current, chain)

    async def read_for_update(self, path: str) -> tuple[Entry, ConfirmedChain | None]:
        """The entry at a path, which is about to be changed: without a write intent, and with its
        parents, after transactions on them have ended; in layout `tree` with the directories above
        it. Raises PathNotFoundError, BusyError."""
        self.require_writable(path)
        deadline = self.deadline()
        while True:
            since = Moment.now(self.runtime)
            chain = await self.layout.chain(path)
            current = chain[-1][1]
            if current is None:
                raise PathNotFoundError("no such file or directory", path=path)
            held = [entry for _, entry in chain[-2:] if entry is not None and entry.pending]
            if not held and all(entry is not None for _, entry in chain):
                break
            # As in `prepare`: a file that is read while its directory is being removed could be a
            # creation that is about to be withdrawn.
            self.still_time(deadline, path)
            if held:
                await self.resolve(held[-1])
                continue
            try:
                await self.make_missing(
                    chain[:-1], Check(self.keys.of(current), unchanged(current))
                )
            except ConditionFailedError as error:
                await self.resolve_refusal(error, path)
        if not self.keys.by_id:
            return current, None
        parent = chain[-2][1]
        assert parent is not None
        return current, ConfirmedChain(self.keys.directory(parent), directories_above(chain), since)

    def ran_out(self, entry: Entry) -> bool:
        """Whether this is a reservation with an expired lease."""
        return entry.is_reservation and expired(entry.lease_ms, self.runtime.now_ms())

    def target(
        self, path: str, current: Entry | None, chain: ConfirmedChain | None = None
    ) -> WriteTarget:
        """The write target for a path with the entry `current`."""
        return WriteTarget(
            path=path,
            current=current,
            object_id=current.id if current is not None else self.runtime.uuid(),
            lease_ms=expiry_ms(self.runtime.now_ms(), self.tuning.lease),
            chain=chain,
        )

    def new_file(self, path: str, object_id: str, parent: Directory | None = None) -> Entry:
        """A new file, created now, without content; in layout `tree` in `parent`."""
        now = self.runtime.now_ms()
        return Entry(
            path,
            False,
            object_id,
            version=1,
            ctime=now // 1000,
            mtime_ms=now,
            directory="" if parent is None else self.keys.directory_of_entries(parent),
            attributes=self.access.attributes_of_new("", path, is_dir=False),
        )

    async def publish(
        self,
        target: WriteTarget,
        content: Content,
        *,
        overwrite: bool = True,
        mtime_ms: int | None = None,
        attributes: str | None = None,
        upload: DataUpload | None = None,
    ) -> Entry:
        """Publish `content` as the file at the target, in one write. `mtime_ms`: its modification
        time; None is now. `attributes`: in their stored form; None: an existing file keeps its own.
        `upload`: stores the data while the operation is being logged; may be called repeatedly.

        Raises PathExistsError (an entry exists, and not `overwrite`), ConflictError (the path has
        changed since `prepare`; prepare again), LeaseExpiredError, NotDirectoryError, BusyError.
        """
        self.require_writable(target.path)
        self._need_lease(target.lease_ms, target.path)
        leased = None if upload is None else partial(self._upload_leased, upload, target)
        if target.current is not None:
            if not overwrite:
                raise PathExistsError("the file exists", path=target.path)
            return await self._replace(
                target.current,
                content,
                target.chain,
                mtime_ms=mtime_ms,
                attributes=attributes,
                upload=leased,
            )
        try:
            return await self._create(target, content, attributes or "", mtime_ms, leased)
        except PathExistsError as error:
            if not overwrite:
                raise
            raise ConflictError(
                "another client created an entry at this path", path=target.path
            ) from error

    async def reserve(self, target: WriteTarget, *, exclusive: bool) -> Entry:
        """Reserve a new path for a writer. If a file is to be replaced, return its entry unchanged.

        The returned entry's `lease_ms` is the writer's lease either way. Raises PathExistsError
        (`exclusive`, or another client created the path meanwhile), ConflictError (its directories
        have changed), NotDirectoryError, BusyError.
        """
        self.require_writable(target.path)
        if target.current is not None:
            if exclusive:
                raise PathExistsError("the file exists", path=target.path)
            return replace(target.current, lease_ms=target.lease_ms)
        return await self._create(target, None)

    async def commit(
        self, entry: Entry, content: Content, chain: ConfirmedChain | None = None
    ) -> Entry:
        """Publish the data for a reservation, or for an entry that is being replaced; `chain`: of
        its target, which may be old.

        Raises LeaseExpiredError, ConflictError (the entry has changed).
        """
        self.require_writable(entry.path)
        self._need_lease(entry.lease_ms, entry.path)
        return await self._replace(
            entry if entry.is_reservation else replace(entry, lease_ms=0),
            content,
            chain,
            opened=True,
        )

    async def abandon(self, entry: Entry) -> None:
        """Remove a reservation, if it is unchanged; any other entry is kept."""
        self.require_writable(entry.path)
        if not entry.is_reservation:
            return
        try:
            await self.delete_file(entry, anywhere=True)
        except (PathNotFoundError, ConflictError):
            return

    async def find_rename(self, source: str, target: str) -> tuple[Entry | None, RenameTarget]:
        """Read both paths of a rename: the entry at the source, and the target for
        `rename_file`."""
        since = Moment.now(self.runtime)
        entry, chain = await self.layout.get_with_chain(source, target)
        return entry, RenameTarget(chain, since)

    async def rename_file(
        self,
        source: Entry,
        target: str,
        *,
        overwrite: bool = False,
        found: RenameTarget | None = None,
    ) -> Entry:
        """Move a file in one transaction and return it at its new path. `found`: the target, if it
        was read together with the source.

        Raises PathNotFoundError (the source was moved or deleted by another client, or the target
        has no parent), PathExistsError (also for a directory at the target, regardless of
        `overwrite`), NotDirectoryError, UncommittedFileError, IsDirectoryError (the source),
        BusyError.
        """
        self.require_writable(target)
        deadline = self.deadline()
        current: Entry | None = source
        while True:
            late = self.runtime.monotonic() >= deadline
            if current is None:
                raise PathNotFoundError("no such file", path=source.path)
            if current.is_dir:
                raise IsDirectoryError("the source is a directory", path=source.path)
            if current.is_reservation:
                raise UncommittedFileError(
                    "the file is still being written and cannot be renamed", path=source.path
                )
            if source.path == target:
                return current
            if found is None:
                since = Moment.now(self.runtime)
                found = RenameTarget(await self.layout.chain(target), since)
            parent, chain, replaced = await self._need_target(
                found, current.id, overwrite=overwrite
            )
            await self.access.permit_move(current, target, replaced)
            moved = await self._move(
                current.without_intent(),
                target,
                parent,
                chain,
                replaced,
                found.since.monotonic,
            )
            if moved is not None:
                return moved
            if late:
                raise BusyError("gave up: concurrent changes to this path", path=source.path)
            current, found = await self.find_rename(source.path, target)

    async def delete_file(
        self,
        entry: Entry,
        *,
        anywhere: bool = False,
        named: bool = True,
        since: float | None = None,
        counted_at: str = "",
    ) -> None:
        """Remove a file's entry, which was just read; its data is left to garbage collection.
        `anywhere`: in layout `tree` also if its directory has moved since, and also a read-only
        file, for repairs. `named`: the caller has named the file, so that a read-only one is
        refused. `since`: when its path was resolved, monotonic; None is now. `counted_at`: a path
        in its bucket, if its own is not known.

        Raises PathNotFoundError (gone), ConflictError (changed; read it again), IsDirectoryError,
        PermissionDeniedError (read-only).
        """
        self.require_writable(entry.path)
        if entry.is_dir:
            raise IsDirectoryError("a directory is at the path", path=entry.path)
        if not anywhere:
            await self.access.permit_removal(entry)
        if named and not anywhere:
            self.refuse_read_only(entry)
        entry = entry.without_intent()
        delete = Delete(self.keys.of(entry), unchanged(entry))
        placed = [entry] if entry.directory and not anywhere else []
        read_at = self.runtime.monotonic() if since is None else since
        try:
            await self.retry_past_intents(
                lambda: self.transact(
                    [self.changes.operation("delete", entry, None)],
                    [delete],
                    placed,
                    read_at,
                    counted_at,
                ),
                entry.path,
            )
        except ConditionFailedError as error:
            if error.current.get(0) is None:
                raise PathNotFoundError("no such file", path=entry.path) from error
            raise ConflictError(
                "another client changed the file; no changes were applied", path=entry.path
            ) from error

    async def restore(self, entry: Entry, current: Entry | None) -> None:
        """Write an entry as given, id and version included, replacing the entry that was seen
        there. Not logged.

        Raises ConflictError if the entry there has changed.
        """
        self.require_writable(entry.path)
        try:
            await self.items.write(
                Put(to_item(entry, self.keys), ABSENT if current is None else unchanged(current))
            )
        except ConditionFailedError as error:
            raise ConflictError(
                "the entry was changed since it was read; no changes were applied", path=entry.path
            ) from error

    # Writing a file

    async def _create(
        self,
        target: WriteTarget,
        content: Content | None,
        attributes: str = "",
        mtime_ms: int | None = None,
        upload: DataUpload | None = None,
    ) -> Entry:
        """Create a file: committed at once with `content`, else as a reservation. Raises
        PathExistsError."""
        deadline, chain = self.deadline(), target.chain
        parent = None if chain is None else chain.parent
        blank = self.new_file(target.path, target.object_id, parent)
        if attributes:
            stored = self.access.attributes_of_new(attributes, target.path, is_dir=False)
            blank = replace(blank, attributes=stored)
        if content is None:
            blank = replace(blank, physical=UNCOMMITTED, lease_ms=target.lease_ms)
        while True:
            operation = self.runtime.uuid()
            if content is None:
                entry = replace(blank, operation=operation)
            else:
                modified = blank.mtime_ms if mtime_ms is None else mtime_ms
                entry = blank.with_content(content, mtime_ms=modified, operation=operation)
            late = self.runtime.monotonic() >= deadline
            try:
                return await self._create_once(
                    entry, "create" if content is None else "update", chain, upload
                )
            except ConditionFailedError as error:
                if not await self.resolve_refusal(error, entry.path):
                    parents = [] if chain is None else chain.above[-1:]
                    if parents and await self.layout.is_leaving(parents[0]):
                        raise ConflictError(
                            "another client removed the directory of the path; no changes were "
                            "applied",
                            path=entry.path,
                        ) from error
                    raise PathExistsError("the path exists", path=entry.path) from error
                if late:
                    raise BusyError(
                        "gave up: other transactions kept changing this path", path=entry.path
                    ) from error

    async def _create_once(
        self,
        entry: Entry,
        kind: OperationKind,
        chain: ConfirmedChain | None,
        upload: DataUpload | None,
    ) -> Entry:
        """Create the entry and make sure that it has a parent. Raises ConditionFailedError when an
        entry is at the path.
        """
        has_parent = True

        async def create(outcome: LoggedOutcome) -> None:
            nonlocal has_parent
            await self._put(Put(to_item(entry, self.keys), ABSENT), entry, chain, outcome)
            has_parent = await self.check_parent(entry, chain)

        try:
            operation = self.changes.operation(kind, None, entry)
            await self.changes.run([operation], create, upload=upload)
        except asyncio.CancelledError:
            if not has_parent:
                await self.withdraw_cancelled(entry)
            raise
        if not has_parent:
            return await self.recreate_parents(entry, chain)
        return entry

    async def _put(
        self,
        action: Put,
        entry: Entry,
        chain: ConfirmedChain | None,
        outcome: LoggedOutcome,
        *,
        opened: bool = False,
    ) -> None:
        """The write that creates or replaces a file. Unless the outcome is unknown, a failure has
        changed nothing. `opened`: `chain` is that of the time at which the file was opened."""
        try:
            if chain is not None and opened:
                await self.layout.confirm_publication(entry, chain)
            elif chain is not None:
                await self.confirm([entry], chain.since.monotonic)
            await outcome.write(self.items, action, self.runtime.uuid)
        except OutcomeUnknownError:
            raise
        except TransactionConflictError as error:
            conflict = ConflictError(
                "other clients kept changing this path; no changes were applied", path=entry.path
            )
            conflict.before_change = True
            raise conflict from error
        except S3kError as error:
            error.before_change = True
            raise

    async def check_parent(self, entry: Entry, chain: ConfirmedChain | None = None) -> bool:
        """`Layout.has_parent`. Raises OutcomeUnknownError instead of other errors."""
        try:
            return await self.layout.has_parent(entry, chain)
        except S3kError as error:
            raise OutcomeUnknownError(
                "the file was written, but its parent directory could not be verified",
                path=entry.path,
                operation=entry.operation,
            ) from error

    async def recreate_parents(self, entry: Entry, chain: ConfirmedChain | None) -> Entry:
        """Recreate the parents of a file that was created below a directory being removed; returns
        the file. Readers may have seen it, so it must not disappear and come back. If another
        client has changed it since, nothing is done; a transaction that is changing it is waited
        for.

        Raises NotDirectoryError, ConflictError, BusyError and the errors of the table, after the
        file was withdrawn; OutcomeUnknownError.
        """
        try:
            return await self.layout.give_parents(entry, chain)
        except S3kError as error:
            if isinstance(error, OutcomeUnknownError) and error.operation == entry.operation:
                raise
            if not await to_the_end(partial(self._withdraw, entry)):
                return entry
            if not is_repeated(entry.operation):
                raise
            # The first request may have created the file, too, and others have seen and removed it.
            raise OutcomeUnknownError(
                "the file was written, but another client removed its directory",
                path=entry.path,
                operation=entry.operation,
            ) from error
        except asyncio.CancelledError:
            await self.withdraw_cancelled(entry)
            raise

    async def withdraw_cancelled(self, entry: Entry) -> None:
        """Withdraw a creation whose caller was cancelled; errors are not raised."""
        with suppress(S3kError):
            await to_the_end(partial(self._withdraw, entry))

    async def _withdraw(self, entry: Entry) -> bool:
        """Remove a created entry that was not acknowledged. False if another client has changed the
        entry since: then the creation took effect. Raises OutcomeUnknownError, also if a
        transaction has held the entry, since the outcome of the transaction is not decided yet.
        """
        lost = OutcomeUnknownError(
            "the file was written, but another client is removing its directory",
            path=entry.path,
            operation=entry.operation,
        )
        try:
            await self.transact(
                [self.changes.operation("delete", entry, None)],
                [Delete(self.keys.of(entry), unchanged(entry))],
            )
        except ConditionFailedError as error:
            item = error.current.get(0)
            current = from_item(item, self.keys) if item else None
            if (
                current is not None
                and current.pending
                and (current.id, current.version) == (entry.id, entry.version)
            ):
                raise lost from error
            return False
        except OutcomeUnknownError:
            raise
        except S3kError as error:
            raise lost from error
        return True

    async def _replace(
        self,
        current: Entry,
        content: Content,
        chain: ConfirmedChain | None,
        *,
        opened: bool = False,
        mtime_ms: int | None = None,
        attributes: str | None = None,
        upload: DataUpload | None = None,
    ) -> Entry:
        current = current.without_intent()

        async def put() -> Entry:
            now = self.runtime.now_ms() if mtime_ms is None else mtime_ms
            entry = current.with_content(content, mtime_ms=now, operation=self.runtime.uuid())
            if attributes is not None:
                stored = self.access.attributes_of_rewritten(attributes, current)
                entry = replace(entry, attributes=stored)
            await self.changes.run(
                [self.changes.operation("update", current, entry)],
                lambda outcome: self._put(
                    Put(to_item(entry, self.keys), unchanged(current)),
                    entry,
                    chain,
                    outcome,
                    opened=opened,
                ),
                upload=upload,
            )
            return entry

        try:
            return await self.retry_past_intents(put, current.path)
        except ConditionFailedError as error:
            raise ConflictError(
                "another client changed or removed the file; no changes were applied",
                path=current.path,
            ) from error

    async def _upload_leased(self, upload: DataUpload, target: WriteTarget) -> None:
        await upload()
        self._need_lease(target.lease_ms, target.path)

    def _need_lease(self, lease_ms: int, path: str) -> None:
        if lease_ms:
            require_unexpired(lease_ms, self.runtime.now_ms(), path)

    # Renaming a file

    async def _need_target(
        self, found: RenameTarget, source_id: str, *, overwrite: bool
    ) -> tuple[Directory, ConfirmedChain | None, Entry | None]:
        """The parent of a rename's target, in layout `tree` with those above it, and the entry that
        would be replaced; the other parents are checked by the same read. If a directory was
        renamed concurrently, that entry may be the source itself."""
        chain, target = found.chain, found.chain[-1][0]
        if target == ROOT:
            raise PathExistsError("the root exists", path=target)
        require_directories(chain[:-1])
        parent, replaced = chain[-2][1], chain[-1][1]
        assert parent is not None
        if parent.pending:
            await self.resolve(parent)
        if replaced is not None and replaced.pending:
            replaced = await self.resolved(replaced)
        if replaced is not None and replaced.id != source_id and (replaced.is_dir or not overwrite):
            raise PathExistsError("the target exists", path=target)
        directory = self.keys.directory(parent)
        if not self.keys.by_id:
            return directory, None, replaced
        above = directories_above(chain)
        return directory, ConfirmedChain(directory, above, found.since), replaced

    async def _move(
        self,
        source: Entry,
        target: str,
        parent: Directory,
        chain: ConfirmedChain | None,
        replaced: Entry | None,
        since: float,
    ) -> Entry | None:
        """Move the file in one transaction; None if source, target or the target's parent has
        changed since the read.

        The transaction checks the parent. Otherwise a file moved into a directory that another
        client is removing could not be moved back, since its old parent may be gone as well.
        """
        try:
            moved, operations, actions = self.plan_move(source, target, parent, replaced)
            placed = [source, moved] if moved.directory else []
            await self.transact(operations, [*actions, *self.require_parent(parent)], placed, since)
        except ConditionFailedError as error:
            await self.resolve_refusal(error, source.path)
            return None
        except (ConflictError, ObstructedError):
            return None
        except TransactionConflictError:
            # Transactions with a common item are serialised, and too many clients rename into this
            # directory.
            return await self._move_unchecked(source, target, parent, chain, replaced, since)
        return moved

    def plan_move(
        self, source: Entry, target: str, parent: Directory, replaced: Entry | None
    ) -> tuple[Entry, list[Operation], list[Action]]:
        """An entry at its new path, and the log records and actions of its move.

        Raises PermissionDeniedError (one of them is read-only), and ObstructedError if both paths
        lead to one item: in layout `tree`, a directory was renamed between the reads of the two
        paths.
        """
        self.refuse_read_only(source, replaced)
        moved = source.moved(
            target,
            operation=self.runtime.uuid(),
            directory=self.keys.directory_of_entries(parent),
        )
        if moved.entry_key == source.entry_key:
            raise ObstructedError(target)
        operations = [self.changes.operation("rename", source, moved)]
        if replaced is not None:
            operations.append(self.changes.operation("delete", replaced, None))
        return (
            moved,
            operations,
            [
                Delete(self.keys.of(source), unchanged(source)),
                Put(to_item(moved, self.keys), ABSENT if replaced is None else unchanged(replaced)),
            ],
        )

    async def _move_unchecked(
        self,
        source: Entry,
        target: str,
        parent: Directory,
        chain: ConfirmedChain | None,
        replaced: Entry | None,
        since: float,
    ) -> Entry | None:
        """As `_move`, but the parent is read afterwards. In layout `path` the move is undone if the
        parent is missing or held."""
        moved, operations, actions = self.plan_move(source, target, parent, replaced)
        placed = [source, moved] if moved.directory else []
        try:
            await self.transact(operations, actions, placed, since)
        except ConditionFailedError as error:
            await self.resolve_refusal(error, source.path)
            return None
        except ConflictError:
            return None
        if await self.check_parent(moved, chain):
            return moved
        return await self.layout.keep_moved(moved, source, chain, replaced=replaced is not None)


def directories_above(chain: Sequence[tuple[str, Entry | None]]) -> list[Entry]:
    """The directories above the last path of a chain, without the root."""
    return [entry for _, entry in chain[1:-1] if entry is not None]
