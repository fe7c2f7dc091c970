"""What services refuse, in the bodies that DynamoDB's Developer Guide and S3's API Reference
document."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from s3k_async.client import S3kClient
from tests.bad_input.kinds import (
    CONFIG,
    CREDENTIALS,
    DENIED,
    GONE_DATA,
    NO_SPACE,
    NO_VOLUME,
    THROTTLED,
    TIMEOUT,
    Kind,
)
from tests.bad_input.rows import (
    Call,
    changes,
    check_error,
    check_line,
    drained,
    error_of,
    run_command,
)
from tests.bad_input.served import Served, in_the_volume, served
from tests.engines.process import Engine
from tests.proxy import Answer, Fault, Truncate, dynamodb_error, s3_error

pytestmark = pytest.mark.engine

USER = "User: arn:aws:iam::123456789012:user/alice is not authorized to perform: "
DENIED_TABLE = dynamodb_error(
    "AccessDeniedException", USER + "dynamodb:Query on resource: arn:aws:dynamodb:::table/t"
)
EXPIRED_TABLE = dynamodb_error(
    "ExpiredTokenException", "The security token included in the request is expired"
)
UNRECOGNISED = dynamodb_error(
    "UnrecognizedClientException", "The security token included in the request is invalid."
)
NO_SIGNATURE = dynamodb_error(
    "MissingAuthenticationTokenException", "Request must contain a valid token"
)
BAD_SIGNATURE = dynamodb_error(
    "InvalidSignatureException", "The Canonical String for this request should have been x"
)
OVER_CAPACITY = dynamodb_error(
    "ProvisionedThroughputExceededException",
    "The level of configured provisioned throughput for the table was exceeded.",
)
TOO_FAST = dynamodb_error("ThrottlingException", "Rate of requests exceeds the allowed throughput.")
NO_TABLE = dynamodb_error("ResourceNotFoundException", "Requested resource not found")
BROKEN_TABLE = dynamodb_error(
    "InternalServerError", "The server encountered an internal error", status=500
)

DENIED_DATA = s3_error("AccessDenied", "Access Denied", status=403)
EXPIRED_DATA = s3_error("ExpiredToken", "The provided token has expired.", status=400)
BAD_KEY = s3_error(
    "InvalidAccessKeyId",
    "The AWS Access Key Id you provided does not exist in our records.",
    status=403,
)
BAD_DATA_SIGNATURE = s3_error(
    "SignatureDoesNotMatch",
    "The request signature we calculated does not match the signature you provided.",
    status=403,
    StringToSign="AWS4-HMAC-SHA256 secret-of-the-request",
)
SLOW_DOWN = s3_error("SlowDown", "Please reduce your request rate.", status=503)
NO_BUCKET = s3_error("NoSuchBucket", "The specified bucket does not exist", status=404)
NO_KEY = s3_error("NoSuchKey", "The specified key does not exist.", status=404)
REDIRECT = s3_error(
    "PermanentRedirect",
    "The bucket you are attempting to access must be addressed using the specified endpoint.",
    status=301,
    Endpoint="data.s3.eu-west-1.amazonaws.com",
)
OTHER_REGION = s3_error(
    "AuthorizationHeaderMalformed",
    "The authorization header is malformed; the region 'us-east-1' is wrong; expecting 'eu-west-1'",
    status=400,
    Region="eu-west-1",
)
FULL = s3_error("InsufficientStorage", "There is no space left.", status=507)
BROKEN_DATA = s3_error(
    "InternalError", "We encountered an internal error. Please try again.", status=500
)


@dataclass(frozen=True)
class Refusal:
    """A row: which requests are answered with what, and what comes of it."""

    name: str
    kind: Kind
    about: str
    answer: Fault
    call: Call
    command: str
    table: dict[str, Any] = field(default_factory=dict)
    """Which requests to the table; none of them if empty."""
    data: dict[str, Any] = field(default_factory=dict)
    """Which requests to the bucket; none of them if empty."""


def read(fs: S3kClient) -> Any:
    return fs.read("/dir/file")


def write(fs: S3kClient) -> Any:
    return fs.write("/dir/file", b"other")


def listed(fs: S3kClient) -> Any:
    return drained(fs.list("/dir"))


CAT = "cat {vol}/dir/file"
PUT = "put {local} {vol}/dir/file"
LS = "ls {vol}/dir"
GET_ITEM = {"target": "GetItem", "when": in_the_volume}
QUERY = {"target": "Query"}
PUT_ITEM = {"target": "PutItem"}
GET = {"method": "GET", "path": r"\.id="}
PUT_DATA = {"method": "PUT", "path": r"\.id="}
PUT_LOG = {"method": "PUT", "path": "/oplog/[^/]+/entries/"}
LIST_DATA = {"method": "GET", "query": "list-type=2"}

TABLE = (
    Refusal("get denied", DENIED, "{table}", DENIED_TABLE, read, CAT, table=GET_ITEM),
    Refusal("list denied", DENIED, "{table}", DENIED_TABLE, listed, LS, table=QUERY),
    Refusal("put denied", DENIED, "{table}", DENIED_TABLE, write, PUT, table=PUT_ITEM),
    Refusal(
        "chain denied",
        DENIED,
        "{table}",
        DENIED_TABLE,
        write,
        PUT,
        table={"target": "BatchGetItem"},
    ),
    Refusal(
        "rename denied",
        DENIED,
        "{table}",
        DENIED_TABLE,
        lambda fs: fs.rename("/file", "/dir/new"),
        "mv {vol}/file {vol}/dir/new",
        table={"target": "TransactWriteItems"},
    ),
    Refusal(
        "delete denied",
        DENIED,
        "{table}",
        DENIED_TABLE,
        lambda fs: fs.delete("/file"),
        "rm {vol}/file",
        table={"target": "TransactWriteItems"},
    ),
    Refusal(
        "get with expired credentials",
        CREDENTIALS,
        "{table}",
        EXPIRED_TABLE,
        read,
        CAT,
        table=GET_ITEM,
    ),
    Refusal(
        "list with expired credentials",
        CREDENTIALS,
        "{table}",
        EXPIRED_TABLE,
        listed,
        LS,
        table=QUERY,
    ),
    Refusal(
        "put with expired credentials",
        CREDENTIALS,
        "{table}",
        EXPIRED_TABLE,
        write,
        PUT,
        table=PUT_ITEM,
    ),
    Refusal(
        "open with expired credentials",
        CREDENTIALS,
        "{table}",
        EXPIRED_TABLE,
        read,
        CAT,
        table={"method": "POST"},
    ),
    Refusal(
        "list with unknown credentials",
        CREDENTIALS,
        "{table}",
        UNRECOGNISED,
        listed,
        LS,
        table=QUERY,
    ),
    Refusal(
        "get without a signature", CREDENTIALS, "{table}", NO_SIGNATURE, read, CAT, table=GET_ITEM
    ),
    Refusal(
        "put with a bad signature",
        CREDENTIALS,
        "{table}",
        BAD_SIGNATURE,
        write,
        PUT,
        table=PUT_ITEM,
    ),
    Refusal(
        "get throttled for ever", THROTTLED, "{table}", OVER_CAPACITY, read, CAT, table=GET_ITEM
    ),
    Refusal("list throttled for ever", THROTTLED, "{table}", TOO_FAST, listed, LS, table=QUERY),
    Refusal(
        "put throttled for ever", THROTTLED, "{table}", OVER_CAPACITY, write, PUT, table=PUT_ITEM
    ),
    Refusal(
        "everything throttled for ever",
        THROTTLED,
        "{table}",
        TOO_FAST,
        read,
        CAT,
        table={"method": "POST"},
    ),
    Refusal("table that is gone", NO_VOLUME, "{table}", NO_TABLE, listed, LS, table=QUERY),
    Refusal(
        "table that never was", NO_VOLUME, "{table}", NO_TABLE, read, CAT, table={"method": "POST"}
    ),
    Refusal(
        "table that is broken for ever", TIMEOUT, "{table}", BROKEN_TABLE, read, CAT, table=GET_ITEM
    ),
    Refusal(
        "answer that is cut for ever", TIMEOUT, "{table}", Truncate(9), listed, LS, table=QUERY
    ),
)

DATA = (
    Refusal("get of bytes denied", DENIED, "{bucket}", DENIED_DATA, read, CAT, data=GET),
    Refusal("put of bytes denied", DENIED, "{bucket}", DENIED_DATA, write, PUT, data=PUT_DATA),
    Refusal("put of the log denied", DENIED, "{bucket}", DENIED_DATA, write, PUT, data=PUT_LOG),
    Refusal("get of bytes, expired", CREDENTIALS, "{bucket}", EXPIRED_DATA, read, CAT, data=GET),
    Refusal(
        "put of bytes, expired", CREDENTIALS, "{bucket}", EXPIRED_DATA, write, PUT, data=PUT_DATA
    ),
    Refusal(
        "put of bytes, unknown key", CREDENTIALS, "{bucket}", BAD_KEY, write, PUT, data=PUT_DATA
    ),
    Refusal(
        "get of bytes, bad signature",
        CREDENTIALS,
        "{bucket}",
        BAD_DATA_SIGNATURE,
        read,
        CAT,
        data=GET,
    ),
    Refusal(
        "get of bytes throttled for ever", THROTTLED, "{bucket}", SLOW_DOWN, read, CAT, data=GET
    ),
    Refusal(
        "put of bytes throttled for ever",
        THROTTLED,
        "{bucket}",
        SLOW_DOWN,
        write,
        PUT,
        data=PUT_DATA,
    ),
    Refusal(
        "put of the log throttled for ever",
        THROTTLED,
        "{bucket}",
        SLOW_DOWN,
        write,
        PUT,
        data=PUT_LOG,
    ),
    Refusal("bucket that is gone, get", NO_VOLUME, "{bucket}", NO_BUCKET, read, CAT, data=GET),
    Refusal(
        "bucket that is gone, put", NO_VOLUME, "{bucket}", NO_BUCKET, write, PUT, data=PUT_DATA
    ),
    Refusal(
        "bucket that never was",
        NO_VOLUME,
        "{bucket}",
        Answer(404),
        read,
        CAT,
        data={"method": "HEAD"},
    ),
    Refusal("bytes that are gone", GONE_DATA, "/dir/file", NO_KEY, read, CAT, data=GET),
    Refusal("get from another region", CONFIG, "{bucket}", REDIRECT, read, CAT, data=GET),
    Refusal("put to another region", CONFIG, "{bucket}", REDIRECT, write, PUT, data=PUT_DATA),
    Refusal("signature for another region", CONFIG, "{bucket}", OTHER_REGION, read, CAT, data=GET),
    Refusal("bucket that is full", NO_SPACE, "{bucket}", FULL, write, PUT, data=PUT_DATA),
    Refusal(
        "bucket that is broken for ever", TIMEOUT, "{bucket}", BROKEN_DATA, read, CAT, data=GET
    ),
    Refusal("bytes that are cut for ever", TIMEOUT, "{bucket}", Truncate(4), read, CAT, data=GET),
)


@pytest.fixture(scope="module")
def volume(
    dynoxide: Engine, seaweedfs: Engine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    with served(dynoxide, seaweedfs, tmp_path_factory.mktemp("served")) as volume:
        yield volume
        assert asyncio.run(volume.problems()) == []


@pytest.mark.parametrize("row", [*TABLE, *DATA], ids=lambda row: row.name.replace(" ", "-"))
def test_row(row: Refusal, volume: Served) -> None:
    before = volume.state()
    refuse(row, volume)
    try:
        error = error_of(lambda: played(volume, row.call))
        ran = run_command(*volume.text(row.command).split(), "--config", str(volume.file))
    finally:
        volume.clear()
    check_error(error, row.kind, volume.text(row.about))
    check_line(ran, row.kind.exit, volume.text(row.about))
    for text in (str(error), ran.stderr):
        assert "secret-of-the-request" not in text
    assert changes(before, volume.state()) == []


def refuse(row: Refusal, volume: Served) -> None:
    if row.table:
        volume.table.rule(row.answer, **row.table)
    if row.data:
        volume.data.rule(row.answer, **row.data)


async def played(volume: Served, call: Call) -> None:
    async with volume.client() as fs:
        await call(fs)
