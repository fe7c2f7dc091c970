"""delete_many names exactly the blobs that remain, whatever goes wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import count

import pytest

from s3k_async._core.retry import RetryPolicy
from s3k_async._core.runtime import SYSTEM
from s3k_async.backends.ports.pagination import list_all
from s3k_async.backends.retrying.retrying_blobs import RetryingBlobs
from s3k_async.backends.s3.s3_blobs import S3Blobs
from s3k_async.errors import (
    InvalidPathError,
    PartialFailureError,
    PermissionDeniedError,
    ResponseLostError,
    S3kError,
    ThrottledError,
    VolumeNotFoundError,
)
from tests.backends.conftest import S3Way
from tests.engines.process import Engine
from tests.engines.volumes import fresh_name
from tests.proxy import LOSE_ANSWER, REFUSE, Answer, Call, Fault, FaultProxy, s3_error, xml_answer

PREFIX = "vol/"
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
    store = s3_way.adapter(fresh_name("delete"), PREFIX, aws)
    await store.create()
    yield store
    proxy.clear()
    await store.drop()
    await store.close()


def refusals(**codes: str) -> Answer:
    """An answer that refuses the keys, below the prefix, and says nothing of the others."""
    errors = "".join(
        f"<Error><Key>{PREFIX}{key}</Key><Code>{code}</Code><Message>no</Message></Error>"
        for key, code in codes.items()
    )
    return xml_answer(f"<DeleteResult>{errors}</DeleteResult>")


async def stored(blobs: S3Blobs) -> set[str]:
    return {info.key async for info in list_all(blobs)}


async def fill(blobs: S3Blobs, *keys: str) -> None:
    for key in keys:
        await blobs.put(key, b"1")


def deletes(call: Call) -> bool:
    return call.method == "POST" and "delete" in call.query


async def test_all_go(blobs: S3Blobs, proxy: FaultProxy) -> None:
    await fill(blobs, "a", "b/c", "d")
    assert await blobs.delete_many(["a", "b/c", "not there", "a"]) == []
    assert await stored(blobs) == {"d"}
    assert proxy.count(when=deletes) == 1


async def test_none_is_no_request(blobs: S3Blobs, proxy: FaultProxy) -> None:
    assert await blobs.delete_many([]) == []
    assert proxy.count(when=deletes) == 0


async def test_a_request_takes_a_thousand(blobs: S3Blobs, proxy: FaultProxy) -> None:
    await fill(blobs, "k0", "k1000", "k2000")
    assert await blobs.delete_many([f"k{at}" for at in range(2001)]) == []
    assert await stored(blobs) == set()
    assert [call.body.count(b"<Key>") for call in proxy.calls if deletes(call)] == [1000, 1000, 1]


async def test_refused_keys_are_named_with_their_errors(blobs: S3Blobs, proxy: FaultProxy) -> None:
    proxy.rule(
        refusals(a="AccessDenied", b="InternalError", c="SlowDown", d="NoSuchKey"), when=deletes
    )
    failures = await blobs.delete_many(["a", "b", "c", "d", "e"])
    assert {failure.key: type(failure.error) for failure in failures} == {
        "a": PermissionDeniedError,
        "b": ResponseLostError,
        "c": ThrottledError,
    }
    assert "s3://" in str(failures[0].error)


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (s3_error("InternalError", status=500), ResponseLostError),
        (s3_error("SlowDown", status=503), ThrottledError),
        (s3_error("AccessDenied", status=403), PermissionDeniedError),
        (s3_error("NoSuchBucket", status=404), VolumeNotFoundError),
        (REFUSE, ResponseLostError),
        (LOSE_ANSWER, ResponseLostError),
        (
            xml_answer("<Error><Code>InternalError</Code><Message>after all</Message></Error>"),
            ResponseLostError,
        ),
        (xml_answer("<DeleteResult><Err"), ResponseLostError),
    ],
)
async def test_a_request_that_fails_as_a_whole(
    blobs: S3Blobs, proxy: FaultProxy, fault: Fault, expected: type[S3kError]
) -> None:
    """Only the keys of that request remain, each with its error."""
    keys = [f"k{at:04}" for at in range(1500)]
    await fill(blobs, keys[0], keys[-1])
    proxy.rule(fault, when=deletes, times=1)
    failures = await blobs.delete_many(keys)
    assert [failure.key for failure in failures] == keys[:1000]
    assert {type(failure.error) for failure in failures} == {expected}
    lost = fault is LOSE_ANSWER
    assert await stored(blobs) == (set() if lost else {keys[0]})


async def test_an_error_for_a_key_that_nobody_named(blobs: S3Blobs, proxy: FaultProxy) -> None:
    """It may mean any of them, so none counts as gone."""
    proxy.rule(refusals(other="AccessDenied"), when=deletes)
    failures = await blobs.delete_many(["a", "b"])
    assert [failure.key for failure in failures] == ["a", "b"]


async def test_keys_that_xml_cannot_say_go_one_by_one(blobs: S3Blobs, proxy: FaultProxy) -> None:
    await fill(blobs, "a", "b\x01c", "d\x1f", "e")
    assert await blobs.delete_many(["a", "b\x01c", "d\x1f"]) == []
    assert await stored(blobs) == {"e"}
    assert proxy.count(when=deletes) == 1
    assert proxy.count(method="DELETE") == 2
    proxy.rule(s3_error("AccessDenied", status=403), method="DELETE", times=1)
    failures = await blobs.delete_many(["b\x01c", "d\x1f"])
    assert [failure.key for failure in failures] == ["b\x01c"]


@pytest.mark.parametrize(
    "key", ["", "/a", "a//b", "../a", "a/./b", "nul\0", "x" * 1025, "x" * 1021]
)
async def test_a_bad_key_changes_nothing(blobs: S3Blobs, proxy: FaultProxy, key: str) -> None:
    """The last one is too long only together with the prefix."""
    await fill(blobs, "a")
    with pytest.raises(InvalidPathError):
        await blobs.delete_many(["a", key])
    assert proxy.count(when=deletes) == 0


async def test_transient_refusals_are_asked_again(blobs: S3Blobs, proxy: FaultProxy) -> None:
    await fill(blobs, "a", "b", "c")
    proxy.rule(refusals(a="InternalError", b="SlowDown", c="AccessDenied"), when=deletes, times=1)
    reliable = RetryingBlobs(blobs, RetryPolicy(attempts=4, base=0.0, cap=0.0), SYSTEM)
    failures = await reliable.delete_many(["a", "b", "c"])
    assert [failure.key for failure in failures] == ["c"]
    assert await stored(blobs) == {"c"}


async def test_a_drop_that_leaves_something_says_so(blobs: S3Blobs, proxy: FaultProxy) -> None:
    await fill(blobs, "a", "b")
    proxy.rule(refusals(b="AccessDenied"), when=deletes, times=1)
    with pytest.raises(PartialFailureError) as caught:
        await blobs.drop()
    ((key, error),) = caught.value.failures
    assert key == PREFIX + "b"
    assert isinstance(error, PermissionDeniedError)


async def test_dropping_takes_what_is_below_the_prefix(blobs: S3Blobs, engine: Engine) -> None:
    beside = type(blobs)(blobs.bucket, "volume-two/", engine.aws())
    await beside.put("kept", b"1")
    await beside.start_upload("kept upload")
    await fill(blobs, *[f"n{at}" for at in range(5)], "deep/er")
    upload = await blobs.start_upload("unfinished")
    await upload.put_part(1, b"part")
    await blobs.drop()
    assert await stored(blobs) == set()
    assert await stored(beside) == {"kept"}
    client = await beside.client()
    uploads = (await client.list_multipart_uploads(Bucket=blobs.bucket)).get("Uploads", [])
    assert [found["Key"] for found in uploads] == ["volume-two/kept upload"]
    await beside.drop()
    await beside.close()


async def test_dropping_what_is_not_there(s3_way: S3Way) -> None:
    adapter, engine = s3_way
    blobs = adapter("never-made", "", engine.aws())
    await blobs.drop()
    await blobs.close()
