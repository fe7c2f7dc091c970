"""Dask on `s3k://` paths, with each kind of worker."""

from __future__ import annotations

from collections.abc import Iterator

import dask
import dask.bag
import dask.dataframe as dd
import fsspec
import pandas as pd
import pytest

from s3k_async.adapters.arrow import arrow_filesystem
from tests.adapters.dask_case import DAYS, ROWS, WAYS, frame
from tests.adapters.lake import NOT_PARQUET, embedded_volume
from tests.support import run_program

LIMIT_SECONDS = 240

pytestmark = pytest.mark.filterwarnings(
    "ignore:The inplace keyword"
)  # Dask 2026.8 uses what pandas 3.1 deprecates


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with (
        embedded_volume(tmp_path_factory.mktemp("lake")) as url,
        dask.config.set(scheduler="threads"),
    ):
        yield url


@pytest.fixture
def place(lake: str, request: pytest.FixtureRequest) -> str:
    return f"{lake}/{request.node.name}"


def rows(url: str, **options: object) -> dict[int, int]:
    """Rows of each day in a dataset."""
    days = dd.read_parquet(url, **options)["day"].compute().astype(int)
    return {int(day): int(count) for day, count in days.value_counts().items()}


def test_workers_in_other_processes_read_and_write_and_do_not_hang(lake: str) -> None:
    """Forked, spawned, and those of `distributed`."""
    output = run_program("-m", "tests.adapters.dask_case", lake, limit=LIMIT_SECONDS)
    assert output.split() == list(WAYS)


def test_dask_partitions_appends_and_overwrites(place: str) -> None:
    data = dd.from_pandas(frame(), npartitions=2)
    data.to_parquet(place, partition_on=["day"], write_index=False)
    assert rows(place) == dict.fromkeys(range(DAYS), ROWS // DAYS)
    data.to_parquet(place, partition_on=["day"], write_index=False, append=True)
    assert rows(place) == dict.fromkeys(range(DAYS), 2 * ROWS // DAYS)
    data[data["day"] == 2].to_parquet(
        place, partition_on=["day"], write_index=False, overwrite=True
    )
    assert rows(place) == {2: ROWS // DAYS}


def test_partitions_that_a_filter_rules_out_are_not_read(place: str, lake: str) -> None:
    """Neither through fsspec nor through pyarrow's filesystem, which Dask gives paths without
    scheme and volume."""
    fs, path = fsspec.url_to_fs(place)
    data = dd.from_pandas(frame(), npartitions=2)
    data[data["day"] == 1].to_parquet(place, partition_on=["day"], write_index=False)
    fs.pipe_file(f"{path}/day=2/part.0.parquet", NOT_PARQUET)
    filters = [("day", "==", 1)]
    assert rows(place, filters=filters) == {1: ROWS // DAYS}
    assert rows(path, filters=filters, filesystem=arrow_filesystem(lake)) == {1: ROWS // DAYS}


def test_rows_come_in_the_order_of_the_files_names(place: str, lake: str) -> None:
    """Also through pyarrow's filesystem, of which Dask takes files in the order of the listing."""
    dd.from_pandas(frame(), npartitions=9).to_parquet(place, write_index=False)
    expected = frame()["value"].tolist()
    assert dd.read_parquet(place)["value"].compute().tolist() == expected
    path = place.removeprefix(lake)
    assert (
        dd.read_parquet(path, filesystem=arrow_filesystem(lake))["value"].compute().tolist()
        == expected
    )


def test_lines_of_text_go_through_bags(place: str) -> None:
    lines = [f"line {number} ä" for number in range(1000)]
    dask.bag.from_sequence(lines, npartitions=3).to_textfiles(f"{place}/*.txt.gz")
    found = dask.bag.read_text(f"{place}/*.txt.gz").map(str.rstrip).compute()
    assert sorted(found) == sorted(lines)
    named = dask.bag.read_text(f"{place}/*.txt.gz", include_path=True).compute()
    fs, path = fsspec.url_to_fs(place)
    assert {each for _, each in named} == set(fs.find(path))


def test_a_task_that_fails_halfway_publishes_nothing(place: str) -> None:
    def fail(part: pd.DataFrame) -> pd.DataFrame:
        if part["value"].max() > 500:
            raise ArithmeticError("this part fails")
        return part

    data = dd.from_pandas(frame(), npartitions=2).map_partitions(fail, meta=frame().head(0))
    with pytest.raises(ArithmeticError):
        data.to_csv(f"{place}/part-*.csv", index=False)
    fs, path = fsspec.url_to_fs(place)
    assert {name.rpartition("/")[2] for name in fs.find(path)} <= {"part-0.csv"}
