"""The directory of a read cache: files of blocks, used by any number of processes without a lock.

A block is written under a temporary name and renamed, so it is there completely or not at all, and
a file that is removed while it is read stays readable. The modification time of a file is the time
of its last use. There is no index and no counter: what the directory holds is what it contains, so
that a process that is killed leaves nothing to repair but a temporary file.
"""

from __future__ import annotations

import errno
import heapq
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from s3k_async._core.file_modes import inherited, make_directories, shares_with_group
from s3k_async._core.runtime import Runtime
from s3k_async.backends.local.durable_files import write_fully
from s3k_async.backends.ports.blobs import Buffer
from s3k_async.config import Tuning
from s3k_async.errors import ConfigError
from s3k_async.storage.cache_blocks import (
    BLOCK_NAME,
    HEAD_MOST,
    TEMPORARY_NAME,
    BlockName,
    decode_block,
    encode_head,
)

__all__ = ["CacheDirectory", "CacheLimits", "CacheUsage", "Eviction"]

_UNTRUSTED: Final = "other users can change what is in the directory of the cache"

FOLDER: Final = "s3k-blocks"
"""The only entry of the cache in its directory."""
SHARDS: Final = tuple(f"{number:02x}" for number in range(256))
"""Directories of the files, by the first digits of their names."""
SAMPLE: Final = 2048
"""Files from which the size of the cache is estimated, in randomly chosen directories. With fewer
files it is exact."""
TOUCH_SECONDS: Final = 60
"""A use is recorded if the last one is older."""
ABANDONED_SECONDS: Final = 3600
"""Age from which a temporary file is that of a killed process."""
ROUND: Final = 100_000
"""Files that one pass over the directory can select for eviction; bounds the memory."""


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """Limits of a cache. Raises ConfigError if the low watermark is above the high one."""

    size: int
    """Most bytes, approximately."""
    high: float
    """Percentage of `size` above which blocks are evicted,"""
    low: float
    """and to which."""
    age: float
    """Seconds after its last use when a block is evicted in any case."""

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ConfigError(
                f"cache_low ({self.low}) is above cache_high ({self.high}): eviction begins at the "
                "high watermark and ends at the low one"
            )

    @classmethod
    def of(cls, tuning: Tuning) -> CacheLimits:
        """The limits in the settings of a client."""
        return cls(tuning.cache_size, tuning.cache_high, tuning.cache_low, tuning.cache_age)

    @property
    def high_bytes(self) -> int:
        """The high watermark, bytes."""
        return int(self.size * self.high / 100)

    @property
    def low_bytes(self) -> int:
        """The low watermark, bytes."""
        return int(self.size * self.low / 100)


@dataclass(frozen=True, slots=True)
class Eviction:
    """What an eviction removed."""

    blocks: int = 0
    bytes: int = 0

    def __add__(self, other: Eviction) -> Eviction:
        return Eviction(self.blocks + other.blocks, self.bytes + other.bytes)


@dataclass(frozen=True, slots=True)
class CacheUsage:
    """What a cache contains. Times are epoch milliseconds, None if it is empty."""

    blocks: int
    bytes: int
    oldest_ms: int | None
    """The earliest last use of a block."""
    newest_ms: int | None
    """The latest use."""


class _StoredBlock(NamedTuple):
    """A file of the cache. Files sort in the order of eviction: by last use, then by size."""

    used: int
    """Epoch seconds."""
    size: int
    path: str

    @property
    def is_temporary(self) -> bool:
        """Whether it is being written, or was by a process that was killed."""
        return self.path.endswith(".tmp")

    def is_expired(self, now: float, age: float) -> bool:
        """Whether it was not used for longer than `age` seconds; a temporary file, whether its
        process was killed."""
        if self.is_temporary:
            return abs(now - self.used) > ABANDONED_SECONDS
        return self.used < now - age


class CacheDirectory:
    """The blocks in a directory. Blocking; for any number of threads and processes.

    Methods that read or write raise OSError.
    """

    def __init__(self, path: str, runtime: Runtime) -> None:
        self.path = path
        self._folder = os.path.join(path, FOLDER)
        self._runtime = runtime

    def __repr__(self) -> str:
        return f"CacheDirectory({self.path!r})"

    def prepare(self) -> None:
        """Make the directory, readable by this user only. Raises ConfigError if other users could
        change what is read from it: all, or the group, unless it is shared by its setgid bit."""
        make_directories(self._folder)
        for place in (self.path, self._folder):
            if not _is_trusted(os.stat(place)):
                raise ConfigError(
                    f"{_UNTRUSTED}: choose one of your own, or chmod go-w it, or share it with its "
                    "group by chmod g+s",
                    path=place,
                )

    def load(self, name: BlockName) -> tuple[memoryview | None, bool]:
        """The bytes of a block, or None, and whether a damaged file was found, which is removed.
        Records the use."""
        path = self._file(name)
        try:
            self._checked()
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None, False
        try:
            facts = os.fstat(descriptor)
            limit = name.size + HEAD_MOST
            content = memoryview(_read_fully(descriptor, min(facts.st_size, limit + 1)))
            found = decode_block(name, content) if len(content) <= limit else None
            if found is not None:
                self._touch(descriptor, facts.st_mtime)
        finally:
            os.close(descriptor)
        if found is None:
            self.discard(name)
        return found, found is None

    def discard(self, name: BlockName) -> None:
        """Remove a block that is of no use, if that is possible. Raises nothing."""
        with suppress(OSError):
            os.unlink(self._file(name))

    def store(self, name: BlockName, data: Buffer) -> int:
        """Place a block, unless the directory of the cache itself is gone: it may be the mount
        point of a disk. Returns the size of its file."""
        path = self._file(name)
        temporary = f"{path}.{self._runtime.uuid()}.tmp"
        files, directories = inherited(self._checked())
        try:
            descriptor = _create(temporary)
        except FileNotFoundError:
            with suppress(FileExistsError):
                shard = os.path.dirname(path)
                os.mkdir(shard, 0o700)
                os.chmod(shard, directories)
            descriptor = _create(temporary)
        try:
            try:
                head = encode_head(name, data)
                write_fully(descriptor, head)
                write_fully(descriptor, data, len(head))
                os.fchmod(descriptor, files)
                self._touch(descriptor, 0)
            finally:
                os.close(descriptor)
            os.rename(temporary, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        return len(head) + memoryview(data).nbytes

    def survey(self, age: float) -> tuple[int, Eviction]:
        """The bytes in the cache, from a sample of its files; of these, those that were not used
        for longer than `age` seconds are removed."""
        now = self._runtime.now_ms() / 1000
        files = total = shards = 0
        done = Eviction()
        begin = int(self._runtime.uniform(0, len(SHARDS))) % len(SHARDS)
        for shard in (*SHARDS[begin:], *SHARDS[:begin]):
            shards += 1
            for file in self._files(shard, temporary=True):
                files += 1
                if file.is_expired(now, age):
                    done += self._evicted(file)
                else:
                    total += file.size
            if files >= SAMPLE:
                break
        return total * len(SHARDS) // shards, done

    def usage(self) -> CacheUsage:
        """What the cache contains."""
        usage = CacheUsage(0, 0, None, None)
        for file in self._all_files():
            used = file.used * 1000
            oldest = used if usage.oldest_ms is None else min(used, usage.oldest_ms)
            newest = used if usage.newest_ms is None else max(used, usage.newest_ms)
            usage = CacheUsage(usage.blocks + 1, usage.bytes + file.size, oldest, newest)
        return usage

    def evict(self, limits: CacheLimits, *, to: int | None = None) -> Eviction:
        """Remove blocks that were not used for longer than the limit, and abandoned temporary
        files; then, above the high watermark, the blocks that were not used for longest, the
        smaller first among those of one second, until the low watermark is reached. `to`: until
        there are no more than so many bytes instead.

        Several processes may evict at the same time: they remove the same blocks.
        """
        done, total, oldest = self._pass(limits.age)
        if to is None and total <= limits.high_bytes:
            return done
        target = limits.low_bytes if to is None else to
        while total > target and oldest:
            for file in oldest:
                if total <= target:
                    break
                total -= file.size
                done += self._evicted(file)
            if total > target:
                expired, total, oldest = self._pass(limits.age)
                done += expired
        return done

    def clear(self) -> Eviction:
        """Remove all blocks, and all temporary files."""
        done = Eviction()
        for shard in SHARDS:
            for file in self._files(shard, temporary=True):
                done += self._evicted(file)
            with suppress(OSError):
                os.rmdir(os.path.join(self._folder, shard))
        return done

    def _pass(self, age: float) -> tuple[Eviction, int, list[_StoredBlock]]:
        """Remove what is too old; returns that, the bytes that are left, and the first files to
        evict."""
        now = self._runtime.now_ms() / 1000
        done, total = Eviction(), 0

        def left() -> Iterator[_StoredBlock]:
            nonlocal done, total
            for file in self._all_files(temporary=True):
                if file.is_expired(now, age):
                    done += self._evicted(file)
                    continue
                total += file.size
                if not file.is_temporary:
                    # A last use in the future was recorded by a wrong clock: it counts as oldest.
                    yield file if file.used <= now + TOUCH_SECONDS else file._replace(used=0)

        oldest = heapq.nsmallest(ROUND, left())
        return done, total, oldest

    def _all_files(self, *, temporary: bool = False) -> Iterator[_StoredBlock]:
        for shard in SHARDS:
            yield from self._files(shard, temporary=temporary)

    def _files(self, shard: str, *, temporary: bool = False) -> Iterator[_StoredBlock]:
        """The files of a directory that the cache has written; others are skipped."""
        try:
            found = os.scandir(os.path.join(self._folder, shard))
        except (FileNotFoundError, NotADirectoryError):
            return
        with found:
            for each in found:
                if BLOCK_NAME.fullmatch(each.name) or (
                    temporary and TEMPORARY_NAME.fullmatch(each.name)
                ):
                    with suppress(FileNotFoundError):
                        facts = each.stat(follow_symlinks=False)
                        yield _StoredBlock(int(facts.st_mtime), facts.st_size, each.path)

    def _file(self, name: BlockName) -> str:
        file = name.file
        return os.path.join(self._folder, file[:2], file)

    def _checked(self) -> os.stat_result:
        """The status of the directory of the blocks. Raises PermissionError if other users can
        change what is in it: another user may have recreated the directory after `prepare`."""
        for place in (self.path, self._folder):
            facts = os.stat(place)
            if not _is_trusted(facts):
                raise PermissionError(errno.EACCES, _UNTRUSTED, place)
        return facts

    def _touch(self, descriptor: int, used: float) -> None:
        """Record a use, if the last recorded one is old, or in the future by a wrong clock."""
        now = self._runtime.now_ms()
        if abs(now / 1000 - used) > TOUCH_SECONDS:
            # On a file system that is mounted read-only the files stay readable.
            with suppress(OSError):
                try:
                    os.utime(descriptor, ns=(now * 1_000_000, now * 1_000_000))
                except PermissionError:
                    # The file of another group member: only the present time may be set.
                    os.utime(descriptor)

    def _evicted(self, file: _StoredBlock) -> Eviction:
        """Remove a file, if another process has not."""
        return Eviction(not file.is_temporary, file.size) if self._remove(file.path) else Eviction()

    @staticmethod
    def _remove(path: str) -> bool:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return False
        return True


def _is_trusted(facts: os.stat_result) -> bool:
    """Whether a directory can be changed by no other users, except members of a group that it is
    shared with."""
    if shares_with_group(facts):
        return not facts.st_mode & stat.S_IWOTH
    is_own = facts.st_uid in (os.geteuid(), 0)
    return is_own and not facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _create(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


def _read_fully(descriptor: int, size: int) -> bytes:
    """At most `size` bytes, fewer if the file ends."""
    data = os.pread(descriptor, size, 0)
    while len(data) < size and (more := os.pread(descriptor, size - len(data), len(data))):
        data += more
    return data
