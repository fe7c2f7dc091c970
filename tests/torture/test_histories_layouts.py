"""The checker allows layout `tree` what is documented of it, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from s3k_async.errors import (
    BusyError,
    ConflictError,
    IsDirectoryError,
    NotDirectoryError,
    PathExistsError,
    PathNotFoundError,
    UncommittedFileError,
)
from s3k_async.model import LayoutName
from tests.torture.histories import NEVER, UNKNOWN, Event, find_order
from tests.torture.histories_places import Purge, Undelete, Verb
from tests.torture.histories_runs import EXCUSED, in_memory
from tests.torture.histories_scenes import SCENES
from tests.torture.model import (
    Commit,
    Delete,
    File,
    MakeDirectory,
    Outcome,
    Rename,
    Reserve,
    Reserved,
    Tree,
    Write,
)
from tests.torture.model_lists import List, Read, Stat

LAYOUTS: tuple[LayoutName, ...] = ("path", "tree")
X, Y = File(b"x", 0), File(b"y", 0)
START: Tree = {"/d": None, "/d/x": X, "/d/y": Y, "/d/s": None, "/d/s/z": File(b"z", 0)}
THERE, MISSING = (True, 0, True, b""), PathNotFoundError


def event(operation: Verb, begin: float, end: float, outcome: Outcome = None) -> Event:
    return Event(0, operation, outcome, begin, end)


def read(path: str, data: bytes | None, begin: float = 90) -> Event:
    """A read of a file, or that it is missing; of the end unless another moment is given."""
    return event(Read(path), begin, begin + 0.5, MISSING if data is None else data)


def stat(path: str, outcome: Outcome, begin: float = 90) -> Event:
    return event(Stat(path), begin, begin + 0.5, outcome)


def accepted(
    history: Sequence[Event], start: Tree = START, *, excused: bool = False
) -> set[LayoutName]:
    """The layouts in which an order explains the history."""
    errors = (BusyError, ConflictError) if excused else ()
    return {
        layout
        for layout in LAYOUTS
        if find_order(start, history, excused=errors, layout=layout) is not None
    }


# Relaxation 1: a directory takes along what has found it.

MOVE = event(Rename(50, "/d", "/e"), 2, 3)
GONE = stat("/d", MISSING)
WRITE = event(Write(1, "/d/new", b"new"), 1, 80)

TAKEN_ALONG: dict[str, tuple[Event, list[Event], list[Event]]] = {
    "write": (WRITE, [read("/e/new", None, 4)], [read("/e/new", b"new")]),
    "write below a missing directory": (
        event(Write(1, "/d/n/new", b"new"), 1, 80),
        [stat("/e/n", MISSING, 4)],
        [read("/e/n/new", b"new")],
    ),
    "write over a file": (
        event(Write(1, "/d/x", b"new"), 1, 80),
        [read("/e/x", b"x", 4)],
        [read("/e/x", b"new")],
    ),
    "reservation": (
        event(Reserve(1, "/d/new", exclusive=True), 1, 80),
        [stat("/e/new", MISSING, 4)],
        [stat("/e/new", (False, 0, False, b""))],
    ),
    "deletion": (
        event(Delete(1, "/d/x"), 1, 80),
        [read("/e/x", b"x", 4)],
        [read("/e/x", None)],
    ),
    "rename within it": (
        event(Rename(1, "/d/x", "/d/new"), 1, 80),
        [read("/e/x", b"x", 4)],
        [read("/e/new", b"x"), read("/e/x", None)],
    ),
    "rename out of it": (
        event(Rename(1, "/d/x", "/new"), 1, 80),
        [read("/e/x", b"x", 4)],
        [read("/new", b"x"), read("/e/x", None)],
    ),
    "makedirs": (
        event(MakeDirectory(1, "/d/n", exist_ok=False), 1, 80),
        [stat("/e/n", MISSING, 4)],
        [stat("/e/n", THERE)],
    ),
}


@pytest.mark.parametrize("name", TAKEN_ALONG)
def test_a_renamed_directory_takes_along_what_has_found_it(name: str) -> None:
    call, before, after = TAKEN_ALONG[name]
    assert accepted([call, MOVE, *before, *after, GONE]) == {"tree"}


@pytest.mark.parametrize("name", TAKEN_ALONG)
def test_what_is_taken_along_is_not_lost(name: str) -> None:
    call, before, _ = TAKEN_ALONG[name]
    lost = [replace(each, begin=85, end=86) for each in before]
    assert accepted([call, MOVE, *before, *lost, GONE]) == set()


@pytest.mark.parametrize("name", TAKEN_ALONG)
def test_what_begins_after_a_rename_is_not_taken_along(name: str) -> None:
    call, before, after = TAKEN_ALONG[name]
    late = replace(call, begin=10)
    assert accepted([late, MOVE, *before, *after, GONE]) == set()


@pytest.mark.parametrize("name", TAKEN_ALONG)
def test_what_has_ended_before_a_rename_does_not_come_after_it(name: str) -> None:
    call, before, after = TAKEN_ALONG[name]
    ended = replace(call, end=1.5)
    # Layout `path` refuses to rename a directory with a reservation.
    layouts = {"tree"} if name == "reservation" else {"path", "tree"}
    assert accepted([ended, MOVE, *after, GONE]) == layouts
    assert accepted([ended, MOVE, *before, *after, GONE]) == set()


def test_a_file_that_is_taken_along_is_at_one_path() -> None:
    unseen = read("/e/new", None, 4)
    assert accepted([WRITE, MOVE, unseen, read("/e/new", b"new")]) == {"tree"}
    assert accepted([WRITE, MOVE, unseen, read("/d/new", b"new")]) == {"path", "tree"}
    both = [read("/d/new", b"new"), read("/e/new", b"new")]
    assert accepted([WRITE, MOVE, unseen, *both]) == set()


def test_what_is_taken_along_does_not_take_effect_at_the_old_path() -> None:
    call = event(Rename(1, "/d/x", "/d/new"), 1, 80)
    unmoved = read("/e/x", b"x", 4)
    assert accepted([call, MOVE, unmoved, read("/e/new", b"x")]) == {"tree"}
    again = event(MakeDirectory(51, "/d"), 5, 6)
    assert accepted([call, MOVE, unmoved, again, read("/e/new", b"x")]) == {"tree"}
    assert accepted([call, MOVE, unmoved, again, read("/d/new", b"x"), read("/d/x", None)]) == {
        "tree"
    }, "the directory of the target may be found after that of the source"
    assert accepted([call, MOVE, unmoved, read("/d/new", b"x"), GONE]) == set()
    deletion = event(Delete(1, "/d/x"), 1, 80)
    other = event(Write(52, "/d/x", b"other"), 5, 6)
    gone = [read("/d/x", None), read("/e/x", b"x")]
    assert accepted([deletion, MOVE, unmoved, other, *gone]) == {"path", "tree"}
    kept = [read("/d/x", b"other"), read("/e/x", b"x")]
    assert accepted([deletion, MOVE, unmoved, other, *kept]) == set()


def test_every_rename_takes_it_along() -> None:
    history = [
        WRITE,
        MOVE,
        event(MakeDirectory(51, "/top"), 4, 5),
        event(Rename(52, "/e", "/top/d"), 6, 7),
        event(Rename(53, "/top", "/last"), 8, 9),
        read("/last/d/new", None, 10),
        GONE,
    ]
    assert accepted([*history, read("/last/d/new", b"new")]) == {"tree"}
    assert accepted([*history, read("/last/d/new", None)]) == set()


def test_a_rename_to_and_fro_leaves_it_where_it_was() -> None:
    back = event(Rename(51, "/e", "/d"), 5, 6)
    history = [WRITE, MOVE, read("/e/new", None, 4), back, read("/d/new", None, 7)]
    assert accepted([*history, read("/d/new", b"new")]) == {"path", "tree"}
    assert accepted([*history, read("/d/new", None)]) == set()


def test_a_directory_that_was_not_there_is_not_found() -> None:
    """What makes missing parents is bound to the deepest directory that there was."""
    write = event(Write(1, "/d/n/new", b"new"), 1, 80)
    made = event(MakeDirectory(51, "/d/n"), 2, 3)
    moved = event(Rename(52, "/d/n", "/e"), 4, 5)
    ends = [read("/e/new", None, 6), read("/e/new", b"new")]
    assert accepted([write, made, moved, *ends]) == {"tree"}
    early = replace(write, begin=3.5)
    assert accepted([early, made, moved, *ends]) == {"tree"}
    late = replace(write, begin=5.5)
    assert accepted([late, made, moved, *ends]) == set()
    other_made = event(MakeDirectory(53, "/e/n"), 6, 7)
    history = [write, MOVE, stat("/e/n", MISSING, 4), other_made, read("/e/n/new", b"new"), GONE]
    assert accepted(history) == {"tree"}
    own = [
        stat("/e/n", MISSING, 4),
        stat("/e/n", THERE, 5),
        event(Rename(54, "/e/n", "/k"), 6, 7),
        read("/k/new", None, 8),
    ]
    assert accepted([write, MOVE, *own, read("/k/new", b"new"), GONE]) == {"tree"}
    assert accepted([write, MOVE, *own, read("/e/n/new", b"new"), GONE]) == {"tree"}
    assert accepted([write, MOVE, *own, read("/k/new", None), stat("/e/n", MISSING), GONE]) == set()


def test_a_directory_that_was_removed_as_empty_takes_nothing_along() -> None:
    emptied: Tree = {"/d": None}
    removed, made = event(Delete(51, "/e"), 5, 6), event(MakeDirectory(52, "/e"), 7, 8)
    history = [WRITE, MOVE, read("/e/new", None, 4), removed]
    assert accepted([*history, read("/d/new", b"new")], emptied) == {"path", "tree"}
    assert accepted([*history, GONE], emptied) == set()
    assert accepted([*history, made, read("/e/new", b"new"), GONE], emptied) == set()


def test_what_failed_was_told_of_one_moment() -> None:
    """A call that is refused looks again, where its paths lead to by then."""
    create = event(Write(1, "/d/new", b"new", overwrite=False), 1, 80, PathExistsError)
    other = event(Write(51, "/e/new", b"other"), 5, 6)
    assert "tree" not in accepted([create, MOVE, other])
    same = event(Write(51, "/d/new", b"other"), 5, 6)
    assert accepted([create, MOVE, same]) == {"path", "tree"}


def test_a_failed_call_may_have_made_parents_in_the_directory_that_it_had_found() -> None:
    failed = event(Write(1, "/d/n/new", b"new"), 1, 80, BusyError)
    history = [failed, MOVE, stat("/e/n", MISSING, 4), GONE]
    assert accepted([*history, stat("/e/n", THERE)], excused=True) == {"tree"}
    assert (
        accepted([*history, stat("/e/n", THERE), read("/e/n/new", b"new")], excused=True) == set()
    )
    no_parent = event(Write(1, "/d/new", b"new"), 1, 80, BusyError)
    history = [no_parent, MOVE, stat("/e/new", MISSING, 4), GONE]
    assert accepted([*history, read("/e/new", b"new")], excused=True) == set()


def test_what_is_unknown_is_taken_along_or_never_happens() -> None:
    write = event(Write(1, "/d/new", b"new"), 1, NEVER, UNKNOWN)
    history = [write, MOVE, read("/e/new", None, 4), GONE]
    assert accepted([*history, read("/e/new", b"new")]) == {"tree"}
    assert accepted([*history, read("/e/new", None)]) == {"path", "tree"}
    twice = [
        read("/e/new", b"new", 5),
        event(Delete(51, "/e/new"), 6, 7),
        read("/e/new", b"new"),
    ]
    assert accepted([*history, *twice]) == set()


def test_a_creation_that_was_sent_again_stays_in_its_directory() -> None:
    write = replace(WRITE, is_resent=True)
    seen, removed = read("/d/new", b"new", 1.2), event(Delete(51, "/d/new"), 1.8, 1.9)
    history = [write, seen, removed, MOVE, read("/e/new", None, 4), GONE]
    assert accepted([*history, read("/e/new", b"new")]) == {"tree"}
    assert accepted([*history, read("/e/new", None)]) == {"path", "tree"}
    once = [WRITE, *history[1:]]
    assert accepted([*once, read("/e/new", b"new")]) == set()
    other = [event(MakeDirectory(52, "/d"), 5, 6), event(Rename(53, "/d", "/k"), 7, 8)]
    assert accepted([*history, *other, read("/k/new", b"new")]) == {"path"}


EMPTY: Tree = {"/d": None}
CREATED_AND_DELETED = [
    replace(WRITE, is_resent=True),
    read("/d/new", b"new", 1.2),
    event(Delete(51, "/d/new"), 1.8, 1.9),
]
WITH_ITS_DIRECTORY = [*CREATED_AND_DELETED, event(Delete(60, "/d"), 2, 3), stat("/d", MISSING, 4)]


def test_a_retried_creation_creates_its_removed_directory_again() -> None:
    history = WITH_ITS_DIRECTORY
    assert accepted([*history, read("/d/new", b"new")], EMPTY) == {"path", "tree"}
    assert accepted([*history, GONE], EMPTY) == {"path", "tree"}
    another = event(MakeDirectory(53, "/d"), 5, 6)
    moved = [another, event(Rename(54, "/d", "/k"), 7, 8), read("/k/new", None, 9)]
    assert accepted([*history, *moved, read("/d/new", b"new")], EMPTY) == {"path", "tree"}
    assert accepted([*history, *moved, read("/k/new", b"new")], EMPTY) == {"tree"}


def test_a_retried_creation_does_no_more_in_a_removed_directory() -> None:
    """Nothing without a lost answer, no third file, none over another one, and no directory in the
    place of one in the trash."""
    history = WITH_ITS_DIRECTORY
    once = [WRITE, *history[1:]]
    assert accepted([*once, read("/d/new", b"new")], EMPTY) == set()
    twice = [read("/d/new", b"new", 5), event(Delete(52, "/d/new"), 6, 7)]
    assert accepted([*history, *twice, read("/d/new", b"new")], EMPTY) == set()
    other = [event(Write(52, "/d/new", b"other"), 5, 6), read("/d/new", b"other", 81)]
    assert accepted([*history, *other, read("/d/new", b"new")], EMPTY) == set()
    in_trash = [*CREATED_AND_DELETED, DELETE, stat("/d", MISSING, 4)]
    assert accepted([*in_trash, read("/d/new", b"new")], EMPTY) == {"path"}


# What has one moment is not taken along.

AT_ONE_MOMENT: dict[str, tuple[Event, list[Event], list[Event]]] = {
    "rename of a directory": (
        event(Rename(1, "/d/s", "/d/t"), 1, 80),
        [stat("/e/s", THERE, 4)],
        [stat("/e/t", THERE)],
    ),
    "recursive deletion": (
        event(Delete(1, "/d/s", recursive=True), 1, 80),
        [stat("/e/s", THERE, 4)],
        [stat("/e/s", MISSING)],
    ),
    "removal of an empty directory": (
        event(Delete(1, "/d/s"), 1, 80),
        [event(Delete(51, "/e/s/z"), 4, 5), stat("/e/s", THERE, 6)],
        [stat("/e/s", MISSING)],
    ),
    "undelete": (
        event(Undelete(1, "/d/s"), 1.5, 80),
        [event(Delete(51, "/d/s", recursive=True), 1, 1.4), stat("/e/s", MISSING, 4)],
        [stat("/e/s", THERE)],
    ),
    "listing": (
        event(List("/d"), 1, 80, {("/d/x", False, 1), ("/d/y", False, 1), ("/d/n", True, 0)}),
        [event(Delete(51, "/e/s", recursive=True), 4, 5), event(MakeDirectory(52, "/e/n"), 6, 7)],
        [],
    ),
    "read": (
        event(Read("/d/x"), 1, 80, b"new"),
        [event(Write(51, "/e/x", b"new"), 4, 5)],
        [],
    ),
}


@pytest.mark.parametrize("name", AT_ONE_MOMENT)
def test_what_has_one_moment_is_not_taken_along(name: str) -> None:
    call, before, after = AT_ONE_MOMENT[name]
    assert accepted([call, MOVE, *before, *after, GONE]) == set()


# Relaxation 2: what a deleted directory takes along was done before.

DELETE = event(Delete(60, "/d", recursive=True), 2, 3)
BACK = event(Undelete(61, "/d"), 82, 83)


def test_what_a_deleted_directory_takes_along_comes_back_with_it() -> None:
    history = [WRITE, DELETE, stat("/d", MISSING, 4), read("/d/new", None, 81)]
    assert accepted(history) == {"path", "tree"}
    assert accepted([*history, BACK, read("/d/new", b"new")]) == {"tree"}
    assert accepted([*history, BACK, read("/d/new", None)]) == set()


def test_what_was_deleted_does_not_reappear_by_itself() -> None:
    history = [WRITE, DELETE, stat("/d", MISSING, 4), read("/d/new", None, 81)]
    assert accepted([*history, read("/d/new", b"new")]) == set()
    again = event(MakeDirectory(62, "/d"), 82, 83)
    assert accepted([*history, again, read("/d/new", None)]) == {"path", "tree"}
    assert accepted([*history, again, read("/d/new", b"new")]) == set()


def test_a_creation_that_was_seen_is_not_gone_and_back() -> None:
    """A file stays in a directory that was deleted recursively. It is moved out of a directory that
    was removed as empty, but no read shows it before the removal has ended."""
    seen, gone = read("/d/new", b"new", 1.5), read("/d/new", None, 4)
    assert accepted([WRITE, seen, DELETE, gone, read("/d/new", None)]) == {"path", "tree"}
    assert accepted([WRITE, seen, DELETE, gone, read("/d/new", b"new")]) == set()
    emptied: Tree = {"/d": None}
    removed = event(Delete(60, "/d"), 2, 3)
    history = [WRITE, removed, gone, read("/d/new", b"new")]
    assert accepted(history, emptied) == {"path", "tree"}
    assert accepted([seen, *history], emptied) == set()


def test_a_creation_that_was_seen_does_not_fail() -> None:
    failed = replace(WRITE, outcome=ConflictError)
    taken = event(Write(51, "/d/new", b"other"), 4, 5)
    assert accepted([failed, DELETE, taken], excused=True) == {"path", "tree"}
    seen = read("/d/new", b"new", 1.5)
    assert "tree" not in accepted([failed, seen, DELETE, taken], excused=True)
    moved = event(Rename(51, "/d/new", "/kept"), 1.2, 1.4)
    history = [failed, moved, DELETE, read("/kept", b"new")]
    assert "tree" not in accepted(history, excused=True)


def test_a_file_is_moved_out_of_a_directory_that_was_deleted_meanwhile() -> None:
    rename = event(Rename(1, "/d/x", "/new"), 1, 80)
    unmoved = read("/new", None, 4)
    assert accepted([rename, DELETE, unmoved, read("/new", b"x")]) == {"tree"}
    assert accepted([rename, DELETE, unmoved, read("/new", None)]) == set()
    assert accepted([rename, DELETE, unmoved, BACK, read("/new", b"x"), read("/d/x", None)]) == {
        "tree"
    }
    assert (
        accepted([rename, DELETE, unmoved, BACK, read("/new", b"x"), read("/d/x", b"x")]) == set()
    )
    late = replace(rename, begin=3.5)
    assert accepted([late, DELETE, unmoved, read("/new", b"x")]) == set()


def test_a_file_is_moved_into_a_directory_that_was_deleted_meanwhile() -> None:
    start = {**START, "/f": File(b"f", 0)}
    rename = event(Rename(1, "/f", "/d/s/new"), 1, 80)
    history = [rename, DELETE, read("/f", b"f", 4), stat("/d", MISSING, 5)]
    assert accepted([*history, read("/f", None)], start) == {"tree"}
    assert accepted([*history, read("/f", None), BACK, read("/d/s/new", b"f")], start) == {"tree"}
    assert accepted([*history, read("/f", b"f")], start) == set()
    assert accepted([*history, read("/f", None), BACK, read("/d/s/new", None)], start) == set()


def test_what_was_taken_along_by_a_rename_and_then_deleted_was_done_before() -> None:
    moved = event(Rename(51, "/d/s", "/k"), 2, 3)
    deleted = event(Delete(52, "/k", recursive=True), 6, 7)
    write = event(Write(1, "/d/s/new", b"new"), 1, 80)
    history = [write, moved, read("/k/new", None, 4), deleted, stat("/d/s", MISSING)]
    assert accepted(history) == {"tree"}
    assert accepted([*history, stat("/k", MISSING)]) == {"tree"}
    assert accepted([*history, read("/k/new", b"new")]) == set()
    back = event(Undelete(53, "/k"), 82, 83)
    assert accepted([*history, back, read("/k/new", b"new")]) == {"tree"}
    assert accepted([*history, back, read("/k/new", None)]) == set()


def test_a_restored_directory_takes_along_what_had_found_it() -> None:
    back = event(Undelete(61, "/d"), 4, 5)
    history = [WRITE, DELETE, back, read("/d/new", None, 6)]
    assert accepted([*history, read("/d/new", b"new")]) == {"tree"}
    assert accepted([*history, read("/d/new", None)]) == set()
    moved = event(Rename(62, "/d", "/k"), 7, 8)
    history += [moved, read("/k/new", None, 9), GONE]
    assert accepted([*history, read("/k/new", b"new")]) == {"tree"}
    assert accepted([*history, read("/k/new", None)]) == set()
    deleted, restored = event(Delete(63, "/e", recursive=True), 4, 5), undelete(6, "/e")
    history = [WRITE, MOVE, deleted, restored, read("/e/new", None, 7), GONE]
    assert accepted([*history, read("/e/new", b"new")]) == {"tree"}
    assert accepted([*history, read("/e/new", None)]) == set()


# The trash

RESTORED = {("/d/x", False, 1), ("/d/y", False, 1), ("/d/s", True, 0), ("/d/s/z", False, 1)}


def undelete(begin: float, path: str = "/d", outcome: Outcome = None) -> Event:
    return event(Undelete(int(begin) + 100, path), begin, begin + 0.5, outcome)


def listed(begin: float, content: set[tuple[str, bool, int]]) -> Event:
    return event(List("/d", recursive=True), begin, begin + 0.5, content)


def test_a_deleted_directory_comes_back_with_all_that_was_in_it() -> None:
    assert accepted([DELETE, undelete(5), listed(6, RESTORED), read("/d/s/z", b"z")]) == {"tree"}
    assert accepted([DELETE, undelete(5), listed(6, RESTORED - {("/d/x", False, 1)})]) == set()
    assert accepted([DELETE, undelete(5), listed(6, set())]) == set()
    within = event(Delete(60, "/d/s", recursive=True), 2, 3)
    assert accepted([within, undelete(5, "/d/s"), listed(6, RESTORED)]) == {"tree"}
    parents = [within, replace(DELETE, begin=3.5, end=4), undelete(5, "/d/s")]
    assert accepted([*parents, listed(6, {("/d/s", True, 0), ("/d/s/z", False, 1)})]) == {"tree"}


def test_a_deleted_directory_comes_back_once() -> None:
    assert accepted([DELETE, undelete(5), undelete(6, outcome=PathExistsError)]) == {"tree"}
    moved = event(Rename(62, "/d", "/e"), 6, 7)
    assert accepted([DELETE, undelete(5), moved, undelete(8)]) == set()
    missing = undelete(8, outcome=PathNotFoundError)
    assert accepted([DELETE, undelete(5), moved, missing, read("/e/x", b"x")]) == {"tree"}
    assert accepted([DELETE, undelete(5), undelete(6, outcome=PathNotFoundError)]) == {"tree"}
    assert accepted([DELETE, undelete(5, outcome=PathNotFoundError)]) == {"path"}


def test_the_newest_of_the_deleted_directories_comes_back() -> None:
    other = [
        event(Write(70, "/d/x", b"newer"), 5, 6),
        event(Delete(71, "/d", recursive=True), 7, 8),
        undelete(10),
    ]
    assert accepted([DELETE, *other, read("/d/x", b"newer", 11)]) == {"tree"}
    assert accepted([DELETE, *other, read("/d/x", b"x", 11)]) == set()
    moved = [event(Rename(72, "/d", "/e"), 12, 13), undelete(14)]
    assert accepted([DELETE, *other, *moved, read("/e/x", b"newer"), read("/d/x", b"x")]) == {
        "tree"
    }
    beside = replace(undelete(6.5), end=10)
    assert accepted([DELETE, *other[:2], beside, read("/d/x", b"x", 11)]) == {"tree"}


@pytest.mark.parametrize(
    ("there", "outcome"),
    [
        (event(MakeDirectory(70, "/d"), 3.5, 4), PathExistsError),
        (event(Write(70, "/d", b"file"), 3.5, 4), PathExistsError),
    ],
)
def test_nothing_comes_back_to_a_path_that_is_taken(there: Event, outcome: Outcome) -> None:
    assert accepted([DELETE, there, undelete(5)]) == set()
    assert accepted([DELETE, there, undelete(5, outcome=outcome)]) == {"tree"}


def test_what_is_reclaimed_or_was_removed_as_empty_does_not_come_back() -> None:
    purged = event(Purge(60, "/d"), 2, 3)
    assert accepted([purged, undelete(5)]) == set()
    assert accepted([WRITE, purged, undelete(5)]) == set()
    assert accepted([purged, undelete(5, outcome=PathNotFoundError)]) == {"path", "tree"}
    emptied: Tree = {"/d": None}
    removed = event(Delete(60, "/d"), 2, 3)
    assert accepted([removed, undelete(5)], emptied) == set()
    assert accepted([removed, undelete(5, outcome=PathNotFoundError)], emptied) == {"path", "tree"}
    assert accepted([DELETE, undelete(5), stat("/d", THERE)], emptied) == {"tree"}


def test_a_file_has_no_place_in_the_trash() -> None:
    removed = event(Delete(60, "/d/x", recursive=True), 2, 3)
    assert accepted([removed, undelete(5, "/d/x")]) == set()


# Relaxation 4: around a deletion whose caller waits.

TWO_FILES: Tree = {"/f": File(b"f", 0), "/h": File(b"h", 0), "/a": None, "/a/b": None}
TO_ONE_PATH = [
    event(Rename(1, "/f", "/a/b/g"), 1, 80),
    event(Rename(2, "/h", "/a/b/g"), 1, 81),
    stat("/a", MISSING),
]
CREATIONS = [
    event(Write(1, "/a/b/g", b"one", overwrite=False), 1, 80),
    event(Reserve(2, "/a/b/g", exclusive=True), 1, 81),
    stat("/a/b", MISSING),
]


def test_two_renames_succeed_below_a_directory_that_is_being_reclaimed() -> None:
    assert accepted([*TO_ONE_PATH, event(Purge(60, "/a"), 2, 70)], TWO_FILES) == {"tree"}
    both_left = [*TO_ONE_PATH, event(Purge(60, "/a"), 2, 70), read("/f", b"f", 82)]
    assert accepted(both_left, TWO_FILES) == set()


def test_two_renames_do_not_succeed_below_a_directory_that_is_kept() -> None:
    for kept in (
        event(Delete(60, "/a", recursive=True), 2, 70),
        event(Rename(60, "/a", "/e"), 2, 70),
    ):
        assert accepted([*TO_ONE_PATH, kept], TWO_FILES) == set()


def test_two_creations_succeed_in_a_directory_renamed_into_one_that_is_being_reclaimed() -> None:
    start = {**TWO_FILES, "/z": None}
    renamed = event(Rename(50, "/a/b", "/z/b"), 2, 3)
    purged, deleted = (
        event(Purge(60, "/z"), 4, 70),
        event(Delete(60, "/z", recursive=True), 4, 70),
    )
    assert accepted([*CREATIONS, renamed, purged], start) == {"tree"}
    assert accepted([*CREATIONS, renamed, deleted], start) == set()
    assert accepted([*CREATIONS, renamed], start) == set()


def test_two_creations_succeed_below_a_directory_that_is_being_reclaimed() -> None:
    assert accepted([*CREATIONS, event(Purge(60, "/a"), 2, 70)], TWO_FILES) == {"tree"}
    assert (
        accepted([*CREATIONS, event(Delete(60, "/a", recursive=True), 2, 70)], TWO_FILES) == set()
    )
    assert accepted(CREATIONS[:2], TWO_FILES) == set()


# Files that are open for writing

OPENED: Tree = {"/d": None, "/d/s": None, "/d/s/f": Reserved(7)}


def commit(begin: float, outcome: Outcome = None) -> Event:
    publish = Commit(8, "/d/s/f", b"new", None, None, 7, expired=False)  # type: ignore[arg-type]
    return event(publish, begin, begin + 10, outcome)


def test_a_directory_is_renamed_with_files_that_are_being_written() -> None:
    assert accepted([replace(MOVE, outcome=UncommittedFileError)], OPENED) == {"path"}
    published = read("/e/s/f", b"new")
    assert accepted([MOVE, commit(5), published], OPENED) == {"tree"}
    assert accepted([replace(MOVE, end=20), commit(5), published], OPENED) == {"path", "tree"}
    assert accepted([MOVE, commit(5), stat("/e/s/f", (False, 0, False, b""))], OPENED) == set()
    assert accepted([MOVE, commit(5, ConflictError), published], OPENED) == set()


def test_a_file_is_not_published_in_a_directory_deleted_before() -> None:
    assert accepted([DELETE, commit(5)], OPENED) == set()
    assert accepted([DELETE, commit(5, ConflictError)], OPENED) == {"path", "tree"}
    meanwhile = replace(DELETE, begin=6, end=7)
    assert accepted([meanwhile, commit(5)], OPENED) == {"path", "tree"}
    assert accepted([meanwhile, commit(5), BACK, read("/d/s/f", b"new")], OPENED) == {"tree"}
    assert accepted([DELETE, BACK, commit(85), read("/d/s/f", b"new", 97)], OPENED) == {"tree"}


def test_a_file_may_be_published_in_the_trash_after_a_rename_into_it() -> None:
    moved, deleted = (
        event(Rename(50, "/d/s", "/k"), 2, 3),
        event(Delete(60, "/k", recursive=True), 3.5, 4),
    )
    assert accepted([moved, deleted, commit(5)], OPENED) == {"tree"}
    assert accepted([moved, deleted, commit(5, ConflictError)], OPENED) == {"tree"}
    back = undelete(82, "/k")
    assert accepted([moved, deleted, commit(5), back, read("/k/f", b"new")], OPENED) == {"tree"}


# Both layouts


def test_a_new_file_is_not_seen_without_its_directory() -> None:
    write = event(Write(1, "/d/new", b"new"), 1, 9)
    history = [write, DELETE, read("/d/new", b"new", 4), stat("/d", MISSING, 6)]
    assert accepted(history) == {"path"}


@pytest.mark.parametrize(
    ("operation", "outcome"),
    [
        (Rename(1, "/d", "/d/s/d"), None),
        (Rename(1, "/d", "/missing/d"), None),
        (Delete(1, "/d"), None),
        (Write(1, "/d", b""), None),
        (MakeDirectory(1, "/d/x/n"), None),
        (Read("/d/s/z"), b"y"),
    ],
)
def test_what_neither_layout_allows(operation: Verb, outcome: Outcome) -> None:
    assert accepted([event(operation, 1, 2, outcome)]) == set()


@pytest.mark.parametrize(
    ("operation", "outcome"),
    [
        (Rename(1, "/d", "/e"), None),
        (Write(1, "/d", b""), IsDirectoryError),
        (MakeDirectory(1, "/d/x/n"), NotDirectoryError),
        (Delete(1, "/d", recursive=True), None),
        (Read("/d/s/z"), b"z"),
    ],
)
def test_what_both_layouts_do(operation: Verb, outcome: Outcome) -> None:
    assert accepted([event(operation, 1, 2, outcome)]) == {"path", "tree"}


@pytest.mark.parametrize("scene", ["files", "directories"])
async def test_what_needs_no_relaxation_is_accepted_in_layout_tree(scene: str) -> None:
    for number in range(3):
        run = await in_memory(scene, f"both-layouts-{number}", calls=8)
        start = SCENES[scene].start
        assert find_order(start, run.events, excused=EXCUSED, layout="tree") is not None
