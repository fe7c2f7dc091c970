"""fsck verify: clean volumes are clean, every kind of damage is found, nothing is written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import groupby

import pytest

from s3k_async import _native
from s3k_async.backends.memory.memory_blobs import MemoryBlobs
from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.ports.items import ABSENT, Condition, Delete, Key, Put, Update
from s3k_async.backends.ports.pagination import list_all
from s3k_async.integrity.verify import VerifyReport
from s3k_async.integrity.verify_rules import PROBLEMS, Facts, FindingKind, decide, same_blob
from s3k_async.model import Content, Entry, LayoutName, Progress
from s3k_async.oplog.log_reader import LogReader
from s3k_async.table.codec import to_item
from tests.integrity.verifier import Verifier
from tests.namespace.rig import Rig

DATA = b"some bytes"

pytestmark = pytest.mark.layouts("path", "tree")


class Volume:
    """A rig whose files have bytes."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.items = MemoryItems(rig.name)
        self.data = MemoryBlobs(rig.name + "-data", runtime=rig.runtime)
        self.log = MemoryBlobs(rig.name)

    async def write(self, path: str, data: bytes = DATA) -> Entry:
        target = await self.rig.store.prepare(path)
        key = self.rig.runtime.physical_key(target.object_id)
        info = await self.data.put(key, data)
        digest = _native.Xxh3_128()
        digest.update(data)
        content = Content(key, len(data), info.etag, f"xxh128:{digest.hexdigest()}")
        return await self.rig.store.publish(target, content)

    async def verify(
        self, path: str = "/", *, deep: bool = False, grace: float = 0.0
    ) -> VerifyReport:
        verifier = Verifier(
            self.rig.store,
            self.data,
            LogReader(self.log),
            self.rig.runtime,
            grace=grace,
            log_blobs=self.log,
        )
        return await verifier.verify(path, deep=deep)

    async def key(self, path: str) -> Key:
        """The key of the item of a path."""
        return self.rig.store.keys.of(await self.rig.need(path))

    async def rename_directory(self, source: str, target: str) -> None:
        layout = self.rig.store.layout
        await layout.rename_directory(await self.rig.need(source), target, atomic=True)

    async def overwrite_item(self, entry: Entry) -> None:
        key = self.rig.store.keys.of(entry)
        if await self.items.get(key) is not None:
            await self.items.write(Delete(key, Condition()))
        await self.items.write(Put(to_item(entry, self.rig.store.keys), ABSENT))

    async def state(self) -> tuple[object, ...]:
        scanned = await self.items.scan(0, 1)
        return (
            sorted(map(str, scanned.items)),
            [info async for info in list_all(self.data)],
            [info async for info in list_all(self.log)],
        )


@pytest.fixture
async def volume(request: pytest.FixtureRequest, layout: LayoutName) -> Volume:
    rig = await Rig(request.node.name, layout=layout).start()
    volume = Volume(rig)
    await volume.data.create()
    for directory in range(2):
        for file in range(3):
            await volume.write(f"/a/d{directory}/f{file}")
    rig.clock.advance(1000)
    return volume


async def test_a_volume_after_every_kind_of_change_is_clean(volume: Volume) -> None:
    rig = volume.rig
    await volume.write("/a/d0/f0", b"overwritten")
    await rig.store.rename_file(await rig.need("/a/d0/f1"), "/a/d1/g")
    await rig.store.rename_file(await rig.need("/a/d0/f2"), "/a/d1/f2", overwrite=True)
    await volume.rename_directory("/a", "/b")
    await rig.store.delete_file(await rig.need("/b/d1/f1"))
    await rig.store.make_directory("/empty/one")
    await rig.store.remove_directory(await rig.need("/empty/one"))
    await rig.store.layout.delete_directory(await rig.need("/b/d1"), atomic=True)
    await rig.store.reserve(await rig.store.prepare("/b/open"), exclusive=True)
    rig.clock.advance(100)
    report = await volume.verify(deep=True)
    assert report.problems == []
    # In layout `tree` a directory with three files is in the trash.
    trashed = 3 if rig.layout == "tree" else 0
    assert (report.files, report.reservations) == (1 + trashed, 1)
    assert report.directories == (3 if rig.layout == "path" else 4)
    assert report.bytes == len(b"overwritten") + trashed * len(DATA)
    # Of six files and an overwrite one is left: the bytes of the others wait for collection.
    assert [finding.kind for finding in report.findings] == ["collectable_data"] * (6 - trashed)


Damage = Callable[[Volume], Awaitable[object]]


async def lose_item(volume: Volume) -> None:
    await volume.items.write(Delete(await volume.key("/a/d0/f0"), Condition()))


async def lose_directory(volume: Volume) -> None:
    await volume.items.write(Delete(await volume.key("/a/d0"), Condition()))


async def lose_bytes(volume: Volume) -> None:
    await volume.data.delete(str((await volume.rig.need("/a/d0/f0")).physical))


async def shorten_bytes(volume: Volume) -> None:
    await volume.data.put(str((await volume.rig.need("/a/d0/f0")).physical), DATA[:-1])


async def flip_bytes(volume: Volume) -> None:
    await volume.data.put(str((await volume.rig.need("/a/d0/f0")).physical), b"SOME BYTES")


async def replace_adopted(volume: Volume) -> None:
    first = await volume.data.put("feed", b"adopted")
    target = await volume.rig.store.prepare("/a/adopted")
    await volume.rig.store.publish(
        target, Content(volume.data.uri("feed"), first.size, first.etag, "")
    )
    await volume.data.put("feed", b"another")
    volume.rig.clock.advance(1000)


async def stray_bytes(volume: Volume) -> None:
    await volume.data.put(volume.rig.runtime.physical_key(volume.rig.runtime.uuid()), DATA)


async def lose_log(volume: Volume) -> None:
    identity = (await volume.rig.need("/a/d0/f0")).id
    for info in [info async for info in list_all(volume.log)]:
        if identity in info.key:
            await volume.log.delete(info.key)


async def lose_commit(volume: Volume) -> None:
    identity = (await volume.rig.need("/a/d0/f0")).id
    for info in [info async for info in list_all(volume.log)]:
        if identity in info.key and info.key.endswith("committed"):
            await volume.log.delete(info.key)


async def cut_log(volume: Volume) -> None:
    infos = [info async for info in list_all(volume.log, "entries/")]
    info = next(info for info in infos if info.key.endswith("committed"))
    await volume.log.put(info.key, (await volume.log.get(info.key))[:-5])


async def newer_log(volume: Volume) -> None:
    await volume.log.put(
        "segments/later.pending", b'{"s3k":"oplog-segment","format":99,"more":1}\n'
    )


async def change_item(volume: Volume) -> None:
    entry = await volume.rig.need("/a/d0/f0")
    await volume.overwrite_item(replace(entry, etag="another"))


async def age_item(volume: Volume) -> None:
    entry = await volume.rig.need("/a/d0/f0")
    await volume.overwrite_item(replace(entry, version=entry.version + 1))


async def same_id(volume: Volume) -> None:
    entry = await volume.rig.need("/a/d0/f0")
    await volume.overwrite_item(replace(entry, path="/a/d0/twin"))


async def break_item(volume: Volume) -> None:
    key = await volume.key("/a/d0/f0")
    await volume.items.write(Update(key, Condition(), remove=("ver",)))


async def wrong_suffix(volume: Volume) -> None:
    entry = await volume.rig.need("/a/d0/f0")
    keys = volume.rig.store.keys
    item = dict(to_item(entry, keys))
    partitions = keys.partitions(keys.parent_key(entry.entry_key))
    item["path"] = next(each for each in partitions if each != keys.of(entry).partition)
    await volume.items.write(Put(item, ABSENT))


async def foreign_item(volume: Volume) -> None:
    await volume.items.write(Put({"path": "elsewhere", "children": "x"}, ABSENT))


async def old_reservation(volume: Volume) -> None:
    await volume.rig.store.reserve(await volume.rig.store.prepare("/a/open"), exclusive=True)
    volume.rig.clock.advance(10_000)


async def expired_transaction(volume: Volume) -> None:
    store = volume.rig.store
    async with store.transactions.hold("mark", "/a/d0") as txn:
        await store.hold(await volume.rig.need("/a/d0"), txn)


async def interrupted_rename(volume: Volume) -> None:
    store = volume.rig.store
    async with store.transactions.hold("rename", "/a/d0", "/b") as txn:
        await store.hold(await volume.rig.need("/a/d0"), txn)


async def undo_delete(volume: Volume) -> None:
    entry = await volume.rig.need("/a/d0/f0")
    await volume.rig.store.delete_file(entry)
    await volume.overwrite_item(entry)


@pytest.mark.parametrize(
    ("damage", "kinds"),
    [
        (lose_item, {"entry_missing"}),
        (lose_directory, {"entry_missing", "missing_parent"}),
        (lose_bytes, {"data_missing"}),
        (shorten_bytes, {"size_mismatch", "checksum_mismatch"}),
        (flip_bytes, {"checksum_mismatch"}),
        (replace_adopted, {"etag_mismatch"}),
        (lose_log, {"log_missing"}),
        (lose_commit, {"log_pending"}),
        (cut_log, {"log_damaged", "log_pending"}),
        (change_item, {"log_disagrees"}),
        (age_item, {"log_disagrees"}),
        (same_id, {"duplicate_id"}),
        (break_item, {"item_damaged", "entry_missing"}),
        (wrong_suffix, {"item_misplaced"}),
        (newer_log, {"log_newer"}),
        (foreign_item, {"foreign_item"}),
        (old_reservation, {"reservation_expired"}),
        (expired_transaction, {"stale_intent"}),
        (interrupted_rename, {"interrupted_change"}),
        (undo_delete, {"log_disagrees"}),
    ],
)
async def test_damage_is_found_and_nothing_is_written(
    volume: Volume, damage: Damage, kinds: set[FindingKind]
) -> None:
    await damage(volume)
    volume.rig.clock.advance(100)
    before = await volume.state()
    report = await volume.verify(deep=True)
    found = {finding.kind for finding in report.problems}
    if volume.rig.layout == "tree":
        kinds = kinds - {"missing_parent"}  # the log says that the directory exists
    assert found == kinds, [str(finding) for finding in report.problems]
    assert not report.clean
    assert await volume.state() == before


async def test_what_is_young_is_left_alone(volume: Volume) -> None:
    await volume.write("/a/young")
    await lose_bytes_of(volume, "/a/young")
    assert {finding.kind for finding in (await volume.verify(grace=60)).problems} == {
        "data_missing"
    }
    await stray_bytes(volume)
    await volume.rig.store.reserve(await volume.rig.store.prepare("/a/open"), exclusive=True)
    assert {finding.kind for finding in (await volume.verify(grace=60)).problems} == {
        "data_missing"
    }


async def lose_bytes_of(volume: Volume, path: str) -> None:
    await volume.data.delete(str((await volume.rig.need(path)).physical))


async def test_a_subtree_is_checked_alone(volume: Volume) -> None:
    await lose_bytes(volume)
    assert (await volume.verify("/a/d1")).clean
    assert not (await volume.verify("/a/d0")).clean
    assert (await volume.verify("/a/d1")).files == 3


async def test_what_changes_during_the_scans_is_not_reported(
    volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = LogReader.batches
    moved = False

    def racing(self: LogReader) -> object:
        async def generate() -> object:
            nonlocal moved
            if not moved:
                moved = True
                await volume.rename_directory("/a", "/z")
                await volume.rig.store.delete_file(await volume.rig.need("/z/d0/f0"))
                await volume.write("/z/new")
            async for batch in batches(self):
                yield batch

        return generate()

    monkeypatch.setattr(LogReader, "batches", racing)
    report = await volume.verify()
    assert moved
    assert report.problems == []


def test_every_problem_kind_is_provoked_by_some_test() -> None:
    marks = test_damage_is_found_and_nothing_is_written.pytestmark  # type: ignore[attr-defined]
    provoked = {kind for _, kinds in marks[0].args[1] for kind in kinds}
    elsewhere = {
        "copies_differ",
        "directory_cycle",
        "log_conflict",
        "orphan_data",
        "unreachable_entry",
    }
    assert provoked | elsewhere == PROBLEMS


async def test_an_upload_that_was_never_published_waits_for_collection(volume: Volume) -> None:
    await stray_bytes(volume)
    volume.rig.clock.advance(100)
    report = await volume.verify()
    assert report.clean
    assert [finding.kind for finding in report.findings] == ["collectable_data"]


async def test_without_a_log_bytes_that_nobody_names_are_orphans(volume: Volume) -> None:
    await stray_bytes(volume)
    volume.rig.clock.advance(100)
    verifier = Verifier(volume.rig.store, volume.data, None, volume.rig.runtime, grace=0)
    report = await verifier.verify()
    assert [finding.kind for finding in report.problems] == ["orphan_data"]


def test_two_operations_that_committed_one_version_are_a_conflict() -> None:
    from s3k_async.oplog.entries import LogRecord, Operation
    from s3k_async.oplog.log_reader import latest

    entry = Entry("/a", False, "id", 2, 1, 1000, 3, "key", True, operation="one")
    records = [
        LogRecord(
            Operation(name, "update", "id", 2, 1, None, replace(entry, operation=name)), "committed"
        )
        for name in ("one", "two")
    ]
    found = decide(Facts("id", 10_000, 0, [entry], latest(records)["id"], []))
    assert "log_conflict" in {finding.kind for finding in found}


@pytest.mark.parametrize(
    ("key", "physical", "same"),
    [
        ("k.id=1", "k.id=1", True),
        ("k.id=1", "s3a://bucket/k.id=1", True),
        ("k.id=1", "s3://bucket/prefix/k.id=1", True),
        ("k.id=1", "s3a://bucket/xk.id=1", False),
        ("k.id=1", "other", False),
        ("k.id=1", None, False),
    ],
)
def test_physical_paths_are_compared_without_scheme_and_bucket(
    key: str, physical: str | None, same: bool
) -> None:
    assert same_blob(key, physical) is same


async def test_progress_names_phase_and_unit_and_counts_up_in_each(volume: Volume) -> None:
    told: list[Progress] = []
    verifier = Verifier(
        volume.rig.store, volume.data, LogReader(volume.log), volume.rig.runtime, held=5
    )
    report = await verifier.verify(progress=told.append)
    assert [phase for phase, _ in groupby(each.phase for each in told)] == [
        "table",
        "log",
        "data",
        "comparing",
    ]
    ends = {each.phase: (each.done, each.unit) for each in told}
    assert ends["table"] == (report.files + report.directories, "entries")
    assert ends["log"] == (report.log_records, "operations")
    assert ends["data"] == (report.blobs, "objects")
    for _, some in groupby(told, key=lambda each: each.phase):
        counts = [each.done for each in some]
        assert counts == sorted(counts)
