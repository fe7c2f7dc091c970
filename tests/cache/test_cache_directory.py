"""Eviction: watermarks, age and order, and the files that it skips."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from s3k_async.config import Tuning
from s3k_async.errors import ConfigError
from s3k_async.storage import cache_directory
from s3k_async.storage.cache_blocks import BlockName
from s3k_async.storage.cache_directory import (
    ABANDONED_SECONDS,
    CacheDirectory,
    CacheLimits,
    Eviction,
)
from tests.cache.rig import BLOCK, OBJECT, CacheRig, block_files
from tests.support import FakeClock, fake_runtime

LIMITS = CacheLimits(size=10_000, high=90, low=50, age=3600)


class Directory:
    """A cache directory at a time that the test sets."""

    def __init__(self, place: Path) -> None:
        self.clock = FakeClock()
        self.cache = CacheDirectory(str(place), fake_runtime(self.clock))
        self.cache.prepare()

    def store(self, number: int, size: int) -> None:
        """A block whose file has this size."""
        name = block(number)
        head = self.cache.store(name, b"")
        assert self.cache.store(name, bytes(size - head)) == size

    def numbers(self, most: int = 50) -> list[int]:
        """The blocks that are there. Looking does not count as a use."""
        names = {path.name for path in block_files(Path(self.cache.path))}
        return [number for number in range(most) if block(number).file in names]


def block(number: int) -> BlockName:
    return BlockName("s3k-1/", f"key-{number:04}", 1 << 20, 0)


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory(tmp_path)


def test_nothing_is_evicted_up_to_the_high_watermark(directory: Directory) -> None:
    for number in range(9):
        directory.store(number, 1000)
    assert directory.cache.evict(LIMITS) == Eviction()


def test_above_it_the_blocks_unused_for_longest_go_until_the_low_one(directory: Directory) -> None:
    for number in range(10):
        directory.store(number, 1000)
        directory.clock.advance(61)
    directory.cache.load(block(1))
    assert directory.cache.evict(LIMITS) == Eviction(5, 5000)
    assert directory.numbers() == [1, 6, 7, 8, 9]


def test_among_equals_the_smaller_go_first(directory: Directory) -> None:
    for number, size in enumerate([3000, 1000, 4000, 2000]):
        directory.store(number, size)
    assert directory.cache.evict(LIMITS) == Eviction(3, 6000)
    assert directory.numbers() == [2]


def test_memory_is_bounded_by_passes(directory: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(10):
        directory.store(number, 1000)
        directory.clock.advance(1)
    monkeypatch.setattr(cache_directory, "ROUND", 2)
    assert directory.cache.evict(LIMITS) == Eviction(5, 5000)
    assert directory.numbers() == [5, 6, 7, 8, 9]


def test_what_was_not_used_for_the_age_goes_whatever_the_size(directory: Directory) -> None:
    directory.store(1, 1000)
    directory.store(2, 1000)
    directory.clock.advance(1800)
    directory.cache.load(block(2))
    directory.clock.advance(1801)
    assert directory.cache.evict(LIMITS) == Eviction(1, 1000)
    assert directory.numbers() == [2]
    directory.clock.advance(1800)
    assert directory.cache.survey(LIMITS.age) == (0, Eviction(1, 1000))


def test_a_size_on_request(directory: Directory) -> None:
    for number in range(4):
        directory.store(number, 1000)
        directory.clock.advance(1)
    assert directory.cache.evict(LIMITS, to=2500) == Eviction(2, 2000)
    assert directory.numbers() == [2, 3]
    assert directory.cache.evict(LIMITS, to=0) == Eviction(2, 2000)


def test_temporary_files_of_killed_processes_go_and_those_of_running_ones_stay(
    directory: Directory, tmp_path: Path
) -> None:
    directory.store(1, 1000)
    (file,) = block_files(tmp_path)
    runtime = fake_runtime(seed=7)
    left = file.with_name(f"{file.name}.{runtime.uuid()}.tmp")
    left.write_bytes(bytes(500))
    now = directory.clock.seconds
    os.utime(left, (now, now))
    assert directory.cache.evict(LIMITS) == Eviction()
    assert left.exists()
    directory.clock.advance(ABANDONED_SECONDS + 1)
    assert directory.cache.evict(replace(LIMITS, age=10**6)) == Eviction(0, 500)
    assert (left.exists(), file.exists()) == (False, True)


def test_blocks_of_a_clock_that_was_wrong_do_not_displace_those_in_use(
    directory: Directory, tmp_path: Path
) -> None:
    later = directory.clock.seconds + 10**7
    for number in range(10):
        directory.store(number, 1000)
    (file, *_) = files = block_files(tmp_path)
    left = file.with_name(f"{file.name}.{fake_runtime(seed=7).uuid()}.tmp")
    left.write_bytes(bytes(500))
    for path in (*files, left):
        os.utime(path, (later, later))
    directory.store(10, 1000)
    directory.cache.load(block(3))
    assert directory.cache.evict(LIMITS) == Eviction(6, 6500)
    assert {3, 10} < set(directory.numbers())


def test_a_use_by_another_user_of_the_group_is_recorded(
    directory: Directory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the owner of a file may set any time but the present one."""
    directory.store(1, 1000)
    (file,) = block_files(tmp_path)
    set_times = os.utime

    def refused(place: int, *, ns: tuple[int, int] | None = None) -> None:
        if ns is not None:
            raise PermissionError
        set_times(place)

    directory.clock.advance(61)
    monkeypatch.setattr(os, "utime", refused)
    directory.cache.load(block(1))
    assert file.stat().st_mtime > directory.clock.seconds


def test_files_of_others_are_left_alone(directory: Directory, tmp_path: Path) -> None:
    directory.store(1, 1000)
    (file,) = block_files(tmp_path)
    others = [tmp_path / "mine.txt", file.with_name("mine.txt"), file.with_name(file.name + ".bak")]
    for other in others:
        other.write_text("mine")
    (tmp_path / "s3k-blocks" / "0f0").write_text("no directory")
    directory.clock.advance(10**6)
    assert directory.cache.evict(LIMITS, to=0) == Eviction(1, 1000)
    directory.store(1, 1000)
    assert directory.cache.clear() == Eviction(1, 1000)
    assert all(other.read_text() == "mine" for other in others)


def test_a_survey_of_many_files_is_a_sample(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(400):
        directory.store(number, 1000)
    assert directory.cache.survey(LIMITS.age)[0] == 400_000
    monkeypatch.setattr(cache_directory, "SAMPLE", 100)
    assert 100_000 < directory.cache.survey(LIMITS.age)[0] < 1_600_000


def test_several_evictions_at_once_remove_the_same_blocks(directory: Directory) -> None:
    for number in range(50):
        directory.store(number, 1000)
        directory.clock.advance(1)
    limits = CacheLimits(size=40_000, high=90, low=50, age=10**6)
    with ThreadPoolExecutor(4) as threads:
        done = list(threads.map(lambda _: directory.cache.evict(limits), range(4)))
    assert sum(each.blocks for each in done) == 30
    assert directory.numbers() == list(range(30, 50))


def test_usage(directory: Directory) -> None:
    assert (directory.cache.usage().blocks, directory.cache.usage().oldest_ms) == (0, None)
    began = directory.clock.now_ms()
    directory.store(1, 1000)
    directory.clock.advance(100)
    directory.store(2, 500)
    usage = directory.cache.usage()
    assert (usage.blocks, usage.bytes) == (2, 1500)
    assert (usage.oldest_ms, usage.newest_ms) == (began, began + 100_000)


async def test_a_client_evicts_while_it_stores(tmp_path: Path) -> None:
    limits = CacheLimits(size=5000, high=90, low=50, age=3600)
    rig = await CacheRig(tmp_path, limits=limits).start()
    data = bytes(10 * BLOCK)
    for _ in range(10):
        content = await rig.storage.put(OBJECT, data)
        assert await rig.storage.read(content.physical, size=len(data)) == data
        await rig.cache.close()
        assert rig.directory.usage().bytes <= limits.high_bytes
        rig.clock.advance(1)
    found = rig.cache.statistics
    assert found.evicted > 0
    assert found.stored_bytes - found.evicted_bytes == rig.directory.usage().bytes
    fetches = rig.fetches()
    assert await rig.storage.read(content.physical, size=len(data)) == data
    assert rig.fetches() == fetches


def test_directories_and_files_are_private(directory: Directory, tmp_path: Path) -> None:
    place = tmp_path / "new"
    cache = Directory(place).cache
    cache.store(block(1), b"x")
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (place, *place.rglob("*"))}
    assert modes == {0o700, 0o600}


@pytest.mark.parametrize("mode", [0o777, 0o702, 0o775, 0o720, 0o2777])
def test_a_directory_that_others_can_change_is_refused(mode: int, tmp_path: Path) -> None:
    place = tmp_path / "shared"
    place.mkdir()
    place.chmod(mode)
    with pytest.raises(ConfigError, match="other users"):
        Directory(place)


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o2775])
def test_a_directory_of_this_user_or_shared_with_a_group_is_used(mode: int, tmp_path: Path) -> None:
    place = tmp_path / "shared"
    place.mkdir()
    place.chmod(mode)
    Directory(place)
    (place / "s3k-blocks").chmod(0o777)
    with pytest.raises(ConfigError, match="other users"):
        Directory(place)


def test_the_low_watermark_is_not_above_the_high_one() -> None:
    with pytest.raises(ConfigError, match="cache_low"):
        CacheLimits.of(Tuning(cache_high=50, cache_low=60))
