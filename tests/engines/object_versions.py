"""Versions of objects in a bucket, as its owner changes them."""

from __future__ import annotations

from typing import Literal

from s3k_async.backends.s3.s3_blobs import S3Blobs
from tests.engines.process import Engine
from tests.engines.volumes import closing_client

__all__ = ["delete_version", "drop_versioned", "set_versioning"]


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


def drop_versioned(server: Engine, bucket: str) -> None:
    """Remove a bucket with all versions of its objects."""
    with closing_client(server, "s3") as s3:
        for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
            for each in (*page.get("Versions", ()), *page.get("DeleteMarkers", ())):
                s3.delete_object(Bucket=bucket, Key=each["Key"], VersionId=each["VersionId"])
        for upload in s3.list_multipart_uploads(Bucket=bucket).get("Uploads", ()):
            s3.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])
        s3.delete_bucket(Bucket=bucket)
