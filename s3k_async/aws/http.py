"""The HTTP session under a client: aiobotocore's over aiohttp, with one attempt a request and TCP keepalive."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from aiobotocore.httpsession import AIOHTTPSession

__all__ = ["SingleAttemptSession"]

_Option = tuple[int, int, int]


class SingleAttemptSession(AIOHTTPSession):
    """Sends every request once.

    aiohttp by itself sends PUT and DELETE again after a broken connection. A conditional PUT that was applied and then
    sent again behind our back is answered with a failed condition, which nobody could tell from somebody else's
    write; so that is off, and the broken connection is reported.

    The socket options that botocore computes (keepalive among them) are applied, which aiobotocore leaves out.
    """

    def __init__(self, **options: Any) -> None:
        opened = _socket_factory(tuple(options.get("socket_options") or ()))
        options["connector_args"] = {**(options.get("connector_args") or {}), "socket_factory": opened}
        super().__init__(**options)

    async def _get_session(self, proxy_url: str | None) -> Any:
        session = await super()._get_session(proxy_url)  # type: ignore[misc]
        session._retry_connection = False
        return session


def _socket_factory(options: tuple[_Option, ...]) -> Callable[[tuple[Any, ...]], socket.socket]:
    def open_socket(address: tuple[Any, ...]) -> socket.socket:
        family, kind, protocol = address[:3]
        opened = socket.socket(family, kind, protocol)
        for level, name, value in options:
            opened.setsockopt(level, name, value)
        return opened

    return open_socket
