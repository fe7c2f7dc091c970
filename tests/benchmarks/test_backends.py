"""The row of backends: that each contender does the work, and that what is missing is said."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.contenders.ours import ClientFiles, client
from benchmarks.goals import verdicts
from benchmarks.measuring import Result
from benchmarks.rows import backends
from benchmarks.rows.scope import Scope
from benchmarks.rows.verb_table import VerbTable, disk_syncs
from s3k_async.config import LocalDirectory, SqliteFile, VolumeConfig
from tests.engines import dynoxide, redis_server, seaweedfs


class FewFiles(Scope):
    """A scope of three files."""

    def pick(self, quick: Any, full: Any) -> Any:
        return 3


async def measured(monkeypatch: pytest.MonkeyPatch) -> list[Result]:
    monkeypatch.setattr(backends, "IN_FLIGHT", (2,))
    return [each async for each in backends.results(FewFiles(quick=True, rounds=1))]


def contenders(results: Sequence[Result], row: str) -> set[str]:
    return {each.contender for each in results if each.row == row}


@pytest.mark.engine
async def test_every_contender_does_every_verb(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.conftest import unavailable

    for reason in (each.missing() for each in (dynoxide, redis_server, seaweedfs)):
        if reason is not None:
            unavailable(reason)
    results = await measured(monkeypatch)
    rows = [f"backends {verb}" for verb in ("write", "stat", "read", "rename", "delete")]
    assert list(dict.fromkeys(each.row for each in results)) == rows
    for row in rows:
        assert contenders(results, row) == {
            *(f"ours, {name}" for name in ("RocksDB", "Redis")),
            *("ours, SQLite and directory", "ours, dynoxide and SeaweedFS"),
            *("RocksDB alone", "Redis alone", backends.S3),
        }
    assert {each.baseline for each in results} == {backends.S3}
    goals = [each for each in verdicts(results) if backends.S3 in each.work]
    assert len(goals) == 10
    assert all(each.met is not None for each in goals)


async def test_a_row_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for engine, reason in ((redis_server, "no redis"), (dynoxide, "no table"), (seaweedfs, None)):
        monkeypatch.setattr(engine, "missing", lambda reason=reason: reason)
    monkeypatch.setattr(backends, "find_spec", lambda _: None)
    results = await measured(monkeypatch)
    assert contenders(results, "backends write") == {"ours, SQLite and directory"}
    for each in results:
        assert each.case.endswith(", rocksdict is not installed, no redis, no table")
    assert [each for each in verdicts(results) if "S3 over HTTP" in each.work] == []


async def test_each_repetition_works_on_files_that_are_there(tmp_path: Path) -> None:
    config = VolumeConfig(
        "v", SqliteFile(str(tmp_path / "table")), LocalDirectory(str(tmp_path / "data"))
    )
    table = VerbTable("row", 3, "ours", 2)
    async with client(config) as fs:
        await fs.makedirs("/small")
        for in_flight in (1, 2):
            results = [each async for each in table.results({"ours": ClientFiles(fs)}, in_flight)]
            assert [len(each.seconds) for each in results] == [3, 2, 2, 2, 2]
        left = [status.path async for status in fs.list("/small")]
    # Three repetitions wrote three files each; two of them were deleted, and one was moved.
    assert len(left) == 2 * 3
    assert all("-1xx" in path for path in left)
    assert disk_syncs(tmp_path) > 0
