"""What a restore decides: of one object, and of all of them together."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import get_args

import pytest

from s3k_async.backends.ports.pagination import list_all
from s3k_async.integrity.restore_rules import (
    OBJECTS,
    RestoreDecision,
    RuleName,
    decide_restore,
)
from s3k_async.integrity.rule_table import RuleCoverage
from s3k_async.layouts.tree.trash_items import TrashedDirectory
from s3k_async.model import (
    UNCOMMITTED,
    Entry,
    LayoutName,
)
from s3k_async.oplog.entries import LogRecord, Operation
from s3k_async.table.stored_reader import ROOT_ENTRY
from tests.integrity.restore_ground import REACHED, Ground, by_the_rules, new_ground, rules


@pytest.fixture(params=["path", "tree"])
async def ground(request: pytest.FixtureRequest) -> Ground:
    """In both layouts."""
    return await new_ground(request.param)


@pytest.fixture
async def path_ground() -> Ground:
    return await new_ground("path")


@pytest.fixture
async def tree_ground() -> Ground:
    return await new_ground("tree")


LAYOUTS: Mapping[str, Sequence[LayoutName]] = {
    "ground": ("path", "tree"),
    "path_ground": ("path",),
    "tree_ground": ("tree",),
}
"""The layouts of each fixture."""


async def test_what_was_committed_comes_back_as_it_was(ground: Ground) -> None:
    directory, empty, file = (
        ground.directory("/d"),
        ground.directory("/d/empty"),
        await ground.file("/d/f"),
    )
    await ground.made(directory, empty, file)
    renamed = ground.moved(file, "/d/g")
    await ground.commit(renamed)
    restored, report = await ground.restored()
    assert restored == {"/d": directory, "/d/empty": empty, "/d/g": renamed.after}
    assert (report.files, report.directories, report.bytes, report.clean) == (1, 2, 3, True)


async def test_a_file_whose_object_has_the_id_of_another_file_comes_back(ground: Ground) -> None:
    """As after a load that gave one of two files with the same id another one."""
    other = ground.runtime.physical_key(ground.runtime.uuid())
    await ground.data.put(other, b"xxx")
    file = replace(await ground.file("/f", stored=False), physical=other)
    lost = replace(file, path="/g", id=ground.runtime.uuid(), physical=f"{other[:-1]}z")
    await ground.made(file, lost)
    restored, report = await ground.restored()
    assert restored == {"/f": file}
    assert report.counts == {"bytes_missing": 1, "committed": 1}


async def test_empty_directories_keep_their_ids_and_times(ground: Ground) -> None:
    empty = replace(ground.directory("/empty"), ctime=7, mtime_ms=7_777)
    await ground.made(empty)
    assert (await ground.restored())[0] == {"/empty": empty}


async def test_a_tombstone_keeps_what_was_deleted_deleted(ground: Ground) -> None:
    file = await ground.file("/f")
    await ground.made(file)
    await ground.commit(ground.change("delete", file, None))
    restored, report = await ground.restored()
    assert restored == {}
    assert report.counts == {"deleted": 1}


async def test_a_pending_update_whose_bytes_are_there_is_rolled_forward(ground: Ground) -> None:
    new, old = await ground.file("/new"), await ground.file("/old")
    await ground.made(old)
    over = replace(
        old,
        version=3,
        physical=ground.runtime.physical_key(old.id),
        size=9,
        operation=ground.runtime.uuid(),
    )
    await ground.data.put(str(over.physical), b"y" * 9)
    await ground.begin(ground.change("update", None, new))
    await ground.begin(ground.change("update", old, over))
    restored, report = await ground.restored()
    assert restored == {"/new": new, "/old": over}
    assert rules(report) == [("update_done", "/new"), ("update_done", "/old")]
    assert report.clean


@pytest.mark.parametrize("stored", [None, b"short"])
async def test_a_pending_update_without_its_bytes_is_rolled_back(
    ground: Ground, stored: bytes | None
) -> None:
    new, old = await ground.file("/new", stored=False), await ground.file("/old")
    await ground.made(old)
    over = replace(
        old, version=3, physical=ground.runtime.physical_key(old.id), size=9, operation="o"
    )
    if stored is not None:
        await ground.data.put(str(over.physical), stored)
    await ground.begin(ground.change("update", None, new))
    await ground.begin(ground.change("update", old, over))
    restored, report = await ground.restored()
    assert restored == {"/old": old}
    assert rules(report) == [("update_undone", "/new"), ("update_undone", "/old")]


async def test_a_later_operation_proves_the_pending_one_before_it(ground: Ground) -> None:
    """The mark of a removal can be lost for good, and so can that of what came before a rename."""
    file = await ground.file("/a")
    await ground.made(file)
    first = ground.moved(file, "/b")
    assert first.after is not None
    second = ground.moved(first.after, "/c")
    await ground.begin(first)
    await ground.begin(second)
    restored, report = await ground.restored()
    assert restored == {"/c": second.after}
    assert rules(report) == [("rename_done", "/c")]


async def test_a_pending_rename_is_taken_as_done(ground: Ground) -> None:
    file = await ground.file("/a")
    await ground.made(file)
    rename = ground.moved(file, "/b")
    await ground.begin(rename)
    assert (await ground.restored())[0] == {"/b": rename.after}


async def test_a_pending_rename_over_a_file_takes_its_path(ground: Ground) -> None:
    source, target = await ground.file("/a"), await ground.file("/b")
    await ground.made(source, target)
    rename = ground.moved(source, "/b")
    await ground.begin(rename, ground.change("delete", target, None))
    restored, report = await ground.restored()
    assert restored == {"/b": rename.after}
    assert rules(report) == [("delete_done", "/b"), ("rename_done", "/b")]


async def test_a_pending_rename_yields_to_what_is_certainly_at_its_target(ground: Ground) -> None:
    source, target = await ground.file("/a"), await ground.file("/b")
    await ground.made(source, target)
    await ground.begin(ground.moved(source, "/b"))
    restored, report = await ground.restored()
    assert restored == {"/a": source, "/b": target}
    assert rules(report) == [("yielded", "/a")]
    assert report.clean


async def test_a_pending_creation_yields_to_who_was_there(ground: Ground) -> None:
    file, rival = await ground.file("/a"), await ground.file("/a")
    await ground.made(file)
    await ground.begin(ground.change("update", None, rival))
    restored, report = await ground.restored()
    assert restored == {"/a": file}
    assert rules(report) == [("yielded", "/a")]


async def test_a_pending_removal_is_not_carried_out(ground: Ground) -> None:
    file = await ground.file("/a")
    await ground.made(file)
    await ground.begin(ground.change("delete", file, None))
    restored, report = await ground.restored()
    assert restored == {"/a": file}
    assert rules(report) == [("delete_undone", "/a")]
    assert not report.clean


async def test_a_pending_removal_in_a_directory_that_was_removed_has_happened(
    ground: Ground,
) -> None:
    top, below, file = ground.directory("/d"), ground.directory("/d/e"), await ground.file("/d/e/f")
    await ground.made(top, below, file)
    await ground.begin(ground.change("delete", file, None))
    await ground.commit(ground.change("delete", below, None))
    await ground.commit(ground.change("delete", top, None))
    restored, report = await ground.restored()
    assert restored == {}
    assert rules(report) == [("delete_done", "/d/e/f")]


async def test_a_directory_that_was_not_wholly_prepared_stays_where_it_was(
    path_ground: Ground,
) -> None:
    ground = path_ground
    top, below, one, two = (
        ground.directory("/a"),
        ground.directory("/a/x"),
        await ground.file("/a/one"),
        await ground.file("/a/x/two"),
    )
    single = await ground.file("/single")
    await ground.made(top, below, one, two, single)
    await ground.begin(ground.moved(top, "/b"))
    await ground.begin(ground.moved(one, "/b/one"), ground.moved(below, "/b/x"))
    alone = ground.moved(single, "/elsewhere")
    await ground.begin(alone)
    restored, report = await ground.restored()
    assert restored == {
        "/a": top,
        "/a/x": below,
        "/a/one": one,
        "/a/x/two": two,
        "/elsewhere": alone.after,
    }
    assert report.counts["rename_undone"] == 3
    assert report.clean


async def test_a_directory_whose_every_part_was_prepared_is_moved(path_ground: Ground) -> None:
    ground = path_ground
    top, file = ground.directory("/a"), await ground.file("/a/f")
    await ground.made(top, file)
    moves = [ground.moved(top, "/b"), ground.moved(file, "/b/f")]
    await ground.begin(*moves)
    restored, _ = await ground.restored()
    assert restored == {move.after.path: move.after for move in moves if move.after}


async def test_a_directory_made_anew_at_the_old_place_does_not_bring_the_moved_one_back(
    path_ground: Ground,
) -> None:
    ground = path_ground
    top, file = ground.directory("/a"), await ground.file("/a/f")
    await ground.made(top, file)
    moves = [ground.moved(top, "/b"), ground.moved(file, "/b/f")]
    await ground.begin(*moves)
    again, other = ground.directory("/a"), await ground.file("/a/f")
    await ground.made(again, other)
    restored, _ = await ground.restored()
    assert restored == {
        "/a": again,
        "/a/f": other,
        **{move.after.path: move.after for move in moves if move.after},
    }


async def test_files_whose_bytes_are_missing_are_told_and_not_restored(ground: Ground) -> None:
    lost, short = await ground.file("/lost", stored=False), await ground.file("/short", 5)
    await ground.data.put(str(short.physical), b"x")
    await ground.made(lost, short)
    restored, report = await ground.restored()
    assert restored == {}
    assert rules(report) == [("bytes_missing", "/lost"), ("bytes_missing", "/short")]
    assert not report.clean


async def test_two_objects_that_claim_a_path_are_told_and_neither_is_chosen(ground: Ground) -> None:
    one, two, other = await ground.file("/f"), await ground.file("/f"), await ground.file("/g")
    await ground.made(one, two, other)
    restored, report = await ground.restored()
    assert restored == {"/g": other}
    assert rules(report) == [("path_conflict", "/f")] * 2
    assert all(one.id in outcome.detail and two.id in outcome.detail for outcome in report.outcomes)


async def test_an_object_with_two_last_versions_is_told(ground: Ground) -> None:
    file = await ground.file("/f")
    await ground.made(file)
    await ground.commit(ground.moved(file, "/g"))
    await ground.commit(ground.moved(file, "/h"))
    restored, report = await ground.restored()
    assert restored == {}
    assert [outcome.rule for outcome in report.problems] == ["log_conflict"]


async def test_rivals_that_are_pending_are_told_and_what_was_before_is_restored(
    ground: Ground,
) -> None:
    file = await ground.file("/f")
    await ground.made(file)
    await ground.begin(ground.moved(file, "/g"))
    await ground.begin(ground.moved(file, "/h"))
    restored, report = await ground.restored()
    assert restored == {"/f": file}
    assert [outcome.rule for outcome in report.problems] == ["rivals"]


async def test_missing_parents_are_made_the_same_every_time(path_ground: Ground) -> None:
    ground = path_ground
    file = replace(await ground.file("/a/b/c/f"), ctime=77)
    await ground.made(file)
    restored, report = await ground.restored()
    assert restored.keys() == {"/a", "/a/b", "/a/b/c", "/a/b/c/f"}
    assert {
        (restored[path].ctime, restored[path].version) for path in ("/a", "/a/b", "/a/b/c")
    } == {(77, 1)}
    assert report.counts["parent_made"] == 3
    assert (await ground.restored())[0] == restored


async def test_what_is_below_a_file_is_told_and_not_restored(path_ground: Ground) -> None:
    ground = path_ground
    file, below = await ground.file("/a"), await ground.file("/a/b/f")
    await ground.made(file, below)
    restored, report = await ground.restored()
    assert restored == {"/a": file}
    assert rules(report) == [("parent_is_file", "/a/b/f")]


async def test_reservations_come_back_while_their_lease_runs(ground: Ground) -> None:
    base = await ground.file("/f")
    held = replace(
        base,
        version=1,
        size=0,
        physical=UNCOMMITTED,
        committed=False,
        lease_ms=ground.clock.now_ms() + 1,
    )
    over = replace(
        held, id=ground.runtime.uuid(), path="/g", lease_ms=ground.clock.now_ms() - 1, operation="x"
    )
    await ground.commit(ground.change("create", None, held))
    await ground.commit(ground.change("create", None, over))
    restored, report = await ground.restored()
    assert restored == {"/f": held}
    assert rules(report) == [("reservation_kept", "/f"), ("reservation_over", "/g")]


async def test_adopted_files_are_restored_unseen(ground: Ground) -> None:
    file = replace(await ground.file("/f", stored=False), physical="s3://elsewhere/file")
    await ground.made(file)
    restored, report = await ground.restored()
    assert restored == {"/f": file}
    assert rules(report) == [("adopted", "/f")]


async def test_a_pending_directory_is_made(ground: Ground) -> None:
    directory = ground.directory("/d")
    await ground.begin(ground.change("create", None, directory))
    assert (await ground.restored())[0] == {"/d": directory}


async def test_write_intents_are_not_restored(ground: Ground) -> None:
    file = replace(await ground.file("/f"), pending='{"job":"j","then":"here"}')
    await ground.made(file)
    assert (await ground.restored())[0] == {"/f": replace(file, pending="")}


async def test_a_part_of_the_tree(ground: Ground) -> None:
    top, one, two = ground.directory("/a"), await ground.file("/a/one"), await ground.file("/ab")
    await ground.made(top, one, two)
    assert (await ground.restored("/a", []))[0] == {"/a": top, "/a/one": one}
    assert (await ground.restored("/a/one", [top]))[0] == {"/a/one": one}


async def test_existing_entries_are_not_replaced(ground: Ground) -> None:
    top, one, two = ground.directory("/a"), await ground.file("/a/one"), await ground.file("/a/two")
    await ground.made(top, one, two)
    elsewhere = replace(one, path="/moved")
    other = await ground.file("/a/two")
    restored, report = await ground.restored("/", [elsewhere, other])
    assert restored == {"/a": top}
    assert report.counts == {"committed": 1, "present": 1, "occupied": 1}
    assert rules(report) == [("occupied", "/a/two")]


async def test_damage_in_the_log_is_told(ground: Ground) -> None:
    await ground.made(await ground.file("/f"))
    await ground.log_blobs.put("segments/x.pending", b"?")
    restored, report = await ground.restored()
    assert restored.keys() == {"/f"}
    assert rules(report) == [("log_damaged", "segments/x.pending")]
    assert not report.clean


async def test_nothing_is_removed_for_a_pending_operation(ground: Ground) -> None:
    old = await ground.file("/old")
    await ground.made(old)
    over = replace(
        old, version=3, physical=ground.runtime.physical_key(old.id), size=9, operation="o"
    )
    await ground.data.put(str(over.physical), b"y" * 9)
    await ground.begin(ground.change("update", old, over))
    before = (
        [info async for info in list_all(ground.data)],
        [info async for info in list_all(ground.log_blobs)],
    )
    await ground.restored()
    after = (
        [info async for info in list_all(ground.data)],
        [info async for info in list_all(ground.log_blobs)],
    )
    assert after == before


def test_nothing_known_of_a_pending_reservation() -> None:
    entry = Entry("/f", False, "a", 1, 1, 1, physical=UNCOMMITTED, lease_ms=5)
    record = LogRecord(Operation("o", "create", "a", 1, 1, None, entry), "pending")
    assert decide_restore([record], {}, 4) == RestoreDecision(
        "reservation_kept",
        entry,
        detail="create to version 1 is pending",
        path="/f",
        last=entry,
        newest=1,
    )
    assert decide_restore([record], {}, 5).rule == "reservation_over"


async def test_a_pending_reclamation_is_taken_as_done(tree_ground: Ground) -> None:
    """Files below the directory may be deleted, so it must not come back as one that can be
    restored."""
    ground = tree_ground
    directory, file = ground.directory("/d"), await ground.file("/d/f")
    trashed = ground.trashed(directory)
    await ground.made(directory, file)
    await ground.commit(trashed)
    begun = ground.trashed(trashed.after or directory, "reclaiming")
    await ground.begin(begun)
    restored, report = await ground.restored()
    assert rules(report) == [("reclaimed", f"/.trash/{directory.id}")]
    assert restored.keys() == {f"/.trash/{directory.id}", f"/.trash/{directory.id}/f"}
    item = TrashedDirectory.from_item(ground.items[directory.id], ground.keys)
    assert (item.entry, item.deletion) == (begun.after, begun.trash)
    assert report.clean


async def test_pending_reservations_are_kept_while_their_leases_run(ground: Ground) -> None:
    now_ms = ground.clock.now_ms()
    running, over = (
        Entry(
            path,
            False,
            ground.runtime.uuid(),
            1,
            1,
            1,
            physical=UNCOMMITTED,
            lease_ms=lease_ms,
            operation=ground.runtime.uuid(),
            directory=ground.parent(path),
        )
        for path, lease_ms in (("/running", now_ms + 1_000), ("/over", now_ms))
    )
    for entry in (running, over):
        await ground.begin(ground.change("create", None, entry))
    restored, report = await ground.restored()
    assert restored == {"/running": running}
    assert rules(report) == [("reservation_kept", "/running"), ("reservation_over", "/over")]


async def test_a_pending_rename_of_a_file_without_bytes_restores_nothing(ground: Ground) -> None:
    file = await ground.file("/f", stored=False)
    await ground.made(file)
    await ground.begin(ground.moved(file, "/g"))
    restored, report = await ground.restored()
    assert restored == {}
    assert rules(report) == [("bytes_missing", "/g")]


async def test_states_of_the_layout_before_a_change_are_not_restored(ground: Ground) -> None:
    """The log has them of objects that the table did not have when its layout was changed."""

    def was(entry: Entry) -> Entry:
        return replace(entry, directory=ROOT_ENTRY.id if ground.layout == "path" else "")

    directory = ground.directory("/d")
    kept, lost, removed, new = [await ground.file(f"/d/{name}") for name in "klrn"]
    await ground.made(directory, kept)
    await ground.made(was(lost), was(removed))
    await ground.begin(ground.change("delete", was(removed), None))
    await ground.begin(ground.change("update", None, was(new)))
    for path in ("/", "/d"):
        restored, report = await ground.restored(path)
        assert restored == {"/d": directory, "/d/k": kept}
        assert rules(report) == [("other_layout", f"/d/{name}") for name in "lnr"]
        assert not report.clean
    _, report = await ground.restored("/elsewhere")
    assert rules(report) == []


async def test_a_change_of_the_layout_that_was_not_finished_is_undone(ground: Ground) -> None:
    """The mark names the old layout until all copies are committed."""
    file = await ground.file("/f")
    await ground.made(file)
    directory = ROOT_ENTRY.id if ground.layout == "path" else ""
    copy = replace(file, version=3, operation=ground.runtime.uuid(), directory=directory)
    await ground.begin(ground.change("update", None, copy))
    restored, report = await ground.restored()
    assert restored == {"/f": file}
    assert rules(report) == [("update_undone", "/f")]
    assert report.clean


async def test_every_rule_is_reached() -> None:
    """By the tests above, which may have run in another process."""
    REACHED.clear()
    with RuleCoverage() as reached, by_the_rules():
        for name, scene in list(globals().items()):
            arguments = (
                list(inspect.signature(scene).parameters) if name.startswith("test_") else []
            )
            for layout in LAYOUTS.get(arguments[0] if arguments else "", ()):
                await scene(await new_ground(layout), *([None] * (len(arguments) - 1)))
    assert set(get_args(RuleName)) == REACHED
    assert {rule for _, rule in reached} == set(OBJECTS.rules)


async def test_a_made_directory_that_was_renamed_keeps_its_id(path_ground: Ground) -> None:
    """Another one that is made at its path has another id."""
    ground = path_ground
    file = await ground.file("/d/f")
    await ground.made(file)
    made = (await ground.restored())[0]["/d"]
    await ground.made(made)
    moves = ground.moved(made, "/x"), ground.moved(file, "/x/f")
    await ground.commit(*moves)
    other = await ground.file("/d/g")
    await ground.made(other)
    restored, report = await ground.restored()
    assert restored.keys() == {"/x", "/x/f", "/d", "/d/g"}
    assert restored["/x"].id == made.id != restored["/d"].id
    assert rules(report) == [("parent_made", "/d")]
    existing = [move.after for move in moves if move.after is not None]
    assert (await ground.restored("/", existing))[0] == {
        path: restored[path] for path in ("/d", "/d/g")
    }
