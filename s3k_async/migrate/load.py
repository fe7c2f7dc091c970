"""Load of a dump into an empty volume of any backend, suffix count and hash."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass, field, replace
from typing import Protocol

from s3k_async._core.concurrency import gather
from s3k_async._core.metering import RequestCounter, Requests, counted
from s3k_async._core.os_errors import os_errors
from s3k_async._core.runtime import SYSTEM, Runtime
from s3k_async._core.worker_threads import in_thread
from s3k_async.config import VolumeConfig
from s3k_async.errors import (
    DirectoryNotEmptyError,
    InvalidArgumentError,
    PathNotFoundError,
    UnsupportedError,
)
from s3k_async.migrate.dump_directories import DumpDirectories
from s3k_async.migrate.dump_format import DumpEnd, DumpFile, DumpHeader
from s3k_async.migrate.dump_reader import open_dump
from s3k_async.migrate.load_batch import SHOWN, LoadTarget, lacking_bytes, off_loop
from s3k_async.model import Entry, Progress
from s3k_async.txn.volume_lock import VolumeLock
from s3k_async.txn.volume_record import has_entries
from s3k_async.volumes import Volume
from s3k_async.volumes.claims import renew
from s3k_async.volumes.exclusive_volume import exclusive_volume

__all__ = ["DumpFacts", "LoadResult", "Loader", "NewDirectories", "load_by", "load_volume"]

_COPIES = 16
_NAME = 32
"""Characters of the dump's digest in the record."""


@dataclass(frozen=True, slots=True)
class LoadResult:
    """Result of a load. `skipped`: entries loaded before by an interrupted load of the same dump;
    `made`: directories that occur in the dump only as parents; `new_ids`: directories of the dump
    with the id of another one, because they were renamed during the dump. In layout `tree` they are
    loaded under new ids."""

    entries: int
    files: int
    directories: int
    bytes: int
    skipped: int
    made: int
    new_ids: int = 0
    requests: Requests = field(default_factory=Requests, compare=False)


@dataclass(frozen=True, slots=True)
class NewDirectories:
    """Directories that a load did not take from the dump as they are: counts as of LoadResult."""

    made: int
    new_ids: int = 0


@dataclass(frozen=True, slots=True)
class DumpFacts:
    """A verified dump."""

    path: str
    header: DumpHeader
    end: DumpEnd
    digest: str

    @property
    def name(self) -> str:
        """Its id in the volume record."""
        return self.digest[:_NAME]

    def landing(self, volume: Volume) -> LoadTarget:
        """The dump and its target volume."""
        return LoadTarget(volume, self.path, self.name, self.header.time_ms)


class Loader(Protocol):
    """Runner of a load: this machine, or tasks."""

    @property
    def dump(self) -> DumpFacts: ...

    async def judge(self, volume: Volume, lock: VolumeLock, *, check: bool) -> None:
        """Raise for a dump that this volume cannot hold; with `check`, for files whose bytes are
        missing."""

    async def run(self, volume: Volume, lock: VolumeLock) -> NewDirectories:
        """Load the rest, recorded in the lock, and wait until no delegate works under it."""


async def load_volume(
    source: str,
    config: VolumeConfig,
    *,
    check: bool = False,
    adopt: bool = False,
    bytes_from: Volume | None = None,
    progress: Callable[[Progress], object] | None = None,
    runtime: Runtime = SYSTEM,
    session: object | Mapping[str, object] | None = None,
    counter: RequestCounter | None = None,
) -> LoadResult:
    """Load the dump in the file `source` into an empty volume, which is created if it does not
    exist (with the dump's suffix count and hash, unless `config` has others).

    Ids, versions, times and physical keys are kept, and everything is logged. The volume is locked
    meanwhile, see `volumes.exclusive_volume`; another load of the same dump finishes an interrupted
    one. A dump of another volume is loaded only if its bytes are here as well: `check` verifies
    every file's before the first change, `bytes_from` copies them from that volume, under fresh
    keys. `adopt` is for a dump of a volume of S3-FileSystem 1.0 whose bytes are below the data
    location: each file is checked as by `check`, and adopted in place, by its URI and etag.

    Raises PathNotFoundError (no such dump), CorruptDataError (it is truncated or damaged),
    DirectoryNotEmptyError (the volume is not empty), InvalidArgumentError (another volume's dump),
    DataMissingError (`check`), UnsupportedError (files with extents, in a volume without them; with
    `bytes_from` they become whole) and BusyError, with nothing changed, except that a new volume is
    kept, empty; NotDirectoryError, LeaseExpiredError; and the services' errors.
    """
    if adopt and bytes_from is not None:
        raise InvalidArgumentError(
            "bytes are adopted where they are, or copied; not both", path=source
        )
    loader = await in_thread(
        _alone, source, bytes_from, adopt, progress or (lambda _: None), runtime
    )
    if adopt and loader.dump.header.volume_id:
        raise InvalidArgumentError(
            "only the bytes of a volume of S3-FileSystem 1.0 are adopted: those of a native volume "
            "are its own",
            path=source,
        )
    return await load_by(
        loader,
        config,
        check=check or adopt,
        adopt=adopt,
        bytes_from=bytes_from,
        runtime=runtime,
        session=session,
        counter=counter,
    )


@counted
async def load_by(
    loader: Loader,
    config: VolumeConfig,
    *,
    check: bool = False,
    adopt: bool = False,
    bytes_from: Volume | None = None,
    runtime: Runtime = SYSTEM,
    session: object | Mapping[str, object] | None = None,
    counter: RequestCounter | None = None,
) -> LoadResult:
    """`load_volume` with a runner."""
    dump, end = loader.dump, loader.dump.end
    lock = VolumeLock("load", dump.name, runtime)
    made = config
    if config.suffix_count is None:
        made = replace(
            config, suffix_count=dump.header.suffix_count, hash=config.hash or dump.header.hash
        )
    async with exclusive_volume(
        config,
        lock,
        create=True,
        made=made,
        adopting=adopt,
        runtime=runtime,
        session=session,
        counter=counter,
    ) as volume:
        # Clients of a lost table may still be open when a new one is made for its bytes.
        lock.alone = lock.alone and volume.record.volume_id != dump.header.volume_id
        skipped = lock.done
        if not lock.touched:
            await _require_empty(volume, config)
        _require_bytes(volume, dump, check=check, bytes_from=bytes_from)
        await loader.judge(volume, lock, check=check and bytes_from is None)
        await lock.wait_for_clients_to_stop()
        if not lock.touched:
            await _require_empty(volume, config)
        lock.touched = True
        new = await loader.run(volume, lock)
        record = volume.record
        await renew(
            volume.place,
            record.volume_id,
            {"suffix_count": record.suffix_count, "hash": record.hash},
        )
        return LoadResult(
            end.entries, end.files, end.directories, end.bytes, skipped, new.made, new.new_ids
        )


def _alone(
    source: str,
    bytes_from: Volume | None,
    adopt: bool,
    progress: Callable[[Progress], object],
    runtime: Runtime,
) -> _LocalLoader:
    with os_errors(source):
        try:
            dump = open_dump(source)
        except FileNotFoundError as error:
            raise PathNotFoundError("no such file", path=source) from error
        facts = DumpFacts(source, dump.header, dump.verify(), dump.digest())
        return _LocalLoader(facts, dump, bytes_from, adopt, progress, runtime)


async def _require_empty(volume: Volume, config: VolumeConfig) -> None:
    if await has_entries(volume.items):
        trash = " (its trash counts as well)" if volume.store.layout.has_trash else ""
        raise DirectoryNotEmptyError(
            f"a dump is loaded into an empty volume; this one is not{trash}", path=config.name
        )


def _require_bytes(
    volume: Volume, dump: DumpFacts, *, check: bool, bytes_from: Volume | None
) -> None:
    """Refuse entries whose bytes cannot be at their physical keys."""
    header = dump.header
    if bytes_from is not None:
        if bytes_from.record.volume_id != header.volume_id:
            raise InvalidArgumentError(
                f"the dump is not of the volume {bytes_from.record.name!r}, from which to copy the "
                "bytes",
                path=dump.path,
            )
    elif dump.end.files and not check and header.volume_id != volume.record.volume_id:
        raise InvalidArgumentError(
            f"the dump is of another volume ({header.volume!r}, bytes in {header.data}), whose "
            "bytes are not here: have"
            " them copied along, adopt those of a volume of S3-FileSystem 1.0 in the same bucket, "
            "or copy them under"
            " the same keys yourself and ask for the check",
            path=dump.path,
        )


@dataclass(frozen=True, slots=True)
class _LocalLoader:
    """Runner of a load in this process, in the order of the dump."""

    dump: DumpFacts
    file: DumpFile
    bytes_from: Volume | None
    adopt: bool
    progress: Callable[[Progress], object]
    runtime: Runtime

    async def judge(self, volume: Volume, lock: VolumeLock, *, check: bool) -> None:  # noqa: ARG002
        landing = self.dump.landing(volume)
        missing: list[str] = []
        async with aclosing(off_loop(self.file.chunks())) as chunks:
            async for chunk in chunks:
                await in_thread(landing.judge, chunk)
                if self.bytes_from is not None:
                    _require_copyable(chunk, self.bytes_from)
                landing.require_features(chunk, whole=self.bytes_from is not None)
                if check:
                    missing += await landing.lacking(chunk)
                if len(missing) > SHOWN:
                    break
        if missing:
            raise lacking_bytes(missing, self.dump.path)

    async def run(self, volume: Volume, lock: VolumeLock) -> NewDirectories:
        landing, seen = self.dump.landing(volume), 0
        directories = DumpDirectories(landing, self.runtime)
        with closing(directories):
            async with aclosing(off_loop(self.file.chunks())) as chunks:
                async for chunk in chunks:
                    own = directories.remember(chunk)
                    left = own[max(0, lock.done - seen) :]
                    seen += len(chunk)
                    if left:
                        made, left = await directories.placed(left)
                        whole = [*made, *await self._with_bytes(volume, left)]
                        await landing.load(whole, lock.check)
                        lock.done = seen
                        self.progress(Progress("load", seen, self.dump.end.entries))
        return NewDirectories(directories.made, directories.new_ids)

    async def _with_bytes(self, volume: Volume, chunk: Sequence[Entry]) -> Sequence[Entry]:
        """The entries, with bytes copied or adopted on request."""
        source = self.bytes_from
        if source is None and not self.adopt:
            return chunk
        keys = [entry.entry_key for entry in chunk]
        loaded = dict(zip(chunk, await volume.store.stored_many(keys), strict=True))

        async def own(entry: Entry) -> Entry:
            present = loaded[entry]
            if present is not None and (present.id, present.version) == (entry.id, entry.version):
                # by an interrupted load: the log has these bytes already
                return replace(present, path=entry.path)
            if not entry.committed or entry.physical is None:
                return entry
            if source is None:
                content = await volume.storage.adopted(entry.content)
            else:
                storage = volume.storage.at(entry.path)
                content = await storage.copy_from(source.storage, entry.content, entry.id)
            return replace(
                entry, physical=content.physical, etag=content.etag, checksum=content.checksum
            )

        return await gather(own, chunk, limit=_COPIES)


def _require_copyable(chunk: Sequence[Entry], source: Volume) -> None:
    for entry in chunk:
        if (
            entry.committed
            and entry.physical is not None
            and not source.storage.can_read(entry.physical)
        ):
            raise UnsupportedError(
                "the file's bytes lie outside the volume that was dumped", path=entry.path
            )
