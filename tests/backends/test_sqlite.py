"""SQLite: many processes, forks, kill -9, and everything that can be wrong with a file."""

from __future__ import annotations

import asyncio
import os
import resource
import select
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from s3k_async.backends.ports.items import ABSENT, Condition, Delete, Item, Key, Put, Update
from s3k_async.backends.sqlite import sqlite_connections, sqlite_items
from s3k_async.backends.sqlite.sqlite_connections import (
    APPLICATION_ID,
    NotReadyError,
    _gate,
    sqlite_errors,
)
from s3k_async.backends.sqlite.sqlite_items import SqliteItems
from s3k_async.backends.sqlite.sqlite_rows import fetch
from s3k_async.backends.write_queue import WriteQueue
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
from tests.support import FakeClock, fake_runtime, fork_and_run


def item(sort: str, ver: int = 1, partition: str = "p") -> Item:
    return {"path": partition, "children": sort, "ver": ver, "isdir": False}


async def created(path: Path) -> SqliteItems:
    store = SqliteItems(path / "t.db")
    assert await store.create()
    return store


async def make(path: Path) -> None:
    await (await created(path)).close()


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
    asyncio.run(make(tmp_path))

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


# Processes

_INCREMENT = """
import asyncio, sys
from s3k_async.errors import ConditionFailedError, ThrottledError
from s3k_async.backends.ports.items import Condition, Key, Update
from s3k_async.backends.sqlite.sqlite_items import SqliteItems
from s3k_async.backends.sqlite.sqlite_rows import fetch

async def main():
    store, key = SqliteItems(sys.argv[1]), Key("p", "a")
    done = 0
    while done < 40:
        ver = (await store.get(key))["ver"]
        try:
            await store.write(Update(key, Condition(equals={"ver": ver}), {"ver": ver + 1}))
            done += 1
        except (ConditionFailedError, ThrottledError):
            pass
    await store.close()

asyncio.run(main())
"""


async def test_processes_that_increment_one_item_lose_no_update(tmp_path: Path) -> None:
    store = await created(tmp_path)
    await store.write(Put(item("a", 0), ABSENT))
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", _INCREMENT, str(tmp_path / "t.db")
        )
        for _ in range(4)
    ]
    assert [await process.wait() for process in processes] == [0] * 4
    assert await store.get(Key("p", "a")) == item("a", 160)
    await store.close()


_ACKNOWLEDGE = """
import asyncio, sys
from s3k_async.backends.ports.items import ABSENT, Put
from s3k_async.backends.sqlite.sqlite_items import SqliteItems
from s3k_async.backends.sqlite.sqlite_rows import fetch

async def main():
    store = SqliteItems(sys.argv[1])
    async def write(name):
        await store.write(Put({"path": "p", "children": name, "ver": 1}, ABSENT))
        sys.stdout.write(name + "\\n")
        sys.stdout.flush()
    number = 0
    while True:
        await asyncio.gather(*(write(f"{number + offset:06}") for offset in range(8)))
        number += 8

asyncio.run(main())
"""


async def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    await (await created(tmp_path)).close()
    process = subprocess.Popen(  # noqa: ASYNC220 - the pipe is read as it fills
        [sys.executable, "-c", _ACKNOWLEDGE, str(tmp_path / "t.db")], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    acknowledged = b""
    while acknowledged.count(b"\n") < 100:
        select.select([process.stdout], [], [], 20)
        acknowledged += os.read(process.stdout.fileno(), 65536)
    process.send_signal(signal.SIGKILL)
    acknowledged += process.stdout.read()
    process.stdout.close()
    assert process.wait() == -signal.SIGKILL
    names = acknowledged.decode().splitlines()
    if not acknowledged.endswith(b"\n"):
        names.pop()
    store = SqliteItems(tmp_path / "t.db")
    assert len(await store.get_many([Key("p", name) for name in names])) == len(names) >= 100
    await store.write(Put(item("after"), ABSENT))
    await store.close()
    database = sqlite3.connect(tmp_path / "t.db")
    assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    database.close()


async def test_parent_and_forked_child_both_go_on(tmp_path: Path) -> None:
    store = await created(tmp_path)
    await store.write(Put(item("a"), ABSENT))

    async def in_child() -> None:
        assert await store.get(Key("p", "a")) == item("a")
        await store.write(Put(item("child"), ABSENT))
        await store.close()

    assert fork_and_run(lambda: asyncio.run(in_child())) == 0
    assert await store.get(Key("p", "child")) == item("child")
    await store.write(Put(item("parent"), ABSENT))
    await store.close()


class Tracked(sqlite3.Connection):
    """A connection whose end can be seen through a weak reference."""


def test_no_connection_is_open_while_a_fork_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Tracked))

    async def use() -> SqliteItems:
        store = await created(tmp_path)
        await store.write(Put(item("a"), ABSENT))
        return store

    store = asyncio.run(use())
    assert store._state is not None
    pool = store._state.connections
    references = [weakref.ref(connection) for _, connection in (*pool._free, *pool._prompt)]
    assert references

    def child() -> None:
        assert all(reference() is None for reference in references)
        asyncio.run(store.close())

    assert fork_and_run(child) == 0
    asyncio.run(store.close())


async def test_a_child_that_only_closes_or_exits_does_the_parents_database_no_harm(
    tmp_path: Path,
) -> None:
    store = await created(tmp_path)
    await store.write(Put(item("a"), ABSENT))
    assert fork_and_run(lambda: asyncio.run(store.close())) == 0
    script = (
        "import asyncio, os, sys\n"
        "from s3k_async.backends.ports.items import ABSENT, Put\n"
        "from s3k_async.backends.sqlite.sqlite_items import SqliteItems\n"
        "store = SqliteItems(sys.argv[1])\n"
        "put = lambda name: Put({'path': 'p', 'children': name, 'ver': 1}, ABSENT)\n"
        "async def main():\n"
        "    await store.write(put('before'))\n"
        "asyncio.run(main())\n"
        "child = os.fork()\n"
        "if child:\n"  # the child ends as a whole interpreter does, destructors included
        "    assert os.waitpid(child, 0)[1] == 0\n"
        "    asyncio.run(store.write(put('behind')))\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, str(tmp_path / "t.db")
    )
    assert await process.wait() == 0
    assert len((await store.query("p")).items) == 3
    await store.close()


def test_a_fork_while_a_thread_is_in_the_store_hangs_nobody(tmp_path: Path) -> None:
    asyncio.run(make(tmp_path))
    store = SqliteItems(tmp_path / "t.db")
    stop = threading.Event()
    ready = threading.Event()

    async def busy() -> None:
        number = 0
        while not stop.is_set():
            await asyncio.gather(
                store.write(Put(item(f"busy-{number}"), ABSENT)),
                store.get(Key("p", "a")),
                store.query("p"),
            )
            number += 1
            ready.set()
        await store.close()

    async def in_child(number: int) -> None:
        await store.write(Put(item(f"child-{number}"), ABSENT))
        assert await store.get(Key("p", f"child-{number}")) is not None

    thread = threading.Thread(target=lambda: asyncio.run(busy()))
    thread.start()
    assert ready.wait(20)

    def child(number: int) -> None:
        asyncio.run(in_child(number))

    codes = [fork_and_run(partial(child, number)) for number in range(20)]
    stop.set()
    thread.join()
    assert codes == [0] * 20
    items = asyncio.run(store.query("p", limit=10_000)).items
    asyncio.run(store.close())
    assert sum(str(found["children"]).startswith("child-") for found in items) == 20


def test_two_threads_that_fork_let_nobody_in_between(tmp_path: Path) -> None:
    asyncio.run(make(tmp_path))

    def child() -> None:
        gate = _gate()
        second, inside = threading.Event(), threading.Event()

        def fork_too() -> None:
            gate._close()
            second.set()

        def use() -> None:
            with gate:
                inside.set()

        gate._close()
        threading.Thread(target=fork_too, daemon=True).start()
        assert not second.wait(0.2)
        gate._open()
        assert second.wait(10)
        threading.Thread(target=use, daemon=True).start()
        assert not inside.wait(0.2)
        gate._open()
        assert inside.wait(10)

    assert fork_and_run(child) == 0


def test_a_fork_while_a_table_is_made_once_more_hangs_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else's appeared and was dropped meanwhile."""
    link = os.link
    forking: list[threading.Thread] = []

    def beaten(source: str, target: str) -> None:
        monkeypatch.setattr(os, "link", link)
        half_dropped = sqlite3.connect(target)
        half_dropped.execute(f"PRAGMA application_id={APPLICATION_ID}")
        half_dropped.close()
        # Python 3.13 starts no thread that was made before the fork.
        forking.append(threading.Thread(target=lambda: fork_and_run(lambda: None)))
        forking[0].start()
        while not _gate()._forking:
            time.sleep(0.001)
        raise FileExistsError

    def child() -> None:
        monkeypatch.setattr(os, "link", beaten)
        assert asyncio.run(SqliteItems(tmp_path / "t.db").create())
        forking[0].join()

    assert fork_and_run(child) == 0


# The queue of writes


def test_a_write_that_was_cancelled_before_its_turn_is_dropped() -> None:
    hold, begun = threading.Event(), threading.Event()
    applied: list[int] = []

    def commit(batch: object) -> list[None]:
        assert isinstance(batch, list)
        begun.set()
        hold.wait(20)
        applied.extend(batch)
        return [None] * len(batch)

    queue: WriteQueue[int, None] = WriteQueue(commit)
    queue.submit(1)
    assert begun.wait(20)
    second, third = queue.submit(2), queue.submit(3)
    assert second.cancel()
    hold.set()
    third.result(20)
    queue.close()
    assert applied == [1, 3]


def test_a_failed_commit_fails_every_write_of_the_batch_with_an_error_of_its_own() -> None:
    hold, begun = threading.Event(), threading.Event()
    batches: list[int] = []

    def commit(batch: object) -> list[None]:
        assert isinstance(batch, list)
        begun.set()
        hold.wait(20)
        batches.append(len(batch))
        if len(batch) > 1:
            raise NoSpaceError("full", path="t") from sqlite3.OperationalError("full")
        return [None] * len(batch)

    queue: WriteQueue[int, None] = WriteQueue(commit)
    first = queue.submit(0)
    assert begun.wait(20)
    rest = [queue.submit(number) for number in range(1, 600)]
    hold.set()
    assert first.result(20) is None
    errors = [future.exception(20) for future in rest]
    assert all(isinstance(error, NoSpaceError) and error.__cause__ is not None for error in errors)
    assert len({id(error) for error in errors}) == len(errors)
    queue.close()
    assert sum(batches) == 600
    assert max(batches) > 100


def test_the_writing_thread_ends_with_the_queue() -> None:
    queue: WriteQueue[int, None] = WriteQueue(lambda batch: [None] * len(batch))
    futures = [queue.submit(number) for number in range(1000)]
    queue.close()
    assert all(future.done() for future in futures)
    assert queue._thread is not None
    assert not queue._thread.is_alive()
