"""Batches of a load: entries of a dump as items of the target volume, for the local loader and for
Spark tasks."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from dataclasses import dataclass, replace

from anyio.to_thread import run_sync

from s3k_async import _native
from s3k_async._core.concurrency import gather
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
from s3k_async.paths import normalize
from s3k_async.table.codec import from_items, to_item
from s3k_async.volumes import Volume

__all__ = ["SHOWN", "LoadTarget", "lacking_bytes", "off_loop"]

SHOWN = 5
"""Files that an error names."""
_LOOKS = 32


@dataclass(frozen=True, slots=True)
class LoadTarget:
    """A dump and the volume that it is loaded into."""

    volume: Volume
    path: str
    """Where the dump is."""
    name: str
    """What names the dump in the volume record."""
    time_ms: int
    """When it was made."""

    def judge(self, chunk: Sequence[Entry]) -> None:
        """Raise CorruptDataError and NotDirectoryError for what the volume cannot hold."""
        keys = self.volume.store.keys
        if len({entry.path for entry in chunk}) < len(chunk):
            raise CorruptDataError("the dump holds a path twice", path=self.path)
        try:
            from_items([to_item(entry, keys) for entry in chunk], keys)
            for entry in chunk:
                operation_line(self._operation(entry), self.path)
        except (ItemFormatError, LogFormatError) as error:
            raise CorruptDataError(
                f"an entry of the dump is none: {error.message}", path=self.path
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
                    f"a path of the dump is no normal one: {entry.path!r}", path=self.path
                )

    async def lacking(self, chunk: Sequence[Entry]) -> list[str]:
        """The files whose bytes are not here."""

        async def lacks(entry: Entry) -> bool:
            try:
                await self.volume.storage.check(entry.content)
            except (CorruptDataError, DataMissingError, UnsupportedError):
                return True
            return False

        files = [entry for entry in chunk if entry.committed]
        found = await gather(lacks, files, limit=_LOOKS)
        return [entry.path for entry, lack in zip(files, found, strict=True) if lack]

    async def load(self, entries: Sequence[Entry], held: Callable[[], object]) -> None:
        """Log and write entries. Doing it again, or twice at the same time, leaves the same items
        and the same operations. `held` raises unless the volume's exclusive lock certainly is held.
        """
        operations = [self._operation(entry) for entry in entries]
        store = self.volume.store
        held()
        # An entry of the log has one content for ever; segments can tell the same operation twice.
        pending = await self.volume.log.begin(operations, together=True)
        held()
        await store.items.load(
            [to_item(operation.after, store.keys) for operation in operations if operation.after]
        )
        await pending.commit()

    def _operation(self, entry: Entry) -> Operation:
        """What the log says of an entry that is loaded: as if it had been made at its version, when
        it was dumped. The same whenever the dump is loaded, since two operations of one version
        would contradict each other."""
        if not entry.operation:
            entry = replace(entry, operation=self._operation_id(entry))
        return Operation(
            id=entry.operation,
            kind="update" if entry.committed else "create",
            object_id=entry.id,
            version=entry.version,
            time_ms=max(self.time_ms, entry.mtime_ms),
            before=None,
            after=replace(entry, pending=""),
        )

    def _operation_id(self, entry: Entry) -> str:
        text = f"{self.name} {entry.id} {entry.version}"
        return _native.uuid_text(hashlib.sha256(text.encode()).digest()[:16])


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
    """The portions, each read by a thread."""
    try:
        while (chunk := await run_sync(next, chunks, None)) is not None:
            yield chunk
    finally:
        chunks.close()
