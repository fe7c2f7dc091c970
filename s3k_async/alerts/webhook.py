"""Alerts as an HTTP POST."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from s3k_async.alerts.alert import Alert
from s3k_async.alerts.sink_address import SinkAddress
from s3k_async.backends.aws.direct_http import Bounds
from s3k_async.backends.aws.error_responses import service_error
from s3k_async.backends.aws.unsigned_http import UnsignedHttp
from s3k_async.config import AwsConfig

__all__ = ["Webhook"]

_ANSWER: Final = Bounds(most=4 * 1024 * 1024)
"""Maximum bytes of an answer. A longer one is an error, and the alerts are sent again."""


class Webhook:
    """Posts the alerts of a run to a URL in one request: `{"alerts": [...]}`. An answer other than
    2xx is an error; redirects are not followed. Connections have the timeouts, proxy and
    certificates of the settings."""

    def __init__(self, address: SinkAddress, settings: AwsConfig) -> None:
        self._name = str(address)
        self._http = UnsignedHttp(address.target, settings, self._name)

    async def send(self, alerts: Sequence[Alert]) -> None:
        """As `AlertSink.send`."""
        body = json.dumps({"alerts": [alert.message() for alert in alerts]}).encode("ascii")
        headers = {"Content-Type": "application/json"}
        status, _, _ = await self._http.ask("POST", headers, body, _ANSWER)
        if not 200 <= status < 300:
            # What it answers is not shown: it may quote the request.
            raise service_error(str(status), "the webhook", path=self._name, status=status)

    async def close(self) -> None:
        """Close the connection."""
        await self._http.close()
