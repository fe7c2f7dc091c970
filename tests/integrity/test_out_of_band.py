"""What each verb does, and what fsck reports, after another program has changed something: every
cell of the table in docs/out-of-band.md."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from s3k_async.model import LayoutName
from tests.integrity.out_of_band import CHANGES, VERBS, Ground, findings, outcome, stream

pytestmark = pytest.mark.layouts("path", "tree")

PAGE: Final = Path(__file__).parents[2] / "docs" / "out-of-band.md"
COLUMNS: Final = ("open stream", *VERBS, "fsck", "fsck --deep")
MATRIX: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("data", "overwrite"): (
        "CorruptDataError",
        "ok",
        "ok",
        "CorruptDataError",
        "CorruptDataError",
        "ok",
        "CorruptDataError",
        "CorruptDataError",
        "ok",
        "ok",
        "ok",
        "CorruptDataError",
        "clean",
        "checksum_mismatch",
    ),
    ("data", "delete"): (
        "DataMissingError",
        "ok",
        "ok",
        "DataMissingError",
        "DataMissingError",
        "ok",
        "DataMissingError",
        "DataMissingError",
        "ok",
        "ok",
        "ok",
        "former version",
        "data_missing",
        "data_missing",
    ),
    ("data", "create"): (
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "collectable_data",
        "collectable_data",
    ),
    ("data", "truncate"): (
        "CorruptDataError",
        "ok",
        "ok",
        "CorruptDataError",
        "CorruptDataError",
        "ok",
        "CorruptDataError",
        "CorruptDataError",
        "ok",
        "ok",
        "ok",
        "former version",
        "size_mismatch",
        "checksum_mismatch, size_mismatch",
    ),
    ("data", "replace"): (
        "CorruptDataError",
        "ok",
        "ok",
        "CorruptDataError",
        "CorruptDataError",
        "ok",
        "CorruptDataError",
        "CorruptDataError",
        "ok",
        "ok",
        "ok",
        "former version",
        "size_mismatch",
        "checksum_mismatch, size_mismatch",
    ),
    ("item", "overwrite"): (
        "ok",
        "former version",
        "ok",
        "former version",
        "former version",
        "ok",
        "former version",
        "former version",
        "ok",
        "ok",
        "ok",
        "former version",
        "log_disagrees",
        "log_disagrees",
    ),
    ("item", "delete"): (
        "ok",
        "PathNotFoundError",
        "not listed",
        "PathNotFoundError",
        "PathNotFoundError",
        "ok",
        "new file",
        "PathNotFoundError",
        "PathNotFoundError",
        "PathNotFoundError",
        "ok",
        "PathNotFoundError",
        "entry_missing",
        "entry_missing",
    ),
    ("item", "create"): (
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "UnsupportedError",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "log_missing",
        "log_missing",
    ),
    ("item", "truncate"): (
        "ok",
        "ItemFormatError",
        "ItemFormatError",
        "ItemFormatError",
        "ItemFormatError",
        "ItemFormatError",
        "ItemFormatError",
        "ItemFormatError",
        "ItemFormatError",
        "ItemFormatError",
        "ItemFormatError / ok",
        "ItemFormatError",
        "entry_missing, item_damaged",
        "entry_missing, item_damaged",
    ),
    ("item", "replace"): (
        "ok",
        "`/d/g`",
        "ok",
        "`/d/g`",
        "`/d/g`",
        "ok",
        "`/d/g`",
        "`/d/g`",
        "ok",
        "ok",
        "ok",
        "ok / former version",
        "duplicate_id, entry_missing",
        "duplicate_id, entry_missing",
    ),
    ("log", "overwrite"): (
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "LogFormatError",
        "log_damaged, log_pending",
        "log_damaged, log_pending",
    ),
    ("log", "delete"): (
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "log_missing",
        "log_missing",
    ),
    ("log", "create"): (
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "log_disagrees",
        "log_disagrees",
    ),
    ("log", "truncate"): (
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "LogFormatError",
        "log_damaged, log_pending",
        "log_damaged, log_pending",
    ),
    ("log", "replace"): (
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "LogFormatError",
        "log_damaged, log_pending",
        "log_damaged, log_pending",
    ),
    ("record", "overwrite"): (
        "ok",
        "VolumeMismatchError",
        "VolumeMismatchError",
        "VolumeMismatchError",
        "VolumeMismatchError",
        "VolumeMismatchError",
        "VolumeMismatchError",
        "VolumeMismatchError",
        "VolumeMismatchError",
        "VolumeMismatchError",
        "VolumeMismatchError",
        "VolumeMismatchError",
        "VolumeMismatchError",
        "VolumeMismatchError",
    ),
    ("record", "delete"): (
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "clean",
        "clean",
    ),
    ("record", "create"): (
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "ok",
        "clean",
        "clean",
    ),
    ("record", "truncate"): (
        "ok",
        "NotAVolumeError",
        "NotAVolumeError",
        "NotAVolumeError",
        "NotAVolumeError",
        "NotAVolumeError",
        "NotAVolumeError",
        "NotAVolumeError",
        "NotAVolumeError",
        "NotAVolumeError",
        "NotAVolumeError",
        "NotAVolumeError",
        "NotAVolumeError",
        "NotAVolumeError",
    ),
    ("record", "replace"): (
        "ok",
        "VolumeMismatchError",
        "VolumeMismatchError",
        "VolumeMismatchError",
        "VolumeMismatchError",
        "VolumeMismatchError",
        "VolumeMismatchError",
        "VolumeMismatchError",
        "VolumeMismatchError",
        "VolumeMismatchError",
        "VolumeMismatchError",
        "VolumeMismatchError",
        "VolumeMismatchError",
        "VolumeMismatchError",
    ),
}
"""By what is changed and how, in the order of the columns. `A / B`: A in layout `path`, B in layout
`tree`."""
READING: Final = ("stat", "ls", "read", "range")
"""Verbs that change nothing, so that they can share a volume."""


async def cells(layout: LayoutName, thing: str, change: str) -> tuple[str, ...]:
    """The outcomes of a row."""
    make = CHANGES[thing, change]
    path = "/d/h" if (thing, change) == ("item", "create") else "/d/f"
    found: dict[str, str] = {}
    async with Ground.start(layout) as ground:
        found["open stream"] = await stream(ground, make)
        for verb in READING:
            found[verb] = await outcome(ground, verb, path)
    for verb in VERBS.keys() - READING:
        async with Ground.start(layout) as ground:
            await make(ground)
            found[verb] = await outcome(ground, verb, path)
    for column, deep in (("fsck", False), ("fsck --deep", True)):
        async with Ground.start(layout) as ground:
            await make(ground)
            found[column] = await findings(ground, deep=deep)
    return tuple(found[column] for column in COLUMNS)


@pytest.mark.parametrize(("thing", "change"), list(MATRIX), ids=" ".join)
async def test_a_change_by_another_program(layout: LayoutName, thing: str, change: str) -> None:
    number = ("path", "tree").index(layout)
    found = await cells(layout, thing, change)
    for column, cell, expected in zip(COLUMNS, found, MATRIX[thing, change], strict=True):
        assert cell == (expected.split(" / ") * 2)[number], column


def test_the_page_has_the_same_table() -> None:
    lines = [line for line in PAGE.read_text().splitlines() if line.count("|") == 17]
    rows = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]
    head, _, *body = rows
    assert head == ("thing", "change", *COLUMNS)
    assert {(row[0], row[1]): row[2:] for row in body} == MATRIX
    assert len(body) == len(MATRIX) == len(CHANGES)
