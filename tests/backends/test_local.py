"""The local directory: nothing leads out of it, nothing is visible in part, what was acknowledged
is synced."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import shutil
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from s3k_async._core.retry import RetryPolicy
from s3k_async._core.runtime import SYSTEM
from s3k_async.backends.local import local_blobs
from s3k_async.backends.local.local_blobs import LocalBlobs
from s3k_async.backends.local.local_walk import PRIVATE
from s3k_async.backends.memory.memory_blobs import MemoryBlobs
from s3k_async.backends.ports.blobs import BlobInfo, Unfinished
from s3k_async.backends.ports.pagination import list_all
from s3k_async.backends.retrying.retrying_blobs import RetryingBlobs
from s3k_async.errors import (
    BlobChangedError,
    BlobExistsError,
    BlobNotFoundError,
    InvalidPathError,
    NoSpaceError,
    NotAVolumeError,
    OutcomeUnknownError,
    PermissionDeniedError,
    ResponseLostError,
    ServiceError,
    UnsupportedError,
    VolumeNotFoundError,
)
from tests.backends.killed_writers import acknowledged
from tests.support import FakeClock, fake_runtime, fork_and_run

WAITING = 30.0
"""Seconds after which a thread that has not come is a failure."""


async def created(path: Path) -> LocalBlobs:
    blobs = LocalBlobs(path / "root")
    assert await blobs.create()
    return blobs


async def keys_of(blobs: LocalBlobs, prefix: str = "", limit: int | None = None) -> list[str]:
    keys: list[str] = []
    cursor = None
    while True:
        page = await blobs.list(prefix, cursor=cursor, limit=limit)
        keys += [info.key for info in page.blobs]
        cursor = page.next
        if cursor is None:
            return keys


def leftovers(path: Path) -> list[str]:
    return sorted(set(os.listdir(path / "root" / ".tmp")) - {"lock"})


# The root


async def test_a_missing_root_is_named_and_not_made(tmp_path: Path) -> None:
    blobs = LocalBlobs(tmp_path / "root")
    calls: list[Callable[[], Any]] = [
        lambda: blobs.put("a", b""),
        lambda: blobs.get("a"),
        lambda: blobs.head("a"),
        lambda: blobs.delete("a"),
        lambda: blobs.delete_many(["a"]),
        blobs.list,
        lambda: blobs.start_upload("a"),
    ]
    for call in calls:
        with pytest.raises(VolumeNotFoundError):
            await call()
    assert not await blobs.exists()
    await blobs.drop()
    assert os.listdir(tmp_path) == []


async def test_creating_makes_parents_and_tells_whether_it_was_there(tmp_path: Path) -> None:
    blobs = LocalBlobs(tmp_path / "x" / "y" / "root")
    assert await blobs.create()
    assert not await blobs.create()
    assert await blobs.exists()
    await blobs.put("a/b", b"1")
    await blobs.start_upload("c")
    await blobs.drop()
    assert os.listdir(tmp_path / "x" / "y") == []


async def test_a_file_in_the_place_of_the_root_is_no_volume(tmp_path: Path) -> None:
    (tmp_path / "root").write_bytes(b"x")
    with pytest.raises(NotAVolumeError):
        await LocalBlobs(tmp_path / "root").create()
    assert not await LocalBlobs(tmp_path / "root").exists()


async def test_dropping_a_linked_root_removes_the_directory_and_the_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "root").symlink_to(tmp_path / "real")
    blobs = LocalBlobs(tmp_path / "root")
    await blobs.put("a", b"1")
    assert await blobs.get("a") == b"1"
    await blobs.drop()
    assert os.listdir(tmp_path) == []


# Keys


async def test_the_place_of_a_blob_is_its_key(tmp_path: Path) -> None:
    blobs = await created(tmp_path)
    await blobs.put("a b/é", b"1")
    assert (tmp_path / "root" / "a b" / "é").read_bytes() == b"1"
    assert blobs.uri("a b/é") == (tmp_path / "root").as_uri() + "/a%20b/%C3%A9"


@pytest.mark.parametrize(
    "key", ["../out", "/etc/passwd", "a/../../out", "..", ".tmp", ".tmp/lock", "a//b", "x\0"]
)
async def test_a_key_never_leads_out_of_the_root(tmp_path: Path, key: str) -> None:
    blobs = await created(tmp_path)
    calls: list[Callable[[], Any]] = [
        lambda: blobs.put(key, b"x"),
        lambda: blobs.get(key),
        lambda: blobs.head(key),
        lambda: blobs.delete(key),
        lambda: blobs.delete_many(["a", key]),
        lambda: blobs.copy(blobs, "a", key),
        lambda: blobs.copy(blobs, key, "a"),
        lambda: blobs.start_upload(key),
    ]
    for call in calls:
        with pytest.raises(InvalidPathError):
            await call()
    with pytest.raises(InvalidPathError):
        blobs.uri(key)
    assert os.listdir(tmp_path) == ["root"]


async def test_a_symbolic_link_never_leads_out_of_the_root(tmp_path: Path) -> None:
    blobs = await created(tmp_path)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    (tmp_path / "root" / "dir").symlink_to(outside)
    (tmp_path / "root" / "file").symlink_to(outside / "secret")
    (tmp_path / "root" / "gone").symlink_to(outside / "new")
    for key in ("dir/secret", "file", "gone"):
        assert await blobs.head(key) is None
        with pytest.raises(BlobNotFoundError):
            await blobs.get(key)
    with pytest.raises(InvalidPathError):
        await blobs.put("dir/new", b"x")
    with pytest.raises(InvalidPathError):
        await blobs.put("gone", b"x", if_absent=True)
    await blobs.delete("dir/secret")
    assert await keys_of(blobs) == []
    await blobs.put("file", b"mine")
    assert await blobs.get("file") == b"mine"
    assert {entry.name: entry.read_bytes() for entry in outside.iterdir()} == {"secret": b"secret"}
    await blobs.drop()
    assert (outside / "secret").exists()


async def test_a_linked_private_directory_is_not_used(tmp_path: Path) -> None:
    blobs = await created(tmp_path)
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "root" / ".tmp" / "lock").unlink(missing_ok=True)
    (tmp_path / "root" / ".tmp").rmdir()
    (tmp_path / "root" / ".tmp").symlink_to(outside)
    with pytest.raises(ServiceError):
        await blobs.put("a", b"x")
    assert os.listdir(outside) == []


async def test_special_files_are_no_blobs(tmp_path: Path) -> None:
    blobs = await created(tmp_path)
    os.mkfifo(tmp_path / "root" / "pipe")
    (tmp_path / "root" / "directory").mkdir()
    for key in ("pipe", "directory"):
        assert await blobs.head(key) is None
        with pytest.raises(BlobNotFoundError):
            await blobs.get(key)
    await blobs.delete("directory")
    assert await keys_of(blobs) == []


async def test_keys_that_a_directory_cannot_hold_beside_each_other_are_refused(
    tmp_path: Path,
) -> None:
    blobs = await created(tmp_path)
    await blobs.put("a", b"1")
    await blobs.put("b/c/d", b"2")
    for key in ("a/b", "b", "b/c", "x" * 300):
        with pytest.raises(InvalidPathError) as refused:
            await blobs.put(key, b"3")
        assert refused.value.path in (key, str(tmp_path / "root" / key))
        with pytest.raises(InvalidPathError):
            await blobs.put(key, b"3", if_absent=True)
    assert await keys_of(blobs) == ["a", "b/c/d"]
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("if_absent", [True, False])
async def test_directories_without_files_make_room_for_a_key(
    tmp_path: Path, if_absent: bool
) -> None:
    blobs = await created(tmp_path)
    await blobs.put("a/b/c", b"1")
    await blobs.put("a/d", b"1")
    assert await blobs.delete_many(["a/b/c", "a/d"]) == []
    await blobs.put("a", b"2", if_absent=if_absent)
    assert await blobs.get("a") == b"2"


# Listing


async def test_keys_ascend_as_a_whole(tmp_path: Path) -> None:
    blobs = await created(tmp_path)
    keys = [
        "a-b",
        "a/b",
        "a/b-/c",
        "a/b.",
        "a0",
        "a b",
        "b/a",
        "b-",
        "z/\U0001f600",
        "z/\uffff",
        "é",
        "A",
    ]
    for key in keys:
        await blobs.put(key, b"")
    ordered = sorted(keys, key=str.encode)
    assert [info.key async for info in list_all(blobs)] == ordered
    for limit in range(1, len(keys) + 1):
        assert await keys_of(blobs, limit=limit) == ordered


_component = st.text(st.sampled_from("ab-./0é\U0001f600\uffff"), min_size=1, max_size=4)


@settings(max_examples=40, deadline=None)
@given(
    keys=st.sets(
        _component.filter(lambda key: not {"", ".", ".."} & set(key.split("/"))), max_size=12
    ),
    prefix=st.text(st.sampled_from("ab-./"), max_size=3),
    limit=st.integers(1, 5),
)
def test_pages_are_the_sorted_keys_with_the_prefix(keys: set[str], prefix: str, limit: int) -> None:
    async def check(directory: str) -> None:
        blobs = LocalBlobs(Path(directory) / "root")
        await blobs.create()
        stored = set()
        for key in keys:
            try:
                await blobs.put(key, b"")
                stored.add(key)
            except InvalidPathError:
                assert any(
                    key.startswith(other + "/") or other.startswith(key + "/") for other in stored
                )
        wanted = sorted((key for key in stored if key.startswith(prefix)), key=str.encode)
        assert await keys_of(blobs, prefix, limit) == wanted
        assert [info.key async for info in list_all(blobs, prefix)] == wanted

    with TemporaryDirectory() as directory:
        asyncio.run(check(directory))


@pytest.mark.parametrize(
    "prefix", ["..", "../", "/", "./", "a/../", ".tmp", ".tmp/", "a//", "\0", "\ud800"]
)
async def test_a_prefix_that_no_key_can_have_finds_nothing(tmp_path: Path, prefix: str) -> None:
    blobs = await created(tmp_path)
    await blobs.put("a/b", b"")
    assert await keys_of(blobs, prefix) == []


async def test_empty_directories_do_not_end_a_page(tmp_path: Path) -> None:
    blobs = await created(tmp_path)
    for number in range(10):
        (tmp_path / "root" / f"a{number}").mkdir()
    await blobs.put("z", b"")
    assert await keys_of(blobs, limit=2) == ["z"]


async def test_names_that_are_no_text_are_left_out(tmp_path: Path) -> None:
    blobs = await created(tmp_path)
    descriptor = os.open(os.fsencode(tmp_path / "root") + b"/\xff", os.O_CREAT | os.O_WRONLY)
    os.close(descriptor)
    await blobs.put("a", b"")
    assert await keys_of(blobs) == ["a"]


async def test_a_listing_that_is_left_early_holds_nothing_open(tmp_path: Path) -> None:
    blobs = await created(tmp_path)
    for number in range(3):
        await blobs.put(f"a/b/{number}", b"")
    before = len(os.listdir("/proc/self/fd"))
    listing = list_all(blobs)
    assert (await anext(listing)).key == "a/b/0"
    await listing.aclose()
    assert len(os.listdir("/proc/self/fd")) == before


# Writing


async def test_racing_creations_have_one_winner(tmp_path: Path) -> None:
    blobs = await created(tmp_path)
    won: list[int] = []

    async def create(number: int) -> None:
        try:
            await blobs.put("d/a", str(number).encode(), if_absent=True)
            won.append(number)
        except BlobExistsError:
            pass

    async with anyio.create_task_group() as tasks:
        for number in range(32):
            tasks.start_soon(create, number)
    assert len(won) == 1
    assert await blobs.get("d/a") == str(won[0]).encode()
    assert leftovers(tmp_path) == []


_INCREMENT = """
import asyncio, sys
from s3k_async.errors import BlobChangedError
from s3k_async.backends.local import local_blobs
from s3k_async.backends.local.local_blobs import LocalBlobs

async def main():
    blobs = LocalBlobs(sys.argv[1])
    done = 0
    while done < 25:
        etag = (await blobs.head("n")).etag
        data = await blobs.get("n")
        try:
            await blobs.put("n", str(int(data) + 1).encode(), if_match=etag)
            done += 1
        except BlobChangedError:
            pass

asyncio.run(main())
"""


async def test_processes_that_replace_by_etag_lose_no_update(tmp_path: Path) -> None:
    blobs = await created(tmp_path)
    await blobs.put("n", b"0")
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", _INCREMENT, str(tmp_path / "root")
        )
        for _ in range(3)
    ]
    assert [await process.wait() for process in processes] == [0] * 3
    assert await blobs.get("n") == b"75"


async def test_an_etag_changes_with_each_put_even_within_one_moment(tmp_path: Path) -> None:
    clock = FakeClock()
    blobs = LocalBlobs(tmp_path / "root", fake_runtime(clock))
    await blobs.create()
    infos = [await blobs.put("a", b"same") for _ in range(20)]
    assert len({info.etag for info in infos}) == 20
    assert {info.mtime_ms for info in infos} == {clock.now_ms()}
    assert await blobs.head("a") == infos[-1] == (await blobs.list()).blobs[0]
    with pytest.raises(BlobChangedError):
        await blobs.put("a", b"new", if_match=infos[0].etag)
    with pytest.raises(BlobChangedError):
        await blobs.put("b", b"new", if_match=infos[0].etag)
    await blobs.put("a", b"new", if_match=infos[-1].etag)
    assert leftovers(tmp_path) == []


SIZES = pytest.mark.parametrize(
    "data", [b"1", bytes(local_blobs.SMALL + 1)], ids=["with others", "individually"]
)


@SIZES
async def test_file_and_directories_are_synced_before_a_put_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    blobs = await created(tmp_path)
    synced = recorded_syncs(monkeypatch)
    await blobs.put("x/y/a", data)
    root = tmp_path / "root"
    assert synced == [
        path.stat().st_ino for path in (root / "x/y/a", root, root / "x", root / "x/y")
    ]
    synced.clear()
    await blobs.put("x/y/b", data, if_absent=True)
    assert synced == [(root / "x/y/b").stat().st_ino, (root / "x/y").stat().st_ino]
    synced.clear()
    await blobs.delete("x/y/b")
    assert synced == [(root / "x/y").stat().st_ino]


@SIZES
async def test_a_directory_that_cannot_be_synced_leaves_the_outcome_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    blobs = await created(tmp_path)
    monkeypatch.setattr(os, "fsync", failing_in(tmp_path / "root"))
    with pytest.raises(ResponseLostError):
        await blobs.put("a", data, if_absent=True)


@SIZES
async def test_a_repeated_put_is_not_acknowledged_before_its_directory_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    blobs = RetryingBlobs(await created(tmp_path), RetryPolicy(attempts=3, base=0.001), SYSTEM)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing_in(tmp_path / "root"))
        with pytest.raises(OutcomeUnknownError):
            await blobs.put("a", data, if_absent=True)
    synced = recorded_syncs(monkeypatch)
    with pytest.raises(BlobExistsError):
        await blobs.put("a", data, if_absent=True)
    assert (tmp_path / "root").stat().st_ino in synced


def recorded_syncs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The inodes that are synced from now on."""
    synced: list[int] = []
    fsync = os.fsync

    def recorded(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recorded)
    return synced


def failing_in(directory: Path) -> Callable[[int], None]:
    """`os.fsync`, which fails for a directory."""
    fsync = os.fsync

    def failing(descriptor: int) -> None:
        if os.fstat(descriptor).st_ino == directory.stat().st_ino:
            raise OSError(errno.EIO, "I/O error")
        fsync(descriptor)

    return failing


class Held:
    """Holds up the first sync until others wait, which are then a batch."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began = threading.Event()
        self.go = threading.Event()
        self.synced: list[int] = []
        self._fsync = os.fsync
        monkeypatch.setattr(os, "fsync", self)

    def __call__(self, descriptor: int) -> None:
        if not self.began.is_set():
            self.began.set()
            assert self.go.wait(WAITING)
        self.synced.append(os.fstat(descriptor).st_ino)
        self._fsync(descriptor)

    async def behind(self, blobs: LocalBlobs, *puts: Awaitable[BlobInfo]) -> list[Any]:
        """The outcomes of puts that wait while another one is written."""
        first = asyncio.create_task(blobs.put("first", b"1"))
        await asyncio.to_thread(self.began.wait, WAITING)
        rest = [asyncio.ensure_future(put) for put in puts]
        await anyio.wait_all_tasks_blocked()
        self.go.set()
        await first
        return await asyncio.gather(*rest, return_exceptions=True)


async def test_files_that_wait_together_share_the_sync_of_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = await created(tmp_path)
    await blobs.put("x/y/0", b"0")
    await blobs.put("z/0", b"0")
    held = Held(monkeypatch)
    keys = [f"x/y/{number}" for number in range(20)] + [f"z/{number}" for number in range(20)]
    infos = await held.behind(blobs, *(blobs.put(key, key.encode()) for key in keys))
    assert [info.key for info in infos] == keys
    root = tmp_path / "root"
    directories = [(root / "x/y").stat().st_ino, (root / "z").stat().st_ino]
    of_first, of_batch = held.synced[:2], held.synced[2:]
    assert of_first == [(root / "first").stat().st_ino, root.stat().st_ino]
    assert sorted(of_batch) == sorted(directories + [(root / key).stat().st_ino for key in keys])
    assert sorted(of_batch[-2:]) == sorted(directories)
    for key, info in zip(keys, infos, strict=True):
        assert (await blobs.head(key), await blobs.get(key)) == (info, key.encode())
    assert len({info.etag for info in infos}) > 30  # most have another size or moment
    assert leftovers(tmp_path) == []
    await blobs.close()


async def test_a_put_that_fails_harms_none_of_those_that_waited_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = await created(tmp_path)
    await blobs.put("there", b"old")
    (tmp_path / "root" / "empty" / "below").mkdir(parents=True)
    held = Held(monkeypatch)
    outcomes = await held.behind(
        blobs,
        blobs.put("a", b"1"),
        blobs.put("a/below", b"2"),
        blobs.put("there", b"3", if_absent=True),
        blobs.put("new", b"4", if_absent=True),
        blobs.put("new", b"5", if_absent=True),
        blobs.put("empty/below/x", b"6"),
        blobs.put("empty", b"7"),
        blobs.put("a", b"8"),
    )
    assert [type(each) for each in outcomes] == [
        BlobInfo,
        InvalidPathError,
        BlobExistsError,
        BlobInfo,
        BlobExistsError,
        BlobInfo,
        InvalidPathError,
        BlobInfo,
    ]
    assert {key: await blobs.get(key) for key in await keys_of(blobs)} == {
        "a": b"8",
        "empty/below/x": b"6",
        "first": b"1",
        "new": b"4",
        "there": b"old",
    }
    assert leftovers(tmp_path) == []


async def test_directories_without_files_make_room_in_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And are made again where a later file of it needs them."""
    blobs = await created(tmp_path)
    (tmp_path / "root" / "d" / "e").mkdir(parents=True)
    held = Held(monkeypatch)
    outcomes = await held.behind(
        blobs, blobs.put("b/1", b"1"), blobs.put("d", b"2"), blobs.put("b/2", b"3")
    )
    assert [type(each) for each in outcomes] == [BlobInfo] * 3
    assert await keys_of(blobs) == ["b/1", "b/2", "d", "first"]


async def test_a_put_that_is_cancelled_is_settled_when_the_call_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = await created(tmp_path)
    held = Held(monkeypatch)
    put = asyncio.create_task(blobs.put("a", b"1"))
    await asyncio.to_thread(held.began.wait, WAITING)
    put.cancel()
    await anyio.wait_all_tasks_blocked()
    assert not put.done()
    held.go.set()
    with pytest.raises(asyncio.CancelledError):
        await put
    assert await blobs.get("a") == b"1"


async def test_a_child_has_a_writer_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = await created(tmp_path)
    held = Held(monkeypatch)
    put = asyncio.create_task(blobs.put("a", b"1"))
    await asyncio.to_thread(held.began.wait, WAITING)

    async def in_child() -> None:
        await blobs.put("b", b"2")
        await blobs.close()

    assert await asyncio.to_thread(fork_and_run, lambda: asyncio.run(in_child())) == 0
    held.go.set()
    await put
    assert await keys_of(blobs) == ["a", "b"]
    await blobs.close()
    await blobs.put("c", b"3")  # nothing was open but threads
    await blobs.close()


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (errno.ENOSPC, NoSpaceError),
        (errno.EDQUOT, NoSpaceError),
        (errno.EFBIG, NoSpaceError),
        (errno.EACCES, PermissionDeniedError),
        (errno.EROFS, PermissionDeniedError),
        (errno.EIO, ServiceError),
    ],
)
async def test_errors_of_the_system_become_ours_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, error: type[Exception]
) -> None:
    blobs = await created(tmp_path)
    await blobs.put("a", b"old")

    def failing(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "pwrite", failing)
    with pytest.raises(error) as raised:
        await blobs.put("a", b"new")
    assert isinstance(raised.value, OSError)
    assert raised.value.filename == str(tmp_path / "root" / "a")
    assert error is not NoSpaceError or "run s3k gc" in str(raised.value)
    assert await blobs.get("a") == b"old"
    assert leftovers(tmp_path) == []


def test_a_file_size_limit_is_no_space(tmp_path: Path) -> None:
    asyncio.run(created(tmp_path))

    async def exceed() -> None:
        blobs = LocalBlobs(tmp_path / "root")
        await blobs.put("small", b"x" * 1000)
        with pytest.raises(NoSpaceError):
            await blobs.put("large", b"x" * 20_000)
        upload = await blobs.start_upload("parts")
        await upload.put_part(1, b"x" * 8000)
        with pytest.raises(NoSpaceError):
            await upload.put_part(2, b"x" * 8000)
        await upload.abort()

    def child() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        asyncio.run(exceed())

    assert fork_and_run(child) == 0
    assert asyncio.run(keys_of(LocalBlobs(tmp_path / "root"))) == ["small"]
    assert leftovers(tmp_path) == []


@pytest.mark.skipif(
    os.geteuid() != 0, reason="privileges can only be dropped by root; others are refused anyway"
)
def test_a_directory_that_may_not_be_written(tmp_path: Path) -> None:
    async def prepare() -> None:
        blobs = await created(tmp_path)
        (tmp_path / "root").chmod(0o755)  # which the file takes over
        await blobs.put("a", b"1")

    asyncio.run(prepare())
    for directory in (tmp_path, *tmp_path.parents):
        if directory.stat().st_uid == os.geteuid() and directory != Path("/"):
            directory.chmod(directory.stat().st_mode | 0o055)

    async def refused() -> None:
        blobs = LocalBlobs(tmp_path / "root")
        assert await blobs.get("a") == b"1"
        assert await keys_of(blobs) == ["a"]
        for call in (lambda: blobs.put("b", b"2"), lambda: blobs.delete("a"), blobs.drop):
            with pytest.raises(PermissionDeniedError):
                await call()

    def child() -> None:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        asyncio.run(refused())

    assert fork_and_run(child) == 0
    assert asyncio.run(keys_of(LocalBlobs(tmp_path / "root"))) == ["a"]


_ACKNOWLEDGE = """
import asyncio, sys
from s3k_async.backends.local import local_blobs
from s3k_async.backends.local.local_blobs import LocalBlobs

async def main():
    blobs = LocalBlobs(sys.argv[1])
    async def put(number):
        await blobs.put(f"d{number % 7}/{number}", str(number).encode() * 20_000)
        sys.stdout.write(f"{number}\\n")
        sys.stdout.flush()
    number = 0
    while True:
        await asyncio.gather(*(put(number + offset) for offset in range(4)))
        number += 4

asyncio.run(main())
"""


async def test_after_kill_9_what_was_acknowledged_is_whole_and_the_rest_is_invisible(
    tmp_path: Path,
) -> None:
    blobs = await created(tmp_path)
    numbers = set(acknowledged(_ACKNOWLEDGE, tmp_path / "root", 40))
    found = {info.key.partition("/")[2]: info async for info in list_all(blobs)}
    assert numbers <= set(found)
    for number, info in found.items():
        assert await blobs.get(info.key) == number.encode() * 20_000


async def test_what_dead_writers_left_is_removed_when_it_is_a_day_old(tmp_path: Path) -> None:
    clock = FakeClock()
    await LocalBlobs(tmp_path / "root", fake_runtime(clock)).create()
    private = tmp_path / "root" / ".tmp"
    old, young = str(uuid4()), str(uuid4())
    for name, age in ((old, 25), (f"{old}.17", 25), (f"{old}.2.9", 25), (young, 23)):
        (private / name).touch()
        os.utime(private / name, (clock.seconds - age * 3600, clock.seconds - age * 3600))
    blobs = LocalBlobs(tmp_path / "root", fake_runtime(clock))
    await blobs.put("a", b"")
    assert leftovers(tmp_path) == [young]


async def test_a_machine_whose_clock_is_ahead_leaves_the_files_of_running_writers(
    tmp_path: Path,
) -> None:
    """The directory is on a file system shared by several machines."""
    writing = await created(tmp_path)
    upload = await writing.start_upload("big")
    await upload.put_part(1, b"begun")
    ahead = replace(SYSTEM, now_ms=lambda: SYSTEM.now_ms() + 2 * 86_400_000)
    await LocalBlobs(tmp_path / "root", ahead).put("other", b"")
    await upload.put_part(2, b"ended")
    await upload.complete()
    assert await writing.get("big") == b"begunended"


async def test_what_others_have_in_a_directory_of_that_name_stays(tmp_path: Path) -> None:
    """A location may be an existing directory, in which another program has its temporary files."""
    private = tmp_path / "root" / ".tmp"
    directory = private / str(uuid4())
    directory.mkdir(parents=True)
    for name in ("thesis.docx", "abandoned", f"{uuid4()}.docx"):
        (private / name).write_bytes(b"precious")
    (private / str(uuid4())).symlink_to(private / "abandoned")
    for path in private.iterdir():
        os.utime(path, (0, 0), follow_symlinks=False)
    before = sorted(os.listdir(private))
    blobs = LocalBlobs(tmp_path / "root")
    assert not await blobs.create()
    await blobs.put("a", b"")
    assert [each async for each in blobs.list_uploads()] == []
    for name in before:
        if "." in name or name == "abandoned":
            with pytest.raises(InvalidPathError):
                await blobs.abort_upload(Unfinished("", name, 0))
    assert sorted(set(os.listdir(private)) - {"lock"}) == before
    await blobs.delete("a")
    assert not await blobs.drop(if_empty=True)
    left = set(os.listdir(private)) | {directory.name}  # an empty directory is removed
    assert sorted(left) == before


# Reading and copying


async def test_ranges_are_cut_at_the_end(tmp_path: Path) -> None:
    blobs = await created(tmp_path)
    await blobs.put("a", bytearray(b"0123456789"))
    assert await blobs.get("a", 3, 5) == b"34"
    assert await blobs.get("a", 8, 99) == b"89"
    assert (
        await blobs.get("a", 10)
        == await blobs.get("a", 99, 100)
        == await blobs.get("a", 5, 5)
        == b""
    )
    with pytest.raises(ValueError, match="byte 0"):
        await blobs.get("a", -1)
    with pytest.raises(BlobNotFoundError):
        await blobs.get("b", 5, 5)


@pytest.mark.parametrize("shortcut", [True, False])
async def test_a_copy_has_the_bytes_and_a_life_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shortcut: bool
) -> None:
    if not shortcut:

        def refused(*_: object) -> int:
            raise OSError(errno.EXDEV, "another device")

        monkeypatch.setattr(os, "copy_file_range", refused)
    source, target = LocalBlobs(tmp_path / "source"), await created(tmp_path)
    await source.create()
    data = os.urandom(3_000_001)
    await source.put("a", data)
    assert target.can_copy_from(source)
    info = await target.copy(source, "a", "d/b")
    await source.put("a", b"new")
    assert await target.get("d/b") == data
    assert info == await target.head("d/b")
    with pytest.raises(BlobNotFoundError):
        await target.copy(source, "missing", "c")
    with pytest.raises(UnsupportedError):
        await target.copy(MemoryBlobs("any"), "a", "c")


async def test_delete_many_names_exactly_what_remains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = await created(tmp_path)
    for key in ("a", "b/c", "d"):
        await blobs.put(key, b"")
    unlink = os.unlink

    def failing(path: str, *, dir_fd: int | None = None) -> None:
        if path == "c":
            raise OSError(errno.EACCES, "denied")
        unlink(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", failing)
    failures = await blobs.delete_many(["a", "b/c", "missing", "x/y", "d", "a"])
    assert [(failure.key, type(failure.error)) for failure in failures] == [
        ("b/c", PermissionDeniedError)
    ]
    assert await keys_of(blobs) == ["b/c"]


# Uploads


@pytest.mark.parametrize(
    "sizes",
    [[5], [0], [5, 5, 2], [5, 5, 5], [5, 3, 5], [2, 5], [1, 9, 1, 9]],
    ids=str,
)
@pytest.mark.parametrize("order", [1, -1])
async def test_parts_of_any_sizes_in_any_order_join(
    tmp_path: Path, sizes: list[int], order: int
) -> None:
    blobs = await created(tmp_path)
    parts = [bytes([65 + number]) * size for number, size in enumerate(sizes)]
    upload = await blobs.start_upload("d/a")
    for number, part in list(enumerate(parts, 1))[::order]:
        await upload.put_part(number, part)
    assert await keys_of(blobs) == []
    info = await upload.complete()
    assert await blobs.get("d/a") == b"".join(parts)
    assert info == await blobs.head("d/a") == await upload.complete()
    await upload.abort()
    assert await keys_of(blobs) == ["d/a"]
    assert leftovers(tmp_path) == []


async def test_parts_can_be_put_concurrently_and_again(tmp_path: Path) -> None:
    blobs = await created(tmp_path)
    upload = await blobs.start_upload("a")
    await upload.put_part(2, b"wrong!" * 1000)
    async with anyio.create_task_group() as tasks:
        for number in range(1, 21):
            tasks.start_soon(upload.put_part, number, bytes([number]) * 5000)
    await upload.complete()
    assert await blobs.get("a") == b"".join(bytes([number]) * 5000 for number in range(1, 21))


async def test_an_upload_with_a_gap_is_not_published(tmp_path: Path) -> None:
    blobs = await created(tmp_path)
    upload = await blobs.start_upload("a")
    with pytest.raises(ValueError, match="without a gap"):
        await upload.complete()
    await upload.put_part(2, b"x")
    with pytest.raises(ValueError, match="without a gap"):
        await upload.complete()
    await upload.put_part(1, b"y")
    await upload.complete()
    assert await blobs.get("a") == b"yx"


async def test_an_aborted_upload_leaves_nothing(tmp_path: Path) -> None:
    blobs = await created(tmp_path)
    upload = await blobs.start_upload("a")
    await upload.put_part(1, b"x")
    await upload.put_part(2, b"xyz")
    assert leftovers(tmp_path) != []
    await upload.abort()
    await upload.abort()
    assert leftovers(tmp_path) == []
    for call in (lambda: upload.put_part(1, b"x"), upload.complete):
        with pytest.raises(ServiceError):
            await call()


async def test_completing_twice_at_once_publishes_once(tmp_path: Path) -> None:
    blobs = await created(tmp_path)
    upload = await blobs.start_upload("a")
    await upload.put_part(1, b"x")
    first, second = await asyncio.gather(upload.complete(), upload.complete())
    assert first == second == await blobs.head("a")


async def test_files_have_the_time_of_their_file_system_whatever_the_clock_of_the_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs, reference, clock = await created(tmp_path), tmp_path / "reference", time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: clock() - 3600 * 1_000_000_000)
    before = await blobs.now_ms()
    await blobs.put("k", b"1")
    upload = await blobs.start_upload("parts")
    await upload.put_part(1, b"2")
    await upload.complete()
    reference.touch()
    after = reference.stat().st_mtime_ns // 1_000_000
    for key in ("k", "parts"):
        found = await blobs.head(key)
        assert found is not None
        assert before <= found.mtime_ms <= after
    assert after - before < 1800 * 1000


async def test_the_time_of_a_directory_that_cannot_be_written_is_the_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    blobs = LocalBlobs(tmp_path / "root", fake_runtime(clock))
    await blobs.create()
    shutil.rmtree(tmp_path / "root" / PRIVATE)
    for number in (errno.EROFS, errno.ENOSPC):
        monkeypatch.setattr(os, "mkdir", fails_with(number))
        assert await blobs.now_ms() == clock.now_ms()
    monkeypatch.setattr(os, "mkdir", fails_with(errno.EIO))
    with pytest.raises(ServiceError):
        await blobs.now_ms()


def fails_with(number: int) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


async def test_a_cancelled_read_writes_nothing_to_the_buffer_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await created(tmp_path / "blobs")
    await store.put("key", b"x" * 100_000)
    reading, go_on = threading.Event(), threading.Event()
    preadv = os.preadv

    def held(file: int, buffers: list[memoryview], offset: int) -> int:
        reading.set()
        assert go_on.wait(WAITING)
        return preadv(file, buffers, offset)

    monkeypatch.setattr(os, "preadv", held)
    buffer = bytearray(100_000)
    task = asyncio.create_task(store.get_into("key", 0, memoryview(buffer)))
    assert await asyncio.to_thread(reading.wait, WAITING)
    task.cancel()
    await asyncio.sleep(0.01)
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert buffer == b"x" * 100_000
