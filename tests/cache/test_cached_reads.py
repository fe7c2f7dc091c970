"""The read cache: what it serves, what it fetches, and what happens if the disk fails."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3k_async.errors import CorruptDataError, DataMissingError, ServiceError
from s3k_async.model import Content
from s3k_async.storage import cache_directory
from s3k_async.storage.cache_blocks import BlockName
from s3k_async.storage.cache_directory import CacheDirectory
from s3k_async.storage.cached_reads import PAUSE_SECONDS
from s3k_async.storage.extents import Extent, content_of, whole_object
from s3k_async.testing import Call
from tests.cache.rig import BLOCK, OBJECT, SCOPE, CacheRig, block_files

DATA = bytes(range(256)) * 3 + b"end"


def files(place: Path) -> list[Path]:
    """All files of the cache, temporary ones too."""
    return list(place.glob("s3k-blocks/*/*"))


async def test_a_second_read_sends_no_request(tmp_path: Path) -> None:
    rig = await CacheRig(tmp_path).start()
    content = await rig.storage.put(OBJECT, DATA)
    for _ in range(2):
        assert await rig.storage.read(content.physical, size=len(DATA)) == DATA
        assert rig.fetches() == 1
    found = rig.cache.statistics
    assert (found.misses, found.fetched_bytes) == (8, len(DATA))
    assert (found.hits, found.hit_bytes) == (8, len(DATA))
    assert len(block_files(tmp_path)) == 8


async def test_a_range_fetches_its_blocks_and_adjacent_ones_by_one_request(tmp_path: Path) -> None:
    rig = await CacheRig(tmp_path).start()
    content = await rig.storage.put(OBJECT, DATA)
    assert await rig.storage.read(content.physical, 350, 351, size=len(DATA)) == DATA[350:351]
    assert rig.cache.statistics.fetched_bytes == BLOCK
    assert await rig.storage.read(content.physical, 110, 690, size=len(DATA)) == DATA[110:690]
    assert (rig.fetches(), rig.cache.statistics.fetched_bytes) == (3, 6 * BLOCK)


@given(
    st.lists(st.tuples(st.integers(0, 800), st.integers(0, 300), st.booleans()), max_size=12),
    st.integers(0, 771),
)
def test_any_ranges_of_any_object(ranges: list[tuple[int, int, bool]], size: int) -> None:
    async def run(place: Path) -> None:
        rig = await CacheRig(place).start()
        data = DATA[:size]
        content = await rig.storage.put(OBJECT, data)
        for start, length, into in ranges:
            if not into:
                end = start + length
                found = await rig.storage.read(content.physical, start, end, size=size)
                assert found == data[start:end]
                continue
            buffer = memoryview(bytearray(length))
            read = await rig.storage.read_into(content.physical, start, buffer, size=size)
            assert bytes(buffer[:read]) == data[start : start + length]
        assert rig.cache.statistics.fetched_bytes <= size

    with TemporaryDirectory() as place:
        asyncio.run(run(Path(place)))


def _truncated(path: Path, at: int) -> None:
    os.truncate(path, at)


def _flipped(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << (at % 8)
    path.write_bytes(content)


def _extended(path: Path, at: int) -> None:
    path.write_bytes(path.read_bytes() + bytes(at + 1))


@pytest.mark.parametrize("damage", [_truncated, _flipped, _extended])
async def test_a_damaged_file_is_never_served(
    tmp_path: Path, damage: Callable[[Path, int], None]
) -> None:
    rig = await CacheRig(tmp_path).start()
    data = DATA[:BLOCK]
    content = await rig.storage.put(OBJECT, data)
    await rig.storage.read(content.physical, size=BLOCK)
    (file,) = block_files(tmp_path)
    length = file.stat().st_size
    assert length > BLOCK
    for at in range(length):
        damage(file, at)
        fetches = rig.fetches()
        assert await rig.storage.read(content.physical, size=BLOCK) == data
        assert (rig.fetches(), rig.cache.statistics.damaged) == (fetches + 1, at + 1)
        assert file.stat().st_size == length


async def test_the_file_of_another_block_is_not_served(tmp_path: Path) -> None:
    rig = await CacheRig(tmp_path).start()
    content = await rig.storage.put(OBJECT, DATA[: 2 * BLOCK])
    await rig.storage.read(content.physical, 0, BLOCK, size=2 * BLOCK)
    (first,) = block_files(tmp_path)
    second = BlockName(SCOPE, content.physical, BLOCK, 1).file
    place = tmp_path / "s3k-blocks" / second[:2]
    place.mkdir(exist_ok=True)
    shutil.copy(first, place / second)
    assert (
        await rig.storage.read(content.physical, BLOCK, size=2 * BLOCK) == DATA[BLOCK : 2 * BLOCK]
    )
    assert rig.cache.statistics.damaged == 1


async def test_an_object_of_another_size_is_refused_by_its_source(tmp_path: Path) -> None:
    rig = await CacheRig(tmp_path).start()
    content = await rig.storage.put(OBJECT, DATA[:50])
    await rig.storage.read(content.physical, size=50)
    with pytest.raises(CorruptDataError):
        await rig.storage.read(content.physical, size=51)
    assert await rig.storage.read(content.physical, size=50) == DATA[:50]


class Gate:
    """Holds requests for bytes until it is opened."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.waiting = asyncio.Event()

    async def __call__(self, call: Call) -> None:
        if call.method in ("get", "get_into"):
            self.waiting.set()
            await self.open.wait()


async def test_concurrent_reads_of_an_object_fetch_it_once(tmp_path: Path) -> None:
    gate = Gate()
    rig = await CacheRig(tmp_path, gate=gate).start()
    content = await rig.storage.put(OBJECT, DATA)
    reads = [
        asyncio.create_task(rig.storage.read(content.physical, start, size=len(DATA)))
        for start in (0, 0, 0, 150, 400)
    ]
    await gate.waiting.wait()
    gate.open.set()
    found = await asyncio.gather(*reads)
    assert found == [DATA, DATA, DATA, DATA[150:], DATA[400:]]
    assert (rig.fetches(), rig.cache.statistics.fetched_bytes) == (1, len(DATA))


async def test_a_cancelled_read_leaves_the_request_to_those_that_wait(tmp_path: Path) -> None:
    gate = Gate()
    rig = await CacheRig(tmp_path, gate=gate).start()
    content = await rig.storage.put(OBJECT, DATA)
    first, *others = [
        asyncio.create_task(rig.storage.read(content.physical, size=len(DATA))) for _ in range(4)
    ]
    await gate.waiting.wait()
    first.cancel()
    gate.open.set()
    assert await asyncio.gather(*others) == [DATA] * 3
    with pytest.raises(asyncio.CancelledError):
        await first
    assert rig.fetches() == 2


async def test_a_failure_is_that_of_all_who_wait_and_is_not_remembered(tmp_path: Path) -> None:
    gate = Gate()
    rig = await CacheRig(tmp_path, gate=gate).start()
    content = await rig.storage.put(OBJECT, DATA)
    rig.faults.fail_when(lambda call: call.method == "get", ServiceError("no"))
    reads = [
        asyncio.create_task(rig.storage.read(content.physical, size=len(DATA))) for _ in range(3)
    ]
    await gate.waiting.wait()
    gate.open.set()
    found = await asyncio.gather(*reads, return_exceptions=True)
    assert [type(each) for each in found] == [ServiceError] * 3
    assert rig.fetches() == 1
    assert await rig.storage.read(content.physical, size=len(DATA)) == DATA


async def test_a_missing_object_is_missing(tmp_path: Path) -> None:
    rig = await CacheRig(tmp_path).start()
    content = await rig.storage.put(OBJECT, DATA)
    await rig.storage.delete(content.physical)
    with pytest.raises(DataMissingError):
        await rig.storage.read(content.physical, size=len(DATA))
    assert block_files(tmp_path) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO])
async def test_a_disk_that_refuses_writes_costs_only_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    rig = await CacheRig(tmp_path).start()
    content = await rig.storage.put(OBJECT, DATA)
    attempts = 0

    def refuse(*_: object) -> None:
        nonlocal attempts
        attempts += 1
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(cache_directory, "write_fully", refuse)
        for _ in range(3):
            assert await rig.storage.read(content.physical, size=len(DATA)) == DATA
        await rig.cache.close()
    assert (attempts, rig.cache.statistics.failures, rig.fetches()) == (1, 1, 3)
    assert files(tmp_path) == []
    await rig.storage.read(content.physical, size=len(DATA))
    assert block_files(tmp_path) == []
    rig.clock.advance(PAUSE_SECONDS)
    await rig.storage.read(content.physical, size=len(DATA))
    assert len(block_files(tmp_path)) == 8


async def test_on_a_full_disk_the_cache_gives_up_a_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = await CacheRig(tmp_path).start()
    whole = await rig.storage.put(OBJECT, DATA)
    other = await rig.storage.put(OBJECT, DATA)
    await rig.storage.read(whole.physical, size=len(DATA))
    await rig.cache.close()

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(cache_directory, "write_fully", refuse)
        assert await rig.storage.read(other.physical, size=len(DATA)) == DATA
        await rig.cache.close()
    usage = rig.directory.usage()
    assert 0 < usage.blocks < 8
    assert rig.cache.statistics.evicted == 8 - usage.blocks


async def test_an_eviction_that_fails_is_logged_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever its error, since no caller waits for it."""
    rig = await CacheRig(tmp_path).start()
    content = await rig.storage.put(OBJECT, DATA)

    def fail(*_: object) -> None:
        raise RuntimeError("unexpected")

    monkeypatch.setattr(CacheDirectory, "survey", fail)
    assert await rig.storage.read(content.physical, size=len(DATA)) == DATA
    await rig.cache.close()
    assert rig.cache.statistics.failures == 1
    (record,) = caplog.records
    assert "cannot be cleaned (unexpected)" in record.getMessage()
    assert record.exc_info


async def test_files_that_cannot_be_read_are_read_from_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = await CacheRig(tmp_path).start()
    content = await rig.storage.put(OBJECT, DATA)
    await rig.storage.read(content.physical, size=len(DATA))

    def refuse(*_: object) -> bytes:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(cache_directory, "_read_fully", refuse)
    assert await rig.storage.read(content.physical, size=len(DATA)) == DATA
    assert (rig.fetches(), rig.cache.statistics.failures) == (2, 1)


async def test_a_file_that_cannot_be_read_is_dropped_and_the_others_stay_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = await CacheRig(tmp_path).start()
    content, other = [await rig.storage.put(OBJECT, DATA) for _ in range(2)]
    await rig.storage.read(content.physical, size=len(DATA))
    bad = BlockName(SCOPE, content.physical, BLOCK, 3)
    file = tmp_path / "s3k-blocks" / bad.file[:2] / bad.file
    number, read = file.stat().st_ino, cache_directory._read_fully

    def refuse(descriptor: int, size: int) -> bytes:
        if os.fstat(descriptor).st_ino == number:
            raise OSError(errno.EIO, "input/output error")
        return read(descriptor, size)

    monkeypatch.setattr(cache_directory, "_read_fully", refuse)
    descriptor = os.open(file, os.O_RDONLY)  # keeps the number from being used again
    try:
        for _ in range(2):
            assert await rig.storage.read(content.physical, size=len(DATA)) == DATA
        assert await rig.storage.read(other.physical, size=len(DATA)) == DATA
    finally:
        os.close(descriptor)
    found = rig.cache.statistics
    assert (found.hits, found.failures, found.stored) == (7 + 8, 1, 8 + 1 + 8)
    assert rig.fetches() == 3
    assert len(block_files(tmp_path)) == 16


async def test_a_directory_that_vanishes_is_not_made_again(tmp_path: Path) -> None:
    """It may be the mount point of a disk."""
    place = tmp_path / "cache"
    rig = await CacheRig(place).start()
    content = await rig.storage.put(OBJECT, DATA)
    await rig.storage.read(content.physical, size=len(DATA))
    await rig.cache.close()
    shutil.rmtree(place)
    for _ in range(2):
        assert await rig.storage.read(content.physical, size=len(DATA)) == DATA
    await rig.cache.close()
    assert not place.exists()
    assert rig.cache.statistics.failures == 1


async def test_a_directory_that_cannot_be_made_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    rig = await CacheRig(tmp_path / "file" / "cache").start()
    content = await rig.storage.put(OBJECT, DATA)
    assert await rig.storage.read(content.physical, size=len(DATA)) == DATA
    assert rig.cache.statistics.failures >= 1


async def test_writes_are_added_only_if_it_is_asked_for(tmp_path: Path) -> None:
    rig = await CacheRig(tmp_path / "reads").start()
    await rig.storage.put(OBJECT, DATA)
    assert block_files(tmp_path / "reads") == []

    rig = await CacheRig(tmp_path / "writes", writes=True).start()
    content = await rig.storage.put(OBJECT, DATA)
    writer = rig.storage.writer(OBJECT)
    await writer.write(DATA[:300])
    written = await writer.finish()
    assert await rig.storage.read(content.physical, size=len(DATA)) == DATA
    assert await rig.storage.read(written.physical, size=300) == DATA[:300]
    assert rig.fetches() == 0
    large = await rig.storage.put(OBJECT, DATA * 2)
    assert await rig.storage.read(large.physical, size=2 * len(DATA)) == DATA * 2
    assert rig.fetches() == 1


async def test_adopted_objects_are_not_cached(tmp_path: Path) -> None:
    rig = await CacheRig(tmp_path).start()
    info = await rig.bare.put("adopted", b"first")
    uri = rig.bare.uri("adopted")
    assert await rig.storage.read(uri, size=5, etag=info.etag) == b"first"
    await rig.bare.put("adopted", b"other")
    with pytest.raises(CorruptDataError):
        await rig.storage.read(uri, size=5, etag=info.etag)
    assert block_files(tmp_path) == []


async def _of_two_extents(rig: CacheRig) -> Content:
    """A file of a part of one object, and of all of another one."""
    parts = [await rig.storage.put(OBJECT, DATA[:350]), await rig.storage.put(OBJECT, DATA[350:])]
    return content_of(
        OBJECT,
        [
            Extent(parts[0].physical, 30, 320),
            whole_object(parts[1]),
        ],
    )


async def test_extents_are_cached_except_an_end_of_unknown_length(tmp_path: Path) -> None:
    rig = await CacheRig(tmp_path).start()
    content = await _of_two_extents(rig)
    for _ in range(2):
        assert await rig.storage.read(content.physical, size=content.size) == DATA[30:]
    assert rig.fetches() == 3
    assert len(block_files(tmp_path)) == 3 + 5


async def test_an_extent_with_a_wrong_checksum_is_read_from_its_source(tmp_path: Path) -> None:
    rig = await CacheRig(tmp_path).start()
    content = await _of_two_extents(rig)
    key = content.physical.split(",")[1][:36]
    (name,) = [call.key for call in rig.faults.calls if call.key.startswith(key)]
    rig.directory.store(BlockName(SCOPE, name, BLOCK, 0), bytes(BLOCK))
    assert await rig.storage.read(content.physical, size=content.size) == DATA[30:]
    fresh = await CacheRig(tmp_path, name=rig.name).start()
    assert await fresh.storage.read(content.physical, size=content.size) == DATA[30:]


async def _poisoned(rig: CacheRig) -> Content:
    """An object of which the cache has a valid block with other bytes."""
    content = await rig.storage.put(OBJECT, DATA)
    await rig.storage.read(content.physical, size=len(DATA))
    rig.directory.store(BlockName(SCOPE, content.physical, BLOCK, 3), bytes(BLOCK))
    return content


async def test_each_of_several_reads_of_wrong_bytes_reads_the_source(tmp_path: Path) -> None:
    rig = await CacheRig(tmp_path).start()
    whole = await _poisoned(rig)
    size = len(DATA) + 5
    content = content_of(OBJECT, [whole_object(whole), Extent("", 0, 5)])
    reads = [rig.storage.read(content.physical, size=size) for _ in range(3)]
    assert await asyncio.gather(*reads) == [DATA + bytes(5)] * 3


async def test_a_read_that_distrusts_an_object_joins_no_earlier_one(tmp_path: Path) -> None:
    rig = await CacheRig(tmp_path).start()
    content = await _poisoned(rig)
    earlier = asyncio.ensure_future(rig.storage.read(content.physical, size=len(DATA)))
    await asyncio.sleep(0)
    rig.storage.distrust(content)
    assert await rig.storage.read(content.physical, size=len(DATA)) == DATA
    assert len(await earlier) == len(DATA)


async def test_a_directory_that_could_not_be_checked_is_never_used(tmp_path: Path) -> None:
    """Another user may make it later."""
    place = tmp_path / "file" / "cache"
    place.parent.write_bytes(b"")
    rig = await CacheRig(place).start()
    content = await rig.storage.put(OBJECT, DATA)
    place.parent.unlink()
    (place / "s3k-blocks").mkdir(parents=True)
    for number in range(8):
        size = min(BLOCK, len(DATA) - number * BLOCK)
        rig.directory.store(BlockName(SCOPE, content.physical, BLOCK, number), bytes(size))
    rig.clock.advance(PAUSE_SECONDS + 1)
    for _ in range(2):
        assert await rig.storage.read(content.physical, size=len(DATA)) == DATA
    assert rig.cache.statistics.stored == 0


async def test_a_directory_that_other_users_made_after_it_vanished_is_not_used(
    tmp_path: Path,
) -> None:
    """No blocks are read or stored there until the directory is private again."""
    place = tmp_path / "cache"
    rig = await CacheRig(place).start()
    content = await rig.storage.put(OBJECT, DATA)
    await rig.storage.read(content.physical, size=len(DATA))
    await rig.cache.close()
    for path in block_files(place):
        path.unlink()
    rig.directory.store(BlockName(SCOPE, content.physical, BLOCK, 0), bytes(BLOCK))
    place.rename(tmp_path / "theirs")
    shutil.copytree(tmp_path / "theirs", place)
    (place / "s3k-blocks").chmod(0o777)
    for _ in range(2):
        assert await rig.storage.read(content.physical, size=len(DATA)) == DATA
    assert (len(block_files(place)), rig.cache.statistics.hits) == (1, 0)
    assert rig.cache.statistics.failures > 0
    shutil.rmtree(place)
    rig.directory.prepare()
    rig.clock.advance(PAUSE_SECONDS)
    await rig.storage.read(content.physical, size=len(DATA))
    assert len(block_files(place)) == 8
