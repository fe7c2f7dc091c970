"""Dumps as Parquet: the columns of a listing (`listing.arrow_schema`), and `op` and `lease` of each
entry.

Header and end are metadata of the file, `s3k` and `s3k.end`, in its footer, without which it is no
Parquet file; pages have checksums.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from s3k_async._native import Entries
from s3k_async.errors import CorruptDataError
from s3k_async.listing.listings import arrow_schema
from s3k_async.migrate.dump_format import CHUNK, DumpEnd, DumpHeader, parse, parse_end, parse_header
from s3k_async.model import UNCOMMITTED, Entry

__all__ = ["ParquetReader", "ParquetWriter"]

_HEADER = b"s3k"
_END = b"s3k.end"
_MORE = [pa.field("op", pa.string(), nullable=False), pa.field("lease", pa.int64(), nullable=False)]
_ROWS = 16 * CHUNK
"""Fewest rows of a group except the last; the entries of a group are in memory."""


class ParquetWriter:
    """Writer of a dump to an open binary file."""

    def __init__(self, file: BinaryIO, header: DumpHeader) -> None:
        self._schema = pa.schema([*arrow_schema(), *_MORE])
        self._writer = pq.ParquetWriter(
            file, self._schema, compression="zstd", write_page_checksum=True
        )
        self._writer.add_key_value_metadata({_HEADER.decode(): json.dumps(header.document())})
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0

    def write(self, entries: Entries) -> DumpEnd:
        """As DumpWriter."""
        batch = pa.record_batch(entries)
        more = [
            pa.array([entry.operation for entry in entries], pa.string()),
            pa.array([entry.lease_ms for entry in entries], pa.int64()),
        ]
        self._waiting.append(
            pa.RecordBatch.from_arrays([*batch.columns, *more], schema=self._schema)
        )
        self._rows += batch.num_rows
        if self._rows >= _ROWS:
            self._flush()
        return DumpEnd().of(list(entries))

    def finish(self, end: DumpEnd) -> None:
        """As DumpWriter."""
        if self._waiting:
            self._flush()
        self._writer.add_key_value_metadata({_END.decode(): json.dumps(asdict(end))})
        self._writer.close()

    def drop(self) -> None:
        """Close an unfinished file."""
        with suppress(pa.ArrowException, OSError, ValueError):
            self._writer.close()

    def _flush(self) -> None:
        self._writer.write_table(pa.Table.from_batches(self._waiting, schema=self._schema))
        self._waiting = []
        self._rows = 0


class ParquetReader:
    """Reader of a dump in Parquet."""

    def __init__(self, path: str) -> None:
        self._path = path

    def header(self) -> DumpHeader:
        """As DumpReader."""
        with self._opened() as file:
            return parse_header(self._metadata(file, _HEADER), self._path)

    def chunks(self) -> Iterator[tuple[list[Entry], DumpEnd | None]]:
        """As DumpReader."""
        with self._opened() as file:
            for batch in file.iter_batches(batch_size=CHUNK):
                yield self._entries(batch), None
            yield [], parse_end(parse(self._metadata(file, _END), self._path), self._path)

    @contextmanager
    def _opened(self) -> Iterator[pq.ParquetFile]:
        try:
            with pq.ParquetFile(self._path, page_checksum_verification=True) as file:
                yield file
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, CorruptDataError | FileNotFoundError | PermissionError):
                raise
            raise CorruptDataError(
                f"the dump was cut or is damaged: {error}", path=self._path
            ) from error

    def _metadata(self, file: pq.ParquetFile, name: bytes) -> bytes:
        return bytes((file.metadata.metadata or {}).get(name, b"{}"))

    def _entries(self, batch: pa.RecordBatch) -> list[Entry]:
        wanted = pa.schema([*arrow_schema(), *_MORE])
        if "attributes" not in batch.schema.names:  # format 1
            none = pa.array([""] * batch.num_rows, pa.string())
            batch = batch.append_column("attributes", none)
            batch = batch.select([name for name in wanted.names if name in batch.schema.names])
        if batch.schema.names != wanted.names:
            raise CorruptDataError(
                "the columns of the dump are not those of a dump", path=self._path
            )
        columns: dict[str, list[Any]] = {}
        for name in wanted.names:
            column = batch.column(name)
            if pa.types.is_timestamp(column.type):
                column = column.cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
            columns[name] = column.cast(
                wanted.field(name).type if name not in ("mtime", "ctime") else pa.int64()
            ).to_pylist()
        return [
            _entry(dict(zip(columns, row, strict=True)))
            for row in zip(*columns.values(), strict=True)
        ]


def _entry(row: dict[str, Any]) -> Entry:
    # In a listing directories are committed.
    committed = row["committed"] and not row["is_dir"]
    return Entry(
        path=row["path"],
        is_dir=row["is_dir"],
        id=row["id"],
        version=row["version"],
        ctime=row["ctime"] // 1000,
        mtime_ms=row["mtime"],
        size=row["size"],
        physical=row["physical"] if row["is_dir"] or committed else UNCOMMITTED,
        committed=committed,
        etag=row["etag"],
        checksum=row["checksum"],
        attributes=row["attributes"],
        operation=row["op"],
        lease_ms=row["lease"],
    )
