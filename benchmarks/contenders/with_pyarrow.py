"""pyarrow's S3 filesystem, in C++, with threads of its own."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyarrow import fs as arrow_fs

from benchmarks.contenders.small_files import BlockingFiles, Work
from tests.engines.process import Engine

__all__ = ["PyarrowFiles", "PyarrowS3"]


class PyarrowS3:
    """A bucket as a filesystem."""

    def __init__(self, server: Engine, bucket: str) -> None:
        self.bucket = bucket
        self.fs: Any = arrow_fs.S3FileSystem(
            access_key=server.access_key,
            secret_key=server.secret_key,
            region=server.region,
            scheme="http",
            endpoint_override=server.endpoint.removeprefix("http://"),
            background_writes=False,
            allow_delayed_open=True,  # so that a small file is one request
            request_timeout=60,  # its default of 3 s ends a run on a busy server
        )

    async def put(self, path: str, files: int, data: bytes, in_flight: int) -> int:
        """Write small files from threads."""

        def write(number: int) -> None:
            with self.fs.open_output_stream(f"{self.bucket}{path}/part-{number:08}") as stream:
                stream.write(data)

        await _threads(write, files, in_flight)
        return files

    async def read(self, path: str, files: int, in_flight: int) -> int:
        """Read them from threads."""

        def read(number: int) -> int:
            with self.fs.open_input_stream(f"{self.bucket}{path}/part-{number:08}") as stream:
                return len(stream.read())

        return sum(await _threads(read, files, in_flight))

    async def list(self, path: str) -> int:
        """List a directory."""
        selector = arrow_fs.FileSelector(f"{self.bucket}{path}", recursive=False)
        return len(await asyncio.to_thread(self.fs.get_file_info, selector))

    async def rename(self, path: str, target: str, files: int, in_flight: int) -> None:
        """It refuses to move a directory, so each file is moved by a thread, and the directory
        removed."""

        def move(number: int) -> None:
            name = f"part-{number:08}"
            self.fs.move(f"{self.bucket}{path}/{name}", f"{self.bucket}{target}/{name}")

        await _threads(move, files, in_flight)
        await self.delete(path)

    async def delete(self, path: str) -> None:
        """Remove a directory."""
        await asyncio.to_thread(self.fs.delete_dir, f"{self.bucket}{path}")


async def _threads(work: Any, count: int, threads: int) -> list[Any]:
    def run() -> list[Any]:
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(work, range(count)))

    return await asyncio.to_thread(run)


class PyarrowFiles(BlockingFiles):
    """Objects through pyarrow's S3 filesystem, from threads."""

    def __init__(self, fs: Any, bucket: str) -> None:
        super().__init__(bucket)
        self.fs = fs

    def _one(self, work: Work, source: str, target: str) -> int:
        match work.verb:
            case "put":
                with self.fs.open_output_stream(source) as stream:
                    stream.write(work.data)
                return len(work.data)
            case "read":
                with self.fs.open_input_stream(source) as stream:
                    return len(stream.read())
            case "stat":
                info = self.fs.get_file_info(source)
                return int(info.size) if info.type == arrow_fs.FileType.File else -1
            case "copy":
                self.fs.copy_file(source, target)
            case "delete":
                self.fs.delete_file(target)
        return 0
