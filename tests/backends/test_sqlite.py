"""SQLite: what a table holds, and everything that can be wrong with its file."""

from __future__ import annotations

import asyncio
import os
import resource
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from s3k_async.backends.ports.items import ABSENT, Condition, Delete, Item, Key, Put, Update
from s3k_async.backends.sqlite import sqlite_connections, sqlite_items
from s3k_async.backends.sqlite.sqlite_connections import (
    NotReadyError,
    sqlite_errors,
)
from s3k_async.backends.sqlite.sqlite_items import SqliteItems
from s3k_async.backends.sqlite.sqlite_rows import fetch
from s3k_async.errors import (
    ConditionFailedError,
    CorruptDataError,
    NoSpaceError,
    NotAVolumeError,
    PermissionDeniedError,
    ResponseLostError,
    ServiceError,
    ThrottledError,
    VolumeFormatError,
    VolumeNotFoundError,
)
from tests.backends.sqlite_tables import created, item, make_table
from tests.support import FakeClock, fake_runtime, fork_and_run


async def test_opening_creates_no_file(tmp_path: Path) -> None:
    store = SqliteItems(tmp_path / "t.db")
    assert not await store.exists()
    with pytest.raises(VolumeNotFoundError) as missing:
        await store.get(Key("p", "a"))
    assert missing.value.path == str(tmp_path / "t.db")
    with pytest.raises(VolumeNotFoundError):
        await store.write(Put(item("a"), ABSENT))
    await store.drop()
    assert os.listdir(tmp_path) == []


async def test_creating_makes_the_directories_and_leaves_nothing_beside(tmp_path: Path) -> None:
    store = SqliteItems(tmp_path / "x" / "y" / "t.db")
    assert await store.create()
    assert not await store.create()
    assert await store.exists()
    await store.close()
    assert sorted(os.listdir(tmp_path / "x" / "y")) == ["t.db", "t.db-ballast"]
    await store.drop()
    assert os.listdir(tmp_path / "x" / "y") == []


async def test_of_many_creators_one_is_told_that_it_was_the_one(tmp_path: Path) -> None:
    stores = [SqliteItems(tmp_path / "t.db") for _ in range(8)]
    assert sorted(await asyncio.gather(*(store.create() for store in stores))) == [False] * 7 + [
        True
    ]


async def test_values_keep_their_types(tmp_path: Path) -> None:
    store = await created(tmp_path)
    full: Item = {
        "path": "ks://v/é\U0001f600-sf0",
        "children": "\x01'\"\u2028é",
        "yes": True,
        "no": False,
        "one": 1,
        "zero": 0,
        "big": 2**80,
        "negative": -1,
        "text": 'a\0"\\\U0001f600',
        "empty": "",
    }
    key = Key(str(full["path"]), str(full["children"]))
    await store.write(Put(full, ABSENT))
    await store.close()
    store = SqliteItems(tmp_path / "t.db")
    read = await store.get(key)
    assert read == full
    assert {name: type(value) for name, value in (read or {}).items()} == {
        name: type(value) for name, value in full.items()
    }
    with pytest.raises(ConditionFailedError):
        await store.write(Update(key, Condition(equals={"yes": 1}), {"text": "no"}))
    await store.close()


async def test_a_dropped_table_is_gone_for_those_who_had_it_open(tmp_path: Path) -> None:
    mine = await created(tmp_path)
    theirs = SqliteItems(tmp_path / "t.db")
    await theirs.write(Put(item("a"), ABSENT))
    await mine.drop()
    with pytest.raises(VolumeNotFoundError):
        await theirs.get(Key("p", "a"))
    assert await mine.create()
    assert await theirs.get(Key("p", "a")) is None
    await theirs.write(Put(item("b"), ABSENT))
    assert await mine.get(Key("p", "b")) == item("b")
    await theirs.close()
    await mine.close()


async def test_what_an_interrupted_drop_left_is_no_table_and_can_be_created_over(
    tmp_path: Path,
) -> None:
    store = await created(tmp_path)
    await store.close()
    database = sqlite3.connect(tmp_path / "t.db")
    database.executescript("DROP TABLE items; DROP TABLE tags; DROP TABLE tokens;")
    database.close()
    assert not await store.exists()
    assert await store.create()
    assert await store.exists()
    await store.close()


async def test_tokens_are_forgotten_after_ten_minutes(tmp_path: Path) -> None:
    clock = FakeClock()
    store = SqliteItems(tmp_path / "t.db", fake_runtime(clock))
    await store.create()
    create = Put(item("a"), ABSENT)
    await store.transact([create], "token")
    await store.close()
    store = SqliteItems(tmp_path / "t.db", fake_runtime(clock))
    clock.advance(599)
    await store.transact([create], "token")
    with pytest.raises(ServiceError):
        await store.transact([Put(item("b"), ABSENT)], "token")
    clock.advance(2)
    with pytest.raises(ConditionFailedError):
        await store.transact([create], "token")
    await store.transact([Put(item("c"), ABSENT)], "token")
    await store.transact([Delete(Key("p", "c"), Condition())], "another")
    clock.advance(700)
    await store.transact([Put(item("c"), ABSENT)], "third")
    await store.close()
    with sqlite3.connect(tmp_path / "t.db") as database:
        assert database.execute("SELECT token FROM tokens").fetchall() == [("third",)]
    database.close()


async def test_a_failed_transaction_changes_nothing(tmp_path: Path) -> None:
    store = await created(tmp_path)
    await store.write(Put(item("a"), ABSENT))
    with pytest.raises(ConditionFailedError) as failure:
        await store.transact(
            [Put(item("b"), ABSENT), Delete(Key("p", "a"), Condition(equals={"ver": 2}))], "token"
        )
    assert failure.value.current == {1: item("a")}
    assert (await store.query("p")).items == [item("a")]


async def test_writes_that_wait_together_see_each_other(tmp_path: Path) -> None:
    store = await created(tmp_path)

    async def create(number: int) -> bool:
        try:
            await store.write(Put(item("a", number), ABSENT))
        except ConditionFailedError:
            return False
        return True

    assert sum(await asyncio.gather(*(create(number) for number in range(600)))) == 1


async def test_cancelled_calls_leave_the_store_usable(tmp_path: Path) -> None:
    store = await created(tmp_path)
    for number in range(50):
        calls = [
            asyncio.ensure_future(store.write(Put(item(f"{number}-{each}"), ABSENT)))
            for each in range(8)
        ] + [
            asyncio.ensure_future(
                store.transact([Put(item(f"t{number}"), ABSENT)], f"token-{number}")
            )
        ]
        await asyncio.sleep(0)
        for call in calls[::2]:
            call.cancel()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert all(outcome is None for outcome in outcomes[1::2])
        assert all(
            outcome is None or isinstance(outcome, asyncio.CancelledError) for outcome in outcomes
        )
    kept = {str(found["children"]) for found in (await store.query("p")).items}
    assert {f"{number}-{each}" for number in range(50) for each in (1, 3, 5, 7)} <= kept


async def test_scan_segments_are_disjoint_and_complete_across_pages(tmp_path: Path) -> None:
    store = await created(tmp_path)
    keys = {Key(f"p{number % 11}", str(number)) for number in range(80)}
    async with anyio.create_task_group() as tasks:
        for key in keys:
            tasks.start_soon(store.write, Put(item(key.sort, partition=key.partition), ABSENT))
    seen: list[Key] = []
    for segment in range(3):
        cursor = None
        while True:
            page = await store.scan(segment, 3, cursor=cursor, limit=4)
            seen += [Key(str(found["path"]), str(found["children"])) for found in page.items]
            cursor = page.next
            if cursor is None:
                break
    assert sorted(seen) == sorted(keys)


# Files that are no table


async def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    path.write_bytes(b"not a database at all, but long enough to have a header " * 40)
    before = path.read_bytes()
    store = SqliteItems(path)
    for call in (store.exists, store.create, store.drop, lambda: store.get(Key("p", "a"))):
        with pytest.raises(NotAVolumeError):
            await call()
    assert path.read_bytes() == before


async def test_another_programs_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE items (id INTEGER)")
    database.close()
    before = path.read_bytes()
    store = SqliteItems(path)
    for call in (store.exists, store.create, store.drop, lambda: store.get(Key("p", "a"))):
        with pytest.raises(NotAVolumeError):
            await call()
    assert path.read_bytes() == before


async def test_an_empty_file_and_a_directory_are_no_tables(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "directory").mkdir()
    for name in ("empty", "directory"):
        for call in (SqliteItems(tmp_path / name).exists, SqliteItems(tmp_path / name).create):
            with pytest.raises(NotAVolumeError):
                await call()


async def test_a_corrupt_table_is_damage(tmp_path: Path) -> None:
    store = await created(tmp_path)
    await asyncio.gather(
        *(store.write(Put(item(f"{number:0200}"), ABSENT)) for number in range(200))
    )
    await store.close()
    header = (tmp_path / "t.db").read_bytes()[:4096]
    (tmp_path / "t.db").write_bytes(header + b"\xa5" * 100_000)
    with pytest.raises(CorruptDataError):
        await store.query("p")


async def test_a_newer_format_is_named(tmp_path: Path) -> None:
    store = await created(tmp_path)
    await store.close()
    with sqlite3.connect(tmp_path / "t.db") as database:
        database.execute("PRAGMA user_version = 2")
    database.close()
    with pytest.raises(VolumeFormatError):
        await store.get(Key("p", "a"))


# What the machine can refuse


async def test_a_table_that_stays_locked_throttles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_connections, "BUSY_TIMEOUT", 0.01)
    store = await created(tmp_path)
    other = sqlite3.connect(tmp_path / "t.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(ThrottledError):
        await store.write(Put(item("a"), ABSENT))
    assert await store.get(Key("p", "a")) is None
    other.rollback()
    other.close()
    await store.write(Put(item("a"), ABSENT))


async def test_reads_of_a_few_keys_switch_no_threads_once_a_connection_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine that is never slow."""
    store = SqliteItems(tmp_path / "t.db", fake_runtime())
    await store.create()
    keys = [Key("p", f"{number:03}") for number in range(20)]
    await store.load([item(key.sort) for key in keys])
    threads = []

    def noted(*arguments: Any) -> Any:
        threads.append(threading.get_ident())
        return fetch(*arguments)

    monkeypatch.setattr(sqlite_items, "fetch", noted)
    here = threading.get_ident()
    state = store._opened()
    state.connections.close_free()
    reads: list[tuple[Callable[[], Awaitable[object]], bool]] = [
        (lambda: store.get(keys[0]), False),  # opens a connection
        (lambda: store.get(keys[0]), True),
        (lambda: store.get_many(keys[:16]), True),
        (lambda: store.get_many(keys), False),
        (lambda: store.query("p"), False),
    ]
    for number, (read, on_the_loop) in enumerate(reads):
        threads.clear()
        assert await read()
        assert {thread == here for thread in threads} == {on_the_loop}, number
    await store.close()


async def test_only_the_commit_of_a_batch_switches_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an open connection. Where another program writes, the batch waits in a thread."""
    store = SqliteItems(tmp_path / "t.db", fake_runtime())
    await store.create()
    changed, committed = list[int](), list[int]()
    change, shrink = sqlite_items._change, sqlite_items._shrink

    def noted(*arguments: Any) -> Any:
        changed.append(threading.get_ident())
        return change(*arguments)

    def ended(connection: sqlite3.Connection) -> None:
        time.sleep(0.02)  # what does not wait for the end would be done before
        committed.append(threading.get_ident())
        shrink(connection)

    monkeypatch.setattr(sqlite_items, "_change", noted)
    monkeypatch.setattr(sqlite_items, "_shrink", ended)
    here = threading.get_ident()

    async def write(*names: str) -> list[bool]:
        changed.clear()
        committed.clear()
        await asyncio.gather(*(store.write(Put(item(name), ABSENT)) for name in names))
        assert len(committed) == 1
        assert committed[0] != here
        return [thread == here for thread in changed]

    assert await write("a") == [False]  # opens connections
    assert await write("b", "c", "d") == [True] * 3
    other = sqlite3.connect(tmp_path / "t.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    waiting = asyncio.create_task(write("e", "f"))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    other.execute("ROLLBACK")
    other.close()
    assert await waiting == [False] * 2
    assert len((await store.query("p")).items) == 6
    await store.close()


async def test_where_sqlite_would_wait_the_read_moves_to_a_thread(tmp_path: Path) -> None:
    """The lock of another program is waited for there, and the connection waits again."""
    store = await created(tmp_path)
    await store.write(Put(item("a"), ABSENT))
    connections = store._opened().connections

    def locked(connection: sqlite3.Connection) -> None:
        assert connection.execute("PRAGMA busy_timeout").fetchone() == (0,)
        raise sqlite3.OperationalError("database is locked")

    for _ in range(2):
        with pytest.raises(NotReadyError), connections.ready() as connection:
            locked(connection)
        with pytest.raises(NotReadyError), connections.ready():
            pytest.fail("the connection that failed is used again")
        assert await store.get(Key("p", "a")) == item("a")
    with connections.ready():
        pass
    with connections.borrowed() as connection:
        timeout = connection.execute("PRAGMA busy_timeout").fetchone()
    assert timeout == (1000 * sqlite_connections.BUSY_TIMEOUT,)
    await store.close()


def test_a_file_size_limit_is_no_space_and_loses_nothing(tmp_path: Path) -> None:
    asyncio.run(make_table(tmp_path))

    async def fill() -> None:
        store = SqliteItems(tmp_path / "t.db")
        for number in range(2000):
            try:
                await store.write(Put({**item(f"{number:05}"), "text": "x" * 1000}, ABSENT))
            except NoSpaceError:
                (tmp_path / "count").write_text(str(number))
                return

    def child() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
        asyncio.run(fill())

    assert fork_and_run(child) == 0

    async def count() -> int:
        store = SqliteItems(tmp_path / "t.db")
        items = (await store.query("p", limit=5000)).items
        await store.write(Put(item("after"), ABSENT))
        await store.close()
        return len(items)

    acknowledged = int((tmp_path / "count").read_text())
    assert acknowledged > 10
    assert asyncio.run(count()) == acknowledged


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (sqlite3.SQLITE_FULL, NoSpaceError),
        (sqlite3.SQLITE_READONLY, PermissionDeniedError),
        (sqlite3.SQLITE_CORRUPT, CorruptDataError),
        (sqlite3.SQLITE_NOTADB, NotAVolumeError),
        (sqlite3.SQLITE_BUSY, ThrottledError),
        (sqlite3.SQLITE_IOERR_FSYNC, ServiceError),
        (sqlite3.SQLITE_MISUSE, ServiceError),
    ],
)
def test_errors_of_sqlite_become_ours(tmp_path: Path, code: int, error: type[Exception]) -> None:
    foreign = sqlite3.OperationalError("as it says")
    foreign.sqlite_errorcode = code
    (tmp_path / "t.db").touch()
    with pytest.raises(error) as mapped, sqlite_errors(str(tmp_path / "t.db")):
        raise foreign
    assert mapped.value.__cause__ is foreign


def test_a_commit_that_could_not_be_synced_has_an_unknown_outcome(tmp_path: Path) -> None:
    foreign = sqlite3.OperationalError("disk I/O error")
    foreign.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
    with pytest.raises(ResponseLostError), sqlite_errors(str(tmp_path / "t.db"), committing=True):
        raise foreign


@pytest.mark.skipif(
    os.geteuid() != 0, reason="privileges can only be dropped by root; others are refused anyway"
)
def test_a_table_that_may_not_be_written(tmp_path: Path) -> None:
    async def prepare() -> None:
        store = await created(tmp_path)
        await store.write(Put(item("a"), ABSENT))
        await store.close()

    asyncio.run(prepare())
    for directory in (tmp_path, *tmp_path.parents):
        if directory.stat().st_uid == os.geteuid() and directory != Path("/"):
            directory.chmod(directory.stat().st_mode | 0o055)

    async def refused() -> None:
        store = SqliteItems(tmp_path / "t.db")
        with pytest.raises(PermissionDeniedError):
            await store.write(Put(item("b"), ABSENT))
        with pytest.raises(PermissionDeniedError):
            await SqliteItems(tmp_path / "new.db").create()

    def child() -> None:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        asyncio.run(refused())

    assert fork_and_run(child) == 0
    assert sorted(os.listdir(tmp_path)) == ["t.db", "t.db-ballast"]
