"""The audit trail of destructive runs: each change is recorded before it is made.

Each batch is one object of JSON lines, `audit/<run id>/<number, 6 digits>` in the log location; on
request the same lines are appended to a local file. The package never reads or removes them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import anyio

from s3k_async._core.file_modes import open_private
from s3k_async.backends.ports.blobs import BlobStore

__all__ = ["AuditRecord", "AuditTrail"]

AuditRecord: TypeAlias = Mapping[str, object]
"""One change, as JSON."""


class AuditTrail:
    """The trail of one run. `blobs`: the log location, None for a volume without a log. `file`: a
    local file to append to.
    """

    def __init__(self, blobs: BlobStore | None, run: str, file: str | None = None) -> None:
        self.run = run
        self._blobs = blobs
        self._file = file
        self._number = 0

    async def write(self, records: Sequence[AuditRecord]) -> None:
        """Write a batch, as durably as the store does. Raises the store's errors and OSError: then
        the changes must not be made.
        """
        if not records:
            return
        data = b"".join(
            json.dumps(record, separators=(",", ":")).encode("ascii") + b"\n" for record in records
        )
        if self._blobs is not None:
            await self._blobs.put(f"audit/{self.run}/{self._number:06d}", data, if_absent=True)
            self._number += 1
        if self._file is not None:
            async with await anyio.open_file(self._file, "ab", opener=open_private) as file:
                await file.write(data)
