"""Several volumes in one table: each has its own prefix, record and lock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import TypeAlias

import anyio
import pytest

from s3k_async import S3kClient, S3kSyncClient
from s3k_async._core.runtime import SYSTEM
from s3k_async.adapters.arrow import S3kHandler
from s3k_async.backends.ports.items import ABSENT, Condition, Delete, Item, Key, Put
from s3k_async.backends.ports.pagination import scan_all
from s3k_async.backends.retrying.prefixed_items import (
    CATALOG,
    PrefixedItems,
    check_table_prefix,
    shared_key,
)
from s3k_async.config import MemoryBlobs, MemoryTable, VolumeConfig
from s3k_async.diagnosis.volume_diagnosis import diagnose
from s3k_async.errors import (
    BusyError,
    ConfigError,
    InvalidPathError,
    NotAVolumeError,
    PathExistsError,
    VolumeExistsError,
    VolumeFormatError,
    VolumeMismatchError,
    VolumeNotFoundError,
)
from s3k_async.integrity.repair import verify_volume
from s3k_async.migrate import (
    change_layout,
    dump_volume,
    enable_features,
    load_volume,
    reshard_volume,
)
from s3k_async.model import LayoutName
from s3k_async.settings import resolve
from s3k_async.testing import Call, Died, FaultPlan, Moment
from s3k_async.txn import volume_record
from s3k_async.txn.volume_lock import QUIET_SECONDS, VolumeLock
from s3k_async.txn.volume_record import APPEARANCE, RECORD_KEY, TAG, VolumeRecord
from s3k_async.volumes import open_volume
from s3k_async.volumes.claims import CLAIM, read_claim
from s3k_async.volumes.connections import VolumeConnections
from s3k_async.volumes.creation import init_volume
from s3k_async.volumes.destruction import destroy_volume
from s3k_async.volumes.restoration import restore_volume
from s3k_async.volumes.table_volumes import TableVolume, table_volumes
from tests.engines.volumes import VolumeMaker, volume_backends
from tests.migrate.rig import FILES, fill
from tests.support import FakeClock, fake_runtime
from tests.test_ownership import collect, repair, reshard


async def _sleep(seconds: float) -> None:
    """The waits for open clients, and for the creator of a volume, take no time."""
    await anyio.sleep(0 if seconds == QUIET_SECONDS or seconds <= APPEARANCE.cap else seconds)


HURRIED = replace(SYSTEM, sleep=_sleep)
Items: TypeAlias = dict[Key, Item]
LAYOUTS: tuple[LayoutName, ...] = ("path", "tree")
_tables = (f"shared-{number}" for number in count())


def volume(table: str, prefix: str, layout: LayoutName = "path") -> VolumeConfig:
    """A volume in a table in memory. All have the same name: it is no part of the prefix."""
    data = f"{table}-{prefix or 'alone'}"
    return VolumeConfig(
        "data",
        MemoryTable(table),
        MemoryBlobs(data),
        suffix_count=4,
        layout=layout,
        table_prefix=prefix,
    )


async def table_items(config: VolumeConfig) -> Items:
    """All items of the table, by their keys in it."""
    async with AsyncExitStack() as stack:
        whole, _ = VolumeConnections(config, SYSTEM, None, stack).whole_table()
        return {
            Key(str(item["path"]), str(item["children"])): dict(item)
            async for page in scan_all(whole)
            for item in page
        }


async def own_items(config: VolumeConfig) -> Items:
    """The items that belong to a volume, including that of the catalog."""
    prefix = config.table_prefix
    return {
        key: item
        for key, item in (await table_items(config)).items()
        if key.partition.startswith(f"{prefix}/") or key == (CATALOG, prefix)
    }


async def contents(config: VolumeConfig) -> dict[str, bytes | None]:
    async with S3kClient(config=config) as fs:
        found = [status async for status in fs.list("/", recursive=True)]
        return {
            status.path: None if status.is_dir else await fs.read(status.path) for status in found
        }


@pytest.fixture(params=LAYOUTS)
async def neighbours(request: pytest.FixtureRequest) -> tuple[VolumeConfig, VolumeConfig]:
    """Two volumes with equal paths in one table."""
    table = next(_tables)
    pair = volume(table, "a", request.param), volume(table, "a.b", request.param)
    for config in pair:
        await init_volume(config)
        await fill(config)
    return pair


async def test_volumes_have_equal_paths_and_different_files(
    neighbours: tuple[VolumeConfig, VolumeConfig],
) -> None:
    one, two = neighbours
    before = await own_items(two), await contents(two)
    async with S3kClient(config=one) as fs:
        await fs.write("/top", b"changed")
        await fs.rename("/a", "/renamed")
        await fs.delete("/c", recursive=True)
    assert (await own_items(two), await contents(two)) == before
    assert (await contents(one))["/top"] == b"changed"
    assert (await contents(one))["/renamed/deep/er/3"] == FILES["/a/deep/er/3"]
    keys = {key.partition.partition("/")[0] for key in await table_items(one)}
    assert keys == {"a", "a.b", RECORD_KEY.partition, CATALOG}


async def test_destroy_leaves_the_neighbour_as_it_is(
    neighbours: tuple[VolumeConfig, VolumeConfig],
) -> None:
    one, two = neighbours
    before = await own_items(two), await contents(two)
    await destroy_volume(one, force=True, runtime=HURRIED)
    assert await own_items(one) == {}
    assert (await own_items(two), await contents(two)) == before
    with pytest.raises(VolumeNotFoundError, match="no volume with this prefix"):
        await open_volume(one, runtime=HURRIED)
    await init_volume(one)
    assert await contents(one) == {}


async def lose(config: VolumeConfig) -> None:
    """Remove the items of a volume out of band, including its record and its item in the
    catalog."""
    lost = await own_items(config)
    assert lost
    async with AsyncExitStack() as stack:
        whole, _ = VolumeConnections(config, SYSTEM, None, stack).whole_table()
        for key in lost:
            await whole.write(Delete(key, Condition()))


async def restore(config: VolumeConfig, directory: Path) -> None:
    await lose(config)
    await restore_volume(replace(config, suffix_count=None), dry_run=False, runtime=HURRIED)


async def load(config: VolumeConfig, directory: Path) -> None:
    dump = str(directory / "dump")
    opened = await open_volume(config)
    try:
        await dump_volume(opened, dump)
    finally:
        await opened.close()
    await lose(config)
    await load_volume(dump, replace(config, suffix_count=None), runtime=HURRIED)


async def migrate(config: VolumeConfig, directory: Path) -> None:
    """To layout `tree`; one that has it, and a trash, gets a feature instead."""
    if config.layout == "tree":
        await enable_features(config, ["rules"], runtime=HURRIED)
    else:
        await change_layout(replace(config, layout=None), "tree", runtime=HURRIED)


TOOLS: dict[str, Callable[[VolumeConfig, Path], Awaitable[None]]] = {
    "gc": collect,
    "repair": repair,
    "reshard": reshard,
    "migrate": migrate,
    "restore": restore,
    "load": load,
}


@pytest.mark.parametrize("tool", TOOLS)
async def test_the_tools_see_one_volume(
    neighbours: tuple[VolumeConfig, VolumeConfig], tool: str, tmp_path: Path
) -> None:
    """The other volume has damage, items of an interrupted transaction, and garbage: none of it is
    reported, repaired or deleted."""
    one, two = neighbours
    async with AsyncExitStack() as stack:
        items, _ = VolumeConnections(two, SYSTEM, None, stack).table()
        for partition in ("ks://data/nowhere-sf0", "kt:nothing-sf1", "ks://odd", "other"):
            await items.write(Put({"path": partition, "children": "x", "n": 1}, ABSENT))
    before, data = await own_items(two), await contents(one)
    await TOOLS[tool](replace(one, suffix_count=None), tmp_path)
    assert await own_items(two) == before
    assert await contents(replace(one, suffix_count=None, layout=None)) == data


async def test_fsck_reports_its_own_items_alone(
    neighbours: tuple[VolumeConfig, VolumeConfig],
) -> None:
    _, two = neighbours
    async with AsyncExitStack() as stack:
        items, _ = VolumeConnections(two, SYSTEM, None, stack).table()
        await items.write(Put({"path": "ks://data/a-sf0", "children": "x"}, ABSENT))
    found = {}
    for config in neighbours:
        opened = await open_volume(config)
        try:
            found[config.table_prefix] = await verify_volume(opened, grace=-100.0)
        finally:
            await opened.close()
    assert found["a"].problems == []
    assert [problem.path or problem.key for problem in found["a.b"].problems] != []


async def test_the_lock_of_a_volume_is_its_own(
    neighbours: tuple[VolumeConfig, VolumeConfig],
) -> None:
    one, two = neighbours
    opened = await open_volume(one)
    try:
        await VolumeLock("reshard", "5", SYSTEM).take(opened.items, opened.record, one.where)
        with pytest.raises(BusyError, match="reshard"):
            await open_volume(one)
        assert (await contents(two))["/top"] == b"top"
        assert {each.prefix: each.state for each in await listed(one)} == {
            "a": "locked",
            "a.b": "ready",
        }
    finally:
        await opened.close()


async def listed(config: VolumeConfig) -> list[TableVolume]:
    return [each async for each in table_volumes(config.table, config.tuning)]


async def test_the_catalog_lists_every_volume_of_a_table() -> None:
    table = next(_tables)
    configs = [volume(table, f"team-{number:03}") for number in range(120)]
    for config in configs:
        await init_volume(config)
    found = await listed(configs[0])
    assert [each.prefix for each in found] == [config.table_prefix for config in configs]
    assert all(each.state == "ready" for each in found)
    assert {each.record.data for each in found if each.record} == {
        f"memory://{table}-{config.table_prefix}/" for config in configs
    }
    alone = volume(next(_tables), "")
    with pytest.raises(VolumeNotFoundError):
        await listed(alone)
    record = await init_volume(alone)
    assert await listed(alone) == [TableVolume("", "ready", record)]


async def test_a_lost_record_is_restored_from_the_catalog_and_the_other_way_round(
    neighbours: tuple[VolumeConfig, VolumeConfig],
) -> None:
    one, _ = neighbours
    data = await contents(one)
    record = shared_key(one.table_prefix, RECORD_KEY)
    for lost in (record, Key(CATALOG, one.table_prefix)):
        async with AsyncExitStack() as stack:
            whole, _ = VolumeConnections(one, SYSTEM, None, stack).whole_table()
            await whole.write(Delete(lost, Condition()))
        if lost == record:
            assert [each.state for each in await listed(one)] == ["damaged", "ready"]
        else:
            assert [each.prefix for each in await listed(one)] == ["a.b"]
        assert await contents(one) == data
        assert [each.state for each in await listed(one)] == ["ready", "ready"]


@volume_backends("embedded", "dynoxide+seaweedfs", slow=["redis", "rocksdb"])
async def test_every_backend_of_tables_can_be_shared(new_volume: VolumeMaker) -> None:
    one = replace(new_volume("data", suffix_count=4), table_prefix="a")
    two = replace(one, data=new_volume.rooms.blobs(), layout="tree", table_prefix="b")
    files = {"/a/1": b"one", "/a/deep/3": b"three", "/c/x:y ä": b"", "/top": b"top"}
    for config in (one, two):
        await init_volume(config)
        async with S3kClient(config=config) as fs:
            await fs.write_many(files.items())
    before, data = await own_items(two), await contents(two)
    assert {path: content for path, content in data.items() if content is not None} == files
    async with S3kClient(config=one) as fs:
        await fs.write("/a/1", b"changed")
        await fs.rename("/a", "/renamed")
        await fs.delete("/c", recursive=True)
        assert await fs.read("/renamed/1") == b"changed"
        assert await fs.read("/renamed/deep/3") == files["/a/deep/3"]
        with pytest.raises(PathExistsError):
            await fs.rename("/top", "/renamed/1")
    await reshard_volume(replace(one, suffix_count=None), 3, runtime=HURRIED)
    one = replace(one, suffix_count=3)
    opened = await open_volume(one)
    try:
        assert (await verify_volume(opened, grace=-100.0)).problems == []
    finally:
        await opened.close()
    with pytest.raises(VolumeMismatchError, match="table_prefix"):
        await open_volume(replace(one, table_prefix=""))
    assert [each.state for each in await listed(one)] == ["ready", "ready"]
    await destroy_volume(one, force=True, runtime=HURRIED)
    assert await own_items(one) == {}
    assert (await own_items(two), await contents(two)) == (before, data)
    assert [each.prefix for each in await listed(one)] == ["b"]
    await destroy_volume(two, force=True, runtime=HURRIED)
    assert [key for key in await table_items(two) if key != RECORD_KEY] == []


async def test_the_doctor_names_a_missing_or_wrong_prefix(
    neighbours: tuple[VolumeConfig, VolumeConfig],
) -> None:
    one, _ = neighbours
    assert (await diagnose(one)).of("failure") == []
    for prefix, text, remedy in (
        ("", "several volumes", "s3k volumes"),
        ("c", "no volume with the prefix c", "s3k init"),
    ):
        diagnosis = await diagnose(replace(one, table_prefix=prefix))
        failure = next(each for each in diagnosis.of("failure") if each.name == "record")
        assert text in failure.found
        assert remedy in failure.remedy


async def test_filesystems_of_pyarrow_are_equal_if_the_prefixes_are(
    neighbours: tuple[VolumeConfig, VolumeConfig],
) -> None:
    one, two = neighbours
    first, again, other = (S3kHandler(S3kSyncClient(config=config)) for config in (one, one, two))
    assert first == again
    assert first != other


# What may share a table


async def test_a_volume_without_a_prefix_shares_with_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone, beside = volume(table := next(_tables), ""), volume(table, "a")
    await init_volume(alone)
    before = await table_items(alone)
    with pytest.raises(VolumeMismatchError, match="without a prefix"):
        await init_volume(beside)
    with pytest.raises(VolumeNotFoundError):
        await open_volume(beside, runtime=HURRIED)
    assert await table_items(alone) == before
    shared, without = volume(table := next(_tables), "a"), volume(table, "")
    await init_volume(shared)
    before = await table_items(shared)
    refusals: list[Callable[[], Awaitable[object]]] = [
        lambda: init_volume(without),
        lambda: init_volume(without, exist_ok=True),
        lambda: init_volume(without, take_over=True),
        lambda: open_volume(without, runtime=HURRIED),
        lambda: destroy_volume(without, force=True, runtime=HURRIED),
    ]
    for refused in refusals:
        with pytest.raises(VolumeMismatchError, match="table_prefix"):
            await refused()
    monkeypatch.setattr(volume_record, "SHARED", "unknown to a version without prefixes")
    for refused in refusals:
        with pytest.raises(VolumeFormatError, match="format 2"):
            await refused()
    assert await table_items(shared) == before


async def test_a_volume_of_the_old_kind_has_no_prefix() -> None:
    """It would look empty."""
    await init_volume(volume(table := next(_tables), "a"))
    config = replace(volume(table, "b"), kind="s3k-1.0", name="data")
    with pytest.raises(VolumeNotFoundError, match="no volume with this prefix"):
        await open_volume(config)


async def test_a_table_of_other_software_is_refused() -> None:
    config = volume(next(_tables), "a")
    async with AsyncExitStack() as stack:
        whole, table = VolumeConnections(config, SYSTEM, None, stack).whole_table()
        await table.create()
        await whole.write(Put({"path": "ks://old/x-sf0", "children": "f", "ver": 2}, ABSENT))
        with pytest.raises(NotAVolumeError, match="items of other software"):
            await init_volume(config)
        tagged = volume(next(_tables), "a")
        _, table = VolumeConnections(tagged, SYSTEM, None, stack).whole_table()
        await table.create()
        await table.write_tag(TAG, "f:1 k:native")
        with pytest.raises(VolumeMismatchError, match="without a prefix"):
            await init_volume(tagged)


async def test_the_lost_record_of_a_shared_table_is_made_again_by_init() -> None:
    table = next(_tables)
    await init_volume(volume(table, "a"))
    async with AsyncExitStack() as stack:
        whole, _ = VolumeConnections(volume(table, "a"), SYSTEM, None, stack).whole_table()
        await whole.write(Delete(RECORD_KEY, Condition()))
    with pytest.raises(NotAVolumeError):
        await init_volume(volume(table, ""))
    await init_volume(volume(table, "b"))
    assert [each.prefix for each in await listed(volume(table, "a"))] == ["a", "b"]
    assert RECORD_KEY in await table_items(volume(table, "a"))


async def test_of_concurrent_creations_of_both_kinds_one_wins() -> None:
    for _ in range(10):
        table = next(_tables)
        prefixed, alone = volume(table, "a"), volume(table, "")
        results = await asyncio.gather(
            init_volume(prefixed, runtime=HURRIED),
            init_volume(alone, runtime=HURRIED),
            return_exceptions=True,
        )
        made = [each for each in results if isinstance(each, VolumeRecord)]
        assert len(made) == 1
        refused = next(each for each in results if not isinstance(each, VolumeRecord))
        assert isinstance(refused, VolumeExistsError | VolumeMismatchError | VolumeNotFoundError)
        winner = prefixed if made[0] is results[0] else alone
        assert await contents(winner) == {}
        assert len(await listed(winner)) == 1


@pytest.mark.parametrize("prefixes", [("a", ""), ("", "a")])
async def test_a_volume_of_the_other_kind_that_is_created_meanwhile_is_kept(
    prefixes: tuple[str, str],
) -> None:
    late, meanwhile = (volume(table := next(_tables), prefixes[0]), volume(table, prefixes[1]))
    plan = FaultPlan()

    async def gate(call: Call) -> None:
        if call.method == "write":  # the first one to the table
            plan.gate = None
            await init_volume(meanwhile)

    plan.gate = gate
    error = VolumeMismatchError if prefixes[0] else VolumeExistsError
    with plan.injected(), pytest.raises(error):
        await init_volume(late)
    assert await contents(meanwhile) == {}
    assert [each.prefix for each in await listed(late)] == [prefixes[1]]


async def test_two_volumes_have_no_location_in_common() -> None:
    table = next(_tables)
    one = volume(table, "a")
    await init_volume(one)
    with pytest.raises(VolumeExistsError, match="belongs to the volume"):
        await init_volume(replace(volume(table, "b"), data=one.data))
    await init_volume(volume(table, "b"))
    with pytest.raises(VolumeMismatchError):
        await open_volume(replace(volume(table, "b"), data=one.data))


# Interruptions


async def interrupted(
    work: Callable[[], Awaitable[object]], number: int, when: Moment
) -> tuple[bool, int]:
    """Whether the operation was killed at a call, and its calls."""
    plan = FaultPlan()
    plan.die(number, when=when)
    with plan.injected():
        try:
            await work()
        except Died:
            return True, len(plan.calls)
    return False, len(plan.calls)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_an_interrupted_destruction_leaves_the_neighbour_as_it_is(when: Moment) -> None:
    other = volume(table := next(_tables), "b", "tree")
    await init_volume(other)
    await fill(other)
    before = await own_items(other)
    for number in range(1, 500):
        config = replace(volume(table, "a", "tree"), data=MemoryBlobs(next(_tables)))
        await init_volume(config)
        async with S3kClient(config=config) as fs:
            await fs.write("/d/f", b"x")
        destroy = partial(destroy_volume, config, force=True, runtime=HURRIED)
        died, _ = await interrupted(destroy, number, when)
        assert await own_items(other) == before
        if not died:
            break
        with suppress(VolumeNotFoundError):  # all of it was removed
            await destroy()
        assert await own_items(config) == {}
        assert await own_items(other) == before
    else:
        raise AssertionError("it never ended")
    assert await contents(other)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_an_interrupted_creation_leaves_the_neighbour_as_it_is(when: Moment) -> None:
    for number in range(1, 100):
        other, config = volume(table := next(_tables), "b"), volume(table, "a")
        if number % 2:  # else the creation makes the table, too
            await init_volume(other)
        before = await own_items(other) if number % 2 else {}
        died, _ = await interrupted(partial(init_volume, config), number, when)
        if number % 2:
            assert await own_items(other) == before
        await init_volume(config, exist_ok=True)
        assert await contents(config) == {}
        await init_volume(other, exist_ok=True)
        assert [each.prefix for each in await listed(config)] == ["a", "b"]
        if not died:
            return
    raise AssertionError("it never ended")


async def test_two_destructions_at_once_end(
    neighbours: tuple[VolumeConfig, VolumeConfig],
) -> None:
    one, two = neighbours
    before = await own_items(two)
    destroy = partial(destroy_volume, one, force=True, runtime=HURRIED)
    results = await asyncio.gather(destroy(), destroy(), return_exceptions=True)
    assert 0 in results
    assert all(each == 0 or isinstance(each, VolumeNotFoundError) for each in results)
    assert await own_items(one) == {}
    assert await own_items(two) == before


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_a_late_destruction_leaves_the_next_volume_with_the_prefix(
    layout: LayoutName,
) -> None:
    """Another client has ended the destruction meanwhile, and the prefix has a new volume."""
    config = volume(next(_tables), "a", layout)
    await init_volume(config)
    await fill(config)
    kept: Items = {}

    async def sleep(seconds: float) -> None:
        if seconds != QUIET_SECONDS or kept:
            return
        await destroy_volume(config, force=True, runtime=HURRIED)
        await init_volume(config)
        await fill(config)
        kept.update(await own_items(config))

    with pytest.raises(VolumeMismatchError, match="another volume"):
        await destroy_volume(config, force=True, runtime=replace(SYSTEM, sleep=sleep))
    assert await own_items(config) == kept
    assert await contents(config)
    async with AsyncExitStack() as stack:
        data = VolumeConnections(config, SYSTEM, None, stack).blobs(config.data, "data")
        assert await read_claim(data) is not None


async def test_a_late_destruction_leaves_the_next_volume_of_a_table() -> None:
    config, plan = volume(next(_tables), ""), FaultPlan()
    await init_volume(config)
    await fill(config)

    async def overtake(call: Call) -> None:
        if call.key == CLAIM and call.method == "delete":
            plan.gate = None
            await destroy_volume(config, force=True)
            await init_volume(config)
            await fill(config)

    plan.gate = overtake
    with plan.injected(), pytest.raises(VolumeMismatchError, match="another volume"):
        await destroy_volume(config, force=True)
    assert plan.gate is None
    assert await contents(config)


@pytest.mark.parametrize("late", ["record", "drop"])
async def test_a_late_destruction_leaves_the_volumes_that_share_the_table_now(late: str) -> None:
    """Another client has removed the table meanwhile, and volumes share the next one: before the
    late destruction looks for its record, or after it has found no table."""
    table = next(_tables)
    config, other, plan = volume(table, ""), volume(table, "a"), FaultPlan()
    await init_volume(config)
    await fill(config)
    methods: list[str] = []

    async def share() -> None:
        plan.gate = None
        await init_volume(other)
        await fill(other)

    async def overtake(call: Call) -> None:
        if call.method == "get" and methods[-1:] == ["drop"]:  # the locations have been removed
            plan.gate = None
            await destroy_volume(config, force=True)
            if late == "record":
                await share()
            else:
                plan.gate = at_drop
        methods.append(call.method)

    async def at_drop(call: Call) -> None:
        if call.method == "drop":
            await share()

    plan.gate = overtake
    with plan.injected():
        if late == "record":
            with pytest.raises(VolumeMismatchError, match="another volume"):
                await destroy_volume(config, force=True)
        else:
            await destroy_volume(config, force=True)
            if plan.gate is not None:  # it removes no table that it has not found
                await share()
    assert plan.gate is None
    assert await contents(other)


async def test_an_open_client_finds_that_volumes_share_the_table_now() -> None:
    table = next(_tables)
    config, other = volume(table, ""), volume(table, "a")
    await init_volume(config)
    opened = await open_volume(config)
    try:
        await destroy_volume(config)
        await init_volume(other)
        with pytest.raises(VolumeNotFoundError, match="removed since it was opened"):
            await opened.need_record()
    finally:
        await opened.close()


async def test_a_stalled_client_does_not_restore_a_destroyed_volume(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has read the record before, and finds no tag."""
    config, read_tag = volume(next(_tables), "a"), PrefixedItems.read_tag
    await init_volume(config)

    async def late(table: PrefixedItems, name: str) -> str | None:
        monkeypatch.setattr(PrefixedItems, "read_tag", read_tag)
        await destroy_volume(config, runtime=HURRIED)
        return await table.read_tag(name)

    monkeypatch.setattr(PrefixedItems, "read_tag", late)
    with pytest.raises(VolumeNotFoundError):
        await open_volume(config, runtime=HURRIED)
    assert await own_items(config) == {}


async def test_a_client_that_is_open_while_its_volume_is_destroyed_leaves_nothing() -> None:
    """Its last writes come before the items are removed, or are refused."""
    config = volume(next(_tables), "a")
    await init_volume(config)
    clock = FakeClock()
    runtime = fake_runtime(clock)
    opened = await open_volume(config, runtime=runtime)
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        clock.advance(seconds / 2)
        if len(waits) == 1:
            with pytest.raises(VolumeNotFoundError):
                await opened.items.get(Key("any", "item"))
        clock.advance(seconds / 2)

    try:
        await destroy_volume(config, force=True, runtime=replace(runtime, sleep=sleep))
    finally:
        await opened.close()
    assert waits == [QUIET_SECONDS]
    assert await own_items(config) == {}


# Settings


def test_the_prefix_is_a_setting() -> None:
    logs = partial(resolve, "s3k://logs", table="meta", bucket="data", prefix="logs")
    config = logs(table_prefix="team-a", environ={})
    assert (config.table_prefix, config.where) == ("team-a", "meta/team-a")
    assert logs(environ={"S3K_TABLE_PREFIX": "team-b"}).table_prefix == "team-b"
    assert logs(environ={}).table_prefix == ""
    for bad in ("a/b", "-a", ".a", "a b", "ä", "a" * 64, "s3k:volume"):
        with pytest.raises(ConfigError, match="prefix"):
            logs(table_prefix=bad, environ={})
        with pytest.raises(ConfigError):
            check_table_prefix(bad)


async def test_a_name_too_long_for_the_prefix_is_refused() -> None:
    config = volume(next(_tables), "p" * 63)
    await init_volume(config)
    fits = "/" + "/".join(["x" * 200] * 9 + ["y" * 100])
    long = "/" + "/".join(["x" * 200] * 9 + ["y" * 170, "z"])
    async with S3kClient(config=config) as fs:
        await fs.write(fits, b"1")
        before = await own_items(config)
        for refused in (fs.write(long, b"1"), fs.stat(long), fs.makedirs(long)):
            with pytest.raises(InvalidPathError, match=r"path is too long: .* prefix"):
                await refused
        assert await own_items(config) == before
