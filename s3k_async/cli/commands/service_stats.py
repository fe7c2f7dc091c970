"""stats: what a running service does, from its metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import click

from s3k_async._core.metric_totals import TotalsSnapshot
from s3k_async._core.runtime import SYSTEM
from s3k_async._core.worker_threads import in_thread
from s3k_async.adapters.prometheus_exposition import parse_exposition
from s3k_async.cli.command import Amount, VolumeCommand
from s3k_async.cli.event_loop import run_loop
from s3k_async.cli.invocation import Invocation
from s3k_async.cli.metric_source import STANDARD_INPUT, MetricSource
from s3k_async.cli.metric_tables import documents, lines, rows_of
from s3k_async.cli.reporting import warn
from s3k_async.errors import InvalidArgumentError, S3kError
from s3k_async.settings import local_service

__all__ = ["stats"]


_NAMED: Final = 5
"""Most volumes in an error."""


@click.command(cls=VolumeCommand)
@click.argument("url", metavar="URL|FILE")
@click.option(
    "--interval",
    type=Amount(min_open=True),
    metavar="SECONDS",
    help="Read again every SECONDS, and show what was added, until interrupted.",
)
@click.option(
    "--count",
    type=click.IntRange(min=1),
    metavar="N",
    help="With --interval: show N differences, then end.",
)
@click.pass_obj
def stats(invocation: Invocation, url: str, interval: float | None, count: int | None) -> None:
    """Show the calls, requests, latencies, queue times and events of a running service.

    URL is the address of its metrics, which PrometheusMetrics exposes; or FILE, or - for standard
    input, has saved ones. Latencies are in milliseconds: percentiles of all calls, failed or not,
    rounded up to the bound of a bucket. With --volume NAME, only those of this volume.
    """
    if count is not None and interval is None:
        raise click.UsageError("--count needs --interval")
    if interval is not None and url == STANDARD_INPUT:
        raise click.UsageError("--interval reads again: give a URL or a file instead of -")
    settings = local_service(None, config=invocation.config, **invocation.settings)
    volume = None if invocation.volume is None else invocation.volume.removeprefix("s3k://")
    view = _View(invocation, MetricSource(url, settings), volume)
    run_loop(view.run, interval, count)


@dataclass(frozen=True, slots=True)
class _Scrape:
    """The totals of a service at one time."""

    totals: TotalsSnapshot
    at: float
    """Monotonic time, seconds."""


@dataclass(frozen=True, slots=True)
class _View:
    """The metrics of one source, shown."""

    invocation: Invocation
    source: MetricSource
    volume: str | None

    async def run(self, interval: float | None, count: int | None) -> None:
        """Show the totals, then the differences."""
        before = await self._scrape()
        self._need_volume(before.totals)
        self._show(before.totals, None)
        began, number = SYSTEM.monotonic(), 0
        while interval is not None and number != count:
            number += 1
            await SYSTEM.sleep(max(0.0, began + number * interval - SYSTEM.monotonic()))
            before = await self._difference(before, is_last=number == count)

    async def _difference(self, before: _Scrape, *, is_last: bool) -> _Scrape:
        """Show what was added, and return the new scrape. One that fails is reported, and `before`
        stays; as the last one it raises its error."""
        try:
            after = await self._scrape()
        except S3kError as error:
            if is_last:
                raise
            warn(str(error), as_json=self.invocation.json)
            return before
        restarted = after.totals.is_reset(before.totals)
        added = after.totals if restarted else after.totals.since(before.totals)
        self._show(added, after.at - before.at, restarted=restarted)
        return after

    async def _scrape(self) -> _Scrape:
        text = await self.source.read()
        at = SYSTEM.monotonic()
        try:
            return _Scrape(await in_thread(parse_exposition, text), at)
        except InvalidArgumentError as error:
            error.name(self.source.address)
            raise

    def _need_volume(self, totals: TotalsSnapshot) -> None:
        """Raise InvalidArgumentError if there are other volumes than the wanted one."""
        volumes = {row.volume for row in rows_of(totals, None) if row.volume}
        if self.volume is not None and volumes and self.volume not in volumes:
            names = ", ".join(sorted(volumes)[:_NAMED])
            raise InvalidArgumentError(
                f"there are no metrics of the volume {self.volume!r}, but of: {names}",
                path=self.source.address,
            )

    def _show(
        self, totals: TotalsSnapshot, seconds: float | None, *, restarted: bool = False
    ) -> None:
        rows, output = rows_of(totals, self.volume), self.invocation.output
        if self.invocation.json:
            rounded = None if seconds is None else round(seconds, 3)
            output.json(
                {
                    "kind": "scrape",
                    "target": self.source.address,
                    "time_ms": SYSTEM.now_ms(),
                    "seconds": rounded,
                    "restarted": restarted,
                }
            )
            for document in documents(rows, seconds):
                output.json(document)
        else:
            since = "since it started" if seconds is None else f"in the last {seconds:.1f} s"
            since = "restarted; since then" if restarted else since
            if seconds is not None:
                output.line("")
            output.line(f"{self.source.address}: {since}{'' if rows else ', no calls'}")
            for line in lines(rows, seconds):
                output.line(line)
        output.flush()
