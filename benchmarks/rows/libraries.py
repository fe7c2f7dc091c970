"""Libraries on real engines: this package's adapters for fsspec and pyarrow beside s3fs and
pyarrow's S3 filesystem."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import TypeVar

from benchmarks.contenders.libraries import ARROW, FSSPEC, Arrow, Fsspec, Sizes, told
from benchmarks.contenders.with_aiobotocore import client_of
from benchmarks.contenders.with_pyarrow import PyarrowS3
from benchmarks.contenders.with_s3fs import S3fs
from benchmarks.measuring import Case, Result, Run, measure
from benchmarks.relay import Relay
from benchmarks.rows.scope import Scope
from benchmarks.servers import config_for, engine_named
from s3k_async.adapters.arrow import arrow_filesystem
from s3k_async.adapters.fsspec import S3kFileSystem
from s3k_async.config import VolumeConfig
from s3k_async.volumes import init_volume
from tests.engines.process import Engine

__all__ = ["results"]

QUICK = Sizes(300, 6, 50, read=60, in_ranges=20, ranges=5, parts=5, rows=1_000)
FULL = Sizes(10_000, 100, 100, read=1_000, in_ranges=200, ranges=5, parts=50, rows=20_000)

T = TypeVar("T", Fsspec, Arrow)


async def results(scope: Scope) -> AsyncIterator[Result]:
    """Everything timed, then everything once more with its requests counted."""
    sizes = scope.pick(QUICK, FULL)
    with engine_named("dynoxide") as table, engine_named("seaweedfs") as data:
        async with client_of(data, "s3") as low:
            for bucket in ("bench-s3fs", "bench-pyarrow"):
                await low.create_bucket(Bucket=bucket)
        volume = config_for(table, data, suffixes=10, connections=64)
        await init_volume(volume)
        libraries, arrows = _fsspec_filesystems(volume, data), _arrow_filesystems(volume, data)
        fills = [each.fill for each in libraries.values()] + [each.fill for each in arrows.values()]
        for fill in fills:
            await asyncio.to_thread(fill, sizes)
        for case in _cases(scope, sizes, libraries, arrows):
            for result in await measure(case):
                yield result
        for name, library in libraries.items():
            found = await asyncio.to_thread(library.find, "flat-0")
            if found != sizes.files:
                raise AssertionError(f"{name} moved {found} of {sizes.files} files there and back")
        async for result in _counted(sizes, table, data):
            yield result


def _cases(
    scope: Scope, sizes: Sizes, libraries: Mapping[str, Fsspec], arrows: Mapping[str, Arrow]
) -> list[Case]:
    reads = [
        *(
            _case(f"fsspec {verb}", verb, work, libraries, sizes, scope, "s3fs")
            for verb, work in FSSPEC.items()
        ),
        *(
            _case(f"pyarrow {verb}", verb, work, arrows, sizes, scope, "pyarrow")
            for verb, work in ARROW.items()
        ),
    ]
    places = dict.fromkeys(libraries, ("flat-0", "flat-1"))

    async def move(name: str) -> None:
        source, target = places[name]
        await asyncio.to_thread(libraries[name].mv, source, target)
        places[name] = target, source

    runs: dict[str, Run] = {name: partial(move, name) for name in libraries}
    # There and back: those whose requests are counted look for it where it was.
    moves = Case(
        "fsspec mv", told(sizes, "mv")[0], sizes.files, "files", runs, "s3fs", 2, warm=False
    )
    return [*reads, moves]


def _case(
    row: str,
    verb: str,
    work: Callable[[T, Sizes], object],
    them: Mapping[str, T],
    sizes: Sizes,
    scope: Scope,
    baseline: str,
) -> Case:
    case, amount, unit, expected = told(sizes, verb)
    runs: dict[str, Run] = {
        name: partial(asyncio.to_thread, work, fs, sizes) for name, fs in them.items()
    }
    return Case(
        row,
        case,
        amount,
        unit,
        runs,
        baseline,
        scope.rounds,
        expected=expected,
        warm=amount < 5_000,
    )


async def _counted(sizes: Sizes, table: Engine, data: Engine) -> AsyncIterator[Result]:
    """Requests of every verb, seen by a relay between each filesystem and the servers; not
    timed."""
    async with Relay(table.endpoint) as table_relay, Relay(data.endpoint) as data_relay:
        far_table, far_data = table_relay.instead_of(table), data_relay.instead_of(data)
        volume = config_for(far_table, far_data, suffixes=10, connections=64)

        async def counted(row: str, verb: str, name: str, work: Callable[[], object]) -> Result:
            before = table_relay.requests + data_relay.requests
            await asyncio.to_thread(work)
            requests = table_relay.requests + data_relay.requests - before
            case = f"{row} {verb}, {told(sizes, verb)[0]}"
            return Result(
                "requests",
                case,
                name,
                requests,
                "requests",
                [],
                [],
                "s3fs",
                facts={"requests": requests},
            )

        for name, library in _fsspec_filesystems(volume, far_data).items():
            await asyncio.to_thread(
                library.find, "ranges"
            )  # so that it has opened what it opens once
            for verb, work in FSSPEC.items():
                yield await counted("fsspec", verb, name, partial(work, library, sizes))
            yield await counted("fsspec", "mv", name, partial(library.mv, "flat-0", "flat-counted"))
        for name, arrow in _arrow_filesystems(volume, far_data).items():
            await asyncio.to_thread(arrow.list, "dataset")
            for verb, reading in ARROW.items():
                yield await counted("pyarrow", verb, name, partial(reading, arrow, sizes))


class _OfS3fs(Fsspec):
    """s3fs on SeaweedFS."""

    def mv(self, source: str, target: str) -> None:
        """What `mv` does, but that an error of a single file is ignored: SeaweedFS has an answer to
        HEAD for a directory, which s3fs therefore tries to copy as well."""
        self.fs.copy(
            f"{self.root}/{source}/", f"{self.root}/{target}/", recursive=True, on_error="ignore"
        )
        self.fs.rm(f"{self.root}/{source}", recursive=True)


def _fsspec_filesystems(volume: VolumeConfig, data: Engine) -> dict[str, Fsspec]:
    """s3fs in a bucket of its own, and ours on a volume."""
    theirs = S3fs(data, "bench-s3fs", asynchronous=False)
    ours = S3kFileSystem(config=volume, skip_instance_cache=True)
    return {"s3fs": _OfS3fs(theirs.fs, theirs.bucket), "ours": Fsspec(ours, "")}


def _arrow_filesystems(volume: VolumeConfig, data: Engine) -> dict[str, Arrow]:
    """pyarrow's S3 filesystem in a bucket of its own, and ours on a volume."""
    theirs = PyarrowS3(data, "bench-pyarrow")
    return {
        "pyarrow": Arrow(theirs.fs, theirs.bucket),
        "ours": Arrow(arrow_filesystem(config=volume), ""),
    }
