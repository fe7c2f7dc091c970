"""Headers of requests that store objects in S3: server-side encryption and storage class.

PutObject, CreateMultipartUpload and CopyObject take the headers; the parts of an upload follow it.
Source: the Amazon S3 API Reference.
"""

from __future__ import annotations

from typing import Final

from s3k_async.backends.aws.access import ENCRYPTIONS, AwsConfig
from s3k_async.errors import ConfigError

__all__ = ["REQUESTER_PAYS", "require_encryption", "storage_headers", "storage_parameters"]

REQUESTER_PAYS: Final = ("x-amz-request-payer", "requester")
"""The header of all requests to a bucket whose requester pays."""
_HEADERS: Final = (
    ("encryption", "x-amz-server-side-encryption", "ServerSideEncryption"),
    ("kms_key", "x-amz-server-side-encryption-aws-kms-key-id", "SSEKMSKeyId"),
    ("bucket_key", "x-amz-server-side-encryption-bucket-key-enabled", "BucketKeyEnabled"),
    ("storage_class", "x-amz-storage-class", "StorageClass"),
)
"""Setting, header, parameter of botocore."""


def storage_headers(aws: AwsConfig, path: str) -> list[tuple[str, str]]:
    """The headers, none for the bucket's defaults. Raises ConfigError as `require_encryption`."""
    require_encryption(aws, path)
    return [
        (header, str(value).lower() if isinstance(value, bool) else value)
        for name, header, _ in _HEADERS
        if (value := getattr(aws, name)) is not None
    ]


def storage_parameters(aws: AwsConfig, path: str) -> dict[str, str | bool]:
    """As `storage_headers`, for a call of botocore."""
    require_encryption(aws, path)
    return {
        parameter: value
        for name, _, parameter in _HEADERS
        if (value := getattr(aws, name)) is not None
    }


def require_encryption(aws: AwsConfig, path: str) -> None:
    """Raises ConfigError, about `path`, if the settings demand an unsupported encryption."""
    if aws.encryption not in (None, *ENCRYPTIONS):
        raise ConfigError(
            f"the settings ask for encryption by {aws.encryption}, which is not supported, so "
            "nothing is written;"
            f" the option encryption takes {', '.join(ENCRYPTIONS)}",
            path=path,
        )
