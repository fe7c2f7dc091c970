"""Contexts of driver and executors."""

from __future__ import annotations

import tomllib
import warnings
from typing import cast

import pytest
from packaging.specifiers import SpecifierSet
from pyspark.sql import SparkSession
from pyspark.sql.pandas.utils import require_minimum_pandas_version

from s3k_async.errors import ConfigError
from s3k_async.spark.settings import (
    DRIVER_OPTIONS,
    EXECUTOR_OPTIONS,
    SparkSettings,
    _context,
    spark_settings,
)
from s3k_async.spark.source import register
from tests.spark.conftest import ROOT

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", None),
        ("-Xmx1g", None),
        ("-Xmx1g -Dfs.s3k.metastore.context.id=batch", "batch"),
        ("-Dfs.s3k.metastore.context.id=a '-Dfs.s3k.metastore.context.id=b c'", "b c"),
    ],
)
def test_the_context_is_what_java_options_define(options: str, expected: str | None) -> None:
    assert _context({"spark.executor.extraJavaOptions": options}, EXECUTOR_OPTIONS) == expected
    assert _context({"spark.executor.extraJavaOptions": options}, DRIVER_OPTIONS) is None


def test_the_extra_options_count_more_than_the_default_ones() -> None:
    configuration = {
        "spark.driver.defaultJavaOptions": "-Dfs.s3k.metastore.context.id=default",
        "spark.driver.extraJavaOptions": "-Dfs.s3k.metastore.context.id=extra",
    }
    assert _context(configuration, DRIVER_OPTIONS) == "extra"


def test_a_secret_is_refused_where_it_would_be_shipped() -> None:
    spark = cast("SparkSession", None)  # nothing is asked of it before
    with pytest.raises(ConfigError, match="option secret_access_key: secrets are not shipped"):
        register(spark, volume="s3k://events", secret_access_key="hush")


@pytest.mark.parametrize(
    "key",
    [
        "arn:aws:kms:eu-west-1:111122223333:key/k",
        "alias/mine",
        "1234abcd-12ab-34cd-56ef-1234567890ab",
    ],
)
def test_the_name_of_a_kms_key_is_no_secret(key: str) -> None:
    marker = "fs.s3k.storage.underlying.fs.prop.marker"
    hadoop = {
        "fs.s3a.encryption.key": key,
        f"{marker}.fs.s3a.server-side-encryption.key.events": key,
    }
    assert SparkSettings(hadoop, None, None).without_secrets().hadoop == hadoop
    assert SparkSettings({"fs.s3a.access.key": key}, None, None).without_secrets().hadoop == {}


@pytest.mark.parametrize(
    "name",
    [
        "encryption.key",
        "server-side-encryption-key",
        "proxy.password",
        "session.token",
        "secret.key",
    ],
)
def test_secrets_of_the_datas_service_stay_on_the_driver(name: str) -> None:
    marker = "fs.s3k.storage.underlying.fs.prop.marker.fs.s3a"
    hadoop = {
        f"{marker}.{name}.events": "hush",
        f"fs.s3a.{name}": "hush",
        f"{marker}.endpoint.events": "here",
    }
    assert list(SparkSettings(hadoop, None, None).without_secrets().hadoop.values()) == ["here"]


def test_defaults_of_hadoop_and_spark_are_no_settings(spark: SparkSession) -> None:
    """They would count more than `max_connections` of the configuration file, which is for all
    services."""
    found = spark_settings(spark).hadoop
    assert "fs.s3a.connection.maximum" not in found
    assert "fs.s3a.downgrade.syncable.exceptions" not in found
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    spark.conf.set("fs.s3a.connection.maximum", "500")
    hadoop.set("fs.s3k.metastore.dynamo.table.only_here", "set")
    try:
        found = spark_settings(spark).hadoop
        assert found["fs.s3a.connection.maximum"] == "500"
        assert found["fs.s3k.metastore.dynamo.table.only_here"] == "set"
    finally:
        spark.conf.unset("fs.s3a.connection.maximum")
        hadoop.unset("fs.s3k.metastore.dynamo.table.only_here")


def test_the_extra_admits_the_versions_of_pandas_that_pyspark_is_made_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PySpark warns about others at every job, and tests have another one for what needs it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    [wanted] = [
        text for text in project["optional-dependencies"]["spark"] if text.startswith("pandas")
    ]
    for version, is_supported in {
        "2.2.0": True,
        "2.3.3": True,
        "3.0.0": False,
        "3.1.1": False,
    }.items():
        monkeypatch.setattr("pandas.__version__", version)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            require_minimum_pandas_version()
        assert (not warned) is is_supported
        assert SpecifierSet(wanted.removeprefix("pandas")).contains(version) is is_supported
