"""What a synchronization and an import hold in memory does not grow with the trees."""

from __future__ import annotations

import gc
from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from s3k_async.bulk.file_writes import NewFile
from s3k_async.client import volume_of
from s3k_async.trees import (
    BucketTree,
    FileTree,
    SyncOptions,
    TreeEntry,
    VolumeTree,
    adopt_tree,
    adopted_objects,
    bucket_tree,
    comparison,
    path_sort,
    synchronization,
    synchronize,
)
from s3k_async.trees.file_tree import FailedFile, Skipped, TreePlace, WrittenFile
from s3k_async.volumes import Volume
from tests.trees.conftest import Grove

FILES = 20_000
WINDOW = 100
"""Entries of each window, chunk and page."""
BOUND = FILES // 5
"""Entries in memory at once, of both trees. A page of a listing of objects has 1,000."""


class CountedEntry(TreeEntry):
    """An entry that is counted as long as it is in memory."""

    live: ClassVar[int] = 0
    most: ClassVar[int] = 0

    def __init__(self, *fields: Any, **named: Any) -> None:
        super().__init__(*fields, **named)
        CountedEntry.live += 1
        CountedEntry.most = max(CountedEntry.most, CountedEntry.live)

    def __del__(self) -> None:
        CountedEntry.live -= 1


@dataclass
class SyntheticTree:
    """Files that exist only while they are listed; changes are counted."""

    label: str
    numbers: Sequence[int]
    copied: int = 0
    removed: int = 0
    lists_directories: bool = True
    is_local: bool = False
    has_contents: bool = True

    @property
    def places(self) -> Sequence[TreePlace]:
        return [TreePlace(self.label, "/")]

    def full_name(self, path: str) -> str:
        return f"{self.label}/{path}"

    async def exists(self) -> bool:
        return True

    async def entries(self, skipped: Skipped) -> AsyncGenerator[TreeEntry, None]:
        del skipped
        for number in self.numbers:
            yield CountedEntry(f"file-{number:08d}", False, 1, 1)

    async def content(self, entry: TreeEntry) -> AsyncGenerator[bytes, None]:
        del entry
        yield b"1"

    def new_file(
        self, entry: TreeEntry, volume: Volume, path: str, *, overwrite: bool = True
    ) -> NewFile:
        raise AssertionError("copy_files needs none")

    async def make_directory(self, source: FileTree, entry: TreeEntry) -> None:
        """Nothing to make."""

    async def copy_files(
        self,
        source: FileTree,
        files: AsyncIterable[TreeEntry],
        *,
        overwrite: bool = True,
        done: WrittenFile,
        failed: FailedFile,
    ) -> None:
        del source, overwrite, failed
        async for entry in files:
            self.copied += 1
            done(entry, entry.size)

    async def remove_listed(self, entries: Sequence[TreeEntry], *, failed: FailedFile) -> None:
        del failed
        self.removed += len(entries)


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small windows; entries are counted."""
    gc.collect()  # entries of the previous test
    monkeypatch.setattr(comparison, "WINDOW", WINDOW)
    monkeypatch.setattr(synchronization, "WINDOW", WINDOW)
    monkeypatch.setattr(adopted_objects, "CHUNK", WINDOW)
    monkeypatch.setattr(path_sort, "HELD", WINDOW)
    monkeypatch.setattr(path_sort, "PAGE", WINDOW)
    for module in (bucket_tree, path_sort):
        monkeypatch.setattr(module, "TreeEntry", CountedEntry)
    monkeypatch.setattr(CountedEntry, "live", 0)
    monkeypatch.setattr(CountedEntry, "most", 0)


async def test_a_synchronization() -> None:
    """A third of the files is in both trees, a third in each of them alone."""
    numbers = range(FILES)
    source = SyntheticTree("source", [each for each in numbers if each % 3 != 1])
    target = SyntheticTree("target", [each for each in numbers if each % 3 != 2])
    done = await synchronize(source, target, SyncOptions(delete=True))
    missing, surplus = len(numbers[2::3]), len(numbers[1::3])
    assert (done.files, done.unchanged, done.deleted) == (missing, len(numbers[::3]), surplus)
    assert (target.copied, target.removed) == (missing, surplus)
    assert WINDOW < CountedEntry.most < BOUND, CountedEntry.most


@pytest.mark.parametrize("adopt", [False, True])
async def test_an_import(grove: Grove, *, adopt: bool) -> None:
    client = await grove.client()
    blobs = volume_of(client).place
    for number in range(FILES):
        await blobs.put(f"given/{number % 7}/{number}", b"1")
    source = BucketTree(blobs, "given")
    if adopt:
        done = await adopt_tree(source, VolumeTree(client, "/in"), SyncOptions(dry_run=True))
    else:
        done = await synchronize(source, SyntheticTree("target", []))
    assert done.files == FILES
    assert WINDOW < CountedEntry.most < BOUND, CountedEntry.most
