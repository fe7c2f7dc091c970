"""Sending of alerts to all sinks of the settings, in bounded time, with a policy for failures."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Final

import anyio

from s3k_async._core.concurrency import run_all, to_the_end
from s3k_async._core.retry import RetryPolicy, retry
from s3k_async._core.runtime import SYSTEM
from s3k_async.alerts.alert import Alert
from s3k_async.alerts.alert_sink import open_sink
from s3k_async.alerts.sink_address import SinkAddress, parse_sinks
from s3k_async.config import AlertSettings
from s3k_async.errors import RequestTimeoutError, S3kError

__all__ = ["send_alerts"]

_RETRIES: Final = RetryPolicy(attempts=4, base=0.2)
_AT_ONCE: Final = 8


async def send_alerts(settings: AlertSettings, alerts: Sequence[Alert]) -> None:
    """Send alerts to each sink of the settings, and try all sinks before a failure counts.

    A sink has `settings.deadline` seconds, with retries. The policy for its failure is `on_timeout`
    after that, and `on_error` otherwise: `error` raises the first such failure, `warn` warns by
    UserWarning, `ignore` does nothing. Raises the errors of `AlertSink.send`, and ConfigError.
    """
    if not alerts:
        return
    failures: dict[SinkAddress, S3kError] = {}

    async def one(address: SinkAddress) -> None:
        try:
            await _send(address, settings, alerts)
        except S3kError as error:
            failures[address] = error

    addresses = list(dict.fromkeys(parse_sinks(settings.sinks.reveal())))
    await run_all(one, addresses, limit=_AT_ONCE)
    raised: S3kError | None = None
    for address in addresses:
        error = failures.get(address)
        if error is None:
            continue
        late = isinstance(error, RequestTimeoutError)
        policy = settings.on_timeout if late else settings.on_error
        if policy == "error":
            raised = raised or error
        elif policy == "warn":
            warnings.warn(f"alerts were not sent to {address}: {error.message}", stacklevel=1)
    if raised is not None:
        raise raised


async def _send(address: SinkAddress, settings: AlertSettings, alerts: Sequence[Alert]) -> None:
    sink = open_sink(address, settings.service)
    try:
        with anyio.fail_after(settings.deadline):
            await retry(lambda: sink.send(alerts), _RETRIES, SYSTEM)
    except S3kError:  # of which some are a TimeoutError
        raise
    except TimeoutError as error:
        raise RequestTimeoutError(
            f"alerts could not be sent within {settings.deadline:g} s (alerts_deadline)",
            path=str(address),
        ) from error
    finally:
        await to_the_end(sink.close)
