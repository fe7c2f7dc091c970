"""Tables and blobs in RocksDB databases on local disks, used by one process at a time."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import ClassVar, Final, Self
from urllib.parse import quote, unquote

from s3k_async._core.file_modes import make_parent
from s3k_async._core.worker_threads import in_thread
from s3k_async.backends.aws.access import AwsConfig
from s3k_async.backends.location import (
    BlobCapabilities,
    BlobLocation,
    Location,
    OpenContext,
    TableCapabilities,
    TableLocation,
    TableStore,
)
from s3k_async.backends.ports.blobs import BlobStore
from s3k_async.backends.ports.service_inspection import Inspection
from s3k_async.backends.url_parts import absolute_path
from s3k_async.errors import ConfigError

__all__ = ["RocksdbBlobs", "RocksdbTable"]

_SCHEME: Final = "rocksdb://"
_RELATIVE: Final = (".", "..")
_TABLE: Final = "table"
_BLOBS: Final = "blobs"


def _directory(url: str, base: str | None) -> str:
    """The directory in a URL. Raises ConfigError."""
    path = unquote(url.removeprefix(_SCHEME)).removeprefix("localhost")
    if not path.startswith("/") and path.partition("/")[0] not in _RELATIVE:
        raise ConfigError("a RocksDB URL is rocksdb:///absolute/path or rocksdb://./path", path=url)
    return absolute_path(path, base)


@dataclass(frozen=True, slots=True)
class _RocksdbLocation(Location):
    """A directory with databases: `table` for a table, `blobs` for blobs."""

    path: str

    scheme: ClassVar[str] = "rocksdb"
    form: ClassVar[str] = "rocksdb:///PATH"

    @classmethod
    def parse(cls, text: str, service: AwsConfig) -> Self:  # noqa: ARG003 - no service
        return cls(_directory(text, None))

    @classmethod
    def anchored(cls, text: str, base: str | None) -> str:
        return _url(_directory(text, base))

    @property
    def directory(self) -> str:
        return self.path

    async def prepare(self) -> None:
        await in_thread(make_parent, os.path.join(self.path, _TABLE))


def _url(path: str) -> str:
    return f"{_SCHEME}{quote(os.path.abspath(path))}"


@dataclass(frozen=True, slots=True)
class RocksdbTable(_RocksdbLocation, TableLocation):
    """A table in the RocksDB database `table` of a directory."""

    capabilities: ClassVar[TableCapabilities] = TableCapabilities(
        conditional_writes=True, transaction_size=100, snapshot_reads=True
    )

    def inspection(self, opening: OpenContext) -> Inspection:  # noqa: ARG002
        from s3k_async.backends.local.disk_space import LocalDisk

        return LocalDisk(self.path)

    def open(self, opening: OpenContext) -> TableStore:
        from s3k_async.backends.rocksdb.rocksdb_items import RocksdbItemStore

        return RocksdbItemStore(os.path.join(self.path, _TABLE), opening.runtime)

    @property
    def label(self) -> str:
        return _url(self.path)

    def identity(self, *, embedded: bool) -> str:  # noqa: ARG002 - the same for any volume
        return _url(self.path)

    @classmethod
    def same_table(cls, one: str, other: str) -> bool:
        mine, theirs = (os.path.realpath(_directory(each, None)) for each in (one, other))
        return mine == theirs

    @property
    def volume_name(self) -> str:
        return os.path.basename(os.path.abspath(self.path))


@dataclass(frozen=True, slots=True)
class RocksdbBlobs(_RocksdbLocation, BlobLocation):
    """Blobs in the RocksDB database `blobs` of a directory. A directory inside it is another
    place."""

    is_remote: ClassVar[bool] = False
    capabilities: ClassVar[BlobCapabilities] = BlobCapabilities(
        conditional_writes=True, multipart=True, sorted_listing=True
    )

    def inspection(self, opening: OpenContext) -> Inspection:  # noqa: ARG002
        from s3k_async.backends.local.disk_space import LocalDisk

        return LocalDisk(self.path)

    def open(self, opening: OpenContext) -> BlobStore:
        from s3k_async.backends.rocksdb.rocksdb_blobs import RocksdbBlobStore

        return RocksdbBlobStore(os.path.join(self.path, _BLOBS), self.label, opening.runtime)

    @property
    def label(self) -> str:
        return self.text(None)

    def text(self, home: str | None) -> str:  # noqa: ARG002 - it has one form
        return os.path.join(_url(self.path), "")

    def below(self, name: str) -> Self:
        return type(self)(os.path.join(self.path, name))

    @property
    def place(self) -> object:
        return os.path.abspath(self.path)
