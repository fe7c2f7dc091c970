"""What the native core takes for clean: the rules find nothing about it either."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast, get_args
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from s3k_async import _native
from s3k_async.backends.ports.blobs import BlobInfo
from s3k_async.integrity.collector import Collector
from s3k_async.integrity.facts import Facts
from s3k_async.integrity.recheck import with_adopted, with_transactions
from s3k_async.integrity.repair import scope_of
from s3k_async.integrity.scope import Scope
from s3k_async.integrity.shuffle import Child, FactKind, Shuffle
from s3k_async.integrity.verify_rules import decide
from s3k_async.model import UNCOMMITTED, Deletion, Entry, LayoutName, Operation
from s3k_async.oplog.entries import LogRecord, LogState
from tests.torture.damage import GRACE, Scene
from tests.torture.damage_tree import damage, damages_of

NOW_MS = 10**13
DAY_MS = 86_400_000
IDS = ("one", "two")
PLACE = "place"
DELETION = Deletion("deleted", PLACE, "/a", 1)
Fact = tuple[FactKind, str, Any]


def collector_of(
    facts: Iterable[Fact], *, logged: bool = True, in_tree: bool = False, legacy: bool = False
) -> Collector:
    scope = SimpleNamespace(
        is_legacy=legacy,
        log=object() if logged else None,
        grace_ms=0,
        retention_ms=DAY_MS,
        path="/",
        check=SimpleNamespace(by_id=in_tree),
        runtime=SimpleNamespace(now_ms=lambda: NOW_MS),
    )
    collector = Collector(cast("Scope", scope), Shuffle(held=10**6))
    collector.put(facts)
    return collector


def both(collector: Collector) -> tuple[dict[str, Facts], dict[str, Facts]]:
    """The facts about all objects, and about those that are left to the rules, by id."""
    left = {facts.object_id: facts for facts in collector.facts(0)}
    with patch.object(_native, "undecided_facts", lambda *_: None):
        return {facts.object_id: facts for facts in collector.facts(0)}, left


def check(collector: Collector) -> set[str]:
    """The objects that are taken for clean are, and nothing is missing of the others."""
    every, left = both(collector)
    assert left == {object_id: every[object_id] for object_id in left}
    clean = every.keys() - left.keys()
    for object_id in clean:
        assert decide(every[object_id]) == [], every[object_id]
    return clean


def file(object_id: str = "one", *, in_tree: bool = False, **changes: Any) -> Entry:
    entry = Entry(
        path=f"{PLACE}/name" if in_tree else "/dir/name",
        is_dir=False,
        id=object_id,
        version=2,
        ctime=1,
        mtime_ms=5,
        size=3,
        physical=f"key.id={object_id}",
        committed=True,
        etag="etag",
        checksum="sum",
        operation="op",
        directory=PLACE if in_tree else "",
    )
    return replace(entry, **changes)


def directory(object_id: str = "one", *, in_tree: bool = False, **changes: Any) -> Entry:
    entry = file(object_id, in_tree=in_tree)
    empty: dict[str, Any] = {"size": 0, "physical": None, "etag": "", "checksum": ""}
    return replace(entry, is_dir=True, committed=False, **{**empty, **changes})


def logged(after: Entry, *, time_ms: int = 5) -> LogRecord:
    path = f"/some/where/{after.path.rpartition('/')[2]}" if after.directory else after.path
    after = replace(after, path=path)
    operation = Operation(after.operation, "update", after.id, after.version, time_ms, None, after)
    return LogRecord(operation, "committed", f"entries/{after.version}")


def removed(before: Entry) -> LogRecord:
    operation = Operation("gone", "delete", before.id, before.version + 1, 5, before, None)
    return LogRecord(operation, "committed", "entries/gone")


def blob_of(entry: Entry, **changes: Any) -> BlobInfo:
    return BlobInfo(str(entry.physical), entry.size, "any", 5)._replace(**changes)


def of_entry(entry: Entry) -> Fact:
    return "entries", entry.id, entry


def of_record(record: LogRecord) -> Fact:
    return "records", record.operation.object_id, record


def of_blob(blob: BlobInfo) -> Fact:
    return "blobs", _native.object_id_of(blob.key) or blob.key, blob


def healthy(entry: Entry) -> list[Fact]:
    facts = [of_entry(entry), of_record(logged(entry))]
    return facts if entry.is_dir else [*facts, of_blob(blob_of(entry))]


@pytest.mark.parametrize("in_tree", [False, True])
def test_healthy_objects_are_clean(in_tree: bool) -> None:
    odd = file("three", in_tree=in_tree, path=f'{PLACE}/é"\\\n' if in_tree else '/é"\\\n')
    overwritten = file("four", in_tree=in_tree, version=3, physical="new.id=four")
    facts = [
        *healthy(file("one", in_tree=in_tree)),
        *healthy(directory("two", in_tree=in_tree)),
        *healthy(odd),
        *healthy(overwritten),
        of_record(logged(file("four", in_tree=in_tree))),
        of_record(removed(file("five", in_tree=in_tree))),
        of_record(logged(file("five", in_tree=in_tree))),
    ]
    assert check(collector_of(facts, in_tree=in_tree)) == {"one", "two", "three", "four", "five"}


def test_without_a_log_an_entry_and_its_data_are_clean() -> None:
    entry = file()
    facts = [of_entry(entry), of_blob(blob_of(entry))]
    assert check(collector_of(facts, logged=False)) == {"one"}
    assert check(collector_of(facts)) == set()


def test_a_volume_of_the_old_system_is_left_to_the_rules() -> None:
    assert check(collector_of(healthy(file()), legacy=True)) == set()


HARM: dict[str, Callable[[Entry], list[Fact]]] = {
    "no entry": lambda entry: healthy(entry)[1:],
    "no record": lambda entry: [of_entry(entry), of_blob(blob_of(entry))],
    "no data": lambda entry: healthy(entry)[:2],
    "other size": lambda entry: [*healthy(entry)[:2], of_blob(blob_of(entry, size=4))],
    "other data": lambda entry: [*healthy(entry)[:2], of_blob(blob_of(entry, key="k.id=one"))],
    "more data": lambda entry: [*healthy(entry), of_blob(blob_of(entry, key="k.id=one"))],
    "two entries": lambda entry: [*healthy(entry), of_entry(replace(entry, path="/dir/other"))],
    "one entry twice": lambda entry: [*healthy(entry), of_entry(entry)],
    "write intent": lambda entry: [of_entry(replace(entry, pending="?")), *healthy(entry)[1:]],
    "pending": lambda entry: [
        *healthy(entry),
        of_record(replace(logged(replace(entry, version=3)), state="pending")),
    ],
    "conflict": lambda entry: [*healthy(entry), of_record(logged(replace(entry, size=4)))],
    "newer in the log": lambda entry: [
        *healthy(entry),
        of_record(logged(replace(entry, version=3))),
    ],
    "removed in the log": lambda entry: [*healthy(entry), of_record(removed(entry))],
    "reservation": lambda entry: healthy(replace(entry, committed=False, physical=UNCOMMITTED)),
    "adopted data of another": lambda entry: [
        *healthy(entry),
        ("adopted", "one", str(entry.physical)),
    ],
    "in the trash": lambda entry: [
        *healthy(directory()),
        ("trash", entry.id, (entry.id, DELETION)),
    ],
    "data of a directory": lambda entry: [*healthy(directory()), of_blob(blob_of(entry))],
    "data of a removed object": lambda entry: [of_record(removed(entry)), of_blob(blob_of(entry))],
    "a uri": lambda entry: healthy(replace(entry, physical="s3://b/key.id=one")),
    **{
        f"other {name}": lambda entry, name=name, value=value: [  # type: ignore[misc]
            of_entry(replace(entry, **{name: value})),
            *healthy(entry)[1:],
        ]
        for name, value in {
            "path": "/dir/moved",
            "directory": PLACE,
            "is_dir": True,
            "version": 3,
            "ctime": 2,
            "mtime_ms": 6,
            "size": 4,
            "physical": "k.id=one",
            "etag": "x",
            "checksum": "x",
        }.items()
    },
}


@pytest.mark.parametrize("name", HARM)
def test_everything_else_is_left_to_the_rules(name: str) -> None:
    assert check(collector_of([*HARM[name](file()), *healthy(file("two"))])) == {"two"}


def test_a_line_of_another_form_decides_nothing() -> None:
    collector = collector_of(healthy(file()))
    assert check(collector) == {"one"}
    collector.shuffle.add_to_part("blobs", b' ["k.id=two",1,"",1]\n', 1)
    assert check(collector) == set()


VALUES: dict[str, list[Any]] = {
    "path": ["/dir/name", "/dir/other", "/other/name", f"{PLACE}/name", f"{PLACE}/other"],
    "is_dir": [False, True],
    "version": [1, 2, 3],
    "ctime": [1, 2],
    "mtime_ms": [5, 6, 2 * NOW_MS],
    "size": [3, 4, 0],
    "physical": [None, UNCOMMITTED, "key.id=one", "key.id=two", "k.id=one", "s3://b/key.id=one"],
    "committed": [True, False],
    "etag": ["etag", ""],
    "checksum": ["sum", "other", ""],
    "operation": ["op", "other"],
    "lease_ms": [0, 1, 2 * NOW_MS],
    "pending": ["", "", "", "?"],
    "directory": ["", "", PLACE, "elsewhere"],
}


@st.composite
def similar(draw: st.DrawFn, entry: Entry) -> Entry:
    """The entry with at most two other values."""
    names = draw(st.lists(st.sampled_from(sorted(VALUES)), max_size=2))
    return replace(entry, **{name: draw(st.sampled_from(VALUES[name])) for name in names})


@st.composite
def volumes(draw: st.DrawFn) -> tuple[list[Fact], bool, bool]:
    """Facts that are nearly those of healthy objects; whether there is a log, and the layout."""
    in_tree = draw(st.booleans())
    facts: list[Fact] = []
    for object_id in IDS:
        make: Callable[..., Entry] = file if draw(st.booleans()) else directory
        entry = make(object_id, in_tree=in_tree)
        some = healthy(entry)
        for _ in range(draw(st.integers(0, 2))):
            other = draw(similar(entry))
            record = logged(other) if draw(st.booleans()) else removed(other)
            state: LogState = draw(st.sampled_from(get_args(LogState)))
            some.append(
                draw(
                    st.sampled_from(
                        [
                            of_entry(other),
                            of_record(replace(record, state=state)),
                            of_blob(blob_of(other)),
                            ("adopted", object_id, str(other.physical)),
                            ("trash", object_id, (object_id, DELETION)),
                        ]
                    )
                )
            )
            if draw(st.booleans()):
                del some[draw(st.integers(0, len(some) - 1))]
        facts += some
    return facts, draw(st.booleans()), in_tree


@settings(max_examples=500)
@given(volumes())
@example((healthy(file()), True, False))
def test_the_rules_find_nothing_about_what_is_clean(
    volume: tuple[list[Fact], bool, bool],
) -> None:
    facts, is_logged, in_tree = volume
    if not is_logged:
        facts = [each for each in facts if each[0] != "records"]
    check(collector_of(facts, logged=is_logged, in_tree=in_tree))


@pytest.mark.layouts("path", "tree")
async def test_of_damaged_volumes_only_what_the_rules_pass_is_clean(layout: LayoutName) -> None:
    for name in damages_of(layout):
        scene = await Scene.start(layout=layout)
        try:
            await damage(scene, name, "/a/d0/f0")
            scene.clock.advance(GRACE + 1)
            scope = scope_of(scene.volume, grace=0)
            collector = Collector(scope, Shuffle())
            try:
                await collector.scan(lambda _: None)
                every, left = both(collector)
                whole = await with_adopted(
                    scope, await with_transactions(scope, list(every.values()))
                )
                found = {each.object_id for each in whole if decide(each)}
                assert found <= left.keys(), name
                assert left == {object_id: every[object_id] for object_id in left}, name
                assert len(every) > len(left), name
                assert {each.child[0] for each in collector.lonely(0)} == without_parent(
                    collector
                ), name
            finally:
                collector.close()
        finally:
            await scene.end()


def without_parent(collector: Collector) -> set[str]:
    """The parents of entries that are no directories of the table."""
    directories = {"/", *(key for key, _ in collector.shuffle.read("directories", 0))}
    children: Iterable[Child] = collector.shuffle.read("children", 0)
    return {parent for parent, *_ in children if parent not in directories}
