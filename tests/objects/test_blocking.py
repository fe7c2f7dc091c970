"""The blocking object API."""

from __future__ import annotations

import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import pytest

from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async.config import VolumeConfig
from s3k_async.errors import (
    ClosedClientError,
    DirectoryNotEmptyError,
    MetadataNotFoundError,
    PathExistsError,
    PathNotFoundError,
    UnsupportedError,
)
from s3k_async.objects import Attributes, SyncObjectStore
from tests.engines.volumes import volume_backends
from tests.support import fork_and_run

everywhere = volume_backends("memory", "embedded", "dynoxide+seaweedfs")


@everywhere
def test_every_verb(sync_objects: SyncObjectStore, tmp_path: Path) -> None:
    objects = sync_objects
    assert repr(objects).startswith("<SyncObjectStore ")
    assert objects.storage_info().hot is None
    with pytest.raises(UnsupportedError, match="--enable rules"):
        objects.rules("b")
    assert objects.create_bucket("c", uid=3).uid == 3
    assert [bucket.name for bucket in objects.list_buckets()] == ["b", "c"]
    assert objects.create("b", "x/k", b"data", attributes=Attributes(mode=0o600)).size == 4
    with pytest.raises(PathExistsError):
        objects.create("b", "x/k", b"other")
    assert objects.put("b", "p", b"put").size == 3
    local = tmp_path / "local"
    local.write_bytes(b"0123456789")
    assert objects.create_from_file("b", "file", local, offset=2, size=5).size == 5
    assert objects.create_copy("b", "file", "range", offset=1, size=3).size == 3
    assert objects.create_pseudo("b", "pseudo", 7).size == 7
    assert objects.create_dummy("b", "dummy", b"ab", 5).size == 5
    assert objects.write("b", "p", b"!", offset=4).size == 5
    assert objects.write_copy("b", "x/k", "p", size=2).size == 5
    assert objects.write_from_file("b", "p", BytesIO(b"ZZ"), offset=2).size == 5
    assert objects.read("b", "p") == b"daZZ!"
    assert objects.read_to_file("b", "p", local, offset=1) == 4
    assert local.read_bytes() == b"aZZ!"
    assert objects.read_dummy("b", "p") == 5
    assert (objects.exists("b", "p"), objects.info("b", "p").size) == (True, 5)
    page = objects.list("b", limit=2)
    assert [each.key for each in page.objects] == ["dummy", "file"]
    assert [each.key for each in objects.iterate("b", "p")] == ["p", "pseudo"]
    assert objects.touch("b", "p", modified=5).modified_ms == 5
    assert objects.set_attributes("b", "p", mode=0o640).attributes.mode == 0o640
    objects.set_metadata("b", "p", "n", b"1")
    assert objects.get_metadata("b", "p", "n") == b"1"
    objects.copy_metadata("b", "p", "file")
    objects.move_metadata("b", "p", "range")
    assert objects.list_metadata("b", "p") == {}
    found = objects.list_with_metadata("b", "n").objects
    assert {each.key for each in found} == {"file", "range"}
    objects.delete_metadata("b", "file", "n")
    with pytest.raises(MetadataNotFoundError):
        objects.get_metadata("b", "file", "n")
    assert objects.copy("b", "p", "copy", target_bucket="c").bucket == "c"
    assert objects.move("b", "p", "moved/p").key == "moved/p"
    objects.exchange("b", "moved/p", "x/k")
    assert objects.read("b", "moved/p") == b"data"
    objects.truncate("b", "moved/p", 2)
    objects.delete("b", "moved/p")
    with pytest.raises(PathNotFoundError):
        objects.info("b", "moved/p")
    assert objects.bucket_info("b", statistics=True).objects == 5
    with pytest.raises(DirectoryNotEmptyError):
        objects.delete_bucket("b")
    assert objects.purge_bucket("b").files == 5
    objects.delete_bucket("b")
    objects.delete_bucket("c", force=True)
    assert [*objects.list_buckets()] == []


@everywhere
def test_threads_share_it(sync_objects: SyncObjectStore) -> None:
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda n: sync_objects.create("b", f"{n}", b"x" * n), range(40)))
        sizes = list(threads.map(lambda n: sync_objects.info("b", f"{n}").size, range(40)))
    assert sizes == [*range(40)]


@everywhere
def test_it_closes_with_its_client(config: VolumeConfig) -> None:
    with S3kSyncClient(config=config) as client:
        objects = SyncObjectStore(client)
        objects.create_bucket("b")
    with pytest.raises(ClosedClientError):
        objects.bucket_info("b")


@volume_backends("embedded")
def test_another_process_opens_the_volume_for_itself(
    sync_objects: SyncObjectStore,
) -> None:
    sync_objects.create("b", "k", b"data")
    copied = pickle.loads(pickle.dumps(sync_objects))
    assert copied.read("b", "k") == b"data"

    def child() -> None:
        sync_objects.create("b", "child", str(os.getppid()).encode())

    fork_and_run(child)
    assert sync_objects.read("b", "child") == str(os.getpid()).encode()
