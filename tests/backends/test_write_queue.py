"""The queue of writes, which commits those that wait together."""

from __future__ import annotations

import sqlite3
import threading

from s3k_async.backends.write_queue import WriteQueue
from s3k_async.errors import (
    NoSpaceError,
)


def test_a_write_that_was_cancelled_before_its_turn_is_dropped() -> None:
    hold, begun = threading.Event(), threading.Event()
    applied: list[int] = []

    def commit(batch: object) -> list[None]:
        assert isinstance(batch, list)
        begun.set()
        hold.wait(20)
        applied.extend(batch)
        return [None] * len(batch)

    queue: WriteQueue[int, None] = WriteQueue(commit)
    queue.submit(1)
    assert begun.wait(20)
    second, third = queue.submit(2), queue.submit(3)
    assert second.cancel()
    hold.set()
    third.result(20)
    queue.close()
    assert applied == [1, 3]


def test_a_failed_commit_fails_every_write_of_the_batch_with_an_error_of_its_own() -> None:
    hold, begun = threading.Event(), threading.Event()
    batches: list[int] = []

    def commit(batch: object) -> list[None]:
        assert isinstance(batch, list)
        begun.set()
        hold.wait(20)
        batches.append(len(batch))
        if len(batch) > 1:
            raise NoSpaceError("full", path="t") from sqlite3.OperationalError("full")
        return [None] * len(batch)

    queue: WriteQueue[int, None] = WriteQueue(commit)
    first = queue.submit(0)
    assert begun.wait(20)
    rest = [queue.submit(number) for number in range(1, 600)]
    hold.set()
    assert first.result(20) is None
    errors = [future.exception(20) for future in rest]
    assert all(isinstance(error, NoSpaceError) and error.__cause__ is not None for error in errors)
    assert len({id(error) for error in errors}) == len(errors)
    queue.close()
    assert sum(batches) == 600
    assert max(batches) > 100


def test_the_writing_thread_ends_with_the_queue() -> None:
    queue: WriteQueue[int, None] = WriteQueue(lambda batch: [None] * len(batch))
    futures = [queue.submit(number) for number in range(1000)]
    queue.close()
    assert all(future.done() for future in futures)
    assert queue._thread is not None
    assert not queue._thread.is_alive()
