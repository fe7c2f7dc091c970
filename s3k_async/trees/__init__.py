"""Trees of files in volumes, local directories, buckets and listings: comparison, one-way
synchronization, and import. docs/sync.md describes them."""

from __future__ import annotations

from s3k_async.bulk.file_writes import NewFile
from s3k_async.listing.selection import Selection
from s3k_async.trees.adopted_objects import adopt_tree
from s3k_async.trees.bucket_tree import BucketTree, open_bucket
from s3k_async.trees.comparison import (
    ComparisonRule,
    Difference,
    DifferenceKind,
    TreeComparison,
)
from s3k_async.trees.directory_tree import DirectoryTree
from s3k_async.trees.file_tree import (
    FailedFile,
    FileTree,
    Skipped,
    TreeEntry,
    TreePlace,
    TreeTarget,
    WrittenFile,
)
from s3k_async.trees.listing_tree import ListingTree
from s3k_async.trees.object_import import import_object
from s3k_async.trees.synchronization import (
    Change,
    ChangeKind,
    SyncOptions,
    SyncResult,
    synchronize,
)
from s3k_async.trees.volume_tree import VolumeTree

__all__ = [
    "BucketTree",
    "Change",
    "ChangeKind",
    "ComparisonRule",
    "Difference",
    "DifferenceKind",
    "DirectoryTree",
    "FailedFile",
    "FileTree",
    "ListingTree",
    "NewFile",
    "Selection",
    "Skipped",
    "SyncOptions",
    "SyncResult",
    "TreeComparison",
    "TreeEntry",
    "TreePlace",
    "TreeTarget",
    "VolumeTree",
    "WrittenFile",
    "adopt_tree",
    "import_object",
    "open_bucket",
    "synchronize",
]
