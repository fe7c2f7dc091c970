"""Reading the exposition of `PrometheusMetrics` back: Prometheus' text format 0.0.4, and
OpenMetrics 1.0.

Formats: https://prometheus.io/docs/instrumenting/exposition_formats/ and
https://github.com/prometheus/OpenMetrics. Only the metrics of docs/metrics.md are read, and these
strictly: an exposition that ends early is an error. Those of other software are skipped.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from s3k_async._core.metric_totals import (
    LATENCY_BOUNDS,
    Histogram,
    RequestTotals,
    TotalsSnapshot,
)
from s3k_async.errors import InvalidArgumentError

__all__ = ["parse_exposition"]

_OF_REQUEST: Final = ("volume", "part", "operation", "error")
_VERBS: Final = "s3k_verb_duration_seconds"
_REQUESTS: Final = "s3k_request_duration_seconds"
_QUEUES: Final = "s3k_request_queue_seconds"
_EVENTS: Final = "s3k_events_total"
_HISTOGRAMS: Final[Mapping[str, tuple[str, ...]]] = {
    _VERBS: ("volume", "verb", "error"),
    _REQUESTS: _OF_REQUEST,
    _QUEUES: ("volume", "part"),
}
_REQUEST_COUNTERS: Final = (
    "s3k_request_retries_total",
    "s3k_request_throttles_total",
    "s3k_request_sent_bytes_total",
    "s3k_request_received_bytes_total",
)
"""In the order of the fields of `RequestTotals`."""
_COUNTERS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(_REQUEST_COUNTERS, _OF_REQUEST),
    _EVENTS: ("volume", "event"),
}

_NUMBER: Final = r"[+-]?(?:[0-9]++\.?+[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?+"
_LABEL_NAME: Final = r"[a-zA-Z_][a-zA-Z0-9_]*+"
_TEXT: Final = r'(?:[^"\\]|\\.)*+'
_LABEL: Final = rf'{_LABEL_NAME}[ \t]*+=[ \t]*+"{_TEXT}"[ \t]*+'
_SAMPLE: Final = re.compile(
    rf"([a-zA-Z_:][a-zA-Z0-9_:]*+)[ \t]*+"
    rf"(?:\{{[ \t]*+((?:{_LABEL}(?:,[ \t]*+{_LABEL})*+,?+[ \t]*+)?+)\}}[ \t]*+)?+"
    rf"(?<=[ \t}}])([+]Inf|{_NUMBER})(?:[ \t]++{_NUMBER})?+(?:[ \t]+\#[ \t].*)?[ \t]*+"
)
"""Name, labels, value; then perhaps a timestamp, and an exemplar of OpenMetrics."""
_LABELS: Final = re.compile(rf'({_LABEL_NAME})[ \t]*+=[ \t]*+"({_TEXT})"')
_FLOAT: Final = re.compile(_NUMBER)
_NAME: Final = re.compile(r"s3k_[a-zA-Z0-9_:]*")
_TYPE: Final = re.compile(r"#[ \t]+TYPE[ \t]+(s3k_[a-zA-Z0-9_]+)[ \t]+([a-z]+)[ \t]*")
_ESCAPE: Final = re.compile(r'\\([\\n"])')
_END: Final = re.compile(r"^# EOF[ \t]*$", re.MULTILINE)
_SHOWN: Final = 60
"""Characters of a line in an error."""

_Key: TypeAlias = tuple[str, ...]


def parse_exposition(text: str) -> TotalsSnapshot:
    """The totals in an exposition. Raises InvalidArgumentError if there are none in it, if a line
    about them is malformed, if a part is missing, and if they are those of several processes."""
    if not text.endswith("\n") and not _END.search(text):
        raise _foreign(text) if "s3k_" not in text else _incomplete("the last line has no end")
    samples = _Samples()
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("s3k_"):
            samples.add(line, number)
        elif declared := _TYPE.fullmatch(line):
            samples.declare(declared[1], declared[2])
    if not samples.families:
        raise _foreign(text)
    if missing := {*_HISTOGRAMS, *_COUNTERS} - samples.families:
        raise _incomplete(f"there is no {min(missing)}")
    if samples.is_openmetrics and not _END.search(text):
        raise _incomplete("there is no # EOF at the end")
    return samples.totals()


class _Samples:
    """The samples of the known metrics."""

    def __init__(self) -> None:
        self.families: set[str] = set()
        """Known metrics with a type or a sample."""
        self.is_openmetrics = False
        self._values: dict[tuple[str, _Key], float] = {}
        self._buckets: dict[tuple[str, _Key], list[tuple[float, float]]] = {}

    def declare(self, name: str, kind: str) -> None:
        """Take a TYPE line. OpenMetrics omits `_total` there."""
        if kind == "counter" and f"{name}_total" in _COUNTERS:
            self.is_openmetrics = True
            name += "_total"
        if name in _HISTOGRAMS or name in _COUNTERS:
            self.families.add(name)

    def add(self, line: str, number: int) -> None:
        """Take a sample, if it is of a known metric."""
        named = _NAME.match(line)
        family, suffix = _family(named[0] if named else "")
        if not family:
            return
        found = _SAMPLE.fullmatch(line)
        if found is None:
            raise _malformed(line, number)
        given = [(each[1], _unescaped(each[2])) for each in _LABELS.finditer(found[2] or "")]
        labels = dict(given)
        names = _HISTOGRAMS.get(family) or _COUNTERS[family]
        value = float(found[3])
        if not labels.keys() >= {*names} or len(labels) != len(given) or not 0 <= value < math.inf:
            raise _malformed(line, number)
        self.families.add(family)
        key = tuple(labels[name] for name in names)
        if suffix == "_bucket":
            bound = _bound(labels.get("le", ""))
            if math.isnan(bound):
                raise _malformed(line, number)
            self._buckets.setdefault((family, key), []).append((bound, value))
            return
        if (family + suffix, key) in self._values:
            raise InvalidArgumentError(
                f"line {number} repeats a metric, as if there were several processes: s3k stats "
                "reads the metrics of one"
            )
        self._values[family + suffix, key] = value

    def totals(self) -> TotalsSnapshot:
        """The totals in the samples."""
        bounds = self._bounds()
        latencies = self._histograms(_REQUESTS, bounds)
        self._check_requests(latencies)
        return TotalsSnapshot(
            bounds,
            {_verb(key): each for key, each in self._histograms(_VERBS, bounds).items()},
            {
                _request(key): RequestTotals(
                    each, *(_whole(self._values[name, key], name) for name in _REQUEST_COUNTERS)
                )
                for key, each in latencies.items()
            },
            {_pair(key): each for key, each in self._histograms(_QUEUES, bounds).items()},
            {
                _pair(key): _whole(value, name)
                for (name, key), value in self._values.items()
                if name == _EVENTS
            },
        )

    def _bounds(self) -> tuple[float, ...]:
        """The bounds of the buckets, which all histograms of a process share."""
        found = {tuple(bound for bound, _ in each) for each in self._buckets.values()}
        if len(found) > 1:
            raise InvalidArgumentError(
                "the buckets of its histograms differ, or some are missing: s3k stats reads the "
                "whole exposition of one process"
            )
        bounds = found.pop() if found else (*LATENCY_BOUNDS, math.inf)
        if len(bounds) < 2 or list(bounds) != sorted(set(bounds)) or bounds[-1] != math.inf:
            raise _incomplete("a histogram lacks buckets")
        return bounds[:-1]

    def _histograms(self, family: str, bounds: tuple[float, ...]) -> dict[_Key, Histogram]:
        found: dict[_Key, Histogram] = {}
        for (name, key), buckets in self._buckets.items():
            if name == family:
                found[key] = self._histogram(family, key, bounds, [each for _, each in buckets])
        for suffix in ("_count", "_sum"):
            if found.keys() != {key for name, key in self._values if name == family + suffix}:
                raise _incomplete(f"{family} has no {suffix} for each histogram, or no buckets")
        return found

    def _histogram(
        self, family: str, key: _Key, bounds: tuple[float, ...], cumulative: list[float]
    ) -> Histogram:
        numbers = [_whole(each, family) for each in cumulative]
        histogram = Histogram(bounds)
        histogram.buckets = [b - a for a, b in zip([0, *numbers], numbers, strict=False)]
        histogram.sum = self._values.get((f"{family}_sum", key), 0.0)
        count = self._values.get((f"{family}_count", key), numbers[-1])
        if min(histogram.buckets) < 0 or count != numbers[-1]:
            raise InvalidArgumentError(f"the buckets of {family} contradict each other")
        return histogram

    def _check_requests(self, keys: Iterable[_Key]) -> None:
        """Raise InvalidArgumentError unless each request has all its counters."""
        wanted = {*keys}
        for counter in _REQUEST_COUNTERS:
            if wanted != {key for name, key in self._values if name == counter}:
                raise _incomplete(f"{counter} is not there for each request")


def _family(name: str) -> tuple[str, str]:
    """The known metric of a sample, and the suffix of a histogram's samples; empty for others."""
    if name in _COUNTERS:
        return name, ""
    for suffix in ("_bucket", "_count", "_sum"):
        if name.removesuffix(suffix) in _HISTOGRAMS and name.endswith(suffix):
            return name.removesuffix(suffix), suffix
    return "", ""


def _bound(text: str) -> float:
    """The bound of a bucket; NaN if it is none."""
    if text == "+Inf":
        return math.inf
    return float(text) if _FLOAT.fullmatch(text) else math.nan


def _whole(value: float, name: str) -> int:
    if not value.is_integer():
        raise InvalidArgumentError(f"a count of {name} is not a whole number: {value}")
    return int(value)


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda found: "\n" if found[1] == "n" else found[1], text)


def _verb(key: _Key) -> tuple[str, str, str]:
    volume, verb, error = key
    return volume, verb, error


def _request(key: _Key) -> tuple[str, str, str, str]:
    volume, part, operation, error = key
    return volume, part, operation, error


def _pair(key: _Key) -> tuple[str, str]:
    volume, name = key
    return volume, name


def _malformed(line: str, number: int) -> InvalidArgumentError:
    shown = line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."
    return InvalidArgumentError(
        f"line {number} is not a sample in a text format of Prometheus: {shown!r}"
    )


def _incomplete(what: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"the metrics are incomplete: {what}; read all of them again")


def _foreign(text: str) -> InvalidArgumentError:
    """The error for a text without metrics of ours, with its probable cause."""
    start = text.lstrip()[:_SHOWN].lower()
    if start.startswith(("<!doctype", "<html", "<?xml")):
        return InvalidArgumentError(
            "it is a page, not metrics: give the address of the metrics, which often ends with "
            "/metrics"
        )
    return InvalidArgumentError(
        "it has no metrics of s3k: the service needs a client with PrometheusMetrics "
        "(docs/metrics.md)"
    )
