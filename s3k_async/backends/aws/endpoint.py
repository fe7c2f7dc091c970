"""Endpoint, credentials and connections of an aioboto3 client, for requests signed by this
package."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio

from s3k_async._core.runtime import Runtime
from s3k_async.backends.aws.credentials import Credentials
from s3k_async.backends.aws.direct_http import Exchange
from s3k_async.backends.aws.proxied_http import ProxiedExchange

if TYPE_CHECKING:
    from s3k_async.backends.aws.http import SingleAttemptSession

__all__ = ["AnyExchange", "Channel", "http_session", "open_channel"]

AnyExchange: TypeAlias = Exchange | ProxiedExchange


@dataclass(eq=False, slots=True)
class Channel:
    """Endpoint, region, credentials and connections, for one process and event loop."""

    endpoint: str
    region: str
    credentials: Credentials
    http: SingleAttemptSession
    process: int
    loop: asyncio.AbstractEventLoop
    open: bool = True
    _exchanges: dict[str, AnyExchange] = field(default_factory=dict)

    def exchange(self, place: str) -> AnyExchange:
        """The requests to a host, given as a URL without a path."""
        found = self._exchanges.get(place)
        if found is None:
            found = self._exchanges[place] = self.http.exchange(place)
        return found

    async def close(self) -> None:
        """Close the connections; requests under way fail. Idempotent."""
        self.open = False
        with anyio.CancelScope(shield=True):
            await self.credentials.close()
            for exchange in list(self._exchanges.values()):
                await exchange.close()


def http_session(client: Any) -> Any:
    """The HTTP session of a client of aioboto3."""
    return client._endpoint.http_session  # noqa: SLF001 - not public


async def open_channel(client: Any, runtime: Runtime) -> Channel:
    """The channel of a client of aioboto3, with that client's settings. Raises botocore's
    errors."""
    http: SingleAttemptSession = http_session(client)
    endpoint = str(client.meta.endpoint_url)
    await http.need_context(endpoint)
    return Channel(
        endpoint=endpoint,
        region=str(client.meta.region_name),
        credentials=Credentials(client._get_credentials(), runtime),  # noqa: SLF001 - not public
        http=http,
        process=os.getpid(),
        loop=asyncio.get_running_loop(),
    )
