"""Permissions of every verb: by class of the identity, by mode bits, in both layouts, against a
reference that was written from the text of POSIX."""

from __future__ import annotations

import errno
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from s3k_async.bulk.trash import Trash
from s3k_async.client import S3kClient
from s3k_async.config import VolumeConfig
from s3k_async.errors import PartialFailureError, PermissionDeniedError
from s3k_async.model import FileStatus, LayoutName
from s3k_async.transaction import Transaction
from s3k_async.volumes import init_volume
from tests.client.permission_scenes import SCENES, TRASH_SCENES, AccessScene, prepare
from tests.client.rig import memory_config
from tests.level import FULL

pytestmark = pytest.mark.layouts("path", "tree")

PAGE = Path(__file__).resolve().parents[2] / "docs" / "permissions.md"
OWNER, GROUP = 1000, 2000
"""Of every entry."""


@dataclass(frozen=True)
class Actor:
    """Somebody who calls, and the bits of which class are his."""

    uid: int
    gids: tuple[int, ...]
    shift: int


ACTORS = {
    "owner": Actor(OWNER, (GROUP,), 6),
    "group": Actor(1001, (5, GROUP), 3),
    "other": Actor(1002, (5,), 0),
}


def may(uid: int, gids: tuple[int, ...], mode: int, wanted: int) -> bool:
    """IEEE Std 1003.1, 4.7: "If a process has the appropriate privilege [...]. Otherwise: The file
    permission bits of a file contain read, write, and execute/search permissions for the file owner
    class, file group class, and file other class. Access shall be granted if [...] the permission
    bit is set for the class (file owner class, file group class, or file other class) to which the
    process belongs." A process belongs to one of them (3.148, 3.149, 3.150)."""
    if uid == 0:
        return True
    if uid == OWNER:
        granted = mode // 64 % 8
    elif GROUP in gids:
        granted = mode // 8 % 8
    else:
        granted = mode % 8
    return all(granted & bit for bit in (4, 2, 1) if wanted & bit)


def telling(wanted: int) -> set[int]:
    """Bits that decide whether each of the wanted ones is needed, and no other one."""
    return {wanted, 7 ^ wanted, *(7 ^ bit for bit in (4, 2, 1) if bit & wanted)}


def acting(config: VolumeConfig, uid: int, *gids: int) -> S3kClient:
    """A new client for an identity."""
    return S3kClient(config=replace(config, tuning=replace(config.tuning, uid=uid, gids=gids)))


@asynccontextmanager
async def made(
    layout: LayoutName, scene: AccessScene, modes: dict[str, int] | None = None
) -> AsyncIterator[tuple[VolumeConfig, S3kClient]]:
    """A volume in which everything belongs to OWNER, with mode 0777 but for those that are given,
    and a client of the superuser."""
    config = memory_config(layout=layout)
    await init_volume(acting(config, OWNER, GROUP).config, enable=["permissions"])
    async with acting(config, 0, 0) as root:
        await prepare(root)
        async for status in root.list("/", recursive=True):
            mode = 0o777
            await root.set_attributes(status.path, mode=mode, uid=OWNER, gid=GROUP)
        if scene.before is not None:
            await scene.before(root)
        for path, mode in (modes or {}).items():
            await root.set_attributes(path, mode=mode)
        yield config, root


async def everything(fs: S3kClient) -> dict[str, FileStatus]:
    return {each.path: each async for each in fs.list("/", recursive=True)}


def denied(error: BaseException) -> PermissionDeniedError:
    """The denial, also of one entry of many."""
    while isinstance(error, PartialFailureError):
        error = error.failures[0][1]
    assert isinstance(error, PermissionDeniedError)
    return error


async def verdict(config: VolumeConfig, scene: AccessScene, actor: Actor) -> PermissionError | None:
    async with acting(config, actor.uid, *actor.gids) as fs:
        try:
            await scene.call(fs)
        except (PermissionDeniedError, PartialFailureError) as error:
            return denied(error)
    return None


async def looked_at_what_is_due(fs: S3kClient) -> None:
    assert [each async for each in fs.due_actions()] == []


RULES: dict[str, Callable[[S3kClient], Awaitable[object]]] = {
    "set_rule": lambda fs: fs.set_rule("/d", expire_after=1),
    "remove_rule": lambda fs: fs.remove_rule("/d"),
    "run_rules": lambda fs: fs.run_rules(),
    "due_actions": looked_at_what_is_due,
    "restore": lambda fs: fs.restore("/d", 2**42),
}
"""Calls that need the superuser, whatever the mode bits are."""
ALL = {**SCENES, **{f"trash, {name}": scene for name, scene in TRASH_SCENES.items()}}


@pytest.mark.parametrize("who", ACTORS)
@pytest.mark.parametrize("name", [name for name, scene in ALL.items() if scene.needs])
async def test_a_verb_is_permitted_by_the_bits_of_the_own_class(
    layout: LayoutName, name: str, who: str
) -> None:
    scene, actor = ALL[name], ACTORS[who]
    if layout not in scene.layouts:
        return
    if name == "trash, restore" and who != "owner":
        return  # only the owner can: tested below
    for path, wanted in scene.needs.items():
        async with AsyncExitStack() as volumes:
            volume = None
            chosen = range(8) if FULL else telling(wanted)
            for bits in sorted(chosen, key=lambda bits: bits & wanted == wanted):
                # What is denied, which comes first, changes nothing.
                if volume is None:
                    volume = await volumes.enter_async_context(made(layout, scene))
                config, root = volume
                # The other classes have the bits that this one lacks.
                mode = sum((bits if at == actor.shift else 7 ^ bits) << at for at in (6, 3, 0))
                await root.set_attributes(path, mode=mode)
                before = await everything(root)
                error = await verdict(config, scene, actor)
                case = f"{path} with {mode:04o}"
                assert (error is None) == may(actor.uid, actor.gids, mode, wanted), case
                if error is not None:
                    assert error.errno == errno.EACCES, case
                    assert getattr(error, "path", None) == path, case
                    assert "s3k attr --mode" in str(error), case
                    assert scene.in_part or await everything(root) == before, case
                if error is None or scene.in_part:
                    volume = None


@pytest.mark.parametrize("name", ALL)
async def test_the_superuser_may_do_everything(layout: LayoutName, name: str) -> None:
    scene = ALL[name]
    if layout in scene.layouts:
        async with made(layout, scene, dict.fromkeys(scene.needs, 0)) as (config, _):
            assert await verdict(config, scene, Actor(0, (), 0)) is None


@pytest.mark.parametrize("name", ALL)
async def test_nothing_is_evaluated_without_the_flag(layout: LayoutName, name: str) -> None:
    scene = ALL[name]
    if layout not in scene.layouts:
        return
    config = memory_config(layout=layout)
    await init_volume(config)
    async with acting(config, 0, 0) as root:
        await prepare(root)
        if scene.before is not None:
            await scene.before(root)
        for path in scene.needs:
            await root.set_attributes(path, mode=0, uid=OWNER, gid=GROUP)
    assert await verdict(config, scene, Actor(1002, (5,), 0)) is None


@pytest.mark.parametrize("name", RULES)
async def test_what_only_the_superuser_may_do(layout: LayoutName, name: str) -> None:
    config = memory_config(layout=layout)
    creator = acting(config, OWNER, GROUP).config
    await init_volume(creator, enable=["permissions", "rules"])
    async with acting(config, 0, 0) as root:
        await root.makedirs("/d")
        await root.set_attributes("/d", mode=0o777, uid=OWNER)
        await root.set_rule("/d", expire_after=60)
        async with acting(config, OWNER, GROUP) as fs:
            with pytest.raises(PermissionDeniedError, match="only the superuser"):
                await RULES[name](fs)
            assert [rule.path for rule in await fs.rules()] == ["/d"]
        await RULES[name](root)


def documented() -> list[str]:
    text = PAGE.read_text(encoding="utf-8")
    table = text[text.index("| call | needs |") :].split("\n\n")[0]
    return [line.strip("|").split(" | ")[0].strip() for line in table.splitlines()[2:]]


def needs_of(scene: AccessScene) -> str:
    """The needs of a scene as the page has them: `w x` on `/d`."""
    letters = {
        path: " ".join(c for c, b in zip("rwx", (4, 2, 1), strict=True) if bits & b)
        for path, bits in scene.needs.items()
    }
    return ", ".join(f"{bits} on `{path}`" for path, bits in letters.items()) or "nothing"


def test_the_page_has_what_every_scene_needs() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name, scene in ALL.items():
        assert f"| {name} | {needs_of(scene)} |" in text, f"| {name} | {needs_of(scene)} |"
    assert documented() == list(ALL)


def test_every_verb_has_a_row() -> None:
    no_verbs = {"close", "open_volume", "closed", "config", "name", "requests", "count", "trash"}
    no_verbs |= {"cache_statistics", "fill_statistics", "transaction", "rules", *RULES}
    verbs = {name for name in dir(S3kClient) if not name.startswith("_")} - no_verbs
    rows = {re.split("[ ,]", name)[0] for name in SCENES} - {"transaction"}
    assert rows == verbs
    verbs = {name for name in dir(Transaction) if not name.startswith("_")}
    rows = {name.split()[1] for name in SCENES if name.startswith("transaction, ")}
    assert rows == verbs - {"closed", "commit", "discard", "result"}
    of_trash = {name for name in dir(Trash) if not name.startswith("_")}
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in of_trash if f"`Trash.{name}`" not in text] == []
