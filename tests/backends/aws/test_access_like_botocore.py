"""Access without botocore: equal to botocore's, or delegated to it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import pytest
from botocore.exceptions import BotoCoreError

from s3k_async.backends.aws import session
from s3k_async.backends.aws.credential_source import TemporaryCredentials
from s3k_async.backends.aws.session import AwsClient
from s3k_async.backends.aws.static_access import static_access
from s3k_async.config import AwsConfig, Secret
from s3k_async.errors import S3kError

HERE = AwsConfig(endpoint="http://localhost:9")
KEYS = AwsConfig(access_key_id=Secret("K"), secret_access_key=Secret("S"))
ENVIRONMENTS: list[dict[str, str]] = [
    {},
    {"AWS_REGION": "", "AWS_DEFAULT_REGION": "eu-west-2"},
    {"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "eu-west-2"},
    {"AWS_REGION": "cn-north-1"},
    {"AWS_REGION": "us-gov-west-1"},
    {"AWS_SESSION_TOKEN": "T"},
    {"AWS_SESSION_TOKEN": ""},
    {"AWS_SECURITY_TOKEN": "T"},
    {"AWS_SECRET_ACCESS_KEY": ""},
    {"AWS_ACCESS_KEY_ID": ""},
    {"AWS_ENDPOINT_URL_S3": "http://localhost:8"},
    {"AWS_USE_FIPS_ENDPOINT": "true"},
    {"AWS_S3_US_EAST_1_REGIONAL_ENDPOINT": "regional"},
    {"AWS_DEFAULTS_MODE": "standard"},
    {"AWS_PROFILE": "unknown"},
    {"AWS_CONFIG_FILE": "~no-such-user/config"},
    {"AWS_CONFIG_FILE": "$FOLDER/other"},
    {"HTTPS_PROXY": "http://localhost:7"},
]
SETTINGS = [
    AwsConfig(region="eu-west-3"),
    AwsConfig(region=""),
    HERE,
    AwsConfig(endpoint=""),
    AwsConfig(endpoint="HTTP://localhost:9/p/"),
    AwsConfig(endpoint="http://-x:9"),
    AwsConfig(endpoint="http://a..b:9"),
    AwsConfig(endpoint=f"http://{'a' * 64}:9"),
    AwsConfig(endpoint="http://[::1]:9"),
    KEYS,
    AwsConfig(access_key_id=Secret("K")),
    AwsConfig(session_token=Secret("T")),
]


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keys and a region, no files, and no settings of AWS but those of the test."""
    for name in os.environ:
        if name.startswith(("AWS_", "BOTO")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("FOLDER", str(tmp_path))
    (tmp_path / "other").write_text("[default]\nuse_fips_endpoint = true\n")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AK")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SK")
    monkeypatch.setenv("AWS_REGION", "us-east-1")


async def access(config: AwsConfig, service: Literal["s3", "dynamodb"]) -> tuple[object, ...]:
    """The access of a client to the service, or the error."""
    client = AwsClient(service, config)
    try:
        channel = await client.channel()
        keys = await channel.credentials.get()
        return channel.endpoint, channel.region, keys.access_key, keys.secret_key, keys.token
    except (S3kError, BotoCoreError) as error:
        return type(error).__name__, str(error)
    finally:
        await client.close()


async def need_same(config: AwsConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare both services with those of botocore."""
    services: tuple[Literal["s3", "dynamodb"], ...] = ("s3", "dynamodb")
    found = [await access(config, service) for service in services]
    monkeypatch.setattr(session, "static_access", lambda *_: None)
    assert found == [await access(config, service) for service in services]


@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=str)
async def test_the_environment_counts_as_for_botocore(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    await need_same(AwsConfig(), monkeypatch)


@pytest.mark.parametrize("config", SETTINGS, ids=lambda each: f"{each.region}-{each.endpoint}")
async def test_settings_count_as_for_botocore(
    config: AwsConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await need_same(config, monkeypatch)


def test_botocore_is_left_out_where_it_does_not_matter() -> None:
    assert static_access(AwsConfig(), "dynamodb") is not None
    assert static_access(HERE, "s3") is not None


def test_a_home_that_is_unknown_or_may_not_be_read_has_no_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in a container whose user has no name, or after `sudo -u`."""
    expected = static_access(HERE, "s3")
    monkeypatch.setenv("HOME", "/" + "a" * 300)  # too long: an error of stat, as EACCES
    assert static_access(HERE, "s3") == expected
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)
    assert static_access(HERE, "s3") == expected


class Source:
    """A source of temporary credentials."""

    def current(self) -> TemporaryCredentials:
        return TemporaryCredentials(Secret("delegated"), Secret("s"), Secret("t"), None)


async def test_delegated_credentials_precede_those_of_the_environment() -> None:
    config = AwsConfig(endpoint="http://localhost:9", delegated=Source())
    assert (await access(config, "s3"))[2] == "delegated"
