"""Clients: when they are made, from what, for whom, and how they end."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import warnings
from pathlib import Path
from typing import Any

import aioboto3
import aiobotocore.session
import pytest
from aiobotocore.config import AioConfig

from s3k_async.backends.aws.session import AwsClient
from s3k_async.backends.ports.items import Key
from s3k_async.config import AwsConfig, Secret
from s3k_async.errors import (
    ClosedClientError,
    ConfigError,
    CredentialsError,
    S3kError,
    WrongLoopError,
)
from s3k_async.settings import resolve
from tests.backends.aws.places import (
    SECRET_KEY,
    SESSION_TOKEN,
    Adapter,
    Items,
    OpenBlobs,
    OpenItems,
    settings,
)
from tests.proxy import Answer, FaultProxy, json_answer

KEY = Key("p", "s")
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No AWS settings but those of the test; the folder holds the two files of profiles."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "BOTO"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return tmp_path


async def signed_region(aws: AwsConfig, session: object | None = None) -> str:
    client = AwsClient("dynamodb", aws, session)
    try:
        return await client.region()
    finally:
        await client.close()


async def test_the_region_is_the_configured_one() -> None:
    assert await signed_region(settings(NOWHERE, region="eu-west-1")) == "eu-west-1"


async def test_an_endpoint_that_nobody_gave_a_region_gets_one() -> None:
    assert await signed_region(settings(NOWHERE)) == "us-east-1"


@pytest.mark.parametrize(
    ("host", "region"),
    [
        ("s3.eu-west-1.amazonaws.com", "eu-west-1"),
        ("s3-ap-southeast-2.amazonaws.com", "ap-southeast-2"),
        ("s3.dualstack.eu-central-1.amazonaws.com", "eu-central-1"),
        ("s3-fips.us-gov-west-1.amazonaws.com:443", "us-gov-west-1"),
        ("dynamodb.sa-east-1.amazonaws.com/", "sa-east-1"),
        ("s3.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        ("bucket.vpce-1a2b-3c.s3.us-east-2.vpce.amazonaws.com", "us-east-2"),
        ("s3.amazonaws.com", "us-east-1"),
        ("s3.eu-west-1.amazonaws.com.example", "us-east-1"),
    ],
)
@pytest.mark.parametrize("is_static", [True, False])
async def test_a_host_of_aws_names_the_region(
    host: str, region: str, is_static: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if botocore determines the access."""
    if not is_static:
        monkeypatch.setattr("s3k_async.backends.aws.session.static_access", lambda *_: None)
    endpoint = f"https://{host}"
    assert await signed_region(settings(endpoint)) == region
    assert await signed_region(settings(endpoint, region="eu-west-2")) == "eu-west-2"


async def test_the_environment_names_the_region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "ap-south-1")
    assert await signed_region(settings(NOWHERE)) == "ap-south-1"
    assert await signed_region(settings(NOWHERE, region="eu-west-1")) == "eu-west-1"


async def test_the_variables_that_name_the_region_have_an_order(
    bare_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bare_environment / "config").write_text("[profile work]\nregion = ca-central-1\n")
    monkeypatch.setenv("AWS_REGION", "eu-south-1")
    assert await signed_region(settings(NOWHERE)) == "eu-south-1"
    monkeypatch.setenv("AWS_DEFAULT_REGION", "ap-south-1")
    assert await signed_region(settings(NOWHERE)) == "eu-south-1"
    assert await signed_region(settings(NOWHERE, region="eu-west-1")) == "eu-west-1"
    assert await signed_region(AwsConfig(endpoint=NOWHERE, profile="work")) == "eu-south-1"
    own = aioboto3.Session("A", "B", region_name="eu-north-1")
    assert await signed_region(AwsConfig(endpoint=NOWHERE), own) == "eu-north-1"
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    assert (
        await signed_region(AwsConfig(endpoint=NOWHERE), aioboto3.Session("A", "B")) == "eu-south-1"
    )


@pytest.mark.parametrize("part", ["table", "data", "log"])
async def test_each_part_of_a_volume_is_in_that_region(
    part: str, bare_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("S3K_CONFIG", str(bare_environment / "s3k.toml"))
    (bare_environment / "s3k.toml").write_text("")
    monkeypatch.setenv("AWS_REGION", "eu-south-1")
    plain = resolve("s3k://v", table="meta", bucket="data", endpoint=NOWHERE)
    options: dict[str, Any] = {f"{part}_region": "eu-west-1"}
    told = resolve("s3k://v", table="meta", bucket="data", endpoint=NOWHERE, **options)
    for config, region in ((plain, "eu-south-1"), (told, "eu-west-1")):
        assert await signed_region(getattr(config, part).aws) == region


async def test_without_an_endpoint_a_region_is_required() -> None:
    with pytest.raises(ConfigError, match="region"):
        await signed_region(AwsConfig(access_key_id=Secret("a"), secret_access_key=Secret("b")))


async def test_a_profile_gives_region_and_credentials(bare_environment: Path) -> None:
    (bare_environment / "config").write_text("[profile work]\nregion = ca-central-1\n")
    (bare_environment / "credentials").write_text(
        "[work]\naws_access_key_id = A\naws_secret_access_key = B\n"
    )
    assert await signed_region(AwsConfig(profile="work")) == "ca-central-1"
    with pytest.raises(ConfigError, match="play"):
        await signed_region(AwsConfig(profile="play"))


async def test_no_credentials_anywhere(dynamo_items: OpenItems, s3_blobs: OpenBlobs) -> None:
    async with (
        dynamo_items(AwsConfig(endpoint=NOWHERE)) as items,
        s3_blobs(AwsConfig(endpoint=NOWHERE)) as blobs,
    ):
        for call in (items.get(KEY), blobs.get("k")):
            with pytest.raises(CredentialsError):
                await call


async def test_half_of_the_credentials(dynamo_items: OpenItems) -> None:
    async with dynamo_items(AwsConfig(endpoint=NOWHERE, access_key_id=Secret("a"))) as items:
        with pytest.raises(CredentialsError, match="secret_access_key"):
            await items.get(KEY)


@pytest.mark.parametrize("endpoint", ["nonsense", "ftp://127.0.0.1", "http://", "http://a b"])
async def test_an_endpoint_that_is_none(endpoint: str, dynamo_items: OpenItems) -> None:
    async with dynamo_items(settings(endpoint)) as items:
        with pytest.raises(ConfigError):
            await items.get(KEY)


async def test_the_bucket_is_in_the_path_at_an_endpoint(s3_blobs: OpenBlobs) -> None:
    async with (
        FaultProxy() as proxy,
        s3_blobs(settings(proxy.url.replace("127.0.0.1", "localhost"))) as blobs,
    ):
        proxy.rule(Answer(200, b"x", {"ETag": '"e"'}))
        await blobs.get("k")
        assert proxy.calls[0].path == "/data/k"


async def test_a_session_of_the_users(adapter: Adapter) -> None:
    async with FaultProxy() as proxy:
        proxy.rule(json_answer({}))
        plain = aiobotocore.session.get_session()
        plain.set_credentials("USERKEY", "user-secret")
        plain.set_config_variable("region", "eu-north-1")
        full = aioboto3.Session("USERKEY", "user-secret", region_name="eu-north-1")
        for session in (full, plain):
            items = adapter("t", AwsConfig(endpoint=proxy.url), session)
            assert await items.get(KEY) is None
            await items.close()
            signed = proxy.calls[-1].headers["authorization"]
            assert "Credential=USERKEY/" in signed
            assert "/eu-north-1/dynamodb/" in signed


async def test_a_session_whose_defaults_would_undo_ours(adapter: Adapter) -> None:
    session = aiobotocore.session.get_session()
    session.set_default_client_config(AioConfig(user_agent_extra="mine"))
    items = adapter("t", settings(NOWHERE), session)
    with pytest.raises(ConfigError, match="default client configuration"):
        await items.get(KEY)
    await items.close()


async def test_closing_while_the_client_is_being_made() -> None:
    client = AwsClient("dynamodb", settings(NOWHERE))
    made = asyncio.create_task(client.get())
    await asyncio.sleep(0)
    await client.close()
    with pytest.raises(ClosedClientError):
        await made


async def test_a_session_that_is_none(adapter: Adapter) -> None:
    items = adapter("t", settings(NOWHERE), session=object())
    with pytest.raises(ConfigError, match="session"):
        await items.get(KEY)


async def test_a_client_is_made_once() -> None:
    client = AwsClient("dynamodb", settings(NOWHERE))
    made = await asyncio.gather(*(client.get() for _ in range(10)))
    assert len({id(one) for one in made}) == 1
    await client.close()


async def test_closing_is_idempotent_and_final(adapter: Adapter) -> None:
    items = adapter("t", settings(NOWHERE))
    await items.close()
    await items.close()
    with pytest.raises(ClosedClientError):
        await items.get(KEY)


async def test_another_live_loop_is_refused(dynamo_items: OpenItems) -> None:
    async with FaultProxy() as proxy, dynamo_items(settings(proxy.url)) as items:
        proxy.rule(json_answer({}))
        await items.get(KEY)

        def elsewhere() -> type[Exception]:
            try:
                asyncio.run(_get(items))
            except S3kError as error:
                return type(error)
            raise AssertionError("it worked")

        assert await asyncio.to_thread(elsewhere) is WrongLoopError
        assert await items.get(KEY) is None


async def _get(items: Items) -> object:
    return await items.get(KEY)


def test_a_loop_that_is_gone_is_followed_by_another(adapter: Adapter) -> None:
    items = adapter("t", settings(NOWHERE))
    for use in (_get, _get_and_close):
        with pytest.raises(S3kError, match="no connection"):
            asyncio.run(use(items))


async def test_a_forked_child_makes_its_own_client(dynamo_items: OpenItems) -> None:
    """It uses and closes its copy; the parent's connections go on."""
    async with FaultProxy() as proxy, dynamo_items(settings(proxy.url)) as items:
        proxy.rule(json_answer({}))
        await items.get(KEY)
        read, write = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            try:
                asyncio.run(_get_and_close(items))
                os.write(write, b"done")
            except Exception as error:  # noqa: BLE001  the parent shows it
                os.write(write, repr(error).encode())
            finally:
                os._exit(0)
        os.close(write)
        said = await asyncio.to_thread(os.read, read, 1000)
        await asyncio.to_thread(os.waitpid, child, 0)
        os.close(read)
        assert said == b"done"
        assert await items.get(KEY) is None
        assert proxy.count(target="GetItem") == 3


async def _get_and_close(items: Items) -> None:
    try:
        await items.get(KEY)
    finally:
        await items.close()


async def test_what_is_pickled_is_the_settings(dynamo_items: OpenItems) -> None:
    async with FaultProxy() as proxy, dynamo_items(settings(proxy.url)) as items:
        proxy.rule(json_answer({}))
        await items.get(KEY)
        again = pickle.loads(pickle.dumps(items))
        with pytest.raises(CredentialsError):
            await again.get(KEY)
        await again.close()


def test_nothing_shows_the_secrets() -> None:
    aws = settings("http://user:password@127.0.0.1:9")
    for service in ("dynamodb", "s3"):
        client = AwsClient(service, aws)
        shown = repr(client).encode() + pickle.dumps(client)
        assert SECRET_KEY.encode() not in shown
        assert SESSION_TOKEN.encode() not in shown
        assert "password" not in repr(client)


async def test_the_library_below_does_not_log_the_secrets(
    caplog: pytest.LogCaptureFixture, dynamo_items: OpenItems
) -> None:
    async with FaultProxy() as proxy, dynamo_items(settings(proxy.url)) as items:
        proxy.rule(json_answer({}))
        with caplog.at_level("INFO"):
            await items.get(KEY)
        assert SECRET_KEY not in caplog.text
        assert json.dumps(SESSION_TOKEN) not in caplog.text
