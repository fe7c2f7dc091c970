"""Sizes as the service counts them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from s3k_async.backends.ports.items import Value
from s3k_async.cost_model.item_size import (
    entry_size,
    item_size,
    read_units,
    value_size,
    write_units,
)
from s3k_async.cost_model.service_limits import Service
from s3k_async.cost_model.tree_shape import TreeShape, lay_out
from s3k_async.model import UNCOMMITTED, Content, Entry, LayoutName
from s3k_async.table.keys import KeyScheme
from tests.cost_model.counting import LAYOUTS

UUID = "0f8fad5b-d9cb-469f-a165-70867728950e"


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ("", 0),
        ("abc", 3),
        ("é€😀", 9),
        (True, 1),
        (False, 1),
        (0, 1),
        (7, 2),
        (99, 2),
        (100, 2),
        (123, 3),
        (1_700_000_000, 2),
        (1_700_000_001, 6),
        (-5, 3),
    ],
)
def test_values(value: Value, size: int) -> None:
    assert value_size(value) == size


def test_an_item_is_its_names_and_values() -> None:
    assert (
        item_size({"path": "ks://v/-sf0", "children": "name", "isdir": True})
        == 4 + 11 + 8 + 4 + 5 + 1
    )


def test_entries() -> None:
    keys = KeyScheme("v", 1)
    directory = Entry("/d", True, UUID, 1, 1_700_000_001, 1_700_000_001_001, operation=UUID)
    named = len("path" + "children" + "isdir" + "ctime" + "ver" + "id" + "mtime" + "op")
    assert entry_size(directory, keys) == named + len("ks://v/-sf0" + "d") + 1 + 6 + 2 + 36 + 8 + 36
    reservation = Entry(
        "/f", False, UUID, 1, 1_700_000_001, 1_700_000_001_001, physical=UNCOMMITTED, operation=UUID
    )
    assert (
        entry_size(reservation, keys)
        == entry_size(directory, keys)
        + len("size")
        + 1
        + len("physpath" + UNCOMMITTED + "physcommitted")
        + 1
    )
    pending = replace(directory, pending='{"job":"x"}')
    assert entry_size(pending, keys) == entry_size(directory, keys) + len("next") + len(
        '{"job":"x"}'
    )


def test_units() -> None:
    assert [read_units(size) for size in (0, 1, 4096, 4097, 1024 * 1024)] == [1, 1, 1, 2, 256]
    assert [write_units(size) for size in (0, 1, 1024, 1025)] == [1, 1, 1, 2]


@pytest.mark.parametrize("suffix_count", [1, 10, 200])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_described_tree_has_the_items_that_would_be_stored(
    layout: LayoutName, suffix_count: int
) -> None:
    keys = KeyScheme("analytics", suffix_count, layout=layout)
    parent = UUID if layout == "tree" else ""
    shape = TreeShape(files=10, leaves=3, name_bytes=7, path_bytes=len("/raw/top"))
    top, bottom = (
        lay_out(shape, suffix_count, Service(), layout).kinds[0],
        lay_out(shape, suffix_count, Service(), layout).kinds[-1],
    )
    content = Content(f"{UUID}.id={UUID}", 1_234_567, "0" * 32, "xxh128:" + "0" * 32)
    blank = Entry("/raw/top/day=001/file-01", False, UUID, 1, 1_800_000_000, 1_800_000_000_123)
    longest = len(str(suffix_count - 1))

    def size(entry: Entry) -> int:
        placed = replace(entry, directory=parent)
        shortest = len(keys.of(placed).partition.rpartition("-sf")[2])
        return entry_size(placed, keys) + longest - shortest

    directory = Entry(
        "/raw/top/day=001", True, UUID, 1, 1_800_000_000, 1_800_000_000_123, operation=UUID
    )
    assert bottom.file_item == size(
        blank.with_content(content, mtime_ms=blank.mtime_ms, operation=UUID)
    )
    assert top.directory_item == bottom.own_item == size(directory)
