"""Unsigned requests to a URL that is no service of AWS: a webhook, or the metrics of a process."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

from s3k_async._core.concurrency import to_the_end
from s3k_async.backends.aws.access import AwsConfig
from s3k_async.backends.aws.direct_http import Bounds
from s3k_async.backends.aws.endpoint import AnyExchange
from s3k_async.backends.aws.error_mapping import map_exceptions
from s3k_async.backends.aws.http import SingleAttemptSession

__all__ = ["UnsignedHttp"]

_KEEPALIVE: Final = 12.0


class UnsignedHttp:
    """Requests to `url`, sent once each, with the timeouts, the proxy and the certificates of the
    settings. Redirects are not followed. `name`: the URL in errors."""

    def __init__(self, url: str, settings: AwsConfig, name: str) -> None:
        parts = urlsplit(url)
        self._name = name
        self._place = f"{parts.scheme}://{parts.netloc}"
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._settings = settings
        self._exchange: AnyExchange | None = None

    async def ask(
        self, method: str, headers: Mapping[str, str], body: bytes, bounds: Bounds
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body of the answer. Raises UnreachableError (nothing was sent),
        RequestTimeoutError (of GET only), ResponseLostError, ConfigError."""
        sent = [
            ("Host", urlsplit(self._place).netloc),
            ("Accept-Encoding", "identity"),
            *headers.items(),
        ]
        with map_exceptions(self._name, writing=method != "GET"):
            exchange = await self._connected()
            return await exchange.ask(method, self._target, sent, body, bounds)

    async def _connected(self) -> AnyExchange:
        if self._exchange is None:
            mine = self._settings
            session = SingleAttemptSession(
                verify=mine.ca_bundle or mine.verify_tls,
                proxies={"http": mine.proxy, "https": mine.proxy} if mine.proxy else None,
                timeout=(mine.connect_timeout, mine.read_timeout),
                max_pool_connections=1,
                connector_args={"keepalive_timeout": _KEEPALIVE},
            )
            await session.need_context(self._place)
            self._exchange = session.exchange(self._place)
        return self._exchange

    async def close(self) -> None:
        """Close the connection."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            await to_the_end(exchange.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
