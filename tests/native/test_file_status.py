"""FileStatus is a value like a frozen dataclass."""

from __future__ import annotations

import copy
import json
import pickle
import sys
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from s3k_async import FileStatus, _native
from s3k_async._core.object_version import as_version
from s3k_async._native import Rows, status_of
from s3k_async.attributes import Attributes
from s3k_async.model import Entry
from s3k_async.table.codec import to_item
from s3k_async.table.keys import KeyScheme
from s3k_async.testing.reference_items import encode_value

KEYS = KeyScheme("v", 4)
FIELDS: dict[str, Any] = {
    "path": "/d/é",
    "is_dir": False,
    "size": 5,
    "mtime_ms": 1_700_000_000_123,
    "ctime_ms": 1_700_000_000_000,
    "id": "i",
    "version": 3,
    "committed": True,
    "etag": "e",
    "checksum": "xxh128:0",
    "physical": "k.id=i",
    "attributes_json": '{"mode":420,"read_only":true}',
}
FILE = Entry(
    "/d/é",
    False,
    "i",
    3,
    1_700_000_000,
    1_700_000_000_123,
    5,
    "k.id=i",
    True,
    "e",
    "xxh128:0",
    attributes=str(FIELDS["attributes_json"]),
)
RESERVATION = Entry("/r", False, "i", 1, 7, 8, 0, "<uncommitted>", False)
DIRECTORY = Entry("/d", True, "i", 1, 7, 8)


def _listed(entry: Entry) -> FileStatus:
    return Rows([to_item(entry, KEYS)]).entries("v").statuses()[0]


@pytest.mark.parametrize(
    "status", [FileStatus(**FIELDS), status_of(FILE), _listed(FILE)], ids=["own", "of", "row"]
)
def test_all_forms_are_one_value(status: FileStatus) -> None:
    assert {name: getattr(status, name) for name in FIELDS} == FIELDS
    assert (status.name, status.is_file) == ("é", True)
    assert status.attributes == Attributes(mode=0o644, read_only=True)
    assert status == FileStatus(*FIELDS.values())
    assert hash(status) == hash(FileStatus(**FIELDS))
    assert status.modified == datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)
    assert status.created == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert status.modified.tzinfo is UTC
    assert tuple(FIELDS) == FileStatus.__match_args__
    for same in (copy.copy(status), copy.deepcopy(status), pickle.loads(pickle.dumps(status))):
        assert same == status
        assert type(same) is FileStatus


def test_a_version_id_in_the_place_of_the_checksum_is_a_field_of_its_own() -> None:
    adopted = replace(FILE, physical="s3://b/k", checksum=as_version("a/+="))
    for status in (status_of(adopted), _listed(adopted)):
        for same in (status, pickle.loads(pickle.dumps(status))):
            assert (same.checksum, same.object_version) == ("", "a/+=")
            assert same == status
    assert status_of(FILE).object_version == _listed(FILE).object_version == ""


def test_it_prints_path_type_size_and_time() -> None:
    shown = "<FileStatus '/d/é' file, 5 bytes, modified 2023-11-14 22:13:20.123+00:00>"
    assert str(FileStatus(**FIELDS)) == repr(FileStatus(**FIELDS)) == shown
    early = "modified 1970-01-01 00:00:00.008+00:00"
    assert repr(status_of(DIRECTORY)) == f"<FileStatus '/d' directory, {early}>"
    assert repr(status_of(RESERVATION)) == f"<FileStatus '/r' file being written, {early}>"


@pytest.mark.parametrize("time", [2**62, -(2**62), 10**15])
def test_a_time_that_python_cannot_express(time: int) -> None:
    status = FileStatus(**{**FIELDS, "mtime_ms": time})
    assert repr(status) == f"<FileStatus '/d/é' file, 5 bytes, modified {time} ms>"
    with pytest.raises(OverflowError):
        _ = status.modified


def test_times_before_the_epoch() -> None:
    status = FileStatus(**{**FIELDS, "mtime_ms": -1})
    assert status.modified == datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)


def test_defaults() -> None:
    status = FileStatus("/", True, 0, 0, 0, "i", 1, True)
    assert (status.etag, status.checksum, status.physical, status.name, status.is_file) == (
        "",
        "",
        None,
        "",
        False,
    )


@pytest.mark.parametrize("make", [status_of, _listed])
def test_what_is_told_of_directories_and_reservations(make: Any) -> None:
    directory, reservation = make(DIRECTORY), make(RESERVATION)
    assert (directory.committed, directory.physical, directory.ctime_ms) == (True, None, 7000)
    assert (reservation.committed, reservation.physical, reservation.size) == (False, None, 0)


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_counts(name: str) -> None:
    other = {**FIELDS, name: "x" if isinstance(FIELDS[name], str) else not FIELDS[name]}
    assert FileStatus(**FIELDS) != FileStatus(**other)
    assert FileStatus(**FIELDS) != FIELDS
    assert hash(FileStatus(**FIELDS)) != hash(FileStatus(**other))


def test_it_cannot_be_changed() -> None:
    status: Any = FileStatus(**FIELDS)
    with pytest.raises(AttributeError):
        status.path = "/other"
    with pytest.raises(AttributeError):
        status.other = 1
    with pytest.raises(AttributeError):
        del status.size


def test_it_matches_by_position() -> None:
    match FileStatus(**FIELDS):
        case FileStatus(path, is_dir, size):
            assert (path, is_dir, size) == ("/d/é", False, 5)
        case _:
            pytest.fail("no match")


def test_the_root_has_no_name() -> None:
    assert status_of(Entry("/", True, "i", 1, 0, 0)).name == ""


def test_a_few_of_many_do_not_keep_the_answer_that_they_came_in() -> None:
    """And a copy of one of all does not either."""
    wire = [{name: encode_value(value) for name, value in to_item(FILE, KEYS).items()}] * 100
    body = json.dumps({"Items": wire}).encode()
    alone = sys.getrefcount(body)
    few = _native.decode_page(body, None).rows.entries("v").take([3, 98]).statuses()
    assert few == [status_of(FILE)] * 2
    assert sys.getrefcount(body) == alone
    many = _native.decode_page(body, None).rows.entries("v").statuses()
    assert sys.getrefcount(body) == alone + 1
    one = copy.copy(many[7])
    del many
    assert sys.getrefcount(body) == alone
    assert one == status_of(FILE)
