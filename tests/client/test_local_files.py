"""`upload` and `download` of both clients. tests/client/test_transfer.py tests the transfers
themselves."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from s3k_async import S3kSyncClient
from s3k_async.client import S3kClient
from s3k_async.errors import (
    CrossVolumeError,
    OverlapError,
    PartialFailureError,
    PathExistsError,
    PathNotFoundError,
    UnsupportedError,
)
from s3k_async.model import Progress
from s3k_async.settings import resolve
from s3k_async.volumes import init_volume
from tests.client.rig import memory_config

FILES = {"a": b"one", "sub/b": b"three", "sub/deep/c": b""}


@pytest.fixture
async def fs() -> AsyncIterator[S3kClient]:
    config = memory_config()
    await init_volume(config)
    async with S3kClient(config=config) as client:
        yield client


@pytest.fixture
def local(tmp_path: Path) -> Path:
    top = tmp_path / "local"
    for name, data in FILES.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_bytes(data)
    return top


def content(top: Path) -> dict[str, bytes]:
    files = (path for path in top.rglob("*") if path.is_file())
    return {str(path.relative_to(top)): path.read_bytes() for path in files}


async def test_a_directory_there_and_back(fs: S3kClient, local: Path, tmp_path: Path) -> None:
    seen: list[Progress] = []
    up = await fs.upload(local, "s3k://" + fs.name + "/in/", progress=seen.append)
    assert (up.files, up.directories, up.bytes, up.failures) == (3, 3, 8, ())
    assert up.requests.total > 0
    assert {each.path for each in seen} == {f"/in/{name}" for name in FILES}
    assert (seen[-1].done, seen[-1].total, seen[-1].bytes) == (3, 3, 8)
    seen.clear()
    down = await fs.download("/in", str(tmp_path / "out"), progress=seen.append)
    assert (down.files, down.bytes, seen[-1].done, seen[-1].total) == (3, 8, 3, 3)
    assert down.requests.total > 0
    assert content(tmp_path / "out") == FILES


async def test_a_file_there_and_back(fs: S3kClient, local: Path, tmp_path: Path) -> None:
    assert (await fs.upload(local / "a", "/deep/er/f")).files == 1
    assert (await fs.download("/deep/er/f", tmp_path / "new" / "f")).bytes == 3
    assert (tmp_path / "new" / "f").read_bytes() == b"one"


async def test_existing_files(fs: S3kClient, local: Path) -> None:
    await fs.write("/f", b"old")
    with pytest.raises(PathExistsError):
        await fs.upload(local / "a", "/f", overwrite=False)
    with pytest.raises(PathExistsError):
        await fs.download("/f", local / "a", overwrite=False)
    assert (await fs.read("/f"), (local / "a").read_bytes()) == (b"old", b"one")
    await fs.download("/f", local / "a")
    assert (local / "a").read_bytes() == b"old"


async def test_a_failure_in_a_directory_does_not_affect_the_others(
    fs: S3kClient, local: Path, tmp_path: Path
) -> None:
    await fs.write("/in/a", b"old")
    os.mkfifo(local / "pipe")
    with pytest.raises(PartialFailureError) as up:
        await fs.upload(local, "/in", overwrite=False)
    assert {Path(path).name: type(error) for path, error in up.value.failures} == {
        "a": PathExistsError,
        "pipe": UnsupportedError,
    }
    assert (await fs.read("/in/a"), await fs.read("/in/sub/b")) == (b"old", b"three")
    (tmp_path / "out" / "sub").mkdir(parents=True)
    (tmp_path / "out" / "sub" / "b").mkdir()
    with pytest.raises(PartialFailureError) as down:
        await fs.download("/in", tmp_path / "out")
    assert [path for path, _ in down.value.failures] == ["/in/sub/b"]
    assert content(tmp_path / "out") == {"a": b"old", "sub/deep/c": b""}


async def test_what_is_not_there(fs: S3kClient, tmp_path: Path) -> None:
    with pytest.raises(PathNotFoundError, match="local"):
        await fs.upload(tmp_path / "nothing", "/f")
    with pytest.raises(PathNotFoundError):
        await fs.download("/f", tmp_path / "f")
    with pytest.raises(CrossVolumeError):
        await fs.upload(__file__, "s3k://another/f")
    assert not (tmp_path / "f").exists()


async def test_a_volume_is_not_copied_into_itself(local: Path, tmp_path: Path) -> None:
    """Neither are its files uploaded, nor written to by a download, also by symbolic links. Others
    may be beside them, as in a project whose volume is its working directory."""
    home = tmp_path / "work" / "vol"
    config = resolve(str(home))
    await init_volume(config)
    (tmp_path / "link").symlink_to(tmp_path / "work")
    (tmp_path / "work" / "mine").write_bytes(b"mine")
    before = (home / "metadata.sqlite").read_bytes()
    async with S3kClient(config=config) as fs:
        database = home / "metadata.sqlite"
        for place in (home.parent, home, home / "data", tmp_path / "link", database):
            with pytest.raises(OverlapError):
                await fs.upload(place, "/in")
        assert not await fs.exists("/in")
        await fs.write("/d/vol/metadata.sqlite", b"not this")
        await fs.write("/d/beside", b"beside")
        for place in (home.parent, tmp_path / "link"):
            with pytest.raises(PartialFailureError) as failed:
                await fs.download("/d", place)
            assert {path: type(error) for path, error in failed.value.failures} == {
                "/d/vol/metadata.sqlite": OverlapError
            }
        for place in (database, home / "metadata.sqlite-wal", home / "data" / "new"):
            with pytest.raises(OverlapError):
                await fs.download("/d/beside", place)
        await fs.download("/d/beside", home / "mine")
        await fs.upload(home / "mine", "/mine")
        assert await fs.read("/mine") == b"beside"
        assert (home.parent / "beside").read_bytes() == b"beside"
        assert (await fs.upload(local, "/in")).files == len(FILES)
    assert (home / "metadata.sqlite").read_bytes()[:16] == before[:16]


def test_the_blocking_client(local: Path, tmp_path: Path) -> None:
    seen: list[Progress] = []
    config = memory_config()
    asyncio.run(init_volume(config))
    with S3kSyncClient(config=config) as fs:
        assert fs.upload(local, "/in", progress=seen.append).files == len(seen) == 3
        assert fs.download("/in", tmp_path / "out").files == 3
    assert content(tmp_path / "out") == FILES
