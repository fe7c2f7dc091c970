"""The checker of overlapping calls finds what is lost, undone or doubled, and takes every possible
order."""

from __future__ import annotations

import pytest

from tests.torture.overlap import IN_FLIGHT, Call, Outcome, check_overlapping


def write(path: str, name: str, began: float, ended: float, outcome: Outcome = "done") -> Call:
    return Call("write", began, files={path: name}, outcome=outcome, ended=ended)


def move(
    source: str,
    target: str,
    began: float,
    ended: float,
    *,
    tree: bool = False,
    overwrite: bool = False,
) -> Call:
    return Call(
        "move tree" if tree else "move",
        began,
        source,
        target,
        overwrite,
        outcome="done",
        ended=ended,
    )


def delete(
    source: str, began: float, ended: float, outcome: Outcome = "done", *, tree: bool = False
) -> Call:
    return Call("delete tree" if tree else "delete", began, source, outcome=outcome, ended=ended)


def test_calls_that_overlap_may_have_come_in_either_order() -> None:
    calls = [write("/a", "one", 0, 5), write("/a", "two", 1, 4)]
    check_overlapping({"/a": "one"}, calls)
    check_overlapping({"/a": "two"}, calls)


def test_a_lost_write_is_found() -> None:
    with pytest.raises(AssertionError, match="acknowledged at /a and is lost"):
        check_overlapping({}, [write("/a", "one", 0, 1)])


def test_a_write_that_an_earlier_deletion_would_explain_is_lost() -> None:
    with pytest.raises(AssertionError, match="is lost"):
        check_overlapping({}, [delete("/a", 0, 1), write("/a", "one", 2, 3)])
    check_overlapping({}, [delete("/a", 0, 1, "unknown"), write("/a", "one", 2, 3)])


def test_a_call_without_an_answer_removes_nothing_that_came_long_after_its_process_died() -> None:
    with pytest.raises(AssertionError, match="is lost"):
        check_overlapping(
            {}, [delete("/a", 0, 1, "under way"), write("/a", "one", 2 + IN_FLIGHT, 3 + IN_FLIGHT)]
        )


def test_what_a_dead_writer_had_uploaded_may_appear_later() -> None:
    calls = [write("/a", "one", 0, 1, "under way"), delete("/a", 20, 21)]
    check_overlapping({"/a": "one"}, calls)


def test_a_deletion_that_was_refused_explains_nothing() -> None:
    with pytest.raises(AssertionError, match="is lost"):
        check_overlapping({}, [write("/a", "one", 0, 1), delete("/a", 2, 3, "failed")])


def test_what_comes_back_is_found() -> None:
    with pytest.raises(AssertionError, match="from where it was removed"):
        check_overlapping(
            {"/d/a": "one"}, [write("/d/a", "one", 0, 1), delete("/d", 2, 3, tree=True)]
        )
    with pytest.raises(AssertionError, match="from where it was removed"):
        check_overlapping({"/a": "one"}, [write("/a", "one", 0, 1), move("/a", "/b", 2, 3)])
    with pytest.raises(AssertionError, match="from where it was removed"):
        check_overlapping({"/a": "one"}, [write("/a", "one", 0, 1), write("/a", "two", 2, 3)])


def test_what_was_moved_back_is_no_resurrection() -> None:
    calls = [write("/a", "one", 0, 1), move("/a", "/b", 2, 3), move("/b", "/a", 4, 5)]
    check_overlapping({"/a": "one"}, calls)
    with pytest.raises(AssertionError, match="removed"):
        check_overlapping({"/b": "one"}, calls)


def test_a_file_follows_its_directories() -> None:
    calls = [
        write("/d/a", "one", 0, 1),
        move("/d", "/e/f", 2, 3, tree=True),
        move("/e", "/g", 4, 5, tree=True),
    ]
    check_overlapping({"/g/f/a": "one"}, calls)
    with pytest.raises(AssertionError, match="nothing can have brought it"):
        check_overlapping({"/h/a": "one"}, calls)


def test_in_layout_tree_a_file_may_arrive_in_a_directory_after_its_rename() -> None:
    """It is put after a deletion at the new path, by a write that began before the rename."""
    calls = [
        write("/d/a", "one", 0, 6),
        move("/d", "/e", 1, 2, tree=True),
        delete("/e/a", 3, 4),
    ]
    check_overlapping({"/e/a": "one"}, calls, late=True)
    with pytest.raises(AssertionError, match="removed"):
        check_overlapping({"/e/a": "one"}, calls)
    with pytest.raises(AssertionError, match="removed"):
        check_overlapping({"/e/a": "one"}, [*calls, delete("/e/a", 7, 8)], late=True)
    with pytest.raises(AssertionError, match="is lost"):
        check_overlapping({}, calls[:2], late=True)


def test_a_move_before_the_write_brings_nothing() -> None:
    with pytest.raises(AssertionError, match="nothing can have brought it"):
        check_overlapping({"/b": "one"}, [move("/a", "/b", 0, 1), write("/a", "one", 2, 3)])


def test_what_a_move_replaced_is_gone() -> None:
    calls = [
        write("/b", "old", 0, 1),
        write("/a", "new", 0, 1),
        move("/a", "/b", 2, 3, overwrite=True),
    ]
    check_overlapping({"/b": "new"}, calls)


def test_a_refused_write_and_a_content_at_two_places_are_found() -> None:
    with pytest.raises(AssertionError, match="was refused"):
        check_overlapping({"/a": "one"}, [write("/a", "one", 0, 1, "failed")])
    with pytest.raises(AssertionError, match="is at /b and at /a"):
        check_overlapping({"/a": "one", "/b": "one"}, [write("/a", "one", 0, 1)])
