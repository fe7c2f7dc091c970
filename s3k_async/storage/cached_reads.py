"""Reads of physical objects through a cache of their blocks on a local disk.

Physical objects are immutable and have random keys, so a block is never stale. Whatever is wrong
with the cache, a read is answered by the source.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

from s3k_async._core.concurrency import run_all
from s3k_async._core.runtime import Runtime
from s3k_async._core.worker_threads import Threads
from s3k_async.backends.ports.blobs import BlobStore, Buffer
from s3k_async.model import CacheStatistics
from s3k_async.storage.cache_blocks import BlockName
from s3k_async.storage.cache_directory import CacheDirectory, CacheLimits, Eviction

__all__ = ["CachedReads"]

_LOG = logging.getLogger(__name__)

THREADS: Final = 8
RUNS_AT_ONCE: Final = 4
"""Requests in flight for one read, if blocks between those that it misses are in the cache."""
PAUSE_SECONDS: Final = 60.0
"""Time in which nothing is stored after a failure to do so."""
CHECKS: Final = 256
"""The size of the cache is estimated whenever a client has stored this fraction of it."""
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)

_Block: TypeAlias = bytes | memoryview
_FlightKey: TypeAlias = tuple[str, int, bool]
"""Physical key, number of the block, and whether the disk may have it: a read that distrusts an
object does not join one that began before."""


class _CachedObject(NamedTuple):
    """A physical object. `size`: bytes, None if it is not known. `etag`: the one that it must have
    in its source; None if any."""

    blobs: BlobStore
    key: str
    size: int | None
    etag: str | None


class CachedReads:
    """Reads through a cache directory, for one client. Belongs to its event loop.

    Concurrent reads of a block share one read of the disk or one request, which the first of them
    makes; if it is cancelled, another one makes it. A request fetches adjacent blocks together.
    """

    def __init__(
        self,
        directory: CacheDirectory,
        limits: CacheLimits,
        runtime: Runtime,
        *,
        scope: str = "",
        block: int,
        writes: bool = False,
    ) -> None:
        """`scope`: the prefix of the volume's keys; `block`: bytes of a block; `writes`: whether
        `add` stores anything."""
        self.directory = directory
        self._limits = limits
        self._runtime = runtime
        self._scope = scope
        self._block = block
        self._writes = writes
        self._threads = Threads(THREADS, runtime)
        self._flights: dict[_FlightKey, asyncio.Future[_Block]] = {}
        self._distrusted: set[str] = set()
        self._statistics = CacheStatistics()
        self._paused_until = float("-inf")
        self._is_checked = False
        """Whether no other user can change what is in the directory."""
        self._stored: int | None = None
        """Bytes stored since the size of the cache was estimated; None if it never was."""
        self._sweep: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"CachedReads({self.directory!r})"

    @property
    def statistics(self) -> CacheStatistics:
        """The counts of this client so far."""
        return self._statistics

    async def prepare(self) -> None:
        """Make the directory. Raises ConfigError if other users could change what is read from it;
        a directory that cannot be made is reported and not used."""
        try:
            await self._threads.run(self.directory.prepare)
        except OSError as error:
            self._failed("made", error)
        else:
            self._is_checked = True

    async def get(
        self,
        blobs: BlobStore,
        key: str,
        start: int,
        end: int,
        *,
        size: int | None,
        etag: str | None = None,
    ) -> bytes:
        """Bytes [start, end) of a physical object, truncated at its end. `size`: its size, if it is
        known. `etag`: what it must have when it is read from its source. Raises the errors of
        `BlobStore.get`."""
        return b"".join(await self._pieces(_CachedObject(blobs, key, size, etag), start, end))

    async def get_into(
        self,
        blobs: BlobStore,
        key: str,
        start: int,
        buffer: memoryview,
        *,
        size: int | None,
        etag: str | None = None,
    ) -> int:
        """As `get`, into a buffer; returns the number of bytes. Nothing is written to the buffer
        after the end of the call."""
        position = 0
        for piece in await self._pieces(
            _CachedObject(blobs, key, size, etag), start, start + len(buffer)
        ):
            buffer[position : position + len(piece)] = piece
            position += len(piece)
        return position

    async def add(self, key: str, data: Buffer) -> None:
        """Add the content of an object that was written, if the client is set to do so."""
        if self._writes:
            whole = memoryview(data).cast("B")
            numbers = range(-(-len(whole) // self._block))
            await self._store(key, {each: self._part(whole, 0, each) for each in numbers})

    def trusts(self, key: str) -> bool:
        """Whether blocks of an object are read from the disk."""
        return key not in self._distrusted

    def distrust(self, keys: Iterable[str]) -> None:
        """Read objects from their source from now on, which replaces their blocks."""
        self._distrusted.update(keys)

    async def close(self) -> None:
        """Wait for the end of an eviction. Idempotent."""
        if self._sweep is not None:
            await asyncio.wait([self._sweep])

    async def _pieces(self, source: _CachedObject, start: int, end: int) -> list[_Block]:
        """The bytes of a range, in order."""
        if source.size is not None:
            end = min(end, source.size)
        first, last = start // self._block, -(-end // self._block)
        blocks = await self._blocks(source, range(first, last))
        pieces: list[_Block] = []
        for number in range(first, last):
            begin = number * self._block
            pieces.append(memoryview(blocks[number])[max(0, start - begin) : end - begin])
        return pieces

    async def _blocks(self, source: _CachedObject, numbers: Sequence[int]) -> dict[int, _Block]:
        """Blocks of an object by their numbers: those that another read is getting from there, the
        others from the disk or the source."""
        found: dict[int, _Block] = {}
        while missing := [number for number in numbers if number not in found]:
            is_trusted = self.trusts(source.key)
            joined = {
                number: flight
                for number in missing
                if (flight := self._flights.get((source.key, number, is_trusted))) is not None
            }
            if own := [number for number in missing if number not in joined]:
                found |= await self._fly(source, own)
            for number, flight in joined.items():
                await asyncio.wait([flight])
                if not flight.cancelled():
                    found[number] = flight.result()
        return found

    async def _fly(self, source: _CachedObject, numbers: Sequence[int]) -> dict[int, _Block]:
        """Get blocks that no other read is getting. Those who wait for them get the same error; a
        cancellation leaves it to one of them."""
        loop = asyncio.get_running_loop()
        flights: dict[int, asyncio.Future[_Block]] = {
            each: loop.create_future() for each in numbers
        }
        is_trusted = self.trusts(source.key)
        self._flights |= {
            (source.key, number, is_trusted): flight for number, flight in flights.items()
        }
        try:
            for number, block in (await self._load(source, numbers)).items():
                flights[number].set_result(block)
            missing = [number for number, flight in flights.items() if not flight.done()]
            await run_all(
                lambda run: self._fetch(source, run, flights), _runs(missing), limit=RUNS_AT_ONCE
            )
        except Exception as error:
            for flight in flights.values():
                if not flight.done():
                    flight.set_exception(error)
                    # otherwise asyncio would log "exception was never retrieved"
                    flight.exception()
            raise
        finally:
            for number, flight in flights.items():
                del self._flights[source.key, number, is_trusted]
                flight.cancel()
        return {number: flight.result() for number, flight in flights.items()}

    async def _load(self, source: _CachedObject, numbers: Sequence[int]) -> dict[int, _Block]:
        """The blocks that the disk has, counted as hits."""
        if not (self._is_checked and self.trusts(source.key)):
            return {}
        names = [self._name(source.key, number) for number in numbers]

        def load() -> tuple[dict[int, _Block], int, OSError | None]:
            found: dict[int, _Block] = {}
            damaged = 0
            failure: OSError | None = None
            for name in names:
                try:
                    block, is_damaged = self.directory.load(name)
                except OSError as error:
                    failure = error
                    if error.errno != errno.EIO:
                        break
                    # The disk may have lost this file alone.
                    self.directory.discard(name)
                    continue
                damaged += is_damaged
                # Another length is not that of this object: its source decides.
                if block is not None and self._length(source, name.number) in (None, len(block)):
                    found[name.number] = block
            return found, damaged, failure

        found, damaged, error = await self._threads.run(load)
        if error is not None:
            self._failed("read", error, pauses=error.errno != errno.EIO)
        self._count(hits=len(found), hit_bytes=sum(map(len, found.values())), damaged=damaged)
        return found

    async def _fetch(
        self, source: _CachedObject, run: range, flights: Mapping[int, asyncio.Future[_Block]]
    ) -> None:
        """Get adjacent blocks by one request, and store them."""
        start, end = run.start * self._block, run.stop * self._block
        if source.size is not None:
            end = min(end, source.size)
        blobs, etag = source.blobs, source.etag
        data = memoryview(
            await blobs.get(source.key, start, end, if_match=etag, if_size=source.size)
        )
        blocks = {number: self._part(data, start, number) for number in run}
        for number, block in blocks.items():
            flights[number].set_result(block)
        self._count(misses=len(run), fetched_bytes=len(data))
        await self._store(
            source.key,
            {
                number: block
                for number, block in blocks.items()
                # Of an object of unknown size, a short block may be an answer that was cut off.
                if len(block) == (self._length(source, number) or self._block)
            },
        )

    async def _store(self, key: str, blocks: Mapping[int, memoryview]) -> None:
        """Store blocks, unless that has failed recently."""
        is_paused = not self._is_checked or self._runtime.monotonic() < self._paused_until
        if not blocks or is_paused:
            return
        names = {self._name(key, number): block for number, block in blocks.items()}

        def store() -> tuple[int, int, OSError | None]:
            count = size = 0
            for name, block in names.items():
                try:
                    size += self.directory.store(name, block)
                except OSError as error:
                    return count, size, error
                count += 1
            return count, size, None

        count, size, error = await self._threads.run(store)
        self._count(stored=count, stored_bytes=size)
        if error is not None:
            self._failed("written", error)
        self._evict_if_due(size, is_full=error is not None and error.errno in _FULL)

    def _evict_if_due(self, size: int, *, is_full: bool) -> None:
        """Begin an eviction, which goes on after this read, after enough was stored."""
        is_due = self._stored is None or self._stored + size >= self._limits.size // CHECKS
        self._stored = size + (self._stored or 0)
        if (is_full or is_due) and (self._sweep is None or self._sweep.done()):
            self._stored = 0
            self._sweep = asyncio.create_task(self._evict(is_full=is_full))

    async def _evict(self, *, is_full: bool) -> None:
        """Evict what is too much; on a full disk, some of the cache."""
        limits = self._limits

        def evict() -> Eviction:
            size, done = self.directory.survey(limits.age)
            if is_full:
                return done + self.directory.evict(limits, to=int(size * limits.low / 100))
            return done + self.directory.evict(limits) if size > limits.high_bytes else done

        try:
            done = await self._threads.run(evict)
        except Exception as error:  # noqa: BLE001 - no caller waits for it
            self._failed("cleaned", error)
        else:
            self._count(evicted=done.blocks, evicted_bytes=done.bytes)

    def _failed(self, what: str, error: Exception, *, pauses: bool = True) -> None:
        """Count a failure; if it `pauses`, store nothing for a while."""
        self._count(failures=1)
        now = self._runtime.monotonic()
        if not self._is_checked:
            effect = "this client does not use it"
        elif pauses:
            effect = f"for {PAUSE_SECONDS:.0f} seconds nothing is stored in it"
        else:
            effect = "blocks that the disk has lost are read from the source"
        if now >= self._paused_until:
            _LOG.warning(
                "the cache %s cannot be %s (%s): %s",
                self.directory.path,
                what,
                getattr(error, "strerror", None) or error,
                effect,
                exc_info=None if isinstance(error, OSError) else error,
            )
        if pauses:
            self._paused_until = now + PAUSE_SECONDS

    def _count(self, **more: int) -> None:
        before = self._statistics
        self._statistics = replace(
            before, **{name: getattr(before, name) + number for name, number in more.items()}
        )

    def _name(self, key: str, number: int) -> BlockName:
        return BlockName(self._scope, key, self._block, number)

    def _length(self, source: _CachedObject, number: int) -> int | None:
        """Bytes of a block; None if the size of the object is not known."""
        if source.size is None:
            return None
        return max(0, min(self._block, source.size - number * self._block))

    def _part(self, data: memoryview, start: int, number: int) -> memoryview:
        """A block in data that begins at `start`, where a block begins."""
        begin = number * self._block - start
        return data[begin : begin + self._block]


def _runs(numbers: Sequence[int]) -> Iterator[range]:
    """Ascending numbers as ranges without gaps."""
    if not numbers:
        return
    begin = numbers[0]
    for before, number in pairwise(numbers):
        if number != before + 1:
            yield range(begin, before + 1)
            begin = number
    yield range(begin, numbers[-1] + 1)
