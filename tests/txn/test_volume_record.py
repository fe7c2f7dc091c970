"""The volume record: its two forms, and what becomes of a table in which one of them is missing or
wrong."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from s3k_async._core.retry import RetryPolicy
from s3k_async._core.runtime import Runtime
from s3k_async.backends.ports.items import ABSENT, Item, ItemStore, ItemTable, Put, Value
from s3k_async.backends.retrying.retrying_items import RetryingItems
from s3k_async.config import LocalDirectory, MemoryBlobs, MemoryTable, S3Bucket, SqliteFile
from s3k_async.errors import (
    ConfigError,
    CredentialsError,
    InvalidArgumentError,
    NotAVolumeError,
    PermissionDeniedError,
    S3kError,
    ThrottledError,
    UnsupportedError,
    VolumeExistsError,
    VolumeFormatError,
    VolumeMismatchError,
    VolumeNotFoundError,
)
from s3k_async.model import DEFAULT_FEATURES, Feature
from s3k_async.permissions import Ownership
from s3k_async.txn.volume_record import (
    FORMAT,
    PROTOCOL,
    RECORD_KEY,
    TAG,
    VolumeRecord,
    beside,
    create_record,
    features_of,
    load_or_repair,
    location_text,
    mark_destroying,
)
from tests.engines.volumes import fresh_name, fresh_table
from tests.support import FakeClock, fake_runtime

POLICY = RetryPolicy(attempts=3)
RECORD = VolumeRecord(
    name="analytics",
    suffix_count=10,
    hash="xxh3",
    data="s3://analytics-data/warehouse/",
    log_mode="native",
    log="s3://analytics-data/warehouse/oplog/",
    volume_id="5f0a6f0e-7c3c-4a53-9a39-1f6d0e6a9a11",
    created_ms=1_700_000_000_123,
)
ENTRY: Item = {
    "path": "ks://analytics/-sf1",
    "children": "a",
    "isdir": True,
    "ver": 1,
    "id": "x",
    "ctime": 1,
}


def test_the_item() -> None:
    item = RECORD.to_item("op-1")
    assert item == {
        "path": "s3k:volume",
        "children": "record",
        "format": 1,
        "kind": "native",
        "name": "analytics",
        "suffix_count": 10,
        "hash": "xxh3",
        "data": "s3://analytics-data/warehouse/",
        "log_mode": "native",
        "log": "s3://analytics-data/warehouse/oplog/",
        "volume_id": "5f0a6f0e-7c3c-4a53-9a39-1f6d0e6a9a11",
        "flags": "",
        "min_client": 1,
        "created": 1_700_000_000_123,
        "op": "op-1",
    }
    assert VolumeRecord.from_item(item, "t") == RECORD


def test_the_tag() -> None:
    tag = RECORD.to_tag()
    assert tag == (
        "f:1 k:native n:analytics s:10 h:xxh3 d:s3://analytics-data/warehouse/ m:native l:."
        " i:5f0a6f0e-7c3c-4a53-9a39-1f6d0e6a9a11 g: c:1 t:1700000000123"
    )
    assert VolumeRecord.from_tag(tag, "t") == RECORD


@pytest.mark.parametrize(
    "change",
    [
        {"data": "./data/", "log": "./oplog/"},
        {"data": "file:///srv/a b/é=😀%/", "log": "file:///elsewhere/"},
        {"data": "s3://b/~x@y/", "log": ""},
        {"log_mode": "disabled", "log": "", "suffix_count": 1000, "hash": "java31"},
    ],
)
def test_every_record_survives_as_tag_and_as_item(change: dict[str, Any]) -> None:
    record = replace(RECORD, **change)
    assert VolumeRecord.from_tag(record.to_tag(), "t") == record
    assert VolumeRecord.from_item(record.to_item("op"), "t") == record
    assert re.fullmatch(r"[A-Za-z0-9 +\-=._:/@]{1,256}", record.to_tag())


def test_a_record_that_does_not_fit_into_a_tag_is_refused() -> None:
    with pytest.raises(ConfigError, match="table tag"):
        replace(RECORD, data="s3://analytics-data/" + "x" * 200 + "/").to_tag()


def test_text_that_utf8_cannot_hold_is_refused() -> None:
    with pytest.raises(ConfigError, match="UTF-8"):
        replace(RECORD, data="file:///\udcff/").to_tag()


def both_forms(change: dict[str, Value | None]) -> list[tuple[str, Callable[[], VolumeRecord]]]:
    changed = {**RECORD.to_item("op"), **change}
    item = {name: value for name, value in changed.items() if value is not None}
    letters = {
        "format": "f",
        "kind": "k",
        "suffix_count": "s",
        "flags": "g",
        "min_client": "c",
        "volume_id": "i",
    }
    tag = RECORD.to_tag()
    for name, value in change.items():
        letter = letters[name]
        new = "" if value is None else f" {letter}:{value}"
        tag = re.sub(rf"(^| ){letter}:[^ ]*", new, tag).strip()
    return [
        ("item", lambda: VolumeRecord.from_item(item, "table-1")),
        (TAG, lambda: VolumeRecord.from_tag(tag, "table-1")),
    ]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"format": FORMAT + 1}, VolumeFormatError),
        ({"format": FORMAT + 1, "kind": None, "suffix_count": None}, VolumeFormatError),
        ({"flags": "sharded-directories"}, VolumeFormatError),
        ({"min_client": PROTOCOL + 1}, VolumeFormatError),
        ({"format": None}, NotAVolumeError),
        ({"format": 0}, NotAVolumeError),
        ({"kind": None}, NotAVolumeError),
        ({"kind": "other"}, NotAVolumeError),
        ({"suffix_count": 0}, NotAVolumeError),
        ({"suffix_count": "ten"}, NotAVolumeError),
        ({"volume_id": ""}, NotAVolumeError),
    ],
)
def test_a_record_that_cannot_be_used_is_named(
    change: dict[str, Value | None], error: type[S3kError]
) -> None:
    for what, read in both_forms(change):
        with pytest.raises(error, match=what) as caught:
            read()
        assert caught.value.path == "table-1"


@pytest.mark.parametrize(
    "tag", ["", "nonsense", "f:1", "f:1 " * 20, "f:=31", RECORD.to_tag() + " z:9"]
)
def test_a_damaged_tag_is_not_a_volume(tag: str) -> None:
    with pytest.raises(NotAVolumeError, match=TAG):
        VolumeRecord.from_tag(tag, "table-1")


def test_locations_are_recorded_so_that_an_embedded_volume_can_be_moved() -> None:
    table = SqliteFile("/srv/vol/metadata.sqlite")
    assert location_text(LocalDirectory("/srv/vol/data"), table) == "./data/"
    assert location_text(LocalDirectory("/srv/vol"), table) == "file:///srv/vol/"
    assert location_text(LocalDirectory("/srv/volume2/data"), table) == "file:///srv/volume2/data/"
    assert (
        location_text(LocalDirectory("/srv/vol/data"), MemoryTable("t")) == "file:///srv/vol/data/"
    )
    assert location_text(S3Bucket("b", "p/"), table) == "s3://b/p/"
    assert location_text(S3Bucket("b"), table) == "s3://b/"
    assert location_text(MemoryBlobs("m"), table) == "memory://m/"
    assert beside("s3://b/p/") == "s3://b/p/oplog/"


# The repair matrix


class Tags:
    """A table whose tags behave otherwise; everything else is the real one's."""

    def __init__(
        self, table: ItemTable, *, read: Exception | None = None, write: Exception | None = None
    ) -> None:
        self._table = table
        self._read = read
        self._write = write
        self.create, self.exists, self.drop = table.create, table.exists, table.drop
        self.space = table.space

    async def read_tag(self, name: str) -> str | None:
        if self._read is not None:
            raise self._read
        return await self._table.read_tag(name)

    async def write_tag(self, name: str, value: str) -> None:
        if self._write is not None:
            raise self._write
        await self._table.write_tag(name, value)


@dataclass
class Rig:
    raw: ItemStore
    table: ItemTable
    clock: FakeClock = field(default_factory=FakeClock)

    def __post_init__(self) -> None:
        self.runtime: Runtime = fake_runtime(self.clock, seed=11)
        self.items = RetryingItems(self.raw, POLICY, self.runtime)

    async def put(self, item: Item) -> None:
        await self.raw.write(Put(item, ABSENT))

    async def load(self, table: ItemTable | None = None, **options: Any) -> VolumeRecord:
        return await load_or_repair(
            self.items,
            table or self.table,
            "table-1",
            runtime=self.runtime,
            policy=POLICY,
            **options,
        )

    async def create(self, record: VolumeRecord = RECORD, table: ItemTable | None = None) -> None:
        await create_record(
            self.items, table or self.table, record, "table-1", runtime=self.runtime, policy=POLICY
        )

    async def stored(self) -> VolumeRecord | None:
        item = await self.raw.get(RECORD_KEY)
        return None if item is None else VolumeRecord.from_item(item, "table-1")

    async def contents(self) -> tuple[list[Item], str | None]:
        return sorted((await self.raw.scan(0, 1)).items, key=str), await self.table.read_tag(TAG)


@pytest.fixture(params=["memory", "sqlite", pytest.param("dynoxide", marks=pytest.mark.engine)])
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    with ExitStack() as stack:
        if request.param == "memory":
            from s3k_async.backends.memory.memory_items import MemoryItems

            store: Any = MemoryItems(fresh_name("record"))
        elif request.param == "sqlite":
            from s3k_async.backends.sqlite.sqlite_items import SqliteItems

            store = SqliteItems(str(tmp_path / "metadata.sqlite"))
        else:
            from s3k_async.testing import DynamoItems

            server = request.getfixturevalue("dynoxide")
            table = stack.enter_context(fresh_table(server))
            store = DynamoItems(table.name, table.aws)
        try:
            await store.create()
            yield Rig(store, store)
            await store.drop()
        finally:
            await store.close()


async def test_item_and_tag_missing_in_a_table_with_items_is_not_a_volume(rig: Rig) -> None:
    await rig.put(ENTRY)
    before = await rig.contents()
    with pytest.raises(NotAVolumeError, match="no volume record") as caught:
        await rig.load()
    assert caught.value.path == "table-1"
    assert await rig.contents() == before
    assert rig.clock.sleeps == []


async def test_item_and_tag_missing_in_an_empty_table_is_no_volume_after_a_bounded_wait(
    rig: Rig,
) -> None:
    with pytest.raises(VolumeNotFoundError, match="empty"):
        await rig.load()
    assert 0 < len(rig.clock.sleeps) < 10
    assert await rig.contents() == ([], None)


async def test_item_and_tag_missing_in_an_empty_table_are_both_written_on_init(rig: Rig) -> None:
    await rig.create()
    assert await rig.stored() == RECORD
    assert await rig.table.read_tag(TAG) == RECORD.to_tag()
    assert await rig.load() == RECORD


@pytest.mark.parametrize("filled", [False, True], ids=["empty", "with items"])
async def test_item_missing_is_restored_from_the_tag(rig: Rig, filled: bool) -> None:
    await rig.table.write_tag(TAG, RECORD.to_tag())
    if filled:
        await rig.put(ENTRY)
    assert await rig.load() == RECORD
    assert await rig.stored() == RECORD


async def test_item_missing_with_a_tag_that_is_damaged_is_not_a_volume(rig: Rig) -> None:
    await rig.table.write_tag(TAG, "damaged")
    with pytest.raises(NotAVolumeError, match=TAG):
        await rig.load()
    assert await rig.stored() is None


async def test_item_missing_with_a_tag_of_a_newer_format_is_refused(rig: Rig) -> None:
    await rig.table.write_tag(TAG, RECORD.to_tag().replace("f:1", "f:2"))
    with pytest.raises(VolumeFormatError, match=TAG):
        await rig.load()
    assert await rig.stored() is None


async def test_item_missing_is_restored_once_by_many_openers(rig: Rig) -> None:
    await rig.table.write_tag(TAG, RECORD.to_tag())
    found: list[VolumeRecord] = []

    async def open_one() -> None:
        found.append(await rig.load())

    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(open_one)
    assert found == [RECORD] * 8


async def test_tag_missing_is_added_again(rig: Rig) -> None:
    await rig.put(RECORD.to_item("op"))
    assert await rig.load() == RECORD
    assert await rig.table.read_tag(TAG) == RECORD.to_tag()


@pytest.mark.parametrize(
    "error", [PermissionDeniedError("no tags for you"), ThrottledError("slow down")]
)
async def test_tag_missing_that_cannot_be_added_is_only_logged(
    rig: Rig, error: S3kError, caplog: pytest.LogCaptureFixture
) -> None:
    await rig.put(RECORD.to_item("op"))
    with caplog.at_level(logging.WARNING, "s3k_async"):
        assert await rig.load(Tags(rig.table, write=error)) == RECORD
    assert error.message in caplog.text
    assert await rig.table.read_tag(TAG) is None


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"format": 2}, VolumeFormatError),
        ({"suffix_count": "10"}, NotAVolumeError),
        ({"flags": "unheard-of"}, VolumeFormatError),
    ],
)
async def test_tag_missing_with_an_item_that_cannot_be_used_names_the_item(
    rig: Rig, change: dict[str, Value], error: type[S3kError]
) -> None:
    await rig.put({**RECORD.to_item("op"), **change})
    before = await rig.contents()
    with pytest.raises(error, match="record item"):
        await rig.load()
    assert await rig.contents() == before


async def test_item_and_tag_that_agree_change_nothing(rig: Rig) -> None:
    await rig.create()
    before = await rig.contents()
    assert await rig.load() == RECORD
    assert await rig.contents() == before


async def test_item_and_tag_that_disagree_are_a_mismatch_that_names_what_differs(rig: Rig) -> None:
    await rig.put(RECORD.to_item("op"))
    await rig.table.write_tag(TAG, replace(RECORD, suffix_count=20).to_tag())
    before = await rig.contents()
    with pytest.raises(VolumeMismatchError, match=r"suffix_count \(10, not 20\)"):
        await rig.load()
    assert await rig.contents() == before


async def test_item_fine_with_a_damaged_tag_names_the_tag(rig: Rig) -> None:
    await rig.put(RECORD.to_item("op"))
    await rig.table.write_tag(TAG, "damaged")
    with pytest.raises(NotAVolumeError, match=TAG):
        await rig.load()


@pytest.mark.parametrize(
    "error", [UnsupportedError("no tags"), PermissionDeniedError("not for you")]
)
async def test_tags_that_cannot_be_read_leave_it_to_the_item(rig: Rig, error: S3kError) -> None:
    table = Tags(rig.table, read=error, write=AssertionError("nothing to write"))
    with pytest.raises(VolumeNotFoundError):
        await rig.load(table)
    await rig.put(RECORD.to_item("op"))
    assert await rig.load(table) == RECORD


async def test_tags_that_cannot_be_read_and_no_item_in_a_table_with_items_is_not_a_volume(
    rig: Rig,
) -> None:
    await rig.put(ENTRY)
    with pytest.raises(NotAVolumeError):
        await rig.load(Tags(rig.table, read=UnsupportedError("no tags")))


async def test_wrong_credentials_are_not_a_lack_of_tags(rig: Rig) -> None:
    await rig.put(RECORD.to_item("op"))
    with pytest.raises(CredentialsError):
        await rig.load(Tags(rig.table, read=CredentialsError("expired")))


async def test_init_without_tags_writes_the_item_alone(rig: Rig) -> None:
    await rig.create(table=Tags(rig.table, write=UnsupportedError("no tags")))
    assert await rig.stored() == RECORD
    assert await rig.table.read_tag(TAG) is None


async def test_init_with_a_record_too_long_for_a_tag_writes_nothing(rig: Rig) -> None:
    with pytest.raises(ConfigError):
        await rig.create(replace(RECORD, name="n" * 255))
    assert await rig.contents() == ([], None)


async def test_a_second_record_is_refused_and_the_first_stays(rig: Rig) -> None:
    await rig.create()
    before = await rig.contents()
    with pytest.raises(VolumeExistsError):
        await rig.create(replace(RECORD, suffix_count=20))
    assert await rig.contents() == before


async def test_of_many_creators_exactly_one_wins(rig: Rig) -> None:
    outcomes: list[int | None] = []

    async def create_one(number: int) -> None:
        try:
            await rig.create(replace(RECORD, suffix_count=number))
            outcomes.append(number)
        except VolumeExistsError:
            outcomes.append(None)

    async with anyio.create_task_group() as tasks:
        for number in range(1, 9):
            tasks.start_soon(create_one, number)
    winners = [number for number in outcomes if number is not None]
    assert len(winners) == 1
    assert (await rig.load()).suffix_count == winners[0]


class Waking(FakeClock):
    """Does something when somebody waits for the third time."""

    then: Callable[[], Awaitable[None]]

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        if len(self.sleeps) == 3:
            await self.then()


async def test_an_opener_waits_for_the_creator_that_has_made_the_table(rig: Rig) -> None:
    clock = Waking()
    clock.then = rig.create
    waiting = Rig(rig.raw, rig.table, clock)
    assert await waiting.load() == RECORD
    assert len(clock.sleeps) == 3


async def test_an_opener_that_looks_just_before_the_record_and_the_first_file_finds_them(
    rig: Rig,
) -> None:
    class Late(RetryingItems):
        """Between the look for the record and the look for other items, a creator is quick."""

        looks = 0

        async def get(self, key: Any) -> Item | None:
            item = await super().get(key)
            self.looks += 1
            if self.looks == 1:
                await rig.create()
                await rig.put(ENTRY)
            return item

    items = Late(rig.raw, POLICY, rig.runtime)
    tags = Tags(rig.table, read=UnsupportedError("no tags"))
    assert (
        await load_or_repair(items, tags, "table-1", runtime=rig.runtime, policy=POLICY) == RECORD
    )


async def test_a_volume_that_is_being_destroyed_cannot_be_opened(rig: Rig) -> None:
    await rig.create()
    await mark_destroying(rig.items, RECORD, "table-1", runtime=rig.runtime)
    with pytest.raises(VolumeNotFoundError, match="being destroyed"):
        await rig.load()
    assert await rig.load(destroying=True) == RECORD


async def test_another_volume_is_not_marked_for_destruction(rig: Rig) -> None:
    await rig.create()
    with pytest.raises(VolumeNotFoundError):
        await mark_destroying(
            rig.items, replace(RECORD, volume_id="other"), "table-1", runtime=rig.runtime
        )
    assert await rig.load() == RECORD


@pytest.mark.parametrize(
    ("enabled", "left_out", "expected"),
    [
        ([], [], DEFAULT_FEATURES),
        ([], ["extents"], ("attributes",)),
        ([], DEFAULT_FEATURES, ()),
        (["rules"], [], (*DEFAULT_FEATURES, "rules")),
        (["permissions"], ["uploads"], ("extents", "attributes", "permissions")),
    ],
)
def test_the_features_of_a_new_volume(
    enabled: list[Feature], left_out: list[Feature], expected: tuple[Feature, ...]
) -> None:
    assert features_of(enabled, left_out, "here") == expected


@pytest.mark.parametrize("left_out", [["rules"], ["attributes"]])
def test_features_that_contradict_each_other_are_refused(left_out: list[Feature]) -> None:
    with pytest.raises(InvalidArgumentError, match="cannot be left out of a volume with rules"):
        features_of(["rules"], left_out, "here")


def test_the_owner_of_the_root_is_in_the_item_alone() -> None:
    record = replace(RECORD, root_owner="1000:5")
    assert VolumeRecord.from_item(record.to_item("op"), "table-1").root == Ownership(1000, 5, 0o755)
    assert record.to_tag() == RECORD.to_tag()
    assert RECORD.root == Ownership(0, 0, 0o755)
    for damaged in ("1000", "a:b", ":", "1:2:3", "99999999999:0"):
        item = {**record.to_item("op"), "root_owner": damaged}
        with pytest.raises(NotAVolumeError, match="root_owner"):
            VolumeRecord.from_item(item, "table-1")
