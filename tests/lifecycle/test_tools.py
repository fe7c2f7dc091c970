"""Rules under fsck, gc, destroy, dump and load, reshard, changes of the layout and of features."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from s3k_async.attributes import Attributes
from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.ports.items import PARTITION, SORT, Condition, Delete, Key, Update
from s3k_async.backends.ports.pagination import scan_all
from s3k_async.client import S3kClient
from s3k_async.errors import InvalidArgumentError, UnsupportedError
from s3k_async.integrity.repair import repair_volume
from s3k_async.migrate import (
    change_layout,
    dump_volume,
    enable_features,
    load_volume,
    reshard_volume,
)
from s3k_async.model import LayoutName
from s3k_async.namespace.due_items import FIRST_HOUR, HOUR, HOUR_MS, RULE_PARTITION
from s3k_async.testing import FaultPlan
from s3k_async.volumes import destroy_volume, init_volume
from s3k_async.volumes.restoration import restore_volume
from tests.client.rig import faulty_client, memory_config
from tests.integrity.garbage import gc_of
from tests.lifecycle.ruled import DAY, TUNING, Ruled, ruled
from tests.support import FakeClock, fake_runtime

pytestmark = pytest.mark.layouts("path", "tree")


async def fill(place: Ruled) -> None:
    """`/d/x/f` and `/own` expire after ten days, `/other` never."""
    fs = place.client
    await fs.set_rule("/d", expire_after=864_000)
    await fs.write("/d/x/f", b"1")
    await fs.write("/own", b"1", attributes=Attributes(metadata={"ExpiresAfter": b"864000"}))
    await fs.write("/other", b"1")
    await fs.run_rules()


async def check(place: Ruled, client: S3kClient) -> None:
    """What is due, and nothing else, goes at its time."""
    for path in ("/d/x/f", "/own"):
        await client.stat(path)
    place.clock.seconds = (await client.stat("/own")).mtime_ms / 1000 + 10 * DAY
    await client.run_rules()
    found = {each.path async for each in client.list("/", recursive=True) if each.is_file}
    assert found == {"/other"}


async def test_fsck_and_gc_know_the_items(place: Ruled, tmp_path: Path) -> None:
    await fill(place)
    await place.client.write("/d/requested", b"")
    await place.client.set_rule("/e", read_only_after=5)
    before = sorted(map(str, await place.stored()))
    assert await place.findings() == []
    collector = gc_of(place.client._volume(), place.runtime)
    marked = await collector.mark(str(tmp_path / "candidates"))
    await collector.clean_up(marked)
    await collector.sweep(str(tmp_path / "candidates"))
    assert sorted(map(str, await place.stored())) == before
    await check(place, place.client)
    assert await place.findings() == []


@pytest.mark.parametrize("what", ["rule", "due", "scan", "hour"])
async def test_fsck_repairs_damaged_items(place: Ruled, what: str) -> None:
    await fill(place)
    await place.client.set_rule("/e", read_only_after=5)
    items = place.client._volume().items
    stored = await place.stored()
    scan = next(x for x in stored if "-sf" in str(x[PARTITION]) and "entry" not in x)
    chosen = {
        "rule": (next(x for x in stored if x[PARTITION] == RULE_PARTITION), "expire_after"),
        "due": (next(x for x in stored if "entry" in x), "ver"),
        "scan": (scan, "time"),
        "hour": ({PARTITION: FIRST_HOUR.partition, SORT: FIRST_HOUR.sort}, HOUR),
    }
    item, name = chosen[what]
    key = Key(str(item[PARTITION]), str(item[SORT]))
    await items.write(Update(key, Condition(), {name: "x"}))
    assert [kind for kind, _ in await place.findings()] == ["item_damaged"]
    await repair_volume(place.client._volume(), dry_run=False)
    assert await items.get(key) is None
    assert await place.findings() == []
    assert (await place.client.run_rules()).failures == ()


async def test_a_damaged_rule_does_not_stop_writers(
    place: Ruled, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(place)
    (rule,) = [each for each in await place.stored() if each[PARTITION] == RULE_PARTITION]
    key = Key(str(rule[PARTITION]), str(rule[SORT]))
    await place.client._volume().items.write(Update(key, Condition(), {"expire_after": -1}))
    async with faulty_client(FaultPlan(), place.config, place.runtime) as other:
        await other.write("/d/g", b"1")
    assert "damaged lifecycle rule" in caplog.text


async def test_a_restored_entry_expires(place: Ruled) -> None:
    """One whose item was lost, and that fsck has put back."""
    await fill(place)
    volume = place.client._volume()
    await volume.log.drained()
    entry = await volume.store.get("/d/x/f")
    assert entry is not None
    await volume.items.write(Delete(volume.store.keys.of(entry), Condition()))
    for item in await place.due_items():
        key = Key(str(item[PARTITION]), str(item[SORT]))
        if item["shown"] == "/d/x/f":
            await volume.items.write(Delete(key, Condition()))
    place.clock.advance(DAY)
    await repair_volume(volume, dry_run=False)
    assert [each["shown"] for each in await place.due_items() if each["shown"] != "/own"] == [
        "/d/x/f"
    ]
    await check(place, place.client)


async def test_destroy(place: Ruled) -> None:
    await fill(place)
    await place.client.close()
    await destroy_volume(place.config, force=True)
    await init_volume(place.config, runtime=place.runtime, enable=["rules"])
    items = MemoryItems(place.config.name)
    found = [item async for page in scan_all(items) for item in page]
    assert [each[PARTITION] for each in found] == ["s3k:volume"]


async def test_a_dump_has_the_tree_and_a_load_obeys_the_rules_of_its_target(
    place: Ruled, tmp_path: Path
) -> None:
    await fill(place)
    dump = str(tmp_path / "dump.jsonl")
    await place.client._volume().log.drained()
    await dump_volume(place.client._volume(), dump)
    await place.client.close()
    await destroy_table(place)
    await load_volume(dump, place.config, runtime=place.runtime)
    async with faulty_client(FaultPlan(), place.config, place.runtime) as client:
        assert await client.rules() == []
        await client.set_rule("/d", expire_after=864_000)
        assert [each["shown"] for each in await place.due_items()] == ["/own"]
        await check(place, client)


async def destroy_table(place: Ruled) -> None:
    await MemoryItems(place.config.name).drop()


async def test_a_lost_table(place: Ruled) -> None:
    """Rules are lost with it; metadata is not."""
    await fill(place)
    await place.client._volume().log.drained()
    place.clock.advance(DAY)
    await place.client.close()
    await destroy_table(place)
    await restore_volume(place.config, dry_run=False, runtime=place.runtime)
    async with faulty_client(FaultPlan(), place.config, place.runtime) as client:
        assert await client.rules() == []
        await client.set_rule("/d", expire_after=864_000)
        await check(place, client)


async def test_reshard(place: Ruled) -> None:
    await fill(place)
    await place.client.close()
    await reshard_volume(place.config, 7, runtime=place.runtime)
    async with faulty_client(FaultPlan(), place.config, place.runtime) as client:
        await check(place, client)


async def test_the_other_layout(place: Ruled, layout: LayoutName) -> None:
    await fill(place)
    target: LayoutName = "tree" if layout == "path" else "path"
    await place.client.close()
    await change_layout(place.config, target, runtime=place.runtime)
    config = replace(place.config, layout=target)
    async with faulty_client(FaultPlan(), config, place.runtime) as client:
        await check(place, client)
        result = await client.run_rules()
        assert result.failures == ()
    items = MemoryItems(place.config.name)
    found = [item async for page in scan_all(items) for item in page]
    assert [each["shown"] for each in found if "entry" in each] == []


async def test_a_volume_that_gets_the_feature(layout: LayoutName) -> None:
    """No earlier hour is read, and metadata that was there before is obeyed."""
    clock = FakeClock()
    runtime = fake_runtime(clock, seed=5)
    config = memory_config(TUNING, layout)
    await init_volume(config, runtime=runtime)
    async with faulty_client(FaultPlan(), config, runtime) as client:
        await client.write("/d/f", b"1")
        await client.write("/own", b"1", attributes=Attributes(metadata={"ExpiresAfter": b"9"}))
        await client.write("/bad", b"1", attributes=Attributes(metadata={"ExpiresAt": b"soon"}))
        with pytest.raises(UnsupportedError):
            await client.rules()
    clock.advance(100 * DAY)
    assert await enable_features(config, ["rules"], runtime=runtime) == ("rules",)
    faults = FaultPlan()
    async with faulty_client(faults, config, runtime) as client:
        item = await client._volume().items.get(FIRST_HOUR)
        assert item is not None
        assert abs(int(item[HOUR]) - clock.now_ms() // HOUR_MS) <= 1
        assert (await client.run_rules()).expired == 1
        await client.set_rule("/", expire_after=10)
        assert (await client.run_rules()).expired == 2
        assert len([each for each in faults.calls if each.method == "query"]) < 250


async def test_rules_need_attributes() -> None:
    config = memory_config(TUNING)
    with pytest.raises(InvalidArgumentError):
        await init_volume(config, enable=["rules"], without=["attributes"])


async def test_a_volume_without_the_feature_makes_no_more_requests(layout: LayoutName) -> None:
    async with ruled(layout, features=()) as place:
        fs = place.client
        await fs.makedirs("/d")
        place.faults.calls.clear()
        await fs.write("/d/f", b"1")
        await fs.rename("/d/f", "/d/g")
        await fs.delete("/d/g")
        assert not [each for each in place.faults.calls if each.method == "query"]
        assert await place.stored() == []
