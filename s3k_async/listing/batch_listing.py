"""Listings in Arrow record batches, and listings as a whole table or data frame."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeVar

from s3k_async._core.worker_threads import in_thread
from s3k_async.errors import ConfigError
from s3k_async.listing.listings import BATCH_ROWS, PagedIterator, arrow_schema
from s3k_async.listing.row_columns import row_batch, row_schema

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["BatchListing", "RowList", "RowListing", "data_frame", "table_of"]

T = TypeVar("T")


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
            return table_of([batch async for batch in self], arrow_schema())

    async def to_pandas(self) -> pd.DataFrame:
        """The remaining batches as a data frame with the columns of `s3k_async.arrow_schema`.

        `size` and `version` are int64, `mtime` and `ctime` datetime64[ms, UTC], `is_dir` and
        `committed` bool, the others strings. The strings are the only Python objects that are
        created for an entry. Raises ConfigError (pandas is not installed), and the errors of the
        iteration.
        """
        table = await self.to_arrow()
        return await in_thread(data_frame, table)


class RowListing(PagedIterator[T]):
    """A listing of values. It is read lazily, and can be iterated once."""

    def __init__(self, pages: AsyncGenerator[list[T], None], kind: type[T]) -> None:
        super().__init__(pages)
        self._kind = kind

    async def to_arrow(self) -> pa.Table:
        """The remaining values as one table. Raises the errors of the iteration.

        Statuses have the columns of `s3k_async.arrow_schema`, other values a column for each field.
        For a whole directory `list_batches` is faster.
        """
        batches = [batch async for batch in self._batches()]
        return table_of(batches, row_schema(self._kind))

    async def to_pandas(self) -> pd.DataFrame:
        """The remaining values as a data frame with the columns of `to_arrow`. Raises ConfigError
        (pandas is not installed), and the errors of the iteration."""
        table = await self.to_arrow()
        return await in_thread(data_frame, table)

    async def _batches(self) -> AsyncGenerator[pa.RecordBatch, None]:
        held: list[T] = []
        async with aclosing(self):
            async for row in self:
                held.append(row)
                if len(held) == BATCH_ROWS:
                    yield row_batch(self._kind, held)
                    held.clear()
        if held:
            yield row_batch(self._kind, held)


class RowList(list[T]):
    """A list of values, with conversion to a table or a data frame."""

    def __init__(self, rows: Iterable[T], kind: type[T]) -> None:
        super().__init__(rows)
        self._kind = kind

    def to_arrow(self) -> pa.Table:
        """The values as a table with a column for each field, as of `RowListing`."""
        batch = row_batch(self._kind, self)
        return table_of([batch], batch.schema)

    def to_pandas(self) -> pd.DataFrame:
        """The values as a data frame with the columns of `to_arrow`. Raises ConfigError (pandas is
        not installed)."""
        return data_frame(self.to_arrow())


def table_of(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """Batches of a listing as one table."""
    import pyarrow as pa

    return pa.Table.from_batches(batches, schema=schema)


def data_frame(table: pa.Table) -> pd.DataFrame:
    """The table of a listing as a data frame. Blocking. Raises ConfigError."""
    try:
        import pandas as pd  # noqa: F401 - pyarrow needs it
    except ImportError as error:
        raise ConfigError("pandas is not installed: pip install 's3k-async[pandas]'") from error
    return table.to_pandas(maps_as_pydicts="strict")
