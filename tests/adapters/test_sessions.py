"""What sessions run in the background of their loops."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from s3k_async.adapters.sessions import post_on
from s3k_async.errors import ServiceError


@pytest.mark.parametrize("error", [ServiceError("down", service_code="X"), RuntimeError("broken")])
async def test_a_failure_behind_an_abandoned_object_is_logged(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> None:
        raise error

    post_on(asyncio.get_running_loop(), fail)
    await anyio.wait_all_tasks_blocked()
    (record,) = caplog.records
    assert record.name == "s3k_async.adapters.sessions"
    assert str(error) in record.getMessage()
    assert bool(record.exc_info) == isinstance(error, RuntimeError)
