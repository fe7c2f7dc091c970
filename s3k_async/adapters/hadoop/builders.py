"""Hadoop's stream builders: options, then `build`.

Options named by strings are hints (`opt`) or demands (`must`). None of the known ones has an effect
here, so hints are dropped and a demand is refused unless it is known.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable
from typing import Protocol, Self

from s3k_async.adapters.hadoop.status import HadoopFileStatus
from s3k_async.adapters.hadoop.streams import HadoopInputStream, HadoopOutputStream
from s3k_async.errors import InvalidArgumentError, PathNotFoundError

__all__ = ["CreateFlag", "OpenFileBuilder", "OutputStreamBuilder"]

OPEN_OPTIONS = frozenset(
    f"fs.option.openfile.{name}"
    for name in ("read.policy", "length", "split.start", "split.end", "buffer.size", "footer.cache")
)
"""Options of Hadoop 3.4 for opening a file. Source: its file system specification,
`fsdatainputstreambuilder`."""


class CreateFlag(enum.Flag):
    """Flags of `create_non_recursive`. Those not about existence have no effect."""

    CREATE = enum.auto()
    OVERWRITE = enum.auto()
    APPEND = enum.auto()
    SYNC_BLOCK = enum.auto()
    LAZY_PERSIST = enum.auto()
    NEW_BLOCK = enum.auto()
    NO_LOCAL_WRITE = enum.auto()
    SHOULD_REPLICATE = enum.auto()
    IGNORE_CLIENT_LOCALITY = enum.auto()


class FileCreator(Protocol):
    """The part of a filesystem that creates files."""

    async def create(self, path: str, overwrite: bool = True) -> HadoopOutputStream: ...
    async def create_non_recursive(self, path: str, flags: CreateFlag) -> HadoopOutputStream: ...


class _Builder:
    """Options by name."""

    known: frozenset[str] = frozenset()

    def __init__(self, path: str) -> None:
        self._path = path
        self._demands: set[str] = set()

    def opt(self, option: str, value: object) -> Self:
        """A hint, which has no effect."""
        return self

    def must(self, option: str, value: object) -> Self:
        """A demand: `build` fails unless the option is known."""
        self._demands.add(option)
        return self

    def _need_known(self) -> None:
        unknown = sorted(self._demands - self.known)
        if unknown:
            raise InvalidArgumentError(f"unknown mandatory option {unknown[0]!r}", path=self._path)


class OpenFileBuilder(_Builder):
    """Opens a file for reading. `build` may be called again: each call opens another stream."""

    known = OPEN_OPTIONS

    def __init__(
        self, path: str, qualified: str, open_path: Callable[[str], Awaitable[HadoopInputStream]]
    ) -> None:
        super().__init__(path)
        self._qualified = qualified
        self._open_path = open_path
        self._status: HadoopFileStatus | None = None

    def with_file_status(self, status: HadoopFileStatus | None) -> Self:
        """A status of the file, without effect: the current version is opened.

        Raises InvalidArgumentError for the status of another path.
        """
        if status is not None and status.path != self._qualified:
            raise InvalidArgumentError(f"the status of {status.path} was given", path=self._path)
        self._status = status
        return self

    def build(self) -> Awaitable[HadoopInputStream]:
        """Start opening the file. Raises InvalidArgumentError for an unknown demand; errors of the
        file are raised when the result is awaited."""
        self._need_known()
        return self._open()

    async def _open(self) -> HadoopInputStream:
        if self._status is not None and self._status.is_directory:
            raise PathNotFoundError("no such file", path=self._path)
        return await self._open_path(self._path)


class OutputStreamBuilder(_Builder):
    """Creates a file. By default it replaces an existing one and requires the parent to exist."""

    def __init__(self, path: str, filesystem: FileCreator) -> None:
        super().__init__(path)
        self._filesystem = filesystem
        self._flags = CreateFlag.CREATE | CreateFlag.OVERWRITE
        self._recursive = False

    def overwrite(self, overwrite: bool) -> Self:
        """Whether to replace a file."""
        self._flags = CreateFlag.CREATE | (CreateFlag.OVERWRITE if overwrite else CreateFlag(0))
        return self

    def recursive(self) -> Self:
        """Make missing parents."""
        self._recursive = True
        return self

    async def build(self) -> HadoopOutputStream:
        """Create the file. Raises InvalidArgumentError for any demand, and as `create` or
        `create_non_recursive`."""
        self._need_known()
        if self._recursive:
            return await self._filesystem.create(
                self._path, overwrite=CreateFlag.OVERWRITE in self._flags
            )
        return await self._filesystem.create_non_recursive(self._path, self._flags)
