"""Whatever is damaged: after repair nothing is left that repair could mend, and what was not
damaged has its bytes."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from s3k_async.integrity.facts import Finding
from s3k_async.integrity.repair import RepairReport, repair_volume, verify_volume
from s3k_async.integrity.rule_table import RuleCoverage
from s3k_async.integrity.verify import VerifyReport
from s3k_async.integrity.verify_rules import TABLES
from s3k_async.volumes import open_volume
from tests.engines.volumes import fresh_name
from tests.old_volume import memory_volume
from tests.torture.damage import BY_ID, DAMAGES, GRACE, PATHS, Scene

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
    for path, data in scene.files.items():
        if path not in scene.harmed:
            entry = await scene.find(path)
            assert entry is not None, path
            assert await scene.volume.storage.read(str(entry.physical)) == data, path
    return report.problems


async def damage_and_repair(names: Sequence[tuple[str, str]]) -> list[Finding]:
    scene = await Scene.start()
    try:
        for name, path in names:
            entry = await scene.find(path) if not scene.harmed & {path} else None
            if entry is not None and not entry.is_dir:
                await DAMAGES[name](scene, path)
        scene.clock.advance(GRACE + 1)
        return await check_mended(scene)
    finally:
        await scene.end()


async def test_each_damage_is_mended_and_every_row_of_the_tables_is_reached() -> None:
    with RuleCoverage() as reached:
        for name in DAMAGES:
            try:
                left = await damage_and_repair([(name, "/a/d0/f0")])
                assert {finding.kind for finding in left} <= LEFT.get(name, set())
            except BaseException as error:
                error.add_note(name)
                raise
        await without_log()
        await of_the_old_system()
    missing = [
        (table.name, rule.when)
        for table in TABLES
        for rule in table.rules
        if (table.name, rule) not in reached and (table.name, rule.when) not in BY_ID
    ]
    assert missing == [], missing


async def without_log() -> None:
    scene = await Scene.start("disabled")
    try:
        await DAMAGES["stray_bytes"](scene, "/top")
        await scene.settled()
        await repair(scene)
        assert {finding.kind for finding in (await verify(scene)).problems} == {"orphan_data"}
    finally:
        await scene.end()


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


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),
)
@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(DAMAGES)), st.sampled_from(PATHS)), min_size=2, max_size=6
    )
)
async def test_damages_together_are_mended(names: list[tuple[str, str]]) -> None:
    await damage_and_repair(names)
