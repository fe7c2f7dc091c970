"""What items mean, and sequences of entries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3k_async._native import Entries, Rows, status_of
from s3k_async.backends.ports.items import Item, Value
from s3k_async.errors import ItemFormatError
from s3k_async.model import Entry
from s3k_async.table.codec import from_item, to_item
from s3k_async.table.keys import KeyScheme
from tests.native import item_oracle, strategies

VOLUME = "v"
KEYS = KeyScheme(VOLUME, 4)
NAMES = strategies.NAMES
PATHS = strategies.PATHS.filter(lambda path: len(path.encode()) < 2000)
WHOLE = st.one_of(st.integers(1, 2**53), st.sampled_from([1, 10**9, 9223372036854775]))
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def _file(
    path: str, version: int, ctime: int, mtime: int, size: int, committed: bool, texts: list[str]
) -> Entry:
    etag, checksum, attributes, operation, pending = texts
    return Entry(
        path,
        False,
        "id-" + path,
        version,
        ctime,
        mtime,
        size,
        "key" if committed else "<uncommitted>",
        committed,
        etag,
        checksum,
        operation,
        0 if committed else size,
        pending,
        attributes=attributes,
    )


FILES = st.builds(
    _file,
    PATHS,
    WHOLE,
    WHOLE,
    st.integers(-5, 2**60),
    WHOLE,
    st.booleans(),
    st.lists(TEXTS, min_size=5, max_size=5),
)
DIRECTORIES = st.builds(
    lambda path, version, ctime, pending: Entry(
        path, True, "id", version, ctime, ctime * 1000, pending=pending
    ),
    PATHS,
    WHOLE,
    WHOLE,
    TEXTS,
)
ENTRIES = st.lists(st.one_of(FILES, DIRECTORIES), max_size=8)


def _entries(entries: Sequence[Entry]) -> Entries:
    return Rows([to_item(entry, KEYS) for entry in entries]).entries(VOLUME)


DAMAGE: st.SearchStrategy[Mapping[str, Value | None]] = st.dictionaries(
    st.sampled_from(
        [
            "path",
            "children",
            "isdir",
            "ctime",
            "ver",
            "id",
            "mtime",
            "op",
            "size",
            "physpath",
            "physcommitted",
            "etag",
            "sum",
            "next",
            "lease",
            "foreign",
        ]
    ),
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**62), 9223372036854775),
        st.sampled_from([0, -1, 1]),
        NAMES,
        st.sampled_from(
            [
                "",
                "<uncommitted>",
                "ks://v/-sf0",
                "ks://w/-sf0",
                "ks://v/a//b-sf0",
                "ks://v/a-sf01",
                "a/b",
            ]
        ),
    ),
    max_size=3,
)


def _outcome(read: Callable[[], Entry]) -> tuple[Entry | None, str, str | None]:
    try:
        return read(), "", None
    except ItemFormatError as error:
        return None, str(error), error.path


@given(st.one_of(FILES, DIRECTORIES), DAMAGE)
def test_items_mean_what_the_reference_reads(
    entry: Entry, damage: Mapping[str, Value | None]
) -> None:
    """The same entry, or the same error, whatever is in the item."""
    damaged = {**to_item(entry, KEYS), **damage}
    item: Item = {name: value for name, value in damaged.items() if value is not None}
    wanted = _outcome(lambda: item_oracle.from_item(item, VOLUME))
    assert _outcome(lambda: Rows([item, item])[1:].entries(VOLUME)[0]) == wanted
    found, _, path = _outcome(lambda: from_item(item, KEYS))
    assert (found, path) == (wanted[0], wanted[2])


@pytest.mark.parametrize(
    "damage", [{"size": 2**63}, {"ver": 10**38}, {"ctime": 2**54}, {"mtime": -(2**63) - 1}]
)
def test_numbers_beyond_64_bits_are_refused(damage: dict[str, Value]) -> None:
    """Times are told in milliseconds, so a second counts a thousand."""
    item = to_item(Entry("/f", False, "i", 2, 1, 1, 1, "k", True), KEYS) | damage
    with pytest.raises(ItemFormatError, match="64 bits") as raised:
        from_item(item, KEYS)
    assert raised.value.path == "/f"


@given(ENTRIES)
def test_the_first_bad_item_is_told(entries: list[Entry]) -> None:
    items = [to_item(entry, KEYS) for entry in entries]
    bad = to_item(Entry("/bad/one", True, "", 1, 1, 1), KEYS)
    with pytest.raises(ItemFormatError) as raised:
        Rows([*items, bad, {}]).entries(VOLUME)
    assert raised.value.path == "/bad/one"


def test_records_are_left_out_on_request() -> None:
    good = to_item(Entry("/f", True, "i", 2, 1, 1), KEYS)
    rows = Rows(
        [
            {"path": "s3k:volume", "children": "record"},
            good,
            {"path": "s3k:job", "children": "1", "x": 1},
        ]
    )
    assert rows.entries(VOLUME, records=True).paths() == ["/f"]
    with pytest.raises(ItemFormatError):
        rows.entries(VOLUME)
    with pytest.raises(ItemFormatError):
        Rows([good | {"path": "ks://other/-sf0"}]).entries(VOLUME, records=True)


@given(ENTRIES)
def test_entries_are_a_sequence(entries: list[Entry]) -> None:
    found = _entries(entries)
    assert found == entries
    assert entries == found
    assert len(found) == len(entries)
    assert list(reversed(found)) == entries[::-1]
    assert found != [*entries, None]
    for part in (slice(1, None), slice(None, None, -2), slice(-2, 100)):
        assert found[part] == entries[part]
        assert isinstance(found[part], Entries)
    for place, entry in enumerate(entries):
        assert found[place] == found[place - len(entries)] == entry
        assert found.index(entry) == entries.index(entry)
        assert found.count(entry) == entries.count(entry)
    with pytest.raises(IndexError):
        found[len(entries)]


@given(ENTRIES, st.data())
def test_selections(entries: list[Entry], data: st.DataObject) -> None:
    found = _entries(entries)
    assert found.paths() == [entry.path for entry in entries]
    assert found.files() == [entry for entry in entries if not entry.is_dir]
    assert found.directories() == [entry for entry in entries if entry.is_dir]
    assert found.without_reservations() == [entry for entry in entries if not entry.is_reservation]
    for prefix in (
        "/",
        *(entry.path + "/" for entry in entries),
        *(entry.path[:-1] for entry in entries),
    ):
        assert found.below(prefix) == [entry for entry in entries if entry.path.startswith(prefix)]
    places = data.draw(st.lists(st.integers(0, len(entries) - 1), max_size=9)) if entries else []
    assert found.take(places) == [entries[place] for place in places]
    assert found.files().take([]) == []
    with pytest.raises(IndexError):
        found.take([len(entries)])
    committed = [entry for entry in entries if entry.committed]
    directories = sum(entry.is_dir for entry in entries)
    assert found.totals() == (len(committed), directories, sum(entry.size for entry in committed))
    assert found.newest() == max((entry.mtime_ms for entry in committed), default=None)
    for start in range(len(entries) + 1):
        wanted = next(
            (place for place in range(start, len(entries)) if entries[place].is_dir), None
        )
        assert found.next_directory(start) == wanted
    assert found.with_intents() == [
        (place, entry.pending) for place, entry in enumerate(entries) if entry.pending
    ]
    for intent in {entry.pending for entry in entries} | {"other"}:
        assert found.carrying(intent) == [entry for entry in entries if entry.pending == intent]
    assert found[1:].with_intents() == [
        (place, entry.pending) for place, entry in enumerate(entries[1:]) if entry.pending
    ]


@given(ENTRIES)
def test_statuses_are_those_of_the_entries(entries: list[Entry]) -> None:
    found = _entries(entries)
    assert found.statuses() == [status_of(entry) for entry in entries]
    for place in range(len(entries)):
        assert found[place : place + 1].statuses() == [status_of(entries[place])]


def _components(entry: Entry) -> list[bytes]:
    return [name.encode() for name in entry.path.split("/")]


@given(st.lists(ENTRIES, max_size=4))
def test_sorted_by_components(parts: list[list[Entry]]) -> None:
    found = [_entries(part) for part in parts]
    everything = [entry for part in parts for entry in part]
    assert Entries.sorted(found) == sorted(everything, key=_components)
    assert Entries.joined(found) == everything


@given(st.lists(st.tuples(ENTRIES, st.booleans()), max_size=4))
def test_merging_tells_what_nothing_can_come_before(parts: list[tuple[list[Entry], bool]]) -> None:
    ordered = [(sorted(part, key=_components), ended) for part, ended in parts]
    ready, rests = Entries.merged(
        [_entries(part) for part, _ in ordered], [ended for _, ended in ordered]
    )
    told = list(ready)
    assert told == sorted(told, key=_components)
    for (part, _), rest in zip(ordered, rests, strict=True):
        assert list(rest) == part[len(part) - len(rest) :]
    cut = [
        entry
        for (part, _), rest in zip(ordered, rests, strict=True)
        for entry in part[: len(part) - len(rest)]
    ]
    assert told == sorted(cut, key=_components)
    last = [_components(part[-1]) if part else None for part, ended in ordered if not ended]
    assert all(
        bound is not None and _components(entry) <= bound for bound in last for entry in told
    )
    assert all(len(rest) == 0 for rest in rests) or None in last or any(last)
    if None not in last:
        bound = min((bound for bound in last if bound is not None), default=None)
        assert all(
            bound is not None and _components(entry) > bound for rest in rests for entry in rest
        )


def test_merging_needs_to_know_of_every_part() -> None:
    with pytest.raises(ValueError, match="as many"):
        Entries.merged([_entries([])], [])


def test_entries_keep_what_they_were_made_of() -> None:
    """Selections of selections, and columns made anew."""
    entries = [
        Entry(f"/d{number % 3}/é{number}", number % 2 == 0, f"i{number}", 2, 7, 8)
        for number in range(20)
    ]
    entries = [
        replace(entry, physical=None if entry.is_dir else "k", committed=not entry.is_dir)
        for entry in entries
    ]
    found = _entries(entries)[::-1].files()[1:]
    wanted = [entry for entry in entries[::-1] if not entry.is_dir][1:]
    assert Entries.joined([found, found]) == wanted * 2
    assert Entries.joined([found]).below("/d1/").statuses() == [
        status_of(entry) for entry in wanted if entry.path.startswith("/d1/")
    ]
