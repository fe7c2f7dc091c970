"""Results as Markdown between markers of a page of the documentation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path

from benchmarks.goals import Verdict, verdicts
from benchmarks.measuring import Result

__all__ = [
    "environment_table",
    "goals_table",
    "plot_links",
    "record_name",
    "replace_sections",
    "write",
]

BEGIN = "<!-- begin: {name} -->"
END = "<!-- end: {name} -->"


def write(
    page: Path,
    results: Sequence[Result],
    environment: Mapping[str, str],
    command: str,
    plots: Sequence[Path],
) -> None:
    """Replace what stands between the markers of a page that all reports have, and `slower` and
    `rows`."""
    sections = {"slower": _slower(results), "rows": _rows(results)}
    write_sections(page, verdicts(results), environment, command, plots, sections)


def write_sections(
    page: Path,
    goals: Sequence[Verdict],
    environment: Mapping[str, str],
    command: str,
    plots: Sequence[Path],
    sections: Mapping[str, str],
) -> None:
    """Replace what stands between the markers `environment`, `goals` and `plots` of a page, and
    those of further sections."""
    replace_sections(
        page,
        {
            "environment": environment_table(environment, command),
            "goals": goals_table(goals),
            "plots": plot_links(page, plots),
            **sections,
        },
    )


def replace_sections(page: Path, sections: Mapping[str, str]) -> None:
    """Replace what stands between the markers of each section."""
    text = page.read_text(encoding="utf-8")
    for name, section in sections.items():
        begin, end = BEGIN.format(name=name), END.format(name=name)
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise ValueError(f"{page} has no markers {begin} and {end}")
        text = f"{before}{begin}\n{section}{end}{after}"
    page.write_text(text, encoding="utf-8")


def record_name(names: Sequence[str], whole: Sequence[str], *, quick: bool) -> str:
    """The file that keeps a run: a run of some rows does not take the place of a whole one."""
    parts = [] if list(names) == list(whole) else list(names)
    return "-".join([*parts, "quick"] if quick else parts or ["full"]) + ".json"


def goals_table(lines: Sequence[Verdict]) -> str:
    """The goals, each met or short."""
    words = {True: "met", False: "**short**", None: "not measured"}
    rows = [
        f"| {line.work} | {line.goal} | {line.measured} | {words[line.met]} |\n" for line in lines
    ]
    return "| work | goal | measured | |\n|---|---|---|---|\n" + "".join(rows)


def plot_links(page: Path, plots: Sequence[Path]) -> str:
    """The plots as pictures of a page."""
    return "\n".join(f"![{plot.stem}]({plot.relative_to(page.parent)})\n" for plot in plots)


def environment_table(environment: Mapping[str, str], command: str) -> str:
    """The command, the machine and the versions of a run."""
    rows = [
        f"| {name} | {value} |\n"
        for name, value in {"command": f"`{command}`", **environment}.items()
    ]
    return "| | |\n|---|---|\n" + "".join(rows)


def _ratio(result: Result, baseline: Result | None) -> float | None:
    if baseline is None or not result.seconds or not baseline.seconds:
        return None
    return baseline.median / result.median


def _cases(results: Sequence[Result]) -> Iterator[tuple[str, str, list[Result]]]:
    """Results that were measured together."""
    group: list[Result] = []
    for result in results:
        if group and (group[0].row, group[0].case) != (result.row, result.case):
            yield group[0].row, group[0].case, group
            group = []
        if any(each.contender == result.contender for each in group):
            yield group[0].row, group[0].case, group
            group = []
        group.append(result)
    if group:
        yield group[0].row, group[0].case, group


def _baseline(group: Sequence[Result]) -> Result | None:
    return next((each for each in group if each.contender == each.baseline), None)


def _slower(results: Sequence[Result]) -> str:
    """Who is slower than whom in which row, and by how much; several cases of a row are one
    line."""
    compared: Counter[tuple[str, str, str]] = Counter()
    slower: dict[tuple[str, str, str], list[tuple[str, float]]] = {}
    for row, case, group in _cases(results):
        for mine, peer in product(group, group):
            if _is_ours(mine) and not _is_ours(peer) and mine.seconds and peer.seconds:
                pair = row, mine.contender, peer.contender
                compared[pair] += 1
                if peer.median < mine.median:
                    slower.setdefault(pair, []).append((case, mine.median / peer.median))
    if not slower:
        return "In no row.\n"
    lines = "".join(_slower_line(pair, found, compared[pair]) for pair, found in slower.items())
    return "| row | case | | is slower than | by |\n|---|---|---|---|---|\n" + lines


def _slower_line(
    pair: tuple[str, str, str], found: Sequence[tuple[str, float]], compared: int
) -> str:
    row, mine, peer = pair
    case = found[0][0] if len(found) == 1 else f"{len(found)} of {compared} cases"
    least, most = (f"{bound(factor for _, factor in found):.1f}×" for bound in (min, max))
    return (
        f"| {row} | {case} | {mine} | {peer} | {least if least == most else f'{least} to {most}'} "
        "|\n"
    )


def _is_ours(result: Result) -> bool:
    return result.contender.startswith("ours")


def _rows(results: Sequence[Result]) -> str:
    text = ""
    previous = ""
    for row, case, group in _cases(results):
        if row != previous:
            text += f"\n### {row}\n\n" + _header(row)
            previous = row
        baseline = _baseline(group)
        for result in group:
            text += _line(case, result, _ratio(result, baseline))
    return text.lstrip("\n")


def _header(row: str) -> str:
    if row == "memory":
        return (
            "| case | contender | idle, MiB | peak, MiB | above idle, MiB "
            "|\n|---|---|---|---|---|\n"
        )
    if row in ("requests", "syncs"):
        return f"| case | contender | {row} |\n|---|---|---|\n"
    if row == "import":
        return "| module | ms | slowest to fastest |\n|---|---|---|\n"
    return (
        "| case | contender | a second | slowest to fastest | µs of processor a unit | ratio | "
        "other side's limit |\n"
        "|---|---|---|---|---|---|---|\n"
    )


def _line(case: str, result: Result, ratio: float | None) -> str:
    facts = result.facts
    if result.row == "memory":
        return (
            f"| {case} | {result.contender} | {facts['idle']} | {facts['peak']} | {facts['above']} "
            "|\n"
        )
    if result.row in ("requests", "syncs"):
        return f"| {case} | {result.contender} | {result.amount:,} |\n"
    if result.row == "import":
        slowest, fastest = max(result.seconds) * 1000, min(result.seconds) * 1000
        return (
            f"| {result.contender} | {result.median * 1000:.0f} | {slowest:.0f} to {fastest:.0f} "
            "|\n"
        )
    low, high = result.spread
    busy = sorted(result.processor)[len(result.processor) // 2] / result.amount * 1e6
    told = "" if ratio is None else f"{ratio:.1f}×"
    return (
        f"| {case} | {result.contender} | {result.rate:,.0f} {result.unit} | {low:,.0f} to "
        f"{high:,.0f} |"
        f" {busy:,.2f} | {told} | {result.limit} |\n"
    )
