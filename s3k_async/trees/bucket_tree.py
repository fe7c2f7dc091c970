"""Objects of a bucket, which no volume manages, as a tree."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager

from s3k_async._core.concurrency import AdaptiveLimit
from s3k_async._core.metering import Meter
from s3k_async._core.runtime import SYSTEM
from s3k_async._core.worker_threads import in_thread
from s3k_async._native import normalize
from s3k_async.backends.location import BlobLocation, OpenContext
from s3k_async.backends.ports.blobs import BlobInfo, BlobStore
from s3k_async.backends.ports.interception import INTERCEPTOR
from s3k_async.backends.ports.pagination import list_first_level, list_pages
from s3k_async.backends.ports.version_reads import range_of_version
from s3k_async.backends.retrying.retrying_blobs import RetryingBlobs
from s3k_async.bulk.file_writes import LARGE, NewFile, written_alone
from s3k_async.bulk.transfer import CHUNK
from s3k_async.config import Tuning
from s3k_async.errors import (
    BlobChangedError,
    BlobNotFoundError,
    ConflictError,
    CorruptDataError,
    DataMissingError,
    InvalidPathError,
    NotDirectoryError,
    PathNotFoundError,
    S3kError,
    VolumeNotFoundError,
)
from s3k_async.model import Content
from s3k_async.namespace.store import WriteTarget
from s3k_async.storage.physical import PhysicalStorage
from s3k_async.trees.file_tree import Skipped, TreeEntry, TreePlace
from s3k_async.trees.path_sort import PathSort, with_directories
from s3k_async.volumes.claims import belongs_to_a_volume
from s3k_async.volumes.volume import Volume

__all__ = ["BucketTree", "open_bucket"]

_CHANGED = "the object was replaced or removed since it was listed: repeat the command"


@asynccontextmanager
async def open_bucket(
    location: BlobLocation, prefix: str = "", *, tuning: Tuning | None = None
) -> AsyncIterator[BucketTree]:
    """The objects of a bucket whose keys begin with a prefix, `/` included, which is the root of
    the tree. `location`: the whole bucket."""
    settings = tuning or Tuning()
    store = location.open(OpenContext())
    interceptor = INTERCEPTOR.get()
    if interceptor is not None:
        store = interceptor.blobs(store)
    limit = AdaptiveLimit(settings.max_concurrency)
    try:
        blobs = RetryingBlobs(store, settings.retry, SYSTEM, limit, Meter("data"))
        yield BucketTree(blobs, prefix, tuning=settings)
    finally:
        await store.close()


class BucketTree:
    """The objects whose keys begin with `prefix`. Directories are those above objects, and objects
    whose keys end in a `/`; the latter have an ETag. Objects of volumes are left out; keys that are
    no paths are skipped.

    A listing is sorted in memory, or, if there are many, in a temporary file, since keys ascend in
    another order than paths.
    """

    lists_directories = False
    is_local = False
    has_contents = True

    def __init__(self, blobs: BlobStore, prefix: str = "", *, tuning: Tuning | None = None) -> None:
        self.blobs = blobs
        self.prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._tuning = tuning or Tuning()
        self._storage = PhysicalStorage(blobs, SYSTEM, self._tuning)

    def __repr__(self) -> str:
        return f"<BucketTree {self.label}>"

    @property
    def label(self) -> str:
        """The URI of the prefix."""
        return self.full_name("")

    @property
    def places(self) -> Sequence[TreePlace]:
        """The prefix in the bucket."""
        bucket = self.blobs.uri("-").removesuffix("-")
        return [TreePlace(bucket, f"/{self.prefix}".rstrip("/"))]

    def full_name(self, path: str) -> str:
        """The URI of an object."""
        return self.blobs.uri("-").removesuffix("-") + self.prefix + path

    def uri(self, path: str) -> str:
        """The URI of an object as the store writes it."""
        return self.blobs.uri(self.prefix + path)

    async def exists(self) -> bool:
        """Whether an object has the prefix; True without a prefix. Raises PathNotFoundError (no
        such bucket) and NotDirectoryError (the prefix is the key of an object)."""
        if not self.prefix:
            if not await self.blobs.exists():
                raise self._without_bucket()
            return True
        if await self._first(self.prefix) is not None:
            return True
        if await self.single_object() is not None:
            raise NotDirectoryError(
                "an object, not a prefix; s3k ls and s3k import take single objects, s3k diff and "
                "s3k sync the prefix above it, with --include",
                path=self.label.removesuffix("/"),
            )
        return False

    async def single_object(self) -> tuple[BucketTree, TreeEntry] | None:
        """The object whose key is the prefix without its last `/`, in the tree above it; None if
        there is none, or if objects have the prefix. Raises PathNotFoundError (no such bucket)."""
        key = self.prefix.removesuffix("/")
        if not key or belongs_to_a_volume(key):
            return None
        # First below the prefix, outside of which credentials may not list.
        if await self._first(self.prefix) is not None:
            return None
        # Keys ascend: the object itself precedes all others that begin with its key.
        found = await self._first(key)
        if found is None or found.key != key:
            return None
        above, _, name = key.rpartition("/")
        entry = TreeEntry(name, False, found.size, found.mtime_ms or None, found.etag)
        return BucketTree(self.blobs, above, tuning=self._tuning), entry

    async def _first(self, prefix: str) -> BlobInfo | None:
        try:
            page = await self.blobs.list(prefix, limit=1)
        except VolumeNotFoundError as error:
            raise self._without_bucket() from error
        return page.blobs[0] if page.blobs else None

    def _without_bucket(self) -> PathNotFoundError:
        place = self.blobs.uri("-").removesuffix("-")
        kind = "directory" if place.startswith("file:") else "bucket"
        return PathNotFoundError(f"the {kind} does not exist", path=place)

    async def entries(self, skipped: Skipped) -> AsyncGenerator[TreeEntry, None]:
        """Everything below the prefix."""
        with PathSort() as sorter:
            async with aclosing(list_pages(self.blobs, self.prefix)) as pages:
                async for page in pages:
                    await in_thread(sorter.add, self._shown(page, skipped))
            found = with_directories(
                sorter.pages(), lambda path, error: skipped(self.full_name(path), error)
            )
            while (batch := await in_thread(next, found, None)) is not None:
                for entry in batch:
                    yield entry

    async def children(self, skipped: Skipped) -> AsyncGenerator[TreeEntry, None]:
        """The entries of the first level alone, by name, with few requests for each directory. A
        file and a directory may have the same name."""
        with PathSort() as sorter:
            async with aclosing(list_first_level(self.blobs, self.prefix)) as pages:
                async for page in pages:
                    shown = [_first_level(entry) for entry in self._shown(page, skipped)]
                    await in_thread(sorter.add, shown)
            last = ("", False)
            for batch in sorter.pages():
                for entry in batch:
                    found = (entry.path, entry.is_dir)
                    if found != last:
                        yield entry
                    last = found

    async def content(self, entry: TreeEntry) -> AsyncGenerator[bytes, None]:
        """The bytes of the object, of the version that was listed."""
        pieces = range_of_version(
            self.blobs,
            self.prefix + entry.path,
            0,
            entry.size,
            if_match=entry.etag or None,
            step=CHUNK,
        )
        try:
            async with aclosing(pieces):
                async for piece in pieces:
                    yield piece
        except (BlobChangedError, BlobNotFoundError) as error:
            raise ConflictError(_CHANGED, path=self.full_name(entry.path)) from error

    def new_file(
        self, entry: TreeEntry, volume: Volume, path: str, *, overwrite: bool = True
    ) -> NewFile:
        """A copy inside the service where that is possible."""
        content = Content(self.uri(entry.path), entry.size, entry.etag, "")

        async def upload(at: WriteTarget) -> Content:
            try:
                target = volume.storage.at(at.path)
                return await target.copy_from(self._storage, content, at.object_id)
            except (CorruptDataError, DataMissingError) as error:
                raise ConflictError(_CHANGED, path=content.physical) from error

        is_streamed = not volume.storage.blobs.can_copy_from(self.blobs)
        file = NewFile(path, entry.size if is_streamed else 0, upload, mtime_ms=entry.mtime_ms)
        return written_alone(volume, file, overwrite=overwrite) if entry.size >= LARGE else file

    def _shown(self, page: Sequence[BlobInfo], skipped: Skipped) -> list[TreeEntry]:
        shown = []
        for info in page:
            path = info.key[len(self.prefix) :]
            if not path or belongs_to_a_volume(info.key):
                continue
            try:
                _need_path(path.removesuffix("/"))
            except S3kError as error:
                skipped(self.full_name(path), error)
                continue
            entry = TreeEntry(path, False, info.size, info.mtime_ms or None, info.etag)
            if path.endswith("/"):
                entry = TreeEntry(path[:-1], True, etag=info.etag)
            shown.append(entry)
        return shown


def _first_level(entry: TreeEntry) -> TreeEntry:
    """An entry, or the directory above it."""
    name, slash, _ = entry.path.partition("/")
    return TreeEntry(name, True) if slash else entry


def _need_path(path: str) -> None:
    """Raise InvalidPathError for a key that is no path."""
    if normalize(f"/{path}") != f"/{path}":
        raise InvalidPathError("the key is no path: a component of it is empty, `.` or `..`")
