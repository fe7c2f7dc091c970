"""Sixty-four at once, and one of them wins."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

from s3k_async.errors import PathExistsError, PathNotFoundError
from tests.races.arena import Arena, everywhere
from tests.races.operations import Create, Operation, Rename, Write
from tests.races.order import Done

pytestmark = everywhere

RACERS = 64


def only_winner(done: Sequence[Done], losers: type[Exception]) -> Operation:
    """The operation that succeeded; every other one was refused with the error given."""
    told = Counter(each.outcome for each in done)
    assert told == {None: 1, losers: len(done) - 1}
    return next(each.operation for each in done if each.outcome is None)


def creators(choice: random.Random) -> list[Operation]:
    """All of one path, some in one call and most through an open file."""
    return [
        Create("/f", f"opened by {number}".encode())
        if choice.random() < 0.8
        else Write("/f", f"written by {number}".encode(), overwrite=False)
        for number in range(RACERS)
    ]


def renamers() -> list[Operation]:
    """All of one file, to as many targets."""
    return [Rename("/source", f"/target-{number}") for number in range(RACERS)]


async def test_of_64_that_create_one_path_exactly_one_wins(arena: Arena, rounds: int) -> None:
    assert issubclass(PathExistsError, FileExistsError)

    async def one(place: str, seed: str) -> None:
        operations = creators(random.Random(seed))
        winner = only_winner(await arena.play(place, operations, seed), PathExistsError)
        assert isinstance(winner, Write)
        assert await arena.tree(place) == {"/f": winner.data}

    await arena.rounds(rounds, one)


async def test_of_64_that_rename_one_file_exactly_one_wins(arena: Arena, rounds: int) -> None:
    async def one(place: str, seed: str) -> None:
        await arena.build(place, {"/source": seed.encode()})
        winner = only_winner(await arena.play(place, renamers(), seed), PathNotFoundError)
        assert isinstance(winner, Rename)
        assert await arena.tree(place) == {winner.target: seed.encode()}

    await arena.rounds(rounds, one)
