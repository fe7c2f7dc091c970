"""plan."""

from __future__ import annotations

import pytest

from s3k_async.cli.commands.plan import VERBS
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
