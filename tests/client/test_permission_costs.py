"""What the evaluation of permissions costs, as docs/permissions.md has it; nothing without the
feature, and nothing for the superuser."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import pytest

from s3k_async._core.runtime import SYSTEM
from s3k_async.client import S3kClient
from s3k_async.config import MemoryBlobs, MemoryTable, Tuning, VolumeConfig
from s3k_async.errors import PathNotFoundError
from s3k_async.model import Feature, LayoutName
from s3k_async.testing import FaultPlan
from s3k_async.volumes import init_volume
from tests.client.request_scenes import SCENES, Scene
from tests.client.rig import faulty_client
from tests.client.test_permissions import PAGE
from tests.client.test_request_counts import cell
from tests.engines.volumes import fresh_name

HEAD = "| call | table, layout `path` | again within 5 s | table, layout `tree` |"
ROWS = (
    "stat",
    "read",
    "stat_many, 100 paths",
    "list, 100 files",
    "write a new file",
    "rename a file",
    "delete a file",
    "delete a directory of 100 files",
)
READ_AGAIN = {
    "delete a file, `permanently`",
    "undelete a file",
    "versions, of 1 deleted file",
}
"""Calls that read the directories of deleted files for the evaluation alone."""
FEATURE: Sequence[Feature] = ("permissions",)


async def asked(
    scene: Scene, layout: LayoutName, *, uid: int = 1000, evaluated: bool = True, warm: bool = False
) -> str:
    """The requests to the table of a scene."""
    name = fresh_name("volume")
    tuning = Tuning(uid=uid, gids=(uid,))
    config = VolumeConfig(name, MemoryTable(name), MemoryBlobs(name), tuning=tuning, layout=layout)
    await init_volume(config, enable=[*scene.features, *FEATURE[: int(evaluated)]])
    runtime = replace(SYSTEM, monotonic=lambda: 0.0)
    async with faulty_client(FaultPlan(), config, runtime) as before:
        await scene.before(before)
    async with faulty_client(FaultPlan(), config, runtime) as client:
        await scene.warm(client)
        if warm:
            await seen(client)
        with client.count() as counter:
            await scene.call(client)
    return cell(counter.requests, "table", deferred=False)


async def seen(fs: S3kClient) -> None:
    """Let a client read the directories of the scenes."""
    for path in ("/d/none", "/e/none"):
        with suppress(PathNotFoundError):
            await fs.stat(path)


async def row_of(name: str) -> str:
    scene = SCENES[name]
    cells = [
        await asked(scene, "path"),
        await asked(scene, "path", warm=True),
        await asked(scene, "tree"),
    ]
    return f"| {' | '.join([name, *cells])} |"


def documented() -> list[str]:
    text = PAGE.read_text(encoding="utf-8")
    return text[text.index(HEAD) :].split("\n\n")[0].splitlines()[2:]


async def test_evaluation_makes_the_requests_that_are_documented() -> None:
    assert documented() == [await row_of(name) for name in ROWS]


@pytest.mark.parametrize("layout", ["path", "tree"])
async def test_the_superuser_and_layout_tree_pay_nothing(layout: LayoutName) -> None:
    for name, scene in SCENES.items():
        usual = await asked(scene, layout, evaluated=False)
        assert await asked(scene, layout, uid=0) == usual, name
        # Rules, and restoring to a time, are the superuser's.
        is_open = not scene.features and not name.startswith("restore,")
        if layout == "tree" and is_open and name not in READ_AGAIN:
            assert await asked(scene, layout) == usual, name
