"""The blocking object API."""

from __future__ import annotations

import asyncio
import inspect
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

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
from s3k_async.model import LayoutName
from s3k_async.objects import Attributes, ObjectStore, SyncObjectStore
from s3k_async.volumes import init_volume
from tests.client.rig import TUNING
from tests.engines.volumes import VolumeMaker, volume_backends
from tests.support import fork_and_run

everywhere = volume_backends("memory", "embedded", "dynoxide+seaweedfs")


def verbs(kind: type[object]) -> set[str]:
    """The names of the public methods of a class."""
    return {name for name, _ in inspect.getmembers(kind, callable) if not name.startswith("_")}


class Recording(SyncObjectStore):
    """The verbs that are called are recorded."""

    def __init__(self, client: S3kSyncClient) -> None:
        super().__init__(client)
        self._called: set[str] = set()

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_"):
            self._called.add(name)
        return super().__getattribute__(name)

    def called(self) -> set[str]:
        """The verbs that were called until now."""
        return self._called - {"called"}


@everywhere
def test_every_verb(new_volume: VolumeMaker, layout: LayoutName, tmp_path: Path) -> None:
    """All of those of `ObjectStore`: a new one that is not called here fails the test."""
    config = new_volume(tuning=TUNING, layout=layout)
    asyncio.run(init_volume(config, enable=["rules"]))
    with S3kSyncClient(config=config) as client:
        objects = Recording(client)
        objects.create_bucket("b")
        call_every_verb(objects, tmp_path)
        assert objects.called() == verbs(SyncObjectStore) == verbs(ObjectStore)


def call_every_verb(objects: SyncObjectStore, tmp_path: Path) -> None:
    """On a volume with the empty bucket `b`, which is removed at last."""
    assert repr(objects).startswith("<Recording ")
    assert objects.storage_info().hot is None
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
    call_every_verb_of_rules(objects)
    call_every_verb_of_uploads(objects)
    with pytest.raises(DirectoryNotEmptyError):
        objects.delete_bucket("b")
    assert objects.purge_bucket("b").files == 6
    objects.delete_bucket("b")
    objects.delete_bucket("c", force=True)
    assert [*objects.list_buckets()] == []


def call_every_verb_of_rules(objects: SyncObjectStore) -> None:
    of_bucket = objects.set_rule("b", expire_after=10**9)
    of_directory = objects.set_rule("b", "d", read_only_after=10**9)
    assert objects.rules("b") == [of_bucket, of_directory]
    objects.remove_rule("b", "d")
    assert objects.rules("b") == [of_bucket]
    with pytest.raises(PathNotFoundError):
        objects.remove_rule("b", "d")


def call_every_verb_of_uploads(objects: SyncObjectStore) -> None:
    """An object `uploaded` is left in the bucket `b`."""
    upload = objects.create_upload("b", "uploaded", attributes=Attributes(uid=7))
    assert objects.put_part(upload.id, 2, b"two").size == 3
    assert objects.copy_part(upload.id, 1, "b", "range", offset=1, size=1).size == 1
    assert [(each.number, each.size) for each in objects.list_parts(upload.id)] == [(1, 1), (2, 3)]
    other = objects.create_upload("b", "uploaded")
    assert {each.id for each in objects.list_uploads("b")} == {upload.id, other.id}
    objects.abort_upload(other.id)
    assert objects.list_uploads("b") == [upload]
    made = objects.complete_upload(upload.id)
    assert (made.size, made.attributes.uid) == (4, 7)
    expected = objects.read("b", "range", offset=1, size=1) + b"two"
    assert objects.read("b", "uploaded") == expected
    objects.create_upload("b", "k", lifetime=0.001)
    while not (expired := objects.expire_uploads()):
        pass
    assert (expired, objects.list_uploads("b")) == (1, [])


@everywhere
def test_rules_of_a_volume_without_them_are_refused(sync_objects: SyncObjectStore) -> None:
    with pytest.raises(UnsupportedError, match="--enable rules"):
        sync_objects.rules("b")


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
