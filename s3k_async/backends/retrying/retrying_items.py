"""The item port with definite answers: transient errors are retried, lost responses are
resolved."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import Any

from s3k_async._core.active_calls import note_repeated
from s3k_async._core.concurrency import AdaptiveLimit, gather
from s3k_async._core.metering import Meter
from s3k_async._core.observation import Observer
from s3k_async._core.retry import TRANSIENT, Retries, RetryPolicy
from s3k_async._core.runtime import Runtime
from s3k_async.backends.ports.items import (
    MAX_BATCH,
    MAX_LOAD,
    OPERATION,
    PARTITION,
    SORT,
    Action,
    Delete,
    Item,
    ItemPage,
    ItemStore,
    Key,
    Put,
    UnloadedItemsError,
    UnprocessedKeysError,
    Update,
)
from s3k_async.backends.retrying.request_pipeline import (
    ONE_ATTEMPT,
    Fence,
    Request,
    Sender,
    at_once,
)
from s3k_async.errors import (
    ConditionFailedError,
    CorruptDataError,
    OutcomeUnknownError,
    RequestTimeoutError,
    ResponseLostError,
    S3kError,
    ThrottledError,
    UnreachableError,
    UnsupportedError,
)

__all__ = ["LOST", "RetryingItems"]

LOST: tuple[type[S3kError], ...] = (ResponseLostError, RequestTimeoutError)
"""Errors after which a write may or may not have been applied."""

_READ_BACK_ATTEMPTS = 3
_BATCHES = 16
"""Batches of one read or load under way at once."""
_LOAD_BYTES = 15_000_000
"""Bytes of a BatchWriteItem at most: DynamoDB takes 16 MB."""
_BYTES_A_CHARACTER = 6
"""Of JSON, at most: a control character becomes `\\u0001`."""
_TRANSACTION = "TransactWriteItems"


class _Verdict(Enum):
    APPLIED = "applied"
    SEND_AGAIN = "send again"
    UNKNOWN = "unknown"


class RetryingItems:
    """An ItemStore over another one, whose writes end in success, a definite failure or
    OutcomeUnknownError.

    After a transient error the identical request is sent again, within `retries`. After a lost
    answer the outcome is read from the stored items: an item with the operation id (`op`) of the
    Put or Update means success. A failed condition without a lost answer before it is a plain
    ConditionFailedError. `limiter` bounds the requests in flight, `meter` counts them, `observer`
    observes them.
    """

    def __init__(
        self,
        store: ItemStore,
        retries: Retries | RetryPolicy,
        runtime: Runtime,
        limiter: AdaptiveLimit | None = None,
        meter: Meter | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._sender = Sender(retries, runtime, limiter, meter or Meter("table"), observer)
        self._retries = self._sender.retries
        self._held: Callable[[], None] | None = None

    def __repr__(self) -> str:
        return f"RetryingItems({self._store!r})"

    async def get(self, key: Key) -> Item | None:
        call = partial(self._store.get, key)
        item = await self._sender.send("GetItem", call, self._retries.read, keys=key)
        if item is not None:
            _require_key(item, key)
        return item

    def get_many(self, keys: Sequence[Key]) -> Coroutine[Any, Any, dict[Key, Item]]:
        wanted = list(dict.fromkeys(keys))
        is_batch = 0 < len(wanted) <= MAX_BATCH
        return self._get_batch(wanted) if is_batch else self._get_batches(wanted)

    async def _get_batches(self, wanted: Sequence[Key]) -> dict[Key, Item]:
        batches = [wanted[start : start + MAX_BATCH] for start in range(0, len(wanted), MAX_BATCH)]
        found: dict[Key, Item] = {}
        for batch in await gather(self._get_batch, batches, limit=_BATCHES):
            found |= batch
        return found

    async def query(
        self,
        partition: str,
        *,
        cursor: str | None = None,
        after: str = "",
        limit: int | None = None,
    ) -> ItemPage:
        call = partial(self._store.query, partition, cursor=cursor, after=after, limit=limit)
        page = await self._sender.send("Query", call, self._retries.scan, keys=partition)
        # A columnar page makes an item at each access; a page of another partition differs at both
        # ends, too.
        for place in (0, -1) if page.items else ():
            item = page.items[place]
            _require_key(item, Key(partition, str(item[SORT])))
        return page

    async def scan(
        self, segment: int, segments: int, *, cursor: str | None = None, limit: int | None = None
    ) -> ItemPage:
        call = partial(self._store.scan, segment, segments, cursor=cursor, limit=limit)
        return await self._sender.send("Scan", call, self._retries.scan)

    async def write(self, action: Put | Update | Delete) -> None:
        if isinstance(action, Delete):
            # A single delete leaves no item to resolve a lost answer by; with a token the engine
            # remembers it.
            token = self._runtime.uuid()
            await self._apply(
                _TRANSACTION, lambda: self._store.transact([action], token), [action], None
            )
        else:
            operation = "PutItem" if isinstance(action, Put) else "UpdateItem"
            await self._apply(operation, lambda: self._store.write(action), [action], None)

    def transact(self, actions: Sequence[Action], token: str) -> Coroutine[Any, Any, None]:
        return self._apply(
            _TRANSACTION, partial(self._store.transact, actions, token), actions, token
        )

    def fence(self, fence: Fence) -> None:
        """Check `fence` for each request from now on."""
        self._sender.fence = fence

    async def peek(self, key: Key) -> Item | None:
        """`get` for the fence itself: one attempt, without fence and meter. The caller of the fence
        retries.

        A lost answer is raised as UnreachableError: the request behind the fence was not sent.
        """
        try:
            return await self._store.get(key)
        except LOST as error:
            raise UnreachableError(f"no answer came ({error.message})", path=error.path) from error

    async def probe(self, key: Key) -> None:
        """Read an item in one attempt, which does not wait for other requests: a health check.
        Raises the errors of `get`."""
        call = partial(self._store.get, key)
        with at_once():
            await self._sender.send("GetItem", call, ONE_ATTEMPT, keys=key)

    @contextmanager
    def loading(self, held: Callable[[], None]) -> Iterator[None]:
        """Enable `load` for the body. `held` is called before each request, and raises unless the
        volume's exclusive lock certainly is still held."""
        self._held = held
        try:
            yield
        finally:
            self._held = None

    async def load(self, items: Sequence[Item]) -> None:
        """As the port's `load`, for any number of items, in batches; unprocessed items are sent
        again.

        Raises UnsupportedError outside of `loading`, and what `held` raises. A lost answer is
        harmless: the same items are written again.
        """
        if self._held is None:
            raise UnsupportedError(
                "items are only written without a condition under the volume's exclusive lock"
            )
        if len({(item.get(PARTITION), item.get(SORT)) for item in items}) < len(items):
            raise ValueError("a load names an item twice")
        await gather(self._load_batch, _batches(items), limit=_BATCHES)

    async def close(self) -> None:
        await self._store.close()

    async def _get_batch(
        self, keys: Sequence[Key], policy: RetryPolicy | None = None
    ) -> dict[Key, Item]:
        found: dict[Key, Item] = {}
        left = keys

        async def ask() -> None:
            nonlocal left
            try:
                found.update(await self._store.get_many(left))
            except UnprocessedKeysError as error:
                found.update(error.found)
                left = error.left
                raise

        while True:
            before = len(left)
            try:
                await self._sender.send(
                    "BatchGetItem", ask, policy or self._retries.read, keys=left
                )
            except ThrottledError as error:
                if len(left) < before:
                    # Progress: the next request is for the rest.
                    continue
                if not isinstance(error, UnprocessedKeysError):
                    raise
                raise ThrottledError(error.message, path=error.path) from error
            requested = set(keys)
            for key, item in found.items():
                _require_key(item, key if key in requested else keys[0])
            return found

    async def _load_batch(self, items: Sequence[Item]) -> None:
        left = items

        async def put() -> None:
            nonlocal left
            if self._held is None:
                raise UnsupportedError("the volume's exclusive lock was given up")
            self._held()
            try:
                await self._store.load(left)
            except UnloadedItemsError as error:
                left = error.left
                raise

        again = False
        while True:
            before = len(left)
            try:
                return await self._sender.send(
                    "BatchWriteItem", put, self._retries.write, again=again, keys=left
                )
            except ThrottledError as error:
                again = True
                if len(left) < before:
                    # Progress: the next request is for the rest.
                    continue
                if not isinstance(error, UnloadedItemsError):
                    raise
                raise ThrottledError(error.message, path=error.path) from error

    async def _apply(
        self,
        operation: str,
        call: Callable[[], Awaitable[None]],
        actions: Sequence[Action],
        token: str | None,
    ) -> None:
        request = Request(self._sender, operation, self._retries.write, keys=actions)
        lost = final = False
        while True:
            try:
                async with request:
                    await call()
                if lost and token is None and (operation_id := _operation(actions[0])):
                    note_repeated(operation_id)
                return
            except S3kError as error:
                failure = error
            lost = lost or isinstance(failure, LOST)
            transient = isinstance(failure, TRANSIENT)
            delay = request.delay(failure) if transient or lost else None
            if not (transient and delay is not None):
                if not lost:
                    raise failure
                verdict = await self._resolve(actions, failure)
                if verdict is _Verdict.APPLIED:
                    return
                if verdict is _Verdict.UNKNOWN or final:
                    raise _unknown(actions, token, request.attempts(), failure) from failure
                final = delay is None
            if delay is not None:
                await self._runtime.sleep(delay)

    async def _resolve(self, actions: Sequence[Action], failure: S3kError) -> _Verdict:
        """Outcome of a write whose answer was lost; `failure` is its last error."""
        if isinstance(failure, ConditionFailedError):
            if any(
                _was_applied(actions[position], item) for position, item in failure.current.items()
            ):
                return _Verdict.APPLIED
            if len(actions) == 1:
                return _Verdict.UNKNOWN
        try:
            stored = await self._read_back([action.key for action in actions])
        except S3kError:
            return _Verdict.UNKNOWN
        if any(_was_applied(action, stored.get(action.key)) for action in actions):
            return _Verdict.APPLIED
        holding = [action.when.holds(stored.get(action.key)) for action in actions]
        # Without a refusal so far, one more request shows which conditions are in the way.
        if all(holding) or (any(holding) and isinstance(failure, LOST)):
            return _Verdict.SEND_AGAIN
        return _Verdict.UNKNOWN

    async def _read_back(self, keys: Sequence[Key]) -> Mapping[Key, Item]:
        policy = self._retries.read
        return await self._get_batch(
            keys, replace(policy, attempts=min(policy.attempts, _READ_BACK_ATTEMPTS))
        )


def _require_key(item: Item, key: Key) -> None:
    """Raise CorruptDataError unless the item has the requested key: another item names another
    file's bytes."""
    if (item.get(PARTITION), item.get(SORT)) != key:
        raise CorruptDataError(
            "the table answered with another item than the requested one: the table is damaged, or "
            "a proxy changes its answers",
            path=f"{key.partition}/{key.sort}",
        )


def _operation(action: Action) -> str | None:
    """The operation id that the action writes to the item."""
    written = (
        action.item if isinstance(action, Put) else action.set if isinstance(action, Update) else {}
    )
    operation = written.get(OPERATION)
    return operation if isinstance(operation, str) and operation else None


def _was_applied(action: Action, stored: Item | None) -> bool:
    operation = _operation(action)
    return operation is not None and stored is not None and stored.get(OPERATION) == operation


def _unknown(
    actions: Sequence[Action], token: str | None, attempts: str, failure: S3kError
) -> OutcomeUnknownError:
    operation = next(filter(None, map(_operation, actions)), token)
    key = actions[0].key
    return OutcomeUnknownError(
        "the answer to a write was lost, and the stored items do not tell whether it was applied:"
        f" {attempts}, of which the last: {failure.message}",
        path=f"{key.partition}/{key.sort}",
        operation=operation,
    )


def _batches(items: Sequence[Item]) -> Iterator[list[Item]]:
    """The items in batches of one BatchWriteItem."""
    batch: list[Item] = []
    size = 0
    for item in items:
        weight = _BYTES_A_CHARACTER * sum(
            len(name) + len(str(value)) for name, value in item.items()
        )
        if batch and (len(batch) == MAX_LOAD or size + weight > _LOAD_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += weight
    if batch:
        yield batch
