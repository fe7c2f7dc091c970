"""Runs of the rules side by side, interrupted, limited, and beside writers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest

from s3k_async._core.pace import Pace
from s3k_async.attributes import Attributes
from s3k_async.backends.ports.items import PARTITION, SORT, Condition, Key, Update
from s3k_async.bulk import rule_runner
from s3k_async.bulk.rule_changes import rule_index
from s3k_async.bulk.rule_runner import run_rules
from s3k_async.client import S3kClient
from s3k_async.errors import ResponseLostError, ServiceError
from s3k_async.model import LayoutName
from s3k_async.namespace.due_items import FIRST_HOUR, HOUR, HOUR_MS
from s3k_async.oplog.entries import LogRecord
from s3k_async.oplog.log_reader import LogReader
from s3k_async.testing import Call, Died, FaultPlan
from tests.client.rig import faulty_client
from tests.level import FULL
from tests.lifecycle.ruled import DAY, Ruled, ruled
from tests.support import from_call

pytestmark = pytest.mark.layouts("path", "tree")

EVER = 10**9
HOUR_S = 3600.0
RUNNERS = 8
FILES = 500


async def deletions(place: Ruled) -> int:
    """Committed deletions in the log."""
    volume = place.client._volume()
    await volume.log.drained()
    assert volume.log_blobs is not None
    return len(
        [
            record
            async for record in LogReader(volume.log_blobs).records()
            if isinstance(record, LogRecord)
            and record.state == "committed"
            and record.operation.kind == "delete"
        ]
    )


async def jitter(_: Call) -> None:
    """Let requests take different times, so that the runs do not proceed in step."""
    for _turn in range(random.randrange(30)):
        await asyncio.sleep(0)


async def fill(fs: S3kClient) -> None:
    """A rule, files that expire by it after a day, and one that stays."""
    await fs.set_rule("/d", expire_after=86_400)
    for start in range(0, FILES, 100):
        await fs.write_many([(f"/d/{number}", b"1") for number in range(start, start + 100)])
    await fs.write("/d/kept", b"1", attributes=Attributes(metadata={"ExpiresAfter": b"999999"}))


async def run_side_by_side(place: Ruled) -> None:
    """Each file is deleted by one of several runs."""
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(
                faulty_client(FaultPlan(jitter), place.config, place.runtime)
            )
            for _ in range(RUNNERS)
        ]
        results = await asyncio.gather(*(each.run_rules() for each in clients))
        for each in clients:
            await each._volume().log.drained()
    assert sum(each.expired for each in results) == FILES
    assert [each.failures for each in results] == [()] * RUNNERS
    assert len([each for each in results if each.expired]) > 1
    assert await place.paths() == {"/d/kept"}
    assert await deletions(place) == FILES


async def test_runs_side_by_side(place: Ruled, fs: S3kClient) -> None:
    await fill(fs)
    place.clock.advance(2 * HOUR_S)
    await fs.run_rules()  # lists the directory for the last time
    # So late that no change of any of the files may still come. Otherwise a run that finds an entry
    # deleted looks at it again later.
    place.clock.advance(DAY + 60)
    await run_side_by_side(place)
    await fs.run_rules()
    assert len(await place.due_items()) == 1
    assert await place.findings() == []


async def test_runs_side_by_side_that_list_the_directory(place: Ruled, fs: S3kClient) -> None:
    """Some write items of files that others have deleted, which are removed when no change of them
    may still come."""
    await fill(fs)
    place.clock.advance(DAY + 60)
    await run_side_by_side(place)
    place.clock.advance(2 * DAY)
    await fs.run_rules()
    assert len(await place.due_items()) == 1
    assert await place.findings() == []


async def test_a_lost_answer_to_the_last_write_of_a_run(place: Ruled, fs: S3kClient) -> None:
    """It stores the oldest hour that may have items, which a repetition finds stored already."""
    await fs.set_rule("/d", expire_after=86_400)
    await fs.write("/d/f", b"1")
    await fs.run_rules()
    place.clock.advance(2 * DAY)
    faults = FaultPlan()
    async with faulty_client(faults, place.config, place.runtime) as client:
        key = f"{FIRST_HOUR.partition}/{FIRST_HOUR.sort}"
        before = await rule_index(client._volume(), "/").first_hour()
        faults.fail_when(
            lambda call: (call.method, call.key) == ("write", key),
            ResponseLostError("lost"),
            when="after",
        )
        assert (await client.run_rules()).expired == 1
        assert await rule_index(client._volume(), "/").first_hour() != before
        assert [call.key for call in faults.calls if call.method == "write"].count(key) == 2


async def test_runs_side_by_side_set_read_only_once(place: Ruled, fs: S3kClient) -> None:
    await fs.set_rule("/d", read_only_after=10)
    await fs.write_many([(f"/d/{number}", b"1") for number in range(60)])
    place.clock.advance(10)
    volumes = [fs._volume()] * 3
    results = await asyncio.gather(*(run_rules(each) for each in volumes))
    assert sum(each.read_only for each in results) == 60
    versions = {each.version async for each in fs.list("/d")}
    assert len(versions) == 1
    changed = {each.attributes.changed_ms async for each in fs.list("/d")}
    assert changed == {place.clock.now_ms()}


async def test_writers_beside_a_run(place: Ruled, fs: S3kClient) -> None:
    """A file that is written again is not deleted, whenever that happens."""
    await fs.set_rule("/d", expire_after=86_400)
    paths = [f"/d/{number}" for number in range(40)]
    await fs.write_many([(path, b"1") for path in paths])
    place.clock.advance(DAY)
    chosen = random.Random(1)
    again: set[str] = set()

    async def write(path: str) -> None:
        for _ in range(chosen.randrange(60)):
            await asyncio.sleep(0)
        await fs.write(path, b"2")
        again.add(path)

    results = await asyncio.gather(fs.run_rules(), *(write(path) for path in paths[::2]))
    assert results[0].failures == ()
    assert await place.paths() == again
    for path in again:
        assert await fs.read(path) == b"2"
    await place.after(paths[0], DAY + 100)
    await fs.run_rules()
    assert await place.paths() == set()


async def test_a_limit_of_actions(place: Ruled, fs: S3kClient) -> None:
    await fs.set_rule("/d", expire_after=10)
    await fs.write_many([(f"/d/{number}", b"1") for number in range(21)])
    place.clock.advance(10)
    began = place.clock.seconds
    assert (await fs.run_rules(rate=0.5)).expired == 21
    assert place.clock.seconds - began >= 40


@pytest.mark.layouts("tree")
async def test_a_file_is_read_again_after_a_pause(place: Ruled, fs: S3kClient) -> None:
    """With a limit, files whose directory was moved out of the rule while the run waited are kept,
    but for those that it had just read."""
    await fs.set_rule("/d", expire_after=3600)
    await fs.write_many([(f"/d/x/{number}", b"1") for number in range(60)])
    place.clock.advance(3600)
    left: set[str] = set()

    async def gate(call: Call) -> None:
        if call.method == "transact" and not left and len(place.clock.sleeps) > 5:
            left.add("")
            async with faulty_client(FaultPlan(), place.config, place.runtime) as other:
                await other.rename("/d", "/e")
            left.update(await place.paths())

    place.faults.gate = gate
    result = await fs.run_rules(rate=0.1)
    place.faults.gate = None
    assert result.failures == ()
    left.discard("")
    kept = await place.paths()
    assert kept <= left
    assert len(kept) > len(left) - 5 > 10


async def test_failures_do_not_end_a_run(place: Ruled, fs: S3kClient) -> None:
    await fs.set_rule("/d", expire_after=10)
    for name in ("bad", "good", "fine"):
        await fs.write(f"/d/{name}", b"1")
    await fs.run_rules()
    place.clock.advance(10)
    volume = fs._volume()
    entry = await volume.store.get("/d/bad")
    assert entry is not None
    await volume.items.write(
        Update(volume.store.keys.of(entry), Condition(), {"size": "no number"})
    )
    result = await fs.run_rules()
    assert result.expired == 2
    assert [path for path, _ in result.failures] == ["/d/bad"]
    assert result.failed == 1
    assert len(await place.due_items()) == 1


async def test_a_damaged_item_is_reported_and_kept(place: Ruled, fs: S3kClient) -> None:
    await fs.set_rule("/d", expire_after=10)
    for name in ("f", "g"):
        await fs.write(f"/d/{name}", b"1")
    await fs.run_rules()
    item = (await place.due_items())[0]
    key = Key(str(item[PARTITION]), str(item[SORT]))
    await fs._volume().items.write(Update(key, Condition(), {"ver": "x"}))
    place.clock.advance(10)
    result = await fs.run_rules()
    assert (result.expired, result.failed) == (1, 1)
    findings = await place.findings()
    assert [kind for kind, _ in findings] == ["item_damaged"]


async def test_the_first_hour_moves_on(place: Ruled, fs: S3kClient) -> None:
    """A run reads the last three hours if nothing is left in earlier ones."""
    await fs.set_rule("/d", expire_after=10)
    await fs.run_rules()
    place.clock.advance(30 * DAY)
    await fs.run_rules()
    await fs.run_rules()
    place.faults.calls.clear()
    await fs.run_rules()
    queries = [call for call in place.faults.calls if call.method == "query"]
    assert len(queries) == 3 * 16 + 16 + 1
    item = await fs._volume().items.get(FIRST_HOUR)
    assert item is not None
    assert item[HOUR] == place.clock.now_ms() // HOUR_MS - 2


@pytest.fixture
async def filled(layout: LayoutName) -> AsyncIterator[Callable[[], Awaitable[Ruled]]]:
    """Makes volumes with files that are due, and others."""
    async with AsyncExitStack() as stack:

        async def make() -> Ruled:
            place = await stack.enter_async_context(ruled(layout))
            fs = place.client
            await fs.write("/d/old", b"1")
            await fs.set_rule("/d", expire_after=2 * 3600)
            await fs.set_rule("/e", read_only_after=2 * 3600)
            await fs.write("/d/x/f", b"1")
            await fs.write("/e/f", b"1")
            await fs.write("/gone", b"1", attributes=Attributes(metadata={"ExpiresAfter": b"9"}))
            await fs.write(
                "/d/long", b"1", attributes=Attributes(metadata={"ExpiresAfter": b"999999999"})
            )
            await fs.write("/x/moved", b"1")
            await fs.rename("/x", "/d/moved")
            if not FULL:
                await fs.run_rules()  # the next run has three hours to look at, not a whole day
            await place.after("/d/moved/moved", 2 * HOUR_S)
            return place

        yield make


STEP = 1 if FULL else 4


@pytest.mark.parametrize("how", ["dies", "fails", "loses its answer"])
async def test_an_interrupted_run(filled: Callable[[], Awaitable[Ruled]], how: str) -> None:
    """After the next one all that is due is done, and nothing else."""
    number = 0
    while True:
        place = await filled()
        faults = FaultPlan()
        ended = False
        with suppress(Died, ServiceError, ResponseLostError):
            async with faulty_client(faults, place.config, place.runtime) as other:
                calls = faults.calls
                calls.clear()
                if how == "dies":
                    faults.fail_when(from_call(number), Died("dead"), times=EVER)
                else:
                    error = ServiceError("x") if how == "fails" else ResponseLostError("x")
                    faults.fail_when(from_call(number), error)
                result = await other.run_rules()
                ended = not result.failures and len(calls) < number
        place.clock.advance(1000)
        await place.client.run_rules()
        place.clock.advance(1000)
        assert (await place.client.run_rules()).failures == ()
        assert await place.paths() == {"/d/long", "/e/f"}, number
        assert (await place.client.stat("/e/f")).attributes.read_only
        if ended:
            break
        number += STEP
    assert number > 20


@pytest.mark.parametrize("verb", ["write", "over", "rename", "tree", "transaction"])
async def test_an_interrupted_write(layout: LayoutName, verb: str) -> None:
    """Whether or not it took effect: a file that is there expires at its time."""

    async def change(fs: S3kClient) -> None:
        if verb == "write":
            await fs.write("/d/f", b"2")
        elif verb == "over":
            await fs.write("/d/over", b"2")
        elif verb == "rename":
            await fs.rename("/e/f", "/d/g")
        elif verb == "tree":
            await fs.rename("/e", "/d/e")
        else:
            async with fs.transaction() as tx:
                await tx.write("/d/n/f", b"2")
                await tx.rename("/e/f", "/d/g")

    number = 0
    while True:
        async with ruled(layout) as place:
            fs = place.client
            await fs.set_rule("/d", expire_after=2 * 3600)
            await fs.write("/d/over", b"1")
            await fs.write("/e/f", b"1")
            faults, ended = FaultPlan(), False
            with suppress(Died):
                async with faulty_client(faults, place.config, place.runtime) as other:
                    faults.calls.clear()
                    faults.fail_when(from_call(number), Died("dead"), times=EVER)
                    await change(other)
                    ended = len(faults.calls) < number
            place.clock.advance(1000)
            await fs.run_rules()
            place.clock.advance(3 * HOUR_S)
            for _ in range(2):
                result = await fs.run_rules()
                place.clock.advance(1000)
            assert {path for path in await place.paths() if path.startswith("/d/")} == set(), number
            assert result.failures == ()
        if ended:
            break
        number += 1
    assert number > 3


@pytest.mark.parametrize("action", ["expire_after", "read_only_after"])
async def test_files_of_a_directory_that_is_moved_away_during_a_run_are_kept(
    place: Ruled, fs: S3kClient, action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In layout `tree` no entry below the directory changes with the move."""
    rule: dict[str, Any] = {action: 60}
    await fs.set_rule("/tmp", **rule)
    await fs.write_many([(f"/tmp/d/{number}", b"1") for number in range(6)])
    place.clock.advance(DAY)
    turns = 0

    async def turn(_: Pace) -> None:
        nonlocal turns
        turns += 1
        if turns == 3:
            await fs.rename("/tmp/d", "/keep")

    monkeypatch.setattr(Pace, "turn", turn)
    for limit in ("CHANGES", "PARTITIONS"):  # one file after the other
        monkeypatch.setattr(rule_runner, limit, 1)
    done = await fs.run_rules()
    assert done.expired + done.read_only == 2
    left = [status async for status in fs.list("/keep")]
    assert len(left) == (4 if action == "expire_after" else 6)
    assert sum(status.attributes.read_only for status in left) == done.read_only
    again = await fs.run_rules()
    assert (again.expired, again.read_only) == (0, 0)


async def test_a_rule_that_is_removed_during_a_slow_run_is_obeyed_no_more(
    place: Ruled, fs: S3kClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fs.set_rule("/tmp", expire_after=60)
    await fs.write_many([(f"/tmp/{number}", b"1") for number in range(6)])
    place.clock.advance(DAY)
    turns = 0

    async def turn(_: Pace) -> None:
        nonlocal turns
        turns += 1
        if turns == 3:
            await fs.remove_rule("/tmp")

    monkeypatch.setattr(Pace, "turn", turn)
    for limit in ("CHANGES", "PARTITIONS"):  # one file after the other
        monkeypatch.setattr(rule_runner, limit, 1)
    monkeypatch.setattr(rule_runner, "FRESH_SECONDS", 0.0)
    assert (await fs.run_rules()).expired == 2
    assert len(await place.paths()) == 4
