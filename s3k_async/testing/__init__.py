"""For tests of code that uses this package: fault injection, stores in memory, and reference
adapters.

    plan = FaultPlan()
    plan.fail_when(lambda call: call.method == "transact", ThrottledError("slow down"), times=2)
    with plan.injected():  # volumes that are opened here
        async with S3kClient("memory://test") as fs: ...
    print(plan.calls)

`FaultPlan` works over every backend (docs/testing.md). `MemoryItems` and `MemoryBlobs` are the
stores of `memory://` volumes. `DynamoItems` is the DynamoDB store by botocore's serializer and
parser.
"""

from s3k_async.stores.memory_blobs import MemoryBlobs
from s3k_async.stores.memory_items import MemoryItems
from s3k_async.testing.faults import Call, Died, FaultPlan, FaultyBlobs, FaultyItems, Moment
from s3k_async.testing.reference_items import DynamoItems

__all__ = [
    "Call",
    "Died",
    "DynamoItems",
    "FaultPlan",
    "FaultyBlobs",
    "FaultyItems",
    "MemoryBlobs",
    "MemoryItems",
    "Moment",
]
