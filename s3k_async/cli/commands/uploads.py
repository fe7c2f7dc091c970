"""uploads: the unfinished uploads in the locations of a volume."""

from __future__ import annotations

from typing import Final

import click

from s3k_async._core.concurrency import run_all
from s3k_async.cli.command import VolumeCommand
from s3k_async.cli.durations import duration_option
from s3k_async.cli.event_loop import run_loop
from s3k_async.cli.exit_codes import ExitCode
from s3k_async.cli.invocation import Invocation
from s3k_async.cli.output import plural, time_text
from s3k_async.cli.reporting import warn
from s3k_async.cli.volume_addresses import shown_in, whole_volume
from s3k_async.integrity.audit import AuditTrail
from s3k_async.integrity.gc_mark import CollectedData, UnfinishedUpload
from s3k_async.model import ROOT
from s3k_async.volumes import open_volume

__all__ = ["uploads"]

ABORTED: Final = 16
"""Uploads aborted at the same time."""


@click.command(cls=VolumeCommand)
@click.argument("volume", required=False)
@duration_option(
    "--older-than",
    help="Only uploads that began, in a directory were last written to, longer ago, such as 2h or "
    "7d.",
)
@click.option("--abort", is_flag=True, help="Abort them. Needs --older-than.")
@click.option(
    "--expect",
    type=click.IntRange(min=0),
    metavar="N",
    help="Exit with 1, and abort nothing, unless there are N of them.",
)
@click.pass_obj
def uploads(
    invocation: Invocation,
    /,
    volume: str | None,
    older_than: int | None,
    abort: bool,
    expect: int | None,
) -> None:
    """List the unfinished uploads of data and log: of running writers, and of crashed ones.

    Each line: the time of the start (in a directory: of the last write), location, key and id. s3k
    gc aborts those that no writer can finish any more. For uploads of objects that several clients
    share, see s3k object upload.

    A writer whose upload is aborted fails, and publishes nothing.

    In a volume without a prefix of its own, such as one of S3-FileSystem 1.0, all uploads whose
    keys have the form of its keys are listed. They may be of another volume in the bucket, and are
    not aborted.
    """
    if abort and older_than is None:
        raise click.UsageError(
            "--abort needs --older-than: recent uploads belong to running writers"
        )
    config = invocation.resolve(whole_volume(volume).volume)
    place = shown_in(config)

    async def work() -> int:
        opened = await open_volume(config)
        try:
            data = CollectedData.of(opened)
            found = [each async for each in data.uploads(shared=not abort)]
            if older_than is not None:
                # By the clock that tells when uploads began.
                before_ms = await opened.blobs.now_ms() - 1000 * older_than
                found = [each for each in found if 0 < each.upload.started_ms <= before_ms]
            for each in sorted(found, key=lambda each: each.upload.started_ms):
                _print(invocation, place, each)
            if expect not in (None, len(found)):
                warn(
                    f"expected {plural(expect, 'unfinished upload')}, found {len(found):,}",
                    as_json=invocation.json,
                )
                raise click.exceptions.Exit(ExitCode.FAILURE)
            if abort:
                opened.store.require_writable(ROOT)
                audit = AuditTrail(opened.log_blobs, opened.store.runtime.uuid())
                await audit.write([each.audit_record for each in found])
                await run_all(lambda each: each.abort(), found, limit=ABORTED)
            return len(found)
        finally:
            await opened.close()

    found = run_loop(work)
    if not invocation.json and not invocation.quiet:
        done = "aborted " if abort else ""
        invocation.output.line(f"{done}{plural(found, 'unfinished upload')} in {place}")


def _print(invocation: Invocation, place: str, found: UnfinishedUpload) -> None:
    upload = found.upload
    if invocation.json:
        invocation.output.json(
            {
                "volume": place,
                "location": found.location,
                "key": upload.key or None,
                "id": upload.id,
                "started_ms": upload.started_ms or None,
            }
        )
        return
    time = time_text(upload.started_ms) if upload.started_ms else "-"
    invocation.output.line(f"{time}  {found.location:4}  {upload.key or '-'}  {upload.id}")
