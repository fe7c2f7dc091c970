"""Batches of a load: entries of a dump as items of the target volume, for the local loader and for
Spark tasks."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace

from s3k_async import _native
from s3k_async._core.concurrency import gather
from s3k_async._core.paths import normalize
from s3k_async._core.worker_threads import in_thread
from s3k_async.errors import (
    CorruptDataError,
    DataMissingError,
    ItemFormatError,
    LogFormatError,
    NotDirectoryError,
    UnsupportedError,
)
from s3k_async.model import Entry
from s3k_async.oplog.entries import Operation, operation_line
from s3k_async.oplog.segments import each_object_once
from s3k_async.storage.extents import has_extents
from s3k_async.table.codec import from_items, to_item
from s3k_async.table.stored_reader import ROOT_ENTRY
from s3k_async.volumes import Volume

__all__ = ["SHOWN", "LoadTarget", "lacking_bytes", "off_loop"]

SHOWN = 5
"""Most files in an error."""
_LOOKS = 32


@dataclass(frozen=True, slots=True)
class LoadTarget:
    """A dump and its target volume."""

    volume: Volume
    path: str
    """Path of the dump."""
    name: str
    """The dump's id in the volume record."""
    time_ms: int
    """Time of the dump."""

    def judge(self, chunk: Sequence[Entry]) -> None:
        """Raise CorruptDataError and NotDirectoryError for entries that the volume cannot hold."""
        keys = self.volume.store.keys
        if len({entry.path for entry in chunk}) < len(chunk):
            raise CorruptDataError("the dump holds a path twice", path=self.path)
        try:
            # Whatever directory it will be in: that is not known yet.
            from_items([to_item(keys.placed(entry, ROOT_ENTRY.id), keys) for entry in chunk], keys)
            for entry in chunk:
                operation_line(self._operation(entry), self.path)
        except (ItemFormatError, LogFormatError) as error:
            raise CorruptDataError(
                f"an entry of the dump is invalid: {error.message}", path=self.path
            ) from error
        files = {entry.path for entry in chunk if not entry.is_dir}
        through = files.intersection(
            path for entry in chunk for path in _native.ancestors(entry.path)
        )
        if through:
            raise NotDirectoryError(
                "the path of an entry of the dump leads through a file", path=min(through)
            )
        for entry in chunk:
            if normalize(entry.path) != entry.path:
                raise CorruptDataError(
                    f"a path of the dump is not normalised: {entry.path!r}", path=self.path
                )

    def require_features(self, chunk: Iterable[Entry], *, whole: bool = False) -> None:
        """Raise UnsupportedError for entries with attributes, or files with extents (unless they
        become `whole`), that the volume does not allow. Other versions of the package could open
        it, and would lose the attributes, and not find the bytes."""
        allows = self.volume.record
        for entry in chunk:
            if entry.attributes and not allows.attributes:
                raise UnsupportedError(
                    "it has attributes, which the volume does not allow: s3k migrate --enable "
                    "attributes changes that",
                    path=entry.path,
                )
            if has_extents(entry.physical) and not (whole or allows.extents):
                raise UnsupportedError(
                    "the file was appended to or changed in place, which the volume does not "
                    "allow: s3k migrate --enable extents changes that",
                    path=entry.path,
                )

    async def lacking(self, chunk: Sequence[Entry]) -> list[str]:
        """The files whose bytes are missing."""

        async def lacks(entry: Entry) -> bool:
            try:
                await self.volume.storage.check(entry.content)
            except (CorruptDataError, DataMissingError, UnsupportedError):
                return True
            return False

        files = [entry for entry in chunk if entry.committed]
        found = await gather(lacks, files, limit=_LOOKS)
        return [entry.path for entry, lack in zip(files, found, strict=True) if lack]

    def new_directory(self, path: str) -> Entry:
        """A directory that the dump lacks, without an operation, as of the time of the dump. The
        same in every load of the dump."""
        return Entry(path, True, self.new_id(path), 1, self.time_ms // 1000, self.time_ms)

    def with_new_id(self, directory: Entry) -> Entry:
        """A directory of the dump under an id of its own. The same in every load of the dump."""
        return replace(directory, id=self.new_id(directory.path), operation="")

    def new_id(self, path: str) -> str:
        """The id of a directory that does not have one from the dump. The same in every load of the
        dump."""
        return self._derived(path)

    async def load(self, entries: Sequence[Entry], held: Callable[[], object]) -> None:
        """Log and write entries. Idempotent, also concurrently: items and operations are the same.
        `held` raises unless the volume's exclusive lock certainly is held."""
        # An object that was renamed during the dump is in it at both paths.
        for some in each_object_once(entries):
            await self._load(some, held)

    async def _load(self, entries: Sequence[Entry], held: Callable[[], object]) -> None:
        operations = [self._operation(entry) for entry in entries]
        store = self.volume.store
        held()
        # A log entry is immutable; segments may repeat the same operation.
        pending = await self.volume.log.begin(operations, together=True)
        held()
        after = [each.after for each in operations if each.after]
        await store.indexes.add_entries(after)
        held()
        await store.items.load([to_item(entry, store.keys) for entry in after])
        await pending.commit()

    def _operation(self, entry: Entry) -> Operation:
        """The log operation of a loaded entry: a creation at its version, at the time of the dump.
        The same in every load of the dump, since two operations of one version would contradict
        each other."""
        if not entry.operation:
            entry = replace(entry, operation=self._operation_id(entry))
        return Operation(
            id=entry.operation,
            kind="update" if entry.committed else "create",
            object_id=entry.id,
            version=entry.version,
            time_ms=max(self.time_ms, entry.mtime_ms),
            before=None,
            after=entry.without_intent(),
        )

    def _operation_id(self, entry: Entry) -> str:
        return self._derived(f"{entry.id} {entry.version}")

    def _derived(self, text: str) -> str:
        """An id that is the same in every load of the dump."""
        return _native.uuid_text(hashlib.sha256(f"{self.name} {text}".encode()).digest()[:16])


def lacking_bytes(paths: Sequence[str], path: str) -> DataMissingError:
    """The error for files without bytes. `path`: of the dump."""
    shown = ", ".join(paths[:SHOWN])
    more = " and others" if len(paths) > SHOWN else ""
    return DataMissingError(
        f"the bytes of files of the dump are not here: {shown}{more}", path=path
    )


async def off_loop(
    chunks: Generator[list[Entry], None, None],
) -> AsyncGenerator[list[Entry], None]:
    """The chunks, each read in a worker thread."""
    try:
        while (chunk := await in_thread(next, chunks, None)) is not None:
            yield chunk
    finally:
        chunks.close()
