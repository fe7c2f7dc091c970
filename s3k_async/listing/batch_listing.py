"""Listings in Arrow record batches, and listings as a whole table or data frame."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from s3k_async._core.object_version import as_version
from s3k_async._core.worker_threads import in_thread
from s3k_async.errors import ConfigError
from s3k_async.listing.listings import BATCH_ROWS, PagedIterator, arrow_schema
from s3k_async.model import FileStatus

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["BatchListing", "StatusListing", "data_frame", "status_batch", "table_of"]


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


class StatusListing(PagedIterator[FileStatus]):
    """A listing of statuses. It is read lazily, and can be iterated once."""

    async def to_arrow(self) -> pa.Table:
        """The remaining entries as one table of the schema `s3k_async.arrow_schema`. For a whole
        directory `list_batches` is faster. Raises the errors of the iteration."""
        return await BatchListing(self._batches()).to_arrow()

    async def to_pandas(self) -> pd.DataFrame:
        """The remaining entries as a data frame, as `to_pandas` of `list_batches` returns it; for
        a whole directory that is faster. Raises ConfigError (pandas is not installed), and the
        errors of the iteration."""
        return await BatchListing(self._batches()).to_pandas()

    async def _batches(self) -> AsyncGenerator[pa.RecordBatch, None]:
        held: list[FileStatus] = []
        async with aclosing(self):
            async for status in self:
                held.append(status)
                if len(held) == BATCH_ROWS:
                    yield status_batch(held)
                    held.clear()
        if held:
            yield status_batch(held)


def status_batch(statuses: Sequence[FileStatus]) -> pa.RecordBatch:
    """Statuses as a record batch of the schema `arrow_schema`."""
    import pyarrow as pa

    columns = {
        "path": [status.path for status in statuses],
        "is_dir": [status.is_dir for status in statuses],
        "size": [status.size for status in statuses],
        "mtime": [status.mtime_ms for status in statuses],
        "ctime": [status.ctime_ms for status in statuses],
        "id": [status.id for status in statuses],
        "version": [status.version for status in statuses],
        "committed": [status.committed for status in statuses],
        "etag": [status.etag for status in statuses],
        "checksum": [status.checksum or as_version(status.object_version) for status in statuses],
        "attributes": [status.attributes_json for status in statuses],
        "physical": [status.physical for status in statuses],
    }
    return pa.RecordBatch.from_pydict(columns, schema=arrow_schema())


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
