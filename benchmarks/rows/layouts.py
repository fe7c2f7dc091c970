"""Layout `tree` beside layout `path`; run apart (`--only layouts`).

Each layout has a volume of its own in the same place, and they take turns. Three places: memory, an
embedded volume, and dynoxide with SeaweedFS, where s3fs and Hadoop's S3A rename the same number of
files of 4 KiB in the same SeaweedFS. Directories to rename, delete and list are filled past the
log, with files without data, and renamed there and back. Requests are counted after what is timed,
capacity units in memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import pytest

from benchmarks.contenders.keys import ITEM
from benchmarks.contenders.layouts import DATA, Chain, Deletion, Swing
from benchmarks.contenders.ours import Ours, client, fill
from benchmarks.contenders.with_aiobotocore import client_of
from benchmarks.contenders.with_obstore import Obstore
from benchmarks.contenders.with_s3a import S3a, s3a_jvm
from benchmarks.contenders.with_s3fs import S3fs
from benchmarks.measuring import Case, Result, Run, measure
from benchmarks.relay import Relay
from benchmarks.rows.scope import Scope
from benchmarks.servers import config_for, engine_named
from s3k_async import S3kClient, init_volume
from s3k_async.config import (
    DynamoTable,
    MemoryBlobs,
    MemoryTable,
    S3Bucket,
    VolumeConfig,
)
from s3k_async.model import LayoutName
from tests.cost_model.counting import Scales
from tests.engines.process import Engine

__all__ = ["results"]

LAYOUTS: tuple[LayoutName, ...] = ("path", "tree")
WAITING = "tree, wait"
"""Deletes and reclaims: what layout `path` does in one."""
MEMORY, EMBEDDED, ENGINES = "memory", "embedded", "dynoxide + SeaweedFS"
SUFFIXES = 10
IN_FLIGHT = 32
DEPTHS = 1, 3, 6
"""Directories above a file; of the files with data, the second."""
SIZE = int(ITEM["size"]["N"])
LARGE = 1_000_000
COUNTED_PEERS = 1_000
"""Files at most for which the requests of peers are counted: they are some for each file."""


@dataclass(frozen=True)
class Sizes:
    """How much there is of everything."""

    trees: tuple[int, ...]
    """Files of a directory that is renamed and deleted."""
    rewritten: int
    """Files at most where each of them is changed: in layout `path`, and in a reclamation."""
    copied: int
    """Files at most where each of them is copied: by peers."""
    listed: int
    calls: int
    """Of a verb that reads, in one repetition."""
    created: int
    """Calls that create."""
    cold: int
    """Chains of directories that a new client has not read."""
    batch: int
    """Files that one call writes."""


QUICK = Sizes((1, 100), 100, 100, 1_000, 20, 5, 3, 50)
FULL = Sizes((1, 1_000, 10_000, 100_000), 10_000, 1_000, 100_000, 300, 100, 50, 500)


async def results(scope: Scope) -> AsyncIterator[Result]:
    """All places, one after the other."""
    sizes = scope.pick(QUICK, FULL)
    if scope.large:
        sizes = replace(sizes, trees=(*sizes.trees, LARGE))
    with tempfile.TemporaryDirectory() as directory:
        for place in (MEMORY, EMBEDDED):
            configs: dict[str, VolumeConfig] = {
                layout: await _config(place, layout, directory) for layout in LAYOUTS
            }
            async for result in _place(scope, sizes, place, configs, nullcontext({})):
                yield result
        with engine_named("dynoxide") as table, engine_named("seaweedfs") as data:
            configs = {layout: _on_engines(table, data, layout) for layout in LAYOUTS}
            them = _peers(data)
            async for result in _place(scope, sizes, ENGINES, configs, them):
                yield result


async def _config(place: str, layout: LayoutName, directory: str) -> VolumeConfig:
    if place == EMBEDDED:
        return await init_volume(f"{directory}/{layout}", layout=layout)
    name = f"bench-{layout}"
    return VolumeConfig(name, MemoryTable(name), MemoryBlobs(name), layout=layout)


def _on_engines(table: Engine, data: Engine, layout: LayoutName) -> VolumeConfig:
    config, name = config_for(table, data, suffixes=SUFFIXES, connections=64), f"bench-{layout}"
    assert isinstance(config.table, DynamoTable)
    assert isinstance(config.data, S3Bucket)
    return replace(
        config,
        name=name,
        table=replace(config.table, name=name),
        data=replace(config.data, bucket=name),
        layout=layout,
    )


async def _place(
    scope: Scope,
    sizes: Sizes,
    place: str,
    configs: Mapping[str, VolumeConfig],
    peers: AbstractAsyncContextManager[Mapping[str, Peer]],
) -> AsyncIterator[Result]:
    """Files first: the JVM of a peer is started after them."""
    async with AsyncExitStack() as stack:
        clients = {
            layout: await stack.enter_async_context(client(config))
            for layout, config in configs.items()
        }
        if place != MEMORY:
            async for result in _files(scope, sizes, place, configs, clients):
                yield result
        them = await stack.enter_async_context(peers)
        for files in sizes.trees:
            async for result in _trees(scope, sizes, place, files, clients, them):
                yield result


def _rounds(scope: Scope, least: int) -> int:
    return int(scope.pick(scope.rounds, max(scope.rounds, least)))


# Renames and deletions


async def _trees(
    scope: Scope,
    sizes: Sizes,
    place: str,
    files: int,
    clients: Mapping[str, S3kClient],
    them: Mapping[str, Peer],
) -> AsyncIterator[Result]:
    is_rewritten = files <= sizes.rewritten
    them = them if files <= sizes.copied else {}
    top = f"/trees-{files}"
    fit = {name: fs for name, fs in clients.items() if name == "tree" or is_rewritten}
    swings = {name: Swing(fs.rename, top) for name, fs in fit.items()}
    for name, fs in fit.items():
        await fill(fs, swings[name].here, files)
    for name, peer in them.items():
        swings[name] = Swing(peer.fs.rename, top)
        await peer.fill(swings[name].here, files)
    is_fast = files == 1 or (files <= 1_000 and not them)
    case = Case(
        "layout rename",
        _told(files, place),
        1,
        "renames",
        dict(swings),
        "path",
        _rounds(scope, 15 if files == 1 else 7 if is_fast else 3),
        warm=is_fast,
    )
    measured = await measure(case)
    for name, swing in swings.items():
        lists = Ours(fit[name]).list if name in fit else them[name].fs.list
        if (found := await lists(swing.here)) != files:
            raise AssertionError(f"{name} renamed {found} of {files} files")
    for result in measured:
        name, swing = result.contender, swings[result.contender]
        if name in fit:
            yield await _counted(result, place, files, fit[name], swing)
        elif files <= COUNTED_PEERS:
            yield await them[name].counted(result, files, swing.here)
        else:
            yield replace(result, facts={"files": files})
    deletions = {name: Deletion(fs, swings[name].here, files) for name, fs in fit.items()}
    if is_rewritten:
        deletions[WAITING] = Deletion(clients["tree"], f"{top}/waited", files, wait=True)
    async for result in _deleted(scope, place, files, deletions):
        yield result


async def _deleted(
    scope: Scope, place: str, files: int, deletions: Mapping[str, Deletion]
) -> AsyncIterator[Result]:
    async def ready(name: str) -> None:
        await deletions[name].ready()

    case = Case(
        "layout delete",
        _told(files, place),
        1,
        "deletions",
        dict(deletions),
        "path",
        _rounds(scope, 15 if files == 1 else 7 if files <= 1_000 else 3),
        ready,
        warm=files <= 1_000,
    )
    for result in await measure(case):
        deletion = deletions[result.contender]
        await deletion.ready()
        yield await _counted(result, place, files, deletion.fs, deletion)


def _told(files: int, place: str) -> str:
    return f"{files:,} file{'' if files == 1 else 's'}, {place}"


async def _counted(
    result: Result, place: str, files: int, fs: S3kClient, work: Callable[[], Awaitable[object]]
) -> Result:
    """Once more, with its requests to table and log and, in memory, its capacity units; not
    timed."""
    facts: dict[str, int] = {"files": files}
    with pytest.MonkeyPatch.context() as patch:
        scales = Scales(patch) if place == MEMORY else None
        with fs.count() as counter:
            await work()
        await fs._volume().log.drained()
    facts |= {part: counter.requests.of(part) for part in ("table", "log")}
    if scales is not None:
        facts |= {"read units": scales.read, "write units": scales.written}
    return replace(result, facts=facts)


# Files


async def _files(
    scope: Scope,
    sizes: Sizes,
    place: str,
    configs: Mapping[str, VolumeConfig],
    clients: Mapping[str, S3kClient],
) -> AsyncIterator[Result]:
    async for result in _listing(scope, sizes.listed, place, clients):
        yield result
    for depth in DEPTHS:
        async for result in _warm(scope, sizes.calls, place, clients, depth):
            yield result
        async for result in _cold(scope, sizes.cold, place, configs, clients, depth):
            yield result
    async for result in _data(scope, sizes, place, clients):
        yield result


async def _listing(
    scope: Scope, files: int, place: str, clients: Mapping[str, S3kClient]
) -> AsyncIterator[Result]:
    for fs in clients.values():
        await fill(fs, "/listed", files)
    runs: dict[str, Run] = {name: partial(Ours(fs).list, "/listed") for name, fs in clients.items()}
    case = Case(
        "layout list",
        _told(files, place),
        files,
        "entries",
        runs,
        "path",
        _rounds(scope, 3),
        expected=files,
    )
    for result in await measure(case):
        yield result


async def _warm(
    scope: Scope, calls: int, place: str, clients: Mapping[str, S3kClient], depth: int
) -> AsyncIterator[Result]:
    chains = {name: Chain(fs, depth) for name, fs in clients.items()}
    for chain in chains.values():
        await fill(chain.fs, chain.path, calls)
    for in_flight in (1, IN_FLIGHT):
        runs: dict[str, Run] = {
            name: partial(chain.stat, calls, in_flight) for name, chain in chains.items()
        }
        case = _case(scope, "stat, warm", calls, runs, place, depth, in_flight)
        for result in await measure(replace(case, expected=calls * SIZE)):
            chain = chains[result.contender]
            yield await _counted(result, place, 1, chain.fs, partial(chain.stat, 1, 1))


async def _cold(
    scope: Scope,
    calls: int,
    place: str,
    configs: Mapping[str, VolumeConfig],
    clients: Mapping[str, S3kClient],
    depth: int,
) -> AsyncIterator[Result]:
    """Each file has directories of its own, which a new client has not read; it has a
    connection."""
    tops = [f"/cold-{depth}-{number}" for number in range(calls)]
    for fs in clients.values():
        for top in tops:
            await fill(fs, Chain(fs, depth, top).path, 1)
    async with AsyncExitStack() as everything:
        stacks = {name: await everything.enter_async_context(AsyncExitStack()) for name in configs}
        fresh: dict[str, S3kClient] = {}

        async def ready(name: str) -> None:
            await stacks[name].aclose()
            fresh[name] = await stacks[name].enter_async_context(S3kClient(config=configs[name]))
            await fresh[name].exists("/missing")

        async def look(name: str) -> int:
            return sum([await Chain(fresh[name], depth, top).stat(1, 1) for top in tops])

        runs: dict[str, Run] = {name: partial(look, name) for name in configs}
        case = _case(scope, "stat, cold", calls, runs, place, depth, 1)
        for result in await measure(replace(case, expected=calls * SIZE, before=ready)):
            await ready(result.contender)
            fs = fresh[result.contender]
            one = partial(Chain(fs, depth, tops[0]).stat, 1, 1)
            yield await _counted(result, place, 1, fs, one)


async def _data(
    scope: Scope, sizes: Sizes, place: str, clients: Mapping[str, S3kClient]
) -> AsyncIterator[Result]:
    calls, depth = sizes.calls, DEPTHS[1]
    chains = {name: Chain(fs, depth, "/data") for name, fs in clients.items()}
    for chain in chains.values():
        await chain.put(calls)
    cases: list[Case] = []
    for in_flight in (1, IN_FLIGHT):
        reads: dict[str, Run] = {
            name: partial(chain.read, calls, in_flight) for name, chain in chains.items()
        }
        creations: dict[str, Run] = {
            name: partial(chain.create, sizes.created, in_flight) for name, chain in chains.items()
        }
        read = _case(scope, "read", calls, reads, place, depth, in_flight)
        cases += [
            replace(read, expected=calls * len(DATA)),
            _case(scope, "create", sizes.created, creations, place, depth, in_flight),
        ]
    batches: dict[str, Run] = {
        name: partial(chain.write_many, sizes.batch) for name, chain in chains.items()
    }
    cases.append(_case(scope, "write_many", sizes.batch, batches, place, depth, sizes.batch))
    for case in cases:
        for result in await measure(case):
            yield result


def _case(
    scope: Scope,
    row: str,
    calls: int,
    runs: Mapping[str, Run],
    place: str,
    depth: int,
    in_flight: int,
) -> Case:
    of = f"one call of {calls:,}" if row == "write_many" else f"{in_flight} in flight"
    case = f"depth {depth}, {of}, {place}"
    return Case(f"layout {row}", case, calls, "files", runs, "path", _rounds(scope, 5))


# Peers


class Bucket(Protocol):
    """What renames directories in a bucket."""

    async def rename(self, path: str, target: str) -> None: ...

    async def list(self, path: str) -> int: ...

    async def close(self) -> None: ...


class Peer:
    """A filesystem that keeps everything in a bucket of its own."""

    def __init__(self, data: Engine, bucket: str, open: Callable[[Engine, str], Bucket]) -> None:
        self._data, self._bucket, self._open = data, bucket, open
        self.fs = open(data, bucket)

    async def fill(self, path: str, files: int) -> None:
        """Put a directory of files."""
        await Obstore(self._data, self._bucket).put(path, files, DATA, IN_FLIGHT)

    async def counted(self, result: Result, files: int, path: str) -> Result:
        """The directory renamed once more, with its requests counted by a relay; not timed."""
        async with Relay(self._data.endpoint) as relay:
            far = self._open(relay.instead_of(self._data), self._bucket)
            try:
                await far.list(path)  # so that it has opened what it opens once
                before = relay.requests
                await far.rename(path, f"{path}-counted")
                return replace(result, facts={"files": files, "data": relay.requests - before})
            finally:
                await far.close()


@asynccontextmanager
async def _peers(data: Engine) -> AsyncIterator[Mapping[str, Peer]]:
    buckets = {"s3fs": "bench-s3fs", "S3A": "bench-s3a"}
    async with client_of(data, "s3") as low:
        for bucket in buckets.values():
            await low.create_bucket(Bucket=bucket)
    with s3a_jvm() as jvm:
        them = {
            "s3fs": Peer(data, buckets["s3fs"], S3fs),
            "S3A": Peer(data, buckets["S3A"], partial(S3a, jvm)),
        }
        try:
            yield them
        finally:
            for peer in them.values():
                await peer.fs.close()
