"""A writer that raises publishes nothing through pyarrow either, whoever closes the file."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyarrow import csv
from pyarrow.fs import PyFileSystem, copy_files

from s3k_async.config import LocalDirectory, SqliteFile, VolumeConfig
from s3k_async.errors import ConflictError, CorruptDataError
from tests.adapters.arrow_rig import (
    client_of,
    new_filesystem,
    put,
    read,
    table,
    wait_until_nothing_is_reserved,
)
from tests.client.rig import TUNING, memory_config

TABLE = table(n_squared=[n * n for n in range(1000)])


class BoomError(Exception):
    """What goes wrong in these tests."""


@pytest.fixture
def fs() -> Iterator[PyFileSystem]:
    """A new volume."""
    with new_filesystem(memory_config()) as filesystem:
        yield filesystem


def everything(fs: PyFileSystem) -> list[str]:
    """Paths of all files, those that are being written included."""
    wait_until_nothing_is_reserved(fs)
    return sorted(
        status.path for status in client_of(fs).list("/", recursive=True) if not status.is_dir
    )


# Left by an exception, each in its own way


def stream(fs: PyFileSystem) -> None:
    with fs.open_output_stream("/f") as file:
        file.write(b"half")
        raise BoomError


def compressed(fs: PyFileSystem) -> None:
    with fs.open_output_stream("/f", compression="gzip") as file:
        file.write(b"half")
        raise BoomError


def buffered(fs: PyFileSystem) -> None:
    with fs.open_output_stream("/f", buffer_size=1000) as file:
        file.write(b"half")
        raise BoomError


def appending(fs: PyFileSystem) -> None:
    with fs.open_append_stream("/f") as file:
        file.write(b"half")
        raise BoomError


def parquet(fs: PyFileSystem) -> None:
    with pq.ParquetWriter("/f", TABLE.schema, filesystem=fs) as writer:
        writer.write(TABLE)
        raise BoomError


def parquet_of_another_schema(fs: PyFileSystem) -> None:
    with pq.ParquetWriter("/f", TABLE.schema, filesystem=fs) as writer:
        writer.write(TABLE)
        try:
            writer.write(pa.table({"other": [1]}))
        except ValueError as error:
            raise BoomError from error


def ipc(fs: PyFileSystem) -> None:
    with fs.open_output_stream("/f") as file, pa.ipc.new_file(file, TABLE.schema) as writer:
        writer.write(TABLE)
        raise BoomError


def csv_rows(fs: PyFileSystem) -> None:
    with fs.open_output_stream("/f") as file, csv.CSVWriter(file, TABLE.schema) as writer:
        writer.write(TABLE)
        raise BoomError


def generator(fs: PyFileSystem) -> None:
    def writing() -> Iterator[None]:
        with fs.open_output_stream("/f") as file:
            file.write(b"half")
            yield

    suspended = writing()
    next(suspended)
    suspended.throw(BoomError)  # type: ignore[attr-defined]  # a generator


def another_exception(fs: PyFileSystem) -> None:
    try:
        raise KeyError
    except KeyError:
        stream(fs)


def closed_in_finally(fs: PyFileSystem) -> None:
    file = fs.open_output_stream("/f")
    try:
        file.write(b"half")
        raise BoomError
    finally:
        file.close()


WAYS = [
    stream,
    compressed,
    buffered,
    appending,
    parquet,
    parquet_of_another_schema,
    ipc,
    csv_rows,
    generator,
    another_exception,
    closed_in_finally,
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("before", [None, b"before"])
def test_leaving_by_an_exception_publishes_nothing(
    fs: PyFileSystem, way: Callable[[PyFileSystem], None], before: bytes | None
) -> None:
    if before is not None:
        put(fs, "/f", before)
    with pytest.raises(BoomError):
        way(fs)
    assert everything(fs) == ([] if before is None else ["/f"])
    if before is not None:
        assert read(fs, "/f") == before


def test_a_file_that_is_written_because_of_an_exception_is_published(fs: PyFileSystem) -> None:
    try:
        raise BoomError
    except BoomError:
        put(fs, "/a")
        pq.write_table(TABLE, "/b", filesystem=fs)
        ds.write_dataset(TABLE, "/c", filesystem=fs, format="parquet")
    assert everything(fs) == ["/a", "/b", "/c/part-0.parquet"]
    assert pq.read_table("/b", filesystem=fs) == TABLE


def test_a_close_that_does_not_publish_says_so(
    fs: PyFileSystem, caplog: pytest.LogCaptureFixture
) -> None:
    opened = fs.open_output_stream("/f")
    try:
        raise BoomError
    except BoomError:
        opened.write(b"half")
        opened.close()
    assert everything(fs) == []
    # Other tests of this process may have left clients, whose logs end in the background.
    said = [each.getMessage() for each in caplog.records if each.name.endswith(".arrow")]
    assert said == ["/f is not published: an exception closes it"]


# Forgotten


def forget_a_stream(fs: PyFileSystem) -> None:
    fs.open_output_stream("/f").write(b"half")
    gc.collect()


def forget_a_parquet_writer(fs: PyFileSystem) -> None:
    """Its `__del__` writes the footer and closes the file, so that half a table would look like a
    whole one."""
    pq.ParquetWriter("/f", TABLE.schema, filesystem=fs).write(TABLE)
    gc.collect()


@pytest.mark.parametrize("forget", [forget_a_stream, forget_a_parquet_writer])
def test_what_is_forgotten_is_discarded_with_a_warning(
    fs: PyFileSystem, forget: Callable[[PyFileSystem], None]
) -> None:
    with pytest.warns(ResourceWarning, match="not closed: /f"):
        forget(fs)
    assert everything(fs) == []


def test_a_writer_that_failed_to_close_is_not_published_by_its_finaliser(fs: PyFileSystem) -> None:
    writer = pq.ParquetWriter("/f", TABLE.schema, filesystem=fs)
    writer.write(TABLE)
    client_of(fs).delete("/f")
    put(fs, "/f", b"of somebody else")
    with pytest.raises(ConflictError):
        writer.close()
    del writer
    gc.collect()
    assert read(fs, "/f") == b"of somebody else"


# Datasets


def batches(rows: int, count: int) -> Iterator[pa.RecordBatch]:
    """So many batches for four partitions, and then a failure."""
    for number in range(count):
        yield pa.record_batch({"n": list(range(rows)), "part": [number % 4] * rows})
    raise BoomError


@pytest.mark.parametrize("use_threads", [True, False])
@pytest.mark.parametrize("form", ["parquet", "ipc", "csv"])
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_dataset_that_fails_leaves_no_half_file(
    fs: PyFileSystem, form: str, use_threads: bool
) -> None:
    with pytest.raises(BoomError):
        ds.write_dataset(
            batches(1000, 30),
            "/d",
            schema=pa.schema({"n": pa.int64(), "part": pa.int64()}),
            filesystem=fs,
            format=form,
            partitioning=["part"],
            use_threads=use_threads,
            min_rows_per_group=1,
            max_rows_per_group=1000,
        )
    gc.collect()
    assert everything(fs) == []


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_what_a_failed_dataset_had_finished_is_whole(fs: PyFileSystem) -> None:
    with pytest.raises(BoomError):
        ds.write_dataset(
            batches(100, 4 * 10),
            "/d",
            schema=pa.schema({"n": pa.int64(), "part": pa.int64()}),
            filesystem=fs,
            format="parquet",
            partitioning=["part"],
            max_rows_per_file=200,
            max_rows_per_group=100,
        )
    gc.collect()
    for path in everything(fs):
        assert pq.read_table(path, filesystem=fs, partitioning=None).num_rows == 200


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_copy_that_fails_leaves_no_half_file(fs: PyFileSystem, tmp_path: Path) -> None:
    """Half of the source's bytes are gone, which is noticed when they are read."""
    config = VolumeConfig(
        "damaged", SqliteFile(str(tmp_path / "table")), LocalDirectory(str(tmp_path / "data"))
    )
    with new_filesystem(replace(config, tuning=TUNING)) as source:
        put(source, "/f", bytes(100_000))
        (stored,) = (tmp_path / "data").rglob("*.id=*")
        os.truncate(stored, 50_000)
        with pytest.raises(CorruptDataError):
            copy_files(
                "/f", "/g", source_filesystem=source, destination_filesystem=fs, chunk_size=1000
            )
    gc.collect()
    assert everything(fs) == []
