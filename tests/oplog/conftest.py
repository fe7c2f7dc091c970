"""Group commit with both event loops, since it depends on their iterations and timers."""

from __future__ import annotations

import pytest

from tests.event_loops import ASYNCIO, EVENT_LOOPS, EventLoops


def pytest_asyncio_loop_factories(item: pytest.Item) -> EventLoops:
    return EVENT_LOOPS if item.path.name == "test_group_commit.py" else ASYNCIO
