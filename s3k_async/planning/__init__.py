"""A model of the service: what a verb on a tree will cost in requests, units and time. Pure; asks
nobody.

The counts are those of the client in this package, of a run without failures, retries and other
clients. Times are those of the published quotas and of the latencies that are assumed.
"""

from s3k_async.planning.changing import deletion, renaming
from s3k_async.planning.filling import loading
from s3k_async.planning.item_size import entry_size, item_size
from s3k_async.planning.layout import Count
from s3k_async.planning.looking import listing
from s3k_async.planning.prediction import Bound, Prediction, predict, suggest_suffix_count
from s3k_async.planning.service import COLD, WARM, ClientSpeed, Latency, Service, TableQuota
from s3k_async.planning.single import SINGLE_VERBS, Subject, on_every_file, single
from s3k_async.planning.tree_shape import Kind, LaidTree, TreeShape, lay_out, measure
from s3k_async.planning.work import Heat, Work

__all__ = [
    "COLD",
    "SINGLE_VERBS",
    "WARM",
    "Bound",
    "ClientSpeed",
    "Count",
    "Heat",
    "Kind",
    "LaidTree",
    "Latency",
    "Prediction",
    "Service",
    "Subject",
    "TableQuota",
    "TreeShape",
    "Work",
    "deletion",
    "entry_size",
    "item_size",
    "lay_out",
    "listing",
    "loading",
    "measure",
    "on_every_file",
    "predict",
    "renaming",
    "single",
    "suggest_suffix_count",
]
