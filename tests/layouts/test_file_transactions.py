"""Transactions of a caller on files in layout `tree`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from s3k_async import S3kClient
from s3k_async.config import VolumeConfig
from s3k_async.errors import UnsupportedError
from s3k_async.namespace import multi_path_commit
from s3k_async.testing import FaultPlan
from s3k_async.volumes import init_volume
from tests.client.rig import faulty_client, memory_config, paths


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


@pytest.mark.parametrize("verb", ["rename", "delete"])
async def test_a_directory_is_refused_before_anything_is_written(verb: str) -> None:
    config, faults = await tree_config(), FaultPlan()
    async with faulty_client(faults, config) as fs:
        await fs.write("/a/b/f", b"data")
        txn = fs.transaction()
        await txn.__aenter__()
        await (txn.rename("/a/b", "/q") if verb == "rename" else txn.delete("/a", recursive=True))
        faults.calls.clear()
        with pytest.raises(UnsupportedError, match=f"cannot {verb} a directory.*: /a"):
            await txn.__aexit__(None, None, None)
        assert {call.method for call in faults.calls} <= {"get", "get_many"}
        assert await paths(fs) == {"/a", "/a/b", "/a/b/f"}
