"""What a restore decides in layout `tree`: claims of names in directories that are known by their
ids."""

from __future__ import annotations

from dataclasses import replace

import pytest

from s3k_async.layouts.tree.trash_items import TrashedDirectory
from s3k_async.model import Entry, TrashState
from s3k_async.oplog.entries import Operation
from s3k_async.table.stored_reader import ROOT_ENTRY
from tests.integrity.restore_ground import Ground, new_ground, rules


@pytest.fixture
async def ground() -> Ground:
    return await new_ground("tree")


def after(operation: Operation) -> Entry:
    assert operation.after is not None
    return operation.after


def in_trash(ground: Ground, object_id: str) -> TrashedDirectory:
    """The item of a restored directory in the trash."""
    return TrashedDirectory.from_item(ground.items[object_id], ground.keys)


async def tree_with_file(ground: Ground, path: str = "/d") -> tuple[Entry, Entry]:
    directory = ground.directory(path)
    file = await ground.file(f"{path}/f")
    await ground.made(directory, file)
    return directory, file


async def delete(ground: Ground, directory: Entry, state: TrashState = "") -> None:
    """Move a directory into the trash, and begin its reclamation if `state` says so."""
    trashed = ground.trashed(directory)
    await ground.commit(trashed)
    if state:
        await ground.commit(ground.trashed(after(trashed), state))


async def test_what_is_below_a_renamed_directory_is_at_its_new_path(ground: Ground) -> None:
    """Committed or pending: a rename changes the item of the directory alone."""
    directory, file = await tree_with_file(ground)
    await ground.commit(ground.moved(directory, "/one"))
    first = await ground.restored()
    assert first[0].keys() == {"/one", "/one/f"}
    assert rules(first[1]) == []
    again = ground.moved(replace(directory, version=2, path="/one"), "/two")
    await ground.begin(again)
    restored, report = await ground.restored()
    assert restored == {"/two": after(again), "/two/f": replace(file, path="/two/f")}
    assert rules(report) == [("rename_done", "/two")]


async def test_directories_in_the_trash_have_every_attribute(ground: Ground) -> None:
    directory, file = await tree_with_file(ground)
    trashed = ground.trashed(directory)
    await ground.commit(trashed)
    restored, report = await ground.restored()
    place = f"/.trash/{directory.id}"
    assert restored == {place: after(trashed), f"{place}/f": replace(file, path=f"{place}/f")}
    item = in_trash(ground, directory.id)
    assert (item.entry, item.deletion) == (after(trashed), trashed.trash)
    assert report.clean


async def test_a_pending_move_into_the_trash_is_not_carried_out(ground: Ground) -> None:
    directory, file = await tree_with_file(ground)
    await ground.begin(ground.trashed(directory))
    restored, report = await ground.restored()
    assert restored == {"/d": directory, "/d/f": file}
    assert rules(report) == [("delete_undone", "/d")]
    assert not report.clean


async def test_a_pending_move_into_the_trash_has_happened_if_the_path_is_taken(
    ground: Ground,
) -> None:
    directory, _ = await tree_with_file(ground)
    trashed = ground.trashed(directory)
    await ground.begin(trashed)
    again, file = await tree_with_file(ground)
    restored, report = await ground.restored()
    place = f"/.trash/{directory.id}"
    assert restored.keys() == {"/d", "/d/f", place, f"{place}/f"}
    assert (restored["/d"], restored["/d/f"]) == (again, file)
    assert in_trash(ground, directory.id).deletion == trashed.trash
    assert rules(report) == [("delete_done", place)]
    assert report.clean


async def test_a_pending_move_into_the_trash_has_happened_if_the_parent_was_removed(
    ground: Ground,
) -> None:
    top = ground.directory("/top")
    await ground.made(top)
    directory, _ = await tree_with_file(ground, "/top/d")
    trashed = ground.trashed(directory)
    await ground.begin(trashed)
    await ground.commit(ground.change("delete", top, None))
    restored, report = await ground.restored()
    place = f"/.trash/{directory.id}"
    assert restored.keys() == {place, f"{place}/f"}
    assert in_trash(ground, directory.id).deletion == trashed.trash
    assert rules(report) == [("delete_done", place)]


async def test_a_reclamation_that_began_proves_the_move_before_it(ground: Ground) -> None:
    directory, _ = await tree_with_file(ground)
    trashed = ground.trashed(directory)
    begun = ground.trashed(after(trashed), "reclaiming")
    await ground.begin(trashed)
    await ground.begin(begun)
    _, report = await ground.restored()
    assert in_trash(ground, directory.id).deletion == begun.trash
    assert [rule for rule, _ in rules(report)] == ["reclaimed"]


async def test_of_two_pending_reclamations_one_is_taken_as_done(ground: Ground) -> None:
    directory, _ = await tree_with_file(ground)
    trashed = ground.trashed(directory)
    await ground.commit(trashed)
    for _ in range(2):
        await ground.begin(ground.trashed(after(trashed), "reclaiming"))
    _, report = await ground.restored()
    assert in_trash(ground, directory.id).state == "reclaiming"
    assert report.counts["reclaimed"] == 1


async def test_a_reclamation_and_a_restoration_that_are_pending_delete_nothing(
    ground: Ground,
) -> None:
    directory, _ = await tree_with_file(ground)
    trashed = ground.trashed(directory)
    await ground.commit(trashed)
    await ground.begin(ground.trashed(after(trashed), "reclaiming"))
    await ground.begin(ground.moved(after(trashed), "/back"))
    _, report = await ground.restored()
    assert in_trash(ground, directory.id).deletion == trashed.trash
    assert [outcome.rule for outcome in report.problems] == ["rivals"]


async def test_a_pending_restoration_from_the_trash_is_taken_as_done(ground: Ground) -> None:
    directory, _ = await tree_with_file(ground)
    trashed = ground.trashed(directory)
    await ground.commit(trashed)
    back = ground.moved(after(trashed), "/back")
    await ground.begin(back)
    restored, report = await ground.restored()
    assert restored.keys() == {"/back", "/back/f"}
    assert rules(report) == [("rename_done", "/back")]
    taken = ground.directory("/back")
    await ground.made(taken)
    restored, report = await ground.restored()
    assert restored["/back"] == taken
    assert in_trash(ground, directory.id).deletion == trashed.trash
    assert rules(report) == [("yielded", f"/.trash/{directory.id}")]


async def test_a_state_in_the_trash_whose_own_record_is_lost_stays_for_the_retention(
    ground: Ground,
) -> None:
    directory = ground.directory("/d")
    await ground.made(directory)
    trashed = after(ground.trashed(directory))
    for path in ("/one", "/two"):
        await ground.begin(ground.moved(trashed, path))
    _, report = await ground.restored()
    item = in_trash(ground, directory.id)
    assert (item.why, item.state, item.when_ms) == ("deleted", "", ground.clock.now_ms())
    assert [outcome.rule for outcome in report.problems] == ["rivals"]


async def test_pending_renames_into_each_other_are_not_both_taken_as_done(ground: Ground) -> None:
    directories = []
    for path in ("/a", "/b", "/c"):
        directory, _ = await tree_with_file(ground, path)
        directories.append(directory)
    for source, target in zip(directories, [*directories[1:], directories[0]], strict=True):
        path = f"{target.path}{source.path}"
        await ground.begin(ground.moved(source, path, target.id))
    restored, report = await ground.restored()
    assert {path.rpartition("/")[2] for path in restored} == {"a", "b", "c", "f"}
    assert len(restored) == 6
    assert [rule for rule, _ in rules(report)] == ["rename_done", "rename_done", "rename_undone"]
    first = min(directories, key=lambda each: each.id)
    assert restored[first.path] == first
    assert report.clean


async def test_directories_that_the_log_has_in_a_circle_are_reachable(ground: Ground) -> None:
    one, _ = await tree_with_file(ground, "/a")
    two, _ = await tree_with_file(ground, "/b")
    await ground.commit(ground.moved(one, "/b/a", two.id), ground.moved(two, "/a/b", one.id))
    restored, report = await ground.restored()
    top, below = sorted([one, two], key=lambda each: each.id)
    place = f"/lost+found/{top.id}"
    name = below.path[1:]
    assert restored.keys() == {
        "/lost+found",
        place,
        f"{place}/f",
        f"{place}/{name}",
        f"{place}/{name}/f",
    }
    assert (restored[place].id, restored[place].version) == (top.id, 3)
    assert report.counts["parent_made"] == 2


async def test_a_missing_directory_is_made_with_its_id_the_same_every_time(ground: Ground) -> None:
    file, other = await ground.file("/unknown/f"), await ground.file("/unknown/g")
    await ground.made(replace(file, ctime=77), other)
    restored, report = await ground.restored()
    place = f"/lost+found/{ground.ids['/unknown']}"
    assert restored.keys() == {"/lost+found", place, f"{place}/f", f"{place}/g"}
    made = restored[place]
    assert (made.id, made.version, made.ctime) == (ground.ids["/unknown"], 1, 1)
    assert restored["/lost+found"].directory == ROOT_ENTRY.id
    assert rules(report) == [("parent_made", "/lost+found"), ("parent_made", place)]
    assert (await ground.restored())[0] == restored


async def test_a_made_directory_has_a_version_that_it_never_had(ground: Ground) -> None:
    """The log says that it was removed, or has two last states of it; fsck must find neither newer
    than the item."""
    removed, contradictory = ground.directory("/r"), ground.directory("/c")
    await ground.made(removed, contradictory)
    await ground.made(await ground.file("/r/f"), await ground.file("/c/f"))
    await ground.commit(ground.change("delete", removed, None))
    for name in ("/x", "/y"):
        await ground.commit(ground.moved(contradictory, name))
    restored, _ = await ground.restored()
    made = {restored[f"/lost+found/{each.id}"].version for each in (removed, contradictory)}
    assert made == {3}
    home = await ground.restored()
    assert home[0]["/lost+found"].version == 1


async def test_a_lost_and_found_directory_that_is_there_is_used(ground: Ground) -> None:
    home = ground.directory("/lost+found")
    await ground.made(home)
    await ground.made(await ground.file("/unknown/f"))
    restored, _ = await ground.restored()
    assert restored["/lost+found"] == home
    assert restored[f"/lost+found/{ground.ids['/unknown']}"].directory == home.id
    existing, _ = await ground.restored("/", [home])
    assert existing.keys() == restored.keys() - {"/lost+found"}


@pytest.mark.parametrize("taken", ["/lost+found", "/lost+found/{id}"])
async def test_entries_without_a_place_for_their_directory_are_told(
    ground: Ground, taken: str
) -> None:
    file = await ground.file("/unknown/f")
    if taken != "/lost+found":
        await ground.made(ground.directory("/lost+found"))
    other = await ground.file(taken.format(id=ground.ids["/unknown"]))
    await ground.made(file, other)
    restored, report = await ground.restored()
    assert restored[other.path] == other
    assert file.id not in {entry.id for entry in restored.values()}
    assert rules(report) == [("parent_is_file", "/unknown/f")]
    assert not report.clean


async def test_a_file_with_the_id_of_a_directory_has_no_entries(ground: Ground) -> None:
    file = await ground.file("/f")
    ground.ids["/f"] = file.id
    below = await ground.file("/f/g")
    await ground.made(file, below)
    restored, report = await ground.restored()
    assert restored == {"/f": file}
    assert rules(report) == [("parent_is_file", "/f/g")]


async def test_of_two_directories_at_one_place_the_content_is_kept(ground: Ground) -> None:
    one, _ = await tree_with_file(ground)
    two, _ = await tree_with_file(ground)
    restored, report = await ground.restored()
    places = {f"/lost+found/{each.id}" for each in (one, two)}
    assert restored.keys() == {"/lost+found", *places, *(f"{place}/f" for place in places)}
    assert report.counts["path_conflict"] == 2
    assert not report.clean


async def test_pending_removals_below_a_removed_directory_have_happened(ground: Ground) -> None:
    """The log has the removal of the directory, which comes after everything in it."""
    top, below = ground.directory("/d"), ground.directory("/d/e")
    files = [await ground.file("/d/e/f"), await ground.file("/d/g")]
    await ground.made(top, below, *files)
    await ground.begin(*(ground.change("delete", each, None) for each in (below, *files)))
    await ground.commit(ground.change("delete", top, None))
    restored, report = await ground.restored()
    assert restored == {}
    assert [rule for rule, _ in rules(report)] == ["delete_done"] * 3
    assert report.clean


async def test_pending_removals_below_a_reclaimed_directory_are_taken_as_done(
    ground: Ground,
) -> None:
    """But not that of a directory with an entry that is not being removed."""
    top, below, kept = (ground.directory(path) for path in ("/d", "/d/e", "/d/kept"))
    file, other, late = (
        await ground.file("/d/e/f"),
        await ground.file("/d/kept/g"),
        await ground.file("/d/kept/late"),
    )
    await ground.made(top, below, kept, file, other, late)
    outside = await ground.file("/h")
    await ground.made(outside)
    trashed = ground.trashed(top)
    await ground.commit(trashed)
    await ground.commit(ground.trashed(after(trashed), "reclaiming"))
    going = (file, below, other, kept, outside)
    await ground.begin(*(ground.change("delete", each, None) for each in going))
    restored, report = await ground.restored()
    place = f"/.trash/{top.id}"
    assert restored.keys() == {"/h", place, f"{place}/kept", f"{place}/kept/late"}
    assert rules(report) == sorted(
        [
            ("delete_done", f"{place}/e"),
            ("delete_done", f"{place}/e/f"),
            ("delete_done", f"{place}/kept/g"),
            ("delete_undone", f"{place}/kept"),
            ("delete_undone", "/h"),
        ]
    )


async def test_pending_removals_below_a_directory_that_can_be_restored_are_undone(
    ground: Ground,
) -> None:
    directory, file = await tree_with_file(ground)
    await ground.commit(ground.trashed(directory))
    await ground.begin(ground.change("delete", file, None))
    restored, report = await ground.restored()
    place = f"/.trash/{directory.id}"
    assert restored.keys() == {place, f"{place}/f"}
    assert rules(report) == [("delete_undone", f"{place}/f")]


async def test_a_removal_marker_shows_that_the_directory_was_removed(ground: Ground) -> None:
    directory = ground.directory("/d")
    await ground.made(directory)
    await ground.begin(ground.change("delete", directory, None))
    assert (await ground.restored("/", []))[0] == {"/d": directory}
    restored, report = await ground.restored("/", [], [directory.id])
    assert restored == {}
    assert rules(report) == [("delete_done", "/d")]


async def test_a_part_of_the_tree_is_known_by_the_directories_of_today(ground: Ground) -> None:
    """And the lost directories above it are restored, since nothing leads to it otherwise."""
    top, inner = ground.directory("/old"), ground.directory("/old/in")
    file, beside, lost = (
        await ground.file("/old/in/f"),
        await ground.file("/old/beside"),
        await ground.file("/old/in/lost", stored=False),
    )
    await ground.made(top, inner, file, beside, lost, await ground.file("/else"))
    await ground.commit(ground.moved(top, "/new"))
    await ground.made(await ground.file("/gone", stored=False))
    restored, report = await ground.restored("/new/in", [])
    assert restored.keys() == {"/new", "/new/in", "/new/in/f"}
    assert rules(report) == [("bytes_missing", "/new/in/lost")]
    assert report.counts == {"committed": 3, "bytes_missing": 1}
    moved = replace(top, path="/new", version=2)
    assert (await ground.restored("/new/in/f", [moved, inner]))[0].keys() == {"/new/in/f"}
    for path in ("/old", "/old/in", "/new/missing", "/new/missing/f", "/else/f"):
        assert (await ground.restored(path, []))[0] == {}, path
    one, report = await ground.restored("/gone", [])
    assert (one, rules(report)) == ({}, [("bytes_missing", "/gone")])


async def test_existing_directories_hold_what_is_restored_below_them(ground: Ground) -> None:
    """Also by a place of today that the log has not seen committed yet."""
    directory, file = await tree_with_file(ground)
    elsewhere = replace(directory, path="/elsewhere", version=2)
    restored, report = await ground.restored("/", [elsewhere])
    assert restored == {"/elsewhere/f": replace(file, path="/elsewhere/f")}
    assert report.counts == {"committed": 1, "present": 1}


@pytest.mark.parametrize("state", ["", "reclaiming"])
async def test_a_pending_rename_into_a_deleted_directory_is_taken_back(
    ground: Ground, state: TrashState
) -> None:
    """Its client died before it; otherwise garbage collection would delete what no client has
    deleted."""
    top, file = await tree_with_file(ground, "/x")
    other, _ = await tree_with_file(ground, "/y")
    target, _ = await tree_with_file(ground)
    below = ground.directory("/d/e")
    await ground.made(below)
    await ground.begin(ground.moved(file, "/d/e/f"), ground.moved(other, "/d/y"))
    await delete(ground, target, state)
    restored, report = await ground.restored()
    assert (restored["/x"], restored["/x/f"], restored["/y"]) == (top, file, other)
    assert rules(report) == [("rename_undone", "/x/f"), ("rename_undone", "/y")]
    assert report.clean


async def test_a_pending_rename_into_a_deleted_directory_has_happened_if_the_path_is_taken(
    ground: Ground,
) -> None:
    """Or if the directory that it came from was removed."""
    _, file = await tree_with_file(ground, "/x")
    gone, other = await tree_with_file(ground, "/gone")
    target = ground.directory("/d")
    await ground.made(target)
    await ground.begin(ground.moved(file, "/d/f"), ground.moved(other, "/d/g"))
    again = await ground.file("/x/f")
    await ground.made(again)
    await ground.commit(ground.change("delete", gone, None))
    await delete(ground, target)
    restored, report = await ground.restored()
    place = f"/.trash/{target.id}"
    assert restored.keys() == {"/x", "/x/f", place, f"{place}/f", f"{place}/g"}
    assert restored["/x/f"] == again
    assert [rule for rule, _ in rules(report)] == ["rename_done", "rename_done"]


@pytest.mark.parametrize("state", ["", "reclaiming"])
async def test_a_pending_restoration_into_a_deleted_directory_is_taken_back(
    ground: Ground, state: TrashState
) -> None:
    directory, _ = await tree_with_file(ground, "/x")
    target = ground.directory("/d")
    await ground.made(target)
    trashed = ground.trashed(directory)
    await ground.commit(trashed)
    await ground.begin(ground.moved(after(trashed), "/d/x"))
    await delete(ground, target, state)
    ground.clock.advance(10**6)
    restored, _ = await ground.restored()
    place = f"/.trash/{directory.id}"
    assert restored.keys() == {f"/.trash/{target.id}", place, f"{place}/f"}
    assert trashed.trash is not None
    now = replace(trashed.trash, when_ms=ground.clock.now_ms())
    assert in_trash(ground, directory.id).deletion == now


async def test_a_pending_rename_into_a_directory_is_taken_back_once_that_is_deleted(
    ground: Ground,
) -> None:
    """The deletion is pending too, and is found to have happened later."""
    top, file = await tree_with_file(ground, "/x")
    target, _ = await tree_with_file(ground)
    await ground.begin(ground.moved(file, "/d/m"), ground.trashed(target))
    again, _ = await tree_with_file(ground)
    restored, report = await ground.restored()
    place = f"/.trash/{target.id}"
    assert restored.keys() == {"/x", "/x/f", "/d", "/d/f", place, f"{place}/f"}
    assert (restored["/x"], restored["/x/f"], restored["/d"]) == (top, file, again)
    assert rules(report) == [("delete_done", place), ("rename_undone", "/x/f")]


@pytest.mark.parametrize("is_empty", [False, True])
async def test_pending_moves_out_of_a_reclaimed_directory_have_happened(
    ground: Ground, is_empty: bool
) -> None:
    """The directory can still be restored, and its files are not deleted with the other."""
    top, inner, below = (ground.directory(path) for path in ("/d", "/d/e", "/d/e/sub"))
    files = [] if is_empty else [await ground.file("/d/e/sub/f")]
    await ground.made(top, inner, below, *files)
    going = ground.trashed(below)
    await ground.begin(going)
    await delete(ground, top, "reclaiming")
    restored, report = await ground.restored()
    place = f"/.trash/{below.id}"
    assert restored.keys() == {
        f"/.trash/{top.id}",
        f"/.trash/{top.id}/e",
        place,
        *(f"{place}/f" for _ in files),
    }
    assert in_trash(ground, below.id).deletion == going.trash
    assert rules(report) == [("delete_done", place)]
    assert report.clean


async def test_of_several_pending_moves_out_of_a_reclaimed_directory_one_has_happened(
    ground: Ground,
) -> None:
    """Into the trash, if one is. A state that gc would not delete is restored as it was."""
    top, below = ground.directory("/d"), ground.directory("/d/sub")
    file, stays = await ground.file("/d/f"), await ground.file("/d/g")
    await ground.made(top, below, file, stays, await ground.file("/d/sub/h"))
    going = ground.trashed(below)
    await ground.begin(ground.moved(below, "/one"), going)
    await ground.begin(ground.moved(file, "/f"), ground.change("delete", file, None))
    taken = await ground.file("/taken")
    await ground.made(taken)
    await ground.begin(ground.moved(stays, "/taken"), ground.change("delete", stays, None))
    first, report = await ground.restored()
    assert first.keys() == {"/d", "/d/f", "/d/g", "/d/sub", "/d/sub/h", "/taken"}
    assert report.counts["rivals"] == 3
    await delete(ground, top, "reclaiming")
    restored, report = await ground.restored()
    place = f"/.trash/{below.id}"
    left = f"/.trash/{top.id}"
    assert restored.keys() == {left, f"{left}/g", place, f"{place}/h", "/f", "/taken"}
    assert restored["/taken"] == taken
    assert in_trash(ground, below.id).deletion == going.trash
    assert [outcome.rule for outcome in report.problems] == ["rivals"] * 3


async def found(ground: Ground) -> tuple[Entry, Entry, Entry]:
    """`/lost+found` and a directory in it, which a restore made and logged, and the file for which
    that was necessary."""
    file = await ground.file("/unknown/f")
    await ground.made(file)
    restored, _ = await ground.restored()
    home = restored["/lost+found"]
    made = restored[f"/lost+found/{ground.ids['/unknown']}"]
    await ground.made(home, made)
    return home, made, file


@pytest.mark.parametrize("way", ["renamed", "deleted"])
async def test_a_made_directory_never_has_the_id_of_another_object(
    ground: Ground, way: str
) -> None:
    """`/lost+found` of an earlier restore, which has been moved since."""
    home, made, file = await found(ground)
    moved = ground.moved(home, "/rescued") if way == "renamed" else ground.trashed(home)
    await ground.commit(moved)
    other = await ground.file("/other/g")
    await ground.made(other)
    top = "/rescued" if way == "renamed" else f"/.trash/{home.id}"
    old = {top, f"{top}/{made.id}", f"{top}/{made.id}/f"}
    place = f"/lost+found/{other.directory}"
    new = {"/lost+found", place, f"{place}/g"}
    restored, report = await ground.restored()
    assert restored.keys() == old | new
    assert restored[top].id == home.id
    assert report.counts["parent_made"] == 2
    assert (await ground.restored())[0] == restored, "the same every time"
    partly, _ = await ground.restored("/", [after(moved), made, file])
    assert partly == {path: restored[path] for path in new}
    await ground.made(restored["/lost+found"])
    again, report = await ground.restored()
    assert again.keys() == restored.keys()
    assert report.counts["parent_made"] == 1
    await ground.commit(ground.moved(restored["/lost+found"], "/again"))
    third, _ = await ground.restored()
    assert len({third[path].id for path in (top, "/again", "/lost+found")}) == 3


async def test_a_made_directory_never_has_the_id_of_a_removal_marker(ground: Ground) -> None:
    home, made, file = await found(ground)
    await ground.commit(ground.moved(made, "/taken"), ground.change("delete", home, None))
    other = await ground.file("/other/g")
    await ground.made(other)
    moved = replace(made, path="/taken", directory=ROOT_ENTRY.id, version=2)
    restored, _ = await ground.restored("/", [moved, file], [home.id])
    place = f"/lost+found/{other.directory}"
    assert restored.keys() == {"/lost+found", place, f"{place}/g"}
    assert restored["/lost+found"].id != home.id


async def test_a_lost_and_found_directory_that_the_log_has_lost_is_made_with_its_id(
    ground: Ground,
) -> None:
    """It is missing itself, with entries in it, and is needed for another missing directory. Which
    of them comes first depends on their ids."""
    file = await ground.file("/unknown/f")
    await ground.made(file)
    home = (await ground.restored())[0]["/lost+found"]
    ground.ids["/lost+found"] = home.id
    inside = await ground.file("/lost+found/mine")
    await ground.made(inside)
    for path, is_later in (("/early/f", False), ("/late/f", True)):
        other = await ground.file(path)
        while (other.directory > home.id) is not is_later:
            other = replace(other, directory=ground.runtime.uuid())
        await ground.made(other)
    restored, report = await ground.restored()
    assert restored["/lost+found"] == home
    assert restored["/lost+found/mine"] == inside
    assert len(restored) == 8
    assert report.clean


async def test_a_pending_move_into_the_trash_that_is_assumed_counts_from_now(
    ground: Ground,
) -> None:
    """What is at its path may not have happened either, so gc must not reclaim it at once."""
    directory, _ = await tree_with_file(ground)
    trashed = ground.trashed(directory)
    await ground.begin(trashed)
    again = ground.directory("/d")
    await ground.begin(ground.change("create", None, again))
    restored, report = await ground.restored()
    place = f"/.trash/{directory.id}"
    assert restored.keys() == {"/d", place, f"{place}/f"}
    assert trashed.trash is not None
    now_ms = ground.clock.now_ms()
    assert in_trash(ground, directory.id).deletion == replace(trashed.trash, when_ms=now_ms)
    assert rules(report) == [("create_done", "/d"), ("delete_done", place)]


@pytest.mark.parametrize("swapped", [False, True])
async def test_of_pending_renames_in_a_circle_one_whose_place_is_free_is_taken_back(
    ground: Ground, swapped: bool
) -> None:
    """Whichever has the least id: the taken place shows that the other rename has happened."""
    made = sorted([ground.directory("/a"), ground.directory("/b")], key=lambda each: each.id)
    one, two = (
        replace(each, path=path)
        for each, path in zip(reversed(made) if swapped else made, ("/a", "/b"), strict=True)
    )
    await ground.made(one, two)
    await ground.begin(ground.moved(one, "/b/a", two.id), ground.moved(two, "/a/b", one.id))
    again, _ = await tree_with_file(ground, "/a")
    restored, report = await ground.restored()
    assert restored.keys() == {"/a", "/a/f", "/b", "/b/a"}
    assert (restored["/a"], restored["/b"]) == (again, two)
    assert rules(report) == [("rename_done", "/b/a"), ("rename_undone", "/b")]


async def test_a_circle_of_pending_renames_whose_places_are_all_taken_is_broken(
    ground: Ground,
) -> None:
    """What took the places is restored, and everything is reachable."""
    one, _ = await tree_with_file(ground, "/a")
    two, _ = await tree_with_file(ground, "/b")
    await ground.begin(ground.moved(one, "/b/a", two.id), ground.moved(two, "/a/b", one.id))
    again = [(await tree_with_file(ground, path))[0] for path in ("/a", "/b")]
    restored, report = await ground.restored()
    assert [restored[path] for path in ("/a", "/b")] == again
    top = min(one, two, key=lambda each: each.id)
    assert restored[f"/lost+found/{top.id}"].version == 3
    assert len(restored) == 9
    assert report.clean
