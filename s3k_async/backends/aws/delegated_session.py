"""Sessions of aiobotocore with the temporary credentials of another process."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import anyio.to_thread
from aiobotocore.credentials import AioCredentialResolver, AioDeferredRefreshableCredentials

from s3k_async.backends.aws.credential_source import CredentialSource

__all__ = ["use_source"]

_METHOD: Final = "s3k-delegated"
_NEVER: Final = "9999-12-31T00:00:00Z"


def use_source(session: Any, source: CredentialSource) -> None:
    """Make all clients of a session use the credentials of a source; a renewal takes its newest
    ones."""
    provider: Any = _SourceProvider(source)
    session.register_component("credential_provider", AioCredentialResolver(providers=[provider]))


class _SourceProvider:
    """A credential provider of aiobotocore."""

    METHOD = _METHOD
    CANONICAL_NAME = None

    def __init__(self, source: CredentialSource) -> None:
        self._source = source

    async def load(self) -> AioDeferredRefreshableCredentials:
        """The credentials, taken from the source on first use."""
        return AioDeferredRefreshableCredentials(self._fetch, _METHOD)

    async def _fetch(self) -> dict[str, Any]:
        # In a thread: the driver may have to renew them.
        found = await anyio.to_thread.run_sync(self._source.current)
        expires = found.expires_ms
        return {
            "access_key": found.access_key_id.reveal(),
            "secret_key": found.secret_access_key.reveal(),
            "token": found.session_token.reveal(),
            "expiry_time": _NEVER
            if expires is None
            else datetime.fromtimestamp(expires / 1000, UTC).isoformat(),
        }
