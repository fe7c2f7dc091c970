"""pandas, Polars and DuckDB on `s3k://` paths."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import duckdb
import fsspec
import numpy as np
import pandas as pd
import polars as pl
import polars.testing
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from s3k_async import S3kClient
from s3k_async.adapters.arrow import arrow_filesystem
from tests.adapters.lake import NOT_PARQUET, named_volume, settings_of, spoiled
from tests.engines.volumes import VolumeMaker, module_volume_backends

BOTH = module_volume_backends("embedded", "dynoxide+seaweedfs")
EMBEDDED = module_volume_backends("embedded")


@pytest.fixture(scope="module")
def lake(new_module_volume: VolumeMaker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a volume that the module's tests share, each in a directory of its own."""
    config = new_module_volume()
    with named_volume(config, settings_of(config), tmp_path_factory.mktemp("lake")) as url:
        yield url


@pytest.fixture
def place(lake: str, request: pytest.FixtureRequest) -> str:
    """The URL of a test's own directory, which does not exist yet."""
    name = "".join(each if each.isalnum() else "-" for each in request.node.name)
    return f"{lake}/{name}"


def frame(rows: int = 300) -> pd.DataFrame:
    """Days of a measurement; `day` partitions it."""
    return pd.DataFrame(
        {
            "day": np.repeat(np.arange(1, 4), rows // 3),
            "name": [f"sensor {number % 7} ä" for number in range(rows)],
            "value": np.arange(rows) * 0.5,
        }
    )


def files_below(url: str) -> list[str]:
    fs, path = fsspec.url_to_fs(url)
    return sorted(each.removeprefix(f"{path}/") for each in fs.find(path))


FORMATS: dict[str, tuple[Callable[[pd.DataFrame, str], object], Callable[[str], pd.DataFrame]]] = {
    "csv": (lambda df, url: df.to_csv(url, index=False), pd.read_csv),
    "csv.gz": (lambda df, url: df.to_csv(url, index=False), pd.read_csv),
    "jsonl": (
        lambda df, url: df.to_json(url, orient="records", lines=True),
        lambda url: pd.read_json(url, orient="records", lines=True),
    ),
    "parquet": (lambda df, url: df.to_parquet(url, index=False), pd.read_parquet),
    "feather": (lambda df, url: df.to_feather(url), pd.read_feather),
    "pickle.xz": (lambda df, url: df.to_pickle(url), pd.read_pickle),
}


@BOTH
@pytest.mark.parametrize("form", FORMATS)
def test_pandas_reads_what_it_wrote(place: str, form: str) -> None:
    write, read = FORMATS[form]
    url = f"{place}/part-0.{form}"
    write(frame(), url)
    pd.testing.assert_frame_equal(read(url), frame())
    write(frame(30), url)
    pd.testing.assert_frame_equal(read(url), frame(30))
    assert files_below(place) == [f"part-0.{form}"]


@BOTH
def test_pandas_partitions_appends_and_overwrites(place: str) -> None:
    def write(df: pd.DataFrame, **options: Any) -> None:
        df.to_parquet(place, partition_cols=["day"], index=False, **options)

    def rows(**options: Any) -> dict[int, int]:
        counts = pd.read_parquet(place, **options)["day"].astype(int).value_counts()
        return {int(day): int(count) for day, count in counts.items()}

    write(frame())
    assert {name.partition("/")[0] for name in files_below(place)} == {"day=1", "day=2", "day=3"}
    assert rows() == {1: 100, 2: 100, 3: 100}
    write(frame().query("day == 2"))
    assert rows() == {1: 100, 2: 200, 3: 100}
    write(frame().query("day == 2").head(7), existing_data_behavior="delete_matching")
    assert rows() == {1: 100, 2: 7, 3: 100}
    assert rows(filters=[("day", ">", 1), ("value", "<", 52.0)]) == {2: 4}


@EMBEDDED
def test_pandas_appends_to_a_text_file(place: str) -> None:
    url = f"{place}/log.csv"
    frame(3).to_csv(url, index=False)
    frame(6).to_csv(url, index=False, mode="a", header=False)
    pd.testing.assert_frame_equal(
        pd.read_csv(url), pd.concat([frame(3), frame(6)], ignore_index=True)
    )


class Unwritable:
    """A value that cannot become text."""

    def __str__(self) -> str:
        raise ArithmeticError("no text for this")


@BOTH
def test_a_frame_that_fails_halfway_leaves_what_was_there(place: str) -> None:
    url = f"{place}/part-0.csv"
    broken = pd.DataFrame({"value": ["x" * 100_000] * 50 + [Unwritable()]})
    with pytest.raises(ArithmeticError):
        broken.to_csv(url, chunksize=1)
    assert not fsspec.url_to_fs(place)[0].exists(url)
    frame().to_csv(url, index=False)
    with pytest.raises(ArithmeticError):
        broken.to_csv(url, chunksize=1)
    pd.testing.assert_frame_equal(pd.read_csv(url), frame())


@EMBEDDED
def test_a_dataset_written_in_a_transaction_appears_at_once_or_not_at_all(
    place: str, lake: str
) -> None:
    fs = fsspec.filesystem("s3k", volume=lake)

    def write(fails: bool) -> None:
        with fs.transaction:
            frame().to_parquet(place, partition_cols=["day"], index=False)
            assert not fs.find(place)
            if fails:
                raise ArithmeticError("what comes after the dataset fails")

    with pytest.raises(ArithmeticError):
        write(fails=True)
    assert not fs.find(place)
    write(fails=False)
    assert len(pd.read_parquet(place)) == 300


@EMBEDDED
def test_pandas_finds_the_volume_by_storage_options(
    new_module_volume: VolumeMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = new_module_volume()
    options = settings_of(config)
    with named_volume(config, options, tmp_path) as url:
        pass
    monkeypatch.delenv("S3K_CONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    frame().to_parquet(f"{url}/x.parquet", storage_options=options)
    pd.testing.assert_frame_equal(
        pd.read_parquet(f"{url}/x.parquet", storage_options=options), frame()
    )


@EMBEDDED
def test_row_groups_that_a_filter_rules_out_are_not_read(place: str) -> None:
    """By pandas, pyarrow, Polars and DuckDB."""
    url = f"{place}/spoiled.parquet"
    fs, path = fsspec.url_to_fs(url)
    fs.pipe_file(
        path,
        spoiled(
            pa.table({"n": range(1000), "square": [n * n for n in range(1000)]}), rows=100, group=3
        ),
    )
    dataset = ds.dataset(path, filesystem=arrow_filesystem(place.rpartition("/")[0]))
    connection = duckdb.connect()
    connection.register_filesystem(fs)
    with pytest.raises(OSError, match="deserialize"):
        pd.read_parquet(url)
    expected = [n * n for n in range(650, 1000)]
    assert pd.read_parquet(url, filters=[("n", ">=", 650)])["square"].tolist() == expected
    assert dataset.to_table(filter=ds.field("n") >= 650)["square"].to_pylist() == expected
    lazy = pl.scan_pyarrow_dataset(dataset).filter(pl.col("n") >= 650)
    assert lazy.collect()["square"].to_list() == expected
    rows = connection.sql(f"SELECT square FROM '{url}' WHERE n >= 650 ORDER BY n").fetchall()
    assert [square for (square,) in rows] == expected


@BOTH
def test_partitions_that_a_filter_rules_out_are_not_read(place: str, lake: str) -> None:
    """By pandas, pyarrow, Polars and DuckDB."""
    fs, path = fsspec.url_to_fs(place)
    frame().query("day == 1").to_parquet(place, partition_cols=["day"], index=False)
    fs.pipe_file(f"{path}/day=2/part-0.parquet", NOT_PARQUET)
    dataset = ds.dataset(path, filesystem=arrow_filesystem(lake), partitioning="hive")
    connection = duckdb.connect()
    connection.register_filesystem(fs)
    expected = frame().query("day == 1")["value"].tolist()
    assert pd.read_parquet(place, filters=[("day", "==", 1)])["value"].tolist() == expected
    assert dataset.to_table(filter=ds.field("day") == 1)["value"].to_pylist() == expected
    lazy = pl.scan_pyarrow_dataset(dataset).filter(pl.col("day") == 1)
    assert lazy.collect()["value"].to_list() == expected
    everything = f"SELECT value FROM read_parquet('{place}/*/*.parquet', hive_partitioning=true)"
    assert (
        sorted(value for (value,) in connection.sql(f"{everything} WHERE day = 1").fetchall())
        == expected
    )
    with pytest.raises(duckdb.Error):
        connection.sql(everything).fetchall()


def polars_frame() -> pl.DataFrame:
    return pl.from_pandas(frame())


POLARS: dict[str, tuple[Callable[[pl.DataFrame, Any], object], Callable[[Any], pl.DataFrame]]] = {
    "parquet": (pl.DataFrame.write_parquet, pl.read_parquet),
    "arrow": (pl.DataFrame.write_ipc, pl.read_ipc),
    "csv": (pl.DataFrame.write_csv, pl.read_csv),
    "jsonl": (pl.DataFrame.write_ndjson, pl.read_ndjson),
    "sink": (
        lambda df, file: df.lazy().sink_parquet(file),
        lambda file: pl.scan_parquet(file).collect(),
    ),
}


@EMBEDDED
@pytest.mark.parametrize("form", POLARS)
def test_polars_reads_what_it_wrote_through_open_files(place: str, form: str) -> None:
    write, read = POLARS[form]
    url = f"{place}/part-0.{form}"
    for _ in range(2):
        with fsspec.open(url, "wb") as file:
            write(polars_frame(), file)
        with fsspec.open(url, "rb") as file:
            polars.testing.assert_frame_equal(read(file), polars_frame())


@EMBEDDED
def test_polars_writes_and_scans_a_partitioned_dataset(place: str, lake: str) -> None:
    fs, path = arrow_filesystem(lake), fsspec.url_to_fs(place)[1]
    pq.write_to_dataset(polars_frame().to_arrow(), path, partition_cols=["day"], filesystem=fs)
    lazy = pl.scan_pyarrow_dataset(ds.dataset(path, filesystem=fs, partitioning="hive"))
    totals = lazy.group_by("day").agg(pl.col("value").sum()).sort("day").collect()
    assert totals.rows() == list(frame().groupby("day")["value"].sum().items())


@EMBEDDED
@pytest.mark.parametrize("fails", [False, True])
def test_a_sink_of_polars_over_partitions_is_published_whole_or_not_at_all(
    place: str, fails: bool
) -> None:
    """Polars never closes the files that it asks for: who opened them does, and tells them of the
    exception."""

    def part(args: Any) -> Any:
        (day,) = args.partition_keys["day"]
        return files.enter_context(
            fsspec.open(f"{place}/day={day}/{args.index_in_partition}.parquet", "wb")
        )

    def sink() -> None:
        scheme = pl.PartitionBy("/", key="day", include_key=False, file_path_provider=part)
        with files:
            polars_frame().lazy().sink_parquet(scheme)
            assert not fsspec.url_to_fs(place)[0].find(place)
            if fails:
                raise ArithmeticError("what comes after the sink fails")

    files = ExitStack()
    if fails:
        with pytest.raises(ArithmeticError):
            sink()
        assert not fsspec.url_to_fs(place)[0].find(place)
    else:
        sink()
        assert files_below(place) == [f"day={day}/0.parquet" for day in (1, 2, 3)]
        assert pd.read_parquet(place)["value"].sum() == frame()["value"].sum()


@EMBEDDED
def test_a_query_of_polars_that_fails_publishes_nothing(place: str) -> None:
    def explode(values: pl.DataFrame) -> pl.DataFrame:
        raise ArithmeticError("the query fails")

    def query(url: str) -> None:
        with fsspec.open(url, "wb") as file:
            file.write(b"something before")
            polars_frame().lazy().map_batches(explode).sink_parquet(file)

    url = f"{place}/part-0.parquet"
    with pytest.raises((ArithmeticError, pl.exceptions.ComputeError), match="the query fails"):
        query(url)
    assert not fsspec.url_to_fs(url)[0].exists(url)


@pytest.fixture
def duck(lake: str) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.register_filesystem(fsspec.url_to_fs(lake)[0])
        connection.sql(
            "CREATE TABLE days AS SELECT i % 3 + 1 AS day, i AS value FROM range(3000) t(i)"
        )
        yield connection


@BOTH
@pytest.mark.parametrize("form", ["parquet", "csv", "json"])
def test_duckdb_reads_what_it_wrote(place: str, duck: duckdb.DuckDBPyConnection, form: str) -> None:
    for limit in (3000, 20):
        duck.sql(f"COPY (FROM days ORDER BY value LIMIT {limit}) TO '{place}.{form}'")
        found = duck.sql(f"SELECT count(*), sum(value) FROM '{place}.{form}'").fetchall()
        assert found == [(limit, sum(range(limit)))]
    assert not [name for name in files_below(place.rpartition("/")[0]) if "tmp" in name]


@BOTH
def test_duckdb_partitions_and_appends(place: str, duck: duckdb.DuckDBPyConnection) -> None:
    duck.sql(f"COPY days TO '{place}' (FORMAT parquet, PARTITION_BY (day))")
    assert {name.partition("/")[0] for name in files_below(place)} == {"day=1", "day=2", "day=3"}
    duck.sql(f"COPY days TO '{place}' (FORMAT parquet, PARTITION_BY (day), APPEND)")
    totals = duck.sql(
        f"SELECT day, count(*) FROM '{place}/*/*.parquet' GROUP BY day ORDER BY day"
    ).fetchall()
    assert totals == [(1, 2000), (2, 2000), (3, 2000)]


@EMBEDDED
def test_a_statement_of_duckdb_that_fails_leaves_what_was_there(
    place: str, duck: duckdb.DuckDBPyConnection
) -> None:
    url = f"{place}.csv"
    broken = (
        "SELECT CASE WHEN i = 900000 THEN error('enough') ELSE i END AS value FROM range(1000000) "
        "t(i)"
    )
    with pytest.raises(duckdb.Error, match="enough"):
        duck.sql(f"COPY ({broken}) TO '{url}'")
    assert not fsspec.url_to_fs(url)[0].exists(url)
    duck.sql(f"COPY (SELECT 1 AS value) TO '{url}'")
    with pytest.raises(duckdb.Error, match="enough"):
        duck.sql(f"COPY ({broken}) TO '{url}'")
    assert duck.sql(f"FROM '{url}'").fetchall() == [(1,)]


@EMBEDDED
def test_duckdb_attaches_a_database_to_read(
    place: str, duck: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    with duckdb.connect(tmp_path / "days.duckdb") as local:
        local.sql("CREATE TABLE days AS SELECT 1 AS day")
    fs, path = fsspec.url_to_fs(f"{place}/days.duckdb")
    fs.put_file(str(tmp_path / "days.duckdb"), path)
    duck.sql(f"ATTACH '{place}/days.duckdb' AS stored (READ_ONLY)")
    assert duck.sql("FROM stored.days").fetchall() == [(1,)]


@EMBEDDED
async def test_libraries_work_in_a_notebook_whose_loop_runs(place: str, lake: str) -> None:
    """Jupyter runs cells on a running loop: blocking libraries and the client itself take turns
    there."""
    await asyncio.sleep(0)
    frame().to_parquet(f"{place}/a.parquet", index=False)
    async with S3kClient(lake) as client:
        path = f"{place.removeprefix(lake)}/a.parquet"
        await client.copy(path, f"{place.removeprefix(lake)}/b.parquet")
        pd.testing.assert_frame_equal(pd.read_parquet(f"{place}/b.parquet"), frame())
        with fsspec.open(f"{place}/c.csv", "w") as file:
            polars_frame().write_csv(file)
        assert {status.name async for status in client.list(place)} == {
            "a.parquet",
            "b.parquet",
            "c.csv",
        }
        fs = fsspec.filesystem("s3k", volume=lake, asynchronous=True)
        assert pd.read_csv(f"{place}/c.csv").shape == (300, 3)
        assert await fs._cat_file(path) == await client.read(path)
        await fs.close()


@EMBEDDED
def test_threads_of_a_pool_read_and_write_at_once(place: str) -> None:
    ready = threading.Barrier(8, timeout=60)

    def work(number: int) -> dict[str, Any]:
        ready.wait()
        url = f"{place}/{number}.json"
        with fsspec.open(url, "w") as file:
            json.dump({"number": number, "rows": frame().to_dict("list")}, file)
        with fsspec.open(url) as file:
            found: dict[str, Any] = json.load(file)
        return found

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(work, range(8)))
    assert [each["number"] for each in found] == list(range(8))
    assert all(pd.DataFrame(each["rows"]).equals(frame()) for each in found)
