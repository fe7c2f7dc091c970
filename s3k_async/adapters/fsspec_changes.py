"""Changes of the fsspec adapter: immediate, or in `with fs.transaction:` together at its end."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from fsspec.transaction import Transaction as FsspecTransaction

from s3k_async._core.concurrency import gather
from s3k_async.adapters.fsspec_listing import copy_into, readable, status_of, tops_of
from s3k_async.backends.ports.blobs import Buffer
from s3k_async.bulk.copying import attributes_of_copy
from s3k_async.client import S3kClient, reader_of, volume_of
from s3k_async.errors import (
    PathExistsError,
    PathNotFoundError,
    UnsupportedError,
)
from s3k_async.files.open_files import FileWriter, Opening
from s3k_async.model import ROOT, FileStatus
from s3k_async.namespace.entry_reader import existing
from s3k_async.transaction import Transaction, at_commit

__all__ = ["AtOnce", "Pairs", "PendingChanges", "Together", "VolumeTransaction", "rename"]

Pairs: TypeAlias = list[tuple[str, str]]
"""Sources and targets of renames."""

UPLOADS = 16
"""Files of one `pipe` uploaded concurrently in a transaction."""


class PendingChanges(Protocol):
    """The changes of fsspec's verbs."""

    async def write(self, path: str, data: Buffer, *, overwrite: bool = True) -> object: ...
    async def write_many(self, files: Sequence[tuple[str, Any]], *, overwrite: bool) -> None: ...
    def open(self, path: str, mode: str) -> Opening[FileWriter]: ...
    async def touch(self, path: str) -> object: ...
    async def set_attributes(
        self,
        path: str,
        *,
        mode: int | None = None,
        uid: int | None = None,
        gid: int | None = None,
        metadata: Mapping[str, bytes | None] | None = None,
    ) -> object: ...
    async def make_directory(self, path: str, *, parents: bool, exist_ok: bool) -> None: ...
    async def copy(self, source: str, target: str) -> None: ...
    async def remove(self, statuses: Sequence[FileStatus]) -> None: ...
    async def remove_directory(self, status: FileStatus) -> None: ...
    async def rename(self, pairs: Pairs) -> None: ...


class AtOnce:
    """Immediate changes by the client's verbs."""

    def __init__(self, client: S3kClient) -> None:
        self._client = client
        self.write = client.write
        self.touch = client.touch
        self.set_attributes = client.set_attributes

    async def write_many(self, files: Sequence[tuple[str, Any]], *, overwrite: bool) -> None:
        for _, error in (await self._client.write_many(files, overwrite=overwrite)).failures:
            raise error

    def open(self, path: str, mode: str) -> Opening[FileWriter]:
        return self._client.open(path, mode)  # type: ignore[return-value]  # write modes

    async def make_directory(self, path: str, *, parents: bool, exist_ok: bool) -> None:
        volume = volume_of(self._client)
        with volume.calls.running("makedirs", path):
            await volume.store.make_directory(path, parents=parents, exist_ok=exist_ok)

    async def copy(self, source: str, target: str) -> None:
        await self._client.copy(source, target, overwrite=True)

    async def remove(self, statuses: Sequence[FileStatus]) -> None:
        tops = tops_of(statuses)
        if len(tops) == 1:
            await self._client.delete(tops[0].path, recursive=tops[0].is_dir)
            return
        # The file may have become a directory; only directories seen before may be removed with
        # their contents.
        recursive = any(top.is_dir for top in tops)
        for _, error in (
            await self._client.delete_many([top.path for top in tops], recursive=recursive)
        ).failures:
            raise error

    async def remove_directory(self, status: FileStatus) -> None:
        await self._client.delete(status.path, expected=status)

    async def rename(self, pairs: Pairs) -> None:
        await rename(self._client, pairs)


class Together:
    """Changes by a transaction of the client, applied at its end. Lookups show the state before
    it."""

    def __init__(self, client: S3kClient, transaction: Transaction) -> None:
        self._client = client
        self._transaction = transaction
        self.write = transaction.write

    async def write_many(self, files: Sequence[tuple[str, Any]], *, overwrite: bool) -> None:
        await gather(lambda file: self.write(*file, overwrite=overwrite), files, limit=UPLOADS)

    def open(self, path: str, mode: str) -> Opening[FileWriter]:
        return self._transaction.open(path, mode)

    async def touch(self, path: str) -> None:
        if await self._client.exists(path):
            raise UnsupportedError("a transaction cannot give a file another time alone", path=path)
        await self.write(path, b"")

    async def set_attributes(self, path: str, **attributes: object) -> None:
        raise UnsupportedError("a transaction cannot set attributes", path=path)

    async def make_directory(self, path: str, *, parents: bool, exist_ok: bool) -> None:
        if await self._client.exists(path):
            if exist_ok and await self._client.is_dir(path):
                return
            raise PathExistsError("the path exists already", path=path)
        parent = path.rpartition("/")[0] or ROOT
        if not parents and not await self._client.is_dir(parent):
            raise PathNotFoundError("no such parent directory", path=parent)
        await self._transaction.makedirs(path)

    async def copy(self, source: str, target: str) -> None:
        volume = volume_of(self._client)
        entry = readable(volume.store, await existing(volume.store, source))
        writer = await self.open(target, "wb")
        attributes = attributes_of_copy(entry, volume)
        if attributes is not None:
            at_commit(writer, attributes=attributes.to_json())
        await copy_into(writer, reader_of(self._client, entry, cached=False))
        await writer.close()

    async def remove(self, statuses: Sequence[FileStatus]) -> None:
        for top in tops_of(statuses):
            await self._transaction.delete(top.path, recursive=top.is_dir)

    async def remove_directory(self, status: FileStatus) -> None:
        await self._transaction.delete(status.path, expected=status)

    async def rename(self, pairs: Pairs) -> None:
        for source, target in pairs:
            await status_of(self._client, source)
            parent = target.rpartition("/")[0] or ROOT
            await self.make_directory(parent, parents=True, exist_ok=True)
            await self._transaction.rename(source, target, overwrite=True)


class VolumeTransaction(FsspecTransaction):  # type: ignore[misc]  # fsspec is untyped
    """`with fs.transaction:`: the changes inside are applied atomically at its end. It belongs to
    the filesystem object: all threads that use the object are in it."""

    fs: Any
    files: deque[Any]

    def start(self) -> None:
        """Begin. Raises InvalidArgumentError inside another one."""
        self.files = deque()
        self.fs.begin_changes()

    def complete(self, commit: bool = True) -> None:
        """End it; no effect if none is open. Raises the error of the commit; then nothing was
        changed."""
        fs = self.fs
        if fs is not None and fs.in_transaction:
            self.fs = None
            fs.end_changes(commit=commit)


async def rename(client: S3kClient, pairs: Pairs) -> None:
    """Rename each pair, files over files; missing parents of the targets are made. Several pairs
    are not atomic together.

    Raises the first failure.
    """
    pairs = [pair for pair in pairs if pair[0] != pair[1]]
    if len(pairs) == 1:
        try:
            await client.rename(*pairs[0], overwrite=True)
        except PathNotFoundError:
            await status_of(client, pairs[0][0])
        else:
            return
    parents = {target.rpartition("/")[0] or ROOT for _, target in pairs}
    for (source, _), status in zip(
        pairs, await client.stat_many(source for source, _ in pairs), strict=True
    ):
        if status is None:
            raise PathNotFoundError("no such file or directory", path=source)
    for parent in sorted(parents - {ROOT}):
        await client.makedirs(parent)
    if pairs:
        for _, error in (await client.rename_many(pairs, overwrite=True)).failures:
            raise error
