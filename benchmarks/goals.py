"""The goals, and what a run made of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.measuring import Result

__all__ = ["Verdict", "layout_verdicts", "verdicts"]


@dataclass(frozen=True)
class Verdict:
    """One line of the goals table."""

    work: str
    goal: str
    measured: str
    met: bool | None
    """None: not measured in this run."""


class _Run:
    def __init__(self, results: Sequence[Result]) -> None:
        self.results = results

    def of_row(self, row: str) -> list[Result]:
        return [each for each in self.results if each.row == row]

    def of(self, row: str, contender: str, case: str = "") -> list[Result]:
        found = [each for each in self.of_row(row) if each.contender == contender]
        return [each for each in found if case in each.case]

    def ratios(self, row: str, contender: str, case: str = "") -> list[tuple[Result, float]]:
        """How many times as fast as its baseline a contender was, for each case."""
        answer = []
        for ours in self.of(row, contender, case):
            base = [each for each in self.of(row, ours.baseline) if each.case == ours.case]
            # A case may be measured twice, with its own baseline beside it each time.
            if base:
                nearest = min(
                    base, key=lambda each: abs(self.results.index(each) - self.results.index(ours))
                )
                answer.append((ours, nearest.median / ours.median))
        return answer


def verdicts(results: Sequence[Result]) -> list[Verdict]:
    """The goals table of a run."""
    run = _Run(results)
    lines = [
        _ratio(run, "decode a page to objects", 40, "decode", "ours, objects"),
        _ratio(run, "decode a page to Arrow", 60, "decode", "ours, Arrow"),
        _largest(run, "list to objects", 40, "ours, objects"),
        _largest(run, "list to Arrow", 60, "ours, Arrow"),
        _memory(run),
        *_rename(run),
        *_single(run),
        _ratio(run, "keys in a batch, against Python", 20, "keys", "ours", "item keys in a batch"),
        _ratio(
            run,
            "physical keys in a batch, against Python",
            30,
            "keys",
            "ours",
            "physical keys in a batch",
        ),
        *_for_each_file(run),
        *_imports(run),
        *_checks(run),
        *_engines(run),
        *_large(run),
        *_at_latency(run),
        *_embedded(run),
        *_backends(run),
        *_sync(run),
    ]
    return [line for line in lines if line is not None]


def _times(value: float) -> str:
    return f"{value:.1f}×" if value < 20 else f"{value:.0f}×"


def _verdict(
    work: str, least: float, found: list[tuple[Result, float]], *, note: str = ""
) -> Verdict:
    """Met if the worst of the cases is."""
    if not found:
        return Verdict(work, f"≥ {least:g}×", "not measured", None)
    low, high = min(ratio for _, ratio in found), max(ratio for _, ratio in found)
    measured = _times(low) if len(found) == 1 else f"{_times(low)} to {_times(high)}"
    return Verdict(work, f"≥ {least:g}×", measured + note, low >= least)


def _ratio(run: _Run, work: str, least: float, row: str, contender: str, case: str = "") -> Verdict:
    return _verdict(work, least, run.ratios(row, contender, case))


def _largest(run: _Run, work: str, least: float, contender: str) -> Verdict:
    """Over all suffix counts of the largest directory, without latency."""
    found = [pair for pair in run.ratios("list", contender) if pair[0].case.endswith(" 0 ms")]
    most = max((result.amount for result, _ in found), default=0)
    found = [pair for pair in found if pair[0].amount == most]
    return _verdict(f"{work}, {most:,} entries", least, found)


def _memory(run: _Run) -> Verdict | None:
    found = [each for each in run.results if each.row == "memory"]
    if not found:
        return None
    worst = max(found, key=lambda each: float(each.facts["above"]))
    above = float(worst.facts["above"])
    return Verdict(
        f"memory above the idle client, {worst.case}", "≤ 150 MiB", f"{above:.0f} MiB", above <= 150
    )


def _rename(run: _Run) -> list[Verdict]:
    lines = []
    for contender, what in (("ours", ""), ("ours, with log", ", with its operation log")):
        found = run.ratios("rename", contender)
        most = max((result.amount for result, _ in found), default=0)
        found = [pair for pair in found if pair[0].amount == most]
        lines.append(_verdict(f"recursive rename, {most:,} files{what}", 35, found))
    return lines


def _single(run: _Run) -> list[Verdict]:
    requests = [
        _ratio(run, f"single request: {operation}", 5, "request", "ours", operation)
        for operation in ("GetItem", "PutItem", "DeleteItem")
    ]
    verbs = [
        _ratio(run, f"client's {verb}, against the same requests by hand", 5, "verb", "ours", verb)
        for verb in ("stat", "read", "create", "rename", "delete")
    ]
    return [*requests, *verbs, *_processor_time(run)]


def _processor_time(run: _Run) -> list[Verdict]:
    """Microseconds of a call of the client with 32 in flight."""
    goals = {"stat": 60, "read": 150, "create": 250, "rename": 250, "delete": 250}
    return [
        _at_most(
            f"client's {verb}, 32 in flight: µs of processor time",
            most,
            [median(each.processor) / each.amount * 1_000_000],
        )
        for verb, most in goals.items()
        for each in run.of("verb", "ours", f"{verb}, 32 ")
    ]


def _for_each_file(run: _Run) -> list[Verdict]:
    """What is counted rather than timed, for each of many small files."""
    goals = {"create": 1.2, "put -r": 1.05, "embedded put -r": 1.2}
    counted = [each for row in ("requests", "syncs") for each in run.of_row(row)]
    return [
        _at_most(f"{each.case}: {each.unit} for each", most, [each.amount / each.facts["files"]])
        for each in counted
        for name, most in goals.items()
        if each.case.startswith(f"{name},")
    ]


def _imports(run: _Run) -> list[Verdict]:
    found = run.of("import", "ours")
    if not found:
        return []
    milliseconds = found[0].median * 1000
    loaded = ", ".join(found[0].facts["loaded"]) or "none"
    return [
        Verdict("`import s3k_async`", "≤ 60 ms", f"{milliseconds:.0f} ms", milliseconds <= 60),
        Verdict("loaded by it of botocore, pyarrow, pyspark", "none", loaded, loaded == "none"),
    ]


def _engines(run: _Run) -> list[Verdict]:
    lines: list[Verdict] = []
    counted = {
        (each.case.split()[0], each.contender): each
        for each in run.results
        if each.row == "requests"
    }
    ours, theirs = counted.get(("rename", "ours")), counted.get(("rename", "s3fs"))
    if ours is not None and theirs is not None:
        fewer = theirs.amount / max(ours.amount, 1)
        measured = f"{_times(fewer)}: {ours.amount:,} and {theirs.amount:,}"
        lines.append(
            Verdict(f"fewer requests than s3fs, {ours.case}", "≥ 40×", measured, fewer >= 40)
        )
    lines.append(
        _ratio(
            run, "rename of a directory on engines, against s3fs", 10, "rename on engines", "ours"
        )
    )
    against: list[tuple[str, Callable[[Result], bool]]] = [
        ("s3fs", lambda each: each.contender == "s3fs"),
        ("pyarrow", lambda each: each.contender == "pyarrow"),
    ]
    for verb in ("list", "delete"):
        mine = run.of(f"{verb} on engines", "ours")
        for name, fits in against:
            peers = [
                each for each in run.results if each.row == f"{verb} on engines" and fits(each)
            ]
            if mine and peers:
                faster = peers[0].median / mine[0].median
                lines.append(
                    Verdict(
                        f"{verb} of a directory on engines, against {name}",
                        "faster",
                        _times(faster),
                        faster > 1,
                    )
                )
    return lines


def _checks(run: _Run) -> list[Verdict]:
    """Files a second that one process checks or marks, of the largest volume."""
    lines = []
    for contender in ("fsck verify", "gc mark"):
        found = run.of("fsck and gc", contender)
        if found:
            largest = max(found, key=lambda each: each.amount)
            work = f"{contender}, {largest.case}: files/s"
            rate = largest.rate
            lines.append(Verdict(work, "≥ 60,000", f"{rate:,.0f}", rate >= 60_000))
    return lines


def _large(run: _Run) -> list[Verdict]:
    """One large file on engines, beside obstore."""
    lines = []
    for verb, least in (("read", 0.95), ("put", 1.0)):
        theirs = run.of(verb, "obstore", "1 GiB")
        found = [
            (mine, each.median / mine.median)
            for mine in run.of(verb, "ours", "1 GiB")
            for each in theirs
        ]
        if found:
            lines.append(_verdict(f"{verb} of 1 GiB, against obstore", least, found))
    return lines


def _at_latency(run: _Run) -> list[Verdict]:
    """Ahead of every peer at the latency of the services."""
    lines = []
    for verb, contenders in (
        ("list", ("ours", "ours, layout tree")),
        ("rename", ("ours", "ours, layout tree")),
        ("write", ("ours", "ours, write_many")),
    ):
        for contender in contenders:
            for mine in run.of(f"{verb} at latency", contender):
                peers = [
                    each
                    for each in run.of_row(mine.row)
                    if each.case == mine.case and not each.contender.startswith("ours")
                ]
                best = min(peers, key=lambda each: each.median)
                faster = best.median / mine.median
                lines.append(
                    Verdict(
                        f"{mine.row}, {mine.case}: {contender}, against {best.contender}",
                        "faster",
                        _times(faster),
                        faster > 1,
                    )
                )
    return lines


def _embedded(run: _Run) -> list[Verdict]:
    """The embedded volume beside JuiceFS, and its `put -r` beside the syncs of the disk."""
    goals = {"write": 1.5, "rename": 2, "delete": 2, "stat": 4, "read": 3}
    lines = [
        _ratio(run, f"embedded {verb}, against JuiceFS", least, f"embedded {verb}", "ours")
        for verb, least in goals.items()
        if any("JuiceFS" in each.contender for each in run.of_row(f"embedded {verb}"))
    ]
    for each in run.of_row("embedded put -r"):
        syncs = float(each.limit.split()[0].replace(",", ""))
        faster = each.rate / syncs
        work = "embedded put -r, files for each sync of the disk by itself"
        lines.append(Verdict(work, "≥ 2", f"{faster:.1f}: {each.rate:,.0f}/s", faster >= 2))
    return lines


def _backends(run: _Run) -> list[Verdict]:
    """Small objects in key-value stores beside S3 over HTTP, as H3 has it, in every case."""
    lines = []
    for verb in ("write", "stat", "read", "rename", "delete"):
        for contender in ("RocksDB alone", "Redis alone"):
            found = [ratio for _, ratio in run.ratios(f"backends {verb}", contender)]
            if found and run.of(f"backends {verb}", "S3 over HTTP"):
                low, high = _times(min(found)), _times(max(found))
                work = f"{verb} of small objects, {contender}, against S3 over HTTP"
                lines.append(Verdict(work, "faster", f"{low} to {high}", min(found) > 1))
    return lines


def _sync(run: _Run) -> list[Verdict]:
    """A second sync of unchanged files beside the AWS command line, if that was measured."""
    return [
        Verdict(
            f"second sync of {mine.case}: {mine.contender}, against aws s3 sync",
            "faster",
            _times(ratio),
            ratio > 1,
        )
        for contender in ("ours", "ours, embedded")
        for mine, ratio in run.ratios("second sync", contender)
        if mine.baseline == "aws s3 sync"
    ]


LIST_SLOWER = 1.05
"""A listing that takes so many times as long counts as no slower: less cannot be told apart."""


def layout_verdicts(results: Sequence[Result]) -> list[Verdict]:
    """The goals of layout `tree`: of renames and deletions of directories, whatever is below them,
    and of what every call pays for that."""
    run = _Run(results)
    return [
        *_of_directories(run, "rename"),
        *_of_directories(run, "delete"),
        _requests(run, "stat, warm", "depth 6", 1),
        _requests(run, "stat, cold", "depth 6", 6),
        _listing(run),
    ]


def _of_directories(run: _Run, verb: str) -> list[Verdict]:
    found = run.of(f"layout {verb}", "tree")
    most = max((int(each.facts["files"]) for each in found), default=0)
    work = f"{verb} of a directory of 1 to {most:,} files"
    local = [each.median * 1000 for each in found if not each.case.endswith(" memory")]
    return [
        _at_most(f"{work}: table requests", 3, [each.facts["table"] for each in found]),
        _at_most(
            f"{work}, one directory above it: write units",
            6,
            [each.facts["write units"] for each in found if "write units" in each.facts],
        ),
        _at_most(f"{work}, on local engines: ms", 20, local),
    ]


def _requests(run: _Run, row: str, case: str, most: int) -> Verdict:
    found = [each for each in run.of(f"layout {row}", "tree", case) if each.facts]
    return _at_most(f"{row}, {case}: table requests", most, [each.facts["table"] for each in found])


def _at_most(work: str, most: float, found: Sequence[float]) -> Verdict:
    if not found:
        return Verdict(work, f"≤ {most:g}", "not measured", None)
    low, high = (f"{bound(found):.3g}" for bound in (min, max))
    measured = low if low == high else f"{low} to {high}"
    return Verdict(work, f"≤ {most:g}", measured, max(found) <= most)


def _listing(run: _Run) -> Verdict:
    found = [1 / ratio for _, ratio in run.ratios("layout list", "tree")]
    return _at_most("list, of the time in layout `path`", LIST_SLOWER, found)
