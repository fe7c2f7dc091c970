"""Base of the fsspec adapter: volume, event loops, processes, paths, listing cache."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

import fsspec.asyn
from fsspec.asyn import AsyncFileSystem
from fsspec.utils import tokenize

from s3k_async._core.observation import Metrics
from s3k_async._sync.loop_thread import run_on
from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async.adapters.fsspec_arguments import Stripping, is_related, split
from s3k_async.adapters.fsspec_changes import AtOnce, PendingChanges, Together, VolumeTransaction
from s3k_async.adapters.fsspec_instances import OPTIONS_OF_FSSPEC, Volumes, unpickled
from s3k_async.adapters.fsspec_listing import Info
from s3k_async.adapters.sessions import Sessions
from s3k_async.client import Path, S3kClient, volume_text
from s3k_async.config import VolumeConfig
from s3k_async.errors import (
    CrossVolumeError,
    InvalidArgumentError,
    PathNotFoundError,
    WrongLoopError,
)
from s3k_async.model import ROOT
from s3k_async.transaction import Transaction

__all__ = ["VolumeFileSystem", "blocking"]

T = TypeVar("T")


def blocking(verb: Callable[..., Awaitable[Any]]) -> Any:
    """The blocking form of a coroutine method. An interrupt cancels it, unlike fsspec's."""
    name = verb.__name__

    @functools.wraps(verb)
    def waiting(self: VolumeFileSystem, *args: Any, **kwargs: Any) -> Any:
        return self.run_blocking(lambda: getattr(self, name)(*args, **kwargs))

    waiting.__name__ = name.removeprefix("_")
    return waiting


def _is_running(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether this thread runs the loop."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


class VolumeFileSystem(  # fsspec is untyped
    AsyncFileSystem,  # type: ignore[misc]
    metaclass=Volumes,
):
    """A volume for any thread, event loop and process, each with connections of its own."""

    protocol = "s3k"
    root_marker = ROOT
    transaction_type = VolumeTransaction

    def __init__(
        self,
        volume: Path | None = None,
        *,
        config: VolumeConfig | Path | None = None,
        session: object | Mapping[str, object] | None = None,
        metrics: Metrics | Sequence[Metrics] | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
        **options: Any,
    ) -> None:
        # `Volumes` has resolved the arguments to one configuration.
        assert volume is None
        assert isinstance(config, VolumeConfig)
        self._options = {name: options[name] for name in OPTIONS_OF_FSSPEC}
        super().__init__(loop=loop, **self._options)
        self._config = config
        self._aws = session
        self._name = config.name
        self._forgotten = 0
        self._collected: Transaction | None = None
        self._sessions = Sessions(config, session, metrics)
        self._sessions.abandon_with(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name or volume_text(self._config)!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return unpickled, (type(self), self._config, self._options)

    def to_dict(self, *, include_password: bool = True) -> dict[str, Any]:
        """As fsspec's, without secrets in any case."""
        return cast("dict[str, Any]", super().to_dict(include_password=include_password))

    @property
    def _fs_token(self) -> str:
        """A token, equal for equal volumes and options in every process."""
        return cast(str, tokenize(type(self).__qualname__, self._config, self._options))

    # Loops, processes, volumes

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """Loop of blocking calls: the given one, else fsspec's; in a forked child the child's
        own."""
        if self.asynchronous:
            return None
        if self._pid == os.getpid():
            return cast(asyncio.AbstractEventLoop, self._loop)
        if fsspec.asyn.loop[0] is None:
            # The parent may have held this lock when it forked; fsspec resets only the loop that it
            # guards.
            fsspec.asyn.reset_lock()
        return cast(asyncio.AbstractEventLoop, fsspec.asyn.get_loop())

    @property
    def volume(self) -> str:
        """The volume's name. An embedded volume is opened for it."""
        if not self._name:
            self._name = self._sessions.name or self._asked_name()
        return self._name

    async def close(self) -> None:
        """Release the connections of this process. A later use of the object reconnects."""
        await self._sessions.close()

    def close_session(self) -> None:
        """As `close`, blocking."""
        self.run_blocking(self._sessions.close)

    def _asked_name(self) -> str:
        # On the blocking client's loop: callers are synchronous methods on any loop.
        with S3kSyncClient(config=self._config, session=self._aws) as client:
            return client.name

    async def _client(self) -> S3kClient:
        return await self._sessions.client()

    async def _changes(self) -> PendingChanges:
        client = await self._client()
        return AtOnce(client) if self._collected is None else Together(client, self._collected)

    @property
    def in_transaction(self) -> bool:
        """Whether changes are collected in a transaction."""
        return self._collected is not None

    def begin_changes(self) -> None:
        """Collect changes in a transaction until `end_changes`. Raises InvalidArgumentError inside
        another one."""
        if self._collected is not None:
            raise InvalidArgumentError("the filesystem is in a transaction already")
        self._collected = self.run_blocking(self._new_transaction)
        self._intrans = True

    def end_changes(self, *, commit: bool) -> None:
        """Commit the collected changes, or discard them. Raises as `Transaction.commit`; then
        nothing was changed."""
        transaction = self._collected
        if transaction is None:
            return
        try:
            if commit:
                self.run_blocking(transaction.commit)
        finally:
            self._collected, self._intrans = None, False
            self._transaction: VolumeTransaction | None = None
            self._invalidated_caches_in_transaction.clear()
            self.invalidate_cache()
            self.run_blocking(transaction.discard)

    async def _new_transaction(self) -> Transaction:
        return (await self._client()).transaction()

    def start_transaction(self) -> VolumeTransaction:
        """Begin a transaction, ended by `end_transaction`; `with fs.transaction:` is better, since
        it always ends it."""
        transaction = self._transaction = self.transaction_type(self)
        transaction.start()
        return transaction

    def run_blocking(self, call: Callable[[], Awaitable[T]]) -> T:
        """Await `call()` on the filesystem's loop, from a thread that does not run it. Raises
        WrongLoopError."""
        loop = self.loop
        if loop is None:
            raise WrongLoopError(
                "the filesystem is asynchronous: await the methods that begin with an underscore"
            )
        if _is_running(loop):
            raise WrongLoopError("a blocking call on the loop that would have to do the work")
        return run_on(loop, call)

    # Paths

    @Stripping
    def _strip_protocol(self, path: Any) -> Any:
        """Paths in this volume. Raises CrossVolumeError, InvalidPathError."""
        if isinstance(path, list):
            return [self._strip_protocol(each) for each in path]
        volume, inside = split(path)
        if volume and volume != self.volume:
            raise CrossVolumeError(f"the path is not in the volume {self.volume!r}", path=str(path))
        return inside

    @classmethod
    def _parent(cls, path: Any) -> str:
        return split(path)[1].rpartition("/")[0] or ROOT

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        volume, _ = split(path)
        return {"name": volume} if volume else {}

    def unstrip_protocol(self, name: str) -> str:
        return f"s3k://{self.volume}{self._strip_protocol(name)}"

    # Listing cache, if it is enabled

    def invalidate_cache(self, path: str | None = None) -> None:
        """Remove the listings of a path, of those below and above it from the cache; all listings
        without a path."""
        self._forgotten += 1
        if path is None:
            self.dircache.clear()
        elif self.dircache.use_listings_cache:
            inside = self._strip_protocol(path)
            for known in list(self.dircache):
                if is_related(known, inside):
                    self.dircache.pop(known, None)
        super().invalidate_cache(path)

    def _known(self, path: str) -> Info | None:
        """The path's description in the cached listing of its directory; None without a cached
        listing.

        Raises PathNotFoundError if the cached listing lacks the path.
        """
        if path == ROOT or (above := self.dircache.get(self._parent(path))) is None:
            return None
        for info in above:
            if info["name"] == path:
                return dict(info)
        raise PathNotFoundError("no such file or directory", path=path)

    def _ls_from_cache(self, path: str) -> list[Info] | None:
        listing = self.dircache.get(path)
        if listing is not None:
            return [dict(info) for info in listing]
        info = self._known(path)
        return [info] if info is not None and info["type"] == "file" else None
