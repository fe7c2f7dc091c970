"""The event loops that a service may have: that of asyncio, and uvloop, the default of uvicorn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import uvloop

__all__ = ["ASYNCIO", "EVENT_LOOPS", "EventLoops"]

EventLoops = Mapping[str, Callable[[], asyncio.AbstractEventLoop]]

EVENT_LOOPS: Final[EventLoops] = {
    "asyncio": asyncio.SelectorEventLoop,
    "uvloop": uvloop.new_event_loop,
}
"""What a `conftest.py` returns from the hook `pytest_asyncio_loop_factories` to run a test with
both."""
ASYNCIO: Final[EventLoops] = {"asyncio": EVENT_LOOPS["asyncio"]}
"""Likewise, for one alone."""
