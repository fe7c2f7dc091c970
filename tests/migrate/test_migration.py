"""From a volume of S3-FileSystem 1.0 to a native one over the same bytes, and its log out of the
way."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from s3k_async import S3kClient
from s3k_async._core.runtime import SYSTEM
from s3k_async.backends.memory.memory_blobs import MemoryBlobs
from s3k_async.backends.ports.pagination import list_all
from s3k_async.config import MemoryBlobs as MemoryPlace
from s3k_async.config import MemoryTable, VolumeConfig
from s3k_async.errors import (
    BusyError,
    CorruptDataError,
    DataMissingError,
    DirectoryNotEmptyError,
    InvalidArgumentError,
    UnsupportedError,
    VolumeMismatchError,
)
from s3k_async.integrity.repair import verify_volume
from s3k_async.migrate import Retirement, dump_volume, load_volume, retire_log
from s3k_async.migrate.retirement import GUARD, RETIRED
from s3k_async.oplog.binary_entries import JavaEntryV2, read_java, write_java
from s3k_async.oplog.log_objects import ENTRY_BYTES
from s3k_async.testing import Call, Died, FaultPlan
from s3k_async.volumes import Volume, open_volume
from tests.engines.volumes import fresh_name
from tests.migrate import rig
from tests.migrate.rig import HURRIED
from tests.old_volume import OldFiles, memory_volume
from tests.support import under

pytestmark = pytest.mark.layouts("path", "tree")
FILES = {"/a/one": b"one", "/a/deep/two": b"two" * 1000, "/empty": b"", "/x:y é": b"odd"}
NOW = -3600.0
"""A grace under which nothing is young."""


@dataclass
class Scene:
    """An old volume, the new one that takes its place, and what the bucket held before."""

    old: OldFiles
    old_config: VolumeConfig
    new_config: VolumeConfig
    dump: Path
    ids: dict[str, str]
    before: dict[str, bytes]

    async def dumped(self) -> None:
        async with opened(self.old_config) as volume:
            await dump_volume(volume, str(self.dump))

    async def load(self, faults: FaultPlan | None = None) -> None:
        await under(
            faults, load_volume(str(self.dump), self.new_config, adopt=True, runtime=HURRIED)
        )

    async def retire(
        self,
        *,
        dry_run: bool = False,
        force: bool = False,
        grace: float = NOW,
        faults: FaultPlan | None = None,
    ) -> Retirement:
        async with opened(self.old_config, faults) as old, opened(self.new_config) as new:
            return await retire_log(old, new, dry_run=dry_run, force=force, grace=grace)

    async def blobs(self) -> dict[str, bytes]:
        store = MemoryBlobs(self.old.name)
        return {info.key: await store.get(info.key) async for info in list_all(store)}

    @property
    def log(self) -> dict[str, bytes]:
        """The old log's objects, as they were."""
        return {key: data for key, data in self.before.items() if key.endswith(".info")}


@asynccontextmanager
async def opened(config: VolumeConfig, faults: FaultPlan | None = None) -> AsyncIterator[Volume]:
    volume = await under(faults, open_volume(replace(config, hash=None)))
    try:
        yield volume
    finally:
        await volume.close()


@pytest.fixture
async def scene(tmp_path: Path) -> Scene:
    return await started(tmp_path)


async def started(directory: Path, files: Mapping[str, bytes] = FILES) -> Scene:
    old, config = await memory_volume(fresh_name("old"))
    for path in ("/a", "/a/deep", "/hollow"):
        await old.directory(path)
    ids = {
        path: await old.file(path, data, version=2 + len(path) % 3) for path, data in files.items()
    }
    await old.reserve("/a/never-closed")
    await old.blobs.put(
        "0123abcd.id=00000000-0000-4000-8000-00000000abcd", b"garbage of the old volume"
    )
    new = VolumeConfig(
        fresh_name("new"), MemoryTable(fresh_name("table")), config.data, layout=rig.LAYOUT
    )
    scene = Scene(old, config, new, directory / f"{new.name}.dump", ids, {})
    scene.before = await scene.blobs()
    return scene


async def check_files(scene: Scene) -> None:
    """Every file is in the new volume, with its id and its bytes, which are where they were."""
    blobs = await scene.blobs()
    data = {key: data for key, data in scene.before.items() if ".id=" in key}
    assert {key: blobs.get(key) for key in data} == data
    async with S3kClient(config=scene.new_config) as client:
        for path, content in FILES.items():
            assert await client.read(path) == content
        listed = {status.path async for status in client.list("/", recursive=True)}
    assert listed == {*FILES, "/a", "/a/deep", "/hollow"}
    async with opened(scene.new_config) as volume:
        for path, identity in scene.ids.items():
            entry = await volume.store.get(path)
            assert entry is not None
            assert (entry.id, entry.version) == (identity, 2 + len(path) % 3)
            assert entry.etag
            assert entry.physical is not None
            assert entry.physical.startswith(scene.old.blobs.uri("x")[:-1])


def old_sees(blobs: dict[str, bytes]) -> set[str]:
    """What S3-FileSystem 1.0's scan lists."""
    return {key for key in blobs if key[0] in "0123456789abcdef"}


async def test_a_whole_migration(scene: Scene) -> None:
    await scene.dumped()
    await scene.load()
    await check_files(scene)
    told = await scene.retire(dry_run=True)
    assert (told.objects, told.moved, told.reservations, told.differing) == (
        len(scene.log),
        0,
        1,
        [],
    )
    assert {key: (await scene.blobs()).get(key) for key in scene.before} == scene.before
    done = await scene.retire()
    assert (done.objects, done.moved) == (len(scene.log), len(scene.log))
    await check_files(scene)
    blobs = await scene.blobs()
    assert {
        key.removeprefix(RETIRED): data for key, data in blobs.items() if key.startswith(RETIRED)
    } == scene.log
    assert old_sees(blobs) == {key for key in scene.before if ".id=" in key} | {f"{GUARD}.info"}
    again = await scene.retire()
    assert (again.objects, again.moved) == (0, 0)
    assert await scene.blobs() == blobs


async def test_the_new_volume_is_sound_and_collects_nothing(scene: Scene) -> None:
    await scene.dumped()
    await scene.load()
    await scene.retire()
    async with S3kClient(config=scene.new_config) as client:
        await client.write("/a/one", b"new")
        await client.delete("/empty")
        await client.rename("/a/deep", "/moved")
    async with opened(scene.new_config) as volume:
        assert (await verify_volume(volume, grace=NOW)).problems == []
    blobs = await scene.blobs()
    assert {key: blobs.get(key) for key in scene.before if ".id=" in key} == {
        key: data for key, data in scene.before.items() if ".id=" in key
    }


async def test_the_log_of_another_old_volume_in_the_bucket_stays_where_it_is(scene: Scene) -> None:
    identity = "01234567-89ab-4cde-8f01-23456789abcd"
    entry = JavaEntryV2(
        1,
        3,
        f"s3a://bucket/k.id={identity}",
        "ks://neighbour/f",
        True,
        2,
        identity,
        "COMMITTED",
        "UPDATE",
    )
    await scene.old.blobs.put(f"{identity}.info", write_java(entry))
    large = f"11{identity[2:]}.info"
    await scene.old.blobs.put(large, b"x" * (ENTRY_BYTES + 1))
    await scene.dumped()
    await scene.load()
    done = await scene.retire()
    assert done.moved == len(scene.log)
    blobs = await scene.blobs()
    assert {f"{identity}.info", large} <= blobs.keys()


@pytest.mark.parametrize(("method", "done"), [("put", 3), ("delete_many", 1), ("none", 0)])
async def test_a_retired_log_is_still_that_of_the_old_volume(
    method: str, done: int, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To fsck, also after an interrupted retirement."""
    monkeypatch.setattr("s3k_async.migrate.retirement._BATCH", 2)
    await scene.dumped()
    await scene.load()
    plan = FaultPlan()
    plan.fail_when(
        lambda call: (
            call.method == method and [each.method for each in plan.calls].count(method) > done
        ),
        Died("died"),
        times=10**9,
    )
    with suppress(Died, BaseExceptionGroup):
        await scene.retire(faults=plan)
    left = {key for key in await scene.blobs() if key in scene.log}
    assert (
        len(left)
        == {"put": len(scene.log) - 2, "delete_many": len(scene.log) - 2, "none": 0}[method]
    )
    damaged = f"{scene.ids['/x:y é']}.info"
    async with opened(scene.old_config) as volume:
        report = await verify_volume(volume, grace=NOW)
        assert [each.kind for each in report.problems] == []
        key = damaged if await scene.old.blobs.head(damaged) else RETIRED + damaged
        await scene.old.blobs.put(key, b"damaged")
        report = await verify_volume(volume, grace=NOW)
        assert {each.kind for each in report.problems} == {"log_damaged", "log_missing"}


@pytest.mark.parametrize("shared", [True, False])
async def test_an_unreadable_entry_stays_if_other_volumes_have_entries_there(
    shared: bool, scene: Scene
) -> None:
    """It may be theirs; in a bucket of one volume it is its own."""
    if shared:
        other = OldFiles("other", scene.old.items, scene.old.blobs)
        await other.log("/f", f"f{SYSTEM.uuid()[1:]}", 2, physical="s3a://other/k", size=1)
    damaged = f"0{SYSTEM.uuid()[1:]}.info"
    await scene.old.blobs.put(damaged, b"damaged")
    await scene.dumped()
    await scene.load()
    told = await scene.retire(dry_run=True)
    done = await scene.retire()
    assert told.objects == done.objects == done.moved == len(scene.log) + (not shared)
    blobs = await scene.blobs()
    assert (damaged in blobs, RETIRED + damaged in blobs) == (shared, not shared)


async def test_a_full_restore_of_the_old_system_ends_at_the_guard(scene: Scene) -> None:
    """It requires of an entry that is CREATE and COMMITTED that its bytes are not, and drops those
    of other roots."""
    await scene.dumped()
    await scene.load()
    await scene.retire()
    guard = read_java((await scene.blobs())[f"{GUARD}.info"])
    assert isinstance(guard, JavaEntryV2)
    assert (guard.kind, guard.state, guard.committed) == ("CREATE", "COMMITTED", True)
    assert guard.logical.startswith(f"ks://{scene.old.name}/")
    assert guard.id == GUARD


async def test_the_guard_stands_before_anything_goes_and_no_state_of_the_log_is_lost(
    tmp_path: Path,
) -> None:
    files = {"/one": b"one", "/two": b""}
    plan = FaultPlan()
    scene = await started(tmp_path, files)
    await scene.dumped()
    await scene.load()
    await scene.retire(faults=plan)
    writes = [call.number for call in plan.calls if call.method in ("put", "delete_many")]
    assert len(writes) == len(scene.log) + 2
    for number in range(writes[0], len(plan.calls) + 1):
        scene = await started(tmp_path, files)
        await scene.dumped()
        await scene.load()
        plan = FaultPlan()
        plan.fail_when(lambda call, number=number: is_from(number, call), Died("died"), times=10**9)  # type: ignore[misc]
        with suppress(Died, BaseExceptionGroup):
            await scene.retire(faults=plan)
        blobs = await scene.blobs()
        for key, data in scene.log.items():
            assert data in (blobs.get(key), blobs.get(RETIRED + key)), (number, key)
        if not scene.log.keys() <= blobs.keys():
            assert f"{GUARD}.info" in blobs, number
        await scene.retire()
        blobs = await scene.blobs()
        assert {
            key.removeprefix(RETIRED): data
            for key, data in blobs.items()
            if key.startswith(RETIRED)
        } == scene.log
        assert not scene.log.keys() & blobs.keys()


def is_from(number: int, call: Call) -> bool:
    return call.number >= number


async def test_a_load_that_died_is_finished_by_loading_again(tmp_path: Path) -> None:
    calls = FaultPlan()
    scene = await started(tmp_path)
    await scene.dumped()
    await scene.load(calls)
    for number in range(1, len(calls.calls) + 1, 3):
        scene = await started(tmp_path)
        await scene.dumped()
        plan = FaultPlan()
        plan.fail_when(lambda call, number=number: is_from(number, call), Died("died"), times=10**9)  # type: ignore[misc]
        with suppress(Died, BaseExceptionGroup):
            await scene.load(plan)
        later = replace(HURRIED, now_ms=lambda: SYSTEM.now_ms() + 3_600_000)
        with suppress(DirectoryNotEmptyError):  # it died after the end
            await load_volume(str(scene.dump), scene.new_config, adopt=True, runtime=later)
        await check_files(scene)


async def test_a_log_in_a_bucket_of_several_volumes(scene: Scene) -> None:
    """Only what names the volume goes, and the guard is in both places."""
    shared = MemoryBlobs(fresh_name("log"))
    await shared.create()
    for key, data in scene.log.items():
        await shared.put(key, data)
        await scene.old.blobs.delete(key)
    other = OldFiles("other", scene.old.items, shared)
    identity = SYSTEM.uuid()
    await other.log("/f", identity, 2, physical="s3a://other/k", size=1)
    await shared.put(f"{SYSTEM.uuid()}.info", b"damaged")
    scene.old_config = replace(scene.old_config, log=MemoryPlace(shared.uri("-").split("/")[2]))
    await scene.dumped()
    await scene.load()
    assert (await scene.retire()).moved == len(scene.log)
    left = [info.key async for info in list_all(shared) if not info.key.startswith(RETIRED)]
    assert len(left) == 3
    assert {f"{identity}.info", f"{GUARD}.info"} < set(left)
    assert f"{GUARD}.info" in await scene.blobs()


async def test_writers_of_other_volumes_in_the_log_bucket_do_not_matter(scene: Scene) -> None:
    """Nor does an unreadable object there, which may be one of theirs."""
    shared = MemoryBlobs(fresh_name("log"), replace(SYSTEM, now_ms=lambda: now - 3_600_000))
    now = SYSTEM.now_ms()
    await shared.create()
    for key, data in scene.log.items():
        await shared.put(key, data)
        await scene.old.blobs.delete(key)
    shared.runtime = SYSTEM
    other = OldFiles("other", scene.old.items, shared)
    await other.log("/f", SYSTEM.uuid(), 2, physical="s3a://other/k", size=1)
    await shared.put(f"{SYSTEM.uuid()}.info", b"damaged")
    scene.old_config = replace(scene.old_config, log=MemoryPlace(shared.uri("-").split("/")[2]))
    await scene.dumped()
    await scene.load()
    assert (await scene.retire(grace=300.0)).moved == len(scene.log)
    late = OldFiles(scene.old.name, scene.old.items, shared)
    await late.log("/late", SYSTEM.uuid(), 2, physical="s3a://other/k", size=1)
    with pytest.raises(BusyError, match="stop all writers"):
        await scene.retire(grace=300.0)


async def test_a_log_of_several_batches(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("s3k_async.migrate.retirement._BATCH", 2)
    await scene.dumped()
    await scene.load()
    assert (await scene.retire()).moved == len(scene.log)
    blobs = await scene.blobs()
    assert {
        key.removeprefix(RETIRED): data for key, data in blobs.items() if key.startswith(RETIRED)
    } == scene.log


async def test_another_state_of_a_log_object_is_kept_beside_the_retired_one(scene: Scene) -> None:
    await scene.dumped()
    await scene.load()
    await scene.retire()
    key = min(scene.log)
    await scene.old.blobs.put(key, b"written later")
    await scene.retire()
    blobs = await scene.blobs()
    kept = {data for name, data in blobs.items() if name.startswith(RETIRED + key)}
    assert kept == {scene.log[key], b"written later"}
    assert key not in blobs


async def test_what_was_written_after_the_dump_is_not_left_behind(scene: Scene) -> None:
    await scene.dumped()
    await scene.load()
    await scene.old.file("/a/late", b"late")
    with pytest.raises(VolumeMismatchError, match="/a/late"):
        await scene.retire()
    assert (await scene.retire(dry_run=True)).differing == ["/a/late"]
    assert scene.log.keys() <= (await scene.blobs()).keys()
    await scene.retire(force=True)
    assert not scene.log.keys() & (await scene.blobs()).keys()


@pytest.mark.parametrize("parent", ["missing", "file"])
async def test_files_without_a_parent_directory_are_reported_and_not_left_behind(
    parent: str, scene: Scene
) -> None:
    """S3-FileSystem 1.0 reads them by their paths, and no listing reaches them."""
    if parent == "file":
        await scene.old.file("/lost", b"a file")
    await scene.old.file("/lost/orphan", b"orphan")
    await scene.old.directory("/lost/inner")
    await scene.old.reserve("/lost/never-closed")
    async with opened(scene.old_config) as volume:
        done = await dump_volume(volume, str(scene.dump))
        assert done.unreachable == 2
        elsewhere = await dump_volume(volume, f"{scene.dump}.a", path="/a")
        assert elsewhere.unreachable == 0
        every = await dump_volume(volume, f"{scene.dump}.all", include_uncommitted=True)
        assert every.unreachable == 3
    await scene.load()
    with pytest.raises(VolumeMismatchError, match="/lost/orphan"):
        await scene.retire()
    told = await scene.retire(dry_run=True)
    assert (told.differing, told.reservations) == (["/lost/orphan"], 2)
    assert scene.log.keys() <= (await scene.blobs()).keys()


async def test_a_log_that_is_being_written_is_not_retired(scene: Scene) -> None:
    await scene.dumped()
    await scene.load()
    for dry_run in (True, False):
        with pytest.raises(BusyError, match="stop all writers"):
            await scene.retire(dry_run=dry_run, grace=300.0)
    assert scene.log.keys() <= (await scene.blobs()).keys()


async def test_only_files_whose_bytes_are_there_are_adopted(scene: Scene) -> None:
    await scene.dumped()
    key = next(key for key in scene.before if key.endswith(f".id={scene.ids['/a/one']}"))
    await scene.old.blobs.delete(key)
    with pytest.raises(DataMissingError, match="/a/one"):
        await scene.load()
    await scene.old.blobs.put(key, b"longer")
    with pytest.raises(DataMissingError, match="/a/one"):
        await scene.load()
    await scene.old.blobs.put(key, b"one")
    await scene.load()
    await scene.old.blobs.put(key, b"two")
    async with S3kClient(config=scene.new_config) as client:
        with pytest.raises(CorruptDataError, match="replaced"):
            await client.read("/a/one")


async def test_only_an_old_volume_is_adopted_and_retired(scene: Scene, tmp_path: Path) -> None:
    await scene.dumped()
    await scene.load()
    async with opened(scene.new_config) as new, opened(scene.old_config) as old:
        target = str(tmp_path / "native.dump")
        await dump_volume(new, target)
        other = replace(
            scene.new_config, table=MemoryTable(fresh_name("table")), name=fresh_name("other")
        )
        with pytest.raises(InvalidArgumentError, match="of a native volume are its own"):
            await load_volume(target, other, adopt=True, runtime=HURRIED)
        for pair in ((new, new), (old, old)):
            with pytest.raises(UnsupportedError):
                await retire_log(*pair)
