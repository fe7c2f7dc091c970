"""Both ways to a bucket: by aioboto3 (the reference) and by requests of our own."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from s3k_async.backends.s3.s3_blobs import S3Blobs
from s3k_async.backends.s3.s3_wire import WireBlobs
from tests.engines.process import Engine


class S3Way(NamedTuple):
    """An adapter and the engine that it speaks to."""

    adapter: type[S3Blobs]
    engine: Engine


WAYS: dict[str, tuple[type[S3Blobs], str]] = {
    "wire+seaweedfs": (WireBlobs, "seaweedfs"),
    "wire+moto_s3": (WireBlobs, "moto_s3"),
    "reference+seaweedfs": (S3Blobs, "seaweedfs"),
}


@pytest.fixture(params=[S3Blobs, WireBlobs], ids=["reference", "wire"])
def s3_adapter(request: pytest.FixtureRequest) -> type[S3Blobs]:
    """The adapter under test."""
    adapter: type[S3Blobs] = request.param
    return adapter


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.engine) for name in WAYS])
def s3_way(request: pytest.FixtureRequest) -> S3Way:
    """The adapter under test and an engine."""
    adapter, engine = WAYS[request.param]
    return S3Way(adapter, request.getfixturevalue(engine))
