"""Cost of verbs on one file or directory, called once or for every file of a tree.

Every path has existing parents, unless the verb makes them, and no conflicting entry. Counts are
those of sequential calls: concurrent ones may share the read of a parent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from s3k_async.config import Tuning
from s3k_async.cost_model.item_size import read_units, write_units
from s3k_async.cost_model.partition_layout import ChildCount
from s3k_async.cost_model.service_limits import Service
from s3k_async.cost_model.tree_shape import LaidTree
from s3k_async.cost_model.work_load import PartitionLoad, Workload
from s3k_async.namespace.directories import CHAIN_PART

__all__ = ["SINGLE_VERBS", "VerbArguments", "on_every_file", "single", "store_bytes"]


@dataclass(frozen=True, slots=True)
class VerbArguments:
    """The arguments of a verb."""

    parents: int = 1
    """Ancestors of the path below the root; for a rename those of the target."""
    file_item: int = 450
    """Bytes of the item of a file."""
    directory_item: int = 200
    """Bytes of the item of a directory."""
    file_bytes: int = 1_000_000
    tuning: Tuning = field(default_factory=Tuning)
    """Multipart settings of the client."""
    known_parent: bool = False
    """Whether the parent is in the client's cache."""


@dataclass(slots=True)
class _VerbCall:
    """One call of a verb: its work, and the share on the items of the path and of its parent."""

    work: Workload
    subject: VerbArguments
    own: PartitionLoad = field(default_factory=lambda: PartitionLoad("own", 0.0, 0.0))
    parent: PartitionLoad = field(default_factory=lambda: PartitionLoad("parent", 0.0, 0.0))

    def load(
        self, *, reads: int, writes: int = 0, parent_reads: int = 0, parent_writes: int = 0
    ) -> None:
        """Reads and writes of the path's item, and of the parent's."""
        subject = self.subject
        own_read, own_write = read_units(subject.file_item), write_units(subject.file_item)
        self.own = PartitionLoad("own", reads * own_read, writes * own_write)
        if subject.parents:
            read, write = read_units(subject.directory_item), write_units(subject.directory_item)
            self.parent = PartitionLoad("parent", parent_reads * read, parent_writes * write)


def _stat(call: _VerbCall) -> None:
    call.work.get(call.subject.file_item)
    call.load(reads=1)


def _read(call: _VerbCall) -> None:
    subject = call.subject
    call.work.get(subject.file_item)
    call.work.data("GetObject", ChildCount.of(-(-subject.file_bytes // subject.tuning.part_size)))
    call.load(reads=1)


def _write(call: _VerbCall) -> None:
    work, subject = call.work, call.subject
    if subject.parents and not subject.known_parent:
        work.get_many(subject.parents + 1, subject.directory_item)
    else:
        work.get(subject.file_item)
    _publish(call)
    if subject.parents:
        work.get(subject.directory_item)
    call.load(reads=1, writes=1, parent_reads=1 if subject.known_parent else 2)


def _overwrite(call: _VerbCall) -> None:
    work, subject = call.work, call.subject
    # Below a cached parent, the entry is read, and then again together with its ancestors.
    if subject.known_parent or not subject.parents:
        work.get(subject.file_item)
    if subject.parents:
        work.get_many(subject.parents + 1, subject.directory_item)
    _publish(call)
    call.load(reads=1 + subject.known_parent, writes=1, parent_reads=1)


def _publish(call: _VerbCall) -> None:
    work, subject = call.work, call.subject
    store_bytes(work, subject.file_bytes, subject.tuning)
    work.log(ChildCount.of(1))
    work.put(subject.file_item)
    work.files_written += 1


def _rename(call: _VerbCall) -> None:
    work, subject = call.work, call.subject
    work.get(subject.file_item)
    work.get_many(subject.parents + 1, subject.directory_item)
    work.log(ChildCount.of(1))
    work.transact(subject.file_item, 2 + bool(subject.parents), ChildCount.of(1))
    work.entries_changed += 1
    # The transaction checks the target's parent; a check costs as much as a write.
    call.load(reads=1, writes=2, parent_reads=1, parent_writes=2)


def _delete(call: _VerbCall) -> None:
    call.work.get(call.subject.file_item)
    call.work.log(ChildCount.of(1))
    call.work.transact(call.subject.file_item, 1, ChildCount.of(1))
    call.work.entries_changed += 1
    call.load(reads=1, writes=2)


def _makedirs(call: _VerbCall) -> None:
    made = call.subject.parents + 1
    call.work.get_many(made)
    transactions = -(-made // CHAIN_PART)
    call.work.log(ChildCount.of(transactions))
    call.work.transact(
        call.subject.directory_item, made + transactions - 1, ChildCount.of(transactions)
    )
    call.load(reads=1, writes=2, parent_reads=1, parent_writes=2)


SINGLE_VERBS: Final[dict[str, Callable[[_VerbCall], None]]] = {
    "stat": _stat,
    "read": _read,
    "write": _write,
    "overwrite": _overwrite,
    "rename-file": _rename,
    "delete-file": _delete,
    "makedirs": _makedirs,
}
"""By name: `S3kClient.stat`, `read`, `write` of a new file and of an existing one, `rename` and
`delete` of a file, `makedirs` with all parents missing."""


def single(verb: str, subject: VerbArguments, service: Service) -> Workload:
    """The requests of one call of a verb of SINGLE_VERBS."""
    return _call(verb, subject, service).work


def on_every_file(verb: str, tree: LaidTree, subject: VerbArguments, service: Service) -> Workload:
    """The requests of concurrent calls of the verb, one for every file of a tree.

    The first call in a directory reads its parents, the others have them in the cache. Concurrent
    calls share these reads, so that there may be fewer.
    """
    work = Workload(service.latency)
    filled = sum(kind.count for kind in tree.kinds if kind.files)
    first, later = (
        _call(verb, replace(subject, known_parent=known), service) for known in (False, True)
    )
    for call, times in ((first, filled), (later, tree.files - filled)):
        _repeat(work, call.work, times)
    if verb == "write" and subject.parents:
        looks = work.requests["table", "GetItem"]
        work.requests["table", "GetItem"] = replace(looks, low=looks.low - tree.files + filled)
    work.chain = first.work.chain
    for kind in tree.kinds:
        if not kind.files:
            continue
        files = kind.fullest()[0]
        where = f"a directory with {kind.files:,} files"
        own, parent = later.own, later.parent
        work.heat(f"one suffix of {where}", files * own.read_units, files * own.write_units)
        work.heat(
            f"the item of {where}", kind.files * parent.read_units, kind.files * parent.write_units
        )
    return work


def _repeat(work: Workload, once: Workload, times: int) -> None:
    """Add a multiple of the work of one call."""
    for key, number in once.requests.items():
        work.requests[key] = work.requests.get(key, ChildCount()) + number * times
    for part, seconds in once.waits.items():
        work.waits[part] = work.waits.get(part, 0.0) + seconds * times
    work.read_units += once.read_units * times
    work.write_units += once.write_units * times
    work.entries_changed += once.entries_changed * times
    work.files_written += once.files_written * times


def _call(verb: str, subject: VerbArguments, service: Service) -> _VerbCall:
    call = _VerbCall(Workload(service.latency), subject)
    SINGLE_VERBS[verb](call)
    call.work.chain = sum(call.work.waits.values())
    return call


def store_bytes(work: Workload, size: int, tuning: Tuning, files: int = 1) -> None:
    """Uploads of files of a size: each whole, or in parts above the threshold."""
    if size <= tuning.multipart_threshold:
        work.data("PutObject", ChildCount.of(files))
        return
    work.data("CreateMultipartUpload", ChildCount.of(files))
    work.data("UploadPart", ChildCount.of(files * -(-size // tuning.part_size)))
    work.data("CompleteMultipartUpload", ChildCount.of(files))
