"""Cost of renaming and deleting a directory: the requests of `S3kClient.rename` and of
`S3kClient.delete(recursive=True)`.

Assumptions: no other client works in the tree, it has no reservations and no intents of interrupted
transactions, and the work ends before the first renewal of the lease (one UpdateItem every
RENEW_SECONDS). In the root, the first such change of a volume makes a record (one PutItem); in
layout `tree` the first one of a client updates it (one UpdateItem).

In layout `tree` the cost does not depend on the content of the directory, and `atomic=False` makes
no difference. The content of a deleted directory is reclaimed later.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from s3k_async.backends.ports.items import MAX_TRANSACTION
from s3k_async.cost_model.item_size import read_units, write_units
from s3k_async.cost_model.listing_cost import longest_listing, read_children
from s3k_async.cost_model.partition_layout import ChildCount
from s3k_async.cost_model.service_limits import Service
from s3k_async.cost_model.tree_shape import Kind, LaidTree
from s3k_async.cost_model.work_load import Workload
from s3k_async.errors import UnsupportedError
from s3k_async.txn.chunking import CHUNK

__all__ = ["deletion", "reclamation", "renaming"]

MOVES: Final = MAX_TRANSACTION // 2
"""Files of one transaction of a rename: two actions each."""
RECORD_BYTES: Final = 250
"""Bytes of a transaction record, above those of any intent."""
INTENT_BYTES: Final = 60
"""Bytes of a write intent in a directory's item."""
TRASH_BYTES: Final = 200
"""Bytes that the item of a directory has in addition in the trash."""


def renaming(
    tree: LaidTree,
    service: Service,
    *,
    target_parents: int | None = None,
    atomic: bool = True,
) -> Workload:
    """Rename a directory to another name in its directory, or to a path with `target_parents`
    existing ancestors below the root, in layout `tree` none of them an ancestor of the source.

    Raises UnsupportedError, in layout `tree`, for too many ancestors.
    """
    elsewhere = target_parents is not None
    if tree.layout == "tree":
        return _renaming_by_id(tree, service, target_parents)
    target_parents = tree.above if target_parents is None else target_parents
    if not atomic:
        return _renaming_plainly(tree, service, target_parents)
    work, top = Workload(service.latency), tree.top
    _begin_transaction(work, top, others=target_parents + 1)
    work.get_many(target_parents + 1, top.own_item)
    work.log(_one(1))
    work.transact(top.own_item + INTENT_BYTES, 2 if target_parents else 1, _one(1))
    _prepare(work, tree, MOVES, actions=2)
    work.update(top.own_item, _one(2 if elsewhere else 1))
    work.update(RECORD_BYTES)
    for _ in ("source", "target"):
        _fold(work, tree)
    _end_transaction(work)
    for kind in tree.kinds:
        _heat_of_changes(work, kind, "old place", 2)
        _heat_of_changes(work, kind, "new place", 1)
    work.chain = _chain(tree, service, listings=3)
    return work


def deletion(tree: LaidTree, service: Service, *, atomic: bool = True) -> Workload:
    """Delete a directory and its subtree. Raises UnsupportedError, in layout `tree`, for too many
    ancestors."""
    if tree.layout == "tree":
        return _deletion_by_id(tree, service)
    if not atomic:
        return _deletion_plainly(tree, service)
    work, top = Workload(service.latency), tree.top
    _begin_transaction(work, top)
    work.log(_one(1))
    _prepare(work, tree, MAX_TRANSACTION, actions=1)
    work.update(top.own_item)
    work.update(RECORD_BYTES)
    _fold(work, tree)
    _end_transaction(work)
    for kind in tree.kinds:
        _heat_of_changes(work, kind, "", 2)
    work.chain = _chain(tree, service, listings=2)
    return work


def reclamation(tree: LaidTree, service: Service) -> Workload:
    """Reclaim a deleted directory in layout `tree`: two runs of gc, of which the first deletes
    files and the second directories. The requests with which each run reads the trash are not
    counted. Nothing in layout `path`."""
    work = Workload(service.latency)
    if tree.layout == "path":
        return work
    work.log(_one(1))
    work.put(tree.top.own_item + TRASH_BYTES)
    for kind in tree.kinds:
        # Only directories are left for the second run; those of each page are deleted together.
        emptied = kind.without_files(service)
        read_children(work, kind)
        read_children(work, emptied)
        work.entries_changed += kind.count * _children(kind)
        work.log((kind.segments() + emptied.groups_of_pages()) * kind.count)
        files = kind.transactions(MAX_TRANSACTION) * kind.count
        directories = emptied.groups_of_pages(MAX_TRANSACTION) * kind.count
        work.transact(kind.file_item, kind.count * kind.files, files)
        work.transact(kind.directory_item, kind.count * kind.directories, directories)
        most_files, most_directories = kind.fullest()
        work.heat(
            _suffix_of(kind),
            read_units(kind.bytes_of(most_files, most_directories))
            + read_units(kind.bytes_of(0, most_directories)),
            2 * most_files * write_units(kind.file_item)
            + 2 * most_directories * write_units(kind.directory_item),
        )
    work.log(_one(1))
    work.transact(tree.top.own_item + TRASH_BYTES, 1, _one(1))
    latency = service.latency
    each = latency.put * 2 + latency.transaction * 2
    begin = latency.put * 2 + latency.write
    work.chain = begin + each * (tree.depth + 1) + 2 * longest_listing(tree, service)
    return work


def _renaming_by_id(tree: LaidTree, service: Service, target_parents: int | None) -> Workload:
    """Both paths are read in one batch."""
    work = Workload(service.latency)
    others = 0 if target_parents is None else target_parents
    tree.chain.read(work, tree.top.own_item, others=others + 1)
    in_root = not tree.above or target_parents == 0
    _move_item(work, tree, tree.above + others, in_root=in_root)
    work.chain += service.latency.read
    return work


def _deletion_by_id(tree: LaidTree, service: Service) -> Workload:
    work = Workload(service.latency)
    tree.chain.find(work, tree.top.own_item)
    _move_item(work, tree, tree.above, in_root=not tree.above)
    work.chain += service.latency.read
    return work


def _move_item(work: Workload, tree: LaidTree, ancestors: int, *, in_root: bool) -> None:
    """A directory's item is moved in one transaction that touches or checks the ancestors of both
    of its places, and the record of the root if a parent is the root."""
    actions = 2 + ancestors + in_root
    if actions > MAX_TRANSACTION:
        raise UnsupportedError(
            f"a directory with {ancestors:,} directories above it is not renamed or deleted in one "
            "transaction of layout tree; assume fewer"
        )
    work.log(_one(1))
    work.transact(tree.top.own_item, actions, _one(1))
    work.topmost_write += 2
    work.entries_changed += 1
    work.chain += work.latency.put + work.latency.transaction


def _prepare(work: Workload, tree: LaidTree, size: int, *, actions: int) -> None:
    """All directories are listed; their children and the items at the target get intents."""
    for kind in tree.kinds:
        read_children(work, kind)
        work.entries_changed += kind.count * kind.files
        work.log(_groups(kind, CHUNK))
        work.transact(
            _child_bytes(kind) + INTENT_BYTES,
            actions * kind.count * _children(kind),
            _groups(kind, size),
        )


def _fold(work: Workload, tree: LaidTree) -> None:
    """One side of the prepared changes is listed again, and its intents or items removed."""
    work.get(tree.top.own_item + INTENT_BYTES)
    for kind in tree.kinds:
        read_children(work, _with_intents(kind))
        groups = _groups(kind, MAX_TRANSACTION)
        work.transact(_child_bytes(kind) + INTENT_BYTES, kind.count * _children(kind), groups)
    work.transact(tree.top.own_item + INTENT_BYTES, 1, _one(1))


def _with_intents(kind: Kind) -> Kind:
    """A directory whose children have intents."""
    return replace(
        kind,
        file_item=kind.file_item + INTENT_BYTES,
        directory_item=kind.directory_item + INTENT_BYTES,
    )


def _children(kind: Kind) -> int:
    return kind.files + kind.directories


def _groups(kind: Kind, size: int) -> ChildCount:
    """Groups of at most `size` children, in all directories of a kind."""
    return ChildCount.of(-(-_children(kind) // size) * kind.count)


def _child_bytes(kind: Kind) -> int:
    """Mean bytes of a child's item."""
    return kind.bytes_of(kind.files, kind.directories) // max(1, _children(kind))


def _heat_of_changes(work: Workload, kind: Kind, where: str, listings: int) -> None:
    """The load of the fullest suffix: each item is listed and written twice, in transactions."""
    files, directories = kind.fullest()
    units = files * write_units(kind.file_item + INTENT_BYTES) + directories * write_units(
        kind.directory_item + INTENT_BYTES
    )
    reads = listings * read_units(kind.bytes_of(files, directories))
    work.heat(f"{_suffix_of(kind)}{', ' if where else ''}{where}", reads, 4 * units)


def _chain(tree: LaidTree, service: Service, listings: int) -> float:
    """Seconds of the sequential requests: each level is prepared before the next, and folded in
    after it."""
    latency = service.latency
    once = latency.write * 4 + latency.transaction * 3 + latency.read * 4 + latency.put * 2
    each = latency.put + latency.transaction * listings
    return once + each * (tree.depth + 1) + listings * longest_listing(tree, service)


def _renaming_plainly(tree: LaidTree, service: Service, target_parents: int) -> Workload:
    work = Workload(service.latency)
    top = tree.top
    _begin_transaction(work, top, others=target_parents + 1)
    work.get_many(target_parents + 1, top.own_item)
    if target_parents:
        work.get(top.own_item)
    work.get(0)
    work.log(_one(1))
    work.transact(top.own_item, 2 if target_parents else 1, _one(1))
    _log_each(work, tree, tree.directories - 1)
    for kind in tree.kinds:
        _move_children(work, kind)
        if kind.level:
            _move_directory(work, kind)
        # The old entry and the new one's intent are removed.
        work.transact(kind.own_item, kind.count, _one(kind.count))
        work.update(kind.own_item + INTENT_BYTES, _one(kind.count))
        _heat_of_moves(work, kind)
    _end_transaction(work)
    latency = service.latency
    each = latency.write * 2 + latency.read * 2 + latency.transaction * 2 + latency.put * 2
    work.chain = each * (tree.depth + 1) + longest_listing(tree, service) + _chunk_chain(service)
    return work


def _deletion_plainly(tree: LaidTree, service: Service) -> Workload:
    work = Workload(service.latency)
    _begin_transaction(work, tree.top)
    _log_each(work, tree, tree.directories)
    for kind in tree.kinds:
        read_children(work, kind)
        work.entries_changed += kind.count * kind.files
        transactions = kind.transactions(MAX_TRANSACTION)
        work.transact(kind.file_item, kind.count * kind.files, transactions * kind.count)
        if kind.level:
            work.update(kind.own_item + INTENT_BYTES, _one(kind.count))
        work.transact(kind.own_item, kind.count, _one(kind.count))
        files, directories = kind.fullest()
        work.heat(
            _suffix_of(kind),
            read_units(kind.bytes_of(files, directories)),
            2 * files * write_units(kind.file_item)
            + 3 * directories * write_units(kind.directory_item),
        )
    _end_transaction(work)
    latency = service.latency
    each = latency.write + latency.transaction + latency.put * 2
    work.chain = each * (tree.depth + 1) + longest_listing(tree, service) + _chunk_chain(service)
    return work


def _begin_transaction(work: Workload, top: Kind, *, others: int = 0) -> None:
    """Requests for the directory, the transaction record and the directory's intent. `others`: the
    items that are read together with the directory."""
    if others:
        work.get_many(1 + others, top.own_item)
    else:
        work.get(top.own_item)
    work.put(RECORD_BYTES)
    work.update(top.own_item + INTENT_BYTES)


def _end_transaction(work: Workload) -> None:
    work.transact(RECORD_BYTES, 1, _one(1))


def _move_children(work: Workload, kind: Kind) -> None:
    """List the children of all directories of a kind, and move the files among them."""
    read_children(work, kind)
    work.entries_changed += kind.count * kind.files
    work.transact(
        kind.file_item, 2 * kind.count * kind.files, kind.transactions(MOVES) * kind.count
    )
    # The target directory is read after each chunk.
    work.get(kind.own_item, kind.chunks() * kind.count)


def _log_each(work: Workload, tree: LaidTree, directories: int) -> None:
    """The log of a change that is not atomic: a segment for each chunk of files, and an entry for
    each of `directories`; small ones of those that change at the same time share objects."""
    segments = ChildCount()
    for kind in tree.kinds:
        segments += kind.segments() * kind.count
    work.log(segments.shared_with(directories))


def _move_directory(work: Workload, kind: Kind) -> None:
    """Directories below the top: each gets an intent and is created at its new path, and its
    target parent is read."""
    work.update(kind.own_item + INTENT_BYTES, _one(kind.count))
    work.get(0, _one(kind.count))
    work.transact(kind.own_item + INTENT_BYTES, kind.count, _one(kind.count))
    work.get(kind.own_item, _one(kind.count))


def _heat_of_moves(work: Workload, kind: Kind) -> None:
    files, directories = kind.fullest()
    moved = 2 * files * write_units(kind.file_item)
    each = write_units(kind.directory_item)
    reads = read_units(kind.bytes_of(files, directories))
    work.heat(f"{_suffix_of(kind)}, old place", reads, moved + 3 * directories * each)
    work.heat(f"{_suffix_of(kind)}, new place", 2 * directories, moved + 3 * directories * each)


def _chunk_chain(service: Service) -> float:
    return service.latency.put * 2 + service.latency.transaction + service.latency.read


def _suffix_of(kind: Kind) -> str:
    return f"one suffix of a directory with {kind.files + kind.directories:,} children"


def _one(number: int) -> ChildCount:
    return ChildCount.of(number)
