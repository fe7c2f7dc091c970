"""Random changes of files, directories and rules: each run does what a simple reference expects."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from s3k_async.client import S3kClient
from s3k_async.errors import S3kError
from s3k_async.lifecycle_rules import LifecycleRule
from s3k_async.model import FileStatus, LayoutName
from tests.level import FULL
from tests.lifecycle.ruled import HOUR, Ruled, ruled

pytestmark = pytest.mark.layouts("path", "tree")

NAMES = ("a", "b", "c")
AGES = (600, 4000, 20_000)
STEPS = 120
RUNS = 0.12
"""The share of runs among the steps."""
SEEDS = range(60 if FULL else 8)


@dataclass
class Reference:
    """What is due, by the definition."""

    rules: dict[str, LifecycleRule] = field(default_factory=dict)
    """By what the paths of its files begin with."""

    def expiry(self, status: FileStatus) -> float | None:
        """When a file expires, epoch seconds."""
        modified = status.mtime_ms / 1000
        metadata = status.attributes.metadata
        if "ExpiresAfter" in metadata:
            return modified + int(metadata["ExpiresAfter"])
        for rule in self._above(status.path):
            if rule.expire_after is not None:
                return modified + rule.expire_after
        return None

    def retention(self, status: FileStatus) -> float | None:
        """When a file becomes read-only, epoch seconds."""
        for rule in self._above(status.path):
            if rule.read_only_after is not None:
                return status.mtime_ms / 1000 + rule.read_only_after
        return None

    def _above(self, path: str) -> list[LifecycleRule]:
        starts = (path[:end] for end in range(len(path), 0, -1))
        return [self.rules[each] for each in starts if each in self.rules]


async def files(fs: S3kClient) -> dict[str, FileStatus]:
    return {each.path: each async for each in fs.list("/", recursive=True) if each.is_file}


class History:
    """Random calls of one volume."""

    def __init__(self, place: Ruled, seed: int) -> None:
        self.place = place
        self.fs = place.client
        self.chosen = random.Random(seed)
        self.reference = Reference()

    def directory(self) -> str:
        depth = self.chosen.randrange(1, 3)
        return "".join(f"/{self.chosen.choice(NAMES)}" for _ in range(depth))

    def file(self) -> str:
        return f"{self.directory()}/{self.chosen.choice('fgh')}"

    def rule_place(self) -> tuple[str, str, str]:
        """A directory, a name prefix, and what the paths that both select begin with."""
        path = self.chosen.choice(["/", self.directory()])
        prefix = self.chosen.choice(["", self.chosen.choice("abfgh")])
        return path, prefix, path.rstrip("/") + "/" + prefix

    async def step(self) -> None:
        """One call; what is refused changes nothing."""
        if self.chosen.random() < RUNS:
            await self.run()
            return
        change = self.chosen.choices(list(CHANGES), weights=list(CHANGES.values()))[0]
        with suppress(S3kError):
            await change(self)

    async def write(self) -> None:
        await self.fs.write(self.file(), b"1")

    async def touch(self) -> None:
        await self.fs.touch(self.file())

    async def move(self) -> None:
        await self.fs.rename(self.file(), self.file(), overwrite=True)

    async def move_tree(self) -> None:
        await self.fs.rename(self.directory(), self.directory())

    async def delete(self) -> None:
        await self.fs.delete(self.file())

    async def delete_tree(self) -> None:
        await self.fs.delete(self.directory(), recursive=True)

    async def restore(self) -> None:
        await self.fs.trash().restore(self.directory())

    async def set_own(self) -> None:
        value = self.chosen.choice([None, *(b"%d" % age for age in AGES)])
        await self.fs.set_attributes(self.file(), metadata={"ExpiresAfter": value})

    async def remove_rule(self) -> None:
        path, prefix, start = self.rule_place()
        await self.fs.remove_rule(path, name_prefix=prefix)
        del self.reference.rules[start]

    async def wait(self) -> None:
        self.place.clock.advance(self.chosen.choice([1, 300, HOUR, 3 * HOUR]))

    async def set_rule(self) -> None:
        path, prefix, start = self.rule_place()
        expire, retain = self.chosen.choice(AGES), self.chosen.choice([None, None, *AGES])
        self.reference.rules[start] = await self.fs.set_rule(
            path, name_prefix=prefix, expire_after=expire, read_only_after=retain
        )

    async def run(self) -> None:
        before = await files(self.fs)
        now = self.place.clock.now_ms() / 1000
        expired = {
            path for path, each in before.items() if (self.reference.expiry(each) or now + 1) <= now
        }
        retained = {
            path
            for path, each in before.items()
            if each.attributes.read_only or (self.reference.retention(each) or now + 1) <= now
        }
        due = {each.path async for each in self.fs.due_actions()}
        assert due >= expired
        result = await self.fs.run_rules()
        assert result.failures == ()
        after = await files(self.fs)
        assert after.keys() == before.keys() - expired
        assert {path for path, each in after.items() if each.attributes.read_only} == (
            retained - expired
        )


CHANGES: Mapping[Callable[[History], Awaitable[None]], int] = {
    History.write: 4,
    History.touch: 1,
    History.move: 1,
    History.move_tree: 1,
    History.delete: 1,
    History.delete_tree: 1,
    History.restore: 1,
    History.set_own: 1,
    History.set_rule: 1,
    History.remove_rule: 1,
    History.wait: 3,
}
"""The changes, with their weights."""


@pytest.mark.parametrize("number", SEEDS)
async def test_random_changes(layout: LayoutName, number: int) -> None:
    async with ruled(layout) as place:
        history = History(place, number)
        for _ in range(STEPS):
            await history.step()
        await history.run()
        found = await place.findings()
        assert [each for each in found if each[0] != "trash_due"] == []
