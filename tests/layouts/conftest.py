"""Tables of several engines for volumes of layout `tree`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from s3k_async.backends.location import OpenContext
from s3k_async.backends.ports.interception import TableStore
from s3k_async.backends.registry import TABLES
from s3k_async.config import AwsConfig
from tests.contracts.subjects import ITEM_SUBJECTS
from tests.engines.process import Engine
from tests.engines.volumes import fresh_name


@pytest.fixture
async def table(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[TableStore]:
    """An empty table of the engine that the parameter names."""
    subject = ITEM_SUBJECTS[request.param]
    aws = AwsConfig()
    if subject.engine is not None:
        engine: Engine = request.getfixturevalue(subject.engine)
        aws = engine.aws()
    url = subject.url.format(name=fresh_name("layouts"), directory=tmp_path)
    store = TABLES.location(url, aws).open(OpenContext(None))
    assert await store.create()
    yield store
    await store.drop()
    await store.close()
