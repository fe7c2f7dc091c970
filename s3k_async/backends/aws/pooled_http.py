"""Requests to hosts over connections of this package, without aiohttp and without proxies."""

from __future__ import annotations

import importlib.util
import math
import socket
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import anyio.to_thread

from s3k_async.backends.aws.access import AwsConfig
from s3k_async.backends.aws.connection_pool import ConnectionPool, PoolSettings
from s3k_async.backends.aws.direct_http import Exchange
from s3k_async.errors import ConfigError

__all__ = ["AGENT", "PooledHttp", "pooled_exchange", "socket_factory", "verified_by"]

AGENT: Final = {"User-Agent": "s3k-async"}
_KEEPALIVE: Final = 12.0
"""Seconds after which an idle connection is closed, as in aiobotocore."""
_OPTIONS: Final = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
)
"""Socket options that botocore sets with TCP keepalive."""
_Opened = Callable[[tuple[Any, ...]], socket.socket]


class PooledHttp:
    """Exchanges with hosts under the settings of one service.

    `authorities`: file of trusted certificates; True: those that botocore trusts;
    False: no certificate is verified.
    """

    def __init__(self, config: AwsConfig, authorities: str | bool) -> None:
        self._config = config
        self._authorities = authorities
        self._context: ssl.SSLContext | None = None

    async def need_context(self, url: str) -> None:
        """Make the TLS context before the first connection by HTTPS. Raises ConfigError for
        certificates that cannot be read."""
        if self._context is None and url.lower().startswith("https:"):
            self._context = await anyio.to_thread.run_sync(self._tls)

    def exchange(self, place: str) -> Exchange:
        """Requests to a host, given as a URL without a path. `need_context` comes first."""
        mine = self._config
        settings = PoolSettings(
            most=mine.max_connections,
            keepalive=_KEEPALIVE,
            connect_timeout=mine.connect_timeout,
            context=self._context,
            open_socket=socket_factory(_OPTIONS),
        )
        return pooled_exchange(place, settings, mine.read_timeout)

    def _tls(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            verified_by(context, _bundle() if self._authorities is True else self._authorities)
        except OSError as error:
            raise ConfigError(f"the certificates cannot be read: {error}") from error
        return context


def pooled_exchange(place: str, settings: PoolSettings, read_timeout: float) -> Exchange:
    """Requests to the host of a URL, over TLS for HTTPS."""
    parts = urlsplit(place)
    secure = parts.scheme == "https"
    if not secure:
        settings = settings.without_tls()
    pool = ConnectionPool(parts.hostname or "", parts.port or (443 if secure else 80), settings)
    return Exchange(pool, read_timeout or math.inf, AGENT)


def socket_factory(options: Sequence[tuple[int, int, int]]) -> _Opened:
    """Makes sockets with options, each a level, a name and a value."""

    def open_socket(address: tuple[Any, ...]) -> socket.socket:
        family, kind, protocol = address[:3]
        opened = socket.socket(family, kind, protocol)
        for level, name, value in options:
            opened.setsockopt(level, name, value)
        return opened

    return open_socket


def verified_by(context: ssl.SSLContext, authorities: str | bool | None) -> None:
    """Make a context verify certificates by those of a file, or none if that is False. Raises
    OSError."""
    if authorities is False:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return
    context.check_hostname = True
    context.verify_mode = ssl.CERT_REQUIRED
    if isinstance(authorities, str) and authorities:
        context.load_verify_locations(authorities)


def _bundle() -> str:
    """The certificates that botocore trusts: those of certifi if it is installed, else its own.
    Imports neither."""
    for package in ("certifi", "botocore"):
        found = importlib.util.find_spec(package)
        for folder in (found and found.submodule_search_locations) or ():
            path = Path(folder) / "cacert.pem"
            if path.exists():
                return str(path)
    raise FileNotFoundError("neither certifi nor botocore has certificates: set ca_bundle")
