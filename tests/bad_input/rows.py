"""The bad-input table: what a row says, and what every row has to show.

An error is one of ours and the builtin a caller expects, names what it is about, survives pickling,
has its exit code and one line on the command line, and leaves the volume as it was.
"""

from __future__ import annotations

import asyncio
import io
import pickle
import shutil
import sqlite3
from collections.abc import Awaitable, Callable, Iterable
from contextlib import closing, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import pytest

from s3k_async import errors
from s3k_async.cli import main
from s3k_async.cli.reporting import report
from s3k_async.client import S3kClient
from s3k_async.errors import S3kError
from s3k_async.volumes import Volume, open_volume
from tests.bad_input.kinds import Kind

__all__ = [
    "BOUND",
    "Call",
    "Ran",
    "Row",
    "Scene",
    "changes",
    "check",
    "check_error",
    "check_line",
    "drained",
    "edit",
    "error_of",
    "opened",
    "reported",
    "rows_of",
    "run_command",
    "snapshot",
    "sql",
]

BOUND = 20.0
"""Seconds after which a call that should have failed has hung."""


@dataclass(frozen=True)
class Scene:
    """An embedded volume in which a row is played, and places beside it. `{vol}`, `{local}` and
    `{out}` in a row's texts are the volume's directory, a local file and a local path where nothing
    is."""

    root: Path

    @property
    def volume(self) -> Path:
        return self.root / "volume"

    @property
    def local(self) -> Path:
        return self.root / "local"

    @property
    def out(self) -> Path:
        return self.root / "out"

    def text(self, template: str) -> str:
        for name, path in (
            ("vol", self.volume),
            ("local", self.local),
            ("out", self.out),
            ("root", self.root),
        ):
            template = template.replace(f"{{{name}}}", str(path))
        return template

    def client(self, **settings: Any) -> S3kClient:
        return S3kClient(
            self.volume, retry_attempts=3, retry_base=0.001, retry_cap=0.001, **settings
        )

    def copied(self, root: Path) -> Scene:
        """The same scene at another place, for a row that damages it."""
        shutil.copytree(self.root, root, dirs_exist_ok=True)
        return Scene(root)


Call: TypeAlias = Callable[[S3kClient], Awaitable[object]]


@dataclass(frozen=True)
class Row:
    """One row of the table: what is done to an open volume, and what must come of it."""

    name: str
    kind: Kind
    about: str
    """What the message must hold: a path, or the volume, table, bucket or key."""
    call: Call
    command: str = ""
    """The same on the command line; empty where a command cannot say it, and then the error is
    reported as one."""
    told: str = ""
    """What the command's line must hold, where that is not what the call's message holds."""
    arrange: Callable[[Scene], None] | None = None
    """The damage, done to a copy."""
    settings: tuple[tuple[str, object], ...] = ()
    """Settings of the client, with which it may not open at all."""


def rows_of(*rows: Row) -> pytest.MarkDecorator:
    """Parametrise a test over rows."""
    names = [row.name for row in rows]
    assert len(set(names)) == len(names)
    return pytest.mark.parametrize("row", rows, ids=[name.replace(" ", "-") for name in names])


def check(row: Row, scene: Scene, tmp_path: Path) -> None:
    """Play a row and require all that the table promises."""
    if row.arrange is not None:
        scene = scene.copied(tmp_path)
        row.arrange(scene)
    before = snapshot(scene.root)
    settings = {
        name: scene.text(value) if isinstance(value, str) else value for name, value in row.settings
    }

    async def play() -> None:
        async with scene.client(**settings) as fs:
            await row.call(fs)

    error = error_of(play)
    about = scene.text(row.about)
    check_error(error, row.kind, about)
    assert changes(before, snapshot(scene.root)) == []
    ran = run_command(*map(scene.text, row.command.split(" "))) if row.command else reported(error)
    check_line(ran, row.kind.exit, scene.text(row.told) or about)
    assert changes(before, snapshot(scene.root)) == []


def error_of(play: Callable[[], Awaitable[object]]) -> Exception:
    """What a call raises, in a loop of its own and in bounded time."""

    async def bounded() -> None:
        with anyio.fail_after(BOUND):
            await play()

    with pytest.raises(Exception) as caught:  # noqa: PT011 - which one it is, is what `check_error` is about
        asyncio.run(bounded())
    return caught.value


def check_error(error: BaseException, kind: Kind, about: str) -> None:
    """The error is of the kind, says what it is about, and survives pickling."""
    wanted = kind.error
    if type(error) is not wanted:
        raise AssertionError(
            f"{type(error).__name__} instead of {wanted.__name__}: {error}"
        ) from error
    assert isinstance(error, S3kError)
    assert isinstance(error, kind.builtin)
    assert about in str(error)
    assert getattr(errors, wanted.__name__) is wanted
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is wanted
    assert (again.path, again.message, str(again), again.code) == (
        error.path,
        error.message,
        str(error),
        error.code,
    )
    assert again.args == error.args
    if isinstance(error, OSError):
        assert (again.errno, again.strerror, again.filename) == (
            error.errno,
            error.strerror,
            error.filename,
        )


@dataclass(frozen=True)
class Ran:
    """What a command came to."""

    code: int
    stdout: bytes
    stderr: str


def run_command(*arguments: str) -> Ran:
    """Run `s3k` in this process."""
    return _captured(lambda: main(arguments))


def reported(error: BaseException) -> Ran:
    """What a command would make of an error that it met."""
    return _captured(lambda: report(error, as_json=False, debug=False))


def _captured(work: Callable[[], int]) -> Ran:
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err):
        code = work()
    out.flush()
    err.flush()
    return Ran(int(code), _bytes(out), _bytes(err).decode())


def _bytes(stream: io.TextIOWrapper) -> bytes:
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue()


def check_line(ran: Ran, code: int, about: str) -> None:
    """One line for the user, with the exit code that belongs to it."""
    assert ran.code == code, ran.stderr
    lines = ran.stderr.splitlines()
    assert len(lines) == 1, ran.stderr
    assert lines[0].startswith("s3k: ")
    assert about in lines[0]
    assert not lines[0].startswith("s3k: internal error")
    assert "Traceback" not in ran.stderr


Snapshot: TypeAlias = dict[str, object]


_BESIDES = ("-wal", "-shm", "/.tmp/lock", "/audit/last/fsck_verify")


def snapshot(root: Path) -> Snapshot:
    """Every item and tag of every table, and the bytes of every other file below a directory,
    except the record of the last `fsck verify`, which every run replaces."""
    found: Snapshot = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.suffix == ".sqlite" and path.is_file():
            found |= _table(path, name)
        elif path.is_file() and not name.endswith(_BESIDES):
            found[name] = path.read_bytes()
    return found


def _table(database: Path, name: str) -> Snapshot:
    """What a table holds; the file's bytes if it is none."""
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=rw", uri=True)) as connection:
            items = connection.execute("SELECT partition, sort, attributes FROM items").fetchall()
            tags = connection.execute("SELECT 'tag', name, value FROM tags").fetchall()
    except sqlite3.DatabaseError:
        return {name: database.read_bytes()}
    return {f"{name}: {partition} / {sort}": value for partition, sort, value in (*items, *tags)}


def changes(before: Snapshot, after: Snapshot) -> list[tuple[str, object, object]]:
    """What differs: its name, how it was, how it is."""
    names = sorted(before.keys() | after.keys())
    return [
        (name, before.get(name), after.get(name))
        for name in names
        if before.get(name) != after.get(name)
    ]


async def opened(fs: S3kClient, path: str, mode: str = "rb") -> None:
    """Open a file and close it."""
    async with fs.open(path, mode):
        pass


async def drained(values: Any) -> list[object]:
    """Everything that a listing gives."""
    return [value async for value in values]


def edit(scene: Scene, change: Callable[[Volume], Awaitable[object]]) -> None:
    """Change something behind the client's back, through the volume's own parts."""

    async def run() -> None:
        volume = await open_volume(scene.client().config)
        try:
            await change(volume)
        finally:
            await volume.close()

    asyncio.run(run())


def sql(scene: Scene, *statements: str) -> None:
    """Change the table behind everybody's back."""
    with closing(sqlite3.connect(scene.volume / "metadata.sqlite")) as database:
        for statement in statements:
            assert database.execute(statement).rowcount > 0, statement
        database.commit()


def only(found: Iterable[Path]) -> Path:
    """The one there is."""
    (one,) = found
    return one
