"""The port of sinks, and the sink at an address."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from s3k_async.alerts.alert import Alert
from s3k_async.alerts.sink_address import SinkAddress
from s3k_async.config import AwsConfig

__all__ = ["AlertSink", "open_sink"]


class AlertSink(Protocol):
    """A receiver of alerts."""

    async def send(self, alerts: Sequence[Alert]) -> None:
        """Send alerts, at least once each: after an error some may have arrived, and a caller may
        send all of them again. Raises ThrottledError, UnreachableError, PermissionDeniedError,
        CredentialsError, RequestTimeoutError, ResponseLostError, ServiceError, ConfigError."""

    async def close(self) -> None:
        """Close connections. Idempotent."""


def open_sink(address: SinkAddress, aws: AwsConfig) -> AlertSink:
    """The sink at an address, which connects when it is first used. Its modules are imported here,
    so that a sink needs only its own libraries."""
    match address.scheme:
        case "log":
            from s3k_async.alerts.log_sink import LogSink

            return LogSink()
        case "webhook":
            from s3k_async.alerts.webhook import Webhook

            return Webhook(address, aws)
        case "sqs":
            from s3k_async.alerts.aws_sinks import SqsSink

            return SqsSink(address, aws)
        case "sns":
            from s3k_async.alerts.aws_sinks import SnsSink

            return SnsSink(address, aws)
        case "cloudwatch":
            from s3k_async.alerts.aws_sinks import CloudWatchSink

            return CloudWatchSink(address, aws)
