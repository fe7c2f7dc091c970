"""Bounded concurrency: what comes out of it when something fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from s3k_async._core.concurrency import Budget, run_all
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
