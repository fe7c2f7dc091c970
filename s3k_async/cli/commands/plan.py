"""plan: predicted cost of a verb, or of a mixture of verbs in both layouts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import click

from s3k_async.cli.command import Amount, PlainCommand
from s3k_async.cli.invocation import Invocation
from s3k_async.cli.output import plural
from s3k_async.errors import ConfigError
from s3k_async.settings.options import Option, parse

if TYPE_CHECKING:
    from s3k_async.cost_model import (
        CapacityCost,
        ChildCount,
        Cost,
        LaidTree,
        Prediction,
        PriceTable,
        Service,
        TreeShape,
        VerbArguments,
    )
    from s3k_async.model import LayoutName

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
MIX = "mix"
LAYOUTS: Final[tuple[LayoutName, ...]] = ("path", "tree")


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
    new_client: bool

    def tree(self, layout: LayoutName, suffix_count: int) -> tuple[LaidTree, VerbArguments]:
        """The tree, and the arguments of calls on its files."""
        from s3k_async.config import Tuning
        from s3k_async.cost_model import VerbArguments, lay_out

        tree = lay_out(self.shape, suffix_count, self.service, layout)
        return tree, VerbArguments.below(tree, Tuning())


@dataclass(frozen=True, slots=True)
class _Plan:
    """The cost of calls, and in layout `tree` that of the reclamation of what they delete."""

    prediction: Prediction
    reclamation: Prediction | None
    cost: CapacityCost

    def dollars(self, prices: PriceTable) -> Cost:
        """The price of the requests, including those of the reclamation."""
        return prices.cost(self.prediction) + prices.cost(self.reclamation)


@click.command(cls=PlainCommand)
@click.argument("verb", type=click.Choice([*VERBS, MIX]), metavar="VERB")
@click.argument("shares", nargs=-1, metavar="[VERB=SHARE]...")
@click.option("--layout", type=click.Choice(LAYOUTS), help="Layout of the volume [default: path].")
@_number("--files", "10k", 0, "N", "Number of files: 10k, 1M, 100M.")
@_number("--directories", "1", 1, "N", "Number of directories with files.")
@_number("--fan-out", None, 1, "N", "Maximum number of subdirectories of a directory.")
@_number("--name-bytes", "16", 1, "N", "Length of a name.")
@_number("--depth", "1", 0, "N", "Number of directories above the top directory.")
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
@_number("--calls", "1M", 1, "N", "Number of calls of a mix.")
@click.option(
    "--write-price",
    type=Amount(),
    default=5.0,
    metavar="N",
    help="Price of a write unit in read units, for the comparison of a mix.",
)
@click.option(
    "--prices",
    "price_file",
    metavar="FILE",
    help="Price table in TOML, instead of the list prices of AWS in us-east-1.",
)
@click.option(
    "--new-client",
    is_flag=True,
    help="Layout tree: assume that the client has not read the directories before.",
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
    shares: tuple[str, ...],
    layout: LayoutName | None,
    warm: bool,
    no_atomic: bool,
    new_client: bool,
    latency: float,
    s3_latency: float,
    write_price: float,
    price_file: str | None,
    **options: int,
) -> None:
    """Estimate the requests, capacity units, time and bottleneck of VERB on a tree, offline.

    VERB is list, rename, delete or load (write_many) for a whole tree, and stat, read, write,
    overwrite, rename-file, delete-file or makedirs for one call per file. The counts are those of a
    run without retries; where they depend on name hashes, or on sharing between concurrent calls, a
    range is given.

    VERB mix compares the layouts for a mixture of verbs, each with its share of the calls, as in
    `s3k plan mix stat=60 read=20 write=15 rename=1`. Calls of list, rename, delete and load apply
    to one directory with files each.
    """
    from s3k_async.cost_model import (
        COLD,
        LIST_PRICES,
        WARM,
        Latency,
        Service,
        TreeShape,
        read_prices,
        suggest_suffix_count,
    )

    prices = LIST_PRICES if price_file is None else read_prices(price_file)
    times = Latency.of(latency / 1000, s3_latency / 1000)
    shape = TreeShape(
        files=options["files"],
        leaves=options["directories"],
        fan_out=options["fan_out"],
        name_bytes=options["name_bytes"],
        path_bytes=options["path_bytes"],
        above=options["depth"],
        item_bytes=options["item_bytes"],
        file_bytes=options["file_size"],
    )
    assumed = _Assumed(
        shape,
        Service(quota=WARM if warm else COLD, latency=times),
        options["concurrency"],
        atomic=not no_atomic,
        new_client=new_client,
    )
    suffix_count = options["suffix_count"]
    if verb == MIX:
        if layout is not None:
            raise click.UsageError("`s3k plan mix` compares both layouts: omit --layout")
        calls = _calls(shares, options["calls"])
        plans = {name: _mixed(calls, assumed, name, suffix_count) for name in LAYOUTS}
        _tell_mix(invocation, calls, plans, write_price, prices)
        return
    if shares:
        raise click.UsageError(f"shares of verbs are for `s3k plan mix`, not for {verb}")

    def planned(suffix_count: int) -> _Plan:
        return _planned(verb, assumed, layout or "path", suffix_count)

    suggested = suggest_suffix_count(lambda number: planned(number).prediction)
    _tell(invocation, planned(suffix_count), suggested, prices)


def _calls(shares: Iterable[str], total: int) -> dict[str, int]:
    """The number of calls of each verb. Raises UsageError."""
    given: dict[str, float] = {}
    for text in shares:
        verb, _, number = text.partition("=")
        if verb not in VERBS:
            raise click.UsageError(f"{text!r} is not VERB=SHARE: VERB is one of {', '.join(VERBS)}")
        if verb in given:
            raise click.UsageError(f"{verb} has two shares")
        try:
            given[verb] = Amount().convert(number, None, None)
        except click.BadParameter as error:
            raise click.UsageError(f"{text!r} is not VERB=SHARE: SHARE is a number") from error
    whole = sum(given.values())
    if not whole:
        raise click.UsageError("a mix needs shares of verbs, such as stat=60 read=20 write=15")
    return {verb: round(total * share / whole) for verb, share in given.items()}


def _planned(verb: str, assumed: _Assumed, layout: LayoutName, suffix_count: int) -> _Plan:
    from s3k_async.cost_model import CapacityCost, first_reads, on_tree, predict, reclamation

    tree, arguments = assumed.tree(layout, suffix_count)
    service, concurrency = assumed.service, assumed.concurrency
    work = on_tree(verb, tree, arguments, service, atomic=assumed.atomic)
    if assumed.new_client:
        work.precede(first_reads(verb, tree, service))
    prediction = predict(verb, tree, work, service, concurrency=concurrency)
    if verb != "delete" or layout == "path":
        return _Plan(prediction, None, CapacityCost.of(work))
    later = reclamation(tree, service)
    reclaimed = predict("reclamation", tree, later, service, concurrency=concurrency)
    return _Plan(prediction, reclaimed, CapacityCost.of(work, later))


def _mixed(
    calls: Mapping[str, int], assumed: _Assumed, layout: LayoutName, suffix_count: int
) -> _Plan:
    from s3k_async.cost_model import SINGLE_VERBS, CapacityCost, first_reads, mixed, predict

    tree, arguments = assumed.tree(layout, suffix_count)
    service, concurrency = assumed.service, assumed.concurrency
    work, later = mixed(calls, tree, arguments, service, atomic=assumed.atomic)
    if assumed.new_client:
        single = sum(
            number for verb, number in calls.items() if verb in SINGLE_VERBS and verb != "makedirs"
        )
        if single or calls.get("load"):
            work.precede(first_reads("stat", tree, service, None if calls.get("load") else single))
        elif any(number for verb, number in calls.items() if verb != "makedirs"):
            work.precede(first_reads("rename", tree, service))
    prediction = predict(MIX, tree, work, service, concurrency=concurrency)
    reclaimed = None
    if later.requests:
        reclaimed = predict("reclamation", tree, later, service, concurrency=concurrency)
    return _Plan(prediction, reclaimed, CapacityCost.of(work, later))


def _tell(invocation: Invocation, plan: _Plan, suggested: int, prices: PriceTable) -> None:
    if invocation.json:
        document = _document(plan, prices) | _price_fields(prices)
        invocation.output.json(document | {"suggested_suffix_count": suggested})
        return
    for line in _lines(plan, suggested, prices):
        invocation.output.line(line)


def _lines(plan: _Plan, suggested: int, prices: PriceTable) -> list[str]:
    prediction = plan.prediction
    bound = prediction.bounds[0]
    lines = [
        f"{prediction.verb} of {_place(prediction)}: {_duration(prediction.seconds)}",
        f"bound by {bound.reason}",
        "",
        f"{'requests':<36} {'expected':>15}  range",
    ]
    lines += [
        _row(f"{part:<6} {name}", count) for (part, name), count in prediction.requests.items()
    ]
    hottest = prediction.hottest
    bounds = ", ".join(f"{bound.name} {_duration(bound.seconds)}" for bound in prediction.bounds)
    lines += [_row("all", prediction.total), "", f"units    {_units(prediction)}"]
    if plan.reclamation is not None:
        lines.append(
            f"later    reclamation by gc: {plan.reclamation.total.likely:,} requests, "
            f"{_units(plan.reclamation)}"
        )
    cost = plan.dollars(prices)
    parts = f"table {_money(cost.table)}, data {_money(cost.data)}, log {_money(cost.log)}"
    return [
        *lines,
        f"price    {_money(cost.total)}: {parts}",
        f"         {_origin(prices)}",
        (
            f"hottest  {hottest.partition}: {hottest.read_units:,.0f} read units, "
            f"{hottest.write_units:,.0f} write units"
        ),
        f"bounds   {bounds}",
        f"suggested suffix count: {suggested:,}",
    ]


def _money(dollars: float) -> str:
    """Dollars and cents."""
    return f"${dollars:,.2f}" if dollars >= 0.005 or not dollars else "<$0.01"


def _origin(prices: PriceTable) -> str:
    return f"requests alone, by {prices.source}, {prices.date}"


def _price_fields(prices: PriceTable) -> dict[str, Any]:
    """The JSON field that names the source of the prices."""
    return {"price_table": {"source": prices.source, "date": prices.date}}


def _dollar_fields(cost: Cost) -> dict[str, float]:
    return {"table": cost.table, "data": cost.data, "log": cost.log, "total": cost.total}


def _place(prediction: Prediction) -> str:
    suffixes = f"{prediction.suffix_count:,} suffix{'' if prediction.suffix_count == 1 else 'es'}"
    layout = ", layout tree" if prediction.layout == "tree" and prediction.verb != MIX else ""
    files = plural(prediction.files, "file")
    return f"{files} in {plural(prediction.directories, 'directory')}, {suffixes}{layout}"


def _units(prediction: Prediction) -> str:
    return f"{prediction.read_units:,.0f} read, {prediction.write_units:,.0f} write"


def _tell_mix(
    invocation: Invocation,
    calls: Mapping[str, int],
    plans: Mapping[LayoutName, _Plan],
    write_price: float,
    table: PriceTable,
) -> None:
    prices = {name: plan.cost.in_read_units(write_price) for name, plan in plans.items()}
    break_even = plans["path"].cost.break_even(plans["tree"].cost)
    cheapest = min(prices, key=lambda name: prices[name])
    cheaper = cheapest if len(set(prices.values())) > 1 else None
    if invocation.json:
        first = plans["path"].prediction
        invocation.output.json(
            {
                "verb": MIX,
                "calls": dict(calls),
                "files": first.files,
                "directories": first.directories,
                "suffix_count": first.suffix_count,
                "layouts": {name: _costs(plan, table) for name, plan in plans.items()},
                "write_price": write_price,
                "prices": prices,
                "cheaper": cheaper,
                "break_even": break_even,
                **_price_fields(table),
            }
        )
        return
    for line in _mix_lines(calls, list(plans.values()), table):
        invocation.output.line(line)
    invocation.output.line("")
    invocation.output.line(_verdict(prices, cheaper, write_price))
    if cheaper is not None:
        invocation.output.line(_validity(plans, cheaper, break_even))


def _mix_lines(calls: Mapping[str, int], plans: Sequence[_Plan], prices: PriceTable) -> list[str]:
    predictions = [plan.prediction for plan in plans]
    later = [plan.reclamation for plan in plans]
    operations = sorted({key for each in predictions for key in each.requests})

    def row(name: str, values: Iterable[str]) -> str:
        return f"{name:<30}" + "".join(f" {value:>17}" for value in values)

    def likely(each: Prediction, key: tuple[Any, str]) -> str:
        return f"{each.requests[key].likely:,}" if key in each.requests else "-"

    lines = [
        f"{sum(calls.values()):,} calls on {_place(predictions[0])}",
        ", ".join(f"{verb} {number:,}" for verb, number in calls.items()),
        "",
        row("requests, expected", (each.layout for each in predictions)),
    ]
    lines += [
        row(f"{key[0]:<6} {key[1]}", (likely(each, key) for each in predictions))
        for key in operations
    ]
    for name, described in (("", predictions), ("later, by gc: ", later)):
        if any(described):
            requests, reads, writes = zip(*map(_totals, described), strict=True)
            lines.append(row(f"{name}requests" if name else "all", requests))
            lines += [row(f"{name}read units", reads), row(f"{name}write units", writes)]
    return [
        *lines,
        row("dollars", (_money(plan.dollars(prices).total) for plan in plans)),
        row("time", (_duration(each.seconds) for each in predictions)),
        _origin(prices),
        *(f"bound in layout {each.layout}: {each.bounds[0].reason}" for each in predictions),
    ]


def _totals(prediction: Prediction | None) -> tuple[str, str, str]:
    """Requests, read units and write units."""
    if prediction is None:
        return "-", "-", "-"
    return (
        f"{prediction.total.likely:,}",
        f"{prediction.read_units:,.0f}",
        f"{prediction.write_units:,.0f}",
    )


def _verdict(
    prices: Mapping[LayoutName, float], cheaper: LayoutName | None, write_price: float
) -> str:
    low, high = sorted(prices.values())
    unit = f"with a write unit at {write_price:g} read units"
    if cheaper is None:
        return f"both layouts cost the same, {low:,.0f}, {unit}"
    return (
        f"layout {cheaper} costs less: {low:,.0f} instead of {high:,.0f}, "
        f"{(high - low) / high:.0%} less, {unit}"
    )


def _validity(
    plans: Mapping[LayoutName, _Plan], cheaper: LayoutName, break_even: float | None
) -> str:
    """At which prices it costs less."""
    if break_even is None:
        return "at any price of a write unit"
    fewest = min(plans, key=lambda name: plans[name].cost.write_units)
    return (
        f"{'above' if fewest == cheaper else 'below'} {break_even:,.2g} read units for a write unit"
    )


def _row(name: str, count: ChildCount) -> str:
    shown = f"{name:<36} {count.likely:>15,}"
    return shown if count.exact else f"{shown}  {count.low:,} to {count.high:,}"


def _duration(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.1f} ms"
    if seconds < 300:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 10_000 else f"{seconds / 3600:.1f} h"


def _document(plan: _Plan, prices: PriceTable) -> dict[str, Any]:
    prediction = plan.prediction
    return {
        "verb": prediction.verb,
        "layout": prediction.layout,
        "files": prediction.files,
        "directories": prediction.directories,
        "suffix_count": prediction.suffix_count,
        **_costs(plan, prices),
    }


def _costs(plan: _Plan, prices: PriceTable) -> dict[str, Any]:
    prediction, reclamation = plan.prediction, plan.reclamation
    hottest = prediction.hottest
    return {
        "seconds": prediction.seconds,
        "bound": prediction.bounds[0].name,
        **_amounts(prediction),
        "reclamation": None if reclamation is None else _amounts(reclamation),
        "dollars": _dollar_fields(plan.dollars(prices)),
        "hottest": {
            "partition": hottest.partition,
            "read_units": hottest.read_units,
            "write_units": hottest.write_units,
        },
        "bounds": {bound.name: bound.seconds for bound in prediction.bounds},
    }


def _amounts(prediction: Prediction) -> dict[str, Any]:
    requests: dict[str, dict[str, Any]] = {}
    for (part, name), count in prediction.requests.items():
        requests.setdefault(part, {})[name] = _count(count)
    return {
        "requests": requests,
        "total": _count(prediction.total),
        "read_units": prediction.read_units,
        "write_units": prediction.write_units,
    }


def _count(count: ChildCount) -> dict[str, int]:
    return {"likely": count.likely, "low": count.low, "high": count.high}
