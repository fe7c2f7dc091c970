"""Listings in Arrow record batches, also as a whole table or data frame."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from s3k_async._core.worker_threads import in_thread
from s3k_async.errors import ConfigError
from s3k_async.listing.listings import arrow_schema

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["BatchListing", "data_frame", "table_of"]


class BatchListing(AsyncIterator["pa.RecordBatch"]):
    """A listing in record batches of the schema `s3k_async.arrow_schema`. It is read lazily, and
    can be iterated once."""

    def __init__(self, batches: AsyncGenerator[pa.RecordBatch, None]) -> None:
        self._batches = batches

    def __anext__(self) -> Coroutine[Any, Any, pa.RecordBatch]:
        return self._batches.__anext__()

    def aclose(self) -> Coroutine[Any, Any, None]:
        """Cancel the read-ahead."""
        return self._batches.aclose()

    async def to_arrow(self) -> pa.Table:
        """The remaining batches as one table, without a copy. Raises the errors of the
        iteration."""
        async with aclosing(self):
            return table_of([batch async for batch in self])

    async def to_pandas(self) -> pd.DataFrame:
        """The remaining batches as a data frame with the columns of `s3k_async.arrow_schema`.

        `size` and `version` are int64, `mtime` and `ctime` datetime64[ms, UTC], `is_dir` and
        `committed` bool, the others strings. The strings are the only Python objects that are
        created for an entry. Raises ConfigError (pandas is not installed), and the errors of the
        iteration.
        """
        table = await self.to_arrow()
        return await in_thread(data_frame, table)


def table_of(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """Batches of a listing as one table."""
    import pyarrow as pa

    return pa.Table.from_batches(batches, schema=arrow_schema())


def data_frame(table: pa.Table) -> pd.DataFrame:
    """The table of a listing as a data frame. Blocking. Raises ConfigError."""
    try:
        import pandas as pd  # noqa: F401 - pyarrow needs it
    except ImportError as error:
        raise ConfigError("pandas is not installed: pip install 's3k-async[pandas]'") from error
    return table.to_pandas()
