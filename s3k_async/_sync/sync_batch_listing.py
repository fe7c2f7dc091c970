"""The blocking twin of `BatchListing`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from s3k_async.listing.batch_listing import data_frame, table_of

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["SyncBatchListing"]


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
