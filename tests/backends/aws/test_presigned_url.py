"""Signatures in URLs are those of botocore."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from botocore.auth import S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from s3k_async.backends.aws.credentials import Keys
from s3k_async.backends.aws.encryption import customer_key_headers
from s3k_async.backends.aws.presigned_url import Presigning
from s3k_async.config import AwsConfig, Secret

SECRET = "wJalrXUtnFEMI/K7MDENG"
TOKEN = "FwoGZXIvYXdzE+/=="
CUSTOMER_KEY = dict(
    customer_key_headers(AwsConfig(customer_key=Secret(b64encode(b"k" * 32).decode())), "GetObject")
)


def by_botocore(
    method: str,
    url: str,
    region: str,
    token: str | None,
    seconds: int,
    headers: dict[str, str],
) -> str:
    request = AWSRequest(method, url, headers=headers)
    keys = Credentials("AKIDEXAMPLE", SECRET, token)
    S3SigV4QueryAuth(keys, "s3", region, expires=seconds).add_auth(request)
    return str(request.url)


@pytest.mark.parametrize("token", [None, TOKEN])
@pytest.mark.parametrize(
    ("host", "scheme", "key"),
    [
        ("lake.s3.eu-west-1.amazonaws.com", "https", "team/v/0a.id=1b"),
        ("127.0.0.1:9000", "http", "lake/gegeben/ä b+c%2F~d='(*)'"),
    ],
)
@pytest.mark.parametrize("headers", [{}, CUSTOMER_KEY], ids=["", "customer key"])
@pytest.mark.parametrize("parameters", [{}, {"x-amz-request-payer": "requester", "b c": "/é"}])
def test_a_url_is_that_of_botocore(
    host: str,
    scheme: str,
    key: str,
    token: str | None,
    parameters: dict[str, str],
    headers: dict[str, str],
) -> None:
    path = f"/{quote(key)}"
    extra = "&".join(f"{quote(name)}={quote(text, safe='')}" for name, text in parameters.items())
    given = f"{scheme}://{host}{path}" + (f"?{extra}" if extra else "")
    for method, seconds in (("GET", 60), ("HEAD", 604_800)):
        theirs = by_botocore(method, given, "eu-west-1", token, seconds, headers)
        fields = {name: values[0] for name, values in parse_qs(urlsplit(theirs).query).items()}
        signed = datetime.strptime(fields["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        keys = Keys("AKIDEXAMPLE", SECRET, token)
        ours = Presigning(scheme, host, "eu-west-1", keys).url(
            method, path, parameters, seconds, int(signed.timestamp() * 1000) + 999, headers
        )
        found = {name: values[0] for name, values in parse_qs(urlsplit(ours).query).items()}
        assert found == fields
        assert urlsplit(ours)[:3] == urlsplit(theirs)[:3]


def test_neither_the_url_nor_the_representation_has_the_secret_key() -> None:
    signing = Presigning("https", "h", "eu-west-1", Keys("AKIDEXAMPLE", SECRET, TOKEN))
    assert SECRET not in repr(signing)
    assert TOKEN not in repr(signing)
    assert SECRET not in signing.url("GET", "/k", {}, 60, 0)
