"""Log compaction: writes a checkpoint, then removes the log objects that it covers.

The order makes every crash harmless. Before the manifest is written nothing has changed: parts
without one are not read, and a later compaction removes them. Afterwards each removal is of content
that the checkpoint has as well: entries in any order, because an entry never outweighs a checkpoint
of the same version; segments in any order, because the manifest covers them. The next run removes
leftovers. Of a volume that is destroyed meanwhile there is no next run, so that the compaction
removes its own checkpoint: it reads the volume record after its last write, and destruction lists
the log after it has marked the record.

Concurrent compactions are harmless: each writes a checkpoint of its own, and removes only the
objects it has read. Entries and segments that are pending or hold an operation of unknown outcome
or one younger than the grace period are skipped, and so are unreadable objects. Several committed
operations for one version are all kept.

A tombstone is dropped once it is old and the log holds nothing else on its object, and only if the
whole log was readable: so it lasts at least until the compaction after the one that removed
everything older.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from s3k_async._core.runtime import Runtime
from s3k_async.backends.ports.blobs import MAX_DELETION, BlobStore
from s3k_async.backends.ports.pagination import list_all
from s3k_async.errors import (
    LeaseExpiredError,
    PartialFailureError,
    PermissionDeniedError,
    VolumeNotFoundError,
)
from s3k_async.model import Progress
from s3k_async.oplog.checkpoints import (
    MANIFESTS,
    PART_BYTES,
    PARTS,
    Checkpoint,
    CheckpointWriter,
    owner_of_part,
)
from s3k_async.oplog.damage import DamagedLog
from s3k_async.oplog.entries import LogRecord
from s3k_async.oplog.external_sort import ExternalSort
from s3k_async.oplog.log_objects import QUARANTINE
from s3k_async.oplog.log_reader import LogReader, latest
from s3k_async.oplog.segment_ids import SegmentIds

__all__ = ["GRACE_SECONDS", "MAX_SEGMENTS", "TOMBSTONE_SECONDS", "Compaction", "Compactor"]

GRACE_SECONDS: Final = 3 * 86_400.0
"""Younger operations are kept, so that their history can be read: as long as garbage collection
keeps the data of deleted files."""
MAX_SEGMENTS: Final = 50_000
"""Most segments, or runs of numbered ones, of one checkpoint: the manifest lists them. The next run
covers the next."""

TOMBSTONE_SECONDS: Final = 86_400.0
"""Minimum age of dropped tombstones, independent of the grace period. A compaction gives up after
half of this time, so that none that began before a removal can write the removed object's earlier
state after the tombstone was dropped."""

_PENDING, _COMMITTED, _MANIFEST, _PART = range(4)
"""Order of removal."""


@dataclass(slots=True)
class Compaction:
    """Result of a compaction, or of a dry run."""

    objects: int = 0
    """Objects in the checkpoint, deleted ones included."""
    tombstones: int = 0
    """Deleted objects among them."""
    dropped: int = 0
    """Dropped tombstones."""
    removable: int = 0
    """Log objects that the checkpoint covers, older checkpoints included."""
    removed: int = 0
    checkpoint: str = ""
    """Id of the written checkpoint; empty if there was nothing to do, or for a dry run."""
    damaged: list[DamagedLog] = field(default_factory=list)


class Compactor:
    """Compaction of one log. `directory`: of the temporary file (about the size of the log).
    `need_volume` raises VolumeNotFoundError if the volume of the log was destroyed."""

    def __init__(
        self,
        blobs: BlobStore,
        runtime: Runtime,
        *,
        grace: float = GRACE_SECONDS,
        directory: str | None = None,
        part_bytes: int = PART_BYTES,
        need_volume: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._blobs = blobs
        self._runtime = runtime
        self._directory = directory
        self._part_bytes = part_bytes
        self._need_volume = need_volume
        self._reader = LogReader(blobs)
        self._grace = grace
        self._since = runtime.monotonic()
        self._began_ms = self._before_ms = self._forgotten_ms = self._history_ms = 0

    async def run(
        self, *, dry_run: bool = True, progress: Callable[[Progress], object] | None = None
    ) -> Compaction:
        """Read the whole log, and unless `dry_run` write a checkpoint and remove the covered
        objects.

        Damage is reported and kept. Raises the store's errors, LeaseExpiredError for a run over its
        time limit, VolumeNotFoundError if the volume was destroyed since, and PartialFailureError
        for objects that could not be removed: the next run continues.
        """
        tell = progress or (lambda _: None)
        done = Compaction()
        await self._begin(dry_run=dry_run)
        with ExternalSort(self._directory) as sorter:
            sorter.database.execute(
                "CREATE TABLE removals (key TEXT NOT NULL, turn INTEGER NOT NULL)"
            )
            segments = await self._read(sorter, done, tell)
            await self._read_checkpoints(sorter, done)
            await self._note_strays(sorter)
            done.removable = sorter.database.execute("SELECT count(*) FROM removals").fetchone()[0]
            writer = None
            if not dry_run and done.removable:
                writer = CheckpointWriter(
                    self._blobs, self._runtime.uuid(), self._began_ms, part_bytes=self._part_bytes
                )
            if writer is None:
                await self._write(sorter, None, done)
                return done
            try:
                await self._write(sorter, writer, done)
                await self._need_time()
                # Readers of a manifest do not read the segments that it covers.
                if self._need_volume is not None:
                    await self._need_volume()
                done.checkpoint = (await writer.finish(segments, self._history_ms)).id
            finally:
                await self._need_volume_of(writer)
            await self._remove(sorter, done, tell)
        return done

    async def _begin(self, *, dry_run: bool) -> None:
        """Read the time of the store. By a wrong clock of this machine, the parts of a concurrent
        run would be old, and so would a tombstone that it needs."""
        self._since = self._runtime.monotonic()
        try:
            self._began_ms = await self._blobs.now_ms()
        except PermissionDeniedError:  # readers may lack this permission
            if not dry_run:
                raise
            self._began_ms = self._runtime.now_ms()
        self._before_ms = self._history_ms = self._began_ms - int(self._grace * 1000)
        self._forgotten_ms = self._began_ms - int(max(self._grace, TOMBSTONE_SECONDS) * 1000)

    async def _read(
        self, sorter: ExternalSort, done: Compaction, tell: Callable[[Progress], object]
    ) -> SegmentIds:
        """Collect the records of entries and segments, and note the removable ones; returns the
        segments among those."""
        segments = SegmentIds()
        read = 0
        async for part in self._reader.objects():
            done.damaged += [
                finding for finding in part.findings if isinstance(finding, DamagedLog)
            ]
            sorter.add(part.records)
            read += len(part.keys)
            tell(Progress("compact", read, phase="log", unit="log objects"))
            young = any(record.operation.time_ms > self._before_ms for record in part.records)
            if young or not part.is_decided or (part.segment and len(segments) == MAX_SEGMENTS):
                continue
            if part.segment:
                segments.add(part.segment)
            *pending, committed = part.keys
            _note(sorter, pending, _PENDING)
            _note(sorter, [committed], _COMMITTED)
        return segments

    async def _read_checkpoints(self, sorter: ExternalSort, done: Compaction) -> None:
        """Collect the records of the checkpoints. Complete ones are replaced, unless there is
        nothing else to do.

        So are those whose missing objects are all in quarantine: they can never be complete again.
        Existing segments that they cover are kept, since they may hold the records of the missing
        part.
        """
        read: set[str] = set()
        whole: list[Checkpoint] = []
        given_up: list[Checkpoint] = []
        quarantined = await self._quarantined()
        while new := [
            each for each in await self._reader.checkpoints.valid() if each.key not in read
        ]:
            for checkpoint in new:
                read.add(checkpoint.key)
                if isinstance(checkpoint, DamagedLog):
                    done.damaged.append(checkpoint)
                    continue
                self._history_ms = max(self._history_ms, checkpoint.history_ms)
                if not (damaged := await self._read_one(checkpoint, sorter, done)):
                    whole.append(checkpoint)
                elif damaged <= quarantined:
                    given_up.append(checkpoint)
        covered = SegmentIds(text for checkpoint in whole for text in checkpoint.segments)
        if len(covered):
            _note(sorter, await self._reader.left_of(covered), _PENDING)
        if (
            given_up
            or len(whole) > 1
            or sorter.database.execute("SELECT 1 FROM removals LIMIT 1").fetchone()
        ):
            _note(sorter, [checkpoint.key for checkpoint in [*whole, *given_up]], _MANIFEST)
            for checkpoint in [*whole, *given_up]:
                _note(sorter, checkpoint.part_keys(), _PART)

    async def _read_one(
        self, checkpoint: Checkpoint, sorter: ExternalSort, done: Compaction
    ) -> set[str]:
        """Collect the records of one checkpoint; returns the keys of unreadable parts."""
        damaged: set[str] = set()
        async for finding in self._reader.checkpoints.of(checkpoint):
            if isinstance(finding, DamagedLog):
                done.damaged.append(finding)
                damaged.add(finding.key)
            else:
                sorter.add([finding])
        return damaged

    async def _quarantined(self) -> set[str]:
        """The keys of the manifests and parts in fsck's quarantine."""
        found = set()
        for prefix in (MANIFESTS, PARTS):
            async for info in list_all(self._blobs, QUARANTINE + prefix):
                found.add(info.key.removeprefix(QUARANTINE).rpartition(".")[0])
        return found

    async def _note_strays(self, sorter: ExternalSort) -> None:
        """Note parts without a manifest, of a crashed or superseded run; those of a run in progress
        are younger. The parts of a manifest in quarantine are intact, and kept."""
        valid = {
            each.key for each in await self._reader.checkpoints.valid()
        } | await self._quarantined()
        limit_ms = self._began_ms - int(TOMBSTONE_SECONDS * 1000)
        async for info in list_all(self._blobs, PARTS):
            owner = owner_of_part(info.key)
            if owner is not None and MANIFESTS + owner not in valid and info.mtime_ms < limit_ms:
                _note(sorter, [info.key], _PART)

    async def _write(
        self, sorter: ExternalSort, writer: CheckpointWriter | None, done: Compaction
    ) -> None:
        """Write the parts, or without a writer only count their operations."""
        for group in sorter.objects():
            truth = latest(group)[group[0].operation.object_id]
            if truth.committed is None:
                continue
            is_gone = truth.committed.operation.after is None
            if (
                is_gone
                and not done.damaged
                and not truth.pending
                and self._is_forgotten(truth.committed, group)
            ):
                done.dropped += 1
                continue
            done.objects += 1
            done.tombstones += is_gone
            for record in truth.conflict or (truth.committed,):
                if writer is not None:
                    await writer.add(record)

    def _is_forgotten(self, tombstone: LogRecord, group: Sequence[LogRecord]) -> bool:
        """Whether a tombstone is old, and the log holds nothing else on its object."""
        return tombstone.operation.time_ms <= self._forgotten_ms and all(
            record.operation == tombstone.operation for record in group
        )

    async def _need_volume_of(self, writer: CheckpointWriter) -> None:
        """Remove the checkpoint again if the volume was destroyed. Nothing that it covers has been
        removed so far. Other readers may rely on the manifest, so that it is written only if the
        record was there just before."""
        if self._need_volume is None:
            return
        try:
            await self._need_volume()
        except VolumeNotFoundError as error:
            failures = await self._blobs.delete_many(writer.keys())
            if failures:
                raise PartialFailureError(
                    f"the volume was destroyed during the compaction, and {len(failures)} objects "
                    "of the new checkpoint could not be removed; delete them with the tools of the "
                    "service",
                    path=self._blobs.uri(failures[0].key),
                    failures=[(failure.key, failure.error) for failure in failures],
                ) from error
            raise

    async def _need_time(self) -> None:
        elapsed_ms = await self._blobs.now_ms() - self._began_ms
        # A monotonic clock may stop while the machine sleeps, and any other may be set back.
        elapsed = max(elapsed_ms / 1000, self._runtime.monotonic() - self._since)
        if elapsed > TOMBSTONE_SECONDS / 2:
            raise LeaseExpiredError("compaction exceeded its time limit; nothing was removed")

    async def _remove(
        self, sorter: ExternalSort, done: Compaction, tell: Callable[[Progress], object]
    ) -> None:
        for turn in (_PENDING, _COMMITTED, _MANIFEST, _PART):
            rows = sorter.database.execute(
                "SELECT key FROM removals WHERE turn = ? ORDER BY key", (turn,)
            )
            while keys := [key for (key,) in rows.fetchmany(MAX_DELETION)]:
                failures = await self._blobs.delete_many(keys)
                done.removed += len(keys) - len(failures)
                tell(
                    Progress(
                        "compact", done.removed, done.removable, phase="removal", unit="log objects"
                    )
                )
                if failures:
                    raise PartialFailureError(
                        f"{len(failures)} objects of the log could not be removed; repeat "
                        "the compaction to continue",
                        path=failures[0].key,
                        failures=[(failure.key, failure.error) for failure in failures],
                    )


def _note(sorter: ExternalSort, keys: Iterable[str], turn: int) -> None:
    sorter.many("INSERT INTO removals VALUES (?, ?)", [(key, turn) for key in keys])
