"""Alerts as log records."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from s3k_async.alerts.alert import Alert

__all__ = ["LOGGER", "LogSink"]

LOGGER: Final = "s3k_async.alerts"
_GOOD_NEWS: Final = frozenset({"recovered", "repaired"})


class LogSink:
    """Logs each alert as JSON by the logger `s3k_async.alerts`: what was repaired or has recovered
    at the level info, all else at warning. The fields are attributes of the record, too, with the
    prefix `alert_`."""

    async def send(self, alerts: Sequence[Alert]) -> None:
        """As `AlertSink.send`; raises nothing."""
        logger = logging.getLogger(LOGGER)
        for alert in alerts:
            level = logging.INFO if alert.kind in _GOOD_NEWS else logging.WARNING
            fields = {f"alert_{name}": value for name, value in alert.message().items()}
            logger.log(level, "%s", alert.json(), extra=fields)

    async def close(self) -> None:
        """Nothing to close."""
