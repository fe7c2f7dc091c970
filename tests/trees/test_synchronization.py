"""One-way synchronization: what is copied, deleted and kept."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncGenerator, AsyncIterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from s3k_async._core.runtime import SYSTEM
from s3k_async.bulk.file_writes import LARGE, NewFile
from s3k_async.client import S3kClient
from s3k_async.config import LocalDirectory
from s3k_async.errors import (
    ConflictError,
    InvalidArgumentError,
    IsDirectoryError,
    NotDirectoryError,
    OverlapError,
    PathExistsError,
    PathNotFoundError,
    PermissionDeniedError,
    UnreachableError,
    UnsupportedError,
)
from s3k_async.model import LayoutName
from s3k_async.settings import resolve
from s3k_async.testing import Died, FaultPlan
from s3k_async.trees import (
    DirectoryTree,
    FileTree,
    ListingTree,
    Selection,
    SyncOptions,
    TreeEntry,
    TreeTarget,
    VolumeTree,
    directory_tree,
    synchronization,
    synchronize,
)
from s3k_async.volumes import Volume, init_volume
from tests.client.rig import faulty_client, memory_config
from tests.level import FULL
from tests.support import from_call
from tests.trees.conftest import FILES, Grove, content, names, plant

LATER = replace(SYSTEM, now_ms=lambda: SYSTEM.now_ms() + 10**9)
"""The leases of those who died are over."""
STEP = 1 if FULL else 5
"""Calls between two deaths."""
OLD = 1_600_000_000_000
"""A modification time, epoch milliseconds."""


@pytest.mark.parametrize("target", ["volume", "volume of layout tree", "directory"])
@pytest.mark.parametrize("source", ["volume", "volume of layout tree", "directory", "bucket"])
async def test_every_pair_of_trees(
    grove: Grove, source: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory_tree, "SCANNED", 2)
    left, right = await grove.tree(source, FILES), await grove.tree(target)
    dry = await synchronize(left, right, SyncOptions(dry_run=True))
    assert not await right.exists()
    done = await synchronize(left, right)
    assert (done.files, done.bytes, done.unchanged) == (
        len(FILES),
        sum(map(len, FILES.values())),
        0,
    )
    assert (dry.files, dry.bytes, dry.directories) == (done.files, done.bytes, done.directories)
    assert done.failures == ()
    assert await content(right) == dict(FILES)
    assert await names(right) == await names(left)
    for rule in ("time", "checksum"):
        again = await synchronize(left, right, SyncOptions(rule))
        assert (again.changed, again.unchanged) == (0, len(FILES))


@pytest.mark.parametrize("target", ["volume", "directory"])
@pytest.mark.parametrize("large", [1, 10**9])
async def test_a_copy_has_the_time_of_its_source(
    grove: Grove, target: str, large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a change during the copy, before the copy was published, is seen by the next run."""
    monkeypatch.setattr(directory_tree, "LARGE", large)
    left, right = await grove.tree("directory", {}), await grove.tree(target)
    assert isinstance(left, DirectoryTree)
    plant(Path(left.root), {"file": b"first"}, OLD)
    await synchronize(left, right)
    plant(Path(left.root), {"file": b"later"}, OLD + 1)
    assert (await synchronize(left, right)).files == 1
    assert await content(right) == {"file": b"later"}
    entries = [entry async for entry in right.entries(lambda *_: None)]
    assert [entry.mtime_ms for entry in entries] == [OLD + 1]
    plant(Path(left.root), {"file": b"older"}, OLD)
    assert (await synchronize(left, right)).unchanged == 1
    assert (await synchronize(left, right, SyncOptions("size"))).unchanged == 1
    assert (await synchronize(left, right, SyncOptions("checksum"))).files == 1
    assert await content(right) == {"file": b"older"}


@pytest.mark.parametrize("source", ["volume", "bucket"])
async def test_a_change_of_the_source_is_copied(grove: Grove, source: str) -> None:
    left, right = await grove.tree(source, {"a": b"1", "b": b"1"}), await grove.tree("volume")
    await synchronize(left, right)
    if isinstance(left, VolumeTree):
        await left.client.write("/top/a", b"2")
    else:
        await left.blobs.put("top/a", b"2")  # type: ignore[attr-defined]
    assert (await synchronize(left, right, SyncOptions("checksum"))).files == 1
    assert await content(right) == {"a": b"2", "b": b"1"}


@pytest.mark.parametrize("target", ["volume", "volume of layout tree", "directory"])
async def test_delete(grove: Grove, target: str) -> None:
    surplus = {"dir/deep/old": b"", "gone/x/y": b"1", "gone/x2": b"2", "z": b"3"}
    left = await grove.tree("directory", FILES)
    right = await grove.tree(target, {**surplus, "a": b"alpha"})
    assert (await synchronize(left, right)).deleted == 0
    assert set(await content(right)) == {*FILES, *surplus}
    told: list[tuple[str, str]] = []
    dry = await synchronize(
        left,
        right,
        SyncOptions(delete=True, dry_run=True),
        on_change=lambda kind, entry: told.append((kind, entry.path)),
    )
    assert set(told) == {("delete", path) for path in (*surplus, "gone", "gone/x")}
    assert set(await content(right)) == {*FILES, *surplus}
    done = await synchronize(left, right, SyncOptions(delete=True))
    assert (done.deleted, done.deleted_directories) == (4, 2)
    assert (dry.deleted, dry.deleted_directories) == (4, 2)
    assert await names(right) == await names(left)


@pytest.mark.parametrize("target", ["volume", "volume of layout tree", "directory"])
async def test_another_kind_at_a_path(grove: Grove, target: str) -> None:
    left = await grove.tree("directory", {"a": b"file", "b/c/d": b"deep", "e": b"e"})
    right = await grove.tree(target, {"a/below/x": b"1", "b": b"file"})
    done = await synchronize(left, right)
    kinds = {type(error) for _, error in done.failures}
    assert (done.files, kinds) == (1, {IsDirectoryError, NotDirectoryError})
    assert await content(right) == {"a/below/x": b"1", "b": b"file", "e": b"e"}
    dry = await synchronize(left, right, SyncOptions(delete=True, dry_run=True))
    done = await synchronize(left, right, SyncOptions(delete=True))
    assert done.failures == ()
    assert (done.files, done.deleted, done.deleted_directories, done.unchanged) == (2, 2, 2, 1)
    assert (dry.files, dry.deleted, dry.deleted_directories) == (2, 2, 2)
    assert await content(right) == {"a": b"file", "b/c/d": b"deep", "e": b"e"}


@pytest.mark.parametrize("source", ["directory", "volume"])
async def test_a_source_without_files_deletes_nothing(grove: Grove, source: str) -> None:
    left = await grove.tree(source, {})
    right = await grove.tree("volume", FILES)
    for options in (SyncOptions(delete=True), SyncOptions(delete=True, dry_run=True)):
        with pytest.raises(InvalidArgumentError, match="no files"):
            await synchronize(left, right, options)
    chosen = SyncOptions(delete=True, selection=Selection(["nothing*"]))
    assert (await synchronize(left, right, chosen)).deleted == 0
    assert await content(right) == dict(FILES)
    done = await synchronize(left, right, SyncOptions(delete=True, force=True))
    assert done.deleted == len(FILES)
    assert await names(right) == []


async def test_a_second_run_only_lists(grove: Grove) -> None:
    """No request to the data or the log, and none that changes the table."""
    left, right = await grove.tree("volume", FILES), await grove.tree("volume", FILES)
    assert isinstance(left, VolumeTree)
    assert isinstance(right, VolumeTree)
    await synchronize(left, right)
    for options in (SyncOptions(), SyncOptions("checksum", delete=True)):
        with left.client.count() as listed, right.client.count() as compared:
            await synchronize(left, right, options)
        for counted in (listed, compared):
            counts = counted.requests.counts
            assert {each.part for each in counts} == {"table"}
            assert {each.operation for each in counts} <= {"Query", "GetItem", "BatchGetItem"}


async def test_attributes_are_kept_between_volumes(grove: Grove) -> None:
    left, right = await grove.tree("volume", {"dir/a": b"1"}), await grove.tree("volume")
    assert isinstance(left, VolumeTree)
    assert isinstance(right, VolumeTree)
    for path in ("dir", "dir/a"):
        metadata = {"of": path.encode()}
        await left.client.set_attributes(f"/top/{path}", mode=0o750, metadata=metadata)
    await synchronize(left, right)
    for path in ("dir", "dir/a"):
        status = await right.client.stat(f"/top/{path}")
        assert (status.attributes.mode, status.attributes.metadata) == (
            0o750,
            {"of": path.encode()},
        )


@pytest.mark.parametrize("source", ["directory", "volume", "bucket"])
async def test_a_source_that_is_missing_deletes_nothing(grove: Grove, source: str) -> None:
    left, right = await grove.tree(source), await grove.tree("volume", FILES)
    with pytest.raises(PathNotFoundError):
        await synchronize(left, right, SyncOptions(delete=True, force=True))
    assert await content(right) == dict(FILES)


async def test_after_a_failure_nothing_is_deleted(grove: Grove) -> None:
    left, right = await grove.tree("directory", {"a": b"1"}), await grove.tree("volume", FILES)
    assert isinstance(left, DirectoryTree)
    os.symlink("/", os.path.join(left.root, "dir"))  # a directory that the listing leaves out
    done = await synchronize(left, right, SyncOptions(delete=True))
    assert [type(error) for _, error in done.failures] == [UnsupportedError]
    assert (done.files, done.deleted) == (1, 0)
    assert await content(right) == {**FILES, "a": b"1"}


@pytest.mark.parametrize("layout", ["path", "tree"])
async def test_a_directory_that_may_not_be_listed(grove: Grove, layout: LayoutName) -> None:
    """Of a volume as of a local directory: it is a failure, the rest is copied, and nothing is
    deleted."""
    config = memory_config(layout=layout)
    root = replace(config, tuning=replace(config.tuning, uid=0, gids=(0,)))
    config = replace(config, tuning=replace(config.tuning, uid=1000, gids=(1000,)))
    await init_volume(root, enable=["permissions"])
    async with S3kClient(config=root) as owner, S3kClient(config=config) as user:
        await owner.write_many([(f"/top/{path}", data) for path, data in FILES.items()])
        await owner.set_attributes("/top/dir", mode=0o711)
        left, right = VolumeTree(user, "/top"), await grove.tree("directory", {"dir/x": b"x"})
        for rest in (len(FILES) - 2, 0):
            done = await synchronize(left, right, SyncOptions(delete=True))
            assert [(name, type(error)) for name, error in done.failures] == [
                (left.full_name("dir"), PermissionDeniedError)
            ]
            assert (done.files, done.deleted) == (rest, 0)
        kept = {path: data for path, data in FILES.items() if not path.startswith("dir/")}
        assert await content(right) == {**kept, "dir/x": b"x"}
        await owner.set_attributes("/top", mode=0o711)
        with pytest.raises(PermissionDeniedError):
            await synchronize(left, right)
        await owner.set_attributes("/top", mode=0o755)
        await owner.set_attributes("/top/dir", mode=0o755)
        assert (await synchronize(left, right, SyncOptions(delete=True))).deleted == 1
        assert await content(right) == dict(FILES)


async def test_after_a_failed_copy_nothing_is_deleted(
    grove: Grove, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = (
        await grove.tree("directory", {"a": b"1", "b": b"2"}),
        await grove.tree("volume", FILES),
    )
    new_file = left.new_file

    def failing(entry: TreeEntry, volume: Volume, path: str, **rest: bool) -> NewFile:
        if entry.path == "b":
            raise UnsupportedError("this file cannot be copied", path=path)
        return new_file(entry, volume, path, **rest)

    with monkeypatch.context() as patch:
        patch.setattr(left, "new_file", failing)
        done = await synchronize(left, right, SyncOptions(delete=True))
    assert (done.files, done.deleted, len(done.failures)) == (1, 0, 1)
    assert await content(right) == {**FILES, "a": b"1"}
    assert (await synchronize(left, right, SyncOptions(delete=True))).deleted == len(FILES) - 1
    assert await content(right) == {"a": b"1", "b": b"2"}


async def test_a_failure_of_the_second_listing_ends_the_deletion(
    grove: Grove, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = await grove.tree("directory", FILES), await grove.tree("volume", FILES)
    assert isinstance(left, DirectoryTree)
    assert isinstance(right, VolumeTree)
    await right.client.write_many([(f"/top/zz/{number}", b"") for number in range(3)])
    monkeypatch.setattr(synchronization, "WINDOW", 1)
    listed = left.entries
    runs: list[int] = []

    async def entries(skipped: object) -> object:
        runs.append(len(runs))
        if len(runs) == 2:
            os.rename(f"{left.root}/dir", f"{grove.directory}/away")
            os.symlink(f"{grove.directory}/away", f"{left.root}/dir")
        async for entry in listed(skipped):  # type: ignore[arg-type]
            yield entry

    monkeypatch.setattr(left, "entries", entries, raising=False)
    done = await synchronize(left, right, SyncOptions(delete=True))
    assert (len(runs), done.deleted, len(done.failures)) == (2, 0, 1)
    assert set(FILES) < set(await content(right))


@pytest.mark.parametrize("window", [1, 1000])
async def test_a_source_that_is_emptied_between_the_passes_deletes_nothing(
    grove: Grove, monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    left, right = await grove.tree("directory", FILES), await grove.tree("volume", FILES)
    assert isinstance(left, DirectoryTree)
    assert isinstance(right, VolumeTree)
    await right.client.write_many([(f"/top/zz/{number}", b"") for number in range(3)])
    monkeypatch.setattr(synchronization, "WINDOW", window)
    listed = left.entries
    runs: list[int] = []

    async def entries(skipped: object) -> object:
        runs.append(len(runs))
        if len(runs) == 2:
            shutil.rmtree(left.root)
            os.mkdir(left.root)
        async for entry in listed(skipped):  # type: ignore[arg-type]
            yield entry

    monkeypatch.setattr(left, "entries", entries, raising=False)
    with pytest.raises(InvalidArgumentError, match="no files"):
        await synchronize(left, right, SyncOptions(delete=True))
    assert len(runs) == 2
    assert set(FILES) < set(await content(right))


async def test_selection(grove: Grove) -> None:
    left = await grove.tree(
        "volume", {"keep/a.txt": b"1", "keep/b.log": b"2", "tmp/c.txt": b"3", "d.txt": b"4"}
    )
    right = await grove.tree("directory", {"tmp/old.txt": b"5", "old.txt": b"6", "old.log": b"7"})
    chosen = Selection(["*.txt"], ["tmp"])
    done = await synchronize(left, right, SyncOptions(selection=chosen, delete=True))
    assert (done.files, done.deleted, done.deleted_directories) == (2, 1, 0)
    assert await content(right) == {
        "keep/a.txt": b"1",
        "d.txt": b"4",
        "tmp/old.txt": b"5",
        "old.log": b"7",
    }


async def test_without_overwriting(grove: Grove) -> None:
    left = await grove.tree("directory", {"a": b"new", "b": b"1", "c": b"3"})
    right = await grove.tree("volume", {"a": b"older", "b": b"1"})
    done = await synchronize(left, right, SyncOptions("size", overwrite=False))
    assert [type(error) for _, error in done.failures] == [PathExistsError]
    assert await content(right) == {"a": b"older", "b": b"1", "c": b"3"}


@pytest.mark.parametrize("size", [1, LARGE])
@pytest.mark.parametrize("target", ["volume", "volume of layout tree", "directory"])
async def test_a_file_that_appears_meanwhile_is_not_overwritten(
    grove: Grove, target: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = await grove.tree("directory", {"a": bytes(size)})
    right = await grove.tree(target, {})
    assert isinstance(right, TreeTarget)
    copy_files = right.copy_files

    async def late(source: FileTree, files: AsyncIterable[TreeEntry], **rest: Any) -> None:
        found = [each async for each in files]
        if isinstance(right, VolumeTree):
            await right.client.write("/top/a", b"theirs")
        else:
            plant(Path(right.full_name("")), {"a": b"theirs"})

        async def again() -> AsyncGenerator[TreeEntry, None]:
            for each in found:
                yield each

        await copy_files(source, again(), **rest)

    monkeypatch.setattr(right, "copy_files", late)
    done = await synchronize(left, right, SyncOptions(overwrite=False))
    assert [type(error) for _, error in done.failures] == [PathExistsError]
    assert await content(right) == {"a": b"theirs"}


async def test_trees_that_overlap(grove: Grove, tmp_path: Path) -> None:
    client = await grove.client()
    await client.write("/a/b/c", b"")
    for one, other in (("/a", "/a"), ("/a", "/a/b"), ("/a/b", "/a"), ("/", "/a"), ("/a", "/")):
        with pytest.raises(OverlapError):
            await synchronize(VolumeTree(client, one), VolumeTree(client, other))
    await synchronize(VolumeTree(client, "/a"), VolumeTree(client, "/ab"))
    (tmp_path / "real" / "in").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(OverlapError):
        await synchronize(DirectoryTree(tmp_path / "link" / "in"), DirectoryTree(tmp_path / "real"))
    await init_volume(resolve(str(tmp_path / "real" / "vol")))
    async with S3kClient(str(tmp_path / "real" / "vol")) as embedded:
        for local in ("real", "link", "real/vol", "real/vol/data"):
            directory, volume = DirectoryTree(tmp_path / local), VolumeTree(embedded, "/x")
            for left, right in ((directory, volume), (volume, directory)):
                with pytest.raises(OverlapError):
                    await synchronize(left, right, SyncOptions(delete=True))


@pytest.mark.parametrize("part", ["table", "data", "log", "hot"])
async def test_a_directory_that_holds_the_volume_is_no_target(part: str, tmp_path: Path) -> None:
    """Neither by a link to the volume, nor where its data or log is elsewhere."""
    config = resolve(str(tmp_path / "v" / "home"))
    (tmp_path / "link").symlink_to(tmp_path / "v")
    place = tmp_path / "v" / "home" if part == "table" else tmp_path / "at" / part
    elsewhere = LocalDirectory(str(place))
    changes: dict[str, Any] = {
        "table": {},
        "data": {"data": elsewhere, "log": LocalDirectory(str(tmp_path / "v" / "home" / "oplog"))},
        "log": {"log": elsewhere},
        "hot": {},
    }
    config = replace(config, **changes[part])
    await init_volume(config, hot=str(place) if part == "hot" else "")
    if part == "table":
        config = resolve(str(tmp_path / "link" / "home"))
    (place / "beside").mkdir(exist_ok=True)
    async with S3kClient(config=config) as client:
        await client.write("/x/file", b"")
        source = VolumeTree(client, "/x")
        for local in (place.parent, place):
            with pytest.raises(OverlapError):
                await synchronize(source, DirectoryTree(local), SyncOptions(delete=True))
        if part != "table":  # as files that were adopted, or will be
            assert (await synchronize(source, DirectoryTree(place / "beside"))).files == 1


async def test_a_target_that_cannot_be_changed(grove: Grove, tmp_path: Path) -> None:
    left = await grove.tree("directory", FILES)
    (tmp_path / "l.jsonl").write_text("")
    for target in (await grove.tree("bucket", FILES), ListingTree(tmp_path / "l.jsonl")):
        with pytest.raises(UnsupportedError):
            await synchronize(left, target)
    await grove.tree("volume")
    (tmp_path / "file").write_bytes(b"")
    for trees in (
        (DirectoryTree(tmp_path / "file"), left),
        (left, DirectoryTree(tmp_path / "file")),
    ):
        with pytest.raises(NotDirectoryError):
            await synchronize(*trees)


async def test_a_source_without_contents_is_refused(grove: Grove, tmp_path: Path) -> None:
    (tmp_path / "l.jsonl").write_text('{"path": "/a", "type": "file", "size": 1}\n')
    right = await grove.tree("directory", {})
    for options in (SyncOptions(), SyncOptions(dry_run=True)):
        with pytest.raises(UnsupportedError, match="no contents"):
            await synchronize(ListingTree(tmp_path / "l.jsonl"), right, options)


@pytest.mark.parametrize("target", ["volume", "volume of layout tree", "directory"])
async def test_a_target_below_a_file_fails_in_a_dry_run_too(grove: Grove, target: str) -> None:
    left, right = await grove.tree("directory", FILES), await grove.tree(target, {"file": b"1"})
    below: FileTree = DirectoryTree(right.full_name("file/in/it"))
    if isinstance(right, VolumeTree):
        below = VolumeTree(right.client, f"{right.root}/file/in/it")
    for options in (SyncOptions(), SyncOptions(dry_run=True)):
        with pytest.raises(NotDirectoryError):
            await synchronize(left, below, options)
    assert await content(right) == {"file": b"1"}


async def test_nothing_leaves_a_local_target(grove: Grove, tmp_path: Path) -> None:
    """Neither copies nor deletions follow links to directories; of a link to a file, the link is
    deleted."""
    outside = tmp_path / "outside"
    plant(outside, {"deep/old": b"old", "file": b"file"})
    left, right = await grove.tree("volume", FILES), await grove.tree("directory", {})
    assert isinstance(right, DirectoryTree)
    (Path(right.root) / "dir").symlink_to(outside)
    (Path(right.root) / "linked").symlink_to(outside / "file")
    done = await synchronize(left, right, SyncOptions(delete=True))
    assert {type(error) for _, error in done.failures} == {UnsupportedError}
    assert done.deleted == 0
    os.unlink(os.path.join(right.root, "dir"))
    done = await synchronize(left, right, SyncOptions(delete=True))
    assert (done.failures, done.deleted) == ((), 1)
    assert await content(DirectoryTree(outside)) == {"deep/old": b"old", "file": b"file"}
    assert await content(right) == dict(FILES)


@pytest.mark.parametrize("target", ["volume", "directory"])
async def test_only_what_was_listed_is_deleted(grove: Grove, target: str) -> None:
    right = await grove.tree(target, {"changed": b"1", "same": b"1", "dir/new": b"1"})
    assert isinstance(right, VolumeTree | DirectoryTree)
    entries = {entry.path: entry async for entry in right.entries(lambda *_: None)}
    if isinstance(right, VolumeTree):
        await right.client.write("/top/changed", b"2")
    else:
        plant(Path(right.root), {"changed": b"2"}, OLD)
    failures: dict[str, Exception] = {}
    listed = [entries[path] for path in ("changed", "same", "dir")]
    await right.remove_listed(
        listed, failed=lambda entry, error: failures.update({entry.path: error})
    )
    assert set(failures) == {"changed", "dir"}
    assert isinstance(failures["changed"], ConflictError)
    assert set(await content(right)) == {"changed", "dir/new"}


async def test_files_fail_one_by_one(grove: Grove) -> None:
    left = await grove.tree("directory", {"a" * 200: b"1", "b": b"2"})
    assert isinstance(left, DirectoryTree)
    plant(Path(left.root), {os.fsdecode(b"not-\xff-utf8"): b""})
    os.mkfifo(os.path.join(left.root, "pipe"))
    right = await grove.tree("volume")
    done = await synchronize(left, right)
    assert (done.files, len(done.failures)) == (2, 2)
    assert (await synchronize(left, right)).unchanged == 2


async def test_an_unreachable_service_ends_the_run(grove: Grove) -> None:
    faults = FaultPlan()
    left = await grove.tree("directory", FILES)
    async with faulty_client(faults) as client:
        faults.fail_when(
            lambda call: call.method == "put", UnreachableError("no network"), times=1000
        )
        with pytest.raises(UnreachableError):
            await synchronize(left, VolumeTree(client, "/in"))


async def test_a_run_that_died_is_finished_by_the_next(grove: Grove) -> None:
    """At every call to the stores."""
    source = {"a": b"1", "dir/b": b"2", "dir/empty/x": b"3"}
    surplus = {"old/y": b"4", "z": b"5"}
    left = await grove.tree("directory", source)
    last, count = False, 0
    while not last:
        config = memory_config()
        await init_volume(config)
        async with S3kClient(config=config) as fs:
            await fs.write_many([(f"/top/{path}", data) for path, data in surplus.items()])
        faults = FaultPlan()
        try:
            async with faulty_client(faults, config) as client:
                faults.fail_when(from_call(count + 1), Died(), times=10**6)
                await synchronize(left, VolumeTree(client, "/top"), SyncOptions(delete=True))
                last = True
        except Died:
            count += STEP
        async with faulty_client(FaultPlan(), config, LATER) as fs:
            right = VolumeTree(fs, "/top")
            found = await content(right)
            assert found.items() <= {**source, **surplus}.items()
            done = await synchronize(left, right, SyncOptions(delete=True))
            assert done.failures == ()
            assert await content(right) == source
            assert await names(right) == await names(left)
    assert count > 20
