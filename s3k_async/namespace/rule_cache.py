"""The lifecycle rules of a volume as a client knows them: read again when they are a minute old."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from s3k_async._core.runtime import Runtime
from s3k_async.backends.ports.items import ItemStore
from s3k_async.backends.ports.pagination import query_all
from s3k_async.errors import ItemFormatError
from s3k_async.lifecycle_rules import LifecycleRule, RuleSet
from s3k_async.namespace.due_items import RULE_PARTITION, rule_from

__all__ = ["MAX_AGE", "RuleCache"]

MAX_AGE: Final = 60.0
"""Seconds after which the rules are read again. `due_index.SETTLE_MS` depends on it."""
_LOG = logging.getLogger(__name__)


class RuleCache:
    """The rules of one volume. One read serves all calls that wait for it. Belongs to one event
    loop."""

    def __init__(self, items: ItemStore, runtime: Runtime) -> None:
        self._items = items
        self._runtime = runtime
        self._lock = asyncio.Lock()
        self._rules = RuleSet()
        self._read_at: float | None = None
        """Before the last read, monotonic."""
        self._changes = 0
        """How often this client has changed the rules."""

    async def current(self) -> RuleSet:
        """The rules as they were at most MAX_AGE seconds ago. Raises the errors of the table."""
        if self._is_fresh():
            return self._rules
        async with self._lock:
            return self._rules if self._is_fresh() else await self._read()

    async def newest(self) -> RuleSet:
        """The rules as they are now, which all later calls know. Raises as `current`."""
        async with self._lock:
            return await self._read()

    def forget(self) -> None:
        """Have later calls read the rules again, which this client has changed or may have."""
        self._read_at = None
        self._changes += 1

    def _is_fresh(self) -> bool:
        return self._read_at is not None and self._runtime.monotonic() - self._read_at < MAX_AGE

    async def _read(self) -> RuleSet:
        began, changes = self._runtime.monotonic(), self._changes
        found: list[LifecycleRule] = []
        async for page in query_all(self._items, RULE_PARTITION):
            for item in page:
                try:
                    found.append(rule_from(item))
                except ItemFormatError as error:
                    # A write must not fail because of it; fsck reports it.
                    _LOG.warning("ignored: %s", error)
        self._rules = RuleSet.of(found)
        self._read_at = began if changes == self._changes else None
        return self._rules
