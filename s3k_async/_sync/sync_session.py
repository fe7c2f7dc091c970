"""What the blocking client, transaction and trash have beside their verbs, which are generated
(`sync_client`, `sync_transaction`, `sync_trash`): opening, closing, and calls over one event loop
in a thread of this process."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Mapping,
    Sequence,
)
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar, Unpack

from s3k_async._core.metering import RequestCounter, Requests
from s3k_async._core.observation import Metrics
from s3k_async._sync.loop_thread import Bridge, current_bridge
from s3k_async._sync.sync_files import SyncFileReader, SyncFileWriter, sync_file
from s3k_async.bulk.trash import Trash
from s3k_async.client import HURRY, Path, S3kClient, volume_text
from s3k_async.config import VolumeConfig
from s3k_async.errors import ClosedClientError
from s3k_async.files.open_files import FileReader, FileWriter, Opening
from s3k_async.listing.listings import pages_of
from s3k_async.model import CacheStatistics, FillStatistics
from s3k_async.transaction import Transaction

if TYPE_CHECKING:
    from s3k_async.settings.keywords import Settings

__all__ = [
    "BlockingClient",
    "BlockingTransaction",
    "BlockingTrash",
    "each_of_client",
    "on_client",
]

T = TypeVar("T")
B = TypeVar("B")

Verb: TypeAlias = Callable[[S3kClient], Awaitable[T]]
PagesOf: TypeAlias = Callable[[S3kClient], AsyncIterator[Sequence[T]]]


class _Session:
    """An async client of this process, opened on the bridge's loop when it is first needed."""

    def __init__(
        self, config: VolumeConfig, aws: object, metrics: Metrics | Sequence[Metrics] | None
    ) -> None:
        self.pid = os.getpid()
        self.bridge: Bridge = current_bridge()
        self.client = S3kClient(config=config, session=aws, metrics=metrics)
        self.is_closed = False
        """Whether the blocking client was closed, so that no call reopens this one."""
        self._opening = asyncio.Lock()

    async def opened(self) -> S3kClient:
        """The client, open. Raises ClosedClientError."""
        if self.client.closed:
            async with self._opening:
                if self.client.closed:
                    if self.is_closed:
                        raise ClosedClientError(
                            "the client is closed", path=volume_text(self.client.config)
                        )
                    await self.client.open_volume()
                    seconds = min(HURRY, self.client.config.tuning.close_timeout)
                    self.bridge.register(self, partial(self.close, timeout=seconds))
        return self.client

    def run(self, verb: Verb[T]) -> T:
        """The result of a verb, which runs on the bridge's loop."""

        async def called() -> T:
            return await verb(await self.opened())

        return self.bridge.run(called)

    async def close(
        self,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - bounds a part of it
    ) -> None:
        """Close the client; it opens again if it is used again."""
        async with self._opening:
            self.bridge.unregister(self)
            await self.client.close(timeout=timeout)


class BlockingClient:
    """A volume as a filesystem, blocking. The same verbs and parameters as `S3kClient`.

    It opens at the first call, or by `with`, and closes at the end of `with`, by `close`, or when
    the interpreter exits. Any number of threads may use it, running event loops in the caller do
    not matter, and a forked or spawned child that has it opens the volume for itself. A call from a
    callback of its own (progress) raises WrongLoopError; Ctrl-C cancels the call under way. A
    pickled client holds its configuration without secrets, which are resolved again on unpickling.

    Every method may raise InvalidPathError, CrossVolumeError (the URL of another volume),
    ClosedClientError, ReadOnlyVolumeError for changes, BusyError while other clients move or delete
    entries of the path, and the services' errors; the first call also the errors of `open_volume`.
    """

    def __init__(
        self,
        volume: Path | None = None,
        *,
        config: VolumeConfig | Path | None = None,
        context: str | None = None,
        hadoop: Mapping[str, object] | None = None,
        session: object | Mapping[str, object] | None = None,
        metrics: Metrics | Sequence[Metrics] | None = None,
        **settings: Unpack[Settings],
    ) -> None:
        from s3k_async.settings import resolve

        self._config = resolve(volume, config=config, context=context, hadoop=hadoop, **settings)
        self._aws = session
        self._metrics = metrics
        self._closed = False
        self._sessions: dict[int, _Session] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} {'closed' if self._closed else 'open'}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (type(self), self._config)

    @property
    def name(self) -> str:
        """The volume's name, as in its URL; for an embedded volume it may be empty before the
        client is entered."""
        return self.config.name

    @property
    def config(self) -> VolumeConfig:
        """The configuration; after entering, completed from the volume record."""
        session = self._sessions.get(os.getpid())
        return self._config if session is None else session.client.config

    @property
    def closed(self) -> bool:
        """Whether the client was closed."""
        return self._closed

    @property
    def requests(self) -> Requests:
        """The requests of the client since its creation, including those of opening and deferred
        work.

        Requests in this process: a forked child starts at zero.
        """
        session = self._sessions.get(os.getpid())
        return Requests() if session is None else session.client.requests

    @property
    def cache_statistics(self) -> CacheStatistics:
        """What the read cache did since the client was entered; zeros without a cache.

        Reads in this process: a forked child starts at zero.
        """
        session = self._sessions.get(os.getpid())
        return CacheStatistics() if session is None else session.client.cache_statistics

    @property
    def fill_statistics(self) -> FillStatistics:
        """What reads copied to the hot location since the client was entered; zeros unless
        `hot_reads` is `fill`.

        Reads in this process: a forked child starts at zero.
        """
        session = self._sessions.get(os.getpid())
        return FillStatistics() if session is None else session.client.fill_statistics

    def count(self) -> AbstractContextManager[RequestCounter]:
        """Count the requests of this client for the body of a `with`, including tasks started
        there.

        Calls of other threads are not counted.
        """
        return self._session().client.count()

    def __enter__(self) -> Self:
        self.open_volume()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        seconds = self.config.tuning.close_timeout
        self.close(timeout=seconds if kind is None else min(seconds, HURRY))

    def open_volume(self) -> None:
        """Open the client without `with`; `close` ends it.

        No effect when it is open. Raises VolumeNotFoundError, NotAVolumeError, VolumeFormatError,
        VolumeMismatchError.
        """
        self._closed = False
        session = self._session()
        session.is_closed = False
        session.bridge.run(session.opened)

    def close(self, *, timeout: float | None = None) -> None:
        """Wait for active calls and for the operation log, then release connections and files.

        The calls are those of other threads. Further calls raise ClosedClientError at once. Calls
        that run longer than `timeout` seconds (None: the setting `close_timeout`) are cancelled:
        each raises ClosedClientError if it has changed nothing, else OutcomeUnknownError.
        Unfinished files and transactions are dropped, not published. Idempotent; no effect in a
        forked child.
        """
        self._closed = True
        session = self._sessions.get(os.getpid())
        if session is not None:
            session.is_closed = True
            session.bridge.run(lambda: session.close(timeout=timeout))

    def _call(self, verb: Verb[T]) -> T:
        return self._session().run(verb)

    def _call_with(
        self, other: BlockingClient, verb: Callable[[S3kClient, S3kClient], Awaitable[T]]
    ) -> T:
        """A verb that takes another client."""
        there = other._session()

        async def called(fs: S3kClient) -> T:
            return await verb(fs, await there.opened())

        return self._call(called)

    def _open(self, made: Callable[[Bridge, T, object], B], verb: Verb[T]) -> B:
        """What a verb opens, as `made` makes it blocking."""
        session = self._session()
        return made(session.bridge, session.run(verb), self)

    def _open_file(
        self, verb: Callable[[S3kClient], Opening[FileReader] | Opening[FileWriter]]
    ) -> SyncFileReader | SyncFileWriter:
        async def opened(fs: S3kClient) -> FileReader | FileWriter:
            return await verb(fs)

        return self._open(sync_file, opened)

    def _begin(
        self,
        made: Callable[[Bridge, T, object], B],
        verb: Callable[[S3kClient], T],
    ) -> B:
        """What a verb returns without a request, as `made` makes it blocking."""

        async def begun(fs: S3kClient) -> T:
            return verb(fs)

        return self._open(made, begun)

    def _each(self, verb: Callable[[S3kClient], AsyncIterator[T]]) -> Generator[T, None, None]:
        """The values that a verb yields."""
        return self._iterate(lambda fs: pages_of(verb(fs)))

    def _iterate(self, pages_of: PagesOf[T]) -> Generator[T, None, None]:
        """What is in the pages; a hop over the bridge for each page."""
        return self._values(self._session(), pages_of)

    def _values(self, session: _Session, pages_of: PagesOf[T]) -> Generator[T, None, None]:
        async def begin() -> AsyncIterator[Sequence[T]]:
            return pages_of(await session.opened())

        return _values(session.bridge, begin, self)

    def _session(self) -> _Session:
        if self._closed:
            raise ClosedClientError("the client is closed", path=volume_text(self.config))
        pid = os.getpid()
        session = self._sessions.get(pid)
        if session is None:
            # setdefault, not a lock, which a fork could leave locked for ever. Sessions of parent
            # processes stay: they must not be finalised here.
            made = _Session(self._config, self._aws, self._metrics)
            session = self._sessions.setdefault(pid, made)
            if session is made:
                weakref.finalize(self, session.bridge.post, session.close).atexit = False
        return session


class BlockingTransaction:
    """Several changes that are applied together, at the end of `with` or by `commit`, or not at
    all.

    As `Transaction`; any number of threads may use it.
    """

    def __init__(self, bridge: Bridge, transaction: Transaction, owner: object) -> None:
        self._bridge = bridge
        self._transaction = transaction
        self._owner = owner
        """Kept from being finalised, which would close the volume."""

    def __repr__(self) -> str:
        return f"<Sync{repr(self._transaction)[1:]}"

    def __enter__(self) -> Self:
        self._call(lambda tx: tx.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._call(lambda tx: tx.__aexit__(kind, error, trace))

    def _call(self, verb: Callable[[Transaction], Awaitable[T]]) -> T:
        return self._bridge.run(lambda: verb(self._transaction))

    def _open(
        self,
        made: Callable[[Bridge, T, object], B],
        verb: Callable[[Transaction], Awaitable[T]],
    ) -> B:
        return made(self._bridge, self._call(verb), self._owner)


class BlockingTrash:
    """The directories that were deleted with everything below them, in a volume of layout `tree`.

    As `Trash`; any number of threads may use it.
    """

    def __init__(self, bridge: Bridge, trash: Trash, owner: object) -> None:
        self._bridge = bridge
        self._trash = trash
        self._owner = owner
        """Kept from being finalised, which would close the volume."""

    def __repr__(self) -> str:
        return f"<Sync{repr(self._trash)[1:]}"

    def _call(self, verb: Callable[[Trash], Awaitable[T]]) -> T:
        return self._bridge.run(lambda: verb(self._trash))

    def _each(self, verb: Callable[[Trash], AsyncIterator[T]]) -> Generator[T, None, None]:
        async def begin() -> AsyncIterator[Sequence[T]]:
            return pages_of(verb(self._trash))

        return _values(self._bridge, begin, self._owner)


def _values(
    bridge: Bridge, begin: Callable[[], Awaitable[AsyncIterator[Sequence[T]]]], owner: object
) -> Generator[T, None, None]:
    """The values of the pages, with one hop over the bridge for each page. `owner`: referenced
    until the end, since its finaliser would close the volume."""
    pages: deque[AsyncIterator[Sequence[T]]] = deque()

    async def next_page() -> Sequence[T] | None:
        if not pages:
            pages.append(await begin())
        return await anext(pages[0], None)

    async def close() -> None:
        for generator in pages:
            if isinstance(generator, AsyncGenerator):
                await generator.aclose()

    try:
        while (page := bridge.run(next_page)) is not None:
            yield from page
    finally:
        # Not waited for: a generator may be finalised on any thread, the loop's own included.
        bridge.post(close)
        del owner


def on_client(fs: BlockingClient, verb: Verb[T]) -> T:
    """The result of a coroutine over the asynchronous client below a blocking one."""
    return fs._call(verb)  # noqa: SLF001 - hidden from users


def each_of_client(
    fs: BlockingClient, verb: Callable[[S3kClient], AsyncIterator[T]]
) -> Generator[T, None, None]:
    """The values that the asynchronous client below a blocking one yields."""
    return fs._each(verb)  # noqa: SLF001 - hidden from users


def _unpickled(cls: type[BlockingClient], config: VolumeConfig) -> BlockingClient:
    from s3k_async.settings import with_local_secrets

    return cls(config=with_local_secrets(config))
