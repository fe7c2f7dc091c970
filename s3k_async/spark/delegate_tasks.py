"""Tasks of a driver that holds the volume lock: see `txn.lock_delegate`.

The driver's coroutine holds and renews the lock on the loop, while Spark runs a stage from a
thread.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final, TypeVar

from anyio import CancelScope, get_cancelled_exc_class
from anyio.to_thread import run_sync
from pyspark.sql import SparkSession

from s3k_async._core.runtime import SYSTEM
from s3k_async.config import VolumeConfig
from s3k_async.settings import with_local_secrets
from s3k_async.txn.lock_delegate import LockDelegate
from s3k_async.volumes import Volume, open_volume

__all__ = ["delegated", "while_held"]

T = TypeVar("T")

TICK_SECONDS: Final = 0.5


async def while_held(spark: SparkSession, stage: Callable[[], T]) -> T:
    """The result of a stage of Spark, which runs on a thread beside the loop. Cancellation cancels
    its Spark jobs and waits for the end of the stage."""
    context, tag = spark.sparkContext, f"s3k-{SYSTEM.uuid()}"
    over = threading.Event()

    def tagged() -> T:
        context.addJobTag(tag)
        try:
            return stage()
        finally:
            context.removeJobTag(tag)
            over.set()

    try:
        return await run_sync(tagged, abandon_on_cancel=True)
    except get_cancelled_exc_class():
        with CancelScope(shield=True):
            while not await run_sync(over.wait, TICK_SECONDS):
                context.cancelJobsWithTag(tag)  # again: the stage may have begun another job
        raise


@asynccontextmanager
async def delegated(config: VolumeConfig, lock: str) -> AsyncIterator[tuple[Volume, LockDelegate]]:
    """In a task: open the locked volume for as long as the lock with this id is certainly held;
    after that the body is cancelled.

    Raises LeaseExpiredError, and what opening raises.
    """
    # The suffix count and hash of the record may change under the lock.
    volume = await open_volume(
        replace(with_local_secrets(config), suffix_count=None, hash=None), locked=True
    )
    try:
        delegate = LockDelegate(lock, SYSTEM)
        async with delegate.at_work(volume.items):
            yield volume, delegate
    finally:
        await volume.close()
