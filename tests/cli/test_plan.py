"""plan."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, get_args

import pytest

from s3k_async.cli.commands.plan import LAYOUTS, VERBS
from s3k_async.cost_model import SINGLE_VERBS, TREE_VERBS
from s3k_async.model import LayoutName
from tests.cli.conftest import Cli


def test_what_is_told(cli: Cli) -> None:
    lines = cli.ok("plan", "rename").lines
    assert lines[0] == "rename of 10,000 files in 1 directory, 10 suffixes: 20.0 s"
    assert lines[1].startswith("bound by the table: ")
    (query,) = [line for line in lines if "Query" in line]
    assert query.split() == ["table", "Query", "30", "30", "to", "39"]
    assert lines[-1] == "suggested suffix count: 2"


def test_json(cli: Cli) -> None:
    told = cli.ok("plan", "list", "--files", "1M", "--suffix-count", "1", "--warm", "--json").json()
    assert (told["verb"], told["files"], told["directories"], told["suffix_count"]) == (
        "list",
        1_000_000,
        1,
        1,
    )
    query = told["requests"]["table"]["Query"]
    assert query["likely"] == query["low"] == query["high"]
    assert told["total"]["likely"] == query["likely"] + 1
    assert told["bound"] == "partition"
    assert told["seconds"] == max(told["bounds"].values())
    assert told["suggested_suffix_count"] == 16


def test_the_model_has_the_verbs_and_layouts() -> None:
    assert (*TREE_VERBS, *SINGLE_VERBS) == VERBS
    assert get_args(LayoutName) == LAYOUTS


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb(cli: Cli, verb: str) -> None:
    told = cli.ok(
        "plan", verb, "--files", "100M", "--directories", "100k", "--fan-out", "1k", "--json"
    ).json()
    assert (told["files"], told["directories"]) == (100_000_000, 100_101)
    assert told["seconds"] > 0
    assert told["total"]["low"] <= told["total"]["likely"] <= told["total"]["high"]


def test_what_is_assumed_matters(cli: Cli) -> None:
    def seconds(*arguments: str) -> float:
        told = cli.ok("plan", "--json", *arguments).json()
        assert isinstance(told["seconds"], float)
        return told["seconds"]

    assert seconds("rename", "--warm") < seconds("rename")
    assert seconds("stat", "--latency", "400") > seconds("stat", "--latency", "4")
    assert seconds("read", "--s3-latency", "900") > seconds("read", "--s3-latency", "1")
    assert seconds("stat", "--concurrency", "1") > seconds("stat")
    assert seconds("list", "--item-bytes", "4000") > seconds("list")
    assert seconds("list", "--path-bytes", "900") > seconds("list", "--name-bytes", "3")
    assert seconds("write", "--file-size", "1GiB") > seconds("write")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["move"],
        ["list", "--files", "many"],
        ["list", "--files", "-1"],
        ["list", "--directories", "0"],
        ["list", "--directories", "5", "--fan-out", "1"],
        ["list", "--suffix-count", "0"],
        ["list", "--latency", "-1"],
        ["list", "--region", "eu-west-1"],
        ["list", "/path"],
    ],
)
def test_usage(cli: Cli, arguments: list[str]) -> None:
    cli.fails(2, "plan", *arguments)


def test_the_layouts_of_a_verb(cli: Cli) -> None:
    def told(*arguments: str) -> Any:
        return cli.ok("plan", *arguments, "--json").json()

    assert told("rename") == told("rename", "--layout", "path")
    few, many = (told("rename", "--layout", "tree", "--files", number) for number in ("1", "1M"))
    assert (few["layout"], few["write_units"], few["reclamation"]) == ("tree", 6, None)
    assert few["requests"] == many["requests"]
    deeper = told("rename", "--layout", "tree", "--depth", "7")
    assert (deeper["write_units"], deeper["read_units"]) == (4 + 2 * 7, 7 + 2)
    assert told("delete")["reclamation"] is None
    later = told("delete", "--layout", "tree", "--files", "300", "--suffix-count", "1")
    assert later["reclamation"]["requests"]["table"] == {
        "Query": {"likely": 2, "low": 2, "high": 2},
        "TransactWriteItems": {"likely": 4, "low": 4, "high": 4},
        "PutItem": {"likely": 1, "low": 1, "high": 1},
    }


def test_the_topmost_directory_bounds_reads_in_layout_tree(cli: Cli) -> None:
    told = cli.ok(
        *("plan", "stat", "--layout", "tree", "--files", "1M", "--directories", "1k"),
        *("--warm", "--concurrency", "1000", "--latency", "0.001", "--json"),
    ).json()
    assert told["hottest"] == {
        "partition": "the item of the topmost directory",
        "read_units": 1_000_000,
        "write_units": 0,
    }
    assert told["bounds"]["partition"] == pytest.approx(1_000_000 / 3_000)


def test_a_directory_that_is_too_deep_is_refused(cli: Cli) -> None:
    assert cli.ok("plan", "rename", "--layout", "tree", "--depth", "98").lines
    refused = cli.fails(1, "plan", "rename", "--layout", "tree", "--depth", "99")
    assert "99 directories above it" in refused.errors


def test_a_new_client_reads_the_directories_first(cli: Cli) -> None:
    def told(*arguments: str) -> Any:
        shape = ("--directories", "100", "--depth", "3", "--json")
        return cli.ok("plan", *arguments, *shape).json()

    for verb, directories in (("stat", 104), ("rename", 3), ("load", 104), ("makedirs", 0)):
        known, new = (told(verb, "--layout", "tree", *more) for more in ((), ("--new-client",)))
        assert new["read_units"] - known["read_units"] == directories, verb
        assert (new["bounds"]["chain"] > known["bounds"]["chain"]) == (directories > 0)
        assert told(verb) == told(verb, "--new-client"), "not in layout path"
    known, new = (told("mix", "stat=1", *more) for more in ((), ("--new-client",)))
    assert new["layouts"]["path"] == known["layouts"]["path"]
    assert new["prices"]["tree"] - known["prices"]["tree"] == 104
    for mix, directories in (("stat=1", 3 + 2 * 10 + 1), ("rename=1", 3), ("makedirs=1", 0)):
        calls = ("--calls", "10")
        known, new = (told("mix", mix, *calls, *more) for more in ((), ("--new-client",)))
        assert new["prices"]["tree"] - known["prices"]["tree"] <= directories, mix
        assert (new["prices"] == known["prices"]) == (directories == 0)


def test_a_mix(cli: Cli) -> None:
    lines = cli.ok("plan", "mix", "stat=3", "rename=1", "--calls", "400").lines
    assert lines[:2] == [
        "400 calls on 10,000 files in 1 directory, 10 suffixes",
        "stat 300, rename 100",
    ]
    (units,) = [line.split() for line in lines if line.startswith("write units")]
    rename = cli.ok("plan", "rename", "--depth", "1", "--json").json()
    assert units == ["write", "units", f"{100 * rename['write_units']:,.0f}", "600"]
    assert lines[-2].startswith("layout tree costs less: ")
    assert lines[-1] == "at any price of a write unit"


def test_a_mix_as_json(cli: Cli) -> None:
    def told(*arguments: str) -> Any:
        return cli.ok("plan", "mix", *arguments, "--json").json()

    one = told("stat=1", "list=0", "--calls", "1k")
    assert one["calls"] == {"stat": 1000, "list": 0}
    path, tree = one["layouts"]["path"], one["layouts"]["tree"]
    assert (path["read_units"], tree["read_units"]) == (1000, 3000)
    assert (one["prices"], one["cheaper"], one["break_even"]) == (
        {"path": 1000, "tree": 3000},
        "path",
        None,
    )
    shape = ("--directories", "1k", "--files", "1M", "--depth", "3")
    both = told("read=9999", "rename=1", *shape)
    other = told("read=9999", "rename=1", *shape, "--write-price", "9")
    assert (both["cheaper"], other["cheaper"]) == ("path", "tree")
    assert 5 < both["break_even"] == other["break_even"] < 9
    deletion = told("delete=1", "--calls", "10", "--files", "100")
    reclamation = deletion["layouts"]["tree"]["reclamation"]
    assert deletion["layouts"]["path"]["reclamation"] is None
    assert reclamation["write_units"] == 10 * (2 * 100 + 3)
    assert deletion["prices"]["tree"] == sum(
        each["read_units"] + 5 * each["write_units"]
        for each in (deletion["layouts"]["tree"], reclamation)
    )


def test_the_same_cost_is_said_to_be_the_same(cli: Cli) -> None:
    lines = cli.ok("plan", "mix", "rename=1", "--files", "0", "--write-price", "0", "--calls", "1")
    assert lines.lines[-2].startswith("layout tree costs less")
    same = cli.ok("plan", "mix", "write=1", "--depth", "0", "--path-bytes", "1").lines
    assert same[-1].startswith("both layouts cost the same, ")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_in_a_mix(cli: Cli, verb: str) -> None:
    told = cli.ok("plan", "mix", f"{verb}=1", "--directories", "10", "--json").json()
    assert told["calls"] == {verb: 1_000_000}
    for plan in told["layouts"].values():
        assert plan["seconds"] > 0
        assert plan["total"]["low"] <= plan["total"]["likely"] <= plan["total"]["high"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["mix"], "needs shares"),
        (["mix", "stat=0"], "needs shares"),
        (["mix", "stat"], "'stat' is not VERB=SHARE"),
        (["mix", "stat=x"], "'stat=x' is not VERB=SHARE"),
        (["mix", "stat=-1"], "'stat=-1' is not VERB=SHARE"),
        (["mix", "stat=nan"], "'stat=nan' is not VERB=SHARE"),
        (["mix", "move=1"], "VERB is one of"),
        (["mix", "stat=1", "stat=2"], "two shares"),
        (["mix", "stat=1", "--layout", "tree"], "omit --layout"),
        (["mix", "stat=1", "--calls", "0"], "--calls"),
        (["stat", "stat=1"], "shares"),
        (["stat", "--layout", "flat"], "flat"),
        (["stat", "--depth", "-1"], "--depth"),
    ],
)
def test_usage_of_layouts_and_mixes(cli: Cli, arguments: list[str], told: str) -> None:
    assert told in cli.fails(2, "plan", *arguments).errors


def test_the_page_on_layouts_shows_what_is_printed(cli: Cli) -> None:
    shown = 0
    page = (Path(__file__).parent.parent.parent / "docs/layouts.md").read_text(encoding="utf-8")
    for block in page.split("```")[1::2]:
        for example in block.split("$ s3k ")[1:]:
            command, *lines = example.strip().splitlines()
            printed = cli.ok(*shlex.split(command)).lines
            assert [line for line in lines if line not in printed] == [], command
            shown += len(lines)
    assert shown > 20


def test_the_price(cli: Cli) -> None:
    told = cli.ok("plan", "write", "--files", "1M", "--file-size", "1k", "--json").json()
    table = told["read_units"] * 0.125e-6 + told["write_units"] * 0.625e-6
    puts = told["requests"]["data"]["PutObject"]["likely"]
    assert told["dollars"]["table"] == pytest.approx(table)
    assert told["dollars"]["data"] == pytest.approx(puts * 5e-6) == pytest.approx(5.0)
    parts = (told["dollars"][part] for part in ("table", "data", "log"))
    assert told["dollars"]["total"] == pytest.approx(sum(parts))
    assert told["price_table"]["date"] == "2024-11-01"
    lines = cli.ok("plan", "write", "--files", "1M", "--file-size", "1k").lines
    (price,) = (line for line in lines if line.startswith("price "))
    assert price.endswith("data $5.00, log $" + f"{told['dollars']['log']:,.2f}")
    assert any("AWS list prices, us-east-1" in line and "2024-11-01" in line for line in lines)


def test_reads_and_deletions_have_prices_of_their_own(cli: Cli) -> None:
    reads = cli.ok("plan", "read", "--files", "1M", "--file-size", "1k", "--json").json()
    assert reads["dollars"]["data"] == pytest.approx(0.4)
    deleted = cli.ok("plan", "delete", "--layout", "tree", "--files", "1M", "--json").json()
    assert deleted["reclamation"]["write_units"] > 0
    wanted = sum(
        units["read_units"] * 0.125e-6 + units["write_units"] * 0.625e-6
        for units in (deleted, deleted["reclamation"])
    )
    assert deleted["dollars"]["table"] == pytest.approx(wanted)


PRICES = """source = "our contract"
date = "2026-01-01"
read_units = 1
write_units = 2.5
puts = 10
gets = 1
"""


def test_prices_of_a_file(cli: Cli) -> None:
    Path("prices.toml").write_text(PRICES)
    told = cli.ok("plan", "stat", "--files", "1M", "--prices", "prices.toml", "--json").json()
    assert told["dollars"]["total"] == pytest.approx(told["read_units"] * 1e-6)
    assert told["price_table"] == {"source": "our contract", "date": "2026-01-01"}
    mixed = cli.ok("plan", "mix", "write=1", "--prices", "prices.toml").out
    assert "by our contract, 2026-01-01" in mixed
    assert "dollars" in mixed


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("gets = 1", ""),
        ("gets = 1", "gets = -1"),
        ("gets = 1", "gets = true"),
        ("gets = 1", "gets = nan"),
        ("gets = 1", 'gets = "1"'),
        ("gets = 1", "gets = 1\nputz = 1"),
        ("gets = 1", "gets ="),
        ('date = "2026-01-01"', "date = 2026-01-01"),
    ],
)
def test_a_price_table_that_is_none(cli: Cli, old: str, new: str) -> None:
    Path("prices.toml").write_text(PRICES.replace(old, new))
    assert "prices.toml" in cli.fails(11, "plan", "stat", "--prices", "prices.toml").errors
    assert "none.toml" in cli.fails(11, "plan", "stat", "--prices", "none.toml").errors
