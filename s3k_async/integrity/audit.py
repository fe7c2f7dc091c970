"""The audit trail of destructive runs: each change is recorded before it is made.

One object of JSON lines for each batch, `audit/<run id>/<number, 6 digits>` of the operation log's
place, and the same lines in a local file on request. They are never read back, and never removed by
the package.
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
    """The trail of one run. `blobs`: the log's place, None for a volume without a log. `file`: a
    local file that is added to.
    """

    def __init__(self, blobs: BlobStore | None, run: str, file: str | None = None) -> None:
        self.run = run
        self._blobs = blobs
        self._file = file
        self._number = 0

    async def write(self, records: Sequence[AuditRecord]) -> None:
        """Write a batch down, durably as the stores are. Raises the store's errors and OSError:
        then nothing may be done.
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
