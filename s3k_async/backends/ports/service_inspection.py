"""An optional port of locations: settings and state of a service or a disk, for diagnosis.

Every method is one request without retries, and raises the errors of the stores' ports. A missing
permission for one method does not affect the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

__all__ = [
    "BucketInspection",
    "Contact",
    "DiskInspection",
    "DiskSpace",
    "ExpiryRule",
    "Inspection",
    "KeySource",
    "ServiceInspection",
    "TableDescription",
    "TableInspection",
]


@dataclass(frozen=True, slots=True)
class Contact:
    """The response of a service to an unsigned request."""

    address: str
    """Scheme, host and port."""
    milliseconds: int
    """Time until the response."""
    ahead_ms: int | None
    """By how much the service's clock is ahead of this machine's; None without a date."""
    region: str
    """The region that the client signs for."""
    there: str = ""
    """The region of the bucket, if the service reports it."""


@dataclass(frozen=True, slots=True)
class KeySource:
    """Where credentials come from."""

    method: str
    """As botocore names it: `env`, `shared-credentials-file`, `iam-role`, `explicit` (settings)."""
    key: str
    """The end of the access key id."""


@dataclass(frozen=True, slots=True)
class TableDescription:
    """Settings and size of a table. The service updates `items` and `bytes` every few hours."""

    status: str
    capacity: str
    """`on demand`, or the provisioned units."""
    encryption: str
    """`aws owned key`, or the type and key."""
    items: int
    bytes: int
    is_protected: bool
    """Whether the table cannot be deleted by accident."""
    replicas: tuple[str, ...] = ()
    """Regions of the other replicas of a global table."""
    read_units: int | None = None
    """Provisioned capacity, units per second; both None: on demand."""
    write_units: int | None = None


@dataclass(frozen=True, slots=True)
class ExpiryRule:
    """An enabled lifecycle rule of a bucket that deletes something."""

    name: str
    prefix: str
    """Prefix of the keys it applies to."""
    deletes: bool
    """Whether it deletes current objects."""
    aborts: bool
    """Whether it aborts unfinished uploads."""
    former: bool
    """Whether it deletes former versions of objects."""


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """Space of a file system, bytes."""

    directory: str
    """The directory, or the nearest one above it that exists."""
    free: int
    total: int
    is_writable: bool


class ServiceInspection(Protocol):
    """A service that is reached by network."""

    async def contact(self) -> Contact:
        """Send an unsigned request. Raises UnreachableError, which names the scheme that the
        service uses instead, ResponseLostError, RequestTimeoutError, ConfigError."""

    async def key_source(self) -> KeySource:
        """Where the credentials come from. Raises CredentialsError without any."""

    async def close(self) -> None:
        """Release connections. Idempotent."""


@runtime_checkable
class TableInspection(ServiceInspection, Protocol):
    """A table in a service."""

    async def description(self) -> TableDescription:
        """Settings and size. Raises VolumeNotFoundError without the table."""

    async def expiry(self) -> str:
        """The attribute by which the service deletes items at a time; empty if it deletes none."""

    async def backups(self) -> bool:
        """Whether the table can be restored to a point in time."""


@runtime_checkable
class BucketInspection(ServiceInspection, Protocol):
    """A bucket in a service."""

    async def versioning(self) -> str:
        """`off`, `enabled` or `suspended`."""

    async def expiry_rules(self) -> Sequence[ExpiryRule]:
        """The enabled lifecycle rules that delete something."""

    async def encryption(self) -> str:
        """The default encryption of objects; empty if the service reports none."""


@runtime_checkable
class DiskInspection(Protocol):
    """A directory on a disk of this machine."""

    async def space(self) -> DiskSpace:
        """Space and mode of the file system. Raises the errors of the operating system."""


Inspection: TypeAlias = TableInspection | BucketInspection | DiskInspection
