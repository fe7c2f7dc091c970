"""What rules of directories and metadata of files do, and when."""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from s3k_async.attributes import Attributes
from s3k_async.backends.ports.items import PARTITION
from s3k_async.client import S3kClient
from s3k_async.errors import (
    ArgumentTypeError,
    InvalidArgumentError,
    ItemFormatError,
    NotDirectoryError,
    PathNotFoundError,
    PermissionDeniedError,
    ServiceError,
    UnsupportedError,
)
from s3k_async.lifecycle_rules import DueAction, LifecycleRule, RulesResult
from s3k_async.namespace.due_items import RULE_PARTITION, SUFFIXES, rule_from
from s3k_async.objects import ObjectStore
from s3k_async.testing import Call
from s3k_async.volumes import init_volume
from tests.client.rig import memory_config
from tests.lifecycle.ruled import DAY, HOUR, Ruled

pytestmark = pytest.mark.layouts("path", "tree")

NOTHING = RulesResult()


def metadata(**values: object) -> Attributes:
    return Attributes(metadata={name: str(value).encode() for name, value in values.items()})


async def test_a_file_expires_at_its_time_and_not_before(place: Ruled, fs: S3kClient) -> None:
    await fs.set_rule("/d", expire_after=100)
    await fs.write("/d/x/f", b"1")
    await fs.write("/other", b"2")
    assert await fs.run_rules() == RulesResult(scanned=1)
    place.clock.advance(99.999)
    assert await fs.run_rules() == NOTHING
    assert [each async for each in fs.due_actions()] == []
    place.clock.advance(0.001)
    due_ms = place.clock.now_ms()
    wanted = DueAction("/d/x/f", "expire", due_ms)
    assert [each async for each in fs.due_actions()] == [wanted]
    assert await place.paths() == {"/d/x/f", "/other"}
    assert await fs.run_rules() == RulesResult(expired=1)
    assert await place.paths() == {"/other"}
    assert await place.due_items() == []
    assert await place.findings() == []


async def test_a_file_becomes_read_only_and_then_expires(place: Ruled, fs: S3kClient) -> None:
    await fs.set_rule("/d", read_only_after=10, expire_after=100)
    written = await fs.write("/d/f", b"1")
    place.clock.advance(9.999)
    assert (await fs.run_rules()).read_only == 0
    place.clock.advance(0.001)
    assert (await fs.run_rules()).read_only == 1
    found = await fs.stat("/d/f")
    assert found.attributes.read_only
    assert found.mtime_ms == written.mtime_ms
    for change in (fs.delete("/d/f"), fs.write("/d/f", b"2")):
        with pytest.raises(PermissionDeniedError):
            await change
    place.clock.advance(89.999)
    assert await fs.run_rules() == NOTHING
    place.clock.advance(0.001)
    assert await fs.run_rules() == RulesResult(expired=1)
    assert await place.paths() == set()
    assert await place.findings() == []


async def test_both_due_expires(place: Ruled, fs: S3kClient) -> None:
    await fs.set_rule("/d", read_only_after=10, expire_after=100)
    await fs.write("/d/f", b"1")
    place.clock.advance(DAY)
    assert await fs.run_rules() == RulesResult(expired=1, scanned=1)


async def test_a_change_prolongs_and_metadata_of_a_file_comes_first(
    place: Ruled, fs: S3kClient
) -> None:
    await fs.set_rule("/d", expire_after=100)
    for name in ("written", "touched", "left", "chmod", "sooner"):
        await fs.write(f"/d/{name}", b"1")
    await fs.run_rules()
    await fs.set_attributes("/d/sooner", metadata={"ExpiresAfter": b"20"})
    await fs.write("/d/longer", b"1", attributes=metadata(ExpiresAfter=1000))
    await fs.write("/d/shorter", b"1", attributes=metadata(ExpiresAfter=70))
    await fs.write("/d/at", b"1", attributes=metadata(ExpiresAt=int(place.clock.seconds) + 20))
    place.clock.advance(60)
    await fs.write("/d/written", b"2")
    await fs.touch("/d/touched")
    await fs.set_attributes("/d/chmod", mode=0o600)
    assert (await fs.run_rules()).expired == 2
    place.clock.advance(40)
    assert (await fs.run_rules()).expired == 3
    assert await place.paths() == {"/d/written", "/d/touched", "/d/longer"}
    place.clock.advance(60)
    assert (await fs.run_rules()).expired == 2
    place.clock.advance(840)
    assert (await fs.run_rules()).expired == 1
    assert await place.paths() == set()
    place.clock.advance(2 * DAY)  # what is left of a file that expired earlier
    await fs.run_rules()
    assert await place.due_items() == []
    assert await place.findings() == []


async def test_metadata_without_any_rule(place: Ruled, fs: S3kClient) -> None:
    await fs.write("/f", b"1")
    await fs.write("/g", b"1", attributes=metadata(ReadOnlyAfter=5, other=1))
    await fs.set_attributes("/f", metadata={"ExpiresAt": b"%d" % (place.clock.seconds + 50)})
    await fs.write("/gone", b"1", attributes=metadata(ExpiresAfter=5))
    await fs.set_attributes("/gone", metadata={"ExpiresAfter": None})
    await fs.rename("/f", "/h")
    place.clock.advance(50)
    result = await fs.run_rules()
    assert (result.expired, result.read_only) == (1, 1)
    assert await place.paths() == {"/g", "/gone"}
    assert (await fs.stat("/g")).attributes.read_only


async def test_a_file_that_takes_the_place_of_one_that_was_to_expire(
    place: Ruled, fs: S3kClient
) -> None:
    """In s3mper the older row of the index removed the entry of the new file."""
    await fs.write("/f", b"1", attributes=metadata(ExpiresAfter=50))
    await fs.delete("/f")
    await fs.write("/f", b"2")
    await fs.write("/g", b"1", attributes=metadata(ExpiresAfter=50))
    place.clock.advance(25)
    await fs.delete("/g")
    await fs.write("/g", b"2", attributes=metadata(ExpiresAfter=50))
    place.clock.advance(25)
    assert (await fs.run_rules()).expired == 0
    assert await place.paths() == {"/f", "/g"}
    place.clock.advance(25)
    assert (await fs.run_rules()).expired == 1
    assert await place.paths() == {"/f"}


async def test_the_items_of_an_hour_are_in_many_partitions(place: Ruled, fs: S3kClient) -> None:
    """In s3mper all were in one."""
    await fs.set_rule("/d", expire_after=100)
    await fs.write_many([(f"/d/{number}", b"") for number in range(100)])
    assert len({item[PARTITION] for item in await place.due_items()}) > SUFFIXES // 2


async def test_a_past_time_is_due_at_once(place: Ruled, fs: S3kClient) -> None:
    await fs.run_rules()
    await fs.write("/f", b"1", attributes=metadata(ExpiresAt=1))
    assert await fs.run_rules() == RulesResult(expired=1)


async def test_the_nearest_rule_applies_for_each_action(place: Ruled, fs: S3kClient) -> None:
    await fs.set_rule("/", expire_after=1000)
    await fs.set_rule("/a", expire_after=10, read_only_after=5)
    await fs.set_rule("/a/b", expire_after=100)
    for path in ("/f", "/a/f", "/a/b/f", "/a/bc/f"):
        await fs.write(path, b"1")
    place.clock.advance(5)
    assert (await fs.run_rules()).read_only == 3
    place.clock.advance(5)
    assert (await fs.run_rules()).expired == 2
    assert await place.paths() == {"/f", "/a/b/f"}
    await fs.remove_rule("/a/b")
    place.clock.advance(5)
    assert (await fs.run_rules()).expired == 1
    assert await place.paths() == {"/f"}
    assert await fs.rules() == [
        LifecycleRule("/", expire_after=1000),
        LifecycleRule("/a", expire_after=10, read_only_after=5),
    ]


async def test_a_rule_of_names(place: Ruled, fs: S3kClient) -> None:
    """The files in the directory, and below directories in it, as by the prefix of S3 keys."""
    rule = await fs.set_rule("/logs", name_prefix="2026-1", expire_after=10)
    assert rule == LifecycleRule("/logs", expire_after=10, name_prefix="2026-1")
    kept = {"/logs/2026-0", "/logs/2026", "/logs/x/2026-1", "/2026-1", "/logs2026-1/f"}
    for path in ("/logs/2026-1", "/logs/2026-12.log", "/logs/2026-11/a/f", *kept):
        await fs.write(path, b"1")
    place.clock.advance(10)
    assert (await fs.run_rules()).expired == 3
    assert await place.paths() == kept
    assert await place.due_items() == []
    assert await place.findings() == []


async def test_files_that_are_there_when_a_rule_of_names_is_set(
    place: Ruled, fs: S3kClient
) -> None:
    for path in ("/d/tmp", "/d/tmp1/f", "/d/other", "/tmp"):
        await fs.write(path, b"1")
    await fs.set_rule("/d", name_prefix="tmp", read_only_after=1)
    await fs.set_rule("/", name_prefix="t", expire_after=1)
    place.clock.advance(1)
    assert {(each.path, each.action) async for each in fs.due_actions()} == {
        ("/d/tmp", "read_only"),
        ("/d/tmp1/f", "read_only"),
        ("/tmp", "expire"),
    }
    result = await fs.run_rules()
    assert (result.expired, result.read_only) == (1, 2)
    assert await place.paths() == {"/d/tmp", "/d/tmp1/f", "/d/other"}


async def test_the_longest_prefix_is_the_nearest_rule(place: Ruled, fs: S3kClient) -> None:
    await fs.set_rule("/a", name_prefix="ab", expire_after=100)
    await fs.set_rule("/a", expire_after=10, read_only_after=5)
    await fs.set_rule("/a", name_prefix="abc", expire_after=200)
    await fs.set_rule("/a/abcd", expire_after=1000)
    for path in ("/a/a", "/a/ab", "/a/abc/x/f", "/a/abcd/f"):
        await fs.write(path, b"1")
    place.clock.advance(5)
    assert (await fs.run_rules()).read_only == 4
    for seconds, left in ((5, 3), (90, 2), (100, 1)):
        place.clock.advance(seconds)
        assert (await fs.run_rules()).expired == 1
        assert len(await place.paths()) == left
    await fs.remove_rule("/a/abcd")
    assert await fs.rules() == [
        LifecycleRule("/a", expire_after=10, read_only_after=5),
        LifecycleRule("/a", expire_after=100, name_prefix="ab"),
        LifecycleRule("/a", expire_after=200, name_prefix="abc"),
    ]
    assert (await fs.run_rules()).expired == 1


async def test_rules_of_names_are_changed_one_by_one(place: Ruled, fs: S3kClient) -> None:
    """Neither a directory of that name, nor a rule of the directory above, is the same place."""
    await fs.set_rule("/a", name_prefix="b", expire_after=10)
    with pytest.raises(PathNotFoundError, match="names that begin with 'bc'"):
        await fs.remove_rule("/a", name_prefix="bc")
    for path in ("/a", "/a/b"):
        with pytest.raises(PathNotFoundError, match="has no lifecycle rule: "):
            await fs.remove_rule(path)
    of_directory = await fs.set_rule("/a/b", expire_after=20)
    changed = await fs.set_rule("/a", name_prefix="b", expire_after=30)
    assert await fs.rules() == [changed, of_directory]
    await fs.remove_rule("/a", name_prefix="b")
    assert await fs.rules() == [of_directory]


async def test_a_rule_of_names_is_damaged_without_its_prefix(place: Ruled, fs: S3kClient) -> None:
    """So a version that does not know prefixes does not apply it to the whole directory."""
    rule = await fs.set_rule("/a", name_prefix="b", expire_after=10)
    (item,) = [each for each in await place.stored() if each[PARTITION] == RULE_PARTITION]
    assert rule_from(item) == rule
    with pytest.raises(ItemFormatError):
        rule_from({name: value for name, value in item.items() if name != "prefix"})


async def test_a_move_to_and_from_names_of_a_rule(place: Ruled, fs: S3kClient) -> None:
    await fs.makedirs("/d")
    await fs.set_rule("/d", name_prefix="old", expire_after=10)
    await fs.run_rules()
    place.clock.advance(2 * HOUR)
    await fs.run_rules()  # the requested scans are over
    for path in ("/d/new/f", "/d/old/f", "/d/old.txt", "/d/new.txt"):
        await fs.write(path, b"1")
    await fs.rename("/d/old", "/d/kept")
    await fs.rename("/d/new", "/d/old-1")
    await fs.rename("/d/old.txt", "/d/kept.txt")
    await fs.rename("/d/new.txt", "/d/old-1.txt")
    place.clock.advance(10)
    assert (await fs.run_rules()).expired == 2
    assert await place.paths() == {"/d/kept/f", "/d/kept.txt"}


@pytest.mark.parametrize("prefix", ["a/b", "/", "a/", "\0", "\ud800", "x" * 1025])
async def test_a_name_prefix_that_no_name_has(fs: S3kClient, prefix: str) -> None:
    with pytest.raises(InvalidArgumentError, match="name prefix") as raised:
        await fs.set_rule("/d", name_prefix=prefix, expire_after=1)
    assert raised.value.path == "/d"
    with pytest.raises(InvalidArgumentError, match="name prefix"):
        await fs.remove_rule("/d", name_prefix=prefix)
    assert await fs.rules() == []


async def test_a_name_prefix_is_text(fs: S3kClient) -> None:
    with pytest.raises(ArgumentTypeError, match="name prefix"):
        await fs.set_rule("/d", name_prefix=b"x", expire_after=1)  # type: ignore[arg-type]


async def test_a_name_prefix_may_be_any_start_of_a_name(place: Ruled, fs: S3kClient) -> None:
    for number, prefix in enumerate((".", "..", " ", "*", "x" * 1024, "\n", "é")):
        await fs.set_rule("/", name_prefix=prefix, expire_after=100 + number)
        await fs.write(f"/{prefix}"[:1000] + "f", b"1")
    assert len(await fs.rules()) == 7
    place.clock.advance(200)
    assert (await fs.run_rules()).expired == 6
    assert await place.findings() == []


async def test_a_rule_that_becomes_longer(place: Ruled, fs: S3kClient) -> None:
    await fs.set_rule("/d", expire_after=100)
    await fs.write("/d/f", b"1")
    await fs.set_rule("/d", expire_after=200)
    place.clock.advance(199)
    assert (await fs.run_rules()).expired == 0
    place.clock.advance(1)
    assert (await fs.run_rules()).expired == 1


async def test_a_rule_with_a_time(place: Ruled, fs: S3kClient) -> None:
    await fs.write("/d/f", b"1")
    at = datetime.fromtimestamp(place.clock.seconds + 100, UTC)
    await fs.set_rule("/d", expire_at=at, read_only_after=timedelta(days=3))
    assert await fs.rules() == [
        LifecycleRule("/d", expire_at=int(at.timestamp()), read_only_after=3 * 86_400)
    ]
    place.clock.advance(99.999)
    assert (await fs.run_rules()).expired == 0
    place.clock.advance(0.001)
    assert (await fs.run_rules()).expired == 1


@pytest.mark.parametrize(
    "values",
    [{}, {"expire_after": 0}, {"expire_after": -1}, {"expire_at": 10**13}, {"read_only_after": 0}],
)
async def test_a_rule_needs_values_in_range(fs: S3kClient, values: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        await fs.set_rule("/d", **values)
    assert raised.value.path == "/d"
    assert await fs.rules() == []


async def test_a_time_needs_a_zone(fs: S3kClient) -> None:
    with pytest.raises(InvalidArgumentError, match="time zone"):
        await fs.set_rule("/d", expire_at=datetime(2030, 1, 1))  # noqa: DTZ001 - refused


async def test_a_change_of_a_rule_is_true_although_everything_fails_after_it(
    place: Ruled, fs: S3kClient
) -> None:
    """The rules are read again by what needs them, not by the change."""

    async def changed(change: Awaitable[object]) -> None:
        made = len(place.faults.calls)

        def is_later(call: Call) -> bool:
            before = place.faults.calls[made : call.number - 1]
            return any(each.method == "transact" for each in before)

        place.faults.fail_when(is_later, ServiceError("no"), times=10**9)
        await change
        place.faults._faults.clear()

    await fs.write("/d/f", b"1")
    await changed(fs.set_rule("/d", expire_after=100))
    await fs.write("/d/g", b"2")
    assert len(await place.due_items()) == 1
    await changed(fs.remove_rule("/d"))
    assert await fs.rules() == []


async def test_a_missing_rule_is_not_removed(fs: S3kClient) -> None:
    with pytest.raises(PathNotFoundError) as raised:
        await fs.remove_rule("/d")
    assert raised.value.path == "/d"


@pytest.mark.parametrize("rate", [0, -1.0])
async def test_a_rate_is_positive(fs: S3kClient, rate: float) -> None:
    with pytest.raises(InvalidArgumentError):
        await fs.run_rules(rate=rate)


@pytest.mark.parametrize("name", ["ExpiresAt", "ExpiresAfter", "ReadOnlyAfter"])
@pytest.mark.parametrize("value", [b"", b"soon", b"1.5", b"-1", b"0", b"9" * 20, b" 1"])
async def test_malformed_metadata_is_refused(
    place: Ruled, fs: S3kClient, name: str, value: bytes
) -> None:
    await fs.write("/f", b"1")
    with pytest.raises(InvalidArgumentError, match=name):
        await fs.set_attributes("/f", metadata={name: value})
    with pytest.raises(InvalidArgumentError, match=name):
        await fs.write("/g", b"1", attributes=Attributes(metadata={name: value}))
    assert await place.paths() == {"/f"}


async def test_retention_cannot_be_shortened(place: Ruled, fs: S3kClient) -> None:
    attributes = metadata(ExpiresAfter=100, ReadOnlyAfter=10, n=1)
    await fs.write("/f", b"1", attributes=attributes)
    place.clock.advance(10)
    assert (await fs.run_rules()).read_only == 1
    for values in ({"ExpiresAfter": b"1"}, {"ExpiresAfter": None}, {"ExpiresAt": b"1"}):
        with pytest.raises(PermissionDeniedError, match="--writable"):
            await fs.set_attributes("/f", metadata=values)
    await fs.set_attributes("/f", metadata={"n": b"2"})
    await fs.set_attributes("/f", read_only=False)
    await fs.set_attributes("/f", metadata={"ExpiresAfter": None, "ReadOnlyAfter": None})
    place.clock.advance(DAY)
    result = await fs.run_rules()
    assert (result.expired, result.read_only) == (0, 0)
    assert await place.due_items() == []


async def test_a_volume_without_the_feature() -> None:
    config = memory_config()
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        for call in (
            fs.set_rule("/d", expire_after=1),
            fs.remove_rule("/d"),
            fs.rules(),
            fs.run_rules(),
            anext(aiter(fs.due_actions())),
        ):
            with pytest.raises(UnsupportedError, match="s3k migrate --enable rules"):
                await call
        await fs.write("/f", b"", attributes=Attributes(metadata={"ExpiresAfter": b"soon"}))
        assert (await fs.stat("/f")).attributes.metadata == {"ExpiresAfter": b"soon"}


async def test_uncommitted_files_and_directories_do_not_expire(place: Ruled, fs: S3kClient) -> None:
    await fs.set_rule("/d", expire_after=10)
    await fs.makedirs("/d/e")
    async with fs.open("/d/f", "wb") as file:
        place.clock.advance(100)
        assert (await fs.run_rules()).expired == 0
        await file.write(b"1")
    assert (await fs.run_rules()).expired == 0
    place.clock.advance(10)
    assert (await fs.run_rules()).expired == 1
    assert await fs.is_dir("/d/e")


async def test_a_dry_run_writes_nothing(place: Ruled, fs: S3kClient) -> None:
    await fs.write("/d/old", b"1")
    await fs.set_rule("/d", expire_after=10)
    await fs.write("/d/new", b"1")
    await fs.write("/own", b"1", attributes=metadata(ReadOnlyAfter=1))
    place.clock.advance(3 * HOUR)
    before = sorted(map(str, await place.stored()))
    place.faults.calls.clear()
    found = {(each.path, each.action) async for each in fs.due_actions()}
    assert found == {("/d/old", "expire"), ("/d/new", "expire"), ("/own", "read_only")}
    table = await fs.due_actions().to_arrow()
    assert set(zip(table["path"].to_pylist(), table["action"].to_pylist(), strict=True)) == found
    methods = {call.method for call in place.faults.calls}
    assert methods <= {"get", "get_many", "query"}
    assert sorted(map(str, await place.stored())) == before
    result = await fs.run_rules()
    assert (result.expired, result.read_only) == (2, 1)
    assert [each async for each in fs.due_actions()] == []


async def test_a_dry_run_lists_a_file_once(place: Ruled, fs: S3kClient) -> None:
    """Items of former versions are in the index until a run removes them."""
    await fs.set_rule("/d", expire_after=10)
    await fs.set_rule("/at", expire_at=place.clock.now_ms() // 1000 + 60)
    await fs.run_rules()
    place.clock.advance(2 * HOUR)
    await fs.run_rules()  # the requested scans are over
    names = ("/d/rewritten", "/d/appended", "/d/first", "/d/second", "/at/changed", "/own")
    for path in names:
        await fs.write(path, b"1", attributes=metadata(ExpiresAfter=1) if path == "/own" else None)
    place.clock.advance(1)
    await fs.write("/d/rewritten", b"2")
    async with fs.open("/d/appended", "ab") as file:
        await file.write(b"2")
    await fs.exchange("/d/first", "/d/second")
    await fs.set_attributes("/at/changed", uid=7)
    await fs.write("/own", b"2")
    place.clock.advance(3 * HOUR)
    assert sorted([each.path async for each in fs.due_actions()]) == sorted(names)
    assert (await fs.run_rules()).expired == len(names)


async def test_a_dry_run_lists_the_present_path(place: Ruled, fs: S3kClient) -> None:
    """An older item of the file has its former path."""
    await fs.run_rules()
    place.clock.advance(2 * HOUR)
    await fs.run_rules()
    await fs.write("/old/f", b"1", attributes=metadata(ExpiresAfter=60))
    await fs.rename("/old", "/new")
    place.clock.advance(30)
    await fs.write("/new/f", b"2", attributes=metadata(ExpiresAfter=60))
    place.clock.advance(5 * HOUR)
    assert [each.path async for each in fs.due_actions()] == ["/new/f"]
    assert (await fs.run_rules()).expired == 1


async def test_a_dry_run_lists_a_file_in_the_place_of_a_directory_with_a_rule(
    place: Ruled, fs: S3kClient
) -> None:
    """A listing of the directory is requested, and there is none."""
    await fs.set_rule("/", expire_after=50)
    await fs.set_rule("/a", expire_after=500)
    await fs.run_rules()
    place.clock.advance(2 * HOUR)
    await fs.run_rules()
    await fs.write("/a", b"1")
    place.clock.advance(60)
    assert [each.path async for each in fs.due_actions()] == ["/a"]
    assert (await fs.run_rules()).expired == 1


async def test_a_rule_of_a_file_is_refused(place: Ruled, fs: S3kClient) -> None:
    await fs.write("/d/f", b"1")
    with pytest.raises(NotDirectoryError, match="ExpiresAfter="):
        await fs.set_rule("/d/f", expire_after=1)
    with pytest.raises(NotDirectoryError):
        await ObjectStore(fs).set_rule("d", "f/", expire_after=1)
    assert await fs.rules() == []
    assert await place.stored() == []
    await fs.set_rule("/", expire_after=1)
    await fs.set_rule("/none", expire_after=1)


async def test_a_rate_is_a_positive_number(fs: S3kClient) -> None:
    for wrong in ("x", True, b"1"):
        with pytest.raises(ArgumentTypeError, match="rate"):
            await fs.run_rules(rate=wrong)  # type: ignore[arg-type]
    for rate in (0, -1.5, float("nan")):
        with pytest.raises(InvalidArgumentError, match="rate"):
            await fs.run_rules(rate=rate)


async def test_a_malformed_value_is_refused_when_an_upload_begins(fs: S3kClient) -> None:
    objects = ObjectStore(fs)
    await objects.create_bucket("b")
    with pytest.raises(InvalidArgumentError, match="ExpiresAfter"):
        await objects.create_upload(
            "b", "k", attributes=Attributes(metadata={"ExpiresAfter": b"7 days"})
        )
    assert await objects.list_uploads("b") == []
