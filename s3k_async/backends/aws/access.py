"""Settings of one AWS service."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal, TypeAlias

from s3k_async.backends.aws.credential_source import CredentialSource
from s3k_async.backends.aws.secret_text import Secret

__all__ = ["BY_CUSTOMER_KEY", "ENCRYPTIONS", "AwsConfig", "Secret", "StorageClass", "without_user"]

ENCRYPTIONS: Final = ("AES256", "aws:kms", "aws:kms:dsse")
"""Supported server-side encryption of S3: values of the header `x-amz-server-side-encryption`."""

BY_CUSTOMER_KEY: Final = "SSE-C"
"""The encryption of settings with `customer_key`."""

StorageClass: TypeAlias = Literal[
    "STANDARD",
    "STANDARD_IA",
    "ONEZONE_IA",
    "INTELLIGENT_TIERING",
    "GLACIER_IR",
    "REDUCED_REDUNDANCY",
]
"""Supported storage classes of S3: those from which objects are read at once. Values of the header
`x-amz-storage-class`."""

_USER = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*://)?[^/?#]*@")


def without_user(url: str | None) -> str | None:
    """A URL, or an address without a scheme, without the user and password in it."""
    return None if url is None else _USER.sub(r"\1", url)


@dataclass(frozen=True, slots=True)
class AwsConfig:
    """Settings of one AWS service, or of a compatible one. Unset fields come from the AWS default
    chain.

    Its repr and pickle omit static credentials, `customer_key`, and the user and password of
    `endpoint`, `proxy` and `sts_endpoint`.
    """

    region: str | None = None
    endpoint: str | None = None
    profile: str | None = None
    access_key_id: Secret = field(default_factory=Secret)
    secret_access_key: Secret = field(default_factory=Secret)
    session_token: Secret = field(default_factory=Secret)
    role_arn: str | None = None
    """A role that is assumed with AWS STS, by the credentials above or those of the default
    chain."""
    external_id: str | None = None
    """External id that the trust policy of a role in another account may require."""
    role_session_name: str | None = None
    """Name of the session in CloudTrail; None: `s3k-async`."""
    role_duration: int | None = None
    """Seconds for which the credentials of the role are valid, at least 1,800, as they are renewed
    15 minutes before they expire; None: one hour."""
    web_identity_token_file: str | None = None
    """File of an OpenID Connect token, with which the role is assumed instead of credentials."""
    sts_endpoint: str | None = None
    """URL of a service compatible with AWS STS; None: that of the region."""
    max_connections: int = 64
    connect_timeout: float = 5.0
    read_timeout: float = 30.0
    ca_bundle: str | None = None
    verify_tls: bool = True
    proxy: str | None = None
    encryption: str | None = None
    """Of S3: the server-side encryption of stored objects, one of ENCRYPTIONS; None: the bucket's
    default, or SSE-C with `customer_key`. Another value is an unsupported method of S3A, for which
    writes are refused."""
    kms_key: str | None = None
    """Id or ARN of the key for `aws:kms` and `aws:kms:dsse`; None: the account's key for S3."""
    bucket_key: bool | None = None
    """With `aws:kms`: whether S3 derives the keys of objects from a bucket key, which saves
    requests to KMS; None: the bucket's default."""
    customer_key: Secret = field(default_factory=Secret)
    """Base64 of the 256-bit key with which S3 encrypts and decrypts all objects (SSE-C), instead of
    `encryption`. S3 does not store it."""
    storage_class: StorageClass | None = None
    """Of S3: the storage class of new objects; None: STANDARD."""
    requester_pays: bool = False
    """Of S3: whether the caller pays for requests and transfers, in a bucket of another account."""
    delegated: CredentialSource | None = None
    """Credentials that the Spark driver delegates to its tasks, instead of those above."""

    def __post_init__(self) -> None:
        # Kept in pickles, so that nothing is written unencrypted where the key is missing.
        if self.customer_key and self.encryption is None:
            object.__setattr__(self, "encryption", BY_CUSTOMER_KEY)

    @property
    def installation(self) -> str:
        """Identity of the installation: the endpoint without a user; empty for AWS itself."""
        return (without_user(self.endpoint) or "").rstrip("/").lower()

    def without_secrets(self) -> AwsConfig:
        """A copy without static credentials, customer key, and user and password in a URL."""
        return replace(
            self,
            endpoint=without_user(self.endpoint),
            proxy=without_user(self.proxy),
            sts_endpoint=without_user(self.sts_endpoint),
            access_key_id=Secret(),
            secret_access_key=Secret(),
            session_token=Secret(),
            customer_key=Secret(),
        )

    def __repr__(self) -> str:
        shown = replace(
            self,
            endpoint=without_user(self.endpoint),
            proxy=without_user(self.proxy),
            sts_endpoint=without_user(self.sts_endpoint),
        )
        values = (f"{each.name}={getattr(shown, each.name)!r}" for each in fields(self))
        return f"AwsConfig({', '.join(values)})"

    def __reduce__(self) -> tuple[Any, ...]:
        bare = self.without_secrets()
        return AwsConfig, tuple(getattr(bare, each.name) for each in fields(self))
