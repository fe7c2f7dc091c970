"""Another suffix count or hash for a volume, in place. Design: docs/design/005-resharding.md.

Under the exclusive lock: check, copy every entry that gets another key, change the record (the moment at which it
happens), remove the old copies. Wherever it is interrupted, the same call again finishes it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from s3k_async import _native
from s3k_async.concurrency import run_all
from s3k_async.config import VolumeConfig
from s3k_async.errors import ConfigError, CorruptDataError, ItemFormatError
from s3k_async.metadata.codec import from_items
from s3k_async.metadata.exclusive import ExclusiveLock
from s3k_async.metadata.keys import ENTRY_PREFIX, KeyScheme
from s3k_async.metadata.record import LOCK_DONE, VolumeRecord, write_tag
from s3k_async.model import HashName, Progress
from s3k_async.requests import RequestCounter, Requests, counted
from s3k_async.sources import SYSTEM, Sources
from s3k_async.stores.faults import FaultPlan
from s3k_async.stores.items import MAX_TRANSACTION, PARTITION, SORT, Condition, Delete, Item, Key
from s3k_async.volumes import Volume, open_volume
from s3k_async.volumes.claims import renew
from s3k_async.volumes.creation import MAX_SUFFIX_COUNT
from s3k_async.volumes.exclusive import exclusive_volume

__all__ = ["ReshardResult", "reshard_volume"]

_SEGMENTS = 4
_CHECKED = 1
"""How far the lock says that the work is, once the table was found fit."""


@dataclass(frozen=True, slots=True)
class ReshardResult:
    """What was done. `entries`: of the volume; `moved`: those whose key is another now, as far as this call moved
    them."""

    suffix_count: int
    hash: HashName
    entries: int
    moved: int
    requests: Requests = field(default_factory=Requests, compare=False)


@counted
async def reshard_volume(
    config: VolumeConfig,
    suffix_count: int,
    *,
    hash: HashName | None = None,
    progress: Callable[[Progress], object] | None = None,
    sources: Sources = SYSTEM,
    session: object | Mapping[str, object] | None = None,
    faults: FaultPlan | None = None,
    counter: RequestCounter | None = None,
) -> ReshardResult:
    """Give a volume another suffix count, and hash if one is named. What is so already changes nothing.

    Nobody can use the volume meanwhile, and whoever had it open has to open it again (BusyError, then
    VolumeMismatchError; see `metadata.exclusive`). A reshard that was interrupted leaves the volume locked; the same
    call again finishes it.

    Raises ConfigError (no such suffix count), ItemFormatError (the table holds items that belong nowhere: fsck first),
    InvalidPathError (a key would be too long), PermissionDeniedError (the table's tag cannot be written), BusyError,
    with nothing changed; LeaseExpiredError; and the services' errors.
    """
    if not 1 <= suffix_count <= MAX_SUFFIX_COUNT:
        raise ConfigError(f"the suffix count is 1 to {MAX_SUFFIX_COUNT}, not {suffix_count}", path=config.name)
    config = replace(config, suffix_count=None, hash=None)
    volume = await open_volume(config, sources=sources, session=session, faults=faults, locked=True)
    wanted = hash or volume.record.hash
    await volume.close()
    lock = ExclusiveLock("reshard", f"{suffix_count} {wanted}", sources)
    async with exclusive_volume(
        config, lock, sources=sources, session=session, faults=faults, counter=counter
    ) as volume:
        target = replace(volume.record, suffix_count=suffix_count, hash=wanted)
        if target == volume.record and not lock.touched:
            return ReshardResult(suffix_count, wanted, 0, 0)
        target.to_tag()  # it has to fit
        await lock.quiet()
        return await _Reshard(volume, target, lock, progress or (lambda _: None)).run(sources)


class _Reshard:
    """One reshard under way."""

    def __init__(
        self, volume: Volume, target: VolumeRecord, lock: ExclusiveLock, progress: Callable[[Progress], object]
    ) -> None:
        record = volume.record
        self._volume = volume
        self._target = target
        self._lock = lock
        self._progress = progress
        self._old = KeyScheme(record.name, record.suffix_count, record.hash)
        self._new = KeyScheme(target.name, target.suffix_count, target.hash)
        self._entries = 0
        self._moved = 0
        self._cleaned = 0

    async def run(self, sources: Sources) -> ReshardResult:
        volume, target, policy = self._volume, self._target, self._volume.config.tuning.retry.write
        if target != volume.record:
            if self._lock.done < _CHECKED:
                self._lock.touched = False  # whoever was interrupted had not begun to copy
                await self._everywhere(self._check)
                await write_tag(volume.table, volume.record, sources, policy)  # what must not fail later
                self._lock.touched = True
                self._lock.done = _CHECKED
                await self._lock.change(volume.items, {LOCK_DONE: _CHECKED})
            self._entries = 0
            await self._everywhere(self._copy)
            await self._lock.change(volume.items, {"suffix_count": target.suffix_count, "hash": target.hash})
        self._lock.check()
        await write_tag(volume.table, target, sources, policy)
        layout = {"suffix_count": target.suffix_count, "hash": target.hash}
        await renew(volume.blobs, target.volume_id, layout)
        self._entries = 0
        await self._everywhere(lambda items: self._clean(items, sources))
        return ReshardResult(target.suffix_count, target.hash, self._entries, max(self._moved, self._cleaned))

    async def _everywhere(self, work: Callable[[Sequence[Item]], Awaitable[object]]) -> None:
        """Do the work for every page of entries of the table."""

        async def segment(number: int) -> None:
            async for items in _pages(self._volume, number):
                await work(items)
                self._progress(Progress("reshard", self._entries))

        await run_all(segment, range(_SEGMENTS), limit=_SEGMENTS)

    async def _check(self, items: Sequence[Item]) -> None:
        """Refuse what is no entry, or not at its place, before anything is changed."""
        try:
            paths = from_items(items, self._old).paths()
        except ItemFormatError as error:
            raise ItemFormatError(f"{error.message}; let fsck mend the volume first", path=error.path) from error
        self._new.keys(paths)
        for item, key in zip(items, self._old.keys(paths), strict=True):
            if _key(item) != key:
                place = f"{item[PARTITION]}/{item[SORT]}"
                raise ItemFormatError("the item is not where it belongs; let fsck mend the volume first", path=place)
        self._entries += len(items)

    async def _copy(self, items: Sequence[Item]) -> None:
        copies: list[Item] = []
        for item, key in self._places(items):
            if key == _key(item):
                continue  # one that keeps its key, or a copy already
            copies.append({**item, PARTITION: key.partition})
        self._entries += len(items)
        self._moved += len(copies)
        await self._volume.items.load(copies)

    async def _clean(self, items: Sequence[Item], sources: Sources) -> None:
        """Remove the old copies, each only if the new one is there."""
        leftover = [(item, key) for item, key in self._places(items) if key != _key(item)]
        self._entries += len(items) - len(leftover)
        copies = await self._volume.items.get_many([key for _, key in leftover])
        for start in range(0, len(leftover), MAX_TRANSACTION):
            self._lock.check()
            deletes = []
            for item, key in leftover[start : start + MAX_TRANSACTION]:
                copy = copies.get(key)
                if copy is None or {**copy, PARTITION: item[PARTITION]} != dict(item):
                    raise CorruptDataError("an entry has no copy at its new place", path=f"{key.partition}/{key.sort}")
                deletes.append(Delete(_key(item), Condition(equals={"id": item["id"], "ver": item["ver"]})))
            await self._volume.items.transact(deletes, sources.uuid())
            self._cleaned += len(deletes)

    def _places(self, items: Sequence[Item]) -> list[tuple[Item, Key]]:
        """The items with the keys that they are to have."""
        partitions = [str(item[PARTITION]) for item in items]
        paths = _native.decode_keys(self._new.volume, partitions, [str(item[SORT]) for item in items])
        return list(zip(items, self._new.keys(paths), strict=True))


async def _pages(volume: Volume, segment: int) -> AsyncIterator[list[Item]]:
    """The entries of a part of the table, as they are stored."""
    cursor: str | None = None
    while True:
        page = await volume.items.scan(segment, _SEGMENTS, cursor=cursor)
        items = [item for item in page.items if str(item[PARTITION]).startswith(ENTRY_PREFIX)]
        if items:
            yield items
        if page.next is None:
            return
        cursor = page.next


def _key(item: Item) -> Key:
    return Key(str(item[PARTITION]), str(item[SORT]))
