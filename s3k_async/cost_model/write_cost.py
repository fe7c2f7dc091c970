"""Cost of writing many files: the requests of `S3kClient.write_many` into directories that exist.

The list is in the order of the directories, each with files below it. Files are new and of one
size, and the client's parent cache is empty.
"""

from __future__ import annotations

from s3k_async.backends.ports.items import MAX_BATCH, MAX_TRANSACTION
from s3k_async.bulk.file_writes import UPLOADS, WINDOW_BYTES, WINDOW_FILES, WINDOWS
from s3k_async.config import Tuning
from s3k_async.cost_model.item_size import read_units, write_units
from s3k_async.cost_model.partition_layout import ChildCount
from s3k_async.cost_model.service_limits import Service
from s3k_async.cost_model.tree_shape import LaidTree
from s3k_async.cost_model.verb_cost import store_bytes
from s3k_async.cost_model.work_load import Workload

__all__ = ["loading"]


def loading(tree: LaidTree, service: Service, tuning: Tuning, *, parents: int = 1) -> Workload:
    """Write all files of a tree, whose top has `parents` path components, in one call.

    Exact for a list that fits into one window. For longer ones it depends on the ends of windows,
    and on the cache for a directory common to two windows.
    """
    work = Workload(service.latency)
    files = tree.files
    if not files:
        return work
    window = min(WINDOW_FILES, -(-WINDOW_BYTES // max(1, tree.file_bytes)), files)
    whole, rest = divmod(files, window)
    windows = [(window, whole), (rest, 1)] if rest else [(window, whole)]
    store_bytes(work, tree.file_bytes, tuning, files)
    work.files_written += files
    number = whole + (rest > 0)
    work.log(ChildCount.of(number))
    file_item = max(kind.file_item for kind in tree.kinds)
    transactions = sum(-(-size // MAX_TRANSACTION) * times for size, times in windows)
    work.transact(file_item, files, ChildCount.of(transactions))
    _reads(work, tree, windows, number, parents)
    for kind in tree.kinds:
        most = kind.fullest()[0]
        if most:
            work.heat(
                f"one suffix of a directory with {kind.files:,} files",
                most * read_units(file_item),
                2 * most * write_units(file_item),
            )
    latency = service.latency
    each = (
        latency.read * 2 + latency.put * (1 + window / UPLOADS) + latency.put + latency.transaction
    )
    work.chain = each * number / WINDOWS
    return work


def _reads(
    work: Workload, tree: LaidTree, windows: list[tuple[int, int]], number: int, parents: int
) -> None:
    """Reads of the paths and their parents, and later of each directory of a window."""
    filled = sum(kind.count for kind in tree.kinds if kind.files and (parents or kind.level))
    above = tree.directories - 1 + parents
    fewest = sum(-(-size // MAX_BATCH) * times for size, times in windows)
    if number == 1:
        keys = tree.files + (above if filled else 0)
        batches = ChildCount.of(-(-keys // MAX_BATCH))
    else:
        most = sum(
            -(-(size + min(size, filled) + above) // MAX_BATCH) * times for size, times in windows
        )
        each = filled // number + tree.depth + parents + 1
        likely = sum(-(-(size + each) // MAX_BATCH) * times for size, times in windows)
        batches = ChildCount(min(likely, most), fewest, most)
    work.count("table", "BatchGetItem", batches, work.latency.read)
    item = tree.top.directory_item
    work.read_units += tree.files + (filled + parents) * read_units(item)
    looks = (
        ChildCount.of(filled)
        if number == 1
        else ChildCount(filled + number - 1, filled, filled + number - 1)
    )
    work.get(item, looks if filled else ChildCount())
