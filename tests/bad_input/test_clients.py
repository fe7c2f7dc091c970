"""Clients and files used when, where or by whom they cannot be."""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async.client import S3kClient
from s3k_async.errors import S3kError
from tests.bad_input.kinds import CLOSED, FORKED, STREAM_CLOSED, UNSUPPORTED, WRONG_LOOP, Kind
from tests.bad_input.rows import (
    Row,
    Scene,
    check,
    check_error,
    check_line,
    drained,
    error_of,
    opened,
    reported,
    rows_of,
)
from tests.support import fork_and_run

VERBS: dict[str, Callable[[S3kClient], Awaitable[object]]] = {
    "stat": lambda fs: fs.stat("/file"),
    "exists": lambda fs: fs.exists("/file"),
    "list": lambda fs: drained(fs.list("/")),
    "walk": lambda fs: drained(fs.walk("/")),
    "glob": lambda fs: drained(fs.glob("/*")),
    "read": lambda fs: fs.read("/file"),
    "write": lambda fs: fs.write("/new", b""),
    "open": lambda fs: opened(fs, "/file"),
    "open for writing": lambda fs: opened(fs, "/new", "wb"),
    "makedirs": lambda fs: fs.makedirs("/new"),
    "rename": lambda fs: fs.rename("/file", "/new"),
    "delete": lambda fs: fs.delete("/file"),
    "copy": lambda fs: fs.copy("/file", "/new"),
    "touch": lambda fs: fs.touch("/file"),
}
"""A call of every kind."""


def shown(error: BaseException, kind: Kind, about: str) -> None:
    check_error(error, kind, about)
    check_line(reported(error), kind.exit, about)


@pytest.mark.parametrize("verb", VERBS)
def test_a_client_that_was_never_entered(scene: Scene, verb: str) -> None:
    shown(error_of(lambda: VERBS[verb](scene.client())), CLOSED, str(scene.volume))


@pytest.mark.parametrize("verb", VERBS)
def test_a_client_that_is_closed(scene: Scene, verb: str) -> None:
    async def late() -> None:
        async with scene.client() as fs:
            pass
        await VERBS[verb](fs)

    shown(error_of(late), CLOSED, str(scene.volume))


@pytest.mark.parametrize("verb", VERBS)
def test_a_client_of_another_loop(scene: Scene, verb: str) -> None:
    """The loop that entered it still runs, in another thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        fs = scene.client()
        asyncio.run_coroutine_threadsafe(fs.open_volume(), loop).result(20)
        try:
            shown(error_of(lambda: VERBS[verb](fs)), WRONG_LOOP, "volume")
        finally:
            asyncio.run_coroutine_threadsafe(fs.close(), loop).result(20)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)
        loop.close()


@pytest.mark.parametrize("verb", VERBS)
def test_a_client_of_a_loop_that_has_ended(scene: Scene, verb: str) -> None:
    fs = scene.client()

    async def run(work: Callable[[], Awaitable[object]]) -> None:
        await work()

    asyncio.run(run(fs.open_volume))
    shown(error_of(lambda: VERBS[verb](fs)), WRONG_LOOP, "volume")


def in_a_fork(work: Callable[[], object]) -> S3kError:
    """What the work raises in a forked child, sent home by a pickle."""
    here, there = os.pipe()

    def child() -> None:
        os.close(here)
        try:
            work()
        except Exception as error:  # noqa: BLE001 - it is for the parent to judge
            os.write(there, pickle.dumps(error))

    try:
        assert fork_and_run(child) == 0
    finally:
        os.close(there)
    with os.fdopen(here, "rb") as pipe:
        error: S3kError = pickle.loads(pipe.read())
    return error


@pytest.mark.parametrize("verb", VERBS)
def test_a_client_after_a_fork(scene: Scene, verb: str) -> None:
    async def forked() -> S3kError:
        async with scene.client() as fs:

            def child() -> None:
                asyncio.events._set_running_loop(None)
                asyncio.run(call(fs))

            return in_a_fork(child)

    async def call(fs: S3kClient) -> None:
        await VERBS[verb](fs)

    shown(asyncio.run(forked()), FORKED, "volume")


async def read_a_closed_reader(fs: S3kClient) -> None:
    async with fs.open("/file") as file:
        pass
    await file.read()


async def write_after_closing(fs: S3kClient) -> None:
    file = await fs.open("/file", "wb")
    await file.discard()
    await file.write(b"x")


async def enter_twice(fs: S3kClient) -> None:
    async with fs:
        pass


FILES = (
    Row("reader that is closed", STREAM_CLOSED, "/file", read_a_closed_reader),
    Row("writer that was discarded", STREAM_CLOSED, "/file", write_after_closing),
    Row("client entered twice", UNSUPPORTED, "volume", enter_twice),
)


@rows_of(*FILES)
def test_row(row: Row, scene: Scene, tmp_path: Path) -> None:
    check(row, scene, tmp_path)


async def test_a_file_whose_client_is_closed(scene: Scene) -> None:
    async with scene.client() as fs:
        reader = await fs.open("/file")
        writer = await fs.open("/file", "wb")
    for call in (
        reader.read,
        lambda: reader.read_at(0, 1),
        lambda: writer.write(b"x"),
        writer.commit,
    ):
        with pytest.raises(Exception) as caught:  # noqa: PT011 - `shown` says which one
            await call()
        shown(caught.value, CLOSED, str(scene.volume))


def blocking(scene: Scene) -> S3kSyncClient:
    return S3kSyncClient(scene.volume)


def test_a_blocking_client_that_is_closed(scene: Scene) -> None:
    fs = blocking(scene)
    with fs:
        reader = fs.open("/file")
    for call in (
        lambda: fs.read("/file"),
        lambda: list(fs.list("/")),
        lambda: fs.write("/new", b""),
        reader.read,
    ):
        with pytest.raises(Exception) as caught:  # noqa: PT011 - `shown` says which one
            call()
        shown(caught.value, CLOSED, "volume")


def test_a_blocking_file_that_is_closed(scene: Scene) -> None:
    with blocking(scene) as fs:
        with fs.open("/file") as reader:
            pass
        writer = fs.open("/file", "wb")
        writer.discard()
        for call in (
            reader.read,
            lambda: reader.seek(0),
            lambda: reader.read_at(0, 1),
            lambda: writer.write(b"x"),
        ):
            with pytest.raises(Exception) as caught:  # noqa: PT011 - `shown` says which one
                call()
            shown(caught.value, STREAM_CLOSED, "/file")


def test_a_blocking_file_after_a_fork(scene: Scene) -> None:
    with blocking(scene) as fs, fs.open("/file") as reader:
        shown(in_a_fork(reader.read), FORKED, "/file")


def test_a_blocking_call_from_its_own_callback(scene: Scene, tmp_path: Path) -> None:
    with blocking(scene.copied(tmp_path)) as fs:
        with pytest.raises(Exception) as caught:  # noqa: PT011 - `shown` says which one
            fs.copy("/dir/sub", "/new", recursive=True, progress=lambda _: fs.exists("/file"))
        shown(caught.value, WRONG_LOOP, "callback")
