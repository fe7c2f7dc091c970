"""What a backend is: a location, read from its URL, that opens the adapter for what is there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import ClassVar, Self

from s3k_async._core.runtime import SYSTEM, Sources
from s3k_async.aws.access import AwsConfig
from s3k_async.errors import UnsupportedError
from s3k_async.stores.ballast import Ballast
from s3k_async.stores.blobs import BlobStore
from s3k_async.stores.interception import TableStore
from s3k_async.stores.items import MAX_TRANSACTION

__all__ = [
    "BlobCapabilities",
    "BlobLocation",
    "Location",
    "OpenContext",
    "TableCapabilities",
    "TableLocation",
    "TableStore",
    "require_capabilities",
]


@dataclass(frozen=True, slots=True)
class OpenContext:
    """What an adapter may use besides its location."""

    session: object | None = None
    """An aioboto3 session, for backends on AWS; None: one of its own."""
    sources: Sources = SYSTEM
    """Time, randomness and ids."""


@dataclass(frozen=True, slots=True)
class TableCapabilities:
    """What an item store can do. The contract suite shows that it is true."""

    conditional_writes: bool
    """A write takes a condition on the stored item, checked and applied in one step."""
    transaction_size: int
    """Actions of one transaction, all applied or none."""

    def lacking(self) -> list[str]:
        """What a volume needs and the store cannot do."""
        lacking = [] if self.conditional_writes else ["conditional writes"]
        if self.transaction_size < MAX_TRANSACTION:
            lacking.append(f"transactions of {MAX_TRANSACTION} actions")
        return lacking


@dataclass(frozen=True, slots=True)
class BlobCapabilities:
    """What a blob store can do. The contract suite shows that it is true."""

    conditional_writes: bool
    """A put takes `if_absent` or `if_match`, checked and applied in one step."""
    multipart: bool
    """A blob can be uploaded in parts and appears when the upload is completed."""
    sorted_listing: bool
    """Listings ascend by the keys' UTF-8 bytes."""

    def lacking(self) -> list[str]:
        """What a volume needs and the store cannot do."""
        return [
            each.name.replace("_", " ") for each in fields(self) if not getattr(self, each.name)
        ]


class Location(ABC):
    """A place in a service, on a disk or in memory: a frozen dataclass that can be pickled.

    Neither its repr nor its pickle has secrets. To import it loads no client library; `open` does.
    """

    __slots__ = ()

    scheme: ClassVar[str]
    """What its URLs begin with, and the name under which the registry has it."""
    form: ClassVar[str]
    """How settings write it, for messages: `s3://BUCKET/PREFIX`."""

    @classmethod
    @abstractmethod
    def parse(cls, text: str, service: AwsConfig) -> Self:
        """The location that a setting means; `service` has the options about services (endpoint,
        credentials, timeouts) of this part of the volume. Raises ConfigError."""

    @classmethod
    def anchored(cls, text: str, base: str | None) -> str:  # noqa: ARG003
        """The setting with a relative path in it made absolute: below `base`, else the working
        directory."""
        return text

    @property
    def service(self) -> AwsConfig | None:
        """How the service is reached, credentials included; None: there is none."""
        return None

    def with_service(self, service: AwsConfig) -> Self:  # noqa: ARG002
        """The same location, reached like this; unchanged if there is no service."""
        return self

    @property
    @abstractmethod
    def label(self) -> str:
        """The location in messages."""

    async def prepare(self) -> None:  # noqa: B027 - most have nothing to do
        """Create what the adapter's `create` expects to exist, such as the parent directory."""


class TableLocation(Location):
    """Where a table is."""

    __slots__ = ()

    capabilities: ClassVar[TableCapabilities]

    @abstractmethod
    def open(self, opening: OpenContext) -> TableStore:
        """The adapter. It connects on its first use."""

    @abstractmethod
    def identity(self, *, embedded: bool) -> str:
        """The table in the ownership claims of its data and log: a URL with this class's scheme,
        equal for every client that uses the table. `embedded`: as the claim of a location in the
        table's own directory has it, so that both can be moved together."""

    @classmethod
    def same_table(cls, one: str, other: str) -> bool:
        """Whether two identities with this class's scheme may be of one table."""
        return one == other

    @property
    def home(self) -> str | None:
        """The directory of an embedded volume whose table this is; None: it is no local file."""
        return None

    def ballast(self) -> Ballast | None:
        """Room on the table's disk for calls that free space; None: it is no local file."""
        return None

    @property
    def volume_name(self) -> str:
        """The name of a new volume where none is given; empty: it must be given."""
        return ""

    @property
    def path_prefix(self) -> str:
        """What a path of the volume begins with on the command line, where that is not
        `s3k://NAME`; empty: it is."""
        return ""


class BlobLocation(Location):
    """Where blobs are: the data of a volume, or its operation log."""

    __slots__ = ()

    capabilities: ClassVar[BlobCapabilities]

    @abstractmethod
    def open(self, opening: OpenContext) -> BlobStore:
        """The adapter. It connects on its first use."""

    @abstractmethod
    def text(self, home: str | None) -> str:
        """The location in the volume record: a URL that ends in `/`, equal for every client; one
        below the directory `home` of an embedded volume is written as `./...`, so that the volume
        can be moved."""

    @property
    def label(self) -> str:
        return self.text(None)

    @abstractmethod
    def below(self, name: str) -> Self:
        """The location `name` inside this one, whose text is this one's with `name/` added."""

    @property
    def place(self) -> object:
        """What tells locations apart, however they are reached."""
        return self

    def prefix_within(self, outer: BlobLocation) -> str | None:  # noqa: ARG002
        """What the keys of `outer` begin with that are keys here, too; None if it has none."""
        return None

    def with_prefix(self, prefix: str) -> Self | None:  # noqa: ARG002
        """Another prefix of the same bucket; None where there are no buckets."""
        return None

    def require_encryption(self, *, writable: bool) -> None:
        """Raises ConfigError if what is here would be written (if `writable`) or read with an
        encryption that is not supported."""


def require_capabilities(location: TableLocation | BlobLocation) -> None:
    """Raises UnsupportedError if a volume cannot be at this location."""
    lacking = location.capabilities.lacking()
    if lacking:
        raise UnsupportedError(
            f"no volume can use {location.scheme}: it lacks {', '.join(lacking)}",
            path=location.label,
        )
