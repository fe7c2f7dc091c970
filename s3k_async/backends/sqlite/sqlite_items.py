"""The item port on SQLite: one file on a local disk, many processes, every acknowledged write
durable.

Format 1: `items` has one row for each item, its attributes besides the key as a JSON object; keys
compare by their UTF-8 bytes. The lower half of `segment` is the CRC-32 of the partition key, which
divides the table into the segments of a scan; the upper half is a checksum of the row. `tags` are
the table's tags, `tokens` the idempotency tokens of the last ten minutes.

A damaged row is served as an item, so that readers can find, name and remove it: see `sqlite_rows`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from functools import partial
from typing import TypeAlias, TypeVar

from s3k_async._core.concurrency import to_the_end
from s3k_async._core.file_modes import make_directories, open_private
from s3k_async._core.os_errors import os_errors, sync_directory
from s3k_async._core.runtime import SYSTEM, Runtime
from s3k_async._core.worker_threads import Threads
from s3k_async.backends.ballast import Ballast
from s3k_async.backends.batch_queue import BatchQueue, Steps, rounds_of
from s3k_async.backends.ports.item_semantics import (
    TOKEN_LIFE_MS,
    cursor_of,
    fingerprint,
    key_of,
    outcome,
    refusal,
    token_mismatch,
    validate,
    validate_load,
    validate_page,
    validate_segment,
    validate_transaction,
)
from s3k_async.backends.ports.items import (
    MAX_BATCH,
    PARTITION,
    SORT,
    Action,
    Check,
    Delete,
    Item,
    ItemPage,
    Key,
    Put,
    Update,
    Value,
)
from s3k_async.backends.sqlite.sqlite_connections import (
    APPLICATION_ID,
    BALLAST,
    FORMAT,
    Connections,
    NotReadyError,
    connect,
    sqlite_errors,
)
from s3k_async.backends.sqlite.sqlite_rows import (
    Row,
    bound,
    fetch,
    found_of,
    items_of,
    key_from,
    row_of,
)
from s3k_async.errors import S3kError, VolumeNotFoundError
from s3k_async.storage_space import StorageSpace

__all__ = ["BESIDES", "SqliteItems"]

T = TypeVar("T")
_Write: TypeAlias = Callable[[sqlite3.Connection], S3kError | None]

_PAGE = 1000
_READERS = 4
_FEW = 16
"""Keys that are read on the event loop."""
_PRUNED_A_WRITE = 100
_INCREMENTAL = 2
"""Value of `auto_vacuum` for a database that can be shrunk page by page."""
_PAGES_KEPT = 1024
"""Unused pages (of 4 KiB) kept for later writes,"""
_SHARE_KEPT = 0.25
"""or, of a larger table, this share of all pages."""
_PAGES_A_COMMIT = 256
"""Pages freed after one commit."""
_PAGES_REWRITTEN = 16_384
"""Used pages (64 MiB) up to which a database is rewritten: other writers may wait meanwhile, less
than their timeout."""
_RANK = 1
"""Rank of the queue of a table; that of files is 0, since calls write them first."""
_SELECT = "SELECT partition, sort, segment, attributes FROM items"
_PUT = "INSERT OR REPLACE INTO items VALUES (?, ?, ?, ?)"
BESIDES = ("-wal", "-shm", BALLAST)
"""The ends of the names of the files beside a database."""

_SCHEMA = f"""
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {FORMAT};
CREATE TABLE items (
    partition TEXT NOT NULL, sort TEXT NOT NULL, segment INTEGER NOT NULL, attributes TEXT NOT NULL,
    PRIMARY KEY (partition, sort)
) WITHOUT ROWID;
CREATE TABLE tags (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE tokens (
    token TEXT PRIMARY KEY, expiry INTEGER NOT NULL, actions BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX tokens_by_expiry ON tokens (expiry);
"""


class SqliteItems:
    """An ItemStore and ItemTable in the SQLite database at `path`, which must be on a local disk.

    Only `create` creates the file. Reads run in worker threads, those of a few keys on the event
    loop while they are fast; concurrent writes share a transaction. After a fork the child opens
    its own connections.
    """

    def __init__(self, path: str | os.PathLike[str], runtime: Runtime = SYSTEM) -> None:
        self._path = os.path.abspath(path)
        self._runtime = runtime
        self._threads = Threads(_READERS, runtime)
        self._state: _State | None = None

    def __repr__(self) -> str:
        return f"SqliteItems({self._path!r})"

    async def get(self, key: Key) -> Item | None:
        return await self._read_few(lambda connection: _select(connection, key))

    async def get_many(self, keys: Sequence[Key]) -> dict[Key, Item]:
        def found(connection: sqlite3.Connection) -> dict[Key, Item]:
            if len(keys) <= MAX_BATCH:
                at_once = _select_at_once(connection, keys)
                if at_once is not None:
                    return at_once
            items: dict[Key, Item] = {}
            connection.execute("BEGIN")  # the first query takes the snapshot
            for start in range(0, len(keys), MAX_BATCH):
                items |= _select_each(connection, keys[start : start + MAX_BATCH])
            connection.execute("COMMIT")
            return items

        return await (self._read_few if len(keys) <= _FEW else self._read)(found)

    async def write(self, action: Put | Update | Delete) -> None:
        validate(action)
        await self._apply(lambda connection: _change(connection, [action]))

    async def transact(self, actions: Sequence[Action], token: str) -> None:
        validate_transaction(actions, token)
        actions = list(actions)
        await self._apply(
            lambda connection: _transact(connection, actions, token, self._runtime.now_ms())
        )

    async def load(self, items: Sequence[Item]) -> None:
        rows = [_row(key, item) for key, item in zip(validate_load(items), items, strict=True)]

        def put(connection: sqlite3.Connection) -> None:
            connection.executemany(_PUT, rows)

        await self._apply(put)

    async def query(
        self,
        partition: str,
        *,
        cursor: str | None = None,
        after: str = "",
        limit: int | None = None,
    ) -> ItemPage:
        validate_page(limit)
        size = limit or _PAGE

        def page(connection: sqlite3.Connection) -> ItemPage:
            (here, place), (start, last) = bound(partition), bound(cursor or after)
            rows = fetch(
                connection,
                f"{_SELECT} WHERE partition = {here}"
                f" AND sort {'>' if cursor or after else '>='} {start} ORDER BY sort LIMIT ?",
                (place, last, size + 1),
            )
            following = key_from(rows[size - 1]).sort if len(rows) > size else None
            return ItemPage(items_of(rows[:size]), following)

        return await self._read(page)

    async def scan(
        self, segment: int, segments: int, *, cursor: str | None = None, limit: int | None = None
    ) -> ItemPage:
        validate_segment(segment, segments)
        validate_page(limit)
        size = limit or _PAGE
        after = Key("", "") if cursor is None else key_of(cursor)

        def page(connection: sqlite3.Connection) -> ItemPage:
            (partition, place), (sort, name) = map(bound, after)
            # Of a damaged segment the last bits count: every row is in exactly one segment of the
            # scan.
            rows = fetch(
                connection,
                f"{_SELECT} WHERE (partition, sort) {'>' if cursor else '>='} ({partition}, {sort})"
                " AND (segment & 0xFFFFFFFF) % ? = ? ORDER BY partition, sort LIMIT ?",
                (place, name, segments, segment, size + 1),
            )
            following = cursor_of(key_from(rows[size - 1])) if len(rows) > size else None
            return ItemPage(items_of(rows[:size]), following)

        return await self._read(page)

    async def close(self) -> None:
        state, self._state = self._state, None
        if state is not None and state.process == os.getpid():
            await to_the_end(partial(self._end, state))

    async def _end(self, state: _State) -> None:
        await state.drained()
        await self._threads.run(state.close)

    async def space(self) -> StorageSpace:
        """The file system of the database file."""
        with os_errors(self._path):
            return await self._read(lambda _: StorageSpace.of_disk(self._path))

    async def create(self) -> bool:
        return await self._threads.run(self._create)

    async def exists(self) -> bool:
        try:
            await self._read(lambda _: None)
        except VolumeNotFoundError:
            return False
        return True

    async def drop(self) -> None:
        await self._threads.run(self._drop)

    async def read_tag(self, name: str) -> str | None:
        def tag(connection: sqlite3.Connection) -> str | None:
            row = connection.execute("SELECT value FROM tags WHERE name = ?", (name,)).fetchone()
            return None if row is None else str(row[0])

        return await self._read(tag)

    async def write_tag(self, name: str, value: str) -> None:
        def tag(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT OR REPLACE INTO tags VALUES (?, ?)", (name, value))

        await self._apply(tag)

    def _opened(self) -> _State:
        state = self._state
        if state is None or state.process != os.getpid():
            self._state = state = _State(self._path, self._threads)
        return state

    async def _read(self, select: Callable[[sqlite3.Connection], T]) -> T:
        connections = self._opened().connections

        def read() -> T:
            with connections.borrowed() as connection:
                return select(connection)

        return await self._threads.run(read)

    async def _read_few(self, select: Callable[[sqlite3.Connection], T]) -> T:
        """As `_read`, for what SQLite answers from memory without a switch of threads."""
        connections = self._opened().connections

        def read() -> T:
            with connections.ready() as connection:
                return select(connection)

        try:
            return await self._threads.run_short(read)
        except NotReadyError:
            return await self._read(select)

    async def _apply(self, write: _Write) -> None:
        await self._opened().writes().submit(write)

    def _create(self) -> bool:
        while True:
            with os_errors(self._path), self._opened().connections.guarded():
                if os.path.lexists(self._path) and self._recognised():
                    return False
                if self._build():
                    return True

    def _build(self) -> bool:
        """Build the database in a temporary file and link it into place, so that it appears
        complete. False if another client's exists."""
        directory = os.path.dirname(self._path)
        building = f"{self._path}.{self._runtime.uuid()}.new"
        make_directories(directory)
        try:
            # SQLite gives its other files the mode of the database.
            os.close(open_private(building, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            database = connect(building, create=True)
            with closing(database):
                # `auto_vacuum` takes effect in an empty database only.
                database.executescript(
                    f"PRAGMA auto_vacuum=INCREMENTAL; PRAGMA journal_mode=WAL; BEGIN; {_SCHEMA} "
                    "COMMIT;"
                )
            os.link(building, self._path)
        except FileExistsError:
            return False
        finally:
            for suffix in ("", *BESIDES):
                _unlink(building + suffix)
        sync_directory(directory)
        Ballast(self._path + BALLAST).restore()
        return True

    def _recognised(self) -> bool:
        """Whether the file at the path is a table; leftovers of an interrupted drop are removed."""
        try:
            connect(self._path).close()
        except VolumeNotFoundError:
            self._unlink_files()
            return False
        return True

    def _drop(self) -> None:
        state = self._opened()
        with os_errors(self._path):
            try:
                with state.connections.borrowed() as connection:
                    connection.executescript(
                        "BEGIN EXCLUSIVE; DROP TABLE items; DROP TABLE tags; DROP TABLE tokens; "
                        "COMMIT;"
                        "PRAGMA wal_checkpoint(TRUNCATE);"
                    )
            except VolumeNotFoundError:
                if not os.path.lexists(self._path):
                    return
            state.connections.close()
            self._state = None
            self._unlink_files()

    def _unlink_files(self) -> None:
        # The database goes last: a new one must not find the write-ahead log of this one beside it.
        for suffix in (*BESIDES, ""):
            _unlink(self._path + suffix)
        sync_directory(os.path.dirname(self._path))


class _State:
    """State of one process: connections and the writer thread."""

    def __init__(self, path: str, threads: Threads) -> None:
        self.process = os.getpid()
        self.connections = Connections(path)
        self._path = path
        self._threads = threads
        self._executor = ThreadPoolExecutor(1, "s3k-writer")
        self._writes: dict[asyncio.AbstractEventLoop, BatchQueue[_Write, None]] = {}

    def writes(self) -> BatchQueue[_Write, None]:
        """The queue of the running event loop."""
        loop = asyncio.get_running_loop()
        queue = self._writes.get(loop)
        if queue is None:
            rounds = rounds_of(os.path.dirname(self._path))
            queue = BatchQueue(self._steps, self._threads, self._executor, rounds, rank=_RANK)
            self._writes[loop] = queue
        return queue

    async def drained(self) -> None:
        """Wait until all queued writes have ended."""
        loop = asyncio.get_running_loop()
        queue = self._writes.get(loop)
        if queue is not None:
            await queue.drained()
            self._writes.pop(loop, None)

    def close(self) -> None:
        """End the thread, and close the connections."""
        self._executor.shutdown()
        self.connections.close()

    def _steps(self, batch: Sequence[_Write]) -> Steps[None]:
        """One transaction. Its statements run on the event loop, and its commit in a thread. If a
        statement would wait, as for another process, or has failed, the whole transaction runs in a
        thread."""
        try:
            with ExitStack() as stack:
                connection = stack.enter_context(self.connections.ready())
                connection.execute("BEGIN IMMEDIATE")
                refusals = [write(connection) for write in batch]
                begun = stack.pop_all()
        except NotReadyError:
            (refusals,) = yield [partial(self._apply, batch)]
        else:
            # The fork gate is passed until the commit has ended, which needs no event loop.
            yield [partial(self._commit_begun, connection, begun)]
        return refusals

    def _apply(self, batch: Sequence[_Write]) -> list[S3kError | None]:
        with self.connections.borrowed() as connection:
            connection.execute("BEGIN IMMEDIATE")
            refusals = [write(connection) for write in batch]
            self._commit(connection)
            return refusals

    def _commit_begun(self, connection: sqlite3.Connection, begun: ExitStack) -> None:
        with begun:
            self._commit(connection)

    def _commit(self, connection: sqlite3.Connection) -> None:
        with sqlite_errors(self._path, committing=True):
            connection.execute("COMMIT")
        with suppress(sqlite3.Error):  # the writes are durable; the next commit tries again
            _shrink(connection)


def _shrink(connection: sqlite3.Connection) -> None:
    """Free some of the unused space, if there is much of it, a bounded amount after each commit."""
    free, pages, mode = (
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("freelist_count", "page_count", "auto_vacuum")
    )
    if free < _PAGES_KEPT or free < pages * _SHARE_KEPT:
        return
    if mode == _INCREMENTAL:
        # `execute` alone frees one page: each page is a row without columns.
        connection.executescript(f"PRAGMA incremental_vacuum({_PAGES_A_COMMIT})")
    elif pages - free <= _PAGES_REWRITTEN:
        # A table of an earlier version, without this mode, is rewritten once.
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        connection.execute("VACUUM")


def _unlink(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def _select(connection: sqlite3.Connection, key: Key) -> dict[str, Value] | None:
    where, values = _at(key)
    return found_of(fetch(connection, f"{_SELECT} WHERE {where}", values))


def _select_each(connection: sqlite3.Connection, keys: Sequence[Key]) -> dict[Key, Item]:
    """The items of the keys, as far as they exist."""
    found = _select_at_once(connection, keys)
    if found is not None:
        return found
    each = {key: _select(connection, key) for key in keys}
    return {key: item for key, item in each.items() if item is not None}


def _select_at_once(connection: sqlite3.Connection, keys: Sequence[Key]) -> dict[Key, Item] | None:
    """As `_select_each`, by one statement, which reads one snapshot; None for damage: several rows
    for a key, or a row with a different key."""
    if not keys:
        return {}
    places = [_at(key) for key in keys]
    rows = fetch(
        connection,
        " UNION ALL ".join(f"{_SELECT} WHERE {where}" for where, _ in places),
        [value for _, values in places for value in values],
    )
    items: dict[Key, Item] = dict(zip(map(key_from, rows), items_of(rows), strict=True))
    return items if len(items) == len(rows) and items.keys() <= set(keys) else None


def _at(key: Key) -> tuple[str, tuple[str | bytes, ...]]:
    """Condition and values of a query for a key: all its rows, though an intact table has one."""
    (partition, place), (sort, name) = map(bound, key)
    return f"partition = {partition} AND sort BETWEEN {sort} AND {sort}", (place, name, name)


def _change(connection: sqlite3.Connection, actions: Sequence[Action]) -> S3kError | None:
    """Apply all actions, or none and return the failed conditions."""
    current = [_select(connection, action.key) for action in actions]
    refused = refusal(actions, current)
    if refused is not None:
        return refused
    for action, before in zip(actions, current, strict=True):
        after = outcome(action, before)
        if isinstance(action, Delete):
            where, values = _at(action.key)
            # `where` has placeholders alone.
            connection.execute(f"DELETE FROM items WHERE {where}", values)  # noqa: S608
        elif after is not None and not isinstance(action, Check):
            connection.execute(_PUT, _row(action.key, after))
    return None


def _row(key: Key, item: Item) -> Row:
    attributes = json.dumps(
        {name: value for name, value in item.items() if name not in (PARTITION, SORT)}
    )
    return row_of(key, attributes)


def _transact(
    connection: sqlite3.Connection, actions: Sequence[Action], token: str, now_ms: int
) -> S3kError | None:
    wanted = hashlib.blake2b(fingerprint(actions).encode(), digest_size=16).digest()
    known = connection.execute(
        "SELECT actions, expiry FROM tokens WHERE token = ?", (token,)
    ).fetchone()
    if known is not None and known[1] > now_ms:
        return None if known[0] == wanted else token_mismatch(actions)
    refused = _change(connection, actions)
    if refused is None:
        connection.execute(
            "INSERT OR REPLACE INTO tokens VALUES (?, ?, ?)",
            (token, now_ms + TOKEN_LIFE_MS, wanted),
        )
        connection.execute(
            "DELETE FROM tokens"
            " WHERE token IN (SELECT token FROM tokens WHERE expiry <= ? LIMIT ?)",
            (now_ms, _PRUNED_A_WRITE),
        )
    return refused
