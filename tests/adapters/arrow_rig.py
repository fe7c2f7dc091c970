"""Volumes as pyarrow sees them, for the tests of `s3k_async.adapters.arrow`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest
from pyarrow.fs import PyFileSystem

from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async.adapters.arrow import S3kHandler
from s3k_async.config import VolumeConfig
from s3k_async.volumes import init_volume

__all__ = ["client_of", "new_filesystem", "put", "read", "wait_until_nothing_is_reserved"]


@contextmanager
def new_filesystem(config: VolumeConfig) -> Iterator[PyFileSystem]:
    """A new volume at a place where none is yet."""
    asyncio.run(init_volume(config))
    with S3kSyncClient(config=config) as client:
        yield PyFileSystem(S3kHandler(client))


def client_of(fs: PyFileSystem) -> S3kSyncClient:
    """The client under it."""
    client: S3kSyncClient = fs.handler.client
    return client


def put(fs: PyFileSystem, path: str, data: bytes = b"data") -> None:
    with fs.open_output_stream(path, compression=None) as stream:
        stream.write(data)


def read(fs: PyFileSystem, path: str) -> bytes:
    with fs.open_input_stream(path, compression=None) as stream:
        data: bytes = stream.read()
    return data


def wait_until_nothing_is_reserved(fs: PyFileSystem) -> None:
    """What Arrow drops is discarded on the client's loop, a moment later; until then its path is
    reserved."""
    for _ in range(10_000):
        everything = client_of(fs).list("/", recursive=True, include_uncommitted=True)
        if all(status.is_dir or status.committed for status in everything):
            return
    pytest.fail("a reservation is left")


def table(rows: int = 1000, **columns: object) -> pa.Table:
    """Rows with a number `n` and whatever else."""
    return pa.table({"n": list(range(rows)), **columns})
