"""Attributes of entries: mode, owner, read-only, user metadata, and the search by its names."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import cast

import pytest

from s3k_async._core.runtime import SYSTEM
from s3k_async.attributes import MAX_BYTES, AttributeChange, Attributes
from s3k_async.backends.memory.memory_blobs import MemoryBlobs
from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.ports.items import ItemPage, ItemStore
from s3k_async.backends.retrying.retrying_blobs import RetryingBlobs
from s3k_async.client import S3kClient
from s3k_async.config import VolumeConfig
from s3k_async.errors import (
    ArgumentTypeError,
    InvalidArgumentError,
    ItemFormatError,
    PartialFailureError,
    PathNotFoundError,
    PermissionDeniedError,
    ServiceError,
    UncommittedFileError,
    UnsupportedError,
)
from s3k_async.model import ChangeResult, LayoutName
from s3k_async.namespace import metadata_index
from s3k_async.namespace.metadata_index import STALE_SECONDS, MetadataIndex
from s3k_async.testing import Call, Died, FaultPlan
from s3k_async.volumes import init_volume
from tests.client.rig import faulty_client, memory_config
from tests.client.transacting import both_ways, problems, two_clients
from tests.engines.volumes import volume_backends
from tests.level import calls_to_try

pytestmark = pytest.mark.layouts("path", "tree")

backends = volume_backends("memory", "embedded", "dynoxide+seaweedfs", "dynoxide+moto")


async def found(fs: S3kClient, name: str, path: str = "/") -> list[str]:
    return sorted([each.path async for each in fs.find(path, metadata=name)])


# The value


def test_attributes_survive_their_stored_form() -> None:
    full = Attributes(0o7777, 0, 2**32 - 2, True, {"a": b"\x00\xff", '"b': "é".encode(), "c": b""})
    for each in (Attributes(), full, Attributes(uid=0), Attributes(metadata={"x": b"1"})):
        assert Attributes.from_json(each.to_json()) == each
        assert pickle.loads(pickle.dumps(each)) == each
        assert hash(each) == hash(Attributes.from_json(each.to_json()))
    assert Attributes().to_json() == ""
    assert full.to_json().isascii()


@pytest.mark.parametrize("text", ["{", "[]", '{"x":1}', '{"metadata":{"a":"?"}}', '{"metadata":1}'])
def test_damaged_attributes_are_named(text: str) -> None:
    with pytest.raises(ItemFormatError):
        Attributes.from_json(text)


@pytest.mark.parametrize(
    "change",
    [
        AttributeChange(mode=0o10000),
        AttributeChange(mode=-1),
        AttributeChange(uid=-1),
        AttributeChange(gid=2**32),
        AttributeChange(metadata={"": b""}),
        AttributeChange(metadata={"#a": b""}),
        AttributeChange(metadata={"a" * 65: b""}),
        AttributeChange(metadata={"\ud800": b""}),
        AttributeChange(metadata={"a": bytes(MAX_BYTES)}),
    ],
)
async def test_invalid_attributes_change_nothing(fs: S3kClient, change: AttributeChange) -> None:
    before = await fs.write("/f", b"one")
    with pytest.raises(InvalidArgumentError) as raised:
        await fs.set_attributes(
            "/f",
            mode=change.mode,
            uid=change.uid,
            gid=change.gid,
            metadata=change.metadata,
        )
    assert raised.value.path == "/f"
    assert await fs.stat("/f") == before


# Changes


@backends
async def test_attributes_of_a_file_and_a_directory(fs: S3kClient) -> None:
    await fs.write("/d/f", b"one")
    for path in ("/d/f", "/d"):
        before = await fs.stat(path)
        assert before.attributes == Attributes()
        status = await fs.set_attributes(path, mode=0o640, uid=7, gid=8, metadata={"a": b"1"})
        assert status.attributes == Attributes(0o640, 7, 8, False, {"a": b"1"})
        assert (status.id, status.version) == (before.id, before.version + 1)
        assert (status.mtime_ms, status.size, status.checksum) == (
            before.mtime_ms,
            before.size,
            before.checksum,
        )
        assert await fs.stat(path) == status
        status = await fs.set_attributes(path, uid=9, metadata={"a": None, "b": b"\x00"})
        assert status.attributes == Attributes(0o640, 9, 8, False, {"b": b"\x00"})
        assert await fs.set_attributes(path, uid=9) == status
        status = await fs.set_attributes(path, mtime_ms=1234)
        assert (status.mtime_ms, status.attributes.uid) == (1234, 9)
        for far in (10**17, 10**30, -(10**17)):
            with pytest.raises(InvalidArgumentError, match="years 1 to 9999"):
                await fs.set_attributes(path, mtime_ms=far)
        for wrong in ("now", 1.5, True):
            with pytest.raises(ArgumentTypeError):
                await fs.set_attributes(path, mtime_ms=wrong)  # type: ignore[arg-type]
        assert await fs.stat(path) == status
    assert [each.attributes.uid async for each in fs.list("/", recursive=True)] == [9, 9]
    assert await fs.read("/d/f") == b"one"
    assert await problems(fs) == []


@backends
async def test_a_file_is_written_with_attributes(fs: S3kClient) -> None:
    attributes = Attributes(mode=0o600, metadata={"a": b"1"})
    status = await fs.write("/f", b"one", attributes=attributes)
    assert (status.version, status.attributes) == (2, attributes)
    assert (await fs.write("/f", b"two")).attributes == attributes
    assert (await fs.append("/f", b"three")).attributes == attributes
    async with fs.open("/f", "wb") as file:
        await file.write(b"four")
    assert (await fs.stat("/f")).attributes == attributes
    await fs.write_many([("/f", b"five"), ("/g", b"")])
    assert (await fs.stat("/f")).attributes == attributes
    other = Attributes(uid=1)
    assert (await fs.write("/f", b"six", attributes=other)).attributes == other
    with pytest.raises(InvalidArgumentError):
        await fs.write("/h", b"", attributes=Attributes(mode=-1))
    assert not await fs.exists("/h")
    assert await problems(fs) == []


async def test_what_has_no_attributes(fs: S3kClient) -> None:
    with pytest.raises(PathNotFoundError):
        await fs.set_attributes("/none", mode=1)
    with pytest.raises(PermissionDeniedError):
        await fs.set_attributes("/", mode=1)
    async with fs.open("/new", "wb") as file:
        with pytest.raises(UncommittedFileError):
            await fs.set_attributes("/new", mode=1)
        await file.write(b"")
    assert await found(fs, "a", "/new") == []
    with pytest.raises(PathNotFoundError):
        await found(fs, "a", "/none")
    with pytest.raises(InvalidArgumentError):
        await found(fs, "#a")


async def test_a_volume_without_attributes_refuses_them(layout: LayoutName) -> None:
    config = memory_config(layout=layout)
    await init_volume(config, without=["attributes"])
    async with S3kClient(config=config) as fs:
        await fs.write("/f", b"one")
        for change in (
            fs.set_attributes("/f", mode=1),
            fs.write("/g", b"", attributes=Attributes(mode=1)),
        ):
            with pytest.raises(UnsupportedError, match="s3k migrate --enable attributes"):
                await change
        assert [each.path async for each in fs.list("/")] == ["/f"]


async def test_concurrent_changes_are_all_there(layout: LayoutName) -> None:
    async with two_clients(layout) as (one, other):
        await one.write("/f", b"one")
        await asyncio.gather(
            *(
                each.set_attributes("/f", metadata={f"{number}-{index}": b"x"})
                for number in range(5)
                for index, each in enumerate((one, other))
            ),
            one.write("/f", b"two"),
            other.write("/f", b"two"),
        )
        assert len((await one.stat("/f")).attributes.metadata) == 10
        assert await one.read("/f") == b"two"


# Read-only


async def raising(change: Awaitable[ChangeResult]) -> None:
    (await change).raise_for_failures()


async def opened(fs: S3kClient, mode: str) -> None:
    async with fs.open("/d/f", mode):
        pass


async def delete_expected(fs: S3kClient) -> None:
    await fs.delete("/d/f", expected=await fs.stat("/d/f"))


async def in_transaction(fs: S3kClient) -> None:
    async with fs.transaction() as tx:
        await tx.write("/d/new", b"")
        await tx.delete("/d/f")


CHANGES: dict[str, Callable[[S3kClient], Awaitable[object]]] = {
    "write": lambda fs: fs.write("/d/f", b"other"),
    "write_many": lambda fs: raising(fs.write_many([("/d/f", b"other")])),
    "open": lambda fs: opened(fs, "wb"),
    "open to append": lambda fs: opened(fs, "ab"),
    "append": lambda fs: fs.append("/d/f", b"!"),
    "write_range": lambda fs: fs.write_range("/d/f", 0, b"!"),
    "truncate": lambda fs: fs.truncate("/d/f", 1),
    "concat": lambda fs: fs.concat("/d/f", ["/d/g"]),
    "concat from it": lambda fs: fs.concat("/d/g", ["/d/f"]),
    "touch": lambda fs: fs.touch("/d/f"),
    "mtime": lambda fs: fs.set_attributes("/d/f", mtime_ms=1),
    "rename": lambda fs: fs.rename("/d/f", "/d/h"),
    "rename over it": lambda fs: fs.rename("/d/g", "/d/f", overwrite=True),
    "rename_many": lambda fs: raising(fs.rename_many([("/d/f", "/d/h")])),
    "exchange": lambda fs: fs.exchange("/d/g", "/d/f"),
    "copy over it": lambda fs: fs.copy("/d/g", "/d/f", overwrite=True),
    "delete": lambda fs: fs.delete("/d/f"),
    "delete expected": delete_expected,
    "delete_many": lambda fs: raising(fs.delete_many(["/d/f"])),
    "transaction": in_transaction,
}


async def test_concat_refuses_a_read_only_file_before_it_copies_data(fs: S3kClient) -> None:
    for path, data in {"/d/f": b"one", "/d/g": b"two", "/d/empty": b""}.items():
        await fs.write(path, data)
    await fs.set_attributes("/d/f", read_only=True)
    for target, sources in {
        "/d/f": ["/d/empty"],
        "/d/empty": ["/d/g", "/d/f"],
        "/d/g": ["/d/empty", "/d/f"],
    }.items():
        before = fs.requests.of("data")
        with pytest.raises(PermissionDeniedError) as raised:
            await fs.concat(target, sources)
        assert raised.value.path == "/d/f"
        assert fs.requests.of("data") == before
    assert sorted([each.path async for each in fs.list("/d")]) == ["/d/empty", "/d/f", "/d/g"]


@pytest.mark.parametrize("verb", CHANGES)
async def test_a_read_only_file_does_not_change(fs: S3kClient, verb: str) -> None:
    await fs.write("/d/f", b"one")
    await fs.write("/d/g", b"two")
    before = await fs.set_attributes("/d/f", read_only=True)
    with pytest.raises((PermissionDeniedError, PartialFailureError)) as raised:
        await CHANGES[verb](fs)
    assert refused(raised.value) == {"/d/f"}
    assert await fs.stat("/d/f") == before
    assert await fs.read("/d/f") == b"one"
    assert await fs.read("/d/g") == b"two"
    assert sorted([each.path async for each in fs.list("/d")]) == ["/d/f", "/d/g"]
    await fs.set_attributes("/d/f", read_only=False)
    await CHANGES[verb](fs)
    assert await problems(fs) == []


def refused(error: BaseException) -> set[str | None]:
    failures = getattr(error, "failures", None)
    if not failures:
        assert isinstance(error, PermissionDeniedError)
        return {error.path}
    assert all(isinstance(each, PermissionDeniedError) for _, each in failures)
    return {path for path, _ in failures}


async def test_a_directory_takes_read_only_files_along(fs: S3kClient) -> None:
    await fs.write("/d/x/f", b"one")
    await fs.set_attributes("/d/x/f", read_only=True)
    await fs.rename("/d", "/e")
    assert (await fs.stat("/e/x/f")).attributes.read_only
    await fs.set_attributes("/e/x", read_only=True)
    for change in (
        fs.rename("/e/x", "/e/y"),
        fs.rename("/e/x", "/e/y", atomic=False),
        fs.delete("/e/x", recursive=True),
        fs.delete("/e/x", recursive=True, atomic=False),
    ):
        with pytest.raises(PermissionDeniedError, match="read-only"):
            await change
    assert await fs.read("/e/x/f") == b"one"
    await fs.write("/e/x/g", b"two")
    await fs.delete("/e", recursive=True)
    assert not await fs.exists("/e")
    assert await problems(fs) == []


async def test_an_empty_read_only_directory_stays(fs: S3kClient) -> None:
    await fs.makedirs("/d")
    await fs.set_attributes("/d", read_only=True)
    with pytest.raises(PermissionDeniedError):
        await fs.delete("/d")
    assert (await fs.stat("/d")).attributes.read_only


async def test_a_copy_is_writable(fs: S3kClient) -> None:
    attributes = Attributes(0o600, 1, 2, True, {"a": b"1"})
    await fs.write("/d/f", b"one", attributes=attributes)
    await fs.copy("/d", "/e", recursive=True)
    await fs.copy("/d/f", "/g")
    wanted = Attributes(0o600, 1, 2, False, {"a": b"1"})
    assert (await fs.stat("/e/f")).attributes == (await fs.stat("/g")).attributes == wanted
    assert await found(fs, "a") == ["/d/f", "/e/f", "/g"]


# The index


@backends
@both_ways
async def test_a_search_finds_what_has_the_name(fs: S3kClient) -> None:
    for number in range(5):
        await fs.write(f"/d/{number}", b"", attributes=Attributes(metadata={"even": b"", "x": b""}))
    await fs.set_attributes("/d/1", metadata={"even": None})
    await fs.set_attributes("/d/3", metadata={"even": None})
    await fs.set_attributes("/d", metadata={"even": b"dir"})
    assert await found(fs, "even") == ["/d", "/d/0", "/d/2", "/d/4"]
    assert await found(fs, "x") == [f"/d/{number}" for number in range(5)]
    assert await found(fs, "none") == []
    await fs.rename("/d/0", "/e")
    await fs.delete("/d/2")
    await fs.exchange("/d/4", "/d/1")
    assert await found(fs, "even") == ["/d", "/d/1", "/e"]
    assert await found(fs, "even", "/d") == ["/d/1"]
    assert [each.path async for each in fs.find(metadata="even", type="directory")] == ["/d"]
    assert await found(fs, "even", "/e") == ["/e"]
    await fs.rename("/d", "/moved")
    assert await found(fs, "even") == ["/e", "/moved", "/moved/1"]
    assert await found(fs, "even", "/moved") == ["/moved/1"]
    await fs.rename("/moved", "/again", atomic=False)
    assert await found(fs, "x") == ["/again/1", "/again/3", "/again/4", "/e"]
    await fs.delete("/again", recursive=True)
    assert await found(fs, "x") == ["/e"]
    assert await problems(fs) == []


async def test_a_search_reads_all_pages(fs: S3kClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("s3k_async.bulk.entry_attributes.PAGE", 7)
    for number in range(60):
        await fs.write(f"/d{number % 7}/{number}", b"", attributes=Attributes(metadata={"n": b""}))
    paths = [each.path async for each in fs.find(metadata="n")]
    assert len(paths) == len(set(paths)) == 60


async def test_pages_of_the_service_may_be_short(fs: S3kClient) -> None:
    """As those of DynamoDB that end at a megabyte."""
    volume = fs._volume()

    class Short:
        async def query(
            self, partition: str, *, after: str, limit: int, cursor: str | None = None
        ) -> ItemPage:
            if cursor is None:
                return ItemPage([], "more")
            return await volume.items.query(partition, after=after, limit=min(limit, 1))

    for number in range(60):
        await fs.write(f"/{number}", b"", attributes=Attributes(metadata={"n": b""}))
    index = MetadataIndex(cast("ItemStore", Short()), SYSTEM)
    whole, _ = await volume.store.indexes.metadata.page("n", "", 1000)
    found: list[str] = []
    after = ""
    while True:
        page, after = await index.page("n", after, 5)
        found += [each.entry_key for each in page]
        if not after:
            break
    assert found == [each.entry_key for each in whole] == sorted(found)
    assert len(found) == 60


async def test_stale_items_are_removed_when_they_are_old(
    fs: S3kClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = fs._volume().store.indexes.metadata
    for number in range(20):
        await fs.write(f"/{number}", b"", attributes=Attributes(metadata={"n": b""}))
        await fs.delete(f"/{number}")
    assert await found(fs, "n") == []
    assert len((await index.page("n", "", 100))[0]) == 20
    monkeypatch.setattr(metadata_index, "STALE_SECONDS", -1)
    assert await found(fs, "n") == []
    assert (await index.page("n", "", 100))[0] == []


async def test_a_search_keeps_the_young_beside_the_old_stale_items(layout: LayoutName) -> None:
    """A change in progress may have written them."""
    config = memory_config(layout=layout)
    await init_volume(config)
    former = replace(SYSTEM, now_ms=lambda: SYSTEM.now_ms() - 2_000 * STALE_SECONDS)
    for path, runtime in (("/old", former), ("/young", SYSTEM)):
        async with faulty_client(FaultPlan(), config, runtime) as fs:
            await fs.write(path, b"", attributes=Attributes(metadata={"n": b""}))
            await fs.delete(path)
    async with faulty_client(FaultPlan(), config) as fs:
        index = fs._volume().store.indexes.metadata
        old, young = sorted((await index.page("n", "", 100))[0], key=lambda each: each.time_ms)
        assert await found(fs, "n") == []
        assert (await index.page("n", "", 100))[0] == [young]
        assert old.time_ms < young.time_ms


async def test_a_client_that_may_not_read_the_time_of_the_store_removes_old_items(
    fs: S3kClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fs.write("/f", b"", attributes=Attributes(metadata={"n": b""}))
    await fs.delete("/f")

    async def denied(_: MemoryBlobs) -> int:
        raise PermissionDeniedError("denied")

    monkeypatch.setattr(MemoryBlobs, "now_ms", denied)
    monkeypatch.setattr(metadata_index, "STALE_SECONDS", -1)
    assert await found(fs, "n") == []
    assert (await fs._volume().store.indexes.metadata.page("n", "", 100))[0] == []


async def test_a_search_by_a_clock_ahead_keeps_the_item_of_a_change_in_progress(
    layout: LayoutName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The item is written before the entry."""
    config = memory_config(layout=layout)
    await init_volume(config)

    async def now_ms(_: MemoryBlobs) -> int:
        return SYSTEM.now_ms()

    monkeypatch.setattr(MemoryBlobs, "now_ms", now_ms)
    ahead = replace(SYSTEM, now_ms=lambda: SYSTEM.now_ms() + 2_000 * STALE_SECONDS)
    plan, searches = FaultPlan(), list[int]()
    index = MetadataIndex(MemoryItems(config.name), SYSTEM)

    async def gate(_: Call) -> None:
        if not searches and (await index.page("n", "", 100))[0]:
            searches.append(1)
            async with faulty_client(FaultPlan(), config, ahead) as other:
                assert await found(other, "n") == []

    async with faulty_client(plan, config) as fs:
        plan.gate = gate
        await fs.write("/f", b"1", attributes=Attributes(metadata={"n": b""}))
        plan.gate = None
        assert searches
        assert await found(fs, "n") == ["/f"]


async def test_a_client_that_may_only_read_can_search(
    fs: S3kClient, layout: LayoutName, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in ("/a/f", "/a/g"):
        await fs.write(path, b"", attributes=Attributes(metadata={"n": b""}))
    await fs.delete("/a/g")
    await fs.rename("/a", "/b")
    monkeypatch.setattr(metadata_index, "STALE_SECONDS", -1)

    async def denied(*_: object) -> None:
        raise PermissionDeniedError("denied")

    items = fs._volume().items
    monkeypatch.setattr(items, "write", denied)
    monkeypatch.setattr(items, "transact", denied)
    assert await found(fs, "n") == ["/b/f"]


async def test_a_search_needs_no_data_store(fs: S3kClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stale stays if its time cannot be compared with the store's."""
    for path in ("/f", "/g"):
        await fs.write(path, b"", attributes=Attributes(metadata={"n": b""}))
    await fs.delete("/g")
    monkeypatch.setattr(metadata_index, "STALE_SECONDS", -1)

    async def unavailable(_: RetryingBlobs) -> int:
        raise ServiceError("unavailable", service_code="X")

    monkeypatch.setattr(RetryingBlobs, "now_ms", unavailable)
    index = fs._volume().store.indexes.metadata
    assert await found(fs, "n") == ["/f"]
    assert len((await index.page("n", "", 100))[0]) == 2
    monkeypatch.undo()
    monkeypatch.setattr(metadata_index, "STALE_SECONDS", -1)
    assert await found(fs, "n") == ["/f"]
    assert len((await index.page("n", "", 100))[0]) == 1


async def test_a_change_that_dies_at_any_call_is_found(layout: LayoutName) -> None:
    """Whatever is done by then, a search finds what a listing shows."""

    async def change(config: VolumeConfig) -> None:
        async with S3kClient(config=config) as fs:
            await fs.set_attributes("/d/f", metadata={"n": b"1"})
            await fs.rename("/d/f", "/d/g")
            await fs.rename("/d", "/e")

    async def planted() -> VolumeConfig:
        config = memory_config(layout=layout)
        await init_volume(config)
        async with S3kClient(config=config) as fs:
            await fs.write("/d/f", b"one")
        return config

    faults = FaultPlan()
    with faults.injected():
        await change(await planted())
    assert len(faults.calls) > 10
    for number in calls_to_try(len(faults.calls)):
        for when in ("before", "after"):
            config, faults = await planted(), FaultPlan()
            faults.die(number, when=when)
            with faults.injected(), suppress(Died, BaseExceptionGroup):
                await change(config)
            async with S3kClient(config=config) as fs:
                listed = [each async for each in fs.list("/", recursive=True)]
                has = [each.path for each in listed if "n" in each.attributes.metadata]
                assert await found(fs, "n") == has, (number, when)
