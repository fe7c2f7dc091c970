"""The time of the last change of attributes, user metadata and modification time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

import pytest

from s3k_async._core.runtime import SYSTEM
from s3k_async.attributes import MAX_BYTES, Attributes
from s3k_async.backends.ports.items import Condition, Update
from s3k_async.client import S3kClient
from s3k_async.model import FileStatus, LayoutName
from s3k_async.objects import ObjectStore
from s3k_async.testing import FaultPlan
from s3k_async.volumes import init_volume
from tests.client.rig import faulty_client, memory_config
from tests.client.transacting import problems

pytestmark = pytest.mark.layouts("path", "tree")


@dataclass
class World:
    """A client whose clock is set by hand, and its calls."""

    time_ms: int = 1_700_000_000_000
    faults: FaultPlan = field(default_factory=FaultPlan)

    async def calls_of_change(self, fs: S3kClient, path: str, mode: int) -> list[str]:
        before = len(self.faults.calls)
        await fs.set_attributes(path, mode=mode)
        await fs._volume().log.drained()
        return sorted(f"{each.store} {each.method}" for each in self.faults.calls[before:])


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
async def fs(world: World, layout: LayoutName) -> AsyncIterator[S3kClient]:
    config = memory_config(layout=layout)
    runtime = replace(SYSTEM, now_ms=lambda: world.time_ms)
    await init_volume(config)
    async with faulty_client(world.faults, config, runtime) as client:
        yield client


def changed(status: FileStatus) -> int:
    return status.attributes.last_change(status.mtime_ms)


# The value


def test_the_time_is_no_part_of_the_value() -> None:
    plain = Attributes(mode=0o640, metadata={"a": b"1"})
    timed = replace(plain, changed_ms=5)
    assert timed == plain
    assert hash(timed) == hash(plain)
    again = Attributes.from_json(timed.to_json())
    assert (again, again.changed_ms) == (plain, 5)
    assert Attributes.from_json(Attributes(changed_ms=5).to_json()).changed_ms == 5
    assert (Attributes().last_change(7), timed.last_change(7), timed.last_change(3)) == (7, 7, 5)


def test_the_time_takes_no_room_from_the_attributes() -> None:
    full = Attributes(metadata={"a": bytes((MAX_BYTES - len('{"metadata":{"a":""}}')) // 4 * 3)})
    assert MAX_BYTES - 4 < len(full.to_json()) <= MAX_BYTES
    assert len(replace(full, changed_ms=10**12).checked("/f").to_json()) > MAX_BYTES


# Changes


async def test_every_change_has_a_time(fs: S3kClient, world: World) -> None:
    await fs.write("/d/f", b"one")
    for path in ("/d/f", "/d"):
        made = await fs.stat(path)
        assert (made.attributes.changed_ms, changed(made)) == (None, made.mtime_ms)
        for change in (
            {"mode": 0o640},
            {"uid": 1},
            {"gid": 2},
            {"metadata": {"a": b"1"}},
            {"metadata": {"a": None}},
            {"mtime_ms": 1},
            {"read_only": True},
        ):
            world.time_ms += 1000
            status = await fs.set_attributes(path, **change)
            assert changed(status) == status.attributes.changed_ms == world.time_ms
            assert await fs.stat(path) == status
        world.time_ms += 1000
        for change in ({"read_only": True}, {"mode": 0o640}, {"metadata": {"x": None}}, {}):
            assert await fs.set_attributes(path, **change) == status
        await fs.set_attributes(path, read_only=False)
    listed = [each.attributes.changed_ms async for each in fs.list("/", recursive=True)]
    assert listed == [world.time_ms, world.time_ms - 8000]
    assert await problems(fs) == []


async def test_a_clock_that_goes_backwards(fs: S3kClient, world: World) -> None:
    await fs.write("/f", b"one")
    latest = world.time_ms = world.time_ms + 5000
    await fs.set_attributes("/f", mode=0o600)
    world.time_ms -= 3000
    assert changed(await fs.set_attributes("/f", mode=0o640)) == latest
    assert changed(await fs.set_attributes("/f", mtime_ms=1)) == latest
    assert changed(await fs.write("/f", b"two", attributes=Attributes(mode=0o600))) == latest


async def test_content_is_changed_too(fs: S3kClient, world: World) -> None:
    await fs.write("/f", b"one")
    world.time_ms += 1000
    attributes = (await fs.set_attributes("/f", mode=0o600)).attributes
    world.time_ms += 1000
    written = await fs.append("/f", b"two")
    assert written.attributes.changed_ms == attributes.changed_ms == world.time_ms - 1000
    assert changed(written) == written.mtime_ms == world.time_ms


async def test_an_overwrite_with_other_attributes(fs: S3kClient, world: World) -> None:
    attributes = Attributes(mode=0o600)
    made = await fs.write("/f", b"", attributes=attributes)
    assert made.attributes.changed_ms is None
    world.time_ms += 1000
    assert (await fs.write("/f", b"", attributes=attributes)).attributes.changed_ms is None
    world.time_ms += 1000
    written = await fs.write("/f", b"", attributes=Attributes(mode=0o640, changed_ms=1))
    assert written.attributes.changed_ms == world.time_ms


async def test_a_copy_begins_anew_and_what_is_moved_keeps_it(fs: S3kClient, world: World) -> None:
    await fs.write("/d/f", b"one")
    for path in ("/d/f", "/d"):
        await fs.set_attributes(path, metadata={"a": b"1"})
    time = world.time_ms
    world.time_ms += 1000
    await fs.copy("/d", "/e", recursive=True)
    await fs.copy("/d/f", "/g")
    given = (await fs.stat("/d/f")).attributes
    await fs.write("/h", b"", attributes=given)
    await fs.write_many([("/i", b"")])
    for path in ("/e", "/e/f", "/g", "/h", "/i"):
        assert (await fs.stat(path)).attributes.changed_ms is None
    versions = {each.path: each.version async for each in fs.list("/", recursive=True)}
    await fs.copy("/d", "/e", recursive=True, overwrite=True)
    assert (await fs.stat("/e")).version == versions["/e"]
    await fs.rename("/d/f", "/moved")
    await fs.exchange("/moved", "/g")
    await fs.rename("/d", "/renamed")
    for path in ("/g", "/renamed"):
        assert (await fs.stat(path)).attributes.changed_ms == time
    assert await problems(fs) == []


async def test_an_undeleted_file_begins_anew(fs: S3kClient, world: World) -> None:
    await fs.write("/f", b"one")
    await fs.set_attributes("/f", mode=0o600)
    await fs.delete("/f")
    await fs._volume().log.drained()
    await fs.undelete("/f")
    attributes = (await fs.stat("/f")).attributes
    assert (attributes, attributes.changed_ms) == (Attributes(mode=0o600), None)


async def test_the_time_costs_no_call(fs: S3kClient, world: World) -> None:
    """Not of the change itself, and not of the index when the file gets another place."""
    await fs.write("/f", b"one")
    first = await world.calls_of_change(fs, "/f", 0o600)
    assert await world.calls_of_change(fs, "/f", 0o640) == first
    before = len(world.faults.calls)
    assert await world.calls_of_change(fs, "/f", 0o640) != first
    assert {each.method for each in world.faults.calls[before:]} <= {"get", "get_many"}
    await fs.rename("/f", "/g")
    assert not [each for each in world.faults.calls if "s3k:meta/" in each.key]


async def test_attributes_without_a_time(fs: S3kClient, world: World) -> None:
    """Their attributes have no time, and get one with their next change."""
    status = await fs.write("/f", b"one", attributes=Attributes(mode=0o600))
    entry = await fs._volume().store.get("/f")
    assert entry is not None
    await fs._volume().items.write(
        Update(fs._volume().store.keys.of(entry), Condition(), {"attrs": '{"mode":384,"uid":1}'})
    )
    assert changed(await fs.stat("/f")) == status.mtime_ms
    world.time_ms += 1
    assert changed(await fs.set_attributes("/f", uid=2)) == world.time_ms


async def test_a_volume_without_attributes_records_no_time(layout: LayoutName) -> None:
    config = memory_config(layout=layout)
    await init_volume(config, without=["attributes"])
    async with S3kClient(config=config) as fs:
        objects = ObjectStore(fs)
        await objects.create_bucket("b")
        await objects.create("b", "k", b"")
        touched = await objects.touch("b", "k", modified=5)
        assert (touched.changed_ms, (await fs.stat("/b/k")).attributes_json) == (5, "")
