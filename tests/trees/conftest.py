"""Trees for the tests: a volume in memory, a local directory, a bucket in memory."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from s3k_async.client import S3kClient
from s3k_async.config import MemoryBlobs
from s3k_async.model import LayoutName
from s3k_async.trees import DirectoryTree, FileTree, VolumeTree, open_bucket
from s3k_async.volumes import init_volume
from tests.client.rig import memory_config
from tests.engines.volumes import fresh_name

Files = Mapping[str, bytes]

FILES: Files = {
    "a": b"alpha",
    "a-b": b"hyphen",
    "a.d/one": b"1",
    "dir-x": b"before the directory, as a key",
    "dir/deep/two": b"22",
    "dir/three": b"",
    "\u00e9/\U0001f600": b"unicode",
}
"""Keys in another order than paths."""


@dataclass
class Grove:
    """Makes trees, and looks into them."""

    directory: Path
    stack: AsyncExitStack

    async def client(self, layout: LayoutName = "path") -> S3kClient:
        config = memory_config(layout=layout)
        await init_volume(config)
        return await self.stack.enter_async_context(S3kClient(config=config))

    async def tree(self, kind: str, files: Files | None = None) -> FileTree:
        """A tree with these files; None: one without a root."""
        if kind in ("volume", "volume of layout tree"):
            client = await self.client("path" if kind == "volume" else "tree")
            if files is not None:
                await client.makedirs("/top")
                await client.write_many([(f"/top/{path}", data) for path, data in files.items()])
            return VolumeTree(client, "/top")
        if kind == "directory":
            root = self.directory / fresh_name("tree")
            if files is not None:
                root.mkdir()
                plant(root, files)
            return DirectoryTree(root)
        bucket = await self.stack.enter_async_context(
            open_bucket(MemoryBlobs(fresh_name("bucket")), "top")
        )
        await bucket.blobs.create()
        for path, data in (files or {}).items():
            await bucket.blobs.put(f"top/{path}", data)
        return bucket


def plant(root: Path, files: Files, mtime_ms: int | None = None) -> None:
    """Local files with a modification time."""
    for path, data in files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        if mtime_ms is not None:
            os.utime(place, ns=(mtime_ms * 1_000_000, mtime_ms * 1_000_000))


async def content(tree: FileTree) -> dict[str, bytes]:
    """The files of a tree; nothing may be skipped."""
    found = {}
    async for entry in tree.entries(lambda name, error: pytest.fail(f"{name}: {error}")):
        if not entry.is_dir:
            found[entry.path] = b"".join([piece async for piece in tree.content(entry)])
    return found


async def names(tree: FileTree) -> list[str]:
    """Everything in a tree, in order, directories with a slash."""
    return [
        entry.path + "/" * entry.is_dir
        async for entry in tree.entries(lambda name, error: pytest.fail(f"{name}: {error}"))
    ]


@pytest.fixture
async def grove(tmp_path: Path) -> AsyncIterator[Grove]:
    async with AsyncExitStack() as stack:
        yield Grove(tmp_path, stack)
