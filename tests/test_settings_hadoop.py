"""Settings in S3-FileSystem 1.0's keys."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from s3k_async.config import AwsConfig, DynamoTable, S3Bucket, Secret, VolumeConfig
from s3k_async.errors import ConfigError
from s3k_async.settings import read_hadoop, resolve

DYNAMO = "fs.s3k.metastore.dynamo"
OPLOG = "fs.s3k.operationlog.s3"
SCHEME = "fs.s3k.storage.underlying.filesystem.scheme"
NOWHERE = {"XDG_CONFIG_HOME": "/nonexistent"}

LEAST = {
    f"{DYNAMO}.table.data": "data-meta",
    f"{DYNAMO}.suffix.count.data": "10",
    f"{OPLOG}.bucket.data": "data-log",
    f"{SCHEME}.data": "s3a",
}


def opened(mapping: dict[str, Any], **options: Any) -> VolumeConfig:
    return resolve("s3k://data", hadoop=mapping, environ=NOWHERE, **options)


def test_the_least_mapping() -> None:
    assert opened(LEAST) == VolumeConfig(
        name="data",
        table=DynamoTable("data-meta"),
        data=S3Bucket("data"),
        log=S3Bucket("data-log"),
        kind=None,
        suffix_count=10,
    )
    assert read_hadoop(LEAST, "data").ignored == ()


@pytest.mark.parametrize("key", sorted(LEAST))
def test_a_required_key_that_is_missing_is_named(key: str) -> None:
    for value in (None, "", "  "):
        with pytest.raises(ConfigError, match=f"lacks {key}"):
            opened({**LEAST, key: value})
    with pytest.raises(ConfigError, match=rf"lacks {DYNAMO}\.table\.data"):
        opened({})


def test_what_other_sources_give_need_not_be_in_the_mapping() -> None:
    config = opened(
        {f"{DYNAMO}.table.data": "data-meta"},
        suffix_count=3,
        data_location="memory://m",
        log_location="memory://l",
    )
    assert (config.suffix_count, config.kind) == (3, None)


def test_a_native_volume_needs_its_table_only() -> None:
    config = opened({f"{DYNAMO}.table.data": "data-meta", "fs.s3k.volume.kind.data": "native"})
    assert config == VolumeConfig(
        name="data",
        table=DynamoTable("data-meta"),
        data=S3Bucket("data"),
        log=S3Bucket("data", "oplog/"),
    )


def test_the_kind_can_be_said() -> None:
    assert opened({**LEAST, "fs.s3k.volume.kind.data": "s3k-1.0"}).kind == "s3k-1.0"
    assert opened(LEAST, kind="native").kind == "native"
    with pytest.raises(ConfigError, match=r"fs\.s3k\.volume\.kind\.data: 'old' is not one of"):
        opened({**LEAST, "fs.s3k.volume.kind.data": "old"})


def test_an_identity_can_be_said() -> None:
    keys = {"fs.s3k.client.uid.data": "1000", "fs.s3k.client.gids.data": "5, 6"}
    tuning = opened({**LEAST, **keys}).tuning
    assert (tuning.uid, tuning.gids) == (1000, (5, 6))
    assert (opened(LEAST).tuning.uid, opened(LEAST).tuning.gids) == (None, None)
    assert opened({**LEAST, **keys}, uid=7).tuning.uid == 7
    for wrong in ("5,,6", "a", "-1", "5,4294967295"):
        with pytest.raises(ConfigError, match=r"fs\.s3k\.client\.gids\.data"):
            opened({**LEAST, "fs.s3k.client.gids.data": wrong})


def test_a_place_given_otherwise_does_not_make_a_table_native() -> None:
    """The mapping says that S3-FileSystem 1.0 has a volume of this name, whatever else is given."""
    assert opened(LEAST, table="data-meta", bucket="data").kind is None
    environ = {**NOWHERE, "S3K_TABLE": "data-meta", "S3K_BUCKET": "data"}
    assert resolve("s3k://data", hadoop=LEAST, environ=environ).kind is None
    assert opened({f"{DYNAMO}.table.other": "t"}, table="data-meta", bucket="data").kind == "native"


def test_credentials_and_endpoints_take_effect_only_when_both_halves_are_set() -> None:
    halves = {
        **LEAST,
        f"{DYNAMO}.access.data": "A",
        f"{DYNAMO}.secret.data": "S",
        f"{DYNAMO}.endpoint.data": "dynamo.example:8000",
        f"{OPLOG}.access.data": "B",
        f"{OPLOG}.endpoint.data": "http://s3",
        f"{OPLOG}.signing.region.data": "eu-west-1",
    }
    with pytest.warns(
        UserWarning,
        match=rf"without effect on s3k://data: {DYNAMO}\.endpoint\.data, {OPLOG}\.access",
    ):
        config = opened(halves)
    assert config.table == DynamoTable(
        "data-meta", AwsConfig(access_key_id=Secret("A"), secret_access_key=Secret("S"))
    )
    assert config.log == S3Bucket(
        "data-log", "", AwsConfig(endpoint="http://s3", region="eu-west-1")
    )
    mapping = {
        **LEAST,
        f"{DYNAMO}.endpoint.data": "dynamo.example",
        f"{DYNAMO}.signing.region.data": "eu-west-1",
    }
    assert opened(mapping).table == DynamoTable(
        "data-meta", AwsConfig(endpoint="https://dynamo.example", region="eu-west-1")
    )
    assert read_hadoop({**LEAST, f"{OPLOG}.access.data": "B"}, "data").ignored == (
        f"{OPLOG}.access.data",
    )


def test_the_data_is_reached_as_s3a_reaches_it() -> None:
    mapping = {
        **LEAST,
        "fs.s3a.endpoint": "https://all.example",
        "fs.s3a.endpoint.region": "eu-west-1",
        "fs.s3a.access.key": "A",
        "fs.s3a.secret.key": "S",
        "fs.s3a.session.token": "T",
        "fs.s3a.bucket.data.endpoint": "https://bucket.example",
        "fs.s3k.storage.underlying.fs.prop.marker.fs.s3a.connection.maximum.data": "5",
        "fs.s3a.connection.maximum": "9",
    }
    token = AwsConfig(
        endpoint="https://bucket.example",
        region="eu-west-1",
        access_key_id=Secret("A"),
        secret_access_key=Secret("S"),
        session_token=Secret("T"),
        max_connections=5,
    )
    assert opened(mapping).data == S3Bucket("data", "", token)
    mapping |= {"fs.s3a.bucket.data.access.key": "B", "fs.s3a.bucket.data.secret.key": "S2"}
    data = opened(mapping).data
    assert isinstance(data, S3Bucket)
    assert (data.aws.access_key_id, data.aws.session_token) == (Secret("B"), Secret())


def test_retries_pools_and_switches() -> None:
    config = opened(
        {
            **LEAST,
            f"{DYNAMO}.base.exponential.delay.data": "80",
            f"{DYNAMO}.max.exponential.delay.data": "60000",
            f"{DYNAMO}.max.retries.data": 50,
            f"{DYNAMO}.max.http.conn.data": "50",
            f"{OPLOG}.max.http.conn.data": "220",
            "fs.s3k.thread.pool.size.data": "12",
            "fs.s3k.metastore.operations.async.data": "true",
            f"{DYNAMO}.hash.function.class": (
                "com.adobe.s3fs.metastore.internal.DefaultHashFunction"
            ),
        }
    )
    for policy in (config.tuning.retry.read, config.tuning.retry.write, config.tuning.retry.scan):
        assert (policy.base, policy.cap, policy.attempts) == (0.08, 60.0, 51)
    assert config.tuning.max_concurrency == 12
    assert isinstance(config.table, DynamoTable)
    assert isinstance(config.log, S3Bucket)
    assert (config.table.aws.max_connections, config.log.aws.max_connections) == (50, 220)
    assert config.hash == "java31"


def test_synchronous_operations_are_done_one_at_a_time() -> None:
    mapping = {
        **LEAST,
        "fs.s3k.metastore.operations.async.data": False,
        "fs.s3k.thread.pool.size.data": "12",
    }
    assert opened(mapping).tuning.max_concurrency == 1


def test_a_disabled_log() -> None:
    mapping = {
        **LEAST,
        "fs.s3k.metastore.operation.log.factory.class": (
            "com.adobe.s3fs.DisabledMetadataOperationLogFactory"
        ),
    }
    del mapping[f"{OPLOG}.bucket.data"]
    assert opened(mapping).log_mode == "disabled"


OF_OLD_VOLUMES = {
    "fs.s3k.metastore.operation.log.factory.class": (
        "com.adobe.s3fs.DisabledMetadataOperationLogFactory"
    ),
    f"{DYNAMO}.hash.function.class": "com.adobe.s3fs.metastore.internal.DefaultHashFunction",
}


@pytest.mark.parametrize("source", ["mapping", "option", "environment", "file", "place"])
def test_modes_of_old_volumes_do_not_apply_to_a_native_one(source: str, tmp_path: Path) -> None:
    """The two keys have no bucket. The kind may be given by any setting, or follow from a place
    that is not in the mapping."""
    mapping: dict[str, Any] = {**OF_OLD_VOLUMES, f"{DYNAMO}.table.new": "new-meta"}
    environ = dict(NOWHERE)
    options = dict[str, Any]()
    file = tmp_path / "given.toml"
    file.write_text('[volumes.new]\nkind = "native"\n' if source == "file" else "")
    if source == "mapping":
        mapping["fs.s3k.volume.kind.new"] = "native"
    elif source == "option":
        options["kind"] = "native"
    elif source == "environment":
        environ["S3K_KIND"] = "native"
    elif source == "place":
        del mapping[f"{DYNAMO}.table.new"]
        options = {"table": "new-meta", "bucket": "new"}
    config = resolve("s3k://new", hadoop=mapping, environ=environ, config=file, **options)
    assert config == VolumeConfig(
        name="new",
        table=DynamoTable("new-meta"),
        data=S3Bucket("new"),
        log=S3Bucket("new", "oplog/"),
    )


def test_modes_of_old_volumes_apply_if_another_source_gives_their_kind() -> None:
    mapping = {**LEAST, **OF_OLD_VOLUMES, "fs.s3k.volume.kind.data": "native"}
    config = opened(mapping, kind="s3k-1.0")
    assert (config.kind, config.log_mode, config.hash) == ("s3k-1.0", "disabled", "java31")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (f"{DYNAMO}.suffix.count.data", "0", "at least 1"),
        (f"{DYNAMO}.suffix.count.data", "-3", "at least 1"),
        (f"{DYNAMO}.suffix.count.data", "ten", "whole number"),
        (f"{DYNAMO}.max.retries.data", "many", "whole number"),
        (f"{SCHEME}.data", "hdfs", "none of s3, s3a, s3n"),
        (f"{DYNAMO}.hash.function.class", "com.example.Mine", "unknown hash"),
        ("fs.s3k.metastore.operations.async.data", "perhaps", "true or false"),
    ],
)
def test_a_value_that_cannot_be_understood_is_named_with_its_key(
    key: str, value: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        opened({**LEAST, key: value})
    assert key in str(caught.value)


def test_what_means_nothing_here_is_listed() -> None:
    more = {
        "fs.s3k.thread.pool.max.tasks.data": "50",
        f"{DYNAMO}.backoff.full.jitter.data": "false",
        f"{OPLOG}.max.retries.data.driver": "3",
        f"{DYNAMO}.tabel.data": "typo",
        "fs.s3k.keyvalue.config.factory": "x",
    }
    others = {
        "fs.s3k.thread.pool.max.tasks.other": "1",
        f"{DYNAMO}.table.other": "t",
        "fs.s3k.impl": "com.adobe.s3fs.filesystem.HadoopFileSystemAdapter",
        "fs.defaultFS": "hdfs://data",
    }
    found = read_hadoop({**LEAST, **more, **others}, "data", "driver")
    assert found.ignored == tuple(sorted(more))


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("fs.s3a.{}", "all"),
        ("fs.s3a.bucket.data.{}", "bucket"),
        ("fs.s3k.storage.underlying.fs.prop.marker.fs.s3a.{}.data", "marker"),
        ("fs.s3k.storage.underlying.fs.prop.marker.fs.s3a.bucket.data.{}.data", "marked bucket"),
    ],
)
@pytest.mark.parametrize(
    ("method_name", "key_name"),
    [
        ("encryption.algorithm", "encryption.key"),
        ("server-side-encryption-algorithm", "server-side-encryption.key"),
        ("server-side-encryption-algorithm", "server-side-encryption-key"),
    ],
)
def test_encryption_is_as_s3a_has_it(key: str, name: str, method_name: str, key_name: str) -> None:
    given = {**LEAST, key.format(method_name): "SSE-KMS", key.format(key_name): "alias/mine"}
    config = opened(given)
    for place in (config.data, config.log):
        assert isinstance(place, S3Bucket)
        assert (place.aws.encryption, place.aws.kms_key) == ("aws:kms", "alias/mine"), name
    assert isinstance(config.table, DynamoTable)
    assert config.table.aws.encryption is None
    assert read_hadoop(given, "data").ignored == ()


@pytest.mark.parametrize(
    ("said", "encryption"),
    [
        ("AES256", "AES256"),
        ("sse-kms", "aws:kms"),
        ("DSSE-KMS", "aws:kms:dsse"),
        ("SSE-C", "SSE-C"),
        ("CSE-KMS", "CSE-KMS"),
        ("CSE-CUSTOM", "CSE-CUSTOM"),
        ("", None),
    ],
)
def test_methods_of_encryption(said: str, encryption: str | None) -> None:
    data = opened({**LEAST, "fs.s3a.encryption.algorithm": said}).data
    assert isinstance(data, S3Bucket)
    assert data.aws == AwsConfig(encryption=encryption)


def test_the_key_of_a_customer() -> None:
    key = "a" * 43 + "="
    given = {"fs.s3a.encryption.algorithm": "sse-c", "fs.s3a.encryption.key": key}
    data = opened({**LEAST, **given}).data
    assert isinstance(data, S3Bucket)
    assert data.aws == AwsConfig(encryption="SSE-C", customer_key=Secret(key))
    with pytest.raises(ConfigError, match="not the base64 of a key"):
        opened({**LEAST, **given, "fs.s3a.encryption.key": "short"})


def test_encryption_that_s3a_does_not_know_is_an_error() -> None:
    with pytest.raises(
        ConfigError, match=r"fs\.s3a\.encryption\.algorithm: 'ROT13' is none of AES256"
    ):
        opened({**LEAST, "fs.s3a.encryption.algorithm": "ROT13"})


def test_an_encryption_context_is_not_dropped() -> None:
    given = {**LEAST, "fs.s3a.encryption.algorithm": "SSE-KMS", "fs.s3a.encryption.context": "a=b"}
    data = opened(given).data
    assert isinstance(data, S3Bucket)
    assert data.aws.encryption == "SSE-KMS with fs.s3a.encryption.context"


def test_the_buckets_encryption_goes_before_that_of_all() -> None:
    given = {
        **LEAST,
        "fs.s3k.storage.underlying.fs.prop.marker.fs.s3a.encryption.algorithm.data": "SSE-C",
        "fs.s3a.bucket.data.encryption.algorithm": "AES256",
        "fs.s3a.bucket.other.encryption.algorithm": "CSE-KMS",
    }
    data = opened(given).data
    assert isinstance(data, S3Bucket)
    assert data.aws.encryption == "AES256"


def test_keys_without_effect_are_warned_of_once() -> None:
    more = {
        "fs.s3k.thread.pool.max.tasks.data": "50",
        "fs.s3a.access.key": "half of a pair",
        "fs.s3a.encryption.key": "of no method",
        "fs.s3a.acl.default": "BucketOwnerFullControl",
        "fs.s3a.bucket.data.path.style.access": "true",
        "fs.s3k.fsck.s3.retries": "5",
        f"{DYNAMO}.table": "of no bucket",
        f"{OPLOG}.endpoint": "of no bucket",
    }
    others = {
        "fs.s3a.bucket.other.path.style.access": "true",
        "fs.s3a.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "fs.s3a.acl.empty": "",
    }
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            opened({**LEAST, **more, **others})
        opened(LEAST)
    (only,) = caught
    assert (
        str(only.message)
        == f"Hadoop settings without effect on s3k://data: {', '.join(sorted(more))}"
    )
    assert only.category is UserWarning


def test_the_context_comes_from_the_call_then_the_environment_then_the_mapping() -> None:
    pool = "fs.s3k.thread.pool.size.data"
    mapping = {**LEAST, pool: "1", f"{pool}.call": "2", f"{pool}.env": "3", f"{pool}.map": "4"}

    def size(context: str | None, environ: dict[str, str], mapping: dict[str, str]) -> int:
        config = resolve(
            "s3k://data", hadoop=mapping, context=context, environ={**NOWHERE, **environ}
        )
        return config.tuning.max_concurrency

    env = {"S3K_CONTEXT": "env"}
    with_context = {**mapping, "fs.s3k.metastore.context.id": "map"}
    assert size("call", env, with_context) == 2
    assert size(None, env, with_context) == 3
    assert size(None, {}, with_context) == 4
    assert size(None, {}, mapping) == 1


def test_keys_of_scope_bucket_have_no_context() -> None:
    mapping = {
        **LEAST,
        f"{DYNAMO}.table.data.driver": "other-meta",
        f"{DYNAMO}.suffix.count.data.driver": "3",
    }
    with pytest.warns(UserWarning, match="without effect"):
        config = opened(mapping, context="driver")
    assert config == opened(LEAST)


def test_a_mapping_does_no_harm_to_volumes_it_is_not_about() -> None:
    assert resolve("/srv/v", hadoop={}, environ=NOWHERE) == resolve("/srv/v", environ=NOWHERE)
