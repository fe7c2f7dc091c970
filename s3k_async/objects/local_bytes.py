"""Local files as sources and targets of objects: a path, or an open binary file."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from io import RawIOBase
from typing import Final, Protocol, TypeAlias

from s3k_async._core.worker_threads import in_thread
from s3k_async.bulk import local_tree
from s3k_async.errors import ArgumentTypeError, EndOfFileError

__all__ = ["CHUNK", "BinarySource", "BinaryTarget", "Source", "Target", "pieces", "store_pieces"]

CHUNK: Final = 8 * 1024 * 1024
"""Most bytes of a piece."""


class BinarySource(Protocol):
    """A file that is open to read bytes."""

    def read(self, size: int, /) -> bytes: ...


class BinaryTarget(Protocol):
    """A file that is open to write bytes."""

    def write(self, data: bytes, /) -> object: ...


Source: TypeAlias = str | os.PathLike[str] | BinarySource
"""A local path, read from its start; or an open file, from its position."""
Target: TypeAlias = str | os.PathLike[str] | BinaryTarget
"""A local path, whose file is replaced; or an open file, written at its position."""


async def pieces(source: Source, offset: int, size: int | None) -> AsyncGenerator[bytes, None]:
    """The bytes of a local file from an offset on, at most `size` of them, in pieces of up to
    CHUNK.

    Raises ArgumentTypeError (neither a path nor a binary file), PathNotFoundError,
    UnsupportedError (not a regular file), PermissionDeniedError.
    """
    found = (
        _of_path(os.fspath(source), offset, size)
        if isinstance(source, str | os.PathLike)
        else _of_file(source, offset, size)
    )
    async with aclosing(found) as parts:
        async for part in parts:
            yield part


async def _of_path(path: str, start: int, size: int | None) -> AsyncGenerator[bytes, None]:
    position, end = start, None if size is None else start + size
    async with local_tree.opened(path) as (descriptor, _):
        while wanted := CHUNK if end is None else min(CHUNK, end - position):
            piece = await local_tree.read_piece(descriptor, path, position, wanted)
            if not piece:
                return
            yield piece
            position += len(piece)


async def _of_file(
    file: BinarySource, offset: int, size: int | None
) -> AsyncGenerator[bytes, None]:
    """No more is read than is needed: what follows may belong to others, or never come."""
    if getattr(file, "read", None) is None:
        raise ArgumentTypeError(
            f"a source is a path or an open binary file, not {type(file).__name__}"
        )
    skip, left = offset, size
    while left != 0:
        wanted = skip or left
        piece = await in_thread(_read, file, CHUNK if wanted is None else min(CHUNK, wanted))
        if not piece:
            return
        skip, piece = max(0, skip - len(piece)), piece[skip:]
        if left is not None:
            piece = piece[:left]
            left -= len(piece)
        if piece:
            yield piece


def _read(file: BinarySource, size: int) -> bytes:
    with local_tree.local_errors(_name(file)):
        piece = file.read(size)
    if not isinstance(piece, bytes | bytearray | memoryview):
        raise ArgumentTypeError(f"a source has bytes, not {type(piece).__name__}: open it in `rb`")
    return bytes(piece)


async def store_pieces(parts: AsyncIterator[bytes], target: Target) -> int:
    """Write pieces to a local file, and return the number of bytes. The file at a path appears
    complete, or stays as it was.

    Raises ArgumentTypeError (neither a path nor a binary file), IsDirectoryError,
    PathNotFoundError (no such directory), NoSpaceError, PermissionDeniedError, UnsupportedError (a
    path of a device or a pipe).
    """
    written = 0
    if isinstance(target, str | os.PathLike):
        path = os.fspath(target)
        async with local_tree.appearing(path) as descriptor:
            async for piece in parts:
                await local_tree.write_piece(descriptor, path, piece)
                written += len(piece)
        return written
    if getattr(target, "write", None) is None:
        raise ArgumentTypeError(
            f"a target is a path or an open binary file, not {type(target).__name__}"
        )
    async for piece in parts:
        await in_thread(_write, target, piece)
        written += len(piece)
    return written


def _write(file: BinaryTarget, data: bytes) -> None:
    """Write all bytes, to a file without a buffer, too, which may write only some at a time."""
    view = memoryview(data)
    with local_tree.local_errors(_name(file)):
        while view:
            done = file.write(bytes(view) if len(view) < len(data) else data)
            if done == 0 or (done is None and isinstance(file, RawIOBase)):  # it would block
                raise EndOfFileError("the file accepts no more bytes", path=_name(file))
            view = view[done if isinstance(done, int) else len(view) :]


def _name(file: object) -> str:
    return str(getattr(file, "name", type(file).__name__))
