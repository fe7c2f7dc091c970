"""Tables with an unfinished transaction are dumped as readers see them, and resharded as stored."""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from s3k_async import S3kClient
from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.config import VolumeConfig
from s3k_async.integrity.repair import repair_volume, verify_volume
from s3k_async.migrate import dump_volume, reshard_volume
from s3k_async.migrate.dump_reader import open_dump
from s3k_async.namespace import multi_path_commit
from s3k_async.table.keys import KeyScheme
from s3k_async.testing import Call, Died, FaultPlan
from s3k_async.volumes import init_volume
from tests.migrate.rig import HURRIED, config, entries, keys, opened
from tests.namespace.manual_transactions import Hand, a_directory, a_file
from tests.support import from_call, under

OLD = {"/d", "/d/a", "/d/b"}
NEW = {"/e", "/e/a", "/e/b"}


async def renaming(settings: VolumeConfig, steps: int) -> None:
    """The volume, after so many steps of a rename of `/d` to `/e` whose owner died."""
    await init_volume(settings)
    hand = Hand(MemoryItems(settings.name), KeyScheme(settings.name, settings.suffix_count or 0))
    tree = [a_directory("/d"), a_file("/d/a"), a_file("/d/b")]
    await hand.put(*tree)
    for step in hand.rename("job", tree, "/d", "/e")[:steps]:
        await step()


@pytest.mark.parametrize(
    ("steps", "visible"), [(0, OLD), (4, OLD), (8, OLD), (9, NEW), (11, NEW), (99, NEW)]
)
async def test_a_dump_is_of_what_is_visible(steps: int, visible: set[str], tmp_path: Path) -> None:
    settings, target = config(4), str(tmp_path / "x.dump")
    await renaming(settings, steps)
    async with opened(settings) as volume:
        await dump_volume(volume, target)
    found = [entry for chunk in open_dump(target).chunks() for entry in chunk]
    assert {entry.path for entry in found} == visible
    assert {entry.pending for entry in found} == {""}


@pytest.mark.layouts("path", "tree")
async def test_a_directory_that_is_renamed_during_a_dump_is_in_it_under_one_name(
    tmp_path: Path,
) -> None:
    """Under both, the files were in it twice, with one id; under neither, not at all."""
    sides = set()
    for number in range(24):
        settings, target = config(2), str(tmp_path / f"{number}.dump")
        await init_volume(settings)
        async with S3kClient(config=settings) as fs:
            await fs.write("/a/1/2/d/f", b"")
            await fs.write("/b/f", b"")
            plan, asked = FaultPlan(), count()

            async def rename(
                call: Call, fs: S3kClient = fs, number: int = number, asked: Any = asked
            ) -> None:
                if call.method == "query" and next(asked) == number:
                    await fs.rename("/a/1/2/d", "/b/d")

            async with opened(settings, plan) as volume:
                plan.gate = rename
                await dump_volume(volume, target)
        found = [entry.path for chunk in open_dump(target).chunks() for entry in chunk]
        moved = tuple(sorted(path for path in found if "/d" in path))
        assert moved in (("/a/1/2/d", "/a/1/2/d/f"), ("/b/d", "/b/d/f")), number
        sides.add(moved)
    assert len(sides) == 2


@pytest.mark.parametrize(("steps", "visible"), [(4, OLD), (8, OLD), (9, NEW), (11, NEW)])
async def test_a_transaction_survives_a_reshard(steps: int, visible: set[str]) -> None:
    settings = config(4)
    await renaming(settings, steps)
    before = await entries(settings)
    await reshard_volume(settings, 9, runtime=HURRIED)
    assert set(before) == visible
    assert await entries(settings) == before
    await keys(settings)


async def transaction(settings: VolumeConfig) -> None:
    """A directory is moved, another is removed with its content, files are moved and created."""
    async with S3kClient(config=settings) as fs, fs.transaction() as tx:
        await tx.rename("/d", "/e/d")
        await tx.delete("/t", recursive=True)
        await tx.rename("/f", "/e/f")
        await tx.write("/new/g", b"new")


async def changing(settings: VolumeConfig, plan: FaultPlan) -> VolumeConfig:
    """A volume of layout `tree` that a transaction changes under a plan."""
    await init_volume(settings)
    async with S3kClient(config=settings) as fs:
        await fs.write_many([(path, b"old") for path in ("/d/a", "/d/b", "/t/h", "/f")])
        await fs.makedirs("/e")
    with suppress(Died, BaseExceptionGroup):
        await under(plan, transaction(settings))
    return settings


async def test_a_transaction_of_layout_tree_survives_a_reshard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its manifest has entry keys, which contain no suffixes."""
    monkeypatch.setattr(multi_path_commit, "AT_ONCE", 0)
    calls, found = FaultPlan(), set()
    await changing(config(4, layout="tree"), calls)
    for number in range(1, len(calls.calls) + 1):
        plan = FaultPlan()
        plan.fail_when(from_call(number), Died("died"), times=10**9)
        settings = await changing(config(4, layout="tree"), plan)
        before = await entries(settings)
        found.add(frozenset(before))
        await reshard_volume(settings, 9, runtime=HURRIED)
        assert await entries(settings) == before
        await keys(settings)
        async with opened(settings) as volume:
            await repair_volume(volume, dry_run=False, grace=-3600.0)
            assert (await verify_volume(volume, grace=-3600.0)).problems == []
        found.add(frozenset(await entries(settings)))
    old = frozenset({"/d", "/d/a", "/d/b", "/e", "/f", "/t", "/t/h"})
    new = frozenset({"/e", "/e/d", "/e/d/a", "/e/d/b", "/e/f", "/new", "/new/g"})
    assert found == {old, new}
