"""Publication of many files: batched reads, transactions of a hundred actions, one log segment.

Each file succeeds or fails by itself. Files that lost a race are returned to the caller, which
prepares them again one by one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

from s3k_async import _native
from s3k_async._core.concurrency import run_all, to_the_end
from s3k_async.backends.ports.items import ABSENT, Put
from s3k_async.errors import (
    BusyError,
    ConflictError,
    InvalidPathError,
    IsDirectoryError,
    ItemFormatError,
    LeaseExpiredError,
    LogFormatError,
    OutcomeUnknownError,
    PathExistsError,
    PermissionDeniedError,
    S3kError,
)
from s3k_async.model import ROOT, Content, Entry
from s3k_async.namespace.store import MetadataStore, WriteTarget
from s3k_async.oplog.entries import Operation
from s3k_async.table.codec import NEXT, to_item, unchanged
from s3k_async.txn.executor import ExecutionResult, Log, Withheld, execute
from s3k_async.txn.lease import require_unexpired
from s3k_async.txn.row_plan import RowPlan

__all__ = ["FileBatch", "Prepared", "Published", "Stored", "prepare_many", "publish_many"]

DIRECTORIES = 16
"""Directories that are created or read at the same time."""

Prepared: TypeAlias = dict[str, WriteTarget | S3kError]
"""The write target for each path, or the error."""
Published: TypeAlias = dict[str, Entry | S3kError]
"""The result for each path; a ConflictError means that the path changed since it was prepared, and
that nothing was written."""
Stored: TypeAlias = Callable[[], Awaitable[Collection[str]]]
"""Waits for the end of uploads; returns the paths whose data was not stored."""


async def prepare_many(
    store: MetadataStore, paths: Sequence[str], *, overwrite: bool = True
) -> Prepared:
    """As `MetadataStore.prepare` for different paths: a hundred are read in a request, and missing
    parents are created once.

    Raises the errors of the service; errors of single paths are in the result.
    """
    prepared: Prepared = {}
    fit = [path for path in paths if _fits(store, path, prepared)]
    try:
        found = await store.layout.prepare_many(fit)
    except (ItemFormatError, PermissionDeniedError) as error:
        if isinstance(error, PermissionDeniedError) and not store.access.is_enforced:
            raise
        # One damaged item, or directory without permission, must not fail all paths: each is read
        # by itself.
        await _one_by_one(store, fit, prepared, overwrite=overwrite)
        return prepared
    prepared.update(found.errors)
    again = []
    for path, entry in found.entries.items():
        if entry is not None and entry.is_dir:
            prepared[path] = IsDirectoryError("a directory is at the path", path=path)
        elif path in found.again or (entry is not None and (entry.is_reservation or entry.pending)):
            again.append(path)
        elif entry is not None and entry.read_only and overwrite:
            prepared[path] = _refusal(store, entry)
        else:
            try:
                await store.access.permit_write(path, entry)
            except PermissionDeniedError as error:
                prepared[path] = error
            else:
                prepared[path] = store.target(path, entry, found.chains.get(path))
    await _one_by_one(store, again, prepared, overwrite=overwrite)
    return prepared


def _refusal(store: MetadataStore, entry: Entry) -> S3kError:
    """The error of a read-only file."""
    try:
        store.refuse_read_only(entry)
    except PermissionDeniedError as error:
        return error
    raise AssertionError


def _fits(store: MetadataStore, path: str, prepared: Prepared) -> bool:
    try:
        if path == ROOT:
            raise IsDirectoryError("the root is a directory", path=path)
        store.layout.check_path(path)
    except (IsDirectoryError, InvalidPathError) as error:
        prepared[path] = error
        return False
    return True


async def _one_by_one(
    store: MetadataStore, paths: Sequence[str], prepared: Prepared, *, overwrite: bool
) -> None:
    async def one(path: str) -> None:
        try:
            prepared[path] = await store.prepare(path, overwrite=overwrite)
        except S3kError as error:
            prepared[path] = error

    await run_all(one, paths, limit=DIRECTORIES)


async def publish_many(
    store: MetadataStore, files: Sequence[tuple[WriteTarget, Content]], *, overwrite: bool
) -> Published:
    """Publish each content at its target, as `MetadataStore.publish` does."""
    batch = FileBatch(store, overwrite=overwrite)
    for target, content in files:
        batch.add(target, content)
    return await batch.publish()


@dataclass(slots=True)
class _Publication:
    """A file that is being published."""

    target: WriteTarget
    entry: Entry
    operation: Operation
    put: Put

    @property
    def path(self) -> str:
        return self.entry.path


@dataclass(slots=True)
class FileBatch:
    """Files that are published together, each as `MetadataStore.publish` does."""

    store: MetadataStore
    overwrite: bool
    stored: Stored | None = None
    """None: all data is stored before `publish`. Otherwise some is being stored while the files are
    logged. A file whose data was not stored, or not in time, gets a ConflictError."""
    published: Published = field(default_factory=dict)
    files: list[_Publication] = field(default_factory=list)
    undecided: dict[str, _Publication] = field(default_factory=dict)
    """By path: files created below directories that are being removed, not yet handled."""

    def add(
        self,
        target: WriteTarget,
        content: Content,
        attributes: str | None = None,
        *,
        mtime_ms: int | None = None,
    ) -> None:
        """Add a file with its data. `attributes`: in their stored form; None: a file that is
        replaced keeps its own. `mtime_ms`: its modification time; None is now."""
        store, path, current = self.store, target.path, target.current
        if current is not None and not self.overwrite:
            self.published[path] = PathExistsError("the file exists", path=path)
            return
        parent = None if target.chain is None else target.chain.parent
        base = current or store.new_file(path, target.object_id, parent)
        modified = store.runtime.now_ms() if mtime_ms is None else mtime_ms
        changed = base.with_content(content, mtime_ms=modified, operation=store.runtime.uuid())
        entry = changed.without_intent()
        if attributes is not None:
            entry = replace(entry, attributes=self._attributes(attributes, path, current))
        operation = store.changes.operation("update", current, entry)
        put = Put(to_item(entry, store.keys), ABSENT if current is None else unchanged(current))
        self.files.append(_Publication(target, entry, operation, put))

    def _attributes(self, given: str, path: str, current: Entry | None) -> str:
        """The attributes of a file that is created or replaced with given ones."""
        access = self.store.access
        if current is None:
            return access.attributes_of_new(given, path, is_dir=False)
        return access.attributes_of_rewritten(given, current)

    async def publish(self) -> Published:
        """Publish the files that were added."""
        self._refuse_expired()
        try:
            await self._publish()
            await run_all(self._keep, list(self.undecided.values()), limit=DIRECTORIES)
        except asyncio.CancelledError:
            await to_the_end(self._withdraw)
            raise
        return self.published

    def _refuse_expired(self) -> None:
        unexpired = []
        for file in self.files:
            if (error := self._lease_error(file)) is not None:
                self.published[file.path] = error
            else:
                unexpired.append(file)
        self.files = unexpired

    def _lease_error(self, file: _Publication) -> LeaseExpiredError | None:
        try:
            require_unexpired(file.target.lease_ms, self.store.runtime.now_ms(), file.path)
        except LeaseExpiredError as error:
            return error
        return None

    async def _publish(self) -> None:
        store = self.store
        plan = RowPlan(
            self.files, lambda file: [file.put], operations=lambda file: [file.operation]
        )
        unstored: set[str] = set()
        log: Log = store.changes.run
        if (stored := self.stored) is not None:

            async def wait_for_data() -> None:
                unstored.update(await stored())

            log = partial(store.changes.run, upload=wait_for_data)
        try:
            await execute(
                store.items,
                log,
                plan,
                plan.lanes(),
                store.runtime.uuid,
                withheld=self._withheld(unstored),
                confirm=self._confirm,
            )
        except LogFormatError as error:
            await self._without_the_odd(error)
        except S3kError as error:
            # Only the pending entry precedes the table write, and each transaction fails by itself.
            for file in self.files:
                self.published.setdefault(file.path, error)

    def _withheld(self, unstored: Collection[str]) -> Withheld | None:
        """What holds files back: data that was not stored, or not in time, and directories that
        moved."""
        misplaced = self.store.withheld(lambda row: [self.files[row].entry], self._since())
        if self.stored is None:
            return misplaced

        async def withheld(rows: Sequence[int]) -> Collection[int]:
            late = {row for row in rows if self._lease_error(self.files[row]) is not None}
            lacking = {row for row in rows if self.files[row].path in unstored}
            left = [row for row in rows if row not in late | lacking]
            moved = () if misplaced is None else await misplaced(left)
            return late.union(lacking, moved)

        return withheld

    def _since(self) -> float:
        """When the first of the targets was read."""
        chains = [file.target.chain for file in self.files if file.target.chain is not None]
        return min((chain.since.monotonic for chain in chains), default=0.0)

    async def _without_the_odd(self, error: LogFormatError) -> None:
        """Publish the files without those that the log cannot hold; its error has identified one of
        them."""
        if len(self.files) == 1:
            self.published[self.files[0].entry.path] = error
            return
        middle = len(self.files) // 2
        for files in (self.files[:middle], self.files[middle:]):
            await replace(self, files=files, undecided={}).publish()

    async def _confirm(self, result: ExecutionResult) -> None:
        """Read each directory with new files once."""
        self._sort_out(result)
        await run_all(self._reconsider, self._refused_by_content(result), limit=DIRECTORIES)
        created: dict[tuple[str, str], list[_Publication]] = {}
        for file in (self.files[row] for row in sorted(result.succeeded)):
            if file.target.current is None:
                parent = _native.split(file.path)[0]
                created.setdefault((parent, file.entry.directory), []).append(file)
        await run_all(self._confirm_below, created.values(), limit=DIRECTORIES)
        result.unknown |= {
            row
            for row in result.succeeded
            if not isinstance(self.published[self.files[row].path], Entry)
        }
        result.succeeded = [row for row in result.succeeded if row not in result.unknown]

    def _refused_by_content(self, result: ExecutionResult) -> Iterable[list[_Publication]]:
        """In layout `tree` the files whose paths are taken, by directory."""
        refused: dict[str, list[_Publication]] = {}
        for file in (self.files[row] for row in result.refused):
            chain = file.target.chain
            if isinstance(self.published[file.path], PathExistsError) and chain and chain.above:
                refused.setdefault(chain.parent.key, []).append(file)
        return refused.values()

    async def _reconsider(self, files: list[_Publication]) -> None:
        """Prepare files again whose paths are taken, if their directory is being removed: what was
        found in it may be moved."""
        chain = files[0].target.chain
        assert chain is not None
        try:
            if not await self.store.layout.is_leaving(chain.above[-1]):
                return
        except S3kError as error:
            for file in files:
                self._lost(file, error)
            return
        for file in files:
            self._lost(file)

    def _sort_out(self, result: ExecutionResult) -> None:
        for row in result.succeeded:
            self.published[self.files[row].path] = self.files[row].entry
        for row, refusal in result.refused.items():
            item = refusal.get(0)
            # An item with an intent may be no entry: preparing the path again resolves it.
            self._lost(self.files[row], taken=item is not None and not item.get(NEXT))
        for row, error in result.failed.items():
            file = self.files[row]
            if row in result.unknown:
                self._not_known(file, "whether it was written is not known", error)
            elif isinstance(error, BusyError):
                self._lost(file, error)
            else:
                error.before_change = True
                self.published[file.path] = error

    def _lost(
        self, file: _Publication, cause: S3kError | None = None, *, taken: bool = False
    ) -> None:
        path = file.path
        if file.target.current is None and not self.overwrite and taken:
            error: S3kError = PathExistsError("the path exists", path=path)
        else:
            error = ConflictError(
                "another client changed this path; no changes were applied", path=path
            )
        error.__cause__ = cause
        self.published[path] = error

    def _not_known(self, file: _Publication, message: str, cause: S3kError) -> None:
        error = OutcomeUnknownError(message, path=file.path, operation=file.operation.id)
        error.__cause__ = cause
        self.published[file.path] = error

    async def _confirm_below(self, files: list[_Publication]) -> None:
        try:
            exists = await self.store.layout.has_parent(files[0].entry, files[0].target.chain)
        except S3kError as error:
            for file in files:
                self._not_known(
                    file,
                    "the file was written, but its parent directory could not be verified",
                    error,
                )
            return
        if not exists:
            self.undecided |= {file.path: file for file in files}

    async def _withdraw(self) -> None:
        entries = [file.entry for file in self.undecided.values()]
        await run_all(self.store.withdraw_cancelled, entries, limit=DIRECTORIES)

    async def _keep(self, file: _Publication) -> None:
        try:
            self.published[file.path] = await self.store.recreate_parents(
                file.entry, file.target.chain
            )
        except OutcomeUnknownError as error:
            self._not_known(file, error.message, error)
        except S3kError as error:
            self.published[file.path] = error
        del self.undecided[file.path]
