"""Encryption with a customer key (SSE-C), on SeaweedFS, which enforces it, and in the requests that
are sent."""

from __future__ import annotations

import base64
import pickle
from collections.abc import AsyncIterator, Mapping
from contextlib import closing
from dataclasses import replace
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest
from anyio import to_thread

from s3k_async import S3kClient
from s3k_async.backends.aws.encryption import customer_key_headers, is_customer_key
from s3k_async.backends.s3.s3_blobs import S3Blobs
from s3k_async.backends.s3.s3_wire import WireBlobs
from s3k_async.config import AwsConfig, MemoryTable, S3Bucket, Secret, Tuning, VolumeConfig
from s3k_async.errors import ConfigError, S3kError
from s3k_async.volumes import init_volume
from tests.engines.process import Engine
from tests.engines.volumes import fresh_name
from tests.proxy import Call, FaultProxy

KEY = base64.b64encode(b"k" * 32).decode()
OTHER = base64.b64encode(b"o" * 32).decode()
HEADER = "x-amz-server-side-encryption-customer-key"
SOURCE = "x-amz-copy-source-server-side-encryption-customer-key"


@pytest.fixture
async def proxy(seaweedfs: Engine) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(seaweedfs.endpoint) as proxy:
        yield proxy


@pytest.fixture
def aws(seaweedfs: Engine, proxy: FaultProxy) -> AwsConfig:
    return replace(seaweedfs.aws(), endpoint=proxy.url, customer_key=Secret(KEY))


def needs_the_key(call: Call) -> bool:
    """An object is stored, read, copied or looked at."""
    if call.path.count("/") < 2 or call.path.endswith("/") or call.method == "DELETE":
        return False
    return call.method != "POST" or call.query.rstrip("=") == "uploads"


@pytest.mark.parametrize("store", [WireBlobs, S3Blobs])
async def test_each_request_for_an_object_has_the_key(
    store: type[S3Blobs], aws: AwsConfig, proxy: FaultProxy
) -> None:
    blobs = store(fresh_name("customer"), "", aws)
    await blobs.create()
    await blobs.put("k", b"bytes")
    await blobs.copy(blobs, "k", "copy")
    upload = await blobs.start_upload("large")
    await upload.put_part(1, b"part")
    await upload.complete()
    assert [await blobs.get(key) for key in ("k", "copy", "large")] == [b"bytes", b"bytes", b"part"]
    assert await blobs.get("k", 1, 3) == b"yt"
    found = await blobs.head("large")
    assert found is not None
    assert found.size == 4
    assert await blobs.head("absent") is None
    await blobs.close()
    for call in proxy.calls:
        assert call.headers.get(HEADER) == (KEY if needs_the_key(call) else None), call
        is_copy = "x-amz-copy-source" in call.headers
        assert call.headers.get(SOURCE) == (KEY if is_copy else None)
        assert "x-amz-server-side-encryption" not in call.headers


@pytest.mark.parametrize("store", [WireBlobs, S3Blobs])
async def test_another_key_and_none(store: type[S3Blobs], aws: AwsConfig) -> None:
    bucket = fresh_name("customer")
    blobs = store(bucket, "", aws)
    await blobs.create()
    await blobs.put("k", b"bytes")
    other = store(bucket, "", replace(aws, customer_key=Secret(OTHER)))
    for read in (other.get("k"), other.head("k")):
        with pytest.raises(ConfigError, match="customer_key is another one") as raised:
            await read
        assert OTHER not in repr(raised.value)
    assert not other.can_copy_from(blobs)
    none = store(bucket, "", replace(aws, customer_key=Secret(), encryption=None))
    with pytest.raises(ConfigError, match="does not fit the setting customer_key"):
        await none.get("k")
    with pytest.raises(S3kError):
        await none.head("k")
    for each in (blobs, other, none):
        await each.close()


async def test_a_volume_with_a_customer_key(aws: AwsConfig, proxy: FaultProxy) -> None:
    """All stored objects have the key: data, log and mark. An append uploads the existing bytes
    again, since services do not copy parts with the key."""
    name = fresh_name("customer")
    tuning = Tuning(multipart_threshold=6 * 2**20, part_size=5 * 2**20)
    config = VolumeConfig(name, MemoryTable(name), S3Bucket(name, "", aws), tuning=tuning)
    await init_volume(config)
    large = bytes(7 * 2**20)
    async with S3kClient(config=config) as client:
        await client.write("/large", large)
        await client.append("/large", b"tail")
        await client.compact("/large", whole=True)
        await client.copy("/large", "/copy")
        assert await client.read("/copy") == large + b"tail"
        assert {call.headers.get(HEADER) for call in proxy.calls if needs_the_key(call)} == {KEY}
        url = await client.presign("/copy")
        assert KEY not in url
        assert url.headers[HEADER] == KEY
        assert await fetched(url, url.headers) == (200, large + b"tail")
        assert (await fetched(url, {}))[0] == 403
        assert (await fetched(url, {**url.headers, **headers_of(OTHER)}))[0] == 403
        head = await client.presign("/copy", method="HEAD")
        assert await fetched(head, head.headers, "HEAD") == (200, b"")
    others = {
        "customer_key is another one": replace(aws, customer_key=Secret(OTHER)),
        "set customer_key": pickle.loads(pickle.dumps(aws)),
    }
    for text, given in others.items():
        with pytest.raises(S3kError, match=text):
            async with S3kClient(config=replace(config, data=S3Bucket(name, "", given))):
                pass


def headers_of(key: str) -> dict[str, str]:
    return dict(customer_key_headers(AwsConfig(customer_key=Secret(key)), "GetObject"))


async def fetched(url: str, headers: Mapping[str, str], method: str = "GET") -> tuple[int, bytes]:
    """Status and body of an answer to a request without credentials."""

    def fetch() -> tuple[int, bytes]:
        host = urlsplit(url).netloc
        with closing(HTTPConnection(host, timeout=60)) as connection:
            connection.request(method, url.partition(host)[2], headers=dict(headers))
            answer = connection.getresponse()
            return answer.status, answer.read() if answer.status == 200 else b""

    return await to_thread.run_sync(fetch)


def test_the_key_is_shown_nowhere() -> None:
    """A pickle without the key records that there was one, so that nothing is written
    unencrypted."""
    aws = AwsConfig(customer_key=Secret(KEY))
    assert KEY not in repr(aws)
    assert KEY.encode() not in pickle.dumps(aws)
    assert pickle.loads(pickle.dumps(aws)) == AwsConfig(encryption="SSE-C")


@pytest.mark.parametrize(
    "key", ["", "short", base64.b64encode(b"k" * 31).decode(), "é" * 44, "*" * 44]
)
def test_what_is_no_key(key: str) -> None:
    assert not is_customer_key(key)
    assert is_customer_key(KEY)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"endpoint": "http://s3.example"}, "unencrypted connection"),
        ({"customer_key": Secret("short")}, "256 bits"),
        ({"encryption": "AES256"}, "contradicts"),
    ],
)
async def test_settings_with_which_nothing_is_sent(
    given: dict[str, object], text: str, proxy: FaultProxy, aws: AwsConfig
) -> None:
    blobs = WireBlobs("bucket", "", replace(aws, **given))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=text) as raised:
        await blobs.put("k", b"bytes")
    assert KEY not in str(raised.value)
    assert proxy.calls == []
    await blobs.close()
