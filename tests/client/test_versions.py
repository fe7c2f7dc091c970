"""Versions of files, and undelete, in both layouts."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from s3k_async import Attributes, S3kClient, S3kSyncClient
from s3k_async.backends.ports.pagination import list_all
from s3k_async.config import VolumeConfig
from s3k_async.errors import (
    DataMissingError,
    InvalidArgumentError,
    IsDirectoryError,
    PartialFailureError,
    PathExistsError,
    PathNotFoundError,
    PermissionDeniedError,
    UnsupportedError,
)
from s3k_async.model import ChangeResult, LayoutName
from s3k_async.oplog.compaction import Compactor
from s3k_async.testing import FaultPlan
from s3k_async.volumes import init_volume
from tests.client.rig import faulty_client, memory_config, paths
from tests.client.versioned import Place, a_place
from tests.engines.volumes import volume_backends
from tests.support import FakeClock, fake_runtime

pytestmark = pytest.mark.layouts("path", "tree")


async def test_the_versions_of_a_path(place: Place) -> None:
    fs = place.fs
    await fs.write("/d/f", b"1")
    first = place.tick()
    await fs.write("/d/f", b"22")
    await fs.set_attributes("/d/f", mode=0o600)
    place.tick()
    await fs.append("/d/f", b"3")
    place.tick()
    await fs.delete("/d/f")
    gone = place.tick()
    await fs.write("/d/f", b"4444")
    assert await place.states("/d/f") == [
        ("current", 4, True),
        ("deleted", 3, True),
        ("overwritten", 2, True),
        ("overwritten", 1, True),
    ]
    now, last, second, oldest = await fs.versions("/d/f")
    status = await fs.stat("/d/f")
    assert (now.object_id, now.version, now.until_ms) == (status.id, status.version, None)
    assert (
        {each.object_id for each in (last, second, oldest)} == {last.object_id} != {now.object_id}
    )
    assert [each.version for each in (last, second, oldest)] == [5, 4, 2]
    assert oldest.since_ms < first < (oldest.until_ms or 0) == second.since_ms
    assert (last.until_ms or 0) < gone < now.since_ms
    assert (second.attributes.mode, oldest.attributes.mode) == (0o600, None)
    assert {each.operation for each in (now, last, second, oldest)} == {"update"}
    for path, error in (("/d", IsDirectoryError), ("/", IsDirectoryError)):
        with pytest.raises(error):
            await fs.versions(path)
    assert await fs.versions("/missing/f") == []


async def test_the_versions_as_a_data_frame(place: Place) -> None:
    fs = place.fs
    await fs.write("/d/f", b"1", attributes=Attributes(mode=0o600))
    place.tick()
    await fs.write("/d/f", b"22")
    versions = await fs.versions("/d/f")
    current, former = versions
    frame = versions.to_pandas()
    assert list(frame["id"]) == [current.id, former.id]
    assert list(frame["state"]) == ["current", "overwritten"]
    assert frame["until"].isna().tolist() == [True, False]
    assert former.until_ms is not None
    assert frame["until"][1] == datetime.fromtimestamp(former.until_ms / 1000, UTC)
    assert list(frame["size"]) == [2, 1]
    assert list(frame["has_data"]) == [True, True]
    assert Attributes.from_json(frame["attributes"][0]).mode == 0o600
    nothing = await fs.versions("/nothing")
    assert nothing == []
    assert nothing.to_arrow().schema == versions.to_arrow().schema


async def test_a_file_that_was_moved(place: Place) -> None:
    fs = place.fs
    await fs.write("/d/f", b"1")
    await fs.write("/d/g", b"22")
    place.tick()
    await fs.rename("/d/f", "/d/g", overwrite=True)
    place.tick()
    await fs.write("/d/g", b"333")
    assert await place.states("/d/f") == [("moved", 1, True)]
    assert await place.states("/d/g") == [
        ("current", 3, True),
        ("overwritten", 1, True),
        ("deleted", 2, True),
    ]
    with pytest.raises(PathNotFoundError):  # it is elsewhere
        await fs.undelete("/d/f")
    (moved,) = await fs.versions("/d/f")
    assert await fs.undelete("/d/f", version=moved.id) == ChangeResult(1, 0, 1)
    assert await place.contents() == {"/d/f": b"1", "/d/g": b"333"}
    await place.check()


async def test_undelete_brings_everything_back(place: Place) -> None:
    fs = place.fs
    given = Attributes(mode=0o640, metadata={"origin": b"here"})
    await fs.write("/d/f", b"content" * 100, attributes=given)
    before = await fs.stat("/d/f")
    place.tick()
    await fs.delete("/d", recursive=True, wait=True)
    place.tick()
    assert await fs.undelete("/d/f") == ChangeResult(1, 0, 700)
    after = await fs.stat("/d/f")
    assert await fs.read("/d/f") == b"content" * 100
    assert (after.attributes, after.checksum) == (given, before.checksum)
    assert (after.mtime_ms, after.size) == (before.mtime_ms, before.size)
    assert after.id != before.id
    assert after.physical != before.physical
    await place.check()


async def test_a_file_with_extents_comes_back(place: Place) -> None:
    fs = place.fs
    await fs.write("/f", b"0123456789")
    await fs.write_range("/f", 5, b"xxx")
    await fs.append("/f", b"end")
    await fs.truncate("/f", 30)
    whole = await fs.read("/f")
    await fs.delete("/f")
    await fs.undelete("/f")
    assert await fs.read("/f") == whole == b"01234xxx89end" + bytes(17)
    await fs.delete("/f")
    await fs.undelete("/f", target="/new/g")
    assert await fs.read("/new/g") == whole
    await place.check()


async def test_which_version_and_where(place: Place) -> None:
    fs = place.fs
    for data in (b"1", b"22", b"333"):
        await fs.write("/f", data)
        place.tick()
    current, newer, oldest = await fs.versions("/f")
    with pytest.raises(PathExistsError):
        await fs.undelete("/f", version=oldest.id)
    await fs.undelete("/f", target="/g")  # the last overwritten one
    await fs.undelete("/f", version=oldest.id, target="/h")
    await fs.undelete("/f", version=current.id, target="/i")
    assert newer.size == 2
    expected = {"/f": b"333", "/g": b"22", "/h": b"1", "/i": b"333"}
    assert await place.contents() == expected
    other = (await fs.versions("/h"))[0]
    for version, error in (
        (other.id, PathNotFoundError),
        (oldest.id + "0", PathNotFoundError),
        ("x.2", PathNotFoundError),
        ("nonsense", InvalidArgumentError),
        (f"{oldest.object_id}.x", InvalidArgumentError),
    ):
        with pytest.raises(error):
            await fs.undelete("/f", version=version, target="/j")
    for call in (
        fs.undelete("/f", version=oldest.id, recursive=True),
        fs.undelete("/f", since=1),
        fs.undelete("/d", recursive=True, since=datetime(2026, 1, 1)),  # noqa: DTZ001 - refused
    ):
        with pytest.raises(InvalidArgumentError):
            await call
    with pytest.raises(PathExistsError):
        await fs.undelete("/f", target="/g")
    assert await place.contents() == expected
    await place.check()


async def test_two_undeletions_of_one_version_share_nothing(place: Place) -> None:
    fs = place.fs
    await fs.write("/f", b"data")
    await fs.delete("/f")
    done = await asyncio.gather(
        *(fs.undelete("/f") for _ in range(3)),
        fs.undelete("/f", target="/g"),
        return_exceptions=True,
    )
    refused = [each for each in done if isinstance(each, PathExistsError)]
    assert len(refused) == 2
    assert len([each for each in done if isinstance(each, ChangeResult)]) == 2
    assert await place.contents() == {"/f": b"data", "/g": b"data"}
    await place.check()
    await fs.delete("/f")
    assert await place.contents() == {"/g": b"data"}


async def test_a_deleted_directory(place: Place) -> None:
    fs = place.fs
    for name in ("a", "b", "s/c"):
        await fs.write(f"/d/{name}", name.encode())
    await fs.delete("/d/a")
    place.tick()
    whole = await place.contents()
    await fs.delete("/d", recursive=True)
    late = place.tick()
    with pytest.raises(IsDirectoryError):
        await fs.undelete("/d")
    with pytest.raises(PathNotFoundError):
        await fs.undelete("/e", recursive=True)
    with pytest.raises(PathNotFoundError):
        await fs.undelete("/d", recursive=True, since=late)
    await fs.undelete("/d", recursive=True)
    # In layout `path` the files come back one by one: those that were deleted before as well.
    by_file = {"/d/a": b"a"} if fs.config.layout == "path" else {}
    assert await place.contents() == whole | by_file
    await place.check()


async def test_a_deleted_directory_file_by_file(place: Place) -> None:
    fs = place.fs
    for name in ("a", "b", "s/c"):
        await fs.write(f"/d/{name}", b"old")
        await fs.write(f"/d/{name}", name.encode())
    await fs.delete("/d/a")
    since = place.tick()
    await fs.delete("/d", recursive=True, wait=True)
    await fs.write("/d/b", b"new")
    done = await fs.undelete("/d", recursive=True, since=datetime.fromtimestamp(since / 1000, UTC))
    assert done == ChangeResult(1, 0, 3)
    assert await place.contents() == {"/d/b": b"new", "/d/s/c": b"s/c"}
    assert await fs.undelete("/d", recursive=True, target="/e") == ChangeResult(3, 0, 5)
    assert await place.contents("/e") == {"/e/a": b"a", "/e/b": b"b", "/e/s/c": b"s/c"}
    await fs.write("/file", b"")
    with pytest.raises(PathExistsError):
        await fs.undelete("/file", recursive=True)
    with pytest.raises(PartialFailureError):
        await fs.undelete("/d", recursive=True, target="/file")
    await place.check()


async def test_of_several_deleted_files_at_a_path_the_last_comes_back(place: Place) -> None:
    fs = place.fs
    paths = [f"/d/{number}" for number in range(8)]
    for data in (b"first", b"second"):
        for path in paths:
            await fs.write(path, data)
            await fs.delete(path)
        place.tick()
    assert await fs.undelete("/d", recursive=True) == ChangeResult(8, 0, 48)
    assert await place.contents() == dict.fromkeys(paths, b"second")
    await place.check()


async def test_a_file_below_a_directory_in_the_trash() -> None:
    async with a_place("tree") as place:
        fs = place.fs
        await fs.write("/a/b/f", b"data")
        await fs.delete("/a", recursive=True)
        assert await place.states("/a/b/f") == [("trash", 4, True)]
        await fs.undelete("/a/b/f")
        assert await place.contents() == {"/a/b/f": b"data"}
        await fs.delete("/a/b/f")
        assert await fs.undelete("/a", recursive=True, target="/z") == ChangeResult(0, 1, 0)
        assert await place.contents() == {"/z/b/f": b"data"}
        await fs.rename("/z", "/y")
        await fs.write("/y/b/f", b"other")
        # In layout `tree` a file keeps its versions when a directory above is renamed.
        assert [state for state, _, _ in await place.states("/y/b/f")] == ["current", "overwritten"]
        await place.check()


async def test_what_was_collected_cannot_be_recovered(place: Place) -> None:
    fs = place.fs
    await fs.write("/f", b"1")
    place.tick()
    await fs.write("/f", b"22")
    place.tick()
    await fs.delete("/f")
    newest, oldest = await fs.versions("/f")
    assert await fs._volume().blobs.delete_many(sorted(await place.data())) == []
    assert await place.states("/f") == [("deleted", 2, False), ("overwritten", 1, False)]
    for version in ("", newest.id, oldest.id):
        with pytest.raises(DataMissingError):
            await fs.undelete("/f", version=version)
    result = await fs.restore("/", oldest.since_ms)
    assert [(each.kind, each.path) for each in result.changes] == [("none", "/f")]
    assert result.unrecoverable == 1
    assert await paths(fs) == set()


async def test_the_newest_version_that_has_data(place: Place) -> None:
    fs = place.fs
    await fs.write("/f", b"1")
    kept = await place.data()
    await fs.write("/f", b"22")
    await fs.delete("/f")
    await fs._volume().blobs.delete_many(sorted(await place.data() - kept))
    await fs.undelete("/f")
    assert await fs.read("/f") == b"1"


async def test_a_compacted_log_has_the_last_states(place: Place) -> None:
    fs = place.fs
    for data in (b"1", b"22", b"333"):
        await fs.write("/f", data)
        await fs.write("/g", data)
        place.tick()
    await fs.delete("/g")
    place.tick()
    log = fs._volume().log_blobs
    assert log is not None
    await fs._volume().log.drained()
    place.clock.advance(10)
    assert (await Compactor(log, place.runtime, grace=0).run(dry_run=False)).removed
    assert [size for _, size, _ in await place.states("/f")] == [3, 2]
    assert [each.operation for each in await fs.versions("/f")] == ["update", ""]
    assert await place.states("/g") == [("deleted", 3, True)]
    await fs.undelete("/g")
    assert await fs.read("/g") == b"333"


@volume_backends("embedded", "dynoxide+seaweedfs")
async def test_on_real_stores(fs: S3kClient) -> None:
    for data in (b"1", b"22", b"3" * 1000):
        await fs.write("/d/f", data)
    await fs.append("/d/f", b"+")
    await fs.delete("/d/f")
    versions = await fs.versions("/d/f")
    assert [each.size for each in versions] == [1001, 1000, 2, 1]
    await fs.undelete("/d/f")
    assert await fs.read("/d/f") == b"3" * 1000 + b"+"
    await fs.undelete("/d/f", version=versions[-1].id, target="/d/g")
    at = versions[0].since_ms
    await asyncio.sleep(0.01)
    await fs.delete("/d", recursive=True)
    assert (await fs.restore("/", at, dry_run=False)).done.failures == ()
    assert await fs.read("/d/f") == b"3" * 1000 + b"+"
    await fs.delete("/d", recursive=True, permanently=True)
    assert [each.key async for each in list_all(fs._volume().blobs)] == []


async def test_what_cannot_be_asked(layout: LayoutName) -> None:
    config = replace(memory_config(), layout=layout, log_mode="disabled")
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        await fs.write("/f", b"1")
        for call in (
            fs.versions("/f"),
            fs.undelete("/f"),
            fs.undelete("/d", recursive=True),
            fs.restore("/", 1),
            fs.delete("/f", permanently=True),
        ):
            with pytest.raises(UnsupportedError):
                await call
        assert await fs.read("/f") == b"1"


def _as_user(config: VolumeConfig, uid: int) -> VolumeConfig:
    return replace(config, tuning=replace(config.tuning, uid=uid, gids=(uid,)))


async def test_a_deleted_directory_whose_path_is_taken(place: Place) -> None:
    fs = place.fs
    await fs.write("/d/f", b"1")
    await fs.delete("/d", recursive=True)
    await fs.makedirs("/d")
    if fs.config.layout == "tree":
        with pytest.raises(PathExistsError):
            await fs.undelete("/d", recursive=True)
        await fs.undelete("/d", target="/e", recursive=True)
        assert await place.contents() == {"/e/f": b"1"}
    else:
        await fs.undelete("/d", recursive=True)
        assert await place.contents() == {"/d/f": b"1"}


async def test_another_directory_at_the_path_of_a_private_one(layout: LayoutName) -> None:
    clock = FakeClock()
    runtime = fake_runtime(clock)
    config = replace(memory_config(), layout=layout)
    await init_volume(config, runtime=runtime, enable=["permissions"])

    def user(uid: int) -> AbstractAsyncContextManager[S3kClient]:
        return faulty_client(FaultPlan(), _as_user(config, uid), runtime)

    async with user(0) as root, user(5) as owner, user(7) as other:
        await root.makedirs("/open")
        await root.set_attributes("/open", mode=0o777)
        await other.makedirs("/open/older")
        clock.advance(10)
        await owner.makedirs("/open/private")
        await owner.set_attributes("/open/private", mode=0o700)
        await owner.write("/open/private/f", b"secret")
        await owner.delete("/open/private/f")
        await owner.delete("/open/private")
        clock.advance(10)
        await other.rename("/open/older", "/open/private")
        clock.advance(10)
        assert await other.versions("/open/private/f") == []
        with pytest.raises(PathNotFoundError):
            await other.undelete("/open/private/f", target="/open/copy")
        await other.set_attributes("/open/private", mode=0o777)
        await owner.write("/open/private/g", b"shared")
        await owner.delete("/open/private/g")
        assert [each.state for each in await other.versions("/open/private/g")] == ["deleted"]
        assert [each.state for each in await owner.versions("/open/private/f")] == ["deleted"]


async def test_permissions(layout: LayoutName) -> None:
    config = replace(memory_config(), layout=layout)
    await init_volume(config, enable=["permissions"])
    async with S3kClient(config=_as_user(config, 0)) as root:
        await root.makedirs("/open")
        await root.set_attributes("/open", mode=0o777)
        await root.makedirs("/closed")
        await root.set_attributes("/closed", mode=0o711)
        await root.write("/open/secret", b"s", attributes=Attributes(mode=0o600))
        await root.write("/open/shared", b"p", attributes=Attributes(mode=0o644))
        await root.write("/closed/f", b"c", attributes=Attributes(mode=0o644))
        await root.write("/open/private/f", b"i", attributes=Attributes(mode=0o644))
        await root.set_attributes("/open/private", mode=0o700)
        for path in ("/open/secret", "/open/shared", "/closed/f"):
            await root.delete(path)
        await root.delete("/open/private", recursive=True, wait=True)
        versions = await root.versions("/closed/f")
    async with S3kClient(config=_as_user(config, 7)) as fs:
        assert len(await fs.versions("/open/secret")) == 1
        for call in (
            fs.undelete("/open/secret"),
            fs.versions("/closed/f"),
            fs.undelete("/closed/f", target="/open/f"),
            fs.undelete("/closed/f", version=versions[0].id, target="/open/f"),
            fs.delete("/closed/f", permanently=True),
            fs.undelete("/open/shared", target="/closed/f"),
        ):
            with pytest.raises(PermissionDeniedError):
                await call
        with pytest.raises(PermissionDeniedError):
            await fs.restore("/", 1)
        assert await fs.versions("/open/private/f") == []  # the directory is gone
        with pytest.raises(PathNotFoundError):
            await fs.undelete("/open/private/f")
        with pytest.raises(PathNotFoundError):
            await fs.undelete("/open/private", recursive=True)
        with pytest.raises(PermissionDeniedError):
            await fs.delete("/open/private/f", permanently=True)
        await fs.write("/open/mine/f", b"m")
        await fs.delete("/open/mine", recursive=True, wait=True)
        assert len(await fs.versions("/open/mine/f")) == 1
        await fs.undelete("/open/mine", recursive=True)
        assert await fs.read("/open/mine/f") == b"m"
        await fs.undelete("/open/shared")
        status = await fs.stat("/open/shared")
        assert (status.attributes.uid, status.attributes.mode) == (7, 0o644)


@volume_backends("memory")
def test_the_blocking_client(sync_fs: S3kSyncClient) -> None:
    sync_fs.write("/d/f", b"1")
    sync_fs.delete("/d/f")
    (version,) = sync_fs.versions("/d/f")
    assert sync_fs.undelete("/d/f", version=version.id).files == 1
    assert sync_fs.read("/d/f") == b"1"
    assert sync_fs.restore("/", version.since_ms).unrecoverable == 0
    assert sync_fs.delete("/d/f", permanently=True).files == 1
