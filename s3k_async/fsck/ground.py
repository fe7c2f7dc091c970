"""What fsck compares, and what it has counted of it."""

from __future__ import annotations

from dataclasses import dataclass

from s3k_async.metadata.store import MetadataStore
from s3k_async.model import ROOT
from s3k_async.oplog.reader import JavaLogReader, LogReader
from s3k_async.sources import Sources
from s3k_async.storage.physical import is_uri, key_below
from s3k_async.stores.blobs import BlobStore

__all__ = ["Counts", "Ground"]


@dataclass(slots=True)
class Counts:
    """What the scans have counted."""

    files: int = 0
    directories: int = 0
    reservations: int = 0
    bytes: int = 0
    log_records: int = 0
    blobs: int = 0
    blob_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Ground:
    """What is compared: a volume, or what is below a path of it."""

    store: MetadataStore
    blobs: BlobStore
    log: LogReader | JavaLogReader | None
    """None for a volume without one."""
    log_blobs: BlobStore | None
    """Where the log is; None without one."""
    sources: Sources
    grace_ms: int
    path: str = ROOT
    legacy: bool = False
    """Whether S3-FileSystem 1.0 wrote the volume, where no log of its says so."""

    @property
    def is_legacy(self) -> bool:
        """Whether S3-FileSystem 1.0 wrote the volume."""
        return self.legacy or isinstance(self.log, JavaLogReader)

    def key_of(self, physical: str) -> str:
        """The key below the data location of what an entry names. S3-FileSystem 1.0 may have named a bucket that its
        data is not in any more: then it is what follows the bucket.
        """
        if not is_uri(physical):
            return physical
        key = key_below(self.blobs.uri("-").removesuffix("-"), physical)
        return physical.partition("://")[2].partition("/")[2] if key is None else key

    def holds(self, path: str) -> bool:
        """Whether a path is one of those to be checked."""
        return self.path in (ROOT, path) or path.startswith(self.path + "/")
