"""Histories of several clients: in memory under the scheduler, and on real engines in real time."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial

from s3k_async import S3kClient
from s3k_async.config import VolumeConfig
from s3k_async.errors import (
    BusyError,
    ConflictError,
    LeaseExpiredError,
    ResponseLostError,
    S3kError,
    ThrottledError,
)
from s3k_async.model import LayoutName
from s3k_async.table.keys import TRASH_ID
from s3k_async.table.stored_reader import ROOT_ENTRY
from s3k_async.testing import Died
from s3k_async.volumes import init_volume
from tests.torture.histories import Event, check
from tests.torture.histories_scenes import SCENES, Everything, Player, Recorder, build, together
from tests.torture.histories_scheduler import Rates, Scheduler
from tests.torture.model import Outcome, ancestors
from tests.torture.model_volume import Member, ModelVolume, memory_config

__all__ = ["EXCUSED", "Run", "in_memory", "in_real_time"]

NO_FAULTS = Rates()
EXCUSED: tuple[type[S3kError], ...] = (
    BusyError,
    ConflictError,
    LeaseExpiredError,
    ThrottledError,
    ResponseLostError,
)
"""What may come at any time, and says that nothing happened; a conflict, where every attempt lost
its race."""


@dataclass(frozen=True)
class Run:
    """A history that was checked."""

    events: list[Event]
    faults: Counter[str]


async def in_memory(
    scene: str,
    seed: str,
    *,
    calls: int,
    rates: Rates = NO_FAULTS,
    layout: LayoutName = "path",
) -> Run:
    """A history under the scheduler: everything in it follows from the seed. Raises Violation."""
    chosen, volume = SCENES[scene], ModelVolume(memory_config(layout))
    scheduler = Scheduler(seed, volume.clock, rates)
    await volume.start()
    recorder, stamps = Recorder(lambda: scheduler.faults["answer lost after"]), itertools.count(1)
    first = await volume.join()
    await build(first.fs, chosen.start)
    await first.close()
    runtime = volume.runtime
    volume.runtime = replace(runtime, sleep=scheduler.sleep)

    async def join() -> tuple[S3kClient, Callable[[], Awaitable[None]]]:
        member = await volume.join()
        scheduler.govern(member.faults, killable=True)
        return member.fs, partial(_leave, member)

    players = [Player(number, chosen, recorder, seed, stamps) for number in range(chosen.clients)]
    await scheduler.run(lambda: together([partial(player.play, calls, join) for player in players]))
    volume.runtime = runtime
    last = await volume.join()
    left = await recorder.record(chosen.clients, Everything(), last.fs)
    check(chosen.start, recorder.events, excused=EXCUSED, layout=layout)
    if layout == "path":
        await _repair(volume, last, recorder.events, left)
    # A creation that was sent again may have created its file a second time; a repair renumbers it.
    is_repeated = layout == "tree" and any(event.is_resent for event in recorder.events)
    await _check_tree(last, is_repeated=is_repeated)
    await last.close()
    await volume.drop()
    return Run(recorder.events, scheduler.faults)


async def in_real_time(
    scene: str, seed: str, config: VolumeConfig, session: object, *, calls: int
) -> Run:
    """A history on real stores. Raises Violation."""
    chosen = SCENES[scene]
    await init_volume(config, session=session)
    recorder, stamps = Recorder(), itertools.count(1)
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(S3kClient(config=config, session=session))
            for _ in range(chosen.clients)
        ]
        await build(clients[0], chosen.start)

        async def join(fs: S3kClient) -> tuple[S3kClient, Callable[[], Awaitable[None]]]:
            return fs, _stay

        players = [
            Player(number, chosen, recorder, seed, stamps) for number in range(chosen.clients)
        ]
        await together(
            [
                partial(player.play, calls, partial(join, fs))
                for player, fs in zip(players, clients, strict=True)
            ]
        )
        await recorder.record(chosen.clients, Everything(), clients[0])
    check(chosen.start, recorder.events, excused=EXCUSED, layout=config.layout or "path")
    return Run(recorder.events, Counter())


async def _leave(member: Member) -> None:
    with suppress(Died):
        await member.close()


async def _stay() -> None:
    return


async def _repair(volume: ModelVolume, last: Member, events: list[Event], left: Outcome) -> None:
    """Repair changes nothing that is seen; what a client that died left without a directory gets
    one."""
    lost = {
        path
        for path, entry in (await volume.scanned(last)).items()
        if not entry.is_dir and path not in left
    }
    await volume.repaired(last)
    found = await Everything().run(last.fs)
    new = found.keys() - left.keys()
    assert {path: found.get(path) for path in left} == left, "repair changed what is seen"
    assert new <= lost.union(*map(ancestors, lost)), "repair made something up"
    assert not new or any(event.is_unknown for event in events), "what was told has no directory"


async def _check_tree(member: Member, *, is_repeated: bool) -> None:
    """Every entry has its parents, and no id is there twice; `is_repeated`: no directory."""
    store = member.volume.store
    entries = [entry async for page in store.scan("/") for entry in page]
    directories = {store.keys.directory(entry).key for entry in entries if entry.is_dir}
    directories |= {store.keys.directory(ROOT_ENTRY).key, TRASH_ID}
    assert [
        entry.entry_key
        for entry in entries
        if store.keys.parent_key(entry.entry_key) not in directories
    ] == []
    assert len({entry.entry_key for entry in entries}) == len(entries)
    once = [entry.id for entry in entries if entry.is_dir or not is_repeated]
    assert len(set(once)) == len(once)
