"""Blobs in S3."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from s3k_async.backends.aws.access import AwsConfig
from s3k_async.backends.location import BlobCapabilities, BlobLocation, OpenContext
from s3k_async.backends.ports.blobs import BlobStore
from s3k_async.backends.ports.service_inspection import Inspection
from s3k_async.backends.url_parts import single_name

__all__ = ["S3Bucket", "s3_prefix"]


@dataclass(frozen=True, slots=True)
class S3Bucket(BlobLocation):
    """A bucket, or the part of one below `prefix` (empty, or ending in `/`)."""

    bucket: str
    prefix: str = ""
    aws: AwsConfig = field(default_factory=AwsConfig)

    uses_aws: ClassVar[bool] = True
    scheme: ClassVar[str] = "s3"
    form: ClassVar[str] = "s3://BUCKET/PREFIX"
    capabilities: ClassVar[BlobCapabilities] = BlobCapabilities(
        conditional_writes=True, multipart=True, sorted_listing=True
    )

    @classmethod
    def parse(cls, text: str, service: AwsConfig) -> Self:
        bucket, _, prefix = text.removeprefix("s3://").partition("/")
        return cls(single_name(bucket, text), s3_prefix(prefix), service)

    @property
    def service(self) -> AwsConfig:
        return self.aws

    def with_service(self, service: AwsConfig) -> Self:
        return replace(self, aws=service)

    @property
    def iam_objects(self) -> tuple[str, str] | None:
        return self.bucket, self.prefix

    def open(self, opening: OpenContext) -> BlobStore:
        from s3k_async.backends.s3.s3_wire import WireBlobs

        return WireBlobs(
            self.bucket,
            self.prefix,
            self.aws,
            opening.session,
            runtime=opening.runtime,
            conditional_reads=opening.conditional_reads,
        )

    def inspection(self, opening: OpenContext) -> Inspection:
        from s3k_async.backends.s3.bucket_facts import S3Inspection

        return S3Inspection(self.bucket, self.aws, opening.session, opening.runtime)

    def text(self, home: str | None) -> str:  # noqa: ARG002
        return f"s3://{self.bucket}/{self.prefix}"

    def below(self, name: str) -> Self:
        return replace(self, prefix=f"{self.prefix}{name}/")

    @property
    def place(self) -> object:
        return self.bucket, self.prefix, self.aws.installation

    def prefix_within(self, outer: BlobLocation) -> str | None:
        if (
            isinstance(outer, S3Bucket)
            and self.bucket == outer.bucket
            and self.prefix.startswith(outer.prefix)
        ):
            return self.prefix.removeprefix(outer.prefix)
        return None

    def with_prefix(self, prefix: str) -> Self:
        return replace(self, prefix=s3_prefix(prefix))

    def require_encryption(self, *, writable: bool) -> None:
        # With S3A's client-side encryption S3 returns encrypted bytes.
        if writable or str(self.aws.encryption).startswith("CSE"):
            from s3k_async.backends.aws.encryption import require_encryption

            require_encryption(self.aws, self.text(None))


def s3_prefix(prefix: str) -> str:
    """Normal form of a prefix: empty, or with `/` at the end and none at the start."""
    text = prefix.strip("/")
    return f"{text}/" if text else ""
