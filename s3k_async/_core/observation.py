"""Observations: the start and the end of each verb and of each request, for metrics, traces and
logs.

A verb starts and ends in `active_calls`, a request in `backends.retrying.request_pipeline`;
requests are counted in `metering`. Without metrics no code of this module runs.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeAlias

from s3k_async._core.metering import (
    Part,
    RequestCounter,
    Requests,
    counting_towards,
    enclosing_counters,
    is_deferred,
)
from s3k_async._core.runtime import SYSTEM, Runtime

__all__ = [
    "Metrics",
    "ObservedRequest",
    "ObservedVerb",
    "Observer",
    "Outcome",
    "RequestAttempt",
    "RequestResult",
    "VerbCall",
    "VerbResult",
    "error_type",
    "inherited_observer",
    "observing",
]

_LOG: Final = logging.getLogger(__name__)

Outcome: TypeAlias = Literal["success", "error", "cancelled", "abandoned"]
"""How a verb or a request ended. Abandoned: a listing that its caller did not read to the end."""


@dataclass(frozen=True, slots=True)
class VerbCall:
    """One call of a verb: a method of a client, of a transaction, of the trash or of the object
    store, a listing from its first step to its end, or an operation of an open file."""

    volume: str
    """The name of the volume."""
    verb: str
    """`rename`; with a prefix `transaction.write`, `trash.restore`, `objects.put`, `file.read`."""
    path: str | None
    """The first path of the call, as given; None for a call without one, or with a list."""
    id: str
    """A random UUID of this call."""


@dataclass(frozen=True, slots=True)
class VerbResult:
    """The end of a verb."""

    outcome: Outcome
    error: BaseException | None
    """The exception that the caller gets."""
    seconds: float
    """Duration; for a listing, the time spent in its steps, without that of its caller."""
    requests: Requests
    """Its requests so far, without deferred ones."""


@dataclass(frozen=True, slots=True)
class RequestAttempt:
    """One attempt at a request to table, data or log."""

    volume: str
    part: Part
    operation: str
    """The service's name: `GetItem`, `PutObject`."""
    is_retry: bool
    is_deferred: bool
    """Whether it is sent after the caller's result."""
    queued: float
    """Seconds that it waited for the concurrency limit."""
    verb: VerbCall | None
    """The call that it belongs to; None for requests that open or close a client."""


@dataclass(frozen=True, slots=True)
class RequestResult:
    """The end of an attempt at a request."""

    outcome: Outcome
    error: BaseException | None
    seconds: float
    """Duration, without the time in the queue."""
    sent: int
    """Bytes of content in the request; 0 for the table."""
    received: int
    """Bytes of content in the response."""
    throttled: bool
    """Whether the service throttled the request, or a part of it."""
    partitions: tuple[str, ...] = ()
    """The partition keys of the table that were throttled, each once. They contain paths or ids
    of directories."""


class Metrics(Protocol):
    """A receiver of observations, passed as `S3kClient(..., metrics=...)`.

    The methods are called on the event loop of the client and must not block. The result of
    `verb_started` and of `request_started` is passed to the other method of the pair. An exception
    is logged, once for each client, and does not affect the call.
    """

    def verb_started(self, verb: VerbCall) -> object:
        """A verb begins."""

    def verb_ended(self, verb: VerbCall, result: VerbResult, state: Any) -> None:
        """A verb ends. It may be the last of several calls that ran concurrently, in another task
        than it began in."""

    def request_started(self, request: RequestAttempt, verb_state: Any) -> object:
        """A request is sent. `verb_state`: what `verb_started` returned for its verb, or None."""

    def request_ended(self, request: RequestAttempt, result: RequestResult, state: Any) -> None:
        """A request ends, in the task that began it."""

    def event(self, volume: str, name: str) -> None:
        """An event that no result shows; docs/metrics.md lists the names."""


def outcome_of(error: BaseException | None) -> Outcome:
    """The outcome of a call that raised `error`."""
    if error is None:
        return "success"
    if isinstance(error, GeneratorExit):
        return "abandoned"
    return "cancelled" if isinstance(error, asyncio.CancelledError) else "error"


def error_type(outcome: Outcome, error: BaseException | None) -> str:
    """The name of an error's class, a label of low cardinality; empty without an error."""
    if outcome == "error" and error is not None:
        return type(error).__name__
    return "" if outcome == "success" else outcome


class Observer:
    """Passes the observations of one client to its metrics. Belongs to one process."""

    __slots__ = ("_failed", "_runtime", "metrics", "volume")

    def __init__(
        self, metrics: Sequence[Metrics], volume: str = "", runtime: Runtime = SYSTEM
    ) -> None:
        self.metrics = tuple(metrics)
        self._runtime = runtime
        self._failed: set[int] = set()
        self.volume = volume
        """The name of the volume; empty until it is known."""

    def joined(self, other: Observer) -> Observer:
        """An observer with the receivers of both, each once."""
        known = {id(each) for each in self.metrics}
        more = [each for each in other.metrics if id(each) not in known]
        return Observer([*self.metrics, *more], self.volume, self._runtime) if more else self

    def begin_verb(self, verb: str, path: object) -> ObservedVerb:
        """Begin to observe a call. `path`: its first argument, if that is a path."""
        call = VerbCall(self.volume, verb, _path_text(path), self._runtime.uuid())
        states = [self._tell(each, each.verb_started, call) for each in self.metrics]
        return ObservedVerb(self, call, states)

    def begin_request(
        self, part: Part, operation: str, *, is_retry: bool, queued: float
    ) -> ObservedRequest:
        """Begin to observe a request of the verb that the code is a part of."""
        verb = self._verb()
        attempt = RequestAttempt(
            self.volume,
            part,
            operation,
            is_retry,
            is_deferred(),
            queued,
            None if verb is None else verb.call,
        )
        parents = [None] * len(self.metrics) if verb is None else verb.states
        states = [
            self._tell(each, each.request_started, attempt, parent)
            for each, parent in zip(self.metrics, parents, strict=True)
        ]
        return ObservedRequest(self, attempt, states)

    def event(self, name: str) -> None:
        """Report an event."""
        for each in self.metrics:
            self._tell(each, each.event, self.volume, name)

    def verb_ended(self, verb: ObservedVerb, result: VerbResult) -> None:
        """Report the end of a verb."""
        for each, state in zip(self.metrics, verb.states, strict=True):
            self._tell(each, each.verb_ended, verb.call, result, state)

    def request_ended(self, request: ObservedRequest, result: RequestResult) -> None:
        """Report the end of a request, to the receivers in reverse order, as they may nest
        contexts."""
        pairs = list(zip(self.metrics, request.states, strict=True))
        for each, state in reversed(pairs):
            self._tell(each, each.request_ended, request.attempt, result, state)

    def now(self) -> float:
        """Seconds of a monotonic clock."""
        return self._runtime.monotonic()

    def _verb(self) -> ObservedVerb | None:
        for counter in enclosing_counters():
            if isinstance(counter, ObservedVerb) and counter.source is self:
                return counter
        return None

    def _tell(self, metrics: Metrics, method: Callable[..., object], *values: object) -> object:
        try:
            return method(*values)
        # An exception of a receiver must not affect the observed call.
        except Exception as error:  # noqa: BLE001
            if id(metrics) not in self._failed:
                self._failed.add(id(metrics))
                _LOG.warning(
                    "metrics %s failed in %s, and will not be reported again: %s: %s",
                    type(metrics).__name__,
                    getattr(method, "__name__", "a method"),
                    type(error).__name__,
                    error,
                )
            return None


class ObservedVerb(RequestCounter):
    """One observed call, which counts its own requests."""

    __slots__ = ("_began", "_over", "_pid", "_steps", "call", "source", "states")

    def __init__(self, observer: Observer, call: VerbCall, states: Sequence[object]) -> None:
        super().__init__()
        self.source = observer
        self.call = call
        self.states = states
        self._began = observer.now()
        self._steps: float | None = None
        self._over = False
        self._pid = os.getpid()

    @contextmanager
    def step(self) -> Iterator[None]:
        """One step of a listing, whose end or failure is that of the verb."""
        began = self.source.now()
        try:
            with counting_towards(self):
                yield
        except StopAsyncIteration:
            self._add_step(began)
            self.end(None)
            raise
        except BaseException as error:
            self._add_step(began)
            self.end(error)
            raise
        self._add_step(began)

    def _add_step(self, began: float) -> None:
        self._steps = (self._steps or 0.0) + self.source.now() - began

    @property
    def active(self) -> bool:
        """Whether its end was not reported. False in a forked child, in which the call does not
        continue."""
        return not self._over and self._pid == os.getpid()

    def end(self, error: BaseException | None) -> None:
        """Report the end, once."""
        if not self.active:
            return
        self._over = True
        seconds = self.source.now() - self._began if self._steps is None else self._steps
        self.source.verb_ended(self, VerbResult(outcome_of(error), error, seconds, self.requests))


class ObservedRequest:
    """One observed attempt at a request."""

    __slots__ = ("_began", "_observer", "attempt", "states")

    def __init__(
        self, observer: Observer, attempt: RequestAttempt, states: Sequence[object]
    ) -> None:
        self._observer = observer
        self.attempt = attempt
        self.states = states
        self._began = observer.now()

    def end(
        self,
        error: BaseException | None,
        *,
        sent: int,
        received: int,
        throttled: bool,
        partitions: tuple[str, ...],
    ) -> None:
        """Report the end."""
        seconds = self._observer.now() - self._began
        result = RequestResult(
            outcome_of(error), error, seconds, sent, received, throttled, partitions
        )
        self._observer.request_ended(self, result)


def _path_text(value: object) -> str | None:
    """A path as text, without the authority of a URL, which could contain a password; None for
    anything else."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if not isinstance(value, str):
        return None
    scheme, found, rest = value.partition("://")
    return f"/{rest.partition('/')[2]}" if found and "/" not in scheme else value


_inherited: ContextVar[Observer | None] = ContextVar("s3k_observer", default=None)


@contextmanager
def observing(observer: Observer | None) -> Iterator[None]:
    """Let clients that are opened in the body be observed by this one, too."""
    outer = _inherited.get()
    _inherited.set(observer or outer)
    try:
        yield
    finally:
        _inherited.set(outer)


def inherited_observer() -> Observer | None:
    """The observer of all clients that are opened here."""
    return _inherited.get()
