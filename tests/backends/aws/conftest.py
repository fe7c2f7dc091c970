"""Both ways to a table and to a bucket: by aioboto3 (the reference) and by requests of our own; and
both event loops."""

from __future__ import annotations

from functools import partial

import pytest

from s3k_async.backends.dynamodb.dynamodb_wire import WireItems
from s3k_async.backends.s3.s3_blobs import S3Blobs
from s3k_async.backends.s3.s3_wire import WireBlobs
from s3k_async.testing import DynamoItems
from tests.backends.aws.places import Adapter, OpenBlobs, OpenItems, open_blobs, open_items
from tests.event_loops import ASYNCIO, EVENT_LOOPS, EventLoops

OF_EVENT_LOOPS = ("test_connection_pool.py", "test_hostile_servers.py", "test_network.py")


def pytest_asyncio_loop_factories(item: pytest.Item) -> EventLoops:
    """Both where connections and timers are tested, which depend on the event loop."""
    return EVENT_LOOPS if item.path.name in OF_EVENT_LOOPS else ASYNCIO


@pytest.fixture(params=[DynamoItems, WireItems], ids=["reference", "wire"])
def adapter(request: pytest.FixtureRequest) -> Adapter:
    """The adapter under test."""
    made: Adapter = request.param
    return made


@pytest.fixture
def dynamo_items(adapter: Adapter) -> OpenItems:
    """Opens a table's adapter for the length of a block."""
    return partial(open_items, adapter)


@pytest.fixture
def s3_blobs(adapter: Adapter) -> OpenBlobs:
    """Opens a bucket's adapter, of the same way, for the length of a block."""
    return partial(open_blobs, S3Blobs if adapter is DynamoItems else WireBlobs)
