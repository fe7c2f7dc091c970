"""Transactions of a caller: bytes are uploaded as they come; all other work happens at the end, in
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
from s3k_async._core.active_calls import call, critical
from s3k_async._core.metering import RequestCounter, counting_towards
from s3k_async.backends.ports.blobs import Buffer
from s3k_async.bulk.adoption import look_at
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
from s3k_async.namespace.mutations import MakeDirectory, Move, Mutation, Remove, WriteFile
from s3k_async.namespace.store import WriteTarget
from s3k_async.storage.upload import CLEANUP_SECONDS, PhysicalWriter
from s3k_async.volumes.volume import Volume

__all__ = ["Transaction"]

_LOG = logging.getLogger(__name__)


class Transaction:
    """Several changes that happen together, at the end of `with` or by `commit`, or not at all.

    Nobody sees anything of it before, and then readers see all of it; a listing that is under way
    at that moment may see a part, if it all fits into one transaction of the table. What is raised
    by the body or by the end has changed nothing, but for OutcomeUnknownError, and a cancellation
    that comes during the end: all of it, or nothing. The verbs refuse what can be seen to fail when
    they are called; what has changed by the end is looked at then: files are written over whatever
    is there, and what was to be moved or removed must be what it was when its verb was called. The
    verbs may be called by several tasks.

    Two operations on one path are refused with InvalidArgumentError, and so is one below, or above,
    a path that another moves, removes or writes; what is below a directory that the transaction
    makes is fine. Every verb raises StreamClosedError after the end, and otherwise what the
    client's verb of its name does.
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
        """Object ids of the staged files that it publishes, URIs of the objects that it adopts."""
        self._under_way: Counter[str] = Counter()
        self._files: dict[_Writer, None] = {}
        self._requests = RequestCounter()
        self._over = False
        self._failure: S3kError | None = None
        """Why it is over, if its caller has not ended it."""
        self._result: ChangeResult | None = None
        volume().calls.on_close(self, self._client_closed)

    def __repr__(self) -> str:
        return f"<Transaction of {len(self._intents)} {'over' if self._over else 'open'}>"

    @property
    def closed(self) -> bool:
        """Whether it came to its end, in whatever way."""
        return self._over

    @property
    def result(self) -> ChangeResult:
        """What was done, once it is; raises UnsupportedError before. Directories that were made on
        the way count."""
        if self._result is None:
            raise UnsupportedError("no result: the transaction is not committed")
        return self._result

    @call
    async def write(self, path: Path, data: Buffer, *, overwrite: bool = True) -> None:
        """Upload `data`, which is to be the file at a path; missing parents are made at the end.

        Raises PathExistsError (not `overwrite`), IsDirectoryError, NoSpaceError; at the end
        NotDirectoryError, and LeaseExpiredError when the upload is longer ago than `Tuning.lease`.
        """
        place = self._open_place(path)
        view = bytes_of(data, place)
        async with self._claimed(place):
            target = await self._target(place, overwrite=overwrite)
            content = await self._volume().storage.put(target.object_id, view)
            await self._note_file(target, content, overwrite=overwrite)

    def open(self, path: Path, mode: str = "wb") -> Opening[FileWriter]:
        """A file to be written, `wb`, or created, `xb`, for `with`; closing it publishes nothing
        yet.

        Bytes are uploaded as they are written. Left by an exception, or discarded, it is no part of
        the transaction. Raises UnsupportedError for other modes, and as `write`.
        """
        place = self._open_place(path)
        check_mode(mode, place)
        if mode == "rb":
            raise UnsupportedError(
                "files of a transaction can only be opened for writing", path=place
            )
        return Opening(lambda: self._open_writer(place, overwrite=mode == "wb"))

    @call
    async def publish(self, path: Path, staged: StagedFile, *, overwrite: bool = False) -> None:
        """Make what was staged (`S3kClient.stage`), perhaps by another process, the file at a path
        at the end.

        Nothing is asked for before the end; missing parents are made then. A staged file is
        published once: after OutcomeUnknownError again at the same path, where nothing is done if
        it is there already. A transaction that fails, or is discarded, leaves it staged: to be
        published by another one, or dropped by `discard_staged`. Raises InvalidArgumentError
        (another volume's, or a part of the transaction already), IsDirectoryError (the root); at
        the end PathExistsError (not `overwrite`), IsDirectoryError, NotDirectoryError, and
        LeaseExpiredError when its upload began longer ago than the `Tuning.lease` of who staged it.
        """
        place = self._open_place(path)
        need_staged(staged, self._volume().record.volume_id)
        if place == ROOT:
            raise IsDirectoryError("a directory is at the path", path=place)
        self._volume().store.keys.key(place)
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
        """Make an object that others have stored in the volume's data location the file at a path
        at the end.

        `uri` is `s3://bucket/key` (or `s3a`, `s3n`), or `file:///...` of a volume in a directory.
        Nothing is copied: the object keeps its key, must not be changed or adopted a second time,
        and is never deleted, neither with the file nor with a transaction that fails. Size and etag
        are those of now; missing parents are made at the end, and an object that is adopted at the
        path already stays as it is. Raises DataMissingError (no such object), UnsupportedError
        (outside of the data location, or one of the volume's own), InvalidArgumentError (adopted by
        the transaction already), IsDirectoryError (the root); at the end PathExistsError (not
        `overwrite`), IsDirectoryError, NotDirectoryError.
        """
        place = self._open_place(path)
        if place == ROOT:
            raise IsDirectoryError("a directory is at the path", path=place)
        volume = self._volume()
        volume.store.keys.key(place)
        async with self._claimed(place):
            content = await look_at(volume, uri)
            self._need_open()
            if content.physical in self._published:
                raise InvalidArgumentError("the transaction already adopts this object", path=place)
            self._published.add(content.physical)
        self._intents.append(
            WriteFile(
                path=place,
                object_id=volume.store.sources.uuid(),
                content=content,
                lease_ms=0,
                replaces=False,
                overwrite=overwrite,
                source="adopted",
            )
        )

    @call
    async def rename(self, source: Path, target: Path, *, overwrite: bool = False) -> None:
        """Move a file or a directory at the end; its new parent is there by then, or is made by the
        transaction.

        Raises PathNotFoundError (the source), RenameIntoSelfError, NotDirectoryError (the target is
        below a file that is the source), PathExistsError (it is above the source),
        UncommittedFileError; at the end PathNotFoundError (the parent, or the source is gone),
        PathExistsError (the target, unless both are files and `overwrite`), NotDirectoryError,
        ConflictError (the source is another version by now), UncommittedFileError (a new file below
        the directory is being written).
        """
        old, new = self._open_place(source), self._open_place(target)
        self._claims.check(old)
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
        self._volume().store.keys.key(new)
        self._claims.take(old)
        try:
            self._claims.take(new)
        except InvalidArgumentError:
            self._claims.release(old)
            raise
        self._intents.append(Move(entry, new, overwrite))

    @call
    async def delete(
        self,
        path: Path,
        *,
        recursive: bool = False,
        missing_ok: bool = False,
        expected: FileStatus | None = None,
    ) -> None:
        """Remove a file, an empty directory, or with `recursive` a directory and all below it, at
        the end.

        Raises PathNotFoundError (unless `missing_ok`), PermissionDeniedError (the root),
        ConflictError (not what is `expected`, as `S3kClient.delete` has it); at the end
        PathNotFoundError (it is gone, and not `missing_ok`), ConflictError (it is another version
        by now), DirectoryNotEmptyError.
        """
        place = self._open_place(path)
        if place == ROOT:
            raise PermissionDeniedError("the root cannot be deleted", path=place)
        self._claims.check(place)
        with counting_towards(self._requests):
            entry = await self._volume().store.get(place)
        self._need_open()
        if entry is None:
            if missing_ok:
                return
            raise PathNotFoundError("no such file or directory", path=place)
        if expected is not None:
            need_same(expected, entry)
        self._claims.take(place)
        self._intents.append(Remove(entry, recursive, missing_ok))

    @call
    async def makedirs(self, path: Path) -> None:
        """Make a directory and its missing parents at the end, if they are not there by then.

        Raises at the end PathExistsError (a file is there), NotDirectoryError.
        """
        place = self._open_place(path)
        if place == ROOT:
            return
        self._volume().store.keys.key(place)
        self._claims.take(place, makes_directory=True)
        self._intents.append(MakeDirectory(place))

    @call
    async def commit(self) -> ChangeResult:
        """Make all of it happen, and return what was done; called again, the same.

        Raises as the verbs tell, InvalidArgumentError while a file is still being written,
        BusyError while others are in the way, OutcomeUnknownError. Any other failure than that of
        an unfinished file is final.
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
                done = await commit_mutations(store, self._intents, self._renewed)
        except S3kError as error:
            if not isinstance(error, OutcomeUnknownError):
                await self._drop()
            raise
        self._result = replace(done, requests=self._requests.requests)
        return self._result

    async def discard(self) -> None:
        """Do nothing of it, and drop the bytes that were uploaded. No effect after the end."""
        if self._over:
            return
        self._over = True
        with self._volume().calls.running(late=True):
            for writer in list(self._files):
                await writer.discard()
            await self._drop()

    async def _client_closed(self, client: str) -> None:
        """Discard it, unless it is over, and raise the reason where its caller goes on."""
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
        """What to upload for: the file that is there, or a new object. Nothing is made for it in
        the table."""
        store = self._volume().store
        current = await store.get(place)
        if current is not None and current.is_dir:
            raise IsDirectoryError("a directory is at the path", path=place)
        if current is not None and not overwrite and not store.ran_out(current):
            raise PathExistsError("the file exists", path=place)
        # The bytes of a reservation are its writer's to publish, under its id.
        return store.target(place, current if current is not None and current.committed else None)

    @asynccontextmanager
    async def _claimed(self, place: str) -> AsyncIterator[None]:
        """Hold a path for a file that is being written; a failure gives it back."""
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
            upload = self._volume().storage.writer(target.object_id)
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
        """The file is whole."""
        await self._note_file(writer.target, content, overwrite=writer.overwrite)
        del self._files[writer]

    def _let_go(self, writer: _Writer) -> None:
        """Nothing comes of the file."""
        if writer in self._files:
            del self._files[writer]
            self._claims.release(writer.name)

    async def _note_file(self, target: WriteTarget, content: Content, *, overwrite: bool) -> None:
        """The bytes are there; unless the transaction ended meanwhile, they are a part of it."""
        write = WriteFile(
            path=target.path,
            object_id=target.object_id,
            content=content,
            lease_ms=target.lease_ms,
            replaces=target.current is not None,
            overwrite=overwrite,
        )
        if self._over:
            await self._remove_bytes(write)
            self._need_open()
        self._intents.append(write)

    async def _renewed(self, write: WriteFile) -> WriteFile:
        """The file that it was to replace is not at its path any more: it may live on at another
        one."""
        storage, content = self._volume().storage, write.content
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

    async def _drop(self) -> None:
        """Remove the bytes that it has uploaded, which are certainly unreferenced; bounded, and
        shielded from cancellation. What others have staged another client may have published,
        perhaps at another path.
        """
        writes = [
            intent
            for intent in self._intents
            if isinstance(intent, WriteFile) and intent.source == "written"
        ]
        with critical(), anyio.move_on_after(CLEANUP_SECONDS, shield=True):
            await self._remove_bytes(*writes)

    async def _remove_bytes(self, *writes: WriteFile) -> None:
        for key, error in await drop_bytes(
            self._volume().storage, [write.content.physical for write in writes]
        ):
            _LOG.warning("unpublished bytes at %s are left to garbage collection: %s", key, error)


class _Writer(FileWriter):
    """A file of a transaction: publishing it makes it a part of that."""

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
        now = volume().store.sources.now_ms()
        blank = Entry(
            target.path, False, target.object_id, 1, now // 1000, now, physical=UNCOMMITTED
        )
        super().__init__(volume, target.current or blank, upload, reserved=False)
        self._requests = requests
        self._finished = finished
        self._given_up = given_up
        self.target = target
        self.overwrite = overwrite

    async def write(self, data: Buffer) -> int:
        with counting_towards(self._requests):
            return await super().write(data)

    async def drain(self) -> None:
        with counting_towards(self._requests):
            await super().drain()

    async def commit(self) -> FileStatus:
        """Make the file, which has to be whole, a part of the transaction. The status is what it
        will be like."""
        with counting_towards(self._requests):
            return await super().commit()

    async def _publish(self, content: Content) -> Entry:
        await self._finished(self, content)
        will_be = self.entry.with_content(content, mtime_ms=self.entry.mtime_ms, operation="")
        return replace(will_be, committed=False)

    async def _fail(self, error: BaseException) -> None:
        await super()._fail(error)
        # Nothing but the transaction could publish the bytes: that some were perhaps stored is no
        # reason to hold it up.
        self._given_up(self)

    async def _drop(self) -> None:
        await super()._drop()
        self._given_up(self)


class _Claims:
    """Paths that operations of one transaction are on."""

    def __init__(self) -> None:
        self._paths: dict[str, bool] = {}
        """Whether a path is only to be a directory: then others may be below it."""
        self._above: Counter[str] = Counter()

    def check(self, path: str, *, makes_directory: bool = False) -> None:
        """Raise InvalidArgumentError if another operation is on the path, or on one above or below
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

    def take(self, path: str, *, makes_directory: bool = False) -> None:
        """Hold a path. Raises as `check`."""
        self.check(path, makes_directory=makes_directory)
        if path not in self._paths:
            self._paths[path] = makes_directory
            self._above.update(_native.ancestors(path))

    def release(self, path: str) -> None:
        """Give a path back that was taken once."""
        del self._paths[path]
        self._above.subtract(_native.ancestors(path))
