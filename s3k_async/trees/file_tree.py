"""The port to trees of files: what comparisons and synchronization read and change."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

from s3k_async.bulk.file_writes import NewFile
from s3k_async.errors import S3kError
from s3k_async.model import Entry
from s3k_async.volumes.volume import Volume

__all__ = [
    "FailedFile",
    "FileTree",
    "Skipped",
    "TreeEntry",
    "TreePlace",
    "TreeTarget",
    "WrittenFile",
]

Skipped: TypeAlias = Callable[[str, S3kError], object]
"""Called for what a listing leaves out, with its full name and the reason."""


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """A file or directory of a tree."""

    path: str
    """Relative to the root of the tree: `a/b`."""
    is_dir: bool
    size: int = 0
    """Bytes; 0 for a directory."""
    mtime_ms: int | None = None
    """Modification time, epoch milliseconds; None: unknown, or a directory."""
    etag: str = ""
    """The entity tag of its object; empty for none. A directory with one is an object of its own,
    and counts in comparisons, while other directories of a bucket are those above objects."""
    checksum: str = ""
    """`xxh128:` and 32 hex digits, if one is recorded."""
    mtime_ns: int = 0
    """Modification time of a local file, epoch nanoseconds."""
    entry: Entry | None = None
    """The entry of a volume."""

    @property
    def order(self) -> str:
        """The key by which the entries of every tree ascend: component by component, by UTF-8
        bytes, each directory followed by its content."""
        return self.path.replace("/", "\0")


WrittenFile: TypeAlias = Callable[[TreeEntry, int], object]
"""Called for a file that was written, with its size."""
FailedFile: TypeAlias = Callable[[TreeEntry, S3kError], object]
"""Called for an entry that could not be changed. It may raise the error, which ends the call."""


@dataclass(frozen=True, slots=True)
class TreePlace:
    """Where a tree is: a path in a namespace, which is a volume, a bucket, or the local files."""

    namespace: str
    path: str

    def contains(self, other: TreePlace) -> bool:
        """Whether the other place is the same, or below this one."""
        root = self.path.rstrip("/")
        return self.namespace == other.namespace and f"{other.path}/".startswith(f"{root}/")


class FileTree(Protocol):
    """A tree of files that can be listed and read. Belongs to one event loop."""

    lists_directories: bool
    """Whether a listing has directories of its own; otherwise those above files."""
    is_local: bool
    """Whether reading a file costs no requests."""
    has_contents: bool
    """Whether files can be read."""

    @property
    def label(self) -> str:
        """The root, in messages."""

    @property
    def places(self) -> Sequence[TreePlace]:
        """Where the tree is: the root, and for a volume also its local directories."""

    def full_name(self, path: str) -> str:
        """The name of an entry in messages."""

    async def exists(self) -> bool:
        """Whether the root exists. Raises NotDirectoryError if it is a file, or would be below
        one."""

    def entries(self, skipped: Skipped) -> AsyncGenerator[TreeEntry, None]:
        """Everything below the root, in ascending `order`, with bounded memory. Raises
        PathNotFoundError (no root)."""

    def content(self, entry: TreeEntry) -> AsyncGenerator[bytes, None]:
        """The bytes of a file, in pieces. Raises UnsupportedError for a tree without contents."""

    def new_file(
        self, entry: TreeEntry, volume: Volume, path: str, *, overwrite: bool = True
    ) -> NewFile:
        """The copy of a file at a path of a volume, with its modification time; `overwrite`: it
        replaces the file at the path. Raises as `content`."""


@runtime_checkable
class TreeTarget(Protocol):
    """A tree that can be changed, besides `FileTree`."""

    async def make_directory(self, source: FileTree, entry: TreeEntry) -> None:
        """Create a directory like one of the source, and its missing parents. An entry with an
        empty path is the root."""

    async def copy_files(
        self,
        source: FileTree,
        files: AsyncIterable[TreeEntry],
        *,
        overwrite: bool = True,
        done: WrittenFile,
        failed: FailedFile,
    ) -> None:
        """Copy files of the source to the same relative paths, many at once, each by itself, and
        with their modification times. Existing files are replaced, or, without `overwrite`,
        failures (PathExistsError)."""

    async def remove_listed(self, entries: Sequence[TreeEntry], *, failed: FailedFile) -> None:
        """Remove files if they are as they were listed, and directories if they are empty by then.
        The content of a directory precedes it."""
