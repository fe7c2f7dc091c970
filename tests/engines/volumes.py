"""Volumes on every combination of table and blob store, fresh for each test and removed after
it."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import pytest
from botocore.config import Config
from botocore.session import Session, get_session

from s3k_async.backends.redis import RedisBlobs, RedisServer, RedisTable
from s3k_async.backends.rocksdb import RocksdbBlobs, RocksdbTable
from s3k_async.config import (
    AwsConfig,
    BlobLocation,
    DynamoTable,
    LocalDirectory,
    MemoryBlobs,
    MemoryTable,
    S3Bucket,
    SqliteFile,
    TableLocation,
    VolumeConfig,
)
from tests.engines.process import Engine

__all__ = [
    "BACKENDS",
    "Rooms",
    "VolumeMaker",
    "backend_params",
    "closing_client",
    "fresh_bucket",
    "fresh_name",
    "fresh_table",
    "module_volume_backends",
    "volume_backends",
]

BACKENDS: dict[str, tuple[str, ...]] = {
    "memory": (),
    "embedded": (),
    "dynamodb_local+seaweedfs": ("dynamodb_local", "seaweedfs"),
    "dynoxide+moto": ("dynoxide", "moto_s3"),
    "dynoxide+seaweedfs": ("dynoxide", "seaweedfs"),
    "redis": ("redis_server",),
    "rocksdb": (),
    "shared": (),
}
"""Name of a combination to the fixtures of the engines it needs: table first, then blobs. `shared`:
in memory, in a table with a prefix, only where it is named."""

T = TypeVar("T")

_numbers = itertools.count(1)


def fresh_name(stem: str) -> str:
    """A name nobody else of this run uses: good for tables, buckets and volumes."""
    return f"{stem}-{os.getpid()}-{next(_numbers)}"


def backend_params(*names: str) -> list[Any]:
    """Parameters for a fixture over the named combinations (none: all), marked where they need an
    engine."""
    return [
        pytest.param(name, id=name, marks=[pytest.mark.engine] if BACKENDS[name] else [])
        for name in names or tuple(name for name in BACKENDS if name != "shared")
    ]


def volume_backends(
    *names: str, slow: Sequence[str] = (), tree: Sequence[str] = ()
) -> pytest.MarkDecorator:
    """Run a test that takes `new_volume` on the named combinations only; on those of `slow` with
    this mark, and on those of `tree` with this mark in layout `tree`: then the test, or a fixture
    of it, takes `layout`, too."""
    chosen = backend_params(*names) + _slow(*slow)
    if not tree:
        return pytest.mark.parametrize("new_volume", chosen, indirect=True)
    both = [
        pytest.param(*each.values, layout, id=f"{each.id}-{layout}", marks=each.marks)
        for layout, some in (("path", chosen), ("tree", _slow(*tree)))
        for each in some
    ]
    return pytest.mark.parametrize(("new_volume", "layout"), both, indirect=True)


def _slow(*names: str) -> list[Any]:
    """As `backend_params`, with the mark `slow`, and without names none."""
    return [
        pytest.param(*each.values, id=each.id, marks=[*each.marks, pytest.mark.slow])
        for each in (backend_params(*names) if names else ())
    ]


def module_volume_backends(*names: str) -> pytest.MarkDecorator:
    """As `volume_backends`, for tests that take `new_module_volume`."""
    return pytest.mark.parametrize(
        "new_module_volume", backend_params(*names), indirect=True, scope="module"
    )


@contextmanager
def fresh_table(server: Engine) -> Iterator[DynamoTable]:
    """A table name that is free; what was made under it is dropped afterwards."""
    name = fresh_name("s3k-table")
    try:
        yield DynamoTable(name, server.aws())
    finally:
        _drop_table(server, name)


@contextmanager
def fresh_bucket(server: Engine, prefix: str = "") -> Iterator[S3Bucket]:
    """A bucket name that is free; what was made under it is emptied and removed afterwards."""
    name = fresh_name("s3k-bucket")
    try:
        yield S3Bucket(name, prefix, server.aws())
    finally:
        _drop_bucket(server, name)


class Rooms:
    """Gives out places for tables and blobs of one combination, and remembers what has to be
    cleaned up."""

    def __init__(self, backend: str, engines: tuple[Engine, ...], directory: Path) -> None:
        self._backend = backend
        self._engines = engines
        self._directory = directory
        self._open: list[AbstractContextManager[object]] = []

    def table(self) -> TableLocation:
        """A place for a table that does not exist yet."""
        if self._backend == "redis":
            server, aws = self._redis()
            return RedisTable(server, fresh_name("table"), aws)
        if self._engines:
            return self._enter(fresh_table(self._engines[0]))
        if self._backend in ("memory", "shared"):
            return MemoryTable(fresh_name("table"))
        if self._backend == "rocksdb":
            return RocksdbTable(self._short_directory())
        return SqliteFile(str(self._directory / f"{fresh_name('table')}.db"))

    def blobs(self) -> BlobLocation:
        """A place for blobs that does not exist yet."""
        if self._backend == "redis":
            server, aws = self._redis()
            return RedisBlobs(server, fresh_name("blobs"), aws)
        if self._engines:
            prefix = "team/volumes/" if self._backend == "dynoxide+seaweedfs" else ""
            return self._enter(fresh_bucket(self._engines[1], prefix))
        if self._backend in ("memory", "shared"):
            return MemoryBlobs(fresh_name("blobs"))
        if self._backend == "rocksdb":
            return RocksdbBlobs(self._short_directory())
        return LocalDirectory(str(self._directory / fresh_name("blobs")))

    def close(self) -> None:
        """Remove everything that was given out."""
        while self._open:
            self._open.pop().__exit__(None, None, None)

    def _redis(self) -> tuple[RedisServer, AwsConfig]:
        # What is made there ends with the engine, which has its data in memory.
        address, aws = self._engines[0].endpoint.rpartition("/")[2], self._engines[0].aws()
        host, _, port = address.partition(":")
        return RedisServer(host, int(port), user=aws.access_key_id.reveal()), aws

    def _short_directory(self) -> str:
        # Absolute paths of data and log have to fit into a table tag.
        return os.path.join(self._enter(TemporaryDirectory(prefix="s3k-")), "d")

    def _enter(self, place: AbstractContextManager[T]) -> T:
        location = place.__enter__()
        self._open.append(place)
        return location


class VolumeMaker:
    """Makes settings of volumes that do not exist yet, all on one combination of stores."""

    def __init__(self, backend: str, rooms: Rooms) -> None:
        self.backend = backend
        """The combination's name, a key of BACKENDS."""
        self.rooms = rooms

    def __call__(self, name: str | None = None, **settings: Any) -> VolumeConfig:
        """Settings of a new volume of layout `path`, the same on every combination; `settings`
        replace fields of VolumeConfig."""
        config = VolumeConfig(
            name or fresh_name("volume"),
            self.rooms.table(),
            self.rooms.blobs(),
            layout="path",
            table_prefix="team-a" if self.backend == "shared" else "",
        )
        return replace(config, **settings)


@functools.cache
def _session() -> Session:
    """One for all clients: each of its own would read the service models again, for longer than a
    test takes."""
    return get_session()


@contextmanager
def closing_client(server: Engine, service: str) -> Iterator[Any]:
    """A plain botocore client of the engine, for what the tests do behind the back of the
    package."""
    client: Any = _session().create_client(
        service,
        endpoint_url=server.endpoint,
        region_name=server.region,
        aws_access_key_id=server.access_key,
        aws_secret_access_key=server.secret_key,
        config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 3}),
    )
    try:
        yield client
    finally:
        client.close()


def _drop_table(server: Engine, name: str) -> None:
    with closing_client(server, "dynamodb") as client:
        try:
            client.delete_table(TableName=name)
        except client.exceptions.ResourceNotFoundException:
            return


def _drop_bucket(server: Engine, name: str) -> None:
    with closing_client(server, "s3") as s3:
        try:
            s3.head_bucket(Bucket=name)
        except s3.exceptions.ClientError:
            return
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=name):
            keys = [{"Key": each["Key"]} for each in page.get("Contents", ())]
            if keys:
                s3.delete_objects(Bucket=name, Delete={"Objects": keys, "Quiet": True})
        for upload in s3.list_multipart_uploads(Bucket=name).get("Uploads", ()):
            s3.abort_multipart_upload(Bucket=name, Key=upload["Key"], UploadId=upload["UploadId"])
        s3.delete_bucket(Bucket=name)
