"""The wire and the reference do the same: random operations on both, each in a place of its own on
one engine."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from s3k_async.backends.ports.blobs import BlobInfo, BlobPage, DeleteFailure
from s3k_async.backends.ports.pagination import list_all
from s3k_async.backends.s3.s3_blobs import S3Blobs
from s3k_async.backends.s3.s3_wire import WireBlobs
from s3k_async.errors import S3kError
from tests.engines.process import Engine
from tests.engines.volumes import fresh_name

KEYS = ["a", "b c", "d/e", "d/ü=1", "f+g%20", "h&<>'\"", "x?y#z", "7f0c.id=2b1e", "bad//key", "😀"]
STEPS = 200

Pair = tuple[S3Blobs, S3Blobs]
Operation = Callable[[S3Blobs], Awaitable[Any]]


@pytest.fixture
async def pair(seaweedfs: Engine) -> AsyncIterator[Pair]:
    name = fresh_name("differential")
    here: list[S3Blobs] = [
        cls(f"{name}-{cls.__name__.lower()}", "v/", seaweedfs.aws()) for cls in (S3Blobs, WireBlobs)
    ]
    for blobs in here:
        await blobs.create()
    yield here[0], here[1]
    for blobs in here:
        await blobs.drop()
        await blobs.close()


def any_range(rng: random.Random) -> tuple[int, int | None]:
    start = rng.choice([0, 0, 1, 5, 10, 100])
    return start, rng.choice([None, start, start + 1, start + 7, 1000])


def operation(rng: random.Random, etags: dict[str, str]) -> Operation:
    """The next operation. `etags` are those that both stores gave, which are alike: digests of the
    bytes."""
    key, other = rng.choice(KEYS), rng.choice(KEYS)
    data = rng.randbytes(rng.choice([0, 1, 10, 200]))
    start, end = any_range(rng)
    tag = rng.choice([etags.get(key, "0" * 32), "0" * 32])
    keys = rng.sample(KEYS, rng.randint(0, 4))
    limit = rng.choice([None, 1, 3])
    choices: list[Operation] = [
        lambda blobs: blobs.put(key, data),
        lambda blobs: blobs.put(key, bytearray(data), if_absent=True),
        lambda blobs: blobs.put(key, memoryview(data), if_match=tag),
        lambda blobs: blobs.get(key, start, end),
        lambda blobs: blobs.get(key),
        lambda blobs: blobs.head(key),
        lambda blobs: blobs.copy(blobs, key, other),
        lambda blobs: blobs.delete(key),
        lambda blobs: blobs.delete_many(keys),
        lambda blobs: blobs.list(rng_prefix, limit=limit),
    ]
    rng_prefix = rng.choice(["", "d/", "a", "nothing"])
    return rng.choice(choices)


async def outcome(blobs: S3Blobs, call: Operation) -> object:
    """What came of it, without what differs by nature: times, and the bucket's name in paths."""
    try:
        return told(await call(blobs))
    except S3kError as error:
        return type(error), (error.path or "").replace(blobs.bucket, "<bucket>")


def told(value: object) -> object:
    if isinstance(value, BlobInfo):
        return value.key, value.size, value.etag
    if isinstance(value, BlobPage):
        return [told(info) for info in value.blobs], value.next is None
    if isinstance(value, list):
        return sorted(
            (failure.key, type(failure.error))
            for failure in value
            if isinstance(failure, DeleteFailure)
        )
    return value


@pytest.mark.parametrize("seed", [1, 2])
async def test_answers_errors_and_contents_are_the_same(pair: Pair, seed: int) -> None:
    rng = random.Random(seed)
    etags: dict[str, str] = {}
    kinds = set()
    for step in range(STEPS):
        call = operation(rng, etags)
        reference, wire = [await outcome(blobs, call) for blobs in pair]
        assert reference == wire, f"seed {seed}, step {step}"
        kinds.add(type(reference))
        async for info in list_all(pair[0]):
            etags[info.key] = info.etag
    assert len(kinds) >= 3
    stored = [
        [(info.key, info.size, info.etag) async for info in list_all(blobs)] for blobs in pair
    ]
    assert stored[0] == stored[1]
    for key, _, _ in stored[0]:
        assert await pair[0].get(key) == await pair[1].get(key)
