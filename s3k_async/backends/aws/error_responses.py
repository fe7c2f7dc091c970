"""The mapping of error responses, and of missing responses, to the errors of this package.

The main distinction is whether a write may have been applied:

* not sent, or answered with a refusal: UnreachableError, ThrottledError, TransactionConflictError,
  ConditionFailedError and every other definite error;
* possibly applied: ResponseLostError (no answer, a broken answer, or an internal error of the
  service, which DynamoDB and S3 may report for a write that went through).

Codes as in the error tables of the Amazon DynamoDB Developer Guide ("Error handling with DynamoDB")
and the Amazon S3 API Reference ("Error responses").
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from s3k_async.errors import (
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

__all__ = [
    "EXPIRED",
    "Codes",
    "Decoder",
    "answer_error",
    "dynamodb_refusal",
    "lost",
    "no_answer",
    "service_error",
]

Codes: TypeAlias = Mapping[str, tuple[type[S3kError], str]]
"""Errors of a call's own service codes: code to (class, message)."""
Decoder: TypeAlias = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Decodes the service's form of an item."""

_BY_CODE: Mapping[type[S3kError], frozenset[str]] = {
    ThrottledError: frozenset(
        {
            "BandwidthLimitExceeded",
            "LimitExceededException",
            "ProvisionedThroughputExceeded",
            "ProvisionedThroughputExceededException",
            "RequestLimitExceeded",
            "RequestThrottled",
            "RequestThrottledException",
            "SlowDown",
            "ThrottledException",
            "Throttling",
            "ThrottlingError",
            "ThrottlingException",
            "TooManyRequests",
            "TooManyRequestsException",
            "429",
        }
    ),
    TransactionConflictError: frozenset(
        {
            "ConditionalRequestConflict",
            "OperationAborted",
            "ReplicatedWriteConflictException",
            "TransactionConflict",
            "TransactionConflictException",
        }
    ),
    ResponseLostError: frozenset(
        {
            "InternalError",
            "InternalFailure",
            "InternalServerError",
            "InternalServerErrorException",
            "ServiceUnavailable",
            "ServiceUnavailableException",
            "TransactionInProgressException",
        }
    ),
    RequestTimeoutError: frozenset({"RequestTimeout", "RequestTimeoutException"}),
    CredentialsError: frozenset(
        {
            "AuthFailure",
            "ExpiredToken",
            "ExpiredTokenException",
            "IncompleteSignature",
            "IncompleteSignatureException",
            "InvalidAccessKeyId",
            "InvalidClientTokenId",
            "InvalidSignature",
            "InvalidSignatureException",
            "InvalidToken",
            "MissingAuthenticationToken",
            "MissingAuthenticationTokenException",
            "NotSignedUp",
            "RequestExpired",
            "RequestTimeTooSkewed",
            "SignatureDoesNotMatch",
            "TokenRefreshRequired",
            "UnrecognizedClientException",
        }
    ),
    PermissionDeniedError: frozenset(
        {
            "AccessDenied",
            "AccessDeniedException",
            "AccountProblem",
            "AllAccessDisabled",
            "Forbidden",
        }
    ),
    VolumeNotFoundError: frozenset(
        {"NoSuchBucket", "ResourceNotFoundException", "TableNotFoundException"}
    ),
    BlobNotFoundError: frozenset({"NoSuchKey", "NoSuchVersion"}),
    UnsupportedError: frozenset({"NotImplemented", "UnknownOperationException"}),
    NoSpaceError: frozenset({"InsufficientStorage", "QuotaExceeded", "XMinioStorageFull"}),
    ConfigError: frozenset(
        {"AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect"}
    ),
}
EXPIRED = frozenset(
    {
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidToken",
        "TokenRefreshRequired",
        "UnrecognizedClientException",
    }
)
"""Codes of refusals that renewed credentials may avoid."""
_CLASS_OF: Mapping[str, type[S3kError]] = {
    code: cls for cls, codes in _BY_CODE.items() for code in codes
}

_OF_KEYS = ("InvalidArgument", "InvalidRequest")
_BY_HEAD = {"HeadBucket": "s3:ListBucket on the whole bucket", "HeadObject": "s3:GetObject"}
"""Operations whose refusals have no document, and what they need."""
_NOT_GRANTED = frozenset({"AccessDenied", "AccessDeniedException", "Forbidden"})
"""Codes of refusals that a policy can avoid."""
_ACTION = re.compile(r"not authorized to perform: ((\w+):\w+)")
_OF_POLICIES = frozenset({"dynamodb", "kms", "s3"})
"""Services whose actions are in the policies of `s3k policy`."""
_ROLES = "s3k policy prints the permissions of a role"
_OF_S3 = re.compile(r"Bucket|Object|Part|Upload")
"""In the names of all operations of S3, which may answer `Access Denied` alone."""


def service_error(
    code: str,
    message: str,
    *,
    path: str | None,
    status: int = 0,
    codes: Codes | None = None,
    host: str = "",
    operation: str = "",
) -> S3kError:
    """The error for an answer with `code`; `status` is the HTTP status, which decides for unknown
    codes, `host` the answering host, and `operation` what was called."""
    if codes and code in codes:
        cls, text = codes[code]
        return cls(text, path=path)
    if code == "403" and operation:
        return PermissionDeniedError(_denied_text(operation), path=path)
    if code in _OF_KEYS and "server side encryption" in message.lower():
        return ConfigError(
            "the encryption of the object does not fit the setting customer_key: another key, or "
            f"none (SSE-C): the service answered {code}: {message}",
            path=path,
        )
    known = _CLASS_OF.get(code) or _class_of_status(status, code)
    if known is None:
        return ServiceError(f"the service answered {code}: {message}", path=path, service_code=code)
    if issubclass(known, CredentialsError):
        return known(_credentials_text(code), path=path)
    if code in _NOT_GRANTED:
        return known(_refused_text(code, message, operation), path=path)
    if known is ResponseLostError:
        who = f"the service at {host}" if host else "the service"
        what = f"{status} {code}" if status and code != str(status) else code
        return known(f"{who} answered {what}, the outcome is unknown: {message}", path=path)
    return known(f"the service answered {code}: {message}", path=path)


def dynamodb_refusal(
    body: bytes,
    status: int,
    *,
    path: str | None,
    codes: Codes | None = None,
    decode: Decoder = dict,
    host: str = "",
    operation: str = "",
) -> S3kError:
    """The error for an answer of DynamoDB with a status other than 200; see `map_exceptions` and
    `service_error`."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        return service_error(
            str(status),
            "(no JSON object)",
            path=path,
            status=status,
            codes=codes,
            host=host,
            operation=operation,
        )
    code = (
        str(answer.get("__type") or answer.get("code") or status)
        .rpartition("#")[2]
        .partition(":")[0]
    )
    message = str(answer.get("message") or answer.get("Message") or "")
    return answer_error(
        answer,
        code,
        message,
        path=path,
        status=status,
        codes=codes,
        decode=decode,
        host=host,
        operation=operation,
    )


def answer_error(
    answer: Mapping[str, Any],
    code: str,
    message: str,
    *,
    path: str | None,
    status: int,
    codes: Codes | None,
    decode: Decoder,
    host: str = "",
    operation: str = "",
) -> S3kError:
    """The error for an answer with `code`, with the further members of DynamoDB's answer."""
    if code == "ConditionalCheckFailedException":
        item = answer.get("Item")
        return ConditionFailedError(
            "a condition on the stored item did not hold",
            path=path,
            current={0: decode(item) if item else None},
        )
    if code == "TransactionCanceledException":
        return _cancelled(
            answer.get("CancellationReasons") or _reasons_in(message), message, path, decode
        )
    return service_error(
        code, message, path=path, status=status, codes=codes, host=host, operation=operation
    )


def _cancelled(
    reasons: Sequence[Mapping[str, Any]], message: str, path: str | None, decode: Decoder
) -> S3kError:
    """The error for a cancelled transaction, by its most specific reason."""
    found = {position: str(reason.get("Code") or "None") for position, reason in enumerate(reasons)}
    failed = {
        position: decode(reasons[position]["Item"]) if reasons[position].get("Item") else None
        for position, code in found.items()
        if code == "ConditionalCheckFailed"
    }
    if failed:
        return ConditionFailedError(
            "a condition of the transaction did not hold", path=path, current=failed
        )
    for position, code in found.items():
        if (
            code not in ("None", "TransactionConflict")
            and _CLASS_OF.get(code) is not ThrottledError
        ):
            text = str(reasons[position].get("Message") or "")
            return ServiceError(
                f"action {position} of the transaction: {code}: {text}",
                path=path,
                service_code=code,
            )
    throttled = [at for at, code in found.items() if _CLASS_OF.get(code) is ThrottledError]
    if throttled:
        error = ThrottledError("requests exceed the table's throughput", path=path)
        error.positions = throttled
        return error
    if any(code == "TransactionConflict" for code in found.values()):
        return TransactionConflictError("another request was changing the same item", path=path)
    return ServiceError(
        f"the transaction was cancelled: {message}",
        path=path,
        service_code="TransactionCanceledException",
    )


def _reasons_in(message: str) -> list[dict[str, str]]:
    """Cancellation reasons in the message alone, as in `... [None, TransactionConflict]` of some
    engines."""
    found = re.search(r"\[([A-Za-z, ]+)\]", message)
    return [{"Code": code.strip()} for code in found[1].split(",")] if found else []


def _class_of_status(status: int, code: str) -> type[S3kError] | None:
    """The class for an unknown code; HEAD requests have only the status as their code."""
    if code.isdigit():
        status = int(code)
    if status == 403:
        return PermissionDeniedError
    if status == 429:
        return ThrottledError
    if status == 507:
        return NoSpaceError
    # A success status with a foreign body is no refusal.
    return ResponseLostError if (status >= 500 and status != 501) or 200 <= status < 300 else None


def no_answer(path: str | None, writing: bool) -> S3kError:
    """The error for an answer that did not come in time."""
    if writing:
        return ResponseLostError(
            "no answer within the time allowed, the outcome is unknown", path=path
        )
    return RequestTimeoutError("no answer within the time allowed", path=path)


def lost(path: str | None, what: str) -> ResponseLostError:
    """The error for an answer that came in part or not at all. `what` happened."""
    return ResponseLostError(f"{what} before the whole answer came", path=path)


def _denied_text(operation: str) -> str:
    """The message for a refusal without a document."""
    action = _BY_HEAD.get(operation)
    grant = f"grant {action}" if action else "grant its permission"
    return f"the service denied {operation} without a reason (403): {grant}; {_ROLES}"


def _refused_text(code: str, message: str, operation: str) -> str:
    """The message for a refusal with a document. IAM names the denied action in it."""
    action = _ACTION.search(message)
    if action is not None:
        text = f"the service answered {code}: {message}: grant {action[1]}"
        return f"{text}; {_ROLES}" if action[2] in _OF_POLICIES else text
    if _OF_S3.search(operation):
        text = f"the service answered {code} to {operation}: {message}"
        return f"{text}: grant its permission; {_ROLES}"
    return f"the service answered {code}: {message}"


def _credentials_text(code: str) -> str:
    if code == "RequestTimeTooSkewed":
        return f"the service answered {code}: this machine's clock is wrong"
    if "Expired" in code or code == "TokenRefreshRequired":
        return f"the service answered {code}: the credentials have expired"
    return f"the service answered {code}: the credentials are not accepted"
