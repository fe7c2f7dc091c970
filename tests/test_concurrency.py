"""Bounded concurrency: what comes out of it when something fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import anyio
import pytest

from s3k_async._core.concurrency import Budget, ended, run_all, to_the_end
from s3k_async.errors import DataMissingError


async def _fail(item: int) -> None:
    raise DataMissingError(f"part {item} is missing")


def _reached(error: BaseException) -> list[BaseException]:
    """Every exception that can be reached from one, as somebody who pickles causes, contexts and
    groups reaches it."""
    found = [each for each in (error.__cause__, error.__context__) if each is not None]
    if isinstance(error, BaseExceptionGroup):
        found.extend(error.exceptions)
    return [each for one in found for each in (one, *(_reached(one) if one is not error else []))]


@pytest.mark.parametrize(
    "run", [lambda: run_all(_fail, range(3), limit=3), lambda: Budget(3).run_all(_fail, range(3))]
)
async def test_an_error_that_leaves_its_group_is_not_its_own_context(
    run: Callable[[], Awaitable[None]],
) -> None:
    with pytest.raises(DataMissingError) as caught:
        await run()
    assert all(each is not caught.value for each in _reached(caught.value))


async def test_an_error_that_leaves_its_group_keeps_cause_and_context() -> None:
    async def fail(_: int) -> None:
        try:
            raise KeyError("a")
        except KeyError as error:
            raise DataMissingError("missing") from error

    with pytest.raises(DataMissingError) as caught:
        await run_all(fail, [1], limit=1)
    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.__context__ is caught.value.__cause__


class _Work:
    """Work that ends once `may_end` is set."""

    def __init__(self, error: Exception | None = None) -> None:
        self.began = asyncio.Event()
        self.may_end = asyncio.Event()
        self.has_ended = False
        self._error = error

    async def run(self) -> str:
        self.began.set()
        await self.may_end.wait()
        self.has_ended = True
        if self._error is not None:
            raise self._error
        return "result"


@pytest.mark.parametrize("cancellations", [1, 2, 3])
@pytest.mark.parametrize("message", [(), ("stop",)])
@pytest.mark.parametrize("error", [None, DataMissingError("missing")])
async def test_work_runs_to_the_end_before_a_cancellation_is_raised(
    cancellations: int, message: tuple[str, ...], error: Exception | None
) -> None:
    work = _Work(error)
    caller = asyncio.create_task(to_the_end(work.run))
    await work.began.wait()
    for _ in range(cancellations):
        caller.cancel(*message)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not caller.done()
    work.may_end.set()
    with pytest.raises(asyncio.CancelledError) as caught:
        await caller
    assert work.has_ended
    assert caught.value.__cause__ is error


async def test_a_cancelled_scope_leaves_work_its_result_and_cancels_what_follows() -> None:
    work, results = _Work(), []
    with anyio.CancelScope() as scope:

        async def cancel() -> None:
            await work.began.wait()
            scope.cancel()
            await asyncio.sleep(0.01)
            assert not work.has_ended
            work.may_end.set()

        canceller = asyncio.create_task(cancel())
        results.append(await to_the_end(work.run))
        await asyncio.sleep(0)
        results.append("not reached")
    await canceller
    assert scope.cancelled_caught
    assert results == ["result"]


async def test_a_cancelled_scope_does_not_hide_a_cancellation_of_the_task() -> None:
    work = _Work()

    async def call() -> None:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await to_the_end(work.run)

    caller = asyncio.create_task(call())
    await work.began.wait()
    caller.cancel()
    await asyncio.sleep(0)
    work.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert work.has_ended


async def test_a_failure_in_a_cancelled_scope_is_raised() -> None:
    work = _Work(DataMissingError("missing"))
    work.may_end.set()
    with anyio.CancelScope() as scope:
        scope.cancel()
        with pytest.raises(DataMissingError):
            await to_the_end(work.run)


async def test_waiting_for_a_task_that_goes_on_can_be_cancelled() -> None:
    work = _Work()
    task = asyncio.create_task(work.run())
    waiting = asyncio.create_task(ended(task))
    await work.began.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not task.done()
    work.may_end.set()
    await ended(task)
    assert task.result() == "result"
    await ended(task)
