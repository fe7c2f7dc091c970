"""verify: the check of listed paths, with alerts."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

import click

from s3k_async._core.paths import normalize
from s3k_async.alerts.alert import Alert, AlertSource
from s3k_async.alerts.finding_alerts import error_alerts, verify_alerts
from s3k_async.bulk.path_verification import THREADS, PathVerifier
from s3k_async.bulk.transfer import ProgressCallback
from s3k_async.cli.chunked_work import need_one_way
from s3k_async.cli.command import VolumeCommand, literal_option
from s3k_async.cli.command_alerts import CommandAlerts
from s3k_async.cli.commands.check import finding_fields, finding_line, problem_counts
from s3k_async.cli.exit_codes import ExitCode
from s3k_async.cli.invocation import Clients, Invocation
from s3k_async.cli.output import plural
from s3k_async.cli.path_lists import open_list
from s3k_async.cli.path_patterns import expanded, is_pattern
from s3k_async.cli.reporting import FailedOperandsError
from s3k_async.cli.volume_addresses import Address, parse_address, shown
from s3k_async.client import volume_of
from s3k_async.config import TableLocation, VolumeConfig
from s3k_async.errors import (
    InvalidArgumentError,
    PathNotFoundError,
    PermissionDeniedError,
    S3kError,
)
from s3k_async.integrity.repair import scope_of
from s3k_async.integrity.verify import VerifyReport
from s3k_async.model import ROOT, Progress

__all__ = ["verify"]

_MOST_THREADS: Final = 1024


@click.command(cls=VolumeCommand)
@click.argument("paths", nargs=-1, metavar="[PATH...]")
@click.option(
    "-f",
    "--file",
    metavar="FILE",
    help="Check the paths in FILE, one per line, or JSON lines; - is standard input.",
)
@click.option("-0", "--null", is_flag=True, help="The paths in FILE are terminated by NUL.")
@click.option(
    "--threads",
    type=click.IntRange(1, _MOST_THREADS),
    default=THREADS,
    show_default=True,
    metavar="N",
    help="Number of files that are checked concurrently.",
)
@click.option("--deep", is_flag=True, help="Also read all data and verify checksums.")
@literal_option
@click.pass_obj
def verify(
    invocation: Invocation,
    paths: tuple[str, ...],
    file: str | None,
    null: bool,
    threads: int,
    deep: bool,
) -> None:
    """Check that listed files exist and that their data has the recorded size and ETag; read-only.

    A directory stands for all files below it. A PATH can be a pattern; one that matches nothing is
    an error, which does not affect the other paths. Lines of FILE are taken literally. Orphans and
    entries without a parent directory appear in no listing: s3k fsck finds them. Paths may be of
    several volumes. In FILE, empty lines and lines that begin with # are ignored. Findings are sent
    as alerts (--alerts), those of each volume to its own sinks. Exits with 9 if there are problems,
    or with 10 if some paths could not be checked.
    """
    need_one_way(paths, file, "--file", {"--null": null}, at_least=1)
    checks = _Checks(invocation, threads, deep)

    async def work(clients: Clients) -> None:
        with invocation.meter("verify") as meter:
            await checks.run(clients, paths, file, null=null, progress=meter.part())

    invocation.run(work)
    found = checks.begun
    failures: list[tuple[str, Exception]] = [*checks.unmatched]
    failures += [each for check in found for each in check.denied]
    try:
        failures += _printed(invocation, found, is_complete=not failures)
    finally:  # also if the output was closed
        failures += _alerted(invocation, found)
    _finish(found, failures, len(checks.unmatched))


@dataclass(slots=True)
class _VolumeCheck:
    """The check of the paths of one volume. `error`: the error that ended it early. `config`: None
    if the volume's settings are invalid."""

    address: Address
    name: str
    report: VerifyReport
    config: VolumeConfig | None = None
    verifier: PathVerifier | None = None
    error: S3kError | None = None
    paths: int = 0
    """The number of paths of the list that were checked, or could not be."""

    @property
    def denied(self) -> list[tuple[str, PermissionDeniedError]]:
        """As of `PathVerifier`."""
        return [] if self.verifier is None else self.verifier.denied

    @property
    def is_complete(self) -> bool:
        """Whether all paths were checked."""
        return self.error is None and not self.denied

    @property
    def place(self) -> tuple[TableLocation, str] | None:
        """The table of the volume, and its prefix in it."""
        return None if self.config is None else (self.config.table, self.config.table_prefix)

    def alerts(self, source: AlertSource) -> list[Alert]:
        """The alerts about the findings, and about a timeout or throttling that ended the check."""
        ended = [] if self.error is None else error_alerts(source, self.error)
        return verify_alerts(source, self.report) + ended


class _Checks:
    """The checks of all volumes of a list. One that fails does not affect the others."""

    def __init__(self, invocation: Invocation, threads: int, deep: bool) -> None:
        self.unmatched: list[tuple[str, PathNotFoundError]] = []
        """The patterns that match nothing."""
        self._found: list[_VolumeCheck] = []
        self._by_address: dict[str | None, _VolumeCheck] = {}
        self._invocation = invocation
        self._threads = threads
        self._deep = deep

    @property
    def begun(self) -> list[_VolumeCheck]:
        """The checks of volumes with paths to check, and those that failed."""
        return [each for each in self._found if each.verifier is not None or each.error is not None]

    async def run(
        self,
        clients: Clients,
        paths: Sequence[str],
        file: str | None,
        *,
        null: bool,
        progress: ProgressCallback | None,
    ) -> None:
        """Check the paths in the arguments or a file. Raises ConfigError, InvalidArgumentError (an
        empty list), and the errors of lists."""
        done, total = 0, None
        operands = [each for path in paths for each in await self._expanded(clients, path)]
        async with aclosing(_grouped(operands, file, null=null)) as groups:
            async for address, some, total in groups:
                await self._check(clients, address, some)
                done += len(some)
                if progress is not None:
                    progress(Progress("verify", done, total, unit="paths"))

    async def _expanded(self, clients: Clients, path: str) -> list[str]:
        """The argument, or the paths that match it. A pattern is no entry that could be missing:
        without matches it is one of `unmatched`, and no finding."""
        address = parse_address(path)
        may_match = is_pattern(address.path) and not clients.literal
        check = self._check_of(address) if may_match else None
        if check is None or check.error is not None:
            return [path]
        try:
            client = await clients.of(address)
            matches = await expanded(clients, [path])
            is_missing = matches == [path] and not await client.exists(address.path)
        except S3kError as error:
            check.error = error
            return [path]
        if not is_missing:
            return matches
        missing = PathNotFoundError("no such file or directory", path=address.path)
        self.unmatched.append((path, missing))
        return []

    async def _check(self, clients: Clients, address: Address, paths: Sequence[str]) -> None:
        check = self._check_of(address)
        if check.error is not None:
            return
        check.paths += len(paths)
        try:
            await (check.verifier or await self._opened(clients, check)).check(paths)
        except S3kError as error:
            check.error = error

    def _check_of(self, address: Address) -> _VolumeCheck:
        if address.volume not in self._by_address:
            self._by_address[address.volume] = self._of(address)
        return self._by_address[address.volume]

    def _of(self, address: Address) -> _VolumeCheck:
        """The check of the volume of an address, which may be known by another address."""
        name = address.volume or self._invocation.volume or "the default volume"
        check = _VolumeCheck(address, name, VerifyReport())
        try:
            check.config = config = self._invocation.resolve(address.volume)
        except S3kError as error:
            check.error = error
        else:
            check.name = address.volume or f"s3k://{config.name or config.where}"
            for each in self._found:
                if each.place == check.place:
                    return each
        self._found.append(check)
        return check

    async def _opened(self, clients: Clients, check: _VolumeCheck) -> PathVerifier:
        client = await clients.of(check.address)
        check.name = shown(client)
        check.verifier = PathVerifier(
            scope_of(volume_of(client)), self._threads, self._deep, check.report
        )
        return check.verifier


async def _grouped(
    paths: Sequence[str], file: str | None, *, null: bool
) -> AsyncGenerator[tuple[Address, list[str], int], None]:
    """An address of a volume, normalised paths in it, and the number of all paths; a volume may
    occur more than once."""
    if file is None:
        for address in map(parse_address, paths):
            yield address, [normalize(address.path)], len(paths)
        return
    async with open_list(file, 1, null=null, annotated=True) as records:
        if not records.count:
            raise InvalidArgumentError(
                "the list contains no paths, so nothing would be checked: list files or "
                "directories, one path per line",
                path=records.name,
            )
        async for volume, some in records.chunks_by_volume():
            yield Address(volume, ROOT, volume or ROOT), some, records.count


def _printed(
    invocation: Invocation, checks: Sequence[_VolumeCheck], *, is_complete: bool
) -> list[tuple[str, Exception]]:
    """Print findings and summaries; returns the errors that ended checks. `is_complete`: whether
    all patterns match."""
    failures = [(each.name, each.error) for each in checks if each.error is not None]
    if invocation.json:
        invocation.output.json(
            {
                "clean": is_complete and not failures and all(each.report.clean for each in checks),
                "volumes": [_document(each) for each in checks],
            }
        )
        return list(failures)
    for each in checks:
        for finding in each.report.problems:
            invocation.output.line(finding_line(finding))
        if not invocation.quiet:
            invocation.output.line(_summary(each))
    return list(failures)


def _summary(check: _VolumeCheck) -> str:
    report = check.report
    text = f"{plural(report.files, 'file')}, {report.bytes:,} bytes in {check.name}"
    if not report.clean:
        text = f"{problem_counts(report)} in {text}"
    elif check.is_complete:
        return f"clean: {text}"
    return text if check.is_complete else f"incomplete: {text}"


def _document(check: _VolumeCheck) -> dict[str, Any]:
    report = check.report
    return {
        "volume": check.name,
        "clean": report.clean and check.is_complete,
        "complete": check.is_complete,
        "files": report.files,
        "directories": report.directories,
        "reservations": report.reservations,
        "bytes": report.bytes,
        "problems": [finding_fields(finding) for finding in report.problems],
    }


def _alerted(invocation: Invocation, checks: Sequence[_VolumeCheck]) -> list[tuple[str, Exception]]:
    """Send the alerts of each volume to its sinks; returns the errors that its settings do not
    ignore."""
    failures: list[tuple[str, Exception]] = []
    for each in checks:
        if each.config is None:
            continue
        try:
            with CommandAlerts(invocation, each.config, "verify") as alerts:
                alerts.add(each.alerts)
        except S3kError as error:
            failures.append((each.name, error))
    return failures


def _finish(
    checks: Sequence[_VolumeCheck], failures: Sequence[tuple[str, Exception]], unmatched: int
) -> None:
    """Raise the errors, else Exit if there are problems. `unmatched`: the number of patterns that
    match nothing."""
    denied = [len(each.denied) for each in checks]
    whole = sum(
        each.error is not None or each.paths > count
        for each, count in zip(checks, denied, strict=True)
    )
    outcomes = whole + sum(denied) + unmatched
    if outcomes == 1 and failures:
        raise failures[0][1]
    if failures:
        raise FailedOperandsError(failures, some_succeeded=len(failures) < outcomes)
    if not all(each.report.clean for each in checks):
        raise click.exceptions.Exit(ExitCode.DAMAGE)
