"""The layout of a new volume that names none: `tree` in an embedded volume, `path` in any other."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from s3k_async import S3kClient, S3kSyncClient, VolumeConfig, init_volume
from s3k_async.cli import main
from s3k_async.config import LocalDirectory, MemoryTable
from s3k_async.errors import ConfigError, VolumeMismatchError
from s3k_async.migrate.dump import dump_volume
from s3k_async.migrate.load import load_volume
from s3k_async.model import LayoutName
from s3k_async.txn import volume_lock
from s3k_async.txn.volume_record import TRASH_RETENTION
from s3k_async.volumes.restoration import restore_volume
from tests.engines.volumes import VolumeMaker, fresh_name, volume_backends

WEEK = 7 * TRASH_RETENTION
DEFAULTS: dict[str, LayoutName] = {
    "memory": "path",
    "embedded": "tree",
    "dynoxide+seaweedfs": "path",
}


@volume_backends(*DEFAULTS)
async def test_each_kind_of_volume_has_its_default(new_volume: VolumeMaker) -> None:
    expected = DEFAULTS[new_volume.backend]
    config = new_volume(layout=None)
    made = await init_volume(config=config)
    assert made.layout == expected
    assert made.trash_retention == (TRASH_RETENTION if expected == "tree" else None)
    async with S3kClient(config=config) as fs:
        assert fs.config.layout == expected


@volume_backends(*DEFAULTS)
async def test_each_kind_of_volume_can_have_the_other_layout(new_volume: VolumeMaker) -> None:
    other: LayoutName = "path" if DEFAULTS[new_volume.backend] == "tree" else "tree"
    config = new_volume(layout=None)
    assert (await init_volume(config=replace(config, layout=other))).layout == other
    async with S3kClient(config=config) as fs:
        assert fs.config.layout == other


async def test_the_table_decides_and_not_the_place_of_the_data(tmp_path: Path) -> None:
    data = LocalDirectory(str(tmp_path / "data"))
    config = VolumeConfig("v", MemoryTable(fresh_name("table")), data)
    assert (await init_volume(config=config)).layout == "path"


def test_the_command_line_has_the_same_defaults(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for volume, expected in ((str(tmp_path / "v"), "tree"), ("memory://default-layout", "path")):
        assert main(["init", volume, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["layout"] == expected
    assert main(["init", str(tmp_path / "w"), "--layout", "path", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["layout"] == "path"


def test_the_blocking_client_opens_it(tmp_path: Path) -> None:
    for layout in (None, "path"):
        place = tmp_path / str(layout)
        asyncio.run(init_volume(place, layout=layout))
        with S3kSyncClient(place) as fs:
            assert fs.config.layout == (layout or "tree")
            fs.write("/a/b", b"1")
            fs.delete("/a", recursive=True)
            assert [each.was for each in fs.trash().list()] == ([] if layout else ["/a"])


async def test_a_retention_needs_no_layout(tmp_path: Path) -> None:
    made = await init_volume(tmp_path / "v", trash_retention=WEEK)
    assert (made.layout, made.trash_retention) == ("tree", WEEK)
    async with S3kClient(tmp_path / "v") as fs:
        assert await fs.trash().retention() == WEEK
    for refused in (tmp_path / "path", "memory://default-retention"):
        layout: LayoutName | None = "path" if isinstance(refused, Path) else None
        with pytest.raises(ConfigError, match="layout path, which has no trash"):
            await init_volume(refused, layout=layout, trash_retention=WEEK)
    assert not (tmp_path / "path").exists()


@pytest.mark.parametrize("layout", ["path", "tree"])
async def test_an_existing_volume_of_either_layout_is_accepted(
    tmp_path: Path, layout: LayoutName
) -> None:
    place = tmp_path / "v"
    await init_volume(place, layout=layout)
    for named in (None, layout):
        assert (await init_volume(place, layout=named, exist_ok=True)).layout == layout
    other: LayoutName = "path" if layout == "tree" else "tree"
    with pytest.raises(VolumeMismatchError, match="layout"):
        await init_volume(place, layout=other, exist_ok=True)


async def test_a_lost_table_gets_the_layout_of_its_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the default is: a restore and a load over the data of a volume of layout `path`."""
    monkeypatch.setattr(volume_lock, "QUIET_SECONDS", 0.0)
    dump = str(tmp_path / "dump.jsonl")
    place = tmp_path / "v"
    config = await init_volume(place, layout="path")
    async with S3kClient(place) as fs:
        await fs.write("/a/b", b"1")
        await dump_volume(fs._volume(), dump)
    unnamed = replace(config, layout=None, trash_retention=None)
    for how in ("restore", "load"):
        for part in place.glob("metadata.sqlite*"):
            part.unlink()
        if how == "restore":
            assert (await restore_volume(unnamed, dry_run=False)).clean
        else:
            await load_volume(dump, unnamed)
        async with S3kClient(place) as fs:
            assert (fs.config.layout, fs.config.trash_retention) == ("path", None), how
            assert await fs.read("/a/b") == b"1"


async def test_an_embedded_volume_made_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the first file to a copy, which a load makes, of the same layout."""
    monkeypatch.setattr(volume_lock, "QUIET_SECONDS", 0.0)
    place, copy, dump = tmp_path / "v", tmp_path / "copy", str(tmp_path / "dump.jsonl")
    await init_volume(place)
    async with S3kClient(place) as fs:
        for number in range(5):
            await fs.write(f"/in/deep/{number}", b"%d" % number)
        moved = await fs.rename("/in", "/out")
        assert (moved.files, moved.directories) == (0, 1)
        assert await fs.read("/out/deep/3") == b"3"
        await fs.delete("/out/deep", recursive=True)
        assert not await fs.exists("/out/deep/3")
        (item,) = await fs.trash().list()
        assert item.was == "/out/deep"
        await fs.trash().restore(item)
        assert await fs.read("/out/deep/4") == b"4"
        await fs.write("/gone/f", b"f")
        await fs.delete("/gone", recursive=True)
        await dump_volume(fs._volume(), dump)
    for command in (
        ["gc", str(place), "--yes", "--grace", "0", "--trash-retention", "0"],
        ["fsck", str(place)],
        ["load", dump, str(copy), "--copy-bytes-from", str(place)],
        ["fsck", str(copy)],
    ):
        capsys.readouterr()
        assert await asyncio.to_thread(main, command) == 0, capsys.readouterr().err
    async with S3kClient(copy) as fs:
        assert fs.config.layout == "tree"
        found = [each.path async for each in fs.list("/", recursive=True) if not each.is_dir]
        assert sorted(found) == [f"/out/deep/{number}" for number in range(5)]
        assert await fs.read("/out/deep/2") == b"2"
