"""trash: deleted directories, in volumes of both layouts."""

from __future__ import annotations

import pytest

from s3k_async.cli.durations import duration_text
from tests.cli.conftest import Cli


def test_the_retention_is_shown_and_changed(cli: Cli, tree_volume: str) -> None:
    where = f"retention of the trash in {tree_volume}/: "
    assert cli.ok("trash", "retention").lines == [f"{where}1d"]
    assert cli.ok("trash", "retention", tree_volume, "--set", "1w").lines == [
        f"{where}7d, before 1d"
    ]
    assert cli.ok("trash", "retention", "--quiet").lines == [f"{where}7d"]
    assert cli.ok("trash", "retention", "--set", "90", "--quiet").lines == []
    document = {"volume": f"{tree_volume}/", "trash_retention": 90}
    assert cli.ok("trash", "retention", "--json").json() == document
    changed = cli.ok("trash", "retention", "--set", "0", "--json").json()
    assert changed == document | {"trash_retention": 0, "previous": 90}
    assert cli.ok("trash", "retention").lines == [f"{where}0s"]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("90", 90), ("90s", 90), ("1.5h", 5400), ("15m", 900), ("3d", 259_200)],
)
def test_durations(cli: Cli, tree_volume: str, text: str, seconds: int) -> None:
    cli.ok("trash", "retention", "--set", text)
    assert cli.ok("trash", "retention", "--json").json()["trash_retention"] == seconds
    cli.ok("trash", "retention", "--set", duration_text(seconds))
    assert cli.ok("trash", "retention", "--json").json()["trash_retention"] == seconds


@pytest.mark.parametrize("text", ["", "-1", "soon", "0.5", "1y", "nan", "inf", "1 d", "9999999w"])
def test_what_is_no_duration(cli: Cli, tree_volume: str, text: str) -> None:
    for command in (["trash", "retention", "--set"], ["gc", "--trash-retention"]):
        assert "write 3600, 90s, 15m" in cli.fails(2, *command, text).errors
    assert "write 3600" in cli.fails(2, "init", "memory://no", "--trash-retention", text).errors
    assert cli.ok("trash", "retention", "--json").json()["trash_retention"] == 86_400


def test_init_takes_a_retention(cli: Cli, naming_tree: None) -> None:
    volume = "memory://cli-retention"
    cli.ok("init", volume, "--trash-retention", "2d")
    assert cli.ok("trash", "retention", volume, "--json").json()["trash_retention"] == 172_800
    cli.ok("init", volume, "--exist-ok")
    cli.ok("init", volume, "--exist-ok", "--trash-retention", "48h")
    done = cli.fails(11, "init", volume, "--exist-ok", "--trash-retention", "0")
    assert "s3k trash retention changes it" in done.errors


def test_layout_path_has_no_retention(cli: Cli, volume: str) -> None:
    assert cli.ok("trash", "retention").lines == [f"{volume}/ has layout path, which has no trash"]
    assert cli.ok("trash", "retention", "--json").json()["trash_retention"] is None
    assert "has no trash" in cli.fails(1, "trash", "retention", "--set", "1d").errors
    done = cli.fails(11, "init", "memory://no", "--trash-retention", "1d")
    assert "layout path, which has no trash" in done.errors
    cli.fails(3, "ls", "memory://no")


def test_a_retention_belongs_to_a_volume(cli: Cli, tree_volume: str) -> None:
    cli.fails(2, "trash", "retention", f"{tree_volume}/a")
    cli.fails(3, "trash", "retention", "memory://nobody")
    cli.fails(2, "trash", "retention", tree_volume, "7d")
