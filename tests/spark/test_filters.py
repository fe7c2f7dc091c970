"""Conditions on columns, without Spark: the same answers as SQL gives."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyspark.sql import datasource as sql

from s3k_async.spark.source_filters import ColumnFilter, condition_of

pytestmark = pytest.mark.spark

DAY = dt.date(2026, 1, 1)


@pytest.mark.parametrize(
    ("pushed", "expected"),
    [
        (sql.EqualTo(("a",), 1), ColumnFilter("a", "=", 1)),
        (sql.Not(sql.EqualTo(("a",), 1)), ColumnFilter("a", "=", 1, negated=True)),
        (sql.Not(sql.Not(sql.LessThan(("a",), 1))), ColumnFilter("a", "<", 1)),
        (sql.In(("a",), (1, 2)), ColumnFilter("a", "in", (1, 2))),
        (sql.IsNull(("a",)), ColumnFilter("a", "null")),
        (sql.IsNotNull(("a",)), ColumnFilter("a", "null", negated=True)),
        (sql.Not(sql.IsNotNull(("a",))), ColumnFilter("a", "null")),
        (sql.StringContains(("a",), "x"), ColumnFilter("a", "contains", "x")),
        (sql.EqualTo(("a", "b"), 1), None),
        (sql.Filter(), None),
    ],
)
def test_what_spark_pushes(pushed: Any, expected: ColumnFilter | None) -> None:
    assert condition_of(pushed) == expected


@pytest.mark.parametrize(
    ("condition", "yes", "no", "null"),
    [
        (ColumnFilter("a", "=", 1), [1], [2], [None]),
        (ColumnFilter("a", "=", None), [], [], [1, None]),
        (ColumnFilter("a", "=", 1, negated=True), [2], [1], [None]),
        (ColumnFilter("a", "<=>", 1), [1], [2, None], []),
        (ColumnFilter("a", "<=>", None), [None], [1], []),
        (ColumnFilter("a", "<=>", 1, negated=True), [2, None], [1], []),
        (ColumnFilter("a", "<", 2), [1], [2, 3], [None]),
        (ColumnFilter("a", ">=", 2), [2, 3], [1], [None]),
        (ColumnFilter("a", "in", (1, 3)), [1, 3], [2], [None]),
        (ColumnFilter("a", "in", (1, None)), [1], [], [2, None]),
        (ColumnFilter("a", "in", (1, None), negated=True), [], [1], [2, None]),
        (ColumnFilter("a", "null"), [None], [1], []),
        (ColumnFilter("a", "null", negated=True), [1], [None], []),
    ],
)
def test_three_valued_logic(
    condition: ColumnFilter, yes: list[Any], no: list[Any], null: list[Any]
) -> None:
    for values, expected in ((yes, True), (no, False), (null, None)):
        assert [condition.holds(value) for value in values] == [expected] * len(values)
    every = [*yes, *no, *null, *yes]
    expression = condition.expression("a", pa.int64())
    table = pa.table({"a": pa.array(every, pa.int64())})
    kept = (
        every
        if expression is None
        else ds.dataset(table).to_table(filter=expression)["a"].to_pylist()
    )
    # Spark looks again at what is left: nothing that it wants may be missing.
    assert set(yes) <= set(kept)
    if expression is not None and condition.operator != "in":
        assert set(kept) == set(yes)


@pytest.mark.parametrize(
    ("operator", "value", "kept"),
    [("starts", "a.", ["a.b"]), ("ends", "b", ["a.b", "xb"]), ("contains", ".", ["a.b"])],
)
def test_texts(operator: str, value: str, kept: list[str]) -> None:
    condition = ColumnFilter("a", operator, value)
    texts = ["a.b", "xb", "", None]
    assert [text for text in texts if condition.holds(text)] == kept
    table = pa.table({"a": texts})
    expression = condition.expression("a", pa.string())
    assert expression is not None
    assert ds.dataset(table).to_table(filter=expression)["a"].to_pylist() == kept
    assert condition.expression("a", pa.int64()) is None


@pytest.mark.parametrize(
    ("type", "value"),
    [
        (pa.int8(), 5),
        (pa.decimal128(10, 2), Decimal("1.50")),
        (pa.date32(), DAY),
        (pa.timestamp("us", "UTC"), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)),
        (pa.timestamp("us"), dt.datetime(2026, 1, 1)),  # noqa: DTZ001 - it has no zone
        (pa.bool_(), True),
    ],
)
def test_values_become_those_of_the_column(type: pa.DataType, value: Any) -> None:
    expression = ColumnFilter("a", "=", value).expression("a", type)
    table = pa.table({"a": pa.array([value, None], type)})
    assert ds.dataset(table).to_table(filter=expression)["a"].to_pylist() == [value]


@pytest.mark.parametrize(
    ("type", "value"),
    [
        (pa.int8(), 1000),
        (pa.int32(), "x"),
        (pa.float64(), 1.0),
        (pa.list_(pa.int32()), (1,)),
        (pa.date32(), "x"),
    ],
)
def test_nothing_is_said_where_it_could_be_wrong(type: pa.DataType, value: Any) -> None:
    assert ColumnFilter("a", "=", value).expression("a", type) is None


@pytest.mark.parametrize(
    ("type", "value"),
    [
        (pa.int64(), 1.5),
        (pa.int64(), Decimal("1.5")),
        (pa.date32(), dt.datetime(2026, 1, 1, 12)),  # noqa: DTZ001 - as a caller may give it
        (pa.timestamp("us", "UTC"), dt.datetime(2026, 1, 1)),  # noqa: DTZ001 - in the zone of the driver
        (pa.timestamp("us"), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)),
        (pa.timestamp("us"), 5),
        (pa.date32(), 5),
    ],
)
def test_a_value_of_another_type_is_not_cut_to_that_of_the_column(
    type: pa.DataType, value: Any
) -> None:
    # `n < 1.5` holds for 1, which `n < 1` has lost.
    for condition in (
        ColumnFilter("a", "<", value),
        ColumnFilter("a", "in", (value,), negated=True),
    ):
        assert condition.expression("a", type) is None


@pytest.mark.parametrize(
    ("type", "value", "decided"),
    [
        (pa.int32(), 1, True),
        (pa.int32(), True, False),
        (pa.int32(), "1", False),
        (pa.date32(), DAY, True),
        (pa.date32(), dt.datetime(2026, 1, 1, tzinfo=dt.UTC), False),
        (pa.string(), "x", True),
        (pa.string(), None, True),
        (pa.float64(), 1.0, False),
        (pa.timestamp("us", "UTC"), dt.datetime(2026, 1, 1, tzinfo=dt.UTC), False),
    ],
)
def test_what_is_decided_about_partition_values(
    type: pa.DataType, value: Any, decided: bool
) -> None:
    assert ColumnFilter("a", "=", value).decides(type) is decided
    assert ColumnFilter("a", "in", (value, None)).decides(type) is decided
    assert ColumnFilter("a", "null").decides(type)
