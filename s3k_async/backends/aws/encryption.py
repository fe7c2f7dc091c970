"""Server-side encryption: headers of requests that store objects in S3.

PutObject, CreateMultipartUpload and CopyObject take the headers; the parts of an upload follow it.
Source: the Amazon S3 API Reference.
"""

from __future__ import annotations

from typing import Final

from s3k_async.backends.aws.access import ENCRYPTIONS, AwsConfig
from s3k_async.errors import ConfigError

__all__ = ["encryption_headers", "encryption_parameters", "require_encryption"]

_HEADERS: Final = (
    ("encryption", "x-amz-server-side-encryption", "ServerSideEncryption"),
    ("kms_key", "x-amz-server-side-encryption-aws-kms-key-id", "SSEKMSKeyId"),
)
"""Setting, header, parameter of botocore."""


def encryption_headers(aws: AwsConfig, path: str) -> list[tuple[str, str]]:
    """The headers, none for the bucket's default. Raises ConfigError as `require_encryption`."""
    if aws.encryption is None:
        return []
    require_encryption(aws, path)
    return [
        (header, getattr(aws, name))
        for name, header, _ in _HEADERS
        if getattr(aws, name) is not None
    ]


def encryption_parameters(aws: AwsConfig, path: str) -> dict[str, str]:
    """As `encryption_headers`, for a call of botocore."""
    names = {header: parameter for _, header, parameter in _HEADERS}
    return {names[header]: value for header, value in encryption_headers(aws, path)}


def require_encryption(aws: AwsConfig, path: str) -> None:
    """Raises ConfigError, about `path`, if the settings demand an unsupported encryption."""
    if aws.encryption not in (None, *ENCRYPTIONS):
        raise ConfigError(
            f"the settings ask for encryption by {aws.encryption}, which is not supported, so "
            "nothing is written;"
            f" the option encryption takes {', '.join(ENCRYPTIONS)}",
            path=path,
        )
