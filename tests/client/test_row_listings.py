"""Listings of other values than statuses, as tables and data frames."""

from __future__ import annotations

import sys
from contextlib import closing

import pytest

from s3k_async import S3kClient, S3kSyncClient, arrow_schema
from s3k_async._sync import sync_batch_listing
from s3k_async.errors import ConfigError, PathNotFoundError
from s3k_async.listing import batch_listing
from s3k_async.objects import ObjectPage, ObjectStore, SyncObjectStore
from tests.engines.volumes import volume_backends

pytestmark = [volume_backends("memory"), pytest.mark.layouts("tree")]

TREE = {"/b/day=1/f": b"1", "/b/day=2/g": b"22", "/b/h": b"333"}


async def plant(fs: S3kClient) -> None:
    for path, data in TREE.items():
        await fs.write(path, data)


async def test_the_trash(fs: S3kClient) -> None:
    await plant(fs)
    await fs.delete("/b", recursive=True)
    items = await fs.trash().list()
    (item,) = items
    (row,) = items.to_arrow().to_pylist()
    assert row == {"id": item.id, "was": "/b", "when": item.when, "by": item.by, "state": ""}
    table = await fs.trash().walk(item).to_arrow()
    assert table.schema == arrow_schema()
    found = dict(zip(table["path"].to_pylist(), table["size"].to_pylist(), strict=True))
    assert found == {path: len(data) for path, data in TREE.items()} | {
        "/b/day=1": 0,
        "/b/day=2": 0,
    }


async def test_physical_files(fs: S3kClient) -> None:
    await plant(fs)
    files = {file.path: file async for file in fs.physical_paths("/")}
    frame = await fs.physical_paths("/").to_pandas()
    assert dict(zip(frame["path"], frame["partitions"], strict=True)) == {
        "/b/day=1/f": {"day": "1"},
        "/b/day=2/g": {"day": "2"},
        "/b/h": {},
    }
    for path, uri, mtime in zip(frame["path"], frame["uri"], frame["mtime"], strict=True):
        assert (uri, mtime) == (files[path].uri, files[path].modified)


async def test_buckets_and_objects(fs: S3kClient) -> None:
    await plant(fs)
    objects = ObjectStore(fs)
    await objects.create_bucket("c", uid=7)
    await objects.set_attributes("b", "h", mode=0o600)
    buckets = await objects.list_buckets().to_pandas()
    assert list(buckets["name"]) == ["b", "c"]
    assert buckets["uid"].isna().tolist() == [True, False]
    assert buckets["uid"][1] == 7
    table = await objects.iterate("b").to_arrow()
    infos = [info async for info in objects.iterate("b")]
    assert table["key"].to_pylist() == ["day=1/f", "day=2/g", "h"]
    for name in ("size", "modified", "created", "version", "etag", "checksum"):
        assert table[name].to_pylist() == [getattr(info, name) for info in infos]
    assert table["attributes"].to_pylist() == [info.attributes.to_json() for info in infos]
    page = await objects.list("b", limit=2)
    assert page.to_arrow() == table.slice(0, 2)
    assert list(page.to_pandas()["key"]) == ["day=1/f", "day=2/g"]
    assert ObjectPage((), None).to_arrow().schema == table.schema


async def test_uploads(fs: S3kClient) -> None:
    objects = ObjectStore(fs)
    await objects.create_bucket("b")
    upload = await objects.create_upload("b", "k")
    (row,) = (await objects.list_uploads("b")).to_arrow().to_pylist()
    assert (row["id"], row["key"], row["attributes"]) == (upload.id, "k", None)
    assert (row["started"], row["expires"]) == (upload.started, upload.expires)


async def test_the_rest_of_a_listing(fs: S3kClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_listing, "BATCH_ROWS", 1)
    await plant(fs)
    listing = ObjectStore(fs).iterate("b")
    first = await anext(listing)
    table = await listing.to_arrow()
    assert [first.key, *table["key"].to_pylist()] == ["day=1/f", "day=2/g", "h"]
    assert table["key"].num_chunks == 2
    assert (await listing.to_arrow()) == table.slice(0, 0)


async def test_a_listing_that_is_closed(fs: S3kClient) -> None:
    await plant(fs)
    for listing in (fs.physical_paths("/"), ObjectStore(fs).iterate("b")):
        await anext(aiter(listing))
        await listing.aclose()
        assert (await listing.to_arrow()).num_rows == 0


async def test_an_error_of_the_listing(fs: S3kClient) -> None:
    with pytest.raises(PathNotFoundError):
        await ObjectStore(fs).iterate("nothing").to_pandas()


async def test_without_pandas(fs: S3kClient, monkeypatch: pytest.MonkeyPatch) -> None:
    await plant(fs)
    versions, page = await fs.versions("/b/h"), await ObjectStore(fs).list("b")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigError, match=r"s3k-async\[pandas\]"):
        await ObjectStore(fs).list_buckets().to_pandas()
    for rows in (versions, page):
        with pytest.raises(ConfigError, match=r"s3k-async\[pandas\]"):
            rows.to_pandas()


def test_the_blocking_client(sync_fs: S3kSyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync_batch_listing, "BATCH_ROWS", 1)
    objects, trash = SyncObjectStore(sync_fs), sync_fs.trash()
    for path, data in TREE.items():
        sync_fs.write(path, data)
    listing = objects.iterate("b")
    assert next(listing).key == "day=1/f"
    assert list(listing.to_pandas()["key"]) == ["day=2/g", "h"]
    assert list(objects.list_buckets().to_pandas()["name"]) == ["b"]
    assert list(objects.list("b", limit=1).to_pandas()["size"]) == [1]
    files = sync_fs.physical_paths("/b").to_arrow()
    assert set(files["path"].to_pylist()) == set(TREE)
    assert list(sync_fs.versions("/b/h").to_pandas()["state"]) == ["current"]
    sync_fs.delete("/b", recursive=True)
    (item,) = trash.list()
    assert list(trash.list().to_pandas()["was"]) == ["/b"]
    assert set(TREE) < set(trash.walk(item).to_arrow()["path"].to_pylist())
    with closing(trash.walk(item)) as left:
        next(left)
    assert list(left) == []
