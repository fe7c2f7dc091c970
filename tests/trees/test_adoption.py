"""Import without a copy: objects of the data location become files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from s3k_async.backends.memory.memory_blobs import MemoryBlobs
from s3k_async.backends.ports.blobs import BlobPage
from s3k_async.client import volume_of
from s3k_async.config import LocalDirectory
from s3k_async.errors import (
    IsDirectoryError,
    NotDirectoryError,
    PathExistsError,
    PathNotFoundError,
    PermissionDeniedError,
    UnsupportedError,
)
from s3k_async.trees import (
    BucketTree,
    Selection,
    SyncOptions,
    VolumeTree,
    adopt_tree,
    adopted_objects,
    open_bucket,
)
from tests.trees.conftest import FILES, Grove, content, names


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adopted_objects, "CHUNK", 2)


async def given(grove: Grove) -> tuple[BucketTree, VolumeTree]:
    """Foreign objects in the data location of a volume, and where they are to be in it."""
    client = await grove.client()
    blobs = volume_of(client).place
    for path, data in FILES.items():
        await blobs.put(f"given/{path}", data)
    return BucketTree(blobs, "given"), VolumeTree(client, "/in")


async def test_nothing_but_the_prefix_is_listed() -> None:
    """Credentials may be allowed no more."""

    class Limited(MemoryBlobs):
        async def list(self, prefix: str = "", **options: Any) -> BlobPage:
            if not prefix.startswith("home/ann/"):
                raise PermissionDeniedError("not allowed", path=prefix)
            return await super().list(prefix, **options)

    blobs = Limited("limited-to-a-prefix")
    await blobs.create()
    await blobs.put("home/ann/a", b"1")
    tree = BucketTree(blobs, "home/ann")
    assert await tree.single_object() is None
    assert await tree.exists()


async def test_objects_become_files(grove: Grove) -> None:
    source, target = await given(grove)
    dry = await adopt_tree(source, target, SyncOptions(dry_run=True))
    assert not await target.exists()
    with target.client.count() as counted:
        done = await adopt_tree(source, target)
    assert (done.files, done.bytes) == (dry.files, dry.bytes)
    assert (done.files, done.failures) == (len(FILES), ())
    assert not any("copy" in str(key).lower() for key in counted.requests.counts)
    assert await content(target) == dict(FILES)
    assert await names(target) == await names(source)
    async for status in target.client.list("/in", recursive=True):
        if status.is_file:
            key = f"given/{status.path.removeprefix('/in/')}"
            info = await source.blobs.head(key)
            assert info is not None
            assert (status.physical, status.etag) == (source.blobs.uri(key), info.etag)
    again = await adopt_tree(source, target)
    assert (again.files, again.unchanged) == (0, len(FILES))


async def test_an_object_that_was_replaced(grove: Grove) -> None:
    source, target = await given(grove)
    await adopt_tree(source, target, SyncOptions(selection=Selection(exclude=["dir"])))
    await source.blobs.put("given/a", b"ALPHA")
    done = await adopt_tree(source, target, SyncOptions(overwrite=False))
    assert [type(error) for _, error in done.failures] == [PathExistsError]
    assert (done.files, done.unchanged) == (2, len(FILES) - 3)
    done = await adopt_tree(source, target)
    assert (done.files, done.unchanged) == (1, len(FILES) - 1)
    assert await content(target) == {**FILES, "a": b"ALPHA"}


@pytest.mark.parametrize("overwrite", [True, False])
async def test_a_dry_run_reports_what_a_run_refuses(grove: Grove, overwrite: bool) -> None:
    source, target = await given(grove)
    await target.client.write("/in/a", b"other")
    await target.client.makedirs("/in/a-b")
    await target.client.write("/in/dir", b"a file")
    options = SyncOptions(overwrite=overwrite, dry_run=True)
    shown: list[str] = []
    dry = await adopt_tree(
        source, target, options, on_change=lambda _, each: shown.append(each.path)
    )
    done = await adopt_tree(source, target, replace(options, dry_run=False))
    assert {path: type(error) for path, error in dry.failures} == {
        "/in/a-b": IsDirectoryError,
        "/in/dir": NotDirectoryError,
        **({} if overwrite else {"/in/a": PathExistsError}),
    }
    assert {path for path, _ in done.failures} == {
        *("/in/a-b", "/in/dir/deep/two", "/in/dir/three"),
        *(() if overwrite else ("/in/a",)),
    }
    assert (dry.files, dry.bytes, dry.unchanged) == (done.files, done.bytes, done.unchanged)
    assert len(shown) == dry.files + dry.directories


async def test_objects_of_another_bucket_become_files(grove: Grove) -> None:
    _, target = await given(grove)
    elsewhere = await grove.tree("bucket", FILES)
    assert isinstance(elsewhere, BucketTree)
    done = await adopt_tree(elsewhere, target)
    assert (done.files, done.failures) == (len(FILES), ())
    assert await content(target) == dict(FILES)
    again = await adopt_tree(elsewhere, target)
    assert (again.files, again.unchanged) == (0, len(FILES))
    physical = (await target.client.stat("/in/a")).physical
    assert physical == elsewhere.uri("a")


async def test_what_cannot_be_adopted(grove: Grove) -> None:
    source, target = await given(grove)
    async with open_bucket(LocalDirectory(str(grove.directory))) as elsewhere:
        with pytest.raises(UnsupportedError, match="which copies them"):
            await adopt_tree(elsewhere, target)
    with pytest.raises(PathNotFoundError):
        await adopt_tree(BucketTree(source.blobs, "nothing"), target)
    await target.client.write("/in", b"file")
    with pytest.raises(NotDirectoryError):
        await adopt_tree(source, target)
    # of the volume's own objects none is shown
    everything = await names(BucketTree(source.blobs))
    assert {name for name in everything if name.startswith("given/")} == set(everything)
