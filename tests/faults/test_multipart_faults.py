"""Multipart uploads whose clients die, lose an answer or fail at any call, and what others find."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pytest

from s3k_async.backends.ports.pagination import scan_all
from s3k_async.client import S3kClient
from s3k_async.errors import (
    OutcomeUnknownError,
    PathNotFoundError,
    ResponseLostError,
    S3kError,
    ServiceError,
    UploadNotFoundError,
)
from s3k_async.files.edits import HARD_LIMIT
from s3k_async.files.multipart import (
    abort_upload,
    complete_upload,
    copy_part,
    create_upload,
    expire_uploads,
    list_parts,
    list_uploads,
    put_part,
)
from s3k_async.integrity.gc_rules import Ages
from s3k_async.integrity.repair import repair_volume, verify_volume
from s3k_async.model import LayoutName
from s3k_async.storage.extents import physical_keys
from s3k_async.testing import Died, FaultPlan, Moment
from s3k_async.txn.upload_items import is_upload_partition
from s3k_async.volumes import Volume
from tests.client.rig import faulty_client
from tests.integrity.garbage import DAY, Yard, yard
from tests.level import calls_to_try
from tests.support import after_call

pytestmark = pytest.mark.layouts("path", "tree")

EAGER = Ages(grace=0.0, lease=600.0, late=60.0)
MOMENTS: tuple[Moment, ...] = ("before", "after")
RECOVERABLE = {"interrupted_change", "log_pending", "collectable_data"}
"""What a death may leave for fsck."""
PARTS = HARD_LIMIT + 2
"""More than the extents of a file."""

Parts: TypeAlias = Mapping[int, bytes]
Act: TypeAlias = Callable[[Volume, str], Awaitable[object]]


@dataclass(frozen=True)
class Case:
    """A verb, and the parts of the upload before and after it."""

    act: Act
    before: Parts
    after: Parts | None
    """None: the verb ends the upload."""
    published: bool = False
    replaces: bool = False
    """Whether there is a file at the path."""


MANY = {number: b"%d," % number for number in range(PARTS)}
TWO = {1: b"one, ", 2: b"two"}
CASES: dict[str, Case] = {
    "put": Case(lambda volume, name: put_part(volume, name, 2, b"two"), {1: b"one, "}, TWO),
    "put again": Case(
        lambda volume, name: put_part(volume, name, 2, b"TWO"), TWO, {1: b"one, ", 2: b"TWO"}
    ),
    "put in parts": Case(
        lambda volume, name: put_part(volume, name, 2, b"2" * 600),
        TWO,
        {1: b"one, ", 2: b"2" * 600},
    ),
    "copy": Case(
        lambda volume, name: copy_part(volume, name, 2, "/source", 3, 4),
        TWO,
        {1: b"one, ", 2: b"3456"},
    ),
    "complete": Case(complete_upload, TWO, None, published=True),
    "complete over": Case(complete_upload, TWO, None, published=True, replaces=True),
    "complete many": Case(complete_upload, MANY, None, published=True),
    "abort": Case(abort_upload, TWO, None),
}


@asynccontextmanager
async def place_of(
    case: Case, layout: LayoutName, tmp_path: Path
) -> AsyncIterator[tuple[Yard, str]]:
    """A volume with an upload."""
    async with yard(tmp_path, layout=layout) as place:
        await place.client.write("/source", b"0123456789")
        if case.replaces:
            await place.client.write("/d/f", b"old")
        upload = await create_upload(place.volume, "/d/f", lifetime=30 * DAY)
        for number, data in case.before.items():
            await put_part(place.volume, upload.id, number, data)
        await place.settle()
        yield place, upload.id


async def acted(case: Case, place: Yard, upload_id: str, faults: FaultPlan) -> BaseException | None:
    """The error of the verb, by a client whose calls go through `faults`."""
    planned, faults._faults = faults._faults, []
    try:
        async with faulty_client(faults, place.config, place.runtime) as fs:
            faults._faults = planned
            try:
                await case.act(fs._volume(), upload_id)
            except S3kError as error:
                return error
    except (Died, BaseExceptionGroup) as error:
        return error
    return None


async def calls_of(case: Case, layout: LayoutName, tmp_path: Path) -> int:
    faults = FaultPlan()
    async with place_of(case, layout, tmp_path) as (place, upload_id):
        assert await acted(case, place, upload_id, faults) is None
        return len(faults.calls)


async def content(fs: S3kClient) -> bytes | None:
    with suppress(PathNotFoundError):
        return await fs.read("/d/f")
    return None


async def problems(volume: Volume) -> set[str]:
    return {finding.kind for finding in (await verify_volume(volume)).findings}


async def upload_items(volume: Volume) -> int:
    found = 0
    async for page in scan_all(volume.items):
        found += sum(is_upload_partition(str(item["path"])) for item in page)
    return found


def joined(parts: Parts) -> bytes:
    return b"".join(data for _, data in sorted(parts.items()))


async def check(case: Case, place: Yard, upload_id: str, *, is_done: bool | None) -> None:
    """The verb has happened, or has not; either way the volume is sound, the upload can be used if
    it was not ended, and nothing is left in the end. `is_done`: what its caller was told."""
    fs, volume = place.client, place.volume
    former = b"old" if case.replaces else None
    place.clock.advance(DAY)
    assert await problems(volume) <= RECOVERABLE
    await place.gc(ages=EAGER)
    is_open = upload_id in {each.id for each in await list_uploads(volume)}
    if case.after is None:
        assert not (is_done is True and is_open)
        assert not (is_done is False and not is_open)
        published = case.published and not is_open
        assert await content(fs) == (joined(case.before) if published else former)
    else:
        assert is_open
        found = {part.number: part.size for part in await list_parts(volume, upload_id)}
        sides = [{number: len(data) for number, data in side.items()} for side in sides_of(case)]
        assert found in {True: sides[1:], False: sides[:1], None: sides}[is_done]
    if is_open:
        for number, data in (case.after or case.before).items():
            if case.after is not None:
                await put_part(volume, upload_id, number, data)
        await case.act(volume, upload_id)
        if case.after is not None:
            await complete_upload(volume, upload_id)
        has_content = case.published or case.after is not None
        assert await content(fs) == (joined(case.after or case.before) if has_content else former)
    with pytest.raises(UploadNotFoundError):
        await complete_upload(volume, upload_id)
    await repair_volume(volume, dry_run=False)
    await place.settle()
    for _ in range(2):
        place.clock.advance(20 * DAY)
        await place.gc(ages=EAGER)
    assert await upload_items(volume) == 0
    assert await place.keys() == {
        key
        for path in ("/source", *(["/d/f"] if await fs.exists("/d/f") else []))
        for key in physical_keys((await fs.stat(path)).physical)
    }
    assert await problems(volume) == set()


def sides_of(case: Case) -> tuple[Parts, Parts]:
    assert case.after is not None
    return case.before, case.after


@pytest.mark.parametrize("name", CASES)
async def test_death_at_every_call(layout: LayoutName, tmp_path: Path, name: str) -> None:
    case = CASES[name]
    count = await calls_of(case, layout, tmp_path)
    assert count >= 4
    for number in tried(name, count):
        for when in MOMENTS:
            async with place_of(case, layout, tmp_path) as (place, upload_id):
                faults = FaultPlan()
                faults.die(number, when=when)
                faults.fail_when(after_call(number), Died("is dead"), times=10**9)
                error = await acted(case, place, upload_id, faults)
                assert error is None or isinstance(error, Died | BaseExceptionGroup)
                # The verb may have returned before the client, closing itself, died.
                await check(case, place, upload_id, is_done=None)


def tried(name: str, count: int) -> list[int]:
    """Numbers of calls; of the many that read parts only some."""
    numbers = calls_to_try(count)
    return numbers if count < 60 else [*numbers[:5], *numbers[5:-15:40], *numbers[-15:]]


@pytest.mark.parametrize("name", CASES)
async def test_an_answer_is_lost(layout: LayoutName, tmp_path: Path, name: str) -> None:
    """Every call but the one is answered: the verb is done."""
    case = CASES[name]
    for number in tried(name, await calls_of(case, layout, tmp_path)):
        async with place_of(case, layout, tmp_path) as (place, upload_id):
            faults = FaultPlan()
            faults.fail(number, ResponseLostError("lost"), when="after")
            error = await acted(case, place, upload_id, faults)
            assert error is None or isinstance(error, OutcomeUnknownError), repr(error)
            await check(case, place, upload_id, is_done=True if error is None else None)


@pytest.mark.parametrize("name", CASES)
async def test_a_call_fails(layout: LayoutName, tmp_path: Path, name: str) -> None:
    """A call fails for good, and all after it succeed. A definite error says that nothing has
    changed, but of an abort, which is to be repeated."""
    case = CASES[name]
    for number in tried(name, await calls_of(case, layout, tmp_path)):
        async with place_of(case, layout, tmp_path) as (place, upload_id):
            faults = FaultPlan()
            faults.fail(number, ServiceError("no"))
            error = await acted(case, place, upload_id, faults)
            is_unknown = name == "abort" or isinstance(error, OutcomeUnknownError)
            is_done = True if error is None else None if is_unknown else False
            await check(case, place, upload_id, is_done=is_done)


async def test_a_creation_that_dies_leaves_an_upload_that_expires(
    layout: LayoutName, tmp_path: Path
) -> None:
    for when in MOMENTS:
        async with yard(tmp_path, layout=layout) as place:
            faults = FaultPlan()
            async with faulty_client(faults, place.config, place.runtime) as fs:
                faults.die(1, when=when)
                with pytest.raises(Died):
                    await create_upload(fs._volume(), "/f", lifetime=DAY)
            left = await list_uploads(place.volume)
            assert [each.path for each in left] == (["/f"] if when == "after" else [])
            place.clock.advance(2 * DAY)
            assert await expire_uploads(place.volume) == len(left)
            assert await upload_items(place.volume) == 0
