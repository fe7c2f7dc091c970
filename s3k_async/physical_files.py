"""Physical locations of files' data, for programs that read them directly, such as the JVM's
readers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import unquote

from s3k_async.addresses import Path
from s3k_async.hive_partitions import partition_values
from s3k_async.listing import Listing
from s3k_async.model import ROOT, FileStatus, utc
from s3k_async.storage.physical import PhysicalStorage
from s3k_async.volumes.volume import Volume

__all__ = ["PhysicalFile", "PhysicalPaths"]


@dataclass(frozen=True, slots=True)
class PhysicalFile:
    """A committed file and where its bytes are."""

    path: str
    """Logical path."""
    uri: str
    """As Hadoop's file systems take it: `s3a://bucket/key` or `file:///...`, nothing in it escaped.
    """
    size: int
    """Bytes."""
    mtime_ms: int
    """Modification time, epoch milliseconds."""
    partitions: dict[str, str | None] = field(default_factory=dict)
    """By `s3k_async.hive_partitions`, from the directories between the path that was asked for and
    the file."""

    @property
    def modified(self) -> datetime:
        """`mtime_ms` as a time in UTC."""
        return utc(self.mtime_ms)


class PhysicalPaths:
    """What a client tells of the places of bytes."""

    def physical_paths(
        self, path: Path = ROOT, *, recursive: bool = True
    ) -> AsyncIterator[PhysicalFile]:
        """The committed files below a directory, or without `recursive` in it, or a file itself,
        with the URIs of their bytes and the values in the `name=value` directories between.

            files = [file async for file in client.physical_paths("/sales")]
            spark.read.parquet(*[file.uri for file in files])

        The files are those of a listing, which sees an atomic change of many wholly or not at all
        (`list`); their bytes stay for the grace period of garbage collection, whatever becomes of
        the files. Raises PathNotFoundError.
        """
        return _each(self._physical_pages(path, recursive))

    def _physical_pages(self, path: Path, recursive: bool) -> AsyncIterator[list[PhysicalFile]]:
        volume = self._volume()
        return volume.calls.stream(_pages(volume, self._path(path), Listing(recursive=recursive)))

    def _volume(self) -> Volume:
        raise NotImplementedError

    def _path(self, path: Path) -> str:
        raise NotImplementedError


async def _each(pages: AsyncIterator[list[PhysicalFile]]) -> AsyncIterator[PhysicalFile]:
    async for page in pages:
        for file in page:
            yield file


async def _pages(
    volume: Volume, top: str, listing: Listing
) -> AsyncGenerator[list[PhysicalFile], None]:
    async with aclosing(listing.pages(volume.store, top)) as pages:
        async for page in pages:
            known: dict[str, dict[str, str | None]] = {}
            files = [
                _file(volume.storage, status, top, known) for status in page.files().statuses()
            ]
            if files:
                yield files


def _file(
    storage: PhysicalStorage, status: FileStatus, top: str, known: dict[str, dict[str, str | None]]
) -> PhysicalFile:
    """`known`: the values of directories that came before."""
    directory = status.path.rpartition("/")[0]
    if directory not in known:
        known[directory] = partition_values(f"{directory}/"[len(top.rstrip("/")) + 1 :])
    uri = _for_hadoop(storage.uri(str(status.physical)))
    return PhysicalFile(status.path, uri, status.size, status.mtime_ms, dict(known[directory]))


def _for_hadoop(uri: str) -> str:
    """Hadoop takes the text of a path as it is, and S3 by the name of the file system that reads
    it."""
    scheme, _, rest = uri.partition("://")
    return f"s3a://{rest}" if scheme in ("s3", "s3a", "s3n") else f"{scheme}://{unquote(rest)}"
