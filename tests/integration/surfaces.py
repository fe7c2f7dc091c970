"""The ways to do the main job: the command line, the async client, the blocking client.

Each step says what it saw or did, in the same terms.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, TypeVar

from s3k_async import S3kClient, S3kSyncClient
from s3k_async._core.concurrency import gather
from s3k_async.config import VolumeConfig
from s3k_async.model import ChangeResult, ContentSummary, FileStatus
from tests.integration.sources import SourceTree

__all__ = ["AsyncSurface", "CommandLine", "Listed", "Surface", "SyncSurface", "environment"]

T = TypeVar("T")

Listed = dict[str, int | None]
"""Paths to sizes; None for a directory."""

AT_ONCE = 16
CHUNK = 1_000_000


class Surface(Protocol):
    """One way to do the job, on a volume that exists."""

    def put(self, source: SourceTree, target: str) -> None:
        """Put a local tree into the volume."""

    def list(self, path: str) -> Listed:
        """Everything below a path, by relative path."""

    def rename(self, source: str, target: str) -> ChangeResult:
        """Rename a directory."""

    def digests(self, path: str) -> dict[str, str]:
        """SHA-256 of the bytes of every file below a path, by relative path."""

    def etag(self, path: str) -> str:
        """A file's etag."""

    def delete(self, path: str) -> ChangeResult:
        """Delete a directory with all below it."""

    def summary(self, path: str) -> ContentSummary:
        """Totals below a path."""

    def close(self) -> None:
        """Let go of the volume."""


def listed(statuses: Sequence[FileStatus], path: str) -> Listed:
    found = {
        status.path.removeprefix(path + "/"): None if status.is_dir else status.size
        for status in statuses
    }
    assert len(found) == len(statuses), "a listing has something twice"
    return found


class CommandLine:
    """Each step is a process of its own: `python -m s3k_async.cli`."""

    def __init__(self, volume: str, environment: dict[str, str], work: Path) -> None:
        self._volume = volume
        self._environment = environment
        self._work = work

    def run(self, *arguments: str) -> list[dict[str, Any]]:
        """Run a command with `--json`; the documents it writes, one a line. It must succeed, and
        silently."""
        done = subprocess.run(
            [sys.executable, "-m", "s3k_async.cli", "--json", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=self._environment,
            cwd=self._work,
            check=False,
        )
        assert (done.returncode, done.stderr.decode()) == (0, ""), done
        return [json.loads(line) for line in done.stdout.decode().splitlines()]

    def put(self, source: SourceTree, target: str) -> None:
        (result,) = self.run("put", "-r", str(source.root), self._at(target))
        assert (result["files"], result["failed"]) == (len(source.files), 0)
        assert result["bytes"] == source.bytes

    def list(self, path: str) -> Listed:
        found = self.run("ls", "-R", self._at(path))
        sizes = {
            each["path"].removeprefix(path + "/"): None
            if each["type"] == "directory"
            else each["size"]
            for each in found
        }
        assert len(sizes) == len(found), "a listing has something twice"
        return sizes

    def rename(self, source: str, target: str) -> ChangeResult:
        return self._changed(*self.run("mv", self._at(source), self._at(target)))

    def digests(self, path: str) -> dict[str, str]:
        back = self._work / "back"
        self.run("get", "-r", self._at(path), str(back))
        return {
            file.relative_to(back).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
            for file in back.rglob("*")
            if file.is_file()
        }

    def etag(self, path: str) -> str:
        (status,) = self.run("stat", self._at(path))
        return str(status["etag"])

    def delete(self, path: str) -> ChangeResult:
        return self._changed(*self.run("rm", "-r", self._at(path)))

    def summary(self, path: str) -> ContentSummary:
        (found,) = self.run("du", "-s", self._at(path))
        return ContentSummary(found["bytes"], found["files"], found["directories"])

    def close(self) -> None:
        """Nothing is open between commands."""

    def _at(self, path: str) -> str:
        return self._volume + path

    @staticmethod
    def _changed(result: dict[str, Any]) -> ChangeResult:
        assert result["failed"] == 0
        return ChangeResult(result["files"], result["directories"], result["bytes"])


class AsyncSurface:
    """`S3kClient` on an event loop of its own, configured by keywords."""

    def __init__(self, keywords: dict[str, Any]) -> None:
        self._runner = asyncio.Runner()
        self._fs = S3kClient(**keywords)
        self._run(self._fs.open_volume())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def put(self, source: SourceTree, target: str) -> None:
        async def one(path: str) -> None:
            place, local = f"{target}/{path}", source.root / path
            if source.sizes[path] < CHUNK:
                await self._fs.write(place, local.read_bytes())
                return
            async with self._fs.open(place, "xb") as file:
                data = local.read_bytes()
                for start in range(0, len(data), CHUNK):
                    await file.write(data[start : start + CHUNK])

        async def all_of_it() -> None:
            await gather(one, source.files, limit=AT_ONCE)
            await gather(
                lambda path: self._fs.makedirs(f"{target}/{path}"),
                source.directories,
                limit=AT_ONCE,
            )

        self._run(all_of_it())

    def list(self, path: str) -> Listed:
        async def all_of_it() -> list[FileStatus]:
            return [status async for status in self._fs.list(path, recursive=True)]

        return listed(self._run(all_of_it()), path)

    def rename(self, source: str, target: str) -> ChangeResult:
        return self._run(self._fs.rename(source, target))

    def digests(self, path: str) -> dict[str, str]:
        async def one(status: FileStatus) -> str:
            digest = hashlib.sha256()
            async with self._fs.open(status.path) as file:
                async for chunk in file:
                    digest.update(chunk)
            return digest.hexdigest()

        async def all_of_it() -> dict[str, str]:
            files = [status async for status in self._fs.find(path, type="file")]
            found = await gather(one, files, limit=AT_ONCE)
            return {
                file.path.removeprefix(path + "/"): digest
                for file, digest in zip(files, found, strict=True)
            }

        return self._run(all_of_it())

    def etag(self, path: str) -> str:
        return self._run(self._fs.stat(path)).etag

    def delete(self, path: str) -> ChangeResult:
        return self._run(self._fs.delete(path, recursive=True))

    def summary(self, path: str) -> ContentSummary:
        return self._run(self._fs.content_summary(path))

    def close(self) -> None:
        try:
            self._run(self._fs.close())
        finally:
            self._runner.close()


class SyncSurface:
    """`S3kSyncClient`, used by several threads at once, configured by a VolumeConfig."""

    def __init__(self, config: VolumeConfig) -> None:
        self._fs = S3kSyncClient(config=config)
        self._fs.open_volume()
        self._threads = ThreadPoolExecutor(AT_ONCE)

    def put(self, source: SourceTree, target: str) -> None:
        def one(path: str) -> None:
            data = (source.root / path).read_bytes()
            if len(data) < CHUNK:
                self._fs.write(f"{target}/{path}", data)
                return
            with self._fs.open(f"{target}/{path}", "wb") as file:
                for start in range(0, len(data), CHUNK):
                    file.write(data[start : start + CHUNK])

        list(self._threads.map(one, source.files))
        list(
            self._threads.map(
                lambda path: self._fs.makedirs(f"{target}/{path}"), source.directories
            )
        )

    def list(self, path: str) -> Listed:
        return listed([*self._fs.list(path, recursive=True)], path)

    def rename(self, source: str, target: str) -> ChangeResult:
        return self._fs.rename(source, target)

    def digests(self, path: str) -> dict[str, str]:
        files = [status.path for _, _, files in self._fs.walk(path) for status in files]
        found = self._threads.map(
            lambda file: hashlib.sha256(self._fs.read(file)).hexdigest(), files
        )
        return {
            file.removeprefix(path + "/"): digest for file, digest in zip(files, found, strict=True)
        }

    def etag(self, path: str) -> str:
        return self._fs.stat(path).etag

    def delete(self, path: str) -> ChangeResult:
        return self._fs.delete(path, recursive=True)

    def summary(self, path: str) -> ContentSummary:
        return self._fs.content_summary(path)

    def close(self) -> None:
        self._threads.shutdown()
        self._fs.close()


def environment(**settings: str) -> dict[str, str]:
    """Of our own environment what any program needs, and the settings given."""
    needed = (
        "PATH",
        "HOME",
        "LANG",
        "LC_ALL",
        "TMPDIR",
        "PYTHONPATH",
        "VIRTUAL_ENV",
        "COVERAGE_PROCESS_START",
    )
    return {name: os.environ[name] for name in needed if name in os.environ} | settings
