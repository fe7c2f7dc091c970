"""One filesystem object across processes, as a program: `fsspec_case.py METHOD DIRECTORY`.

A parent with the object in every state that libraries have it in starts children, which use it;
then the parent goes on. It ends with 0 if everybody could do everything, and says on standard error
what could not be done.
"""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import sys
import threading
from collections.abc import Callable
from typing import Any

import fsspec

from s3k_async.adapters.fsspec import S3kFileSystem
from s3k_async.settings import resolve
from s3k_async.volumes import init_volume

FORKS_WITH_BUSY_THREADS = 8
BLOCKS = 40

_turns = itertools.count()


def use(fs: S3kFileSystem, name: str) -> None:
    """What libraries do: whole files, ranges, open files, listings, a rename."""
    data = name.encode() * 1000
    fs.pipe(f"/{name}/whole", data)
    assert fs.cat_ranges([f"/{name}/whole"], 0, 5) == [data[:5]]
    with fs.open(f"/{name}/text", "w") as file:
        file.write(name)
    assert fs.read_text(f"/{name}/text") == name
    fs.mv(f"/{name}/whole", f"/{name}/moved")
    assert fs.find(f"/{name}") == [f"/{name}/moved", f"/{name}/text"]
    assert fs.cat("/before") == b"before"


def child(fs: S3kFileSystem, name: str) -> None:
    use(fs, name)


def child_that_reads_on(fs: S3kFileSystem, file: Any, name: str) -> None:
    assert file.read(3) == b"ore"
    use(fs, name)
    file.seek(0)
    assert file.read() == b"before"


def child_with_a_url(directory: str, name: str) -> None:
    with fsspec.open(f"s3k://volume/{name}/text", "w", volume=directory) as file:
        file.write(name)
    use(fsspec.filesystem("s3k", volume=directory), f"{name}-2")


def child_with_a_loop(directory: str, name: str) -> None:
    async def work() -> None:
        fs = S3kFileSystem(directory, asynchronous=True)
        await fs._pipe_file(f"/{name}", b"1")
        assert await fs._cat_file("/before") == b"before"
        use(S3kFileSystem(directory), f"{name}-2")

    asyncio.run(work())
    asyncio.run(work())


class Blocks:
    """A data set as loaders have them: its file is open already, or is opened by whoever reads
    first."""

    def __init__(self, fs: S3kFileSystem, path: str, file: Any = None) -> None:
        self._fs = fs
        self._path = path
        self._file = file

    def __getitem__(self, number: int) -> bytes:
        if self._file is None:
            self._file = self._fs.open(self._path, "rb", block_size=64)
        self._file.seek(number * 100)
        return bytes(self._file.read(100))


def worker(blocks: Blocks, numbers: range, answers: Any, name: str) -> None:
    for number in numbers:
        answers.put((number, blocks[number]))


def pooled(fs: S3kFileSystem, number: int) -> bytes:
    return fs.cat_ranges(["/blocks"], number * 100, number * 100 + 100)[0]  # type: ignore[no-any-return]  # fsspec is untyped


def run_children(context: Any, target: Callable[..., None], *given: object, count: int = 2) -> None:
    """Children side by side, each under its own name."""
    children = [
        context.Process(target=target, args=(*given, f"child-{next(_turns)}")) for _ in range(count)
    ]
    for each in children:
        each.start()
    for each in children:
        each.join()
    failed = [each.exitcode for each in children if each.exitcode != 0]
    assert not failed, f"{target.__name__}: children ended with {failed}"


def load(context: Any, blocks: Blocks) -> None:
    answers = context.Queue()
    halves = [range(0, BLOCKS, 2), range(1, BLOCKS, 2)]
    children = [context.Process(target=worker, args=(blocks, half, answers, "")) for half in halves]
    for each in children:
        each.start()
    found = dict(answers.get() for _ in range(BLOCKS))
    for each in children:
        each.join()
    assert found == {number: bytes([number]) * 100 for number in range(BLOCKS)}


def used_by_threads(context: Any, fs: S3kFileSystem) -> None:
    ending = threading.Event()
    failures: list[BaseException] = []

    def busy(number: int) -> None:
        turn = 0
        while not ending.is_set():
            turn += 1
            try:
                fs.pipe(f"/busy-{number}", bytes(turn))
                assert len(fs.cat(f"/busy-{number}")) == turn
            except BaseException as error:
                failures.append(error)
                raise

    threads = [threading.Thread(target=busy, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    try:
        rounds = FORKS_WITH_BUSY_THREADS if context.get_start_method() == "fork" else 1
        for _ in range(rounds):
            run_children(context, child, fs, count=1)
    finally:
        ending.set()
        for thread in threads:
            thread.join()
    assert not failures, failures


async def from_a_notebook(context: Any, fs: S3kFileSystem) -> None:
    """As a notebook's cell does it: blocking calls, and children, on the thread of a running
    loop."""
    use(fs, "notebook")
    run_children(context, child, fs)


def main(method: str, directory: str) -> None:
    context: Any = multiprocessing.get_context(method)
    asyncio.run(init_volume(resolve(directory)))
    fs = S3kFileSystem(directory)
    fs.pipe(
        {
            "/before": b"before",
            "/blocks": b"".join(bytes([number]) * 100 for number in range(BLOCKS)),
        }
    )
    run_children(context, child_with_a_url, directory)
    run_children(context, child, S3kFileSystem(directory, skip_instance_cache=True))
    fs.close_session()
    run_children(context, child, fs)
    use(fs, "parent-1")
    reader, writer = fs.open("/before", block_size=2), fs.open("/half", "wb")
    assert reader.read(3) == b"bef"
    writer.write(b"half")
    run_children(context, child_that_reads_on, fs, reader)
    assert reader.read() == b"ore"
    writer.write(b" and half")
    writer.close()
    assert fs.cat("/half") == b"half and half"
    load(context, Blocks(fs, "/blocks"))
    load(context, Blocks(fs, "/blocks", fs.open("/blocks", "rb", block_size=64)))
    with context.Pool(2) as pool:
        found = pool.starmap(pooled, [(fs, number) for number in range(BLOCKS)])
    assert found == [bytes([number]) * 100 for number in range(BLOCKS)]
    used_by_threads(context, fs)
    run_children(context, child_with_a_loop, directory)
    asyncio.run(from_a_notebook(context, fs))
    use(fs, "parent-2")


if __name__ == "__main__":
    main(*sys.argv[1:])
