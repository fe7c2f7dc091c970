"""One record that cannot be understood: every tool names it and goes on with the rest, and repair
removes it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from s3k_async.backends.ports.items import Condition, Update
from s3k_async.backends.ports.pagination import list_all
from s3k_async.oplog import checkpoints
from s3k_async.oplog.checkpoints import MANIFESTS
from s3k_async.oplog.entries import seal
from s3k_async.oplog.log_objects import ENTRY_BYTES, OBJECT_BYTES
from s3k_async.settings import resolve
from s3k_async.txn import volume_lock
from s3k_async.volumes import Volume, open_volume
from tests.cli.conftest import Cli, Done

REMEDY: Final = "s3k fsck repair"
UNSEALED: Final = "segment = segment & 0xFFFFFFFF"
"""What makes a row one that was written before rows had a checksum of their own."""
MANIFEST_BYTES: Final = 100_000
"""Instead of 64 MiB."""

Attributes = dict[str, Any]
Plant = Callable[[sqlite3.Connection, str, Attributes], object]


def attributes_are(value: object, expression: str = "?") -> Plant:
    """What gives a row these attributes, as they are."""
    return lambda table, name, _: table.execute(
        f"UPDATE items SET attributes = {expression}, {UNSEALED} WHERE sort = ?", (value, name)
    )


def attribute_is(**changed: object) -> Plant:
    """What gives a row other values of some attributes; None: takes them away."""

    def plant(table: sqlite3.Connection, name: str, attributes: Attributes) -> None:
        found = {key: value for key, value in (attributes | changed).items() if value is not None}
        table.execute(
            f"UPDATE items SET attributes = ?, {UNSEALED} WHERE sort = ?", (json.dumps(found), name)
        )

    return plant


def column_is(column: str, value: object, expression: str = "?") -> Plant:
    """What gives a row another key or segment."""
    return lambda table, name, _: table.execute(
        f"UPDATE items SET {column} = {expression}, {UNSEALED} WHERE sort = ?", (value, name)
    )


ROWS: Final[Mapping[str, Plant]] = {
    "cut": attributes_are('{"isdir": fal'),
    "empty": attributes_are(""),
    "array": attributes_are("[1]"),
    "two-values": attributes_are("{},{}"),
    "no-utf8": attributes_are(b'{"id":"\xff"}', "CAST(? AS TEXT)"),
    "blob": attributes_are(b"\xff\xfe"),
    "surrogate": attributes_are('{"id":"\\ud800"}'),
    "deep": attributes_are("[" * 100_000),
    "digits": attributes_are('{"ver":' + "9" * 5000 + "}"),
    "null": attributes_are('{"size":null}'),
    "nan": attribute_is(size=float("nan")),
    "float": attribute_is(size=1.5),
    "nested": attribute_is(physpath={"B": "AA=="}),
    "other-key": attribute_is(path="ks://x/-sf0", children="y"),
    "no-kind": attribute_is(isdir=None),
    "no-bytes": attribute_is(physpath=None),
    "no-id": attribute_is(id=None),
    "wrong-type": attribute_is(ver="two"),
    "huge": attribute_is(size=10**30),
    "negative": attribute_is(size=-1),
}
"""Rows at whose path nothing can be understood, by name of the file."""
KEYS: Final[Mapping[str, Plant]] = {
    "sort-blob": column_is("sort", b"sort-blob"),
    "sort-no-utf8": column_is("sort", b"sort-\xff", "CAST(? AS TEXT)"),
    "sort-slash": column_is("sort", "a/b"),
    "sort-slashes": column_is("sort", "a///t00"),
    "sort-empty": column_is("sort", ""),
    "sort-nul": column_is("sort", "a\0b"),
    "partition-no-utf8": column_is("partition", b"ks://bad/d-sf0\xff", "CAST(? AS TEXT)"),
}
"""Rows that are not where they were."""


@pytest.fixture(autouse=True)
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else has these volumes open."""
    monkeypatch.setattr(volume_lock, "QUIET_SECONDS", 0.0)


def with_volume(volume: str, work: Callable[[Volume], Any]) -> Any:
    async def run() -> Any:
        opened = await open_volume(resolve(volume))
        try:
            return await work(opened)
        finally:
            await opened.close()

    return anyio.run(run)


def tell(cli: Cli, *arguments: str, stdin: bytes = b"") -> Done:
    """A command that may fail, but only with an error of ours."""
    done = cli(*arguments, stdin=stdin)
    assert "internal error" not in done.errors, (arguments, done)
    assert done.code in (0, 3, 9, 10), (arguments, done)
    return done


def embedded(cli: Cli, names: Mapping[str, object]) -> tuple[str, dict[str, bytes]]:
    """A volume of layout `path`, where every change of `/d` reads its rows, with a file for each
    name in `/d`, and two that stay whole."""
    files = {f"/d/{name}": f"bytes of {name}".encode() for name in names} | {
        "/d/whole": b"1",
        "/e/whole": b"2",
    }
    cli.ok("init", "./bad", "--suffix-count", "2", "--layout", "path")
    for path, data in files.items():
        cli.ok("put", "-", f"./bad:{path}", stdin=data)
    return "./bad", files


def plant_rows(volume: str, plants: Mapping[str, Plant]) -> None:
    table = sqlite3.connect(Path(volume) / "metadata.sqlite")
    for name, plant in plants.items():
        (text,) = table.execute("SELECT attributes FROM items WHERE sort = ?", (name,)).fetchone()
        plant(table, name, json.loads(text))
    table.commit()
    table.close()


def test_damaged_rows_are_named_and_mended(cli: Cli, tmp_path: Path) -> None:
    plants = {**ROWS, **KEYS}
    volume, files = embedded(cli, plants)
    plant_rows(volume, plants)
    for name in ROWS:
        path = f"{volume}:/d/{name}"
        done = tell(cli, "rm", path)
        assert (done.code, f"/d/{name}" in done.errors, REMEDY in done.errors) == (9, True, True), (
            done
        )
    for command in (
        ["reshard", volume, "--suffix-count", "3"],
        ["stat", f"{volume}:/d/cut"],
        ["put", "-", f"{volume}:/d/cut"],
        ["ls", f"{volume}:/d"],
        ["ls", "-R", f"{volume}:/"],
        ["tree", f"{volume}:/"],
        ["du", f"{volume}:/"],
        ["find", f"{volume}:/"],
        ["get", "-r", f"{volume}:/d", str(tmp_path / "copy")],
        ["dump", volume, "-o", str(tmp_path / "dump")],
        ["rm", "-r", f"{volume}:/d"],
        ["mv", f"{volume}:/d", f"{volume}:/moved"],
        ["gc", volume, "--grace", "0", "--lease", "0", "--yes"],
        ["fsck", "restore", volume, "--subtree", "/d"],
    ):
        done = tell(cli, *command)
        assert done.code in (9, 10), (command, done)
        assert REMEDY in done.errors, (command, done)
    assert cli.ok("cat", f"{volume}:/e/whole").output == b"2"
    assert cli.ok("cat", f"{volume}:/d/whole").output == b"1"
    cli.ok("oplog", "tail", volume)
    cli.ok("oplog", "compact", volume, "--grace", "0", "--yes")

    report = cli("fsck", volume, "--grace", "0", "--json")
    assert report.code == 9
    assert [each["kind"] for each in report.json()["problems"]].count("item_damaged") == len(plants)
    tell(cli, "fsck", "repair", volume, "--grace", "0", "--yes")
    assert tell(cli, "fsck", volume, "--grace", "0").code == 0
    quarantined = list(Path(volume).glob("oplog/*/quarantine/items/*"))
    assert len(quarantined) == len(plants)
    documents = [json.loads(each.read_text()) for each in quarantined]
    assert '{"isdir": fal' in [each.get("attributes") for each in documents]
    assert "//4=" in [each.get("attributes_base64") for each in documents]
    cli.ok("gc", volume, "--grace", "0", "--lease", "0", "--yes")
    for path, data in files.items():
        assert cli.ok("cat", f"{volume}:{path}").output == data


IMPOSSIBLE: Final[Mapping[str, Attributes]] = {
    "above-the-root": {"path": "/../x"},
    "nul": {"path": "/a\0b"},
    "long-name": {"path": "/" + "x" * 1025},
    "long-path": {"path": "/x" * 2000},
    "too-long-here": {"path": "/x" * 1020 + "/x"},
    "not-normal": {"path": "/a//b"},
    "root": {"path": "/"},
    "no-ctime": {"ctime": 0},
    "negative-size": {"size": -1},
    "size": {"size": 10**30},
    "time": {"mtime_ms": 10**30},
}
"""States that no item of a table can have, in an entry of the log that is sealed as it should be.
"""


def entry_with(whole: bytes, number: int, states: Attributes) -> tuple[str, bytes]:
    """Key and bytes of an entry on another object, about what an entry says but for some fields of
    its state."""
    document = json.loads(whole.partition(b"\n")[0])
    document["object"] = document["after"]["id"] = f"00000000-0000-4000-8000-{number:012d}"
    document["after"] |= states
    name = f"{document['object']}.{document['version']:010d}.{document['id']}"
    key = f"entries/00/{name}.{document['state']}"
    return key, seal(json.dumps(document).encode() + b"\n")


async def plant_log(volume: Volume) -> list[str]:
    """Impossible entries, a segment with one, and objects that are too large; their keys."""
    assert volume.log_blobs is not None
    blobs = volume.log_blobs
    committed = [
        info.key async for info in list_all(blobs, "entries/") if info.key.endswith(".committed")
    ]
    found = [await blobs.get(key) for key in committed]
    whole = next(data for data in found if json.loads(data.partition(b"\n")[0])["kind"] == "update")
    planted = dict(
        entry_with(whole, number, states) for number, states in enumerate(IMPOSSIBLE.values())
    )
    line = json.loads(entry_with(whole, 100, {"path": "/../x"})[1].partition(b"\n")[0])
    head = {"s3k": "oplog-segment", "format": 2, "segment": "bad", "state": "pending", "count": 1}
    planted["segments/bad.pending"] = seal(
        json.dumps(head).encode() + b"\n" + json.dumps(line).encode() + b"\n"
    )
    large = entry_with(whole, 101, {})[0]
    planted[large] = b"{" * (ENTRY_BYTES + 1)
    planted["segments/large.committed"] = b"{" * (OBJECT_BYTES + 1)
    planted[f"{MANIFESTS}large"] = b"{" * (MANIFEST_BYTES + 1)
    for key, data in planted.items():
        await blobs.put(key, data)
    return list(planted)


async def log_sizes(volume: Volume, prefix: str = "") -> dict[str, int]:
    """The objects of the log and their sizes."""
    assert volume.log_blobs is not None
    return {info.key: info.size async for info in list_all(volume.log_blobs, prefix)}


def test_damaged_log_objects_are_named_and_mended(
    cli: Cli, volume: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "MANIFEST_BYTES", MANIFEST_BYTES)
    files = {f"/d/f{number}": b"%d" % number for number in range(3)}
    for path, data in files.items():
        cli.ok("put", "-", path, stdin=data)
    keys = with_volume(volume, plant_log)
    sizes = with_volume(volume, log_sizes)
    report = cli("fsck", "--grace", "0", "--json")
    assert report.code == 9
    problems = report.json()["problems"]
    assert sorted(each["key"] for each in problems) == sorted(keys)
    assert {each["kind"] for each in problems} == {"log_damaged"}

    for command in (
        ["oplog", "tail"],
        ["oplog", "show", "00000000-0000-4000-8000-000000000000"],
        ["oplog", "compact", "--grace", "0", "--yes"],
        ["gc", "--grace", "0", "--lease", "0"],
        ["fsck", "restore", "--subtree", "/d"],
        ["dump", "-o", str(tmp_path / "dump")],
        ["ls", "-R", "/"],
    ):
        tell(cli, *command)
    assert "log_damaged" in tell(cli, "fsck", "restore", "--subtree", "/d").out

    tell(cli, "fsck", "repair", "--grace", "0", "--yes")
    assert cli("fsck", "--grace", "0").code == 0
    quarantined = with_volume(volume, lambda opened: log_sizes(opened, "quarantine/"))
    kept = {
        key.removeprefix("quarantine/").rpartition(".")[0]: size
        for key, size in quarantined.items()
    }
    assert kept == {key: sizes[key] for key in keys}
    cli.ok("gc", "--grace", "0", "--lease", "0", "--yes")
    for path, data in files.items():
        assert cli.ok("cat", path).output == data


def test_an_id_that_no_key_can_hold_is_damage(cli: Cli) -> None:
    """Writing over it was a usage error, and repair failed at each run: nothing about it can be
    logged."""
    volume, files = embedded(cli, {"id": None})
    plant_rows(volume, {"id": attribute_is(id="../x y")})
    assert tell(cli, "put", "-", f"{volume}:/d/id").code == 9
    kinds = {
        each["kind"] for each in cli("fsck", volume, "--grace", "0", "--json").json()["problems"]
    }
    assert kinds == {"item_damaged", "entry_missing"}
    assert tell(cli, "fsck", "repair", volume, "--grace", "0", "--yes").code == 0
    assert tell(cli, "fsck", volume, "--grace", "0").code == 0
    assert cli.ok("cat", f"{volume}:/d/id").output == files["/d/id"]


def test_an_unreadable_transaction_record_goes_into_quarantine(cli: Cli) -> None:
    """The entries with its intents could not be read, and no client could end it."""
    volume, files = embedded(cli, {"pending": None})
    plant_rows(volume, {"pending": attribute_is(next='{"job":"lost","then":"gone"}')})
    table = sqlite3.connect(Path(volume) / "metadata.sqlite")
    table.execute("INSERT INTO items VALUES ('s3k:job', 'lost', 0, '{')")
    table.commit()
    table.close()
    assert tell(cli, "cat", f"{volume}:/d/pending").code == 9
    assert tell(cli, "fsck", volume, "--grace", "0").code == 9
    assert tell(cli, "fsck", "repair", volume, "--grace", "0", "--yes").code == 0
    assert tell(cli, "fsck", volume, "--grace", "0").code == 0
    assert cli.ok("cat", f"{volume}:/d/pending").output == files["/d/pending"]


ITEMS: Final[Mapping[str, Attributes]] = {
    "no-kind": {"isdir": None},
    "no-bytes": {"physpath": None},
    "no-id": {"id": None},
    "wrong-type": {"ver": "two"},
    "number-as-flag": {"isdir": 1},
    "huge": {"size": 10**30},
    "negative": {"size": -1},
    "no-time": {"ctime": 0},
    "odd-id": {"id": "../x"},
    "nothing": dict.fromkeys(
        ("isdir", "ctime", "ver", "id", "mtime", "op", "size", "physpath", "sum")
    ),
}
"""What items of any table can be, by name of the file; None: takes the attribute away."""


def test_damaged_items_are_named_and_mended(cli: Cli, volume: str, tmp_path: Path) -> None:
    files = {f"/d/{name}": name.encode() for name in [*ITEMS, "whole"]}
    for path, data in files.items():
        cli.ok("put", "-", path, stdin=data)

    async def plant(opened: Volume) -> None:
        for name, changed in ITEMS.items():
            key = opened.store.keys.key(f"/d/{name}")
            gone = tuple(each for each, value in changed.items() if value is None)
            given = {each: value for each, value in changed.items() if value is not None}
            await opened.items.write(Update(key, Condition(), set=given, remove=gone))

    with_volume(volume, plant)
    for command in (
        *(["rm", f"/d/{name}"] for name in ITEMS if name != "odd-id"),
        ["ls", "/d"],
        ["du", "/"],
        ["dump", "-o", str(tmp_path / "dump")],
        ["rm", "-r", "/d"],
        ["mv", "/d", "/moved"],
        ["gc", "--grace", "0", "--lease", "0", "--yes"],
        ["reshard", volume, "--suffix-count", "5"],
    ):
        done = tell(cli, *command)
        assert (done.code, REMEDY in done.errors) == (9, True), (command, done)
    kinds = [each["kind"] for each in cli("fsck", "--grace", "0", "--json").json()["problems"]]
    assert kinds.count("item_damaged") == len(ITEMS)
    tell(cli, "fsck", "repair", "--grace", "0", "--yes")
    assert tell(cli, "fsck", "--grace", "0").code == 0
    for path, data in files.items():
        assert cli.ok("cat", path).output == data
