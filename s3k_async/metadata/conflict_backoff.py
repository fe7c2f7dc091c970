"""Back-off after a lost race: read the current state again and retry, for a bounded time."""

from __future__ import annotations

from s3k_async.errors import S3kError
from s3k_async.metadata.store import MetadataStore

__all__ = ["ConflictBackoff"]

FIRST_WAIT = 0.005
LONGEST_WAIT = 0.5
"""Seconds. Waits are uniform between zero and a bound that doubles from the first to the longest.
"""


class ConflictBackoff:
    """One change that may lose to others, until `Tuning.busy_timeout` has passed since it lost
    first. Of all that race, one gets ahead in each round, so it is time and not a number of
    attempts that is given.
    """

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._deadline: float | None = None
        self._bound = FIRST_WAIT

    async def lost(self, error: S3kError) -> None:
        """Wait a little before the next attempt; raises `error` when the time is up."""
        sources = self._store.sources
        if self._deadline is None:
            self._deadline = self._store.deadline()
        elif sources.monotonic() >= self._deadline:
            raise error
        await sources.sleep(sources.uniform(0.0, self._bound))
        self._bound = min(LONGEST_WAIT, self._bound * 2)
