"""What the clients of a history do: a few paths, so that they are in each other's way."""

from __future__ import annotations

import itertools
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import anyio

from s3k_async import S3kClient
from s3k_async.errors import S3kError
from s3k_async.files.open_files import FileWriter
from s3k_async.model import LayoutName
from s3k_async.testing import Died
from tests.torture.histories import NEVER, UNKNOWN, Event
from tests.torture.model import (
    Answer,
    Append,
    Commit,
    Concat,
    Delete,
    Exchange,
    File,
    Label,
    MakeDirectory,
    Operation,
    Outcome,
    Refusal,
    Rename,
    Reserve,
    Touch,
    Tree,
    Truncate,
    Write,
    WriteRange,
    below,
)
from tests.torture.model_lists import List, Read, Stat, content

__all__ = ["SCENES", "Everything", "Join", "Player", "Recorder", "Scene", "build", "together"]

Leave: TypeAlias = Callable[[], Awaitable[None]]
Join: TypeAlias = Callable[[], Awaitable[tuple[S3kClient, Leave]]]
"""Opens a client, and says what to do when it is over."""


@dataclass(frozen=True)
class Everything:
    """The whole tree with its bytes, read when all is over."""

    async def run(self, fs: S3kClient) -> Outcome:
        found = {}
        async for status in fs.list("/", recursive=True, include_uncommitted=True):
            assert status.path not in found
            readable = status.is_file and status.committed
            found[status.path] = await fs.read(status.path) if readable else status.committed
        return dict(sorted(found.items()))  # a listing has no order

    def apply(self, tree: Tree) -> Answer | Refusal:
        found = {
            path: True if tree[path] is None else content(tree, path)
            for path in sorted(below(tree, "/"))
        }
        return Answer(
            {
                path: data if not isinstance(data, Refusal) else False
                for path, data in found.items()
            },
            tree,
        )

    def leftovers(self, tree: Tree) -> Iterator[Tree]:
        return iter(())


@dataclass
class Recorder:
    """Writes down what happens."""

    lost: Callable[[], int] = lambda: 0
    """How many answers were lost so far."""
    events: list[Event] = field(default_factory=list)
    _moments: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    async def record(self, client: int, operation: Operation, fs: S3kClient) -> Outcome:
        """Make a call and write down what was told of it. Raises Died."""
        begin, lost = next(self._moments), self.lost()
        outcome: Outcome = UNKNOWN
        end = NEVER
        try:
            outcome = await operation.run(fs)
        except S3kError as error:
            outcome = type(error)
            return error
        finally:
            told = None if isinstance(outcome, FileWriter) else outcome
            event = Event(client, operation, told, begin, end, is_resent=self.lost() > lost)
            if outcome is not UNKNOWN and not event.is_unknown:
                event = replace(event, end=next(self._moments))
            self.events.append(event)
        return outcome


@dataclass(frozen=True)
class Scene:
    """A tree, and how each client chooses what to do next. The operation's stamp is given to it."""

    start: Tree
    choose: Callable[[random.Random, int], Operation]
    layouts: Sequence[LayoutName] = ("path", "tree")
    """The layouts in which its histories are linearizable."""
    is_slow: bool = False
    """Whether its histories are only for `make test-full` and `make torture`: their contents grow,
    and the search for an order with them."""
    clients: int = 8
    """How many there are."""
    rounds: int = 3
    """Histories in `make test`, without faults; a few more with faults."""


class Player:
    """One client that makes some calls, one after the other; it is replaced when it dies."""

    def __init__(
        self, number: int, scene: Scene, recorder: Recorder, seed: str, stamps: Iterator[int]
    ) -> None:
        self.number = number
        self._scene = scene
        self._recorder = recorder
        self._choice = random.Random(f"{seed}-{number}")
        self._stamps = stamps

    async def play(self, calls: int, join: Join) -> None:
        """Make so many calls."""
        left = calls
        while left:
            fs, leave = await join()
            try:
                while left:
                    left -= 1
                    await self._one(fs)
            except Died:
                continue
            finally:
                await leave()

    async def _one(self, fs: S3kClient) -> None:
        operation = self._scene.choose(self._choice, next(self._stamps))
        outcome = await self._recorder.record(self.number, operation, fs)
        if isinstance(operation, Reserve) and isinstance(outcome, FileWriter):
            await self._publish(operation, outcome, fs)

    async def _publish(self, opened: Reserve, writer: FileWriter, fs: S3kClient) -> None:
        """Write and close the file that was opened."""
        data = f"{opened.stamp} by {self.number}".encode()
        await writer.write(data)
        commit = Commit(
            next(self._stamps), opened.path, data, None, writer, opened.stamp, expired=False
        )
        await self._recorder.record(self.number, commit, fs)


def _body(choice: random.Random, stamp: int) -> bytes:
    return b"%d" % stamp * choice.choice((1, 1, 120))


FILES = ("/f", "/g", "/h")


def among_files(choice: random.Random, stamp: int) -> Operation:
    """Everything that there is for single files, on three of them."""
    path, other = choice.sample(FILES, 2)
    kind = choice.randrange(11)
    if kind < 2:
        return Write(stamp, path, _body(choice, stamp), overwrite=choice.random() < 0.7)
    if kind < 4:
        return Rename(stamp, path, other, overwrite=choice.random() < 0.6)
    if kind == 4:
        return Delete(stamp, path, missing_ok=choice.random() < 0.3)
    if kind == 5:
        return Reserve(stamp, path, exclusive=True)
    if kind == 6:
        return Touch(stamp, path)
    if kind == 10:
        return Exchange(stamp, path, other)
    return Read(path) if kind < 9 else Stat(path)


def among_extents(choice: random.Random, stamp: int) -> Operation:
    """Bytes added to two files and changed in place, while the files are replaced, moved, joined
    and deleted."""
    path, other = choice.sample(FILES[:2], 2)
    kind = choice.randrange(14)
    if kind < 5:
        return Append(stamp, path, b"<%d>" % stamp * choice.choice((1, 1, 40)))
    if kind < 7:
        return WriteRange(stamp, path, choice.choice((0, 2, 30)), b"[%d]" % stamp)
    if kind == 7:
        return Truncate(stamp, path, choice.choice((0, 4, 60)))
    if kind == 8:
        return Concat(stamp, path, (other,))
    if kind == 9:
        return choice.choice(
            (
                Write(stamp, path, _body(choice, stamp)),
                Rename(stamp, path, other, overwrite=True),
                Delete(stamp, path, missing_ok=True),
            )
        )
    return Read(path) if kind < 13 else Stat(path)


def among_few_extents(choice: random.Random, stamp: int) -> Operation:
    """Bytes added to two files and changed in place, while the files are cut off and exchanged."""
    path, other = choice.sample(FILES[:2], 2)
    kind = choice.randrange(12)
    if kind < 4:
        return Append(stamp, path, b"<%d>" % stamp)
    if kind < 7:
        return WriteRange(stamp, path, choice.choice((0, 2, 9)), b"[%d]" % stamp)
    if kind < 9:
        return Truncate(stamp, path, choice.choice((0, 4, 12)))
    return Exchange(stamp, path, other) if kind < 11 else Read(path)


def among_labels(choice: random.Random, stamp: int) -> Operation:
    """Metadata of three files set and removed, while the files are written, moved,
    exchanged and deleted."""
    path, other = choice.sample(FILES, 2)
    kind = choice.randrange(12)
    if kind < 4:
        return Label(stamp, path, removes=choice.random() < 0.25)
    if kind == 4:
        return Write(stamp, path, _body(choice, stamp))
    if kind == 5:
        return Rename(stamp, path, other, overwrite=True)
    if kind == 6:
        return choice.choice(
            (
                Delete(stamp, path, missing_ok=True),
                Append(stamp, path, b"<%d>" % stamp),
                Reserve(stamp, path, exclusive=True),
            )
        )
    if kind == 7:
        return Exchange(stamp, path, other)
    return Stat(path) if kind < 11 else Read(path)


TOPS = ("/d", "/e", "/k")
INSIDE = {"": None, "/s": None, "/x": File(b"x", 0), "/y": File(b"y", 0), "/s/z": File(b"z", 0)}


def among_directories(choice: random.Random, stamp: int) -> Operation:
    """Directories moved as a whole, below each other too, and looked at from above."""
    top, other = choice.sample(TOPS, 2)
    kind = choice.randrange(10)
    if kind < 4:
        return Rename(stamp, top, choice.choice((other, other, f"{other}/{top[1:]}")))
    if kind < 6:
        return List("/", recursive=True, form=choice.choice(("plain", "sorted", "batches")))
    if kind == 6:
        return Stat(top + choice.choice(list(INSIDE)))
    if kind == 7:
        return Rename(stamp, f"{top}/{other[1:]}", other)
    return Read(top + choice.choice(("/x", "/y", "/s/z")))


def among_both(choice: random.Random, stamp: int) -> Operation:
    """Files written, moved and deleted in directories that are moved and deleted as a whole."""
    top, other = choice.sample(TOPS, 2)
    name = choice.choice(("/x", "/y", "/s/z"))
    kind = choice.randrange(10)
    if kind < 2:
        return Rename(stamp, top, other)
    if kind == 2:
        return Delete(stamp, top, recursive=True)
    if kind < 5:
        return Rename(
            stamp,
            top + name,
            choice.choice((top, other)) + choice.choice(("/x", "/y")),
            overwrite=True,
        )
    if kind < 7:
        return Write(stamp, top + name, _body(choice, stamp))
    return Stat(top + name) if kind == 7 else Read(top + name)


def among_moving_extents(choice: random.Random, stamp: int) -> Operation:
    """Files changed in place in directories that are moved and deleted as a whole."""
    top, other = choice.sample(TOPS[:2], 2)
    path = top + choice.choice(("/x", "/x", "/y"))
    kind = choice.randrange(12)
    if kind < 2:
        return Rename(stamp, top, other)
    if kind == 2:
        return Delete(stamp, top, recursive=choice.random() < 0.5)
    if kind < 6:
        return Append(stamp, path, b"<%d>" % stamp)
    if kind < 8:
        return WriteRange(stamp, path, choice.choice((0, 2, 30)), b"[%d]" % stamp)
    if kind == 8:
        return Truncate(stamp, path, choice.choice((0, 4, 60)))
    return Read(path) if kind < 11 else Stat(path)


def among_empty(choice: random.Random, stamp: int) -> Operation:
    """Files are created, some exclusively, and deleted in directories that are removed as empty,
    deleted, renamed and created again."""
    top, other = choice.sample(TOPS[:2], 2)
    path = top + choice.choice(("/x", "/x", "/y"))
    kind = choice.randrange(13)
    if kind < 3:
        return Delete(stamp, top)
    if kind < 6:
        return Write(stamp, path, _body(choice, stamp), overwrite=choice.random() < 0.5)
    if kind < 8:
        return Delete(stamp, path, missing_ok=choice.random() < 0.3)
    if kind == 8:
        return choice.choice(
            (
                Delete(stamp, top, recursive=True),
                Rename(stamp, top, other),
                Reserve(stamp, path, exclusive=True),
            )
        )
    if kind == 9:
        return Rename(
            stamp, path, f"{other}/{choice.choice('xy')}", overwrite=choice.random() < 0.5
        )
    if kind == 10:
        return MakeDirectory(stamp, top, exist_ok=choice.random() < 0.5)
    return Read(path) if kind == 11 else Stat(path)


SCENES: dict[str, Scene] = {
    "files": Scene({"/f": File(b"first", 0)}, among_files),
    "extents": Scene({"/f": File(b"first", 0)}, among_extents, is_slow=True),
    "few extents": Scene(
        {"/f": File(b"first", 0), "/g": File(b"second", 0)},
        among_few_extents,
        clients=3,
        rounds=5,
    ),
    "labels": Scene({"/f": File(b"first", 0)}, among_labels),
    "directories": Scene({f"/d{path}": node for path, node in INSIDE.items()}, among_directories),
    "both": Scene({f"/d{path}": node for path, node in INSIDE.items()}, among_both),
    "moving extents": Scene(
        {f"/d{path}": node for path, node in INSIDE.items()}, among_moving_extents, is_slow=True
    ),
    # In layout `path` a new file may be seen below a directory that was removed concurrently.
    "empty": Scene({"/d": None}, among_empty, ("tree",)),
}


async def build(fs: S3kClient, tree: Tree) -> None:
    """Make the tree that a scene begins with."""
    for path, node in sorted(tree.items()):
        await (fs.write(path, node.data) if isinstance(node, File) else fs.makedirs(path))


async def together(work: Sequence[Callable[[], Coroutine[Any, Any, object]]]) -> None:
    """Run all at once."""
    async with anyio.create_task_group() as tasks:
        for each in work:
            tasks.start_soon(each)
