"""Partitioned datasets over a volume: what is read of them, how they grow, how parts of them are
replaced."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyarrow import csv
from pyarrow.fs import FileSelector, PyFileSystem, SubTreeFileSystem

from s3k_async._core.metering import Requests
from tests.adapters.arrow_rig import client_of, new_filesystem, table
from tests.engines.volumes import VolumeMaker, volume_backends

ROWS = 100_000
COLUMNS = 10
KIB = 1024


@pytest.fixture
def fs(new_volume: VolumeMaker) -> Iterator[PyFileSystem]:
    """A new volume, with pieces of the size that they usually have."""
    with new_filesystem(new_volume()) as filesystem:
        yield filesystem


def files(fs: PyFileSystem, base: str) -> set[str]:
    infos = fs.get_file_info(FileSelector(base, recursive=True))
    return {info.path for info in infos if info.is_file}


def numbers(dataset: ds.Dataset, **scan: object) -> list[int]:
    return sorted(dataset.to_table(**scan).column("n").to_pylist())


def bytes_read(fs: PyFileSystem, since: Requests) -> int:
    counts = (client_of(fs).requests - since).counts
    return sum(
        count.bytes for count in counts if (count.part, count.operation) == ("data", "GetObject")
    )


def write(fs: PyFileSystem, rows: pa.Table, **options: object) -> None:
    ds.write_dataset(
        rows,
        "/d",
        filesystem=fs,
        format="parquet",
        partitioning=["day"],
        partitioning_flavor="hive",
        **options,
    )


@volume_backends("memory", "embedded", "dynoxide+seaweedfs", "dynamodb_local+seaweedfs")
@pytest.mark.parametrize("base", ["/d", "d/"])
def test_a_filter_on_a_partition_opens_nothing_else(fs: PyFileSystem, base: str) -> None:
    write(fs, table(100, day=[n % 5 for n in range(100)]))
    assert files(fs, "/d") == {f"/d/day={day}/part-0.parquet" for day in range(5)}
    dataset = ds.dataset(base, filesystem=fs, partitioning="hive")
    before = client_of(fs).requests
    assert numbers(dataset, filter=ds.field("day") == 3) == list(range(3, 100, 5))
    opened = (client_of(fs).requests - before).of("table", "GetItem")
    assert numbers(dataset) == list(range(100))
    assert (client_of(fs).requests - before).of("table", "GetItem") - opened == 5 * opened
    assert dataset.count_rows(filter=ds.field("n") < 10) == 10


@volume_backends("embedded")
@pytest.mark.parametrize("base", ["/d", "d", "d/"])
def test_a_dataset_is_all_that_a_subtree_has(fs: PyFileSystem, base: str) -> None:
    write(fs, table(4, day=[1, 1, 2, 2]))
    below = SubTreeFileSystem(base, fs)
    assert below.normalize_path("") == ""
    assert numbers(
        ds.dataset("", filesystem=below, partitioning="hive"), filter=ds.field("day") == 2
    ) == [2, 3]
    assert pq.read_table("", filesystem=below).num_rows == 4


@volume_backends("embedded")
def test_datasets_grow_and_their_partitions_are_replaced(fs: PyFileSystem) -> None:
    write(fs, table(4, day=[1, 1, 2, 2]))
    with pytest.raises(pa.ArrowInvalid, match="not empty"):
        write(fs, table(1, day=[1]))
    more = pa.table({"n": [10, 11], "day": [2, 3]})
    write(
        fs, more, basename_template="more-{i}.parquet", existing_data_behavior="overwrite_or_ignore"
    )
    dataset = ds.dataset("/d", filesystem=fs, partitioning="hive")
    assert numbers(dataset) == [0, 1, 2, 3, 10, 11]
    write(fs, pa.table({"n": [20], "day": [2]}), existing_data_behavior="delete_matching")
    dataset = ds.dataset("/d", filesystem=fs, partitioning="hive")
    assert numbers(dataset) == [0, 1, 11, 20]
    assert files(fs, "/d/day=2") == {"/d/day=2/part-0.parquet"}
    write(fs, pa.table({"n": [30], "day": [1]}), existing_data_behavior="overwrite_or_ignore")
    assert numbers(ds.dataset("/d/day=1", filesystem=fs)) == [30]


@volume_backends("embedded")
def test_a_dataset_is_made_visible_at_once_by_a_move(fs: PyFileSystem) -> None:
    ds.write_dataset(
        table(100),
        "/staging/d",
        filesystem=fs,
        format="parquet",
        max_rows_per_file=10,
        max_rows_per_group=10,
    )
    fs.create_dir("/ready")
    fs.move("/staging/d", "/ready/d")
    assert len(files(fs, "/ready/d")) == 10
    assert numbers(ds.dataset("/ready/d", filesystem=fs)) == list(range(100))


@volume_backends("embedded")
@pytest.mark.parametrize("form", ["ipc", "csv", "parquet"])
def test_every_form_of_dataset(fs: PyFileSystem, form: str) -> None:
    ds.write_dataset(table(1000), "d", filesystem=fs, format=form)
    assert numbers(ds.dataset("d", filesystem=fs, format=form)) == list(range(1000))
    paths = sorted(files(fs, "d"))
    assert numbers(ds.dataset(paths, filesystem=fs, format=form)) == list(range(1000))


@volume_backends("embedded")
def test_the_table_functions_of_pyarrow(fs: PyFileSystem) -> None:
    rows = table(100, day=[n % 2 for n in range(100)])
    pq.write_to_dataset(rows, "/d", partition_cols=["day"], filesystem=fs)
    read = pq.read_table("/d", filesystem=fs, filters=[("day", "=", 1)])
    assert sorted(read.column("n").to_pylist()) == list(range(1, 100, 2))
    pq.write_table(rows, f"s3k://{client_of(fs).name}/f", filesystem=fs)
    assert pq.ParquetFile("/f", filesystem=fs).metadata.num_rows == 100
    assert pq.read_schema("f", filesystem=fs).names == ["n", "day"]
    with fs.open_output_stream("/f.csv.gz") as stream:
        csv.write_csv(rows, stream)
    with fs.open_input_stream("/f.csv.gz") as stream:
        assert csv.read_csv(stream) == rows


@pytest.fixture
def wide(fs: PyFileSystem) -> pq.FileMetaData:
    """A file of many columns without compression, in row groups."""
    columns = {
        f"c{number}": pa.array(range(number, ROWS + number), pa.int64())
        for number in range(COLUMNS)
    }
    pq.write_table(
        pa.table(columns),
        "/wide",
        filesystem=fs,
        compression="none",
        use_dictionary=False,
        row_group_size=ROWS // 4,
    )
    return pq.read_metadata("/wide", filesystem=fs)


@volume_backends("embedded", "dynoxide+seaweedfs", "dynamodb_local+seaweedfs")
@pytest.mark.parametrize("pre_buffer", [True, False])
def test_of_a_wide_file_no_more_is_fetched_than_is_asked_for(
    fs: PyFileSystem, wide: pq.FileMetaData, pre_buffer: bool
) -> None:
    before = client_of(fs).requests
    rows = pq.read_table("/wide", filesystem=fs, columns=["c5"], pre_buffer=pre_buffer)
    assert rows.column("c5").to_pylist() == list(range(5, ROWS + 5))
    column = sum(
        wide.row_group(group).column(5).total_compressed_size
        for group in range(wide.num_row_groups)
    )
    assert (
        column <= bytes_read(fs, before) <= column + 100 * KIB
    )  # the footer is looked for in the last 64 KiB


@volume_backends("embedded")
def test_a_filter_skips_the_row_groups_in_which_nothing_matches(
    fs: PyFileSystem, wide: pq.FileMetaData
) -> None:
    before = client_of(fs).requests
    found = ds.dataset("/wide", filesystem=fs).to_table(filter=ds.field("c0") < 10)
    assert found.num_rows == 10
    assert bytes_read(fs, before) <= wide.row_group(0).total_byte_size + 300 * KIB
    assert wide.num_row_groups == 4
