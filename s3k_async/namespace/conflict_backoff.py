"""Back-off after a lost race: read the current state again and retry, for a bounded time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from s3k_async._core.active_calls import note_event
from s3k_async.errors import BusyError, S3kError
from s3k_async.model import Entry
from s3k_async.namespace.directories import DirectoryStore
from s3k_async.txn.txn_record import POLL_CAP_SECONDS, POLL_SECONDS

__all__ = ["ConflictBackoff", "ObstructedError", "until_unobstructed"]

T = TypeVar("T")

FIRST_WAIT = 0.005
LONGEST_WAIT = 0.5
"""Seconds. Waits are uniform between zero and a bound that doubles from the first to the longest.
"""


class ObstructedError(BusyError):
    """Other transactions obstruct an attempt. The attempt is undone before the wait for them, since
    they may be waiting for it."""

    def __init__(self, path: str, obstacles: Iterable[Entry] = ()) -> None:
        super().__init__("gave up: concurrent changes to this path", path=path)
        self.obstacles = list(obstacles)
        """The entries with their intents, as far as they are known."""

    def gave_up(self) -> BusyError:
        """The error of the last attempt."""
        return BusyError(self.message, path=self.path)


class ConflictBackoff:
    """The retries of one call, until `Tuning.busy_timeout` has passed since the first conflict.
    The bound is a time, not a number of attempts: in each round one of the competing changes
    succeeds, so the number of attempts grows with their number. `attempts`: at least so many, for a
    call of which one attempt may take that long.
    """

    def __init__(
        self,
        store: DirectoryStore,
        first: float = FIRST_WAIT,
        longest: float = LONGEST_WAIT,
        *,
        attempts: int = 0,
    ) -> None:
        self._store = store
        self._attempts = attempts
        self._deadline: float | None = None
        self._bound = first
        self._longest = longest

    async def lost(self, error: S3kError) -> None:
        """Wait until the obstructing transactions have ended, and for a random time, so that two
        conflicting changes do not retry at the same moment. Raises `error` when the time is up.
        """
        runtime = self._store.runtime
        note_event("conflict")
        self._attempts -= 1
        if self._deadline is None:
            self._deadline = self._store.deadline()
        elif self._attempts <= 0 and runtime.monotonic() >= self._deadline:
            raise error.gave_up() if isinstance(error, ObstructedError) else error
        if isinstance(error, ObstructedError):
            for entry in error.obstacles:
                await self._store.resolve(entry, error.path or "")
        await runtime.sleep(runtime.uniform(0.0, self._bound))
        self._bound = min(self._longest, self._bound * 2)


async def until_unobstructed(store: DirectoryStore, attempt: Callable[[], Awaitable[T]]) -> T:
    """The result of the first attempt that does not raise ObstructedError. Raises BusyError when
    the time is up."""
    backoff = ConflictBackoff(store, POLL_SECONDS, POLL_CAP_SECONDS)
    while True:
        try:
            return await attempt()
        except ObstructedError as error:
            await backoff.lost(error)
