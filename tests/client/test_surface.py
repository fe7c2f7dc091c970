"""The two clients have the same verbs, the same parameters and say the same of themselves."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, Literal, get_overloads, overload

import pytest

from s3k_async._sync.sync_batch_listing import SyncBatchListing, SyncRowListing
from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async._sync.sync_files import SyncFileReader, SyncFileWriter, SyncStagedWriter
from s3k_async._sync.sync_transaction import SyncTransaction
from s3k_async._sync.sync_trash import SyncTrash
from s3k_async.bulk.staged_uploads import StagedWriter
from s3k_async.bulk.trash import Trash
from s3k_async.client import S3kClient
from s3k_async.files.open_files import FileReader, FileWriter
from s3k_async.listing.batch_listing import BatchListing, RowListing
from s3k_async.objects import ObjectStore, SyncObjectStore
from s3k_async.transaction import Transaction
from tests.sync_surface import TWINS, Twin

CLIENTS = (S3kClient, Transaction, Trash, ObjectStore)
PAIRS = [
    (S3kClient, S3kSyncClient),
    (Transaction, SyncTransaction),
    (Trash, SyncTrash),
    (ObjectStore, SyncObjectStore),
    (FileReader, SyncFileReader),
    (FileWriter, SyncFileWriter),
    (StagedWriter, SyncStagedWriter),
    (BatchListing, SyncBatchListing),
    (RowListing, SyncRowListing),
]

BLOCKING = {
    "BatchListing": "SyncBatchListing",
    "Opening[FileReader] | Opening[FileWriter]": "SyncFileReader | SyncFileWriter",
    "Opening[FileWriter]": "SyncFileWriter",
    "Opening[StagedWriter]": "SyncStagedWriter",
    "Transaction": "SyncTransaction",
    "Trash": "SyncTrash",
}
"""What a verb gives that has a blocking counterpart."""

# For the blocking file, which calls them between its hops over the bridge.
STEPS = {"part_size", "add", "drain", "need_open", "over", "position", "size"}
# For `io`, to say that the file cannot do it.
REFUSED = {"read", "readall", "readinto"}
NOT_SHARED = {
    BatchListing: {"aclose"},
    FileReader: {"take", "take_into", "move", "release", "need_open"},
    FileWriter: STEPS,
    StagedWriter: STEPS,
    RowListing: {"aclose"},
    SyncFileReader: {"readall", "write"},
    SyncFileWriter: REFUSED,
    SyncStagedWriter: REFUSED,
    SyncRowListing: {"close"},  # the twin of `aclose`
}


def public(cls: type) -> dict[str, Any]:
    """Public members that the class or a base of ours defines."""
    owners = [owner for owner in reversed(cls.__mro__) if owner.__module__.startswith("s3k_async")]
    members = {
        name: member
        for owner in owners
        for name, member in vars(owner).items()
        if not name.startswith("_")
    }
    return {
        name: member for name, member in members.items() if name not in NOT_SHARED.get(cls, set())
    }


def parameters(function: Callable[..., object]) -> list[tuple[str, object, str]]:
    """Name, default and annotation. Kinds are compared where a caller can notice: names that `io`
    fixes are positional only in the blocking files."""
    return [
        (each.name, each.default, str(each.annotation).replace("S3kSyncClient", "S3kClient"))
        for each in inspect.signature(function).parameters.values()
    ]


def kinds(function: Callable[..., object]) -> list[object]:
    return [each.kind for each in inspect.signature(function).parameters.values()]


def first_paragraph(member: object) -> str:
    return " ".join((inspect.getdoc(member) or "").split("\n\n")[0].split())


def shared() -> list[tuple[type, type, str]]:
    return [(ours, theirs, name) for ours, theirs in PAIRS for name in public(ours)]


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
def test_the_blocking_verbs_are_those_that_are_generated(twin: Twin) -> None:
    stored = twin.target.read_text("utf-8").splitlines()
    found = difflib.unified_diff(stored, twin.source().splitlines(), lineterm="", n=0)
    difference = "\n".join(found)
    assert not difference, f"run python -m tests.sync_surface:\n{difference}"


def test_both_have_the_same_members() -> None:
    for asynchronous, blocking in PAIRS:
        inherited = {
            name
            for name in public(asynchronous)
            if name not in public(blocking) and hasattr(blocking, name)
        }
        assert inherited <= {"closed", "readable", "writable", "seekable"}
        assert set(public(asynchronous)) - inherited == set(public(blocking)), blocking.__name__


def differences(one: object, other: object, *, of_client: bool, name: str) -> Iterator[str]:
    """In what two members of one name differ."""
    if isinstance(one, property) != isinstance(other, property):
        yield "one of them is a property"
    elif callable(one):
        if not callable(other):
            yield "one of them is a method"
        elif not of_client:
            if [each[:2] for each in parameters(one)] != [each[:2] for each in parameters(other)]:
                yield f"{inspect.signature(one)} and {inspect.signature(other)}"
        elif parameters(one) != parameters(other) or kinds(one) != kinds(other):
            yield f"{inspect.signature(one)} and {inspect.signature(other)}"
    elif not isinstance(one, property):
        if one != other:
            yield f"{one!r} and {other!r}"
        return
    if first_paragraph(one) == "":
        yield "no docstring"
    if name != "closed" and first_paragraph(one) != first_paragraph(other):
        yield f"{first_paragraph(one)!r} and {first_paragraph(other)!r}"


OTHER_ERRORS = {"S3kSyncClient.open_volume": {"UnsupportedError"}}
"""Errors that only the asynchronous member raises: the blocking client may be opened twice."""


def errors_named(member: object) -> set[str]:
    return set(re.findall(r"\b[A-Z]\w+Error\b", inspect.getdoc(member) or ""))


def test_the_blocking_side_names_every_error() -> None:
    found = {
        f"{blocking.__name__}.{name}": errors_named(public(asynchronous)[name])
        - errors_named(public(blocking)[name])
        for asynchronous, blocking, name in shared()
        if name in public(blocking)
    }
    assert len([member for member in found if member.startswith("S3kSyncClient")]) > 30
    assert {member: missing for member, missing in found.items() if missing} == OTHER_ERRORS


def test_the_blocking_side_has_no_asynchronous_syntax() -> None:
    docs = [
        f"{blocking.__name__}.{name}: {inspect.getdoc(public(blocking)[name])}"
        for _, blocking, name in shared()
        if name in public(blocking)
    ]
    assert [doc for doc in docs if re.search(r"\bawait |\basync (with|for) ", doc)] == []


def test_every_member_is_the_same_in_both() -> None:
    found = [
        f"{blocking.__name__}.{name}: {difference}"
        for asynchronous, blocking, name in shared()
        if name in public(blocking)
        for difference in differences(
            public(asynchronous)[name],
            public(blocking)[name],
            of_client=asynchronous in CLIENTS,
            name=name,
        )
    ]
    assert not found, "\n".join(found)


def test_both_clients_are_made_alike() -> None:
    assert parameters(S3kClient.__init__) == parameters(S3kSyncClient.__init__)
    assert kinds(S3kClient.__init__) == kinds(S3kSyncClient.__init__)


def test_no_blocking_verb_gives_something_to_await() -> None:
    verbs = [
        (f"{blocking.__name__}.{name}", public(asynchronous)[name], public(blocking)[name])
        for asynchronous, blocking, name in shared()
        if asynchronous in CLIENTS and not isinstance(public(asynchronous)[name], property)
    ]
    assert [verb for verb, _, other in verbs if inspect.iscoroutinefunction(other)] == []
    wrong = []
    for verb, one, other in verbs:
        result = given(one)
        blocking = result.replace("AsyncIterator", "Iterator").replace(
            "RowListing", "SyncRowListing"
        )
        wanted = BLOCKING.get(result, blocking)
        if given(other) != wanted:
            wrong.append(f"{verb}{inspect.signature(other)} should give {wanted}")
    assert not wrong, "\n".join(wrong)


def given(function: Callable[..., object]) -> str:
    """What it returns. In a class with a method `list`, the type is `builtins.list`."""
    return str(inspect.signature(function).return_annotation).replace("builtins.", "")


def flags(function: Callable[..., object]) -> list[str]:
    """Parameters of a function whose value, true or false, decides about its result."""
    return [
        name
        for each in get_overloads(function)
        for name, parameter in inspect.signature(each).parameters.items()
        if str(parameter.annotation) in {"bool", "Literal[True]", "Literal[False]"}
    ]


def test_no_result_depends_on_a_flag() -> None:
    @overload
    def verb(*, flag: Literal[True]) -> int: ...
    @overload
    def verb(*, flag: Literal[False]) -> str: ...
    def verb(*, flag: bool) -> int | str:
        return flag and ""

    assert flags(verb) == ["flag", "flag"]
    found = [
        f"{cls.__name__}.{name}: {flags(member)}"
        for pair in PAIRS
        for cls in pair
        for name, member in public(cls).items()
        if inspect.isfunction(member) and flags(member)
    ]
    assert found == []


def test_a_difference_would_be_noticed() -> None:
    def verb(self: object, path: str, *, deep: bool = False) -> None: ...
    def renamed(self: object, where: str, *, deep: bool = False) -> None: ...
    def another_default(self: object, path: str, *, deep: bool = True) -> None: ...
    def positional(self: object, path: str, deep: bool = False) -> None: ...

    assert parameters(verb) == parameters(positional)
    assert kinds(verb) != kinds(positional)
    assert parameters(verb) != parameters(renamed)
    assert parameters(verb) != parameters(another_default)
