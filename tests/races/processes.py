"""Clients in processes of their own, racing against each other."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier

import anyio.to_thread

from s3k_async import S3kClient
from s3k_async.config import VolumeConfig
from tests.races.arena import play
from tests.races.operations import Operation
from tests.races.order import Done

__all__ = ["Round", "race_processes"]

PROCESSES = 2
PATIENCE = 300.0
"""Seconds after which a process that did not report is taken to hang."""


@dataclass(frozen=True)
class Round:
    """Where a round takes place, and what is done in it."""

    place: str
    operations: Sequence[Operation]
    seed: str


def race_processes(config: VolumeConfig, rounds: Sequence[Round]) -> list[list[Done]]:
    """Play the rounds one after the other, each process with its share of the operations; what came
    of each round.

    The processes begin each round together.
    """
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(PROCESSES, timeout=PATIENCE)
    pipes, children = [], []
    for number in range(PROCESSES):
        ours, theirs = context.Pipe(duplex=False)
        child = context.Process(target=_play_share, args=(config, number, rounds, start, theirs))
        child.start()
        theirs.close()
        pipes.append(ours)
        children.append(child)
    try:
        shares: list[list[list[Done]]] = []
        for pipe in pipes:
            assert pipe.poll(PATIENCE), "a process hangs"
            shares.append(pipe.recv())
    finally:
        for child in children:
            child.join(10.0)
            child.kill()
            child.join()
    assert [child.exitcode for child in children] == [0] * PROCESSES
    return [[each for share in shares for each in share[number]] for number in range(len(rounds))]


def _play_share(
    config: VolumeConfig, number: int, rounds: Sequence[Round], start: Barrier, pipe: Connection
) -> None:
    async def run() -> list[list[Done]]:
        done = []
        async with S3kClient(config=config) as fs:
            for each in rounds:
                share = each.operations[number::PROCESSES]
                await anyio.to_thread.run_sync(start.wait)
                done.append(await play([fs], each.place, share, f"{each.seed}-{number}"))
        return done

    pipe.send(asyncio.run(run()))
