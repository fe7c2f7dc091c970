"""oplog show, tail and compact."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from s3k_async._core.runtime import SYSTEM
from s3k_async.cli.commands.oplog import _Newest
from s3k_async.oplog.entries import LogRecord, LogState, Operation
from s3k_async.settings import resolve
from s3k_async.volumes import open_volume
from tests.cli.conftest import Cli
from tests.cli.old_volumes import old_and_new
from tests.oplog import operations as sample

Tree = dict[str, bytes]


def damage(volume: str) -> None:
    async def put() -> None:
        opened = await open_volume(resolve(volume))
        assert opened.log_blobs is not None
        await opened.log_blobs.put("segments/notes.committed", b"notes")
        await opened.close()

    anyio.run(put)


def test_the_history_of_a_file_can_be_read(cli: Cli, volume: str, small_tree: Tree) -> None:
    cli.ok("put", "-", "/top.txt", stdin=b"longer")
    cli.ok("mv", "/top.txt", "/a/moved.txt")
    lines = cli.ok("oplog", "show", "/a/moved.txt").lines
    assert [line.split("  ", 1)[1].rpartition("  (")[0] for line in lines] == [
        "committed  create  v1   /top.txt  reserved",
        "committed  update  v2   /top.txt  3 bytes",
        "committed  update  v3   /top.txt  6 bytes",
        "committed  rename  v4   /a/moved.txt  6 bytes  from /top.txt",
    ]
    identity = cli.ok("stat", "--json", "/a/moved.txt").json()["id"]
    assert cli.ok("oplog", "show", identity).lines == lines
    documents = cli.ok("oplog", "show", "--json", identity).json_lines()
    assert [(each["kind"], each["version"], each["state"]) for each in documents] == [
        ("create", 1, "committed"),
        ("update", 2, "committed"),
        ("update", 3, "committed"),
        ("rename", 4, "committed"),
    ]
    assert documents[3]["before"]["path"] == "/top.txt"
    assert documents[3]["after"]["path"] == "/a/moved.txt"
    cli.ok("rm", "/a/moved.txt")
    assert cli.ok("oplog", "show", identity).lines[4].count("delete") == 1
    assert "give the object's id" in cli.fails(3, "oplog", "show", "/a/moved.txt").errors


def test_operations_below_a_path(cli: Cli, volume: str) -> None:
    for path in ("/d/f", "/d/g", "/dd/h"):
        cli.ok("put", "-", path, stdin=b"1")
    cli.ok("mv", "/dd/h", "/d/h")
    cli.ok("rm", "/d/f")
    shown = [line.split()[2:5] for line in cli.ok("oplog", "tail", "--path", "/d").lines]
    assert ["rename", "v3", "/d/h"] in shown
    assert ["delete", "v3", "/d/f"] in shown
    assert {path for *_, path in shown} == {"/d/", "/d/f", "/d/g", "/d/h"}
    assert cli.ok("oplog", "tail", "--path", "/d/f", "-n", "1").lines[0].split()[2] == "delete"
    assert cli.ok("oplog", "tail", "--path", "/nothing").out == ""


def test_the_size_of_the_log(cli: Cli, volume: str) -> None:
    cli.ok("put", "-", "/d/f", stdin=b"1")
    before = cli.ok("oplog", "size", "--json").json()
    assert before["compactable"] == before["kinds"]["checkpoints"]["objects"] == 0
    counted = before["kinds"].values()
    assert before["objects"] == sum(each["objects"] for each in counted) > 0
    assert before["bytes"] == sum(each["bytes"] for each in counted) > 0
    cli.ok("oplog", "compact", "--grace", "0", "--yes")
    after = cli.ok("oplog", "size", "--json").json()
    assert after["kinds"]["checkpoints"]["objects"] == 2
    assert after["kinds"]["entries"]["objects"] == after["kinds"]["segments"]["objects"] == 0
    *kinds, total = cli.ok("oplog", "size").lines
    assert [line.split()[0] for line in kinds] == list(after["kinds"])
    assert total == f"{after['objects']} objects, {after['bytes']:,} bytes in {volume}/"
    assert after["volume"] == f"{volume}/"


def test_the_size_of_an_old_log_is_not_said_to_be_zero(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = cli.fails(1, "oplog", "size", f"s3k://{old_and_new(monkeypatch)}")
    assert "the log of a volume of S3-FileSystem 1.0 is not measured" in failed.errors
    assert failed.out == ""


def test_the_newest_operations(cli: Cli, volume: str, small_tree: Tree) -> None:
    cli.ok("mkdir", "/last")
    everything = cli.ok("oplog", "tail").lines
    assert len(everything) == 12
    assert "create" in everything[-1]
    assert everything[-1].endswith("/last/")
    assert cli.ok("oplog", "tail", "-n", "2").lines == everything[-2:]
    assert cli.ok("oplog", "tail", volume, "-n", "0").lines == []
    assert cli.ok("oplog", "tail", "--since", "1h").lines == everything
    assert cli.ok("oplog", "tail", "--since", "2999-01-01").lines == []
    documents = cli.ok("oplog", "tail", "--json", "-n", "1").json_lines()
    assert [each["after"]["path"] for each in documents] == ["/last"]


def test_following_shows_each_operation_once(cli: Cli, tmp_path: Path) -> None:
    cli.ok("init", "./vol")
    cli.ok("mkdir", "./vol:/first")
    program = """
import sys
from s3k_async.cli import main
sys.exit(main())
"""
    command = [sys.executable, "-c", program, "oplog", "tail", "-f", "./vol"]
    follow = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert follow.stdout is not None
    try:
        assert follow.stdout.readline().decode().rstrip().endswith("/first/")
        for name in ("second", "third"):
            cli.ok("mkdir", f"./vol:/{name}")
            assert follow.stdout.readline().decode().rstrip().endswith(f"/{name}/")
    finally:
        follow.send_signal(signal.SIGINT)
        rest, _ = follow.communicate(timeout=60)
    assert rest == b""
    assert follow.returncode == 130


async def test_what_was_shown_at_a_time_is_not_shown_again() -> None:
    first, second = (LogRecord(each, "committed") for each in (sample.CREATE, sample.UPDATE))
    same_time = LogRecord(
        Operation("later", "create", "x", 1, sample.UPDATE.time_ms, None, None), "committed"
    )

    async def log(*records: LogRecord) -> AsyncIterator[LogRecord]:
        for record in records:
            yield record

    newest = _Newest(10, 0)
    await newest.read(log(second, first))
    assert newest.records() == [first, second]
    newest = newest.next()
    await newest.read(log(first, second, same_time))
    assert newest.records() == [same_time]
    newest = newest.next()
    await newest.read(log(first, second, same_time))
    assert newest.records() == []


NOW_MS = SYSTEM.now_ms()
"""When the newest operation of a log started."""


def operation(name: str, seconds: float, state: LogState = "committed") -> LogRecord:
    """An operation that started some seconds before or after that."""
    time_ms = NOW_MS + int(seconds * 1000)
    return LogRecord(Operation(name, "create", name, 1, time_ms, None, None), state)


async def reads(newest: _Newest, *logs: list[LogRecord]) -> list[list[tuple[str, str]]]:
    """What is shown of a log after each read."""
    shown: list[list[tuple[str, str]]] = []

    async def records(log: list[LogRecord]) -> AsyncIterator[LogRecord]:
        for record in log:
            yield record

    for log in logs:
        await newest.read(records(log))
        shown.append([(each.operation.id, each.state) for each in newest.records()])
        newest = newest.next()
    return shown


async def test_operations_are_followed_in_the_order_in_which_they_are_logged() -> None:
    """Of two writers, the clock of one is behind by some minutes; another is ahead by a day."""
    first = [operation("a", -3600), operation("b", 0)]
    behind = operation("behind", -240)
    longer = operation("longer", -1)
    ahead, later = operation("ahead", 86_400), operation("later", 2)
    assert await reads(
        _Newest(10, 0),
        first,
        [*first, behind, longer],
        [*first, behind, longer, ahead],
        [*first, behind, longer, ahead, later],
        [*first, behind, longer, ahead, later],
    ) == [
        [("a", "committed"), ("b", "committed")],
        [("behind", "committed"), ("longer", "committed")],
        [("ahead", "committed")],
        [("later", "committed")],
        [],
    ]


async def test_a_pending_operation_is_followed_until_it_is_committed() -> None:
    pending, committed = operation("p", 0, "pending"), operation("p", 0)
    old = operation("old", -7200, "pending")
    hours = operation("b", 7200)
    assert await reads(
        _Newest(10, 0),
        [old, pending],
        [old, pending],
        [pending, hours],
        [operation("old", -7200), committed, hours],
        [committed, pending, hours],
    ) == [
        [("old", "pending"), ("p", "pending")],
        [],
        [("b", "committed")],
        [("old", "committed"), ("p", "committed")],
        [],
    ]


@pytest.mark.parametrize("number", [0, 2])
async def test_older_operations_than_the_requested_ones_are_never_shown(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("s3k_async.cli.commands.oplog._PRUNED", 100)
    log = [operation(f"{seconds:04}", -seconds) for seconds in range(5000)]
    new = operation("new", -3)
    first, second = await reads(_Newest(number, 0), log, [*log, new])
    assert first == [("0001", "committed"), ("0000", "committed")][2 - number :]
    assert second == [("new", "committed")]


def test_following_without_earlier_operations(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.ok("init", "./vol")
    for number in range(3):
        cli.ok("mkdir", f"./vol:/{number}")
    polls = iter([None, None])

    async def poll(_: float) -> None:
        if next(polls, "end") == "end":
            raise KeyboardInterrupt

    monkeypatch.setattr("s3k_async.cli.commands.oplog.anyio.sleep", poll)
    done = cli("oplog", "tail", "-n", "0", "-f", "./vol")
    assert (done.code, done.lines) == (130, [])


def test_compacting_keeps_what_the_log_says(cli: Cli, volume: str, small_tree: Tree) -> None:
    cli.ok("rm", "/top.txt")
    assert cli.ok("oplog", "compact", "--yes").out.startswith(
        "nothing to compact: the state of 7 objects, 1 of them"
    )
    plan = cli.ok("oplog", "compact", "--grace", "0").out
    assert plan.startswith("would remove ")
    assert cli.ok("oplog", "compact", "--grace", "0").out == plan
    done = cli.ok("oplog", "compact", "--grace", "0", "--yes", "--json").json()
    assert (done["objects"], done["tombstones"], done["damaged"]) == (7, 1, [])
    assert done["removed"] == done["removable"] > 7
    assert done["checkpoint"]
    assert len(cli.ok("oplog", "tail").lines) == 7
    assert cli.ok("fsck", "--grace", "0").out.startswith("clean: 3 files")
    assert len(cli.ok("oplog", "show", "/a/one.txt").lines) == 1


def test_damage_is_told_and_ends_with_9(cli: Cli, volume: str, small_tree: Tree) -> None:
    damage(volume)
    for arguments in (["tail"], ["show", "/top.txt"], ["compact", "--grace", "0", "--yes"]):
        done = cli("oplog", *arguments)
        assert done.code == 9
        assert "damaged: segments/notes.committed: " in done.out
    assert cli("oplog", "tail", "--json").json_lines()[-1]["damaged"] == "segments/notes.committed"


@pytest.mark.parametrize(
    "arguments",
    [
        ["show"],
        ["show", "relative"],
        ["tail", "--since", "yesterday"],
        ["tail", "-n", "-1"],
        ["compact", "--grace", "-1"],
    ],
)
def test_bad_usage(cli: Cli, volume: str, arguments: list[str]) -> None:
    cli.fails(2, "oplog", *arguments)


def test_what_is_not_there(cli: Cli, volume: str) -> None:
    cli.fails(3, "oplog", "show", "00000000-0000-4000-8000-000000000000")
    cli.fails(3, "oplog", "show", "/nothing")
    cli.fails(3, "oplog", "tail", "memory://nobody")
    cli.fails(2, "oplog", "show", "/")
