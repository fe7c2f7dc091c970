"""A receiver of observations that keeps all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from s3k_async._core.observation import (
    Metrics,
    RequestAttempt,
    RequestResult,
    VerbCall,
    VerbResult,
)
from s3k_async.client import S3kClient
from s3k_async.config import VolumeConfig
from s3k_async.model import Feature, LayoutName
from s3k_async.testing import FaultPlan
from s3k_async.volumes import init_volume
from tests.client.rig import memory_config

__all__ = ["Recorder", "observed_client"]


@dataclass
class Recorder:
    """All observations, in the order of their ends."""

    started: list[VerbCall] = field(default_factory=list)
    verbs: list[tuple[VerbCall, VerbResult]] = field(default_factory=list)
    sent: list[RequestAttempt] = field(default_factory=list)
    requests: list[tuple[RequestAttempt, RequestResult]] = field(default_factory=list)
    events: list[str] = field(default_factory=list)

    def verb_started(self, verb: VerbCall) -> object:
        self.started.append(verb)
        return verb

    def verb_ended(self, verb: VerbCall, result: VerbResult, state: Any) -> None:
        assert state is verb
        self.verbs.append((verb, result))

    def request_started(self, request: RequestAttempt, verb_state: Any) -> object:
        assert verb_state is request.verb
        self.sent.append(request)
        return request

    def request_ended(self, request: RequestAttempt, result: RequestResult, state: Any) -> None:
        assert state is request
        self.requests.append((request, result))

    def event(self, volume: str, name: str) -> None:
        self.events.append(name)

    def clear(self) -> None:
        for kept in (self.started, self.verbs, self.sent, self.requests, self.events):
            kept.clear()

    @property
    def outcomes(self) -> list[tuple[str, str]]:
        """Verbs with their outcomes."""
        return [(verb.verb, result.outcome) for verb, result in self.verbs]


@asynccontextmanager
async def observed_client(
    metrics: Metrics | Sequence[Metrics],
    faults: FaultPlan | None = None,
    *,
    layout: LayoutName = "path",
    features: Sequence[Feature] = (),
    config: VolumeConfig | None = None,
) -> AsyncIterator[S3kClient]:
    """A client of a volume in memory, a new one unless given, whose calls go through `faults`."""
    if config is None:
        config = memory_config(layout=layout)
        await init_volume(config, enable=features)
    plan = FaultPlan() if faults is None else faults
    with plan.injected():
        client = S3kClient(config=config, metrics=metrics)
        await client.open_volume()
    plan.calls.clear()
    try:
        yield client
    finally:
        await client.close()
