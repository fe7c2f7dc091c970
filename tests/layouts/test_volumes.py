"""Volumes of layout `tree`: made where the layout is named, and opened in that of their record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from s3k_async import S3kClient, VolumeConfig, destroy_volume, init_volume
from s3k_async.config import LocalDirectory, SqliteFile
from s3k_async.errors import (
    ConfigError,
    InvalidPathError,
    VolumeMismatchError,
    VolumeNotFoundError,
)
from s3k_async.migrate.dump import dump_volume
from s3k_async.migrate.load import load_volume
from s3k_async.migrate.reshard import reshard_volume
from s3k_async.model import LayoutName
from s3k_async.txn import volume_lock
from s3k_async.volumes.restoration import restore_volume


@pytest.fixture
def config(tmp_path: Path) -> VolumeConfig:
    return VolumeConfig(
        "v",
        SqliteFile(str(tmp_path / "metadata.sqlite")),
        LocalDirectory(str(tmp_path / "data")),
        layout="tree",
    )


async def test_the_layout_is_in_the_record_and_the_configuration(config: VolumeConfig) -> None:
    assert (await init_volume(config=config)).layout == "tree"
    async with S3kClient(config=config) as fs:
        assert fs.config.layout == "tree"
        await fs.write("/a/b", b"1")
        await fs.rename("/a", "/c")
        assert await fs.read("/c/b") == b"1"
        assert not await fs.exists("/a")


async def test_it_is_opened_in_the_layout_of_its_record(config: VolumeConfig) -> None:
    await init_volume(config=config)
    async with S3kClient(config=replace(config, layout=None)) as fs:
        assert fs.config.layout == "tree"
    with pytest.raises(VolumeMismatchError, match="layout"):
        await S3kClient(config=replace(config, layout="path")).open_volume()


async def test_the_layout_is_a_setting(tmp_path: Path) -> None:
    place = tmp_path / "v"
    assert (await init_volume(place, layout="tree")).layout == "tree"
    async with S3kClient(place) as fs:
        assert fs.config.layout == "tree"
    with pytest.raises(VolumeMismatchError, match="layout"):
        await S3kClient(place, layout="path").open_volume()
    with pytest.raises(ConfigError, match="one of path, tree"):
        S3kClient(place, layout="graph")  # type: ignore[arg-type]


async def test_a_volume_of_layout_path_is_not_opened_as_one_of_layout_tree(
    config: VolumeConfig,
) -> None:
    made = await init_volume(config=replace(config, layout="path"))
    assert made.layout == "path"
    with pytest.raises(VolumeMismatchError, match="layout"):
        await S3kClient(config=config).open_volume()


async def test_it_is_resharded_and_loaded_in_its_layout(
    config: VolumeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(volume_lock, "QUIET_SECONDS", 0.0)
    await init_volume(config=config)
    dump, unnamed = str(tmp_path / "dump.jsonl"), replace(config, layout=None)
    async with S3kClient(config=config) as fs:
        await fs.makedirs("/a/b")
        await dump_volume(fs._volume(), dump)
        await fs.delete("/a", recursive=True)
        item, *_ = await fs.trash().list()
        await fs.trash().restore(item)
    assert (await reshard_volume(unnamed, 8)).suffix_count == 8
    await destroy_volume(config=config, force=True)
    await init_volume(config=config)
    await load_volume(dump, unnamed)
    async with S3kClient(config=unnamed) as fs:
        assert fs.config.layout == "tree"
        assert await fs.is_dir("/a/b")


@pytest.mark.parametrize("layout", ["path", "tree"])
async def test_paths_have_the_same_limit_in_both_layouts(
    config: VolumeConfig, layout: LayoutName
) -> None:
    await init_volume(config=replace(config, layout=layout))
    deep = "/" + "/".join("d" * 500 for _ in range(4))
    async with S3kClient(config=replace(config, layout=layout)) as fs:
        await fs.write(f"{deep[:-30]}/f", b"1")
        for path in (f"{deep}/{'e' * 500}/f", f"/{'n' * 1025}"):
            with pytest.raises(InvalidPathError):
                await fs.write(path, b"2")
            with pytest.raises(InvalidPathError):
                await fs.makedirs(path)


def table_files(directory: Path) -> list[Path]:
    return list(directory.glob("metadata.sqlite*"))


@pytest.mark.parametrize("dry_run", [False, True], ids=["restore", "dry run"])
async def test_a_lost_table_is_restored_in_the_layout_of_its_mark(
    config: VolumeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, dry_run: bool
) -> None:
    monkeypatch.setattr(volume_lock, "QUIET_SECONDS", 0.0)
    await init_volume(config=config)
    async with S3kClient(config=config) as fs:
        await fs.write("/a/b", b"1")
    for part in table_files(tmp_path):
        part.unlink()
    with pytest.raises(VolumeMismatchError, match="has layout tree"):
        await restore_volume(replace(config, layout="path"), dry_run=dry_run)
    assert not table_files(tmp_path)
    unnamed = replace(config, layout=None)
    assert (await restore_volume(unnamed, dry_run=dry_run)).clean
    assert bool(table_files(tmp_path)) != dry_run
    if not dry_run:
        async with S3kClient(config=unnamed) as fs:
            assert fs.config.layout == "tree"
            assert await fs.read("/a/b") == b"1"


async def test_it_is_destroyed_with_what_is_in_it(config: VolumeConfig) -> None:
    await init_volume(config=config)
    async with S3kClient(config=config) as fs:
        await fs.write("/a/b", b"1")
        await fs.delete("/a", recursive=True)
        await fs.write("/c/d", b"2")
    assert await destroy_volume(config=config, force=True) == 0
    with pytest.raises(VolumeNotFoundError):
        await S3kClient(config=config).open_volume()
