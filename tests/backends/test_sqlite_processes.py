"""SQLite in several processes: forks, kill -9, and threads that fork."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
import threading
import time
import weakref
from functools import partial
from pathlib import Path

import pytest

from s3k_async.backends.ports.items import ABSENT, Key, Put
from s3k_async.backends.sqlite.sqlite_connections import APPLICATION_ID, _gate
from s3k_async.backends.sqlite.sqlite_items import SqliteItems
from tests.backends.killed_writers import acknowledged
from tests.backends.sqlite_tables import created, item, make_table
from tests.support import fork_and_run

_INCREMENT = """
import asyncio, sys
from s3k_async.errors import ConditionFailedError, ThrottledError
from s3k_async.backends.ports.items import Condition, Key, Update
from s3k_async.backends.sqlite.sqlite_items import SqliteItems

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
    names = acknowledged(_ACKNOWLEDGE, tmp_path / "t.db", 100)
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
    asyncio.run(make_table(tmp_path))
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
    asyncio.run(make_table(tmp_path))

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
