"""A distribution with a backend for tables and one for blobs, as a third party would write it.

A shelf is a directory. Its volumes are `shelf:///path` for the table and `shelf:///path/data` for
the data; a key is needed, and not checked.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from s3k_async.backends.aws.access import AwsConfig
from s3k_async.backends.location import (
    BlobCapabilities,
    BlobLocation,
    OpenContext,
    TableCapabilities,
    TableLocation,
    TableStore,
)
from s3k_async.backends.ports.blobs import BlobStore
from s3k_async.errors import ConfigError

__all__ = ["ShelfBlobs", "ShelfTable"]


def _path(text: str) -> str:
    path = text.removeprefix("shelf://")
    if not os.path.isabs(path):
        raise ConfigError("a shelf is shelf:///ABSOLUTE/PATH", path=text)
    return path


@dataclass(frozen=True, slots=True)
class ShelfTable(TableLocation):
    path: str
    service: AwsConfig = field(default_factory=AwsConfig)

    scheme: ClassVar[str] = "shelf"
    form: ClassVar[str] = "shelf:///PATH"
    capabilities: ClassVar[TableCapabilities] = TableCapabilities(
        conditional_writes=True, transaction_size=100
    )

    @classmethod
    def parse(cls, text: str, service: AwsConfig) -> Self:
        return cls(_path(text), service)

    def with_service(self, service: AwsConfig) -> Self:
        return replace(self, service=service)

    def open(self, opening: OpenContext) -> TableStore:
        from s3k_async.backends.sqlite.sqlite_items import SqliteItems

        if not self.service.secret_access_key:
            raise ConfigError("a shelf needs a secret_access_key", path=self.label)
        return SqliteItems(os.path.join(self.path, "items"))

    async def prepare(self) -> None:
        os.makedirs(self.path, exist_ok=True)

    @property
    def label(self) -> str:
        return f"shelf://{self.path}"

    def identity(self, *, embedded: bool) -> str:
        return self.label

    @classmethod
    def same_table(cls, one: str, other: str) -> bool:
        return one.lower() == other.lower()

    @property
    def volume_name(self) -> str:
        return os.path.basename(self.path)


@dataclass(frozen=True, slots=True)
class ShelfBlobs(BlobLocation):
    path: str

    scheme: ClassVar[str] = "shelf"
    form: ClassVar[str] = "shelf:///PATH"
    capabilities: ClassVar[BlobCapabilities] = BlobCapabilities(
        conditional_writes=True, multipart=True, sorted_listing=True
    )

    @classmethod
    def parse(cls, text: str, service: AwsConfig) -> Self:
        return cls(_path(text).rstrip("/"))

    def open(self, opening: OpenContext) -> BlobStore:
        from s3k_async.backends.local.local_blobs import LocalBlobs

        return LocalBlobs(self.path)

    async def prepare(self) -> None:
        os.makedirs(os.path.dirname(self.path), exist_ok=True)

    def text(self, home: str | None) -> str:
        return f"shelf://{self.path}/"

    def below(self, name: str) -> Self:
        return replace(self, path=os.path.join(self.path, name))
