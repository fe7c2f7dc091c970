"""The blocking twins of `BatchListing` and `StatusListing`."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from s3k_async.listing.batch_listing import data_frame, status_batch, table_of
from s3k_async.listing.listings import BATCH_ROWS
from s3k_async.model import FileStatus

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["SyncBatchListing", "SyncStatusListing"]


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
        return table_of(list(self))

    def to_pandas(self) -> pd.DataFrame:
        """The remaining batches as a data frame with the columns of `s3k_async.arrow_schema`.

        `size` and `version` are int64, `mtime` and `ctime` datetime64[ms, UTC], `is_dir` and
        `committed` bool, the others strings. The strings are the only Python objects that are
        created for an entry. Raises ConfigError (pandas is not installed), and the errors of the
        iteration.
        """
        return data_frame(self.to_arrow())


class SyncStatusListing(Iterator[FileStatus]):
    """A listing of statuses. It is read lazily, and can be iterated once."""

    def __init__(self, statuses: Generator[FileStatus, None, None]) -> None:
        self._statuses = statuses

    def __iter__(self) -> Iterator[FileStatus]:  # noqa: PYI034 - a generator is faster than this
        return self._statuses

    def __next__(self) -> FileStatus:
        return next(self._statuses)

    def close(self) -> None:
        """End the listing before its end: no further page is read."""
        self._statuses.close()

    def to_arrow(self) -> pa.Table:
        """The remaining entries as one table of the schema `s3k_async.arrow_schema`. For a whole
        directory `list_batches` is faster. Raises the errors of the iteration."""
        return SyncBatchListing(self._batches()).to_arrow()

    def to_pandas(self) -> pd.DataFrame:
        """The remaining entries as a data frame, as `to_pandas` of `list_batches` returns it; for
        a whole directory that is faster. Raises ConfigError (pandas is not installed), and the
        errors of the iteration."""
        return SyncBatchListing(self._batches()).to_pandas()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        while held := list(islice(self._statuses, BATCH_ROWS)):
            yield status_batch(held)
