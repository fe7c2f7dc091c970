"""Cost of a mixture of calls on a tree, and the comparison of two costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from s3k_async.cost_model.listing_cost import listing
from s3k_async.cost_model.partition_layout import ChildCount
from s3k_async.cost_model.service_limits import Service
from s3k_async.cost_model.tree_cost import deletion, reclamation, renaming
from s3k_async.cost_model.tree_shape import LaidTree
from s3k_async.cost_model.verb_cost import SINGLE_VERBS, VerbArguments, on_files
from s3k_async.cost_model.work_load import Workload
from s3k_async.cost_model.write_cost import loading

__all__ = ["TREE_VERBS", "CapacityCost", "first_reads", "mixed", "on_tree"]

TREE_VERBS: Final = ("list", "rename", "delete", "load")
"""Verbs on a directory with everything below it: `S3kClient.list`, `rename`, `delete` and
`write_many`."""


def on_tree(
    verb: str, tree: LaidTree, arguments: VerbArguments, service: Service, *, atomic: bool = True
) -> Workload:
    """The requests of one call of a verb of TREE_VERBS on a tree, or of a verb of SINGLE_VERBS for
    each of its files. Raises UnsupportedError for a tree that is too deep for the layout."""
    match verb:
        case "list":
            return listing(tree, service)
        case "rename":
            return renaming(tree, service, atomic=atomic)
        case "delete":
            return deletion(tree, service, atomic=atomic)
        case "load":
            return loading(tree, service, arguments.tuning)
        case _:
            return on_files(verb, tree, arguments, service)


def first_reads(verb: str, tree: LaidTree, service: Service, calls: int | None = None) -> Workload:
    """In layout `tree`, the additional reads of a client that has cached no directory: of each
    directory above what the verb of `on_tree` reads by path, once. Exact for calls one after the
    other, and for a list of one window. `calls`: of a verb on single paths, if they are fewer than
    the files."""
    work = Workload(service.latency)
    if tree.layout == "path" or verb == "makedirs":
        return work
    levels = [1] * tree.above
    if verb in SINGLE_VERBS or verb == "load":
        for level in range(int(tree.is_root), tree.depth + 1):
            number = sum(kind.count for kind in tree.kinds if kind.level == level)
            levels.append(number if calls is None else min(number, calls))
    size = tree.lowest.own_item
    for number in levels:
        if verb == "load" and number > 1:
            work.get_many(number, size)
        else:
            work.get(size, ChildCount.of(number))
    work.topmost_read += bool(levels)
    work.chain = service.latency.read * len(levels)
    return work


def mixed(
    calls: Mapping[str, int],
    tree: LaidTree,
    arguments: VerbArguments,
    service: Service,
    *,
    atomic: bool = True,
) -> tuple[Workload, Workload]:
    """The requests of concurrent calls, by verb, and those of the reclamation of what they delete.

    Calls of verbs on one file are spread evenly over the files. Those on a directory apply to the
    directories with files, each with the files in it, and are spread evenly over these; `makedirs`
    creates one directory in one of them. The tree is the same for all calls.
    """
    work, later = Workload(service.latency), Workload(service.latency)
    leaf = tree.subtree(tree.lowest)
    for verb, number in calls.items():
        if not number:
            continue
        if verb in SINGLE_VERBS:
            one = replace(arguments, missing=1)
            work.add(on_files(verb, tree, one, service, calls=number), at_one_place=1)
            continue
        each = number / max(1, tree.filled)
        call = on_tree(verb, leaf, arguments, service, atomic=atomic)
        work.add(call, number, at_one_place=each)
        if verb == "delete":
            later.add(reclamation(leaf, service), number, at_one_place=each)
    return work, later


@dataclass(frozen=True, slots=True)
class CapacityCost:
    """Read and write units of the table."""

    read_units: float
    write_units: float

    @classmethod
    def of(cls, *works: Workload) -> CapacityCost:
        """The sum of works."""
        return cls(sum(work.read_units for work in works), sum(work.write_units for work in works))

    def in_read_units(self, write_price: float) -> float:
        """The price, if a write unit costs as much as `write_price` read units."""
        return self.read_units + write_price * self.write_units

    def break_even(self, other: CapacityCost) -> float | None:
        """The price of a write unit, in read units, at which both cost the same; None if one of
        them costs less at any price."""
        reads, writes = self.read_units - other.read_units, other.write_units - self.write_units
        return reads / writes if writes and reads / writes > 0 else None
