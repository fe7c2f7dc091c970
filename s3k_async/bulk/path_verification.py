"""The check of listed paths: each file is in the tree, and its data is stored with the recorded
size and entity tag. The table is not scanned and the log is not read."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from s3k_async._core.concurrency import run_all
from s3k_async.backends.ports.blobs import BlobInfo
from s3k_async.errors import (
    CredentialsError,
    ItemFormatError,
    NotDirectoryError,
    PathNotFoundError,
    PermissionDeniedError,
    S3kError,
)
from s3k_async.integrity.facts import Facts, Finding
from s3k_async.integrity.recheck import checked_bytes
from s3k_async.integrity.scope import Scope
from s3k_async.integrity.verify import VerifyReport
from s3k_async.integrity.verify_rules import decide
from s3k_async.listing.listings import Listing
from s3k_async.model import UNCOMMITTED, Entry
from s3k_async.namespace.entry_reader import existing
from s3k_async.storage.change_detection import is_uri
from s3k_async.storage.extents import has_extents, physical_keys
from s3k_async.storage.tiered_blobs import TieredBlobs

__all__ = ["BATCH", "THREADS", "PathVerifier"]

THREADS: Final = 16
"""Files that are checked concurrently by default."""
ATTEMPTS: Final = 4
"""Maximum number of checks of a file that keeps changing."""
BATCH: Final = 500
"""Number of paths that are looked up together."""
_NO_ENTRY: Final = "the path is listed, but there is no entry"


@dataclass(slots=True)
class PathVerifier:
    """Checks paths of one volume and adds the results to `report`, whose number of log records is
    0. `threads`: files that are checked concurrently. `deep`: also read all data and compare
    checksums."""

    scope: Scope
    threads: int = THREADS
    deep: bool = False
    report: VerifyReport = field(default_factory=VerifyReport)
    denied: list[tuple[str, PermissionDeniedError]] = field(default_factory=list)
    """Paths that could not be checked, or not all files below them, for lack of permission."""

    async def check(self, paths: Sequence[str]) -> None:
        """Check normalised paths; a directory stands for all files below it. A path without an
        entry is a finding of the kind `entry_missing`. Raises the stores' errors, except for a
        path without permission, which is added to `denied`; damage is a finding, never an
        error."""
        store = self.scope.store
        for start in range(0, len(paths), BATCH):
            some = paths[start : start + BATCH]
            files: list[Entry] = []
            for path, found in zip(some, await store.get_each(some), strict=True):
                if found is None or isinstance(found, S3kError):
                    self._add_failure(path, found)
                elif found.is_dir:
                    await self._check_below(path)
                else:
                    files.append(found)
            await self._check_files(files, listed=True)

    def _add_failure(self, path: str, error: S3kError | None) -> None:
        """Add what is wrong with a path instead of its entry. `error`: None if there is none.
        Raises errors of the stores."""
        if error is None or isinstance(error, PathNotFoundError | NotDirectoryError):
            self.report.add([Finding("entry_missing", _NO_ENTRY, path=path)])
        elif isinstance(error, ItemFormatError):
            self.report.add([Finding("item_damaged", str(error), path=path)])
        elif isinstance(error, PermissionDeniedError) and not isinstance(error, CredentialsError):
            self.denied.append((path, error))
        else:
            raise error

    async def _check_below(self, path: str) -> None:
        listing = Listing(recursive=True, include_uncommitted=True)
        try:
            async with aclosing(listing.pages(self.scope.store, path)) as pages:
                async for page in pages:
                    files = page.files()
                    self.report.directories += len(page) - len(files)
                    await self._check_files(files, listed=False)
        except (PathNotFoundError, ItemFormatError, PermissionDeniedError) as error:
            self._add_failure(path, error)
        else:
            self.report.directories += 1

    async def _check_files(self, files: Sequence[Entry], *, listed: bool) -> None:
        """`listed`: whether they are paths of the list, so that a removed file is a finding."""
        await run_all(
            lambda entry: self._check_file(entry, listed=listed), files, limit=self.threads
        )

    async def _check_file(self, entry: Entry, *, listed: bool) -> None:
        """Check a file. A problem is reported only if the entry is unchanged after the check, since
        the data of a former version may have been collected. A file that keeps changing has no
        problem: its data is being written."""
        for _ in range(ATTEMPTS):
            found = await self._problems(entry)
            try:
                again = await self._read_again(entry.path) if found else entry
            except ItemFormatError as error:
                self._add_failure(entry.path, error)
                return
            if again is None or again.is_dir:
                self.report.add([Finding("entry_missing", _NO_ENTRY, path=entry.path)] * listed)
                return
            if (again.id, again.version) == (entry.id, entry.version):
                self._count(entry)
                self.report.add(found)
                return
            entry = again

    def _count(self, entry: Entry) -> None:
        self.report.reservations += entry.is_reservation
        if entry.committed:
            self.report.files += 1
            self.report.bytes += entry.size

    async def _read_again(self, path: str) -> Entry | None:
        try:
            return await existing(self.scope.store, path)
        except (PathNotFoundError, NotDirectoryError):
            return None

    async def _problems(self, entry: Entry) -> list[Finding]:
        scope = self.scope
        # The state that clients see: intents are the subject of fsck.
        entry = entry.without_intent()
        blobs = [] if entry.physical in (None, UNCOMMITTED) else await self._blobs(entry)
        facts = Facts(
            entry.id,
            scope.runtime.now_ms(),
            scope.grace_ms,
            entries=(entry,),
            blobs=blobs,
            logged=False,
        )
        found = [each for each in decide(facts) if each.is_problem]
        if found or not entry.committed or not (self.deep or self._is_suspect(entry, blobs)):
            return found
        different = await checked_bytes(scope, entry)
        return [] if different is None else [different]

    async def _blobs(self, entry: Entry) -> list[BlobInfo]:
        names, version = physical_keys(str(entry.physical)), entry.object_version
        found = [await self.scope.head(name, version) for name in names]
        self.report.blobs += sum(blob is not None for blob in found)
        self.report.blob_bytes += sum(blob.size for blob in found if blob is not None)
        return [blob for blob in found if blob is not None]

    def _is_suspect(self, entry: Entry, blobs: Sequence[BlobInfo]) -> bool:
        """Whether the entity tag differs from the recorded one: the data was replaced, or copied
        with the whole location, which the checksum decides. The tags of data that moves between
        tiers are not recorded; the rules compare those of adopted objects."""
        physical = str(entry.physical)
        if is_uri(physical) or has_extents(physical) or isinstance(self.scope.blobs, TieredBlobs):
            return False
        return bool(entry.etag) and any(blob.etag not in ("", entry.etag) for blob in blobs)
