"""Data keys that items reference: the native core finds those that Python does."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import example, given
from hypothesis import strategies as st

from s3k_async import _native
from s3k_async.backends.ports.blobs import BlobInfo
from s3k_async.backends.ports.items import Item, Value
from s3k_async.integrity.gc_mark import CollectedData, MarkFilter
from s3k_async.integrity.gc_rules import PHYSICAL_KEY, Ages
from s3k_async.integrity.references import names_in
from s3k_async.integrity.shuffle import facts_in, from_line, to_line
from s3k_async.model import UNCOMMITTED, Entry
from s3k_async.table.codec import to_item
from s3k_async.table.keys import KeyScheme

NOW_MS = 10_000_000
AGES = Ages(grace=1.0, lease=0.0, late=0.0)
KEYS = KeyScheme("v", 5)
IDS = [str(uuid.UUID(int=number, version=4)) for number in range(3)]
DATA = [f"{unique}.id={object_id}" for unique in IDS for object_id in IDS[:2]]
ODD: Mapping[str, list[Any]] = {
    "physpath": [*DATA, UNCOMMITTED, "", "odd", DATA[0].upper(), f"s3://bucket/{DATA[0]}", 7],
    "physcommitted": [True, False, "true"],
    "isdir": [False, True, "no"],
    "id": [*IDS, "no id", "", 7],
    "next": ["", "?", '{"txn":"t"}'],
    "path": ["elsewhere", "ks://v/-sf0", "ks://v/d-sf9"],
    "children": ["name", "other"],
    "ver": [2, 0, "2"],
    "lease": [1, 0],
}


def file(number: int) -> dict[str, Value]:
    entry = Entry(f"/d/f{number}", False, IDS[number % 2], 2, 1, 5, 3, DATA[number], True)
    return to_item(entry, KEYS)


@st.composite
def items(draw: st.DrawFn) -> list[Item]:
    """Items of files, each with at most two odd attributes, or without one."""
    found: list[Item] = []
    for number in range(draw(st.integers(0, 4))):
        item = file(number)
        for name in draw(st.lists(st.sampled_from(sorted(ODD)), max_size=2)):
            value = draw(st.sampled_from([None, *ODD[name]]))
            item.pop(name, None)
            if value is not None or name in ("path", "children"):
                item[name] = ODD[name][0] if value is None else value
        found.append(item)
    return found


def mark_filter() -> MarkFilter:
    place = SimpleNamespace(store=SimpleNamespace(keys=KEYS), key_of=key_of)
    return MarkFilter(cast("CollectedData", place), AGES, NOW_MS)


def key_of(physical: str) -> str | None:
    return physical.rpartition("/")[2] or None


@given(items())
@example([file(0), file(1), {**file(2), "next": "?"}])
def test_items_reference_the_same_keys_in_columns(page: list[Item]) -> None:
    marked = mark_filter()
    lines, others = marked.items(page)
    whole = names_in(page, key_of)
    named = {from_line("named", line) for _, line in lines.rows()}
    assert named | others.keys == whole.keys
    assert (others.unclear, others.nameless) == (whole.unclear, whole.nameless)
    assert marked.done.entries == len(page)
    expired = [item for item in page if marked._expired(item) is not None]
    assert len(marked.done.reservations) == len(expired)


def test_ordinary_files_are_no_python_objects() -> None:
    lines, others = mark_filter().items([file(0), file(1)])
    assert len(lines) == 2
    assert not others.keys


@given(st.lists(st.tuples(st.sampled_from([*DATA, "odd", DATA[0].upper()]), st.integers(-2, 2))))
def test_old_data_objects_are_those_of_the_form_and_age(listed: list[tuple[str, int]]) -> None:
    oldest = NOW_MS - 1000
    blobs = [BlobInfo(key, 3, "etag", oldest + age) for key, age in listed]
    marked = mark_filter()
    old = [from_line("blobs", line) for _, line in marked.blobs(blobs).rows()]
    assert old == [
        BlobInfo(blob.key, 3, "", blob.mtime_ms)
        for blob in blobs
        if PHYSICAL_KEY.fullmatch(blob.key) and blob.mtime_ms < oldest
    ]
    counted = {reason: count.objects for reason, count in marked.done.counts.items()}
    assert sum(counted.values()) == len(blobs) - len(old)
    assert counted.get("foreign", 0) == sum(key not in DATA for key, _ in listed)


@given(st.sets(st.sampled_from(DATA)), st.lists(st.sampled_from(DATA), unique=True))
def test_unnamed_data_is_what_no_key_names(named: set[str], listed: list[str]) -> None:
    blobs = [BlobInfo(key, size, "", 7) for size, key in enumerate(listed)]
    lines = "".join(to_line("blobs", blob) + "\n" for blob in blobs).encode()
    keys = "".join(to_line("named", key) + "\n" for key in named).encode()
    left, count, size = _native.unnamed_blobs([keys], [lines])
    assert list(facts_in("blobs", left)) == [blob for blob in blobs if blob.key not in named]
    kept = [blob.size for blob in blobs if blob.key in named]
    assert (count, size) == (len(kept), sum(kept))
