"""doctor: diagnosis of a volume and of what it depends on."""

from __future__ import annotations

from typing import Any, Final, cast

import click

from s3k_async.cli.command import Amount, VolumeCommand, adopted_option
from s3k_async.cli.exit_codes import ExitCode, exit_code
from s3k_async.cli.invocation import Clients, Invocation
from s3k_async.cli.output import plural
from s3k_async.cli.volume_addresses import whole_volume
from s3k_async.diagnosis.check_result import CheckResult, HealthCheck, failed, run_checks
from s3k_async.diagnosis.volume_diagnosis import TIMEOUT, Diagnosis, diagnose, versions_check
from s3k_async.errors import ConfigError, InvalidArgumentError, UnsupportedError
from s3k_async.volumes.iam_policies import ROLES, Role, adopted_buckets

__all__ = ["doctor"]

_REMEDY: Final = "correct the configuration; s3k init --help lists the settings"


@click.command(cls=VolumeCommand)
@click.argument("volume", required=False)
@click.option(
    "--role",
    type=click.Choice(ROLES),
    help="Also check the permissions of this role of s3k policy.",
)
@adopted_option("Another bucket whose adopted objects the role has to read; repeatable.")
@click.option("--read-only", is_flag=True, help="Skip the checks of a role that have to write.")
@click.option(
    "--timeout",
    type=Amount(min_open=True),
    default=TIMEOUT,
    show_default=True,
    metavar="SECONDS",
    help="Time limit of each check.",
)
@click.pass_obj
def doctor(
    invocation: Invocation,
    volume: str | None,
    role: str | None,
    adopted: tuple[str, ...],
    read_only: bool,
    timeout: float,
) -> None:
    """Check credentials, services, settings, the volume record, permissions and unfinished work.

    Each line is the result of a check, with a remedy for warnings and failures. The volume is not
    changed. Only for a role that writes, write permissions are tested with an object in each
    location, which is removed afterwards. Exits with the code of the first failure; warnings do
    not count.
    """
    address = whole_volume(volume)
    if adopted and role is None:
        raise InvalidArgumentError("--adopted needs --role: the role that has to read the objects")
    buckets = adopted_buckets(adopted)

    async def work(_: Clients) -> Diagnosis:
        try:
            config = invocation.resolve(address.volume)
            return await diagnose(
                config,
                role=cast("Role | None", role),
                adopted=buckets,
                read_only=read_only,
                seconds=timeout,
            )
        except (ConfigError, UnsupportedError) as error:
            return await _unresolved(error, timeout)

    _print(invocation, invocation.run(work))


async def _unresolved(error: ConfigError | UnsupportedError, seconds: float) -> Diagnosis:
    """The diagnosis without a volume."""

    async def settings() -> CheckResult:
        return failed(error, _REMEDY)

    return Diagnosis(
        await run_checks([versions_check(), HealthCheck("settings", settings)], seconds)
    )


def _print(invocation: Invocation, diagnosis: Diagnosis) -> None:
    """Write the results. Raises Exit after a failure."""
    failures = diagnosis.of("failure")
    if invocation.json:
        counts = {f"{status}s": len(diagnosis.of(status)) for status in ("failure", "warning")}
        checks = [_document(each) for each in diagnosis.results]
        invocation.output.json({"ok": not failures, **counts, "checks": checks})
    else:
        for result in diagnosis.results:
            invocation.output.line(_line(result))
        if not invocation.quiet:
            invocation.output.line(
                f"{plural(len(diagnosis.results), 'check')}: "
                f"{plural(len(failures), 'failure')}, "
                f"{plural(len(diagnosis.of('warning')), 'warning')}, "
                f"{len(diagnosis.of('skipped')):,} skipped"
            )
    if failures:
        error = failures[0].error
        code = ExitCode.FAILURE if error is None else exit_code(error)
        raise click.exceptions.Exit(code)


def _line(result: CheckResult) -> str:
    remedy = f"; to do: {result.remedy}" if result.remedy else ""
    return f"{result.status:<8} {result.name}: {result.found}{remedy}"


def _document(result: CheckResult) -> dict[str, Any]:
    return {
        "name": result.name,
        "status": result.status,
        "found": result.found,
        "remedy": result.remedy,
        "code": None if result.error is None else result.error.code,
        "path": None if result.error is None else result.error.path,
    }
