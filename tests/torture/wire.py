"""A network between clients and engines that fails in every way it can, as often as it is told
to."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from s3k_async._core.retry import Retries, RetryPolicy
from s3k_async.config import DynamoTable, S3Bucket, Tuning, VolumeConfig
from tests.proxy import (
    CLOSE_AFTER,
    CLOSE_BEFORE,
    LOSE_ANSWER,
    REFUSE,
    Call,
    Delay,
    Duplicate,
    Fault,
    FaultProxy,
    Rule,
    Truncate,
    dynamodb_error,
    s3_error,
)

__all__ = ["ALL_KINDS", "Weather", "bad_network"]

KINDS: Mapping[str, Fault] = {
    "reset": REFUSE,
    "closed": CLOSE_BEFORE,
    "answer lost": LOSE_ANSWER,
    "closed after": CLOSE_AFTER,
    "delayed": Delay(0.05),
    "truncated": Truncate(7),
    "duplicated": Duplicate(),
}
"""What befalls requests to both services; throttling each does in its own words."""
THROTTLED: Mapping[str, Fault] = {
    "table": dynamodb_error("ThrottlingException"),
    "blobs": s3_error("SlowDown", status=503),
}

ALL_KINDS = frozenset({*KINDS, "throttled"})

TUNING = Tuning(
    busy_timeout=3.0, retry=Retries.alike(RetryPolicy(attempts=8, base=0.002, cap=0.02))
)


class Weather:
    """What went wrong so far, by kind."""

    def __init__(self) -> None:
        self._rules: list[tuple[str, Rule]] = []

    def add(self, kind: str, rule: Rule) -> None:
        self._rules.append((kind, rule))

    @property
    def injected(self) -> dict[str, int]:
        """Kinds of faults to how many requests they befell."""
        counts: Counter[str] = Counter()
        for kind, rule in self._rules:
            counts[kind] += rule.hits
        return dict(counts)


@asynccontextmanager
async def bad_network(
    config: VolumeConfig, share: float, seed: str
) -> AsyncIterator[tuple[VolumeConfig, Weather]]:
    """The volume, reached over proxies by which so many of its requests (0 to 1) are hit, each kind
    alike."""
    table, data = config.table, config.data
    assert isinstance(table, DynamoTable)
    assert isinstance(data, S3Bucket)
    weather = Weather()
    chance = random.Random(seed)
    async with AsyncExitStack() as stack:
        urls = {}
        for part, upstream in (("table", table.aws.endpoint), ("blobs", data.aws.endpoint)):
            proxy = await stack.enter_async_context(FaultProxy(upstream))
            for kind, fault in {**KINDS, "throttled": THROTTLED[part]}.items():
                rule = proxy.rule(fault, when=_now_and_then(chance, share / (len(KINDS) + 1)))
                weather.add(f"{part} {kind}", rule)
            urls[part] = proxy.url
        reached = replace(
            config,
            table=replace(table, aws=replace(table.aws, endpoint=urls["table"])),
            data=replace(data, aws=replace(data.aws, endpoint=urls["blobs"])),
            tuning=TUNING,
        )
        yield reached, weather


def _now_and_then(chance: random.Random, share: float) -> Callable[[Call], bool]:
    return lambda _: chance.random() < share
