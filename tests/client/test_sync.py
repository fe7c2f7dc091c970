"""The blocking client."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import io
import os
import pickle
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import cloudpickle
import pyarrow as pa
import pytest

from s3k_async._sync.loop_thread import THREAD_NAME, current_bridge
from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async._sync.sync_files import SyncFileWriter
from s3k_async.config import VolumeConfig
from s3k_async.errors import (
    ClosedClientError,
    ConflictError,
    DirectoryNotEmptyError,
    ForkedClientError,
    InvalidArgumentError,
    PathExistsError,
    PathNotFoundError,
    StreamClosedError,
    UnsupportedError,
    VolumeNotFoundError,
    WrongLoopError,
)
from s3k_async.model import ChangeResult, ContentSummary, Progress
from s3k_async.settings import resolve
from s3k_async.volumes import init_volume
from tests.client.rig import memory_config
from tests.engines.volumes import fresh_name, volume_backends
from tests.support import fork_and_run

backends = volume_backends("memory", "embedded")

DATA = bytes(index % 251 for index in range(1000))


@backends
def test_every_verb(sync_fs: S3kSyncClient) -> None:
    fs = sync_fs
    assert fs.write("/a/f", DATA).size == 1000
    assert fs.read("/a/f") == DATA
    assert fs.read_ranges("/a/f", [(0, 3), (990, 2000)]) == [DATA[:3], DATA[990:]]
    assert (fs.exists("/a/f"), fs.is_file("/a/f"), fs.is_dir("/a")) == (True, True, True)
    assert fs.makedirs("/d/e").is_dir
    assert fs.touch("/d/t").size == 0
    assert fs.write_many([("/many/f", DATA), ("/many/g", b"")]) == ChangeResult(2, 0, 1000)
    assert fs.delete("/many", recursive=True).files == 2
    assert fs.rename("/a/f", "/d/e/g") == ChangeResult(1, 0, 1000)
    assert fs.copy("/d", "/copy", recursive=True) == ChangeResult(2, 2, 1000)
    assert fs.content_summary("/copy") == ContentSummary(1000, 2, 2)
    assert {status.path for status in fs.list("/copy", recursive=True)} == {
        "/copy/e",
        "/copy/e/g",
        "/copy/t",
    }
    assert {status.path for status in fs.find("/", min_size=1)} == {"/d/e/g", "/copy/e/g"}
    assert {status.path for status in fs.glob("/*/e/?")} == {"/d/e/g", "/copy/e/g"}
    assert [path for path, _, _ in fs.walk("/d")] == ["/d", "/d/e"]
    assert pa.Table.from_batches(fs.list_batches("/d")).num_rows == 2
    assert fs.list_batches("/d").to_arrow().num_rows == 2
    assert set(fs.list_batches("/d").to_pandas()["path"]) == {"/d/e", "/d/t"}
    listing = fs.list("/d", sorted=True)
    assert next(listing).path == "/d/e"
    assert list(listing.to_pandas()["path"]) == ["/d/t"]
    found = fs.find("/d", type="directory").to_arrow()
    assert found == fs.list_batches("/d", sorted=True).to_arrow().slice(0, 1)
    assert fs.glob("/nothing*").to_pandas().empty
    assert fs.checksum("/d/e/g") == fs.stat("/copy/e/g").checksum
    assert fs.transactions() == []
    assert fs.physical_path("/d/e/g").startswith(("memory://", "file://"))
    with pytest.raises(DirectoryNotEmptyError):
        fs.delete("/d")
    assert fs.delete("/d", recursive=True) == ChangeResult(2, 2, 1000)
    assert fs.delete("/d", missing_ok=True) == ChangeResult()
    with pytest.raises(PathNotFoundError) as raised:
        fs.read("/d")
    assert raised.value.path == "/d"
    with pytest.raises(PathExistsError):
        fs.write("/copy/t", b"", overwrite=False)


@backends
def test_it_opens_at_the_first_call_and_can_be_closed(config: VolumeConfig) -> None:
    fs = S3kSyncClient(config=config)
    fs.write("/f", b"1")
    assert fs.name == config.name
    fs.close()
    fs.close()
    assert fs.closed
    for call in (lambda: fs.read("/f"), lambda: fs.open("/f"), lambda: next(iter(fs.list("/")))):
        with pytest.raises(ClosedClientError):
            call()
    with fs:
        assert fs.read("/f") == b"1"
    with pytest.raises(ClosedClientError):
        fs.stat("/f")


def test_a_volume_that_is_not_there() -> None:
    client = S3kSyncClient(f"memory://{fresh_name('none')}")
    for _ in range(2):
        with pytest.raises(VolumeNotFoundError):
            client.stat("/")


@backends
def test_eight_threads_share_a_client_that_none_of_them_opened(config: VolumeConfig) -> None:
    fs = S3kSyncClient(config=config)

    def work(number: int) -> int:
        for index in range(5):
            path = f"/t{number}/f{index}"
            fs.write(path, path.encode())
            assert fs.read(path) == path.encode()
        return len(list(fs.list(f"/t{number}")))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [5] * 8
    assert fs.content_summary("/").file_count == 40
    assert [thread.name for thread in threading.enumerate()].count(THREAD_NAME) == 1
    fs.close()


@backends
async def test_inside_a_running_event_loop(config: VolumeConfig) -> None:
    with S3kSyncClient(config=config) as fs:
        fs.write("/f", b"1")
        assert [status.name for status in fs.list("/")] == ["f"]
        with fs.open("/f") as reader:
            assert reader.read() == b"1"


@backends
def test_a_generator_that_is_left_early(sync_fs: S3kSyncClient) -> None:
    for number in range(30):
        sync_fs.write(f"/d{number % 3}/f{number}", b"")
    for _ in sync_fs.list("/", recursive=True):
        break
    walk = sync_fs.walk("/")
    next(walk)
    del walk
    gc.collect()
    assert len(list(sync_fs.list("/", recursive=True))) == 33


@backends
def test_between_volumes(config: VolumeConfig) -> None:
    other_config = memory_config()
    asyncio.run(init_volume(other_config))
    with S3kSyncClient(config=config) as fs, S3kSyncClient(config=other_config) as other:
        fs.write("/d/f", DATA)
        assert fs.copy_to(other, "/d", "/e", recursive=True) == ChangeResult(1, 1, 1000)
        assert other.read("/e/f") == DATA


@backends
@pytest.mark.parametrize("dumps", [pickle.dumps, cloudpickle.dumps])
def test_a_pickled_client_opens_for_itself(
    sync_fs: S3kSyncClient, dumps: Callable[[object], bytes]
) -> None:
    sync_fs.write("/f", b"1")
    copied = pickle.loads(dumps(sync_fs))
    assert copied.read("/f") == b"1"
    copied.close()
    assert sync_fs.read("/f") == b"1"


@backends
def test_a_callback_of_the_client_cannot_block_its_loop(config: VolumeConfig) -> None:
    with S3kSyncClient(config=config) as fs:
        fs.write("/d/f", b"1")
        told: list[Progress] = []

        def report(progress: Progress) -> None:
            told.append(progress)
            fs.stat("/d")

        with pytest.raises(WrongLoopError):
            fs.copy("/d/f", "/g", progress=report)
        assert len(told) == 1
        assert fs.copy("/d/f", "/h", progress=told.append) == ChangeResult(1, 0, 1)


def test_a_callback_that_exits_does_not_take_the_loop_along() -> None:
    async def leave() -> None:
        raise SystemExit(3)

    async def stay() -> str:
        return "here"

    with pytest.raises(SystemExit):
        current_bridge().run(leave)
    assert current_bridge().run(stay) == "here"


def test_context_variables_are_those_of_the_caller() -> None:
    variable = contextvars.ContextVar("variable", default="none")

    async def read() -> str:
        return variable.get()

    token = variable.set("mine")
    assert current_bridge().run(read) == "mine"
    variable.reset(token)
    assert current_bridge().run(read) == "none"


# Files


@backends
def test_files_are_io_objects(sync_fs: S3kSyncClient) -> None:
    text = "".join(f"line {number} ä\n" for number in range(200))
    with sync_fs.open("/text", "wb") as writer:
        assert isinstance(writer, io.RawIOBase)
        wrapper = io.TextIOWrapper(writer, "utf-8", write_through=True)
        wrapper.write(text)
        wrapper.detach()
        assert sync_fs.stat("/text").committed is False
    with sync_fs.open("/text") as reader:
        assert isinstance(reader, io.RawIOBase)
        assert io.TextIOWrapper(reader, "utf-8").read() == text
    with io.BufferedReader(sync_fs.open("/text")) as buffered:
        assert buffered.readline() == "line 0 ä\n".encode()
        assert buffered.seek(0, io.SEEK_END) == len(text.encode())
    with sync_fs.open("/text") as reader:
        assert len(list(reader)) == 200
    with io.BufferedWriter(sync_fs.open("/buffered", "wb")) as buffer:
        for _ in range(100):
            buffer.write(DATA)
    assert sync_fs.read("/buffered") == DATA * 100
    with sync_fs.open("/table", "wb") as writer:
        table = pa.ipc.new_file(writer, pa.schema([("n", pa.int64())]))
        table.close()
    with sync_fs.open("/table") as reader:
        assert pa.ipc.open_file(reader).schema == pa.schema([("n", pa.int64())])


@backends
def test_reading_a_file(sync_fs: S3kSyncClient) -> None:
    sync_fs.write("/f", DATA)
    with sync_fs.open("/f") as reader:
        assert reader.read(10) == DATA[:10]
        assert reader.tell() == 10
        buffer = bytearray(5)
        assert reader.readinto(buffer) == 5
        assert buffer == DATA[10:15]
        assert reader.read_at(900, 3) == DATA[900:903]
        assert reader.seek(-3, io.SEEK_END) == 997
        assert reader.readall() == DATA[997:]
        assert (reader.size, reader.name, reader.mode, reader.status) == (
            1000,
            "/f",
            "rb",
            sync_fs.stat("/f"),
        )
        assert (reader.readable(), reader.writable(), reader.seekable()) == (True, False, True)
        with pytest.raises(InvalidArgumentError):
            reader.seek(-1)
        with pytest.raises(io.UnsupportedOperation):
            reader.write(b"")
        with pytest.raises(io.UnsupportedOperation):
            reader.truncate(0)
    assert reader.closed
    reader.close()
    for call in (reader.read, reader.tell, lambda: reader.read_at(0, 1), lambda: reader.seek(0)):
        with pytest.raises(StreamClosedError):
            call()
    with pytest.raises(UnsupportedError):
        sync_fs.open("/f", "r+b")


@backends
@pytest.mark.parametrize("size", [0, 10, 5000])
def test_writing_a_file(sync_fs: S3kSyncClient, size: int) -> None:
    data = (DATA * 5)[:size]
    with sync_fs.open("/f", "xb") as writer:
        for start in range(0, size, 77):
            writer.write(data[start : start + 77])
        assert writer.tell() == size
        assert (writer.readable(), writer.writable(), writer.seekable()) == (False, True, False)
        with pytest.raises(io.UnsupportedOperation):
            writer.read()
        with pytest.raises(io.UnsupportedOperation):
            writer.readinto(bytearray(1))
        with pytest.raises(io.UnsupportedOperation):
            writer.seek(0)
    assert writer.closed
    writer.close()
    writer.discard()
    assert sync_fs.read("/f") == data
    with pytest.raises(StreamClosedError):
        writer.write(b"")
    writer = sync_fs.open("/f", "wb")
    status = writer.commit()
    assert writer.commit() == status == sync_fs.stat("/f")


def fail_inside(writer: SyncFileWriter, data: bytes) -> None:
    with writer:
        writer.write(data)
        raise KeyError


@backends
@pytest.mark.parametrize("size", [0, 10, 5000])
def test_leaving_by_an_exception_publishes_nothing(sync_fs: S3kSyncClient, size: int) -> None:
    writer = sync_fs.open("/f", "wb")
    with pytest.raises(KeyError):
        fail_inside(writer, bytes(size))
    assert writer.closed
    assert not sync_fs.exists("/f")


@backends
def test_a_failed_close_stays_failed(sync_fs: S3kSyncClient) -> None:
    writer = sync_fs.open("/f", "wb")
    writer.write(DATA)
    sync_fs.delete("/f")
    for _ in range(3):
        with pytest.raises(ConflictError):
            writer.close()
    with pytest.raises(ConflictError):
        writer.write(b"")
    writer.discard()
    assert not sync_fs.exists("/f")


@backends
def test_a_file_that_was_forgotten_is_discarded(sync_fs: S3kSyncClient) -> None:
    with pytest.warns(ResourceWarning, match="not closed"):
        sync_fs.open("/f", "wb").write(DATA)
    wait_until_discarded(sync_fs, "/f")


@backends
def test_a_file_that_was_forgotten_is_discarded_where_warnings_are_errors(
    sync_fs: S3kSyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[type[BaseException]] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda given: raised.append(given.exc_type))
    sync_fs.open("/f", "wb").write(DATA)
    assert raised == [ResourceWarning]
    wait_until_discarded(sync_fs, "/f")


def wait_until_discarded(fs: S3kSyncClient, path: str) -> None:
    # The discarding was posted before this call, so it is at work or done; nothing is ever
    # published.
    for _ in range(10_000):
        assert list(fs.list("/")) == []
        if not fs.exists(path):
            return
    pytest.fail("the reservation is still there")


def test_what_a_forked_child_writes_after_its_parent_has_closed_is_kept(tmp_path: Path) -> None:
    """The parent's is the last connection that is known to be open, so that closing it would remove
    the log."""
    directory = str(tmp_path / "volume")
    asyncio.run(init_volume(resolve(directory)))
    parent = S3kSyncClient(directory)
    parent.write("/before", DATA)
    opened, closed = os.pipe(), os.pipe()

    def close() -> None:
        os.read(opened[0], 1)
        parent.close()
        os.write(closed[1], b"x")

    def child() -> None:
        with S3kSyncClient(directory) as client:
            client.write("/first", DATA)
            os.write(opened[1], b"x")
            os.read(closed[0], 1)
            for number in range(20):
                client.write(f"/second-{number}", DATA)

    threading.Thread(target=close, daemon=True).start()
    assert fork_and_run(child) == 0
    with S3kSyncClient(directory) as client:
        assert len(list(client.list("/"))) == 22


@backends
def test_an_open_file_keeps_its_client(config: VolumeConfig) -> None:
    S3kSyncClient(config=config).write("/f", DATA)
    reader = S3kSyncClient(config=config).open("/f")
    gc.collect()
    assert reader.read() == DATA
    listing = S3kSyncClient(config=config).list("/")
    gc.collect()
    assert [status.name for status in listing] == ["f"]


@pytest.mark.parametrize("ends", [True, False])
def test_a_listing_keeps_its_client_and_lets_it_close(config: VolumeConfig, ends: bool) -> None:
    """As in `for status in S3kSyncClient(...).list("/")`."""
    fs = S3kSyncClient(config=config)
    with fs:
        fs.write_many([(f"/{number}", b"") for number in range(3)])
    fs = S3kSyncClient(config=config)
    session = fs._session()
    listing = fs.list("/")
    del fs
    gc.collect()
    assert next(listing).path.startswith("/")
    if ends:
        assert len(list(listing)) == 2
    else:
        del listing
    gc.collect()
    deadline = time.monotonic() + 30
    while not session.client.closed and time.monotonic() < deadline:
        time.sleep(0.01)
    assert session.client.closed


def test_a_listing_that_begins_after_the_end_does_not_open_the_client(
    config: VolumeConfig,
) -> None:
    fs = S3kSyncClient(config=config)
    fs.write("/a", b"1")
    listing = fs.list("/")
    fs.close()
    with pytest.raises(ClosedClientError, match="the client is closed"):
        next(listing)
    assert fs._sessions[os.getpid()].client.closed
    with fs:
        assert [status.path for status in fs.list("/")] == ["/a"]


def test_a_listing_can_be_closed(sync_fs: S3kSyncClient) -> None:
    sync_fs.write_many([(f"/f{number}", b"") for number in range(3)])
    with closing(sync_fs.list("/")) as listing:
        assert next(listing).size == 0
    assert list(listing) == []


@backends
def test_files_and_listings_of_the_parent_in_a_forked_child(sync_fs: S3kSyncClient) -> None:
    sync_fs.write("/d/f", DATA)
    writers = [sync_fs.open("/g", "wb")]
    writers[0].write(DATA)
    readers = [sync_fs.open("/d/f")]
    listings = [sync_fs.list("/", recursive=True)]
    next(listings[0])

    def use() -> None:
        calls: list[Callable[[], object]] = [
            readers[0].read,
            writers[0].close,
            writers[0].discard,
            partial(writers[0].write, b"1"),
            partial(list, listings[0]),
        ]
        while calls:
            with pytest.raises(ForkedClientError):
                calls.pop()()
        # What is left of them is finalised here, and must touch nothing of the parent's.
        for held in (writers, readers, listings):
            held.clear()
        gc.collect()
        assert sync_fs.read("/d/f") == DATA

    assert fork_and_run(use) == 0
    assert not sync_fs.stat("/g").committed
    assert readers[0].read() == DATA
    writers[0].close()
    assert sync_fs.read("/g") == DATA


# The process around it


def run_script(script: str, *args: str, timeout: float = 20) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(script), *args],
        check=False,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


@pytest.mark.parametrize("ending", ["pass", "fs.close()", "sys.exit(0)", "del fs", "next(listing)"])
def test_the_interpreter_exits_without_a_word(tmp_path: Path, ending: str) -> None:
    done = run_script(
        f"""
        import asyncio, sys
        from s3k_async import S3kSyncClient, init_volume

        asyncio.run(init_volume(sys.argv[1]))
        fs = S3kSyncClient(sys.argv[1])
        fs.write("/f", b"1")
        reader = fs.open("/f")
        listing = fs.list("/")
        {ending}
        """,
        str(tmp_path / "volume"),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


INTERRUPTED = """
import asyncio, os, signal, sys, threading
from s3k_async import S3kSyncClient, init_volume
from s3k_async._sync.loop_thread import current_bridge

config = asyncio.run(init_volume("memory://v", part_size=100, multipart_threshold=100))
fs = S3kSyncClient(config=config)
fs.stat("/")
cleaned = []

async def forever():
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        await asyncio.sleep(3600)
    finally:
        await asyncio.sleep(0.05)
        cleaned.append(True)

try:
    current_bridge().run(forever)
except KeyboardInterrupt:
    print("interrupted", cleaned)

def interrupt(progress):
    if progress.done == 3:
        os.kill(os.getpid(), signal.SIGINT)

for number in range(30):
    fs.write(f"/d/f{number}", b"1" * 500)
try:
    while True:
        fs.copy("/d", "/e", recursive=True, overwrite=True, progress=interrupt)
except KeyboardInterrupt:
    found = fs.list("/", recursive=True, include_uncommitted=True)
    print("interrupted", all(status.committed for status in found))
print(len(fs.read("/d/f0")))
"""


def test_ctrl_c_cancels_the_call_and_the_client_goes_on() -> None:
    done = run_script(INTERRUPTED)
    assert done.stderr == ""
    assert done.stdout.split("\n") == ["interrupted [True]", "interrupted True", "500", ""]
    assert done.returncode == 0
