"""Attributes under fsck, restore, gc, dump, load, reshard and a change of the layout."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest

from s3k_async.attributes import Attributes
from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.ports.items import ABSENT, PARTITION, Condition, Delete, Put, Update
from s3k_async.client import S3kClient
from s3k_async.errors import UnsupportedError
from s3k_async.integrity.repair import repair_volume, verify_volume
from s3k_async.migrate import change_layout, dump_volume, load_volume, reshard_volume
from s3k_async.migrate.dump_format import DumpForm
from s3k_async.model import LayoutName
from s3k_async.namespace import metadata_index
from s3k_async.oplog.compaction import Compactor
from s3k_async.table.codec import from_item
from s3k_async.txn import volume_lock
from s3k_async.volumes import init_volume
from s3k_async.volumes.restoration import restore_volume
from tests.client.rig import memory_config
from tests.integrity.garbage import DAY, Yard, yard

pytestmark = pytest.mark.layouts("path", "tree")

LARGE = 30

State: TypeAlias = dict[str, tuple[Attributes, int | None]]
"""By path, the attributes of an entry and the time of their last change."""


@pytest.fixture(autouse=True)
def no_open_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """No client has the volume open, so that the lock need not wait."""
    monkeypatch.setattr(volume_lock, "QUIET_SECONDS", 0.0)


@pytest.fixture
async def place(layout: LayoutName, tmp_path: Path) -> AsyncIterator[Yard]:
    async with yard(tmp_path, layout=layout) as made:
        yield made


async def fill(fs: S3kClient) -> None:
    """Files and a directory with attributes, after changes of all kinds, beside one without."""
    for number in range(LARGE):
        attributes = Attributes(mode=number, metadata={"n": bytes([number])})
        await fs.write(f"/d/e/{number}", b"x", attributes=attributes)
    await fs.set_attributes("/d", uid=3)
    await fs.rename("/d/e", "/d/f")
    await fs.rename("/d/f/0", "/moved")
    await fs.set_attributes("/d/f/1", read_only=True, metadata={"n": None})
    await fs.delete("/d/f/2")
    await fs.write("/plain", b"")


async def state(fs: S3kClient) -> State:
    found = {each.path: each.attributes async for each in fs.list("/", recursive=True)}
    timed = {path for path, each in found.items() if each.changed_ms is not None}
    assert timed == {"/d", "/d/f/1"}
    return {path: (each, each.changed_ms) for path, each in found.items()}


async def check(fs: S3kClient, wanted: State) -> None:
    """The attributes and the times of their last change are as wanted, and the search finds what
    has the name, and nothing else."""
    assert await state(fs) == wanted
    found = sorted([each.path async for each in fs.find(metadata="n")])
    assert found == sorted(path for path, (each, _) in wanted.items() if "n" in each.metadata)
    assert len(found) == LARGE - 2


async def findings(place: Yard) -> list[tuple[str, str]]:
    await place.settle()
    place.clock.advance(DAY)
    report = await verify_volume(place.volume)
    return sorted(
        (each.kind, each.path) for each in report.findings if each.kind != "collectable_data"
    )


async def test_fsck_finds_nothing(place: Yard) -> None:
    await fill(place.client)
    wanted = await state(place.client)
    assert await findings(place) == []
    await place.gc()
    assert await findings(place) == []
    await check(place.client, wanted)


async def test_fsck_compares_attributes_with_the_log(place: Yard) -> None:
    fs = place.client
    await fill(fs)
    await place.settle()
    key = await place.key("/moved")
    await place.volume.items.write(Update(key, Condition(), {"attrs": '{"mode":511}'}))
    assert (await fs.stat("/moved")).attributes.mode == 0o777
    assert await findings(place) == [("log_disagrees", "/moved")]
    await repair_volume(place.volume, dry_run=False)
    assert await findings(place) == []
    assert (await fs.stat("/moved")).attributes == Attributes(mode=0o777)


async def test_a_misplaced_item_comes_back_with_its_names(
    place: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs, items = place.client, place.volume.items
    await fs.write("/d/f", b"x", attributes=Attributes(metadata={"n": b"1"}))
    await place.settle()
    key = await place.key("/d/f")
    item = await items.get(key)
    assert item is not None
    keys = place.volume.store.keys
    entry_key = from_item(item, keys).entry_key
    partitions = keys.partitions(keys.parent_key(entry_key))
    wrong = next(each for each in partitions if each != key.partition)
    await items.write(Delete(key, Condition()))
    await items.write(Put({**item, PARTITION: wrong}, ABSENT))
    monkeypatch.setattr(metadata_index, "STALE_SECONDS", -1)
    assert [each async for each in fs.find(metadata="n")] == []
    assert ("item_misplaced", "") in await findings(place)
    await repair_volume(place.volume, dry_run=False)
    assert [each.path async for each in fs.find(metadata="n")] == ["/d/f"]


@pytest.mark.parametrize("compacted", [False, True])
async def test_a_lost_table_comes_back_with_its_attributes(place: Yard, compacted: bool) -> None:
    fs = place.client
    await fill(fs)
    wanted = await state(fs)
    place.clock.advance(DAY)
    await place.settle()
    if compacted:
        assert place.volume.log_blobs is not None
        await Compactor(place.volume.log_blobs, place.runtime).run(dry_run=False)
    await fs.close()
    await MemoryItems(place.config.name).drop()
    await restore_volume(place.config, dry_run=False)
    async with S3kClient(config=place.config) as again:
        await check(again, wanted)


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
async def test_a_dump_carries_attributes(place: Yard, tmp_path: Path, form: DumpForm) -> None:
    fs = place.client
    await fill(fs)
    wanted = await state(fs)
    dump = str(tmp_path / f"dump.{form}")
    await dump_volume(place.volume, dump, form=form)
    target = memory_config(layout=place.config.layout or "path")
    await load_volume(dump, target, bytes_from=place.volume)
    async with S3kClient(config=target) as loaded:
        await check(loaded, wanted)


async def test_attributes_are_not_loaded_into_a_volume_without_them(
    place: Yard, tmp_path: Path
) -> None:
    await fill(place.client)
    dump = str(tmp_path / "dump.jsonl")
    await dump_volume(place.volume, dump)
    target = memory_config(layout=place.config.layout or "path")
    await init_volume(target, without=["attributes"])
    with pytest.raises(UnsupportedError, match="migrate --enable attributes"):
        await load_volume(dump, target, bytes_from=place.volume)
    async with S3kClient(config=target) as empty:
        assert [each async for each in empty.list("/")] == []


async def test_a_volume_of_another_suffix_count(place: Yard) -> None:
    await fill(place.client)
    wanted = await state(place.client)
    await place.settle()
    await place.client.close()
    await reshard_volume(place.config, 7)
    async with S3kClient(config=place.config) as again:
        await check(again, wanted)


async def test_a_volume_of_the_other_layout(place: Yard) -> None:
    await fill(place.client)
    wanted = await state(place.client)
    await place.settle()
    await place.client.close()
    other: LayoutName = "path" if place.config.layout == "tree" else "tree"
    await change_layout(place.config, other)
    async with S3kClient(config=replace(place.config, layout=other)) as again:
        await check(again, wanted)
