"""Request metering: requests by part and operation, for a client and for a block of code.

Operations have the names of DynamoDB and S3; adapters of other backends are counted by the
equivalent request. Each attempt counts.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import Field
from functools import wraps
from typing import (
    Any,
    ClassVar,
    Final,
    Literal,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
)

from s3k_async._core.records import replaced
from s3k_async.errors import InvalidArgumentError

__all__ = [
    "Count",
    "Counted",
    "Meter",
    "Part",
    "RequestCounter",
    "Requests",
    "counted",
    "counting",
    "counting_towards",
    "deferred",
    "enclosing_counters",
    "is_deferred",
]

Part: TypeAlias = Literal["table", "data", "log"]
"""Target of a request: the metadata table, the data location, the log location."""

_ORDER: Final[Mapping[str, int]] = {"table": 0, "data": 1, "log": 2}


class Count(NamedTuple):
    """Requests of one kind."""

    part: Part
    operation: str
    """The service's name: `GetItem`, `TransactWriteItems`, `PutObject`."""
    requests: int
    """All of them, including retries and deferred work."""
    retries: int = 0
    """Retries."""
    deferred: int = 0
    """Requests sent after the caller's result."""
    bytes: int = 0
    """Bytes of files and log objects in the bodies of requests and answers; 0 for the table."""


class Requests:
    """Numbers of requests by part and operation. Immutable; counts can be added and subtracted.

    >>> str(Requests([Count("table", "GetItem", 3, 1), Count("data", "GetObject", 1)]))
    'table: GetItem 3 (1 sent again); data: GetObject 1'
    """

    __slots__ = ("_counts",)

    def __init__(self, counts: Iterable[Count] = ()) -> None:
        merged: dict[tuple[Part, str], Count] = {}
        for count in counts:
            key = (count.part, count.operation)
            before = merged.get(key)
            merged[key] = count if before is None else _plus(before, count, 1)
        found: list[Count] = []
        for count in merged.values():
            if min(count[2:]) < 0:
                raise InvalidArgumentError("more requests are taken away than there are")
            if count.requests:
                found.append(count)
        self._counts = tuple(sorted(found, key=lambda count: (_ORDER[count.part], count.operation)))

    @property
    def counts(self) -> tuple[Count, ...]:
        """One for each kind of request: the table's, the data's, the log's, by name."""
        return self._counts

    @property
    def total(self) -> int:
        """All requests."""
        return sum(count.requests for count in self._counts)

    @property
    def retries(self) -> int:
        """Retries."""
        return sum(count.retries for count in self._counts)

    @property
    def deferred(self) -> int:
        """Requests sent after the caller's result."""
        return sum(count.deferred for count in self._counts)

    @property
    def bytes(self) -> int:
        """Bytes of files and log objects in both directions."""
        return sum(count.bytes for count in self._counts)

    def of(self, part: Part | None = None, operation: str | None = None) -> int:
        """Requests to one part, of one operation, or both."""
        return sum(
            count.requests
            for count in self._counts
            if part in (None, count.part) and operation in (None, count.operation)
        )

    def as_dict(self) -> dict[str, dict[str, int]]:
        """Requests by part and operation: `{"table": {"GetItem": 1}}`."""
        found: dict[str, dict[str, int]] = {}
        for count in self._counts:
            found.setdefault(count.part, {})[count.operation] = count.requests
        return found

    def __bool__(self) -> bool:
        return bool(self._counts)

    def __add__(self, other: Requests) -> Requests:
        return Requests((*self._counts, *other.counts))

    def __sub__(self, other: Requests) -> Requests:
        """The requests since `other` was read. Raises InvalidArgumentError if there are fewer than
        in `other`."""
        return Requests(
            (*self._counts, *(_plus(Count(c.part, c.operation, 0), c, -1) for c in other.counts))
        )

    def __eq__(self, other: object) -> bool:
        return self._counts == other.counts if isinstance(other, Requests) else NotImplemented

    def __hash__(self) -> int:
        return hash((Requests, self._counts))

    def __reduce__(self) -> tuple[Any, ...]:
        return Requests, (self._counts,)

    def __str__(self) -> str:
        parts: dict[str, list[str]] = {}
        for count in self._counts:
            parts.setdefault(count.part, []).append(_text(count))
        return "; ".join(f"{part}: {', '.join(texts)}" for part, texts in parts.items()) or "none"

    def __repr__(self) -> str:
        return f"<Requests {self}>"


def _plus(left: Count, right: Count, sign: int) -> Count:
    return Count(
        left.part, left.operation, *(a + sign * b for a, b in zip(left[2:], right[2:], strict=True))
    )


def _text(count: Count) -> str:
    asides = [f"{count.retries:,} sent again"] if count.retries else []
    asides += [f"{count.deferred:,} afterwards"] if count.deferred else []
    return f"{count.operation} {count.requests:,}" + (f" ({', '.join(asides)})" if asides else "")


class RequestCounter:
    """A running count. Belongs to one process; the event loop adds to it, any thread may read it.

    `within`: a counter that includes this one's requests. `client`: count only requests of this
    client's counter. `waited`: without deferred requests.
    """

    __slots__ = ("_counts", "client", "waited", "within")

    def __init__(
        self,
        within: RequestCounter | None = None,
        *,
        client: RequestCounter | None = None,
        waited: bool = False,
    ) -> None:
        self.within = within
        self.client = client
        self.waited = waited
        self._counts: dict[tuple[Part, str], list[int]] = {}

    @property
    def requests(self) -> Requests:
        """The count so far."""
        return Requests([Count(*kind, *counts) for kind, counts in list(self._counts.items())])

    def add(
        self, key: tuple[Part, str], requests: int, retries: int, unwaited: int, size: int
    ) -> None:
        """Count requests to one part, of one operation."""
        counts = self._counts.get(key)
        if counts is None:
            counts = self._counts.setdefault(key, [0, 0, 0, 0])
        counts[0] += requests
        if retries or unwaited or size:
            counts[1] += retries
            counts[2] += unwaited
            counts[3] += size


class Meter:
    """Counts the requests to one part of a client's volume, for the client and for active
    counters."""

    __slots__ = ("_client", "part")

    def __init__(self, part: Part, client: RequestCounter | None = None) -> None:
        self.part = part
        self._client = RequestCounter() if client is None else client

    def add(self, operation: str, requests: int = 1, *, retries: int = 0, size: int = 0) -> None:
        """Count a request with `size` bytes of content in its body; or, with 0 requests, in the
        answer to one counted before."""
        key = (self.part, operation)
        unwaited = requests if _deferred.get() else 0
        self._client.add(key, requests, retries, unwaited, size)
        counter = _counter.get()
        while counter is not None:
            if (counter.client is None or counter.client is self._client) and not (
                unwaited and counter.waited
            ):
                counter.add(key, requests, retries, unwaited, size)
            counter = counter.within


_counter: ContextVar[RequestCounter | None] = ContextVar("s3k_request_counter", default=None)
_deferred: ContextVar[bool] = ContextVar("s3k_deferred", default=False)


@contextmanager
def counting(
    client: RequestCounter | None = None,
    *,
    waited: bool = False,
) -> Iterator[RequestCounter]:
    """Count exactly the requests of the body and of its tasks, without those of concurrent work.

    `client`: only requests of this client's counter; `waited`: without deferred ones.
    """
    outer = _counter.get()
    counter = RequestCounter(outer, client=client, waited=waited)
    _counter.set(counter)
    try:
        yield counter
    finally:
        # Not `reset`, which fails if the body was left in another context: a generator that is
        # being closed.
        _counter.set(outer)


class _Share(RequestCounter):
    """Counter of one of several bodies, added to their total."""

    __slots__ = ("total",)

    def __init__(self, total: RequestCounter, within: RequestCounter | None) -> None:
        super().__init__(within, waited=True)
        self.total = total

    def add(
        self, key: tuple[Part, str], requests: int, retries: int, unwaited: int, size: int
    ) -> None:
        self.total.add(key, requests, retries, unwaited, size)


@contextmanager
def counting_towards(total: RequestCounter) -> Iterator[None]:
    """Add the requests of the body and of its tasks, without deferred ones, to `total`: for one of
    several calls of one piece of work."""
    outer = _counter.get()
    _counter.set(_Share(total, outer))
    try:
        yield
    finally:
        _counter.set(outer)


def enclosing_counters() -> Iterator[RequestCounter]:
    """The counters of the code that runs, from the innermost on."""
    counter = _counter.get()
    while counter is not None:
        yield counter.total if isinstance(counter, _Share) else counter
        counter = counter.within


def is_deferred() -> bool:
    """Whether requests of the code that runs are deferred."""
    return _deferred.get()


@contextmanager
def deferred() -> Iterator[None]:
    """Count the requests of the body as deferred: after the caller's result, and not part of a
    verb's requests."""
    before = _deferred.get()
    _deferred.set(True)
    try:
        yield
    finally:
        _deferred.set(before)


class Counted(Protocol):
    """A frozen dataclass with its requests."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def requests(self) -> Requests: ...


P = ParamSpec("P")
R = TypeVar("R", bound=Counted)


def counted(verb: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Decorator of a verb: adds its requests to its result."""

    @wraps(verb)
    async def counted_verb(*arguments: P.args, **options: P.kwargs) -> R:
        with counting(waited=True) as counter:
            result = await verb(*arguments, **options)
        return replaced(result, requests=counter.requests)

    return counted_verb
