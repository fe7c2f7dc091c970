"""Every way to run Dask's tasks in other processes, as a program: `dask_case.py URL`.

The parent has used the volume before its workers exist, as a notebook has. It says which way's
workers could read and write everything, one after the other, and nothing else.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import dask
import dask.dataframe as dd
import fsspec
import numpy as np
import pandas as pd

DAYS = 3
ROWS = 1200


def frame() -> pd.DataFrame:
    return pd.DataFrame({"day": np.arange(ROWS) % DAYS, "value": np.arange(ROWS) * 0.5})


def work(url: str) -> None:
    """Everything that tasks do with a volume: datasets and text, written and read."""
    data = dd.from_pandas(frame(), npartitions=4)
    data.to_parquet(f"{url}/dataset", partition_on=["day"], write_index=False)
    found = dd.read_parquet(f"{url}/dataset", filters=[("day", "==", 1)])
    assert int(found["value"].count().compute()) == ROWS // DAYS
    data.to_csv(f"{url}/text/part-*.csv", index=False)
    read = dd.read_csv(f"{url}/text/*.csv")
    assert float(read["value"].sum().compute()) == float(frame()["value"].sum())
    sizes = [
        dask.delayed(held)(fsspec.url_to_fs(url)[0], f"{url}/text/part-{number}.csv")
        for number in range(4)
    ]
    assert all(size > 0 for size in dask.compute(*sizes))


def held(fs: fsspec.AbstractFileSystem, url: str) -> int:
    """A task that is given a filesystem, which the parent has used."""
    with fs.open(url) as file:
        return len(file.read())


@contextmanager
def pool(method: str) -> Iterator[None]:
    """Dask's scheduler `processes`, with one pool for all that is computed."""
    workers = ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method))
    with workers, dask.config.set(scheduler="processes", pool=workers):
        yield


@contextmanager
def cluster() -> Iterator[None]:
    """A worker process of `distributed`, with two threads."""
    from distributed import Client, LocalCluster

    # A heartbeat that meets the end of the scheduler is logged as an error. Errors of tasks are
    # raised by the client.
    options = {"host": "127.0.0.1", "dashboard_address": None, "silence_logs": "CRITICAL"}
    workers = LocalCluster(n_workers=1, threads_per_worker=2, **options)  # type: ignore[no-untyped-call] # distributed is untyped
    with workers as running, Client(running):  # type: ignore[no-untyped-call] # likewise
        yield


WAYS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "forked": partial(pool, "fork"),
    "spawned": partial(pool, "spawn"),
    "distributed": cluster,
}


def main(url: str) -> None:
    fs, path = fsspec.url_to_fs(f"{url}/before")
    fs.pipe_file(path, b"before")
    for way, workers in WAYS.items():
        with workers():
            work(f"{url}/{way}")
        sys.stdout.write(f"{way}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
