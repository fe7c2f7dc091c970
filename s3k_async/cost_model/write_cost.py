"""Cost of writing many files: the requests of `S3kClient.write_many` into directories that exist.

The list is in the order of the directories, each with files below it. Files are new and of one
size, and the client's parent cache is empty; in layout `tree` it has cached the directories.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from s3k_async.backends.ports.items import MAX_BATCH, MAX_TRANSACTION
from s3k_async.bulk.file_writes import UPLOADS, WINDOW_BYTES, WINDOW_FILES
from s3k_async.config import Tuning
from s3k_async.cost_model.item_size import read_units, write_units
from s3k_async.cost_model.partition_layout import ChildCount
from s3k_async.cost_model.service_limits import Service
from s3k_async.cost_model.tree_shape import LaidTree
from s3k_async.cost_model.verb_cost import store_bytes
from s3k_async.cost_model.work_load import Workload

__all__ = ["loading"]

Windows: TypeAlias = Sequence[tuple[int, int]]
"""Files of a window, and the number of such windows."""


def loading(tree: LaidTree, service: Service, tuning: Tuning) -> Workload:
    """Write all files of a tree in one call.

    Exact for a list that fits into one window. For longer ones it depends on the ends of windows,
    and in layout `path` on the cache for a directory common to two windows. In layout `tree`, each
    batch of reads has the chains of its files, so that their number is exact for one directory
    only. No chain is confirmed again, as it is for a window whose upload takes five seconds.
    """
    work = Workload(service.latency)
    files = tree.files
    if not files:
        return work
    window = min(WINDOW_FILES, -(-WINDOW_BYTES // max(1, tree.file_bytes)), files)
    whole, rest = divmod(files, window)
    windows: Windows = [(window, whole), (rest, 1)] if rest else [(window, whole)]
    store_bytes(work, tree.file_bytes, tuning, files)
    work.files_written += files
    number = whole + (rest > 0)
    work.log(ChildCount.of(number))
    file_item = max(kind.file_item for kind in tree.kinds)
    transactions = sum(-(-size // MAX_TRANSACTION) * times for size, times in windows)
    work.transact(file_item, files, ChildCount.of(transactions))
    read = _reads_by_id if tree.layout == "tree" else _reads
    read(work, tree, windows)
    _looks(work, tree, number)
    for kind in tree.kinds:
        most = kind.fullest()[0]
        if most:
            work.heat(
                f"one suffix of a directory with {kind.files:,} files",
                most * read_units(file_item),
                2 * most * write_units(file_item),
            )
    latency = service.latency
    # Windows upload one after the other; the rest of all but the last overlaps with uploads.
    uploads = latency.put * files / UPLOADS
    work.chain = latency.read * 2 + uploads + latency.put * 2 + latency.transaction
    return work


def _reads(work: Workload, tree: LaidTree, windows: Windows) -> None:
    """Reads of the paths and their parents."""
    filled, parents, number = _filled(tree), tree.parents(tree.top), _number(windows)
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
    read = above + (number - 1) * parents if filled else 0
    work.read_units += tree.files + read * read_units(tree.top.directory_item)


def _reads_by_id(work: Workload, tree: LaidTree, windows: Windows) -> None:
    """The same in layout `tree`: each batch has the directories above its files."""
    depths = [tree.parents(kind) for kind in tree.kinds if kind.files]
    deepest, number = max(depths), _number(windows)
    # The directories that a window has beside those above one of its files.
    below = tree.directories - tree.is_root + tree.above - deepest
    others = -(-below // number)
    batches = ChildCount()
    for size, times in windows:
        if size + others + deepest == 1:
            work.get(0, ChildCount.of(times))
            continue
        room = MAX_BATCH - deepest
        likely = -(-(size + others) // max(1, room))
        if below and size + below > room:
            # A batch ends before a path that does not fit, and the next one repeats its chain.
            low = -(-size // max(1, MAX_BATCH - min(depths)))
            high = min(size, (size + below + room) // max(1, room - deepest))
            each = ChildCount(min(likely, high), low, high)
        else:
            each = ChildCount.of(likely)
        batches += each * times
        work.read_units += times * (size + others + likely * deepest)
    work.count("table", "BatchGetItem", batches, work.latency.read)
    work.topmost_read += batches.likely * (deepest > 0)


def _looks(work: Workload, tree: LaidTree, number: int) -> None:
    """Each directory is read after the files of a window in it were created."""
    filled = _filled(tree)
    looks = (
        ChildCount.of(filled)
        if number == 1
        else ChildCount(filled + number - 1, filled, filled + number - 1)
    )
    work.get(tree.top.directory_item, looks if filled else ChildCount())


def _filled(tree: LaidTree) -> int:
    """Directories with files, without the root, which is not read."""
    return sum(kind.count for kind in tree.kinds if kind.files and tree.parents(kind))


def _number(windows: Windows) -> int:
    return sum(times for _, times in windows)
