"""A process that reads through a cache directory until it is ended, or checks each of its files.

python -m tests.cache.reader CACHE DATA SEED|check
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys

from s3k_async._core.runtime import SYSTEM
from s3k_async.backends.local.local_blobs import LocalBlobs
from s3k_async.storage.cache_blocks import BlockName
from s3k_async.storage.cache_directory import CacheDirectory, CacheLimits
from s3k_async.storage.cached_reads import CachedReads

OBJECTS = 40
BLOCK = 256
SIZE = 2000
LIMITS = CacheLimits(size=40_000, high=90, low=50, age=3600)


def content(number: int) -> bytes:
    """The bytes of an object."""
    return random.Random(number).randbytes(SIZE)


async def prepare(data: str) -> None:
    """Store the objects."""
    blobs = LocalBlobs(data)
    await blobs.create()
    for number in range(OBJECTS):
        await blobs.put(f"key-{number}", content(number))
    await blobs.close()


async def read(cache: CachedReads, blobs: LocalBlobs, seed: int) -> None:
    """Read ranges of objects, and verify them, until SIGTERM."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    choices = random.Random(seed)
    while not ended.is_set():
        number, start = choices.randrange(OBJECTS), choices.randrange(SIZE)
        end = min(SIZE, start + choices.randrange(1, 1000))
        data = await cache.get(blobs, f"key-{number}", start, end, size=SIZE)
        assert data == content(number)[start:end]
        sys.stdout.write("read\n")
        sys.stdout.flush()
    await cache.close()


async def main(place: str, data: str, task: str) -> None:
    blobs = LocalBlobs(data)
    directory = CacheDirectory(place, SYSTEM)
    cache = CachedReads(directory, LIMITS, SYSTEM, scope="", block=BLOCK)
    await cache.prepare()
    if task != "check":
        await read(cache, blobs, int(task))
    else:
        names = [
            BlockName("", f"key-{number}", BLOCK, block)
            for number in range(OBJECTS)
            for block in range(-(-SIZE // BLOCK))
        ]
        found = [directory.load(name) for name in names]
        blocks = sum(block is not None for block, _ in found)
        damaged = sum(is_damaged for _, is_damaged in found)
        sys.stdout.write(f"{blocks} {damaged} {directory.usage().bytes}\n")
    await blobs.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
