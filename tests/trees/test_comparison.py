"""Listings of trees in one order, and their comparison."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from s3k_async.backends.ports.blobs import BlobInfo
from s3k_async.config import MemoryBlobs
from s3k_async.errors import (
    InvalidArgumentError,
    InvalidPathError,
    NotDirectoryError,
    S3kError,
    UnsupportedError,
)
from s3k_async.listing.listings import arrow_schema
from s3k_async.trees import (
    BucketTree,
    ComparisonRule,
    DirectoryTree,
    FileTree,
    ListingTree,
    Selection,
    TreeComparison,
    TreeEntry,
    VolumeTree,
    comparison,
    open_bucket,
    path_sort,
)
from s3k_async.trees.path_sort import PathSort, with_directories
from tests.engines.volumes import fresh_name
from tests.trees.conftest import FILES, Grove, content, names, plant

OLD = 1_600_000_000_000


async def kinds(
    left: FileTree,
    right: FileTree,
    rule: ComparisonRule = "time",
    selection: Selection | None = None,
) -> dict[str, str]:
    found = TreeComparison(left, right, rule, selection or Selection())
    result: dict[str, str] = {each.path: each.kind async for each in found.differences()}
    assert found.skipped == {}
    return result


@pytest.mark.parametrize("held", [2, 10**6])
async def test_every_tree_has_the_same_order(
    grove: Grove, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(path_sort, "HELD", held)
    monkeypatch.setattr(path_sort, "PAGE", 2)
    monkeypatch.setattr(comparison, "WINDOW", 2)
    trees = [await grove.tree(kind, FILES) for kind in ("volume", "directory", "bucket")]
    found = [await names(tree) for tree in trees]
    assert found[0] == found[1] == found[2]
    assert [name for name in found[0] if not name.endswith("/")] == sorted(
        FILES, key=lambda path: path.split("/")
    )
    for one in trees:
        for other in trees:
            assert await kinds(one, other, "size") == {}


NAMES = st.text(alphabet="a-./b!\u00e9", min_size=1, max_size=7).map(
    lambda text: "/".join(part for part in text.split("/") if part not in ("", ".", ".."))
)


@settings(max_examples=60, deadline=None)
@given(st.lists(NAMES.filter(bool), unique=True, max_size=12), st.integers(1, 5))
def test_entries_are_sorted_with_their_directories(paths: list[str], page: int) -> None:
    skipped: dict[str, S3kError] = {}
    with PathSort() as sorter, pytest.MonkeyPatch.context() as patch:
        patch.setattr(path_sort, "PAGE", page)
        patch.setattr(path_sort, "HELD", len(paths) // 2)
        sorter.add([TreeEntry(path, False, len(path), 7, "e", "c") for path in paths])
        found = [
            each for part in with_directories(sorter.pages(), skipped.__setitem__) for each in part
        ]
    keys = [each.path.split("/") for each in found]
    assert keys == sorted(keys)
    files = {each.path for each in found if not each.is_dir}
    assert files | set(skipped) == set(paths)
    assert {each.path for each in found if each.is_dir} == {
        path[:end] for path in files for end in range(len(path)) if path[end] == "/"
    }
    assert all(any(path.startswith(f"{file}/") for file in files) for path in skipped)
    assert all(
        each == TreeEntry(each.path, False, len(each.path), 7, "e", "c")
        for each in found
        if not each.is_dir
    )


async def test_what_differs(grove: Grove) -> None:
    left = await grove.tree("directory", {})
    right = await grove.tree("directory", {})
    assert isinstance(left, DirectoryTree)
    assert isinstance(right, DirectoryTree)
    plant(Path(left.root), {"same": b"1", "size": b"12", "newer": b"1", "older": b"1", "x": b""})
    plant(Path(right.root), {"same": b"1", "size": b"1", "newer": b"2", "older": b"2", "x/y": b""})
    for tree, name, time in ((left, "older", OLD), (right, "newer", OLD), (right, "same", OLD)):
        os.utime(os.path.join(tree.root, name), (time / 1000, time / 1000))
    os.mkdir(os.path.join(left.root, "only"))
    always = {"only": "only_left", "size": "size", "x": "type", "x/y": "only_right"}
    assert await kinds(left, right, "size") == always
    assert await kinds(left, right) == {**always, "newer": "time", "same": "time"}
    assert await kinds(left, right, "checksum") == {
        **always,
        "newer": "content",
        "older": "content",
    }
    assert await kinds(left, right, "size", Selection(["s*", "y"])) == {
        "size": "size",
        "x/y": "only_right",
    }


async def test_directories_of_a_bucket_do_not_differ(grove: Grove) -> None:
    volume, bucket = await grove.tree("volume", FILES), await grove.tree("bucket", FILES)
    assert isinstance(volume, VolumeTree)
    await volume.client.makedirs("/top/empty")
    assert await kinds(volume, bucket, "size") == await kinds(bucket, volume, "size") == {}


@pytest.mark.parametrize("kind", ["volume", "directory", "bucket"])
async def test_contents_by_what_is_recorded(
    grove: Grove, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of volumes and objects are not read if their checksums or entity tags are the same; a
    local file is compared with an entity tag by its own."""
    left = await grove.tree(kind, {"a": b"same", "b": b"one"})
    right = await grove.tree("bucket", {"a": b"same", "b": b"two"})
    read: list[str] = []
    for tree in (left, right):
        _note(tree, read, monkeypatch)
    assert await kinds(left, right, "checksum") == {"b": "content"}
    assert "bucket a" not in read
    assert (f"{kind} a" in read) == (kind == "directory")


def _note(tree: FileTree, read: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type(tree).__name__.removesuffix("Tree").lower()
    whole = tree.content

    def noted(entry: TreeEntry) -> object:
        read.append(f"{kind} {entry.path}")
        return whole(entry)

    monkeypatch.setattr(tree, "content", noted)


async def test_a_file_that_cannot_be_read_is_skipped(grove: Grove) -> None:
    left = await grove.tree("directory", {"a": b"1", "b": b"2"})
    right = await grove.tree("bucket", {"a": b"1", "b": b"2"})
    assert isinstance(right, BucketTree)
    await right.blobs.put("top/a", b"9")
    found = TreeComparison(left, right, "checksum")
    listed = right.entries

    async def replaced(skipped: object) -> object:
        async for entry in listed(skipped):  # type: ignore[arg-type]
            yield entry
        await right.blobs.put("top/a", b"8")

    right.entries = replaced  # type: ignore[method-assign,assignment]
    assert [each.kind async for each in found.differences()] == []
    assert [type(error).__name__ for error in found.skipped.values()] == ["ConflictError"]
    assert found.same == 1


async def test_keys_that_are_no_paths(grove: Grove) -> None:
    location = MemoryBlobs(fresh_name("bucket"))
    async with open_bucket(location) as bucket:
        await bucket.blobs.create()
        uuid = "0d9f1a10-1111-4222-8333-444455556666"
        for key in ("a/b", "a/b/c", f"s3k-{uuid}/x", f"p/oplog/s3k-{uuid}/y", "s3k-volume.json"):
            await bucket.blobs.put(key, b"")
        skipped: dict[str, S3kError] = {}
        found = [entry.path async for entry in bucket.entries(skipped.__setitem__)]
        assert found == ["a", "a/b"]
        assert [type(error) for error in skipped.values()] == [NotDirectoryError]
        rows = bucket._shown(
            [_info(key) for key in ("", "d/", "e//f", "../g", "h/./i", "j")], skipped.__setitem__
        )
        assert [(each.path, each.is_dir) for each in rows] == [("d", True), ("j", False)]
        assert sum(isinstance(error, InvalidPathError) for error in skipped.values()) == 3


@pytest.mark.parametrize("held", [0, 100])
async def test_keys_below_a_key_that_also_ends_with_a_slash(
    held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which S3 allows, unlike the other stores."""
    monkeypatch.setattr(path_sort, "HELD", held)
    keys = ("a", "a/", "a/b", "c/", "c/d")
    skipped: dict[str, S3kError] = {}
    async with open_bucket(MemoryBlobs(fresh_name("bucket"))) as bucket:
        rows = bucket._shown([_info(key) for key in keys], skipped.__setitem__)
    with PathSort() as sorter:
        sorter.add(reversed(rows))
        pages = with_directories(sorter.pages(), skipped.__setitem__)
        found = [(each.path, each.is_dir) for page in pages for each in page]
    assert found == [("a", False), ("c", True), ("c/d", False)]
    assert {path: type(error) for path, error in skipped.items()} == {"a/b": NotDirectoryError}


async def test_a_file_and_a_directory_of_one_name_are_both_on_the_first_level() -> None:
    async with open_bucket(MemoryBlobs(fresh_name("bucket"))) as bucket:
        await bucket.blobs.create()
        for key in ("a", "a/b", "a/c", "d/e", "f"):
            await bucket.blobs.put(key, b"1")
        skipped: dict[str, S3kError] = {}
        found = [(each.path, each.is_dir) async for each in bucket.children(skipped.__setitem__)]
        assert found == [("a", False), ("a", True), ("d", True), ("f", False)]
        assert skipped == {}


def _info(key: str) -> BlobInfo:
    return BlobInfo(key, 1, "e")


@pytest.mark.parametrize("extension", ["jsonl", "parquet"])
async def test_a_listing_as_a_tree(grove: Grove, tmp_path: Path, extension: str) -> None:
    volume = await grove.tree("volume", FILES)
    assert isinstance(volume, VolumeTree)
    file = tmp_path / f"listing.{extension}"
    if extension == "jsonl":
        statuses = [each async for each in volume.client.list("/", recursive=True)]
        file.write_text(
            "".join(
                json.dumps(
                    {
                        "path": each.path,
                        "type": "directory" if each.is_dir else "file",
                        "size": each.size,
                        "mtime_ms": each.mtime_ms,
                        "etag": each.etag,
                        "checksum": each.checksum,
                    }
                )
                + "\n"
                for each in statuses
            )
        )
    else:
        from pyarrow.parquet import ParquetWriter

        with ParquetWriter(file, arrow_schema()) as writer:
            async for batch in volume.client.list_batches("/", recursive=True):
                writer.write_batch(batch)
    listing = ListingTree(file, "/top")
    for rule in ("time", "size", "checksum"):
        assert await kinds(volume, listing, rule) == await kinds(listing, volume, rule) == {}
    assert await names(listing) == await names(volume)
    await volume.client.write("/top/a", b"ALPHA")
    assert await kinds(volume, listing) == {"a": "time"}
    assert await kinds(volume, listing, "checksum") == {"a": "content"}
    local = await grove.tree("directory", FILES)
    assert await kinds(local, listing, "checksum") == {}
    with pytest.raises(UnsupportedError):
        await content(listing)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "x",
        "[]",
        '{"path": 1, "type": "file", "size": 1}',
        '{"path": "/a", "size": 1}',
        '{"path": "/a", "type": "file"}',
        '{"path": "/..", "type": "file", "size": 1}',
        pytest.param("[" * 100_000, id="deep"),
    ],
)
async def test_no_listing(tmp_path: Path, line: str) -> None:
    file = tmp_path / "listing.jsonl"
    file.write_text('{"path": "/ok", "type": "file", "size": 1}\n' + line + "\n")
    with pytest.raises(InvalidArgumentError, match="line 2"):
        await names(ListingTree(file))
    (tmp_path / "listing.parquet").write_bytes(b"PAR1")
    with pytest.raises(InvalidArgumentError, match="Parquet"):
        await names(ListingTree(tmp_path / "listing.parquet"))


async def test_a_listing_of_other_columns(tmp_path: Path) -> None:
    columns = {"path": ["/a"], "is_dir": [False], "size": [1], "etag": [""], "checksum": [""]}
    file = str(tmp_path / "listing.parquet")
    for mtime in ({}, {"mtime": [5]}):
        parquet.write_table(pa.table(columns | mtime), file)
        with pytest.raises(InvalidArgumentError, match="Parquet"):
            await names(ListingTree(file))


async def test_a_path_that_occurs_twice(tmp_path: Path) -> None:
    file = tmp_path / "listing.jsonl"
    for first, second in (("/d/a", "/d/a"), ("/d/a", "d//a")):
        line = '{{"path": "{}", "type": "file", "size": {}}}\n'
        file.write_text(line.format(first, 1) + line.format(second, 2))
        with pytest.raises(InvalidArgumentError, match="twice: /d/a"):
            await names(ListingTree(file, "/d"))


def test_the_entity_tag_of_a_local_file_is_that_of_s3() -> None:
    assert comparison._DIGEST.fullmatch(hashlib.md5(b"x").hexdigest())
    assert not comparison._DIGEST.fullmatch("17a-5")
