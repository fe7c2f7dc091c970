"""Listings as files: JSON lines, or Parquet with the columns of `listing.arrow_schema`. Memory is
bounded."""

from __future__ import annotations

import io
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import click

from s3k_async._core.worker_threads import in_thread
from s3k_async.bulk import local_tree
from s3k_async.listing.listings import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

__all__ = [
    "FORMATS",
    "STANDARD_OUTPUT",
    "ListingFormat",
    "listing_format",
    "write_jsonl",
    "write_parquet",
]

ListingFormat: TypeAlias = Literal["jsonl", "parquet"]
FORMATS: Final[tuple[ListingFormat, ...]] = ("jsonl", "parquet")
STANDARD_OUTPUT: Final = "-"

ROW_GROUP: Final = 65_536
"""Rows of a Parquet row group, held in memory: about ten megabytes before encoding."""
LINES: Final = 4096
"""JSON lines per write."""


def listing_format(file: str, given: str | None) -> ListingFormat:
    """The format of a listing in `file`: the requested one, else by the extension.

    Raises click.UsageError without either, and for Parquet to standard output.
    """
    wanted = given or os.path.splitext(file)[1].removeprefix(".").lower()
    if file == STANDARD_OUTPUT:
        wanted = given or "jsonl"
        if wanted == "parquet":
            raise click.UsageError("Parquet is written to a file, not to standard output")
    for known in FORMATS:
        if wanted == known:
            return known
    raise click.UsageError(
        f"-o {file}: what format? Name the file .jsonl or .parquet, or say it with --format"
    )


async def write_jsonl(found: AsyncIterator[Mapping[str, Any]], file: str) -> int:
    """Write objects to a local file, one a line; returns the number of lines.

    The file is replaced atomically. Raises IsDirectoryError, UnsupportedError (the path is no
    regular file), NoSpaceError and the other errors of local files.
    """

    async def fill(part: _ListedPart) -> int:
        count = 0
        held: list[Mapping[str, Any]] = []
        async for fields in found:
            held.append(fields)
            if len(held) == LINES:
                await in_thread(part.write, _lines(held))
                count += len(held)
                held.clear()
        await in_thread(part.write, _lines(held))
        return count + len(held)

    return await _whole(file, fill)


async def write_parquet(found: AsyncIterator[pa.RecordBatch], file: str) -> int:
    """Write record batches of a listing to a local file; returns the number of rows. Atomicity and
    errors as in `write_jsonl`."""

    async def fill(part: _ListedPart) -> int:
        from pyarrow.parquet import ParquetWriter

        count = waiting = 0
        held: list[pa.RecordBatch] = []
        writer = ParquetWriter(part, arrow_schema(), compression="zstd")
        try:
            async for batch in found:
                held.append(batch)
                count += batch.num_rows
                waiting += batch.num_rows
                if waiting >= ROW_GROUP:
                    await in_thread(_write_rows, writer, held)
                    held, waiting = [], 0
            await in_thread(_write_rows, writer, held)
            await in_thread(writer.close)
        finally:
            part.over = True
            writer.close()
        return count

    return await _whole(file, fill)


def _lines(objects: Sequence[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(fields) + "\n" for fields in objects).encode("ascii")


def _write_rows(writer: ParquetWriter, batches: Sequence[pa.RecordBatch]) -> None:
    import pyarrow as pa

    if batches:
        writer.write_table(pa.Table.from_batches(batches), row_group_size=ROW_GROUP)


class _ListedPart(io.RawIOBase):
    """File object for Parquet's writer. Once it is `over`, writes are discarded: a failed writer
    still writes its footer."""

    def __init__(self, descriptor: int, file: str) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._file = file
        self.over = False

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        view = memoryview(data).cast("B")
        if not self.over:
            local_tree.write(self._descriptor, self._file, view)
        return len(view)


async def _whole(file: str, fill: Callable[[_ListedPart], Awaitable[int]]) -> int:
    """Write a temporary file and rename it into place; a failure, or an interrupt, leaves no
    file."""
    async with local_tree.appearing(file, hint="-o - writes to standard output") as descriptor:
        return await fill(_ListedPart(descriptor, file))
