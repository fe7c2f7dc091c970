"""Request metering: requests by part and operation, for a client and for a block of code.

An operation has the name that DynamoDB or S3 gives it; the adapters that speak to neither are
counted by the request that would have been sent. Each request counts, one that is sent again too.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import Field, replace
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

from s3k_async.errors import InvalidArgumentError

__all__ = [
    "Count",
    "Meter",
    "Part",
    "RequestCounter",
    "Requests",
    "counted",
    "counting",
    "counting_towards",
    "deferred",
]

Part: TypeAlias = Literal["table", "data", "log"]
"""Where a request goes: the metadata table, the place of the bytes, the place of the operation log.
"""

_ORDER: Final[Mapping[str, int]] = {"table": 0, "data": 1, "log": 2}


class Count(NamedTuple):
    """Requests of one kind."""

    part: Part
    operation: str
    """As the service calls it: `GetItem`, `TransactWriteItems`, `PutObject`."""
    requests: int
    """All of them: those that were sent again and those of work that nobody waited for included."""
    retries: int = 0
    """Those that were sent again."""
    deferred: int = 0
    """Those that were made after the caller was answered."""
    bytes: int = 0
    """Of files and log objects, in the bodies of requests and answers; 0 for the table."""


class Requests:
    """How many requests were made, by part and operation. Immutable; counts add up and can be
    subtracted.

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
        if any(min(count[2:]) < 0 for count in merged.values()):
            raise InvalidArgumentError("more requests are taken away than there are")
        found = (count for count in merged.values() if count.requests)
        self._counts = tuple(sorted(found, key=lambda count: (_ORDER[count.part], count.operation)))

    @property
    def counts(self) -> tuple[Count, ...]:
        """One for each kind of request that was made: the table's, the data's, the log's, by
        name."""
        return self._counts

    @property
    def total(self) -> int:
        """All requests."""
        return sum(count.requests for count in self._counts)

    @property
    def retries(self) -> int:
        """Requests that were sent again."""
        return sum(count.retries for count in self._counts)

    @property
    def deferred(self) -> int:
        """Requests that were made after the caller was answered."""
        return sum(count.deferred for count in self._counts)

    @property
    def bytes(self) -> int:
        """Bytes of files and log objects that went either way."""
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
        return Requests((*self._counts, *other._counts))

    def __sub__(self, other: Requests) -> Requests:
        """What was made since `other` was read. Raises InvalidArgumentError when there are fewer
        than in `other`."""
        return Requests(
            (*self._counts, *(_plus(Count(c.part, c.operation, 0), c, -1) for c in other._counts))
        )

    def __eq__(self, other: object) -> bool:
        return self._counts == other._counts if isinstance(other, Requests) else NotImplemented

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
    """A count that grows. Belongs to one process; adding to it is for the event loop, reading it
    for anybody.

    `within`: the counter that counts all this one counts, too. `client`: count nothing but what
    this client's counter counts. `waited`: leave out what nobody waits for.
    """

    __slots__ = ("_client", "_counts", "_waited", "_within")

    def __init__(
        self,
        within: RequestCounter | None = None,
        *,
        client: RequestCounter | None = None,
        waited: bool = False,
    ) -> None:
        self._within = within
        self._client = client
        self._waited = waited
        self._counts: dict[tuple[Part, str], list[int]] = {}

    @property
    def requests(self) -> Requests:
        """The count so far."""
        return Requests(
            Count(part, operation, *counts)
            for (part, operation), counts in list(self._counts.items())
        )

    def _add(
        self, key: tuple[Part, str], requests: int, retries: int, unwaited: int, size: int
    ) -> None:
        counts = self._counts.get(key)
        if counts is None:
            counts = self._counts.setdefault(key, [0, 0, 0, 0])
        counts[0] += requests
        counts[1] += retries
        counts[2] += unwaited
        counts[3] += size


class Meter:
    """Counts the requests that go to one part of a client's volume, for the client and for whoever
    counts just now."""

    __slots__ = ("_client", "_part")

    def __init__(self, part: Part, client: RequestCounter | None = None) -> None:
        self._part = part
        self._client = RequestCounter() if client is None else client

    def sent(self, operation: str, *, retried: bool = False, size: int = 0) -> None:
        """One request; `size`: bytes of content in its body."""
        self._add(operation, 1, int(retried), size)

    def received(self, operation: str, size: int) -> None:
        """Bytes of content in the answer to a request that was counted when it was sent."""
        self._add(operation, 0, 0, size)

    def _add(self, operation: str, requests: int, retries: int, size: int) -> None:
        key = (self._part, operation)
        unwaited = requests if _deferred.get() else 0
        self._client._add(key, requests, retries, unwaited, size)
        counter = _counter.get()
        while counter is not None:
            if (counter._client is None or counter._client is self._client) and not (
                unwaited and counter._waited
            ):
                counter._add(key, requests, retries, unwaited, size)
            counter = counter._within


_counter: ContextVar[RequestCounter | None] = ContextVar("s3k_request_counter", default=None)
_deferred: ContextVar[bool] = ContextVar("s3k_deferred", default=False)


@contextmanager
def counting(
    client: RequestCounter | None = None, *, waited: bool = False
) -> Iterator[RequestCounter]:
    """Count the requests of the body and of the tasks that it starts, exactly, whatever else runs
    at the same time.

    `client`: only what this client's counter counts; `waited`: only what the caller waits for.
    """
    outer = _counter.get()
    counter = RequestCounter(outer, client=client, waited=waited)
    _counter.set(counter)
    try:
        yield counter
    finally:
        # Not `reset`, which refuses where the body was left in another context: a generator that is
        # being closed.
        _counter.set(outer)


class _Share(RequestCounter):
    """Counts one of several bodies towards their total."""

    __slots__ = ("_total",)

    def __init__(self, total: RequestCounter, within: RequestCounter | None) -> None:
        super().__init__(within, waited=True)
        self._total = total

    def _add(
        self, key: tuple[Part, str], requests: int, retries: int, unwaited: int, size: int
    ) -> None:
        self._total._add(key, requests, retries, unwaited, size)


@contextmanager
def counting_towards(total: RequestCounter) -> Iterator[None]:
    """Count what the body, and the tasks that it starts, ask for and somebody waits for, in
    addition to what `total` has counted: one of several calls that are one piece of work.
    """
    outer = _counter.get()
    _counter.set(_Share(total, outer))
    try:
        yield
    finally:
        _counter.set(outer)


@contextmanager
def deferred() -> Iterator[None]:
    """The requests of the body are made after the caller was answered: told apart, and no part of
    what a verb made."""
    before = _deferred.get()
    _deferred.set(True)
    try:
        yield
    finally:
        _deferred.set(before)


class _Counted(Protocol):
    """A frozen dataclass that tells its requests."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def requests(self) -> Requests: ...


P = ParamSpec("P")
R = TypeVar("R", bound=_Counted)


def counted(verb: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """A verb whose result tells the requests that it made."""

    @wraps(verb)
    async def counted_verb(*arguments: P.args, **options: P.kwargs) -> R:
        with counting(waited=True) as counter:
            result = await verb(*arguments, **options)
        return replace(result, requests=counter.requests)

    return counted_verb
