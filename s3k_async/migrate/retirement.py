"""Retirement of the log of an S3-FileSystem 1.0 volume whose files a native volume has adopted.

The log objects `<object id>.info` are copied below `retired-1.0-log/`, the copies are compared, and
only then are the originals deleted. Before the first deletion a guard is written: a log entry that
S3-FileSystem 1.0 never writes, at which its `fsck fullRestore` ends with an error. Without the log
and without the guard that command would treat every physical object as garbage. It reads only keys
that begin with a hexadecimal digit, and so not the copies.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from s3k_async._core.concurrency import gather
from s3k_async.backends.ports.blobs import BlobInfo, BlobStore
from s3k_async.backends.ports.pagination import list_all
from s3k_async.errors import (
    BlobExistsError,
    BlobNotFoundError,
    BusyError,
    CorruptDataError,
    LogFormatError,
    PartialFailureError,
    UnsupportedError,
    VolumeMismatchError,
)
from s3k_async.model import ROOT, Progress
from s3k_async.oplog.binary_entries import JavaEntryV2, read_java, write_java
from s3k_async.oplog.log_objects import ENTRY_BYTES, read_object
from s3k_async.oplog.log_reader import GUARD, RETIRED
from s3k_async.volumes import Volume

__all__ = ["GRACE_SECONDS", "GUARD", "RETIRED", "Retirement", "retire_log"]

GRACE_SECONDS: Final = 300.0
"""Age below which a log object shows that the volume is still written to."""

_LOG_KEY: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.info", re.ASCII)
_BATCH: Final = 500
_AT_ONCE: Final = 32
_SHOWN: Final = 5

Tell = Callable[[Progress], object]


@dataclass(slots=True)
class Retirement:
    """Result of a retirement, or of a dry run."""

    objects: int = 0
    """Log objects of the old volume."""
    moved: int = 0
    """Those now below `retired-1.0-log/` alone."""
    reservations: int = 0
    """Uncommitted files of the old volume, without bytes and in no dump."""
    differing: list[str] = field(default_factory=list)
    """Files of the old volume that are missing in the new one, or other objects there."""


async def retire_log(
    old: Volume,
    new: Volume,
    *,
    dry_run: bool = True,
    force: bool = False,
    grace: float = GRACE_SECONDS,
    progress: Tell | None = None,
) -> Retirement:
    """Move the log of `old`, a volume of S3-FileSystem 1.0, after `new` has adopted its files.

    With `dry_run` nothing is changed. `old` must no longer be written to. The same call continues
    an interrupted run; at every moment each log object is at its old key or, with the same bytes,
    at its new one.

    `force`: also if the files of the two differ (`differing`), as when `new` has been in use.
    Raises UnsupportedError (`old` is no volume of S3-FileSystem 1.0 with a log, or `new` is one),
    VolumeMismatchError (their data is in different places, or files differ), BusyError (a log
    object is younger than `grace` seconds), CorruptDataError (a copy does not have the original's
    bytes), PartialFailureError (some could not be deleted), the services' errors.
    """
    if old.record.kind != "s3k-1.0" or old.log_blobs is None:
        raise UnsupportedError(
            "only the log of a volume of S3-FileSystem 1.0 is retired", path=old.record.name
        )
    if new.record.kind != "native":
        raise UnsupportedError("the successor has to be a native volume", path=new.record.name)
    if old.record.data != new.record.data:
        raise VolumeMismatchError(
            f"the bytes of {old.record.name!r} are in {old.record.data}, those of its successor in "
            f"{new.record.data}",
            path=new.record.name,
        )
    done = Retirement()
    await _compare(old, new, done)
    if done.differing and not force and not dry_run:
        shown = ", ".join(done.differing[:_SHOWN])
        raise VolumeMismatchError(
            f"{len(done.differing)} files of {old.record.name!r} are missing in its successor or "
            "others there, as"
            f" {shown}: load a new dump into a new volume, or use force if the successor has been "
            "changed since",
            path=new.record.name,
        )
    own_place = old.record.log == old.record.data
    moving = _Moving(
        old.log_blobs, old.record.name, own_place, dry_run, progress or (lambda _: None), done
    )
    await moving.need_quiet(grace)
    if not dry_run:
        # S3-FileSystem 1.0 looks for data and log in the data's bucket only.
        for blobs in (old.blobs,) if own_place else (old.blobs, old.log_blobs):
            await _write_guard(blobs, old)
    await moving.run()
    return done


async def _compare(old: Volume, new: Volume, done: Retirement) -> None:
    """Record files of the old volume that the new one lacks. The whole table is scanned: no
    listing reaches entries without a parent directory, which its clients read by their paths."""
    async with aclosing(old.store.scan(ROOT)) as pages:
        async for page in pages:
            files = [entry for entry in page if not entry.is_dir]
            done.reservations += sum(not entry.committed for entry in files)
            files = [entry for entry in files if entry.committed]
            there = await new.store.unrestricted().get_many([entry.path for entry in files])
            done.differing += [
                entry.path
                for entry, found in zip(files, there, strict=True)
                if found is None
                or (found.id, found.version, found.size) != (entry.id, entry.version, entry.size)
            ]


async def _write_guard(blobs: BlobStore, old: Volume) -> None:
    """Write an invalid entry: a creation with bytes, which would take an update."""
    entry = JavaEntryV2(
        ctime=1,
        size=0,
        physical=blobs.uri(f"{GUARD}.id={GUARD}"),
        logical=f"ks://{old.record.name}/retired-by-s3k",
        committed=True,
        version=1,
        id=GUARD,
        state="COMMITTED",
        kind="CREATE",
    )
    await blobs.put(f"{GUARD}.info", write_java(entry))


@dataclass(slots=True)
class _Moving:
    """The move of the log objects."""

    blobs: BlobStore
    name: str
    own_place: bool
    """Whether the log is among the volume's own bytes: then an unreadable entry counts as its own,
    unless other volumes have entries there."""
    dry_run: bool
    tell: Tell
    done: Retirement
    is_shared: bool = False
    """Whether an entry of another volume was read."""
    unreadable: list[BlobInfo] = field(default_factory=list)

    async def need_quiet(self, grace: float) -> None:
        """Raises BusyError if the log was written to within the grace period. Other volumes in its
        bucket may be in use."""
        oldest = await self.blobs.now_ms() - int(grace * 1000)
        async for batch in self._batches():
            young = [info for info in batch if info.mtime_ms > oldest]
            found = await gather(self._own, young, limit=_AT_ONCE)
            if any(data is not None for data in found) or (self.own_place and self.unreadable):
                raise BusyError(
                    f"the log was written to less than {grace:g} s ago: stop all writers of "
                    "S3-FileSystem 1.0 first",
                    path=self.name,
                )

    async def run(self) -> None:
        """Copy log objects, compare the copies, and delete the originals, in batches."""
        self.unreadable.clear()
        async for batch in self._batches():
            await self._move(batch)
        if self.own_place and not self.is_shared:
            for start in range(0, len(self.unreadable), _BATCH):
                await self._move(self.unreadable[start : start + _BATCH], unreadable=True)

    async def _move(self, batch: Sequence[BlobInfo], *, unreadable: bool = False) -> None:
        copy = partial(self._copy, unreadable=unreadable)
        keys = [key for key in await gather(copy, batch, limit=_AT_ONCE) if key is not None]
        self.done.objects += len(keys)
        if not self.dry_run:
            await self._delete(keys)
        self.tell(Progress("retire", self.done.objects))

    async def _delete(self, keys: Sequence[str]) -> None:
        failures = await self.blobs.delete_many(keys) if keys else []
        if failures:
            raise PartialFailureError(
                f"{len(failures)} log objects could not be deleted; repeat the command to continue",
                path=self.blobs.uri(failures[0].key),
                failures=[(failure.key, failure.error) for failure in failures],
            )
        self.done.moved += len(keys)

    async def _copy(self, info: BlobInfo, *, unreadable: bool) -> str | None:
        """Copy one object unless this is a dry run; returns its key, or None if it is not the
        volume's."""
        data = await self._own(info, unreadable=unreadable)
        if data is None:
            return None
        if self.dry_run:
            return info.key
        target = RETIRED + info.key
        if not await self._stored(target, data):
            # An earlier run retired another state of it: both are kept.
            target = f"{target}.{hashlib.sha256(data).hexdigest()[:16]}"
            if not await self._stored(target, data):
                raise CorruptDataError(
                    "the copy does not have the bytes of the log object",
                    path=self.blobs.uri(target),
                )
        return info.key

    async def _stored(self, key: str, data: bytes) -> bool:
        """Store a copy unless one exists; returns whether it has these bytes."""
        with suppress(BlobExistsError):
            await self.blobs.put(key, data, if_absent=True)
        return await self.blobs.get(key) == data

    async def _own(self, info: BlobInfo, *, unreadable: bool = False) -> bytes | None:
        """The content of a log object of the volume; None of another one. `unreadable`: whether
        one that cannot be decoded is the volume's; otherwise it is noted."""
        try:
            data = await read_object(self.blobs, info.key, ENTRY_BYTES)
        except (BlobNotFoundError, LogFormatError):
            return None
        try:
            is_own = read_java(data, info.key).logical.startswith(f"ks://{self.name}/")
        except LogFormatError:
            if unreadable:
                return data
            self.unreadable.append(info)
            return None
        self.is_shared = self.is_shared or not is_own
        return data if is_own else None

    async def _batches(self) -> AsyncIterator[Sequence[BlobInfo]]:
        batch: list[BlobInfo] = []
        async for info in list_all(self.blobs):
            if _LOG_KEY.fullmatch(info.key) and info.key != f"{GUARD}.info":
                batch.append(info)
            if len(batch) == _BATCH:
                yield batch
                batch = []
        if batch:
            yield batch
