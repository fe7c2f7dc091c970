"""fsck repair: the faults of the system before, each by its name, and what else must not happen."""

from __future__ import annotations

import asyncio
import json
import pickle
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from s3k_async import S3kClient
from s3k_async._core.concurrency import gather
from s3k_async.backends.ports.blobs import BlobInfo
from s3k_async.backends.ports.items import ABSENT, Put
from s3k_async.backends.ports.pagination import list_all
from s3k_async.config import (
    LocalDirectory,
    MemoryBlobs,
    MemoryTable,
    SqliteFile,
    Tuning,
    VolumeConfig,
)
from s3k_async.errors import (
    InvalidArgumentError,
    ItemFormatError,
    NotDirectoryError,
    PathNotFoundError,
    S3kError,
    ServiceError,
)
from s3k_async.integrity.facts import NOT_LOGGED, Facts
from s3k_async.integrity.recheck import fresh_facts
from s3k_async.integrity.repair import (
    ORDER,
    RepairReport,
    RepairRound,
    repair_volume,
    verify_volume,
)
from s3k_async.integrity.repair_actions import Repairer, Task
from s3k_async.integrity.verify_rules import (
    BLOBS,
    DATA,
    IDS,
    LOG,
    OPERATIONS,
    RESERVATIONS,
    decide,
)
from s3k_async.model import UNCOMMITTED, Entry, LayoutName, Progress
from s3k_async.oplog.entries import LogRecord, Operation
from s3k_async.oplog.log_reader import LogReader, ObjectState, latest
from s3k_async.table.keys import is_entry_partition
from s3k_async.testing import Call, Died, FaultPlan
from s3k_async.txn.txn_record import TransactionRecord
from s3k_async.txn.write_intent import CREATED, REMOVED, WriteIntent
from s3k_async.volumes import Volume, init_volume, open_volume
from tests.client.rig import faulty_client
from tests.engines.volumes import fresh_name
from tests.support import under
from tests.torture.damage import DAMAGES, GRACE, Scene
from tests.torture.damage_tree import TREE_DAMAGES, damage, damages_of

pytestmark = pytest.mark.layouts("path", "tree")

OLD = Entry("/f", False, "i", 2, 1, 1000, 3, "k.id=i", True, operation="o")


async def repair(scene: Scene) -> RepairReport:
    return await repair_volume(scene.volume, dry_run=False, grace=GRACE)


def kinds(report: RepairReport) -> set[str]:
    return {each.finding.kind for each in report.repairs}


def logged(*operations: tuple[str, Entry | None, Entry | None], pending: int = 0) -> ObjectState:
    """What a log says that holds the operations, the last of which are pending."""
    records = []
    for identity, before, after in operations:
        version = after.version if after else before.version + 1 if before else 0
        records.append(
            LogRecord(
                Operation(identity, "update", "i", version, 1, before, after),
                "committed",
                "entries/",
            )
        )
    split = len(records) - pending
    return ObjectState(
        records[split - 1] if split else None,
        tuple(replace(record, state="pending") for record in records[split:]),
    )


def facts(
    *entries: Entry,
    log_state: ObjectState = NOT_LOGGED,
    blobs: bool = True,
    transactions: tuple[TransactionRecord, ...] = (),
) -> Facts:
    found = [BlobInfo("k.id=i", 3, "", 1)] if blobs else []
    return Facts(
        "i",
        10**6,
        1000,
        entries,
        log_state,
        found,
        transactions={txn.id: txn for txn in transactions},
    )


def said(about: Facts) -> set[tuple[str, str]]:
    return {(finding.kind, finding.action) for finding in decide(about) if finding.is_problem}


async def test_a_write_just_before_a_repair_wins(
    layout: LayoutName, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = await Scene.start(layout=layout)
    repair_action = Repairer.repair_action

    async def late(self: Repairer, task: Task) -> None:
        await scene.write("/top", b"written just before")
        await repair_action(self, task)

    try:
        await DAMAGES["other_attributes"](scene, "/top")
        monkeypatch.setattr(Repairer, "repair_action", late)
        report = await repair(scene)
        assert [(each.finding.action, each.outcome) for each in report.repairs] == [
            ("log_again", "left")
        ]
        entry = await scene.need("/top")
        assert await scene.volume.storage.read(str(entry.physical)) == b"written just before"
    finally:
        await scene.end()


async def test_what_was_put_back_and_has_gone_since_is_not_put_back_again(
    layout: LayoutName, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = await Scene.start(layout=layout)
    repair_action = Repairer.repair_action

    async def late(self: Repairer, task: Task) -> None:
        await repair_action(self, task)
        await scene.volume.store.rename_file(await scene.need("/top"), "/moved")
        await repair_action(self, task)

    try:
        await DAMAGES["no_item"](scene, "/top")
        monkeypatch.setattr(Repairer, "repair_action", late)
        report = await repair(scene)
        assert [(each.finding.action, each.outcome) for each in report.repairs] == [
            ("restore_entry", "left")
        ]
        assert await scene.find("/top") is None
        assert await scene.find("/moved") is not None
        assert report.left.problems == []
    finally:
        await scene.end()


async def test_what_a_client_is_writing_over_is_not_taken_away(
    layout: LayoutName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its operation is pending in the log when repair looks at the entry once more."""
    scene = await Scene.start(layout=layout)
    begun, go = asyncio.Event(), asyncio.Event()
    looks = 0
    writers: list[asyncio.Task[object]] = []

    async def gate(call: Call) -> None:
        if call.method in ("write", "transact") and is_entry_partition(call.key):
            begun.set()
            await go.wait()

    async def write() -> None:
        async with faulty_client(faults, scene.volume.config, scene.volume.store.runtime) as fs:
            faults.gate = gate
            await fs.write("/top", b"over it")

    async def looking(*arguments: Any) -> Any:
        nonlocal looks
        looks += 1
        if looks == 2:
            writers.append(asyncio.create_task(write()))
            await begun.wait()
        elif looks == 3:
            go.set()
            await asyncio.wait(writers)
        return await fresh_facts(*arguments)

    faults = FaultPlan()
    try:
        await DAMAGES["no_item"](scene, "/top")
        monkeypatch.setattr("s3k_async.integrity.repair_actions.fresh_facts", looking)
        report = await repair(scene)
        assert looks == 3
        assert {each.outcome for each in report.repairs} == {"left"}
        assert report.left.problems == []
        found = await scene.need("/top")
        assert await scene.volume.storage.read(str(found.physical)) == b"over it"
        assert found.version > 2
    finally:
        await scene.end()


@pytest.mark.parametrize("change", ["delete", "rename", "write", "nothing"])
async def test_what_changes_between_the_look_and_the_write_is_not_put_back(
    layout: LayoutName, change: str
) -> None:
    """Another repair has put it back right before, and a client has changed that."""
    scene = await Scene.start(layout=layout)
    store = scene.volume.store
    reached = 0

    async def gate(call: Call) -> None:
        nonlocal reached
        if call.method != "transact" or reached:
            return
        reached += 1
        assert (await repair(scene)).done == 1
        entry = await scene.need("/top")
        if change == "delete":
            await store.delete_file(entry)
        elif change == "rename":
            await store.rename_file(entry, "/moved")
        elif change == "write":
            await scene.write("/top", b"newer")
        await store.changes.log.drained()

    faults = FaultPlan()
    volume = await under(faults, open_volume(scene.volume.config, runtime=store.runtime))
    try:
        await DAMAGES["no_item"](scene, "/top")
        faults.gate = gate
        report = await repair_volume(volume, dry_run=False, grace=GRACE)
        assert reached == 1
        assert {(each.finding.action, each.outcome) for each in report.repairs} == {
            ("restore_entry", "left")
        }
        assert report.left.problems == []
        expected = {"delete": None, "rename": None, "write": b"newer", "nothing": b"/top"}[change]
        found = await scene.find("/top")
        assert (found and await scene.volume.storage.read(str(found.physical))) == expected
        assert (await scene.find("/moved") is not None) is (change == "rename")
    finally:
        await volume.close()
        await scene.end()


TWICE = [
    *(pytest.param("path", name, id=f"{name}-path") for name in damages_of("path")),
    *(
        pytest.param(
            "tree",
            name,
            id=f"{name}-tree",
            marks=() if name in TREE_DAMAGES else pytest.mark.slow,
        )
        for name in damages_of("tree")
    ),
]


@pytest.mark.parametrize(("layout_name", "name"), TWICE)
async def test_two_runs_at_once_mend_as_one(
    layout_name: LayoutName, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have decided before either acts."""
    one, two = [await Scene.start(layout=layout_name) for _ in range(2)]
    repair_action, about_to = RepairRound._repair_found, set[RepairRound]()
    both = anyio.Event()

    async def together(this: RepairRound, tasks: Sequence[Task]) -> list[Task]:
        if any(task.finding.is_repairable for task in tasks) and not both.is_set():
            about_to.add(this)
            if len(about_to) == 2:
                both.set()
            with anyio.fail_after(20):
                await both.wait()
        return await repair_action(this, tasks)

    try:
        for scene in (one, two):
            await damage(scene, name, "/top")
        alone = await repair(one)
        monkeypatch.setattr(RepairRound, "_repair_found", together)
        reports = await gather(lambda _: repair(two), range(2), limit=2)
        outcomes = Counter(each.outcome for report in reports for each in report.repairs)
        assert outcomes["failed"] == Counter(each.outcome for each in alone.repairs)["failed"] * 2
        assert outcomes["done"] >= alone.done
        assert [report.left.kinds for report in reports] == [alone.left.kinds] * 2
        again = await repair(two)
        assert again.done == 0
        assert again.left.kinds == alone.left.kinds
        assert await conflicts(two) == await conflicts(one)
    finally:
        for scene in (one, two):
            await scene.end()


async def conflicts(scene: Scene) -> int:
    """Objects of which several operations have committed one version."""
    truths = latest([record async for record in LogReader(scene.log_blobs).records()])
    return sum(bool(truth.conflict) for truth in truths.values())


def places(engine: str, directory: Path, layout: LayoutName) -> VolumeConfig:
    name = fresh_name("live")
    table, blobs = (
        (MemoryTable(name), MemoryBlobs(name))
        if engine == "memory"
        else (SqliteFile(str(directory / "meta.db")), LocalDirectory(str(directory / "data")))
    )
    tuning = Tuning(busy_timeout=2.0)
    return VolumeConfig(name, table, blobs, suffix_count=3, tuning=tuning, layout=layout)


async def work_and_remember(fs: S3kClient, lane: int, until: anyio.Event) -> dict[str, bytes]:
    """Write, rename and delete below a directory of one's own; what was acknowledged."""
    chance, held = random.Random(lane), dict[str, bytes]()
    top, number = f"/lane{lane}", 0
    while not until.is_set():
        number += 1
        path = f"{top}/d{chance.randrange(3)}/f{chance.randrange(8)}"
        verb = chance.randrange(5)
        if verb < 2 or path not in held:
            data = f"{path} {number}".encode()
            await fs.write(path, data)
            held[path] = data
        elif verb == 2:
            target = f"{top}/d{chance.randrange(3)}-{number}"
            await fs.rename(path, target)
            held[target] = held.pop(path)
        elif verb == 3:
            await fs.delete(path)
            del held[path]
        else:
            source, target = path.rpartition("/")[0], f"{top}/moved{number}"
            await fs.rename(source, target)
            for name in [name for name in held if name.startswith(source + "/")]:
                held[target + name.removeprefix(source)] = held.pop(name)
    return held


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        ("path", "memory"),
        ("path", "embedded"),
        ("tree", "memory"),
        pytest.param("tree", "embedded", marks=pytest.mark.slow),
    ],
)
async def test_repair_in_a_loop_beside_writers_touches_nothing_that_lives(
    name: LayoutName, engine: str, tmp_path: Path
) -> None:
    config = places(engine, tmp_path, name)
    await init_volume(config)
    over, held, reports = anyio.Event(), list[dict[str, bytes]](), list[RepairReport]()

    async def lane(number: int) -> None:
        async with S3kClient(config=config) as fs:
            held.append(await work_and_remember(fs, number, over))

    volume = await open_volume(config)
    try:
        async with anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(lane, number)
            for _ in range(4):
                reports.append(await repair_volume(volume, dry_run=False, grace=5.0))
                await anyio.sleep(0.2)
            over.set()
        assert [each for report in reports for each in report.repairs] == []
        assert sum(map(len, held)) > 0
        async with S3kClient(config=config) as fs:
            for path, data in {path: data for each in held for path, data in each.items()}.items():
                assert await fs.read(path) == data
            found = {
                status.path async for status in fs.list("/", recursive=True) if not status.is_dir
            }
            assert found == {path for each in held for path in each}
        assert (await verify_volume(volume, grace=0)).problems == []
    finally:
        await volume.close()


async def test_an_error_of_the_store_is_not_taken_for_damage(layout: LayoutName) -> None:
    scene = await Scene.start(layout=layout)
    try:
        faults = FaultPlan()
        faults.fail_when(
            lambda call: call.method == "get" and "entries/" in call.key,
            ServiceError("cut", service_code="X"),
            times=99,
        )
        volume = await under(
            faults, open_volume(scene.volume.config, runtime=scene.volume.store.runtime)
        )
        before = {info.key async for info in list_all(scene.log_blobs)}
        with pytest.raises(ServiceError):
            await repair_volume(volume, dry_run=False, grace=GRACE)
        await volume.close()
        assert {info.key async for info in list_all(scene.log_blobs)} == before
    finally:
        await scene.end()


async def test_a_damaged_log_object_is_kept_in_quarantine(layout: LayoutName) -> None:
    scene = await Scene.start(layout=layout)
    try:
        entry = await scene.need("/top")
        await DAMAGES["cut_log"](scene, "/top")
        (key,) = await scene.log_keys(entry.id, "committed")
        data = await scene.log_blobs.get(key)
        await repair(scene)
        kept = [info.key async for info in list_all(scene.log_blobs, "quarantine/")]
        assert [await scene.log_blobs.get(each) for each in kept] == [data]
    finally:
        await scene.end()


async def test_an_upload_that_was_logged_is_published_after_its_writer_died(
    layout: LayoutName,
) -> None:
    scene = await Scene.start(layout=layout)
    try:
        await DAMAGES["uploaded"](scene, "/top")
        report = await repair(scene)
        assert [each.finding.action for each in report.repairs] == ["roll_forward"]
        entry = await scene.need("/top-uploaded")
        assert entry.committed
        assert await scene.volume.storage.read(str(entry.physical)) == b"uploaded whole"
    finally:
        await scene.end()


async def test_bytes_that_a_pending_operation_names_are_not_garbage() -> None:
    reserved = replace(
        OLD, version=1, committed=False, physical=UNCOMMITTED, size=0, lease_ms=10**9, operation="r"
    )
    truth = logged(("r", None, reserved), ("o", reserved, OLD), pending=1)
    assert decide(facts(reserved, log_state=truth)) == []
    assert "collectable_data" not in {
        finding.kind for finding in decide(facts(log_state=logged(("o", None, OLD))))
    }


async def test_another_volumes_items_in_the_table_are_not_touched(layout: LayoutName) -> None:
    scene = await Scene.start(layout=layout)
    try:
        await DAMAGES["foreign_items"](scene, "/top")
        before = sorted(map(str, (await scene.volume.items.scan(0, 1)).items))
        assert (await repair(scene)).repairs == []
        assert sorted(map(str, (await scene.volume.items.scan(0, 1)).items)) == before
        report = await verify_volume(scene.volume, grace=GRACE)
        assert Counter(finding.kind for finding in report.problems) == {"foreign_item": 2}
    finally:
        await scene.end()


@pytest.mark.parametrize(
    "other",
    [
        replace(OLD, path="/g"),
        replace(OLD, is_dir=True, size=0, physical=None, committed=False),
        replace(OLD, ctime=2),
        replace(OLD, mtime_ms=2),
        replace(OLD, size=4),
        replace(OLD, physical="l.id=i"),
        replace(OLD, etag="e"),
        replace(OLD, checksum="c"),
    ],
)
def test_every_field_is_compared_though_the_version_is_the_same(other: Entry) -> None:
    assert ("log_disagrees", "log_again") in said(facts(other, log_state=logged(("o", None, OLD))))


def test_several_entries_with_one_id_are_reported_and_that_of_the_log_keeps_it() -> None:
    twin = replace(OLD, path="/a-twin")
    found = [
        finding
        for finding in decide(facts(OLD, twin, log_state=logged(("o", None, OLD))))
        if finding.is_problem
    ]
    assert [(finding.kind, finding.path) for finding in found] == [("duplicate_id", "/a-twin")]


def test_an_uncommitted_entry_of_any_version_is_a_reservation() -> None:
    renamed = replace(OLD, committed=False, physical=UNCOMMITTED, size=0)
    assert said(facts(renamed, log_state=logged(("o", None, renamed)), blobs=False)) == {
        ("reservation_expired", "remove_entry")
    }


def test_a_committed_entry_of_version_1_is_no_reservation() -> None:
    first = replace(OLD, version=1)
    assert said(facts(first, log_state=logged(("o", None, first)), blobs=False)) == {
        ("data_missing", "report")
    }


async def test_a_repair_does_nothing_that_is_not_in_the_audit_trail(
    layout: LayoutName, tmp_path: Path
) -> None:
    scene = await Scene.start(layout=layout)
    try:
        await DAMAGES["no_item"](scene, "/top")
        file = tmp_path / "audit.jsonl"
        report = await repair_volume(scene.volume, dry_run=False, grace=GRACE, audit_file=str(file))
        lines = [json.loads(line) for line in file.read_text(encoding="ascii").splitlines()]
        assert [line.get("action") or line["outcome"] for line in lines] == [
            "restore_entry",
            "done",
        ]
        stored = [info.key async for info in list_all(scene.log_blobs, f"audit/{report.run}/")]
        assert b"".join([await scene.log_blobs.get(key) for key in stored]) == file.read_bytes()
    finally:
        await scene.end()


async def test_without_an_audit_trail_nothing_is_done(layout: LayoutName) -> None:
    scene = await Scene.start(layout=layout)
    try:
        await DAMAGES["no_item"](scene, "/top")
        faults = FaultPlan()
        faults.fail_when(
            lambda call: "audit/" in call.key, ServiceError("no", service_code="X"), times=99
        )
        volume = await under(
            faults, open_volume(scene.volume.config, runtime=scene.volume.store.runtime)
        )
        with pytest.raises(S3kError):
            await repair_volume(volume, dry_run=False, grace=GRACE)
        await volume.close()
        assert await scene.find("/top") is None
    finally:
        await scene.end()


async def test_a_dry_run_writes_nothing_and_tells_everything(layout: LayoutName) -> None:
    scene = await Scene.start(layout=layout)
    try:
        for name in ("no_item", "other_attributes", "abandoned", "broken_item"):
            await DAMAGES[name](
                scene,
                "/a/d0/f0"
                if name == "broken_item"
                else "/top"
                if name == "no_item"
                else "/a/d1/f0",
            )
        before = [
            sorted(map(str, (await scene.volume.items.scan(0, 1)).items)),
            [info async for info in list_all(scene.log_blobs)],
        ]
        report = await repair_volume(scene.volume, grace=GRACE)
        assert report.dry_run
        assert {each.outcome for each in report.repairs} == {"planned"}
        assert kinds(report) >= {
            "entry_missing",
            "log_disagrees",
            "reservation_expired",
            "item_damaged",
        }
        assert before == [
            sorted(map(str, (await scene.volume.items.scan(0, 1)).items)),
            [info async for info in list_all(scene.log_blobs)],
        ]
    finally:
        await scene.end()


def record(state: str, lease_ms: int) -> TransactionRecord:
    return TransactionRecord("J", "rename", state, "/a", "/b", 0, lease_ms, 1, 0, "op")  # type: ignore[arg-type]


def test_entries_of_an_active_transaction_are_no_findings() -> None:
    pending = replace(OLD, pending=WriteIntent("J", REMOVED).text())
    assert decide(facts(pending, blobs=False, transactions=(record("preparing", 10**9),))) == []


@pytest.mark.parametrize(
    ("then", "state", "standing"),
    [
        (REMOVED, "preparing", True),
        (REMOVED, "aborted", True),
        (REMOVED, "published", False),
        (CREATED, "preparing", False),
        (CREATED, "aborted", False),
        (CREATED, "published", True),
    ],
)
def test_the_intent_of_an_expired_transaction_is_resolved_by_its_state(
    then: str, state: str, standing: bool
) -> None:
    pending = replace(OLD, pending=WriteIntent("J", then).text())  # type: ignore[arg-type]
    found = said(
        facts(pending, log_state=logged(("o", None, OLD)), transactions=(record(state, 1),))
    )
    # It is reported, and resolved, with its transaction.
    assert ("stale_intent", "resolve_transaction") not in found
    assert (("entry_missing", "restore_entry") in found) is not standing


def test_facts_and_findings_travel() -> None:
    about = facts(OLD, log_state=logged(("o", None, OLD)), transactions=(record("preparing", 1),))
    again = pickle.loads(pickle.dumps(about))
    assert again == about
    assert decide(again) == decide(about)
    assert pickle.loads(pickle.dumps(decide(facts(OLD)))) == decide(facts(OLD))


async def test_what_does_not_fit_into_memory_goes_to_files_and_says_the_same(
    layout: LayoutName,
) -> None:
    scene = await Scene.start(layout=layout)
    try:
        for name in ("no_item", "other_attributes", "no_directory", "wrong_suffix"):
            await DAMAGES[name](
                scene, {"no_item": "/top", "wrong_suffix": "/a/d1/f1"}.get(name, "/a/d1/f0")
            )
        one = await verify_volume(scene.volume, grace=GRACE)
        other = await verify_volume(scene.volume, grace=GRACE, held=5)
        assert set(one.findings) == set(other.findings)
        assert one.kinds == other.kinds
        assert len(one.problems) >= 4
        report = await repair_volume(scene.volume, dry_run=False, grace=GRACE, held=5)
        assert report.left.clean
    finally:
        await scene.end()


async def test_a_run_that_was_interrupted_goes_on_where_it_was(
    layout: LayoutName, tmp_path: Path
) -> None:
    scene = await Scene.start(layout=layout)
    try:
        await DAMAGES["other_attributes"](scene, "/top")
        expected = await verify_volume(scene.volume, grace=GRACE)
        faults = FaultPlan()
        faults.fail_when(
            lambda call: call.method == "head", ServiceError("down", service_code="X"), times=10**6
        )
        volume = await under(
            faults, open_volume(scene.volume.config, runtime=scene.volume.store.runtime)
        )
        with pytest.raises(ServiceError):
            await verify_volume(volume, grace=GRACE, directory=str(tmp_path))
        scans = sum(call.method == "scan" for call in faults.calls)
        faults._faults.clear()
        report = await verify_volume(volume, grace=GRACE, directory=str(tmp_path))
        await volume.close()
        assert set(report.findings) == set(expected.findings)
        assert (report.files, report.bytes) == (expected.files, expected.bytes)
        assert sum(call.method == "scan" for call in faults.calls) == scans > 0
        with pytest.raises(InvalidArgumentError):
            await verify_volume(scene.volume, grace=1.0, directory=str(tmp_path))
    finally:
        await scene.end()


async def interrupted_at_its_end(volume: Volume, directory: str, **options: Any) -> None:
    """A check that has decided everything and has not ended."""

    def fail(progress: Progress) -> None:
        if progress.phase == "comparing" and progress.done == progress.total:
            raise ServiceError("down", service_code="X")

    with pytest.raises(ServiceError):
        await verify_volume(volume, grace=GRACE, directory=directory, progress=fail, **options)


async def test_a_deep_check_does_not_resume_one_that_has_read_no_data(
    layout: LayoutName, tmp_path: Path
) -> None:
    scene = await Scene.start(layout=layout)
    try:
        entry = await scene.need("/top")
        await scene.volume.blobs.put(str(entry.physical), b"/pot")
        expected = await verify_volume(scene.volume, grace=GRACE, deep=True)
        assert "checksum_mismatch" in expected.kinds
        directory = str(tmp_path)
        await interrupted_at_its_end(scene.volume, directory)
        with pytest.raises(InvalidArgumentError):
            await verify_volume(scene.volume, grace=GRACE, deep=True, directory=directory)
        deep = str(tmp_path / "deep")
        await interrupted_at_its_end(scene.volume, deep, deep=True)
        resumed = await verify_volume(scene.volume, grace=GRACE, deep=True, directory=deep)
        assert resumed.kinds == expected.kinds
    finally:
        await scene.end()


async def test_a_check_of_another_volume_of_the_same_name_is_not_resumed(
    layout: LayoutName, tmp_path: Path
) -> None:
    """It was destroyed and created again."""
    scene = await Scene.start(layout=layout)
    place = scene.volume.config
    try:
        await interrupted_at_its_end(scene.volume, str(tmp_path))
    finally:
        await scene.end()
    scene = await Scene.start(layout=layout, place=place, seed=4)
    try:
        with pytest.raises(InvalidArgumentError):
            await verify_volume(scene.volume, grace=GRACE, directory=str(tmp_path))
    finally:
        await scene.end()


@pytest.mark.parametrize("name", ["no_item", "broken_item", "no_directory"])
async def test_a_damaged_or_lost_entry_is_repaired_by_its_path(
    layout: LayoutName, name: str
) -> None:
    scene = await Scene.start(layout=layout)
    path = "/a/d0" if name == "no_directory" else "/a/d1/f0"
    try:
        await DAMAGES[name](scene, path)
        found = await verify_volume(scene.volume, grace=GRACE, path=path)
        assert found.problems
        report = await repair_volume(scene.volume, dry_run=False, grace=GRACE, path=path)
        assert report.done > 0
        assert (await scene.need(path)).path == path
        assert (await verify_volume(scene.volume, grace=GRACE, path=path)).clean
    finally:
        await scene.end()


async def test_a_path_without_an_entry_is_an_error(layout: LayoutName) -> None:
    checks: list[Callable[..., Awaitable[object]]] = [
        verify_volume,
        repair_volume,
        partial(repair_volume, dry_run=False),
    ]
    scene = await Scene.start(layout=layout)
    try:
        for path in ("/gone", "/gone/below", "/top/below"):
            for check in checks:
                with pytest.raises((PathNotFoundError, NotDirectoryError)):
                    await check(scene.volume, grace=GRACE, path=path)
    finally:
        await scene.end()


async def test_below_an_unreadable_directory_nothing_is_clean(layout: LayoutName) -> None:
    scene = await Scene.start(layout=layout)
    try:
        await DAMAGES["broken_item"](scene, "/a/d0")
        try:
            report = await verify_volume(scene.volume, grace=GRACE, path="/a/d0/f0")
        except ItemFormatError:
            assert layout == "tree"
        else:
            assert not report.clean
    finally:
        await scene.end()


async def test_a_run_that_has_ended_is_not_resumed(layout: LayoutName, tmp_path: Path) -> None:
    """The next one with its directory reads everything again."""
    scene = await Scene.start(layout=layout)
    try:
        checked, repaired = str(tmp_path / "checked"), str(tmp_path / "repaired")

        async def problems() -> list[int]:
            report = await verify_volume(scene.volume, grace=GRACE, directory=checked)
            found = [len(report.problems)]
            for dry_run in (True, False):
                repair = await repair_volume(
                    scene.volume, dry_run=dry_run, grace=GRACE, directory=repaired
                )
                found.append(len(repair.left.problems))
            return found

        assert set(await problems()) == {0}
        await scene.volume.blobs.delete_many([key async for key in data_of(scene)])
        lost = len((await verify_volume(scene.volume, grace=GRACE)).problems)
        assert lost > 0
        assert await problems() == [lost] * 3
        assert await problems() == [lost] * 3
    finally:
        await scene.end()


async def data_of(scene: Scene) -> AsyncIterator[str]:
    """The keys of all data."""
    async for info in list_all(scene.volume.blobs):
        yield info.key


async def test_a_resumed_repair_reports_what_the_interrupted_one_has_found(
    layout: LayoutName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = await Scene.start(layout=layout)
    try:
        await scene.volume.blobs.delete_many([key async for key in data_of(scene)])
        expected = await verify_volume(scene.volume, grace=GRACE)
        assert len(expected.problems) > 3
        real = RepairRound.objects

        async def fails(self: RepairRound, number: int) -> None:
            if number == 250:
                raise ServiceError("down", service_code="X")
            await real(self, number)

        for dry_run in (True, False):
            repair = partial(
                repair_volume,
                scene.volume,
                dry_run=dry_run,
                grace=GRACE,
                directory=str(tmp_path / str(dry_run)),
            )
            with monkeypatch.context() as patch:
                patch.setattr(RepairRound, "objects", fails)
                with pytest.raises(ServiceError):
                    await repair()
            report = await repair()
            assert set(report.left.problems) == set(expected.problems)
    finally:
        await scene.end()


async def test_items_that_are_quarantined_are_kept_whole(layout: LayoutName) -> None:
    scene = await Scene.start(layout=layout)
    try:
        item: dict[str, str | int] = {
            "path": (await scene.key("/broken")).partition,
            "children": "broken",
            "isdir": "x",
            "n": 7,
        }
        await scene.volume.items.write(Put(item, ABSENT))
        await repair(scene)
        (info,) = [info async for info in list_all(scene.log_blobs, "quarantine/items/")]
        assert json.loads(await scene.log_blobs.get(info.key)) == item
        assert (await verify_volume(scene.volume, grace=GRACE)).clean
    finally:
        await scene.end()


def from_call(number: int) -> Callable[[Call], bool]:
    return lambda call: call.number >= number


async def test_an_interrupted_run_can_be_run_again_at_every_call(layout: LayoutName) -> None:
    """Wherever repair dies, the next run ends what it began."""
    number = 0
    while True:
        number += 17
        scene = await Scene.start(layout=layout)
        try:
            for name, path in (
                ("no_item", "/top"),
                ("same_id", "/a/d1/f0"),
                ("no_log", "/a/d0/f0"),
            ):
                await DAMAGES[name](scene, path)
            faults = FaultPlan()
            volume = await under(
                faults, open_volume(scene.volume.config, runtime=scene.volume.store.runtime)
            )
            first = len(faults.calls)
            faults.fail_when(from_call(first + number), Died("died"), when="after", times=10**6)
            died = False
            try:
                await repair_volume(volume, dry_run=False, grace=GRACE)
            except Died:
                died = True
            with suppress(Died, S3kError):
                await volume.close()
            scene.clock.advance(1000)
            await repair(scene)
            assert (await verify_volume(scene.volume, grace=0)).clean, number
            for path, data in scene.files.items():
                assert (
                    await scene.volume.storage.read(str((await scene.need(path)).physical)) == data
                )
        finally:
            await scene.end()
        if not died:
            return


def test_every_action_on_an_object_has_its_turn() -> None:
    """A repair takes the first action by ORDER, so it would never take one that ORDER lacks."""
    tables = (IDS, RESERVATIONS, OPERATIONS, LOG, DATA, BLOBS)
    actions = {rule.action for table in tables for rule in table.rules} - {"none", "report"}
    assert actions <= set(ORDER)
