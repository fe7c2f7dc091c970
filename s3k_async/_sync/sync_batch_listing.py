"""The blocking twins of `BatchListing` and `RowListing`."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from s3k_async.listing.batch_listing import data_frame, table_of
from s3k_async.listing.listings import BATCH_ROWS, arrow_schema
from s3k_async.listing.row_columns import row_batch, row_schema

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["SyncBatchListing", "SyncRowListing"]

T = TypeVar("T")


class SyncBatchListing(Iterator["pa.RecordBatch"]):
    """A listing in record batches of the schema `s3k_async.arrow_schema`. It is read lazily, and
    can be iterated once."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)

    def to_arrow(self) -> pa.Table:
        """The remaining batches as one table, without a copy. Raises the errors of the
        iteration."""
        return table_of(list(self), arrow_schema())

    def to_pandas(self) -> pd.DataFrame:
        """The remaining batches as a data frame with the columns of `s3k_async.arrow_schema`.

        `size` and `version` are int64, `mtime` and `ctime` datetime64[ms, UTC], `is_dir` and
        `committed` bool, the others strings. The strings are the only Python objects that are
        created for an entry. Raises ConfigError (pandas is not installed), and the errors of the
        iteration.
        """
        return data_frame(self.to_arrow())


class SyncRowListing(Iterator[T]):
    """A listing of values. It is read lazily, and can be iterated once."""

    def __init__(self, rows: Generator[T, None, None], kind: type[T]) -> None:
        self._rows = rows
        self._kind = kind

    def __iter__(self) -> Iterator[T]:  # noqa: PYI034 - a generator is faster than this
        return self._rows

    def __next__(self) -> T:
        return next(self._rows)

    def close(self) -> None:
        """End the listing before its end: no further page is read."""
        self._rows.close()

    def to_arrow(self) -> pa.Table:
        """The remaining values as one table. Raises the errors of the iteration.

        Statuses have the columns of `s3k_async.arrow_schema`, other values a column for each field.
        For a whole directory `list_batches` is faster.
        """
        return table_of(list(self._batches()), row_schema(self._kind))

    def to_pandas(self) -> pd.DataFrame:
        """The remaining values as a data frame with the columns of `to_arrow`. Raises ConfigError
        (pandas is not installed), and the errors of the iteration."""
        return data_frame(self.to_arrow())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        while held := list(islice(self._rows, BATCH_ROWS)):
            yield row_batch(self._kind, held)
