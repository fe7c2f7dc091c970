"""Reshard: change of a volume's suffix count or hash, in place. Design:
docs/design/005-resharding.md.

Under the volume lock: check, copy every entry with a changed key, change the record (the commit
point), remove the old copies. The same call again finishes an interrupted reshard.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from s3k_async._core.metering import RequestCounter, Requests, counted
from s3k_async._core.runtime import SYSTEM, Runtime
from s3k_async.config import VolumeConfig
from s3k_async.errors import ConfigError
from s3k_async.migrate.reshard_pass import PassName, PassResult, ReshardPass
from s3k_async.migrate.table_walk import walk_table
from s3k_async.model import HashName, Progress
from s3k_async.table.keys import KeyScheme
from s3k_async.txn.volume_lock import VolumeLock
from s3k_async.txn.volume_record import LOCK_DONE, VolumeRecord, write_tag
from s3k_async.volumes import Volume, open_volume
from s3k_async.volumes.claims import renew
from s3k_async.volumes.creation import MAX_SUFFIX_COUNT
from s3k_async.volumes.exclusive_volume import exclusive_volume

__all__ = ["ReshardResult", "TableWalker", "reshard_volume"]

_CHECKED = 1
"""Progress in the lock after the check of the table."""


@dataclass(frozen=True, slots=True)
class ReshardResult:
    """Result of a reshard. `entries`: of the volume; `moved`: those that this call moved to another
    key."""

    suffix_count: int
    hash: HashName
    entries: int
    moved: int
    requests: Requests = field(default_factory=Requests, compare=False)


class TableWalker(Protocol):
    """A runner of passes in other processes."""

    async def walk(self, volume: Volume, work: ReshardPass, lock: VolumeLock) -> PassResult:
        """Run one pass over the whole table, under the lock."""

    async def finish(self, volume: Volume, lock: VolumeLock) -> None:
        """Wait until no delegate works under the lock, which is released next."""


@counted
async def reshard_volume(
    config: VolumeConfig,
    suffix_count: int,
    *,
    hash: HashName | None = None,
    progress: Callable[[Progress], object] | None = None,
    runtime: Runtime = SYSTEM,
    session: object | Mapping[str, object] | None = None,
    counter: RequestCounter | None = None,
    walker: TableWalker | None = None,
) -> ReshardResult:
    """Change a volume's suffix count, and its hash if one is given. No effect if they are equal.

    Other clients cannot use the volume meanwhile, and must open it again afterwards (BusyError,
    then VolumeMismatchError; see `txn.volume_lock`). An interrupted reshard leaves the volume
    locked; the same call again finishes it. `walker`: the runner of the passes; None: this machine
    alone.

    Raises ConfigError (invalid suffix count), ItemFormatError (the table has damaged or misplaced
    items: run fsck first), InvalidPathError (a key would be too long), PermissionDeniedError (the
    table's tag cannot be written), BusyError, with nothing changed; LeaseExpiredError; and the
    services' errors.
    """
    if not 1 <= suffix_count <= MAX_SUFFIX_COUNT:
        raise ConfigError(
            f"the suffix count is 1 to {MAX_SUFFIX_COUNT}, not {suffix_count}", path=config.name
        )
    config = replace(config, suffix_count=None, hash=None)
    volume = await open_volume(config, runtime=runtime, session=session, locked=True)
    wanted = hash or volume.record.hash
    await volume.close()
    lock = VolumeLock("reshard", f"{suffix_count} {wanted}", runtime)
    async with exclusive_volume(
        config, lock, runtime=runtime, session=session, counter=counter
    ) as volume:
        target = replace(volume.record, suffix_count=suffix_count, hash=wanted)
        if target == volume.record and not lock.touched:
            return ReshardResult(suffix_count, wanted, 0, 0)
        target.to_tag()  # checked before the first change
        await lock.wait_for_clients_to_stop()
        return await _Reshard(volume, target, lock, walker or _LocalWalker(progress)).run(runtime)


class _Reshard:
    """One reshard in progress."""

    def __init__(
        self, volume: Volume, target: VolumeRecord, lock: VolumeLock, walker: TableWalker
    ) -> None:
        record = volume.record
        self._volume = volume
        self._target = target
        self._lock = lock
        self._walker = walker
        self._old = KeyScheme(record.name, record.suffix_count, record.hash, record.layout)
        self._new = KeyScheme(target.name, target.suffix_count, target.hash, target.layout)

    async def run(self, runtime: Runtime) -> ReshardResult:
        volume, target, policy = self._volume, self._target, self._volume.config.tuning.retry.write
        copied = PassResult()
        if target != volume.record:
            if self._lock.done < _CHECKED:
                self._lock.touched = False  # the interrupted run had not started to copy
                await self._everywhere("check")
                await write_tag(
                    volume.table, volume.record, runtime, policy
                )  # checks that must not fail later
                self._lock.touched = True
                self._lock.done = _CHECKED
                await self._lock.change(volume.items, {LOCK_DONE: _CHECKED})
            copied = await self._everywhere("copy")
            await self._lock.change(
                volume.items, {"suffix_count": target.suffix_count, "hash": target.hash}
            )
        self._lock.check()
        await write_tag(volume.table, target, runtime, policy)
        layout = {"suffix_count": target.suffix_count, "hash": target.hash}
        await renew(volume.place, target.volume_id, layout)
        cleaned = await self._everywhere("clean")
        await self._walker.finish(volume, self._lock)
        return ReshardResult(
            target.suffix_count, target.hash, cleaned.entries, max(copied.moved, cleaned.moved)
        )

    async def _everywhere(self, name: PassName) -> PassResult:
        return await self._walker.walk(
            self._volume, ReshardPass(name, self._old, self._new), self._lock
        )


class _LocalWalker:
    """Runner in this process, with a few concurrent segments of the table."""

    def __init__(self, progress: Callable[[Progress], object] | None) -> None:
        self._progress = progress or (lambda _: None)

    async def walk(self, volume: Volume, work: ReshardPass, lock: VolumeLock) -> PassResult:
        return await walk_table(
            volume, work, lock, lambda done: self._progress(Progress("reshard", done))
        )

    async def finish(self, volume: Volume, lock: VolumeLock) -> None:
        pass  # no other client works
