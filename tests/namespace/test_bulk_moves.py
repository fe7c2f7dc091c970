"""Pages of files moved and deleted: what each transaction leads to, and what the log says of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import anyio
import pytest

from s3k_async._native import Entries
from s3k_async.backends.ports.items import ABSENT, Put
from s3k_async.errors import (
    BusyError,
    LeaseExpiredError,
    LogFormatError,
    OutcomeUnknownError,
    PathExistsError,
    ResponseLostError,
    S3kError,
    TransactionConflictError,
)
from s3k_async.layouts.path.file_moves import move_files
from s3k_async.model import Entry
from s3k_async.namespace.bulk_changes import BulkOutcome, delete_files
from s3k_async.table.codec import in_columns, to_item
from s3k_async.table.keys import Directory
from s3k_async.testing import Call
from s3k_async.txn.executor import TRANSACTIONS
from tests.namespace.rig import Rig, calls

FILES = 130


@pytest.fixture
async def rig(request: pytest.FixtureRequest) -> Rig:
    rig = await Rig(request.node.name).start()
    await rig.store.make_directory("/d")
    await rig.store.make_directory("/t")
    return rig


async def planted(rig: Rig, count: int = FILES) -> Entries:
    """Files of one directory, past the log."""
    seed = await rig.write("/seed")
    files = [replace(seed, path=f"/d/{number:03}", id=f"{number:036}") for number in range(count)]
    for entry in files:
        await rig.store.restore(entry, None)
    return in_columns(files, rig.store.keys)


async def there(rig: Rig, directory: str) -> set[str]:
    return {
        entry.path async for page in rig.store.children(Directory.at(directory)) for entry in page
    }


def names(directory: str, numbers: range) -> set[str]:
    return {f"{directory}/{number:03}" for number in numbers}


async def kinds(rig: Rig, state: str) -> int:
    """Operations on the planted files that the log holds in a state."""
    truths = await rig.truths()
    found = 0
    for number in range(FILES):
        truth = truths.get(f"{number:036}")
        if truth is not None:
            found += (truth.committed is not None) if state == "committed" else bool(truth.pending)
    return found


async def test_a_page_is_one_segment_and_few_transactions(rig: Rig) -> None:
    files = await planted(rig)
    rig.faults.calls.clear()
    assert await move_files(rig.store, files, "/t") == BulkOutcome(FILES, 3 * FILES)
    assert calls(rig.faults, "transact") == 3
    await rig.store.changes.log.drained()
    assert calls(rig.faults, "put") == 2
    assert await there(rig, "/t") == names("/t", range(FILES))
    assert await there(rig, "/d") == set()
    moved = in_columns(
        [await rig.need(path) for path in sorted(names("/t", range(FILES)))], rig.store.keys
    )
    rig.faults.calls.clear()
    assert await delete_files(rig.store, moved) == BulkOutcome(FILES, 3 * FILES)
    assert calls(rig.faults, "transact") == 2
    await rig.store.changes.log.drained()
    assert (await kinds(rig, "committed"), await kinds(rig, "pending")) == (FILES, 0)


async def test_an_unknown_outcome_stays_pending_for_its_own_rows_only(rig: Rig) -> None:
    files = await planted(rig)
    lost = ResponseLostError("no answer came")

    def of_the_second(call: Call) -> bool:
        return call.method in {"transact", "get_many"} and call.key.endswith("/050")

    rig.faults.fail_when(of_the_second, lost, times=10**6)
    done = await move_files(rig.store, files, "/t")
    assert (done.files, done.bytes) == (FILES - 50, 3 * (FILES - 50))
    assert {path for path, _ in done.failures} == names("/d", range(50, 100))
    for path, error in done.failures:
        assert isinstance(error, OutcomeUnknownError)
        assert error.path == path
        assert isinstance(error.__cause__, S3kError)
    await rig.store.changes.log.drained()
    assert (await kinds(rig, "committed"), await kinds(rig, "pending")) == (FILES - 50, 50)


async def test_conditions_that_fail_keep_no_other_row_back(rig: Rig) -> None:
    files = await planted(rig)
    await rig.store.delete_file(await rig.need("/d/003"))
    await rig.write("/d/060")
    await rig.write("/t/100")
    await rig.store.delete_file(await rig.need("/d/129"))
    await rig.store.make_directory("/d/129")
    done = await move_files(rig.store, files, "/t")
    assert done.gone == ["/d/003"]
    assert {path: type(error) for path, error in done.failures} == {
        "/d/100": PathExistsError,
        "/d/129": BusyError,
    }
    assert done.files == FILES - 3
    assert (await rig.need("/t/060")).version == files[60].version + 2
    assert await there(rig, "/d") == {"/d/100", "/d/129"}


async def test_a_conflict_that_lasts_halves_the_transaction(rig: Rig) -> None:
    files = await planted(rig, 7)
    conflict = TransactionConflictError("somebody else was there")
    rig.faults.fail_when(
        lambda call: call.method == "transact" and call.key.endswith("/003"), conflict, times=10**6
    )
    rig.faults.fail_when(
        lambda call: call.method == "transact" and call.key.endswith("/000"), conflict, times=4
    )
    done = await delete_files(rig.store, files)
    assert {path: type(error) for path, error in done.failures} == {"/d/003": BusyError}
    assert done.files == 6
    assert await there(rig, "/d") == {"/d/003"}


async def test_what_the_log_cannot_hold_keeps_no_other_row_back(rig: Rig) -> None:
    files = await planted(rig, 9)
    odd = replace(files[4], path="/d/odd", id="no id that a key can hold")
    await rig.store.items.write(Put(to_item(odd, rig.store.keys), ABSENT))
    every: list[Entry] = [*files[:4], odd, *files[4:]]
    done = await delete_files(rig.store, in_columns(every, rig.store.keys))
    assert {path: type(error) for path, error in done.failures} == {"/d/odd": LogFormatError}
    assert done.files == 9
    assert await there(rig, "/d") == {"/d/odd"}


async def test_a_lease_that_ran_out_ends_a_page_between_transactions(rig: Rig) -> None:
    files = await planted(rig)
    sent = 0

    async def check() -> None:
        nonlocal sent
        sent += 1
        if sent > 1:
            raise LeaseExpiredError("too late")

    with pytest.raises(LeaseExpiredError):
        await move_files(rig.store, files, "/t", check)
    moved = await there(rig, "/t")
    assert len(moved) in {0, 50}
    assert len(await there(rig, "/d")) == FILES - len(moved)
    await rig.store.changes.log.drained()
    assert (await kinds(rig, "committed"), await kinds(rig, "pending")) == (len(moved), 0)


async def test_a_cancellation_sees_what_was_sent_to_its_end(rig: Rig) -> None:
    files = await planted(rig)
    held = asyncio.Event()
    go = asyncio.Event()

    async def gate(call: Call) -> None:
        if call.method == "transact":
            held.set()
            await go.wait()

    rig.faults.gate = gate
    task = asyncio.create_task(move_files(rig.store, files, "/t"))
    await held.wait()
    task.cancel()
    await asyncio.sleep(0)
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    rig.faults.gate = None
    moved = await there(rig, "/t")
    assert moved
    assert len(await there(rig, "/d")) == FILES - len(moved)
    await rig.store.changes.log.drained()
    assert (await kinds(rig, "committed"), await kinds(rig, "pending")) == (len(moved), 0)


@pytest.mark.parametrize("how", ["task", "scope"])
async def test_after_a_cancellation_nothing_more_is_sent(rig: Rig, how: str) -> None:
    files = await planted(rig, 500)
    most = asyncio.Event()
    go = asyncio.Event()
    scope = anyio.CancelScope()

    async def gate(call: Call) -> None:
        if call.method == "transact":
            if calls(rig.faults, "transact") == TRANSACTIONS:
                most.set()
            await go.wait()

    async def move() -> None:
        with scope:
            await move_files(rig.store, files, "/t")

    rig.faults.calls.clear()
    rig.faults.gate = gate
    task = asyncio.create_task(move())
    await most.wait()
    (task if how == "task" else scope).cancel()
    await asyncio.sleep(0)
    go.set()
    await asyncio.wait({task})
    rig.faults.gate = None
    assert task.cancelled() == (how == "task")
    assert calls(rig.faults, "transact") == TRANSACTIONS
    assert len(await there(rig, "/t")) == 50 * TRANSACTIONS
    assert len(await there(rig, "/d")) == 500 - 50 * TRANSACTIONS


async def test_a_transaction_that_ended_in_no_known_way_stays_pending(rig: Rig) -> None:
    files = await planted(rig)
    rig.faults.fail_when(
        lambda call: call.method == "transact" and call.key.endswith("/050"),
        RuntimeError("the loop ends"),
        when="after",
    )
    with pytest.raises(RuntimeError):
        await move_files(rig.store, files, "/t")
    assert names("/t", range(50, 100)) <= await there(rig, "/t")
    truths = await rig.truths()
    for number in range(50, 100):
        truth = truths[f"{number:036}"]
        assert (truth.committed, len(truth.pending)) == (None, 1)


async def test_few_full_portions_are_held_at_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("s3k_async.txn.chunking.CHUNK", 5)
    await planted(rig)
    held, most = 0, 0

    async def gate(call: Call) -> None:
        nonlocal held, most
        if call.method == "put" and call.key.endswith(".pending"):
            held += 1
            most = max(most, held)
            for _ in range(200):
                await asyncio.sleep(0)
            held -= 1

    rig.faults.gate = gate
    result = await rig.tree.delete(await rig.need("/d"))
    assert (result.files, result.failures) == (FILES, ())
    assert 1 < most <= 9
