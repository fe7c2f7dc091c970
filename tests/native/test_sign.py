"""Signature Version 4."""

from __future__ import annotations

import copy
import datetime as dt
import hashlib
import pickle
import zlib
from typing import Any

import pytest
from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from s3k_async import _native
from s3k_async.errors import CredentialsError, InvalidArgumentError, S3kError

ACCESS_KEY = "AKIAIOSFODNN7EXAMPLE"
SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
UNRESERVED = "abcXYZ019-._~"
TIMES = st.integers(0, 4_102_444_800_000)


def _ms(*moment: int) -> int:
    return int(dt.datetime(*moment, tzinfo=dt.UTC).timestamp() * 1000)  # type: ignore[misc,arg-type]


def _signature(headers: list[tuple[str, str]]) -> str:
    return dict(headers)["Authorization"].rpartition("Signature=")[2]


MAY_2013 = _ms(2013, 5, 24)
HOST = "examplebucket.s3.amazonaws.com"


@pytest.mark.parametrize(
    ("method", "path", "query", "headers", "body_sha256", "signature"),
    [
        (
            "GET",
            "/test.txt",
            "",
            [("Range", "bytes=0-9")],
            EMPTY_SHA256,
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        (
            "PUT",
            "/test%24file.text",
            "",
            [
                ("Date", "Fri, 24 May 2013 00:00:00 GMT"),
                ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
            ],
            hashlib.sha256(b"Welcome to Amazon S3.").hexdigest(),
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        ),
        (
            "GET",
            "/",
            "lifecycle=",
            [],
            EMPTY_SHA256,
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
        ),
        (
            "GET",
            "/",
            "max-keys=2&prefix=J",
            [],
            EMPTY_SHA256,
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
    ],
)
def test_the_examples_of_the_s3_documentation(
    method: str,
    path: str,
    query: str,
    headers: list[tuple[str, str]],
    body_sha256: str,
    signature: str,
) -> None:
    signer = _native.Signer(ACCESS_KEY, SECRET, None, "us-east-1", "s3")
    signed = signer.headers(method, HOST, path, query, headers, body_sha256, MAY_2013)
    assert signed[: len(headers)] == headers
    assert _signature(signed) == signature
    assert dict(signed)["X-Amz-Date"] == "20130524T000000Z"


def test_the_example_of_the_general_documentation() -> None:
    signer = _native.Signer(
        "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", None, "us-east-1", "iam"
    )
    signed = signer.headers(
        "GET",
        "iam.amazonaws.com",
        "/",
        "Action=ListUsers&Version=2010-05-08",
        [("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")],
        EMPTY_SHA256,
        _ms(2015, 8, 30, 12, 36),
    )
    assert dict(signed)["Authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request,"
        " SignedHeaders=content-type;host;x-amz-date,"
        " Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"
    )
    assert "X-Amz-Content-SHA256" not in dict(signed)


def _reference(
    kind: type[SigV4Auth],
    signer: tuple[str, str, str | None],
    request: AWSRequest,
    time_ms: int,
    region: str,
    name: str,
) -> str:
    """The signature that botocore gives."""
    auth: Any = kind(Credentials(*signer), name, region)
    moment = dt.datetime.fromtimestamp(time_ms / 1000, dt.UTC)
    request.context["timestamp"] = moment.strftime("%Y%m%dT%H%M%SZ")
    if signer[2] is not None:
        request.headers["X-Amz-Security-Token"] = signer[2]
    request.headers["X-Amz-Date"] = request.context["timestamp"]
    if kind is S3SigV4Auth:
        request.headers["X-Amz-Content-SHA256"] = auth.payload(request)
    return str(
        auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)
    )


CREDENTIALS = st.tuples(
    st.text("ABC012", min_size=16, max_size=20),
    st.one_of(
        st.text("abcXYZ019+/=", min_size=1, max_size=80),
        st.text(st.characters(codec="ascii"), min_size=1),
    ),
    st.one_of(st.none(), st.text("abcXYZ019+/=", min_size=1, max_size=400)),
)
REGIONS = st.sampled_from(["us-east-1", "eu-central-1", "local"])


@given(
    CREDENTIALS,
    REGIONS,
    st.lists(st.tuples(st.binary(max_size=200), TIMES), min_size=1, max_size=4),
)
def test_dynamodb_as_botocore(
    credentials: tuple[str, str, str | None], region: str, calls: list[tuple[bytes, int]]
) -> None:
    signer = _native.Signer(*credentials, region, "dynamodb")
    for body, time_ms in calls:
        signed = dict(signer.dynamodb("127.0.0.1:8000", "DynamoDB_20120810.GetItem", body, time_ms))
        request = AWSRequest("POST", "http://127.0.0.1:8000/", data=body)
        for name in ("Content-Type", "X-Amz-Target"):
            request.headers[name] = signed[name]
        assert signed["Content-Type"] == "application/x-amz-json-1.0"
        assert signed["X-Amz-Target"] == "DynamoDB_20120810.GetItem"
        assert signed.get("X-Amz-Security-Token") == credentials[2]
        wanted = _reference(SigV4Auth, credentials, request, time_ms, region, "dynamodb")
        assert signed["Authorization"].endswith(wanted)


KEYS = st.lists(st.text(UNRESERVED + "%", max_size=8), max_size=4).map(
    lambda names: "/" + "/".join(names).replace("%", "%2F")
)
QUERIES = st.dictionaries(
    st.text(UNRESERVED, min_size=1, max_size=6), st.text(UNRESERVED, max_size=6), max_size=4
).map(lambda pairs: "&".join(f"{name}={value}" for name, value in sorted(pairs.items())))
HEADERS = st.lists(
    st.tuples(
        st.sampled_from(
            ["Range", "x-amz-meta-a", "X-Amz-Meta-B", "If-None-Match", "Content-Type", "User-Agent"]
        ),
        st.text('ab, *:"é\t', max_size=12),
    ),
    max_size=5,
    unique_by=lambda header: header[0],
)


@given(
    CREDENTIALS,
    REGIONS,
    st.sampled_from(["GET", "PUT"]),
    KEYS,
    QUERIES,
    HEADERS,
    st.binary(max_size=50),
    TIMES,
)
def test_s3_as_botocore(
    credentials: tuple[str, str, str | None],
    region: str,
    method: str,
    path: str,
    query: str,
    headers: list[tuple[str, str]],
    body: bytes,
    time_ms: int,
) -> None:
    """Paths are signed as they are: not normalised (`//` and `..` are parts of keys), not encoded
    twice."""
    signer = _native.Signer(*credentials, region, "s3")
    signed = signer.headers(
        method, "s3.test:9000", path, query, headers, hashlib.sha256(body).hexdigest(), time_ms
    )
    request = AWSRequest(method, f"http://s3.test:9000{path}?{query}", data=body)
    for name, value in headers:
        request.headers[name] = value
    assert _signature(signed) == _reference(
        S3SigV4Auth, credentials, request, time_ms, region, "s3"
    )
    assert signed[: len(headers)] == headers


def test_headers_of_the_same_name_are_signed_as_one() -> None:
    signer = _native.Signer(ACCESS_KEY, SECRET, None, "us-east-1", "s3")

    def signature(headers: list[tuple[str, str]]) -> str:
        return _signature(signer.headers("GET", HOST, "/", "", headers, EMPTY_SHA256, MAY_2013))

    assert signature([("x-a", "1"), ("X-A", " 2  3 ")]) == signature([("X-a", "1,2 3")])
    assert signature([("x-a", "1"), ("User-Agent", "u"), ("Expect", "100")]) == signature(
        [("X-a", "1")]
    )


def test_a_key_serves_its_day_only() -> None:
    times = [MAY_2013, MAY_2013 + 86_400_000, MAY_2013 + 86_399_999, MAY_2013]
    signer = _native.Signer(ACCESS_KEY, SECRET, None, "us-east-1", "dynamodb")
    for time_ms in times:
        fresh = _native.Signer(ACCESS_KEY, SECRET, None, "us-east-1", "dynamodb")
        assert signer.dynamodb("h", "t", b"", time_ms) == fresh.dynamodb("h", "t", b"", time_ms)


def test_secrets_stay_inside() -> None:
    signer = _native.Signer(ACCESS_KEY, SECRET, "t0ken", "eu-west-1", "dynamodb")
    assert repr(signer) == str(signer) == "<Signer dynamodb eu-west-1>"
    for leave in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError) as caught:
            leave(signer)
        assert SECRET not in str(caught.value)
    unfit: list[tuple[str, str, str | None]] = [
        ("\ud800key", SECRET, None),
        (ACCESS_KEY, SECRET + "\ud800", None),
        (ACCESS_KEY, SECRET, "t\ud800"),
    ]
    for bad in unfit:
        with pytest.raises(CredentialsError) as refused:
            _native.Signer(*bad, "eu-west-1", "dynamodb")
        assert SECRET not in repr(refused.value)
        assert refused.value.__cause__ is None
        assert refused.value.__context__ is None
    strange: list[tuple[Any, Any, Any]] = [
        (None, SECRET, None),
        (ACCESS_KEY, 5, None),
        (ACCESS_KEY, SECRET.encode(), None),
    ]
    for other in strange:
        with pytest.raises(CredentialsError) as refused:
            _native.Signer(*other, "eu-west-1", "dynamodb")
        assert SECRET not in repr(refused.value)


def test_bad_requests_are_refused_by_name() -> None:
    signer = _native.Signer(ACCESS_KEY, SECRET, None, "us-east-1", "s3")
    fine: list[Any] = ["GET", HOST, "/", "", [("a", "b")], EMPTY_SHA256, MAY_2013]
    for place, bad in enumerate(["\ud800"] * 4 + [[("a", "\ud800")], "\ud800", -1]):
        with pytest.raises(InvalidArgumentError):
            signer.headers(*[*fine[:place], bad, *fine[place + 1 :]])
    for time_ms in (-1, _ms(9999, 12, 31) + 86_400_000):
        with pytest.raises(S3kError, match="no date"):
            signer.dynamodb(HOST, "t", b"", time_ms)


@given(
    st.one_of(st.binary(), st.integers(0, 400_000).map(bytes)),
    st.sampled_from([bytes, bytearray, memoryview]),
)
def test_digests_of_a_body(body: bytes, kind: type[bytes | bytearray | memoryview]) -> None:
    assert _native.sha256_hex(kind(body)) == hashlib.sha256(body).hexdigest()
    assert _native.crc32(kind(body)) == zlib.crc32(body)
