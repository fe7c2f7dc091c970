"""Credentials for signing, with background renewal.

Temporary credentials are renewed in the background while the old ones are valid. A request waits
only if there are none or they have expired; all such requests wait for one renewal.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from s3k_async._core.runtime import Runtime
from s3k_async.backends.aws.error_mapping import is_of_library
from s3k_async.errors import ClosedClientError, CredentialsError, S3kError

__all__ = ["Credentials", "Keys"]

_AHEAD = 15 * 60
"""Seconds before expiry from which credentials are renewed (botocore's advisory period)."""
_LOOK = 1.0
"""Seconds between two checks of the remaining time."""
_PAUSE = 10.0
"""Seconds between renewals while the old credentials are valid; botocore logs a failed one as a
warning."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Access key, secret key and session token of a signature."""

    access_key: str
    secret_key: str = field(repr=False)
    token: str | None = field(repr=False)


class Credentials:
    """The current credentials of a source, for one event loop: one of botocore (`AioCredentials`,
    `AioRefreshableCredentials`), or a `StaticAccess`.

    `source` is None where the session has no credentials.
    """

    def __init__(self, source: Any, runtime: Runtime) -> None:
        self._source = source
        self._runtime = runtime
        self._keys: Keys | None = None
        self._next_look = self._next_renewal = float("-inf")
        self._renewal: asyncio.Task[Keys] | None = None

    def __repr__(self) -> str:
        return f"Credentials({self._keys!r})"

    @property
    def method(self) -> str:
        """Where the credentials come from, as botocore names it; empty without any."""
        return str(getattr(self._source, "method", ""))

    @property
    def expires_ms(self) -> int | None:
        """When temporary credentials expire, ms since 1970; None if that is not known."""
        found = getattr(self._source, "_expiry_time", None)
        return None if found is None else int(found.timestamp() * 1000)

    def ready(self) -> Keys | None:
        """The keys, if they are valid now. Starts their renewal when it is due."""
        if self._keys is None:
            return None
        now = self._runtime.monotonic()
        if now >= self._next_look:
            self._next_look = now + _LOOK
            if self._runs_out_within(0):
                self._keys = None
            elif (
                self._runs_out_within(_AHEAD)
                and self._renewal is None
                and now >= self._next_renewal
            ):
                self._next_renewal = now + _PAUSE
                self._begin()
        return self._keys

    async def get(self) -> Keys:
        """The keys; waits until there are valid ones. Raises CredentialsError, ClosedClientError
        and errors of botocore."""
        keys = self.ready()
        if keys is not None:
            return keys
        renewal = self._renewal or self._begin()
        try:
            return await asyncio.shield(renewal)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if renewal.cancelled() and task is not None and not task.cancelling():
                raise ClosedClientError(
                    "the client was closed while its credentials were fetched"
                ) from error
            raise

    async def invalidate(self, refused: Keys) -> bool:
        """Discard keys that the service refused. Whether there are others, renewed if possible."""
        if self._keys is not None and self._keys != refused:
            return True
        if not hasattr(self._source, "_expiry_time"):
            return False
        if self._renewal is None:
            expired = datetime.min.replace(tzinfo=UTC)
            self._source._expiry_time = expired  # noqa: SLF001 - the only way to renew early
        self._keys = None
        return await self.get() != refused

    async def close(self) -> None:
        """Cancel a renewal in progress. Idempotent."""
        renewal, self._renewal = self._renewal, None
        if renewal is not None and renewal.get_loop() is asyncio.get_running_loop():
            renewal.cancel()
            await asyncio.wait([renewal])

    def _runs_out_within(self, seconds: float) -> bool:
        needed = getattr(self._source, "refresh_needed", None)
        return needed is not None and bool(needed(seconds))

    def _begin(self) -> asyncio.Task[Keys]:
        loop = asyncio.get_running_loop()
        # Not in the context of the first caller, whose deadline is not the renewal's.
        renewal = loop.create_task(self._renew(), name="renew AWS credentials", context=Context())
        renewal.add_done_callback(self._end)
        self._renewal = renewal
        return renewal

    def _end(self, renewal: asyncio.Task[Keys]) -> None:
        if self._renewal is renewal:
            self._renewal = None
        with suppress(asyncio.CancelledError):
            renewal.exception()  # for the waiters; there are none while the old keys are valid

    async def _renew(self) -> Keys:
        if self._source is None:
            raise _none()
        try:
            frozen = await self._source.get_frozen_credentials()
        except Exception as error:
            if isinstance(error, S3kError) or is_of_library(error):
                raise
            raise CredentialsError(
                f"the credentials cannot be renewed ({type(error).__name__})"
            ) from error
        if not (frozen.access_key and frozen.secret_key):
            raise _none()
        self._keys = Keys(frozen.access_key, frozen.secret_key, frozen.token)
        return self._keys


def _none() -> Exception:
    from botocore.exceptions import NoCredentialsError

    return NoCredentialsError()
