"""Whatever is damaged: after repair nothing is left that repair could mend, and what was not
damaged has its bytes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from s3k_async.errors import CorruptDataError, DataMissingError
from s3k_async.integrity.facts import Finding
from s3k_async.integrity.repair import RepairReport, repair_volume, verify_volume
from s3k_async.integrity.rule_table import RuleCoverage
from s3k_async.integrity.verify import VerifyReport
from s3k_async.integrity.verify_rules import TABLES
from s3k_async.model import LayoutName
from s3k_async.volumes import open_volume
from tests.engines.volumes import fresh_name
from tests.old_volume import memory_volume
from tests.tiers.rig import tiered_damage
from tests.torture.damage import DAMAGES, GRACE, ONLY, PATHS, Scene
from tests.torture.damage_tree import damage, damages_of

LEFT = {
    "other_file": {"entry_missing"},
    "file_for_directory": {"missing_parent", "log_removal", "entry_missing"},
    "no_bytes": {"data_missing"},
    "short_bytes": {"size_mismatch"},
    "replaced_object": {"etag_mismatch"},
    "newer_log": {"log_newer"},
    "same_id_no_bytes": {"duplicate_id", "data_missing"},
    "foreign_items": {"foreign_item"},
}
"""What only a person can decide."""
LEFT_IN_TREE: dict[str, set[str]] = {**LEFT, "file_for_directory": set()}
"""The same in layout `tree`, where the directory is restored elsewhere."""
BY_RACE = {("cycles", ())}
"""Rows that no damage leads to, but a change during the scan:
`tests/integrity/test_repair_tree.py::test_a_cycle_that_only_the_scan_has_seen_is_no_finding`."""

pytestmark = pytest.mark.layouts("path", "tree")


async def verify(scene: Scene) -> VerifyReport:
    return await verify_volume(scene.volume, grace=GRACE)


async def repair(scene: Scene) -> RepairReport:
    return await repair_volume(scene.volume, dry_run=False, grace=GRACE)


async def check_mended(scene: Scene) -> list[Finding]:
    """Repair, and see that a second run has nothing to do; again when nothing is young any more.
    What was not harmed is whole then. Returns what is left for a person.
    """
    for _ in range(2):
        assert [each for each in (await repair(scene)).repairs if each.outcome == "failed"] == []
        again = await repair(scene)
        assert again.repairs == []
        assert again.rounds == 1
        scene.clock.advance(2000)
    report = await verify(scene)
    assert [finding for finding in report.findings if finding.is_repairable] == []
    contents = await readable(scene)
    for path, data in scene.files.items():
        if path in scene.adrift - scene.harmed:
            assert data in contents, path
        elif path not in scene.harmed:
            entry = await scene.find(path)
            assert entry is not None, path
            assert await scene.volume.storage.read(str(entry.physical)) == data, path
    return report.problems


async def readable(scene: Scene) -> set[bytes]:
    """The bytes of all files that have any."""
    found: set[bytes] = set()
    async with scene.client() as fs:
        async for status in fs.find("/", type="file"):
            with suppress(DataMissingError, CorruptDataError):
                found.add(await fs.read(status.path))
    return found


async def damage_and_repair(layout: LayoutName, names: Sequence[tuple[str, str]]) -> list[Finding]:
    scene = await Scene.start(layout=layout)
    try:
        for name, path in names:
            entry = await scene.find(path) if not scene.harmed & {path} else None
            if entry is not None and not entry.is_dir:
                await damage(scene, name, path)
        scene.clock.advance(GRACE + 1)
        return await check_mended(scene)
    finally:
        await scene.end()


async def test_each_damage_is_mended_and_every_row_of_the_tables_is_reached(
    layout: LayoutName,
) -> None:
    known = LEFT if layout == "path" else LEFT_IN_TREE
    with RuleCoverage() as reached:
        for name in damages_of(layout):
            try:
                left = await damage_and_repair(layout, [(name, "/a/d0/f0")])
                assert {finding.kind for finding in left} <= known.get(name, set())
            except BaseException as error:
                error.add_note(name)
                raise
        await without_repair(layout)
        await without_log(layout)
        await in_two_locations(layout)
        if layout == "path":
            await of_the_old_system()
    rows = {(table.name, rule.when) for table in TABLES for rule in table.rules}
    elsewhere = BY_RACE | set().union(*(ONLY[each] for each in ONLY if each != layout))
    found = {(table, rule.when) for table, rule in reached}
    assert rows - elsewhere - found == set()
    assert found & elsewhere == set()


def test_the_rows_of_one_layout_are_rows(layout: LayoutName) -> None:
    assert ONLY[layout] <= {(table.name, rule.when) for table in TABLES for rule in table.rules}


async def without_repair(layout: LayoutName) -> None:
    """Repair restores a directory before it looks at the entries in it."""
    scene = await Scene.start(layout=layout)
    try:
        await DAMAGES["no_directory"](scene, "/top")
        await scene.settled()
        # In layout `tree` the log says that the directory of the entries exists.
        expected = {"entry_missing"} | ({"missing_parent"} if layout == "path" else set())
        assert {finding.kind for finding in (await verify(scene)).problems} == expected
    finally:
        await scene.end()


async def without_log(layout: LayoutName) -> None:
    scene = await Scene.start("disabled", layout=layout)
    try:
        await DAMAGES["stray_bytes"](scene, "/top")
        await DAMAGES["no_directory"](scene, "/top")
        await scene.settled()
        await repair(scene)
        # Layout `path` creates the directory again.
        expected = {"orphan_data"} if layout == "path" else {"orphan_data", "missing_parent"}
        assert {finding.kind for finding in (await verify(scene)).problems} == expected
    finally:
        await scene.end()


async def in_two_locations(layout: LayoutName) -> None:
    """What differs between the locations of a volume with tiers; more in
    `tests/tiers/test_tier_damage.py`."""
    async with tiered_damage(layout) as (volume, _):
        report = await verify_volume(volume, grace=-60.0)
        actions = [each.action for each in report.findings if each.kind == "copies_differ"]
        assert sorted(actions) == [
            "remove_hot_copy",
            "replace_cold_copy",
            "replace_cold_copy",
            "report",
            "report",
        ]
        assert set(report.kinds) == {"copies_differ", "size_mismatch", "collectable_data"}
        done = await repair_volume(volume, dry_run=False, grace=-60.0)
        assert {each.finding.action for each in done.repairs} == {
            "remove_hot_copy",
            "replace_cold_copy",
        }
        assert {each.outcome for each in done.repairs} == {"done"}
        assert done.left.kinds["copies_differ"] == 2


async def of_the_old_system() -> None:
    """What is a note in a volume of S3-FileSystem 1.0, which repair does not write to."""
    files, config = await memory_volume(fresh_name("old"))
    await files.directory("/target", identity=await files.directory("/source"), version=2)
    await files.reserve("/open")
    volume = await open_volume(config)
    report = await verify_volume(volume, grace=-60.0)
    await volume.close()
    assert report.clean
    assert set(report.kinds) == {"rename_unfinished", "reservation_open"}


DRAWN = settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),
)


def some_of(layout: LayoutName) -> st.SearchStrategy[list[tuple[str, str]]]:
    """Some damages of a layout, each at one of the files."""
    names = st.sampled_from(sorted(damages_of(layout)))
    return st.lists(st.tuples(names, st.sampled_from(PATHS)), min_size=2, max_size=6)


@DRAWN
@given(some_of("path"))
async def test_damages_together_are_mended(names: list[tuple[str, str]]) -> None:
    await damage_and_repair("path", names)


@DRAWN
@given(some_of("tree"))
async def test_damages_together_are_mended_in_layout_tree(names: list[tuple[str, str]]) -> None:
    await damage_and_repair("tree", names)
