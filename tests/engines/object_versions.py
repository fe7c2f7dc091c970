"""Versions of objects in a bucket, as its owner changes them."""

from __future__ import annotations

from typing import Literal

from s3k_async.backends.s3.s3_blobs import S3Blobs

__all__ = ["delete_version", "set_versioning"]


async def set_versioning(blobs: S3Blobs, status: Literal["Enabled", "Suspended"]) -> None:
    """Whether the bucket keeps former versions from now on."""
    client = await blobs.client()
    await client.put_bucket_versioning(
        Bucket=blobs.bucket, VersioningConfiguration={"Status": status}
    )


async def delete_version(blobs: S3Blobs, key: str, version: str) -> None:
    """Delete one version for good, as a lifecycle rule does."""
    client = await blobs.client()
    await client.delete_object(Bucket=blobs.bucket, Key=key, VersionId=version)
