"""rename_many and delete_many: every item of a list by itself, many in a request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from s3k_async import ChangeResult
from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async.backends.ports.items import Condition, Put
from s3k_async.bulk import path_changes
from s3k_async.client import S3kClient
from s3k_async.errors import (
    ArgumentTypeError,
    CrossVolumeError,
    DirectoryNotEmptyError,
    InvalidArgumentError,
    InvalidPathError,
    ItemFormatError,
    LogFormatError,
    NotDirectoryError,
    OutcomeUnknownError,
    PartialFailureError,
    PathExistsError,
    PathNotFoundError,
    PermissionDeniedError,
    RenameIntoSelfError,
    ResponseLostError,
    S3kError,
    TransactionConflictError,
    UncommittedFileError,
)
from s3k_async.model import Progress
from s3k_async.table.codec import to_item
from s3k_async.testing import Call, FaultPlan
from tests.client.rig import faulty_client, paths
from tests.engines.volumes import volume_backends
from tests.namespace.rig import nth

pytestmark = pytest.mark.layouts("path", "tree")

backends = volume_backends("memory", "embedded", "dynoxide+seaweedfs")

Failures = dict[str, type[Exception]]


def failures(result: ChangeResult) -> Failures:
    found = {path: type(error) for path, error in result.failures}
    assert len(found) == len(result.failures)
    return found


async def fill(fs: S3kClient, *places: str) -> None:
    for place in places:
        await fs.write(place, place.encode())


# rename_many


@backends
async def test_files_are_renamed_from_and_to_many_directories(fs: S3kClient) -> None:
    names = [f"/a/f{number}" for number in range(7)] + ["/top", "/b/x/g"]
    await fill(fs, *names)
    await fs.makedirs("/c/d")
    before = {name: await fs.stat(name) for name in names}
    targets = {
        name: f"/c/d/f{place}" if place % 2 else f"/c/f{place}" for place, name in enumerate(names)
    }
    targets["/top"] = "/top2"
    result = await fs.rename_many(targets.items())
    assert result == ChangeResult(9, 0, sum(len(name) for name in names))
    assert result.raise_for_failures() is result
    assert await paths(fs) == {"/a", "/b", "/b/x", "/c", "/c/d", *targets.values()}
    for name, target in targets.items():
        assert await fs.read(target) == name.encode()
        moved = await fs.stat(target)
        assert (moved.id, moved.version) == (before[name].id, before[name].version + 1)


@backends
async def test_each_pair_fails_by_itself(fs: S3kClient) -> None:
    await fill(fs, "/a/f", "/a/g", "/a/h", "/a/i", "/a/j", "/b/old")
    await fs.makedirs("/b/d")
    async with fs.open("/a/reserved", "wb") as file:
        await file.write(b"x")
        result = await fs.rename_many(
            [
                ("/a/f", "/b/f"),
                ("/a/none", "/b/none"),
                ("/a/g", "/b/old"),
                ("/a/h", "/b/d"),
                ("/a/i", "/c/i"),
                ("/a/j", "/b/old2/x"),
                ("/a/reserved", "/b/reserved"),
                ("/", "/b/root"),
                ("/a/\0", "/b/nul"),
                ("/b/old2", "s3k://elsewhere/x"),
            ]
        )
    assert failures(result) == {
        "/a/none": PathNotFoundError,
        "/a/g": PathExistsError,
        "/a/h": PathExistsError,
        "/a/i": PathNotFoundError,
        "/a/j": PathNotFoundError,
        "/a/reserved": UncommittedFileError,
        "/": RenameIntoSelfError,
        "/a/\0": InvalidPathError,
        "/b/old2": CrossVolumeError,
    }
    assert (result.files, result.directories, result.bytes) == (1, 0, 4)
    with pytest.raises(PartialFailureError, match="9 of 10 entries failed") as raised:
        result.raise_for_failures(path="/a")
    assert (raised.value.failures, raised.value.path) == (result.failures, "/a")
    assert raised.value.__cause__ is result.failures[0][1]
    assert await paths(fs) == {
        "/a",
        "/a/g",
        "/a/h",
        "/a/i",
        "/a/j",
        "/a/reserved",
        "/b",
        "/b/d",
        "/b/f",
        "/b/old",
    }


@backends
async def test_a_target_through_a_file(fs: S3kClient) -> None:
    await fill(fs, "/a", "/f")
    result = await fs.rename_many([("/a", "/f/x")])
    assert failures(result) == {"/a": NotDirectoryError}
    assert await fs.read("/a") == b"/a"


@backends
async def test_targets_are_replaced_only_when_asked(fs: S3kClient) -> None:
    await fill(fs, "/a/f", "/a/g", "/b/f", "/b/g")
    pairs = [("/a/f", "/b/f"), ("/a/g", "/b/g")]
    assert failures(await fs.rename_many(pairs)) == {
        "/a/f": PathExistsError,
        "/a/g": PathExistsError,
    }
    assert await fs.rename_many(pairs, overwrite=True) == ChangeResult(2, 0, 8)
    assert await paths(fs) == {"/a", "/b", "/b/f", "/b/g"}
    assert await fs.read("/b/f") == b"/a/f"


@backends
async def test_pairs_that_share_a_path_are_refused_all_of_them(fs: S3kClient) -> None:
    """Done in order, a chain would lead elsewhere than when it is begun again half-way."""
    await fill(fs, "/a", "/b", "/c", "/d", "/e", "/f", "/z")
    before = await paths(fs)
    for overwrite in (False, True):
        result = await fs.rename_many(
            [
                ("/a", "/b"),
                ("/b", "/g"),
                ("/c", "/h"),
                ("/c", "/i"),
                ("/d", "/j"),
                ("//e", "/j/"),
                ("/f", "/f/../z"),
            ],
            overwrite=overwrite,
        )
        refused = Counter(
            path for path, error in result.failures if isinstance(error, InvalidArgumentError)
        )
        assert refused == {"/a": 1, "/b": 1, "/c": 2, "/d": 1, "/e": 1}
        assert result.files == int(overwrite)
    assert await paths(fs) == before - {"/f"}
    assert await fs.read("/z") == b"/f"


@backends
async def test_a_pair_that_is_named_twice_and_one_that_stays(fs: S3kClient) -> None:
    await fill(fs, "/a", "/b")
    result = await fs.rename_many([("/a", "/c"), ("a", "/./c"), ("/b", "/b")])
    assert result == ChangeResult(1, 0, 2)
    assert await paths(fs) == {"/b", "/c"}


@backends
async def test_a_reservation_that_is_to_stay_where_it_is_stays(fs: S3kClient) -> None:
    """As `rename` does it: nothing is moved, so nothing is refused."""
    async with fs.open("/f", "wb"):
        assert await fs.rename_many([("/f", "/f")]) == ChangeResult()
        assert failures(await fs.rename_many([("/f", "/g")])) == {"/f": UncommittedFileError}


@pytest.mark.layouts("path")
@backends
async def test_directories_come_after_files_in_their_order(fs: S3kClient) -> None:
    await fill(fs, "/d/f", "/d/x/g", "/e/h", "/file")
    result = await fs.rename_many(
        [("/d", "/e/d"), ("/e", "/n"), ("/n2", "/n3"), ("/file", "/d/file"), ("/d/f", "/d/k")]
    )
    assert failures(result) == {"/n2": PathNotFoundError}
    assert (result.files, result.directories) == (2 + 3 + 4, 2 + 3)
    assert await paths(fs) == {"/n", "/n/d", "/n/d/file", "/n/d/k", "/n/d/x", "/n/d/x/g", "/n/h"}


@backends
async def test_the_same_list_finishes_the_work(fs: S3kClient) -> None:
    await fill(fs, "/a/f", "/a/g")
    pairs = [("/a/f", "/b/f"), ("/a/g", "/b/g"), ("/a/none", "/b/none")]
    assert len((await fs.rename_many(pairs)).failures) == 3
    await fs.makedirs("/b")
    await fs.rename("/a/f", "/b/f")
    result = await fs.rename_many(pairs, missing_ok=True)
    assert failures(result) == {"/a/none": PathNotFoundError}
    assert result.files == 1
    assert failures(await fs.rename_many(pairs)) == dict.fromkeys(
        ["/a/f", "/a/g", "/a/none"], PathNotFoundError
    )


async def test_pairs_are_packed_into_few_requests() -> None:
    faults = FaultPlan()
    async with faulty_client(faults) as fs:
        for directory in ("/a", "/b", "/c"):
            await fs.makedirs(directory)
        for number in range(120):
            await fs.write(f"/a/{number}", b"x")
        faults.calls.clear()
        result = await fs.rename_many(
            [(f"/a/{number}", f"/{'bc'[number % 2]}/{number}") for number in range(120)]
        )
        assert result.files == 120
        # For each of the two parents, which is checked every time, 49 pairs and 11.
        assert _count(faults, "transact") == 4
        assert (
            sum(call.method == "put" and call.key.endswith("pending") for call in faults.calls) == 1
        )


async def test_a_pair_whose_target_appears_meanwhile_keeps_no_other_back() -> None:
    faults = FaultPlan()
    async with faulty_client(faults) as fs:
        await fill(fs, "/a/f", "/a/g", "/a/h", "/b/old")

        async def somebody_writes(call: Call) -> None:
            if call.method == "transact":
                faults.gate = None
                await fs.write("/b/g", b"theirs")

        faults.gate = somebody_writes
        result = await fs.rename_many([("/a/f", "/b/f"), ("/a/g", "/b/g"), ("/a/h", "/b/h")])
        assert failures(result) == {"/a/g": PathExistsError}
        assert result.files == 2
        assert await paths(fs) == {"/a", "/a/g", "/b", "/b/f", "/b/g", "/b/h", "/b/old"}
        assert await fs.read("/b/g") == b"theirs"


async def test_a_source_that_changes_meanwhile_is_moved_as_it_is_then() -> None:
    faults = FaultPlan()
    async with faulty_client(faults) as fs:
        await fill(fs, "/a/f", "/a/g", "/a/h", "/b/old")

        async def somebody(call: Call) -> None:
            if call.method == "transact":
                faults.gate = None
                await fs.write("/a/f", b"changed")
                await fs.delete("/a/g")
                await fs.rename("/a/h", "/b/h")

        faults.gate = somebody
        result = await fs.rename_many([("/a/f", "/b/f"), ("/a/g", "/b/g"), ("/a/h", "/b/h")])
        assert failures(result) == {"/a/g": PathNotFoundError}
        assert result == ChangeResult(2, 0, 7 + 4, failures=result.failures)
        assert await fs.read("/b/f") == b"changed"


async def test_a_parent_that_goes_away_meanwhile() -> None:
    faults = FaultPlan()
    async with faulty_client(faults) as fs:
        await fill(fs, "/a/f", "/a/g")
        await fs.makedirs("/b")
        await fs.makedirs("/c")

        async def somebody(call: Call) -> None:
            if call.method == "transact":
                faults.gate = None
                await fs.delete("/b")

        faults.gate = somebody
        result = await fs.rename_many([("/a/f", "/b/f"), ("/a/g", "/c/g")])
        assert failures(result) == {"/a/f": PathNotFoundError}
        assert await paths(fs) == {"/a", "/a/f", "/c", "/c/g"}


async def test_conflicts_that_last_take_the_pairs_one_by_one() -> None:
    faults = FaultPlan()
    async with faulty_client(faults) as fs:
        names = [f"/a/{number}" for number in range(5)]
        await fill(fs, *names)
        await fs.makedirs("/b")
        conflict = TransactionConflictError("somebody else was there")
        faults.fail_when(
            lambda call: call.method == "transact" and call.key.endswith("/0"),
            conflict,
            times=10**6,
        )
        result = await fs.rename_many([(name, f"/b{name[2:]}") for name in names])
        assert list(failures(result)) == ["/a/0"]
        assert await paths(fs) == {"/a", "/a/0", "/b", *(f"/b{name[2:]}" for name in names[1:])}


async def test_an_unknown_outcome_is_that_of_its_own_transaction() -> None:
    faults = FaultPlan()
    async with faulty_client(faults) as fs:
        names = [f"/a/{number:02}" for number in range(60)]
        await fill(fs, *names)
        await fs.makedirs("/b")
        lost = ResponseLostError("no answer came")
        first = _first_key_of_transaction(faults)
        faults.fail_when(
            lambda call: call.method in {"transact", "get_many"} and first(call), lost, times=10**6
        )
        result = await fs.rename_many([(name, f"/b{name[2:]}") for name in names])
        assert set(failures(result).values()) == {OutcomeUnknownError}
        assert [path for path, _ in result.failures] == names[:49]
        assert {error.path for _, error in result.failures if isinstance(error, S3kError)} == set(
            names[:49]
        )
        assert result.files == 11


def _first_key_of_transaction(faults: FaultPlan) -> Callable[[Call], bool]:
    """Matches the first transaction and what is read of its keys."""
    keys: set[str] = set()

    def matches(call: Call) -> bool:
        if call.method == "transact" and not keys:
            keys.add(call.key)
        return call.key in keys

    return matches


@backends
async def test_what_is_no_list_of_pairs(fs: S3kClient) -> None:
    for wrong in (["/a"], [("/a",)], [("/a", "/b", "/c")], [5], ["ab"]):
        strange: Any = wrong
        with pytest.raises(ArgumentTypeError):
            await fs.rename_many(strange)
    assert await fs.rename_many([]) == ChangeResult()


# delete_many


@backends
async def test_files_and_directories_are_deleted(fs: S3kClient) -> None:
    await fill(fs, *(f"/a/f{number}" for number in range(7)), "/b/x/g", "/c/h", "/keep")
    result = await fs.delete_many(
        [*(f"/a/f{number}" for number in range(7)), "/b", "/b/x", "/b/x/g", "/a", "/c/h", "//c/h"]
    )
    assert result == ChangeResult(9, 3, 7 * 5 + 6 + 4)
    assert await paths(fs) == {"/c", "/keep"}


@pytest.mark.layouts("path")
@backends
async def test_each_path_fails_by_itself(fs: S3kClient) -> None:
    await fill(fs, "/a/f", "/b/g", "/c/h")
    result = await fs.delete_many(["/a/f", "/a/none", "/", "/b", "/x\0", "s3k://elsewhere/x"])
    assert failures(result) == {
        "/a/none": PathNotFoundError,
        "/": PermissionDeniedError,
        "/b": DirectoryNotEmptyError,
        "/x\0": InvalidPathError,
        "s3k://elsewhere/x": CrossVolumeError,
    }
    assert await paths(fs) == {"/a", "/b", "/b/g", "/c", "/c/h"}
    again = await fs.delete_many(["/a/f", "/a/none", "/b", "/c/h"], recursive=True, missing_ok=True)
    assert again == ChangeResult(2, 1, 8)
    assert await paths(fs) == {"/a", "/c"}


@backends
async def test_reservations_are_deleted(fs: S3kClient) -> None:
    await fs.makedirs("/a")
    file = await fs.open("/a/f", "wb")
    assert (await fs.delete_many(["/a/f"])).files == 1
    await file.discard()
    assert await paths(fs, include_uncommitted=True) == {"/a"}


async def test_deletions_are_packed_into_few_requests() -> None:
    faults = FaultPlan()
    async with faulty_client(faults) as fs:
        names = [f"/{'ab'[number % 2]}/{number}" for number in range(250)]
        await fill(fs, *names)
        faults.calls.clear()
        assert (await fs.delete_many(names)).files == 250
        assert _count(faults, "transact") == 3
        assert (
            sum(call.method == "put" and call.key.endswith("pending") for call in faults.calls) == 1
        )


async def test_a_file_that_changes_meanwhile_is_deleted_as_it_is_then() -> None:
    faults = FaultPlan()
    async with faulty_client(faults) as fs:
        await fill(fs, "/a/f", "/a/g", "/a/h")

        async def somebody(call: Call) -> None:
            if call.method == "transact":
                faults.gate = None
                await fs.write("/a/f", b"changed")
                await fs.delete("/a/g")

        faults.gate = somebody
        result = await fs.delete_many(["/a/f", "/a/g", "/a/h"])
        assert failures(result) == {"/a/g": PathNotFoundError}
        assert (result.files, result.bytes) == (2, 7 + 4)
        assert await paths(fs) == {"/a"}


@backends
async def test_progress_is_told(fs: S3kClient) -> None:
    await fill(fs, "/a/f", "/a/g", "/b/h")
    told: list[Progress] = []
    await fs.rename_many([("/a/f", "/b/f"), ("/a/g", "/b/g")], progress=told.append)
    await fs.delete_many(["/b/f", "/b/g", "/a"], progress=told.append)
    assert [(each.operation, each.done) for each in told] == [
        ("rename", 2),
        ("delete", 2),
        ("delete", 3),
    ]


@backends
async def test_what_is_no_list_of_paths(fs: S3kClient) -> None:
    await fill(fs, "/a")
    for wrong in ("/a", b"/a"):
        strange: Any = wrong
        with pytest.raises(ArgumentTypeError):
            await fs.delete_many(strange)
    assert failures(await fs.delete_many(["/a/x"])) == {"/a/x": PathNotFoundError}
    assert await fs.delete_many(iter(["/a"])) == ChangeResult(1, 0, 2)


@backends
def test_the_blocking_client_does_the_same(sync_fs: S3kSyncClient) -> None:
    for path in ("/a/f", "/a/g"):
        sync_fs.write(path, b"x")
    assert sync_fs.rename_many([("/a/f", "/f"), ("/a/g", "/g")]) == ChangeResult(2, 0, 2)
    assert sync_fs.delete_many(["/f", "/g", "/a"]) == ChangeResult(2, 1, 2)


@backends
async def test_a_damaged_item_fails_by_itself(fs: S3kClient) -> None:
    await fill(fs, "/a/f", "/a/g", "/a/h", "/b/f")
    await damage(fs, "/a/g")
    result = await fs.rename_many([("/a/f", "/b/x"), ("/a/g", "/b/y"), ("/a/h", "/b/z")])
    assert (result.files, failures(result)) == (2, {"/a/g": ItemFormatError})
    result = await fs.delete_many(["/b/x", "/a/g", "/b/f"])
    assert (result.files, failures(result)) == (2, {"/a/g": ItemFormatError})


async def damage(fs: S3kClient, path: str) -> None:
    """Make the item at a path one that is no entry."""
    store = fs._volume().store
    entry = await store.get(path)
    assert entry is not None
    await store.items.write(Put({**to_item(entry, store.keys), "ver": "one"}, Condition()))


@backends
async def test_what_the_log_cannot_hold_fails_by_itself(fs: S3kClient) -> None:
    await fill(fs, "/a/f", "/a/g", "/a/h", "/b/f")
    store = fs._volume().store
    entry = await store.get("/a/g")
    assert entry is not None
    await store.restore(replace(entry, id="no key"), entry)
    result = await fs.rename_many([("/a/f", "/b/x"), ("/a/g", "/b/y"), ("/a/h", "/b/z")])
    assert (result.files, failures(result)) == (2, {"/a/g": LogFormatError})
    result = await fs.write_many(
        [("/b/x", b"new"), ("/a/g", b"new"), ("/b/n", b"new"), ("/b/z", b"new")]
    )
    assert (result.files, failures(result)) == (3, {"/a/g": LogFormatError})
    assert [await fs.read(path) for path in ("/b/x", "/b/n", "/b/z")] == [b"new"] * 3
    assert await fs.read("/a/g") == b"/a/g"


async def test_what_was_done_is_told_though_the_table_refuses_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(path_changes, "CHUNK", 2)
    monkeypatch.setattr(path_changes, "DELETING", 1)
    faults = FaultPlan()
    refused = PermissionDeniedError("no longer")
    async with faulty_client(faults) as fs:
        await fill(fs, "/a/1", "/a/2", "/a/3", "/a/4")
        faults.fail_when(nth("get_many", 2), refused)
        result = await fs.rename_many([(f"/a/{name}", f"/a/x{name}") for name in "1234"])
        assert (result.files, dict(result.failures)) == (2, {"/a/3": refused, "/a/4": refused})
        faults.fail_when(nth("get_many", 2), refused)
        result = await fs.delete_many(["/a/x1", "/a/x2", "/a/3", "/a/4"])
        assert (result.files, dict(result.failures)) == (2, {"/a/3": refused, "/a/4": refused})


def _count(faults: FaultPlan, method: str) -> int:
    return sum(call.method == method for call in faults.calls)
