"""A reader that lists what a directory is renamed in never sees it in part, twice, or not at
all."""

from __future__ import annotations

import sys

import anyio
import pytest

from s3k_async import S3kClient
from s3k_async.config import VolumeConfig
from s3k_async.errors import BusyError, LeaseExpiredError
from s3k_async.model import LayoutName
from s3k_async.volumes import init_volume
from tests.engines.volumes import VolumeMaker, volume_backends

FILES_OF_A_DIRECTORY = 50

in_both_layouts = pytest.mark.parametrize("layout", ["path", "tree"])


def tree_of(files: int) -> set[str]:
    """The paths below a directory of so many files, the directories among them included, relative
    to it."""
    leaves = [(f"d{number // FILES_OF_A_DIRECTORY}", f"f{number}") for number in range(files)]
    return (
        {""}
        | {f"/{directory}" for directory, _ in leaves}
        | {f"/{directory}/{name}" for directory, name in leaves}
    )


async def watch(config: VolumeConfig, files: int, renames: int) -> str:
    """Rename the directory to and fro under the reader's eyes; how many listings the reader made
    meanwhile. A rename that loses its lease, because an engine that shares the machine was not
    heard of for so long, has changed nothing; a listing that finds no pause has shown nothing.
    """
    expected = tree_of(files)
    await init_volume(config)
    async with S3kClient(config=config) as mover, S3kClient(config=config) as reader:
        written = await mover.write_many(
            [(f"/data/a{path}", b"x") for path in expected if path.count("/") == 2]
        )
        assert (written.files, written.failures) == (files, ())
        listings = 0
        lost = 0
        given_up = 0
        over = False

        async def read() -> None:
            nonlocal listings, given_up
            while not over or not listings:
                try:
                    seen = [status.path async for status in reader.list("/data", recursive=True)]
                except BusyError:
                    given_up += 1
                    continue
                side = "/data/a" if "/data/a" in seen else "/data/b"
                assert sorted(seen) == sorted(side + path for path in expected), _difference(
                    seen, side, expected
                )
                listings += 1

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            for number in range(renames):
                old, new = ("/data/a", "/data/b") if number % 2 == 0 else ("/data/b", "/data/a")
                while True:
                    try:
                        moved = await mover.rename(old, new)
                        # layout `tree` moves the directory alone
                        assert moved.files == (files if config.layout == "path" else 0)
                    except LeaseExpiredError:
                        lost += 1
                    else:
                        break
            over = True
    assert lost < renames
    return (
        f"{listings} listings, and {given_up} that gave up, during {renames} renames of {files} "
        f"files, {lost} of which lost their lease first"
    )


def _difference(seen: list[str], side: str, expected: set[str]) -> str:
    wanted = {side + path for path in expected}
    extra, missing = sorted(set(seen) - wanted), sorted(wanted - set(seen))
    return (
        f"{len(seen)} seen, {len(wanted)} expected; beside them {extra[:4]}, without {missing[:4]}"
    )


@in_both_layouts
@volume_backends("memory", "embedded", "dynoxide+seaweedfs")
async def test_a_reader_sees_one_name_with_all_its_files(
    new_volume: VolumeMaker, layout: LayoutName
) -> None:
    told = await watch(new_volume(layout=layout), 200, 10)
    sys.stdout.write(f"{new_volume.backend}, layout {layout}: {told}\n")


@pytest.mark.slow
@pytest.mark.long
@in_both_layouts
@volume_backends("memory", "embedded", "dynoxide+seaweedfs")
async def test_a_reader_sees_one_name_with_all_its_ten_thousand_files(
    new_volume: VolumeMaker, layout: LayoutName
) -> None:
    told = await watch(new_volume(layout=layout), 10_000, 100)
    sys.stdout.write(f"{new_volume.backend}, layout {layout}: {told}\n")
