"""The log of verbs: one record of Python's logging for each call, without secrets or content.

The records are emitted by the logger `s3k_async.operations`; their fields are attributes of the
record, so that a JSON formatter can show them.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from s3k_async._core.observation import (
    RequestAttempt,
    RequestResult,
    VerbCall,
    VerbResult,
    error_type,
)

__all__ = ["VerbLog"]

_LOG: Final = logging.getLogger("s3k_async.operations")


class VerbLog:
    """A receiver of observations that logs verbs, throttled requests and events at one level."""

    def __init__(self, level: int) -> None:
        self._level = level

    def verb_started(self, verb: VerbCall) -> object:
        """No effect: a verb is logged when it has ended."""

    def verb_ended(self, verb: VerbCall, result: VerbResult, state: Any) -> None:  # noqa: ARG002
        """Log a verb."""
        if not _LOG.isEnabledFor(self._level):
            return
        requests = result.requests
        _LOG.log(
            self._level,
            "%s %s: %s, %.1f ms, %d requests",
            verb.verb,
            verb.path or "-",
            result.outcome,
            result.seconds * 1000,
            requests.total,
            extra={
                "request_id": verb.id,
                "volume": verb.volume,
                "verb": verb.verb,
                "path": verb.path,
                "outcome": result.outcome,
                "error": error_type(result.outcome, result.error),
                "duration": result.seconds,
                "requests": requests.total,
                "retries": requests.retries,
                "bytes": requests.bytes,
            },
        )

    def request_started(self, request: RequestAttempt, verb_state: Any) -> object:
        """No effect."""

    def request_ended(
        self,
        request: RequestAttempt,
        result: RequestResult,
        state: Any,  # noqa: ARG002
    ) -> None:
        """Log a throttled request with its partitions."""
        if not result.throttled or not _LOG.isEnabledFor(self._level):
            return
        _LOG.log(
            self._level,
            "%s to the %s was throttled: %s",
            request.operation,
            request.part,
            ", ".join(result.partitions) or "no partition is known",
            extra={
                "request_id": None if request.verb is None else request.verb.id,
                "volume": request.volume,
                "part": request.part,
                "operation": request.operation,
                "partitions": result.partitions,
            },
        )

    def event(self, volume: str, name: str) -> None:
        """Log an event."""
        _LOG.log(self._level, "%s: %s", volume, name, extra={"volume": volume, "event": name})
