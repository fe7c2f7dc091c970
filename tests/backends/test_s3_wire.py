"""Requests to S3 that we sign ourselves: where they go, what they carry, which answers are
believed."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import pickle
import zlib
from collections.abc import AsyncIterator
from dataclasses import replace
from urllib.parse import quote, urlsplit

import pytest

from s3k_async._core.retry import RetryPolicy
from s3k_async._core.runtime import SYSTEM
from s3k_async.backends.retrying.retrying_blobs import RetryingBlobs
from s3k_async.backends.s3.s3_wire import WireBlobs
from s3k_async.config import AwsConfig, Secret
from s3k_async.errors import (
    BlobChangedError,
    BlobNotFoundError,
    ConfigError,
    ResponseLostError,
    ThrottledError,
    UnsupportedError,
)
from tests.engines.process import PATIENCE, Engine
from tests.engines.volumes import fresh_name
from tests.proxy import LOSE_ANSWER, Answer, Call, FaultProxy, Truncate, s3_error, xml_answer

AWS = AwsConfig(
    region="eu-west-1",
    access_key_id=Secret("AKIDEXAMPLE"),
    secret_access_key=Secret("made-up"),
    connect_timeout=PATIENCE,
    read_timeout=PATIENCE,
)
FAST = RetryPolicy(attempts=4, base=0.0, cap=0.0)
TAG = '"e"'


@pytest.fixture
async def proxy() -> AsyncIterator[FaultProxy]:
    async with FaultProxy() as proxy:
        yield proxy


@pytest.fixture
async def blobs(proxy: FaultProxy) -> AsyncIterator[WireBlobs]:
    store = WireBlobs("data", "p/", replace(AWS, endpoint=proxy.url))
    yield store
    await store.close()


def by_botocore(call: Call) -> bool:
    return "Botocore" in call.headers["user-agent"]


@pytest.mark.parametrize(
    ("name", "prefix", "path"),
    [
        ("plain-bucket", "plain-bucket.", "/"),
        ("with.dots", "", "/with.dots/"),
        ("With_Capitals", "", "/With_Capitals/"),
        ("x" * 63, "x" * 63 + ".", "/"),
        ("x" * 64, "", f"/{'x' * 64}/"),
    ],
)
async def test_at_aws_a_bucket_has_its_own_host(name: str, prefix: str, path: str) -> None:
    blobs = WireBlobs(name, "", AWS)
    door = await blobs._find()
    assert (door.wire._prefix, door.path) == (prefix, path)
    await blobs.close()


async def test_an_endpoint_of_the_environment_takes_the_path(
    monkeypatch: pytest.MonkeyPatch, proxy: FaultProxy
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.url)
    proxy.rule(Answer(200, b"x", {"ETag": '"e"'}))
    blobs = WireBlobs("data", "", AWS)
    assert await blobs.get("k") == b"x"
    assert proxy.calls[0].path == "/data/k"
    await blobs.close()


async def test_an_endpoint_with_a_path(proxy: FaultProxy) -> None:
    proxy.rule(Answer(200, b"x", {"ETag": '"e"'}))
    blobs = WireBlobs("data", "", replace(AWS, endpoint=f"{proxy.url}/s3/"))
    assert await blobs.get("k") == b"x"
    assert proxy.calls[0].path == "/s3/data/k"
    await blobs.close()


async def test_the_payload_is_signed_and_has_a_checksum(
    blobs: WireBlobs, proxy: FaultProxy
) -> None:
    proxy.rule(Answer(200, headers={"ETag": '"e"'}))
    for body in (b"", b"x" * 10, bytearray(b"y" * 300_000), memoryview(b"z" * 10)[2:5]):
        await blobs.put("k", body)
        call = proxy.calls[-1]
        assert call.body == bytes(body)
        assert call.headers["x-amz-content-sha256"] == hashlib.sha256(body).hexdigest()
        assert base64.b64decode(call.headers["x-amz-checksum-crc32"]) == zlib.crc32(body).to_bytes(
            4
        )
    assert not any(map(by_botocore, proxy.calls))


@pytest.mark.parametrize("cut", [0, 1, 100_000])
async def test_a_put_that_breaks_off_leaves_nothing_on_an_engine(
    seaweedfs: Engine, cut: int
) -> None:
    """Without a checksum SeaweedFS keeps an empty object, which a creation that is sent again would
    run into."""
    body = b"x" * 200_000
    blobs = WireBlobs(fresh_name("cut"), "", seaweedfs.aws())
    await blobs.create()
    async with FaultProxy() as proxy:
        there = WireBlobs(blobs.bucket, "", replace(seaweedfs.aws(), endpoint=proxy.url))
        proxy.rule(Answer(200, headers={"ETag": '"e"'}))
        await there.put("k", body)
        await there.close()
    (call,) = proxy.calls
    engine = urlsplit(seaweedfs.endpoint)
    lines = [
        f"PUT {call.raw_path} HTTP/1.1",
        *(f"{name}: {value}" for name, value in call.headers.items()),
    ]
    reader, writer = await asyncio.open_connection(engine.hostname, engine.port)
    writer.write("\r\n".join([*lines, "", ""]).encode() + body[:cut])
    await writer.drain()
    writer.write_eof()
    await reader.read()
    writer.close()
    assert await blobs.head("k") is None
    await blobs.put("k", body, if_absent=True)
    assert await blobs.get("k") == body
    await blobs.close()


async def test_an_engine_refuses_a_body_that_was_damaged(seaweedfs: Engine) -> None:
    blobs = WireBlobs(fresh_name("damaged"), "", seaweedfs.aws())
    await blobs.create()
    wire, path = await blobs._find()
    checksum = base64.b64encode(zlib.crc32(b"whole").to_bytes(4)).decode()
    answer = await wire.send("PUT", path + "k", "", [("x-amz-checksum-crc32", checksum)], b"WHOLE")
    assert answer.status == 400
    assert await blobs.head("k") is None
    await blobs.close()


async def test_every_character_of_a_key_is_encoded(blobs: WireBlobs, proxy: FaultProxy) -> None:
    """Each byte of its UTF-8 form (RFC 3986, section 2.1) but those that S3 signs as they are."""
    proxy.rule(Answer(404))
    key = "".join(map(chr, range(1, 300))) + "/22.id=00/€𐍈"
    assert await blobs.head(key) is None
    assert proxy.calls[-1].raw_path == f"/data/p/{quote(key)}"


async def test_a_part_is_signed_and_has_no_checksum(blobs: WireBlobs, proxy: FaultProxy) -> None:
    """S3 refuses checksums of parts of an upload that was begun without one."""
    proxy.rule(
        xml_answer(
            "<InitiateMultipartUploadResult><UploadId>u/+=</UploadId></InitiateMultipartUploadResult>"
        )
    )
    upload = await blobs.start_upload("k")
    proxy.clear()
    proxy.rule(Answer(200, headers={"ETag": '"p"'}), times=1)
    proxy.rule(Answer(200))
    body = bytes(2_000_000)
    await upload.put_part(3, memoryview(body))
    call = proxy.calls[-1]
    assert call.query == "partNumber=3&uploadId=u%2F%2B%3D"
    assert call.body == body
    assert call.headers["x-amz-content-sha256"] == hashlib.sha256(body).hexdigest()
    assert not any(name.startswith("x-amz-checksum") for name in call.headers)
    assert call.headers["expect"] == "100-continue"
    with pytest.raises(ResponseLostError):
        await upload.put_part(4, b"")


async def test_conditions_and_ranges_are_headers(blobs: WireBlobs, proxy: FaultProxy) -> None:
    proxy.rule(Answer(206, b"cd", {"ETag": TAG, "Content-Range": "bytes 2-3/9"}), method="GET")
    proxy.rule(Answer(200, headers={"ETag": '"e"'}))
    await blobs.put("k", b"1", if_absent=True)
    await blobs.put("k", b"1", if_match="abc-2")
    assert await blobs.get("k", 2, 4) == b"cd"
    assert [call.headers.get("if-none-match") for call in proxy.calls] == ["*", None, None]
    assert [call.headers.get("if-match") for call in proxy.calls] == [None, '"abc-2"', None]
    assert proxy.calls[2].headers["range"] == "bytes=2-3"


@pytest.mark.parametrize(
    ("body", "covered"),
    [
        (b"cd", None),
        (b"cd", "bytes 3-4/9"),
        (b"cd", "bytes 2-4/9"),
        (b"c", "bytes 2-3/9"),
        (b"cd", "bytes 2-3"),
        (b"cd", "items 2-3/9"),
    ],
)
async def test_another_range_than_was_asked_for(
    blobs: WireBlobs, proxy: FaultProxy, body: bytes, covered: str | None
) -> None:
    proxy.rule(
        Answer(206, body, {"ETag": TAG, "Content-Range": covered} if covered else {"ETag": TAG})
    )
    with pytest.raises(ResponseLostError) as caught:
        await blobs.get("k", 2, 4)
    assert caught.value.path == "s3://data/p/k"
    with pytest.raises(ResponseLostError) as caught:
        await blobs.get_into("k", 2, memoryview(bytearray(2)))
    assert caught.value.path == "s3://data/p/k"


@pytest.mark.parametrize(
    ("body", "covered"), [(b"cdef", "bytes 2-5/9"), (b"", "bytes 2-3/9"), (b"cd", "bytes 0-1/9")]
)
async def test_what_is_no_answer_for_a_buffer(
    blobs: WireBlobs, proxy: FaultProxy, body: bytes, covered: str
) -> None:
    proxy.rule(Answer(206, body, {"ETag": TAG, "Content-Range": covered}))
    with pytest.raises(ResponseLostError):
        await blobs.get_into("k", 2, memoryview(bytearray(2)))


async def test_a_whole_blob_in_place_of_a_range_for_a_buffer(
    blobs: WireBlobs, proxy: FaultProxy
) -> None:
    proxy.rule(Answer(200, b"abcdef", {"ETag": TAG}))
    buffer = bytearray(b"???")
    assert await blobs.get_into("k", 2, memoryview(buffer)) == 3
    assert buffer == b"cde"
    with pytest.raises(BlobChangedError):
        await blobs.get_into("k", 2, memoryview(buffer), if_size=7)


async def test_a_range_in_a_buffer_of_another_version(blobs: WireBlobs, proxy: FaultProxy) -> None:
    proxy.rule(Answer(206, b"cd", {"ETag": TAG, "Content-Range": "bytes 2-3/9"}))
    with pytest.raises(BlobChangedError):
        await blobs.get_into("k", 2, memoryview(bytearray(2)), if_match="another")
    with pytest.raises(BlobChangedError):
        await blobs.get_into("k", 2, memoryview(bytearray(2)), if_size=8)


async def test_the_end_of_a_blob_cuts_a_range(blobs: WireBlobs, proxy: FaultProxy) -> None:
    proxy.rule(Answer(206, b"cd", {"ETag": TAG, "Content-Range": "bytes 2-3/4"}))
    assert await blobs.get("k", 2, 400) == b"cd"
    assert await blobs.get("k", 2) == b"cd"


async def test_a_page_that_is_no_listing(blobs: WireBlobs, proxy: FaultProxy) -> None:
    for body in (
        "<html></html>",
        "<ListBucketResult>",
        "",
        "<ListBucketResult><Contents/></ListBucketResult>",
    ):
        proxy.clear()
        proxy.rule(xml_answer(body))
        with pytest.raises(ResponseLostError) as caught:
            await blobs.list()
        assert caught.value.path == "s3://data/p/"


async def test_deletions_carry_the_digest_that_the_service_demands(
    blobs: WireBlobs, proxy: FaultProxy
) -> None:
    proxy.rule(xml_answer("<DeleteResult/>"))
    assert await blobs.delete_many(["a<b>&", "tab\t"]) == []
    (call,) = proxy.calls
    assert call.headers["content-md5"]
    assert b"<Key>p/a&lt;b&gt;&amp;</Key>" in call.body
    assert b"<Key>p/tab&#9;</Key>" in call.body


@pytest.mark.parametrize(
    "moved",
    [
        s3_error("PermanentRedirect", status=301),
        s3_error("TemporaryRedirect", status=307),
        s3_error("AuthorizationHeaderMalformed", status=400),
    ],
)
async def test_a_bucket_of_another_region_is_left_to_the_reference(
    blobs: WireBlobs, proxy: FaultProxy, moved: Answer, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.rule(moved, times=1)
    proxy.rule(Answer(200, headers={"ETag": '"e"'}), method="PUT")
    proxy.rule(Answer(200, b"x", {"ETag": '"e"'}))
    assert await blobs.get("k") == b"x"
    assert (await blobs.put("k", b"x")).etag == "e"
    assert [by_botocore(call) for call in proxy.calls] == [False, True, True]
    assert "another region" in caplog.text


async def test_a_refused_head_is_asked_again_by_the_reference_only_once(
    blobs: WireBlobs, proxy: FaultProxy
) -> None:
    """It has no body that tells why: another region, or credentials that expired."""
    proxy.rule(Answer(400), method="HEAD", times=1)
    proxy.rule(Answer(200, b"x", {"ETag": '"e"'}))
    for _ in range(2):
        assert await blobs.head("k") is not None
    assert [by_botocore(call) for call in proxy.calls] == [False, True, False]


@pytest.mark.parametrize(
    "name", ["x--euw1-az1--x-s3", "arn:aws:s3:eu-west-1:111122223333:accesspoint/a"]
)
async def test_buckets_of_other_kinds_are_left_to_the_reference(name: str) -> None:
    assert WireBlobs(name, "", AWS)._route.by_reference


@pytest.mark.parametrize(
    ("endpoint", "start"),
    [
        (None, "https://data.s3.eu-west-1.amazonaws.com/p/k%C3%A9?X-Amz-Algorithm="),
        ("http://h:9000/s3", "http://h:9000/s3/data/p/k%C3%A9?X-Amz-Algorithm="),
    ],
)
async def test_a_presigned_url_leads_to_the_host_of_the_region(
    endpoint: str | None, start: str
) -> None:
    blobs = WireBlobs("data", "p/", replace(AWS, endpoint=endpoint))
    url = await blobs.presign("ké", 60, "GET")
    assert url.startswith(start)
    assert "%2Feu-west-1%2Fs3%2Faws4_request&" in url
    assert "request-payer" not in url
    assert AWS.secret_access_key.reveal() not in url
    await blobs.close()


async def test_a_requester_who_pays_signs_that() -> None:
    blobs = WireBlobs("data", "", replace(AWS, requester_pays=True))
    signed = (await blobs.presign("k", 60, "GET")).partition("&X-Amz-Signature=")[0]
    assert signed.endswith("&x-amz-request-payer=requester")
    await blobs.close()


@pytest.mark.parametrize(
    "name", ["x--euw1-az1--x-s3", "arn:aws:s3:eu-west-1:111122223333:accesspoint/a"]
)
async def test_urls_of_buckets_of_other_kinds_are_not_signed(name: str) -> None:
    blobs = WireBlobs(name, "", AWS)
    with pytest.raises(UnsupportedError, match="no URLs are signed"):
        await blobs.presign("k", 60, "GET")
    await blobs.close()


async def test_throttling_is_told_and_retried(blobs: WireBlobs, proxy: FaultProxy) -> None:
    proxy.rule(s3_error("SlowDown", status=503), times=2)
    proxy.rule(Answer(200, b"x", {"ETag": '"e"'}))
    with pytest.raises(ThrottledError):
        await blobs.get("k")
    assert await RetryingBlobs(blobs, FAST, SYSTEM).get("k") == b"x"
    assert len(proxy.calls) == 3


async def test_a_cut_body_is_asked_for_again(seaweedfs: Engine) -> None:
    async with FaultProxy(seaweedfs.endpoint) as proxy:
        blobs = WireBlobs(fresh_name("cut"), "", replace(seaweedfs.aws(), endpoint=proxy.url))
        await blobs.create()
        await blobs.put("k", b"x" * 100_000)
        proxy.rule(Truncate(60_000), method="GET", times=2)
        assert await RetryingBlobs(blobs, FAST, SYSTEM).get("k", 10, 90_000) == b"x" * 89_990
        buffer = bytearray(90_010)
        proxy.rule(Truncate(60_000), method="GET", times=2)
        filled = RetryingBlobs(blobs, FAST, SYSTEM).get_into("k", 10, memoryview(buffer)[10:])
        assert await filled == 89_990 + 10
        assert buffer == bytes(10) + b"x" * 90_000
        proxy.rule(LOSE_ANSWER, method="PUT", times=1)
        assert (await RetryingBlobs(blobs, FAST, SYSTEM).put("m", b"y", if_absent=True)).size == 1
        proxy.rule(LOSE_ANSWER, method="DELETE", times=1)
        await RetryingBlobs(blobs, FAST, SYSTEM).delete("m")
        with pytest.raises(BlobNotFoundError):
            await blobs.get("m")
        await blobs.close()


async def test_a_pickle_is_its_settings_without_secrets() -> None:
    blobs = WireBlobs("data", "p/", AWS)
    stored = pickle.dumps(blobs)
    assert b"made-up" not in stored
    assert isinstance(pickle.loads(stored), WireBlobs)
    assert "made-up" not in repr(blobs)


async def test_settings_that_make_no_client() -> None:
    blobs = WireBlobs("data", "", replace(AWS, endpoint="gopher://x"))
    with pytest.raises(ConfigError):
        await blobs.get("k")
