"""The clients of one filesystem object: one for each process and event loop, opened on first use.

A client belongs to its loop and process. Libraries call from several loops (their own, fsspec's, a
notebook's) and fork at any time; so a client is never shared between loops, and a forked child
neither uses nor finalises inherited ones.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import logging
import os
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from s3k_async._core.observation import Metrics
from s3k_async.client import HURRY, S3kClient
from s3k_async.config import VolumeConfig
from s3k_async.errors import S3kError

__all__ = ["Sessions", "post_on"]

_LOG = logging.getLogger(__name__)

EXIT_SECONDS: Final = 10.0
"""Limit for closing a client at the interpreter's exit, seconds."""

LOOP_SECONDS: Final = 0.1
"""Interval of the checks that a loop still runs, seconds."""

_open: Final[set[_LoopSession]] = set()
"""Open clients, those of parent processes included, so that a child never finalises them."""


_posted: Final[set[asyncio.Task[None]]] = set()
"""Strong references, since a loop's own to its tasks are weak."""


def post_on(loop: asyncio.AbstractEventLoop, call: Callable[[], Awaitable[object]]) -> None:
    """Schedule `call()` on a loop, if the loop still runs, without waiting. For finalisers, on any
    thread of the loop's process."""

    async def posted() -> None:
        try:
            await call()
        except Exception as error:  # noqa: BLE001 - no caller waits for it
            _LOG.warning(
                "cleaning up behind an abandoned object failed: %s",
                error,
                exc_info=None if isinstance(error, S3kError) else error,
            )

    def start() -> None:
        task = loop.create_task(posted())
        _posted.add(task)
        task.add_done_callback(_posted.discard)

    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(start)


class _LoopSession:
    """A client on the running loop."""

    def __init__(
        self, config: VolumeConfig, aws: object, metrics: Metrics | Sequence[Metrics] | None
    ) -> None:
        self.pid = os.getpid()
        self.loop = asyncio.get_running_loop()
        self.client = S3kClient(config=config, session=aws, metrics=metrics)
        self._opening = asyncio.Lock()
        self._life: AsyncGenerator[None, None] | None = None

    async def opened(self) -> S3kClient:
        """The client, open."""
        if self.client.closed:
            async with self._opening:
                if self.client.closed:
                    self._life = self._lifetime()
                    await anext(self._life)
        return self.client

    async def close(
        self,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - bounds a part of it
    ) -> None:
        """Close the client, as `S3kClient.close`; a later use opens it again."""
        async with self._opening:
            life, self._life = self._life, None
            if life is None:
                return
            # Not by the generator, which the end of the loop may close concurrently.
            try:
                await self.client.close(timeout=timeout)
            finally:
                with suppress(RuntimeError):  # the end of the loop is closing it
                    await life.aclose()

    async def _lifetime(self) -> AsyncGenerator[None, None]:
        """An asynchronous generator, because `asyncio.run` closes a loop's generators before the
        loop ends: libraries need not close their filesystems."""
        await self.client.open_volume()
        _open.add(self)
        atexit.unregister(_close_all)
        atexit.register(_close_all)
        try:
            yield
        finally:
            _open.discard(self)
            await self.client.close()


class Sessions:
    """The clients of one filesystem object."""

    def __init__(
        self, config: VolumeConfig, aws: object, metrics: Metrics | Sequence[Metrics] | None
    ) -> None:
        self._config = config
        self._aws = aws
        self._metrics = metrics
        self._known: dict[tuple[int, asyncio.AbstractEventLoop], _LoopSession] = {}

    async def client(self) -> S3kClient:
        """The open client of this process and of the running loop. Raises the errors of opening the
        volume."""
        key = os.getpid(), asyncio.get_running_loop()
        session = self._known.get(key)
        if session is None:
            self._forget_ended_loops()
            session = self._known[key] = _LoopSession(self._config, self._aws, self._metrics)
        return await session.opened()

    @property
    def name(self) -> str:
        """The volume's name, empty before it is known."""
        names = (session.client.name for session in list(self._known.values()))
        return self._config.name or next(filter(None, names), "")

    def of_this_process(self) -> list[_LoopSession]:
        """The sessions of this process."""
        return [session for (pid, _), session in list(self._known.items()) if pid == os.getpid()]

    async def close(self) -> None:
        """Close all clients of this process, each on its loop; a later use opens them again."""
        here = asyncio.get_running_loop()
        for session in self.of_this_process():
            if session.loop is here:
                await session.close()
            else:
                await _close_from_here(session)

    def abandon_with(self, owner: object) -> None:
        """Close the clients when `owner` is collected; they are closed at the interpreter's exit
        anyway."""
        weakref.finalize(owner, _abandon, self._known).atexit = False

    def _forget_ended_loops(self) -> None:
        for key in list(self._known):
            if key[0] == os.getpid() and key[1].is_closed():
                ended = self._known.pop(key, None)
                if ended is not None:  # else another thread has done so
                    _open.discard(ended)


async def _close_from_here(session: _LoopSession) -> None:
    """Close a session of another thread's loop, if the loop runs. The end of the loop closes the
    session, too, and may leave this call of `close` without a result."""
    ended: concurrent.futures.Future[None] = concurrent.futures.Future()

    async def close() -> None:
        try:
            await session.close()
        except Exception as error:  # noqa: BLE001 - raised in the caller
            ended.set_exception(error)
        except BaseException:
            ended.set_result(None)  # cancelled, as all tasks of a loop that is about to end
            raise
        else:
            ended.set_result(None)

    if not session.loop.is_running():
        return
    post_on(session.loop, close)
    answer = asyncio.wrap_future(ended)
    while session.loop.is_running() and not answer.done():
        await asyncio.wait([answer], timeout=LOOP_SECONDS)
    if answer.done():
        answer.result()


def _abandon(known: dict[tuple[int, asyncio.AbstractEventLoop], _LoopSession]) -> None:
    for session in list(known.values()):
        if session.pid == os.getpid():
            post_on(session.loop, session.close)


def _close_all() -> None:
    """At the interpreter's exit. Failures are ignored: no caller could handle them."""
    own = [
        session
        for session in list(_open)
        if session.pid == os.getpid() and session.loop.is_running()
    ]
    closing = [
        asyncio.run_coroutine_threadsafe(session.close(timeout=HURRY), session.loop)
        for session in own
    ]
    concurrent.futures.wait(closing, EXIT_SECONDS)
