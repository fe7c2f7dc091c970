"""Endpoint, credentials and connections for requests signed by this package: those of an aioboto3
client, or of settings without botocore."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from s3k_async._core.concurrency import to_the_end
from s3k_async._core.runtime import Runtime
from s3k_async.backends.aws.access import AwsConfig
from s3k_async.backends.aws.credentials import Credentials
from s3k_async.backends.aws.direct_http import Exchange
from s3k_async.backends.aws.pooled_http import PooledHttp
from s3k_async.backends.aws.static_access import StaticAccess

if TYPE_CHECKING:
    from s3k_async.backends.aws.proxied_http import ProxiedExchange

__all__ = [
    "AnyExchange",
    "Channel",
    "HttpSession",
    "http_session",
    "open_channel",
    "static_channel",
]

AnyExchange: TypeAlias = "Exchange | ProxiedExchange"


class HttpSession(Protocol):
    """Makes exchanges with hosts: a `SingleAttemptSession` or a `PooledHttp`."""

    async def need_context(self, url: str) -> None:
        """Make the TLS context before the first connection by HTTPS."""

    def exchange(self, place: str) -> AnyExchange:
        """Requests to a host, given as a URL without a path."""


@dataclass(eq=False, slots=True)
class Channel:
    """Endpoint, region, credentials and connections, for one process and event loop."""

    endpoint: str
    region: str
    credentials: Credentials
    http: HttpSession
    process: int
    loop: asyncio.AbstractEventLoop
    bucket_options: Mapping[str, Any] = field(default_factory=dict)
    """botocore's options for S3, as of a profile."""
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
        await to_the_end(self._close)

    async def _close(self) -> None:
        await self.credentials.close()
        for exchange in list(self._exchanges.values()):
            await exchange.close()


def http_session(client: Any) -> Any:
    """The HTTP session of a client of aioboto3."""
    return client._endpoint.http_session  # noqa: SLF001 - not public


async def open_channel(client: Any, runtime: Runtime) -> Channel:
    """The channel of a client of aioboto3, with that client's settings. Raises botocore's
    errors."""
    http: HttpSession = http_session(client)
    endpoint = str(client.meta.endpoint_url)
    await http.need_context(endpoint)
    return Channel(
        endpoint=endpoint,
        region=str(client.meta.region_name),
        credentials=Credentials(client._get_credentials(), runtime),  # noqa: SLF001 - not public
        http=http,
        bucket_options=client.meta.config.s3 or {},
        process=os.getpid(),
        loop=asyncio.get_running_loop(),
    )


async def static_channel(access: StaticAccess, config: AwsConfig, runtime: Runtime) -> Channel:
    """A channel for settings that are known without botocore. Raises ConfigError for certificates
    that cannot be read."""
    http = PooledHttp(config, access.authorities)
    await http.need_context(access.endpoint)
    return Channel(
        endpoint=access.endpoint,
        region=access.region,
        credentials=Credentials(access, runtime),
        http=http,
        process=os.getpid(),
        loop=asyncio.get_running_loop(),
    )
