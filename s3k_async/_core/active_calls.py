"""The active calls of a client, and their end when it closes.

A call is a verb, a step of a listing or an operation of an open file. A client that closes admits
no further call, waits for the active ones, and then cancels the rest. A call in a critical section,
in which the outcome of its change is decided, completes that section first. So a call that has
changed something returns its result, or raises OutcomeUnknownError, and one that raises
ClosedClientError has changed nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import wraps
from types import TracebackType
from typing import Any, Final, ParamSpec, Protocol, Self, TypeAlias, TypeVar, cast
from weakref import WeakKeyDictionary, WeakMethod, WeakSet

import anyio

from s3k_async._core.metering import Counted, counting, counting_towards
from s3k_async._core.observation import ObservedVerb, Observer
from s3k_async._core.records import replaced
from s3k_async.errors import ClosedClientError, OutcomeUnknownError

__all__ = [
    "Calls",
    "call",
    "counted_call",
    "critical",
    "incidental",
    "is_repeated",
    "note_change",
    "note_event",
    "note_repeated",
    "optional",
]

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R", bound=Counted)
Drop: TypeAlias = Callable[[str], Awaitable[None]]

RETURNING: Final = 1.0
"""Seconds after the time for closing in which a call that has changed something may still return.
"""
ENDING: Final = 60.0
"""Seconds for cancelled calls to end: longer than the retries of a request."""


class Calls:
    """The calls of one open volume. Belongs to one event loop. `observer`: of its verbs."""

    def __init__(self, name: str, observer: Observer | None = None) -> None:
        self.name = name
        self.observer = observer
        self._running: set[_Call] = set()
        self._streams: WeakSet[Stream[Any]] = WeakSet()
        self._unfinished: WeakKeyDictionary[object, WeakMethod[Drop]] = WeakKeyDictionary()
        self._waiter: asyncio.Future[None] | None = None
        self._hurried = False
        self.closing = False
        """Whether no further call is admitted."""

    def running(self, verb: str = "", path: object = None, *, late: bool = False) -> _Call:
        """Count the body of a `with` as one call, or as a part of the enclosing call; a call of its
        own is observed as this verb. Raises ClosedClientError, unless it may come `late`: clean-up
        of an open file may begin while the client is closing.
        """
        return _Call(self, verb, path, late=late)

    def is_inside(self) -> bool:
        """Whether the code is a part of one of these calls."""
        return any(running.calls is self and not running.over for running in _current.get())

    def begin(self, call: _Call, *, late: bool) -> None:
        """Count an active call. Raises ClosedClientError as `running`."""
        if self.closing and not late:
            raise ClosedClientError("the client is closed, or is being closed", path=self.name)
        self._running.add(call)

    def end(self, call: _Call) -> None:
        """Remove it from the active calls."""
        self._running.discard(call)
        if self._waiter is not None:
            self._wake()

    def stream(
        self, pages: AsyncIterator[T], verb: str, path: object = None
    ) -> AsyncGenerator[T, None]:
        """The pages as a stream, each step of which is a call; it is closed with the client. All
        steps together are observed as this verb."""
        stream = Stream(self, pages, verb, path)
        self._streams.add(stream)
        return stream

    async def finish(self, seconds: float) -> None:
        """Admit no further call, wait up to the timeout for active ones, then end them."""
        # Tasks that were started before this one can begin their calls.
        await asyncio.sleep(0)
        self.closing = True
        if not await self._idle(seconds):
            for running in list(self._running):
                running.end()
            await self.ended()
        with self.own():
            for stream in list(self._streams):
                await stream.aclose()

    def on_close(self, owner: object, drop: Drop) -> None:
        """Register a method of an unfinished file or transaction to be called when the client
        closes, unless its owner was collected by then."""
        self._unfinished[owner] = WeakMethod(drop)

    async def drop_unfinished(self, client: str) -> None:
        """Drop files and transactions, the latest first, so that a file precedes its transaction.
        `client` is the client in messages."""
        for method in reversed(list(self._unfinished.values())):
            drop = method()
            if drop is not None:
                await drop(client)

    async def ended(self) -> None:
        """Wait for cancelled and late calls."""
        self._hurried = False
        await self._idle(ENDING)

    def hurry(self) -> None:
        """Make `finish` cancel the remaining calls at once."""
        self._hurried = True
        self._wake()

    @contextmanager
    def own(self) -> Iterator[None]:
        """For the time of a `with`, admit calls of the body, which is a part of closing."""
        outer = _current.get()
        mine = _Call(self)
        _current.set((*outer, mine))
        try:
            yield
        finally:
            mine.over = True
            _current.set(outer)

    async def _idle(self, seconds: float) -> bool:
        """Wait until no call is active except those that this code is a part of; False after the
        timeout."""
        mine = set(_current.get())
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while self._running - mine:
            left = deadline - loop.time()
            if left <= 0 or self._hurried:
                return False
            self._waiter = loop.create_future()
            await asyncio.wait([self._waiter], timeout=left)
        return True

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class _Call:
    """One active call, for `with`."""

    # Defaults that most calls never change.
    over = False
    _observed: _Observed | None = None
    _outer: tuple[_Call, ...] | None = None
    _task: asyncio.Task[Any] | None = None
    _cancelling = 0
    _critical = 0
    _changed = False
    _ending = False
    _cancelled = False

    def __init__(
        self, calls: Calls, verb: str = "", path: object = None, *, late: bool = False
    ) -> None:
        self.calls = calls
        self._verb = verb
        self._path = path
        self._late = late
        self.repeated: set[str] = set()
        """Operations whose write was sent again, and then succeeded."""
        self._optional: set[anyio.CancelScope] = set()

    def __enter__(self) -> Self:
        outer = _current.get()
        if outer and self.calls.is_inside():
            return self
        self.calls.begin(self, late=self._late)
        self._task = asyncio.current_task()
        self._cancelling = self._task.cancelling() if self._task is not None else 0
        self._outer = outer
        _current.set((*outer, self))
        if self.calls.observer is not None and self._verb:
            self._observed = _Observed(self.calls.observer, self._verb, self._path)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._outer is None:
            return
        self.over = True
        _current.set(self._outer)
        self.calls.end(self)
        raised = error
        if self._cancelled and self._task is not None:
            others = self._task.uncancel() - self._cancelling
            if isinstance(error, asyncio.CancelledError) and others <= 0:
                raised = self._error()
        if self._observed is not None:
            self._observed.end(raised)
        if raised is not error and raised is not None:
            raise raised from error

    def end(self) -> None:
        """End the call: at once, or at the end of its critical section."""
        self._ending = True
        for scope in self._optional:
            scope.cancel()
        self._soon()

    def enter_critical(self) -> None:
        self._critical += 1

    def leave_critical(self) -> None:
        self._critical -= 1
        if self._ending:
            self._soon()

    def note_change(self) -> None:
        self._changed = True

    def enter_optional(self, scope: anyio.CancelScope) -> None:
        self._optional.add(scope)
        if self._ending:
            scope.cancel()

    def leave_optional(self, scope: anyio.CancelScope) -> None:
        self._optional.discard(scope)

    def _soon(self) -> None:
        if not self._critical:
            loop = asyncio.get_running_loop()
            loop.call_later(RETURNING if self._changed else 0, self._cancel)

    def _cancel(self) -> None:
        task = self._task
        if self.over or self._critical or self._cancelled or task is None or task.done():
            return
        if task.cancelling() > self._cancelling:
            return  # its caller has cancelled it, and it is cleaning up
        self._cancelled = True
        task.cancel()

    def _error(self) -> Exception:
        if self._changed:
            return OutcomeUnknownError(
                "the client was closed during the call; some changes may have been applied",
                path=self.calls.name,
            )
        return ClosedClientError(
            "the client was closed during the call; no changes were applied",
            path=self.calls.name,
        )


class _Observed:
    """The observation of a call that begins and ends in one task."""

    __slots__ = ("_counting", "_verb")

    def __init__(self, observer: Observer, verb: str, path: object) -> None:
        self._verb = observer.begin_verb(verb, path)
        self._counting = counting_towards(self._verb)
        self._counting.__enter__()

    def end(self, error: BaseException | None) -> None:
        self._counting.__exit__(None, None, None)
        self._verb.end(error)


_current: ContextVar[tuple[_Call, ...]] = ContextVar("s3k_calls", default=())
"""The calls, of one client or of several, that the code is a part of."""
_incidental: ContextVar[bool] = ContextVar("s3k_incidental", default=False)


class critical:  # noqa: N801 - used as a function
    """A critical section: closing waits for its end, since it decides the outcome of a change, or
    cleans up. (A class, since a generator costs three times as much, for every change.)"""

    __slots__ = ("_running",)

    def __enter__(self) -> None:
        self._running = _current.get()
        for each in self._running:
            each.enter_critical()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for each in self._running:
            each.leave_critical()


@contextmanager
def optional() -> Iterator[None]:
    """A section that is abandoned without an error when its call has to end: other clients do the
    rest."""
    running = _current.get()
    with anyio.CancelScope() as scope:
        for each in running:
            each.enter_optional(scope)
        try:
            yield
        finally:
            for each in running:
                each.leave_optional(scope)


@contextmanager
def incidental() -> Iterator[None]:
    """Changes in the body, such as missing parents, are not the change that the call is for."""
    before = _incidental.get()
    _incidental.set(True)
    try:
        yield
    finally:
        _incidental.set(before)


def note_change() -> None:
    """Record that the call has made its change, or may have."""
    if not _incidental.get():
        for each in _current.get():
            each.note_change()


def note_repeated(operation: str) -> None:
    """Record that the write of an operation was sent again after its response was lost, and then
    succeeded: whether the first request did, too, is not known."""
    for each in _current.get():
        each.repeated.add(operation)


def is_repeated(operation: str) -> bool:
    """Whether that was recorded for an operation of the present call."""
    return any(operation in each.repeated for each in _current.get())


def note_event(name: str) -> None:
    """Report an event to the observers of the calls that the code is, or was, a part of."""
    observers = {each.calls.observer for each in _current.get()}
    for observer in observers:
        if observer is not None:
            observer.event(name)


class Stream(AsyncGenerator[T, None]):
    """An asynchronous generator, each of whose steps is a call, and which is observed as one
    verb."""

    def __init__(
        self, calls: Calls, pages: AsyncIterator[T], verb: str, path: object = None
    ) -> None:
        self._calls = calls
        self._pages = pages
        self._verb = verb
        self._path = path
        self._begun = False
        self._observed: ObservedVerb | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __anext__(self) -> T:
        if not self._begun:
            self._begin()
        if self._observed is None:
            with self._calls.running():
                return await anext(self._pages)
        with self._observed.step(), self._calls.running():
            return await anext(self._pages)

    def _begin(self) -> None:
        """Observe the stream from its first step on, unless that is a part of another verb."""
        self._begun = True
        if self._calls.observer is not None and not self._calls.is_inside():
            self._loop = asyncio.get_running_loop()
            self._observed = self._calls.observer.begin_verb(self._verb, self._path)

    def __del__(self) -> None:
        if self._observed is not None and self._observed.active and self._loop is not None:
            # Later, because garbage may be collected while a receiver of observations holds a lock.
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._observed.end, GeneratorExit())

    async def asend(self, value: None) -> T:
        """As `anext`; a value is ignored."""
        del value
        return await anext(self)

    async def athrow(self, *error: Any) -> T:
        """Raise an error at the current position of the generator."""
        if not isinstance(self._pages, AsyncGenerator):
            return await super().athrow(*error)
        return cast(T, await self._pages.athrow(*error))

    async def aclose(self) -> None:
        """Close the generator and cancel its read-ahead."""
        try:
            if isinstance(self._pages, AsyncGenerator):
                await self._pages.aclose()
        finally:
            if self._observed is not None:
                self._observed.end(GeneratorExit())


class _Volume(Protocol):
    @property
    def calls(self) -> Calls: ...


class _Client(Protocol):
    def _volume(self) -> _Volume: ...


def _call_of(arguments: tuple[Any, ...], options: dict[str, Any], verb: str) -> _Call:
    """A call of a client, or of one of its files or transactions: the first argument."""
    calls = cast(_Client, arguments[0])._volume().calls  # noqa: SLF001 - hidden from users
    return _Call(calls, verb, arguments[1] if len(arguments) > 1 else options.get("path"))


_PREFIXES: Final = {
    "S3kClient": "",
    "ObjectStore": "objects.",
    "Transaction": "transaction.",
    "Trash": "trash.",
}
"""Of the names of the verbs of a class."""


def verb_name(verb: Callable[..., object]) -> str:
    """The name of a verb in observations."""
    owner = verb.__qualname__.rpartition(".")[0]
    return _PREFIXES.get(owner, "") + verb.__name__.lstrip("_")


def call(verb: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Decorator for a verb of a client, or of its files or transactions: closing the client waits
    for its calls, and its observer observes them."""
    name = verb_name(verb)

    @wraps(verb)
    async def called(*arguments: P.args, **options: P.kwargs) -> T:
        with _call_of(arguments, options, name):
            return await verb(*arguments, **options)

    return called


def counted_call(verb: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """As `call`, and adds the requests of the verb to its result, as `counted` does."""
    name = verb_name(verb)

    @wraps(verb)
    async def called(*arguments: P.args, **options: P.kwargs) -> R:
        with _call_of(arguments, options, name), counting(waited=True) as counter:
            result = await verb(*arguments, **options)
        return replaced(result, requests=counter.requests)

    return called
