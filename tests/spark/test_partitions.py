"""The names of partition directories are those that Spark itself gives and understands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from s3k_async.listing.hive_partitions import partition_directory, partition_values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TEXTS = [
    "",
    "x",
    "/",
    "a=b",
    "10:30",
    "%2F",
    "%",
    "%4",
    "%zz",
    "é",
    "Ã©",
    "{a}",
    "a b",
    "東京",
    "__HIVE",
    "'\"^",
]


def rule(spark: SparkSession) -> Any:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    return jvm.org.apache.spark.sql.catalyst.catalog.ExternalCatalogUtils


def test_names_are_written_as_spark_does(spark: SparkSession) -> None:
    utils = rule(spark)
    assert utils.getPartitionPathString("a", None) == partition_directory({"a": None})
    for text in [*TEXTS, *(f"x{chr(code)}" for code in range(0x180))]:
        assert utils.getPartitionPathString("a", text) == partition_directory({"a": text})
        if text:
            assert utils.getPartitionPathString(text, "1") == partition_directory({text: "1"})


def test_names_are_read_as_spark_does(spark: SparkSession) -> None:
    utils = rule(spark)
    for text in [
        *TEXTS,
        *(f"a%{code:02X}" for code in range(0x100)),
        "a%2fb",
        "%-1x",
        "%+1x",
        "% 1x",
        "%1",
    ]:
        directory = text.replace("/", "_")
        assert partition_values(f"a={directory}/part-0") == {"a": utils.unescapePathName(directory)}
