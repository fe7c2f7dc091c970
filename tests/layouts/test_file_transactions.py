"""Transactions of a caller on files in layout `tree`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from s3k_async import S3kClient
from s3k_async.config import VolumeConfig
from s3k_async.errors import PathNotFoundError
from s3k_async.model import ChangeResult, Content, Entry
from s3k_async.namespace import multi_path_commit
from s3k_async.namespace.multi_path_commit import commit_mutations
from s3k_async.namespace.mutations import MakeDirectory, Move, Mutation, Remove, WriteFile
from s3k_async.testing import Call
from s3k_async.volumes import init_volume
from tests.client.rig import memory_config, paths
from tests.engines.volumes import fresh_name
from tests.layouts.trees import Client, TreeVolume


async def tree_config() -> VolumeConfig:
    config = replace(memory_config(), layout="tree")
    await init_volume(config)
    return config


@pytest.mark.parametrize("by_record", [False, True])
async def test_files_are_changed_together(by_record: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if by_record:
        monkeypatch.setattr(multi_path_commit, "AT_ONCE", 0)
    async with S3kClient(config=await tree_config()) as fs:
        await fs.write("/a/b/old", b"old")
        await fs.write("/a/gone", b"gone")
        await fs.write("/z/moved", b"moved")
        async with fs.transaction() as txn:
            await txn.write("/a/b/old", b"newer")
            await txn.write("/new/below/f", b"new")
            await txn.rename("/z/moved", "/new/moved")
            await txn.delete("/a/gone")
        assert await paths(fs) == {
            *("/a", "/a/b", "/a/b/old"),
            *("/new", "/new/below", "/new/below/f", "/new/moved"),
            "/z",
        }
        assert await fs.read("/a/b/old") == b"newer"
        assert await fs.read("/new/below/f") == b"new"
        assert await fs.read("/new/moved") == b"moved"
        volume = fs._volume()
        assert [record async for record in volume.store.transactions.records()] == []


# Paths that were read at different moments

FILES = ("/a/", "/a/b/", "/a/b/old", "/z/", "/z/g")


def rewritten(client: Client, path: str) -> WriteFile:
    """A write to a path that had no file when the data was uploaded."""
    runtime = client.store.runtime
    object_id = runtime.uuid()
    content = Content(runtime.physical_key(object_id), 5, "new", "xxh128:" + "0" * 32)
    lease = runtime.now_ms() + 600_000
    return WriteFile(path, object_id, content, lease, replaces=False, overwrite=True)


async def commit(client: Client, *mutations: Mutation) -> ChangeResult:
    async def renew(write: WriteFile) -> WriteFile:
        raise AssertionError("nothing is displaced")

    return await commit_mutations(client.store, mutations, renew, lambda: None)


def before_calls(
    changes: Mapping[int, Callable[[], Awaitable[object]]],
) -> Callable[[Call], Awaitable[None]]:
    """A gate that makes changes before calls of the table, by the number of the call, starting
    now."""
    made = 0

    async def gate(call: Call) -> None:
        nonlocal made
        if call.store == "items":
            made += 1
            if change := changes.get(made):
                await change()

    return gate


@pytest.mark.parametrize("verb", ["write", "rename", "delete"])
@pytest.mark.parametrize("by_record", [False, True])
async def test_a_directory_that_is_replaced_between_the_reads_of_two_paths(
    verb: str, by_record: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path of the directory is read while it leads to the second directory, and the path of the
    file while it leads to the first. No change is based on both reads."""
    if by_record:
        monkeypatch.setattr(multi_path_commit, "AT_ONCE", 0)
    volume = await TreeVolume(fresh_name("moments")).start(*FILES)
    client, other = volume.client(), volume.client()
    old, source = await client.need("/a/b/old"), await client.need("/z/g")

    async def replace_first() -> None:
        await other.rename("/a/b", "/z/first")
        await volume.put("/a/b/")

    async def put_first_back() -> None:
        await other.rename("/a/b", "/z/second")
        await other.rename("/z/first", "/a/b")

    async def put_second_back() -> None:
        await other.rename("/a/b", "/z/first")
        await other.rename("/z/second", "/a/b")

    # The third call reads the file again, and the fourth is the first one after the decision.
    client.faults.gate = before_calls({1: replace_first, 2: put_first_back, 4: put_second_back})
    new = rewritten(client, "/a/b/old")
    if verb == "write":
        await commit(client, new, MakeDirectory("/z/made"))
    elif verb == "rename":
        await commit(client, Move(source, "/a/b/old", overwrite=True))
    else:
        with pytest.raises(PathNotFoundError):
            await commit(client, Remove(old, recursive=False, missing_ok=False))
    tree = await volume.tree()
    in_place = {"write": new.object_id, "rename": source.id, "delete": None}[verb]
    assert tree.get("/a/b/old") == in_place
    assert tree["/z/first/old"] == old.id
    assert ("/z/g" in tree) == (verb != "rename")
    assert all(truth.pending == () for truth in (await volume.truths()).values())


@pytest.mark.parametrize("by_record", [False, True])
async def test_a_directory_that_was_renamed_before_a_commit_is_not_created_again(
    by_record: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by_record:
        monkeypatch.setattr(multi_path_commit, "AT_ONCE", 0)
    volume = await TreeVolume(fresh_name("moments")).start(*FILES)
    client, other = volume.client(), volume.client()
    removed = [
        Remove(await client.need(path), recursive=False, missing_ok=False)
        for path in ("/a/b/old", "/z/g")
    ]
    client.faults.gate = before_calls({2: lambda: other.rename("/a/b", "/z/q")})
    with pytest.raises(PathNotFoundError):
        await commit(client, *removed)
    assert set(await volume.tree()) == {"/a", "/z", "/z/g", "/z/q", "/z/q/old"}


async def test_a_source_and_a_target_that_are_one_file_after_a_rename_are_read_again() -> None:
    """The directory is renamed between the reads of the two paths."""
    volume = await TreeVolume(fresh_name("moments")).start(*FILES)
    client, other = volume.client(), volume.client()
    source = await client.need("/a/b/old")
    get_many = client.store.get_many

    async def of_two_moments(paths: Sequence[str]) -> list[Entry | None]:
        before = await get_many(paths)
        await other.rename("/a/b", "/z/q")
        client.store.get_many = get_many  # type: ignore[method-assign]
        after = await get_many(paths)
        return [
            (after if path.startswith("/z") else before)[place] for place, path in enumerate(paths)
        ]

    client.store.get_many = of_two_moments  # type: ignore[assignment, method-assign]
    with pytest.raises(PathNotFoundError):
        await commit(client, Move(source, "/z/q/old", overwrite=True))
    assert (await volume.tree())["/z/q/old"] == source.id
