"""Alerts as an HTTP POST."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from s3k_async._core.concurrency import to_the_end
from s3k_async.alerts.alert import Alert
from s3k_async.alerts.sink_address import SinkAddress
from s3k_async.backends.aws.direct_http import Bounds
from s3k_async.backends.aws.endpoint import AnyExchange
from s3k_async.backends.aws.error_mapping import map_exceptions
from s3k_async.backends.aws.error_responses import service_error
from s3k_async.backends.aws.http import SingleAttemptSession
from s3k_async.config import AwsConfig

__all__ = ["Webhook"]

_ANSWER: Final = Bounds(most=4 * 1024 * 1024)
"""Maximum bytes of an answer. A longer one is an error, and the alerts are sent again."""
_KEEPALIVE: Final = 12.0


class Webhook:
    """Posts the alerts of a run to a URL in one request: `{"alerts": [...]}`. An answer other than
    2xx is an error; redirects are not followed. Connections have the timeouts, proxy and
    certificates of the settings."""

    def __init__(self, address: SinkAddress, settings: AwsConfig) -> None:
        parts = urlsplit(address.target)
        self._name = str(address)
        self._place = f"{parts.scheme}://{parts.netloc}"
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._settings = settings
        self._exchange: AnyExchange | None = None

    async def send(self, alerts: Sequence[Alert]) -> None:
        """As `AlertSink.send`."""
        body = json.dumps({"alerts": [alert.message() for alert in alerts]}).encode("ascii")
        headers = [
            ("Host", urlsplit(self._place).netloc),
            ("Accept-Encoding", "identity"),
            ("Content-Type", "application/json"),
        ]
        with map_exceptions(self._name, writing=True):
            exchange = await self._connected()
            status, _, _ = await exchange.ask("POST", self._target, headers, body, _ANSWER)
        if not 200 <= status < 300:
            # What it answers is not shown: it may quote the request.
            raise service_error(str(status), "the webhook", path=self._name, status=status)

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
