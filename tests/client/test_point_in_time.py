"""Restoration of a subtree to an earlier time, in both layouts."""

from __future__ import annotations

import random
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from s3k_async.backends.ports.pagination import list_all
from s3k_async.bulk.past_tree import PastTree
from s3k_async.errors import (
    InvalidArgumentError,
    NoSpaceError,
    PathNotFoundError,
    S3kError,
)
from s3k_async.integrity.repair import repair_volume
from s3k_async.model import ChangeResult, Content, Entry
from s3k_async.oplog.checkpoints import CheckpointReader
from s3k_async.oplog.compaction import Compactor
from s3k_async.oplog.log_writer import NativeLog
from s3k_async.storage.physical import PhysicalStorage
from s3k_async.trees import DirectoryTree, VolumeTree, synchronize
from tests.client.rig import paths
from tests.client.versioned import Place
from tests.level import FULL
from tests.trees.conftest import plant

pytestmark = pytest.mark.layouts("path", "tree")


async def test_a_subtree_as_it_was(place: Place) -> None:
    fs = place.fs
    for name in ("a", "b", "s/c", "s/d", "moved/e", "kept"):
        await fs.write(f"/d/{name}", name.encode())
    await fs.write("/other", b"1")
    await fs.makedirs("/d/empty")
    await fs.append("/d/kept", b"+")
    at = place.tick()
    before, directories = await place.contents("/d"), await paths(fs, "/d")
    await fs.write("/d/a", b"changed")
    await fs.delete("/d/b")
    await fs.write("/d/s/c", b"changed")
    await fs.delete("/d/s/d")
    await fs.delete("/d/s", recursive=True)
    await fs.rename("/d/moved", "/d/away")
    await fs.delete("/d/empty")
    await fs.write("/d/later", b"later")
    await fs.write("/other", b"2")
    planned = await fs.restore("/d", at)
    assert planned.done == ChangeResult()
    assert planned.unrecoverable == 0
    kinds = {each.path: each.kind for each in planned.changes}
    assert kinds["/d/a"] == "replace"
    assert kinds["/d/s/d"] == kinds["/d/b"] == kinds["/d/moved/e"] == "create"
    tree = fs.config.layout == "tree"
    assert kinds["/d/s"] == ("restore_directory" if tree else "create_directory")
    assert kinds["/d/s/c"] == ("replace" if tree else "create")
    assert not kinds.keys() & {"/other", "/d/kept", "/d/later", "/d/away/e"}
    assert (await fs.restore("/d", at)).changes == planned.changes
    done = await fs.restore("/d", at, dry_run=False)
    assert done.changes == planned.changes
    assert done.done.failures == ()
    left = {"/d/later": b"later", "/d/away/e": b"moved/e"}
    assert await place.contents("/d") == before | left
    again = await fs.restore("/d", at, delete=True, dry_run=False)
    assert {each.kind for each in again.changes} == {"delete"}
    assert await place.contents("/d") == before
    assert await paths(fs, "/d") - {"/d/away"} == directories
    assert (await fs.restore("/d", at, delete=True)).changes == ()
    assert await fs.read("/other") == b"2"
    await place.check()


async def test_a_deleted_top(place: Place) -> None:
    fs = place.fs
    await fs.write("/p/d/a", b"1")
    at = place.tick()
    await fs.delete("/p", recursive=True)
    when = datetime.fromtimestamp(at / 1000, UTC)
    done = await fs.restore("/p/d", when, dry_run=False)
    assert [each.kind for each in done.changes] == ["create_directory", "create"]
    assert await place.contents() == {"/p/d/a": b"1"}
    await fs.delete("/p/d/a")
    assert (await fs.restore("/p/d/a", at, dry_run=False)).done.files == 1
    assert await fs.read("/p/d/a") == b"1"
    with pytest.raises(InvalidArgumentError):
        await fs.restore("/", datetime(2026, 1, 1))  # noqa: DTZ001 - refused


async def test_what_is_in_the_way_is_reported(place: Place) -> None:
    fs = place.fs
    await fs.write("/d/a", b"1")
    await fs.write("/d/b/c", b"2")
    at = place.tick()
    await fs.delete("/d/a")
    await fs.makedirs("/d/a")
    await fs.delete("/d/b", recursive=True, wait=True)
    await fs.write("/d/b", b"file")
    result = await fs.restore("/d", at, dry_run=False)
    problems = {each.path: each.problem for each in result.changes if each.problem}
    assert problems == {
        "/d/a": "a directory is at the path now",
        "/d/b": "a file is at the path now",
    }
    assert [path for path, _ in result.done.failures] == ["/d/b/c"]
    assert await fs.read("/d/b") == b"file"


async def test_a_file_that_changes_during_a_restoration_stays(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = place.fs
    await fs.write("/d/a", b"1")
    at = place.tick()
    await fs.write("/d/a", b"22")
    storage = type(fs._volume().storage)
    check = storage.check

    async def beside(self: object, content: object) -> None:
        await check(self, content)  # type: ignore[arg-type]
        await fs.write("/d/a", b"newer")

    monkeypatch.setattr(storage, "check", beside)
    result = await fs.restore("/d", at, dry_run=False)
    assert [path for path, _ in result.done.failures] == ["/d/a"]
    assert await fs.read("/d/a") == b"newer"


async def test_the_history_of_a_time_may_be_compacted(place: Place) -> None:
    fs = place.fs
    await fs.write("/d/a", b"1")
    at = place.tick()
    await fs.write("/d/a", b"22")
    place.tick()
    await fs.write("/d/a", b"333")
    place.tick()
    log = fs._volume().log_blobs
    assert log is not None
    await fs._volume().log.drained()
    await Compactor(log, place.runtime, grace=0).run(dry_run=False)
    result = await fs.restore("/", at)
    assert [(each.kind, each.path) for each in result.changes] == [("none", "/d/a")]
    assert "compaction" in result.changes[0].problem


async def test_a_moved_file_of_unknown_history_is_not_deleted(place: Place) -> None:
    """Compaction has dropped the state of that time, or the whole record of the file is lost."""
    fs = place.fs
    await fs.write("/d/a", b"1")
    at = place.tick()
    await fs.write("/d/a", b"22")
    place.tick()
    await fs.rename("/d/a", "/d/b")
    await fs.write("/d/later", b"")
    place.tick()
    log = fs._volume().log_blobs
    assert log is not None
    await fs._volume().log.drained()
    await Compactor(log, place.runtime, grace=0).run(dry_run=False)
    result = await fs.restore("/d", at, delete=True)
    kinds = {each.path: each.kind for each in result.changes}
    assert kinds == {"/d/a": "none", "/d/b": "none", "/d/later": "delete"}
    place.clock.advance(2)
    await fs.delete("/d/later")
    keys = [each.key async for each in list_all(log)]
    assert await log.delete_many(keys) == []
    result = await fs.restore("/d", at, delete=True)
    assert {each.path: each.kind for each in result.changes} == {"/d/b": "none"}


async def test_a_moved_file_with_an_interrupted_operation_is_not_deleted(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = place.fs
    await fs.write("/d/a", b"1")
    place.tick()
    await fs._volume().log.drained()

    async def dies(log: NativeLog, key: str, data: bytes) -> bool:
        return False

    monkeypatch.setattr(NativeLog, "commit", dies)
    await fs.rename("/d/a", "/d/b")
    at = place.tick()
    result = await fs.restore("/", at, delete=True, dry_run=False)
    assert {each.kind for each in result.changes} == {"none"}
    assert await place.contents() == {"/d/b": b"1"}


async def test_a_moved_file_whose_former_path_is_not_restored_is_not_deleted(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = place.fs
    for name in ("d/taken", "d/fails", "elsewhere", "old/x"):
        await fs.write(f"/{name}", name.encode())
    at = place.tick()
    moves = {"d/taken": "d/1", "d/fails": "d/2", "elsewhere": "d/3", "old": "d/4"}
    for source, target in moves.items():
        await fs.rename(f"/{source}", f"/{target}")
    await fs.makedirs("/d/taken")
    before = await place.contents()

    async def full(*_: object) -> Content:
        raise NoSpaceError("the disk is full", path="/")

    with monkeypatch.context() as patch:
        patch.setattr(PhysicalStorage, "copy_from", full)
        result = await fs.restore("/d", at, delete=True, dry_run=False)
    assert await place.contents() == before
    assert {each.path: each.kind for each in result.changes} == {
        "/d/1": "none",
        "/d/2": "delete",
        "/d/3": "none",
        "/d/4/x": "none",
        "/d/fails": "create",
        "/d/taken": "none",
    }
    assert [path for path, _ in result.done.failures] == ["/d/fails", "/d/2"]
    result = await fs.restore("/d", at, delete=True, dry_run=False)
    assert result.done.failures == ()
    left = {"/d/1": b"d/taken", "/d/3": b"elsewhere", "/d/4/x": b"old/x"}
    assert await place.contents() == {"/d/fails": b"d/fails"} | left


async def test_a_file_that_did_not_exist_yet(place: Place, tmp_path: Path) -> None:
    fs = place.fs
    await fs.makedirs("/d")
    at = place.tick()
    plant(tmp_path, {"old": b"from long ago"}, mtime_ms=1_000_000)
    await synchronize(DirectoryTree(tmp_path), VolumeTree(fs, "/d"))
    place.clock.advance(1000)
    await fs.delete("/d/old")
    log = fs._volume().log_blobs
    assert log is not None
    await fs._volume().log.drained()
    await Compactor(log, place.runtime, grace=0).run(dry_run=False)
    assert (await fs.restore("/d", at)).changes == ()


async def test_the_attributes_of_a_directory_above_one_from_the_trash(place: Place) -> None:
    fs = place.fs
    await fs.makedirs("/a/b")
    await fs.write("/a/b/f", b"1")
    await fs.set_attributes("/a", mode=0o700)
    at = place.tick()
    await fs.delete("/a/b", recursive=True)
    await fs.delete("/a")
    result = await fs.restore("/", at, dry_run=False)
    assert result.done.failures == ()
    assert await place.contents() == {"/a/b/f": b"1"}
    assert (await fs.stat("/a")).attributes.mode == 0o700


async def test_a_comparison_does_not_block_the_event_loop(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = place.fs
    for name in ("a", "b", "s/c", "s/d"):
        await fs.write(f"/d/{name}", b"1")
    at = place.tick()
    await fs.write("/d/a", b"22")
    await fs.delete("/d/b")
    await fs.delete("/d/s", recursive=True)
    on_loop: list[str] = []
    take, left = PastTree.take, PastTree.left

    def note(what: str) -> None:
        if threading.current_thread() is threading.main_thread():
            on_loop.append(what)

    def taking(self: PastTree, path: str) -> Entry | None:
        note(path)
        return take(self, path)

    def leaving(self: PastTree) -> Iterator[Entry]:
        for entry in left(self):
            note(entry.path)
            yield entry

    monkeypatch.setattr(PastTree, "take", taking)
    monkeypatch.setattr(PastTree, "left", leaving)
    assert {"/d/a", "/d/b"} <= {each.path for each in (await fs.restore("/d", at)).changes}
    assert set(on_loop) <= {"/d/s"}  # one for each directory in the trash


NAMES = ("a", "b", "c")
STEPS = 30


class History:
    """Random changes of a small tree, and what was there after each of them."""

    def __init__(self, place: Place, seed: int) -> None:
        self._place = place
        self._random = random.Random(seed)
        self.snapshots: list[tuple[int, dict[str, bytes]]] = []

    def _path(self) -> str:
        depth = self._random.randint(1, 3)
        return "".join(f"/{self._random.choice(NAMES)}" for _ in range(depth))

    async def step(self) -> None:
        """One change, if it is possible, and a snapshot."""
        fs, chance = self._place.fs, self._random
        path, other = self._path(), self._path()
        changes: tuple[Callable[[], Awaitable[object]], ...] = (
            lambda: fs.write(path, chance.randbytes(chance.randint(0, 400))),
            lambda: fs.append(path, chance.randbytes(3)),
            lambda: fs.write_range(path, chance.randint(0, 9), b"xyz"),
            lambda: fs.rename(path, other, overwrite=chance.random() < 0.5),
            lambda: fs.delete(path),
            lambda: fs.delete(path, recursive=True, wait=chance.random() < 0.3),
            lambda: fs.touch(path),
            lambda: fs.makedirs(path),
            lambda: fs.undelete(path),
            lambda: fs.undelete(path, recursive=True),
            lambda: fs.copy(path, other, recursive=True),
            lambda: fs.set_attributes(path, metadata={"n": chance.randbytes(2)}),
        )
        with suppress(S3kError):
            await chance.choice(changes)()
        self.snapshots.append((self._place.tick(), await self._place.contents()))


@pytest.mark.parametrize("seed", range(40 if FULL else 2))
async def test_random_histories(place: Place, seed: int) -> None:
    history = History(place, seed)
    for _ in range(STEPS):
        await history.step()
    chance = random.Random(seed)
    for at, contents in chance.sample(history.snapshots, 4):
        result = await place.fs.restore("/", at, delete=True, dry_run=False)
        left = {path for path, _ in result.done.failures} | {
            each.path for each in result.changes if each.kind == "none"
        }
        # A file that is where a directory was is in the way, and so is a directory.
        found = await place.contents()
        is_other = {
            path for path in contents.keys() | found.keys() if contents.get(path) != found.get(path)
        }
        assert is_other <= left
        repeated = await place.fs.restore("/", at, delete=True, dry_run=False)
        assert {each.path for each in repeated.changes} <= left
    await place.check()


async def test_an_earlier_path_that_was_compacted_is_not_replaced_by_a_later_one(
    place: Place, tmp_path: Path
) -> None:
    """Of a file that was moved twice, or written twice with an earlier modification time, a
    compacted log has the last operation, with the state before it."""
    fs = place.fs
    await fs.write("/d/moved", b"1")
    await fs.write("/d/changed", b"1")
    await fs.write("/d/once", b"1")
    await fs.write("/d/dir/file", b"1")
    at = place.tick()
    await fs.rename("/d/moved", "/d/2")
    await fs.rename("/d/dir", "/d/dir2")
    plant(tmp_path, {"changed": b"22"}, mtime_ms=1_000_000)
    await synchronize(DirectoryTree(tmp_path), VolumeTree(fs, "/d"))
    between = place.tick()
    await fs.rename("/d/2", "/d/3")
    await fs.rename("/d/dir2", "/d/dir3")
    await fs.write("/d/changed", b"333")
    await fs.write("/d/once", b"22")
    later = place.tick()
    await fs.delete("/d/3")
    await compacted(place)
    kept = {"/d/2", "/d/changed", "/d/dir2/file", "/d/3"}
    for time in (at, between):
        result = await fs.restore("/d", time, delete=True)
        kinds = {each.path: each.kind for each in result.changes if each.kind != "delete"}
        assert kinds.pop("/d/once") == "replace"
        assert set(kinds.values()) == {"none"}
        assert kinds.keys() & kept == kinds.keys() - {"/d/dir2", "/d/dir3/file"}
        assert not any(each.kind == "delete" for each in result.changes)
        assert result.history_ms is not None
        assert result.history_ms > later
    with pytest.raises(PathNotFoundError, match="compaction"):
        await fs.restore("/d/moved", at)


async def test_a_compaction_keeps_the_history_of_its_grace_period(place: Place) -> None:
    """So that a file that was moved before the time is restored to its path; one with a shorter
    grace period does not."""
    fs = place.fs
    await fs.write("/d/a", b"1")
    await fs.rename("/d/a", "/d/b")
    place.clock.advance(100)
    at = place.tick()
    await fs.rename("/d/b", "/d/c")
    await compacted(place, grace=60.0)
    result = await fs.restore("/d", at, delete=True)
    assert {each.path: each.kind for each in result.changes} == {
        "/d/b": "create",
        "/d/c": "delete",
    }
    assert result.history_ms is None
    place.clock.advance(1000)
    await compacted(place)
    result = await fs.restore("/d", at)
    assert result.history_ms is not None
    assert [(each.kind, each.path) for each in result.changes] == [("none", "/d/b")]


async def test_a_known_state_before_a_compaction_is_restored_whatever_its_modification_time(
    place: Place, tmp_path: Path
) -> None:
    fs = place.fs
    plant(tmp_path, {"f": b"1"}, mtime_ms=place.runtime.now_ms() + 10_000_000)
    await synchronize(DirectoryTree(tmp_path), VolumeTree(fs, "/d"))
    place.tick()
    await fs.write("/d/f", b"22")
    await compacted(place)
    await fs.write("/d/f", b"333")
    at = place.tick()
    await fs.write("/d/f", b"4444")
    assert [each.kind for each in (await fs.restore("/d", at)).changes] == ["replace"]


async def test_attributes_of_a_directory_do_not_make_the_paths_of_its_files_uncertain(
    place: Place,
) -> None:
    """In layout `path`; in layout `tree` the log has one state for place and attributes."""
    fs = place.fs
    await fs.write("/d/f", b"1")
    await fs.set_attributes("/d", metadata={"a": b"1"})
    at = place.tick()
    await fs.set_attributes("/d", metadata={"a": b"2"})
    await fs.set_attributes("/d", metadata={"a": b"3"})
    await fs.write("/d/f", b"22")
    await compacted(place)
    kinds = {each.path: each.kind for each in (await fs.restore("/", at)).changes}
    if fs.config.layout == "path":
        assert kinds == {"/d/f": "replace"}
    else:
        assert kinds == {"/d": "none", "/d/f": "none"}


async def test_a_manifest_in_quarantine_still_tells_that_history_is_missing(place: Place) -> None:
    fs = place.fs
    await fs.write("/d/a", b"1")
    at = place.tick()
    await fs.rename("/d/a", "/d/b")
    await fs.rename("/d/b", "/d/c")
    await compacted(place)
    volume = place.fs._volume()
    assert volume.log_blobs is not None
    (manifest,) = await CheckpointReader(volume.log_blobs).keys()
    await volume.log_blobs.put(manifest, b"damaged")
    await repair_volume(volume, grace=0.0, dry_run=False)  # logs the present state of the file
    result = await fs.restore("/d", at)
    assert result.history_ms is not None
    assert [(each.kind, each.path) for each in result.changes] == [("none", "/d/c")]


async def compacted(place: Place, grace: float = 0.0) -> None:
    volume = place.fs._volume()
    assert volume.log_blobs is not None
    await volume.log.drained()
    await Compactor(volume.log_blobs, place.runtime, grace=grace).run(dry_run=False)
