"""Endpoint, credentials and HTTP session of an aioboto3 client, for requests signed by this
package."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio
from aiohttp import ClientSession

from s3k_async._core.runtime import Runtime
from s3k_async.backends.aws.credentials import Credentials

if TYPE_CHECKING:
    from s3k_async.backends.aws.http import SingleAttemptSession

__all__ = ["Channel", "http_session", "open_channel"]


@dataclass(eq=False, slots=True)
class Channel:
    """Endpoint, region, credentials and sockets, for one process and event loop."""

    endpoint: str
    region: str
    credentials: Credentials
    session: ClientSession
    process: int
    loop: asyncio.AbstractEventLoop
    direct: bool
    """Whether no proxy is in between."""
    open: bool = True

    async def close(self) -> None:
        """Close the connections; requests under way fail. Idempotent."""
        self.open = False
        with anyio.CancelScope(shield=True):
            await self.credentials.close()
            await self.session.close()


def http_session(client: Any) -> Any:
    """The HTTP session of a client of aioboto3."""
    return client._endpoint.http_session  # noqa: SLF001 - not public


async def open_channel(client: Any, runtime: Runtime) -> Channel:
    """The channel of a client of aioboto3, with that client's settings. Raises botocore's
    errors."""
    http: SingleAttemptSession = http_session(client)
    endpoint = str(client.meta.endpoint_url)
    return Channel(
        endpoint=endpoint,
        region=str(client.meta.region_name),
        credentials=Credentials(client._get_credentials(), runtime),  # noqa: SLF001 - not public
        session=await http.plain(endpoint),
        process=os.getpid(),
        loop=asyncio.get_running_loop(),
        direct=http.proxy_of(endpoint) is None,
    )
