"""Copies of records: the same as those of the standard library."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from s3k_async._core.metering import Count, Requests
from s3k_async._core.records import replaced
from s3k_async.model import ChangeResult
from tests.oplog import operations as samples

REQUESTS = Requests([Count("table", "GetItem", 2)])


@pytest.mark.parametrize(
    ("record", "changes"),
    [
        (ChangeResult(files=1, bytes=7), {"requests": REQUESTS}),
        (ChangeResult(files=1), {}),
        (samples.CREATE, {"version": 3, "before": None}),
    ],
)
def test_a_copy_is_that_of_the_standard_library(record: Any, changes: dict[str, Any]) -> None:
    copy = replaced(record, **changes)
    assert copy == replace(record, **changes)
    assert type(copy) is type(record)
    assert all(getattr(copy, name) is value for name, value in changes.items())


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(TypeError):
        replaced(ChangeResult(), unknown=1)


def test_the_intent_is_removed() -> None:
    after = samples.CREATE.after
    assert after is not None
    assert after.without_intent() is after
    assert replaced(after, pending="a").without_intent() == after
