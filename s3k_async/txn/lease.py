"""Leases: expiry, validity by two clocks, margin, and renewal in the background.

The table stores the owner and the expiry in epoch milliseconds. Other clients compare the expiry
with their wall clock (`expired`), and take over a lease that stays unchanged for its duration, even
if it ends later. The holder is stricter (`Lease.valid`): it counts from the moment before its
request was sent, by a wall clock and a monotonic one, and stops a margin earlier.

The leases and their margins:

- transaction record (`txn_record`): 30 s, renewed every 10 s. No margin, since each write of the
  transaction is conditional on the owner in the record, or on the state of the item.
- volume lock (`volume_lock`): 90 s, renewed every 15 s. Margin 45 s: bulk loads are unconditional,
  so the last one has to arrive before a takeover.
- lock delegate (`lock_delegate`): the holder's lease, read every 5 s and relied on for 15 s after a
  read. The same margin, for the same reason.
- reservation and upload (`store`): `Tuning.lease`, not renewed. No margin, since publishing is
  conditional on id and version; garbage collection adds one of its own (`integrity.gc_rules`).
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Self

import anyio

from s3k_async._core.concurrency import raise_first
from s3k_async._core.runtime import Runtime
from s3k_async.backends.retrying.request_pipeline import at_once
from s3k_async.errors import LeaseExpiredError, S3kError

__all__ = [
    "Lease",
    "LeaseWatch",
    "Moment",
    "ends_late",
    "expired",
    "expiry_ms",
    "keep_renewed",
    "require_unexpired",
]

CHECK_SECONDS: Final = 1.0
"""Interval at which the check of `keep_renewed` is made."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time by both clocks."""

    monotonic: float
    wall_ms: int

    @classmethod
    def now(cls, runtime: Runtime) -> Self:
        return cls(runtime.monotonic(), runtime.now_ms())

    def age(self, runtime: Runtime) -> float:
        """Seconds since this moment, by the clock that advanced more: a monotonic clock may stop
        while the machine sleeps."""
        wall = (runtime.now_ms() - self.wall_ms) / 1000
        return max(runtime.monotonic() - self.monotonic, wall)


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease as seen by its holder, or by a delegate of the holder."""

    owner: str
    """The fencing token: writes under the lease are conditional on it."""
    expiry_ms: int
    """When other clients may take over, epoch milliseconds; the stored attribute."""
    since: Moment
    """The moment before the request that granted, renewed or read the lease was sent."""
    duration: float
    """Seconds after `since` for which the lease is relied on."""
    margin: float = 0.0
    """Seconds before the expiry at which the lease ends for the holder: allows for requests in
    flight and for clock differences."""

    @classmethod
    def granted(cls, owner: str, since: Moment, seconds: float, margin: float = 0.0) -> Self:
        """A lease of so many seconds, from a request sent after `since`."""
        return cls(owner, expiry_ms(since.wall_ms, seconds), since, seconds - margin, margin)

    @classmethod
    def none(cls, owner: str) -> Self:
        """A lease that was not granted, or was lost."""
        return cls(owner, 0, Moment(-math.inf, 0), 0.0)

    def valid(self, runtime: Runtime) -> bool:
        """Whether the lease certainly is held."""
        left = (self.expiry_ms - runtime.now_ms()) / 1000
        return self.since.age(runtime) < self.duration and left >= self.margin


class LeaseWatch:
    """The validity of stored leases of other clients. A lease that is not renewed for its whole
    duration is over, whatever its expiry: the clock of a holder that died may have been ahead."""

    _MOST: Final = 100_000
    """Maximum number of leases that are watched."""

    def __init__(self, seconds: float, runtime: Runtime) -> None:
        """`seconds`: the duration of the leases."""
        self._seconds = seconds
        self._runtime = runtime
        self._seen: dict[str, tuple[int, float]] = {}

    def runs(self, name: str, expiry_ms: int) -> bool:
        """Whether a lease is valid. `expiry_ms`: its stored expiry."""
        if expired(expiry_ms, self._runtime.now_ms()):
            self._seen.pop(name, None)
            return False
        now = self._runtime.monotonic()
        if len(self._seen) >= self._MOST and name not in self._seen:
            self._seen.clear()
        known, since = self._seen.get(name, (0, now))
        if known != expiry_ms:
            since = now
            self._seen[name] = expiry_ms, now
        return now - since < self._seconds


def expiry_ms(now_ms: int, seconds: float) -> int:
    """The expiry of a lease that begins now, epoch milliseconds."""
    return now_ms + int(seconds * 1000)


def expired(expiry_ms: int, now_ms: int) -> bool:
    """Whether a stored lease has expired, so that another client may take over."""
    return expiry_ms <= now_ms


def ends_late(lease_ms: int, now_ms: int, seconds: float) -> bool:
    """Whether a stored lease of so many seconds ends far later than one that begins now: the clock
    of its holder is ahead."""
    return lease_ms > expiry_ms(now_ms, 2 * seconds)


def require_unexpired(expiry_ms: int, now_ms: int, path: str) -> None:
    """Raise LeaseExpiredError if uploaded bytes may no longer be published. The millisecond of the
    expiry still counts: publishing is conditional on what another client would change."""
    if now_ms > expiry_ms:
        raise LeaseExpiredError(
            "writing took longer than the lease; nothing was published", path=path
        )


@asynccontextmanager
async def keep_renewed(
    renew: Callable[[], Awaitable[object]],
    interval: float,
    runtime: Runtime,
    *,
    check: Callable[[], object] | None = None,
) -> AsyncIterator[None]:
    """Await `renew` every `interval` seconds for the time of the body. Its requests bypass the
    concurrency limit.

    LeaseExpiredError of `renew` ends the renewals, not the body: the holder checks its lease before
    each write. Any other S3kError is followed by the next attempt, since the lease may still be
    valid by then. With `check`, which raises LeaseExpiredError, the body is cancelled as soon as
    the lease is over, together with requests that were checked but not sent yet.
    """

    async def renewals() -> None:
        while True:
            await runtime.sleep(interval)
            try:
                with at_once():
                    await renew()
            except LeaseExpiredError:
                return
            except S3kError:
                continue

    async def checks(check: Callable[[], object]) -> None:
        while True:
            await runtime.sleep(CHECK_SECONDS)
            check()

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(renewals)
            if check is not None:
                tasks.start_soon(checks, check)
            yield
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise_first(group)
