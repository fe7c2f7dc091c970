"""Values shared by all layers."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, Self, TypeAlias, TypeVar, get_args

from s3k_async._core.metering import Requests
from s3k_async._core.object_version import version_in
from s3k_async._core.records import replaced
from s3k_async._native import FileStatus, status_of
from s3k_async.errors import ArgumentTypeError, InvalidArgumentError, PartialFailureError

__all__ = [
    "DEFAULT_FEATURES",
    "EPOCH",
    "FEATURES",
    "LISTED_FAILURES",
    "MILLISECOND",
    "ROOT",
    "TRASH_ID",
    "UNCOMMITTED",
    "CacheStatistics",
    "ChangeResult",
    "ChangeTally",
    "Content",
    "ContentSummary",
    "Deletion",
    "Entry",
    "Failure",
    "Feature",
    "FileStatus",
    "FillStatistics",
    "HashName",
    "LayoutName",
    "Operation",
    "OperationKind",
    "Progress",
    "StagedFile",
    "TrashItem",
    "TrashReason",
    "TrashState",
    "VolumeKind",
    "need_time",
    "status_of",
    "utc",
]

ROOT = "/"
_NO_REQUESTS: Final = Requests()
UNCOMMITTED = "<uncommitted>"
"""The value of `physpath` for a file whose data is not durable yet (S3-FileSystem 1.0)."""

HashName = Literal["xxh3", "java31"]
LayoutName = Literal["path", "tree"]
"""What the key of an entry is made of: the path of its directory, or the id."""
VolumeKind = Literal["native", "s3k-1.0"]
Feature: TypeAlias = Literal["extents", "attributes", "uploads", "rules", "permissions", "counters"]
FEATURES: Final[tuple[Feature, ...]] = get_args(Feature)
"""What a volume can have, as flags of its record."""
DEFAULT_FEATURES: Final[tuple[Feature, ...]] = ("extents", "attributes", "uploads")
"""What new volumes have unless it is left out. The others cost requests, so they are asked for."""
TrashReason: TypeAlias = Literal["deleted", "empty", "staged"]
"""`deleted`: a directory deleted with everything below it. `empty`: the removal marker of an empty
directory, for clients that were creating an entry in it. `staged`: a directory that is not
published yet."""
TrashState: TypeAlias = Literal["", "reclaiming"]
"""`reclaiming`: its content is being removed, so that it cannot be restored."""
OperationKind: TypeAlias = Literal["create", "update", "rename", "delete"]

TRASH_ID = "00000000-0000-4000-8000-000000000001"
"""The directory key of the trash, in layout `tree`. It has no item, and no path leads to it."""

LISTED_FAILURES: Final = 100
"""Failures that a verb with any number of them lists; it counts the others."""
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND: Final = timedelta(milliseconds=1)
EARLIEST_MS: Final = (datetime.min.replace(tzinfo=UTC) - EPOCH) // MILLISECOND
LATEST_MS: Final = (datetime.max.replace(tzinfo=UTC) - EPOCH) // MILLISECOND


def utc(milliseconds: int) -> datetime:
    """Epoch milliseconds as an aware time. Raises OverflowError outside of the years 1 to 9999."""
    return EPOCH + timedelta(milliseconds=milliseconds)


def need_time(milliseconds: int, path: str) -> int:
    """A modification time that a caller gives, epoch milliseconds. Raises ArgumentTypeError;
    InvalidArgumentError outside of the years 1 to 9999, which `utc` could not show."""
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int):
        raise ArgumentTypeError(
            f"a time is epoch milliseconds, not {type(milliseconds).__name__}", path=path
        )
    if not EARLIEST_MS <= milliseconds <= LATEST_MS:
        raise InvalidArgumentError(
            f"a time is in the years 1 to 9999 ({EARLIEST_MS} to {LATEST_MS} epoch milliseconds), "
            f"not {milliseconds}",
            path=path,
        )
    return milliseconds


@dataclass(frozen=True, slots=True)
class Content:
    """Durable bytes, ready to be published by an entry."""

    physical: str
    """Physical key in the volume's data location, or a full URI for adopted and s3k-1.0 files."""
    size: int
    etag: str
    checksum: str
    """`xxh128:<32 hex digits>` over the whole content (XXH3 128 bits, canonical big-endian form);
    `version:<version id>` of an adopted object of a versioned bucket; or empty."""


@dataclass(frozen=True, slots=True)
class StagedFile:
    """Uploaded data without an entry, which a transaction of any process may publish."""

    volume_id: str
    """The volume that holds the data."""
    object_id: str
    """The object id in their key, under which they are published."""
    content: Content
    lease_ms: int
    """Time limit for publishing them, epoch milliseconds: `Tuning.lease` after the upload began.
    """

    @property
    def expires(self) -> datetime:
        """`lease_ms` as a time in UTC."""
        return utc(self.lease_ms)


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the table: a file or directory at a version."""

    path: str
    """Logical path, normalised, absolute: `/a/b`. In layout `tree` the entry key, if it was read by
    a scan of the table, which does not know the path."""
    is_dir: bool
    id: str
    """Object id: a UUID, given at creation, kept for life."""
    version: int
    """1 at creation, one more at every change. A committed file is at 2 or more."""
    ctime: int
    """Creation time, epoch seconds (the old readers' unit)."""
    mtime_ms: int
    size: int = 0
    physical: str | None = None
    """Physical key or URI; UNCOMMITTED for a reservation; None for a directory."""
    committed: bool = False
    """Whether a file's bytes are durable. False for directories."""
    etag: str = ""
    checksum: str = ""
    operation: str = ""
    """Id of the operation that wrote this version."""
    lease_ms: int = 0
    """A reservation's expiry, epoch milliseconds; 0 for everything else."""
    pending: str = ""
    """The write intent (`next`), as stored; empty for none."""
    directory: str = ""
    """The key of its directory in layout `tree`, an object id; empty in layout `path`."""
    attributes: str = ""
    """`Attributes` in their stored form, canonical JSON; empty for none."""

    @property
    def entry_key(self) -> str:
        """What the key of its item is made of: the path, or in layout `tree` the key of its
        directory and its name."""
        if not self.directory:
            return self.path
        return f"{self.directory}/{self.path.rpartition('/')[2]}"

    @property
    def is_reservation(self) -> bool:
        """Whether this is a file whose bytes are not durable yet."""
        return not self.is_dir and not self.committed

    @property
    def read_only(self) -> bool:
        """Whether its attributes say that it must not be changed, moved or deleted."""
        # In canonical JSON no name or text contains this without a backslash.
        return '"read_only":true' in self.attributes

    @property
    def has_metadata(self) -> bool:
        """Whether its attributes contain user metadata."""
        return '"metadata":{' in self.attributes

    @property
    def object_version(self) -> str:
        """The version id of the adopted object; empty if none is recorded, and for the volume's own
        objects."""
        return version_in(self.checksum) if "://" in (self.physical or "") else ""

    @property
    def content(self) -> Content:
        """The bytes of a committed file, as they were when it was published."""
        return Content(self.physical or "", self.size, self.etag, self.checksum)

    def with_content(self, content: Content, *, mtime_ms: int, operation: str) -> Entry:
        """The next version of a file, publishing `content`."""
        return replaced(
            self,
            version=max(2, self.version + 1),
            mtime_ms=mtime_ms,
            size=content.size,
            physical=content.physical,
            committed=True,
            etag=content.etag,
            checksum=content.checksum,
            operation=operation,
            lease_ms=0,
        )

    def moved(self, path: str, *, operation: str, directory: str = "") -> Entry:
        """The next version of the entry, at another path, in layout `tree` in a directory of that
        key."""
        return replaced(
            self,
            path=path,
            version=self.version + 1,
            operation=operation,
            pending="",
            directory=directory,
        )

    def without_intent(self) -> Entry:
        """The entry without its write intent."""
        return replaced(self, pending="") if self.pending else self


@dataclass(frozen=True, slots=True)
class Deletion:
    """In layout `tree`, the reason why a directory is in the trash, and the progress of its
    reclamation."""

    why: TrashReason
    origin: str
    """The directory key of its former parent."""
    was: str
    """Its path when it was deleted, for information: an ancestor may have been renamed since."""
    when_ms: int
    """When it was deleted, epoch milliseconds, by the clock of the deleting client."""
    by: str = ""
    """`<user>@<host>` of that client; empty if unknown."""
    state: TrashState = ""
    since_ms: int = 0
    """When garbage collection first saw it, epoch milliseconds by the clock of the data store; 0:
    not yet."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One change of one object, with its complete state on either side."""

    id: str
    """Operation id. Operations on different objects that one transaction applies may share it."""
    kind: OperationKind
    """`create`: a reservation or directory. `update`: content published. `rename`. `delete`: a
    tombstone."""
    object_id: str
    version: int
    """The version that results from the operation: `after.version`, or for a delete `before.version
    + 1`."""
    time_ms: int
    """When the operation began, epoch milliseconds."""
    before: Entry | None
    after: Entry | None
    trash: Deletion | None = None
    """Of an operation after which the directory is in the trash, and of no other."""


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """What the read cache of a client did. Reads that waited for the same block of another one are
    not counted."""

    hits: int = 0
    """Blocks that were read from the cache,"""
    hit_bytes: int = 0
    """and their bytes."""
    misses: int = 0
    """Blocks that were read from the data location,"""
    fetched_bytes: int = 0
    """and their bytes."""
    stored: int = 0
    """Blocks that were added to the cache,"""
    stored_bytes: int = 0
    """and the bytes of their files."""
    evicted: int = 0
    """Blocks that this client evicted,"""
    evicted_bytes: int = 0
    """and the bytes of their files."""
    damaged: int = 0
    """Files of blocks that were truncated or damaged, and removed."""
    failures: int = 0
    """Errors of the file system, after each of which nothing is stored for a minute."""

    def __add__(self, other: CacheStatistics) -> CacheStatistics:
        return _sum(self, other)


@dataclass(frozen=True, slots=True)
class FillStatistics:
    """What reads of cold objects did to the hot location of a volume (`hot_reads`)."""

    filled: int = 0
    """Objects that were copied to it,"""
    filled_bytes: int = 0
    """and their bytes."""
    dropped: int = 0
    """Objects that were not copied, since too many copies were under way, the client was closed or
    had failed to copy another one, or the hot location had no room."""
    damaged: int = 0
    """Objects that were not copied, since they or their copy had other bytes than recorded."""
    failures: int = 0
    """Copies that failed, after each of which no copy begins for a minute."""

    def __add__(self, other: FillStatistics) -> FillStatistics:
        return _sum(self, other)


_Counts = TypeVar("_Counts", CacheStatistics, FillStatistics)


def _sum(one: _Counts, other: _Counts) -> _Counts:
    """The sums of the fields."""
    return type(one)(*(getattr(one, each.name) + getattr(other, each.name) for each in fields(one)))


@dataclass(frozen=True, slots=True)
class ContentSummary:
    """Totals of a subtree: bytes, files, directories (the start directory included)."""

    length: int
    file_count: int
    directory_count: int


@dataclass(frozen=True, slots=True)
class TrashItem:
    """A deleted directory that is in the trash with everything below it."""

    id: str
    """The object id of the directory."""
    was: str
    """Its path at the time of its deletion. Directories above it may have been renamed since."""
    when_ms: int
    """When it was deleted, epoch milliseconds, by the clock of the deleting client."""
    by: str = ""
    """`<user>@<host>` of that client; empty if unknown."""
    state: Literal["", "reclaiming"] = ""
    """`reclaiming`: its content is being deleted, so that it cannot be restored."""

    @property
    def name(self) -> str:
        """The last component of its former path."""
        return self.was.rpartition("/")[2]

    @property
    def when(self) -> datetime:
        """`when_ms` as a time in UTC."""
        return utc(self.when_ms)


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a long operation. `total` is None while unknown.

    In an operation of several phases, `done` and `total` are those of the current phase.
    """

    operation: str
    done: int
    total: int | None = None
    bytes: int = 0
    path: str | None = None
    phase: str = ""
    unit: str = ""
    """The unit of the counts, in the plural; empty if the operation implies it."""


Failure: TypeAlias = tuple[str, Exception]
"""A path, and why it was not changed."""


@dataclass(frozen=True, slots=True)
class ChangeResult:
    """The result of a change: the number of changed files and directories, and the size of those
    files."""

    files: int = 0
    directories: int = 0
    bytes: int = 0
    failures: tuple[Failure, ...] = ()
    """Failures of a verb that continues after one, such as `write_many`. Verbs on one path raise
    PartialFailureError instead."""
    requests: Requests = field(default=_NO_REQUESTS, compare=False)
    """The requests of the call until it returned, retries included; not part of equality."""
    unlisted: int = 0
    """The number of further failures, of a verb that lists only the first of them."""

    @property
    def failed(self) -> int:
        """The number of failures, listed or not."""
        return len(self.failures) + self.unlisted

    def raise_for_failures(self, *, path: str | None = None) -> Self:
        """Return the result if nothing failed; otherwise raise PartialFailureError with the
        failures and the `path` of the change."""
        if self.failures:
            done = self.files + self.directories
            raise PartialFailureError(
                f"{self.failed} of {done + self.failed} entries failed; repeat the call to finish",
                path=path,
                failures=self.failures,
            ) from self.failures[0][1]
        return self


@dataclass(slots=True)
class ChangeTally:
    """The running result of a change in progress."""

    files: int = 0
    directories: int = 0
    bytes: int = 0
    failures: list[Failure] = field(default_factory=list)
    unlisted: int = 0

    def fail(self, path: str, error: Exception) -> None:
        """Add a failure; keep the first LISTED_FAILURES, and later ones of other types."""
        known = {type(each) for _, each in self.failures}
        if len(self.failures) < LISTED_FAILURES or type(error) not in known:
            self.failures.append((path, error))
        else:
            self.unlisted += 1

    def result(self) -> ChangeResult:
        """The result so far."""
        failures = tuple(self.failures)
        return ChangeResult(
            self.files, self.directories, self.bytes, failures, unlisted=self.unlisted
        )
