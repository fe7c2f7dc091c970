"""The scope of an integrity run: the volume's stores, the paths in question, and counters."""

from __future__ import annotations

from dataclasses import dataclass, field

from s3k_async._core.runtime import Runtime
from s3k_async.backends.ports.blobs import BlobInfo, BlobStore
from s3k_async.backends.ports.key_ranges import KeyRange, hex_ranges, key_ranges
from s3k_async.backends.ports.object_versions import at_version
from s3k_async.errors import InvalidPathError
from s3k_async.model import ROOT, Entry
from s3k_async.namespace.entry_reader import existing
from s3k_async.namespace.layout import LayoutCheck
from s3k_async.namespace.store import MetadataStore
from s3k_async.oplog.log_reader import JavaLogReader, LogReader
from s3k_async.storage.object_uris import find_elsewhere, key_below, root_of
from s3k_async.storage.physical import is_uri

__all__ = ["ScanCounts", "Scope"]


@dataclass(slots=True)
class ScanCounts:
    """Counts of the scans."""

    files: int = 0
    directories: int = 0
    reservations: int = 0
    bytes: int = 0
    log_records: int = 0
    blobs: int = 0
    blob_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Scope:
    """The scope of a run: a volume, or the tree below a path."""

    store: MetadataStore
    blobs: BlobStore
    log: LogReader | JavaLogReader | None
    """None for a volume without one."""
    log_blobs: BlobStore | None
    """The location of the log; None without one."""
    runtime: Runtime
    grace_ms: int
    path: str = ROOT
    legacy: bool = False
    """Whether S3-FileSystem 1.0 wrote the volume, if no log of it shows that."""
    place: BlobStore | None = None
    """The whole data location, with the adopted objects, for a volume whose own `blobs` are below
    its scope."""
    retention_ms: int = 0
    """The retention of the trash, for a layout that has one."""
    deep: bool = False
    """Whether objects that are in both locations of a volume with tiers are compared byte by byte;
    otherwise by their sizes."""
    volume_id: str = ""
    """What identifies the volume: its id, or for one of S3-FileSystem 1.0 its table."""
    check: LayoutCheck = field(init=False, compare=False)
    """What differs between layouts; it knows the directories of one scan, so that each scan has a
    scope of its own."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "check", self.store.layout.check())

    @property
    def is_legacy(self) -> bool:
        """Whether S3-FileSystem 1.0 wrote the volume."""
        return self.legacy or isinstance(self.log, JavaLogReader)

    def key_of(self, physical: str) -> str:
        """The key of an entry's physical object: among the volume's own objects, or, for a URI,
        below the data location or in another bucket."""
        return self._located(physical)[1]

    def is_elsewhere(self, physical: str) -> bool:
        """Whether an entry's physical object is in another bucket than the data location."""
        return self._located(physical)[0] not in (self.blobs, self._location)

    def _located(self, physical: str) -> tuple[BlobStore, str]:
        """Store and key of an entry's physical object. The entries of S3-FileSystem 1.0 may contain
        a bucket from which the data was moved: then the key is the rest of the URI."""
        if not is_uri(physical):
            return self.blobs, physical
        key = key_below(root_of(self._location), physical)
        elsewhere = None
        if key is None and not self.is_legacy:
            elsewhere = find_elsewhere(self._location, physical)
        rest = physical.partition("://")[2].partition("/")[2]
        return elsewhere or (self._location, rest if key is None else key)

    def ranges(self, count: int) -> list[list[KeyRange]]:
        """The volume's data keys in `count` groups of ranges: all below its scope, or without one
        all that have the form of its keys.
        """
        return hex_ranges(count) if self.place is None else key_ranges(count)

    async def head(self, physical: str, version: str = "") -> BlobInfo | None:
        """Size, etag, time and version of an entry's physical object, by its `key_of`; None also
        for an invalid key. `version`: the recorded version id of an adopted object."""
        try:
            blobs, key = self._located(physical)
            return await at_version(blobs, version).head(key)
        except InvalidPathError:
            return None

    async def get(self, physical: str, start: int, end: int) -> bytes:
        """Bytes [start, end) of an entry's physical object. Raises BlobNotFoundError,
        InvalidPathError."""
        blobs, key = self._located(physical)
        return await blobs.get(key, start, end)

    @property
    def _location(self) -> BlobStore:
        return self.blobs if self.place is None else self.place

    async def need_path(self) -> None:
        """Check that the path exists, for a run that has found nothing there: a lost entry is a
        finding, but a mistyped path is an error. Raises PathNotFoundError, NotDirectoryError;
        ItemFormatError if a directory above the path cannot be read."""
        await existing(self.store, self.path)

    def holds(self, path: str) -> bool:
        """Whether a path is in the scope."""
        return self.path in (ROOT, path) or path.startswith(self.path + "/")

    def holds_entry(self, entry: Entry) -> bool:
        """Whether an entry of the table or the log is in the scope."""
        return self.path == ROOT or self.holds(self.check.with_path(entry).path)
