"""Random changes in place, compared with a local bytearray."""

from __future__ import annotations

import random
from io import BytesIO

import pytest

from s3k_async.objects import ObjectStore
from tests.engines.volumes import volume_backends
from tests.level import FULL

pytestmark = [
    pytest.mark.layouts("path", "tree"),
    volume_backends("memory", "embedded", "dynoxide+seaweedfs"),
]

STEPS = 400 if FULL else 60
LONGEST = 3000


class Local:
    """What the object should be."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, offset: int, data: bytes) -> None:
        if data:
            self.data += bytes(max(0, offset - len(self.data)))
            self.data[offset : offset + len(data)] = data

    def truncate(self, size: int) -> None:
        self.data = self.data[:size] + bytes(max(0, size - len(self.data)))


@pytest.mark.parametrize("seed", range(3))
async def test_random_changes(objects: ObjectStore, seed: int) -> None:
    chance = random.Random(seed)
    local = Local()
    other = chance.randbytes(1200)
    await objects.create("b", "other", other)
    await objects.create("b", "k", b"")
    for _ in range(STEPS):
        offset, data = chance.randrange(LONGEST), chance.randbytes(chance.choice((0, 1, 9, 700)))
        start, size = chance.randrange(1500), chance.randrange(900)
        match chance.randrange(6):
            case 0 | 1:
                info = await objects.write("b", "k", data, offset=offset)
                local.write(offset, data)
            case 2:
                source = BytesIO(data)
                info = await objects.write_from_file(
                    "b", "k", source, offset=offset, source_offset=start % 5, size=size
                )
                local.write(offset, data[start % 5 :][:size])
            case 3:
                info = await objects.write_copy(
                    "b", "other", "k", source_offset=start, size=size, offset=offset
                )
                local.write(offset, other[start : start + size])
            case 4:
                info = await objects.write_copy(
                    "b", "k", "k", source_offset=start, size=size, offset=offset
                )
                local.write(offset, bytes(local.data[start : start + size]))
            case _:
                await objects.truncate("b", "k", offset)
                local.truncate(offset)
                info = await objects.info("b", "k")
        assert info.size == len(local.data)
        assert (
            await objects.read("b", "k", offset=start, size=size)
            == (local.data[start : start + size])
        )
    assert await objects.read("b", "k") == local.data
    for key, call in (("copy", objects.copy), ("range", objects.create_copy)):
        await call("b", "k", key)
        assert await objects.read("b", key) == local.data
    assert await objects.read("b", "other") == other
