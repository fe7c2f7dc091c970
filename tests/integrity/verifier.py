"""Verification of a volume that is given by its stores."""

from __future__ import annotations

from dataclasses import replace

from s3k_async._core.runtime import Runtime
from s3k_async.backends.ports.blobs import BlobStore
from s3k_async.integrity.scope import Scope
from s3k_async.integrity.shuffle import HELD
from s3k_async.integrity.verify import GRACE_SECONDS, Tell, VerifyReport, verify
from s3k_async.namespace.store import MetadataStore
from s3k_async.oplog.log_reader import JavaLogReader, LogReader

__all__ = ["Verifier"]


class Verifier:
    """`verify`, with the arguments of a scope."""

    def __init__(
        self,
        store: MetadataStore,
        blobs: BlobStore,
        log: LogReader | JavaLogReader | None,
        runtime: Runtime,
        *,
        grace: float = GRACE_SECONDS,
        log_blobs: BlobStore | None = None,
        place: BlobStore | None = None,
        held: int = HELD,
    ) -> None:
        self._scope = Scope(store, blobs, log, log_blobs, runtime, int(grace * 1000), place=place)
        self._held = held

    async def verify(
        self, path: str = "/", *, deep: bool = False, progress: Tell | None = None
    ) -> VerifyReport:
        scope = replace(self._scope, path=path)
        return await verify(scope, deep=deep, progress=progress, held=self._held)
