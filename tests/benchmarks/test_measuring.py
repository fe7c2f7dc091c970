"""The benchmark's harness: turns, medians, goals and the page it writes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.goals import verdicts
from benchmarks.measuring import Case, Result, Run, measure
from benchmarks.relay import Relay
from benchmarks.report import goals_table, record_name, write


def result(row: str, case: str, contender: str, seconds: list[float], amount: int = 100) -> Result:
    return Result(row, case, contender, amount, "things", seconds, seconds, "aiobotocore")


async def test_contenders_take_turns_and_each_round_begins_with_another() -> None:
    turns: list[str] = []

    def noted(name: str) -> Run:
        async def run() -> int:
            turns.append(name)
            return 7

        return run

    case = Case(
        "row",
        "case",
        10,
        "things",
        {name: noted(name) for name in "abc"},
        "a",
        rounds=3,
        expected=7,
    )
    results = await measure(case)
    assert [each.contender for each in results] == ["a", "b", "c"]
    assert all(len(each.seconds) == 3 for each in results)
    assert "".join(turns[3:]) == "abcbcacab"


async def test_a_contender_that_does_other_work_is_no_result() -> None:
    async def run() -> int:
        return 6

    with pytest.raises(AssertionError, match="did 6 instead of 7"):
        await measure(Case("row", "case", 1, "things", {"a": run}, "a", rounds=1, expected=7))


def test_rates_are_medians_with_their_spread() -> None:
    measured = result("row", "case", "ours", [2.0, 1.0, 4.0])
    assert measured.rate == 50
    assert measured.spread == (25, 100)


def test_the_worst_case_decides_a_goal() -> None:
    results = [
        result("request", "GetItem, 1 in flight", "aiobotocore", [6.0]),
        result("request", "GetItem, 1 in flight", "ours", [1.0]),
        result("request", "GetItem, 32 in flight", "aiobotocore", [4.0]),
        result("request", "GetItem, 32 in flight", "ours", [1.0]),
    ]
    line = next(line for line in verdicts(results) if line.work == "single request: GetItem")
    assert (line.measured, line.met) == ("4.0× to 6.0×", False)
    assert (
        next(line for line in verdicts(results) if line.work == "single request: PutItem").met
        is None
    )
    assert "| single request: GetItem | ≥ 5× | 4.0× to 6.0× | **short** |" in goals_table(
        verdicts(results)
    )


def test_what_is_measured_twice_is_compared_with_what_stood_beside_it() -> None:
    results = [
        result("rename", "1,000 files", "aiobotocore", [40.0]),
        result("rename", "1,000 files", "ours", [1.0]),
        result("rename", "1,000 files", "aiobotocore", [60.0]),
        result("rename", "1,000 files", "ours, with log", [2.0]),
    ]
    found = {line.work: line.measured for line in verdicts(results) if "rename, 100" in line.work}
    assert found == {
        "recursive rename, 100 files": "40×",
        "recursive rename, 100 files, with its operation log": "30×",
    }


def test_the_largest_volume_decides_how_fast_files_are_checked() -> None:
    results = [
        result("fsck and gc", f"{files:,} clean files, in memory", command, [seconds], files)
        for files, seconds in ((1_000, 0.001), (100_000, 2.0))
        for command in ("fsck verify", "gc mark")
    ]
    found = [(line.work, line.measured, line.met) for line in verdicts(results)]
    assert ("gc mark, 100,000 clean files, in memory: files/s", "50,000", False) in found
    assert sum(work.startswith(("fsck", "gc mark")) for work, _, _ in found) == 2


def test_a_large_file_is_compared_with_obstore() -> None:
    results = [
        result(verb, case, contender, [seconds])
        for verb in ("put", "read")
        for case, theirs in (("10,000 files of 4 KiB", 9.0), ("1 GiB", 0.98))
        for contender, seconds in (("obstore", theirs), ("ours", 1.0))
    ]
    found = {line.work: line.met for line in verdicts(results) if "GiB" in line.work}
    assert found == {
        "read of 1 GiB, against obstore": True,
        "put of 1 GiB, against obstore": False,
    }


def test_a_second_sync_has_a_goal_if_the_aws_command_line_was_there() -> None:
    def synced(contender: str, seconds: float, baseline: str) -> Result:
        case = "5,000 unchanged files in 50 directories"
        return replace(result("second sync", case, contender, [seconds], 5_000), baseline=baseline)

    def goals(results: list[Result]) -> dict[str, tuple[str, bool | None]]:
        lines = [line for line in verdicts(results) if line.work.startswith("second sync")]
        return {line.work.split(": ")[1]: (line.measured, line.met) for line in lines}

    aws = "aws s3 sync"
    results = [
        synced(aws, 1.2, aws),
        synced("ours", 1.5, aws),
        synced("ours, embedded", 0.6, aws),
    ]
    assert goals(results) == {
        "ours, against aws s3 sync": ("0.8×", False),
        "ours, embedded, against aws s3 sync": ("2.0×", True),
    }
    assert goals([synced(each, 1.0, "ours") for each in ("ours", "ours, embedded")]) == {}


def test_the_page_is_written_between_its_markers_only(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    names = ("environment", "goals", "plots", "slower", "rows")
    page.write_text(
        "before\n"
        + "".join(f"<!-- begin: {name} -->\nold\n<!-- end: {name} -->\n" for name in names)
    )
    results = [
        result("list", "10 entries", "aiobotocore", [1.0]),
        result("list", "10 entries", "ours, objects", [2.0]),
    ]
    for _ in range(2):
        write(page, results, {"python": "3.11"}, "make bench", [tmp_path / "listing.png"])
    text = page.read_text()
    assert text.startswith("before\n")
    assert "old" not in text
    assert "![listing](listing.png)" in text
    assert "| list | 10 entries | ours, objects | aiobotocore | 2.0× |" in text
    assert text.count("| 10 entries | ours, objects | 50 things |") == 1
    page.write_text("no markers")
    with pytest.raises(ValueError, match="no markers"):
        write(page, results, {}, "make bench", [])


def test_what_is_slower_in_several_cases_is_one_line(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    names = ("environment", "goals", "plots", "slower", "rows")
    page.write_text("".join(f"<!-- begin: {name} -->\n<!-- end: {name} -->\n" for name in names))
    results = [
        result("small put", f"{size} KiB", contender, [seconds])
        for size, theirs in ((1, 1.0), (8, 0.5), (64, 4.0))
        for contender, seconds in (("aiobotocore", 9.0), ("obstore", theirs), ("ours, client", 2.0))
    ]
    write(page, results, {}, "make bench", [])
    slower = page.read_text().partition("begin: slower")[2].partition("end: slower")[0]
    assert "| small put | 2 of 3 cases | ours, client | obstore | 2.0× to 4.0× |" in slower
    assert "aiobotocore" not in slower


async def test_the_relay_counts_requests_and_changes_nothing() -> None:
    bodies: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for size in (5, 0):
            await reader.readuntil(b"\r\n\r\n")
            bodies.append(await reader.readexactly(size))
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Relay(f"http://127.0.0.1:{port}") as relay:
        reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
        writer.write(b"PUT /a HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello")
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        writer.write(b"GET /a HTTP/1.1\r\n\r\n")
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        writer.close()
        assert relay.requests == 2
    assert bodies == [b"hello", b""]


def test_a_run_of_some_rows_does_not_take_the_place_of_a_whole_one() -> None:
    whole = ["codec", "keys", "trees"]
    assert record_name(whole, whole, quick=False) == "full.json"
    assert record_name(whole, whole, quick=True) == "quick.json"
    assert record_name(["spark"], whole, quick=False) == "spark.json"
    assert record_name(["codec", "keys"], whole, quick=True) == "codec-keys-quick.json"
