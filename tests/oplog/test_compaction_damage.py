"""Compaction after checkpoints were damaged: what is left of them is never thrown away."""

from __future__ import annotations

from pathlib import Path

from s3k_async.backends.ports.pagination import list_all
from s3k_async.integrity.repair import repair_volume
from s3k_async.oplog.compaction import Compactor
from tests.integrity.garbage import DAY, Yard, yard


async def compact(place: Yard) -> None:
    log = place.volume.log_blobs
    assert log is not None
    await Compactor(log, place.runtime, grace=0).run(dry_run=False)


async def keys(place: Yard, prefix: str) -> list[str]:
    log = place.volume.log_blobs
    assert log is not None
    return [info.key async for info in list_all(log, prefix)]


async def damage(place: Yard, prefix: str) -> str:
    """Write files, compact, and flip a bit in the first object with the prefix."""
    for name in ("/d/a", "/d/b"):
        await place.client.write(name, b"x")
    await place.settle()
    place.clock.advance(3 * DAY)
    await compact(place)
    log, (key, *_) = place.volume.log_blobs, await keys(place, prefix)
    assert log is not None
    data = await log.get(key)
    await log.delete(key)
    await log.put(key, data[:-9] + b"damage" + data[-3:])
    place.clock.advance(DAY)
    return key


async def test_the_parts_of_a_checkpoint_whose_manifest_is_in_quarantine_are_kept(
    tmp_path: Path,
) -> None:
    async with yard(tmp_path) as place:
        await damage(place, "checkpoints/manifests/")
        parts = await keys(place, "checkpoints/parts/")
        await repair_volume(place.volume, dry_run=False)
        assert await keys(place, "checkpoints/manifests/") == []
        place.clock.advance(3 * DAY)
        await compact(place)
        assert set(parts) < set(await keys(place, "checkpoints/parts/"))


async def test_a_checkpoint_of_which_a_part_is_in_quarantine_is_replaced_and_collection_goes_on(
    tmp_path: Path,
) -> None:
    async with yard(tmp_path) as place:
        part = await damage(place, "checkpoints/parts/")
        await repair_volume(place.volume, dry_run=False)
        await place.client.delete("/d/a")
        await place.settle()
        place.clock.advance(3 * DAY)
        await compact(place)
        assert part not in await keys(place, "checkpoints/parts/")
        await place.gc()
        assert await place.client.read("/d/b") == b"x"
        assert len(await place.keys()) == 1
