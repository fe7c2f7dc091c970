"""What the pages on deviations say, beyond the old inventories: each test shows one row."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from s3k_async.adapters.hadoop import HadoopFileSystem
from s3k_async.adapters.hadoop.builders import CreateFlag
from s3k_async.adapters.hadoop.status import BlockLocation
from s3k_async.errors import (
    ConflictError,
    NotDirectoryError,
    PathExistsError,
    PathNotFoundError,
    UncommittedFileError,
    UnsupportedError,
)
from tests.hadoop.ground import Ground, collect, names

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_status_has_placeholders_for_what_is_not_set(ground: Ground) -> None:
    await ground.write(ground.path("dir/file"), b"x")

    file = await ground.fs.get_file_status(ground.path("dir/file"))
    directory = await ground.fs.get_file_status(ground.path("dir"))

    assert (file.permission, directory.permission) == (0o666, 0o777)
    assert {file.owner, file.group, directory.owner, directory.group} == {"tester"}
    assert (file.access_time, file.is_symlink, file.has_acl, file.is_erasure_coded) == (
        0,
        False,
        False,
        False,
    )
    assert (directory.length, directory.block_size, directory.replication) == (0, 0, 0)


async def test_the_user_of_the_process_is_the_owner_by_default(ground: Ground) -> None:
    await ground.write(ground.path("file"))

    assert (await HadoopFileSystem(ground.client).get_file_status("/file")).owner


async def test_symbolic_links_are_unsupported(ground: Ground) -> None:
    await ground.write(ground.path("file"), b"x")

    with pytest.raises(UnsupportedError) as raised:
        await ground.fs.create_symlink("/file", "/link", create_parent=True)

    assert isinstance(raised.value, OSError)
    assert await ground.read(ground.path("file")) == b"x"


async def test_nothing_can_be_made_durable_before_close(ground: Ground) -> None:
    async with await ground.fs.create(ground.path("file")) as stream:
        await stream.write(b"x")
        for call in (stream.hflush, stream.hsync):
            with pytest.raises(UnsupportedError):
                await call()
        assert not stream.has_capability("hflush")
        assert not stream.has_capability("hsync")
        await stream.flush()
        assert await ground.is_file(ground.path("file"), 0)
    assert await ground.is_file(ground.path("file"), 1)


async def test_what_the_contract_options_deny_does_not_exist(ground: Ground) -> None:
    await ground.write(ground.path("file"), b"x")

    async with await ground.fs.open(ground.path("file")) as stream:
        assert not hasattr(stream, "unbuffer")
    for name in (
        "get_path_handle",
        "open_path_handle",
        "get_acl_status",
        "create_snapshot",
    ):
        assert not hasattr(ground.fs, name)


async def test_files_are_on_no_host_in_particular(ground: Ground) -> None:
    await ground.write(ground.path("dir/file"), bytes(10))

    [located] = await collect(ground.fs.list_located_status("/dir"))

    assert located.block_locations == (BlockLocation(0, 10, ("localhost",)),)
    assert await ground.fs.get_file_block_locations("/dir/file", 9, 1) == located.block_locations
    assert await ground.fs.get_file_block_locations("/dir/file", 10, 1) == ()
    assert await ground.fs.get_file_block_locations("/dir", 0, 1) == ()
    with pytest.raises(ValueError, match="negative"):
        await ground.fs.get_file_block_locations("/dir/file", -1, 1)


async def test_readers_keep_the_bytes_that_they_opened(ground: Ground) -> None:
    await ground.write(ground.path("file"), b"old bytes")

    async with await ground.fs.open(ground.path("file")) as stream:
        await ground.write(ground.path("file"), b"new", overwrite=True)
        await ground.fs.delete(ground.path("file"), recursive=False)
        buffer = bytearray(9)
        await stream.read_fully(0, buffer)

    assert bytes(buffer) == b"old bytes"


async def test_a_writer_that_fails_publishes_nothing(ground: Ground) -> None:
    async def fail() -> None:
        async with await ground.fs.create(ground.path("dir/file")) as stream:
            await stream.write(b"half")
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        await fail()
    stream = await ground.fs.create(ground.path("dir/other"))
    await stream.write(b"half")
    await stream.abort()

    await ground.expect_tree(ground.path(), {"dir": {}})


async def test_a_failed_close_fails_again(ground: Ground) -> None:
    stream = await ground.fs.create(ground.path("file"), overwrite=False)
    await stream.write(b"x")
    await ground.fs.delete(ground.path("file"), recursive=False)

    for _ in range(2):
        with pytest.raises(ConflictError):
            await stream.close()

    assert not await ground.fs.exists(ground.path("file"))


async def test_of_many_creators_without_overwrite_one_wins(ground: Ground) -> None:
    async def create(number: int) -> bool:
        try:
            await ground.write(ground.path("file"), b"%d" % number)
        except PathExistsError:
            return False
        return True

    won = await asyncio.gather(*(create(number) for number in range(8)))

    assert won.count(True) == 1
    assert await ground.read(ground.path("file")) == b"%d" % won.index(True)


@pytest.mark.parametrize(
    ("flags", "over_existing", "of_new"),
    [
        (CreateFlag.CREATE, PathExistsError, None),
        (CreateFlag.OVERWRITE, None, PathNotFoundError),
        (CreateFlag.CREATE | CreateFlag.OVERWRITE, None, None),
        (CreateFlag.CREATE | CreateFlag.APPEND, None, None),
        (CreateFlag.APPEND, None, PathNotFoundError),
        (CreateFlag.OVERWRITE | CreateFlag.APPEND, ValueError, ValueError),
        (CreateFlag(0), ValueError, ValueError),
        (CreateFlag.SYNC_BLOCK, ValueError, ValueError),
    ],
)
async def test_create_non_recursive_obeys_its_flags(
    ground: Ground,
    flags: CreateFlag,
    over_existing: type[Exception] | None,
    of_new: type[Exception] | None,
) -> None:
    await ground.write(ground.path("dir/old"), b"old")

    for name, error in (("old", over_existing), ("new", of_new)):
        path = ground.path(f"dir/{name}")
        if error is None:
            async with await ground.fs.create_non_recursive(path, flags) as stream:
                await stream.write(b"written")
            kept = b"old" if name == "old" and CreateFlag.APPEND in flags else b""
            assert await ground.read(path) == kept + b"written"
        else:
            with pytest.raises(error):
                await ground.fs.create_non_recursive(path, flags)
    assert await ground.fs.exists(ground.path("dir/new")) == (of_new is None)
    if over_existing is not None:
        assert await ground.read(ground.path("dir/old")) == b"old"


async def test_create_non_recursive_makes_no_parent(ground: Ground) -> None:
    with pytest.raises(PathNotFoundError):
        await ground.fs.create_non_recursive(ground.path("absent/file"))
    with pytest.raises(PathNotFoundError):
        await ground.fs.create_file(ground.path("absent/file")).build()
    with pytest.raises(OSError, match="root"):
        await ground.fs.create_non_recursive(ground.path())
    await ground.expect_tree(ground.path(), {})

    async with await ground.fs.create_file(ground.path("made/file")).recursive().build():
        pass
    await ground.expect_tree(ground.path(), {"made": {"file": 0}})


async def test_the_create_builder_refuses_unknown_demands(ground: Ground) -> None:
    with pytest.raises(ValueError, match="unknown mandatory option"):
        await (
            ground.fs.create_file(ground.path("file"))
            .opt("a", 1)
            .must("fs.test.something", 1)
            .build()
        )
    await ground.expect_tree(ground.path(), {})


async def test_a_file_that_is_being_written_is_not_renamed(ground: Ground) -> None:
    async with await ground.fs.create(ground.path("file")) as stream:
        with pytest.raises(UncommittedFileError):
            await ground.fs.rename(ground.path("file"), ground.path("moved"))
        await stream.write(b"x")

    await ground.expect_tree(ground.path(), {"file": 1})


async def test_a_directory_in_which_a_file_is_being_written_stays_as_a_whole(
    ground: Ground,
) -> None:
    """It was moved but for that file before renames of directories were atomic."""
    await ground.write(ground.path("dir/done"), b"x")
    async with await ground.fs.create(ground.path("dir/open")) as stream:
        with pytest.raises(UncommittedFileError) as raised:
            await ground.fs.rename("/dir", "/new")
        await stream.write(b"xy")
    assert isinstance(raised.value, OSError)
    await ground.expect_tree(ground.path(), {"dir": {"done": 1, "open": 2}})

    assert await ground.fs.rename("/dir", "/new") is True

    await ground.expect_tree(ground.path(), {"new": {"done": 1, "open": 2}})


async def test_an_interrupted_rename_into_a_directory_does_not_nest(ground: Ground) -> None:
    await ground.write(ground.path("source/file"), b"x")
    await ground.fs.mkdirs(ground.path("target"))
    entry = await ground.volume.store.get("/source")
    assert entry is not None
    half = replace(entry, path="/target/source", version=entry.version + 1)
    await ground.volume.store.restore(half, None)

    assert await ground.fs.rename("/source", "/target") is True

    await ground.expect_tree(ground.path(), {"target": {"source": {"file": 1}}})


async def test_of_racing_renames_of_one_source_one_wins(ground: Ground) -> None:
    await ground.write(ground.path("file"), b"x")

    outcomes = await asyncio.gather(
        *(ground.fs.rename("/file", f"/moved-{number}") for number in range(8)),
        return_exceptions=True,
    )

    assert outcomes.count(True) == 1
    assert sum(isinstance(outcome, PathNotFoundError) for outcome in outcomes) == 7
    assert await ground.names("/") == [f"moved-{outcomes.index(True)}"]


async def test_of_racing_renames_to_one_target_one_wins(ground: Ground) -> None:
    for number in range(8):
        await ground.write(ground.path(f"file-{number}"), b"%d" % number)

    outcomes = await asyncio.gather(
        *(ground.fs.rename(f"/file-{number}", "/target") for number in range(8))
    )

    assert outcomes.count(True) == 1
    assert await ground.read(ground.path("target")) == b"%d" % outcomes.index(True)
    assert len(await ground.names("/")) == 8


async def test_delete_through_a_file_finds_nothing(ground: Ground) -> None:
    await ground.write(ground.path("file"), b"x")

    assert await ground.fs.delete(ground.path("file/below"), recursive=True) is False
    assert not await ground.fs.exists(ground.path("file/below"))
    with pytest.raises(FileNotFoundError):
        await ground.fs.open(ground.path("file/below"))
    with pytest.raises(FileNotFoundError):
        await ground.fs.list_status(ground.path("file/below"))


async def test_mkdirs_through_a_file_names_the_file(ground: Ground) -> None:
    await ground.write(ground.path("dir/file"), b"x")

    with pytest.raises(NotDirectoryError) as raised:
        await ground.fs.mkdirs(ground.path("dir/file/a/b"))

    assert raised.value.path == "/dir/file"


async def test_the_time_of_a_directory_is_that_of_its_making(ground: Ground) -> None:
    await ground.fs.mkdirs(ground.path("dir"))
    before = await ground.fs.get_file_status(ground.path("dir"))

    await ground.write(ground.path("dir/file"), b"x")

    assert await ground.fs.get_file_status(ground.path("dir")) == before


async def test_a_file_that_is_being_written_is_listed_and_counts_for_nothing(
    ground: Ground,
) -> None:
    await ground.write(ground.path("dir/done"), b"xyz")

    async with await ground.fs.create(ground.path("dir/open")):
        assert names(await ground.fs.list_status("/dir")) == ["done", "open"]
        assert sorted(names(await collect(ground.fs.list_files("/dir", recursive=True)))) == [
            "done",
            "open",
        ]
        summary = await ground.fs.get_content_summary("/dir")
        assert (summary.length, summary.file_count, summary.directory_count) == (3, 1, 1)


async def test_the_log_keeps_every_version(ground: Ground) -> None:
    await ground.write(ground.path("file"), b"1")
    await ground.write(ground.path("file"), b"22", overwrite=True)
    entry = await ground.volume.store.get("/file")
    assert entry is not None

    await ground.expect_log({"/file": (3, 2)})
    await ground.fs.delete(ground.path("file"), recursive=False)
    await ground.write(ground.path("file"), b"333")

    await ground.expect_log({"/file": (2, 3)})
    assert await ground.tombstones() == {"/file"}
    again = await ground.volume.store.get("/file")
    assert again is not None
    assert again.id != entry.id


async def test_deleted_bytes_stay_for_garbage_collection(ground: Ground) -> None:
    await ground.write(ground.path("file"), b"x")
    entry = await ground.volume.store.get("/file")
    assert entry is not None
    assert entry.physical is not None

    await ground.fs.delete(ground.path("file"), recursive=False)

    assert await ground.volume.storage.read(entry.physical) == b"x"
