"""Every order in which the table can answer the requests of several clients.

The clients are in memory, and their requests wait until a choice lets one go on. A run follows a
list of choices and takes the first possibility after its end; the next run changes the last choice
that had another possibility.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from s3k_async.errors import S3kError
from s3k_async.testing import Call
from s3k_async.txn.txn_record import RENEW_SECONDS
from tests.engines.volumes import fresh_name
from tests.layouts.trees import Client, TreeVolume
from tests.races.operations import Outcome
from tests.support import FakeClock
from tests.torture.histories_scheduler import Scheduler

__all__ = ["Interleaving", "interleavings", "outcome_of"]


class Script(random.Random):
    """Choices between requests as listed, then the first one each time; a request goes on before
    time passes."""

    def __init__(self, choices: list[int]) -> None:
        super().__init__(0)
        self.taken = choices
        self.options: list[int] = []

    def random(self) -> float:
        return 0.5

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        assert stop is None
        assert step == 1
        place = len(self.options)
        self.options.append(start)
        if place == len(self.taken):
            self.taken.append(0)
        return self.taken[place]

    def next(self) -> list[int] | None:
        """The choices of the next run; None after the last one."""
        taken, options = list(self.taken), list(self.options)
        while taken and taken[-1] == options[-1] - 1:
            taken.pop()
            options.pop()
        return [*taken[:-1], taken[-1] + 1] if taken else None


async def outcome_of(work: Awaitable[object]) -> Outcome:
    """The class of the error that a call raises; None for success."""
    try:
        await work
    except S3kError as error:
        return type(error)
    return None


@dataclass
class Interleaving(Scheduler):
    """One run: clients of one volume, and the order of their requests."""

    choice: random.Random = field(default_factory=random.Random)
    ordered: Callable[[Call], bool] = field(default=lambda _: True)
    """The calls of the table whose order is chosen; others go on at once."""
    volume: TreeVolume = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._choice = self.choice
        self.volume = TreeVolume(fresh_name("interleaving"), clock=self.clock)
        self.volume.runtime = replace(self.volume.runtime, sleep=self._until)

    async def _until(self, seconds: float) -> None:
        await (asyncio.Event().wait() if seconds == RENEW_SECONDS else self.sleep(seconds))

    def client(self) -> Client:
        """A client whose requests to the table are ordered once `outcomes` runs; those to the log
        are not, since no other client reads it."""
        return self.volume.client(busy_timeout=60.0)

    async def outcomes(self, *works: tuple[Client, Awaitable[object]]) -> list[Outcome]:
        """Run calls of clients at the same time; returns the outcome of each."""

        for client, _ in works:
            self._order(client)
        found: list[Outcome] = []

        async def run_all() -> None:
            found.extend(await asyncio.gather(*(outcome_of(work) for _, work in works)))

        await self.run(run_all)
        for client, _ in works:
            client.faults.gate = None
        return found

    def _order(self, client: Client) -> None:
        self.govern(client.faults, killable=False)
        wait = client.faults.gate
        assert wait is not None

        async def gate(call: Call) -> None:
            if call.store == "items" and self.ordered(call):
                await wait(call)

        client.faults.gate = gate


async def interleavings(
    *paths: str, ordered: Callable[[Call], bool], limit: int = 2000
) -> AsyncIterator[Interleaving]:
    """Each run on a new volume with these entries, until the `ordered` calls of the table have
    been made in every order. Fails when there are more than `limit`."""
    choices: list[int] = []
    for _ in range(limit):
        script = Script(choices)
        yield await _started(script, paths, ordered)
        following = script.next()
        if following is None:
            return
        choices = following
    raise AssertionError(f"more than {limit} interleavings")


async def _started(
    choice: random.Random, paths: Sequence[str], ordered: Callable[[Call], bool]
) -> Interleaving:
    run = Interleaving(seed="", clock=FakeClock(), choice=choice, ordered=ordered)
    await run.volume.start(*paths)
    return run
