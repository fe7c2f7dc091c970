"""Many clients on overlapping trees, and the operator's tools beside them, in processes that are
killed and stopped.

Workers write, move and delete in one small tree, and write files beside it that have lifecycle
metadata or are below a rule;
`fsck repair`, garbage collection, compaction and two runners of the lifecycle rules run throughout.
Each process has a wall clock of its own, apart by up to an hour. The driver kills processes
(SIGKILL) and starts them again, and stops workers (SIGSTOP) for longer than a lease.

A run ends when its time is over and each tool has finished once, on any machine: a tool that was
killed may be followed by one that is not killed until then, so that the log is compacted in
proportion to the writes; and after the planned time kills become rarer, so that the remaining work
of the tools is finite.
"""

from __future__ import annotations

import asyncio
import json
import math
import multiprocessing
import os
import random
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path

from anyio import sleep_forever

from s3k_async import S3kClient
from s3k_async._core.runtime import SYSTEM
from s3k_async.attributes import Attributes
from s3k_async.bulk.rule_runner import run_rules
from s3k_async.config import VolumeConfig
from s3k_async.errors import (
    OutcomeUnknownError,
    PartialFailureError,
    RequestTimeoutError,
    S3kError,
    UnreachableError,
)
from s3k_async.integrity.audit import AuditTrail
from s3k_async.integrity.gc_mark import CollectedData
from s3k_async.integrity.gc_rules import Ages
from s3k_async.integrity.gc_sweep import GarbageCollector
from s3k_async.integrity.repair import repair_volume
from s3k_async.lifecycle_rules import EXPIRES_AT, LATEST, READ_ONLY_AFTER
from s3k_async.model import ChangeResult
from s3k_async.oplog.compaction import Compactor
from s3k_async.volumes import Volume, open_volume
from tests.torture.ledger import content
from tests.torture.overlap import Call
from tests.torture.processes import PRELOADED, Keys, keys_of, with_keys

__all__ = ["DUE", "LABEL", "LIFECYCLES", "RULED", "TOOLS", "TOP", "Chaos", "Plan", "run_chaos"]

TOP = "/c"
DUE = "/due"
"""The directory of the files with lifecycle metadata, each of which is written once."""
RULED = "/ruled"
"""The directory with a rule by which its files expire; each of them is written once."""
LABEL = "label"
"""The metadata that files are given."""
DIRECTORIES, BRANCHES, NAMES = 3, 3, 8
SIZES = (0, 40, 40, 1_000, 60_000)
PATIENCE = 600.0
"""Seconds after which a process that has not begun is taken to hang."""
HANGS = 3600.0
"""Seconds after the planned time after which a tool is taken to hang."""
LAST_CALLS = 10
"""Calls that a worker makes after the planned time."""
FADING = 0.9
"""After the planned time, what each deed of the driver makes of the share of its turns in which it
does one."""


@dataclass(frozen=True)
class Plan:
    """How a run goes. Times in seconds."""

    seconds: float
    clocks: Sequence[float]
    """What is added to the wall clock of each worker: as many workers as entries."""
    ages: Ages
    """Of garbage collection; `late` longer than a stop. The workers' lease for uploads is
    `ages.lease`."""
    grace: float
    """Of repair and compaction."""
    pause: tuple[float, float] = (0.05, 0.4)
    """Between two things that the driver does."""
    stop: tuple[float, float] = (0.2, 2.0)
    """How long a worker is stopped."""


@dataclass
class Chaos:
    """What a run did."""

    calls: list[Call] = field(default_factory=list)
    kills: Counter[str] = field(default_factory=Counter)
    """By role."""
    stops: int = 0
    finished: Counter[str] = field(default_factory=Counter)
    """Runs of the operator's tools that came to their end."""
    refused: Counter[str] = field(default_factory=Counter)
    """Runs that ended in a named error, by its class."""

    @property
    def outcomes(self) -> Counter[str]:
        """How the workers' calls ended."""
        return Counter(call.outcome for call in self.calls)


class _Notes:
    """Calls of one process, each on the disk before it begins and when it was answered."""

    def __init__(self, place: Path) -> None:
        self._file = place.open("a", encoding="utf-8")

    def note(self, note: object) -> None:
        self._file.write(json.dumps(note) + "\n")
        self._file.flush()

    @staticmethod
    def read(place: Path) -> list[Call]:
        calls: list[Call] = []
        for line in place.read_text(encoding="utf-8").split("\n")[:-1]:
            note = json.loads(line)
            if "kind" in note:
                calls.append(Call(**note))
            else:
                calls[-1] = replace(calls[-1], **note)
        return calls


@dataclass
class _Child:
    role: str
    clock: float
    process: BaseProcess
    notes: Path
    died: float = math.inf
    """When it was killed, by the monotonic clock of all processes."""
    resumes: float | None = None
    """When it is to be continued, if it is stopped."""
    is_spared: bool = False
    """Whether it is not killed before it has finished once."""

    @property
    def has_finished(self) -> bool:
        """Whether a tool has finished."""
        if not self.notes.exists():
            return False
        lines = self.notes.read_text(encoding="utf-8").splitlines()
        return f"{self.role} finished" in lines


def run_chaos(config: VolumeConfig, plan: Plan, seed: str, directory: Path) -> Chaos:
    """Let it all run for a while, then kill every process. Raises AssertionError for an unnamed
    error."""
    driver = _Driver(config, plan, seed, directory)
    try:
        driver.run()
    finally:
        driver.kill_all()
    return driver.collect()


class _Driver:
    def __init__(self, config: VolumeConfig, plan: Plan, seed: str, directory: Path) -> None:
        self._config = replace(config, tuning=replace(config.tuning, lease=plan.ages.lease))
        self._plan = plan
        self._seed = seed
        self._directory = directory
        self._chance = random.Random(seed)
        self._context: ForkServerContext = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([*PRELOADED, "tests.torture.chaos"])
        self._numbers = 0
        self._children: list[_Child] = []
        self._chaos = Chaos()
        self._dead: list[_Child] = []

    def run(self) -> None:
        self._children = [self._start("worker", clock) for clock in self._plan.clocks]
        self._children += [self._start(role, 0.0) for role in TOOLS]
        self._wait_for_workers()
        began, share = time.monotonic(), 1.0
        while self._goes_on(seconds := time.monotonic() - began):
            time.sleep(self._chance.uniform(*self._plan.pause))
            self._resume(time.monotonic())
            is_late = seconds >= self._plan.seconds
            if is_late:
                _fades(self._directory).touch()
            child = self._chosen(is_late=is_late)
            if child is None or self._chance.random() > share:
                continue
            share *= FADING if is_late else 1.0
            assert child.process.is_alive(), self._died(child)
            if child.role == "worker" and child.resumes is None and self._chance.random() < 0.4:
                os.kill(child.process.pid or 0, signal.SIGSTOP)
                child.resumes = time.monotonic() + self._chance.uniform(*self._plan.stop)
                self._chaos.stops += 1
            elif child.resumes is None:
                self._replace(child)
        self._resume(float("inf"))

    def _chosen(self, *, is_late: bool) -> _Child | None:
        """The process whose turn it is to be stopped or killed; after the planned time (`is_late`)
        a worker."""
        is_worker = self._chance.random() < 0.9 or is_late
        child = self._chance.choice(
            [each for each in self._children if (each.role == "worker") == is_worker]
        )
        return None if child.is_spared and not child.has_finished else child

    def _replace(self, child: _Child) -> None:
        self._kill(child)
        other = self._start(child.role, child.clock)
        other.is_spared = child.role in TOOLS and self._chance.random() < 0.5
        self._children[self._children.index(child)] = other

    def _goes_on(self, seconds: float) -> bool:
        """For the planned time, and until each tool has ended once."""
        if seconds < self._plan.seconds:
            return True
        tools = [each for each in (*self._dead, *self._children) if each.role in TOOLS]
        ended = {each.role for each in tools if each.has_finished}
        return ended != TOOLS.keys() and seconds < self._plan.seconds + HANGS

    def kill_all(self) -> None:
        for child in self._children:
            self._kill(child)
        self._children = []

    def collect(self) -> Chaos:
        chaos = self._chaos
        for child in self._dead:
            if not child.notes.exists():
                continue
            if child.role == "worker":
                calls = _Notes.read(child.notes)
                chaos.calls += [replace(call, ended=min(call.ended, child.died)) for call in calls]
                continue
            for line in child.notes.read_text(encoding="utf-8").splitlines():
                role, _, outcome = line.partition(" ")
                if outcome == "finished":
                    chaos.finished[role] += 1
                else:
                    chaos.refused[f"{role} {outcome}"] += 1
        crashes = [
            path.read_text(encoding="utf-8") for path in sorted(self._directory.glob("*.crash"))
        ]
        assert not crashes, "\n".join(crashes[:3])
        return chaos

    def _start(self, role: str, clock: float) -> _Child:
        self._numbers += 1
        name = f"{role}-{self._numbers}"
        notes = self._directory / name
        arguments = (
            self._config,
            keys_of(self._config),
            self._plan,
            role,
            clock,
            f"{self._seed}-{name}",
            notes,
        )
        process = self._context.Process(target=_live, args=arguments, daemon=True)
        process.start()
        return _Child(role, clock, process, notes)

    def _wait_for_workers(self) -> None:
        deadline = time.monotonic() + PATIENCE
        for child in self._children:
            while child.role == "worker" and not (
                child.notes.exists() and child.notes.stat().st_size
            ):
                assert child.process.is_alive(), self._died(child)
                assert time.monotonic() < deadline, "a process hangs"
                time.sleep(0.01)

    def _resume(self, now: float) -> None:
        for child in self._children:
            if child.resumes is not None and child.resumes <= now:
                os.kill(child.process.pid or 0, signal.SIGCONT)
                child.resumes = None

    def _kill(self, child: _Child) -> None:
        child.process.kill()
        child.process.join()
        child.died = time.monotonic()
        self._dead.append(child)
        self._chaos.kills[child.role] += 1

    def _died(self, child: _Child) -> str:
        crash = child.notes.with_suffix(".crash")
        return (
            crash.read_text(encoding="utf-8")
            if crash.exists()
            else f"{child.notes.name} ended by itself"
        )


def _fades(directory: Path) -> Path:
    """A file that is there after the planned time."""
    return directory / "fades"


def _live(
    config: VolumeConfig, keys: Keys, plan: Plan, role: str, clock: float, seed: str, notes: Path
) -> None:  # in the child
    wall = time.time_ns
    time.time_ns = lambda: wall() + int(clock * 1e9)
    config = with_keys(config, keys)
    try:
        if role == "worker":
            asyncio.run(_work(config, seed, _Notes(notes), _fades(notes.parent).exists))
        else:
            asyncio.run(_operate(config, plan, role, notes))
    except BaseException:
        notes.with_suffix(".crash").write_text(traceback.format_exc(), encoding="utf-8")
        raise


# The workers


async def _work(
    config: VolumeConfig, seed: str, notes: _Notes, is_late: Callable[[], bool]
) -> None:
    chance = random.Random(seed)
    number, left = 0, LAST_CALLS
    fs = S3kClient(config=config)
    while fs.closed:
        # A stop while the volume is opened outlasts the time for a request.
        with suppress(RequestTimeoutError, UnreachableError):
            await fs.open_volume()
    while left:
        number += 1
        left -= is_late()
        call, run = _next_call(fs, chance, f"{seed}-{number}")
        notes.note(asdict(replace(call, began=time.monotonic())))
        notes.note(await _answer(call, run))
    await sleep_forever()


async def _answer(call: Call, run: Callable[[], Awaitable[object]]) -> dict[str, object]:
    """Make a call; what it was told. Of many files, those that certainly failed are left out."""
    try:
        result = await run()
    except S3kError as error:
        # Part of what failed may be done, and an unknown outcome may be either.
        is_open = isinstance(error, OutcomeUnknownError | PartialFailureError)
        outcome = "unknown" if is_open else "failed"
        return {
            "outcome": outcome,
            "ended": time.monotonic(),
            "error": f"{type(error).__name__}: {error}",
        }
    ended, failures = time.monotonic(), result.failures if isinstance(result, ChangeResult) else ()
    if any(isinstance(error, OutcomeUnknownError | PartialFailureError) for _, error in failures):
        return {"outcome": "unknown", "ended": ended}
    failed = {path for path, _ in failures}
    return {
        "outcome": "done",
        "ended": ended,
        "files": {k: v for k, v in call.files.items() if k not in failed},
    }


def _next_call(
    fs: S3kClient, chance: random.Random, name: str
) -> tuple[Call, Callable[[], Awaitable[object]]]:
    (verb,) = chance.choices(list(_VERBS), list(_VERBS.values()))
    size = chance.choice(SIZES)
    match verb:
        case "write":
            path = _path(chance)
            return Call("write", 0.0, files={path: name}), lambda: fs.write(
                path, content(name, size)
            )
        case "save":
            path = _path(chance)
            return Call("write", 0.0, files={path: name}), lambda: _save(
                fs, path, content(name, size)
            )
        case "many":
            files = {_path(chance): f"{name}-{each}" for each in range(3)}
            data = [(path, content(each, size)) for path, each in files.items()]
            return Call("write", 0.0, files=files), lambda: fs.write_many(data)
        case "label":
            path, value = _path(chance), None if chance.random() < 0.3 else name.encode()
            return Call("label", 0.0, path), lambda: fs.set_attributes(
                path, metadata={LABEL: value}
            )
        case "expire" | "keep" | "protect" | "ruled":
            place = RULED if verb == "ruled" else DUE
            path, attributes = f"{place}/{name}", Attributes(metadata=LIFECYCLES[verb])
            return Call(verb, 0.0, files={path: name}), lambda: fs.write(
                path, content(name, size), attributes=attributes
            )
        case "move many":
            pairs = dict(zip(_paths(chance), _paths(chance), strict=True))
            pairs = {source: target for source, target in pairs.items() if target not in pairs}
            overwrite = chance.random() < 0.5
            return (
                Call("move many", 0.0, overwrite=overwrite, files=pairs),
                lambda: fs.rename_many(list(pairs.items()), overwrite=overwrite),
            )
        case "delete many":
            paths = _paths(chance)
            return Call("delete many", 0.0, files=dict.fromkeys(paths, "")), lambda: fs.delete_many(
                paths
            )
        case "move":
            source, target, overwrite = _path(chance), _path(chance), chance.random() < 0.5
            return (
                Call("move", 0.0, source, target, overwrite),
                lambda: fs.rename(source, target, overwrite=overwrite),
            )
        case "move tree":
            source, target = _branch(chance), _branch(chance)
            return Call("move tree", 0.0, source, target), lambda: fs.rename(source, target)
        case "delete":
            path = _path(chance)
            return Call("delete", 0.0, path), lambda: fs.delete(path)
        case _:
            branch = _branch(chance)
            return Call("delete tree", 0.0, branch), lambda: fs.delete(branch, recursive=True)


_VERBS = {
    "write": 6,
    "save": 3,
    "many": 3,
    "label": 3,
    "expire": 2,
    "keep": 1,
    "protect": 1,
    "ruled": 1,
    "move": 4,
    "move tree": 2,
    "move many": 2,
    "delete": 2,
    "delete tree": 1,
    "delete many": 2,
}
"""How often each is called, relatively."""
LIFECYCLES: Mapping[str, Mapping[str, bytes]] = {
    "expire": {EXPIRES_AT: b"1"},
    "keep": {EXPIRES_AT: str(LATEST).encode()},
    "protect": {READ_ONLY_AFTER: b"1"},
    "ruled": {},
}
"""Calls that write files for which a lifecycle rule is due now, never, once, and now by the rule of
their directory; and the metadata of these files."""


def _branch(chance: random.Random) -> str:
    return f"{TOP}/{chance.randrange(DIRECTORIES)}/{chance.randrange(BRANCHES)}"


def _path(chance: random.Random) -> str:
    return f"{_branch(chance)}/f{chance.randrange(NAMES)}"


def _paths(chance: random.Random) -> list[str]:
    """Some paths, each once."""
    branch, numbers = _branch(chance), chance.sample(range(NAMES), 4)
    return [f"{branch}/f{number}" for number in numbers]


async def _save(fs: S3kClient, path: str, data: bytes) -> None:
    async with fs.open(path, "wb") as file:
        half = len(data) // 2
        await file.write(data[:half])
        await file.write(data[half:])


# The operator's tools


async def _operate(config: VolumeConfig, plan: Plan, role: str, notes: Path) -> None:
    with notes.open("a", encoding="utf-8") as file:
        while True:
            try:
                volume = await open_volume(config)
                try:
                    await TOOLS[role](volume, plan)
                finally:
                    await volume.close()
            except S3kError as error:
                file.write(f"{role} {type(error).__name__}: {error}\n")
            else:
                file.write(f"{role} finished\n")
            file.flush()
            await asyncio.sleep(0.05)


async def _repair(volume: Volume, plan: Plan) -> None:
    await repair_volume(volume, dry_run=False, grace=plan.grace)


async def _collect(volume: Volume, plan: Plan) -> None:
    collector = GarbageCollector(
        CollectedData.of(volume),
        SYSTEM,
        plan.ages,
        AuditTrail(volume.log_blobs, SYSTEM.uuid(), None),
    )
    # In layout `tree`, the files below deleted directories are deleted at once.
    await collector.reclaim(0.0)
    with tempfile.TemporaryDirectory() as directory:
        candidates = os.path.join(directory, "candidates")
        await collector.clean_up(await collector.mark(candidates))
        await collector.sweep(candidates)


async def _compact(volume: Volume, plan: Plan) -> None:
    assert volume.log_blobs is not None
    await Compactor(volume.log_blobs, SYSTEM, grace=plan.grace).run(dry_run=False)


async def _run_rules(volume: Volume, plan: Plan) -> None:
    await run_rules(volume)


TOOLS: Mapping[str, Callable[[Volume, Plan], Awaitable[None]]] = {
    "repair": _repair,
    "gc": _collect,
    "compact": _compact,
    "rules": _run_rules,
    "rules_2": _run_rules,
}
"""What each role does, again and again."""
