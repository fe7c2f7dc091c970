"""The row of small files: that what is timed is what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.contenders.ours import ClientFiles, PortFiles
from benchmarks.contenders.small_files import VERBS, SmallFiles, Verb, Work
from s3k_async import S3kClient, init_volume
from s3k_async.config import LocalDirectory, SqliteFile, VolumeConfig
from s3k_async.errors import S3kError

DATA = b"x" * 100


def work(verb: Verb, count: int = 5) -> Work:
    return Work(verb, "/small/new", "/small/copy", DATA, count, in_flight=3)


@pytest.mark.parametrize("contender", [ClientFiles, PortFiles])
async def test_every_verb_does_its_work_for_each_file(
    contender: type[ClientFiles | PortFiles], tmp_path: Path
) -> None:
    place = VolumeConfig(
        "v", SqliteFile(str(tmp_path / "table")), LocalDirectory(str(tmp_path / "data"))
    )
    await init_volume(config=place)
    async with S3kClient(config=place) as fs:
        files: SmallFiles = contender(fs)
        assert [await files.many(work(verb)) for verb in VERBS] == [500, 500, 500, 0, 0]
        with pytest.raises(S3kError):
            await files.read("/small/copy-00000004")  # copied, then deleted
        assert await files.stat("/small/new-00000004") == len(DATA)


async def test_work_on_what_is_not_there_is_no_result(tmp_path: Path) -> None:
    place = VolumeConfig(
        "v", SqliteFile(str(tmp_path / "table")), LocalDirectory(str(tmp_path / "data"))
    )
    await init_volume(config=place)
    async with S3kClient(config=place) as fs:
        with pytest.raises(ExceptionGroup) as raised:
            await ClientFiles(fs).many(work("read", 1))
        assert raised.group_contains(FileNotFoundError)
