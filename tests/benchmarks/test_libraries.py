"""The row of libraries: that each verb does, over our adapters, the work that the row says."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.contenders.libraries import ARROW, FSSPEC, Arrow, Fsspec, Sizes, told
from s3k_async import init_volume
from s3k_async.adapters.arrow import arrow_filesystem
from s3k_async.adapters.fsspec import S3kFileSystem
from s3k_async.config import LocalDirectory, SqliteFile, VolumeConfig

SIZES = Sizes(12, 2, 3, read=4, in_ranges=2, ranges=5, parts=3, rows=7)


@pytest.fixture(scope="module")
def volume(tmp_path_factory: pytest.TempPathFactory) -> VolumeConfig:
    """A volume."""
    directory: Path = tmp_path_factory.mktemp("volume")
    place = VolumeConfig(
        "v", SqliteFile(str(directory / "table")), LocalDirectory(str(directory / "data"))
    )
    asyncio.run(init_volume(config=place))
    return place


@pytest.fixture(scope="module")
def library(volume: VolumeConfig) -> Iterator[Fsspec]:
    """fsspec over it, filled."""
    fs = S3kFileSystem(config=volume, skip_instance_cache=True)
    contender = Fsspec(fs, "")
    contender.fill(SIZES)
    yield contender
    fs.close_session()


@pytest.fixture(scope="module")
def arrow(volume: VolumeConfig) -> Arrow:
    """pyarrow over it, filled."""
    contender = Arrow(arrow_filesystem(config=volume), "")
    contender.fill(SIZES)
    return contender


@pytest.mark.parametrize("verb", FSSPEC)
def test_a_verb_of_fsspec_does_its_work(library: Fsspec, verb: str) -> None:
    assert FSSPEC[verb](library, SIZES) == told(SIZES, verb)[3]


@pytest.mark.parametrize("verb", ARROW)
def test_a_verb_of_pyarrow_does_its_work(arrow: Arrow, verb: str) -> None:
    assert ARROW[verb](arrow, SIZES) == told(SIZES, verb)[3]


def test_a_directory_is_moved_there_and_back(library: Fsspec) -> None:
    library.mv("flat-0", "flat-1")
    assert (library.find("flat-0"), library.find("flat-1")) == (0, 12)
    library.mv("flat-1", "flat-0")
    assert (library.find("flat-0"), library.find("flat-1")) == (12, 0)
