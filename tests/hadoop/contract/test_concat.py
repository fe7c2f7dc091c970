"""Hadoop's contract of concatenating files."""

from __future__ import annotations

import pytest

from s3k_async.errors import InvalidArgumentError, PathNotFoundError
from tests.hadoop.ground import Ground, dataset

pytestmark = pytest.mark.asyncio(loop_scope="session")

DATA = dataset(256, ord("a"))


async def test_concat_empty_files(ground: Ground) -> None:
    """Hadoop's test allows that it is refused; here nothing is added."""
    target, source = ground.path("target"), ground.path("source")
    for path in (target, source):
        await ground.write(path)

    await ground.fs.concat(target, [source])

    assert await ground.is_file(target, 0)
    assert not await ground.fs.exists(source)


async def test_concat_without_sources(ground: Ground) -> None:
    target = ground.path("target")
    await ground.write(target, DATA)

    with pytest.raises(InvalidArgumentError):
        await ground.fs.concat(target, [])


async def test_concat_missing_target(ground: Ground) -> None:
    source = ground.path("source")
    await ground.write(source, DATA)

    with pytest.raises(PathNotFoundError):
        await ground.fs.concat(ground.path("missing"), [source])

    assert await ground.read(source) == DATA


async def test_concat_missing_source(ground: Ground) -> None:
    target, source = ground.path("target"), ground.path("source")
    for path in (target, source):
        await ground.write(path, DATA)

    with pytest.raises(PathNotFoundError):
        await ground.fs.concat(target, [source, ground.path("missing")])

    assert await ground.read(target) == await ground.read(source) == DATA


async def test_concat_file_on_file(ground: Ground) -> None:
    target, source = ground.path("target"), ground.path("d/source")
    await ground.write(target, DATA)
    await ground.write(source, DATA[:100])

    await ground.fs.concat(target, [source])

    assert await ground.read(target) == DATA + DATA[:100]
    assert not await ground.fs.exists(source)


async def test_concat_on_self(ground: Ground) -> None:
    target = ground.path("target")
    await ground.write(target, DATA)

    with pytest.raises(InvalidArgumentError):
        await ground.fs.concat(target, [target])

    assert await ground.read(target) == DATA
