"""Readers of dumps by form."""

from __future__ import annotations

import os
from typing import Final

from s3k_async.migrate.dump_format import DumpFile
from s3k_async.migrate.dump_jsonl import JsonLinesReader

__all__ = ["open_dump"]

_PARQUET: Final = b"PAR1"


def open_dump(path: str) -> DumpFile:
    """The dump in a file or directory. Raises CorruptDataError if it is no dump, OSError."""
    # pyarrow is imported only for a dump in Parquet.
    if os.path.isdir(path):
        from s3k_async.migrate.dump_parts import MANIFEST, PartsReader

        return DumpFile(path, PartsReader(path), summed=os.path.join(path, MANIFEST))
    with open(path, "rb") as file:
        parquet = file.read(len(_PARQUET)) == _PARQUET
    if parquet:
        from s3k_async.migrate.dump_parquet import ParquetReader

        return DumpFile(path, ParquetReader(path))
    return DumpFile(path, JsonLinesReader(path))
