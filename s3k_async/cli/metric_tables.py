"""The totals of a service as tables of 80 columns, and as JSON documents."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from s3k_async._core.metric_totals import Histogram, RequestTotals, TotalsSnapshot
from s3k_async.cli.output import human_size
from s3k_async.cli.stats import PARTS, milliseconds

__all__ = ["MetricRow", "documents", "lines", "rows_of"]

_WIDTH: Final = 80
_NAME: Final = 28
_LATENCY: Final = ("p50", "p95", "p99")


@dataclass
class MetricRow:
    """The totals of one name in a table: of a verb, of an operation of a part, of the queue of a
    part, or of an event."""

    kind: str
    """`verb`, `request`, `queue` or `event`."""
    volume: str
    part: str
    """Of a request and a queue; empty otherwise."""
    name: str
    """Verb, operation or event; empty for a queue."""
    totals: RequestTotals
    errors: dict[str, int] = field(default_factory=dict)
    """Numbers by class, sorted."""
    events: int = 0

    @property
    def count(self) -> int:
        """Number of calls, requests or events."""
        return self.events or self.totals.latency.count


def rows_of(totals: TotalsSnapshot, volume: str | None) -> list[MetricRow]:
    """The rows with a count, sorted by volume, kind, part and name; `volume`: only of this one."""
    found: dict[tuple[str, str, str, str], MetricRow] = {}

    def row(kind: str, where: str, part: str, name: str) -> MetricRow:
        none = RequestTotals(Histogram(totals.bounds))
        key = where, kind, part, name
        return found.setdefault(key, MetricRow(kind, where, part, name, none))

    for (where, verb, error), histogram in sorted(totals.verbs.items()):
        _add(row("verb", where, "", verb), RequestTotals(histogram), error)
    for (where, part, operation, error), each in sorted(totals.requests.items()):
        _add(row("request", where, part, operation), each, error)
    for (where, part), histogram in totals.queues.items():
        _add(row("queue", where, part, ""), RequestTotals(histogram), "")
    for (where, event), number in totals.events.items():
        row("event", where, "", event).events += number
    rows = (each for each in found.values() if each.count and volume in (None, each.volume))
    return sorted(rows, key=_order)


def _add(row: MetricRow, totals: RequestTotals, error: str) -> None:
    row.totals.merge(totals)
    if error and totals.latency.count:
        row.errors[error] = row.errors.get(error, 0) + totals.latency.count


def _order(row: MetricRow) -> tuple[object, ...]:
    part = PARTS.index(row.part) if row.part in PARTS else len(PARTS)
    return row.volume, tuple(_HEADINGS).index(row.kind), part, row.part, row.name


def documents(rows: Sequence[MetricRow], seconds: float | None) -> Iterator[dict[str, Any]]:
    """A JSON document for each row, with rates if the time of the rows is given."""
    for row in rows:
        named = {"kind": row.kind, "volume": row.volume}
        if row.part:
            named["part"] = row.part
        if row.name:
            named[{"verb": "verb", "request": "operation", "event": "event"}[row.kind]] = row.name
        document: dict[str, Any] = {**named, "count": row.count}
        if row.kind in ("verb", "request"):
            document["errors"] = row.errors
        if row.kind == "request":
            mine = row.totals
            document |= {
                "retries": mine.retries,
                "throttles": mine.throttles,
                "sent_bytes": mine.sent,
                "received_bytes": mine.received,
            }
        if row.kind != "event":
            document |= milliseconds(row.totals.latency)
        if seconds is not None:
            document["per_second"] = _rate(row.count, seconds)
        yield document


_HEADINGS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "verb": ("calls", ("errors",)),
    "request": ("requests", ("sent", "recv")),
    "queue": ("queue time", ()),
    "event": ("events", ()),
}
"""Heading of a table by kind, and its columns beside count, rate and latency."""
_WIDTHS: Final = {"count": 14, "errors": 11, "per s": 9, "sent": 6, "recv": 6}
_COUNT_WITH_RATE: Final = 10
"""Width of a count beside a rate: that of an interval, which is smaller."""


def lines(rows: Sequence[MetricRow], seconds: float | None) -> Iterator[str]:
    """The tables of each volume, with rates if the time of the rows is given."""
    table: tuple[str, str] | None = None
    for row in rows:
        heading, more = _HEADINGS[row.kind]
        columns = _columns(row.kind, more, seconds)
        if table != (row.volume, row.kind):
            table = row.volume, row.kind
            yield ""
            yield f"{heading} of {row.volume or 'clients that are opening their volume'}"
            yield _line("", {name: name for name in columns})
        name = " ".join(each for each in (row.part, row.name) if each)
        yield _line(name, {column: _cell(row, column, seconds) for column in columns})
        yield from _notes(row)


def _columns(kind: str, more: Sequence[str], seconds: float | None) -> list[str]:
    rate = [] if seconds is None else ["per s"]
    latency = [] if kind == "event" else _LATENCY
    return ["count", *rate, *more, *latency]


def _line(name: str, cells: Mapping[str, str]) -> str:
    widths = _WIDTHS | ({"count": _COUNT_WITH_RATE} if "per s" in cells else {})
    shown = (cell.rjust(widths.get(column, 7)) for column, cell in cells.items())
    return f"{name:{_NAME}}{''.join(shown)}"


def _cell(row: MetricRow, column: str, seconds: float | None) -> str:
    if column in _LATENCY:
        return f" {milliseconds(row.totals.latency)[column]:.6g}"
    numbers = {
        "count": row.count,
        "errors": sum(row.errors.values()),
    }
    if column in numbers:
        return f" {numbers[column]:,}"
    if column == "per s":
        return f" {_rate(row.count, seconds or 0.0):,.1f}"
    return f" {human_size(row.totals.sent if column == 'sent' else row.totals.received)}"


def _notes(row: MetricRow) -> list[str]:
    """The errors by class, retries and throttles of a row."""
    texts = [f"{name} {number:,}" for name, number in row.errors.items()]
    for name, number in (("retries", row.totals.retries), ("throttles", row.totals.throttles)):
        texts += [f"{name} {number:,}"] if number else []
    label = "errors: " if row.errors else ""
    return textwrap.wrap(
        label + ", ".join(texts),
        _WIDTH,
        initial_indent="  ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _rate(count: int, seconds: float) -> float:
    return round(count / seconds, 3) if seconds > 0 else 0.0
