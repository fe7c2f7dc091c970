"""Credentials that a configuration without secrets finds where it arrives."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from s3k_async.config import AwsConfig, DynamoTable, LocalDirectory, S3Bucket, Secret, VolumeConfig
from s3k_async.errors import ConfigError
from s3k_async.settings import resolve, with_local_secrets
from s3k_async.volumes.connections import log_location

KEYS = {"S3K_ACCESS_KEY_ID": "the id", "S3K_SECRET_ACCESS_KEY": "hush"}
SECTION = """
[volumes.events]
table = "events"
bucket = "events"
endpoint = "http://here:1/"
access_key_id = "the id"
secret_access_key = "hush"
log_access_key_id = "the log's id"
log_secret_access_key = "hush, log"
"""

CUSTOMER_KEY = "a" * 43 + "="


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("S3K_CONFIG", raising=False)


@pytest.fixture
def config_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    file = tmp_path / "volumes.toml"
    file.write_text(SECTION)
    monkeypatch.setenv("S3K_CONFIG", str(file))
    return file


def events(name: str = "events", **aws: object) -> VolumeConfig:
    """A volume as it arrives: without secrets."""
    reached = AwsConfig(**aws)  # type: ignore[arg-type]
    return VolumeConfig(name, DynamoTable("events", reached), S3Bucket("events", "", reached))


def shipped(config: VolumeConfig) -> VolumeConfig:
    arrived: VolumeConfig = pickle.loads(pickle.dumps(config))
    return arrived


def keys_of(place: object) -> tuple[str, str]:
    assert isinstance(place, DynamoTable | S3Bucket)
    return place.aws.access_key_id.reveal(), place.aws.secret_access_key.reveal()


@pytest.mark.parametrize("name", ["events", ""])
def test_credentials_of_the_environment_count_for_every_volume(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The environment need not say where the volume is."""
    for variable, value in KEYS.items():
        monkeypatch.setenv(variable, value)
    found = with_local_secrets(events(name, endpoint="http://here:1", region="eu-west-1"))
    assert keys_of(found.table) == keys_of(found.data) == ("the id", "hush")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fs.s3a.connection.maximum", "500"),
        ("fs.s3a.endpoint.region", "eu-west-1"),
        ("fs.s3a.bucket.events.connection.maximum", "500"),
    ],
)
def test_what_else_is_known_of_a_place_keeps_no_credentials_from_it(
    config_file: Path, name: str, value: str
) -> None:
    """The driver's Hadoop configuration says how the data is reached, and the file has the
    credentials."""
    driver = resolve("s3k://events", hadoop={name: value})
    assert driver != resolve("s3k://events")
    found = with_local_secrets(shipped(driver))
    assert found == driver
    assert keys_of(found.log) == ("the log's id", "hush, log")


def test_settings_of_the_driver_stay_as_they_arrived(config_file: Path) -> None:
    found = with_local_secrets(events(endpoint="http://here:1", read_timeout=7.0))
    assert isinstance(found.data, S3Bucket)
    assert (found.data.aws.read_timeout, found.data.aws.endpoint) == (7.0, "http://here:1")
    assert keys_of(found.data) == ("the id", "hush")


def test_the_user_of_a_url_is_found_again(config_file: Path) -> None:
    config_file.write_text(
        SECTION.replace("http://here:1/", "http://me:hush@here:1/") + 'proxy = "http://me:hush@p:2"'
    )
    driver = resolve("s3k://events")
    arrived = shipped(driver)
    assert "hush" not in repr(arrived)
    assert with_local_secrets(arrived) == driver


@pytest.mark.parametrize("endpoint", [None, "http://elsewhere:1"])
def test_another_service_gets_no_credentials(config_file: Path, endpoint: str | None) -> None:
    config = events(endpoint=endpoint)
    assert with_local_secrets(config) == config


def test_credentials_that_a_place_has_are_kept(config_file: Path) -> None:
    mine = AwsConfig(
        endpoint="http://here:1", access_key_id=Secret("mine"), secret_access_key=Secret("my own")
    )
    config = replace(
        events(), table=DynamoTable("events", mine), data=S3Bucket("events", "", replace(mine))
    )
    assert with_local_secrets(config) == config
    named = events(profile="of my home")
    assert with_local_secrets(named) == named


def test_settings_that_are_wrong_are_an_error(config_file: Path) -> None:
    embedded = resolve("./directory")
    config_file.write_text("[volumes.events]\nacces_key_id = 'typo'\n")
    with pytest.raises(ConfigError, match="did you mean access_key_id"):
        with_local_secrets(events())
    assert isinstance(embedded.data, LocalDirectory)
    assert with_local_secrets(embedded) is embedded


def test_a_log_in_a_bucket_of_the_same_name_elsewhere_is_not_beside_the_data() -> None:
    elsewhere = S3Bucket("events", "", AwsConfig(endpoint="http://elsewhere:1"))
    config = replace(events(endpoint="http://here:1"), log=elsewhere)
    assert log_location(config) == elsewhere
    same = replace(elsewhere, aws=AwsConfig(endpoint="http://here:1/", max_connections=7))
    assert log_location(replace(config, log=same)) == log_location(replace(config, log=None))


def test_a_shipped_configuration_gets_its_customer_key_here(
    config_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key alone, and only if it had one before."""
    monkeypatch.setenv("S3K_CUSTOMER_KEY", CUSTOMER_KEY)
    mine = AwsConfig(endpoint="http://here:1", customer_key=Secret(CUSTOMER_KEY))
    config = replace(events(), data=S3Bucket("events", "", mine))
    shipped = pickle.loads(pickle.dumps(config))
    assert isinstance(shipped.data, S3Bucket)
    assert shipped.data.aws.encryption == "SSE-C"
    assert not shipped.data.aws.customer_key
    found = with_local_secrets(shipped).data
    assert isinstance(found, S3Bucket)
    assert found.aws.customer_key.reveal() == CUSTOMER_KEY
    plain = with_local_secrets(events(endpoint="http://here:1")).data
    assert isinstance(plain, S3Bucket)
    assert not plain.aws.customer_key
