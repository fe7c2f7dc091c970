"""Headers of requests that store objects in S3: server-side encryption and storage class.

PutObject, CreateMultipartUpload and CopyObject take the headers; the parts of an upload follow it.
Source: the Amazon S3 API Reference.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from ipaddress import ip_address
from operator import attrgetter
from typing import Final
from urllib.parse import urlsplit

from s3k_async.backends.aws.access import BY_CUSTOMER_KEY, ENCRYPTIONS, AwsConfig
from s3k_async.errors import ConfigError

__all__ = [
    "REQUESTER_PAYS",
    "customer_key_headers",
    "is_customer_key",
    "require_encryption",
    "require_private",
    "storage_headers",
    "storage_parameters",
]

REQUESTER_PAYS: Final = ("x-amz-request-payer", "requester")
"""The header of all requests to a bucket whose requester pays."""
_COPIES: Final = frozenset({"CopyObject", "UploadPartCopy"})
_WITH_KEY: Final = _COPIES | {
    "CreateMultipartUpload",
    "GetObject",
    "HeadObject",
    "PutObject",
    "UploadPart",
}
"""Operations that need the customer key. Source: Amazon S3 User Guide, "Using server-side
encryption with customer-provided keys"."""
_KEY_BYTES: Final = 32
_HEADERS: Final = (
    ("encryption", "x-amz-server-side-encryption", "ServerSideEncryption"),
    ("kms_key", "x-amz-server-side-encryption-aws-kms-key-id", "SSEKMSKeyId"),
    ("bucket_key", "x-amz-server-side-encryption-bucket-key-enabled", "BucketKeyEnabled"),
    ("storage_class", "x-amz-storage-class", "StorageClass"),
)
"""Setting, header, parameter of botocore."""
_settings: Final = attrgetter(*(name for name, _, _ in _HEADERS))
_DEFAULTS: Final = (None,) * len(_HEADERS)


def storage_headers(aws: AwsConfig, path: str) -> list[tuple[str, str]]:
    """The headers, none for the bucket's defaults. Raises ConfigError as `require_encryption`."""
    require_encryption(aws, path)
    if _settings(aws) == _DEFAULTS:
        return []  # mostly, for every object that is stored
    return [
        (header, str(value).lower() if isinstance(value, bool) else value)
        for name, header, _ in _HEADERS
        if (value := getattr(aws, name)) not in (None, BY_CUSTOMER_KEY)
    ]


def storage_parameters(aws: AwsConfig, path: str) -> dict[str, str | bool]:
    """As `storage_headers`, for a call of botocore."""
    require_encryption(aws, path)
    return {
        parameter: value
        for name, _, parameter in _HEADERS
        if (value := getattr(aws, name)) not in (None, BY_CUSTOMER_KEY)
    }


def require_encryption(aws: AwsConfig, path: str) -> None:
    """Raises ConfigError, about `path`, if the settings demand an unsupported encryption."""
    if aws.encryption == BY_CUSTOMER_KEY:
        if not aws.customer_key:
            raise ConfigError(
                "the settings require encryption by SSE-C but lack its key, so writes are refused: "
                "set customer_key",
                path=path,
            )
    elif aws.customer_key:
        raise ConfigError(
            f"customer_key contradicts the encryption {aws.encryption}: remove one of them",
            path=path,
        )
    elif aws.encryption not in (None, *ENCRYPTIONS):
        raise ConfigError(
            f"the settings ask for encryption by {aws.encryption}, which is not supported, so "
            "nothing is written;"
            f" the option encryption takes {', '.join(ENCRYPTIONS)}",
            path=path,
        )


def customer_key_headers(aws: AwsConfig, operation: str) -> list[tuple[str, str]]:
    """The headers of an operation of S3 with the customer key; none without one."""
    if not aws.customer_key or operation not in _WITH_KEY:
        return []
    key = aws.customer_key.reveal()
    digest = hashlib.md5(base64.b64decode(key), usedforsecurity=False).digest()
    values = (("algorithm", "AES256"), ("key", key), ("key-md5", base64.b64encode(digest).decode()))
    starts = ["x-amz-server-side-encryption-customer-"]
    if operation in _COPIES:
        starts.append("x-amz-copy-source-server-side-encryption-customer-")
    return [(start + name, value) for start in starts for name, value in values]


def is_customer_key(text: str) -> bool:
    """Whether a string is a 256-bit key in base64."""
    try:
        return len(base64.b64decode(text, validate=True)) == _KEY_BYTES
    except (binascii.Error, ValueError):
        return False


def require_private(aws: AwsConfig, endpoint: str) -> None:
    """Raises ConfigError for an invalid customer key, or if it would be sent over an unencrypted
    connection to another machine."""
    if not aws.customer_key:
        return
    if not is_customer_key(aws.customer_key.reveal()):
        raise ConfigError("customer_key is not the base64 of a key of 256 bits")
    place = urlsplit(endpoint)
    if place.scheme.lower() == "http" and not _is_loopback(place.hostname or ""):
        raise ConfigError(
            "customer_key would be sent over an unencrypted connection: use an endpoint with https"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
