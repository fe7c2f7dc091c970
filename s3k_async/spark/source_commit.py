"""The commit of a write on the driver, after all tasks: one transaction, or none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

from s3k_async._core.paths import ancestors, join
from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async.config import VolumeConfig
from s3k_async.errors import (
    ConfigError,
    ConflictError,
    NotDirectoryError,
    OutcomeUnknownError,
    PathNotFoundError,
    S3kError,
)
from s3k_async.integrity.gc_rules import GRACE_SECONDS
from s3k_async.model import ROOT, FileStatus
from s3k_async.spark.settings import SparkVolume, patient
from s3k_async.spark.source_files import WritePlan, WrittenFile, discard

__all__ = ["publish", "volume_to_write"]


CONCURRENT = 16
"""Old files that are read concurrently."""
ATTEMPTS = 20
"""Attempts of an overwrite, which conflicts with concurrent changes of the replaced files."""


def volume_to_write(volume: SparkVolume, lease: float) -> SparkVolume:
    """The volume as tasks and commit open it, with a lease from a task's first byte to the commit.

    Raises ConfigError: the grace period of `s3k gc` must be longer, since unpublished data may yet
    be published. A grace period other than its default is not checked.
    """
    if lease >= GRACE_SECONDS:
        raise ConfigError(
            f"a lease of {lease:g} seconds has to be shorter than the grace period of garbage "
            "collection,"
            f" {GRACE_SECONDS:g} seconds"
        )

    def changed(config: VolumeConfig) -> VolumeConfig:
        return replace(config, tuning=replace(config.tuning, lease=lease))

    waiting = patient(volume)
    return SparkVolume(changed(waiting.driver), changed(waiting.executors))


def publish(fs: S3kSyncClient, plan: WritePlan, files: Sequence[WrittenFile]) -> None:
    """Publish the files, and for an overwrite remove the old ones, in one transaction; after a
    conflict in a new one.

    An error other than OutcomeUnknownError has changed nothing, and dropped the files unless
    entries in the table still have them. Raises as a transaction does.
    """
    attempts = 0
    try:
        while True:
            try:
                _publish(fs, plan, files)
            except (ConflictError, PathNotFoundError) as error:
                attempts += 1
                if not plan.overwrite or attempts == ATTEMPTS or error.keeps_data:
                    raise
            else:
                return
    except OutcomeUnknownError:
        raise
    except S3kError as error:
        if not error.keeps_data:
            discard(fs, files)
        raise


def _publish(fs: S3kSyncClient, plan: WritePlan, files: Sequence[WrittenFile]) -> None:
    base = plan.directory(fs.name, "")
    paths = {file.directory: plan.directory(fs.name, file.directory) for file in files}
    new = {join(paths[file.directory], file.name): file.staged for file in files}
    places = {*paths.values()}
    with fs.transaction() as transaction:
        is_replaced = plan.overwrite and not plan.dynamic and base != ROOT
        if is_replaced:
            transaction.replace(base)
        for path, staged in new.items():
            transaction.publish(path, staged)
        if plan.overwrite and not is_replaced:
            found = _replaced(fs, [*places] if plan.dynamic else [base], places)
            # An earlier attempt with an unknown outcome may have published the new files.
            old = [status for status in found if status.path not in new]
            with ThreadPoolExecutor(CONCURRENT) as pool:
                for _ in pool.map(lambda each: transaction.delete(each.path, recursive=True), old):
                    pass
        if not files:
            transaction.makedirs(base)


def _replaced(fs: S3kSyncClient, tops: Iterable[str], places: set[str]) -> Iterator[FileStatus]:
    """The entries to remove: everything below the tops, whole directories where no new file is
    below them.

    Raises NotDirectoryError for a file where a directory is needed: one transaction cannot replace
    a file by a directory.
    """
    left = list(tops)
    kept = places.union(left, *(ancestors(place) for place in places))
    while left:
        with suppress(PathNotFoundError):
            for status in fs.list(left.pop()):
                if status.path not in kept:
                    yield status
                elif status.is_dir:
                    left.append(status.path)
                else:
                    raise NotDirectoryError(
                        "a file is where a directory of files is written", path=status.path
                    )
