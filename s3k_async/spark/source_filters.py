"""Filters on columns: as Spark pushes them to a data source, evaluated on partition values and for
pyarrow."""

from __future__ import annotations

import datetime as dt
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["ColumnFilter", "condition_of"]

_NAMES: Final[Mapping[str, str]] = {
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "In": "in",
    "IsNull": "null",
    "IsNotNull": "not null",
    "StringStartsWith": "starts",
    "StringEndsWith": "ends",
    "StringContains": "contains",
}
"""Classes of `pyspark.sql.datasource`, which PySpark 3.5 does not have."""

_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_TEXTS: Final[Mapping[str, tuple[Callable[[str, str], bool], Callable[..., pc.Expression]]]] = {
    "starts": (str.startswith, pc.starts_with),
    "ends": (str.endswith, pc.ends_with),
    "contains": (operator.contains, pc.match_substring),
}


@dataclass(frozen=True, slots=True)
class ColumnFilter:
    """A condition on rows: `column operator value`, three-valued as in SQL.

    Operators are `=`, `<=>` (null equals null), `<`, `<=`, `>`, `>=`, `in` (of a tuple), `null`,
    `starts`, `ends` and `contains`.
    """

    column: str
    operator: str
    value: Any = None
    negated: bool = False

    def decides(self, type: pa.DataType) -> bool:
        """Whether `holds` decides about values of a type exactly as Spark does."""
        if self.operator == "null":
            return True
        values = self.value if self.operator == "in" else (self.value,)
        wanted = int if pa.types.is_integer(type) else dt.date if pa.types.is_date32(type) else str
        others = bool | dt.datetime
        if wanted is str and not pa.types.is_string(type):
            return False
        return all(
            value is None or (isinstance(value, wanted) and not isinstance(value, others))
            for value in values
        )

    def holds(self, value: Any) -> bool | None:
        """Whether a value meets the condition; None is SQL's null, for which the result is
        false."""
        found = self._holds(value)
        return not found if self.negated and found is not None else found

    def _holds(self, value: Any) -> bool | None:
        if self.operator == "null":
            return value is None
        if self.operator == "<=>":
            return bool(value == self.value)
        if value is None or self.value is None:
            return None
        if self.operator == "in":
            return True if value in self.value else None if None in self.value else False
        if self.operator in _TEXTS:
            return _TEXTS[self.operator][0](value, self.value)
        return bool(_COMPARISONS[self.operator](value, self.value))

    def expression(self, name: str, type: pa.DataType) -> pc.Expression | None:
        """The filter for pyarrow on a column of a file, which selects a superset of the matching
        rows; None if there is none.

        There is none for floating-point numbers: NaN is equal to itself in Spark, but not in
        pyarrow.
        """
        column = pc.field(name)
        if self.operator == "null":
            return column.is_valid() if self.negated else column.is_null()
        values = self.value if self.operator == "in" else (self.value,)
        if not all(value is None or _is_of(value, type) for value in values):
            return None
        try:
            return self._expression(column, type)
        except (
            pa.ArrowException,
            TypeError,
            ValueError,
            OverflowError,
        ):  # no value of the column's type
            return None

    def _expression(self, column: pc.Expression, type: pa.DataType) -> pc.Expression | None:
        if self.operator == "in":
            if None in self.value:
                return None
            found = column.isin(pa.array(self.value, type))
        elif self.operator == "<=>" and self.value is None:
            found = column.is_null()
        elif self.value is None:
            return None
        elif self.operator == "<=>":
            literal = pa.scalar(self.value, type)
            return (column != literal) | column.is_null() if self.negated else column == literal
        elif self.operator in _TEXTS:
            if not pa.types.is_string(type):
                return None
            found = _TEXTS[self.operator][1](column, self.value)
        else:
            found = _COMPARISONS[self.operator](column, pa.scalar(self.value, type))
        return ~found if self.negated else found


def condition_of(pushed: Any) -> ColumnFilter | None:
    """The condition for a filter that Spark pushes; None for an unsupported kind and for a nested
    column."""
    negated = False
    while type(pushed).__name__ == "Not":
        pushed, negated = pushed.child, not negated
    name = _NAMES.get(type(pushed).__name__)
    if name is None or len(pushed.attribute) != 1:
        return None
    column: str = pushed.attribute[0]
    if name == "not null":
        return ColumnFilter(column, "null", negated=not negated)
    value = getattr(pushed, "value", None)
    return ColumnFilter(column, name, tuple(value) if isinstance(value, list) else value, negated)


def _is_of(value: Any, type: pa.DataType) -> bool:
    """Whether a value has exactly this type. Spark widens the column for any other (`n <
    1.5`, a date beside a time, a time without a zone), where pyarrow would cut the value to the
    column's type.
    """
    types = pa.types
    if types.is_timestamp(type):
        return isinstance(value, dt.datetime) and (value.tzinfo is None) == (type.tz is None)
    if types.is_date32(type):
        return isinstance(value, dt.date) and not isinstance(value, dt.datetime)
    if types.is_boolean(type):
        return isinstance(value, bool)
    if types.is_integer(type):
        return isinstance(value, int) and not isinstance(value, bool)
    if types.is_decimal(type):
        return isinstance(value, int | Decimal) and not isinstance(value, bool)
    return bool(types.is_string(type)) and isinstance(value, str)
