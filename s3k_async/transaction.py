"""Public transactions: data is uploaded immediately; all other work is done at commit, by
`namespace.mutations` and `namespace.multi_path_commit`."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from types import TracebackType
from typing import Self

import anyio

from s3k_async import _native
from s3k_async._core.active_calls import call
from s3k_async._core.concurrency import to_the_end
from s3k_async._core.metering import RequestCounter, counting_towards
from s3k_async.backends.ports.blobs import Buffer
from s3k_async.bulk.adoption import look_at
from s3k_async.bulk.path_changes import need_apart
from s3k_async.bulk.publish import is_below
from s3k_async.bulk.staged_uploads import drop_bytes, need_staged
from s3k_async.errors import (
    ClosedClientError,
    InvalidArgumentError,
    IsDirectoryError,
    NotDirectoryError,
    OutcomeUnknownError,
    PathExistsError,
    PathNotFoundError,
    PermissionDeniedError,
    RenameIntoSelfError,
    S3kError,
    StreamClosedError,
    UncommittedFileError,
    UnsupportedError,
)
from s3k_async.files.file_ranges import need_same
from s3k_async.files.open_files import FileWriter, Opening, bytes_of, check_mode
from s3k_async.model import ROOT, UNCOMMITTED, ChangeResult, Content, Entry, FileStatus, StagedFile
from s3k_async.namespace.addresses import Path
from s3k_async.namespace.entry_reader import existing
from s3k_async.namespace.multi_path_commit import commit_mutations
from s3k_async.namespace.mutations import (
    ExchangePaths,
    MakeDirectory,
    Move,
    Mutation,
    Remove,
    ReplaceDirectory,
    WriteFile,
)
from s3k_async.namespace.store import WriteTarget
from s3k_async.storage.upload import CLEANUP_SECONDS, PhysicalWriter
from s3k_async.volumes.volume import Volume

__all__ = ["Transaction", "at_commit"]

_LOG = logging.getLogger(__name__)


class Transaction:
    """Several changes that are applied together, at the end of `async with` or by `commit`, or not
    at all.

    Readers see no change before the commit, and all of them afterwards; a listing that is in
    progress at the commit may see some of them, if all fit into one transaction of the table. If
    the body or the commit raises, nothing was changed; after OutcomeUnknownError, or a cancellation
    during the commit, all or nothing. The verbs check the present state when they are called. At
    the commit the state is checked again: a write replaces whatever file is at its path then, and
    an entry to be moved or removed must be unchanged since its verb was called. Several tasks may
    call the verbs concurrently.

    Two operations on one path are refused with InvalidArgumentError, and so is an operation below
    or above a path that another one moves, removes or writes. Operations below a directory that the
    transaction creates are allowed. Every verb raises StreamClosedError after the end of the
    transaction, and otherwise the errors of the client's verb with its name.
    """

    def __init__(
        self,
        volume: Callable[[], Volume],
        place: Callable[[Path], str],
    ) -> None:
        self._volume = volume
        self._place = place
        self._claims = _Claims()
        self._intents: list[Mutation] = []
        self._published: set[str] = set()
        """Object ids of the staged files that the transaction publishes, and URIs of the objects
        that it adopts."""
        self._under_way: Counter[str] = Counter()
        self._files: dict[_Writer, None] = {}
        self._requests = RequestCounter()
        self._over = False
        self._keeps_data = False
        self._failure: S3kError | None = None
        """The reason for its end, if not by its caller."""
        self._result: ChangeResult | None = None
        volume().calls.on_close(self, self._client_closed)

    def __repr__(self) -> str:
        return f"<Transaction of {len(self._intents)} {'over' if self._over else 'open'}>"

    @property
    def closed(self) -> bool:
        """Whether the transaction has ended, in any way."""
        return self._over

    @property
    def result(self) -> ChangeResult:
        """The result of the commit; raises UnsupportedError before it. Created parents are
        counted."""
        if self._result is None:
            raise UnsupportedError("no result: the transaction is not committed")
        return self._result

    @call
    async def write(self, path: Path, data: Buffer, *, overwrite: bool = True) -> None:
        """Upload `data`, to be published as the file at a path; missing parents are created at
        commit.

        Raises PathExistsError (not `overwrite`), IsDirectoryError, NoSpaceError; at commit
        NotDirectoryError, and LeaseExpiredError when the upload began longer ago than
        `Tuning.lease`.
        """
        place = self._open_place(path)
        view = bytes_of(data, place)
        async with self._claimed(place):
            target = await self._target(place, overwrite=overwrite)
            content = await self._volume().storage.at(place).put(target.object_id, view)
            await self._note_file(target, content, overwrite=overwrite)

    def open(self, path: Path, mode: str = "wb") -> Opening[FileWriter]:
        """Open a file to write, `wb`, or to create, `xb`, for `with`; closing it adds it to
        the transaction.

        Data is uploaded as it is written. After an exception in its body, or `discard`, the file is
        not part of the transaction. Raises UnsupportedError for other modes, and as `write`.
        """
        place = self._open_place(path)
        check_mode(mode, place)
        if mode not in ("wb", "xb"):
            raise UnsupportedError(
                "files of a transaction can only be opened to be written as a whole", path=place
            )
        return Opening(lambda: self._open_writer(place, overwrite=mode == "wb"))

    @call
    async def publish(self, path: Path, staged: StagedFile, *, overwrite: bool = False) -> None:
        """Publish a staged upload (`S3kClient.stage`), perhaps of another process, as the file at a
        path at commit.

        No requests are sent before the commit, which also creates missing parents. A staged file is
        published once: after OutcomeUnknownError, publish it again at the same path, which has no
        effect if it is there already. If the transaction fails or is discarded, the file stays
        staged: publish it by another transaction, or delete it by `discard_staged`, unless
        `keeps_data` of the error is set: then leave it to garbage collection. Raises
        InvalidArgumentError (staged in another volume, or already part of the transaction),
        IsDirectoryError (the root); at commit PathExistsError (not `overwrite`), IsDirectoryError,
        NotDirectoryError, and LeaseExpiredError when its upload began longer ago than the
        `Tuning.lease` of the staging client.
        """
        place = self._open_place(path)
        need_staged(staged, self._volume().record.volume_id)
        if place == ROOT:
            raise IsDirectoryError("a directory is at the path", path=place)
        self._volume().store.layout.check_path(place)
        if staged.object_id in self._published:
            raise InvalidArgumentError(
                "the transaction already publishes this staged file", path=place
            )
        self._claims.take(place)
        self._published.add(staged.object_id)
        self._intents.append(
            WriteFile(
                path=place,
                object_id=staged.object_id,
                content=staged.content,
                lease_ms=staged.lease_ms,
                replaces=False,
                overwrite=overwrite,
                source="staged",
            )
        )

    @call
    async def adopt(self, path: Path, uri: str, *, overwrite: bool = False) -> None:
        """Adopt an existing object as the file at a path at commit.

        `uri` is `s3://bucket/key` (or `s3a`, `s3n`) of any bucket, which is reached by the endpoint
        and with the credentials of the data location, or `file:///...` in the data location of a
        volume in a directory. Nothing is copied: the object keeps its key, must not be changed or
        adopted a second time, and is never deleted, neither with the file nor when the transaction
        fails. Size, etag and, in a versioned bucket, version id are read now. The commit creates
        missing parents; it has no effect if the object is already adopted at the path. Raises
        DataMissingError (no such object), UnsupportedError (another kind of service, or an object
        of a volume), InvalidArgumentError (already adopted by the transaction), IsDirectoryError
        (the root); at commit PathExistsError (not `overwrite`), IsDirectoryError,
        NotDirectoryError.
        """
        place = self._open_place(path)
        if place == ROOT:
            raise IsDirectoryError("a directory is at the path", path=place)
        volume = self._volume()
        volume.store.layout.check_path(place)
        async with self._claimed(place):
            content = await look_at(volume, uri)
            self._need_open()
            if content.physical in self._published:
                raise InvalidArgumentError("the transaction already adopts this object", path=place)
            self._published.add(content.physical)
        self._intents.append(
            WriteFile(
                path=place,
                object_id=volume.store.runtime.uuid(),
                content=content,
                lease_ms=0,
                replaces=False,
                overwrite=overwrite,
                source="adopted",
            )
        )

    @call
    async def rename(self, source: Path, target: Path, *, overwrite: bool = False) -> None:
        """Move a file or a directory at commit; its new parent must exist by then, or be created by
        the transaction.

        Raises PathNotFoundError (the source), RenameIntoSelfError, NotDirectoryError (the target is
        below a file that is the source), PathExistsError (it is above the source),
        UncommittedFileError; at commit PathNotFoundError (the parent or the source is missing),
        PathExistsError (the target, unless both are files and `overwrite`), NotDirectoryError,
        ConflictError (the source has another version by then), UncommittedFileError (a new file
        below the directory is still being written).
        """
        old, new = self._open_place(source), self._open_place(target)
        self._claims.check_removal(old)
        self._claims.check(new)
        with counting_towards(self._requests):
            entry = await existing(self._volume().store, old)
        self._need_open()
        if entry.is_dir and is_below(new, old):
            raise RenameIntoSelfError("the target is the directory itself or below it", path=new)
        if new == old:
            return
        if entry.is_reservation:
            raise UncommittedFileError(
                "the file is still being written and cannot be renamed", path=old
            )
        if is_below(new, old):
            raise NotDirectoryError("the path leads through a file", path=old)
        if is_below(old, new):
            raise PathExistsError("the target exists", path=new)
        self._volume().store.layout.check_path(new)
        self._claims.take(old, removes=True)
        try:
            self._claims.take(new)
        except InvalidArgumentError:
            self._claims.release(old)
            raise
        self._intents.append(Move(entry, new, overwrite))

    @call
    async def exchange(self, first: Path, second: Path) -> None:
        """Let the entries at two paths change places at commit, whatever is there by then; as
        `S3kClient.exchange`.

        No requests are sent before the commit. Raises RenameIntoSelfError (one path is below the
        other); at commit PathNotFoundError, UnsupportedError, UncommittedFileError.
        """
        one, other = self._open_place(first), self._open_place(second)
        need_apart(one, other)
        self._claims.check_removal(one)
        self._claims.check_removal(other)
        if one == other:
            return
        self._claims.take(one, removes=True)
        self._claims.take(other, removes=True)
        self._intents.append(ExchangePaths(one, other))

    @call
    async def delete(
        self,
        path: Path,
        *,
        recursive: bool = False,
        missing_ok: bool = False,
        expected: FileStatus | None = None,
    ) -> None:
        """Remove a file, an empty directory, or with `recursive` a directory and everything below
        it, at commit.

        Raises PathNotFoundError (unless `missing_ok`), PermissionDeniedError (the root),
        ConflictError (not what is `expected`, as for `S3kClient.delete`); at commit
        PathNotFoundError (missing, and not `missing_ok`), ConflictError (another version by then),
        DirectoryNotEmptyError, UnsupportedError (in layout `tree`: the transaction removes more
        than 49 directories without `recursive`).
        """
        place = self._open_place(path)
        if place == ROOT:
            raise PermissionDeniedError("the root cannot be deleted", path=place)
        self._claims.check_removal(place)
        with counting_towards(self._requests):
            entry = await self._volume().store.get(place)
        self._need_open()
        if entry is None:
            if missing_ok:
                return
            raise PathNotFoundError("no such file or directory", path=place)
        if expected is not None:
            need_same(expected, entry)
        self._claims.take(place, removes=True)
        self._intents.append(Remove(entry, recursive, missing_ok))

    @call
    async def makedirs(self, path: Path) -> None:
        """Create a directory and its parents at commit, unless they exist by then.

        Raises at commit PathExistsError (a file is there), NotDirectoryError.
        """
        place = self._open_place(path)
        if place == ROOT:
            return
        self._volume().store.layout.check_path(place)
        self._claims.take(place, makes_directory=True)
        self._intents.append(MakeDirectory(place))

    @call
    async def replace(self, path: Path) -> None:
        """Replace a directory with everything below it at commit by a new one, which contains what
        other operations of the transaction put there; created with its parents if it is missing.

        The transaction cannot move or delete single entries below the old directory. In layout
        `tree` the old directory goes into the trash with everything that is below it at the commit;
        in layout `path` that is deleted, the directory stays, and so do entries that other clients
        create in it during the commit. Raises PermissionDeniedError (the root); at commit
        NotDirectoryError (a file is there, or in layout `path` where the transaction needs a
        directory), UnsupportedError (in layout `tree`: the changes outside of new directories do
        not fit into one transaction of the table, 100 actions).
        """
        place = self._open_place(path)
        if place == ROOT:
            raise PermissionDeniedError("the root cannot be replaced", path=place)
        self._volume().store.layout.check_path(place)
        self._claims.replace(place)
        self._intents.append(ReplaceDirectory(place))

    @call
    async def commit(self) -> ChangeResult:
        """Apply all changes and return the result; called again, the same result.

        Raises the errors listed at the verbs, InvalidArgumentError while a file is still being
        written, BusyError (obstructed by other clients), OutcomeUnknownError. Every failure except
        that of an unfinished file is final.
        """
        if self._result is not None:
            return self._result
        self._need_open()
        unfinished = [*self._under_way.keys(), *(writer.name for writer in self._files)]
        if unfinished:
            raise InvalidArgumentError(
                "a file of the transaction is still being written", path=unfinished[0]
            )
        store = self._volume().store
        self._over = True
        try:
            with counting_towards(self._requests):
                done = await commit_mutations(store, self._intents, self._renewed, self._keep_data)
        except S3kError as error:
            error.keeps_data = self._keeps_data
            if not isinstance(error, OutcomeUnknownError):
                await self._drop()
            raise
        self._result = replace(done, requests=self._requests.requests)
        return self._result

    async def discard(self) -> None:
        """Discard all changes, and delete the uploaded data. No effect after the end."""
        if self._over:
            return
        self._over = True
        with self._volume().calls.running("transaction.discard", late=True):
            for writer in list(self._files):
                await writer.discard()
            await self._drop()

    async def _client_closed(self, client: str) -> None:
        """Discard the transaction, unless it has ended; later calls raise the reason."""
        if not self._over:
            message = (
                "the client was closed before the transaction's end; nothing of it has happened"
            )
            self._failure = ClosedClientError(message, path=client)
            await self.discard()

    async def __aenter__(self) -> Self:
        self._need_open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None and self._failure is not None:
                raise self._failure
            if error is None and not self._over:
                await self.commit()
        finally:
            await self.discard()

    # Files

    def _open_place(self, path: Path) -> str:
        self._need_open()
        place = self._place(path)
        self._volume().store.require_writable(place)
        return place

    def _need_open(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._over:
            raise StreamClosedError("the transaction is over")

    async def _target(self, place: str, *, overwrite: bool) -> WriteTarget:
        """The target of an upload: the existing file, or a new object. Writes nothing to the
        table."""
        store = self._volume().store
        current = await store.get(place)
        if current is not None and current.is_dir:
            raise IsDirectoryError("a directory is at the path", path=place)
        if current is not None and not overwrite and not store.ran_out(current):
            raise PathExistsError("the file exists", path=place)
        # Only its writer may publish data under the id of a reservation.
        return store.target(place, current if current is not None and current.committed else None)

    @asynccontextmanager
    async def _claimed(self, place: str) -> AsyncIterator[None]:
        """Claim a path for a file that is being written; a failure releases it."""
        self._claims.take(place)
        self._under_way[place] += 1
        try:
            with counting_towards(self._requests):
                yield
        except BaseException:
            self._claims.release(place)
            raise
        finally:
            del self._under_way[place]

    @call
    async def _open_writer(self, place: str, *, overwrite: bool) -> FileWriter:
        self._need_open()
        async with self._claimed(place):
            target = await self._target(place, overwrite=overwrite)
            self._need_open()
            upload = self._volume().storage.at(place).writer(target.object_id)
        writer = _Writer(
            self._volume,
            target,
            upload,
            self._requests,
            self._take_in,
            self._let_go,
            overwrite=overwrite,
        )
        self._files[writer] = None
        return writer

    async def _take_in(self, writer: _Writer, content: Content) -> None:
        """Add a complete file."""
        await self._note_file(
            writer.target,
            content,
            overwrite=writer.overwrite,
            unchanged=writer.unchanged,
            attributes=writer.attributes,
        )
        del self._files[writer]

    def _let_go(self, writer: _Writer) -> None:
        """Remove a failed or discarded file."""
        if writer in self._files:
            del self._files[writer]
            self._claims.release(writer.name)

    async def _note_file(
        self,
        target: WriteTarget,
        content: Content,
        *,
        overwrite: bool,
        unchanged: bool = False,
        attributes: str | None = None,
    ) -> None:
        """Add uploaded data to the transaction, unless that has ended meanwhile. `unchanged`: the
        file must still have the version of the target at the commit, or be missing. `attributes`:
        of the file, in their stored form."""
        current = target.current
        write = WriteFile(
            path=target.path,
            object_id=target.object_id,
            content=content,
            lease_ms=target.lease_ms,
            replaces=current is not None,
            overwrite=overwrite and not (unchanged and current is None),
            version=current.version if unchanged and current is not None else 0,
            attributes=attributes,
        )
        if self._over:
            await self._remove_bytes(write)
            self._need_open()
        self._intents.append(write)

    async def _renewed(self, write: WriteFile) -> WriteFile:
        """A copy under a new object id, since the file to replace is no longer at the path: it may
        exist at another one."""
        storage, content = self._volume().storage.at(write.path), write.content
        target = self._volume().store.target(write.path, None)
        copied = await storage.copy_from(storage, content, target.object_id)
        await self._remove_bytes(write)
        renewed = replace(
            write,
            object_id=target.object_id,
            content=copied,
            lease_ms=target.lease_ms,
            replaces=False,
        )
        self._intents[self._intents.index(write)] = renewed
        return renewed

    def _keep_data(self) -> None:
        self._keeps_data = True

    async def _drop(self) -> None:
        """Delete the data that the transaction has uploaded, which is certainly unreferenced;
        bounded in time, and shielded from cancellation. Staged data is kept: another client may
        have published it. So is the data of entries that could not be removed from the table.
        """
        if self._keeps_data:
            return
        writes = [
            intent
            for intent in self._intents
            if isinstance(intent, WriteFile) and intent.source == "written"
        ]

        async def drop() -> None:
            with anyio.move_on_after(CLEANUP_SECONDS):
                await self._remove_bytes(*writes)

        await to_the_end(drop)

    async def _remove_bytes(self, *writes: WriteFile) -> None:
        for key, error in await drop_bytes(
            self._volume().storage, [write.content.physical for write in writes]
        ):
            _LOG.warning("unpublished bytes at %s are left to garbage collection: %s", key, error)


def at_commit(
    writer: FileWriter, *, unchanged: bool = False, attributes: str | None = None
) -> None:
    """How a transaction publishes a file that `Transaction.open` has opened. `unchanged`: only over
    the version that it had then, else the commit raises ConflictError, or PathExistsError for a
    file that did not exist. `attributes`: those of the file, in their stored form; None: an
    existing file keeps its own. No effect on other files.
    """
    if isinstance(writer, _Writer):
        writer.unchanged, writer.attributes = unchanged, attributes


class _Writer(FileWriter):
    """A file of a transaction: publishing adds it to the transaction."""

    def __init__(
        self,
        volume: Callable[[], Volume],
        target: WriteTarget,
        upload: PhysicalWriter,
        requests: RequestCounter,
        finished: Callable[[_Writer, Content], Awaitable[None]],
        given_up: Callable[[_Writer], None],
        *,
        overwrite: bool,
    ) -> None:
        now = volume().store.runtime.now_ms()
        blank = Entry(
            target.path, False, target.object_id, 1, now // 1000, now, physical=UNCOMMITTED
        )
        super().__init__(volume, target.current or blank, upload, reserved=False)
        self._requests = requests
        self._finished = finished
        self._given_up = given_up
        self.target = target
        self.overwrite = overwrite
        self.unchanged = False
        self.attributes: str | None = None

    async def write(self, data: Buffer) -> int:
        with counting_towards(self._requests):
            return await super().write(data)

    async def drain(self) -> None:
        with counting_towards(self._requests):
            await super().drain()

    async def commit(self) -> FileStatus:
        """Add the complete file to the transaction. Returns its future status."""
        with counting_towards(self._requests):
            return await super().commit()

    async def _publish(self, content: Content) -> Entry:
        await self._finished(self, content)
        will_be = self.entry.with_content(content, mtime_ms=self.entry.mtime_ms, operation="")
        return replace(will_be, committed=False)

    async def _fail(self, error: BaseException) -> None:
        await super()._fail(error)
        # Only the transaction could publish the data: data that may have been stored need not block
        # it.
        self._given_up(self)

    async def _drop(self) -> None:
        await super()._drop()
        self._given_up(self)


class _Claims:
    """The paths in use by operations of one transaction."""

    def __init__(self) -> None:
        self._paths: dict[str, bool] = {}
        """Whether a path is only created as a directory: then others may be below it."""
        self._above: Counter[str] = Counter()
        self._removed: set[str] = set()
        """Paths of entries that are moved or removed."""
        self._removed_below: Counter[str] = Counter()
        self._replaced: set[str] = set()

    def check_removal(self, path: str) -> None:
        """As `check`, for an entry that is to be moved or removed: also raises InvalidArgumentError
        below a directory that is replaced."""
        self.check(path)
        if not self._replaced.isdisjoint(_native.ancestors(path)):
            raise InvalidArgumentError(
                "another operation of the transaction replaces a parent of this path", path=path
            )

    def replace(self, path: str) -> None:
        """Claim a path for a directory to be replaced. Raises as `check`."""
        if self._removed_below[path]:
            raise InvalidArgumentError(
                "another operation of the transaction moves or removes an entry below this path",
                path=path,
            )
        self.take(path, makes_directory=True)
        self._replaced.add(path)

    def check(self, path: str, *, makes_directory: bool = False) -> None:
        """Raise InvalidArgumentError if another operation uses the path, or one above or below
        it."""
        if path in self._paths and not (makes_directory and self._paths[path]):
            raise InvalidArgumentError(
                "another operation of the transaction uses this path", path=path
            )
        if any(not self._paths.get(above, True) for above in _native.ancestors(path)):
            raise InvalidArgumentError(
                "another operation of the transaction uses a parent of this path", path=path
            )
        if self._above[path] and not makes_directory:
            raise InvalidArgumentError(
                "another operation of the transaction uses a path below this one", path=path
            )

    def take(self, path: str, *, makes_directory: bool = False, removes: bool = False) -> None:
        """Claim a path; `removes`: of an entry that is moved or removed. Raises as `check`, or
        `check_removal`."""
        if removes:
            self.check_removal(path)
        self.check(path, makes_directory=makes_directory)
        if path not in self._paths:
            self._paths[path] = makes_directory
            self._above.update(_native.ancestors(path))
        if removes:
            self._removed.add(path)
            self._removed_below.update(_native.ancestors(path))

    def release(self, path: str) -> None:
        """Release one claim of a path."""
        del self._paths[path]
        self._above.subtract(_native.ancestors(path))
        if path in self._removed:
            self._removed.remove(path)
            self._removed_below.subtract(_native.ancestors(path))
