"""Listings: pages that the service cuts short, encoded keys, and the prefix."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import parse_qs

import pytest

from s3k_async._core.retry import RetryPolicy
from s3k_async._core.runtime import SYSTEM
from s3k_async.backends.ports.blobs import BlobInfo
from s3k_async.backends.ports.pagination import list_all
from s3k_async.backends.retrying.retrying_blobs import RetryingBlobs
from s3k_async.backends.s3.s3_blobs import S3Blobs
from s3k_async.config import AwsConfig, Secret
from s3k_async.errors import ResponseLostError, ServiceError
from tests.backends.conftest import S3Way
from tests.engines.process import PATIENCE
from tests.engines.volumes import fresh_name
from tests.proxy import Answer, FaultProxy, xml_answer

PREFIX = "a b+c/"
ENCODED = "a+b%2Bc/"


def listing(
    *keys: str, token: str | None = None, truncated: bool = False, encoded: bool = True
) -> Answer:
    """A page as S3 sends it; `keys` as they are on the wire."""
    contents = "".join(
        f"<Contents><Key>{key}</Key><LastModified>2024-01-02T03:04:05.678Z</LastModified>"
        f"<ETag>&quot;e&quot;</ETag><Size>7</Size></Contents>"
        for key in keys
    )
    more = f"<NextContinuationToken>{token}</NextContinuationToken>" if token else ""
    return xml_answer(
        f"<ListBucketResult><Name>data</Name><KeyCount>{len(keys)}</KeyCount>"
        f"{'<EncodingType>url</EncodingType>' if encoded else ''}"
        f"<IsTruncated>{'true' if token or truncated else 'false'}</IsTruncated>"
        f"{more}{contents}</ListBucketResult>"
    )


@pytest.fixture
async def proxy() -> AsyncIterator[FaultProxy]:
    async with FaultProxy() as proxy:
        yield proxy


@pytest.fixture
async def blobs(proxy: FaultProxy, s3_adapter: type[S3Blobs]) -> AsyncIterator[S3Blobs]:
    aws = AwsConfig(
        endpoint=proxy.url,
        access_key_id=Secret("a"),
        secret_access_key=Secret("b"),
        connect_timeout=PATIENCE,
        read_timeout=PATIENCE,
    )
    store = s3_adapter("data", PREFIX, aws)
    yield store
    await store.close()


async def keys(store: S3Blobs, prefix: str = "") -> list[str]:
    return [info.key async for info in list_all(store, prefix)]


def asked(proxy: FaultProxy) -> list[dict[str, list[str]]]:
    return [parse_qs(call.query, keep_blank_values=True) for call in proxy.calls]


async def test_p11_an_empty_page_is_not_the_end(blobs: S3Blobs, proxy: FaultProxy) -> None:
    proxy.rule(listing(token="1/+="), times=1)
    proxy.rule(listing(ENCODED + "x", token="2"), times=1)
    proxy.rule(listing(token="3"), times=1)
    proxy.rule(listing(token="4"), times=1)
    proxy.rule(listing(ENCODED + "y"))
    assert await keys(blobs) == ["x", "y"]
    assert [query.get("continuation-token") for query in asked(proxy)] == [
        None,
        ["1/+="],
        ["2"],
        ["3"],
        ["4"],
    ]


@pytest.mark.parametrize("cycle", [1, 2, 7])
async def test_a_listing_whose_pages_repeat_themselves_ends(
    blobs: S3Blobs, proxy: FaultProxy, cycle: int
) -> None:
    proxy.rule(
        listing(ENCODED + "x", token="t0"), when=lambda call: "continuation-token" not in call.query
    )
    for number in range(cycle):
        following = listing(ENCODED + "x", token=f"t{(number + 1) % cycle}")
        proxy.rule(following, query=f"continuation-token=t{number}(&|$)")
    for store in (blobs, RetryingBlobs(blobs, RetryPolicy(attempts=2, base=0.0, cap=0.0), SYSTEM)):
        with pytest.raises(ServiceError, match="does not end"):
            [info async for info in list_all(store)]
    assert len(proxy.calls) < 100


@pytest.mark.parametrize("cycle", [1, 3])
async def test_unfinished_uploads_whose_pages_repeat_themselves_end(
    blobs: S3Blobs, proxy: FaultProxy, cycle: int
) -> None:
    for number in range(60):
        proxy.rule(
            xml_answer(
                "<ListMultipartUploadsResult><IsTruncated>true</IsTruncated>"
                f"<NextKeyMarker>k{number % cycle}</NextKeyMarker>"
                "<NextUploadIdMarker>u</NextUploadIdMarker>"
                "</ListMultipartUploadsResult>"
            ),
            times=1,
        )
    with pytest.raises(ServiceError, match="does not end"):
        [upload async for upload in blobs.list_uploads()]


async def test_an_empty_page_keeps_its_cursor(blobs: S3Blobs, proxy: FaultProxy) -> None:
    proxy.rule(listing(token="later"))
    page = await blobs.list(limit=5)
    assert list(page.blobs) == []
    assert page.next is not None


async def test_a_page_of_nothing_but_the_prefix_itself(blobs: S3Blobs, proxy: FaultProxy) -> None:
    """The marker that some programs make for a directory is no blob of ours."""
    proxy.rule(listing(ENCODED, token="later"), times=1)
    proxy.rule(listing(ENCODED + "x"))
    assert await keys(blobs) == ["x"]


async def test_a_cut_page_without_a_token_goes_on_after_its_last_key(
    blobs: S3Blobs, proxy: FaultProxy
) -> None:
    proxy.rule(listing(ENCODED + "x%3A+y", truncated=True), times=1)
    proxy.rule(listing(ENCODED + "z"))
    assert await keys(blobs) == ["x: y", "z"]
    assert asked(proxy)[1]["start-after"] == [PREFIX + "x: y"]


async def test_a_cut_page_that_leads_nowhere_is_not_the_end(
    blobs: S3Blobs, proxy: FaultProxy
) -> None:
    proxy.rule(listing(truncated=True))
    with pytest.raises(ResponseLostError):
        await keys(blobs)


async def test_keys_come_decoded_once(blobs: S3Blobs, proxy: FaultProxy) -> None:
    proxy.rule(
        listing(
            *(ENCODED + key for key in ("sp+ace", "pl%2Bus", "pc%2520", "n%C3%BC%01", "a%26b%3Cc"))
        )
    )
    assert await keys(blobs) == ["sp ace", "pl+us", "pc%20", "nü\x01", "a&b<c"]


async def test_keys_of_a_service_that_does_not_encode(blobs: S3Blobs, proxy: FaultProxy) -> None:
    proxy.rule(listing(PREFIX + "pl+us %20", encoded=False))
    assert await keys(blobs) == ["pl+us %20"]


async def test_what_a_page_tells_of_a_blob(blobs: S3Blobs, proxy: FaultProxy) -> None:
    proxy.rule(listing(ENCODED + "x"))
    assert await blobs.list() == await blobs.list()
    assert (await blobs.list()).blobs == [BlobInfo("x", 7, "e", 1_704_164_645_678)]


async def test_the_prefix_and_the_limit_are_sent(blobs: S3Blobs, proxy: FaultProxy) -> None:
    proxy.rule(listing())
    await blobs.list("sub/", limit=10)
    await blobs.list("sub/", limit=100_000)
    assert [query["prefix"] for query in asked(proxy)] == [[PREFIX + "sub/"]] * 2
    assert [query["max-keys"] for query in asked(proxy)] == [["10"], ["1000"]]


async def test_a_page_that_breaks_off(blobs: S3Blobs, proxy: FaultProxy) -> None:
    whole = listing(ENCODED + "x", ENCODED + "y")
    proxy.rule(Answer(200, whole.body[:-60], whole.headers))
    with pytest.raises(ResponseLostError):
        await blobs.list()


async def test_a_range_that_the_service_ignores(blobs: S3Blobs, proxy: FaultProxy) -> None:
    proxy.rule(Answer(200, b"0123456789", {"ETag": '"e"'}))
    assert await blobs.get("k", 2, 5) == b"234"
    assert await blobs.get("k", 8) == b"89"
    assert await blobs.get("k", 20, 30) == b""


ODD = [
    "sp ace",
    "pl+us",
    "pc%20t",
    "uni ü 日本 😀",
    "q?x=1&y",
    "h#ash",
    "ctl\x01x",
    "cr\rx",
    "tab\tx",
    "quote\"'<>&",
    "7f0c.id=2b1e",
    "~t!*()@:;,$",
    "del\x7f",
    "non\ufffecharacter",
    "e/mp ty/x",
]


async def test_odd_keys_on_an_engine(s3_way: S3Way) -> None:
    blobs = s3_way.adapter(fresh_name("odd-keys"), "pre fix+%/", s3_way.engine.aws())
    await blobs.create()
    for key in ODD:
        await blobs.put(key, key.encode())
    assert sorted(await keys(blobs)) == sorted(ODD)
    for key in ODD:
        assert await blobs.get(key) == key.encode()
        copied = await blobs.copy(blobs, key, f"copy/{key}")
        assert copied.size == len(key.encode())
    assert await blobs.delete_many(ODD) == []
    assert sorted(await keys(blobs)) == sorted(f"copy/{key}" for key in ODD)
    await blobs.drop()
    await blobs.close()
