"""Base classes of backends: a location, parsed from its URL, that opens its adapter."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import ClassVar, Self

from s3k_async._core.runtime import SYSTEM, Runtime
from s3k_async.backends.aws.access import AwsConfig
from s3k_async.backends.ballast import Ballast
from s3k_async.backends.ports.blobs import BlobStore
from s3k_async.backends.ports.interception import TableStore
from s3k_async.backends.ports.items import MAX_TRANSACTION
from s3k_async.backends.ports.service_inspection import Inspection
from s3k_async.errors import UnsupportedError

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
    """Resources of an adapter besides its location."""

    session: object | None = None
    """An aioboto3 session, for backends on AWS; None: one of its own."""
    runtime: Runtime = SYSTEM
    """Clock, randomness and ids."""
    conditional_reads: bool = True
    """Whether reads and copies that require an etag send it as a condition, where the service takes
    one; otherwise only the responses are compared."""


@dataclass(frozen=True, slots=True)
class TableCapabilities:
    """Capabilities of an item store, verified by the contract suite."""

    conditional_writes: bool
    """A write takes a condition on the stored item, checked and applied in one step."""
    transaction_size: int
    """Actions of one transaction, all applied or none."""
    snapshot_reads: bool = False
    """`get_many` reads all items of a request at one moment; not required."""

    def lacking(self) -> list[str]:
        """The capabilities that a volume needs and the store lacks."""
        lacking = [] if self.conditional_writes else ["conditional writes"]
        if self.transaction_size < MAX_TRANSACTION:
            lacking.append(f"transactions of {MAX_TRANSACTION} actions")
        return lacking


@dataclass(frozen=True, slots=True)
class BlobCapabilities:
    """Capabilities of a blob store, verified by the contract suite."""

    conditional_writes: bool
    """A put takes `if_absent` or `if_match`, checked and applied in one step."""
    multipart: bool
    """A blob can be uploaded in parts and becomes visible on completion."""
    sorted_listing: bool
    """Listings ascend by the keys' UTF-8 bytes."""

    def lacking(self) -> list[str]:
        """The capabilities that a volume needs and the store lacks."""
        return [
            each.name.replace("_", " ") for each in fields(self) if not getattr(self, each.name)
        ]


class Location(ABC):
    """A place in a service, on a disk or in memory: a frozen dataclass that can be pickled.

    Neither its repr nor its pickle has secrets. Its import loads no client library; `open` does.
    """

    __slots__ = ()

    scheme: ClassVar[str]
    """Scheme of its URLs, and its name in the registry."""
    uses_aws: ClassVar[bool] = False
    """Whether the credentials of its service are those of AWS."""
    form: ClassVar[str]
    """Its form in settings, for messages: `s3://BUCKET/PREFIX`."""

    @classmethod
    @abstractmethod
    def parse(cls, text: str, service: AwsConfig) -> Self:
        """The location of a setting; `service` has the service options (endpoint, credentials,
        timeouts) of this part of the volume. Raises ConfigError."""

    @classmethod
    def anchored(cls, text: str, base: str | None) -> str:  # noqa: ARG003
        """The setting with an absolute path: a relative one is below `base`, else the working
        directory."""
        return text

    @property
    def service(self) -> AwsConfig | None:
        """Settings of the service, credentials included; None for a backend without one."""
        return None

    def with_service(self, service: AwsConfig) -> Self:  # noqa: ARG002
        """The same location with other service settings; unchanged without a service."""
        return self

    @property
    @abstractmethod
    def label(self) -> str:
        """The location in messages."""

    @property
    def directory(self) -> str | None:
        """The local directory with its files; None for a backend without one."""
        return None

    def inspection(self, opening: OpenContext) -> Inspection | None:  # noqa: ARG002
        """The inspection of the service or disk; None for a backend without one."""
        return None

    async def prepare(self) -> None:  # noqa: B027 - optional
        """Create the prerequisites of the adapter's `create`, such as the parent directory."""


class TableLocation(Location):
    """Location of a table."""

    __slots__ = ()

    capabilities: ClassVar[TableCapabilities]

    def iam_resource(self, partition: str, account: str) -> str | None:  # noqa: ARG002
        """The table in IAM policies; None where IAM does not apply. `account`: its id, or `*`."""
        return None

    @abstractmethod
    def open(self, opening: OpenContext) -> TableStore:
        """The adapter. It connects on its first use."""

    @abstractmethod
    def identity(self, *, embedded: bool) -> str:
        """Identity of the table in the ownership claims of its data and log: a URL with this
        class's scheme, equal for every client of the table. `embedded`: its form in the claim of a
        location in the table's own directory, so that both can be moved together."""

    @classmethod
    def same_table(cls, one: str, other: str) -> bool:
        """Whether two identities with this class's scheme may denote one table."""
        return one == other

    @property
    def home(self) -> str | None:
        """The directory of an embedded volume with this table; None unless it is a local file."""
        return None

    @property
    def files(self) -> Sequence[str]:
        """The local files of the table of an embedded volume."""
        return ()

    def ballast(self) -> Ballast | None:
        """Reserved space on the table's disk for calls that free space; None unless it is a local
        file."""
        return None

    @property
    def volume_name(self) -> str:
        """Default name of a new volume; empty if a name is required."""
        return ""

    @property
    def path_prefix(self) -> str:
        """Prefix of the volume's paths on the command line; empty for `s3k://NAME`."""
        return ""


class BlobLocation(Location):
    """Location of blobs: the data of a volume, or its operation log."""

    __slots__ = ()

    capabilities: ClassVar[BlobCapabilities]
    is_remote: ClassVar[bool] = True
    """Whether a cache on this machine's disk can be faster."""

    @property
    def iam_objects(self) -> tuple[str, str] | None:
        """Bucket and prefix of the keys in IAM policies; None where IAM does not apply."""
        return None

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
        """The location `name` inside this one, with this one's text and `name/`."""

    @property
    def place(self) -> object:
        """Identity of the location, independent of service settings."""
        return self

    def prefix_within(self, outer: BlobLocation) -> str | None:  # noqa: ARG002
        """The prefix in `outer` of this location's keys; None if it is not inside `outer`."""
        return None

    def with_prefix(self, prefix: str) -> Self | None:  # noqa: ARG002
        """Another prefix of the same bucket; None for backends without buckets."""
        return None

    def require_encryption(self, *, writable: bool) -> None:
        """Raises ConfigError for settings that demand an unsupported encryption of reads or (if
        `writable`) writes."""


def require_capabilities(location: TableLocation | BlobLocation) -> None:
    """Raises UnsupportedError if a volume cannot be at this location."""
    lacking = location.capabilities.lacking()
    if lacking:
        raise UnsupportedError(
            f"no volume can use {location.scheme}: it lacks {', '.join(lacking)}",
            path=location.label,
        )
