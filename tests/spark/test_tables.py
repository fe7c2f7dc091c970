"""Tables and views of Spark SQL over a format that `register` has given a path."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from s3k_async import S3kSyncClient
from s3k_async.config import VolumeConfig
from s3k_async.errors import ConfigError
from s3k_async.spark import register
from tests.engines.volumes import volume_backends
from tests.spark.contents import content, paths

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, volume_backends("embedded")]

Sql = Callable[[str], list[tuple[Any, ...]]]

ROWS = [(1, "a"), (2, "b"), (3, "a")]
VALUES = "VALUES (1L, 'a'), (2L, 'b'), (3L, 'a')"


@pytest.fixture
def sql(spark: SparkSession, volume: VolumeConfig) -> Iterator[Sql]:
    """Statements beside the formats `s3k` and `events`, and what they return, sorted."""
    register(spark, volume=volume)
    register(spark, volume=volume, short_name="events", options={"path": "/lake/events"})

    def run(text: str) -> list[tuple[Any, ...]]:
        return sorted(map(tuple, spark.sql(text).collect()))

    try:
        yield run
    finally:
        for name in ("events", "copy"):
            spark.sql(f"DROP TABLE IF EXISTS {name}")
        for name in ("looked", "plain"):
            spark.sql(f"DROP VIEW IF EXISTS {name}")


def test_a_table_is_created_filled_and_read(sql: Sql, fs: S3kSyncClient) -> None:
    sql(
        "CREATE TABLE events (id BIGINT, day STRING) USING events COMMENT 'ours' TBLPROPERTIES "
        "('team' = 'a')"
    )
    assert sql("SELECT * FROM events") == []
    sql(f"INSERT INTO events {VALUES}")
    sql("INSERT INTO events (day, id) VALUES ('c', 4L)")
    assert sql("SELECT id, day FROM events WHERE id > 1") == [*ROWS[1:], (4, "c")]
    sql("INSERT OVERWRITE events VALUES (9L, 'z')")
    assert sql("SELECT * FROM events") == [(9, "z")]
    assert content(fs, "/lake") == {"/lake/events": [9]}
    sql("ALTER TABLE events ADD COLUMNS (more INT)")
    assert sql("SELECT * FROM events") == [(9, "z", None)]
    sql("DROP TABLE events")
    assert len(paths(fs, "/lake/events")) == 1


def test_a_table_over_files_has_their_columns(sql: Sql, spark: SparkSession) -> None:
    spark.sql(f"{VALUES} AS rows(id, day)").write.format("events").mode("append").save()
    sql(
        "CREATE TABLE events USING events COMMENT 'ours' TBLPROPERTIES ('team' = 'a', 'columns' = "
        "'day')"
    )
    assert sql("SELECT * FROM events") == ROWS
    assert spark.table("events").columns == ["id", "day"]
    with pytest.raises(Exception, match="unknown option 'merge_schem'; did you mean merge_schema"):
        sql("CREATE TABLE copy USING events OPTIONS (merge_schem 'true')")


def test_views_read_and_a_temporary_one_names_its_path_itself(sql: Sql) -> None:
    sql(f"CREATE TABLE events USING events AS SELECT * FROM {VALUES} AS rows(id, day)")
    sql("CREATE VIEW looked AS SELECT day, count(*) AS n FROM events GROUP BY day")
    assert sql("SELECT * FROM looked") == [("a", 2), ("b", 1)]
    sql("CREATE TEMPORARY VIEW plain USING s3k OPTIONS (path '/lake/events')")
    sql("INSERT INTO plain VALUES (4L, 'c')")
    assert sql("SELECT * FROM plain") == [*ROWS, (4, "c")]


def test_a_table_is_created_from_a_query_and_replaced(sql: Sql, fs: S3kSyncClient) -> None:
    sql(f"CREATE TABLE events USING events AS SELECT * FROM {VALUES} AS rows(id, day)")
    sql("CREATE OR REPLACE TABLE events USING events AS SELECT 7L AS id")
    assert sql("SELECT * FROM events") == [(7,)]
    assert content(fs, "/lake") == {"/lake/events": [7]}


def test_a_frame_is_saved_as_a_table(sql: Sql, spark: SparkSession) -> None:
    frame = spark.sql(f"{VALUES} AS rows(id, day)")
    frame.write.format("events").saveAsTable("events")
    frame.write.format("events").mode("append").saveAsTable("events")
    frame.write.insertInto("events")
    assert sql("SELECT * FROM events") == sorted(ROWS * 3)
    frame.write.format("events").mode("overwrite").saveAsTable("events")
    frame.writeTo("events").append()
    assert sql("SELECT * FROM events") == sorted(ROWS * 2)


def test_partitions_are_those_of_the_format(
    sql: Sql, spark: SparkSession, volume: VolumeConfig, fs: S3kSyncClient
) -> None:
    options = {
        "path": "/lake/days",
        "partition_columns": "day",
        "partition_overwrite_mode": "dynamic",
    }
    register(spark, volume=volume, short_name="events", options=options)
    sql("CREATE TABLE events (id BIGINT, day STRING) USING events")
    sql(f"INSERT INTO events {VALUES}")
    sql("INSERT OVERWRITE events VALUES (8L, 'a')")
    assert content(fs, "/lake") == {"/lake/days/day=a": [8], "/lake/days/day=b": [2]}
    assert sql("SELECT id, day FROM events") == [(2, "b"), (8, "a")]


def test_a_table_that_could_not_be_read_is_refused(sql: Sql, fs: S3kSyncClient) -> None:
    """Spark gives the path to none that reads or writes it."""
    remedy = re.escape("register(spark, short_name='events', options={'path': '/events'})")
    for statement in (
        "CREATE TABLE copy USING s3k OPTIONS (path '/lake/events')",
        "CREATE TABLE copy USING events LOCATION '/lake/other'",
        f"CREATE TABLE copy USING s3k OPTIONS (path '/lake/events') AS {VALUES}",
    ):
        with pytest.raises(Exception, match=remedy):
            sql(statement)
    assert paths(fs, "/") == set()
    assert [name for _, name, _ in sql("SHOW TABLES") if name == "copy"] == []


def test_a_format_of_one_path_takes_no_other(sql: Sql, spark: SparkSession) -> None:
    with pytest.raises(Exception, match="the format events is for /lake/events: /lake/other"):
        spark.read.format("events").load("/lake/other")


def test_a_typo_in_the_options_of_a_format_is_refused(
    spark: SparkSession, volume: VolumeConfig
) -> None:
    with pytest.raises(ConfigError, match="unknown option 'pth'"):
        register(spark, volume=volume, short_name="events", options={"pth": "/lake"})
