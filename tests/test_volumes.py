"""Volumes as a whole: made once, opened as they were made, removed without harming what is not
theirs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aioboto3
import anyio
import pytest

import s3k_async
from s3k_async.backends.memory.memory_blobs import MemoryBlobs as MemoryBlobStore
from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.ports.items import ABSENT, Put
from s3k_async.backends.ports.pagination import list_all
from s3k_async.config import (
    DynamoTable,
    LocalDirectory,
    MemoryBlobs,
    MemoryTable,
    S3Bucket,
    SqliteFile,
    VolumeConfig,
)
from s3k_async.errors import (
    ConfigError,
    DirectoryNotEmptyError,
    NotAVolumeError,
    PartialFailureError,
    PermissionDeniedError,
    UnsupportedError,
    VolumeExistsError,
    VolumeMismatchError,
    VolumeNotFoundError,
)
from s3k_async.settings import resolve
from s3k_async.testing import Died, FaultPlan
from s3k_async.txn.volume_record import TAG, VolumeRecord
from s3k_async.volumes import Volume, destroy_volume, init_volume, open_volume
from s3k_async.volumes.claims import CLAIM
from tests.engines.volumes import VolumeMaker, fresh_name, volume_backends
from tests.support import fake_runtime, under

everywhere = volume_backends(
    "memory",
    "embedded",
    "dynoxide+seaweedfs",
    "dynamodb_local+seaweedfs",
    "dynoxide+moto",
    "redis",
    "rocksdb",
)
tagged = volume_backends(
    "memory", "embedded", "dynoxide+seaweedfs", "dynoxide+moto", "redis", "rocksdb"
)


def in_memory(**changes: Any) -> VolumeConfig:
    name = fresh_name("volume")
    return replace(VolumeConfig(name, MemoryTable(name), MemoryBlobs(name)), **changes)


@asynccontextmanager
async def opened(
    config: VolumeConfig, faults: FaultPlan | None = None, **options: Any
) -> AsyncIterator[Volume]:
    volume = await under(faults, open_volume(config, **options))
    try:
        yield volume
    finally:
        await volume.close()


async def write(volume: Volume, path: str, data: bytes) -> None:
    target = await volume.store.prepare(path)
    await volume.store.publish(target, await volume.storage.put(target.object_id, data))


async def read(volume: Volume, path: str) -> bytes:
    entry = await volume.store.get(path)
    assert entry is not None
    assert entry.physical is not None
    return await volume.storage.read(entry.physical)


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def move(source: str | Path, target: str | Path) -> None:
    Path(source).rename(target)


# Made and opened


async def test_the_exported_functions_take_settings(tmp_path: Path) -> None:
    place = tmp_path / "volume"
    made = await s3k_async.init_volume(place, suffix_count=2, busy_timeout=1)
    assert (made.suffix_count, made.hash, made.tuning.busy_timeout) == (2, "xxh3", 1.0)
    async with s3k_async.S3kClient(config=made) as fs:
        assert fs.config == made
        await fs.write("/f", b"1")
    with pytest.raises(VolumeExistsError):
        await s3k_async.init_volume(place)
    assert await s3k_async.init_volume(config=made, exist_ok=True) == made
    with pytest.raises(DirectoryNotEmptyError):
        await s3k_async.destroy_volume(place)
    assert await s3k_async.destroy_volume(place, force=True) == 0
    with pytest.raises(VolumeNotFoundError):
        await s3k_async.destroy_volume(place)


@everywhere
async def test_a_volume_is_opened_as_it_was_made(new_volume: VolumeMaker) -> None:
    config = new_volume()
    record = await init_volume(config)
    count = 4 if new_volume.backend == "embedded" else 10
    assert (record.name, record.kind, record.hash) == (config.name, "native", "xxh3")
    assert (record.suffix_count, record.log_mode) == (count, "native")
    async with opened(config) as volume:
        assert volume.record == record
        assert not volume.read_only
        assert (volume.config.suffix_count, volume.config.hash, volume.config.log_mode) == (
            count,
            "xxh3",
            "native",
        )
        await write(volume, "/a/b", b"content")
        assert volume.log.failed_commits == 0
        assert volume.log_blobs is not None
        logged = [info.key async for info in list_all(volume.log_blobs)]
        assert any(key.startswith("entries/") and key.endswith(".committed") for key in logged)
    async with opened(volume.config) as again:
        assert await read(again, "/a/b") == b"content"
        data = [
            info.key
            for digit in "0123456789abcdef"
            for info in (await again.blobs.list(digit)).blobs
        ]
        assert len(data) == 1
    await again.close()
    assert await destroy_volume(config, force=True) == 0
    with pytest.raises(VolumeNotFoundError):
        await open_volume(config)


@pytest.mark.parametrize(
    "blobs", ["memory", "local", pytest.param("seaweedfs", marks=pytest.mark.engine)]
)
@pytest.mark.parametrize(
    "table", ["memory", "sqlite", pytest.param("dynoxide", marks=pytest.mark.engine)]
)
async def test_any_table_with_any_place(
    table: str, blobs: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    name = fresh_name("mixed")
    tables: dict[str, Any] = {
        "memory": MemoryTable(name),
        "sqlite": SqliteFile(str(tmp_path / "metadata.sqlite")),
    }
    places: dict[str, Any] = {
        "memory": MemoryBlobs(name),
        "local": LocalDirectory(str(tmp_path / "data")),
    }
    if table == "dynoxide":
        tables[table] = DynamoTable(name, request.getfixturevalue(table).aws())
    if blobs == "seaweedfs":
        places[blobs] = S3Bucket(name, "some/prefix/", request.getfixturevalue(blobs).aws())
    config = VolumeConfig(name, tables[table], places[blobs])
    await init_volume(config)
    async with opened(config) as volume:
        await write(volume, "/a", b"content")
        assert await read(volume, "/a") == b"content"
    assert await destroy_volume(config, force=True) == 0


@everywhere
async def test_what_is_not_there_is_not_found_and_not_made(
    new_volume: VolumeMaker, tmp_path: Path
) -> None:
    config = new_volume()
    for _ in range(2):
        with pytest.raises(VolumeNotFoundError, match="table does not exist"):
            await open_volume(config)
    with pytest.raises(VolumeNotFoundError):
        await destroy_volume(config, force=True)
    assert names(tmp_path) == set()


@everywhere
async def test_a_missing_place_is_named(new_volume: VolumeMaker) -> None:
    config = new_volume(log=new_volume.rooms.blobs())
    await init_volume(config)
    volume = await open_volume(config)
    await volume.close()
    elsewhere = replace(config, data=new_volume.rooms.blobs())
    with pytest.raises(VolumeMismatchError, match="data"):
        await open_volume(elsewhere)
    if isinstance(config.data, LocalDirectory):
        move(config.data.path, f"{config.data.path}.away")
        with pytest.raises(VolumeNotFoundError) as caught:
            await open_volume(config)
        assert caught.value.path == f"file://{config.data.path}/"


@tagged
async def test_a_second_init_is_refused_or_agrees(new_volume: VolumeMaker) -> None:
    config = new_volume()
    record = await init_volume(config, exist_ok=True)
    with pytest.raises(VolumeExistsError):
        await init_volume(config)
    assert await init_volume(config, exist_ok=True) == record
    assert (
        await init_volume(replace(config, suffix_count=record.suffix_count), exist_ok=True)
        == record
    )
    for change in (
        {"suffix_count": 99},
        {"hash": "java31"},
        {"name": "other"},
        {"log_mode": "disabled"},
    ):
        with pytest.raises(VolumeMismatchError, match=next(iter(change))):
            await init_volume(replace(config, **change), exist_ok=True)
    async with opened(config) as volume:
        assert volume.record == record


@tagged
async def test_of_many_inits_at_once_exactly_one_makes_the_volume(new_volume: VolumeMaker) -> None:
    config = new_volume()
    made: list[VolumeRecord] = []
    refused: list[Exception] = []

    async def init_one(count: int) -> None:
        try:
            made.append(await init_volume(replace(config, suffix_count=count)))
        except VolumeExistsError as error:
            refused.append(error)

    async with anyio.create_task_group() as tasks:
        for count in range(1, 7):
            tasks.start_soon(init_one, count)
    assert (len(made), len(refused)) == (1, 5)
    async with opened(config) as volume:
        assert volume.record == made[0]


@tagged
async def test_many_inits_at_once_that_accept_each_other_have_one_record(
    new_volume: VolumeMaker,
) -> None:
    config = new_volume()
    records: list[VolumeRecord] = []

    async def init_one() -> None:
        records.append(await init_volume(config, exist_ok=True))

    async with anyio.create_task_group() as tasks:
        for _ in range(6):
            tasks.start_soon(init_one)
    assert len(records) == 6
    assert len(set(records)) == 1


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"suffix_count": 11}, "suffix_count"),
        ({"hash": "java31"}, "hash"),
        ({"name": "other"}, "name"),
        ({"log_mode": "disabled"}, "log_mode"),
        ({"log": MemoryBlobs("elsewhere")}, "log"),
        ({"data": MemoryBlobs("elsewhere")}, "data"),
    ],
)
async def test_what_differs_from_the_record_is_named_and_changes_nothing(
    change: dict[str, Any], field: str
) -> None:
    config = in_memory()
    await init_volume(config)
    plan = FaultPlan()
    for attempt in (open_volume, destroy_volume):
        with pytest.raises(VolumeMismatchError, match=field):
            await under(plan, attempt(replace(config, **change)))
    assert not {call.method for call in plan.calls} & {
        "write",
        "transact",
        "put",
        "delete",
        "delete_many",
        "drop",
    }


async def test_the_record_decides_what_is_not_said() -> None:
    config = in_memory(suffix_count=3, hash="java31", log_mode="disabled")
    await init_volume(config)
    async with opened(
        replace(config, name="", suffix_count=None, hash=None, log_mode=None)
    ) as volume:
        assert volume.config == replace(config, kind="native", layout="path", log=None)
        assert volume.store.keys.suffix_count == 3
        assert volume.log_blobs is None
        await write(volume, "/a", b"x")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"kind": "s3k-1.0"}, UnsupportedError),
        ({"log_mode": "binary"}, ConfigError),
        ({"suffix_count": 0}, ConfigError),
        ({"suffix_count": -1}, ConfigError),
        ({"suffix_count": 1001}, ConfigError),
        ({"name": "a/b"}, ConfigError),
        ({"name": "n" * 255}, ConfigError),
        ({"data": MemoryBlobs("x" * 200)}, ConfigError),
    ],
)
async def test_what_cannot_be_made_touches_nothing(
    change: dict[str, Any], error: type[Exception]
) -> None:
    plan = FaultPlan()
    with pytest.raises(error):
        await under(plan, init_volume(in_memory(**change)))
    assert plan.calls == []


async def test_a_table_of_somebody_else_is_not_touched() -> None:
    config = in_memory()
    items = MemoryItems(config.name)
    await items.create()
    await items.write(Put({"path": "p", "children": "c"}, ABSENT))
    plan = FaultPlan()
    for attempt in (init_volume, open_volume, destroy_volume):
        with pytest.raises(NotAVolumeError):
            await under(plan, attempt(config))
    assert not {call.method for call in plan.calls} & {
        "write",
        "transact",
        "create",
        "drop",
        "put",
        "write_tag",
    }


async def test_places_that_may_not_be_looked_at_are_taken_to_exist() -> None:
    config = in_memory()
    await init_volume(config)
    plan = FaultPlan()
    plan.fail_when(lambda call: call.method == "exists", PermissionDeniedError("no"), times=3)
    async with opened(config, faults=plan) as volume:
        await write(volume, "/a", b"x")


# Two volumes in one place


@tagged
async def test_a_place_has_one_volume(new_volume: VolumeMaker) -> None:
    first = new_volume()
    await init_volume(first)
    second = replace(new_volume(), data=first.data)
    with pytest.raises(VolumeExistsError, match=first.name) as caught:
        await init_volume(second)
    assert CLAIM in str(caught.value.path)
    with pytest.raises(VolumeExistsError, match=first.name):
        await init_volume(replace(new_volume(), log=first.data))
    async with opened(first) as volume:
        await write(volume, "/a", b"x")


async def test_log_and_data_in_one_place_are_kept_apart() -> None:
    config = in_memory()
    config = replace(config, log=config.data)
    record = await init_volume(config)
    assert record.log == f"{record.data}oplog/"
    async with opened(config) as volume:
        assert volume.config.log == MemoryBlobs(f"{config.name}/oplog")


# Interrupted


async def calls_of(config: VolumeConfig, action: Any, **options: Any) -> int:
    plan = FaultPlan()
    await under(plan, action(config, **options))
    return len(plan.calls)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_init_that_dies_anywhere_is_finished_by_the_next(when: Any) -> None:
    for number in range(1, await calls_of(in_memory(), init_volume) + 1):
        config = in_memory()
        plan = FaultPlan()
        plan.die(number, when=when)
        with pytest.raises(Died):
            await under(plan, init_volume(config))
        await init_volume(config, exist_ok=True)
        async with opened(config) as volume:
            assert await volume.table.read_tag(TAG) == volume.record.to_tag()
            await write(volume, "/a", b"x")
        assert await destroy_volume(config, force=True) == 0


@pytest.mark.parametrize("when", ["before", "after"])
async def test_destroy_that_dies_anywhere_is_finished_by_the_next(when: Any) -> None:
    async def filled() -> VolumeConfig:
        config = in_memory()
        await init_volume(config)
        async with opened(config) as volume:
            await write(volume, "/a", b"x")
        return config

    for number in range(1, await calls_of(await filled(), destroy_volume, force=True) + 1):
        config = await filled()
        plan = FaultPlan()
        plan.die(number, when=when)
        with pytest.raises(Died):
            await under(plan, destroy_volume(config, force=True))
        if await MemoryItems(config.name).exists():
            destroying = any(call.method in ("delete_many", "drop") for call in plan.calls)
            if destroying:
                with pytest.raises(VolumeNotFoundError, match="being destroyed"):
                    await open_volume(config)
            assert await destroy_volume(config, force=True) == 0
        with pytest.raises(VolumeNotFoundError):
            await open_volume(config)
        assert not await MemoryBlobStore(config.name).exists()
        await init_volume(config)


async def test_an_open_that_fails_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    config = in_memory()
    await init_volume(config)
    held: list[object] = []
    for adapter in (MemoryItems, MemoryBlobStore):

        def keep(store: Any, *arguments: Any, make: Any = adapter.__init__) -> None:
            held.append(store)
            make(store, *arguments)

        async def release(store: object) -> None:
            held.remove(store)

        monkeypatch.setattr(adapter, "__init__", keep)
        monkeypatch.setattr(adapter, "close", release)
    complete = FaultPlan()
    async with opened(config, faults=complete) as volume:
        assert len(held) == 3
    await volume.close()
    assert held == []
    for number in range(1, len(complete.calls) + 1):
        plan = FaultPlan()
        plan.die(number)
        with pytest.raises(Died):
            await under(plan, open_volume(config))
        assert held == []


class WatchedSession(aioboto3.Session):
    """A session that remembers which services it was asked for."""

    def __init__(self, location: DynamoTable | S3Bucket) -> None:
        super().__init__(
            aws_access_key_id=location.aws.access_key_id.reveal(),
            aws_secret_access_key=location.aws.secret_access_key.reveal(),
            region_name=location.aws.region,
        )
        self.asked: list[str] = []

    def client(self, service_name: Any, *arguments: Any, **options: Any) -> Any:
        self.asked.append(service_name)
        return super().client(service_name, *arguments, **options)


@volume_backends("dynoxide+seaweedfs", "dynoxide+moto")
async def test_each_part_may_have_its_own_session(new_volume: VolumeMaker) -> None:
    config = new_volume()
    assert isinstance(config.table, DynamoTable)
    assert isinstance(config.data, S3Bucket)
    sessions = {
        "table": WatchedSession(config.table),
        "data": WatchedSession(config.data),
        "log": WatchedSession(config.data),
    }
    await init_volume(config, session=sessions)
    assert {part: session.asked for part, session in sessions.items()} == {
        "table": ["dynamodb"],
        "data": ["s3"],
        "log": ["s3"],
    }
    one = WatchedSession(config.data)
    await (await open_volume(config, session=one)).close()
    assert sorted(one.asked) == ["dynamodb", "s3", "s3"]


# Destroyed


@tagged
async def test_a_volume_with_entries_is_destroyed_by_force_only(new_volume: VolumeMaker) -> None:
    config = new_volume()
    await init_volume(config)
    async with opened(config) as volume:
        await write(volume, "/a", b"x")
        with pytest.raises(DirectoryNotEmptyError):
            await destroy_volume(config)
        assert await read(volume, "/a") == b"x"
    assert await destroy_volume(config, force=True) == 0


@tagged
async def test_an_empty_volume_is_destroyed_and_can_be_made_again(new_volume: VolumeMaker) -> None:
    config = new_volume()
    first = await init_volume(config)
    assert await destroy_volume(config) == 0
    with pytest.raises(VolumeNotFoundError):
        await destroy_volume(config)
    assert (await init_volume(config)).volume_id != first.volume_id


@tagged
async def test_what_is_not_the_volumes_stays(new_volume: VolumeMaker) -> None:
    config = new_volume()
    await init_volume(config)
    async with opened(config) as volume:
        await write(volume, "/a", b"x")
        assert volume.log_blobs is not None
        await volume.blobs.put("somebody/elses", b"precious")
        await volume.blobs.put("part-0", b"precious")
        await volume.place.put("part-0", b"outside of the scope")
        await volume.log_blobs.put("notes.txt", b"precious")
        left = await destroy_volume(config, force=True)
        assert left == 3
        assert await volume.blobs.get("somebody/elses") == b"precious"
        assert await volume.log_blobs.get("notes.txt") == b"precious"
        kept = {info.key async for info in list_all(volume.blobs)}
        assert await volume.place.get("part-0") == b"outside of the scope"
        assert kept == {"somebody/elses", "part-0"}
        assert [info.key async for info in list_all(volume.log_blobs)] == ["notes.txt"]
    with pytest.raises(VolumeNotFoundError):
        await open_volume(config)


@pytest.mark.parametrize(
    "mark", [b"{", b"[]", b'{"volume_id": 3}', b'{"volume_id": "another"}', None]
)
async def test_a_place_without_the_volumes_mark_is_not_emptied(mark: bytes | None) -> None:
    config = in_memory()
    await init_volume(config)
    async with opened(config) as volume:
        await write(volume, "/a", b"x")
        await volume.place.delete(CLAIM)
        if mark is not None:
            await volume.place.put(CLAIM, mark)
        with pytest.raises((NotAVolumeError, VolumeMismatchError), match=r"mark|belongs to"):
            await destroy_volume(config, force=True)
        assert await read(volume, "/a") == b"x"


async def test_the_mark_of_another_volume_is_not_removed() -> None:
    config = in_memory()
    await init_volume(config)
    async with opened(config) as volume:
        await volume.place.put(CLAIM, b'{"volume_id": "another"}')
        with pytest.raises(VolumeMismatchError, match="another volume"):
            await destroy_volume(config)
        assert await volume.place.get(CLAIM) == b'{"volume_id": "another"}'


async def test_objects_that_cannot_be_deleted_are_named_and_the_volume_can_be_destroyed_again() -> (
    None
):
    config = in_memory()
    await init_volume(config)
    async with opened(config) as volume:
        await write(volume, "/a", b"x")
        entry = await volume.store.get("/a")
        assert entry is not None
        assert entry.physical is not None
    plan = FaultPlan()
    key = volume.record.scope + entry.physical
    plan.refuse(key, PermissionDeniedError("locked"))
    with pytest.raises(PartialFailureError) as caught:
        await under(plan, destroy_volume(config, force=True))
    assert [key for key, _ in caught.value.failures] == [entry.physical]
    assert await destroy_volume(config, force=True) == 0


# Embedded


def embedded(directory: Path, **options: Any) -> VolumeConfig:
    return resolve(
        directory, environ={"XDG_CONFIG_HOME": str(directory.parent / "nowhere")}, **options
    )


async def test_an_embedded_volume_is_a_directory_that_can_be_moved(tmp_path: Path) -> None:
    config = embedded(tmp_path / "deep" / "my volume")
    record = await init_volume(config)
    assert (record.name, record.data, record.log) == ("my-volume", "./data/", "./oplog/")
    assert {"metadata.sqlite", "data", "oplog"} <= names(tmp_path / "deep/my volume")
    async with opened(config) as volume:
        await write(volume, "/a", b"content")
    move(tmp_path / "deep" / "my volume", tmp_path / "moved")
    async with opened(embedded(tmp_path / "moved")) as volume:
        assert volume.config.name == "my-volume"
        assert await read(volume, "/a") == b"content"
    with pytest.raises(VolumeMismatchError, match="name"):
        await open_volume(embedded(tmp_path / "moved", name="moved"))
    await destroy_volume(embedded(tmp_path / "moved"), force=True)
    assert names(tmp_path) == {"deep"}


async def test_destroy_leaves_a_directory_in_which_somebody_keeps_other_files(
    tmp_path: Path,
) -> None:
    config = embedded(tmp_path / "v")
    await init_volume(config)
    (tmp_path / "v" / "notes.txt").write_text("precious")
    await destroy_volume(config)
    assert names(tmp_path / "v") == {"notes.txt"}


async def test_a_directory_that_is_no_volume_is_not_touched(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "data").mkdir(parents=True)
    (home / "data" / "thesis.txt").write_text("precious")
    for attempt in (open_volume, destroy_volume):
        with pytest.raises(VolumeNotFoundError):
            await attempt(embedded(home))
    (home / "metadata.sqlite").write_text("not a database at all, but a text of some length " * 100)
    for each in (open_volume, destroy_volume, init_volume):
        with pytest.raises(NotAVolumeError):
            await each(embedded(home))
    assert (home / "data" / "thesis.txt").read_text() == "precious"
    assert (home / "metadata.sqlite").read_text().startswith("not a database")


async def test_a_file_where_the_directory_should_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    with pytest.raises(NotAVolumeError):
        await init_volume(embedded(tmp_path / "file"))
    assert (tmp_path / "file").read_text() == "precious"


def test_opening_loads_only_the_adapters_that_are_needed() -> None:
    code = """
import asyncio, sys
from s3k_async.config import MemoryBlobs, MemoryTable, VolumeConfig
from s3k_async.volumes import init_volume, open_volume
config = VolumeConfig("v", MemoryTable("v"), MemoryBlobs("v"))
async def main():
    await init_volume(config)
    await (await open_volume(config)).close()
asyncio.run(main())
heavy = {"botocore", "aiobotocore", "aioboto3", "aiohttp", "pyarrow", "pyspark", "sqlite3"}
heavy &= set(sys.modules)
sys.exit(repr(heavy) if heavy else 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr


async def test_ids_and_times_come_from_the_sources() -> None:
    one, two = in_memory(), in_memory()
    first = await init_volume(one, runtime=fake_runtime(seed=3))
    second = await init_volume(two, runtime=fake_runtime(seed=3))
    assert (first.volume_id, first.created_ms) == (second.volume_id, second.created_ms)
    assert first.created_ms == 1_700_000_000_000
