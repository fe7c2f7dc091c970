"""Encryption, storage class and payer that the settings ask for: every request that stores an
object says so, or none is sent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from s3k_async import S3kClient
from s3k_async.backends.ports.pagination import list_all
from s3k_async.backends.s3.s3_blobs import S3Blobs
from s3k_async.backends.s3.s3_wire import WireBlobs
from s3k_async.config import (
    AwsConfig,
    MemoryTable,
    S3Bucket,
    Secret,
    StorageClass,
    Tuning,
    VolumeConfig,
)
from s3k_async.errors import ConfigError
from s3k_async.volumes import init_volume, open_volume
from tests.engines.process import PATIENCE, Engine
from tests.engines.volumes import fresh_name
from tests.proxy import Answer, Call, FaultProxy, xml_answer

AWS = AwsConfig(
    region="eu-west-1",
    access_key_id=Secret("AKIDEXAMPLE"),
    secret_access_key=Secret("made-up"),
    connect_timeout=PATIENCE,
    read_timeout=PATIENCE,
)
METHOD = "x-amz-server-side-encryption"
KEY = "x-amz-server-side-encryption-aws-kms-key-id"
XML = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
COPIED = f"<CopyObjectResult {XML}><ETag>&quot;e&quot;</ETag></CopyObjectResult>"
LISTED = f"<ListBucketResult {XML}><IsTruncated>false</IsTruncated></ListBucketResult>"
DELETED = f"<DeleteResult {XML}></DeleteResult>"
BEGUN = (
    f"<InitiateMultipartUploadResult {XML}><UploadId>u</UploadId></InitiateMultipartUploadResult>"
)


@pytest.fixture
async def proxy() -> AsyncIterator[FaultProxy]:
    async with FaultProxy() as proxy:
        yield proxy


def stores_an_object(call: Call) -> bool:
    """Parts of an upload are encrypted as its beginning said."""
    if call.method == "POST":
        return call.query.rstrip("=") == "uploads"
    return call.method == "PUT" and call.path.count("/") > 1 and "partNumber" not in call.query


@pytest.mark.parametrize("store", [WireBlobs, S3Blobs])
@pytest.mark.parametrize(
    ("encryption", "kms_key"),
    [
        ("AES256", None),
        ("aws:kms", None),
        ("aws:kms", "alias/mine"),
        ("aws:kms:dsse", "k"),
        (None, None),
    ],
)
async def test_what_is_stored_says_how_it_is_encrypted(
    store: type[S3Blobs], encryption: str | None, kms_key: str | None, proxy: FaultProxy
) -> None:
    aws = replace(AWS, endpoint=proxy.url, encryption=encryption, kms_key=kms_key)
    blobs = store("data", "", aws)
    proxy.rule(xml_answer(BEGUN), method="POST")
    proxy.rule(xml_answer(COPIED), when=lambda call: "x-amz-copy-source" in call.headers)
    proxy.rule(Answer(200, headers={"ETag": '"e"', "Content-Length": "0"}))
    await blobs.put("k", b"bytes")
    await blobs.copy(blobs, "k", "copy")
    upload = await blobs.start_upload("large")
    await upload.put_part(1, b"part")
    await blobs.close()
    stored = [call for call in proxy.calls if stores_an_object(call)]
    assert len(stored) == 3
    for call in stored:
        assert (call.headers.get(METHOD), call.headers.get(KEY)) == (encryption, kms_key)
        assert (METHOD in call.headers["authorization"]) == (encryption is not None)
    others = [call for call in proxy.calls if not stores_an_object(call)]
    assert others
    assert not any(METHOD in call.headers for call in others)


@pytest.mark.parametrize("store", [WireBlobs, S3Blobs])
@pytest.mark.parametrize("bucket_key", [True, False, None])
@pytest.mark.parametrize("storage_class", ["STANDARD_IA", None])
async def test_what_is_stored_says_its_class_and_bucket_key(
    store: type[S3Blobs],
    bucket_key: bool | None,
    storage_class: StorageClass | None,
    proxy: FaultProxy,
) -> None:
    given = {"encryption": "aws:kms", "bucket_key": bucket_key, "storage_class": storage_class}
    aws = replace(AWS, endpoint=proxy.url, **given)  # type: ignore[arg-type]
    for call in await stored_by(store("data", "", aws), proxy):
        text = None if bucket_key is None else str(bucket_key).lower()
        assert call.headers.get(f"{METHOD}-bucket-key-enabled") == text
        assert call.headers.get("x-amz-storage-class") == storage_class


@pytest.mark.parametrize("store", [WireBlobs, S3Blobs])
@pytest.mark.parametrize("pays", [True, False])
async def test_every_request_says_that_the_requester_pays(
    store: type[S3Blobs], pays: bool, proxy: FaultProxy
) -> None:
    blobs = store("data", "", replace(AWS, endpoint=proxy.url, requester_pays=pays))
    proxy.rule(xml_answer(LISTED), when=lambda call: "list-type" in call.query)
    proxy.rule(xml_answer(DELETED), query="delete")
    proxy.rule(Answer(200, body=b"bytes", headers={"ETag": '"e"'}), method="GET")
    await stored_by(blobs, proxy, closing=False)
    await blobs.get("k")
    await blobs.head("k")
    await blobs.list()
    await blobs.delete("k")
    await blobs.delete_many(["k", "l"])
    await blobs.exists()
    await blobs.close()
    assert len(proxy.calls) >= 10
    payers = {call.headers.get("x-amz-request-payer") for call in proxy.calls}
    assert payers == ({"requester"} if pays else {None})
    signed = {"x-amz-request-payer" in call.headers["authorization"] for call in proxy.calls}
    assert signed == {pays}


async def stored_by(blobs: S3Blobs, proxy: FaultProxy, *, closing: bool = True) -> list[Call]:
    """The requests that store objects, of each kind one."""
    proxy.rule(xml_answer(BEGUN), method="POST", query="uploads")
    proxy.rule(xml_answer(COPIED), when=lambda call: "x-amz-copy-source" in call.headers)
    proxy.rule(Answer(200, headers={"ETag": '"e"', "Content-Length": "0"}), method="PUT")
    proxy.rule(Answer(200, headers={"ETag": '"e"', "Content-Length": "0"}), method="HEAD")
    proxy.rule(Answer(204), method="DELETE")
    await blobs.put("k", b"bytes")
    await blobs.copy(blobs, "k", "copy")
    upload = await blobs.start_upload("large")
    await upload.put_part(1, b"part")
    if closing:
        await blobs.close()
    stored = [call for call in proxy.calls if stores_an_object(call)]
    assert len(stored) == 3
    return stored


@pytest.mark.parametrize("store", [WireBlobs, S3Blobs])
async def test_nothing_is_stored_with_an_encryption_that_is_not_supported(
    store: type[S3Blobs], proxy: FaultProxy
) -> None:
    blobs = store("data", "", replace(AWS, endpoint=proxy.url, encryption="CSE-KMS"))
    proxy.rule(Answer(200, headers={"ETag": '"e"', "Content-Length": "0"}), method="HEAD")
    for attempt in (blobs.put("k", b""), blobs.start_upload("k"), blobs.copy(blobs, "k", "copy")):
        with pytest.raises(ConfigError, match="CSE-KMS, which is not supported"):
            await attempt
    assert {call.method for call in proxy.calls} <= {"HEAD"}
    await blobs.close()


@pytest.mark.parametrize("method", ["CSE-CUSTOM", "CSE-KMS"])
async def test_a_volume_is_not_opened_for_writing_without_its_encryption(method: str) -> None:
    name = fresh_name("encrypted")
    data = S3Bucket("data", "", replace(AWS, endpoint="http://127.0.0.1:9", encryption=method))
    config = VolumeConfig(name, MemoryTable(name), data)
    with pytest.raises(ConfigError, match=f"{method}, which is not supported"):
        await init_volume(config)


async def test_every_object_of_a_volume_is_encrypted(moto_s3: Engine) -> None:
    """Data, whole, in parts and copied; log and mark."""
    name = fresh_name("encrypted")
    async with FaultProxy(moto_s3.endpoint) as proxy:
        aws = replace(moto_s3.aws(), endpoint=proxy.url, encryption="AES256")
        tuning = Tuning(multipart_threshold=6 * 2**20, part_size=5 * 2**20)
        config = VolumeConfig(name, MemoryTable(name), S3Bucket(name, "", aws), tuning=tuning)
        await init_volume(config)
        async with S3kClient(config=config) as client:
            await client.write("/small", b"bytes")
            await client.write("/large", bytes(7 * 2**20))
            await client.copy("/small", "/copy")
            await client.rename("/copy", "/moved")
            await client.delete("/moved")
        stored = [call for call in proxy.calls if stores_an_object(call)]
        assert {call.headers.get(METHOD) for call in stored} == {"AES256"}
        assert {"POST", "PUT"} == {call.method for call in stored}
        assert any("/oplog/" in call.path for call in stored)
        assert any("x-amz-copy-source" in call.headers for call in stored)
        blobs = WireBlobs(name, "", aws)
        keys = [info.key async for info in list_all(blobs)]
        await blobs.close()
        refused = replace(config, data=S3Bucket(name, "", replace(aws, encryption="CSE-KMS")))
        proxy.clear()
        with pytest.raises(ConfigError, match="CSE-KMS, which is not supported"):
            await open_volume(refused)
        assert proxy.calls == []
    told = {path.removeprefix(f"/{name}/") for path in (call.path for call in stored)}
    assert set(keys) <= told
