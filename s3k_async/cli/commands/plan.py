"""plan: predicted cost of a verb."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import click

from s3k_async.cli.command import Amount, PlainCommand
from s3k_async.cli.invocation import Invocation
from s3k_async.cli.output import plural
from s3k_async.errors import ConfigError
from s3k_async.settings.options import Option, parse

if TYPE_CHECKING:
    from s3k_async.cost_model import ChildCount, LaidTree, Prediction, Service, TreeShape, Workload

__all__ = ["plan"]

VERBS = (
    "list",
    "rename",
    "delete",
    "load",
    "stat",
    "read",
    "write",
    "overwrite",
    "rename-file",
    "delete-file",
    "makedirs",
)
"""Verbs of whole trees, then of single paths."""


def _number(
    name: str, default: str | None, minimum: int, metavar: str, help: str
) -> Callable[[Any], Any]:
    """An option for a whole number, also as `10k`, `1M` or `8MiB`."""

    def convert(ctx: click.Context, _: click.Parameter, value: str | None) -> int | None:
        if value is None:
            return None
        try:
            return cast(
                "int", parse(Option("number", "size", "client", "", minimum=minimum), value, name)
            )
        except ConfigError as error:
            raise click.UsageError(error.message, ctx) from error

    return click.option(name, default=default, metavar=metavar, callback=convert, help=help)


@dataclass(frozen=True, slots=True)
class _Assumed:
    """Assumptions of a plan."""

    shape: TreeShape
    service: Service
    concurrency: int
    atomic: bool


@click.command(cls=PlainCommand)
@click.argument("verb", type=click.Choice(VERBS), metavar="VERB")
@_number("--files", "10k", 0, "N", "Number of files: 10k, 1M, 100M.")
@_number("--directories", "1", 1, "N", "Number of directories with files.")
@_number("--fan-out", None, 1, "N", "Maximum number of subdirectories of a directory.")
@_number("--name-bytes", "16", 1, "N", "Length of a name.")
@_number("--path-bytes", "24", 1, "N", "Length of the top path.")
@_number(
    "--item-bytes", None, 1, "N", "Size of a file's table item [default: from the name lengths]."
)
@_number("--file-size", "1M", 0, "SIZE", "Size of a file.")
@_number("--suffix-count", "10", 1, "N", "Suffix count of the volume.")
@_number("--concurrency", "32", 1, "N", "Requests in flight for each service.")
@click.option(
    "--latency", type=Amount(), default=4.0, metavar="MS", help="Latency of a table read."
)
@click.option(
    "--s3-latency",
    type=Amount(),
    default=25.0,
    metavar="MS",
    help="Latency of a put to the bucket.",
)
@click.option("--no-atomic", is_flag=True, help="Rename or delete entry by entry, not atomically.")
@click.option(
    "--warm",
    is_flag=True,
    help="Assume a warm table and bucket at their full quota, instead of new ones.",
)
@click.pass_obj
def plan(
    invocation: Invocation,
    /,
    verb: str,
    warm: bool,
    no_atomic: bool,
    latency: float,
    s3_latency: float,
    **options: int,
) -> None:
    """Estimate the requests, capacity units, time and bottleneck of VERB on a tree, offline.

    VERB is list, rename, delete or load (write_many) for a whole tree, and stat, read, write,
    overwrite, rename-file, delete-file or makedirs for one call per file. The counts are those of a
    run without retries; where they depend on name hashes, or on sharing between concurrent calls, a
    range is given.
    """
    from s3k_async.cost_model import COLD, WARM, Latency, Service, TreeShape, suggest_suffix_count

    times = Latency.of(latency / 1000, s3_latency / 1000)
    shape = TreeShape(
        files=options["files"],
        leaves=options["directories"],
        fan_out=options["fan_out"],
        name_bytes=options["name_bytes"],
        path_bytes=options["path_bytes"],
        item_bytes=options["item_bytes"],
        file_bytes=options["file_size"],
    )
    assumed = _Assumed(
        shape,
        Service(quota=WARM if warm else COLD, latency=times),
        options["concurrency"],
        atomic=not no_atomic,
    )
    predicting = _predictor(verb, assumed)
    _tell(invocation, predicting(options["suffix_count"]), suggest_suffix_count(predicting))


def _predictor(verb: str, assumed: _Assumed) -> Callable[[int], Prediction]:
    """A function from a suffix count to a prediction."""
    from s3k_async.config import Tuning
    from s3k_async.cost_model import (
        VerbArguments,
        deletion,
        lay_out,
        listing,
        loading,
        on_every_file,
        predict,
        renaming,
    )

    service, shape = assumed.service, assumed.shape
    of_trees: dict[str, Callable[[LaidTree, Service], Workload]] = {
        "list": listing,
        "rename": lambda tree, service: renaming(tree, service, atomic=assumed.atomic),
        "delete": lambda tree, service: deletion(tree, service, atomic=assumed.atomic),
        "load": lambda tree, service: loading(tree, service, Tuning()),
    }

    def predicting(suffix_count: int) -> Prediction:
        tree = lay_out(shape, suffix_count, service)
        if verb in of_trees:
            work = of_trees[verb](tree, service)
        else:
            bottom = tree.kinds[-1]
            parents = bottom.level + 1
            subject = VerbArguments(
                parents, bottom.file_item, bottom.directory_item, shape.file_bytes
            )
            work = on_every_file(verb, tree, subject, service)
        return predict(verb, tree, work, service, concurrency=assumed.concurrency)

    return predicting


def _tell(invocation: Invocation, prediction: Prediction, suggested: int) -> None:
    if invocation.json:
        invocation.output.json(_document(prediction, suggested))
        return
    for line in _lines(prediction, suggested):
        invocation.output.line(line)


def _lines(prediction: Prediction, suggested: int) -> list[str]:
    bound = prediction.bounds[0]
    where = f"{plural(prediction.files, 'file')} in {plural(prediction.directories, 'directory')}"
    suffixes = f"{prediction.suffix_count:,} suffix{'' if prediction.suffix_count == 1 else 'es'}"
    lines = [
        f"{prediction.verb} of {where}, {suffixes}: {_duration(prediction.seconds)}",
        f"bound by {bound.reason}",
        "",
        f"{'requests':<36} {'expected':>15}  range",
    ]
    lines += [
        _row(f"{part:<6} {name}", count) for (part, name), count in prediction.requests.items()
    ]
    hottest = prediction.hottest
    bounds = ", ".join(f"{bound.name} {_duration(bound.seconds)}" for bound in prediction.bounds)
    return [
        *lines,
        _row("all", prediction.total),
        "",
        f"units    {prediction.read_units:,.0f} read, {prediction.write_units:,.0f} write",
        (
            f"hottest  {hottest.partition}: {hottest.read_units:,.0f} read units, "
            f"{hottest.write_units:,.0f} write units"
        ),
        f"bounds   {bounds}",
        f"suggested suffix count: {suggested:,}",
    ]


def _row(name: str, count: ChildCount) -> str:
    shown = f"{name:<36} {count.likely:>15,}"
    return shown if count.exact else f"{shown}  {count.low:,} to {count.high:,}"


def _duration(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.1f} ms"
    if seconds < 300:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 10_000 else f"{seconds / 3600:.1f} h"


def _document(prediction: Prediction, suggested: int) -> dict[str, Any]:
    requests: dict[str, dict[str, Any]] = {}
    for (part, name), count in prediction.requests.items():
        requests.setdefault(part, {})[name] = _count(count)
    hottest = prediction.hottest
    return {
        "verb": prediction.verb,
        "files": prediction.files,
        "directories": prediction.directories,
        "suffix_count": prediction.suffix_count,
        "seconds": prediction.seconds,
        "bound": prediction.bounds[0].name,
        "requests": requests,
        "total": _count(prediction.total),
        "read_units": prediction.read_units,
        "write_units": prediction.write_units,
        "hottest": {
            "partition": hottest.partition,
            "read_units": hottest.read_units,
            "write_units": hottest.write_units,
        },
        "bounds": {bound.name: bound.seconds for bound in prediction.bounds},
        "suggested_suffix_count": suggested,
    }


def _count(count: ChildCount) -> dict[str, int]:
    return {"likely": count.likely, "low": count.low, "high": count.high}
