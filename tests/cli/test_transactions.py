"""transactions: list and settle."""

from __future__ import annotations

from typing import Literal

import anyio
import pytest

from s3k_async._core.runtime import SYSTEM
from s3k_async.backends.ports.items import ABSENT, OPERATION, PARTITION, SORT, Put, Value
from s3k_async.backends.sqlite.sqlite_items import SqliteItems
from s3k_async.settings import resolve
from s3k_async.txn import txn_record
from s3k_async.txn.txn_record import TRANSACTION_PARTITION
from s3k_async.volumes import open_volume
from tests.cli.conftest import Cli
from tests.namespace.dying import DEAD, rename_and_die
from tests.test_volumes_legacy import legacy_item

When = Literal["before", "after"]


@pytest.fixture(params=["memory", "embedded"])
def place(request: pytest.FixtureRequest, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> str:
    """The default volume, of layout `path`, with a file in `/d`."""
    if request.param == "memory":
        name: str = request.getfixturevalue("volume")
    else:
        name = "./vol"
        cli.ok("init", name, "--layout", "path")
        monkeypatch.setenv("S3K_VOLUME", name)
    cli.ok("put", "-", "/d/f", stdin=b"1")
    return name


def die(
    volume: str, when: When, *, source: str = "/d", target: str = "/e", lease: int | None = DEAD
) -> str:
    async def work() -> str:
        return await rename_and_die(resolve(volume), source, target, when, lease=lease)

    return anyio.run(work)


def test_a_volume_without_transactions(cli: Cli, place: str) -> None:
    for arguments in (
        ["transactions"],
        ["transactions", place],
        ["transactions", "--json"],
        ["transactions", "resolve"],
        ["transactions", "resolve", place],
    ):
        assert cli.ok(*arguments).out == ""


@pytest.mark.parametrize(
    ("when", "state", "outcome", "file"),
    [("before", "preparing", "aborted", "/d/f"), ("after", "published", "completed", "/e/f")],
)
@pytest.mark.parametrize("named", [False, True])
def test_an_interrupted_rename_is_listed_and_finished(
    cli: Cli, place: str, when: When, state: str, outcome: str, file: str, named: bool
) -> None:
    txn = die(place, when)
    (line,) = cli.ok("transactions").lines
    assert line.split()[:6] == [txn, "rename", state, "/d", "->", "/e"]
    assert line.endswith("s  lease over")
    document = cli.ok("transactions", place, "--json").json()
    shown = document.pop("volume")
    assert cli.ok("transactions", shown, "--json").json()["id"] == txn
    assert document | {"started_ms": 0, "published_ms": 0} == {
        "id": txn,
        "kind": "rename",
        "state": state,
        "source": "/d",
        "target": "/e",
        "lease_ms": DEAD,
        "lease_runs": False,
        "started_ms": 0,
        "published_ms": 0,
    }
    assert (document["published_ms"] is None) == (when == "before")
    assert cli.ok("transactions", "resolve", place, *([txn] if named else [])).lines == [
        f"{outcome}: {txn}  rename  /d -> /e"
    ]
    assert cli.ok("transactions").out == ""
    assert cli.ok("find", "/", "--type", "f").lines == [file]
    cli.ok("fsck", "repair", "--grace", "0", "--yes")
    assert cli.ok("cat", file).output == b"1"


def test_finishing_as_json(cli: Cli, place: str) -> None:
    txn = die(place, "after")
    document = cli.ok("transactions", "resolve", "--json").json()
    assert (document["id"], document["state"], document["outcome"]) == (
        txn,
        "published",
        "completed",
    )


def test_a_transaction_with_a_valid_lease_is_not_changed(cli: Cli, place: str) -> None:
    txn = die(place, "before", lease=None)
    assert cli.ok("transactions").lines[0].endswith("lease runs")
    assert cli.ok("transactions", "--json").json()["lease_runs"] is True
    assert "its lease is valid until" in cli.fails(6, "transactions", "resolve", txn).errors
    assert cli("transactions", "resolve", place, txn, "--json").error()["path"] == txn
    assert cli.ok("transactions", "resolve").out.startswith(
        f"left: {txn}  rename  /d -> /e (its lease runs until "
    )
    assert cli.ok("transactions", "resolve", "--json").json()["outcome"] == "left"
    assert cli.ok("transactions", "--json").json()["state"] == "preparing"


@pytest.mark.parametrize("named", [False, True])
def test_the_transaction_of_a_dead_client_whose_clock_was_ahead_is_finished(
    cli: Cli, place: str, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    txn = die(place, "before", lease=SYSTEM.now_ms() + 86_400_000)
    assert cli.ok("transactions").lines[0].endswith("lease runs")
    monkeypatch.setattr(txn_record, "LEASE_SECONDS", 0.2)
    done = cli.ok("transactions", "resolve", *([txn] if named else []))
    assert done.out == f"aborted: {txn}  rename  /d -> /e\n"
    assert cli.ok("transactions").out == ""


def test_an_unknown_id(cli: Cli, place: str) -> None:
    txn = die(place, "before")
    assert (
        cli.fails(3, "transactions", "resolve", "nonsense").errors
        == "s3k: no such transaction (s3k transactions lists them): nonsense\n"
    )
    assert cli.ok("transactions", "--json").json()["id"] == txn
    done = cli.fails(10, "transactions", "resolve", "nonsense", txn)
    assert done.lines == [f"aborted: {txn}  rename  /d -> /e"]
    assert cli.ok("transactions").out == ""


def test_transactions_of_other_kinds(cli: Cli, volume: str) -> None:
    async def put(txn: str, kind: str) -> None:
        opened = await open_volume(resolve(volume))
        record: dict[str, Value] = {
            PARTITION: TRANSACTION_PARTITION,
            SORT: txn,
            OPERATION: txn,
            "kind": kind,
            "lease": DEAD,
        }
        if kind == "transaction":
            record["state"] = "preparing"
        await opened.items.write(Put(record, ABSENT))
        await opened.close()

    anyio.run(put, "one", "mark")
    assert cli.ok("transactions").lines == ["one  mark         -          -  -  lease over"]
    assert cli.ok("transactions", "resolve", "one").lines == ["released: one  mark  -"]
    anyio.run(put, "two", "transaction")
    anyio.run(put, "three", "mark")
    assert cli.ok("transactions", "resolve").lines == [
        "released: three  mark  -",
        "aborted: two  transaction  -",
    ]
    assert cli.ok("transactions").out == ""


def test_a_volume_of_s3_filesystem_1_0(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fill() -> None:
        items = SqliteItems("old.sqlite")
        await items.create()
        await items.write(Put(legacy_item("bucket", "/", "file", 10), ABSENT))
        await items.close()

    anyio.run(fill)
    given = [
        "--kind",
        "s3k-1.0",
        "--suffix-count",
        "10",
        "--table",
        "sqlite:old.sqlite",
        "--data-location",
        ".",
    ]
    assert cli.ok("transactions", "s3k://bucket", *given).out == ""
    assert "reading only" in cli.fails(5, "transactions", "resolve", "s3k://bucket", *given).errors
