"""The alerts of one run of a command."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from s3k_async.cli.invocation import Invocation
from s3k_async.config import VolumeConfig
from s3k_async.errors import S3kError

if TYPE_CHECKING:
    from s3k_async.alerts.alert import Alert, AlertSource

__all__ = ["CommandAlerts"]


class CommandAlerts:
    """Sends the alerts of a run at its end, after its output, if the settings name sinks.

    A run that ends with a timeout or throttling is an alert of its own. An error in sending them
    is raised as the settings demand, but never replaces that of the run.
    """

    def __init__(self, invocation: Invocation, config: VolumeConfig, operation: str) -> None:
        self._invocation = invocation
        self._config = config
        self._operation = operation
        self._alerts: list[Alert] = []
        self._source: AlertSource | None = None

    def add(self, made: Callable[[AlertSource], list[Alert]]) -> None:
        """Add alerts, which are only made if there are sinks."""
        if self._source is not None:
            self._alerts += made(self._source)

    def __enter__(self) -> Self:
        settings = self._config.alerts
        if settings.sinks:
            from s3k_async.alerts.alert import AlertOrigin, AlertSource

            origin = AlertOrigin.here(job=settings.job, email=settings.email)
            volume = self._config.name or self._config.where
            self._source = AlertSource(self._operation, volume, origin)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._source is None or isinstance(error, KeyboardInterrupt):
            return
        from s3k_async.alerts.finding_alerts import error_alerts

        if error is not None:
            self._alerts += error_alerts(self._source, error)
        try:
            self._send()
        except S3kError as failure:
            if not isinstance(error, S3kError):
                raise
            error.add_note(f"alerts were not sent: {failure}")

    def _send(self) -> None:
        import anyio

        from s3k_async.alerts.dispatch import send_alerts
        from s3k_async.alerts.log_sink import LOGGER
        from s3k_async.cli.verb_records import shown

        with shown(LOGGER, as_json=self._invocation.json):
            anyio.run(send_alerts, self._config.alerts, self._alerts)
