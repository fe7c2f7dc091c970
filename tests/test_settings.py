"""What people write, and the VolumeConfig that comes of it."""

from __future__ import annotations

import dataclasses
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from s3k_async._core.retry import Retries, RetryBudget, RetryPolicy
from s3k_async.config import (
    AlertSettings,
    AwsConfig,
    DynamoTable,
    LocalDirectory,
    MemoryBlobs,
    MemoryTable,
    S3Bucket,
    Secret,
    SqliteFile,
    Tuning,
    VolumeConfig,
)
from s3k_async.errors import ArgumentTypeError, ConfigError
from s3k_async.settings import OPTIONS, config_path, name_of_directory, resolve, split_url
from s3k_async.settings.options import KINDS, Option


class Home:
    """A user's directory with a configuration file, and an environment."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "s3k" / "config.toml"
        self.environ = {"XDG_CONFIG_HOME": str(directory)}

    def write(self, text: str) -> None:
        self.file.parent.mkdir(exist_ok=True)
        self.file.write_text(text)

    def resolve(self, volume: str | os.PathLike[str] | None = None, **options: Any) -> VolumeConfig:
        return resolve(volume, environ=self.environ, **options)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "config")


@pytest.fixture(autouse=True)
def _config_directory(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()


def table_of(config: VolumeConfig) -> DynamoTable:
    assert isinstance(config.table, DynamoTable)
    return config.table


def data_of(config: VolumeConfig) -> S3Bucket:
    assert isinstance(config.data, S3Bucket)
    return config.data


def log_of(config: VolumeConfig) -> S3Bucket:
    assert isinstance(config.log, S3Bucket)
    return config.log


# Addresses


def test_a_path_is_an_embedded_volume(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    wanted = VolumeConfig(
        name="",
        table=SqliteFile(f"{tmp_path}/my-volume/metadata.sqlite"),
        data=LocalDirectory(f"{tmp_path}/my-volume/data"),
        log=LocalDirectory(f"{tmp_path}/my-volume/oplog"),
    )
    for spelling in (
        "./my-volume",
        "my-volume/",
        f"{tmp_path}/x/../my-volume",
        f"file://{tmp_path}/my-volume",
    ):
        assert home.resolve(spelling) == wanted
    assert home.resolve(Path("my-volume")) == wanted
    assert home.resolve(directory="my-volume") == wanted


@pytest.mark.parametrize("volume", [5, b"./v", [], object()])
def test_an_address_that_is_no_text(home: Home, volume: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="a volume is text or a path, not"):
        home.resolve(volume)


def test_a_file_url_is_percent_decoded(home: Home) -> None:
    assert home.resolve("file:///srv/a%20b%25").table == SqliteFile("/srv/a b%/metadata.sqlite")
    assert home.resolve("file://localhost/srv/a").table == SqliteFile("/srv/a/metadata.sqlite")


def test_memory(home: Home) -> None:
    assert home.resolve("memory://m") == VolumeConfig("m", MemoryTable("m"), MemoryBlobs("m"))
    assert home.resolve("memory://m/") == home.resolve("memory://m")


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("", "directory or a name"),
        ("analytics", "./analytics for a directory, s3k://analytics for a named"),
        ("s3a://bucket", "s3a:// is no volume"),
        ("https://example.org/", "https:// is no volume"),
        ("s3k://", "volume's name"),
        ("s3k:///a", "volume's name"),
        ("s3k://a b", "volume's name"),
        ("s3k://-a", "volume's name"),
        ("s3k://" + "a" * 256, "volume's name"),
        ("s3k://a/b", "no path"),
        ("file://host/a", "file:///absolute/path"),
        ("file://", "file:///absolute/path"),
        ("/a\0b", "NUL"),
        ("/a\udcff", "UTF-8"),
    ],
)
def test_an_address_that_is_none(home: Home, address: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        home.resolve(address)


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("s3k://name/a/b", ("s3k://name", "/a/b")),
        ("s3k://name/", ("s3k://name", "/")),
        ("s3k://name", ("s3k://name", "/")),
        ("S3K://Name/a", ("s3k://Name", "/a")),
        ("s3k://name/a%20b?x#y", ("s3k://name", "/a%20b?x#y")),
        ("memory://m/a", ("memory://m", "/a")),
        ("file:///srv/vol", ("file:///srv/vol", "/")),
        ("/a/b", (None, "/a/b")),
        ("a/b", (None, "a/b")),
        ("10:30://x", (None, "10:30://x")),
    ],
)
def test_split_url(url: str, parts: tuple[str | None, str]) -> None:
    assert split_url(url) == parts


@pytest.mark.parametrize(
    ("directory", "name"),
    [("/srv/my-volume", "my-volume"), ("/srv/a b", "a-b"), ("/srv/.x", "x"), ("/", "volume")],
)
def test_name_of_directory(directory: str, name: str) -> None:
    assert name_of_directory(directory) == name


# With nothing


def test_nothing_says_what_to_do(home: Home) -> None:
    with pytest.raises(ConfigError, match=r"S3K_VOLUME.*default_volume.*config\.toml"):
        home.resolve()


def test_nothing_opens_what_the_environment_or_the_file_say(home: Home) -> None:
    home.write('default_volume = "../vol"\n')
    assert home.resolve().table == SqliteFile(f"{home.file.parents[1]}/vol/metadata.sqlite")
    home.environ |= {"S3K_TABLE": "meta", "S3K_BUCKET": "data"}
    assert table_of(home.resolve()).name == "meta"
    home.environ["S3K_VOLUME"] = "memory://m"
    assert home.resolve().table == MemoryTable("m")
    assert home.resolve(directory="/srv/v").table == SqliteFile("/srv/v/metadata.sqlite")


def test_keywords_alone_describe_a_volume(home: Home) -> None:
    home.environ |= {"S3K_BUCKET": "of-another-volume", "S3K_VOLUME": "s3k://another"}
    config = home.resolve(
        table="meta", bucket="data", prefix="/a/b", suffix_count=20, hash="java31"
    )
    assert config == VolumeConfig(
        name="",
        table=DynamoTable("meta"),
        data=S3Bucket("data", "a/b/"),
        log=S3Bucket("data", "a/b/oplog/"),
        suffix_count=20,
        hash="java31",
    )
    with pytest.raises(ConfigError, match="bucket or data_location"):
        home.resolve(table="meta")


# Named volumes, and who has the last word


def test_a_named_volume_from_the_file(home: Home) -> None:
    home.write(
        """
        [defaults]
        region = "eu-west-1"
        max_concurrency = 8
        [volumes.analytics]
        table = "analytics-meta"
        bucket = "analytics-data"
        log_bucket = "analytics-log"
        log_prefix = "x"
        suffix_count = 20
        part_size = "16MiB"
        table_endpoint = "http://127.0.0.1:1"
        [volumes."my.bucket_1"]
        directory = "volumes/mine"
        """
    )
    aws = AwsConfig(region="eu-west-1")
    wanted = VolumeConfig(
        name="analytics",
        table=DynamoTable(
            "analytics-meta", dataclasses.replace(aws, endpoint="http://127.0.0.1:1")
        ),
        data=S3Bucket("analytics-data", "", aws),
        log=S3Bucket("analytics-log", "x/", aws),
        suffix_count=20,
        tuning=Tuning(max_concurrency=8, part_size=16 * 1024 * 1024),
        alerts=AlertSettings(service=aws),
    )
    assert home.resolve("s3k://analytics") == home.resolve("s3k://analytics/") == wanted
    mine = home.resolve("s3k://my.bucket_1")
    assert mine.name == "my.bucket_1"
    assert mine.table == SqliteFile(f"{home.file.parent}/volumes/mine/metadata.sqlite")


def test_precedence(home: Home) -> None:
    """Keywords, environment, section, defaults, Hadoop mapping, built-in."""
    hadoop = {
        "fs.s3k.metastore.dynamo.table.v": "by-mapping",
        "fs.s3k.metastore.dynamo.suffix.count.v": "1",
        "fs.s3k.metastore.dynamo.max.http.conn.v": "1",
        "fs.s3k.operationlog.s3.bucket.v": "log-by-mapping",
        "fs.s3k.storage.underlying.filesystem.scheme.v": "s3a",
        "fs.s3k.thread.pool.size.v": "1",
        "fs.s3k.metastore.dynamo.max.retries.v": "0",
    }

    def seen(**options: Any) -> tuple[str, int | None, int, int]:
        config = home.resolve("s3k://v", hadoop=hadoop, **options)
        assert config.tuning.retry.read.attempts == 1
        return (
            table_of(config).name,
            config.suffix_count,
            config.tuning.max_concurrency,
            table_of(config).aws.max_connections,
        )

    assert seen() == ("by-mapping", 1, 1, 1)
    home.write("[defaults]\nmax_concurrency = 2\ntable_max_connections = 2")
    assert seen() == ("by-mapping", 1, 2, 2)
    home.write(
        '[defaults]\nmax_concurrency = 2\n[volumes.v]\ntable = "by-file"\nsuffix_count = '
        "3\nmax_concurrency = 3"
    )
    assert seen() == ("by-file", 3, 3, 1)
    home.environ |= {"S3K_TABLE": "by-env", "S3K_SUFFIX_COUNT": "4", "S3K_MAX_CONCURRENCY": "4"}
    assert seen() == ("by-env", 4, 4, 1)
    assert seen(table="by-key", suffix_count=5, max_concurrency="5") == ("by-key", 5, 5, 1)


def test_the_environment_describes_its_own_volume_only(home: Home) -> None:
    home.write('[volumes.b]\ntable = "b-meta"\nbucket = "b-data"')
    home.environ |= {
        "S3K_TABLE": "meta",
        "S3K_BUCKET": "data",
        "S3K_REGION": "eu-west-1",
        "S3K_LEASE": "7",
    }
    assert table_of(home.resolve("s3k://b")).name == "meta"
    home.environ["S3K_VOLUME"] = "s3k://a"
    assert table_of(home.resolve()).name == table_of(home.resolve("s3k://a")).name == "meta"
    other = home.resolve("s3k://b")
    assert (table_of(other).name, data_of(other).bucket) == ("b-meta", "b-data")
    assert (table_of(other).aws.region, other.tuning.lease) == ("eu-west-1", 7.0)
    embedded = home.resolve("/srv/v")
    assert embedded.table == SqliteFile("/srv/v/metadata.sqlite")
    assert embedded.tuning.lease == 7.0


def test_an_unknown_name_says_where_to_add_it(home: Home) -> None:
    home.write('[volumes.analytics]\ntable = "t-1"\nbucket = "b"')
    with pytest.raises(
        ConfigError, match=r"'analytisc'.*did you mean analytics\?.*config\.toml"
    ) as caught:
        home.resolve("s3k://analytisc")
    assert caught.value.path == "s3k://analytisc"


def test_two_ways_to_say_one_thing_displace_each_other_between_layers(home: Home) -> None:
    home.write(
        '[volumes.v]\ntable = "t-1"\nbucket = "b"\nprefix = "p"\nlog_bucket = "l"\nprofile = "work"'
    )
    assert home.resolve(
        "s3k://v", data_location="memory://m", log_location="/l"
    ).data == MemoryBlobs("m")
    assert home.resolve("s3k://v", data_location="s3://c/q").data == S3Bucket(
        "c", "q/", AwsConfig(profile="work")
    )
    assert data_of(home.resolve("s3k://v", bucket="c")).prefix == "p/"
    static = data_of(home.resolve("s3k://v", access_key_id="a", secret_access_key="s")).aws
    assert (static.profile, static.access_key_id) == (None, Secret("a"))
    assert home.resolve("s3k://v", directory="/srv/v").data == LocalDirectory("/srv/v/data")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bucket": "b", "data_location": "/d"}, "bucket and data_location contradict"),
        (
            {"bucket": "b", "profile": "p", "access_key_id": "a"},
            "profile and access_key_id contradict",
        ),
        ({"bucket": "b", "access_key_id": "a"}, "go together"),
        (
            {"bucket": "b", "table_secret_access_key": "a"},
            "table_access_key_id and table_secret_access_key",
        ),
        ({"prefix": "b"}, "bucket"),
        ({"bucket": "b", "sufix_count": 3}, "did you mean suffix_count"),
        ({"bucket": "b", "suffix_count": 0}, "suffix_count: 0 is not a whole number of at least 1"),
        ({"bucket": "b", "suffix_count": 2.5}, "whole number"),
        ({"bucket": "b", "suffix_count": True}, "whole number"),
        ({"bucket": "b", "hash": "md5"}, "one of xxh3, java31"),
        ({"bucket": "b", "kind": "s3k-1.0"}, "needs its suffix_count"),
        ({"bucket": "b", "part_size": "8 parsecs"}, "8MiB"),
        ({"bucket": "b", "lease": "nan"}, "lease"),
        ({"bucket": "b", "lease": float("inf")}, "lease"),
        ({"bucket": "b", "verify_tls": "perhaps"}, "true or false"),
        ({"bucket": ""}, "text that is not empty"),
        ({"bucket": "b", "name": "other"}, "is not the name of the volume"),
        ({"bucket": "b", "table": "a/b"}, "names no DynamoDB table"),
        ({"bucket": None, "data_location": "ftp://x"}, "s3://BUCKET"),
    ],
)
def test_bad_options(home: Home, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        home.resolve("s3k://v", **{"table": "meta", **options})


def test_parts_have_their_own_services(home: Home) -> None:
    config = home.resolve(
        table="meta",
        bucket="data",
        log_bucket="log",
        region="r-all",
        data_region="r-data",
        log_endpoint="http://log",
        access_key_id="all",
        secret_access_key="all",
        session_token="all",
        data_access_key_id="data",
        data_secret_access_key="data",
        table_profile="p",
    )
    table, data, log = table_of(config).aws, data_of(config).aws, log_of(config).aws
    assert (table.region, data.region, log.region) == ("r-all", "r-data", "r-data")
    assert (table.endpoint, data.endpoint, log.endpoint) == (None, None, "http://log")
    assert (table.profile, table.access_key_id) == ("p", Secret())
    assert (data.access_key_id, data.session_token) == (Secret("data"), Secret())
    assert log.access_key_id == Secret("data")


def test_places_of_other_kinds(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = home.resolve(table="sqlite:meta.db", data_location="s3://b/p", log_location="logs")
    assert config.table == SqliteFile(f"{tmp_path}/meta.db")
    assert (config.data, config.log) == (S3Bucket("b", "p/"), LocalDirectory(f"{tmp_path}/logs"))
    assert home.resolve(table="sqlite:///srv/m.db", data_location="/d").table == SqliteFile(
        "/srv/m.db"
    )
    config = home.resolve(
        table="dynamodb://meta", data_location="file:///srv/d", log_location="memory://l"
    )
    assert (config.table, config.data, config.log) == (
        DynamoTable("meta"),
        LocalDirectory("/srv/d"),
        MemoryBlobs("l"),
    )
    assert home.resolve(table="memory://t", data_location="/d").log is None
    arn = "arn:aws:dynamodb:eu-west-1:123456789012:table/meta"
    assert home.resolve(table=arn, bucket="b").table == DynamoTable(arn)


def test_a_directory_with_its_data_elsewhere(home: Home) -> None:
    config = home.resolve("/srv/v", bucket="b", prefix="p")
    assert config.table == SqliteFile("/srv/v/metadata.sqlite")
    assert (config.data, config.log) == (S3Bucket("b", "p/"), S3Bucket("b", "p/oplog/"))


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("8MiB", 8 << 20),
        ("8 mib", 8 << 20),
        ("1MB", 10**6),
        ("2k", 2000),
        ("1Gi", 1 << 30),
    ],
)
def test_sizes(home: Home, text: str, size: int) -> None:
    assert home.resolve("/srv/v", part_size=text).tuning.part_size == size


def test_a_ready_config_is_the_answer(home: Home) -> None:
    config = VolumeConfig("m", MemoryTable("m"), MemoryBlobs("m"))
    assert home.resolve(config=config) is config
    for more in ({"volume": "memory://m"}, {"lease": 3}):
        with pytest.raises(ConfigError, match="complete"):
            home.resolve(config=config, **more)


def test_secrets_show_nowhere(home: Home) -> None:
    secret = "wJalrXUtnFEMI-K7MDENG"
    config = home.resolve(table="meta", bucket="b", access_key_id="AKIA", secret_access_key=secret)
    assert data_of(config).aws.secret_access_key.reveal() == secret
    assert secret not in repr(config)
    assert secret.encode() not in pickle.dumps(config)
    with pytest.raises(ConfigError) as caught:
        home.resolve(table="meta", bucket="b", secret_access_key=f"{secret}\0")
    assert secret not in repr(caught.value)
    home.write(f'[volumes.v]\nsecret_access_key = ["{secret}"]')
    with pytest.raises(ConfigError) as caught:
        home.resolve("s3k://v")
    assert secret not in repr(caught.value)


# The table of options


def test_every_setting_has_an_option() -> None:
    stems = {option.stem for option in OPTIONS.values()}
    assert set(AwsConfig.__dataclass_fields__) - {"delegated"} <= stems
    assert set(Tuning.__dataclass_fields__) - {"retry"} <= stems
    assert {f"retry_{name}" for name in RetryPolicy.__dataclass_fields__} <= stems
    assert {f"retry_{name}" for name in RetryBudget.__dataclass_fields__} <= stems
    assert set(Retries.__dataclass_fields__) == {*KINDS, "budget"}
    assert {
        f"{kind}_retry_{name}" for kind in KINDS for name in RetryPolicy.__dataclass_fields__
    } <= set(OPTIONS)
    assert {"kind", "suffix_count", "hash", "log_mode", "name"} <= stems


def test_one_stem_everywhere() -> None:
    for name, option in OPTIONS.items():
        assert option.name == name
        assert option.env == f"S3K_{name.upper()}"
        assert option.flag in (None, "--" + name.replace("_", "-"))
        assert (option.flag is None) == (option.type == "secret")
        assert option.doc.endswith(".")
    assert OPTIONS["suffix_count"].env == "S3K_SUFFIX_COUNT"
    assert OPTIONS["suffix_count"].flag == "--suffix-count"


VALUES: dict[str, Any] = {
    "storage_rules": "/archive:STANDARD_IA,team=web",
    "text": "eu-north-1",
    "path": "/etc/ca.pem",
    "integer": 7,
    "integers": "7,8",
    "number": 2.5,
    "size": 4096,
    "boolean": False,
    "requester_pays": True,
    "role_duration": 1800,
    "secret": "hush",
    "choice": "aws:kms",
    "change_detection": "client",
    "storage_class": "GLACIER_IR",
    "hot_writes": "through",
    "hot_reads": "fill",
    "log_verbs": "info",
    "alerts": "log:",
    "alerts_on_error": "error",
    "alerts_on_timeout": "ignore",
}
"""A value of each type, and of an option whose type does not determine it."""


def given_for(option: Option) -> dict[str, Any]:
    """A value of the option, with what it needs beside it."""
    part = option.name.removesuffix(option.stem)
    if option.stem in ("access_key_id", "secret_access_key"):
        return {f"{part}access_key_id": "hush", f"{part}secret_access_key": "hush"}
    if option.stem == "customer_key":
        return {option.name: CUSTOMER_KEY}
    if option.stem in ENCRYPTION:
        return {f"{part}encryption": VALUES["choice"]} | (
            {option.name: VALUES[option.type]} if option.stem != "encryption" else {}
        )
    if option.stem in OF_ROLES:
        return {f"{part}role_arn": "arn", option.name: value_of(option)}
    return {option.name: value_of(option)}


OF_ROLES = (
    "external_id",
    "role_session_name",
    "role_duration",
    "web_identity_token_file",
    "sts_endpoint",
)
CUSTOMER_KEY = "a" * 43 + "="
ENCRYPTION = ("encryption", "kms_key", "bucket_key")


def value_of(option: Option) -> Any:
    """A value that is not the default."""
    return VALUES.get(option.name, VALUES.get(option.stem, VALUES[option.type]))


def arrived(option: Option, config: VolumeConfig) -> dict[str, tuple[Any, Any]]:
    """What the configuration says wherever the option matters, and what it should say."""
    hidden = CUSTOMER_KEY if option.stem == "customer_key" else "hush"
    special = {"secret": Secret(hidden), "integers": (7, 8)}
    wanted = special.get(option.type, value_of(option))
    parts = {"table": table_of(config).aws, "data": data_of(config).aws, "log": log_of(config).aws}
    parts["alerts"] = config.alerts.service
    if option.name == "alerts":
        return {"sinks": (config.alerts.sinks.reveal(), wanted)}
    if option.scope == "client" and option.name.startswith("alerts_"):
        return {"alerts": (getattr(config.alerts, option.name.removeprefix("alerts_")), wanted)}
    if option.scope == "service":
        values = {part: getattr(aws, option.stem) for part, aws in parts.items()}
        unset = getattr(AwsConfig(), option.stem)
        stored = (*ENCRYPTION, "customer_key", "storage_class", "requester_pays")
        first = "data" if option.stem in stored else "table"
        found = {"part": (values[option.part or first], wanted)}
        if first != "table":
            found |= {part: (values[part], unset) for part in ("table", "alerts")}
        elif option.part in (None, "alerts"):
            found["alerts"] = (values["alerts"], wanted)
        if option.part == "alerts":
            return found | {part: (values[part], unset) for part in ("table", "data", "log")}
        if option.part != "table":
            apart = option.stem == "storage_class" and option.part != "log"
            found["log"] = (values["log"], unset if apart else wanted)
        if option.part == "log":
            found["data"] = (values["data"], unset)
        return found
    field = option.stem.removeprefix("retry_")
    if field in RetryPolicy.__dataclass_fields__:
        return {
            kind: (
                getattr(getattr(config.tuning.retry, kind), field),
                wanted if option.part in (None, kind) else getattr(getattr(Retries(), kind), field),
            )
            for kind in KINDS
        }
    if option.name.startswith("retry_"):
        budget = config.tuning.retry.budget
        return {"budget": (getattr(budget, option.name.removeprefix("retry_")), wanted)}
    return {"tuning": (getattr(config.tuning, option.name), wanted)}


@pytest.mark.parametrize("way", ["keyword", "environment", "section", "defaults"])
def test_every_service_and_client_option_arrives(home: Home, way: str) -> None:
    options = [option for option in OPTIONS.values() if option.scope != "volume"]
    assert len(options) > 50
    base = {"table": "meta", "bucket": "b", "log_bucket": "l"}
    environ = home.environ
    differences = []
    for option in options:
        given = given_for(option)
        text = "\n".join(
            f"{key} = {str(value).lower() if isinstance(value, bool) else repr(value)}"
            for key, value in given.items()
        )
        if way == "environment":
            home.environ = environ | {OPTIONS[key].env: str(value) for key, value in given.items()}
        elif way == "section":
            home.write(f"[volumes.v]\n{text}")
        elif way == "defaults":
            home.write(f"[defaults]\n{text}")
        try:
            config = home.resolve("s3k://v", **base, **(given if way == "keyword" else {}))
        except ConfigError as error:
            differences.append(f"{option.name}: {error}")
            continue
        differences += [
            f"{option.name}, {place}: {found!r} instead of {wanted!r}"
            for place, (found, wanted) in arrived(option, config).items()
            if found != wanted
        ]
    assert not differences, "\n".join(differences)


def test_the_old_systems_log_is_among_its_data(home: Home) -> None:
    base = {"table": "meta", "bucket": "b", "prefix": "p", "kind": "s3k-1.0", "suffix_count": 3}
    assert home.resolve("s3k://v", **base, data_region="r", log_region="s").log == S3Bucket(
        "b", "p/", AwsConfig(region="s")
    )
    base["data_location"] = "memory://m"
    del base["bucket"], base["prefix"]
    assert home.resolve("s3k://v", **base).log == MemoryBlobs("m")


def test_encryption_and_its_key_are_of_one_piece(home: Home) -> None:
    base = {"table": "meta", "bucket": "b"}
    home.write('[volumes.v]\nencryption = "aws:kms"\nkms_key = "k"\nlog_encryption = "AES256"')
    config = home.resolve("s3k://v", **base)
    assert (data_of(config).aws.encryption, data_of(config).aws.kms_key) == ("aws:kms", "k")
    assert (log_of(config).aws.encryption, log_of(config).aws.kms_key) == ("AES256", None)
    config = home.resolve("s3k://v", encryption="aws:kms:dsse", **base)
    assert (data_of(config).aws.encryption, data_of(config).aws.kms_key) == ("aws:kms:dsse", None)
    for given in ({"data_kms_key": "k"}, {"data_kms_key": "k", "data_encryption": "AES256"}):
        with pytest.raises(
            ConfigError,
            match="data_kms_key needs data_encryption to be one of aws:kms, aws:kms:dsse",
        ):
            home.resolve("s3k://v", **base, **given)


def test_where_the_configuration_file_is(tmp_path: Path) -> None:
    assert config_path({"HOME": "/home/u"}) == "/home/u/.config/s3k/config.toml"
    assert config_path({"HOME": "/home/u", "XDG_CONFIG_HOME": "/x"}) == "/x/s3k/config.toml"
    assert (
        config_path({"HOME": "/home/u", "XDG_CONFIG_HOME": "relative"})
        == "/home/u/.config/s3k/config.toml"
    )
    assert config_path({"HOME": "/home/u", "S3K_CONFIG": "/c.toml"}) == "/c.toml"
