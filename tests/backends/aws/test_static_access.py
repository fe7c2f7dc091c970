"""Access to services without botocore: equal to botocore's wherever it is used."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread

from s3k_async._core.runtime import SYSTEM
from s3k_async.backends.aws.credential_source import TemporaryCredentials
from s3k_async.backends.aws.endpoint import open_channel
from s3k_async.backends.aws.pooled_http import PooledHttp
from s3k_async.backends.aws.session import AwsClient
from s3k_async.backends.aws.static_access import static_access
from s3k_async.config import AwsConfig, Secret, VolumeConfig
from s3k_async.volumes import init_volume
from tests.engines.process import Engine
from tests.engines.volumes import fresh_bucket, fresh_table

KEYS = AwsConfig(access_key_id=Secret("A"), secret_access_key=Secret("B"))
HERE = replace(KEYS, endpoint="http://127.0.0.1:9")
IN_ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "E", "AWS_SECRET_ACCESS_KEY": "F", "AWS_SESSION_TOKEN": "T"}


class Delegated:
    """A source of credentials."""

    def current(self) -> TemporaryCredentials:
        return TemporaryCredentials(Secret("K"), Secret("S"), Secret("T"), None)


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No settings of AWS and no proxies; the folder has no file of profiles."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "BOTO", "REQUESTS_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return tmp_path


@pytest.mark.parametrize(
    ("config", "variables"),
    [
        (HERE, {}),
        (replace(HERE, region="eu-west-1", session_token=Secret("T")), {}),
        (replace(HERE, endpoint="http://localhost:9/below"), {"AWS_DEFAULT_REGION": "sa-east-1"}),
        (AwsConfig(endpoint="http://[::1]:9"), IN_ENVIRONMENT | {"AWS_REGION": "eu-south-1"}),
        (replace(KEYS, region="us-east-1"), {}),
        (replace(KEYS, region="mx-central-1"), {}),
        (AwsConfig(), IN_ENVIRONMENT | {"AWS_REGION": "eu-west-2", "AWS_DEFAULT_REGION": "x"}),
    ],
)
@pytest.mark.parametrize("service", ["dynamodb", "s3"])
async def test_it_is_what_botocore_determines(
    config: AwsConfig, variables: dict[str, str], service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    client = AwsClient(service, config)
    try:
        ours = await client.channel()
        assert isinstance(ours.http, PooledHttp)
        theirs = await open_channel(await client.get(), SYSTEM)
        assert (ours.endpoint, ours.region) == (theirs.endpoint, theirs.region)
        assert await ours.credentials.get() == await theirs.credentials.get()
        assert ours.credentials.method == theirs.credentials.method
    finally:
        await client.close()


@pytest.mark.parametrize(
    "config",
    [
        AwsConfig(endpoint=HERE.endpoint),
        replace(HERE, secret_access_key=Secret()),
        replace(HERE, profile="work"),
        replace(HERE, delegated=Delegated()),
        replace(HERE, role_arn="arn:aws:iam::111122223333:role/x"),
        replace(HERE, proxy="http://127.0.0.1:8"),
        replace(HERE, endpoint="http://user:secret@127.0.0.1:9"),
        replace(HERE, region="eu west"),
        replace(KEYS, region="cn-north-1"),
        replace(KEYS, region="us-gov-west-1"),
        KEYS,
    ],
)
def test_settings_that_are_left_to_botocore(config: AwsConfig) -> None:
    assert static_access(config, "s3") is None


@pytest.mark.parametrize(
    "name",
    [
        "AWS_CREDENTIAL_EXPIRATION",
        "AWS_ENDPOINT_URL_S3",
        "AWS_PROFILE",
        "AWS_USE_FIPS_ENDPOINT",
        "HTTP_PROXY",
        "http_proxy",
    ],
)
def test_variables_that_are_left_to_botocore(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert static_access(HERE, "s3") is not None
    monkeypatch.setenv(name, "http://127.0.0.1:7")
    assert static_access(HERE, "s3") is None


@pytest.mark.parametrize("name", ["config", "credentials"])
def test_a_shared_file_is_left_to_botocore(name: str, bare_environment: Path) -> None:
    (bare_environment / name).write_text("[default]\nregion = ca-central-1\n")
    assert static_access(HERE, "s3") is None


def test_the_trusted_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    def authorities(config: AwsConfig) -> str | bool | None:
        access = static_access(config, "s3")
        return None if access is None else access.authorities

    assert authorities(HERE) is True
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/requests.pem")
    assert authorities(HERE) == "/requests.pem"
    monkeypatch.setenv("AWS_CA_BUNDLE", "/aws.pem")
    assert authorities(HERE) == "/aws.pem"
    assert authorities(replace(HERE, verify_tls=False)) is False
    assert authorities(replace(HERE, verify_tls=False, ca_bundle="/own.pem")) == "/own.pem"


VOLUME = """
import asyncio, sys
from s3k_async import S3kClient

async def use():
    async with S3kClient("s3k://v") as fs:
        await fs.write("/d/f", b"data")
        assert await fs.read("/d/f") == b"data"
        assert [entry.path async for entry in fs.list("/d")] == ["/d/f"]
        await fs.delete("/d/f")

asyncio.run(use())
heavy = ("aioboto3", "aiobotocore", "aiohttp", "boto3", "botocore")
print([name for name in heavy if name in sys.modules])
"""


async def test_a_volume_with_static_keys_needs_no_botocore(
    dynoxide: Engine, moto_s3: Engine, bare_environment: Path
) -> None:
    """With the keys in the configuration file, and with those in the environment."""
    keys = {"access_key_id": dynoxide.access_key, "secret_access_key": dynoxide.secret_key}
    file = bare_environment / "s3k.toml"
    with fresh_table(dynoxide) as table, fresh_bucket(moto_s3) as bucket:
        await init_volume(VolumeConfig("v", table, bucket))
        settings = {
            "table": table.name,
            "bucket": bucket.bucket,
            "table_endpoint": dynoxide.endpoint,
            "data_endpoint": moto_s3.endpoint,
        }
        variables = {f"AWS_{name.upper()}": value for name, value in keys.items()}
        for written, given in ((settings | keys, {}), (settings, variables)):
            lines = ["[volumes.v]", *(f'{name} = "{value}"' for name, value in written.items())]
            file.write_text("\n".join(lines))
            done = await to_thread.run_sync(
                partial(
                    subprocess.run,
                    [sys.executable, "-c", VOLUME],
                    env={**os.environ, **given, "S3K_CONFIG": str(file)},
                    capture_output=True,
                    text=True,
                )
            )
            assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")
