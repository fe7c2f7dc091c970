"""One embedded volume that all rows share: what a row does to it must not show."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from s3k_async.backends.ports.items import ABSENT, Put
from s3k_async.backends.sqlite.sqlite_items import SqliteItems
from s3k_async.volumes import init_volume, open_volume
from tests.bad_input.rows import Scene, changes, snapshot
from tests.test_volumes_legacy import legacy_item

DATA = b"0123456789"


@pytest.fixture(autouse=True)
def no_settings_of_mine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither the environment nor the user's configuration file have a say."""
    for name in list(os.environ):
        if name.startswith(("S3K_", "AWS_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-configuration"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def shared_scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    scene = Scene(tmp_path_factory.mktemp("bad-input"))
    scene.local.write_bytes(b"local bytes")
    asyncio.run(fill(scene))
    asyncio.run(fill_old(scene))
    return scene


@pytest.fixture
def scene(shared_scene: Scene) -> Iterator[Scene]:
    """The shared volume, which a test has to leave as it was."""
    before = snapshot(shared_scene.root)
    yield shared_scene
    assert changes(before, snapshot(shared_scene.root)) == []


async def fill(scene: Scene) -> None:
    config = scene.client().config
    await init_volume(config)
    async with scene.client() as fs:
        for path in ("/dir/file", "/dir/other", "/dir/sub/leaf", "/deep/er/leaf", "/file"):
            await fs.write(path, DATA)
        await fs.makedirs("/empty")
    volume = await open_volume(config)
    await volume.store.reserve(await volume.store.prepare("/dir/reserved"), exclusive=True)
    await volume.close()


async def fill_old(scene: Scene) -> None:
    """A volume that S3-FileSystem 1.0 wrote, named `bucket`, of suffix count 10."""
    (scene.root / "old-data").mkdir()
    items = SqliteItems(scene.root / "old.sqlite")
    await items.create()
    for name in ("a", "file", "part-00000"):
        await items.write(Put(legacy_item("bucket", "/", name, 10), ABSENT))
    await items.write(Put(legacy_item("bucket", "/", "dir0", 10, isdir=True), ABSENT))
    await items.close()
