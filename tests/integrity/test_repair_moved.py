"""fsck repair of a volume in which somebody moves and removes what repair has just seen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from s3k_async.integrity.collector import Collector, Tell
from s3k_async.integrity.repair import repair_volume, verify_volume
from s3k_async.model import LayoutName
from s3k_async.namespace.bulk_changes import delete_files
from s3k_async.namespace.pair_renames import PairRenames, RenamePair
from s3k_async.table.codec import in_columns
from tests.torture.damage import DAMAGES, GRACE, Scene

pytestmark = pytest.mark.layouts("path", "tree")

FILES = ("/top", "/a/d0/f0")

Deed = Callable[[Scene], Awaitable[None]]


async def remove(scene: Scene) -> None:
    await delete_files(
        scene.volume.store,
        in_columns([await scene.need(path) for path in FILES], scene.volume.store.keys),
    )


async def move(scene: Scene) -> None:
    pairs = [RenamePair(path, f"/a/d1/away{number}") for number, path in enumerate(FILES)]
    await PairRenames(scene.volume.store, overwrite=False, missing_ok=False).rename(pairs)


async def remove_directory(scene: Scene) -> None:
    await scene.volume.store.layout.delete_directory(await scene.need("/a/d0"), atomic=True)
    await scene.volume.store.delete_file(await scene.need("/top"))


async def move_directory(scene: Scene) -> None:
    layout = scene.volume.store.layout
    await layout.rename_directory(await scene.need("/a/d0"), "/a/d2", atomic=True)


@pytest.mark.parametrize("damage", ["no_commit", "no_commits", "no_log", "other_attributes"])
@pytest.mark.parametrize("deed", [remove, move, remove_directory, move_directory])
async def test_what_was_removed_or_moved_by_many_during_a_repair_does_not_come_back(
    layout: LayoutName, damage: str, deed: Deed, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = await Scene.start(layout=layout)
    try:
        for path in FILES:
            await DAMAGES[damage](scene, path)
        await scene.settled()
        scan = Collector._scan_blobs
        deeds = [deed]

        async def then_somebody_acts(self: Collector, tell: Tell) -> None:
            await scan(self, tell)
            if deeds:
                await deeds.pop()(scene)
                await scene.volume.store.changes.log.drained()

        monkeypatch.setattr(Collector, "_scan_blobs", then_somebody_acts)
        await repair_volume(scene.volume, dry_run=False, grace=GRACE)
        assert not deeds
        left = await verify_volume(scene.volume, grace=GRACE)
        assert left.clean, left.findings
        gone = [path for path in FILES if deed is not move_directory or path != "/top"]
        gone += ["/a/d0"] if deed in (remove_directory, move_directory) else []
        assert [path for path in gone if await scene.find(path) is not None] == []
    finally:
        await scene.end()
