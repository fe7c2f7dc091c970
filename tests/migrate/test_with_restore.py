"""What was loaded or resharded, and then lost, comes back from its log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from s3k_async import S3kClient
from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.config import VolumeConfig
from s3k_async.integrity.repair import verify_volume
from s3k_async.integrity.verify_rules import Finding
from s3k_async.migrate import dump_volume, load_volume, reshard_volume
from s3k_async.model import Entry
from s3k_async.volumes.restoration import restore_volume
from tests.migrate.rig import HURRIED, config, entries, keys, made, opened
from tests.support import under


async def lose_and_restore(settings: VolumeConfig) -> dict[str, Entry]:
    await MemoryItems(settings.name).drop()
    report = await restore_volume(
        replace(settings, suffix_count=None, hash=None), dry_run=False, runtime=HURRIED
    )
    assert report.clean
    await keys(settings)
    return await entries(settings)


def plain(found: dict[str, Entry]) -> dict[str, Entry]:
    """Without what a change of its children leaves on a directory, which is in no log."""
    return {path: replace(entry, pending="", operation="") for path, entry in found.items()}


async def test_a_volume_that_was_loaded_can_be_restored(tmp_path: Path) -> None:
    source, other, target = await made(config(4)), config(9), str(tmp_path / "x.dump")
    async with opened(source) as volume:
        await dump_volume(volume, target, path="/a")
        await load_volume(target, other, bytes_from=volume, runtime=HURRIED)
    wanted = await entries(other)
    assert "/a/deep/er/3" in wanted
    assert plain(await lose_and_restore(other)) == plain(wanted)


@pytest.mark.layouts("path", "tree")
async def test_a_volume_that_was_lost_twice_can_be_restored(tmp_path: Path) -> None:
    """The log has the entries below a renamed directory at both paths, with one version."""
    settings, target = await made(config(4)), str(tmp_path / "x.dump")
    async with S3kClient(config=settings) as fs:
        for deletion in await fs.trash().list() if settings.layout == "tree" else ():
            await fs.trash().restore(deletion.was)
        wanted = await entries(settings)
        assert wanted.keys() > {"/new/f"}
        await dump_volume(fs._volume(), target)
    await MemoryItems(settings.name).drop()
    await load_volume(target, replace(settings, suffix_count=None), runtime=HURRIED)
    async with opened(settings) as volume:
        assert (await verify_volume(volume, grace=-100.0)).problems == []
    assert plain(await lose_and_restore(settings)) == plain(wanted)


async def test_a_load_that_was_interrupted_and_finished_can_be_restored(
    tmp_path: Path, monkeypatch: Any
) -> None:
    from s3k_async.errors import PermissionDeniedError
    from s3k_async.testing import FaultPlan

    for module in ("dump_format", "dump_jsonl", "dump"):
        monkeypatch.setattr(f"s3k_async.migrate.{module}.CHUNK", 4)
    source, other, target = await made(config(4)), config(9), str(tmp_path / "x.dump")
    plan = FaultPlan()
    plan.fail_when(
        lambda _: sum(call.method == "load" for call in plan.calls) == 3,
        PermissionDeniedError("no"),
        when="after",
    )
    async with opened(source) as volume:
        await dump_volume(volume, target)
        with pytest.raises(PermissionDeniedError):
            await under(plan, load_volume(target, other, bytes_from=volume, runtime=HURRIED))
        await load_volume(target, other, bytes_from=volume, runtime=HURRIED)
    wanted = await entries(other)
    assert plain(await lose_and_restore(other)) == plain(wanted)


async def test_a_volume_that_was_resharded_is_restored_with_its_new_suffix_count() -> None:
    settings = await made(config(4))
    wanted = await entries(settings)
    await reshard_volume(settings, 7, hash="java31", runtime=HURRIED)
    assert plain(await lose_and_restore(settings)) == plain(wanted)
    async with opened(settings) as volume:
        assert (volume.record.suffix_count, volume.record.hash) == (7, "java31")


@pytest.mark.layouts("path", "tree")
async def test_fsck_finds_nothing_wrong_with_what_was_moved(tmp_path: Path) -> None:
    from s3k_async.oplog.log_reader import LogReader
    from tests.integrity.verifier import Verifier

    source, other, target = await made(config(4)), config(9), str(tmp_path / "x.dump")
    async with opened(source) as volume:
        await dump_volume(volume, target)
        await load_volume(target, other, bytes_from=volume, runtime=HURRIED)
    await reshard_volume(other, 3, runtime=HURRIED)
    async with opened(other) as volume:
        assert volume.log_blobs is not None
        verifier = Verifier(
            volume.store,
            volume.blobs,
            LogReader(volume.log_blobs),
            HURRIED,
            grace=0,
            place=volume.place,
        )
        problems: list[Finding] = (await verifier.verify(deep=True)).problems
    assert problems == []
