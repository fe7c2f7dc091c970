"""Faults of S3-FileSystem 1.0's settings that must not come back."""

from __future__ import annotations

import pytest

from s3k_async.config import DynamoTable, S3Bucket
from s3k_async.settings import read_hadoop, resolve, split_url

DYNAMO = "fs.s3k.metastore.dynamo"
NOWHERE = {"XDG_CONFIG_HOME": "/nonexistent"}


def mapping_of(bucket: str) -> dict[str, str]:
    return {
        f"{DYNAMO}.table.{bucket}": "meta",
        f"{DYNAMO}.suffix.count.{bucket}": "10",
        f"fs.s3k.operationlog.s3.bucket.{bucket}": "log",
        f"fs.s3k.storage.underlying.filesystem.scheme.{bucket}": "s3a",
    }


def test_a_url_without_the_trailing_slash_is_the_same_volume() -> None:
    mapping = mapping_of("bucket")
    without = resolve("s3k://bucket", hadoop=mapping, environ=NOWHERE)
    assert without == resolve("s3k://bucket/", hadoop=mapping, environ=NOWHERE)
    assert without.name == "bucket"
    assert split_url("s3k://bucket") == split_url("s3k://bucket/") == ("s3k://bucket", "/")


def test_a_setting_of_a_context_falls_back_to_that_of_the_bucket() -> None:
    mapping = mapping_of("bucket") | {
        f"{DYNAMO}.max.retries.bucket": "7",
        f"{DYNAMO}.max.http.conn.bucket": "7",
        f"{DYNAMO}.max.http.conn.bucket.driver": "9",
    }
    values = read_hadoop(mapping, "bucket", "driver").values
    assert values["retry_attempts"] == 8
    assert values["table_max_connections"] == 9
    assert read_hadoop(mapping, "bucket", "executor").values["table_max_connections"] == 7


@pytest.mark.parametrize(
    "key",
    [
        "bucket",
        "fs.defaultFSbucket",
        "mybucket",
        f"{DYNAMO}.tablebucket",
        f"{DYNAMO}.table.mybucket",
        ".bucket",
        "",
    ],
)
@pytest.mark.parametrize("context", [None, "driver"])
def test_an_unrelated_key_that_ends_with_the_buckets_name_does_no_harm(
    key: str, context: str | None
) -> None:
    mapping = mapping_of("bucket")
    assert (
        read_hadoop({**mapping, key: "x"}, "bucket", context).values
        == read_hadoop(mapping, "bucket").values
    )


@pytest.mark.parametrize("bucket", ["my_bucket", "my.bucket", "_x_.y-z", "a.b.c_d"])
def test_buckets_with_underscores_and_dots_work(bucket: str) -> None:
    config = resolve(f"s3k://{bucket}", hadoop=mapping_of(bucket), environ=NOWHERE)
    assert config.name == bucket
    assert config.table == DynamoTable("meta")
    assert config.data == S3Bucket(bucket)
