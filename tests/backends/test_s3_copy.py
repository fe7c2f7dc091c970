"""Server-side copies: who can copy from whom, when in parts, and what an error looks like."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import count, pairwise

import pytest

from s3k_async.backends.memory.memory_blobs import MemoryBlobs
from s3k_async.backends.s3.s3_blobs import S3Blobs
from s3k_async.config import AwsConfig, Secret
from s3k_async.errors import BlobNotFoundError, ResponseLostError, ServiceError, UnsupportedError
from tests.backends.conftest import S3Way
from tests.engines.process import PATIENCE, Engine
from tests.engines.volumes import fresh_name
from tests.proxy import Answer, Call, FaultProxy, s3_error, xml_answer

MIB = 1024 * 1024
_buckets = count()


@pytest.fixture
def engine(s3_way: S3Way) -> Engine:
    return s3_way.engine


@pytest.fixture
async def proxy(engine: Engine) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(engine.endpoint) as proxy:
        yield proxy


@pytest.fixture
async def blobs(proxy: FaultProxy, engine: Engine, s3_way: S3Way) -> AsyncIterator[S3Blobs]:
    aws = replace(engine.aws(), endpoint=proxy.url)
    store = s3_way.adapter(fresh_name("copy"), "v/", aws)
    await store.create()
    yield store
    proxy.clear()
    await store.drop()
    await store.close()


def is_copy(call: Call) -> bool:
    return "x-amz-copy-source" in call.headers


def part_ranges(proxy: FaultProxy) -> list[str]:
    found = [
        call.headers["x-amz-copy-source-range"]
        for call in proxy.calls
        if "partNumber" in call.query
    ]
    return sorted(found, key=lambda text: int(text.removeprefix("bytes=").split("-")[0]))


def head_of(size: int) -> Answer:
    return Answer(200, headers={"Content-Length": str(size), "ETag": '"e"'})


async def test_up_to_the_limit_one_request_copies(blobs: S3Blobs, proxy: FaultProxy) -> None:
    blobs.copy_limit = 1000
    await blobs.put("a", b"x" * 1000)
    info = await blobs.copy(blobs, "a", "b")
    assert info.size == 1000
    assert info.etag == (await blobs.head("b")).etag  # type: ignore[union-attr]
    assert await blobs.get("b") == b"x" * 1000
    assert proxy.count(when=is_copy) == 1
    assert part_ranges(proxy) == []


async def test_above_the_limit_parts_are_copied(blobs: S3Blobs, proxy: FaultProxy) -> None:
    blobs.copy_limit = blobs.copy_part = 5 * MIB
    whole = random.Random(1).randbytes(10 * MIB + 17)
    await blobs.put("a", whole)
    info = await blobs.copy(blobs, "a", "b")
    assert info.size == len(whole)
    assert await blobs.get("b") == whole
    assert part_ranges(proxy) == [
        f"bytes=0-{5 * MIB - 1}",
        f"bytes={5 * MIB}-{10 * MIB - 1}",
        f"bytes={10 * MIB}-{10 * MIB + 16}",
    ]


async def test_a_part_that_fails_aborts_the_copy(blobs: S3Blobs, proxy: FaultProxy) -> None:
    blobs.copy_limit = blobs.copy_part = 5 * MIB
    await blobs.put("a", b"x" * (5 * MIB + 1))
    proxy.rule(s3_error("EntityTooSmall", status=400), query="partNumber=2")
    with pytest.raises(ServiceError, match="EntityTooSmall"):
        await blobs.copy(blobs, "a", "b")
    assert proxy.count(method="DELETE", query="uploadId") == 1
    assert await blobs.head("b") is None


async def test_a_copy_that_answers_200_and_means_an_error(
    blobs: S3Blobs, proxy: FaultProxy
) -> None:
    await blobs.put("a", b"x")
    proxy.rule(
        xml_answer("<Error><Code>InternalError</Code><Message>late</Message></Error>"), when=is_copy
    )
    with pytest.raises(ResponseLostError):
        await blobs.copy(blobs, "a", "b")


async def test_a_source_that_is_not_there(blobs: S3Blobs) -> None:
    with pytest.raises(BlobNotFoundError) as caught:
        await blobs.copy(blobs, "a", "b")
    assert caught.value.path == blobs.uri("a")


async def test_a_source_that_vanishes_meanwhile(blobs: S3Blobs, proxy: FaultProxy) -> None:
    proxy.rule(head_of(5), method="HEAD")
    with pytest.raises(BlobNotFoundError):
        await blobs.copy(blobs, "a", "b")


async def test_between_prefixes_and_buckets(blobs: S3Blobs, proxy: FaultProxy) -> None:
    aws = blobs._service
    other = type(blobs)(fresh_name("copy"), "", aws)
    await other.create()
    await blobs.put("a.id=1", b"x")
    assert other.can_copy_from(blobs)
    await other.copy(blobs, "a.id=1", "b")
    assert await other.get("b") == b"x"
    await other.drop()
    await other.close()


GIB = 1024 * MIB


@pytest.mark.parametrize(
    ("size", "part", "parts"),
    [
        (5 * GIB, 512 * MIB, None),
        (5 * GIB + 1, 512 * MIB, 11),
        (20 * GIB, 512 * MIB, 40),
        (6 * GIB, 1, 20),
    ],
)
async def test_five_gibibytes_is_the_limit(
    monkeypatch: pytest.MonkeyPatch,
    s3_adapter: type[S3Blobs],
    size: int,
    part: int,
    parts: int | None,
) -> None:
    """What is sent for objects of such sizes, without the objects. The last: no more parts than
    there may be."""
    monkeypatch.setattr("s3k_async.backends.s3.s3_blobs._MAX_PARTS", 10_000 if part > 1 else 20)
    async with FaultProxy() as proxy:
        aws = AwsConfig(
            endpoint=proxy.url,
            access_key_id=Secret("a"),
            secret_access_key=Secret("b"),
            connect_timeout=PATIENCE,
            read_timeout=PATIENCE,
        )
        blobs = s3_adapter("data", "", aws)
        blobs.copy_part = part
        proxy.rule(head_of(size), method="HEAD")
        started = (
            "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"
        )
        proxy.rule(xml_answer(started), method="POST", query="uploads")
        copied = "<ETag>&quot;p&quot;</ETag>"
        proxy.rule(xml_answer(f"<CopyPartResult>{copied}</CopyPartResult>"), query="partNumber")
        completed = f"<CompleteMultipartUploadResult>{copied}</CompleteMultipartUploadResult>"
        proxy.rule(xml_answer(completed), method="POST", query="uploadId")
        proxy.rule(xml_answer(f"<CopyObjectResult>{copied}</CopyObjectResult>"), method="PUT")
        assert (await blobs.copy(blobs, "a", "b")).size == size
        await blobs.close()
    ranges = part_ranges(proxy)
    assert len(ranges) == (parts or 0)
    if parts:
        assert ranges[-1].endswith(f"-{size - 1}")
        starts_and_ends = [
            tuple(map(int, text.removeprefix("bytes=").split("-"))) for text in ranges
        ]
        assert all(one[1] + 1 == two[0] for one, two in pairwise(starts_and_ends))


AWS = AwsConfig(region="eu-west-1", access_key_id=Secret("A"), secret_access_key=Secret("B"))


@pytest.mark.parametrize(
    ("other", "can"),
    [
        (AWS, True),
        (replace(AWS, region="us-east-1"), True),
        (replace(AWS, region="cn-north-1"), False),
        (replace(AWS, region="us-gov-west-1"), False),
        (replace(AWS, endpoint="http://127.0.0.1:1"), False),
        (replace(AWS, access_key_id=Secret("C")), False),
        (replace(AWS, session_token=Secret("t")), False),
        (replace(AWS, profile="other"), False),
        (replace(AWS, max_connections=3), True),
    ],
)
def test_who_can_copy_from_whom(other: AwsConfig, can: bool, s3_adapter: type[S3Blobs]) -> None:
    here, there = S3Blobs("a", "", AWS), s3_adapter("b", "x/", other)
    assert here.can_copy_from(there) is can
    assert there.can_copy_from(here) is can


async def test_other_kinds_of_store_cannot_be_copied_from(s3_adapter: type[S3Blobs]) -> None:
    blobs = s3_adapter("a", "", AWS)
    assert not blobs.can_copy_from(MemoryBlobs("m"))
    with pytest.raises(UnsupportedError):
        await blobs.copy(MemoryBlobs("m"), "a", "b")
