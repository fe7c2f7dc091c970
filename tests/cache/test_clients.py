"""Clients with a read cache: requests, several clients and processes, forks, and wrong bytes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async.adapters.fsspec import S3kFileSystem
from s3k_async.client import S3kClient
from s3k_async.config import Tuning, VolumeConfig
from s3k_async.errors import CorruptDataError
from s3k_async.model import CacheStatistics
from s3k_async.storage.cache_blocks import BlockName
from s3k_async.volumes import init_volume
from tests.cache.reader import prepare
from tests.cache.rig import block_files
from tests.client.rig import memory_config
from tests.engines.volumes import VolumeMaker, volume_backends
from tests.support import fork_and_run

DATA = bytes(range(256)) * 40
BLOCK = 1000


def cached(config: VolumeConfig, place: Path) -> VolumeConfig:
    """The settings of a client with a cache of small blocks."""
    tuning = Tuning(cache=str(place), cache_block=BLOCK, part_size=3000, multipart_threshold=5000)
    return replace(config, tuning=tuning)


@volume_backends("memory", "dynoxide+seaweedfs")
async def test_what_a_client_has_read_another_one_reads_without_a_request(
    new_volume: VolumeMaker, tmp_path: Path
) -> None:
    config = cached(new_volume(), tmp_path / "cache")
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        await fs.write("/file", DATA)
        with fs.count() as counter:
            assert await fs.read("/file") == DATA
        assert counter.requests.of("data") == 4
    async with S3kClient(config=config) as fs:
        with fs.count() as counter:
            assert await fs.read("/file") == DATA
            assert await fs.read_ranges("/file", [(5, 5000)]) == [DATA[5:5000]]
            async with fs.open("/file") as file:
                await file.seek(4000)
                assert await file.read(2500) == DATA[4000:6500]
        assert counter.requests.of("data") == 0
        assert fs.cache_statistics.misses == 0
        assert fs.cache_statistics.hits > 10
        await fs.write("/file", DATA[::-1])
        assert await fs.read("/file") == DATA[::-1]
    assert fs.cache_statistics.misses == 11


@volume_backends("embedded")
async def test_data_on_this_machine_is_not_cached(new_volume: VolumeMaker, tmp_path: Path) -> None:
    config = cached(new_volume(), tmp_path / "cache")
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        await fs.write("/file", DATA)
        assert await fs.read("/file") == DATA
        assert fs.cache_statistics == CacheStatistics()
    assert not (tmp_path / "cache").exists()


async def test_files_that_were_changed_in_place(tmp_path: Path) -> None:
    config = cached(memory_config(), tmp_path)
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        await fs.write("/file", DATA)
        await fs.append("/file", b"more")
        await fs.write_range("/file", 2500, b"changed")
        wanted = DATA[:2500] + b"changed" + DATA[2507:] + b"more"
        for _ in range(2):
            assert await fs.read("/file") == wanted
        assert fs.cache_statistics.hits > 0


async def _poisoned(fs: S3kClient, config: VolumeConfig, place: Path) -> None:
    """The cache has a valid block with other bytes than the source, as a client stores that got
    damaged ones."""
    await fs.write("/file", DATA)
    assert await fs.read("/file") == DATA
    assert fs._opened is not None
    volume = fs._opened.volume
    physical = (await fs.stat("/file")).physical
    assert physical is not None
    assert volume.storage.cache is not None
    volume.storage.cache.directory.store(
        BlockName(volume.record.scope, physical, BLOCK, 3), bytes(BLOCK)
    )


async def test_wrong_bytes_in_the_cache_are_read_again_from_the_source(tmp_path: Path) -> None:
    config = cached(memory_config(), tmp_path)
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        await _poisoned(fs, config, tmp_path)
        assert await fs.read("/file") == DATA
    async with S3kClient(config=config) as fs:
        with fs.count() as counter:
            assert await fs.read("/file") == DATA
        assert counter.requests.of("data") == 0


async def _read_by(fs: S3kClient, length: int) -> None:
    """Read the file to its end in pieces."""
    async with fs.open("/file") as file:
        while await file.read(length):
            pass


async def test_an_open_file_notices_wrong_bytes_and_the_next_one_has_the_right_ones(
    tmp_path: Path,
) -> None:
    config = cached(memory_config(), tmp_path)
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        await _poisoned(fs, config, tmp_path)
        for length in (700, 20_000):
            with pytest.raises(CorruptDataError):
                await _read_by(fs, length)
            async with fs.open("/file") as file:
                assert await file.read() == DATA
            fs._opened.volume.storage.cache._distrusted.clear()  # type: ignore[union-attr]
            await _poisoned(fs, config, tmp_path)


@pytest.mark.parametrize("cache_type", ["readahead", "blockcache", "all"])
def test_a_file_of_fsspec_notices_wrong_bytes_and_the_next_one_has_the_right_ones(
    tmp_path: Path, cache_type: str
) -> None:
    config = cached(memory_config(), tmp_path)
    fs = S3kFileSystem(config=_initialised(config), skip_instance_cache=True)
    try:
        fs.run_blocking(lambda: _poisoned_in(fs, config, tmp_path))
        with pytest.raises(CorruptDataError):
            _read_twice(fs, cache_type)
        with fs.open("/file", block_size=700, cache_type=cache_type) as file:
            assert file.read() == DATA
    finally:
        fs.close_session()


def _read_twice(fs: S3kFileSystem, cache_type: str) -> None:
    """Read the file in pieces to its end, twice; only the error of the first time is suppressed."""
    with fs.open("/file", block_size=700, cache_type=cache_type) as file:
        with suppress(CorruptDataError):
            while file.read(300):
                pass
        file.seek(0)
        while file.read(300):
            pass


async def _poisoned_in(fs: S3kFileSystem, config: VolumeConfig, place: Path) -> None:
    await _poisoned(await fs._client(), config, place)


def test_a_forked_child_uses_the_same_cache(tmp_path: Path) -> None:
    config = cached(memory_config(), tmp_path)
    with S3kSyncClient(config=_initialised(config)) as fs:
        fs.write("/file", DATA)
        assert fs.read("/file") == DATA

        def read_in_child() -> None:
            assert fs.read("/file") == DATA
            found = fs.cache_statistics
            assert (found.misses, found.stored) == (0, 0)
            assert found.hit_bytes >= len(DATA)
            fs.write("/other", DATA)
            assert fs.read("/other") == DATA
            fs.close()

        assert fork_and_run(read_in_child) == 0
        assert fs.read("/file") == DATA
    assert len(block_files(tmp_path)) == 22


def _initialised(config: VolumeConfig) -> VolumeConfig:
    anyio.run(lambda: init_volume(config))
    return config


def test_processes_that_are_killed_leave_a_cache_that_is_right(tmp_path: Path) -> None:
    place = tmp_path / "cache"
    anyio.run(prepare, str(tmp_path / "data"))

    def reader(seed: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.cache.reader",
                str(place),
                str(tmp_path / "data"),
                str(seed),
            ],
            cwd=Path(__file__).resolve().parents[2],
            stdout=subprocess.PIPE,
        )

    survivor = reader(0)
    for seed in range(1, 4):
        victim = reader(seed)
        assert victim.stdout is not None
        for _ in range(20 * seed):
            assert victim.stdout.readline()
        victim.send_signal(signal.SIGKILL)
        assert victim.wait() == -signal.SIGKILL
        victim.stdout.close()
    assert survivor.stdout is not None
    for _ in range(50):
        assert survivor.stdout.readline()
    survivor.send_signal(signal.SIGTERM)
    output, _ = survivor.communicate(timeout=60)
    assert survivor.returncode == 0, output
    done = subprocess.run(
        [sys.executable, "-m", "tests.cache.reader", str(place), str(tmp_path / "data"), "check"],
        cwd=Path(__file__).resolve().parents[2],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ,
    )
    blocks, damaged, size = map(int, done.stdout.split())
    assert blocks > 0
    assert damaged == 0
    assert size < 40_000
