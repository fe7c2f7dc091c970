"""Loading a dump into an empty volume, whatever its engine, suffix count or hash."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from anyio.to_thread import run_sync

from s3k_async import _native
from s3k_async.concurrency import gather
from s3k_async.config import VolumeConfig
from s3k_async.errors import (
    CorruptDataError,
    DataMissingError,
    DirectoryNotEmptyError,
    InvalidArgumentError,
    ItemFormatError,
    LogFormatError,
    NotDirectoryError,
    PathNotFoundError,
    UnsupportedError,
)
from s3k_async.metadata.codec import from_items, to_item
from s3k_async.metadata.exclusive import ExclusiveLock
from s3k_async.metadata.keys import ENTRY_PREFIX
from s3k_async.model import Entry, Progress
from s3k_async.moving.formats import DumpEnd, DumpFile, open_dump
from s3k_async.moving.parents import Parents
from s3k_async.oplog.entries import Operation, operation_line
from s3k_async.paths import normalize
from s3k_async.requests import RequestCounter, Requests, counted
from s3k_async.sources import SYSTEM, Sources
from s3k_async.stores.faults import FaultPlan
from s3k_async.stores.items import PARTITION, ItemStore
from s3k_async.stores.os_errors import os_errors
from s3k_async.volumes import Volume
from s3k_async.volumes.claims import renew
from s3k_async.volumes.exclusive import exclusive_volume

__all__ = ["LoadResult", "load_volume"]

_LOOKS = 32
_COPIES = 16
_SHOWN = 5
_SUBJECT = 32
"""Characters of the dump's digest in the record."""


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What was loaded. `skipped`: entries that an interrupted load of the same dump had loaded before; `made`:
    directories that the dump names only as parents."""

    entries: int
    files: int
    directories: int
    bytes: int
    skipped: int
    made: int
    requests: Requests = field(default_factory=Requests, compare=False)


@counted
async def load_volume(
    source: str,
    config: VolumeConfig,
    *,
    check: bool = False,
    bytes_from: Volume | None = None,
    progress: Callable[[Progress], object] | None = None,
    sources: Sources = SYSTEM,
    session: object | Mapping[str, object] | None = None,
    faults: FaultPlan | None = None,
    counter: RequestCounter | None = None,
) -> LoadResult:
    """Load the dump in the file `source` into an empty volume, which is made if it does not exist (with the dump's
    suffix count and hash, unless `config` says otherwise).

    Ids, versions, times and physical keys are kept, and everything is logged. The volume is locked meanwhile, see
    `volumes.exclusive`; an interrupted load is finished by loading the same dump again. A dump of another volume is
    loaded only if its bytes are here as well: `check` asks for every file's before anything is changed, `bytes_from`
    copies them from that volume, under fresh keys.

    Raises PathNotFoundError (no such dump), CorruptDataError (it was cut or damaged), DirectoryNotEmptyError (the
    volume is not empty), InvalidArgumentError (another volume's dump), DataMissingError (`check`) and BusyError, with
    nothing changed, but that a volume that was made for it stays, empty; NotDirectoryError, LeaseExpiredError; and the
    services' errors.
    """
    dump, end, subject = await run_sync(_opened, source)
    lock = ExclusiveLock("load", subject, sources)
    made = config
    if config.suffix_count is None:
        made = replace(config, suffix_count=dump.header.suffix_count, hash=config.hash or dump.header.hash)
    async with exclusive_volume(
        config, lock, create=True, made=made, sources=sources, session=session, faults=faults, counter=counter
    ) as volume:
        # A table that is made anew for bytes that were there may have been in use until it was lost.
        lock.alone = lock.alone and volume.record.volume_id != dump.header.volume_id
        skipped = lock.done
        load = _Load(volume, dump, lock, bytes_from, sources)
        if not lock.touched:
            await _require_empty(volume.items, config)
        _require_bytes(volume, dump, end, check=check, bytes_from=bytes_from)
        await load.judge(check=check and bytes_from is None)
        await lock.quiet()
        if not lock.touched:
            await _require_empty(volume.items, config)
        lock.touched = True
        tell = progress or (lambda _: None)
        await load.run(lambda done: tell(Progress("load", done, end.entries)))
        record = volume.record
        await renew(volume.blobs, record.volume_id, {"suffix_count": record.suffix_count, "hash": record.hash})
        return LoadResult(end.entries, end.files, end.directories, end.bytes, skipped, load.parents.made)


def _opened(source: str) -> tuple[DumpFile, DumpEnd, str]:
    """The dump, read once to its end, what it holds, and what names it in the volume record."""
    with os_errors(source):
        try:
            dump = open_dump(source)
        except FileNotFoundError as error:
            raise PathNotFoundError("no such file", path=source) from error
        return dump, dump.verify(), dump.digest()[:_SUBJECT]


async def _require_empty(items: ItemStore, config: VolumeConfig) -> None:
    cursor: str | None = None
    while True:
        page = await items.scan(0, 1, cursor=cursor)
        if any(str(item[PARTITION]).startswith(ENTRY_PREFIX) for item in page.items):
            raise DirectoryNotEmptyError("a dump is loaded into an empty volume; this one is not", path=config.name)
        if page.next is None:
            return
        cursor = page.next


def _require_bytes(volume: Volume, dump: DumpFile, end: DumpEnd, *, check: bool, bytes_from: Volume | None) -> None:
    """Refuse entries whose bytes cannot be where the entries say."""
    header = dump.header
    if bytes_from is not None:
        if bytes_from.record.volume_id != header.volume_id:
            raise InvalidArgumentError(
                f"the dump is not of the volume {bytes_from.record.name!r}, from which to copy the bytes",
                path=dump.path,
            )
    elif end.files and not check and header.volume_id != volume.record.volume_id:
        raise InvalidArgumentError(
            f"the dump is of another volume ({header.volume!r}, bytes in {header.data}), whose bytes are not here: have"
            " them copied along, or copy them under the same keys yourself and ask for the check",
            path=dump.path,
        )


class _Load:
    """One load under way."""

    def __init__(
        self, volume: Volume, dump: DumpFile, lock: ExclusiveLock, bytes_from: Volume | None, sources: Sources
    ) -> None:
        self._volume = volume
        self._dump = dump
        self._lock = lock
        self._bytes_from = bytes_from
        self._sources = sources
        self.parents = Parents(volume.store, sources)

    async def judge(self, *, check: bool) -> None:
        """Raise for a dump that this volume cannot hold; with `check`, for files whose bytes are not here."""
        missing: list[str] = []
        async with aclosing(_portions(self._dump)) as portions:
            async for portion in portions:
                await run_sync(self._judge_portion, portion)
                if check:
                    missing += await self._missing([entry for entry in portion if entry.committed])
                if len(missing) > _SHOWN:
                    break
        if missing:
            shown = ", ".join(missing[:_SHOWN])
            more = " and others" if len(missing) > _SHOWN else ""
            raise DataMissingError(f"the bytes of files of the dump are not here: {shown}{more}", path=self._dump.path)

    def _judge_portion(self, portion: Sequence[Entry]) -> None:
        keys = self._volume.store.keys
        if len({entry.path for entry in portion}) < len(portion):
            raise CorruptDataError("the dump holds a path twice", path=self._dump.path)
        try:
            from_items([to_item(entry, keys) for entry in portion], keys)
            for entry in portion:
                operation_line(self._operation(entry), self._dump.path)
        except (ItemFormatError, LogFormatError) as error:
            raise CorruptDataError(f"an entry of the dump is none: {error.message}", path=self._dump.path) from error
        files = {entry.path for entry in portion if not entry.is_dir}
        through = files.intersection(path for entry in portion for path in _native.ancestors(entry.path))
        if through:
            raise NotDirectoryError("the path of an entry of the dump leads through a file", path=min(through))
        if self._bytes_from is not None:
            self._require_copyable(portion, self._bytes_from)
        for entry in portion:
            if normalize(entry.path) != entry.path:
                raise CorruptDataError(f"a path of the dump is no normal one: {entry.path!r}", path=self._dump.path)

    def _require_copyable(self, portion: Sequence[Entry], source: Volume) -> None:
        for entry in portion:
            if entry.committed and entry.physical is not None and source.storage.own_key(entry.physical) is None:
                raise UnsupportedError("the file's bytes lie outside the volume that was dumped", path=entry.path)

    async def _missing(self, files: Sequence[Entry]) -> list[str]:
        async def lacks(entry: Entry) -> bool:
            try:
                return await self._volume.storage.size_of(entry.physical or "") != entry.size
            except UnsupportedError:
                return True

        lacking = await gather(lacks, files, limit=_LOOKS)
        return [entry.path for entry, lack in zip(files, lacking, strict=True) if lack]

    async def run(self, progress: Callable[[int], object]) -> None:
        """Load what is not loaded yet; `progress` is told how many entries of the dump are."""
        seen = 0
        async with aclosing(_portions(self._dump)) as portions:
            async for portion in portions:
                self.parents.remember(portion)
                left = portion[max(0, self._lock.done - seen) :]
                seen += len(portion)
                if left:
                    await self._load(left)
                    self._lock.done = seen
                    progress(seen)

    async def _load(self, portion: Sequence[Entry]) -> None:
        entries = [*await self.parents.missing(portion), *await self._with_bytes(portion)]
        operations = [self._operation(entry) for entry in entries]
        store = self._volume.store
        pending = await self._volume.log.begin(operations)
        self._lock.check()
        await store.items.load([to_item(operation.after, store.keys) for operation in operations if operation.after])
        await pending.commit()

    async def _with_bytes(self, portion: Sequence[Entry]) -> Sequence[Entry]:
        """The entries, their bytes copied along if they are to be."""
        source = self._bytes_from
        if source is None:
            return portion
        storage = source.storage
        loaded = dict(zip(portion, await self._volume.store.get_many([entry.path for entry in portion]), strict=True))

        async def copied(entry: Entry) -> Entry:
            present = loaded[entry]
            if present is not None and (present.id, present.version) == (entry.id, entry.version):
                return present  # by a load that was interrupted: the log names these bytes already
            if not entry.committed or entry.physical is None:
                return entry
            content = await self._volume.storage.copy_from(
                storage, entry.physical, entry.id, entry.size, entry.checksum
            )
            return replace(entry, physical=content.physical, etag=content.etag, checksum=content.checksum)

        return await gather(copied, portion, limit=_COPIES)

    def _operation(self, entry: Entry) -> Operation:
        """What the log says of an entry that is loaded: as if it had been made at its version."""
        if not entry.operation:
            entry = replace(entry, operation=self._sources.uuid())
        return Operation(
            id=entry.operation,
            kind="update" if entry.committed else "create",
            object_id=entry.id,
            version=entry.version,
            time_ms=self._sources.now_ms(),
            before=None,
            after=replace(entry, pending=""),
        )


async def _portions(dump: DumpFile) -> AsyncGenerator[list[Entry], None]:
    portions = dump.portions()
    try:
        while (portion := await run_sync(next, portions, None)) is not None:
            yield portion
    finally:
        portions.close()
