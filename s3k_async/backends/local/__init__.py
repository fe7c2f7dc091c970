"""Blobs in directories of local disks."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import ClassVar, Self

from s3k_async._core.file_modes import make_parent
from s3k_async._core.worker_threads import in_thread
from s3k_async.backends.aws.access import AwsConfig
from s3k_async.backends.location import BlobCapabilities, BlobLocation, OpenContext
from s3k_async.backends.ports.blobs import BlobStore
from s3k_async.backends.ports.service_inspection import Inspection
from s3k_async.backends.url_parts import absolute_path, file_url_path

__all__ = ["LocalDirectory"]


@dataclass(frozen=True, slots=True)
class LocalDirectory(BlobLocation):
    """A directory on a local disk."""

    path: str

    scheme: ClassVar[str] = "file"
    form: ClassVar[str] = "file:///PATH"
    is_remote: ClassVar[bool] = False
    capabilities: ClassVar[BlobCapabilities] = BlobCapabilities(
        conditional_writes=True, multipart=True, sorted_listing=True
    )

    @classmethod
    def parse(cls, text: str, service: AwsConfig) -> Self:  # noqa: ARG003
        return cls(file_url_path(text) if text.startswith("file://") else text)

    @classmethod
    def anchored(cls, text: str, base: str | None) -> str:
        return text if text.startswith("file://") else absolute_path(text, base)

    @property
    def directory(self) -> str:
        return self.path

    def open(self, opening: OpenContext) -> BlobStore:  # noqa: ARG002
        from s3k_async.backends.local.local_blobs import LocalBlobs

        return LocalBlobs(self.path)

    def inspection(self, opening: OpenContext) -> Inspection:  # noqa: ARG002
        from s3k_async.backends.local.disk_space import LocalDisk

        return LocalDisk(self.path)

    async def prepare(self) -> None:
        await in_thread(make_parent, self.path)

    def text(self, home: str | None) -> str:
        directory = os.path.abspath(self.path)
        if home is not None and directory.startswith(os.path.join(home, "")):
            return f"./{os.path.relpath(directory, home)}/"
        return f"file://{os.path.join(directory, '')}"

    def below(self, name: str) -> Self:
        return type(self)(os.path.join(self.path, name))

    def prefix_within(self, outer: BlobLocation) -> str | None:
        if not isinstance(outer, LocalDirectory):
            return None
        root, place = (
            os.path.join(os.path.abspath(outer.path), ""),
            os.path.join(os.path.abspath(self.path), ""),
        )
        return place.removeprefix(root) if place.startswith(root) else None
