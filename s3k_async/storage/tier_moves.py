"""Moves of physical objects from the hot location to the cold one.

No record is kept of a move: an object in both locations is that of an unfinished move, or was
copied to the hot location on request, and moving it again removes the hot one in either case. An
object is deleted from the hot location after its copy was read back and compared, so that a crash
leaves a copy too many and never one too few. If it was in both before, the locations may be one
place under two names, which is checked first. Physical objects are immutable and their keys are
never used again, so the deletion needs no condition, and several runs at once do the same work
twice. The argument is in docs/design/013-objects.md, section 6.2.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import anyio

from s3k_async._core.concurrency import run_all
from s3k_async._core.pace import Pace
from s3k_async._core.runtime import Runtime
from s3k_async._native import object_id_of
from s3k_async.backends.ports.blobs import BlobInfo
from s3k_async.backends.ports.pagination import list_all
from s3k_async.config import Tuning
from s3k_async.errors import BlobNotFoundError, CorruptDataError
from s3k_async.model import Progress
from s3k_async.storage.object_copies import copy_object, same_bytes
from s3k_async.storage.tier_policy import MovePolicy, Overrides
from s3k_async.storage.tiered_blobs import TieredBlobs, require_apart

__all__ = ["TierMoves", "TierRun", "TierUsage", "move_object", "tier_usage"]

_MOVES_AT_ONCE: Final = 8
"""Objects that are moved at the same time."""


@dataclass(slots=True)
class TierRun:
    """The result of a run. Bytes are those of the moved objects."""

    moved: int = 0
    bytes: int = 0
    completed: int = 0
    """Those of the moved whose copy was there already: moves that had been interrupted."""
    vanished: int = 0
    """Objects that were deleted, or moved by another run, in the meantime."""
    damaged: list[str] = field(default_factory=list)
    """Keys of objects whose copy did not have the bytes of the hot one; both are kept."""
    left: int = 0
    """Objects that stay in the hot location,"""
    left_bytes: int = 0
    """and their bytes."""
    pinned: int = 0
    """Those of them that stay because the metadata of their file says so."""


@dataclass(frozen=True, slots=True)
class TierUsage:
    """What is in the two locations. An object in both is counted in both."""

    hot_objects: int = 0
    hot_bytes: int = 0
    cold_objects: int = 0
    cold_bytes: int = 0
    both_objects: int = 0
    both_bytes: int = 0
    differing: tuple[str, ...] = ()
    """Keys of objects in both whose sizes differ, at most 1,000."""


@dataclass(slots=True)
class TierMoves:
    """A run of moves in a tiered volume. `rate`: bytes per second, at most. `overrides`: reads the
    overrides of single files."""

    blobs: TieredBlobs
    runtime: Runtime
    tuning: Tuning
    rate: float | None = None
    progress: Callable[[Progress], object] | None = None
    overrides: Callable[[], Awaitable[Overrides]] | None = None
    _are_apart: bool = field(default=False, init=False)
    """Whether this run has found that the two locations are not one place."""
    _check: anyio.Lock = field(default_factory=anyio.Lock, init=False)

    async def run(self, policy: MovePolicy, *, dry_run: bool = False) -> TierRun:
        """Move objects. With `dry_run` nothing is changed, and the result tells what would be
        moved. Raises ConfigError (both locations are one place), and the stores' errors; what was
        moved before stays moved."""
        self._are_apart = False
        objects = await self._hot_objects()
        # After the listing: a file that is replaced meanwhile has a new object, which is not in it.
        overrides = await self._overrides()
        chosen = policy.chosen(objects, await self.blobs.hot.now_ms(), overrides)
        done = TierRun(
            left=len(objects) - len(chosen),
            left_bytes=sum(each.size for each in objects) - sum(each.size for each in chosen),
            pinned=sum(each.key in overrides for each in objects)
            - sum(each.key in overrides for each in chosen),
        )
        if dry_run:
            done.moved, done.bytes = len(chosen), sum(each.size for each in chosen)
            return done
        pace = Pace(self.rate, self.runtime)

        async def move(info: BlobInfo) -> None:
            await pace.turn(info.size)
            await self._move(info, done)
            self._tell(done, len(chosen))

        await run_all(move, chosen, limit=_MOVES_AT_ONCE)
        return done

    async def _hot_objects(self) -> list[BlobInfo]:
        return [each async for each in list_all(self.blobs.hot) if object_id_of(each.key)]

    async def _overrides(self) -> Overrides:
        return {} if self.overrides is None else await self.overrides()

    async def _move(self, info: BlobInfo, done: TierRun) -> None:
        try:
            was_copied = await move_object(
                self.blobs, info, self.tuning.part_size, self._require_apart
            )
        except BlobNotFoundError:
            done.vanished += 1
        except CorruptDataError:
            done.damaged.append(info.key)
            done.left += 1
            done.left_bytes += info.size
        else:
            done.moved += 1
            done.bytes += info.size
            done.completed += not was_copied

    async def _require_apart(self) -> None:
        """As `require_apart`, once in a run."""
        async with self._check:
            if not self._are_apart:
                await require_apart(self.blobs.hot, self.blobs.cold, self.runtime.uuid())
                self._are_apart = True

    def _tell(self, done: TierRun, total: int) -> None:
        if self.progress is not None:
            count = done.moved + done.vanished + len(done.damaged)
            self.progress(
                Progress("tier", count, total, bytes=done.bytes, phase="moves", unit="objects")
            )


async def move_object(
    blobs: TieredBlobs,
    info: BlobInfo,
    part_size: int,
    check: Callable[[], Awaitable[None]],
) -> bool:
    """Move one object of the hot store; whether its bytes were copied, which is not so if the cold
    store has the same ones already. An object that the cold store has is never replaced: which of
    two copies is right is known to the entry of the file alone (`s3k fsck`). `check`: raises
    ConfigError unless the stores are two places (`require_apart`); called if both have the object.

    Raises BlobNotFoundError (the hot store does not have it any more), CorruptDataError (the copy
    has other bytes; both are kept), ConfigError (both stores are one place)."""
    key, size = info.key, info.size
    there = await blobs.cold.head(key)
    if there is None:
        await copy_object(blobs.hot, blobs.cold, key, size, part_size)
    elif there.size != size or not await same_bytes(blobs.hot, blobs.cold, key, size, part_size):
        raise CorruptDataError(
            "the cold location has other bytes than the hot one: s3k fsck repair --deep keeps "
            "what the entry of the file says",
            path=blobs.cold.uri(key),
        )
    else:
        await check()
    await blobs.hot.delete(key)
    return there is None


async def tier_usage(blobs: TieredBlobs, *, listed: int = 1000) -> TierUsage:
    """Count the objects of both locations, by a listing of each. Holds the hot ones in memory."""
    hot = {each.key: each.size async for each in list_all(blobs.hot)}
    cold_objects = cold_bytes = both_objects = both_bytes = 0
    differing: list[str] = []
    async for each in list_all(blobs.cold):
        cold_objects += 1
        cold_bytes += each.size
        size = hot.get(each.key)
        if size is not None:
            both_objects += 1
            both_bytes += size
            if size != each.size and len(differing) < listed:
                differing.append(each.key)
    return TierUsage(
        len(hot),
        sum(hot.values()),
        cold_objects,
        cold_bytes,
        both_objects,
        both_bytes,
        tuple(differing),
    )
