"""The same calls on the filesystem of this machine, by processes of other users, and on a volume:
both permit the same."""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from s3k_async.client import S3kClient
from s3k_async.errors import PermissionDeniedError
from s3k_async.model import LayoutName
from s3k_async.volumes import init_volume
from tests.client.rig import memory_config
from tests.client.test_permissions import ACTORS, GROUP, OWNER, Actor, acting
from tests.level import FULL

pytestmark = [
    pytest.mark.layouts("path", "tree"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for other users"),
]

CASES = 1500 if FULL else 250
MORE = 3000
"""The uid of the owner of other entries."""


@dataclass(frozen=True)
class Verb:
    """A call below a directory, on this machine and on a volume."""

    local: Callable[[str], object]
    ours: Callable[[S3kClient, str], Awaitable[object]]


def put(path: str, flags: int) -> None:
    descriptor = os.open(path, flags, 0o644)
    os.write(descriptor, b"x")
    os.close(descriptor)


async def listed(fs: S3kClient, path: str) -> None:
    async for _ in fs.list(path):
        pass


VERBS = {
    "stat": Verb(lambda at: os.stat(f"{at}/d/f"), lambda fs, at: fs.stat(f"{at}/d/f")),
    "list": Verb(
        lambda at: [os.stat(f"{at}/d/{name}") for name in os.listdir(f"{at}/d")],
        lambda fs, at: listed(fs, f"{at}/d"),
    ),
    "read": Verb(lambda at: Path(f"{at}/d/f").read_bytes(), lambda fs, at: fs.read(f"{at}/d/f")),
    "overwrite": Verb(
        lambda at: put(f"{at}/d/f", os.O_WRONLY | os.O_TRUNC),
        lambda fs, at: fs.write(f"{at}/d/f", b"x"),
    ),
    "append": Verb(
        lambda at: put(f"{at}/d/f", os.O_WRONLY | os.O_APPEND),
        lambda fs, at: fs.append(f"{at}/d/f", b"x"),
    ),
    "truncate": Verb(
        lambda at: os.truncate(f"{at}/d/f", 0), lambda fs, at: fs.truncate(f"{at}/d/f", 0)
    ),
    "create": Verb(
        lambda at: put(f"{at}/d/new", os.O_WRONLY | os.O_CREAT | os.O_EXCL),
        lambda fs, at: fs.write(f"{at}/d/new", b"x"),
    ),
    "mkdir": Verb(lambda at: os.mkdir(f"{at}/d/new"), lambda fs, at: fs.makedirs(f"{at}/d/new")),
    "unlink": Verb(lambda at: os.unlink(f"{at}/d/f"), lambda fs, at: fs.delete(f"{at}/d/f")),
    "rmdir": Verb(lambda at: os.rmdir(f"{at}/d/s"), lambda fs, at: fs.delete(f"{at}/d/s")),
    "rename": Verb(
        lambda at: os.rename(f"{at}/d/f", f"{at}/e/new"),
        lambda fs, at: fs.rename(f"{at}/d/f", f"{at}/e/new"),
    ),
    "rename over": Verb(
        lambda at: os.rename(f"{at}/d/f", f"{at}/e/h"),
        lambda fs, at: fs.rename(f"{at}/d/f", f"{at}/e/h", overwrite=True),
    ),
    "rename of a directory": Verb(
        lambda at: os.rename(f"{at}/d/s", f"{at}/d/new"),
        lambda fs, at: fs.rename(f"{at}/d/s", f"{at}/d/new"),
    ),
    "chmod": Verb(
        lambda at: os.chmod(f"{at}/d/f", 0o421),
        lambda fs, at: fs.set_attributes(f"{at}/d/f", mode=0o421),
    ),
    "chown": Verb(
        lambda at: os.chown(f"{at}/d/f", 4000, -1),
        lambda fs, at: fs.set_attributes(f"{at}/d/f", uid=4000),
    ),
    "chgrp": Verb(
        lambda at: os.chown(f"{at}/d/f", -1, 5),
        lambda fs, at: fs.set_attributes(f"{at}/d/f", gid=5),
    ),
    "utime": Verb(
        lambda at: os.utime(f"{at}/d/f", (1, 1)),
        lambda fs, at: fs.set_attributes(f"{at}/d/f", mtime_ms=1000),
    ),
    "setxattr": Verb(
        lambda at: os.close(os.open(f"{at}/d/f", os.O_WRONLY)),  # as setxattr(2) of `user`
        lambda fs, at: fs.set_attributes(f"{at}/d/f", metadata={"a": b"1"}),
    ),
}


@dataclass(frozen=True)
class Case:
    """A verb, and mode and owner of the entries that it meets."""

    verb: str
    modes: dict[str, int]
    owners: dict[str, int]


def cases() -> list[Case]:
    chance = random.Random(20260)
    found = []
    for number in range(CASES):
        modes = {
            path: chance.choice((0o777, 0o755, 0o750, 0o700, 0o077, chance.randrange(0o1000)))
            | (chance.random() < 0.3) * 0o1000 * (path in ("d", "e"))
            for path in ("d", "e", "d/f", "d/s", "e/h")
        }
        owners = {path: chance.choice((OWNER, OWNER, MORE)) for path in modes}
        found.append(Case(list(VERBS)[number % len(VERBS)], modes, owners))
    return found


@pytest.fixture
def place() -> Iterator[str]:
    """A directory that every user can search."""
    made = tempfile.mkdtemp()
    os.chmod(made, 0o755)
    yield made
    shutil.rmtree(made)


def build(place: str, number: int, case: Case) -> None:
    at = f"{place}/{number}"
    for path in ("d/s", "e"):
        os.makedirs(f"{at}/{path}")
    for path in ("d/f", "e/h"):
        Path(f"{at}/{path}").write_bytes(b"old")
    for path in ("d/f", "d/s", "e/h", "d", "e"):
        os.chown(f"{at}/{path}", case.owners[path], GROUP)
        os.chmod(f"{at}/{path}", case.modes[path])


def tried(place: str, actor: Actor) -> dict[str, bool]:
    """Whether this machine permits each case to a process of the actor."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            permitted = tried_here(place, actor)
            with os.fdopen(writing, "w") as pipe:
                json.dump(permitted, pipe)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        result: dict[str, bool] = json.load(pipe)
    os.waitpid(child, 0)
    return result


def tried_here(place: str, actor: Actor) -> dict[int, bool]:
    """The same, by this process, which becomes one of the actor."""
    os.setgroups(list(actor.gids))
    os.setgid(actor.gids[0])
    os.setuid(actor.uid)
    permitted = {}
    for number, case in enumerate(cases()):
        try:
            VERBS[case.verb].local(f"{place}/{number}")
        except PermissionError:
            permitted[number] = False
        else:
            permitted[number] = True
    return permitted


@pytest.mark.parametrize("who", ACTORS)
async def test_a_volume_permits_what_the_filesystem_permits(
    layout: LayoutName, who: str, place: str
) -> None:
    actor = ACTORS[who]
    config = memory_config(layout=layout)
    await init_volume(acting(config, 0, 0).config, enable=["permissions"])
    async with acting(config, 0, 0) as root:
        for number, case in enumerate(cases()):
            build(place, number, case)
            at = f"/{number}"
            for path in ("d/s", "e"):
                await root.makedirs(f"{at}/{path}")
            await root.write_many([(f"{at}/{path}", b"old") for path in ("d/f", "e/h")])
            for path, mode in case.modes.items():
                owner = case.owners[path]
                await root.set_attributes(f"{at}/{path}", mode=mode, uid=owner, gid=GROUP)
    expected = tried(place, actor)
    assert 0.2 * CASES < sum(expected.values()) < 0.8 * CASES
    async with acting(config, actor.uid, *actor.gids) as fs:
        for number, case in enumerate(cases()):
            try:
                await VERBS[case.verb].ours(fs, f"/{number}")
            except PermissionDeniedError:
                permitted = False
            else:
                permitted = True
            assert permitted == expected[str(number)], case
