"""The judge of the races: what it accepts, and that it does not accept everything."""

from __future__ import annotations

import pytest

from s3k_async.errors import (
    BusyError,
    ConflictError,
    DirectoryNotEmptyError,
    PathExistsError,
    PathNotFoundError,
)
from tests.races.operations import (
    Create,
    Delete,
    MakeDirectory,
    Operation,
    Outcome,
    Read,
    Rename,
    Tree,
    Write,
)
from tests.races.order import Done, explain

P: Tree = {"/p": None}


def done(*calls: tuple[Operation, Outcome]) -> list[Done]:
    """All at the same time."""
    return [Done(operation, outcome, 0.0, 1.0) for operation, outcome in calls]


@pytest.mark.parametrize(
    ("start", "calls", "end"),
    [
        (P, [(Write("/p/a", b"1"), None), (Delete("/p", recursive=True), None)], {}),
        (
            P,
            [(Write("/p/a", b"1"), None), (Delete("/p", recursive=True), None)],
            {"/p": None, "/p/a": b"1"},
        ),
        (
            P,
            [(Write("/p/a", b"1"), None), (Delete("/p"), DirectoryNotEmptyError)],
            {"/p": None, "/p/a": b"1"},
        ),
        # The write makes the parents again and again; each removal finds them empty.
        (
            P,
            [(Write("/p/q/a", b"1"), None), (Delete("/p/q"), None), (Delete("/p"), None)],
            {"/p": None, "/p/q": None, "/p/q/a": b"1"},
        ),
        (
            {"/s": b"1", "/t": b"2"},
            [(Rename("/s", "/t", overwrite=True), None), (Write("/s", b"3"), None)],
            {"/s": b"3", "/t": b"1"},
        ),
        (
            {"/s": b"1"},
            [(Rename("/s", "/t"), None), (Rename("/s", "/t"), PathExistsError)],
            {"/t": b"1"},
        ),
        ({"/s": b"1"}, [(Write("/s", b"2"), None), (Read("/s"), b"1")], {"/s": b"2"}),
        # A file that is being written when its directory is deleted.
        (P, [(Create("/p/a", b"1"), ConflictError), (Delete("/p", recursive=True), None)], {}),
        (
            P,
            [(Create("/p/a", b"1"), None), (Create("/p/a", b"2"), PathExistsError)],
            {"/p": None, "/p/a": b"1"},
        ),
    ],
)
def test_what_some_order_explains(
    start: Tree, calls: list[tuple[Operation, Outcome]], end: Tree
) -> None:
    assert explain(start, done(*calls), end) is not None


@pytest.mark.parametrize(
    ("start", "calls", "end"),
    [
        # An acknowledged file that is gone, and nobody deleted it.
        (P, [(Write("/p/a", b"1"), None)], P),
        # It is gone, and the only delete says that it did nothing.
        (P, [(Write("/p/a", b"1"), None), (Delete("/p"), DirectoryNotEmptyError)], P),
        # A refusal without a reason.
        (P, [(Delete("/p"), DirectoryNotEmptyError)], P),
        (P, [(MakeDirectory("/p/q"), PathExistsError)], P),
        ({"/s": b"1"}, [(Rename("/s", "/t"), PathNotFoundError)], {"/s": b"1"}),
        # Two winners, a file at both paths, a file at neither.
        ({"/s": b"1"}, [(Rename("/s", "/t"), None), (Rename("/s", "/u"), None)], {"/t": b"1"}),
        ({"/s": b"1"}, [(Rename("/s", "/t"), None)], {"/s": b"1", "/t": b"1"}),
        ({"/s": b"1"}, [(Rename("/s", "/t"), None)], {}),
        # Bytes that nobody wrote, an entry without its parent, an error that is no answer.
        ({"/s": b"1"}, [(Write("/s", b"2"), None), (Read("/s"), b"12")], {"/s": b"2"}),
        (P, [(Write("/p/a", b"1"), None), (Delete("/p", recursive=True), None)], {"/p/a": b"1"}),
        (P, [(Write("/p/a", b"1"), BusyError)], P),
        # A writer that was told of a conflict, and none there; two that created one file; a
        # reservation left behind.
        (P, [(Create("/p/a", b"1"), ConflictError)], P),
        (
            P,
            [(Create("/p/a", b"1"), None), (Create("/p/a", b"2"), None)],
            {"/p": None, "/p/a": b"1"},
        ),
        (P, [(Create("/p/a", b"1"), PathExistsError)], {"/p": None, "/p/a": b"1"}),
    ],
)
def test_what_no_order_explains(
    start: Tree, calls: list[tuple[Operation, Outcome]], end: Tree
) -> None:
    assert explain(start, done(*calls), end) is None


def test_real_time_rules_out_what_ended_before_it_began() -> None:
    start: Tree = {"/s": b"1"}
    calls = [Done(Write("/s", b"2"), None, 0.0, 1.0), Done(Read("/s"), b"1", 2.0, 3.0)]
    assert explain(start, calls, {"/s": b"2"}) is not None
    assert explain(start, calls, {"/s": b"2"}, real_time=True) is None
