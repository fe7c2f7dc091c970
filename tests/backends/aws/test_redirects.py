"""What stands between a client and its service: redirects are not followed, other answers are not
taken for its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from s3k_async.config import AwsConfig
from s3k_async.errors import ResponseLostError, S3kError, ServiceError
from tests.backends.aws.places import OpenBlobs, OpenItems, settings
from tests.backends.aws.verbs import BLOB_READS, BLOB_WRITES, ITEM_READS, ITEM_WRITES, KEY
from tests.proxy import Answer, Call, FaultProxy, dynamodb_error, json_answer, s3_error

BLOBS = {**BLOB_READS, **BLOB_WRITES}
ITEMS = {**ITEM_READS, **ITEM_WRITES}
REDIRECTS = [301, 302, 303, 307, 308]
PAGE = (
    b"<!DOCTYPE html><html><head><title>Sign on</title></head><body>Welcome to the "
    b"hotel</body></html>"
)
HTML = {"Content-Type": "text/html; charset=utf-8"}


@pytest.fixture
async def service() -> AsyncIterator[FaultProxy]:
    async with FaultProxy() as proxy:
        yield proxy


@pytest.fixture
async def elsewhere() -> AsyncIterator[FaultProxy]:
    """A host that accepts everything."""
    async with FaultProxy() as proxy:
        proxy.rule(Answer(200, headers={"ETag": '"e"'}), method="PUT")
        proxy.rule(json_answer({}))
        yield proxy


async def fails(calls: Mapping[str, Any], place: Any) -> dict[str, S3kError]:
    """The error of each call."""
    errors: dict[str, S3kError] = {}
    for name, call in calls.items():
        try:
            answer = await call(place)
        except S3kError as error:
            errors[name] = error
        else:
            pytest.fail(f"{name} gave {answer!r}")
    return errors


def redirect(status: int, to: FaultProxy) -> Answer:
    return Answer(status, PAGE, {**HTML, "Location": f"{to.url}/portal?user=secret-of-the-query"})


async def test_a_redirect_is_an_error_that_names_the_hosts(
    service: FaultProxy, elsewhere: FaultProxy, s3_blobs: OpenBlobs, dynamo_items: OpenItems
) -> None:
    aws = settings(service.url)
    async with s3_blobs(aws) as blobs, dynamo_items(aws) as items:
        for status in REDIRECTS:
            service.clear()
            service.rule(redirect(status, elsewhere))
            for error in [
                *(await fails(BLOBS, blobs)).values(),
                *(await fails(ITEMS, items)).values(),
            ]:
                assert type(error) is ServiceError
                for part in (
                    str(status),
                    service.url.removeprefix("http://"),
                    elsewhere.url.removeprefix("http://"),
                ):
                    assert part in error.message
                assert "captive portal" in error.message
                assert (
                    "secret-of-the-query"
                    not in f"{error} {error.__cause__!r} {error.__context__!r}"
                )
    assert elsewhere.calls == []


@pytest.mark.parametrize(
    ("name", "status"), [("put", 307), ("put-large", 301), ("get", 301), ("complete", 307)]
)
async def test_the_region_redirect_of_s3_is_signed_again_for_the_same_service(
    name: str, status: int, service: FaultProxy, elsewhere: FaultProxy, s3_blobs: OpenBlobs
) -> None:
    code = {301: "PermanentRedirect", 307: "TemporaryRedirect"}[status]
    moved = s3_error(code, status=status, Endpoint=elsewhere.url)
    region = {"x-amz-bucket-region": "eu-north-1", "Location": f"{elsewhere.url}/data/key"}
    service.rule(
        Answer(status, moved.body, {**moved.headers, **region}),
        when=lambda call: not signed_for(call),
    )
    service.rule(Answer(503))
    async with s3_blobs(settings(service.url, region="us-east-1")) as blobs:
        with pytest.raises(S3kError):
            await BLOBS[name](blobs)
    assert elsewhere.calls == []
    assert signed_for(service.calls[-1])


def signed_for(call: Call) -> bool:
    return "/eu-north-1/s3/aws4_request" in call.headers["authorization"]


async def test_a_region_redirect_that_does_not_end(
    service: FaultProxy, elsewhere: FaultProxy, s3_blobs: OpenBlobs
) -> None:
    region = {"x-amz-bucket-region": "eu-north-1", "Location": f"{elsewhere.url}/data/key"}
    service.rule(Answer(307, b"", region))
    async with s3_blobs(settings(service.url, region="us-east-1")) as blobs:
        await fails(BLOBS, blobs)
    assert elsewhere.calls == []


async def test_a_web_identity_token_is_not_sent_after_a_redirect(
    service: FaultProxy,
    elsewhere: FaultProxy,
    dynamo_items: OpenItems,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    token = tmp_path / "token"
    token.write_text("made-up-identity")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::111122223333:role/any")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", service.url)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    service.rule(redirect(307, elsewhere))
    async with dynamo_items(AwsConfig(endpoint=service.url, region="eu-west-1")) as items:
        with pytest.raises(S3kError):
            await items.get(KEY)
    assert b"made-up-identity" in service.calls[0].body
    assert elsewhere.calls == []


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Answer(200, PAGE, HTML), id="page"),
        pytest.param(
            Answer(200, PAGE, {**HTML, "ETag": 'W/"5f3c-264"'}), id="page-of-a-file-server"
        ),
        pytest.param(Answer(200, b"", HTML), id="empty"),
        pytest.param(Answer(200, b""), id="nothing"),
        pytest.param(Answer(201, b"", {"ETag": '"e"'}), id="created"),
        pytest.param(Answer(202, b"", {"ETag": '"e"'}), id="accepted"),
        pytest.param(Answer(204), id="no-content"),
        pytest.param(Answer(200, b"{}", {"Content-Type": "application/json"}), id="json"),
        pytest.param(Answer(200, b"<html/>", {"Content-Type": "application/xml"}), id="xml"),
        pytest.param(Answer(200, b"", {"ETag": ""}), id="empty-etag"),
        pytest.param(Answer(200, b"", {"ETag": '"'}), id="half-an-etag"),
    ],
)
async def test_an_answer_that_is_not_the_service_s_acknowledges_nothing(
    answer: Answer, service: FaultProxy, s3_blobs: OpenBlobs, dynamo_items: OpenItems
) -> None:
    service.rule(answer)
    aws = settings(service.url)
    # Removing is done when there is nothing more: S3 answers with status 204.
    none = ("delete", "abort") if answer.status == 204 else ()
    writes = {name: call for name, call in BLOB_WRITES.items() if name not in none}
    async with s3_blobs(aws) as blobs, dynamo_items(aws) as items:
        errors = await fails(writes, blobs) | await fails(ITEM_WRITES, items)
    assert {name: type(error) for name, error in errors.items()} == dict.fromkeys(
        errors, ResponseLostError
    )


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Answer(200, PAGE, HTML), id="page"),
        pytest.param(
            Answer(200, PAGE, {**HTML, "ETag": 'W/"5f3c-264"'}), id="page-of-a-file-server"
        ),
        pytest.param(Answer(200, b"{}", {"Content-Type": "application/json"}), id="json"),
        pytest.param(
            Answer(200, b'{"error":"sign on"}', {"Content-Type": "application/json"}),
            id="json-with-more",
        ),
        pytest.param(Answer(202, b"", {"ETag": '"e"'}), id="accepted"),
        pytest.param(Answer(204, b"", {"ETag": '"e"'}), id="no-content"),
    ],
)
async def test_an_answer_that_is_not_the_service_s_is_no_data(
    answer: Answer, service: FaultProxy, s3_blobs: OpenBlobs, dynamo_items: OpenItems
) -> None:
    service.rule(answer)
    aws = settings(service.url)
    # The bucket itself has no entity tag: any answer of status 200 that is no page will do.
    bucket = (
        {"exists", "now"} if answer.headers.get("Content-Type") != HTML["Content-Type"] else set()
    )
    reads = {name: call for name, call in BLOB_READS.items() if name not in bucket}
    async with s3_blobs(aws) as blobs, dynamo_items(aws) as items:
        await fails(reads, blobs)
        await fails(ITEM_READS, items)


async def test_a_page_that_says_not_found_is_not_the_absence_of_an_object(
    service: FaultProxy, s3_blobs: OpenBlobs, dynamo_items: OpenItems
) -> None:
    service.rule(Answer(404, PAGE, {**HTML, "Content-Length": str(len(PAGE))}))
    async with (
        s3_blobs(settings(service.url)) as blobs,
        dynamo_items(settings(service.url)) as items,
    ):
        await fails(BLOBS, blobs)
        await fails(ITEMS, items)


async def test_answers_of_the_table_carry_its_content_type(
    service: FaultProxy, dynamo_items: OpenItems
) -> None:
    """An empty object with status 200 is the answer to many a request of other services."""
    service.rule(dynamodb_error("ResourceNotFoundException"), target="DescribeTable")
    service.rule(Answer(200, b"{}", {"Content-Type": "application/json"}))
    async with dynamo_items(settings(service.url)) as items:
        for name in ("write", "transact", "load", "get", "query"):
            with pytest.raises(ResponseLostError):
                await ITEMS[name](items)


async def test_the_error_says_who_answered(service: FaultProxy, s3_blobs: OpenBlobs) -> None:
    service.rule(Answer(200, PAGE, HTML))
    async with s3_blobs(settings(service.url)) as blobs:
        for name in ("put", "get", "head", "complete", "list", "delete"):
            with pytest.raises(ResponseLostError, match="captive portal"):
                await BLOBS[name](blobs)
