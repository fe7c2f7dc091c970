"""The cost model: requests, capacity units and time of a verb on a tree. Pure, without requests.

The counts are those of this package's client, for a run without failures, retries and other
clients. Times follow from published quotas and assumed latencies.
"""

from s3k_async.cost_model.chain_cost import Chain
from s3k_async.cost_model.item_size import entry_size, item_size
from s3k_async.cost_model.listing_cost import listing
from s3k_async.cost_model.mix_cost import TREE_VERBS, CapacityCost, first_reads, mixed, on_tree
from s3k_async.cost_model.partition_layout import ChildCount
from s3k_async.cost_model.prediction import Bound, Prediction, predict, suggest_suffix_count
from s3k_async.cost_model.price_table import LIST_PRICES, Cost, PriceTable, read_prices
from s3k_async.cost_model.service_limits import (
    COLD,
    WARM,
    ClientSpeed,
    Latency,
    Service,
    TableQuota,
)
from s3k_async.cost_model.tree_cost import deletion, reclamation, renaming
from s3k_async.cost_model.tree_shape import Kind, LaidTree, TreeShape, lay_out, measure
from s3k_async.cost_model.verb_cost import SINGLE_VERBS, VerbArguments, on_files, single
from s3k_async.cost_model.work_load import PartitionLoad, Workload
from s3k_async.cost_model.write_cost import loading

__all__ = [
    "COLD",
    "LIST_PRICES",
    "SINGLE_VERBS",
    "TREE_VERBS",
    "WARM",
    "Bound",
    "CapacityCost",
    "Chain",
    "ChildCount",
    "ClientSpeed",
    "Cost",
    "Kind",
    "LaidTree",
    "Latency",
    "PartitionLoad",
    "Prediction",
    "PriceTable",
    "Service",
    "TableQuota",
    "TreeShape",
    "VerbArguments",
    "Workload",
    "deletion",
    "entry_size",
    "first_reads",
    "item_size",
    "lay_out",
    "listing",
    "loading",
    "measure",
    "mixed",
    "on_files",
    "on_tree",
    "predict",
    "read_prices",
    "reclamation",
    "renaming",
    "single",
    "suggest_suffix_count",
]
