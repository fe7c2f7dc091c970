"""Settings as values: the locations of a volume, and the tuning of a client.

Reading them from files, the environment and Hadoop-style mappings is `settings`; opening them is
`client`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from s3k_async._core.retry import Retries
from s3k_async.backends.aws.access import (
    BY_CUSTOMER_KEY,
    ENCRYPTIONS,
    AwsConfig,
    Secret,
    StorageClass,
    without_user,
)
from s3k_async.backends.dynamodb import DynamoTable
from s3k_async.backends.dynamodb.table_options import StreamView, TableOptions
from s3k_async.backends.local import LocalDirectory
from s3k_async.backends.location import BlobLocation, TableLocation
from s3k_async.backends.memory import MemoryBlobs, MemoryTable
from s3k_async.backends.s3 import S3Bucket
from s3k_async.backends.sqlite import SqliteFile
from s3k_async.model import HashName, LayoutName, VolumeKind

__all__ = [
    "BY_CUSTOMER_KEY",
    "ENCRYPTIONS",
    "AlertPolicy",
    "AlertSettings",
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
    "StorageClass",
    "StreamView",
    "TableLocation",
    "TableOptions",
    "Tuning",
    "VolumeConfig",
    "without_user",
]

AlertPolicy: TypeAlias = Literal["error", "warn", "ignore"]
LogMode: TypeAlias = Literal["native", "binary", "disabled"]


@dataclass(frozen=True, slots=True)
class Tuning:
    """Settings of one client; clients of a volume may differ in them."""

    max_concurrency: int = 32
    """Requests in flight at once, for each of table, data and log; fewer while a service asks to
    slow down."""
    retry: Retries = field(default_factory=Retries)
    multipart_threshold: int = 16 * 1024 * 1024
    """Content larger than this is uploaded in parts."""
    part_size: int = 8 * 1024 * 1024
    """Bytes in a part."""
    read_ahead: int = 4 * 1024 * 1024
    """Bytes that a file reader fetches at once for small reads. After reading as much sequentially
    it prefetches two more blocks of this size, or of the size of the reads if that is larger (up to
    `part_size`; after four blocks twice that)."""
    lease: float = 3600.0
    """Seconds after which a reservation that was not committed may be taken over."""
    busy_timeout: float = 10.0
    """Seconds to wait for another client's active transaction, or, in a listing, for a pause
    between changes of its directories, before BusyError."""
    close_timeout: float = 30.0
    """Seconds that closing waits for calls under way before it cancels them."""
    directory_trust: float = 0.0
    """In layout `tree`: seconds, at most 60, for which reads of single paths do without the
    directories above the parent after these were confirmed. For as long they may show what is at
    the former path of a directory that another client has renamed or deleted."""
    cache: str | None = None
    """Directory of the read cache, for data at a remote location; None: no cache."""
    cache_size: int = 10 * 1024**3
    """Most bytes in that directory, approximately."""
    cache_high: float = 90.0
    """Percentage of `cache_size` above which blocks are evicted."""
    cache_low: float = 70.0
    """Percentage of `cache_size` at which eviction ends."""
    cache_age: float = 30 * 86_400.0
    """Seconds after its last use when a block is evicted in any case."""
    cache_block: int = 1024 * 1024
    """Bytes of a block: what a read of a single byte fetches. All clients of one directory should
    have the same."""
    cache_writes: bool = False
    """Whether content that is written by one request is added to the cache."""
    uid: int | None = None
    """User for whom the client acts in a volume that evaluates permissions; 0 is the superuser.
    None: the effective user of the process that opens the client."""
    gids: tuple[int, ...] | None = None
    """Groups of that user, the group of new entries first; None: those of the process."""
    change_detection: Literal["server", "client", "warn", "none"] = "server"
    """What happens if another program has replaced a physical object. `server`: every read and copy
    is conditional on the recorded entity tag, and raises CorruptDataError; `client`: the tag in the
    answer is compared; `warn`: as `server`, but a warning is logged and the bytes are returned;
    `none`: nothing is compared but the size."""
    hot_writes: Literal["back", "through"] = "back"
    """In a volume with a hot location: `back`, written there alone, until a move; `through`,
    written to the cold one, and what one request can write then to the hot one, too."""
    hot_reads: Literal["leave", "fill"] = "leave"
    """In a volume with a hot location: whether a read of content that only the cold one has leaves
    it there, or fills the hot one with a copy, in the background; content of more than
    `multipart_threshold` once as many bytes were read as it has."""
    log_verbs: Literal["off", "debug", "info"] = "off"
    """Whether each call of a verb is logged, by the logger `s3k_async.operations`, and at which
    level."""
    storage_rules: str = ""
    """The storage class and the tags of objects in S3, by the path of a new file: `PATH:CLASS` or
    `PATH:CLASS,TAG=VALUE`, several separated by spaces (docs/command-line.md)."""
    delegate_credentials: bool = False
    """Whether Spark tasks use temporary AWS credentials of the driver; otherwise each executor
    uses its own."""


@dataclass(frozen=True, slots=True)
class AlertSettings:
    """Where the commands send alerts, and how."""

    sinks: Secret = field(default_factory=Secret)
    """Addresses of sinks, separated by white space. A secret, since a webhook may have a token in
    its URL."""
    service: AwsConfig = field(default_factory=AwsConfig)
    """Region, credentials and connections of SQS, SNS and CloudWatch; connections of webhooks."""
    on_error: AlertPolicy = "warn"
    """What follows if alerts cannot be sent."""
    on_timeout: AlertPolicy = "warn"
    """What follows if they cannot be sent in time."""
    deadline: float = 10.0
    """Seconds for each sink."""
    job: str = ""
    """The job id in messages; empty: that of the environment."""
    email: str = ""
    """The address in messages."""


@dataclass(frozen=True, slots=True)
class VolumeConfig:
    """Everything needed to open one volume. None stands for the value in the volume record."""

    name: str
    """The volume's name: the authority in `s3k://<name>/` and in partition keys. Empty: the name in
    the record (a volume that is addressed by its directory)."""
    table: TableLocation
    data: BlobLocation
    log: BlobLocation | None = None
    """The location of the operation log; None: beside the data, under `oplog/`."""
    kind: VolumeKind | None = "native"
    """None: determined by the table (a volume that a Hadoop mapping describes)."""
    suffix_count: int | None = None
    """Expected suffix count; must agree with the record. Required for kind `s3k-1.0`, which has no
    record."""
    hash: HashName | None = None
    layout: LayoutName | None = None
    """Fixed at init, by default `tree` in an embedded volume and `path` in any other
    (docs/layouts.md)."""
    trash_retention: int | None = None
    """The retention of the trash of a new volume, seconds, by default one day; then that in the
    record when the volume was opened. None in layout `path`, which has no trash."""
    log_mode: LogMode | None = None
    table_prefix: str = ""
    """Prefix of the volume's partition keys in a shared table; empty in a table of its own."""
    tuning: Tuning = field(default_factory=Tuning)
    alerts: AlertSettings = field(default_factory=AlertSettings)

    @property
    def where(self) -> str:
        """The table, and the volume's prefix in it, in messages."""
        return f"{self.table.label}/{self.table_prefix}" if self.table_prefix else self.table.label

    @property
    def path_prefix(self) -> str:
        """Prefix of the volume's paths on the command line; empty for `s3k://NAME`, by which
        volumes of a shared table are addressed."""
        return "" if self.table_prefix else self.table.path_prefix
