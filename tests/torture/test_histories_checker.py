"""The checker accepts what could have happened and refuses what could not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from s3k_async.backends.ports.items import Condition, Item
from s3k_async.errors import BusyError, OutcomeUnknownError, PathExistsError, PathNotFoundError
from s3k_async.model import LayoutName
from tests.torture.histories import (
    NEVER,
    UNKNOWN,
    Event,
    Violation,
    check,
    find_order,
)
from tests.torture.histories_runs import in_memory
from tests.torture.model import (
    Commit,
    Delete,
    File,
    Operation,
    Outcome,
    Rename,
    Reserve,
    Tree,
    Write,
)
from tests.torture.model_lists import List, Read, Stat

START: Tree = {"/f": File(b"old", 0)}
DIRECTORY: Tree = {"/d": None, "/d/x": File(b"x", 0), "/d/y": File(b"y", 0)}

both = pytest.mark.parametrize("layout", ["path", "tree"])


def event(operation: Operation, outcome: Outcome, begin: float, end: float) -> Event:
    return Event(0, operation, outcome, begin, end)


def everything(*names: str) -> set[tuple[str, bool, int]]:
    return {(name, name.count("/") == 1, int(name.count("/") > 1)) for name in names}


@both
def test_a_read_during_a_write_sees_either_side(layout: LayoutName) -> None:
    write = event(Write(1, "/f", b"new"), None, 1, 4)
    for data in (b"old", b"new"):
        assert find_order(START, [write, event(Read("/f"), data, 2, 3)], layout=layout) is not None


@both
def test_a_read_after_a_write_sees_it(layout: LayoutName) -> None:
    history = [event(Write(1, "/f", b"new"), None, 1, 2), event(Read("/f"), b"old", 3, 4)]
    with pytest.raises(Violation, match="no order explains"):
        check(START, history, layout=layout)


@both
def test_what_was_seen_stays_seen(layout: LayoutName) -> None:
    write = event(Write(1, "/f", b"new"), None, 1, 10)
    first, second = event(Read("/f"), b"new", 2, 3), event(Read("/f"), b"old", 4, 5)
    assert find_order(START, [write, first, second], layout=layout) is None


@both
def test_two_renames_of_one_file_do_not_both_succeed(layout: LayoutName) -> None:
    one = event(Rename(1, "/f", "/g"), None, 1, 5)
    other = event(Rename(2, "/f", "/h"), None, 2, 6)
    assert find_order(START, [one, other], layout=layout) is None
    told = event(Rename(2, "/f", "/h"), PathNotFoundError, 2, 6)
    assert find_order(START, [one, told], layout=layout) == [one, told]


@both
def test_a_success_that_was_told_as_a_failure_is_refused(layout: LayoutName) -> None:
    create = event(Write(1, "/g", b"new", overwrite=False), PathExistsError, 1, 2)
    assert (
        find_order(START, [create, event(Stat("/g"), (False, 3, True, b""), 3, 4)], layout=layout)
        is None
    )


@both
def test_what_is_unknown_may_happen_late_or_never_but_not_twice(layout: LayoutName) -> None:
    for outcome in (UNKNOWN, OutcomeUnknownError):
        write = event(Write(1, "/f", b"new"), outcome, 1, NEVER)
        old, new = event(Read("/f"), b"old", 2, 3), event(Read("/f"), b"new", 4, 5)
        assert find_order(START, [write, old, new], layout=layout) is not None
        assert find_order(START, [write, old], layout=layout) is not None
        again = [write, new, event(Delete(2, "/f"), None, 6, 7), event(Read("/f"), b"new", 8, 9)]
        assert find_order(START, again, layout=layout) is None


def test_a_new_file_may_be_seen_before_its_directory_is_there_again() -> None:
    write = event(Write(1, "/d/new", b"new"), None, 1, 9)
    gone = event(Delete(2, "/d", recursive=True), None, 2, 3)
    file, directory = (
        event(Read("/d/new"), b"new", 4, 5),
        event(Stat("/d"), PathNotFoundError, 6, 7),
    )
    assert find_order(DIRECTORY, [write, gone, file, directory]) is not None
    there, not_there = (
        event(Stat("/d"), (True, 0, True, b""), 10, 11),
        event(Stat("/d"), PathNotFoundError, 10, 11),
    )
    assert find_order(DIRECTORY, [write, gone, file, directory, there]) is not None
    assert find_order(DIRECTORY, [write, gone, file, directory, not_there]) is None


def test_a_new_file_that_was_seen_stays_where_it_is_when_it_is_renamed_to_itself() -> None:
    write = event(Write(1, "/d/new", b"new"), None, 1, 9)
    gone = event(Delete(2, "/d", recursive=True), None, 2, 3)
    stays = event(Rename(3, "/d/new", "/d/new", overwrite=True), None, 4, 5)
    moves = event(Rename(3, "/d/new", "/d/other", overwrite=True), None, 4, 5)
    directory = event(Stat("/d"), PathNotFoundError, 6, 7)
    assert find_order(DIRECTORY, [write, gone, stays, directory]) is not None
    assert find_order(DIRECTORY, [write, gone, moves, directory]) is None


def test_a_new_file_that_was_seen_does_not_go_and_come_again() -> None:
    write = event(Write(1, "/d/new", b"new"), None, 1, 20)
    gone = event(Delete(2, "/d", recursive=True), None, 2, 3)
    seen = event(Read("/d/new"), b"new", 4, 5)
    other = event(Write(3, "/d/new", b"other"), None, 6, 7)
    again = event(Read("/d/new"), b"new", 8, 9)
    assert find_order(DIRECTORY, [write, gone, seen, other]) is not None
    assert find_order(DIRECTORY, [write, gone, seen, other, again]) is None


@both
def test_what_failed_may_have_made_parents_or_dropped_its_reservation(layout: LayoutName) -> None:
    failed = event(Write(1, "/d/s/new", b"new"), BusyError, 1, 4)
    for before in (2, 5):
        there = event(Stat("/d/s"), (True, 0, True, b""), before, before + 1)
        assert (
            find_order(DIRECTORY, [failed, there], excused=(BusyError,), layout=layout) is not None
        )
    reserve, again = (
        event(Reserve(1, "/g", exclusive=True), None, 1, 2),
        event(Reserve(3, "/g", exclusive=True), None, 5, 6),
    )
    commit = event(Commit(2, "/g", b"", None, None, 1, expired=False), BusyError, 3, 4)  # type: ignore[arg-type]
    assert (
        find_order(START, [reserve, commit, again], excused=(BusyError,), layout=layout) is not None
    )


@both
def test_a_creation_that_was_sent_again_does_not_write_over_anything(layout: LayoutName) -> None:
    write = replace(event(Write(1, "/g", b"new"), None, 1, 20), is_resent=True)
    seen, removed = event(Read("/g"), b"new", 2, 3), event(Delete(2, "/g"), None, 4, 5)
    again = event(Read("/g"), b"new", 8, 9)
    assert find_order(START, [write, seen, removed, again], layout=layout) is not None
    other = event(Write(3, "/g", b"other"), None, 6, 7)
    assert find_order(START, [write, seen, removed, other, again], layout=layout) is None


@both
def test_an_excused_error_changes_nothing(layout: LayoutName) -> None:
    busy = event(Delete(1, "/f"), BusyError, 1, 2)
    kept, gone = event(Read("/f"), b"old", 3, 4), event(Read("/f"), PathNotFoundError, 3, 4)
    assert find_order(START, [busy, kept], excused=(BusyError,), layout=layout) is not None
    assert find_order(START, [busy, gone], excused=(BusyError,), layout=layout) is None
    assert find_order(START, [busy, kept], layout=layout) is None


@both
def test_a_listing_during_a_rename_of_a_directory_sees_one_side(layout: LayoutName) -> None:
    rename = event(Rename(1, "/d", "/e"), None, 1, 4)

    def listed(*names: str) -> Event:
        return event(List("/", recursive=True), everything(*names), 2, 3)

    assert find_order(DIRECTORY, [rename, listed("/d", "/d/x", "/d/y")], layout=layout) is not None
    assert find_order(DIRECTORY, [rename, listed("/e", "/e/x", "/e/y")], layout=layout) is not None
    assert (
        find_order(DIRECTORY, [rename, listed("/d", "/d/x", "/e", "/e/y")], layout=layout) is None
    )
    assert find_order(DIRECTORY, [rename, listed("/e", "/e/x")], layout=layout) is None


async def test_a_store_without_conditions_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def exists_or_not(condition: Condition, item: Item | None) -> bool:
        return item is not None or not condition.exists

    monkeypatch.setattr(Condition, "holds", exists_or_not)

    async def several() -> None:
        for number in range(20):
            await in_memory("files", f"unconditional-{number}", calls=8)

    with pytest.raises(Violation, match="no order explains"):
        await several()


async def test_a_run_is_repeated_by_its_seed() -> None:
    first, again = [await in_memory("files", "the same", calls=8) for _ in range(2)]
    other = await in_memory("files", "another", calls=8)
    assert [str(each) for each in first.events] == [str(each) for each in again.events]
    assert [str(each) for each in first.events] != [str(each) for each in other.events]
