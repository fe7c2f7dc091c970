"""Owners, groups, sticky directories and defaults in a volume that evaluates permissions."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace

import pytest

from s3k_async._core.runtime import SYSTEM
from s3k_async.attributes import Attributes
from s3k_async.backends.ports.items import Delete
from s3k_async.bulk.expected_objects import (
    ExpectedObject,
    delete_expected,
    delete_seen,
    rename_expected,
)
from s3k_async.client import S3kClient, volume_of
from s3k_async.config import LogMode, VolumeConfig
from s3k_async.errors import (
    DirectoryNotEmptyError,
    PartialFailureError,
    PathNotFoundError,
    PermissionDeniedError,
)
from s3k_async.integrity.object_owner import owner_of
from s3k_async.integrity.repair import repair_volume
from s3k_async.model import LayoutName
from s3k_async.namespace import access_control
from s3k_async.namespace.access_control import KNOWN_SECONDS
from s3k_async.objects import ObjectStore, byte_ranges
from s3k_async.table.codec import unchanged
from s3k_async.volumes import init_volume, open_volume
from tests.client.permission_scenes import in_transaction
from tests.client.rig import memory_config
from tests.client.test_permissions import acting, everything

pytestmark = pytest.mark.layouts("path", "tree")

A, B, C = 1000, 1001, 1002
SHARED = 2000


async def volume(layout: LayoutName, log_mode: LogMode = "native") -> VolumeConfig:
    """A volume whose root belongs to the superuser, and `/d` to A, with mode 0777."""
    config = replace(memory_config(layout=layout), log_mode=log_mode)
    await init_volume(acting(config, 0, 0).config, enable=["permissions"])
    async with acting(config, 0, 0) as root:
        await root.makedirs("/d")
        await root.set_attributes("/d", mode=0o777, uid=A, gid=A)
    return config


async def refused(call: Awaitable[object], path: str) -> None:
    with pytest.raises(PermissionDeniedError) as raised:
        await call
    assert raised.value.path == path


# New entries


async def test_a_new_entry_is_that_of_its_creator(layout: LayoutName) -> None:
    config = await volume(layout)
    async with acting(config, B, SHARED, B) as fs:
        await fs.write("/d/a/b/f", b"1")
        await fs.write_many([("/d/x/g", b"1")])
        await fs.makedirs("/d/m/n")
        async with fs.open("/d/w", "wb") as file:
            await file.write(b"1")
        async with fs.transaction() as transaction:
            await transaction.write("/d/t/f", b"1")
            await transaction.makedirs("/d/t/n")
        await fs.touch("/d/touched")
        await fs.append("/d/appended", b"1")
        found = await everything(fs)
        del found["/d"]
        for path, status in found.items():
            mode = 0o755 if status.is_dir else 0o644
            assert status.attributes == Attributes(mode, B, SHARED), path
        assert len(found) == 13


async def test_given_attributes_are_those_of_a_new_file(layout: LayoutName) -> None:
    config = await volume(layout)
    async with acting(config, B, B, SHARED) as fs:
        given = Attributes(0o600, gid=SHARED, metadata={"n": b"1"})
        made = await fs.write("/d/f", b"1", attributes=given)
        assert made.attributes == replace(given, uid=B)
        await refused(fs.write("/d/g", b"1", attributes=Attributes(uid=C)), "/d/g")
        await refused(fs.write("/d/g", b"1", attributes=Attributes(gid=C)), "/d/g")
        assert not await fs.exists("/d/g")
    async with acting(config, 0, 0) as fs:
        made = await fs.write("/d/g", b"1", attributes=Attributes(uid=C, gid=C))
        assert made.attributes == Attributes(0o644, C, C)


async def test_an_overwritten_file_keeps_owner_and_mode(layout: LayoutName) -> None:
    config = await volume(layout)
    async with acting(config, A, A) as fs:
        await fs.write("/d/f", b"1", attributes=Attributes(0o666))
    async with acting(config, B, B) as fs:
        await fs.write("/d/f", b"2")
        await fs.write("/d/f", b"3", attributes=Attributes(0o600, metadata={"n": b"1"}))
        async with fs.transaction() as transaction:
            await transaction.write("/d/f", b"4")
        assert (await fs.stat("/d/f")).attributes == Attributes(0o666, A, A, metadata={"n": b"1"})


async def test_a_copy_belongs_to_who_made_it(layout: LayoutName) -> None:
    config = await volume(layout)
    async with acting(config, A, A) as fs:
        await fs.write("/d/s/f", b"1", attributes=Attributes(0o6777, metadata={"n": b"1"}))
        await fs.set_attributes("/d/s", mode=0o750, gid=A)
    async with acting(config, B, A) as fs:
        await fs.copy("/d/s/f", "/d/f")
        assert (await fs.stat("/d/f")).attributes == Attributes(0o755, B, A, metadata={"n": b"1"})
        await fs.copy("/d/s", "/d/t", recursive=True)
        assert (await fs.stat("/d/t")).attributes == Attributes(0o750, B, A)
        assert (await fs.stat("/d/t/f")).attributes.uid == B
        await fs.copy("/d/s", "/d/t", recursive=True, overwrite=True)
        assert (await fs.stat("/d/t")).attributes == Attributes(0o750, B, A)


async def test_an_entry_without_values_is_that_of_the_superuser(layout: LayoutName) -> None:
    config = memory_config(layout=layout)
    await init_volume(acting(config, 0, 0).config, enable=["permissions"])
    async with acting(config, 0, 0) as fs:
        volume_of(fs).store.access.is_evaluated = False  # as before the flag was there
        await fs.write("/d/f", b"1")
        before = await everything(fs)
        assert {each.attributes for each in before.values()} == {Attributes()}
    async with acting(config, B, B) as fs:
        assert await fs.read("/d/f") == b"1"
        assert await everything(fs) == before
        await refused(fs.write("/d/f", b"2"), "/d/f")
        await refused(fs.write("/d/g", b"2"), "/d")
        await refused(fs.write("/g", b"2"), "/")
        await refused(fs.makedirs("/g"), "/")
        await refused(fs.set_attributes("/d", mode=0o777), "/d")
    async with acting(config, 0, 0) as fs:
        await fs.write("/d/g", b"2")


async def test_the_root_belongs_to_the_creator_of_the_volume(layout: LayoutName) -> None:
    config = memory_config(layout=layout)
    record = await init_volume(acting(config, A, SHARED, A).config, enable=["permissions"])
    assert record.root_owner == f"{A}:{SHARED}"
    async with acting(config, A, SHARED) as fs:
        await fs.write("/f", b"1")
    for gid in (B, SHARED):
        async with acting(config, B, gid) as fs:
            assert set(await everything(fs)) == {"/f"}
            await refused(fs.write("/g", b"1"), "/")
            await refused(fs.delete("/f"), "/")
            await refused(fs.rename("/f", "/g"), "/")


async def test_the_identity_is_that_of_the_process_by_default(
    layout: LayoutName, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = await volume(layout)
    monkeypatch.setattr("os.geteuid", lambda: B)
    monkeypatch.setattr("os.getegid", lambda: SHARED)
    monkeypatch.setattr("os.getgroups", lambda: [C, SHARED])
    async with S3kClient(config=config) as fs:
        assert (await fs.write("/d/f", b"1")).attributes == Attributes(0o644, B, SHARED)
        identity = volume_of(fs).store.access.identity
        assert (identity.uid, identity.gids) == (B, (SHARED, C))


# Owners


async def test_only_the_owner_changes_mode_time_and_read_only(layout: LayoutName) -> None:
    config = await volume(layout)
    async with acting(config, A, A) as fs:
        await fs.write("/d/f", b"1", attributes=Attributes(0o777))
    for uid, gid in ((B, A), (C, C)):
        async with acting(config, uid, gid) as fs:
            await refused(fs.set_attributes("/d/f", mode=0o700), "/d/f")
            await refused(fs.set_attributes("/d/f", mtime_ms=5), "/d/f")
            await refused(fs.set_attributes("/d/f", read_only=True), "/d/f")
            await refused(fs.set_attributes("/d/f", metadata={"n": b""}, mode=0), "/d/f")
            await fs.set_attributes("/d/f", metadata={"n": b""})
    for uid in (A, 0):
        async with acting(config, uid, uid) as fs:
            await fs.set_attributes("/d/f", mode=0o700 + uid % 7, mtime_ms=uid)
            await fs.set_attributes("/d/f", read_only=True)
            await fs.set_attributes("/d/f", read_only=False)


async def test_only_the_superuser_gives_entries_away(layout: LayoutName) -> None:
    config = await volume(layout)
    async with acting(config, A, A, SHARED) as fs:
        await fs.write("/d/f", b"1")
        await refused(fs.set_attributes("/d/f", uid=B), "/d/f")
        await refused(fs.set_attributes("/d/f", gid=B), "/d/f")
        await fs.set_attributes("/d/f", uid=A, gid=SHARED)
    async with acting(config, B, SHARED, B) as fs:
        await refused(fs.set_attributes("/d/f", uid=B), "/d/f")
        await refused(fs.set_attributes("/d/f", gid=B), "/d/f")
    async with acting(config, 0, 0) as fs:
        await fs.set_attributes("/d/f", uid=B, gid=B)
        assert (await fs.stat("/d/f")).attributes == Attributes(0o644, B, B)


# Sticky directories


async def test_in_a_sticky_directory_only_owners_remove_and_rename(layout: LayoutName) -> None:
    config = await volume(layout)
    async with acting(config, 0, 0) as root:
        await root.set_attributes("/d", mode=0o1777)
        await root.makedirs("/e")
        await root.set_attributes("/e", mode=0o777)
    async with acting(config, B, B) as fs:
        for path in ("/d/f", "/d/s/g", "/d/empty/x"):
            await fs.write(path, b"1")
        await fs.delete("/d/empty/x")
        for path in ("/d/s", "/d/f"):
            await fs.set_attributes(path, mode=0o777)
    async with acting(config, C, C) as fs:
        before = await everything(fs)
        await fs.write("/e/h", b"1")
        for call, path in (
            (fs.delete("/d/f"), "/d/f"),
            (fs.delete("/d/empty"), "/d/empty"),
            (fs.delete("/d/s", recursive=True), "/d/s"),
            (fs.rename("/d/f", "/e/f"), "/d/f"),
            (fs.rename("/d/s", "/e/s"), "/d/s"),
            (fs.rename("/e/h", "/d/f", overwrite=True), "/d/f"),
            (fs.exchange("/e/h", "/d/f"), "/d/f"),
        ):
            await refused(call, path)
        for verb in ("delete", "rename"):
            more = ("/e/f",) if verb == "rename" else ()
            await refused(in_transaction(fs, verb, "/d/f", *more), "/d/f")
        for done in (fs.delete_many(["/d/f"]), fs.rename_many([("/d/f", "/e/f")])):
            [(path, error)] = (await done).failures
            assert path == "/d/f"
            assert isinstance(error, PermissionDeniedError)
        await fs.write("/d/f", b"2")  # the content is a matter of the file
        await fs.write("/d/new", b"1")
        await fs.delete("/d/new")
        await fs.delete("/e/h")
        assert set(await everything(fs)) == set(before)
    async with acting(config, B, B) as fs:
        await fs.delete("/d/f")
    async with acting(config, A, A) as fs:  # the owner of the directory
        await fs.delete("/d/s", recursive=True)


async def test_metadata_of_a_sticky_directory_is_the_owners(layout: LayoutName) -> None:
    config = await volume(layout)
    async with acting(config, B, B) as fs:
        await fs.set_attributes("/d", metadata={"n": b"1"})
    async with acting(config, A, A) as fs:
        await fs.set_attributes("/d", mode=0o1777)
        await fs.set_attributes("/d", metadata={"n": b"2"})
    async with acting(config, B, B) as fs:
        await refused(fs.set_attributes("/d", metadata={"n": b"3"}), "/d")


async def test_a_tree_is_removed_if_its_entries_may_be(layout: LayoutName) -> None:
    config = await volume(layout)
    async with acting(config, B, B) as fs:
        await fs.write("/d/s/x/y/f", b"1")
        await fs.makedirs("/d/s/x/empty")
        for path in ("/d/s", "/d/s/x"):
            await fs.set_attributes(path, mode=0o777)
        await fs.set_attributes("/d/s/x/empty", mode=0)
    async with acting(config, C, C) as fs:
        if layout == "path":  # in layout `tree` what is below is detached, unread
            before = await everything_of(config)
            await refused(fs.delete("/d/s", recursive=True), "/d/s/x/y")
            await refused(fs.delete("/d/s", recursive=True, atomic=False), "/d/s/x/y")
            assert await everything_of(config) == before
            async with acting(config, B, B) as own:
                await own.set_attributes("/d/s/x/y", mode=0o1777)
            await refused(fs.delete("/d/s", recursive=True), "/d/s/x/y/f")
            async with acting(config, B, B) as own:
                await own.set_attributes("/d/s/x/y", mode=0o777)
        await fs.delete("/d/s", recursive=True)


async def everything_of(config: VolumeConfig) -> object:
    async with acting(config, 0, 0) as root:
        return await everything(root)


async def test_a_directory_that_is_replaced_is_removed(layout: LayoutName) -> None:
    config = await volume(layout)
    async with acting(config, B, B) as fs:
        await fs.write("/d/s/x/f", b"1")
        await fs.set_attributes("/d/s", mode=0o777)

    async def replaced(fs: S3kClient) -> None:
        async with fs.transaction() as transaction:
            await transaction.replace("/d/s")
            await transaction.write("/d/s/y/g", b"2")

    async with acting(config, C, C) as fs:
        if layout == "path":
            await refused(replaced(fs), "/d/s/x")
        else:
            async with acting(config, B, B) as own:
                await own.set_attributes("/d/s", mode=0o755)
            await refused(replaced(fs), "/d/s")
        assert await fs.read("/d/s/x/f") == b"1"
    async with acting(config, B, B) as fs:
        await replaced(fs)
        assert await fs.read("/d/s/y/g") == b"2"
        assert not await fs.exists("/d/s/x")


async def test_what_moves_in_a_transaction_is_evaluated_at_both_ends(layout: LayoutName) -> None:
    config = await volume(layout)
    async with acting(config, A, A) as fs:
        await fs.write("/d/f", b"1")
        await fs.makedirs("/d/closed")
        await fs.makedirs("/d/s")

    async with acting(config, B, B) as fs:
        for source in ("/d/f", "/d/s"):
            await refused(in_transaction(fs, "rename", source, "/d/closed/x"), "/d/closed")
            await in_transaction(fs, "rename", source, "/d/moved")
            await in_transaction(fs, "rename", "/d/moved", source)

        async def into_new() -> None:
            async with fs.transaction() as transaction:
                await transaction.makedirs("/d/new")
                await transaction.rename("/d/f", "/d/new/f")

        await into_new()
        assert (await fs.stat("/d/new/f")).attributes.uid == A


async def test_what_was_seen_is_evaluated_when_it_is_changed(layout: LayoutName) -> None:
    """By the bulk verbs of Spark and fsspec, which change exactly what a listing has shown."""
    config = await volume(layout)
    async with acting(config, A, A) as fs:
        for path in ("/d/s/f", "/d/s/g", "/d/s/x/h"):
            await fs.write(path, b"1")
    async with acting(config, B, B) as fs:
        before = await everything(fs)
        seen = [status for path, status in before.items() if path.startswith("/d/s/")]
        errors = await delete_seen(fs, seen)
        assert errors.keys() == {"/d/s/f", "/d/s/g", "/d/s/x/h", "/d/s/x"}
        assert isinstance(errors["/d/s/f"], PermissionDeniedError)
        meant = [ExpectedObject(each.path, each.id, each.version) for each in seen]
        [file] = [each for each in meant if each.path == "/d/s/f"]
        moved = await rename_expected(fs, [(file, "/d/new")], overwrite=False)
        assert isinstance(moved["/d/s/f"], PermissionDeniedError)
        [directory] = [each for each in meant if each.path == "/d/s/x"]
        removed = await delete_expected(fs, [directory], recursive=True)
        assert isinstance(removed["/d/s/x"], PermissionDeniedError)
        assert await everything(fs) == before


# The trash


@pytest.mark.layouts("tree")
async def test_the_trash_gives_directories_back_to_their_owners(layout: LayoutName) -> None:
    config = await volume(layout)
    async with acting(config, B, B) as fs:
        await fs.write("/d/s/f", b"1")
    async with acting(config, A, A) as fs:
        await fs.makedirs("/d/own")
        await fs.delete("/d/own", recursive=True)
        await refused(fs.delete("/d/s", recursive=True), "/d/s")
    async with acting(config, B, B) as fs:
        await fs.delete("/d/s", recursive=True)
    async with acting(config, C, C) as fs:
        items = {each.was: each for each in await fs.trash().list()}
        with pytest.raises(PermissionDeniedError):
            await fs.trash().restore("/d/s")
        with pytest.raises(PermissionDeniedError):
            async for _ in fs.trash().walk(items["/d/s"]):
                pass
        with pytest.raises(PermissionDeniedError):
            await fs.trash().summary(items["/d/s"])
        emptied = await fs.trash().empty()
        assert {path for path, _ in emptied.failures} == {"/d/s", "/d/own"}
        with pytest.raises(PermissionDeniedError):
            await fs.trash().set_retention(5)
        assert await fs.trash().retention() == 86_400
    async with acting(config, B, B) as fs:
        assert (await fs.trash().restore("/d/s")).path == "/d/s"
        assert await fs.read("/d/s/f") == b"1"
    async with acting(config, 0, 0) as fs:
        await fs.trash().set_retention(5)
        assert (await fs.trash().empty()).directories == 1


# Objects


async def test_a_multipart_upload_is_evaluated_when_it_begins_and_when_it_ends(
    layout: LayoutName,
) -> None:
    config = await volume(layout)
    async with acting(config, A, A) as fs:
        await fs.write("/d/f", b"1")
        await fs.makedirs("/d/own")
    async with acting(config, B, B) as fs:
        objects = ObjectStore(fs)
        with pytest.raises(PermissionDeniedError):
            await objects.create_upload("d", "f")
        with pytest.raises(PermissionDeniedError):
            await objects.create_upload("d", "own/new")
        upload = await objects.create_upload("d", "new")
        await objects.put_part(upload.id, 1, b"1")
        async with acting(config, A, A) as own:
            await own.set_attributes("/d", mode=0o755)
            await own.delete("/d/own")
    async with acting(config, B, B) as fs:
        objects = ObjectStore(fs)
        with pytest.raises(PermissionDeniedError):
            await objects.complete_upload(upload.id)
        assert not await fs.exists("/d/new")
        with pytest.raises(PermissionDeniedError):
            await objects.set_metadata("d", "f", "n", b"1")
        with pytest.raises(PermissionDeniedError):
            await objects.create_bucket("e")
        with pytest.raises(PermissionDeniedError):
            await objects.delete("d", "f")
        assert await objects.read("d", "f") == b"1"
    async with acting(config, A, A) as fs:
        made = await ObjectStore(fs).complete_upload(upload.id)
        assert made.attributes == Attributes(0o644, A, A)


# What is not evaluated


async def test_repairs_are_not_those_of_an_identity(layout: LayoutName) -> None:
    # Without a log, layout `path` creates the directory anew.
    config = await volume(layout, "disabled" if layout == "path" else "native")
    async with acting(config, 0, 0) as root:
        await root.write("/p/q/f", b"1")
        store = volume_of(root).store
        entry = await store.get("/p/q")
        assert entry is not None
        await store.items.write(Delete(store.keys.of(entry), unchanged(entry)))
    async with acting(config, C, C) as fs:
        # It creates a directory where this identity could not.
        await repair_volume(volume_of(fs), dry_run=False, grace=0)
        [found] = [each async for each in fs.list("/", recursive=True) if each.name == "f"]
        assert (await fs.stat(found.path.rpartition("/")[0])).attributes.uid == 0
        await refused(fs.makedirs("/p/other"), "/p")


# Time


async def test_a_file_whose_mode_changes_before_the_write_is_not_written(
    layout: LayoutName,
) -> None:
    config = await volume(layout)
    async with acting(config, A, A) as own, acting(config, B, B) as fs:
        await own.write("/d/f", b"1", attributes=Attributes(0o666))
        store = volume_of(fs).store
        publish = store.publish
        changed = False

        async def late(*arguments: object, **named: object) -> object:
            nonlocal changed
            if not changed:
                changed = True
                await own.set_attributes("/d/f", mode=0o600)
            return await publish(*arguments, **named)  # type: ignore[arg-type]

        store.publish = late  # type: ignore[method-assign,assignment]
        await refused(fs.write("/d/f", b"2"), "/d/f")
        assert await own.read("/d/f") == b"1"


async def test_directories_are_as_they_were_some_seconds_before(layout: LayoutName) -> None:
    config = await volume(layout)
    now = 0.0
    runtime = replace(SYSTEM, monotonic=lambda: now)
    opened = await open_volume(acting(config, B, B).config, runtime=runtime)
    try:
        async with acting(config, A, A) as own:
            await own.write("/d/f", b"1")
            assert await opened.store.get("/d/f") is not None
            await own.set_attributes("/d", mode=0o700)
            now = KNOWN_SECONDS - 0.1
            if layout == "path":
                assert await opened.store.get("/d/f") is not None
            else:  # which reads them in any case
                await refused(opened.store.get("/d/f"), "/d")
            now = KNOWN_SECONDS
            await refused(opened.store.get("/d/f"), "/d")
    finally:
        await opened.close()


@pytest.mark.layouts("tree")
async def test_directories_are_not_trusted(layout: LayoutName) -> None:
    config = await volume(layout)
    trusting = acting(config, B, B).config
    trusting = replace(trusting, tuning=replace(trusting.tuning, directory_trust=60.0))
    async with acting(config, A, A) as own, S3kClient(config=trusting) as fs:
        await own.write("/d/s/f", b"1")
        assert await fs.read("/d/s/f") == b"1"
        await own.set_attributes("/d", mode=0o700)
        await refused(fs.read("/d/s/f"), "/d")


async def test_what_the_client_changes_itself_is_seen_at_once(layout: LayoutName) -> None:
    config = await volume(layout)
    async with acting(config, A, A) as fs:
        await fs.write("/d/f", b"1")
        await fs.set_attributes("/d", mode=0o077)
        await refused(fs.stat("/d/f"), "/d")
        await fs.set_attributes("/d", mode=0o700)
        await fs.rename("/d/f", "/d/g")


async def test_more_directories_than_are_kept_are_evaluated(
    layout: LayoutName, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = await volume(layout)
    async with acting(config, A, A) as fs:
        for number in range(5):
            await fs.write(f"/d/{number}/f", b"1")
        await fs.set_attributes("/d/0", mode=0)
    monkeypatch.setattr(access_control, "KNOWN_DIRECTORIES", 2)
    async with acting(config, B, B) as fs:
        found = await fs.read_each([f"/d/{number}/f" for number in range(5)])
        assert [isinstance(each, PermissionDeniedError) for each in found] == [True, *[False] * 4]
        assert [each for each in found if not isinstance(each, Exception)] == [b"1"] * 4
        written = await fs.write_many([(f"/d/{number}/f", b"2") for number in range(5)])
        assert {path for path, _ in written.failures} == {f"/d/{n}/f" for n in range(5)}
        await refused(fs.stat_many([f"/d/{number}/f" for number in range(5)]), "/d/0")


async def test_a_missing_path_below_a_closed_directory_is_denied(layout: LayoutName) -> None:
    config = await volume(layout)
    async with acting(config, A, A) as fs:
        await fs.makedirs("/d/s")
        await fs.set_attributes("/d/s", mode=0o700)
    async with acting(config, B, B) as fs:
        await refused(fs.exists("/d/s/none"), "/d/s")
        await refused(fs.delete("/d/s/none", missing_ok=True), "/d/s")
        with pytest.raises(PathNotFoundError):
            await fs.stat("/d/none")
        with pytest.raises((PermissionDeniedError, PartialFailureError)):
            await fs.copy("/d", "/d2", recursive=True)


# Objects and uploads


@pytest.fixture
def one_byte_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges of any length are copied as long ones are."""
    monkeypatch.setattr(byte_ranges, "LEAST_COPY", 1)


@pytest.mark.usefixtures("one_byte_is_long")
async def test_ranges_of_objects_need_the_permission_to_read(layout: LayoutName) -> None:
    config = await volume(layout)
    async with acting(config, 0, 0) as root, acting(config, B, B) as fs:
        objects = ObjectStore(fs)
        await root.write("/d/secret", b"secret", attributes=Attributes(mode=0o600))
        await objects.put("d", "own", b"own")
        before = await everything(root)
        await refused(objects.create_copy("d", "secret", "new", offset=1), "/d/secret")
        await refused(objects.create_copy("d", "secret", "new"), "/d/secret")
        await refused(objects.write_copy("d", "secret", "own"), "/d/secret")
        await refused(objects.write_copy("d", "secret", "new", source_offset=1), "/d/secret")
        assert await everything(root) == before
        await objects.write_copy("d", "own", "new", source_offset=1)
        assert await objects.read("d", "new") == b"wn"


async def test_an_upload_is_of_those_who_may_write_its_file(layout: LayoutName) -> None:
    config = await volume(layout)
    async with acting(config, 0, 0) as root, acting(config, B, B) as fs:
        objects, others = ObjectStore(root), ObjectStore(fs)
        await root.makedirs("/d/hid")
        await root.set_attributes("/d/hid", mode=0o700)
        upload = await objects.create_upload("d", "hid/name")
        mine = await others.create_upload("d", "open")
        await objects.put_part(upload.id, 0, b"data")
        assert [each.id for each in await others.list_uploads("d")] == [mine.id]
        assert {each.id for each in await objects.list_uploads("d")} == {mine.id, upload.id}
        for call in (
            others.list_parts(upload.id),
            others.put_part(upload.id, 0, b"evil"),
            others.copy_part(upload.id, 0, "d", "hid/name"),
            others.complete_upload(upload.id),
            others.abort_upload(upload.id),
        ):
            with pytest.raises(PermissionDeniedError):
                await call
        await objects.complete_upload(upload.id)
        assert await root.read("/d/hid/name") == b"data"
        await others.put_part(mine.id, 0, b"mine")
        await others.complete_upload(mine.id)
        assert await fs.read("/d/open") == b"mine"


async def test_a_bucket_with_uploads_that_are_not_shown_is_not_empty(layout: LayoutName) -> None:
    config = await volume(layout)
    async with acting(config, 0, 0) as root, acting(config, A, A) as fs:
        await root.set_attributes("/d", mode=0o700)
        await ObjectStore(root).create_upload("d", "name")
        await root.set_attributes("/d", mode=0o500)
        with pytest.raises((DirectoryNotEmptyError, PermissionDeniedError)):
            await ObjectStore(fs).delete_bucket("d")
        assert len(await ObjectStore(root).list_uploads("d")) == 1


async def test_a_search_does_not_depend_on_other_directories(layout: LayoutName) -> None:
    config = await volume(layout)
    tagged = Attributes(metadata={"tag": b"1"})
    async with acting(config, 0, 0) as root, acting(config, B, B) as fs:
        await root.makedirs("/hid")
        await root.makedirs("/d/hid")
        await root.write("/d/seen", b"", attributes=tagged)
        await root.write("/hid/x", b"", attributes=tagged)
        await root.set_attributes("/hid", mode=0o700)
        assert [each.path async for each in fs.find("/d", metadata="tag")] == ["/d/seen"]
        await root.rename("/hid", "/hidden")
        assert [each.path async for each in fs.find("/d", metadata="tag")] == ["/d/seen"]
        await root.write("/d/hid/y", b"", attributes=tagged)
        await root.set_attributes("/d/hid", mode=0o700)
        with pytest.raises(PermissionDeniedError):
            assert [each async for each in fs.find("/d", metadata="tag")]
        found = {each.path async for each in root.find("/", metadata="tag")}
        assert found == {"/d/seen", "/d/hid/y", "/hidden/x"}


async def test_the_owner_of_an_object_is_looked_up_by_the_superuser(layout: LayoutName) -> None:
    config = await volume(layout)
    async with acting(config, 0, 0) as root, acting(config, B, B) as fs:
        key = str((await root.write("/d/f", b"data")).physical)
        assert (await owner_of(volume_of(root), key)).path == "/d/f"
        with pytest.raises(PermissionDeniedError, match="only the superuser"):
            await owner_of(volume_of(fs), key)
