"""Every Hadoop key takes effect, is refused, or is named in a warning: the table of the code, what
becomes of each key, and the page."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Final

import pytest

from s3k_async.config import VolumeConfig
from s3k_async.errors import ConfigError
from s3k_async.settings import read_hadoop
from s3k_async.settings.hadoop_keys import ASSUMED_ROLE, HADOOP_KEYS, S3A_KEYS, HadoopKey
from s3k_async.settings.s3a_properties import S3A_EFFECTS
from tests.test_settings_hadoop import DYNAMO, LEAST, OPLOG, opened

PAGE: Final = Path(__file__).parents[1] / "docs" / "hadoop-keys.md"
CONTEXT: Final = "driver"

OF_THE_OLD_SYSTEM: Final = [
    "fs.<scheme>.impl",
    "fs.AbstractFileSystem.<scheme>.impl",
    "fs.s3k.keyvalue.config.factory",
    "fs.s3k.external.hadoop.config.factory.config.location",
    "fs.s3k.configuration.context.class",
    "fs.s3k.metastore.context.id",
    "fs.s3k.metastore.factory.class",
    "fs.s3k.metastore.operation.log.factory.class",
    "fs.s3k.metastore.operation.log.extended.factory.class",
    "fs.s3k.storage.factory.class",
    "fs.s3k.storage.path.translator.factory",
    "fs.s3k.metastore.dynamo.hash.function.class",
    "fs.s3k.metastore.dynamo.table",
    "fs.s3k.metastore.dynamo.suffix.count",
    "fs.s3k.metastore.dynamo.base.exponential.delay",
    "fs.s3k.metastore.dynamo.max.exponential.delay",
    "fs.s3k.metastore.dynamo.backoff.full.jitter",
    "fs.s3k.metastore.dynamo.max.retries",
    "fs.s3k.metastore.dynamo.max.http.conn",
    "fs.s3k.metastore.dynamo.access",
    "fs.s3k.metastore.dynamo.secret",
    "fs.s3k.metastore.dynamo.endpoint",
    "fs.s3k.metastore.dynamo.signing.region",
    "fs.s3k.metastore.operations.async",
    "fs.s3k.metastore.update.object.retries",
    "fs.s3k.metastore.update.object.delay.between.retries",
    "fs.s3k.operationlog.s3.bucket",
    "fs.s3k.operationlog.s3.base.exponential.delay",
    "fs.s3k.operationlog.s3.max.exponential.delay",
    "fs.s3k.operationlog.s3.backoff.full.jitter",
    "fs.s3k.operationlog.s3.max.retries",
    "fs.s3k.operationlog.s3.max.http.conn",
    "fs.s3k.operationlog.s3.access",
    "fs.s3k.operationlog.s3.secret",
    "fs.s3k.operationlog.s3.endpoint",
    "fs.s3k.operationlog.s3.signing.region",
    "fs.s3k.storage.underlying.filesystem.scheme",
    "fs.s3k.storage.underlying.fs.prop.marker.<key>",
    "fs.s3k.storage.eventual.consistency.max.retries",
    "fs.s3k.storage.eventual.consistency.delay.retries.millis",
    "fs.s3k.thread.pool.size",
    "fs.s3k.thread.pool.max.tasks",
    "fs.s3k.fsck.root.path",
    "fs.s3k.fsck.s3.base.delay",
    "fs.s3k.fsck.s3.max.delay",
    "fs.s3k.fsck.s3.retries",
    "fs.s3k.fsck.s3.download.batch.size",
    "fs.s3k.fsck.s3.max.connections",
    "fs.s3k.fsck.parent.shuffle.cache.size",
    "fs.s3k.cmd.loader.s3.bucket",
    "fs.s3k.metastorescan.root.path",
    "fs.s3k.metastorescan.partition.count",
    "fs.s3k.raws3.scaninputformat.bucket",
    "fs.s3k.raws3.scaninputformat.partition.count",
    "dryRun",
    "fs.s3k.purge.bucket.s3.base.delay",
    "fs.s3k.purge.bucket.s3.max.delay",
    "fs.s3k.purge.bucket.s3.max.retries",
    "fs.s3k.purge.bucket.s3.max.connections",
]
"""The keys that S3-FileSystem 1.0 reads."""
OF_THIS_PROJECT: Final = {"fs.s3k.volume.kind", "fs.s3k.client.uid", "fs.s3k.client.gids"}

VALUES: Final = {
    f"{DYNAMO}.hash.function.class": "com.adobe.s3fs.metastore.internal.DefaultHashFunction",
    f"{DYNAMO}.table": "another",
    f"{DYNAMO}.suffix.count": "7",
    f"{DYNAMO}.endpoint": "https://table.example",
    f"{DYNAMO}.signing.region": "eu-north-1",
    f"{OPLOG}.endpoint": "https://log.example",
    f"{OPLOG}.signing.region": "eu-north-1",
    "fs.s3k.volume.kind": "native",
    "fs.s3k.metastore.operations.async": "false",
    "endpoint": "https://data.example",
    "connection.timeout": "90s",
    "connection.establish.timeout": "1500",
    "connection.ssl.enabled": "false",
    "proxy.port": "3128",
    "proxy.ssl.enabled": "true",
    "multipart.size": "32M",
    "multipart.threshold": "1G",
    "change.detection.mode": "warn",
    "create.storage.class": "intelligent_tiering",
    "requester.pays.enabled": "true",
    "delegation.token.binding": "org.apache.hadoop.fs.s3a.auth.delegation.SessionTokenBinding",
    "assumed.role.session.duration": "45m",
    "encryption.algorithm": "SSE-KMS",
    "server-side-encryption-algorithm": "SSE-KMS",
}
"""A value of each key that `5` is none of."""
WITH: Final = {
    f"{DYNAMO}.access": f"{DYNAMO}.secret.data",
    f"{DYNAMO}.secret": f"{DYNAMO}.access.data",
    f"{DYNAMO}.endpoint": f"{DYNAMO}.signing.region.data",
    f"{DYNAMO}.signing.region": f"{DYNAMO}.endpoint.data",
    f"{OPLOG}.access": f"{OPLOG}.secret.data",
    f"{OPLOG}.secret": f"{OPLOG}.access.data",
    f"{OPLOG}.endpoint": f"{OPLOG}.signing.region.data",
    f"{OPLOG}.signing.region": f"{OPLOG}.endpoint.data",
    "access.key": "fs.s3a.secret.key",
    "secret.key": "fs.s3a.access.key",
    "connection.ssl.enabled": "fs.s3a.endpoint",
    "proxy.port": "fs.s3a.proxy.host",
    "proxy.username": "fs.s3a.proxy.host",
    "proxy.ssl.enabled": "fs.s3a.proxy.host",
}
"""A key that another one needs, which is set in both cases."""


def names(key: HadoopKey) -> list[str]:
    """The keys under which it can be given for the volume `data`."""
    if key.scope in ("global", "job"):
        return [key.name.replace("<scheme>", "s3k")]
    if key.scope != "s3a":
        ends = [f"data.{CONTEXT}"] if key.scope == "context" else []
        return [f"{key.name}.{end}" for end in ["data", *ends]]
    plain = [f"fs.s3a.{key.name}", f"fs.s3a.bucket.data.{key.name}"]
    marker = "fs.s3k.storage.underlying.fs.prop.marker"
    return plain + [f"{marker}.{name}.data" for name in plain]


def mapped(mapping: dict[str, str]) -> tuple[VolumeConfig, tuple[str, ...]]:
    """The configuration, and the keys that are named in the warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = opened(mapping, context=CONTEXT)
    return config, read_hadoop(mapping, "data", CONTEXT).ignored


def of(outcome: str) -> pytest.MarkDecorator:
    keys = [key for key in (*HADOOP_KEYS, *S3A_KEYS) if key.outcome == outcome]
    return pytest.mark.parametrize("key", keys, ids=lambda key: key.full_name)


def test_the_table_has_every_key_once() -> None:
    listed = [key.name for key in HADOOP_KEYS]
    assert sorted(listed) == sorted({*OF_THE_OLD_SYSTEM, *OF_THIS_PROJECT})
    properties = [key.name for key in S3A_KEYS]
    assert len(properties) == len(set(properties))
    assert {key.name for key in S3A_KEYS if key.outcome == "effect"} == S3A_EFFECTS


@of("effect")
def test_a_key_takes_effect(key: HadoopKey) -> None:
    value = VALUES.get(key.name, "5")
    if key.name == "fs.s3k.metastore.context.id":
        pool = {"fs.s3k.thread.pool.size.data.here": "5"}
        assert opened({**LEAST, **pool, key.name: "here"}).tuning.max_concurrency == 5
        return
    if key.name.endswith("marker.<key>"):
        name = key.name.replace("<key>", "fs.s3a.endpoint.region") + ".data"
        assert opened({**LEAST, name: "eu-north-1"}) != opened(LEAST)
        return
    base = dict(LEAST)
    if key.name.endswith("filesystem.scheme"):
        base |= {"fs.s3k.volume.kind.data": "native"}
        assert opened({**base, f"{key.name}.data": "s3n"}).data == opened(LEAST).data
        return
    if needed := WITH.get(key.name):
        base[needed] = "eu-north-1"
    if key.name == "proxy.password":
        base |= {"fs.s3a.proxy.host": "proxy", "fs.s3a.proxy.username": "user"}
    if key.name.startswith("assumed.role"):
        base |= {
            "fs.s3a.aws.credentials.provider": "org.apache.hadoop.AssumedRoleCredentialProvider",
            "fs.s3a.assumed.role.arn": "arn",
        }
    if key.name == "session.token":
        base |= {"fs.s3a.access.key": "A", "fs.s3a.secret.key": "S"}
    if key.name.startswith(("encryption.", "server-side-encryption")) and value == "5":
        base["fs.s3a.encryption.algorithm"] = "SSE-KMS"
    usual, _ = mapped(base)
    for name in names(key):
        if (
            key.name in ("session.token", "access.key", "secret.key")
            and name != f"fs.s3a.{key.name}"
        ):
            continue  # both halves and the token are of one scope
        config, ignored = mapped({**base, name: value})
        assert config != usual, name
        assert name not in ignored


@of("refused")
def test_a_key_is_refused(key: HadoopKey) -> None:
    for name in names(key):
        with pytest.raises(ConfigError, match="is not supported") as raised:
            opened({**LEAST, name: "com.example.Mine"})
        assert name in str(raised.value)
        for accepted in key.accepted:
            if accepted == ASSUMED_ROLE:
                continue
            config, ignored = mapped({**LEAST, name: f"com.adobe.s3fs.{accepted}"})
            assert ignored == ()
            assert config.table == opened(LEAST).table


@of("warned")
def test_a_key_is_named_in_a_warning(key: HadoopKey) -> None:
    usual = mapped(LEAST)
    for name in names(key):
        assert mapped({**LEAST, name: "5"}) == (usual[0], (name,))
        with pytest.warns(UserWarning, match="without effect") as caught:
            opened({**LEAST, name: "5"}, context=CONTEXT)
        assert any(name in str(each.message) for each in caught)
        for accepted in key.accepted:
            assert mapped({**LEAST, name: accepted}) == usual


@of("jvm")
def test_a_key_of_the_jvm_says_nothing_about_a_volume(key: HadoopKey) -> None:
    (name,) = names(key)
    assert mapped({**LEAST, name: "com.example.Mine"}) == mapped(LEAST)


def test_a_property_of_s3a_that_is_not_in_the_table_is_named() -> None:
    assert mapped({**LEAST, "fs.s3a.committer.name": "magic"})[1] == ("fs.s3a.committer.name",)


def test_a_role_is_assumed_only_with_its_provider() -> None:
    role = {
        "fs.s3a.assumed.role.arn": "arn:aws:iam::1:role/r",
        "fs.s3a.assumed.role.session.duration": "45m",
        "fs.s3a.assumed.role.sts.endpoint": "sts.example",
    }
    assert mapped({**LEAST, **role})[1] == tuple(sorted(role))
    provider = {
        "fs.s3a.aws.credentials.provider": f"a.b.{ASSUMED_ROLE}, SimpleAWSCredentialsProvider"
    }
    config, ignored = mapped({**LEAST, **role, **provider})
    aws = config.data.service
    assert aws is not None
    assert ignored == ()
    assert (aws.role_arn, aws.role_duration, aws.sts_endpoint) == (
        "arn:aws:iam::1:role/r",
        2700,
        "https://sts.example",
    )
    with pytest.raises(ConfigError, match=r"needs fs\.s3a\.assumed\.role\.arn"):
        opened({**LEAST, **provider})


@pytest.mark.parametrize("text", ["a.{}, b.{},", "\n  a.{},\n  b.{}\n", "a.{}\nb.{}", ","])
def test_providers_are_a_list_of_hadoop(text: str) -> None:
    """A comma may be at the end, and line breaks separate as well."""
    names = ("SimpleAWSCredentialsProvider", "EnvironmentVariableCredentialsProvider")
    given = {"fs.s3a.aws.credentials.provider": text.format(*names)}
    assert mapped({**LEAST, **given}) == mapped(LEAST)
    with pytest.raises(ConfigError, match="is not supported"):
        opened({**LEAST, "fs.s3a.aws.credentials.provider": f"a.Unknown,{text.format(*names)}"})


def test_values_of_hadoop() -> None:
    given = {
        "fs.s3a.connection.timeout": "90s",
        "fs.s3a.connection.establish.timeout": "1500",
        "fs.s3a.multipart.size": "32M",
        "fs.s3a.multipart.threshold": "1G",
        "fs.s3a.endpoint": "data.example:9000",
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.proxy.host": "proxy",
        "fs.s3a.proxy.username": "me",
        "fs.s3a.proxy.password": "p@ss",
    }
    config = opened({**LEAST, **given})
    aws = config.data.service
    assert aws is not None
    assert (aws.read_timeout, aws.connect_timeout) == (90.0, 1.5)
    assert (config.tuning.part_size, config.tuning.multipart_threshold) == (2**25, 2**30)
    assert (aws.endpoint, aws.proxy) == ("http://data.example:9000", "http://me:p%40ss@proxy:80")
    assert "p%40ss" not in repr(config)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("connection.timeout", "soon"),
        ("multipart.size", "much"),
        ("change.detection.mode", "always"),
        ("create.storage.class", "deep_archive"),
        ("requester.pays.enabled", "perhaps"),
        ("delegation.token.binding", "org.apache.FullCredentialsTokenBinding"),
        ("aws.credentials.provider", "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"),
    ],
)
def test_a_value_that_cannot_be_is_named_with_its_key(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match="Hadoop setting") as raised:
        opened({**LEAST, f"fs.s3a.bucket.data.{name}": value})
    assert f"fs.s3a.bucket.data.{name}" in str(raised.value)


def test_the_page_has_the_table_of_the_code() -> None:
    rows = [
        tuple(cell.strip() for cell in line.strip("|").split("|"))
        for line in PAGE.read_text().splitlines()
        if line.startswith("| `")
    ]
    expected = [
        (f"`{key.full_name}`", "for the JVM" if key.outcome == "jvm" else key.outcome, shown(key))
        for key in (*HADOOP_KEYS, *S3A_KEYS)
    ]
    assert rows == expected


def shown(key: HadoopKey) -> str:
    values = ", ".join(f"`{each}`" for each in key.accepted if each)
    return f"{key.note}; accepted: {values}" if values else key.note
