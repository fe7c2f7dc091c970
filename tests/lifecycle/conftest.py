"""A volume with lifecycle rules, whose clock the test controls."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from s3k_async.client import S3kClient
from s3k_async.model import LayoutName
from s3k_async.txn import volume_lock
from tests.lifecycle.ruled import Ruled, ruled


@pytest.fixture(autouse=True)
def no_open_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """No client has the volume open, so that the lock need not wait."""
    monkeypatch.setattr(volume_lock, "QUIET_SECONDS", 0.0)


@pytest.fixture
async def place(layout: LayoutName) -> AsyncIterator[Ruled]:
    async with ruled(layout) as made:
        yield made


@pytest.fixture
def fs(place: Ruled) -> S3kClient:
    """The client of the volume."""
    return place.client
