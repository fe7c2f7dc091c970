"""What is at the local path that something is written to: a device or a pipe is not replaced, a
link stays."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from s3k_async import S3kClient
from s3k_async.adapters.fsspec import S3kFileSystem
from s3k_async.bulk import local_tree
from s3k_async.bulk.transfer import download
from s3k_async.errors import IsDirectoryError, PathExistsError, S3kError, UnsupportedError
from s3k_async.integrity.gc_candidates import CandidateWriter, Header
from s3k_async.integrity.gc_rules import Ages
from s3k_async.migrate.atomic_file import appearing
from s3k_async.migrate.dump import dump_volume
from s3k_async.volumes import init_volume
from tests.client.rig import memory_config

Write = Callable[[S3kClient, str], Awaitable[object]]


@pytest.fixture
async def fs() -> AsyncIterator[S3kClient]:
    config = memory_config()
    await init_volume(config)
    async with S3kClient(config=config) as client:
        await client.write("/f", b"data")
        yield client


async def get_file(client: S3kClient, local: str) -> None:
    fs = S3kFileSystem(config=client.config, asynchronous=True, skip_instance_cache=True)
    await fs._get_file("/f", local)
    await fs.close()


async def list_candidates(_: S3kClient, local: str) -> None:
    with CandidateWriter(local, Header("volume", 0, Ages(), logged=True)):
        pass


async def put_manifest(_: S3kClient, local: str) -> None:
    with appearing(local) as file:
        file.write(b"data")


async def list_files(_: S3kClient, local: str) -> None:
    async with local_tree.appearing(local) as descriptor:
        local_tree.write(descriptor, local, b"data")


WRITES: dict[str, Write] = {
    "get": lambda client, local: download(client, "/f", local),
    "get_file": get_file,
    "gc --list": list_candidates,
    "dump": lambda client, local: dump_volume(client._volume(), local),
    "manifest": put_manifest,
    "ls -o": list_files,
}


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


@pytest.fixture(params=WRITES)
def write(request: pytest.FixtureRequest) -> Write:
    return WRITES[request.param]


async def test_a_pipe_is_not_replaced(fs: S3kClient, tmp_path: Path, write: Write) -> None:
    """A device neither, which takes privileges to try: `/dev/null` would be a file for
    everybody."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    link = tmp_path / "link"
    link.symlink_to("pipe")
    for target in (pipe, link):
        with pytest.raises(UnsupportedError):
            await write(fs, str(target))
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    assert link.is_symlink()
    assert names(tmp_path) == {"pipe", "link"}


async def test_a_link_to_a_file_stays(fs: S3kClient, tmp_path: Path, write: Write) -> None:
    (tmp_path / "elsewhere").mkdir()
    target = tmp_path / "elsewhere" / "target"
    target.write_bytes(b"old")
    link = tmp_path / "link"
    link.symlink_to("elsewhere/target")
    await write(fs, str(link))
    assert link.is_symlink()
    assert target.read_bytes() != b"old"
    assert names(tmp_path) == {"elsewhere", "link"}
    assert names(target.parent) == {"target"}


async def test_a_link_that_leads_nowhere_leads_to_the_new_file(
    fs: S3kClient, tmp_path: Path, write: Write
) -> None:
    link = tmp_path / "link"
    link.symlink_to("target")
    await write(fs, str(link))
    assert link.is_symlink()
    assert (tmp_path / "target").is_file()


async def test_a_link_to_a_directory_or_to_itself_is_refused(
    fs: S3kClient, tmp_path: Path, write: Write
) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "link").symlink_to("directory")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("directory", "link"):
        with pytest.raises(IsDirectoryError):
            await write(fs, str(tmp_path / name))
    with pytest.raises(S3kError):
        await write(fs, str(tmp_path / "loop"))
    assert names(tmp_path) == {"directory", "link", "loop"}
    assert (tmp_path / "loop").is_symlink()


async def test_a_local_file_that_comes_during_a_download_is_not_overwritten(
    fs: S3kClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = local_tree.write

    def meanwhile(descriptor: int, path: str, data: bytes) -> None:
        written(descriptor, path, data)
        Path(path).write_bytes(b"mine")

    monkeypatch.setattr(local_tree, "write", meanwhile)
    with pytest.raises(PathExistsError):
        await download(fs, "/f", tmp_path / "f", overwrite=False)
    assert (tmp_path / "f").read_bytes() == b"mine"
    assert names(tmp_path) == {"f"}
    await download(fs, "/f", tmp_path / "f")


@pytest.mark.parametrize("linkable", [True, False])
async def test_a_file_is_got_where_there_is_none(
    fs: S3kClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linkable: bool
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    if not linkable:
        monkeypatch.setattr(os, "link", refuse)
    await download(fs, "/f", tmp_path / "f", overwrite=False)
    assert (tmp_path / "f").read_bytes() == b"data"
    assert names(tmp_path) == {"f"}
