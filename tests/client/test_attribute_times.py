"""The time of the last change of attributes, user metadata and modification time."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType

import pytest

import s3k_async
from s3k_async._core.runtime import SYSTEM
from s3k_async.attributes import CHANGED, MAX_BYTES, Attributes
from s3k_async.backends.ports.items import Condition, Update
from s3k_async.client import S3kClient
from s3k_async.errors import InvalidArgumentError
from s3k_async.model import FileStatus, LayoutName
from s3k_async.objects import ObjectStore
from s3k_async.testing import FaultPlan
from s3k_async.volumes import init_volume
from tests.client.rig import faulty_client, memory_config
from tests.client.transacting import problems

pytestmark = pytest.mark.layouts("path", "tree")

ROOT = Path(s3k_async.__file__).parents[1]
MODULE = "s3k_async/attributes.py"


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


@pytest.fixture
def former(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of the commit before the time was stored. Skips without the git history."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("no git history: the sources are not a git checkout")

    def git(*arguments: str) -> bytes:
        command = ["git", "-C", str(ROOT), *arguments]
        return subprocess.run(command, capture_output=True, check=True, timeout=120).stdout

    if git("rev-parse", "--is-shallow-repository").strip() == b"true":
        pytest.skip("the git history is shallow: git fetch --unshallow")
    introduced = git("log", "--format=%H", "-SCHANGED: Final", "--", MODULE).decode().split()
    before = f"{introduced[-1]}^" if introduced else "HEAD"
    file = tmp_path / "former_attributes.py"
    file.write_bytes(git("show", f"{before}:{MODULE}"))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, file.stem, module)
    spec.loader.exec_module(module)
    assert not hasattr(module, "CHANGED")
    return module


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


@pytest.mark.parametrize("value", [b"", b"x", b"-1", b"1" * 16, b"\xff"])
def test_what_is_no_time_is_none(value: bytes) -> None:
    stored = replace(Attributes(uid=1), metadata={CHANGED: value}).to_json()
    read = Attributes.from_json(stored)
    assert (read, read.changed_ms) == (Attributes(uid=1), None)


def test_the_time_takes_no_room_from_the_attributes() -> None:
    full = Attributes(metadata={"a": bytes((MAX_BYTES - len('{"metadata":{"a":""}}')) // 4 * 3)})
    assert MAX_BYTES - 4 < len(full.to_json()) <= MAX_BYTES
    assert len(replace(full, changed_ms=10**12).checked("/f").to_json()) > MAX_BYTES


def test_a_former_client_reads_and_keeps_it(former: ModuleType) -> None:
    """It takes it for a value of user metadata, and stores it again with every change."""
    timed = Attributes(0o640, 1, 2, False, {"a": b"1"}, 1234)
    read = former.Attributes.from_json(timed.to_json())
    assert (read.mode, read.uid, read.gid, read.read_only) == (0o640, 1, 2, False)
    assert read.metadata == {"a": b"1", CHANGED: b"1234"}
    assert read.to_json() == timed.to_json()
    after = former.AttributeChange(uid=9, metadata={"a": None, "b": b"2"}).of(read, "/f")
    again = Attributes.from_json(after.to_json())
    assert (again, again.changed_ms) == (Attributes(0o640, 9, 2, False, {"b": b"2"}), 1234)


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


async def test_the_name_is_reserved(fs: S3kClient) -> None:
    before = await fs.write("/f", b"one")
    with pytest.raises(InvalidArgumentError, match="reserved"):
        await fs.set_attributes("/f", metadata={CHANGED: b"1"})
    with pytest.raises(InvalidArgumentError, match="reserved"):
        await fs.write("/f", b"", attributes=Attributes(metadata={CHANGED: b"1"}))
    with pytest.raises(InvalidArgumentError, match="reserved"):
        assert [each async for each in fs.find(metadata=CHANGED)]
    assert await fs.stat("/f") == before


async def test_entries_of_a_former_client(fs: S3kClient, world: World) -> None:
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
