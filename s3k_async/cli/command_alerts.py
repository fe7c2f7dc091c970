"""The alerts of one run of a command."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

import click

from s3k_async.cli.event_loop import run_loop
from s3k_async.cli.invocation import Invocation
from s3k_async.cli.reporting import warn
from s3k_async.config import AlertSettings, VolumeConfig
from s3k_async.errors import S3kError

if TYPE_CHECKING:
    from s3k_async.alerts.alert import Alert, AlertSource

__all__ = ["CommandAlerts"]


class CommandAlerts:
    """Sends the alerts of a run at its end, after its output, if the settings name sinks.

    A run that ends with a timeout or throttling is an alert of its own. An error in sending them
    is raised as the settings demand, but never replaces that of the run.
    """

    def __init__(self, invocation: Invocation, config: VolumeConfig | None, operation: str) -> None:
        """`config`: None if it is passed to `start` later."""
        self._invocation = invocation
        self._config = config
        self._operation = operation
        self._settings = AlertSettings()
        self._alerts: list[Alert] = []
        self._source: AlertSource | None = None

    def start(self, config: VolumeConfig) -> None:
        """Take the sinks and the name of the volume from its configuration."""
        self._settings = config.alerts
        if self._settings.sinks:
            from s3k_async.alerts.alert import AlertOrigin, AlertSource

            origin = AlertOrigin.here(job=self._settings.job, email=self._settings.email)
            volume = config.name or config.where
            self._source = AlertSource(self._operation, volume, origin)

    def add(self, made: Callable[[AlertSource], list[Alert]]) -> None:
        """Add alerts, which are only made if there are sinks."""
        if self._source is not None:
            self._alerts += made(self._source)

    def __enter__(self) -> Self:
        if self._config is not None:
            self.start(self._config)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._source is None or not isinstance(error, Exception | None):
            return
        from s3k_async.alerts.finding_alerts import error_alerts

        if error is not None:
            self._alerts += error_alerts(self._source, error)
        try:
            self._send()
        except S3kError as failure:
            if error is None or isinstance(error, click.exceptions.Exit):
                raise
            warn(f"alerts were not sent: {failure}", as_json=self._invocation.json)

    def _send(self) -> None:
        from s3k_async.alerts.dispatch import send_alerts
        from s3k_async.alerts.log_sink import LOGGER
        from s3k_async.cli.verb_records import shown

        with shown(LOGGER, as_json=self._invocation.json):
            run_loop(send_alerts, self._settings, self._alerts)
