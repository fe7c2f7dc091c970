"""Settings of an S3 bucket, through aioboto3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from s3k_async._core.runtime import Runtime
from s3k_async.backends.aws.access import AwsConfig
from s3k_async.backends.aws.error_mapping import map_exceptions
from s3k_async.backends.aws.error_responses import Codes
from s3k_async.backends.aws.service_contact import ServiceContact
from s3k_async.backends.aws.session import AwsClient
from s3k_async.backends.ports.service_inspection import ExpiryRule
from s3k_async.errors import S3kError, UnsupportedError

if TYPE_CHECKING:
    from types_aiobotocore_s3 import S3Client

__all__ = ["S3Inspection"]


class _NoneSetError(S3kError):
    """The bucket has no such configuration."""


_UNSET: Final[Codes] = {
    **dict.fromkeys(
        ("NoSuchLifecycleConfiguration", "ServerSideEncryptionConfigurationNotFoundError"),
        (_NoneSetError, "not set"),
    ),
    "NotImplemented": (UnsupportedError, "the service does not report it"),
}


class S3Inspection(ServiceContact):
    """A BucketInspection of one bucket."""

    def __init__(
        self, bucket: str, service: AwsConfig, session: object | None, runtime: Runtime
    ) -> None:
        client = AwsClient("s3", service, session)
        super().__init__(client, runtime, "HEAD", f"/{quote(bucket)}")
        self._bucket = bucket

    async def versioning(self) -> str:
        """As `BucketInspection.versioning`."""
        client: S3Client = await self.client.get()
        with map_exceptions(self._bucket, codes=_UNSET):
            answer = await client.get_bucket_versioning(Bucket=self._bucket)
            return str(answer.get("Status", "off")).lower()

    async def expiry_rules(self) -> Sequence[ExpiryRule]:
        """As `BucketInspection.expiry_rules`."""
        client: S3Client = await self.client.get()
        try:
            with map_exceptions(self._bucket, codes=_UNSET):
                answer: Any = await client.get_bucket_lifecycle_configuration(Bucket=self._bucket)
                rules = [_rule(each) for each in answer["Rules"] if each["Status"] == "Enabled"]
        except _NoneSetError:
            return ()
        return [each for each in rules if each.deletes or each.aborts or each.former]

    async def encryption(self) -> str:
        """As `BucketInspection.encryption`."""
        client: S3Client = await self.client.get()
        try:
            with map_exceptions(self._bucket, codes=_UNSET):
                answer: Any = await client.get_bucket_encryption(Bucket=self._bucket)
                rule = answer["ServerSideEncryptionConfiguration"]["Rules"][0]
                default = rule["ApplyServerSideEncryptionByDefault"]
                key = default.get("KMSMasterKeyID", "")
                return f"{default['SSEAlgorithm']} {key}".strip()
        except _NoneSetError:
            return ""


def _rule(rule: Any) -> ExpiryRule:
    """A rule in any of its forms: the prefix is in a filter, alone or with other conditions."""
    condition = rule.get("Filter") or {}
    prefix = condition.get("Prefix") or condition.get("And", {}).get("Prefix") or rule.get("Prefix")
    expiration = rule.get("Expiration") or {}
    return ExpiryRule(
        name=str(rule.get("ID", "")),
        prefix=str(prefix or ""),
        deletes=bool(expiration.get("Days") or expiration.get("Date")),
        aborts="AbortIncompleteMultipartUpload" in rule,
        former="NoncurrentVersionExpiration" in rule,
    )
