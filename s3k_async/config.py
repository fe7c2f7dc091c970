"""Settings as values: where a volume's table, data and log are, and how a client behaves.

Reading them from files, the environment and Hadoop-style mappings is `settings`; opening them is
`client`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal, TypeAlias

from s3k_async.model import HashName, VolumeKind
from s3k_async.retry import Retries

__all__ = [
    "ENCRYPTIONS",
    "AwsConfig",
    "BlobLocation",
    "DynamoTable",
    "LocalDirectory",
    "LogMode",
    "MemoryBlobs",
    "MemoryTable",
    "S3Bucket",
    "Secret",
    "SqliteFile",
    "TableLocation",
    "Tuning",
    "VolumeConfig",
    "without_user",
]

ENCRYPTIONS: Final = ("AES256", "aws:kms", "aws:kms:dsse")
"""Server-side encryption that can be asked of S3, as the header `x-amz-server-side-encryption` says
it."""

LogMode: TypeAlias = Literal["native", "binary", "disabled"]


_USER = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*://)?[^/?#]*@")


class Secret:
    """Text that never shows in a repr, a log line or a pickle. Unpickled, it is empty and means:
    resolve anew."""

    __slots__ = ("_value",)

    def __init__(self, value: str = "") -> None:
        self._value = value

    def reveal(self) -> str:
        """The text itself."""
        return self._value

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __repr__(self) -> str:
        return "Secret('***')" if self._value else "Secret('')"

    def __reduce__(self) -> tuple[Any, ...]:
        return Secret, ()


def without_user(url: str | None) -> str | None:
    """A URL, or an address without a scheme, without the user and password in it."""
    return None if url is None else _USER.sub(r"\1", url)


@dataclass(frozen=True, slots=True)
class AwsConfig:
    """How to reach one AWS service (or one that speaks its protocol). Unset fields fall to the AWS
    default chain.

    Neither its repr nor its pickle has static credentials, or the user and password of `endpoint`
    or `proxy`.
    """

    region: str | None = None
    endpoint: str | None = None
    profile: str | None = None
    access_key_id: Secret = field(default_factory=Secret)
    secret_access_key: Secret = field(default_factory=Secret)
    session_token: Secret = field(default_factory=Secret)
    max_connections: int = 64
    connect_timeout: float = 5.0
    read_timeout: float = 30.0
    ca_bundle: str | None = None
    verify_tls: bool = True
    proxy: str | None = None
    encryption: str | None = None
    """Of S3: the server-side encryption of what is stored, one of ENCRYPTIONS; None: the bucket's
    default. Another value is a method of S3A that is not supported here: nothing is written then.
    """
    kms_key: str | None = None
    """Id or ARN of the key for `aws:kms` and `aws:kms:dsse`; None: the account's key for S3."""

    @property
    def installation(self) -> str:
        """Which installation of the service is meant: its endpoint without a user; empty for AWS
        itself."""
        return (without_user(self.endpoint) or "").rstrip("/").lower()

    def without_secrets(self) -> AwsConfig:
        """The same without static credentials, and without the user and password in a URL."""
        return replace(
            self,
            endpoint=without_user(self.endpoint),
            proxy=without_user(self.proxy),
            access_key_id=Secret(),
            secret_access_key=Secret(),
            session_token=Secret(),
        )

    def __repr__(self) -> str:
        shown = replace(self, endpoint=without_user(self.endpoint), proxy=without_user(self.proxy))
        values = (f"{each.name}={getattr(shown, each.name)!r}" for each in fields(self))
        return f"AwsConfig({', '.join(values)})"

    def __reduce__(self) -> tuple[Any, ...]:
        bare = self.without_secrets()
        return AwsConfig, tuple(getattr(bare, each.name) for each in fields(self))


@dataclass(frozen=True, slots=True)
class DynamoTable:
    """A DynamoDB table."""

    name: str
    aws: AwsConfig = field(default_factory=AwsConfig)


@dataclass(frozen=True, slots=True)
class SqliteFile:
    """A table in an SQLite database on a local disk."""

    path: str


@dataclass(frozen=True, slots=True)
class MemoryTable:
    """A table in this process, shared by everyone who names it the same."""

    name: str


@dataclass(frozen=True, slots=True)
class S3Bucket:
    """A bucket, or the part of one below `prefix` (empty, or ending in `/`)."""

    bucket: str
    prefix: str = ""
    aws: AwsConfig = field(default_factory=AwsConfig)


@dataclass(frozen=True, slots=True)
class LocalDirectory:
    """A directory on a local disk."""

    path: str


@dataclass(frozen=True, slots=True)
class MemoryBlobs:
    """Blobs in this process, shared by everyone who names them the same."""

    name: str


TableLocation: TypeAlias = DynamoTable | SqliteFile | MemoryTable
BlobLocation: TypeAlias = S3Bucket | LocalDirectory | MemoryBlobs


@dataclass(frozen=True, slots=True)
class Tuning:
    """How a client behaves; nothing here has to agree between clients."""

    max_concurrency: int = 32
    """Requests in flight at once, for each of table, data and log; fewer while a service asks to
    slow down."""
    retry: Retries = field(default_factory=Retries)
    multipart_threshold: int = 16 * 1024 * 1024
    """Content of more bytes than this is uploaded in parts."""
    part_size: int = 8 * 1024 * 1024
    """Bytes in a part."""
    read_ahead: int = 4 * 1024 * 1024
    """Bytes a file reader fetches at once when it is read in small pieces; once it has read as much
    on end, two more such blocks are on their way, as long as the pieces if these are longer (up to
    `part_size`)."""
    lease: float = 3600.0
    """Seconds after which a reservation that was not committed may be taken over."""
    busy_timeout: float = 10.0
    """Seconds to wait for another client's live job before BusyError."""
    close_timeout: float = 30.0
    """Seconds that closing waits for calls under way before it cancels them."""


@dataclass(frozen=True, slots=True)
class VolumeConfig:
    """Everything needed to open one volume. The volume record decides what is None here."""

    name: str
    """The volume's name: the authority in `s3k://<name>/` and in partition keys. Empty: whatever
    the record says (a volume that was found by its directory)."""
    table: TableLocation
    data: BlobLocation
    log: BlobLocation | None = None
    """Where the operation log is; None: beside the data, under `oplog/`."""
    kind: VolumeKind | None = "native"
    """None: what the table holds (a volume that a Hadoop mapping describes)."""
    suffix_count: int | None = None
    """Expected suffix count; must agree with the record. Required for kind `s3k-1.0`, which has no
    record."""
    hash: HashName | None = None
    log_mode: LogMode | None = None
    tuning: Tuning = field(default_factory=Tuning)
