"""What sessions run in the background of their loops."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any, cast

import anyio
import pytest

from s3k_async.adapters import sessions
from s3k_async.adapters.fsspec import S3kFileSystem
from s3k_async.adapters.sessions import post_on
from s3k_async.client import S3kClient
from s3k_async.errors import ServiceError
from s3k_async.volumes import init_volume
from tests.client.rig import memory_config


@pytest.fixture
def fs() -> Iterator[S3kFileSystem]:
    config = memory_config()
    anyio.run(lambda: init_volume(config))
    fs = S3kFileSystem(config=config, skip_instance_cache=True)
    yield fs
    fs.close_session()


@pytest.mark.parametrize("error", [ServiceError("down", service_code="X"), RuntimeError("broken")])
async def test_a_failure_behind_an_abandoned_object_is_logged(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> None:
        raise error

    post_on(asyncio.get_running_loop(), fail)
    await anyio.wait_all_tasks_blocked()
    (record,) = caplog.records
    assert record.name == "s3k_async.adapters.sessions"
    assert str(error) in record.getMessage()
    assert bool(record.exc_info) == isinstance(error, RuntimeError)


def test_a_loop_that_ends_meanwhile_does_not_keep_the_filesystem_from_closing(
    fs: S3kFileSystem,
) -> None:
    busy, released = threading.Event(), threading.Event()
    loop = asyncio.new_event_loop()

    def last() -> None:
        busy.set()
        released.wait(60)
        loop.stop()  # before the callbacks that were scheduled meanwhile

    def run() -> None:
        loop.run_until_complete(fs._pipe_file("/a", b"1"))
        loop.call_soon(last)
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    running = threading.Thread(target=run, daemon=True)
    closing = threading.Thread(target=fs.close_session, daemon=True)
    running.start()
    assert busy.wait(60)
    closing.start()
    time.sleep(0.2)
    released.set()
    for thread in (running, closing):
        thread.join(60)
        assert not thread.is_alive()
    assert fs.cat("/a") == b"1"


def test_a_loop_that_is_closed_before_the_call_reaches_it() -> None:
    """It may not even close its generators; then nothing answers."""
    busy, released = threading.Event(), threading.Event()
    loop = asyncio.new_event_loop()

    def last() -> None:
        busy.set()
        released.wait(60)
        loop.stop()

    def run() -> None:
        loop.call_soon(last)
        loop.run_forever()
        loop.close()

    class Session:
        def __init__(self) -> None:
            self.loop = loop

        async def close(self) -> None:
            raise AssertionError("the loop does not run any more")

    running = threading.Thread(target=run, daemon=True)
    closing = threading.Thread(
        target=lambda: asyncio.run(sessions._close_from_here(cast(Any, Session()))), daemon=True
    )
    running.start()
    assert busy.wait(60)
    closing.start()
    time.sleep(0.2)
    released.set()
    for thread in (running, closing):
        thread.join(60)
        assert not thread.is_alive()


def test_a_loop_that_closes_its_generators_meanwhile(fs: S3kFileSystem) -> None:
    async def work() -> None:
        await fs._pipe_file("/a", b"1")
        ending = asyncio.create_task(asyncio.get_running_loop().shutdown_asyncgens())
        for _ in range(3):
            await asyncio.sleep(0)
        await fs.close()
        await ending

    asyncio.run(work())
    assert fs.cat("/a") == b"1"


def test_a_loop_whose_tasks_are_cancelled_does_not_keep_the_filesystem_from_closing(
    fs: S3kFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(fs._pipe_file("/a", b"1"), loop).result()
    close, cancelled = S3kClient.close, list[int]()

    async def closing(client: S3kClient, **options: Any) -> None:
        if asyncio.get_running_loop() is loop and not cancelled:
            cancelled.append(1)
            for task in asyncio.all_tasks():
                task.cancel()
        await close(client, **options)

    monkeypatch.setattr(S3kClient, "close", closing)
    fs.close_session()
    assert cancelled
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


def test_several_threads_forget_ended_loops(fs: S3kFileSystem) -> None:
    sessions = fs._sessions

    class Ended(asyncio.SelectorEventLoop):
        """A loop that another thread forgets concurrently."""

        def is_closed(self) -> bool:
            closed = super().is_closed()
            if closed:
                sessions._known.clear()
            return closed

    loop = Ended()
    loop.run_until_complete(fs._pipe_file("/a", b"1"))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
    assert fs.cat("/a") == b"1"
