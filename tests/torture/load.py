"""What a writer, a renamer and a deleter do to one directory of a volume at the same time, for as
long as they live."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TypeAlias

from s3k_async import S3kClient
from s3k_async.errors import OutcomeUnknownError, PartialFailureError, S3kError
from s3k_async.model import ChangeResult
from tests.torture.ledger import Ledger, Operation, content

__all__ = ["ROLES", "Role", "read_tree"]

Step: TypeAlias = tuple[Operation, Callable[[], Awaitable[object]]]
Role: TypeAlias = Callable[[S3kClient, str, random.Random], AsyncIterator[Step]]

BRANCHES = 3
SIZES = (0, 40, 40, 1_000, 100_000)


async def perform(
    fs: S3kClient, role: str, place: str, seed: str, ledger: Ledger, steps: int
) -> None:
    """Take so many steps of a role, each noted before it begins and when it was answered."""
    taken = ROLES[role](fs, place, random.Random(seed))
    for _ in range(steps):
        operation, run = await anext(taken)
        ledger.begin(operation)
        try:
            result = await run()
            if isinstance(result, ChangeResult) and result.failures:
                raise PartialFailureError("not all", failures=result.failures)
        except S3kError as error:
            # Part of what failed may be done, and an unknown outcome may be either.
            open_ = isinstance(error, OutcomeUnknownError | PartialFailureError)
            ledger.end("unknown" if open_ else "failed", f"{type(error).__name__}: {error}")
        else:
            ledger.end("done")


async def writing(fs: S3kClient, place: str, chance: random.Random) -> AsyncIterator[Step]:
    """Files in directories that others move away meanwhile: in one step, through a writer, several
    at once, anew."""
    number = 0
    last = ""
    while True:
        number += 1
        path = f"{place}/w/{chance.randrange(BRANCHES)}/f{number}"
        if last and number % 5 == 0:
            path = last
        last = path
        name, size = f"{place}-w{number}", chance.choice(SIZES)
        if number % 7 == 0:
            files = {f"{path}-{each}": f"{name}-{each}" for each in range(3)}
            data = [(where, content(what, size)) for where, what in files.items()]
            yield Operation("write", files=files), lambda data=data: fs.write_many(data)  # type: ignore[misc]
        elif number % 3 == 0:
            yield (
                Operation("write", files={path: name}),
                lambda path=path, name=name, size=size: save(fs, path, content(name, size)),  # type: ignore[misc]
            )
        else:
            yield (
                Operation("write", files={path: name}),
                lambda path=path, name=name, size=size: fs.write(path, content(name, size)),  # type: ignore[misc]
            )


async def save(fs: S3kClient, path: str, data: bytes) -> None:
    async with fs.open(path, "wb") as file:
        half = len(data) // 2
        await file.write(data[:half])
        await file.write(data[half:])


async def renaming(fs: S3kClient, place: str, chance: random.Random) -> AsyncIterator[Step]:
    """Directories under the hands of the writer, and files of its own."""
    number = 0
    while True:
        number += 1
        branch, target = f"{place}/w/{chance.randrange(BRANCHES)}", f"{place}/z/{number}"
        with suppress(S3kError):
            await fs.makedirs(f"{place}/z")
        yield (
            Operation("move tree", source=branch, target=target),
            lambda branch=branch, target=target: fs.rename(branch, target),  # type: ignore[misc]
        )
        source, moved = f"{place}/m/a{number}", f"{place}/m/b{number}"
        yield (
            Operation("write", files={source: f"{place}-m{number}"}),
            lambda number=number, source=source: fs.write(
                source, content(f"{place}-m{number}", 60)
            ),  # type: ignore[misc]
        )
        yield (
            Operation("move", source=source, target=moved),
            lambda source=source, moved=moved: fs.rename(source, moved),  # type: ignore[misc]
        )


async def deleting(fs: S3kClient, place: str, chance: random.Random) -> AsyncIterator[Step]:
    """Trees of its own, and some of those that the renamer moved."""
    number = 0
    while True:
        number += 1
        top = f"{place}/t/{number}"
        files = {f"{top}/{each}/f": f"{place}-t{number}-{each}" for each in range(3)}
        data = [(path, content(name, 40)) for path, name in files.items()]
        yield Operation("write", files=files), lambda data=data: fs.write_many(data)  # type: ignore[misc]
        yield (
            Operation("delete tree", source=top),
            lambda top=top: fs.delete(top, recursive=True),  # type: ignore[misc]
        )
        victim = f"{place}/z/{2 * number}"
        yield (
            Operation("delete tree", source=victim),
            lambda victim=victim: fs.delete(victim, recursive=True),  # type: ignore[misc]
        )


ROLES: Mapping[str, Role] = {"writer": writing, "renamer": renaming, "deleter": deleting}


async def read_tree(fs: S3kClient, place: str) -> dict[str, bytes | None]:
    """Everything below a directory, with the bytes of every file that is published; empty if there
    is none."""
    if not await fs.exists(place):
        return {}
    statuses = [status async for status in fs.list(place, recursive=True)]
    assert len({status.path for status in statuses}) == len(statuses)
    files = [status.path for status in statuses if status.is_file]
    data = await fs.read_many(files)
    return {status.path: None for status in statuses if status.is_dir} | dict(
        zip(files, data, strict=True)
    )
