"""Multipart uploads whose answers go missing or lie, and bodies of every size."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import count

import pytest

from s3k_async._core.retry import RetryPolicy, retry
from s3k_async._core.runtime import SYSTEM
from s3k_async.backends.retrying.retrying_blobs import RetryingBlobs
from s3k_async.backends.s3.s3_blobs import S3Blobs
from s3k_async.errors import BlobExistsError, ResponseLostError, ServiceError
from tests.backends.conftest import S3Way
from tests.engines.process import Engine
from tests.engines.volumes import fresh_name
from tests.proxy import (
    CLOSE_AFTER,
    LOSE_ANSWER,
    REFUSE,
    Call,
    Fault,
    FaultProxy,
    s3_error,
    xml_answer,
)

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
    store = s3_way.adapter(fresh_name("upload"), "v/", aws)
    await store.create()
    yield store
    proxy.clear()
    await store.drop()
    await store.close()


def data(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def completes(call: Call) -> bool:
    return call.method == "POST" and "uploadId" in call.query


LOST = pytest.mark.parametrize("fault", [LOSE_ANSWER, CLOSE_AFTER])


@LOST
async def test_a_completion_whose_answer_was_lost(
    blobs: S3Blobs, proxy: FaultProxy, fault: Fault
) -> None:
    upload = await blobs.start_upload("k")
    await upload.put_part(2, b"tail")
    await upload.put_part(1, data(5 * MIB))
    proxy.rule(fault, when=completes, times=1)
    with pytest.raises(ResponseLostError):
        await upload.complete()
    info = await upload.complete()
    assert info.size == 5 * MIB + 4
    assert info.etag == (await blobs.head("k")).etag  # type: ignore[union-attr]
    assert await upload.complete() == info
    await upload.abort()
    assert await blobs.get("k") == data(5 * MIB) + b"tail"


async def test_a_completion_that_the_service_has_forgotten(
    blobs: S3Blobs, proxy: FaultProxy
) -> None:
    """NoSuchUpload after a lost answer: the object is there, so the upload was completed."""
    upload = await blobs.start_upload("k")
    await upload.put_part(1, b"whole")
    proxy.rule(LOSE_ANSWER, when=completes, times=1)
    proxy.rule(s3_error("NoSuchUpload", status=404), when=completes)
    assert (
        await retry(upload.complete, RetryPolicy(attempts=3, base=0.0, cap=0.0), SYSTEM)
    ).size == 5
    assert proxy.count(when=completes) == 2


async def test_an_upload_that_is_gone(blobs: S3Blobs, proxy: FaultProxy) -> None:
    """Without a lost answer before it, whatever is at the key is not the upload's."""
    await blobs.put("k", b"other")
    upload = await blobs.start_upload("k")
    await upload.put_part(1, b"whole")
    proxy.rule(s3_error("NoSuchUpload", status=404), when=completes)
    with pytest.raises(ServiceError) as caught:
        await upload.complete()
    assert caught.value.service_code == "NoSuchUpload"


async def test_a_lost_completion_and_somebody_elses_object(
    blobs: S3Blobs, proxy: FaultProxy
) -> None:
    upload = await blobs.start_upload("k")
    await upload.put_part(1, b"whole")
    proxy.rule(REFUSE, when=completes, times=1)
    proxy.rule(s3_error("NoSuchUpload", status=404), when=completes)
    await blobs.put("k", b"another size")
    with pytest.raises(ResponseLostError):
        await upload.complete()
    with pytest.raises(ServiceError):
        await upload.complete()


async def test_a_completion_that_answers_200_and_means_an_error(
    blobs: S3Blobs, proxy: FaultProxy
) -> None:
    """S3 sends the status before it is done, to keep the connection alive."""
    upload = await blobs.start_upload("k")
    await upload.put_part(1, b"whole")
    error = (
        "<Error><Code>InternalError</Code><Message>We encountered an internal "
        "error.</Message></Error>"
    )
    proxy.rule(xml_answer(error), when=completes, times=1)
    with pytest.raises(ResponseLostError):
        await upload.complete()
    assert await blobs.head("k") is None
    assert (await upload.complete()).size == 5


async def test_an_aborted_upload_leaves_nothing(blobs: S3Blobs, proxy: FaultProxy) -> None:
    upload = await blobs.start_upload("k")
    await upload.put_part(1, b"part")
    await upload.abort()
    await upload.abort()
    assert await blobs.head("k") is None
    proxy.rule(s3_error("NoSuchUpload", status=404), method="DELETE")
    await upload.abort()


@pytest.mark.parametrize("number", [0, -1])
async def test_parts_are_numbered_from_one(blobs: S3Blobs, number: int) -> None:
    upload = await blobs.start_upload("k")
    with pytest.raises(ValueError, match="from 1"):
        await upload.put_part(number, b"x")


async def test_parts_without_a_gap(blobs: S3Blobs) -> None:
    upload = await blobs.start_upload("k")
    with pytest.raises(ValueError, match="without a gap"):
        await upload.complete()
    await upload.put_part(2, b"x")
    with pytest.raises(ValueError, match="without a gap"):
        await upload.complete()


@pytest.mark.parametrize("size", [0, 1, MIB - 1, MIB, MIB + 1, 3 * MIB])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
async def test_bodies_of_every_size_and_kind(blobs: S3Blobs, size: int, kind: type) -> None:
    info = await blobs.put("k", kind(data(size)))
    assert info.size == size
    assert await blobs.get("k") == data(size)
    assert await blobs.get("k", max(0, size - 3)) == data(size)[-3:]


async def test_a_view_of_wider_elements_counts_bytes(blobs: S3Blobs) -> None:
    view = memoryview(data(8 * 1000)).cast("Q")
    assert (await blobs.put("k", view)).size == 8000
    assert await blobs.get("k") == data(8000)
    upload = await blobs.start_upload("m")
    await upload.put_part(1, view)
    assert (await upload.complete()).size == 8000


@LOST
async def test_a_creation_whose_answer_was_lost_is_ours(
    blobs: S3Blobs, proxy: FaultProxy, fault: Fault
) -> None:
    proxy.rule(fault, method="PUT", times=1)
    reliable = RetryingBlobs(blobs, RetryPolicy(attempts=4, base=0.0, cap=0.0), SYSTEM)
    assert (await reliable.put("k", b"ours", if_absent=True)).size == 4
    with pytest.raises(BlobExistsError):
        await reliable.put("k", b"ours", if_absent=True)
