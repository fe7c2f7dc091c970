"""The bucket as a thing: made in its region, recognised, somebody else's."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from s3k_async.backends.s3.s3_blobs import S3Blobs
from s3k_async.backends.s3.s3_wire import WireBlobs
from s3k_async.config import AwsConfig, Secret
from s3k_async.errors import (
    ConfigError,
    PermissionDeniedError,
    VolumeExistsError,
    VolumeNotFoundError,
)
from tests.backends.conftest import S3Way
from tests.engines.process import PATIENCE
from tests.proxy import Answer, FaultProxy, s3_error

MISSING = Answer(404)
FORBIDDEN = Answer(403)
DONE = Answer(200)


@pytest.fixture
async def proxy() -> AsyncIterator[FaultProxy]:
    async with FaultProxy() as proxy:
        yield proxy


def bucket(
    endpoint: str, region: str | None = None, name: str = "data", adapter: type[S3Blobs] = WireBlobs
) -> S3Blobs:
    aws = AwsConfig(
        region=region,
        endpoint=endpoint,
        access_key_id=Secret("a"),
        secret_access_key=Secret("b"),
        connect_timeout=PATIENCE,
        read_timeout=PATIENCE,
    )
    return adapter(name, "", aws)


@pytest.fixture
async def blobs(proxy: FaultProxy) -> AsyncIterator[S3Blobs]:
    store = bucket(proxy.url)
    yield store
    await store.close()


@pytest.mark.parametrize(("region", "constraint"), [("eu-west-1", True), ("us-east-1", False)])
async def test_a_bucket_is_made_in_its_region(
    proxy: FaultProxy, region: str, constraint: bool
) -> None:
    proxy.rule(MISSING, method="HEAD")
    proxy.rule(DONE, method="PUT")
    blobs = bucket(proxy.url, region)
    assert await blobs.create() is True
    await blobs.close()
    (request,) = (call.body for call in proxy.calls if call.method == "PUT")
    assert (b"<LocationConstraint>" + region.encode() in request) is constraint


async def test_a_bucket_of_ours(blobs: S3Blobs, proxy: FaultProxy) -> None:
    proxy.rule(DONE, method="HEAD")
    assert await blobs.exists() is True
    assert await blobs.create() is False
    assert proxy.count(method="PUT") == 0


@pytest.mark.parametrize("code", ["BucketAlreadyOwnedByYou", "BucketAlreadyExists"])
async def test_a_bucket_of_ours_that_was_made_meanwhile(
    blobs: S3Blobs, proxy: FaultProxy, code: str
) -> None:
    proxy.rule(MISSING, method="HEAD", times=1)
    proxy.rule(s3_error(code, status=409), method="PUT")
    proxy.rule(DONE, method="HEAD")
    assert await blobs.create() is False


async def test_a_bucket_of_somebody_else(blobs: S3Blobs, proxy: FaultProxy) -> None:
    proxy.rule(MISSING, method="HEAD", times=1)
    proxy.rule(s3_error("BucketAlreadyExists", status=409), method="PUT")
    proxy.rule(FORBIDDEN, method="HEAD")
    with pytest.raises(VolumeExistsError):
        await blobs.create()
    with pytest.raises(PermissionDeniedError):
        await blobs.exists()


async def test_a_bucket_without_permission(blobs: S3Blobs, proxy: FaultProxy) -> None:
    proxy.rule(FORBIDDEN)
    for call in (blobs.exists(), blobs.create()):
        with pytest.raises(PermissionDeniedError) as caught:
            await call
        assert caught.value.path == "data"


async def test_a_refusal_without_a_document_names_what_was_denied(
    proxy: FaultProxy, s3_adapter: type[S3Blobs]
) -> None:
    proxy.rule(FORBIDDEN)
    blobs = bucket(proxy.url, adapter=s3_adapter)
    for call, operation, action in (
        (blobs.now_ms(), "HeadBucket", "s3:ListBucket on the whole bucket"),
        (blobs.head("k"), "HeadObject", "s3:GetObject"),
        (blobs.get("k"), "GetObject", "its permission"),
    ):
        with pytest.raises(PermissionDeniedError) as caught:
            await call
        assert caught.value.message == (
            f"the service denied {operation} without a reason (403): grant {action}; s3k policy "
            "prints the permissions of a role"
        )
    await blobs.close()


@pytest.mark.parametrize(
    ("text", "to", "grant"),
    [
        (
            "User: u is not authorized to perform: s3:PutObject on resource: arn:aws:s3:::data/k",
            "",
            "s3:PutObject",
        ),
        ("Access Denied", " to PutObject", "its permission"),
    ],
)
async def test_a_refusal_names_operation_object_and_remedy(
    proxy: FaultProxy, s3_adapter: type[S3Blobs], text: str, to: str, grant: str
) -> None:
    proxy.rule(s3_error("AccessDenied", text, status=403))
    blobs = bucket(proxy.url, adapter=s3_adapter)
    with pytest.raises(PermissionDeniedError) as caught:
        await blobs.put("k", b"1")
    await blobs.close()
    assert caught.value.message == (
        f"the service answered AccessDenied{to}: {text}: grant {grant}; s3k policy prints the "
        "permissions of a role"
    )
    assert caught.value.path == blobs.uri("k")


@pytest.mark.parametrize("name", ["Has Spaces", "x/y", ""])
async def test_a_name_that_no_bucket_can_have(name: str, s3_adapter: type[S3Blobs]) -> None:
    blobs = bucket("http://127.0.0.1:9", name=name, adapter=s3_adapter)
    with pytest.raises(ConfigError):
        await blobs.get("k")
    await blobs.close()


async def test_a_missing_bucket_on_an_engine(s3_way: S3Way) -> None:
    blobs = s3_way.adapter("nobody-made-this", "v/", s3_way.engine.aws())
    assert await blobs.exists() is False
    for call in (blobs.put("k", b"1"), blobs.get("k"), blobs.list(), blobs.start_upload("k")):
        with pytest.raises(VolumeNotFoundError) as caught:
            await call
        assert "nobody-made-this" in str(caught.value)
    await blobs.close()


def test_the_uri_is_what_other_programs_take() -> None:
    assert bucket("http://127.0.0.1:9").uri("a b/ü.id=1") == "s3://data/a b/ü.id=1"
    below = S3Blobs("data", "vol/", AwsConfig())
    assert below.uri("k") == "s3://data/vol/k"
