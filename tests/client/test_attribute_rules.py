"""Attributes of directories and of what is below them: index, read-only, copies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from s3k_async.attributes import Attributes
from s3k_async.bulk.entry_attributes import PAGE
from s3k_async.client import S3kClient
from s3k_async.errors import PartialFailureError, PathExistsError, PermissionDeniedError
from s3k_async.model import LayoutName, StagedFile
from s3k_async.namespace import metadata_index
from s3k_async.testing import Call, FaultPlan
from s3k_async.volumes import init_volume
from tests.client.rig import faulty_client, memory_config
from tests.engines.volumes import volume_backends

pytestmark = pytest.mark.layouts("path", "tree")

backends = volume_backends("memory", "embedded")


async def found(fs: S3kClient, name: str) -> list[str]:
    return sorted([each.path async for each in fs.find(metadata=name)])


async def drain(stream: AsyncIterator[object]) -> None:
    async for _ in stream:
        pass


async def staged(fs: S3kClient, data: bytes) -> StagedFile:
    async with fs.stage() as file:
        await file.write(data)
    return file.staged


@backends
@pytest.mark.layouts("tree")
async def test_what_is_in_the_trash_stays_in_the_index(
    fs: S3kClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fs.write("/d/x/f", b"", attributes=Attributes(metadata={"n": b""}))
    await fs.set_attributes("/d", metadata={"n": b""})
    await fs.delete("/d", recursive=True)
    monkeypatch.setattr(metadata_index, "STALE_SECONDS", -1)
    assert await found(fs, "n") == []
    await fs.trash().restore("/d", "/back")
    assert await found(fs, "n") == ["/back", "/back/x/f"]


async def queries(fs: S3kClient, call: Callable[[], Awaitable[object]]) -> int:
    """How often a call queries the table."""
    with fs.count() as counter:
        await call()
    return sum(each.requests for each in counter.requests.counts if each.operation == "Query")


@backends
@pytest.mark.layouts("tree")
async def test_what_is_in_the_trash_costs_a_search_one_listing(fs: S3kClient) -> None:
    """However many pages of the index are in the trash."""
    data = [(f"/d/x{number % 3}/f{number}", b"") for number in range(2 * PAGE + 1)]
    for path, content in data:
        await fs.write(path, content, attributes=Attributes(metadata={"n": b""}))
    await fs.makedirs("/e/y")
    await fs.delete("/d", recursive=True)
    listing = await queries(fs, lambda: drain(fs.list("/", recursive=True)))
    index = await queries(fs, lambda: found(fs, "other"))
    assert await queries(fs, lambda: found(fs, "n")) == 3 * index + listing
    await fs.rename("/e", "/moved")
    assert await found(fs, "n") == []
    await fs.trash().restore("/d", "/back")
    assert len(await found(fs, "n")) == len(data)


@backends
@pytest.mark.parametrize("atomic", [True, False])
async def test_nested_read_only_directories_go_along(fs: S3kClient, atomic: bool) -> None:
    await fs.write("/d/x/f", b"1")
    await fs.set_attributes("/d/x", read_only=True)
    await fs.set_attributes("/d/x/f", read_only=True)
    await fs.rename("/d", "/e", atomic=atomic)
    assert (await fs.stat("/e/x")).attributes.read_only
    assert (await fs.stat("/e/x/f")).attributes.read_only
    await fs.delete("/e", recursive=True, atomic=atomic)
    assert not await fs.exists("/e")


@backends
async def test_a_copy_into_a_read_only_directory_leaves_it_as_it_is(fs: S3kClient) -> None:
    await fs.write("/d/x/f", b"1")
    await fs.makedirs("/e/x")
    before = await fs.set_attributes("/e/x", read_only=True)
    await fs.copy("/d", "/e", recursive=True, overwrite=True)
    await fs.set_attributes("/d/x", mode=0o700)
    with pytest.raises(PartialFailureError) as raised:
        await fs.copy("/d", "/e", recursive=True, overwrite=True)
    assert [type(error) for _, error in raised.value.failures] == [PermissionDeniedError]
    assert (await fs.stat("/e/x")).attributes == before.attributes


@backends
async def test_a_copied_directory_has_its_attributes(fs: S3kClient) -> None:
    await fs.makedirs("/d/x")
    for path in ("/d", "/d/x"):
        await fs.set_attributes(path, mode=0o700, read_only=True, metadata={"n": b"1"})
    await fs.makedirs("/there")
    for target in ("/new", "/there"):
        await fs.copy("/d", target, recursive=True, overwrite=True)
        for path in (target, f"{target}/x"):
            wanted = Attributes(mode=0o700, metadata={"n": b"1"})
            assert (await fs.stat(path)).attributes == wanted
    assert await found(fs, "n") == ["/d", "/d/x", "/new", "/new/x", "/there", "/there/x"]


async def replaced(fs: S3kClient, path: str) -> None:
    async with fs.transaction() as tx:
        await tx.replace(path)
        await tx.write(f"{path}/g", b"2")


@backends
async def test_a_read_only_directory_is_not_replaced(fs: S3kClient) -> None:
    await fs.write("/d/f", b"1")
    await fs.set_attributes("/d", read_only=True)
    with pytest.raises(PermissionDeniedError) as raised:
        await replaced(fs, "/d")
    assert raised.value.path == "/d"
    assert await fs.read("/d/f") == b"1"
    assert not await fs.exists("/d/g")


@backends
@pytest.mark.parametrize("overwrite", [False, True])
async def test_many_files_with_a_read_only_one_among_them(fs: S3kClient, overwrite: bool) -> None:
    await fs.write("/d/old", b"1")
    await fs.set_attributes("/d/old", read_only=True)
    files = [("/d/old", b"2"), ("/d/new", b"3")]
    with pytest.raises(PartialFailureError) as raised:
        (await fs.write_many(files, overwrite=overwrite)).raise_for_failures()
    ((path, error),) = raised.value.failures
    assert path == "/d/old"
    assert type(error) is (PermissionDeniedError if overwrite else PathExistsError)
    assert [await fs.read("/d/old"), await fs.read("/d/new")] == [b"1", b"3"]


@backends
async def test_a_replaced_directory_loses_its_read_only_files(fs: S3kClient) -> None:
    for name in ("f", "g", "h", "x/f"):
        await fs.write(f"/d/{name}", b"1", attributes=Attributes(mode=1, read_only=True))
    await fs.set_attributes("/d/x", read_only=True)
    await fs.write("/other", b"3")
    async with fs.transaction() as tx:
        await tx.replace("/d")
        await tx.write("/d/g", b"2")
        await tx.rename("/other", "/d/h")
    left = {each.path: each.attributes async for each in fs.list("/", recursive=True)}
    assert left == dict.fromkeys(["/d", "/d/g", "/d/h"], Attributes())
    assert await fs.read("/d/g") == b"2"


@backends
async def test_a_staged_file_gets_the_attributes_of_the_one_that_it_replaces(fs: S3kClient) -> None:
    wanted = Attributes(0o600, 1, 2, metadata={"n": b"1"})
    await fs.write("/d/f", b"1", attributes=wanted)
    async with fs.transaction() as tx:
        await tx.publish("/d/f", await staged(fs, b"2"), overwrite=True)
        await tx.publish("/d/new", await staged(fs, b"3"))
    assert await fs.read("/d/f") == b"2"
    assert (await fs.stat("/d/f")).attributes == wanted
    assert (await fs.stat("/d/new")).attributes == Attributes()
    assert await found(fs, "n") == ["/d/f"]


@pytest.mark.layouts("path")
async def test_a_search_during_a_long_transaction_keeps_what_it_hides(
    monkeypatch: pytest.MonkeyPatch, layout: LayoutName
) -> None:
    monkeypatch.setattr(metadata_index, "STALE_SECONDS", -1)
    config, faults = memory_config(layout=layout), FaultPlan()
    await init_volume(config)
    async with faulty_client(faults, config) as writer, S3kClient(config=config) as reader:
        await writer.write("/d/f", b"1", attributes=Attributes(metadata={"n": b""}))
        store, searches = reader._volume().store, 0

        async def search(_: Call) -> None:
            nonlocal searches
            entry = await store.stored("/e/f")
            if entry is not None and entry.pending:
                searches += 1
                assert await found(reader, "n") in (["/d/f"], ["/e/f"])

        faults.gate = search
        await writer.rename("/d", "/e")
        faults.gate = None
        assert searches
        assert await found(reader, "n") == ["/e/f"]
