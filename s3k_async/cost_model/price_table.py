"""Prices of requests, and what the requests of a prediction cost.

The built-in table has the list prices of AWS for requests in us-east-1: Amazon DynamoDB on demand,
table class Standard (since 2024-11-01, when they were halved), and Amazon S3 Standard, from the
pages "Amazon DynamoDB pricing" and "Amazon S3 pricing". Storage and transfer are not included.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from s3k_async._core.metering import Part
from s3k_async.cost_model.prediction import Prediction
from s3k_async.errors import ConfigError

__all__ = ["LIST_PRICES", "Cost", "PriceTable", "read_prices"]

_READS: Final = frozenset({"GetObject", "HeadObject"})
_FREE: Final = frozenset({"AbortMultipartUpload", "DeleteObject", "DeleteObjects"})
_MILLION: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Cost:
    """Dollars, by part of a volume."""

    table: float = 0.0
    data: float = 0.0
    log: float = 0.0

    @property
    def total(self) -> float:
        """The sum."""
        return self.table + self.data + self.log

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.table + other.table, self.data + other.data, self.log + other.log)


@dataclass(frozen=True, slots=True)
class PriceTable:
    """Dollars for a million."""

    source: str
    """Where the prices are from, with region and kind of table and bucket."""
    date: str
    """The day from which they apply, or on which they were read: `2024-11-01`."""
    read_units: float
    """Read units of the table."""
    write_units: float
    puts: float
    """Requests of the bucket that write or list. Deletions are free."""
    gets: float
    """Other requests of the bucket."""

    def cost(self, prediction: Prediction | None) -> Cost:
        """What the requests of a prediction cost; nothing for None."""
        if prediction is None:
            return Cost()
        units = prediction.read_units * self.read_units + prediction.write_units * self.write_units
        return Cost(
            units / _MILLION, self._blobs(prediction, "data"), self._blobs(prediction, "log")
        )

    def _blobs(self, prediction: Prediction, part: Part) -> float:
        prices = (
            count.likely * self._price(operation)
            for (of, operation), count in prediction.requests.items()
            if of == part
        )
        return sum(prices) / _MILLION

    def _price(self, operation: str) -> float:
        if operation in _FREE:
            return 0.0
        return self.gets if operation in _READS else self.puts


LIST_PRICES: Final = PriceTable(
    source="AWS list prices, us-east-1, DynamoDB on demand, S3 Standard",
    date="2024-11-01",
    read_units=0.125,
    write_units=0.625,
    puts=5.0,
    gets=0.4,
)
_NUMBERS: Final = ("read_units", "write_units", "puts", "gets")
_TEXTS: Final = ("source", "date")


def read_prices(path: str) -> PriceTable:
    """The table in a TOML file, whose keys are the fields of PriceTable; all are required.

    Raises ConfigError: no such file, not TOML, a missing or unknown key, a value of another type,
    a negative price.
    """
    try:
        with open(path, "rb") as file:
            content = tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"the prices cannot be read: {error.strerror}", path=path) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the prices are not TOML: {error}", path=path) from error
    if problem := _problem(content):
        keys = ", ".join((*_TEXTS, *_NUMBERS))
        raise ConfigError(f"{problem}; the file has the keys {keys}", path=path)
    read_units, write_units, puts, gets = (float(content[name]) for name in _NUMBERS)
    return PriceTable(
        content["source"],
        content["date"],
        read_units=read_units,
        write_units=write_units,
        puts=puts,
        gets=gets,
    )


def _problem(content: Mapping[str, Any]) -> str:
    """What is wrong with a table; empty if nothing is."""
    for name in (*_TEXTS, *_NUMBERS):
        if name not in content:
            return f"the price table has no {name!r}"
    for name, value in content.items():
        if name not in (*_TEXTS, *_NUMBERS):
            return f"the price table has an unknown key {name!r}"
        if name in _NUMBERS and not _is_price(value):
            return f"the price {name!r} is not a number of dollars for a million"
        if name in _TEXTS and not isinstance(value, str):
            return f"{name!r} is not a text in quotes"
    return ""


def _is_price(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and value >= 0
