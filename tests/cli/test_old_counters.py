"""The counters of the former MapReduce jobs have their counterparts in reports that exist."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import get_args

from s3k_async.integrity.facts import NOTES, PROBLEMS
from s3k_async.integrity.gc_rules import Reason
from s3k_async.integrity.restore_rules import RuleName
from tests.cli.conftest import Cli

PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
HEAD = "| command | counter of S3-FileSystem 1.0 | field | kinds, outcomes, reasons |\n"
NAMED = {
    "fsck verify": PROBLEMS | NOTES,
    "fsck restore": frozenset(get_args(RuleName)),
    "gc": frozenset(get_args(Reason)),
}
"""The kinds, outcomes or reasons in the report of a command."""
OLD = {
    *(
        f"PARTIAL_RESTORE_{name}"
        for name in (
            *("S3_PHY_DATA_SCAN", "S3_OPLOG_SCAN", "META_SCAN", "META_MISSING_WITH_OPLOG"),
            *("META_MISSING_WITH_PHY_DATA", "INVALID_STATE_META_ONLY"),
            *("INVALID_STATE_META_AND_PHY_DATA", "INVALID_STATE_OPLOG_AND_META"),
            "INVALID_STATE_OPLOG_AND_META_WITH_NO_PHY_DATA",
            "INVALID_STATE_META_COMMITTED_AND_NO_PHY_DATA",
            "VALID_STATE_META_UNCOMMITTED_AND_NO_PHY_DATA",
            "VALID_STATE_META_COMMITTED_WITH_DELETE_INACTIVE_PHY",
            *("OP_LOG_AND_META_OK", "OP_LOG_UPDATE"),
        )
    ),
    *(
        f"NUM_{name}"
        for name in (
            *("BATCHES_WRITTEN", "COMMITTED_OP_LOG_DELETED", "UNCOMMITTED_OP_LOG_DELETED"),
            *("OBJECT_META_RESTORE", "INACTIVE_PHYSICAL_DATA_DELETED", "PENDING_OP_LOG"),
            *("NO_ACTIVE_PHYSICAL_DATA", "OP_LOG_DELETED_WITH_NO_PHYSICAL_DATA"),
            *("PHYSICAL_DATA_DELETED", "SHUFFLED_DIRECTORIES", "UNEXPECTED_DIRECTORIES"),
            "META_RESTORE_DIRECTORIES",
        )
    ),
    *(
        f"{part}_OPERATION_{end}"
        for part in ("S3", "METADATA", "OPLOG")
        for end in ("SUCCESSFUL", "FAIL")
    ),
    *("SuccessfulDelete", "FailedDelete"),
}


def rows() -> list[list[str]]:
    """The cells of the table: command, counters, fields, kinds."""
    table = PAGE.read_text(encoding="utf-8").split(HEAD, 1)[1].split("\n\n", 1)[0]
    found = [[cell.strip() for cell in line[1:-1].split("|")] for line in table.splitlines()[1:]]
    for above, row in itertools.pairwise(found):
        row[0] = row[0] or above[0]
    return found


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_every_counter_has_a_row() -> None:
    listed = [name for row in rows() for name in names(row[1])]
    assert sorted(listed) == sorted(OLD)


def test_the_fields_and_kinds_exist(cli: Cli, volume: str) -> None:
    fields = {
        command: cli.ok(*command.split(), volume, "--json").json().keys()
        for command in ("fsck verify", "fsck repair", "fsck restore", "gc")
    }
    for command, _, ours, kinds in rows():
        name = command.strip("`")
        if name in fields:
            used = {each for each in names(ours) if not each.startswith("--")}
            assert used <= fields[name], ours
            assert used or ours.startswith("none: ")
            assert set(names(kinds)) <= NAMED.get(name, frozenset()), kinds
