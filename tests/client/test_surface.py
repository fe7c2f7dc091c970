"""The two clients have the same verbs, the same parameters and say the same of themselves."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from s3k_async.client import S3kClient
from s3k_async.files import FileReader, FileWriter
from s3k_async.staging import StagedWriter
from s3k_async.sync import S3kSyncClient
from s3k_async.sync_files import SyncFileReader, SyncFileWriter, SyncStagedWriter
from s3k_async.sync_transaction import SyncTransaction
from s3k_async.transaction import Transaction

CLIENTS = (S3kClient, Transaction)
PAIRS = [
    (S3kClient, S3kSyncClient),
    (Transaction, SyncTransaction),
    (FileReader, SyncFileReader),
    (FileWriter, SyncFileWriter),
    (StagedWriter, SyncStagedWriter),
]

BLOCKING = {
    "Opening[FileReader] | Opening[FileWriter]": "SyncFileReader | SyncFileWriter",
    "Opening[FileWriter]": "SyncFileWriter",
    "Opening[StagedWriter]": "SyncStagedWriter",
    "Transaction": "SyncTransaction",
}
"""What a verb gives that has a blocking counterpart."""

# For the blocking file, which calls them between its hops over the bridge.
STEPS = {"part_size", "add", "drain", "need_open", "over", "size"}
# For `io`, to say that the file cannot do it.
REFUSED = {"read", "readall", "readinto"}
NOT_SHARED = {
    FileReader: {"take", "move", "release", "need_open"},
    FileWriter: STEPS,
    StagedWriter: STEPS,
    SyncFileReader: {"readall", "write"},
    SyncFileWriter: REFUSED,
    SyncStagedWriter: REFUSED,
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


def first_line(member: object) -> str:
    return (inspect.getdoc(member) or "").split("\n\n")[0].split("\n")[0]


def shared() -> list[tuple[type, type, str]]:
    return [(ours, theirs, name) for ours, theirs in PAIRS for name in public(ours)]


@pytest.mark.parametrize(("asynchronous", "blocking"), PAIRS)
def test_both_have_the_same_members(asynchronous: type, blocking: type) -> None:
    inherited = {
        name
        for name in public(asynchronous)
        if name not in public(blocking) and hasattr(blocking, name)
    }
    assert inherited <= {"closed", "readable", "writable", "seekable"}
    assert set(public(asynchronous)) - inherited == set(public(blocking))


@pytest.mark.parametrize(("asynchronous", "blocking", "name"), shared())
def test_a_member_is_the_same_in_both(asynchronous: type, blocking: type, name: str) -> None:
    if name not in public(blocking):
        return
    one, other = public(asynchronous)[name], public(blocking)[name]
    assert isinstance(one, property) == isinstance(other, property)
    if callable(one):
        if asynchronous in CLIENTS:
            assert parameters(one) == parameters(other)
            assert kinds(one) == kinds(other)
        else:
            assert [each[:2] for each in parameters(one)] == [
                each[:2] for each in parameters(other)
            ]
    if not callable(one) and not isinstance(one, property):
        assert one == other
        return
    assert first_line(one) != ""
    if name != "closed":
        assert first_line(one) == first_line(other)


def test_both_clients_are_made_alike() -> None:
    assert parameters(S3kClient.__init__) == parameters(S3kSyncClient.__init__)
    assert kinds(S3kClient.__init__) == kinds(S3kSyncClient.__init__)


@pytest.mark.parametrize(
    ("asynchronous", "blocking", "name"), [each for each in shared() if each[0] in CLIENTS]
)
def test_no_blocking_verb_gives_something_to_await(
    asynchronous: type, blocking: type, name: str
) -> None:
    one, other = public(asynchronous)[name], public(blocking)[name]
    if isinstance(one, property):
        return
    assert not inspect.iscoroutinefunction(other)
    result = str(inspect.signature(one).return_annotation)
    wanted = str(inspect.signature(other).return_annotation)
    assert wanted == BLOCKING.get(result, result.replace("AsyncIterator", "Iterator"))


def test_a_difference_would_be_noticed() -> None:
    def verb(self: object, path: str, *, deep: bool = False) -> None: ...
    def renamed(self: object, where: str, *, deep: bool = False) -> None: ...
    def another_default(self: object, path: str, *, deep: bool = True) -> None: ...
    def positional(self: object, path: str, deep: bool = False) -> None: ...

    assert parameters(verb) == parameters(positional)
    assert kinds(verb) != kinds(positional)
    assert parameters(verb) != parameters(renamed)
    assert parameters(verb) != parameters(another_default)
