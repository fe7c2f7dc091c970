"""Requests of the reliable stores: divided, counted, sent again within policy and budget."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import pytest

from s3k_async._core.concurrency import AdaptiveLimit
from s3k_async._core.metering import Count, Meter, RequestCounter
from s3k_async._core.retry import Retries, RetryAccount, RetryBudget, RetryPolicy
from s3k_async.backends.memory.memory_blobs import MemoryBlobs
from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.ports.items import (
    ABSENT,
    Condition,
    Delete,
    Item,
    Key,
    Put,
    UnprocessedKeysError,
    Update,
)
from s3k_async.backends.retrying.retrying_blobs import RetryingBlobs
from s3k_async.backends.retrying.retrying_items import RetryingItems
from s3k_async.errors import (
    BusyError,
    OutcomeUnknownError,
    RequestTimeoutError,
    ResponseLostError,
    S3kError,
    ThrottledError,
    TransactionConflictError,
    UnreachableError,
)
from s3k_async.testing import FaultPlan, FaultyItems
from tests.support import FakeClock, fake_runtime

_names = (f"test-sending-{number}" for number in count())

SLOW = ThrottledError("slow down")


class StingyItems(FaultyItems):
    """A table that answers some keys of a batch and leaves out the others."""

    def __init__(self, name: str, most: int, plan: FaultPlan) -> None:
        super().__init__(MemoryItems(name), plan)
        self.most = most
        self.batches: list[int] = []

    async def get_many(self, keys: Sequence[Key]) -> dict[Key, Item]:
        self.batches.append(len(keys))
        found = await super().get_many(keys[: self.most])
        if len(keys) > self.most:
            raise UnprocessedKeysError("left out", path="t", found=found, left=keys[self.most :])
        return found


class Rig:
    """Reliable stores over memory with faults, whose requests are counted."""

    def __init__(self, retries: Retries | None = None, *, most: int = 100, limit: int = 32) -> None:
        name = next(_names)
        self.plan = FaultPlan()
        self.clock = FakeClock()
        self.counter = RequestCounter()
        self.limit = AdaptiveLimit(limit)
        retries = retries or Retries.alike(RetryPolicy(attempts=4))
        runtime = fake_runtime(self.clock)
        self.table = StingyItems(name, most, self.plan)
        self.bucket = self.plan.blobs(MemoryBlobs(name))
        self.items = RetryingItems(
            self.table, retries, runtime, self.limit, Meter("table", self.counter)
        )
        self.blobs = RetryingBlobs(
            self.bucket, retries, runtime, self.limit, Meter("data", self.counter)
        )

    async def start(self) -> Rig:
        await self.table.create()
        await self.bucket.create()
        self.plan.calls.clear()
        return self

    def counts(self) -> list[tuple[str, int, int]]:
        return [
            (found.operation, found.requests, found.retries)
            for found in self.counter.requests.counts
        ]


def item(number: int) -> Item:
    return {"path": "p", "children": f"{number:04}", "op": "ours"}


def key(number: int) -> Key:
    return Key("p", f"{number:04}")


# Batches


async def test_a_batched_read_is_divided_and_each_batch_is_retried_by_itself() -> None:
    rig = await Rig().start()
    await rig.table.write(Put(item(7), ABSENT))
    await rig.table.write(Put(item(249), ABSENT))
    rig.plan.fail_when(lambda call: call.key == "p/0100", SLOW, times=2)
    keys = [key(number) for number in range(250)]
    assert await rig.items.get_many([*keys, *keys]) == {key(7): item(7), key(249): item(249)}
    assert rig.counts() == [("BatchGetItem", 5, 2)]
    assert sorted(rig.table.batches) == [50, 100, 100, 100, 100]


async def test_no_keys_are_no_request() -> None:
    rig = await Rig().start()
    assert await rig.items.get_many([]) == {}
    assert await rig.blobs.delete_many([]) == []
    assert not rig.counter.requests


async def test_what_a_batch_leaves_out_does_not_leave_an_outcome_unknown() -> None:
    """The items of a transaction whose answers were lost are read back in as many parts as the
    table gives."""
    rig = await Rig(most=5).start()
    rig.plan.fail_when(
        lambda call: call.method == "transact", ResponseLostError("lost"), when="after", times=9
    )
    await rig.items.transact([Put(item(number), ABSENT) for number in range(40)], "token")
    assert rig.counter.requests.as_dict() == {"table": {"BatchGetItem": 8, "TransactWriteItems": 4}}


async def test_what_a_batch_leaves_out_is_asked_for_as_long_as_some_comes() -> None:
    """Twenty rounds of five keys, with a policy of two attempts."""
    rig = await Rig(Retries.alike(RetryPolicy(attempts=2)), most=5).start()
    for number in range(100):
        await rig.table.write(Put(item(number), ABSENT))
    found = await rig.items.get_many([key(number) for number in range(100)])
    assert found == {key(number): item(number) for number in range(100)}
    assert rig.table.batches == list(range(100, 0, -5))


async def test_a_batch_of_which_nothing_comes_is_throttled() -> None:
    rig = await Rig(most=0).start()
    with pytest.raises(ThrottledError) as caught:
        await rig.items.get_many([key(1), key(2)])
    assert type(caught.value) is ThrottledError
    assert rig.counts() == [("BatchGetItem", 4, 3)]


async def test_a_deletion_is_divided_and_what_was_refused_for_the_moment_is_sent_again() -> None:
    rig = await Rig(limit=8).start()
    keys = [f"k{number}" for number in range(2500)]
    for name in keys:
        await rig.bucket.put(name, b"")
    rig.plan.calls.clear()
    rig.plan.refuse("k1700", SLOW)

    async def relent(_: object) -> None:
        if len(rig.plan.calls) == 5:
            rig.plan._refused.clear()

    rig.plan.gate = relent
    assert await rig.blobs.delete_many(keys) == []
    assert (await rig.bucket.list()).blobs == []
    assert rig.counts() == [("DeleteObjects", 5, 2)]
    assert rig.limit.limit < 8


async def test_what_is_refused_for_good_is_told() -> None:
    rig = await Rig().start()
    rig.plan.refuse("a", SLOW)
    (failure,) = await rig.blobs.delete_many(["a", "b"])
    assert (failure.key, failure.error) == ("a", SLOW)
    assert rig.counts() == [("DeleteObjects", 4, 3)]


# Counting


async def test_operations_have_the_services_names() -> None:
    rig = await Rig().start()
    await rig.items.write(Put(item(1), ABSENT))
    await rig.items.write(Update(key(1), Condition(), {"op": "more"}))
    await rig.items.get(key(1))
    await rig.items.query("p")
    await rig.items.scan(0, 1)
    await rig.items.write(Delete(key(1), Condition()))
    await rig.items.transact([Put(item(2), ABSENT)], "token")
    await rig.blobs.put("a", b"four")
    await rig.blobs.get("a", 1, 3)
    await rig.blobs.head("a")
    await rig.blobs.copy(rig.blobs, "a", "b")
    await rig.blobs.list()
    upload = await rig.blobs.start_upload("c")
    await upload.put_part(1, b"five5")
    await upload.copy_part(2, rig.blobs, "a", 1, 3)
    await upload.complete()
    await rig.blobs.start_upload("d")
    await rig.blobs.delete("a")
    await rig.blobs.delete_many(["b", "c"])
    assert rig.counter.requests.counts == (
        Count("table", "GetItem", 1),
        Count("table", "PutItem", 1),
        Count("table", "Query", 1),
        Count("table", "Scan", 1),
        Count("table", "TransactWriteItems", 2),
        Count("table", "UpdateItem", 1),
        Count("data", "CompleteMultipartUpload", 1),
        Count("data", "CopyObject", 1),
        Count("data", "CreateMultipartUpload", 2),
        Count("data", "DeleteObject", 1),
        Count("data", "DeleteObjects", 1),
        Count("data", "GetObject", 1, bytes=2),
        Count("data", "HeadObject", 2),
        Count("data", "ListObjectsV2", 1),
        Count("data", "PutObject", 1, bytes=4),
        Count("data", "UploadPart", 1, bytes=5),
        Count("data", "UploadPartCopy", 1),
    )
    assert rig.counter.requests.total == len(rig.plan.calls)


async def test_requests_that_resolve_a_lost_answer_are_counted() -> None:
    rig = await Rig().start()
    rig.plan.fail_when(
        lambda call: call.method == "write", ResponseLostError("lost"), when="after", times=9
    )
    await rig.items.write(Put(item(1), ABSENT))
    assert rig.counts() == [("BatchGetItem", 1, 0), ("PutItem", 4, 3)]


# Policies and the budget


async def test_reads_writes_and_pages_have_policies_of_their_own() -> None:
    retries = Retries(RetryPolicy(attempts=2), RetryPolicy(attempts=3), RetryPolicy(attempts=5))
    rig = await Rig(retries).start()
    rig.plan.fail_when(lambda _: True, SLOW, times=10**6)
    for call in (
        rig.items.get(key(1)),
        rig.items.write(Put(item(1), ABSENT)),
        rig.items.query("p"),
        rig.items.scan(0, 1),
        rig.blobs.head("a"),
        rig.blobs.put("a", b""),
        rig.blobs.list(),
    ):
        with pytest.raises(ThrottledError):
            await call
    assert {operation: requests for operation, requests, _ in rig.counts()} == {
        "GetItem": 2,
        "PutItem": 3,
        "Query": 5,
        "Scan": 5,
        "HeadObject": 2,
        "PutObject": 3,
        "ListObjectsV2": 5,
    }


async def test_a_long_scan_is_not_ended_by_throttling_here_and_there() -> None:
    """Each of a hundred pages is throttled once: many times what one page may be."""
    rig = await Rig(Retries.alike(RetryPolicy(attempts=2))).start()
    for number in range(100):
        await rig.table.write(Put(item(number), ABSENT))
    rig.plan.calls.clear()
    rig.plan.fail_when(
        lambda call: call.method == "scan" and call.number % 2 == 1, SLOW, times=10**6
    )
    seen, cursor = 0, None
    while True:
        page = await rig.items.scan(0, 1, cursor=cursor, limit=1)
        seen += len(page.items)
        cursor = page.next
        if cursor is None:
            break
    assert seen == 100
    assert rig.counts() == [("Scan", 200, 100)]


def spent(account: RetryAccount, error: ThrottledError | TransactionConflictError = SLOW) -> int:
    """How often in a row the account pays."""
    times = 0
    while times < 10_000 and account.spend(error):
        times += 1
    return times


def test_the_budget_is_a_share_of_the_requests_and_a_rate() -> None:
    clock = FakeClock()
    account = RetryAccount(RetryBudget(share=0.25, burst=10, rate=2), fake_runtime(clock))
    assert spent(account) == 10
    for _ in range(12):
        account.earn()
    assert spent(account) == 3
    clock.advance(2.0)
    assert spent(account) == 4
    clock.advance(1000.0)
    assert spent(account) == 10


def test_conflicts_cost_nothing() -> None:
    account = RetryAccount(RetryBudget(share=0, burst=0, rate=0), fake_runtime())
    assert spent(account) == 0
    assert spent(account, TransactionConflictError("conflict")) == 10_000


NOTHING = Retries(budget=RetryBudget(share=0, burst=0, rate=0))


@pytest.mark.parametrize(
    "error", [SLOW, UnreachableError("refused")], ids=lambda error: type(error).__name__
)
async def test_without_a_budget_the_first_error_is_the_last(error: Exception) -> None:
    rig = await Rig(NOTHING).start()
    rig.plan.fail_when(lambda _: True, error, times=10**6)
    for call in (
        rig.items.get(key(1)),
        rig.items.write(Put(item(1), ABSENT)),
        rig.blobs.put("a", b"", if_absent=True),
    ):
        with pytest.raises(type(error)):
            await call
    assert len(rig.plan.calls) == 3
    assert rig.clock.sleeps == []


async def test_without_a_budget_a_lost_answer_is_resolved_all_the_same() -> None:
    rig = await Rig(NOTHING).start()
    rig.plan.fail_when(
        lambda call: call.method in ("write", "put"),
        ResponseLostError("lost"),
        when="after",
        times=2,
    )
    await rig.items.write(Put(item(1), ABSENT))
    await rig.blobs.put("a", b"ours", if_absent=True)
    assert await rig.table.get(key(1)) == item(1)
    rig.plan.fail_when(lambda call: call.key == "p/0002", ResponseLostError("lost"), times=10**6)
    with pytest.raises(OutcomeUnknownError):
        await rig.items.write(Put(item(2), ABSENT))
    rig.plan.fail_when(lambda call: call.method == "get", ResponseLostError("lost"), times=1)
    with pytest.raises(RequestTimeoutError):
        await rig.items.get(key(1))


async def test_a_service_that_is_down_is_not_asked_for_ever() -> None:
    """A thousand reads, each allowed ten attempts, make a few more than a thousand requests."""
    rig = await Rig(Retries(budget=RetryBudget(share=0.125, burst=50, rate=0))).start()
    rig.plan.fail_when(lambda _: True, UnreachableError("refused"), times=10**6)
    for number in range(1000):
        with pytest.raises(UnreachableError):
            await rig.items.get(key(number))
    assert rig.counts() == [("GetItem", 1174, 174)]


# The limit


async def test_throttling_lowers_the_limit_and_success_raises_it() -> None:
    rig = await Rig(limit=8).start()
    rig.plan.fail(1, SLOW)
    await rig.items.get(key(1))
    assert rig.limit.limit == 4
    rig.plan.fail(3, ResponseLostError("lost"))
    for _ in range(30):
        await rig.items.get(key(1))
    assert rig.limit.limit == 8


# The fence


class OpenedFence:
    """A fence that is looked at before and after every request, as often as `refusals` last."""

    def __init__(self, *refusals: S3kError | None) -> None:
        self.refusals = list(refusals)
        self.is_late = False

    def due(self) -> bool:
        return not self.is_late

    def late(self) -> bool:
        return self.is_late

    async def look(self) -> None:
        refusal = self.refusals.pop(0) if self.refusals else None
        if refusal is not None:
            raise refusal


async def test_a_fence_stops_a_request_before_it_is_counted_and_gives_its_slot_back() -> None:
    rig = await Rig().start()
    rig.items.fence(OpenedFence(BusyError("locked")))
    with pytest.raises(BusyError):
        await rig.items.get(key(1))
    assert not rig.counter.requests
    assert not rig.plan.calls
    assert (rig.limit.in_flight, rig.limit.limit) == (0, 32)


async def test_a_fence_that_cannot_be_read_for_now_is_read_again() -> None:
    rig = await Rig().start()
    rig.items.fence(OpenedFence(SLOW, UnreachableError("no route")))
    assert await rig.items.get(key(1)) is None
    assert rig.counts() == [("GetItem", 1, 1)]
    assert rig.limit.in_flight == 0
    assert rig.limit.limit == 16  # throttling of the fence is throttling of the table


@pytest.mark.parametrize("is_refused", [False, True])
async def test_an_answer_that_comes_late_through_a_closed_fence_is_no_answer(
    is_refused: bool,
) -> None:
    rig = await Rig(NOTHING).start()
    if is_refused:
        await rig.table.write(Put(item(1), ABSENT))
    fence = OpenedFence(*[BusyError("locked")] * 9)
    fence.is_late = True
    rig.items.fence(fence)
    # What a failed condition changed is known, so the error of the fence itself is raised.
    expected: type[S3kError] = BusyError if is_refused else OutcomeUnknownError
    with pytest.raises(expected):
        await rig.items.write(Put(item(1), ABSENT))
    assert rig.limit.in_flight == 0


@pytest.mark.parametrize("verb", ["put", "put if absent", "get", "copy", "write"])
async def test_a_request_that_took_long_before_it_failed_is_sent_again(verb: str) -> None:
    """The policy counts from the first failure: an upload over a slow link, or a long wait for a
    turn, is no attempt more."""
    rig = Rig(Retries.alike(RetryPolicy(attempts=4, deadline=10.0)))
    await rig.start()
    await rig.blobs.put("there", b"bytes")

    async def slow(call: object) -> None:
        rig.plan.gate = None
        rig.clock.advance(60.0)
        raise SLOW

    rig.plan.gate = slow
    match verb:
        case "put":
            await rig.blobs.put("new", b"bytes")
        case "put if absent":
            await rig.blobs.put("new", b"bytes", if_absent=True)
        case "get":
            assert await rig.blobs.get("there") == b"bytes"
        case "copy":
            await rig.blobs.copy(rig.blobs, "there", "new")
        case _:
            await rig.items.write(Put({"path": "p", "children": "c", "op": "o"}, ABSENT))
    assert rig.plan.gate is None
