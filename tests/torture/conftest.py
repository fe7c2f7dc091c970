"""A server that a test may kill."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import unavailable
from tests.engines import redis_server


@pytest.fixture
def killable_redis(tmp_path: Path) -> Iterator[redis_server.Server]:
    """A Redis of this test alone, which may be killed and started again."""
    if redis_server.missing():
        unavailable(str(redis_server.missing()))
    directory = tmp_path / "redis"
    directory.mkdir()
    server = redis_server.Server(directory)
    yield server
    server.process.stop()
