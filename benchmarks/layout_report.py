"""Results of the layouts as Markdown between markers of `docs/layouts.md`."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.goals import layout_verdicts
from benchmarks.measuring import Result
from benchmarks.report import write_sections

__all__ = ["is_of_layouts", "write_layouts"]

PREFIX = "layout "
DIRECTORIES = {
    "rename": ("path", "tree", "s3fs", "S3A"),
    "delete": ("path", "tree", "tree, wait"),
}


def is_of_layouts(result: Result) -> bool:
    """Whether a result belongs to the page on layouts."""
    return result.row.startswith(PREFIX)


def write_layouts(
    page: Path,
    results: Sequence[Result],
    environment: Mapping[str, str],
    command: str,
    plots: Sequence[Path],
) -> None:
    """Replace what stands between the markers of a page."""
    sections = {
        **{verb: _directories(verb, results) for verb in DIRECTORIES},
        "costs": _costs(results),
        "files": _files(results),
        "slower": _slower(results),
    }
    write_sections(page, layout_verdicts(results), environment, command, plots, sections)


def _groups(results: Sequence[Result]) -> Iterator[tuple[str, str, dict[str, Result]]]:
    """What was measured together: row, case, and results by contender."""
    groups: dict[tuple[str, str], dict[str, Result]] = {}
    for each in results:
        row = each.row.removeprefix(PREFIX)
        groups.setdefault((row, each.case), {})[each.contender] = each
    for (row, case), group in groups.items():
        yield row, case, group


def _directories(verb: str, results: Sequence[Result]) -> str:
    names = DIRECTORIES[verb]
    text = f"| files | where | {' | '.join(names)} | path / tree |\n"
    text += "|---|---|" + "---|" * len(names) + "---|\n"
    for row, case, group in _groups(results):
        if row == verb:
            files, _, place = case.rpartition(", ")
            cells = [_time(group[name]) if name in group else "" for name in names]
            ratio = _told(_ratios(group, "path", "tree")) if "path" in group else ""
            text += f"| {files.split()[0]} | {place} | {' | '.join(cells)} | {ratio} |\n"
    return text


def _costs(results: Sequence[Result]) -> str:
    """Of one rename and one deletion: requests and capacity units, in memory."""
    kinds = ("table", "log", "read units", "write units")
    text = "| | files | layout | table requests | log requests | read units | write units |\n"
    text += "|---|---|---|---|---|---|---|\n"
    for row, case, group in _groups(results):
        for name, each in group.items():
            if row in DIRECTORIES and "write units" in each.facts:
                counts = [f"{each.facts[kind]:,}" for kind in kinds]
                text += f"| {row} | {case.split()[0]} | {name} | {' | '.join(counts)} |\n"
    return text


def _files(results: Sequence[Result]) -> str:
    text = (
        "| | where | path, a second | tree, a second | tree's time / path's "
        "| µs of processor a unit, path and tree |\n"
    )
    text += "|---|---|---|---|---|---|\n"
    for row, case, group in _groups(results):
        if row not in DIRECTORIES and len(group) == 2:
            work, _, place = case.rpartition(", ")
            rates = (f"{group[name].rate:,.0f}{_spread(group[name])}" for name in ("path", "tree"))
            ratio = _told(_ratios(group, "tree", "path"))
            busy = " and ".join(_busy(group[name]) for name in ("path", "tree"))
            text += f"| {row}, {work} | {place} | {' | '.join(rates)} | {ratio} | {busy} |\n"
    return text


def _slower(results: Sequence[Result]) -> str:
    """Where layout `tree` takes longer, by the median of the rounds."""
    text = ""
    for row, case, group in _groups(results):
        if not {"path", "tree"} <= group.keys():
            continue
        ratios = _ratios(group, "tree", "path")
        if statistics.median(ratios) > 1:
            slower = sum(ratio > 1 for ratio in ratios)
            text += f"| {row} | {case} | {_told(ratios)} | {slower} of {len(ratios)} |\n"
    header = "| | case | tree's time / path's | slower in rounds |\n|---|---|---|---|\n"
    return header + text if text else "In no row.\n"


def _ratios(group: Mapping[str, Result], one: str, other: str) -> list[float]:
    """How many times as long as the other a contender took, round by round."""
    pairs = zip(group[one].times, group[other].times, strict=True)
    return [longer / shorter for longer, shorter in pairs]


def _told(ratios: Sequence[float]) -> str:
    low, middle, high = (_number(bound(ratios)) for bound in (min, statistics.median, max))
    return f"{middle}× ({low} to {high})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 20 else f"{value:.1f}" if value >= 2 else f"{value:.2f}"


def _time(result: Result) -> str:
    low, middle, high = (bound(result.times) * 1000 for bound in (min, statistics.median, max))
    return f"{_ms(middle)} ms ({_ms(low)} to {_ms(high)})"


def _ms(value: float) -> str:
    return f"{value:,.0f}" if value >= 20 else f"{value:.1f}"


def _spread(result: Result) -> str:
    low, high = result.spread
    return f" ({low:,.0f} to {high:,.0f})"


def _busy(result: Result) -> str:
    return f"{statistics.median(result.processor) / result.amount * 1e6:,.0f}"
