"""Transactions of the blocking client: each call is one hop to the event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self, TypeVar

from s3k_async._sync.loop_thread import Bridge
from s3k_async._sync.sync_files import SyncFileWriter
from s3k_async.addresses import Path
from s3k_async.model import ChangeResult, FileStatus, StagedFile
from s3k_async.stores.blobs import Buffer
from s3k_async.transaction import Transaction

__all__ = ["SyncTransaction"]

T = TypeVar("T")


class SyncTransaction:
    """Several changes that happen together, at the end of `with` or by `commit`, or not at all.

    As `Transaction`; any number of threads may use it.
    """

    def __init__(self, bridge: Bridge, transaction: Transaction, owner: object) -> None:
        self._bridge = bridge
        self._transaction = transaction
        self._owner = owner
        """Kept from being finalised, which would close the volume."""

    def __repr__(self) -> str:
        return f"<Sync{repr(self._transaction)[1:]}"

    @property
    def closed(self) -> bool:
        """Whether it came to its end, in whatever way."""
        return self._transaction.closed

    @property
    def result(self) -> ChangeResult:
        """What was done, once it is; raises UnsupportedError before. Directories that were made on
        the way count."""
        return self._transaction.result

    def write(self, path: Path, data: Buffer, *, overwrite: bool = True) -> None:
        """Upload `data`, which is to be the file at a path; missing parents are made at the end.

        Raises PathExistsError (not `overwrite`), IsDirectoryError, NoSpaceError; at the end
        NotDirectoryError, and LeaseExpiredError when the upload is longer ago than `Tuning.lease`.
        """
        self._run(lambda: self._transaction.write(path, data, overwrite=overwrite))

    def open(self, path: Path, mode: str = "wb") -> SyncFileWriter:
        """A file to be written, `wb`, or created, `xb`, for `with`; closing it publishes nothing
        yet.

        Bytes are uploaded as they are written. Left by an exception, or discarded, it is no part of
        the transaction. Raises UnsupportedError for other modes, and as `write`.
        """

        async def opened() -> SyncFileWriter:
            return SyncFileWriter(
                self._bridge, await self._transaction.open(path, mode), self._owner
            )

        return self._run(opened)

    def publish(self, path: Path, staged: StagedFile, *, overwrite: bool = False) -> None:
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
        self._run(lambda: self._transaction.publish(path, staged, overwrite=overwrite))

    def adopt(self, path: Path, uri: str, *, overwrite: bool = False) -> None:
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
        self._run(lambda: self._transaction.adopt(path, uri, overwrite=overwrite))

    def rename(self, source: Path, target: Path, *, overwrite: bool = False) -> None:
        """Move a file or a directory at the end; its new parent is there by then, or is made by the
        transaction.

        Raises PathNotFoundError (the source), RenameIntoSelfError, NotDirectoryError (the target is
        below a file that is the source), PathExistsError (it is above the source),
        UncommittedFileError; at the end PathNotFoundError (the parent, or the source is gone),
        PathExistsError (the target, unless both are files and `overwrite`), NotDirectoryError,
        ConflictError (the source is another version by now), UncommittedFileError (a new file below
        the directory is being written).
        """
        self._run(lambda: self._transaction.rename(source, target, overwrite=overwrite))

    def delete(
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
        self._run(
            lambda: self._transaction.delete(
                path, recursive=recursive, missing_ok=missing_ok, expected=expected
            )
        )

    def makedirs(self, path: Path) -> None:
        """Make a directory and its missing parents at the end, if they are not there by then.

        Raises at the end PathExistsError (a file is there), NotDirectoryError.
        """
        self._run(lambda: self._transaction.makedirs(path))

    def commit(self) -> ChangeResult:
        """Make all of it happen, and return what was done; called again, the same.

        Raises as the verbs tell, InvalidArgumentError while a file is still being written,
        BusyError while others are in the way, OutcomeUnknownError. Any other failure than that of
        an unfinished file is final.
        """
        return self._run(self._transaction.commit)

    def discard(self) -> None:
        """Do nothing of it, and drop the bytes that were uploaded. No effect after the end."""
        self._run(self._transaction.discard)

    def __enter__(self) -> Self:
        self._run(self._transaction.__aenter__)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._run(lambda: self._transaction.__aexit__(kind, error, trace))

    def _run(self, call: Callable[[], Awaitable[T]]) -> T:
        return self._bridge.run(call)
