"""Multipart uploads in the model: what each has stored, and what its completion publishes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from s3k_async import S3kClient
from s3k_async.errors import (
    InvalidArgumentError,
    IsDirectoryError,
    PathNotFoundError,
    UncommittedFileError,
)
from s3k_async.files.multipart import (
    abort_upload,
    complete_upload,
    copy_part,
    list_parts,
    list_uploads,
    put_part,
)
from tests.torture.model import (
    Answer,
    File,
    Filling,
    Outcome,
    Refusal,
    Reserved,
    Tree,
    fill,
    is_directory,
)

__all__ = ["Abort", "Complete", "CopyPart", "ListUploads", "PutPart", "Uploading"]


@dataclass
class Uploading:
    """An upload that is open."""

    id: str
    path: str
    parts: dict[int, bytes] = field(default_factory=dict)

    @property
    def data(self) -> bytes:
        """What a completion publishes."""
        return b"".join(data for _, data in sorted(self.parts.items()))

    @property
    def sizes(self) -> dict[int, int]:
        """The sizes of the parts."""
        return {number: len(data) for number, data in self.parts.items()}


class _Beside:
    """A call that does not change the tree."""

    def apply(self, tree: Tree) -> Answer | Refusal:
        return Answer(None, tree)

    def leftovers(self, tree: Tree) -> Iterator[Tree]:
        return iter(())


@dataclass(frozen=True)
class PutPart(_Beside):
    """`put_part`."""

    stamp: int
    upload: str
    number: int
    data: bytes

    async def run(self, fs: S3kClient) -> Outcome:
        part = await put_part(fs._volume(), self.upload, self.number, self.data)
        assert (part.number, part.size) == (self.number, len(self.data))


@dataclass(frozen=True)
class CopyPart(_Beside):
    """`copy_part`, of a file from an offset on. Answers how many bytes that are."""

    stamp: int
    upload: str
    number: int
    source: str
    offset: int = 0

    async def run(self, fs: S3kClient) -> Outcome:
        volume = fs._volume()
        part = await copy_part(volume, self.upload, self.number, self.source, self.offset)
        return part.size

    def apply(self, tree: Tree) -> Answer | Refusal:
        there = tree.get(self.source)
        if is_directory(tree, self.source):
            return Refusal({IsDirectoryError})
        if isinstance(there, Reserved):
            return Refusal({UncommittedFileError})
        if not isinstance(there, File):
            return Refusal({PathNotFoundError})
        if self.offset > len(there.data):
            return Refusal({InvalidArgumentError})
        return Answer(len(there.data) - self.offset, tree)


@dataclass(frozen=True)
class Abort(_Beside):
    """`abort_upload`."""

    stamp: int
    upload: str

    async def run(self, fs: S3kClient) -> Outcome:
        await abort_upload(fs._volume(), self.upload)


@dataclass(frozen=True)
class Complete(Filling):
    """`complete_upload`, which publishes `data`; None: it has no parts."""

    stamp: int
    path: str
    upload: str
    data: bytes | None

    async def run(self, fs: S3kClient) -> Outcome:
        entry = await complete_upload(fs._volume(), self.upload)
        assert (entry.path, entry.size, entry.committed) == (self.path, len(self.data or b""), True)

    def apply(self, tree: Tree) -> Answer | Refusal:
        if self.data is None:
            return Refusal({InvalidArgumentError})
        filled = fill(tree, self.path, File(self.data, self.stamp))
        return filled if isinstance(filled, Refusal) else Answer(None, filled)


@dataclass(frozen=True)
class ListUploads(_Beside):
    """`list_uploads`, and `list_parts` of each: path, and numbers and sizes of the parts, by id."""

    async def run(self, fs: S3kClient) -> Outcome:
        volume = fs._volume()
        return {
            upload.id: (
                upload.path,
                {part.number: part.size for part in await list_parts(volume, upload.id)},
            )
            for upload in await list_uploads(volume)
        }
