"""Tables and blobs in this process's memory, for tests and experiments."""

from __future__ import annotations

from dataclasses import dataclass, replace
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
from s3k_async.backends.url_parts import single_name

__all__ = ["MemoryBlobs", "MemoryTable"]


@dataclass(frozen=True, slots=True)
class MemoryTable(TableLocation):
    """A table in this process, shared by all clients with the same name."""

    name: str

    scheme: ClassVar[str] = "memory"
    form: ClassVar[str] = "memory://NAME"
    capabilities: ClassVar[TableCapabilities] = TableCapabilities(
        conditional_writes=True, transaction_size=100, snapshot_reads=True
    )

    @classmethod
    def parse(cls, text: str, service: AwsConfig) -> Self:  # noqa: ARG003
        return cls(single_name(text.partition("://")[2], text))

    def open(self, opening: OpenContext) -> TableStore:
        from s3k_async.backends.memory.memory_items import MemoryItems

        return MemoryItems(self.name, opening.runtime)

    @property
    def label(self) -> str:
        return f"memory://{self.name}"

    def identity(self, *, embedded: bool) -> str:  # noqa: ARG002
        return self.label

    @property
    def volume_name(self) -> str:
        return self.name

    @property
    def path_prefix(self) -> str:
        return self.label


@dataclass(frozen=True, slots=True)
class MemoryBlobs(BlobLocation):
    """Blobs in this process, shared by all clients with the same name."""

    name: str

    scheme: ClassVar[str] = "memory"
    form: ClassVar[str] = "memory://NAME"
    capabilities: ClassVar[BlobCapabilities] = BlobCapabilities(
        conditional_writes=True, multipart=True, sorted_listing=True
    )

    @classmethod
    def parse(cls, text: str, service: AwsConfig) -> Self:  # noqa: ARG003
        return cls(single_name(text.partition("://")[2], text))

    def open(self, opening: OpenContext) -> BlobStore:
        from s3k_async.backends.memory.memory_blobs import MemoryBlobs as MemoryBlobStore

        return MemoryBlobStore(self.name, opening.runtime)

    def text(self, home: str | None) -> str:  # noqa: ARG002
        return f"memory://{self.name}/"

    def below(self, name: str) -> Self:
        return replace(self, name=f"{self.name}/{name}")
