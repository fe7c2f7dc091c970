"""Roles that AWS STS gives: moto's STS and S3, with a proxy before each that shows the requests."""

from __future__ import annotations

import pickle
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from s3k_async import S3kClient
from s3k_async.backends.s3.s3_blobs import S3Blobs
from s3k_async.backends.s3.s3_wire import WireBlobs
from s3k_async.config import AwsConfig, MemoryTable, S3Bucket, Secret, VolumeConfig
from s3k_async.errors import ConfigError, CredentialsError, S3kError
from s3k_async.volumes import init_volume
from tests.engines.process import Engine
from tests.engines.volumes import fresh_name
from tests.proxy import Answer, Call, FaultProxy

ROLE = "arn:aws:iam::123456789012:role/reader"
TOKEN = "header.made-up.signature"
DENIED = (
    "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code>"
    "<Message>not you</Message></Error></ErrorResponse>"
)


@pytest.fixture
async def sts(moto_s3: Engine) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(moto_s3.endpoint) as proxy:
        yield proxy


@pytest.fixture
async def s3(moto_s3: Engine) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(moto_s3.endpoint) as proxy:
        yield proxy


def asked(sts: FaultProxy) -> list[Mapping[str, str]]:
    """The parameters of the requests to STS."""
    return [
        {name: each[0] for name, each in parse_qs(call.body.decode()).items()} for call in sts.calls
    ]


def signer(call: Call) -> str:
    """The access key id of a signed request."""
    return call.headers["authorization"].partition("Credential=")[2].partition("/")[0]


def with_role(aws: AwsConfig, s3: FaultProxy, sts: FaultProxy, **given: Any) -> AwsConfig:
    return replace(aws, endpoint=s3.url, sts_endpoint=sts.url, role_arn=ROLE, **given)


@pytest.mark.parametrize("store", [WireBlobs, S3Blobs])
async def test_requests_have_the_credentials_of_the_role(
    store: type[S3Blobs], moto_s3: Engine, s3: FaultProxy, sts: FaultProxy
) -> None:
    own = moto_s3.aws()
    aws = with_role(own, s3, sts, external_id="shared", role_session_name="job-7")
    blobs = store(fresh_name("role"), "", replace(aws, role_duration=1800))
    await blobs.create()
    await blobs.put("k", b"bytes")
    assert await blobs.get("k") == b"bytes"
    await blobs.close()
    (request,) = asked(sts)
    wanted = {
        "Action": "AssumeRole",
        "RoleArn": ROLE,
        "ExternalId": "shared",
        "RoleSessionName": "job-7",
        "DurationSeconds": "1800",
    }
    assert {name: request.get(name) for name in wanted} == wanted
    assert signer(sts.calls[0]) == own.access_key_id.reveal()
    keys = {signer(call) for call in s3.calls}
    assert len(keys) == 1
    assert keys != {own.access_key_id.reveal()}
    assert all(call.headers.get("x-amz-security-token") for call in s3.calls)


async def test_a_web_identity_needs_no_credentials(
    moto_s3: Engine,
    s3: FaultProxy,
    sts: FaultProxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    (tmp_path / "token").write_text(TOKEN)
    none = AwsConfig(region="eu-west-1")
    aws = with_role(none, s3, sts, web_identity_token_file=str(tmp_path / "token"))
    blobs = WireBlobs(fresh_name("role"), "", aws)
    await blobs.create()
    await blobs.put("k", b"bytes")
    await blobs.close()
    (request,) = asked(sts)
    assert (request["Action"], request["WebIdentityToken"], request["RoleSessionName"]) == (
        "AssumeRoleWithWebIdentity",
        TOKEN,
        "s3k-async",
    )
    assert "authorization" not in sts.calls[0].headers
    assert all(call.headers.get("x-amz-security-token") for call in s3.calls)
    absent = replace(aws, web_identity_token_file=str(tmp_path / "absent"))
    blobs = WireBlobs("bucket", "", absent)
    with pytest.raises(ConfigError, match="web identity token cannot be read") as raised:
        await blobs.get("k")
    assert raised.value.path == str(tmp_path / "absent")
    await blobs.close()


@pytest.mark.parametrize("store", [WireBlobs, S3Blobs])
async def test_a_role_that_is_refused(
    store: type[S3Blobs], moto_s3: Engine, s3: FaultProxy, sts: FaultProxy
) -> None:
    """The error names the role, and no request goes to S3; nothing shows a secret."""
    sts.rule(Answer(403, headers={"Content-Type": "text/xml"}, body=DENIED.encode()))
    secret = "zq7-unique-secret"
    own = replace(moto_s3.aws(), secret_access_key=Secret(secret))
    blobs = store("bucket", "", with_role(own, s3, sts))
    with pytest.raises(CredentialsError, match="trust policy") as raised:
        await blobs.get("k")
    assert ROLE in str(raised.value)
    assert secret not in f"{raised.value!r} {blobs!r}"
    assert secret.encode() not in pickle.dumps(raised.value)
    assert s3.calls == []
    await blobs.close()


async def test_a_session_of_the_users_has_its_own_role(moto_s3: Engine) -> None:
    import aioboto3

    blobs = WireBlobs("bucket", "", replace(moto_s3.aws(), role_arn=ROLE), aioboto3.Session())
    with pytest.raises(ConfigError, match="role_arn"):
        await blobs.get("k")


async def test_a_volume_in_the_bucket_of_a_role(
    moto_s3: Engine, s3: FaultProxy, sts: FaultProxy
) -> None:
    """Data and log assume the role once each; what is pickled has neither key nor token."""
    name = fresh_name("role")
    aws = with_role(moto_s3.aws(), s3, sts)
    config = VolumeConfig(name, MemoryTable(name), S3Bucket(name, "", aws))
    await init_volume(config)
    sts.clear()
    s3.clear()
    async with S3kClient(config=config) as fs:
        await fs.write("/f", b"bytes")
        assert await fs.read("/f") == b"bytes"
    assert 1 <= len(sts.calls) <= 2
    own = moto_s3.aws()
    assert own.access_key_id.reveal() not in {signer(call) for call in s3.calls}
    pickled = pickle.dumps(config)
    given = {call.headers["x-amz-security-token"] for call in s3.calls}
    for secret in (own.secret_access_key.reveal(), *given):
        assert secret.encode() not in pickled
    assert ROLE.encode() in pickled


async def test_nobody_to_assume_the_role(
    s3: FaultProxy, sts: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    blobs = WireBlobs("bucket", "", with_role(AwsConfig(region="eu-west-1"), s3, sts))
    with pytest.raises(S3kError, match="no credentials to assume the role"):
        await blobs.get("k")
    await blobs.close()
    assert sts.calls == []
