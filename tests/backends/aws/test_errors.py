"""What becomes of the errors that AWS documents, read off the wire through the real client."""

from __future__ import annotations

import asyncio
import pickle
import traceback
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from s3k_async._core.retry import TRANSIENT
from s3k_async.backends.dynamodb.dynamodb_wire import WireItems
from s3k_async.backends.ports.items import ABSENT, Condition, Delete, Key, Put, Update
from s3k_async.backends.s3.s3_blobs import S3Blobs
from s3k_async.errors import (
    BlobChangedError,
    BlobExistsError,
    BlobNotFoundError,
    ConditionFailedError,
    ConfigError,
    CredentialsError,
    NoSpaceError,
    PermissionDeniedError,
    RequestTimeoutError,
    ResponseLostError,
    S3kError,
    ServiceError,
    ThrottledError,
    TransactionConflictError,
    UnsupportedError,
    VolumeNotFoundError,
)
from tests.backends.aws.places import (
    SECRET_KEY,
    SESSION_TOKEN,
    Items,
    OpenBlobs,
    OpenItems,
    settings,
)
from tests.proxy import Answer, FaultProxy, dynamodb_error, json_answer, s3_error, served

KEY = Key("ks://v/-sf0", "name")
PUT = Put({"path": KEY.partition, "children": KEY.sort, "op": "1"}, ABSENT)
STORED = {
    "path": {"S": KEY.partition},
    "children": {"S": KEY.sort},
    "ver": {"N": "7"},
    "isdir": {"BOOL": False},
}
DECODED = {"path": KEY.partition, "children": KEY.sort, "ver": 7, "isdir": False}

ItemCall = Callable[[Items], Awaitable[Any]]
ITEM_READS: dict[str, ItemCall] = {
    "get": lambda items: items.get(KEY),
    "get_many": lambda items: items.get_many([KEY]),
    "query": lambda items: items.query("p"),
    "scan": lambda items: items.scan(0, 1),
}
ITEM_WRITES: dict[str, ItemCall] = {
    "put": lambda items: items.write(PUT),
    "update": lambda items: items.write(Update(KEY, Condition(), {"a": 1})),
    "delete": lambda items: items.write(Delete(KEY, Condition())),
    "transact": lambda items: items.transact([PUT], "token"),
}
BlobCall = Callable[[S3Blobs], Awaitable[Any]]
BLOB_READS: dict[str, BlobCall] = {
    "get": lambda blobs: blobs.get("k"),
    "list": lambda blobs: blobs.list(),
}
BLOB_WRITES: dict[str, BlobCall] = {
    "put": lambda blobs: blobs.put("k", b"data"),
    "delete": lambda blobs: blobs.delete("k"),
    "start_upload": lambda blobs: blobs.start_upload("k"),
}


async def raised(call: Awaitable[Any]) -> S3kError:
    with pytest.raises(S3kError) as caught:
        await call
    return caught.value


DYNAMODB_CODES: list[tuple[str, int, type[S3kError]]] = [
    ("ProvisionedThroughputExceededException", 400, ThrottledError),
    ("ThrottlingException", 400, ThrottledError),
    ("RequestLimitExceeded", 400, ThrottledError),
    ("LimitExceededException", 400, ThrottledError),
    ("InternalServerError", 500, ResponseLostError),
    ("InternalFailure", 500, ResponseLostError),
    ("ServiceUnavailable", 503, ResponseLostError),
    ("TransactionInProgressException", 400, ResponseLostError),
    ("TransactionConflictException", 400, TransactionConflictError),
    ("ReplicatedWriteConflictException", 400, TransactionConflictError),
    ("ResourceNotFoundException", 400, VolumeNotFoundError),
    ("AccessDeniedException", 400, PermissionDeniedError),
    ("ExpiredTokenException", 400, CredentialsError),
    ("UnrecognizedClientException", 400, CredentialsError),
    ("InvalidSignatureException", 400, CredentialsError),
    ("IncompleteSignatureException", 400, CredentialsError),
    ("MissingAuthenticationTokenException", 400, CredentialsError),
    ("UnknownOperationException", 400, UnsupportedError),
    ("IdempotentParameterMismatchException", 400, ServiceError),
    ("ItemCollectionSizeLimitExceededException", 400, ServiceError),
    ("ValidationException", 400, ServiceError),
    ("SerializationException", 400, ServiceError),
]


async def test_dynamodb_codes(dynamo_items: OpenItems) -> None:
    async with FaultProxy() as proxy, dynamo_items(settings(proxy.url)) as items:
        for code, status, expected in DYNAMODB_CODES:
            proxy.clear()
            proxy.rule(dynamodb_error(code, "as documented", status=status))
            calls = ITEM_READS | ITEM_WRITES
            for name, call in calls.items():
                error = await raised(call(items))
                assert (code, name, type(error)) == (code, name, expected)
                assert (error.path or "").startswith("meta")
                assert code in str(error)
                assert error.__cause__ is not None or isinstance(items, WireItems)
                assert getattr(error, "service_code", code) == code
            assert len(proxy.calls) == len(calls), "a call is one request, whatever the answer"


DENIED = "User: u is not authorized to perform: dynamodb:PutItem on resource: arn:aws:dynamodb:::t"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            dynamodb_error("AccessDeniedException", DENIED),
            f"the service answered AccessDeniedException: {DENIED}: grant dynamodb:PutItem",
        ),
        (
            Answer(403, b"<html>no</html>", {"Content-Type": "text/html"}),
            "the service denied PutItem without a reason (403): grant its permission",
        ),
    ],
)
async def test_a_refusal_of_dynamodb_names_operation_item_and_remedy(
    dynamo_items: OpenItems, answer: Answer, message: str
) -> None:
    async with FaultProxy() as proxy, dynamo_items(settings(proxy.url)) as items:
        proxy.rule(answer)
        error = await raised(items.write(PUT))
        assert error.message == f"{message}; s3k policy prints the permissions of a role"
        assert error.path == "meta: ks://v/-sf0/name"


S3_CODES: list[tuple[str, int, type[S3kError]]] = [
    ("SlowDown", 503, ThrottledError),
    ("TooManyRequests", 429, ThrottledError),
    ("RequestLimitExceeded", 503, ThrottledError),
    ("ServiceUnavailable", 503, ResponseLostError),
    ("InternalError", 500, ResponseLostError),
    ("BadGateway", 502, ResponseLostError),
    ("GatewayTimeout", 504, ResponseLostError),
    ("RequestTimeout", 400, RequestTimeoutError),
    ("OperationAborted", 409, TransactionConflictError),
    ("ConditionalRequestConflict", 409, TransactionConflictError),
    ("NoSuchBucket", 404, VolumeNotFoundError),
    ("AccessDenied", 403, PermissionDeniedError),
    ("AllAccessDisabled", 403, PermissionDeniedError),
    ("SomethingNewAndForbidden", 403, PermissionDeniedError),
    ("ExpiredToken", 400, CredentialsError),
    ("InvalidToken", 400, CredentialsError),
    ("InvalidAccessKeyId", 403, CredentialsError),
    ("SignatureDoesNotMatch", 403, CredentialsError),
    ("RequestTimeTooSkewed", 403, CredentialsError),
    ("QuotaExceeded", 403, NoSpaceError),
    ("SomethingFull", 507, NoSpaceError),
    ("NotImplemented", 501, UnsupportedError),
    ("InvalidObjectState", 400, ServiceError),
    ("EntityTooLarge", 400, ServiceError),
]


async def test_s3_codes(s3_blobs: OpenBlobs) -> None:
    async with FaultProxy() as proxy, s3_blobs(settings(proxy.url)) as blobs:
        for code, status, expected in S3_CODES:
            proxy.clear()
            proxy.rule(s3_error(code, "as documented", status=status))
            calls = BLOB_READS | BLOB_WRITES
            for name, call in calls.items():
                error = await raised(call(blobs))
                assert (code, name, type(error)) == (code, name, expected)
                assert (error.path or "").startswith("s3://data/")
                assert code in str(error)
                assert getattr(error, "service_code", code) == code
            assert len(proxy.calls) == len(calls), "a call is one request, whatever the answer"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (403, PermissionDeniedError),
        (400, ServiceError),
        (429, ThrottledError),
        (500, ResponseLostError),
        (502, ResponseLostError),
        (503, ResponseLostError),
        (504, ResponseLostError),
    ],
)
async def test_answers_without_a_body(
    status: int, expected: type[S3kError], s3_blobs: OpenBlobs
) -> None:
    """HEAD has no room for a code, and gateways have bodies of their own."""
    async with FaultProxy() as proxy, s3_blobs(settings(proxy.url)) as blobs:
        proxy.rule(Answer(status), method="HEAD")
        proxy.rule(Answer(status, b"<html><h1>gateway</h1></html>", {"Content-Type": "text/html"}))
        for call in (blobs.head("k"), blobs.exists(), blobs.put("k", b"1")):
            assert type(await raised(call)) is expected


async def test_a_code_that_a_call_gives_a_meaning(s3_blobs: OpenBlobs) -> None:
    async with FaultProxy() as proxy, s3_blobs(settings(proxy.url)) as blobs:
        proxy.rule(s3_error("PreconditionFailed", status=412), method="PUT")
        proxy.rule(s3_error("InvalidRange", status=416), path="/range$")
        proxy.rule(s3_error("NoSuchKey", status=404))
        assert type(await raised(blobs.put("k", b"1", if_absent=True))) is BlobExistsError
        assert type(await raised(blobs.put("k", b"1", if_match="e"))) is BlobChangedError
        assert await blobs.get("range", 5) == b""
        assert type(await raised(blobs.get("k"))) is BlobNotFoundError
        assert await blobs.head("k") is None
        await blobs.delete("k")


async def test_replacing_what_is_gone_is_a_change(s3_blobs: OpenBlobs) -> None:
    async with FaultProxy() as proxy, s3_blobs(settings(proxy.url)) as blobs:
        proxy.rule(s3_error("NoSuchKey", status=404))
        assert type(await raised(blobs.put("k", b"1", if_match="e"))) is BlobChangedError


async def test_another_region_is_named(s3_blobs: OpenBlobs) -> None:
    async with FaultProxy() as proxy, s3_blobs(settings(proxy.url)) as blobs:
        wrong = s3_error(
            "AuthorizationHeaderMalformed",
            "the region 'us-east-1' is wrong; expecting 'eu-west-1'",
            status=400,
        )
        proxy.rule(wrong)
        error = await raised(blobs.get("k"))
        assert type(error) is ConfigError
        assert "eu-west-1" in str(error)


async def test_a_failed_condition_carries_the_stored_item(dynamo_items: OpenItems) -> None:
    async with FaultProxy() as proxy, dynamo_items(settings(proxy.url)) as items:
        proxy.rule(
            dynamodb_error(
                "ConditionalCheckFailedException", "The conditional request failed", Item=STORED
            )
        )
        for name in ("put", "update", "delete"):
            error = await raised(ITEM_WRITES[name](items))
            assert isinstance(error, ConditionFailedError)
            assert error.current == {0: DECODED}


async def test_a_failed_condition_on_nothing(dynamo_items: OpenItems) -> None:
    async with FaultProxy() as proxy, dynamo_items(settings(proxy.url)) as items:
        proxy.rule(
            dynamodb_error("ConditionalCheckFailedException", "The conditional request failed")
        )
        error = await raised(items.write(Delete(KEY, Condition())))
        assert isinstance(error, ConditionFailedError)
        assert error.current == {0: None}


def cancelled(*reasons: Mapping[str, object] | str) -> Answer:
    listed = [{"Code": reason} if isinstance(reason, str) else dict(reason) for reason in reasons]
    codes = ", ".join(str(reason["Code"]) for reason in listed)
    return dynamodb_error(
        "TransactionCanceledException",
        f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]",
        CancellationReasons=listed,
    )


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (cancelled("None", "TransactionConflict"), TransactionConflictError),
        (cancelled("TransactionConflict", "ThrottlingError"), ThrottledError),
        (cancelled("ProvisionedThroughputExceeded", "None"), ThrottledError),
        (cancelled("ThrottlingError", "None"), ThrottledError),
        (cancelled("None", {"Code": "ValidationError", "Message": "wrong type"}), ServiceError),
        (cancelled("TransactionConflict", "ItemCollectionSizeLimitExceeded"), ServiceError),
        (cancelled("None", "None"), ServiceError),
    ],
)
async def test_cancelled_transactions(
    answer: Answer, expected: type[S3kError], dynamo_items: OpenItems
) -> None:
    async with FaultProxy() as proxy, dynamo_items(settings(proxy.url)) as items:
        proxy.rule(answer)
        error = await raised(items.transact([PUT], "token"))
        assert type(error) is expected
        assert isinstance(error, TRANSIENT) == (expected is not ServiceError)


async def test_failed_conditions_of_a_transaction_go_before_everything_else(
    dynamo_items: OpenItems,
) -> None:
    async with FaultProxy() as proxy, dynamo_items(settings(proxy.url)) as items:
        failed = {"Code": "ConditionalCheckFailed", "Message": "The conditional request failed"}
        proxy.rule(
            cancelled("TransactionConflict", failed, "ThrottlingError", {**failed, "Item": STORED})
        )
        error = await raised(items.transact([PUT], "token"))
        assert isinstance(error, ConditionFailedError)
        assert error.current == {1: None, 3: DECODED}


async def test_reasons_that_only_the_message_gives(dynamo_items: OpenItems) -> None:
    async with FaultProxy() as proxy, dynamo_items(settings(proxy.url)) as items:
        text = (
            "Transaction cancelled, please refer cancellation reasons for specific reasons [None, "
            "{}]"
        )
        proxy.rule(
            dynamodb_error("TransactionCanceledException", text.format("TransactionConflict")),
            times=1,
        )
        proxy.rule(
            dynamodb_error("TransactionCanceledException", text.format("ConditionalCheckFailed"))
        )
        assert type(await raised(items.transact([PUT], "token"))) is TransactionConflictError
        error = await raised(items.transact([PUT], "token"))
        assert isinstance(error, ConditionFailedError)
        assert error.current == {1: None}


async def test_an_answer_that_is_no_json_is_no_missing_item(dynamo_items: OpenItems) -> None:
    async with FaultProxy() as proxy, dynamo_items(settings(proxy.url)) as items:
        proxy.rule(
            Answer(200, b"<html>sign in to the network</html>", {"Content-Type": "text/html"}),
            times=1,
        )
        proxy.rule(json_answer({}))
        assert type(await raised(items.get(KEY))) is ResponseLostError
        assert await items.get(KEY) is None


SIGNATURE_TEXT = (
    "The request signature we calculated does not match the signature you provided.\n"
    "The Canonical String for this request should have "
    f"been\n'POST\n/\n\nx-amz-security-token:{SESSION_TOKEN}\n'"
)


async def told(call: Awaitable[Any]) -> tuple[S3kError, str]:
    """The error of a call, and everything that a log, a traceback or a pickle would show of it."""
    error = await raised(call)
    shown = "".join(traceback.format_exception(error)) + repr(error) + repr(vars(error))
    shown += repr(vars(error.__cause__)) if error.__cause__ else ""
    return error, shown + repr(pickle.dumps(error))


async def test_refused_credentials_do_not_show(
    dynamo_items: OpenItems, s3_blobs: OpenBlobs
) -> None:
    async with FaultProxy() as proxy:
        aws = settings(proxy.url)
        async with dynamo_items(aws) as items, s3_blobs(aws) as blobs:
            proxy.rule(
                dynamodb_error("InvalidSignatureException", SIGNATURE_TEXT), target="GetItem"
            )
            proxy.rule(
                dynamodb_error("InvalidSignatureException", SIGNATURE_TEXT),
                target="TransactWriteItems",
            )
            proxy.rule(
                s3_error(
                    "ExpiredToken",
                    "The provided token has expired.",
                    status=400,
                    **{"Token-0": SESSION_TOKEN},
                ),
                method="GET",
            )
            proxy.rule(
                s3_error(
                    "SignatureDoesNotMatch",
                    SIGNATURE_TEXT,
                    status=403,
                    CanonicalRequest=f"x-amz-security-token:{SESSION_TOKEN}",
                )
            )
            for call in (
                items.get(KEY),
                items.transact([PUT], "t"),
                blobs.get("k"),
                blobs.put("k", b"1"),
            ):
                error, shown = await told(call)
                assert type(error) is CredentialsError
                assert SESSION_TOKEN not in shown
                assert SECRET_KEY not in shown
            for thing in (items, blobs, aws):
                assert SESSION_TOKEN.encode() not in pickle.dumps(thing) + repr(thing).encode()
                assert SECRET_KEY.encode() not in pickle.dumps(thing) + repr(thing).encode()


async def test_what_asked_for_a_broken_answer_does_not_show(
    dynamo_items: OpenItems, s3_blobs: OpenBlobs
) -> None:
    """aiohttp's error for it holds the headers of the request."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"this is no HTTP\r\n\r\n")

    async with (
        served(serve) as place,
        dynamo_items(settings(place)) as items,
        s3_blobs(settings(place)) as blobs,
    ):
        for call in (items.get(KEY), items.write(PUT), blobs.get("k"), blobs.put("k", b"data")):
            error: BaseException | None = await raised(call)
            assert type(error) is ResponseLostError
            while error is not None:
                shown = f"{error} {error!r} {vars(error)} {error.args}"
                assert SESSION_TOKEN not in shown
                assert "Signature=" not in shown
                error = error.__cause__ or error.__context__


async def test_errors_survive_pickling(dynamo_items: OpenItems) -> None:
    async with FaultProxy() as proxy, dynamo_items(settings(proxy.url)) as items:
        proxy.rule(cancelled({"Code": "ConditionalCheckFailed", "Item": STORED}))
        error = await raised(items.transact([PUT], "token"))
        again = pickle.loads(pickle.dumps(error))
        assert isinstance(again, ConditionFailedError)
        assert again.current == {0: DECODED}
        assert again.path == error.path
