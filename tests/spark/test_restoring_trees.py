"""restore over Spark in layout `tree` decides and writes exactly what it does on one machine."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections import defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import pytest

from s3k_async import S3kClient
from s3k_async._core.runtime import SYSTEM
from s3k_async.backends.ports.items import Item
from s3k_async.config import VolumeConfig
from s3k_async.errors import S3kError
from s3k_async.integrity.restore_report import RestoreReport
from s3k_async.integrity.restore_rules import RuleName
from s3k_async.layouts.tree.staged_directories import StagedDirectories
from s3k_async.layouts.tree.trash_items import SETTLE_MS, moved_to_trash
from s3k_async.model import TRASH_ID, Deletion, Entry
from s3k_async.oplog.entries import Operation
from s3k_async.spark.restore_job import restore
from s3k_async.table.stored_reader import ROOT_ENTRY
from s3k_async.txn import volume_lock
from s3k_async.volumes import Volume, init_volume, open_volume
from s3k_async.volumes.restoration import restore_volume
from tests.integrity.restore_ground import lose_table, objects_of
from tests.layouts.test_restoration import STEPS, collect, lived, require_sound, trash_of
from tests.spark.places import embedded, entry_items, on
from tests.spark.test_restoring import NAMES, Tangle, put_of, rows_of, same, told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

GROUPS = 150


@pytest.fixture(autouse=True)
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other client has these volumes open."""
    monkeypatch.setattr(volume_lock, "QUIET_SECONDS", 0.0)


def place_at(directory: Path) -> VolumeConfig:
    return replace(embedded(directory), layout="tree")


@dataclass
class Group:
    """Directories in which objects of a random log are."""

    ids: list[str] = field(default_factory=list)
    """Of directories in the log; and of some that are in no log."""


class TreeTangle(Tangle):
    """A random log of layout `tree`: objects that were created, changed, moved, deleted, restored
    and reclaimed in few directories, which may be missing, removed or in the trash."""

    def __init__(self, volume: Volume, seed: int) -> None:
        super().__init__(volume, seed)
        self.groups: dict[str, Group] = defaultdict(Group)
        self.odd = [SYSTEM.uuid(), SYSTEM.uuid()]
        """Ids of directories in no log, of which a file has one, and another one as its name."""
        self.third = SYSTEM.uuid()
        """Another one, of which a file has the id whose place the table has another file at."""

    def object(self, top: str) -> None:
        group = self.groups[top]
        if not group.ids:
            entry = replace(Tangle.first(self, f"/{top[1:]}", is_dir=True), directory=ROOT_ENTRY.id)
            group.ids += [entry.id, SYSTEM.uuid()]
            self.log(self.change(None, entry), committed=True)
        entry = self.first(self.path(top), is_dir=self.chance.random() < 0.5)
        self.log(self.change(None, entry), committed=self.chance.random() < 0.9)
        for _ in range(self.chance.choice((0, 0, 1, 1, 2, 3))):
            after = self.next(top, entry)
            committed = self.chance.random() < 0.6
            self.log(self.change(entry, after), committed=committed)
            if self.chance.random() < 0.1:
                self.log(self.change(entry, self.next(top, entry)), committed=committed)
            if after is None or not committed:
                break
            entry = after
        self.keep(entry)

    def keep(self, entry: Entry) -> None:
        """What the table still has."""
        if entry.directory == TRASH_ID:
            return
        if self.chance.random() < 0.1:
            self.existing.setdefault(entry.entry_key, entry)
        elif self.chance.random() < 0.05:
            other = self.first(entry.path, is_dir=self.chance.random() < 0.5)
            other = replace(other, directory=entry.directory)
            self.existing.setdefault(other.entry_key, other)

    def path(self, top: str) -> str:
        return f"{top}/{self.chance.choice(NAMES)}"

    def home(self, top: str) -> str:
        """A directory for an object of the group."""
        if self.chance.random() < 0.03:
            return self.chance.choice(self.odd)
        return self.chance.choice(self.groups[top].ids)

    def first(self, path: str, *, is_dir: bool) -> Entry:
        top = "/" + path.split("/")[1]
        entry = replace(super().first(path, is_dir=is_dir), directory=self.home(top))
        if is_dir:
            self.groups[top].ids.append(entry.id)
        return entry

    def next(self, top: str, entry: Entry) -> Entry | None:
        kinds = ["rename", "rename", "delete", "update"]
        if entry.is_dir:
            kinds = ["rename", "rename", "delete", "trash", "trash"]
        if entry.directory == TRASH_ID:
            kinds = ["rename", "reclaim", "reclaim"]
        kind = self.chance.choice(kinds)
        if kind == "delete":
            return None
        if kind in {"trash", "reclaim"}:
            return moved_to_trash(entry, operation=SYSTEM.uuid())
        if kind == "rename":
            moved = entry.moved(self.path(top), operation=SYSTEM.uuid())
            return replace(moved, directory=self.home(top))
        return self.rewritten(entry)

    def change(self, before: Entry | None, after: Entry | None) -> Operation:
        trash = None
        if after is not None and after.directory == TRASH_ID:
            assert before is not None
            reclaims = before.directory == TRASH_ID
            when_ms = self.chance.randint(1_600_000_000_000, 1_700_000_000_000)
            trash = Deletion(
                "deleted",
                ROOT_ENTRY.id if reclaims else before.directory,
                before.path,
                when_ms,
                "user@host",
                "reclaiming" if reclaims else "",
            )
        return replace(super().change(before, after), trash=trash)

    def oddities(self) -> None:
        """Directories that cannot be created with their ids: a file has the id of one; another one
        would be at a path that is taken."""
        home = replace(Tangle.first(self, "/lost+found", is_dir=True), directory=ROOT_ENTRY.id)
        self.log(self.change(None, home), committed=True)
        one, two = self.odd
        named, outside = (self.file_of(identity) for identity in (one, self.third))
        taken = replace(
            self.whole_file("/x/f", ROOT_ENTRY.id), path=f"/lost+found/{two}", directory=home.id
        )
        for each in (named, outside, taken):
            self.log(self.change(None, each), committed=True)
        present = self.whole_file(outside.path, ROOT_ENTRY.id)
        self.existing[present.entry_key] = present
        for number, parent in enumerate((one, two, one, two, self.third)):
            self.log(self.change(None, self.whole_file(f"/x/{number}", parent)), committed=True)

    def file_of(self, identity: str) -> Entry:
        """A file with the id."""
        physical = SYSTEM.physical_key(identity)
        self.bytes.append((physical, b"xyz"))
        made = self.whole_file(f"/x/of-{identity}", ROOT_ENTRY.id)
        return replace(made, id=identity, physical=physical)

    def whole_file(self, path: str, directory: str) -> Entry:
        identity = SYSTEM.uuid()
        physical = SYSTEM.physical_key(identity)
        self.bytes.append((physical, b"xyz"))
        return Entry(
            path,
            False,
            identity,
            1,
            1_600_000_000,
            1_600_000_000_000,
            3,
            physical,
            committed=True,
            operation=SYSTEM.uuid(),
            directory=directory,
        )


async def tangle(config: VolumeConfig, seed: int, *, keep: bool) -> None:
    """A volume with a random log; its table is lost, or, with `keep`, lacks most entries."""
    await init_volume(config)
    volume = await open_volume(config)
    try:
        made = TreeTangle(volume, seed)
        made.oddities()
        await made.grow(GROUPS)
        if keep:
            for entry in made.existing.values():
                await volume.items.transact([put_of(volume, entry)], SYSTEM.uuid())
        else:
            await volume.table.drop()
    finally:
        await volume.close()


def stored(place: VolumeConfig, start_ms: int) -> list[Item]:
    """The entries as they are stored. Directories count as deleted now if the restore decided so,
    which it does at another time on one machine."""
    return [
        {**item, "when": 0} if int(str(item.get("when", 0))) >= start_ms else item
        for item in on(place, entry_items)
    ]


def both(
    spark: SparkSession, directory: Path, subtree: str | None
) -> tuple[RestoreReport, VolumeConfig]:
    """Restore the volume `one` on one machine, and its copy `many` over Spark."""
    one, many, start_ms = place_at(directory / "one"), place_at(directory / "many"), SYSTEM.now_ms()
    alone = asyncio.run(restore_volume(one, subtree=subtree, dry_run=False))
    frame, report = restore(spark, many, subtree=subtree, dry_run=False)
    same(report, alone)
    assert rows_of(frame) == told(report.outcomes)
    assert stored(many, start_ms) == stored(one, start_ms)
    return report, many


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "keep"), [(5, True), (5, False), (6, False), (7, True)])
def test_a_tangled_log_is_restored_as_by_one_machine(
    spark: SparkSession, tmp_path: Path, seed: int, keep: bool
) -> None:
    """Every rule of the layout is reached; the items of both tables are equal to the last
    field."""
    asyncio.run(tangle(place_at(tmp_path / "one"), seed, keep=keep))
    shutil.copytree(tmp_path / "one", tmp_path / "many")
    report, _ = both(spark, tmp_path, "/" if keep else None)
    assert report.written == report.restored > 0
    expected = (
        set(get_args(RuleName))
        - {"log_damaged", "other_layout"}
        - (set() if keep else {"present", "occupied"})
    )
    assert {rule for rule, count in report.counts.items() if count} == expected


@pytest.mark.slow
@pytest.mark.parametrize("which", ["/lost+found", "deepest", "file"])
def test_a_part_of_the_tree_is_restored_as_by_one_machine(
    spark: SparkSession, tmp_path: Path, which: str
) -> None:
    asyncio.run(tangle(place_at(tmp_path / "one"), 8, keep=True))
    whole = asyncio.run(restore_volume(place_at(tmp_path / "one"), subtree="/"))
    subtree = which
    if which == "deepest":
        subtree = max((each.path for each in whole.outcomes), key=lambda path: path.count("/"))
    if which == "file":
        files = [each.path for each in whole.outcomes if each.rule in {"update_done", "adopted"}]
        subtree = min(path for path in files if path.startswith("/t"))
    shutil.copytree(tmp_path / "one", tmp_path / "many")
    report, _ = both(spark, tmp_path, subtree)
    assert 0 < report.written < whole.restored
    assert report.files + report.reservations == 1 or which != "file"


async def begun(config: VolumeConfig) -> Entry:
    """A transaction that was not published when the table lost a file of its staged directory."""
    await init_volume(config)
    volume = await open_volume(config)
    try:
        made, identity = volume.store.changes, SYSTEM.uuid()
        new = Entry("/n", True, SYSTEM.uuid(), 1, 1, 1000, operation=SYSTEM.uuid())
        directory = replace(new, directory=ROOT_ENTRY.id)
        lost = Entry("/n/f", False, identity, 1, 1, 1000, 3, SYSTEM.physical_key(identity))
        lost = replace(lost, committed=True, operation=SYSTEM.uuid(), directory=directory.id)
        staged = StagedDirectories(volume.store).staged(directory, SYSTEM.uuid())
        await volume.blobs.put(str(lost.physical), b"xyz")
        await volume.log.begin(
            [made.operation("update", None, lost), made.operation("create", None, directory)]
        )
        await volume.items.transact([staged.put], SYSTEM.uuid())
    finally:
        await volume.close()
    return lost


@pytest.mark.slow
def test_a_staged_directory_is_neither_removed_nor_published(
    spark: SparkSession, tmp_path: Path
) -> None:
    """It is in the trash, as a removal marker is, and is no object of the log, but what was lost
    of its content comes back to it, where no path leads."""
    lost = asyncio.run(begun(place_at(tmp_path / "one")))
    shutil.copytree(tmp_path / "one", tmp_path / "many")
    report, many = both(spark, tmp_path, "/")
    assert {rule: count for rule, count in report.counts.items() if count} == {
        "present": 1,
        "update_done": 1,
    }

    async def found(volume: Volume) -> tuple[Entry | None, Entry | None]:
        return await volume.store.stored(lost.entry_key), await volume.store.get("/n")

    content, published = on(many, found)
    assert content is not None
    assert published is None


def test_a_lost_table_comes_back_with_its_trash(spark: SparkSession, tmp_path: Path) -> None:
    """Directories that were renamed, deleted, restored and are being reclaimed, to the last
    attribute, and with them all files."""
    place = place_at(tmp_path / "many")

    async def live() -> None:
        await lived(place)
        await collect(place)

    asyncio.run(live())
    before, trash = on(place, objects_of), asyncio.run(trash_of(place))
    assert set(trash.values()) == {"", "reclaiming"}
    asyncio.run(lose_table(place))
    _, report = restore(spark, place, dry_run=False, checkpoint=str(tmp_path / "stages"))
    assert report.clean
    assert report.written == report.restored == len(before)
    assert on(place, objects_of) == before
    assert asyncio.run(trash_of(place)) == trash
    asyncio.run(require_sound(place))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(3))
def test_random_histories_come_back(spark: SparkSession, tmp_path: Path, number: int) -> None:
    place, chance = place_at(tmp_path), random.Random(number)

    async def step(fs: S3kClient) -> None:
        try:
            await chance.choice(STEPS)(fs, chance)
        except S3kError:
            return

    async def live() -> None:
        await init_volume(place)
        async with S3kClient(config=place) as one, S3kClient(config=place) as two:
            for _ in range(60):
                await asyncio.gather(step(one), step(two))
        await collect(place, SETTLE_MS * number)

    asyncio.run(live())
    before = on(place, objects_of)
    asyncio.run(lose_table(place))
    assert restore(spark, place, dry_run=False).report.clean
    assert on(place, objects_of) == before
    asyncio.run(require_sound(place))
