"""Cost of listing a tree: the requests of `S3kClient.list(path, recursive=True)`."""

from __future__ import annotations

from s3k_async.cost_model.item_size import read_units
from s3k_async.cost_model.service_limits import Service
from s3k_async.cost_model.tree_shape import Kind, LaidTree
from s3k_async.cost_model.work_load import Workload
from s3k_async.namespace.consistent_listing import CONSISTENT_ROWS
from s3k_async.namespace.ordered_walk import DIRECTORIES
from s3k_async.table.stored_reader import SUFFIX_STREAMS

__all__ = ["listing", "longest_listing", "read_children"]


def listing(tree: LaidTree, service: Service) -> Workload:
    """List a subtree, with concurrent reads of all suffixes of up to DIRECTORIES directories."""
    work = Workload(service.latency)
    if tree.is_root:
        # It has no item, but a record for transactions with changes in it.
        work.get()
    else:
        tree.chain.find(work, tree.top.own_item)
    work.chain += service.latency.read
    for kind in tree.kinds:
        read_children(work, kind)
        files, directories = kind.fullest()
        work.heat(
            f"one suffix of a directory with {kind.files + kind.directories:,} children",
            read_units(kind.bytes_of(files, directories)),
            0.0,
        )
    work.chain += longest_listing(tree, service)
    if tree.files + tree.directories - 1 <= CONSISTENT_ROWS:
        read_again(work, tree)
        work.chain += service.latency.read
    work.streams = min(tree.directories, DIRECTORIES) * min(tree.suffix_count, SUFFIX_STREAMS)
    return work


def read_children(work: Workload, kind: Kind) -> None:
    """Read the children of all directories of a kind."""
    work.query(kind.pages() * kind.count, kind.read_units * kind.count)
    work.entries_read += kind.count * (kind.files + kind.directories)


def read_again(work: Workload, tree: LaidTree) -> None:
    """Read all directories once more, before the first page is given, in layout `tree` with those
    above the top."""
    above = tree.above if tree.layout == "tree" else 0
    work.get_many(tree.directories + above)
    work.topmost_read += above > 0
    work.read_units += sum(kind.count * (read_units(kind.own_item) - 1) for kind in tree.kinds)


def longest_listing(tree: LaidTree, service: Service) -> float:
    """Seconds until the children of a deepest directory are known, if requests wait only for those
    they depend on: pages of one partition are sequential."""
    pages = [0] * (tree.depth + 1)
    for kind in tree.kinds:
        pages[kind.level] = max(
            pages[kind.level], *(partition.page_count for partition in kind.partitions)
        )
    return sum(pages) * service.latency.read
