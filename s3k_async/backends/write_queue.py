"""Group commit: one thread applies concurrent writes in one transaction."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from s3k_async.errors import S3kError, copy_of

__all__ = ["WriteQueue"]

W = TypeVar("W")
R = TypeVar("R")

_IDLE_SECONDS = 5.0


class WriteQueue(Generic[W, R]):
    """Queue of writes. A thread passes all waiting writes to `commit` at once, and ends when idle.

    `commit` makes a batch of at most `most` writes durable and returns the result or the error of
    each. If it raises,
    nothing of the batch was applied (or the error says that this is unknown), and every write of it
    fails with the error.
    """

    def __init__(
        self,
        commit: Callable[[Sequence[W]], Sequence[R | S3kError]],
        *,
        most: int = 256,
        name: str = "s3k-writer",
    ) -> None:
        self._commit = commit
        self._most = most
        self._name = name
        self._waiting: SimpleQueue[tuple[W, Future[R]] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def submit(self, write: W) -> Future[R]:
        """Queue a write: the future is done when it is durable or refused. A write cancelled before
        its batch is dropped."""
        future: Future[R] = Future()
        with self._lock:
            self._waiting.put((write, future))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
        return future

    def close(self) -> None:
        """Commit waiting writes and end the thread. Nothing may be submitted afterwards."""
        with self._lock:
            thread = self._thread
            if thread is not None:
                self._waiting.put(None)
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        closing = False
        while not closing:
            batch: list[tuple[W, Future[R]]] = []
            try:
                while not closing and len(batch) < self._most:
                    entry = self._waiting.get(block=not batch, timeout=_IDLE_SECONDS)
                    if entry is None:
                        closing = True
                    else:
                        batch.append(entry)
            except Empty:
                if not batch and self._stop_if_idle():
                    return
            self._commit_batch(
                [
                    (write, future)
                    for write, future in batch
                    if future.set_running_or_notify_cancel()
                ]
            )

    def _stop_if_idle(self) -> bool:
        with self._lock:
            idle = self._waiting.empty()
            if idle:
                self._thread = None
            return idle

    def _commit_batch(self, batch: Sequence[tuple[W, Future[R]]]) -> None:
        if not batch:
            return
        try:
            outcomes = self._commit([write for write, _ in batch])
        except BaseException as error:  # noqa: BLE001 - for the waiters
            for _, future in batch:
                future.set_exception(copy_of(error))
            return
        for (_, future), outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, S3kError):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
