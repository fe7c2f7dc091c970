"""RocksDB: URLs, keys, one process, forks, kill -9, and what can be wrong with a disk."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3k_async import S3kClient
from s3k_async._core.concurrency import gather
from s3k_async.backends.location import OpenContext, TableStore
from s3k_async.backends.ports.blobs import BlobStore
from s3k_async.backends.ports.items import ABSENT, Key, Put
from s3k_async.backends.ports.pagination import list_all, scan_all
from s3k_async.backends.registry import BLOBS, TABLES
from s3k_async.backends.rocksdb import RocksdbBlobs, RocksdbTable, rocksdb_items
from s3k_async.backends.rocksdb.rocksdb_blobs import RocksdbBlobStore
from s3k_async.backends.rocksdb.rocksdb_database import Database
from s3k_async.backends.rocksdb.rocksdb_errors import rocksdb_errors
from s3k_async.backends.rocksdb.rocksdb_items import RocksdbItemStore
from s3k_async.cli import main
from s3k_async.config import AwsConfig
from s3k_async.errors import (
    BlobNotFoundError,
    BusyError,
    ClosedClientError,
    ConfigError,
    CorruptDataError,
    ForkedClientError,
    NoSpaceError,
    NotAVolumeError,
    PermissionDeniedError,
    ResponseLostError,
    S3kError,
    ServiceError,
    ThrottledError,
    VolumeFormatError,
    VolumeNotFoundError,
)
from s3k_async.settings import resolve
from s3k_async.volumes import destroy_volume, init_volume
from tests.support import FakeClock, fake_runtime, fork_and_run
from tests.torture.processes import recover

MIB = 1 << 20


def table_at(directory: Path) -> TableStore:
    return TABLES.location(f"rocksdb://{directory}", AwsConfig()).open(OpenContext())


def blobs_at(directory: Path) -> BlobStore:
    return BLOBS.location(f"rocksdb://{directory}", AwsConfig()).open(OpenContext())


def put(name: str, **values: Any) -> Put:
    return Put({"path": "p", "children": name, "ver": 1, **values}, ABSENT)


def in_process(code: str, *arguments: object) -> subprocess.Popen[str]:
    """A Python process that runs the body of an async function with `sys.argv`."""
    body = "\n    ".join(code.strip().splitlines())
    script = (
        "import asyncio, os, sys\n"
        "from s3k_async.backends.location import OpenContext\n"
        "from s3k_async.backends.registry import BLOBS, TABLES\n"
        "from s3k_async.backends.ports.items import *\n"
        "from s3k_async.config import AwsConfig\n"
        "from s3k_async.errors import *\n"
        "from s3k_async.backends.rocksdb import RocksdbBlobs, RocksdbTable\n"
        f"async def run():\n    {body}\nasyncio.run(run())\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


# URLs


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("rocksdb:///srv/vol", "/srv/vol"),
        ("rocksdb:///srv/a%20b/../vol/", "/srv/vol"),
        ("rocksdb://localhost/srv/vol", "/srv/vol"),
        ("rocksdb://./vol", "/base/vol"),
        ("rocksdb://../vol", "/vol"),
        ("rocksdb://.", "/base"),
    ],
)
def test_urls(url: str, path: str) -> None:
    table = TABLES.location(RocksdbTable.anchored(url, "/base"), AwsConfig())
    blobs = BLOBS.location(RocksdbBlobs.anchored(url, "/base"), AwsConfig())
    assert table == RocksdbTable(path)
    assert blobs == RocksdbBlobs(path)


@pytest.mark.parametrize(
    "url", ["rocksdb://", "rocksdb://host/srv", "rocksdb://vol", "rocksdb:vol"]
)
def test_a_wrong_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="rocksdb:///absolute/path"):
        TABLES.location(url, AwsConfig())


def test_a_text_is_parsed_to_the_same_place() -> None:
    for path in ("/srv/vol", "/srv/a b/ä%20"):
        location = RocksdbBlobs(path)
        assert BLOBS.location(location.text(None), AwsConfig()) == location
        assert location.text(None).endswith("/")
        assert location.below("log").text(None) == f"{location.text(None)}log/"
        assert TABLES.location(RocksdbTable(path).label, AwsConfig()) == RocksdbTable(path)


def test_a_link_to_a_table_is_the_same_table(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "table")
    one, other = (
        RocksdbTable(str(tmp_path / name)).identity(embedded=False) for name in ("table", "link")
    )
    assert RocksdbTable.same_table(one, other)
    assert not RocksdbTable.same_table(one, f"{other}2")


def test_an_import_of_the_package_does_not_import_rocksdict() -> None:
    code = (
        "import sys, s3k_async, s3k_async.config, s3k_async.backends.rocksdb.rocksdb_blobs;"
        "import s3k_async.backends.rocksdb.rocksdb_items; sys.exit('rocksdict' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


async def test_a_missing_rocksdict_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    for store in (table_at(tmp_path / "d"), blobs_at(tmp_path / "d")):
        with pytest.raises(ConfigError, match=r"pip install 's3k-async\[rocksdb\]'"):
            await store.create()
        assert not await store.exists()


# Keys

texts = st.text(
    st.sampled_from("\0\1\2\xffa/\U0001f600") | st.characters(codec="utf-8"), min_size=1
)


@given(st.tuples(texts, texts), st.tuples(texts, texts))
def test_keys_have_the_order_of_partition_and_sort(
    one: tuple[str, str], other: tuple[str, str]
) -> None:
    mine, theirs = (rocksdb_items._key(Key(*each)) for each in (one, other))
    assert rocksdb_items._key_of(mine) == Key(*one)
    ordered = tuple(text.encode() for text in one) < tuple(text.encode() for text in other)
    assert (mine < theirs) == ordered
    assert (mine == theirs) == (one == other)


async def test_a_partition_has_no_items_of_another(tmp_path: Path) -> None:
    table = table_at(tmp_path)
    await table.create()
    places = ["a", "a\0", "a\0\1", "a\0\xff", "ab", "a\1", "b"]
    for place in places:
        for name in ("\0", "x", "\U0001f600"):
            await table.write(Put({"path": place, "children": name}, ABSENT))
    for place in places:
        page = await table.query(place)
        assert [(each["path"], each["children"]) for each in page.items] == [
            (place, "\0"),
            (place, "x"),
            (place, "\U0001f600"),
        ]
    found = [item async for page in scan_all(table, limit=2) for item in page]
    assert len(found) == 3 * len(places)
    await table.close()


# Tokens


async def test_expired_tokens_are_removed(tmp_path: Path) -> None:
    clock = FakeClock()
    table = RocksdbItemStore(str(tmp_path / "t"), fake_runtime(clock))
    await table.create()
    for number in range(20):
        await table.transact([put(f"{number}")], f"token-{number}")
    clock.advance(11 * 60)
    await table.transact([put("last")], "token-last")

    def tokens(database: Database) -> tuple[int, int]:
        return len(database.rows(b"k", b"l")), len(database.rows(b"e", b"f"))

    assert await table._database.read(tokens) == (1, 1)
    await table.close()


# One process


HOLD = """
table = RocksdbTable(sys.argv[1]).open(OpenContext())
blobs = RocksdbBlobs(sys.argv[1]).open(OpenContext())
await table.create(), await blobs.create()
print("open", flush=True)
sys.stdin.readline()
await table.close(), await blobs.close()
print("closed", flush=True)
"""


async def test_a_second_process_is_refused_until_the_first_closes(tmp_path: Path) -> None:
    with in_process(HOLD, tmp_path) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        for store in (table_at(tmp_path), blobs_at(tmp_path)):
            for call in (store.exists, store.create, store.drop):
                with pytest.raises(BusyError, match="open in another process") as raised:
                    await call()
                assert str(tmp_path) in str(raised.value.path)
            await store.close()
        other.stdin.write("\n")
        other.stdin.flush()
        assert other.stdout.readline() == "closed\n"
        assert await table_at(tmp_path).exists()
        other.communicate()
    store = table_at(tmp_path)
    assert await store.exists()
    await store.close()


async def test_a_second_process_has_no_traceback_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with in_process(HOLD, tmp_path / "vol") as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        place = f"rocksdb://{tmp_path}/vol"
        code = await asyncio.to_thread(
            main, ["init", "s3k://vol", "--table", place, "--data-location", place]
        )
        shown = capfd.readouterr()
        assert code != 0
        assert "open in another process" in shown.err
        assert "Traceback" not in shown.err
        other.communicate("\n")


async def test_stores_of_a_process_share_a_database_until_the_last_closes(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    one, two, three = (table_at(tmp_path / each) for each in ("real", "real", "link"))
    assert await one.create()
    assert not await two.create()
    await one.write(put("a"))
    for table in (two, three):
        assert await table.get(Key("p", "a")) is not None
    await one.close()
    await one.close()
    with pytest.raises(ClosedClientError):
        await one.get(Key("p", "a"))
    await two.write(put("b"))
    await two.close()
    assert await three.get(Key("p", "b")) is not None
    await three.close()
    with in_process(HOLD, tmp_path / "real") as other:
        assert other.communicate("\n")[0] == "open\nclosed\n"


async def test_a_store_finds_the_table_that_another_one_made_again(tmp_path: Path) -> None:
    one, two = table_at(tmp_path / "d"), table_at(tmp_path / "d")
    await one.create()
    await one.write(put("a"))
    assert await two.get(Key("p", "a")) is not None
    await one.drop()
    assert not (tmp_path / "d").exists()
    for call in (two.get(Key("p", "a")), two.write(put("b"))):
        with pytest.raises(VolumeNotFoundError):
            await call
    assert await one.create()
    assert await two.get(Key("p", "a")) is None
    await two.write(put("b"))
    assert await one.get(Key("p", "b")) is not None
    await two.drop()
    await one.close()
    await two.close()


async def test_a_drop_of_empty_blobs_only_leaves_others_usable(tmp_path: Path) -> None:
    one, two = blobs_at(tmp_path / "d"), blobs_at(tmp_path / "d")
    await one.create()
    await two.put("a", b"1")
    assert not await one.drop(if_empty=True)
    assert await two.get("a") == b"1"
    await two.put("b", b"2")
    await two.delete_many(["a", "b"])
    assert await one.drop(if_empty=True)
    with pytest.raises(VolumeNotFoundError):
        await two.put("c", b"3")
    await one.close()
    await two.close()


async def test_a_store_can_be_used_from_several_event_loops(tmp_path: Path) -> None:
    table = table_at(tmp_path)
    await table.create()

    def other_loop(number: int) -> None:
        asyncio.run(table.write(put(f"{number}")))

    await asyncio.gather(*(asyncio.to_thread(other_loop, number) for number in range(8)))
    assert len((await table.query("p")).items) == 8
    await table.close()


# Forks


def test_a_forked_child_leaves_the_databases_of_its_parent_alone(tmp_path: Path) -> None:
    table, blobs = table_at(tmp_path), blobs_at(tmp_path)
    other = table_at(tmp_path / "other")

    async def begin() -> None:
        await table.create()
        await blobs.create()
        await table.write(put("a"))

    async def in_child() -> None:
        for store in (table, blobs, table_at(tmp_path)):
            for call in (store.exists, store.create, store.drop):
                with pytest.raises(ForkedClientError, match="close it before the fork"):
                    await call()
        for write in (table.write(put("b")), blobs.put("b", b"")):
            with pytest.raises(ForkedClientError):
                await write
        await table.close()
        await blobs.close()
        await fill(other)

    async def fill(store: TableStore) -> None:
        """More than a memtable, so that RocksDB needs its threads."""
        await store.create()
        await gather(
            lambda number: store.write(put(f"n{number}", text="x" * 300_000)), range(130), limit=64
        )
        assert len([item async for page in scan_all(store) for item in page]) >= 130
        await store.close()

    async def end() -> None:
        await table.write(put("c"))
        assert len((await table.query("p")).items) == 2
        await fill(table)
        await blobs.close()

    asyncio.run(begin())
    assert fork_and_run(lambda: asyncio.run(in_child())) == 0
    asyncio.run(end())


def test_a_forked_child_that_ends_as_usual_changes_nothing(tmp_path: Path) -> None:
    code = """
import asyncio, os, sys
from s3k_async.backends.location import OpenContext
from s3k_async.backends.ports.items import ABSENT, Put
from s3k_async.backends.rocksdb import RocksdbTable
table = RocksdbTable(sys.argv[1]).open(OpenContext())
asyncio.run(table.create())
asyncio.run(table.write(Put({"path": "p", "children": "a"}, ABSENT)))
for _ in range(3):
    if os.fork() == 0:
        sys.exit(7)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
asyncio.run(table.write(Put({"path": "p", "children": "b"}, ABSENT)))
assert len(asyncio.run(table.query("p")).items) == 2
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=60)


async def test_forks_wait_for_calls_under_way(tmp_path: Path) -> None:
    table = table_at(tmp_path)
    await table.create()

    async def write(number: int) -> None:
        await table.write(put(f"{number}"))
        assert await table.get(Key("p", f"{number}")) is not None

    async def fork() -> None:
        for _ in range(5):
            assert await asyncio.to_thread(fork_and_run, lambda: None) == 0

    await asyncio.gather(fork(), gather(write, range(500), limit=16))
    assert len((await table.query("p")).items) == 500
    await table.close()


# Durability


async def test_acknowledged_writes_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states: list[tuple[int, bool]] = []
    write = Database._write

    def watched(self: Database, batch: Any, *, synced: bool) -> None:
        options = self._synced if synced else self._unsynced
        assert options.sync is synced
        states.append((batch.size, synced))
        write(self, batch, synced=synced)

    monkeypatch.setattr(Database, "_write", watched)
    table, blobs = table_at(tmp_path), blobs_at(tmp_path)
    await table.create()
    await blobs.create()
    states.clear()
    await table.write(put("a"))
    await blobs.put("small", b"x")
    await blobs.delete("small")
    assert [synced for _, synced in states] == [True, True, True]
    states.clear()
    await blobs.put("large", bytes(9 * MIB))
    assert [synced for _, synced in states] == [False] * (len(states) - 1) + [True]
    assert max(size for size, _ in states) < 5 * MIB
    await table.close()
    await blobs.close()


async def test_writes_that_wait_together_are_one_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = []
    write = Database._write

    def counted(self: Database, batch: Any, **options: bool) -> None:
        batches.append(batch)
        write(self, batch, **options)

    table = table_at(tmp_path)
    await table.create()
    monkeypatch.setattr(Database, "_write", counted)
    await gather(lambda number: table.write(put(f"{number}")), range(256), limit=64)
    assert len((await table.query("p")).items) == 256
    assert len(batches) < 128
    await table.close()


WRITE = """
table = RocksdbTable(sys.argv[1]).open(OpenContext())
blobs = RocksdbBlobs(sys.argv[1]).open(OpenContext())
await table.create(), await blobs.create()
async def write(worker):
    number = 0
    while True:
        name = f"{sys.argv[2]}-{worker}-{number}"
        size = 5_000_000 if worker == 0 else 100
        await blobs.put(name, name.encode() * (size // len(name)))
        await table.write(Put({"path": "p", "children": name, "ver": 1}, ABSENT))
        os.write(1, f"{name}\\n".encode())
        number += 1
await asyncio.gather(*map(write, range(6)))
"""


@pytest.mark.parametrize("rounds", [4])
async def test_acknowledged_writes_survive_kill_9(tmp_path: Path, rounds: int) -> None:
    acknowledged: list[str] = []
    for each in range(rounds):
        with in_process(WRITE, tmp_path, each) as writer:
            assert writer.stdout is not None
            lines = [writer.stdout.readline() for _ in range(60 + 17 * each)]
            os.kill(writer.pid, signal.SIGKILL)
            lines += writer.stdout.readlines()
            acknowledged += [line.strip() for line in lines if line.endswith("\n")]
    table, blobs = table_at(tmp_path), blobs_at(tmp_path)
    assert len(acknowledged) >= 60 * rounds
    for name in acknowledged:
        assert await table.get(Key("p", name)) is not None, name
        data = await blobs.get(name)
        assert data == name.encode() * (len(data) // len(name)), name
    # Nothing of what was not acknowledged is there in part.
    async for blob in list_all(blobs):
        assert len(await blobs.get(blob.key)) == blob.size
    for upload in [upload async for upload in blobs.list_uploads()]:
        await blobs.abort_upload(upload)
    assert [upload async for upload in blobs.list_uploads()] == []
    await table.write(put("after"))
    await table.close()
    await blobs.close()


# Blobs


async def keys_of(blobs: BlobStore, kinds: Sequence[bytes]) -> int:
    assert isinstance(blobs, RocksdbBlobStore)
    return await blobs._database.read(
        lambda database: sum(len(database.rows(each, each + b"\xff")) for each in kinds)
    )


async def test_a_range_reads_the_pieces_that_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = blobs_at(tmp_path)
    await blobs.create()
    content = os.urandom(9 * MIB + 5)
    await blobs.put("large", content)
    await blobs.put("small", content[: 3 * MIB])
    read: list[bytes] = []
    get = Database.get

    def watched(self: Database, key: bytes) -> bytes | None:
        read.append(key)
        return get(self, key)

    monkeypatch.setattr(Database, "get", watched)
    for start, end, pieces in (
        (0, 10, 1),
        (MIB - 1, MIB + 1, 2),
        (4 * MIB, 5 * MIB, 1),
        (9 * MIB, 99 * MIB, 1),
        (0, None, 10),
    ):
        for key in ("large", "small"):
            expected = content[: 3 * MIB if key == "small" else None][start:end]
            read.clear()
            assert await blobs.get(key, start, end) == expected
            found = [each for each in read if each.startswith(b"p")]
            assert len(found) == (pieces if key == "large" else -(-len(expected) // MIB) or 0) or (
                key == "small" and len(found) <= pieces
            )
    await blobs.close()


async def test_nothing_is_left_of_blobs_and_uploads(tmp_path: Path) -> None:
    blobs = blobs_at(tmp_path)
    await blobs.create()
    content = os.urandom(5 * MIB)
    await blobs.put("large", content)
    await blobs.copy(blobs, "large", "copy")
    assert await blobs.get("copy") == content
    assert await blobs.head("copy") is not None
    upload = await blobs.start_upload("parts")
    await upload.put_part(1, content)
    await upload.put_part(2, b"replaced")
    await upload.put_part(1, b"x" * MIB)
    await upload.put_part(2, b"last")
    await upload.complete()
    assert await blobs.get("parts", MIB - 2) == b"xxlast"
    await blobs.put("large", b"small now")
    task = asyncio.ensure_future(blobs.put("never", bytes(40 * MIB)))
    for _ in range(10_000):
        if [each async for each in blobs.list_uploads()]:
            break
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for each in [each async for each in blobs.list_uploads()]:
        await blobs.abort_upload(each)
    assert await keys_of(blobs, [b"h"]) == 3
    await blobs.delete_many(["large", "copy", "parts", "absent"])
    assert await keys_of(blobs, [b"h", b"p", b"x", b"u", b"v"]) == 0
    await blobs.close()


async def test_a_reader_sees_one_version_of_a_blob_that_is_replaced(tmp_path: Path) -> None:
    blobs = blobs_at(tmp_path)
    await blobs.create()
    await blobs.put("k", b"0" * (2 * MIB))
    done = False

    async def replace() -> None:
        nonlocal done
        for number in range(30):
            size = (6 if number % 3 == 0 else 2) * MIB
            await blobs.put("k", b"%d" % (number % 10) * size)
        done = True

    async def read() -> None:
        while not done:
            data = await blobs.get("k")
            assert data == data[:1] * len(data)
            assert len(data) in (2 * MIB, 6 * MIB)

    await asyncio.gather(replace(), read(), read())
    await blobs.close()


async def test_the_space_of_deleted_blobs_is_returned(tmp_path: Path) -> None:
    blobs = blobs_at(tmp_path)
    await blobs.create()
    content = os.urandom(4 * MIB)

    def size() -> int:
        total = 0
        for each in (tmp_path / "blobs").iterdir():
            with suppress(FileNotFoundError):  # RocksDB removes files meanwhile
                total += each.stat().st_size
        return total

    for round_ in ("a", "b"):
        for number in range(18):
            await blobs.put(f"{round_}{number}", content)
        await blobs.delete_many([f"{round_}{number}" for number in range(18)])
    for _ in range(100):
        if size() < 80 * MIB:
            break
        await asyncio.sleep(0.1)
    assert size() < 80 * MIB
    await blobs.close()


async def test_missing_pieces_are_damage(tmp_path: Path) -> None:
    blobs = blobs_at(tmp_path)
    await blobs.create()
    await blobs.put("k", b"content")
    assert isinstance(blobs, RocksdbBlobStore)
    await blobs._database.write(lambda batch: batch.delete_range(b"p", b"q"))
    with pytest.raises(CorruptDataError, match="pieces"):
        await blobs.get("k")
    await blobs.delete("k")
    with pytest.raises(BlobNotFoundError):
        await blobs.get("k")
    await blobs.close()


# What can be wrong


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("IO error: While lock file: /d/LOCK: Resource temporarily unavailable", BusyError),
        ("IO error: No space left on device: While appending to file: /d/1.log", NoSpaceError),
        (
            "IO error: While open a file for appending: /d/LOCK: Permission denied",
            PermissionDeniedError,
        ),
        ("Corruption: block checksum mismatch", CorruptDataError),
        ("Result incomplete: Write stall", ThrottledError),
        ("IO error: While fsync: /d/1.log: Input/output error", ServiceError),
        ("Invalid argument: x", ServiceError),
        ("IO error: While open a file: /d/1.sst: Input/output error", ServiceError),
    ],
)
def test_errors(text: str, error: type[S3kError]) -> None:
    with pytest.raises(error) as raised, rocksdb_errors("/d"):
        raise Exception(text)  # noqa: TRY002 - as rocksdict does
    assert raised.value.path == "/d"
    if isinstance(raised.value, ServiceError):
        assert raised.value.service_code == text.partition(":")[0]


@pytest.mark.parametrize("reason", ["Input/output error", "No space left on device"])
def test_a_sync_that_fails_leaves_the_outcome_unknown(reason: str) -> None:
    with pytest.raises(ResponseLostError), rocksdb_errors("/d", committing=True):
        raise Exception(f"IO error: While fdatasync: /d/1.log: {reason}")  # noqa: TRY002 - as above


def test_other_errors_pass_through() -> None:
    with pytest.raises(KeyError), rocksdb_errors("/d"):
        raise KeyError


async def test_reads_go_on_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_at(tmp_path)
    await table.create()
    await table.write(put("a"))
    assert isinstance(table, RocksdbItemStore)
    database = table._database._current()
    assert database is not None
    disk = os.statvfs(tmp_path)
    full = os.statvfs_result((*disk[:4], 0, *disk[5:]))
    database._has_failed = True
    with monkeypatch.context() as patch:
        patch.setattr(os, "statvfs", lambda _: full)
        for name in ("b", "c"):
            with pytest.raises(NoSpaceError, match="free 8 MiB"):
                await table.write(put(name))
        assert await table.get(Key("p", "a")) is not None
    await table.write(put("b"))
    assert len((await table.query("p")).items) == 2
    await table.close()


async def test_a_full_disk_is_reported_and_the_table_goes_on_when_there_is_room(
    tmp_path: Path,
) -> None:
    code = """
import resource
table = RocksdbTable(sys.argv[1]).open(OpenContext())
await table.create()
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, hard))
async def write(number):
    await table.write(Put({"path": "p", "children": f"{number:03}", "text": "x" * 10_000}, ABSENT))
done = 0
try:
    while True:
        await write(done)
        done += 1
except NoSpaceError as error:
    print(error.code, flush=True)
assert 10 < done < 60, done
assert len((await table.query("p")).items) == done
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
found = [item["children"] for item in (await table.query("p")).items]
assert found == [f"{number:03}" for number in range(done)], (done, found)
await write(done)
await table.close()
table = RocksdbTable(sys.argv[1]).open(OpenContext())
print(len((await table.query("p")).items) - done)
await table.close()
"""
    with in_process(code, tmp_path) as process:
        out = process.communicate(timeout=60)[0]
        assert out == "no_space\n1\n"
        assert process.returncode == 0


async def test_a_changed_byte_is_found(tmp_path: Path) -> None:
    table = table_at(tmp_path)
    await table.create()
    for number in range(100):
        await table.write(put(f"{number}", text="x" * 1000))
    await table.close()
    table = table_at(tmp_path)
    assert len((await table.query("p")).items) == 100
    await table.close()
    (file, *_) = sorted((tmp_path / "table").glob("*.sst"), key=lambda each: each.stat().st_size)[
        -1:
    ]
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 0xFF
    file.write_bytes(data)
    table = table_at(tmp_path)
    with pytest.raises(CorruptDataError, match="damaged"):
        await table.query("p")
    await table.close()


async def test_a_damaged_value_is_served_as_an_item(tmp_path: Path) -> None:
    table = table_at(tmp_path)
    await table.create()
    assert isinstance(table, RocksdbItemStore)
    key = rocksdb_items._key(Key("p", "a"))
    for value, attribute in ((b"[1]", "attributes"), (b"\xff", "attributes_base64")):
        await table._database.write(lambda batch, value=value: batch.put(key, value))  # type: ignore[misc]
        item = await table.get(Key("p", "a"))
        assert item is not None
        assert attribute in item
    await table.close()


async def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "notes.txt").write_text("mine")
    table = table_at(tmp_path)
    with pytest.raises(NotAVolumeError, match=r"notes\.txt"):
        await table.create()
    assert not await table.exists()
    await table.drop()
    assert (tmp_path / "table" / "notes.txt").read_text() == "mine"
    await table.close()


async def test_a_database_of_something_else_is_refused(tmp_path: Path) -> None:
    from rocksdict import Options, Rdict

    options = Options(raw_mode=True)
    options.create_if_missing(True)
    blobs = blobs_at(tmp_path)
    await blobs.create()
    await blobs.close()
    (tmp_path / "blobs").rename(tmp_path / "table")
    table = table_at(tmp_path)
    for mark, error in (
        (b"s3k-blobs 1", NotAVolumeError),
        (b"s3k-table 2", VolumeFormatError),
        (b"something", NotAVolumeError),
        (None, NotAVolumeError),
    ):
        database = Rdict(str(tmp_path / "table"), options)
        database[b"other"] = b"value"
        if mark is None:
            del database[b"format"]
        else:
            database[b"format"] = mark
        database.close()
        for call in (table.create, table.exists, table.drop):
            with pytest.raises(error):
                await call()
    await table.close()


async def test_a_creation_that_was_interrupted_is_done_again(tmp_path: Path) -> None:
    from rocksdict import Options, Rdict

    options = Options(raw_mode=True)
    options.create_if_missing(True)
    (tmp_path / "table").mkdir()
    Rdict(str(tmp_path / "table"), options).close()
    table = table_at(tmp_path)
    assert not await table.exists()
    assert await table.create()
    assert await table.exists()
    await table.close()


# Volumes


def test_a_volume_by_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    places = ["--table", "rocksdb://./vol", "--data-location", "rocksdb://./vol"]
    (tmp_path / "local").write_bytes(b"content")

    def s3k(*arguments: str) -> str:
        code = main(arguments)
        shown = capfd.readouterr()
        assert code == 0, shown
        return shown.out

    s3k("init", "s3k://vol", *places)
    s3k("put", str(tmp_path / "local"), "s3k://vol/file", *places)
    assert "file" in s3k("ls", "s3k://vol/", *places)
    s3k("get", "s3k://vol/file", str(tmp_path / "back"), *places)
    assert (tmp_path / "back").read_bytes() == b"content"
    s3k("fsck", "s3k://vol", *places)


async def test_a_volume_by_the_client(tmp_path: Path) -> None:
    place = f"rocksdb://{tmp_path}/vol"
    config = resolve(table=place, data_location=place)
    record = await init_volume(config)
    assert (record.name, record.data) == ("vol", f"{place}/")
    async with S3kClient(config=config) as fs, S3kClient(config=config) as other:
        await fs.write("/a/file", b"text" * 3_000_000)
        await fs.rename("/a", "/b")
        assert await other.read("/b/file") == b"text" * 3_000_000
    assert await destroy_volume(config, force=True) == 0
    assert not (tmp_path / "vol").exists()


async def test_a_volume_whose_process_was_killed(tmp_path: Path) -> None:
    code = """
from s3k_async import S3kClient
from s3k_async.settings import resolve
config = resolve(table=sys.argv[1], data_location=sys.argv[1])
async with S3kClient(config=config) as fs:
    async def write(worker):
        for number in range(100_000):
            path = f"/d{worker}/{number}"
            await fs.write(path, path.encode())
            os.write(1, f"{path}\\n".encode())
    await asyncio.gather(*map(write, range(4)))
"""
    place = f"rocksdb://{tmp_path}/vol"
    config = resolve(table=place, data_location=place)
    await init_volume(config)
    with in_process(code, place) as writer:
        assert writer.stdout is not None
        lines = [writer.stdout.readline() for _ in range(50)]
        os.kill(writer.pid, signal.SIGKILL)
        lines += writer.stdout.readlines()
    await recover(config)
    async with S3kClient(config=config) as fs:
        for path in [line.strip() for line in lines if line.endswith("\n")]:
            assert await fs.read(path) == path.encode()
