"""Bars of the rows that say most, and lines of renames over sizes, as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.measuring import Result

__all__ = ["draw", "draw_renames"]

COLOURS = {"aiobotocore": "#888888", "s3fs": "#888888"}
OURS = ("#1f6f8b", "#3fa7c4", "#7fc8de")
PEER = "#c9b08a"


def draw(directory: Path, results: Sequence[Result]) -> list[Path]:
    """`listing.png`, `single.png`, `small.png`, `trees.png` and `engines.png`, each if its rows
    were measured."""
    import matplotlib as mpl

    mpl.use("Agg")
    directory.mkdir(parents=True, exist_ok=True)
    timed = [each for each in results if each.seconds]
    most = max((each.amount for each in timed if each.row == "list"), default=0)
    pictures: dict[str, tuple[str, list[Result]]] = {
        "listing": (
            f"Listing {most:,} entries: entries a second",
            [each for each in timed if each.row == "list" and each.amount == most],
        ),
        "single": ("Single requests a second", [each for each in timed if each.row == "request"]),
        "small": (
            "Files of 1 KiB, 32 in flight: files a second",
            [
                each
                for each in timed
                if each.row.startswith("small ") and each.case == "1 KiB, 32 in flight"
            ],
        ),
        "trees": (
            "Recursive rename and delete: files a second",
            [each for each in timed if each.row in TREES],
        ),
        "engines": (
            "dynoxide + SeaweedFS: files a second",
            [each for each in timed if each.row in ENGINES],
        ),
    }
    drawn = []
    for name, (title, chosen) in pictures.items():
        if chosen:
            drawn.append(directory / f"{name}.png")
            _bars(drawn[-1], title, chosen, by_row=name in {"small", "trees", "engines"})
    return drawn


def draw_renames(directory: Path, results: Sequence[Result]) -> list[Path]:
    """`layouts.svg`: seconds of a rename over the number of files, if that was measured."""
    import matplotlib as mpl

    mpl.use("Agg")
    # Text as text, and the same file of the same figures.
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "layouts"})
    import matplotlib.pyplot as plt

    chosen = [each for each in results if each.row == "layout rename"]
    if not chosen:
        return []
    lines: dict[tuple[str, str], list[Result]] = {}
    for each in chosen:
        lines.setdefault((each.contender, each.case.rpartition(", ")[2]), []).append(each)
    places = list(dict.fromkeys(place for _, place in lines))
    figure, axes = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
    for (contender, place), line in lines.items():
        axes.errorbar(
            [each.facts["files"] for each in line],
            [each.median for each in line],
            yerr=[
                [each.median - min(each.times) for each in line],
                [max(each.times) - each.median for each in line],
            ],
            label=f"{contender}, {place.rpartition('+ ')[2] if contender in BUCKETS else place}",
            color=LINES.get(contender, PEER),
            linestyle=DASHES[places.index(place) % len(DASHES)],
            marker=".",
            capsize=2,
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("files in the directory", fontsize=8)
    axes.set_ylabel("seconds", fontsize=8)
    axes.set_title("Rename of a directory: median, fastest and slowest repetition", fontsize=10)
    axes.tick_params(labelsize=7)
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    axes.spines[["top", "right"]].set_visible(False)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "layouts.svg"
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return [path]


LINES = {"tree": OURS[0], "path": "#c0504d", "s3fs": "#888888", "S3A": PEER}
BUCKETS = ("s3fs", "S3A")
DASHES = (":", "--", "-")
TREES = ("rename", "delete")
ENGINES = ("list on engines", "rename on engines", "delete on engines")


def _bars(path: Path, title: str, results: Sequence[Result], *, by_row: bool) -> None:
    import matplotlib.pyplot as plt

    def label(result: Result) -> str:
        return f"{result.row}\n{result.case}" if by_row else result.case

    groups = list(dict.fromkeys(label(each) for each in results))
    contenders = list(dict.fromkeys(each.contender for each in results))
    figure, axes = plt.subplots(figsize=(max(7.0, 1.5 * len(groups)), 4.2), layout="constrained")
    width = 0.8 / len(contenders)
    ours = 0
    for place, contender in enumerate(contenders):
        colour = COLOURS.get(contender, PEER)
        if contender.startswith("ours"):
            colour, ours = OURS[ours % len(OURS)], ours + 1
        mine = {label(each): each for each in results if each.contender == contender}
        heights = [mine[group].rate if group in mine else 0.0 for group in groups]
        bars: Any = axes.bar(
            [number + (place - (len(contenders) - 1) / 2) * width for number in range(len(groups))],
            heights,
            width,
            label=contender,
            color=colour,
        )
        axes.bar_label(
            bars, [_short(height) for height in heights], fontsize=6, rotation=90, padding=2
        )
    axes.set_yscale("log")
    axes.set_xticks(range(len(groups)), [group.replace(", ", "\n") for group in groups], fontsize=7)
    axes.set_title(title, fontsize=10)
    axes.margins(y=0.2)
    axes.legend(fontsize=7, ncols=len(contenders), loc="upper left")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _short(value: float) -> str:
    if value == 0:
        return ""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g}"
