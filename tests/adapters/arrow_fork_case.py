"""One case of the matrix of processes, threads and loops through pyarrow, as a program:
`arrow_fork_case.py METHOD STATE DIRECTORY`.

It ends with 0 if everybody could do everything, and says on standard error what could not be done.
"""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector, PyFileSystem

from s3k_async.adapters.arrow import arrow_filesystem
from s3k_async.settings import resolve
from s3k_async.volumes import init_volume

ROWS = 2000
DAYS = 4
CHILDREN = 2
FORKS_WITH_A_BUSY_THREAD = 6

_turns = itertools.count()


def use(fs: PyFileSystem, name: str) -> None:
    """What a dataset is for, on Arrow's own threads too."""
    dataset = ds.dataset("/d", filesystem=fs, partitioning="hive")
    rows = dataset.to_table(filter=ds.field("day") == 1)
    assert rows.num_rows == ROWS // DAYS
    ds.write_dataset(rows, f"/{name}", filesystem=fs, format="parquet", partitioning=["day"])
    with fs.open_append_stream(f"/{name}/log") as stream:
        stream.write(name.encode())
    fs.move(f"/{name}/log", f"/{name}/moved")
    infos = fs.get_file_info(FileSelector(f"/{name}", recursive=True))
    assert {info.path for info in infos} == {
        f"/{name}/{each}" for each in ("1", "1/part-0.parquet", "moved")
    }
    assert fs.open_input_file(f"/{name}/moved").read() == name.encode()


def count(fs: PyFileSystem, path: str) -> int:
    return int(pq.read_table(path, filesystem=fs, partitioning=None).num_rows)


def run_children(context: Any, fs: PyFileSystem, number: int = CHILDREN) -> None:
    """Children side by side, each under its own name."""
    children = [
        context.Process(target=use, args=(fs, f"child-{next(_turns)}")) for _ in range(number)
    ]
    for each in children:
        each.start()
    for each in children:
        each.join()
    failed = [each.exitcode for each in children if each.exitcode != 0]
    assert not failed, f"children ended with {failed}"


def unused(context: Any, fs: PyFileSystem) -> None:
    run_children(context, fs)
    use(fs, "parent")


def used(context: Any, fs: PyFileSystem) -> None:
    use(fs, "first")
    reader, writer = fs.open_input_file("/d/day=1/part-0.parquet"), fs.open_output_stream("/half")
    writer.write(b"half")
    assert reader.read(4) == b"PAR1"
    run_children(context, fs)
    assert reader.read_at(4, 0) == b"PAR1"
    writer.write(b" and half")
    writer.close()
    assert fs.open_input_file("/half").read() == b"half and half"
    use(fs, "parent")


def in_use(context: Any, fs: PyFileSystem) -> None:
    ending = threading.Event()
    failures: list[BaseException] = []

    def busy(number: int) -> None:
        try:
            for turn in itertools.count():
                if ending.is_set():
                    return
                use(fs, f"busy-{number}-{turn}")
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=busy, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(FORKS_WITH_A_BUSY_THREAD if context.get_start_method() == "fork" else 1):
            run_children(context, fs, 1)
    finally:
        ending.set()
        for thread in threads:
            thread.join()
    assert not failures, failures
    use(fs, "parent")


def loop(context: Any, fs: PyFileSystem) -> None:
    async def main() -> None:
        use(fs, "first")
        # Not from a thread of an executor: there multiprocessing itself ends every forked child
        # with 1.
        beside = asyncio.create_task(asyncio.to_thread(use, fs, "second"))
        await asyncio.sleep(0)
        run_children(context, fs)
        await beside

    asyncio.run(main())
    use(fs, "parent")


def pool(context: Any, fs: PyFileSystem) -> None:
    paths = [f"/d/day={day}/part-0.parquet" for day in range(DAYS)] * 3
    assert count(fs, paths[0]) == ROWS // DAYS
    with context.Pool(CHILDREN) as workers:
        assert workers.map(partial(count, fs), paths) == [ROWS // DAYS] * len(paths)


class Rows:
    """A dataset as torch wants one: it has a length, and items that a worker process reads by their
    numbers."""

    def __init__(self, fs: PyFileSystem) -> None:
        self._dataset = ds.dataset("/d", filesystem=fs, partitioning="hive")
        self._length = self._dataset.count_rows()

    def __len__(self) -> int:
        return int(self._length)

    def __getitem__(self, number: int) -> int:
        return int(self._dataset.take([number], columns=["n"]).column("n")[0].as_py())


def loader_worker(rows: Rows, wanted: Any, found: Any) -> None:
    while (numbers := wanted.get()) is not None:
        found.put([rows[number] for number in numbers])


def load(context: Any, rows: Rows, batch: int, batches: int) -> Iterator[int]:
    """As a data loader does it: workers that get the dataset once, and then lists of numbers."""
    wanted, found = context.SimpleQueue(), context.SimpleQueue()
    workers = [
        context.Process(target=loader_worker, args=(rows, wanted, found), daemon=True)
        for _ in range(CHILDREN)
    ]
    for worker in workers:
        worker.start()
    for start in range(0, batch * batches, batch):
        wanted.put(list(range(start, start + batch)))
    for _ in range(batches):
        yield from found.get()
    for _ in workers:
        wanted.put(None)
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0


def loader(context: Any, fs: PyFileSystem) -> None:
    rows = Rows(fs)
    first = [rows[number] for number in range(20)]
    for _ in range(2 if context.get_start_method() == "fork" else 1):
        assert sorted(load(context, rows, 5, 4)) == sorted(first)
    use(fs, "parent")


CASES: dict[str, Callable[[Any, PyFileSystem], None]] = {
    "unused": unused,
    "used": used,
    "in use": in_use,
    "loop": loop,
    "pool": pool,
    "loader": loader,
}


def main(method: str, state: str, directory: str) -> None:
    asyncio.run(init_volume(resolve(directory)))
    rows = pa.table({"n": list(range(ROWS)), "day": [n % DAYS for n in range(ROWS)]})
    # By a filesystem of its own: that of the case is to be unused.
    ds.write_dataset(
        rows,
        "/d",
        filesystem=arrow_filesystem(directory),
        format="parquet",
        partitioning=["day"],
        partitioning_flavor="hive",
    )
    CASES[state](multiprocessing.get_context(method), arrow_filesystem(directory))


if __name__ == "__main__":
    main(*sys.argv[1:])
