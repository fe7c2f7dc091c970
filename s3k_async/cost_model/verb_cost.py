"""Cost of verbs on one file or directory, called once or for every file of a tree.

Every path has existing parents, unless the verb makes them, and no conflicting entry. Counts are
those of sequential calls: concurrent ones may share the read of a parent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from s3k_async.config import Tuning
from s3k_async.cost_model.chain_cost import Chain
from s3k_async.cost_model.item_size import read_units, write_units
from s3k_async.cost_model.partition_layout import ChildCount
from s3k_async.cost_model.service_limits import Service
from s3k_async.cost_model.tree_shape import LaidTree
from s3k_async.cost_model.work_load import PartitionLoad, Workload
from s3k_async.model import LayoutName
from s3k_async.namespace.directories import CHAIN_PART

__all__ = ["SINGLE_VERBS", "VerbArguments", "on_files", "single", "store_bytes"]


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
    """Whether the parent is in the client's cache. In layout `tree` all directories are, and are
    read nevertheless."""
    missing: int | None = None
    """Directories that `makedirs` creates; None: all of the path."""
    layout: LayoutName = "path"

    @classmethod
    def below(cls, tree: LaidTree, tuning: Tuning) -> VerbArguments:
        """Those of the calls for the files of the lowest directories of a tree."""
        kind = tree.lowest
        sizes = kind.file_item, kind.directory_item, tree.file_bytes
        return cls(tree.parents(kind), *sizes, tuning, layout=tree.layout)

    @property
    def chain(self) -> Chain:
        """The directories above the path."""
        return Chain(self.parents, self.layout, self.directory_item)


@dataclass(slots=True)
class _VerbCall:
    """One call of a verb: its work, and the share on the items of the path and of its parent."""

    work: Workload
    subject: VerbArguments
    own: PartitionLoad = field(default_factory=lambda: PartitionLoad("own", 0.0, 0.0))
    parent: PartitionLoad = field(default_factory=lambda: PartitionLoad("parent", 0.0, 0.0))

    def find(self) -> None:
        """Read the file by its path."""
        subject = self.subject
        subject.chain.find(self.work, subject.file_item)
        self.load(own_read=1, parent_read=subject.layout == "tree")

    def read(self, size: int) -> None:
        """Read the path's item, of `size` bytes, with all directories above it."""
        self.subject.chain.read(self.work, size)
        self.load(own_read=1, parent_read=1)

    def look(self) -> None:
        """Read the parent after a creation; the root always exists."""
        if self.subject.parents:
            self.work.get(self.subject.directory_item)
            self.load(parent_read=1)

    def load(
        self, *, own_read: int = 0, own_write: int = 0, parent_read: int = 0, parent_write: int = 0
    ) -> None:
        """Reads and writes of the path's item, and of the parent's."""
        subject, own, parent = self.subject, self.own, self.parent
        self.own = replace(
            own,
            read_units=own.read_units + own_read * read_units(subject.file_item),
            write_units=own.write_units + own_write * write_units(subject.file_item),
        )
        if subject.parents:
            self.parent = replace(
                parent,
                read_units=parent.read_units + parent_read * read_units(subject.directory_item),
                write_units=parent.write_units + parent_write * write_units(subject.directory_item),
            )


def _stat(call: _VerbCall) -> None:
    call.find()


def _read(call: _VerbCall) -> None:
    subject = call.subject
    call.find()
    call.work.data("GetObject", ChildCount.of(-(-subject.file_bytes // subject.tuning.part_size)))


def _write(call: _VerbCall) -> None:
    subject = call.subject
    if subject.layout == "path" and (subject.known_parent or not subject.parents):
        call.work.get(0)
        call.load(own_read=1)
    else:
        call.read(0)
    _publish(call)
    call.look()


def _overwrite(call: _VerbCall) -> None:
    subject = call.subject
    # In layout `path`, below a cached parent, the entry is read, and then again together with its
    # ancestors.
    if subject.layout == "path" and (subject.known_parent or not subject.parents):
        call.find()
    if subject.layout == "tree" or subject.parents:
        call.read(subject.file_item)
    _publish(call)


def _publish(call: _VerbCall) -> None:
    work, subject = call.work, call.subject
    store_bytes(work, subject.file_bytes, subject.tuning)
    work.log(ChildCount.of(1))
    work.put(subject.file_item)
    work.files_written += 1
    call.load(own_write=1)


def _rename(call: _VerbCall) -> None:
    work, subject = call.work, call.subject
    # Both paths are read in one batch.
    subject.chain.read(work, subject.file_item, others=1)
    work.log(ChildCount.of(1))
    work.transact(subject.file_item, 2 + bool(subject.parents), ChildCount.of(1))
    work.entries_changed += 1
    # The transaction checks the target's parent; a check costs as much as a write.
    call.load(own_read=1, own_write=2, parent_read=1, parent_write=2)


def _delete(call: _VerbCall) -> None:
    call.find()
    call.work.log(ChildCount.of(1))
    call.work.transact(call.subject.file_item, 1, ChildCount.of(1))
    call.work.entries_changed += 1
    call.load(own_write=2)


def _makedirs(call: _VerbCall) -> None:
    work, subject = call.work, call.subject
    levels = subject.parents + 1
    made = levels if subject.missing is None else min(levels, subject.missing)
    existing = replace(subject.chain, directories=levels - made)
    if subject.layout == "path":
        existing.read(work, others=made - 1)
    else:
        # The first missing directory is read for itself: it may have been created since.
        if made > 1:
            work.get(0)
        existing.read(work)
    # Each transaction checks the directory above the first that it creates.
    transactions = -(-made // CHAIN_PART)
    checks = transactions - (not existing.directories)
    work.log(ChildCount.of(transactions))
    work.transact(subject.directory_item, made + checks, ChildCount.of(transactions))
    call.load(own_read=1, own_write=2, parent_read=1, parent_write=2)


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
`delete` of a file, `makedirs` (`VerbArguments.missing`)."""


def single(verb: str, subject: VerbArguments, service: Service) -> Workload:
    """The requests of one call of a verb of SINGLE_VERBS."""
    return _call(verb, subject, service).work


def on_files(
    verb: str,
    tree: LaidTree,
    subject: VerbArguments,
    service: Service,
    *,
    calls: int | None = None,
) -> Workload:
    """The requests of concurrent calls of the verb, spread evenly over the files of a tree; by
    default one for each file.

    The first call in a directory reads its parents, the others have them in the cache. Concurrent
    calls share these reads, so that there may be fewer, and objects of the log.
    """
    calls = tree.files if calls is None else calls
    work = Workload(service.latency)
    subject = replace(subject, layout=tree.layout)
    first, later = (
        _call(verb, replace(subject, known_parent=known), service) for known in (False, True)
    )
    firsts = min(tree.filled, calls)
    for call, times in ((first, firsts), (later, calls - firsts)):
        work.add(call.work, times)
    work.share_log(calls)
    if verb == "write" and subject.parents and calls:
        looks = work.requests.get(("table", "GetItem"), ChildCount())
        work.requests["table", "GetItem"] = replace(looks, low=looks.low - calls + firsts)
    work.chain = first.work.chain
    rate = calls / max(1, tree.files)
    for kind in tree.kinds:
        if not kind.files:
            continue
        files = rate * kind.fullest()[0]
        where = f"a directory with {kind.files:,} files"
        own, parent = later.own, later.parent
        work.heat(f"one suffix of {where}", files * own.read_units, files * own.write_units)
        files = rate * kind.files
        work.heat(f"the item of {where}", files * parent.read_units, files * parent.write_units)
    return work


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
