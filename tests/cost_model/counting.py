"""Requests that a client made, beside those that the model says."""

from __future__ import annotations

from s3k_async._core.metering import RequestCounter
from s3k_async.backends.memory import memory_items
from s3k_async.client import S3kClient
from s3k_async.config import Tuning
from s3k_async.cost_model import LaidTree, Service, Workload, measure
from s3k_async.model import Entry
from s3k_async.namespace.ordered_walk import walk
from s3k_async.table.keys import Directory

__all__ = ["MEMORY", "ONE_AT_A_TIME", "Counts", "laid", "made", "predicted"]

ONE_AT_A_TIME = Tuning(max_concurrency=1)
"""So that what calls at the same time would share is not shared."""

MEMORY = Service(page_items=memory_items._PAGE)
"""The engine in memory counts the items of a page."""

Counts = dict[str, dict[str, int]]


async def made(client: S3kClient, counter: RequestCounter) -> Counts:
    """What was counted; the marks in the log, which nobody waited for, included."""
    await client._volume().log.drained()
    assert counter.requests.retries == 0
    return counter.requests.as_dict()


def predicted(work: Workload) -> Counts:
    """What the model says; every count is certain."""
    counts: Counts = {}
    for (part, name), number in work.requests.items():
        assert number.exact
        counts.setdefault(part, {})[name] = number.likely
    return counts


async def laid(client: S3kClient, path: str, service: Service) -> LaidTree:
    """The layout of a tree as it is stored."""
    store = client._volume().store
    top = await store.get(path)
    assert top is not None
    entries: list[Entry] = [
        entry async for page in walk(client._volume().store, Directory.at(path)) for entry in page
    ]
    return measure(entries, top, store.keys, service)
