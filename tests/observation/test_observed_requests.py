"""Each attempt at a request is observed, with its retries, throttling, partitions and queue."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import replace

import pytest

from s3k_async._core.metering import Requests
from s3k_async._core.metric_totals import Histogram, MetricTotals, TotalsSnapshot
from s3k_async._core.observation import RequestAttempt, RequestResult, VerbCall, VerbResult
from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async.backends.aws.error_responses import dynamodb_refusal
from s3k_async.backends.ports.items import (
    ABSENT,
    Check,
    Delete,
    Key,
    UnprocessedKeysError,
    throttled_partitions,
)
from s3k_async.errors import PathExistsError, ThrottledError
from s3k_async.testing import Call, FaultPlan
from s3k_async.volumes import init_volume
from tests.client.rig import TUNING, memory_config
from tests.observation.recorder import Recorder, observed_client
from tests.support import fork_and_run

SLOW = ThrottledError("slow down")


async def test_requests_are_those_that_reach_the_engines() -> None:
    """Injected failures included: one attempt, one call of an engine, one observation."""
    recorder, faults = Recorder(), FaultPlan()
    async with observed_client(recorder, faults) as client:
        for number in (2, 4, 7):
            faults.fail(number, ThrottledError("slow down"))
        opening = client.requests
        recorder.clear()
        await client.write("/d/f", b"data")
        await client.read("/d/f")
        assert [each.path async for each in client.list("/d")] == ["/d/f"]
        await client._volume().log.drained()
        assert len(recorder.requests) == len(faults.calls)
        counted = client.requests - opening
        assert counted.total == len(faults.calls)
        retries = sum(request.is_retry for request, _ in recorder.requests)
        assert retries == counted.retries == 3
        assert sum(result.throttled for _, result in recorder.requests) == 3


async def test_a_throttled_request_names_its_partition() -> None:
    recorder, faults = Recorder(), FaultPlan()
    async with observed_client(recorder, faults) as client:
        await client.write("/d/f", b"data")
        for method in ("get", "query", "get_many", "write", "transact"):
            recorder.clear()
            faults.calls.clear()
            faults.fail_when(lambda call, method=method: call.method == method, SLOW)  # type: ignore[misc]
            await client.stat("/d/f")
            await client.write("/d/f", b"more")
            assert len([each async for each in client.list("/d")]) == 1
            await client.rename("/d/f", "/d/g")
            await client.rename("/d/g", "/d/f")
            ((request, result),) = [each for each in recorder.requests if each[1].throttled]
            assert result.error is SLOW
            assert not request.is_retry
            assert result.partitions, method
            for partition in result.partitions:
                assert partition.startswith(f"ks://{client.name}/"), method
                assert "/d/f" not in partition
        assert recorder.requests[0][1].partitions == ()


def test_of_many_keys_those_are_named_that_were_throttled() -> None:
    keys = [Key("a", "1"), Key("b", "1"), Key("a", "2"), Key("c", "1")]
    assert throttled_partitions(keys, SLOW) == ("a", "b", "c")
    left = UnprocessedKeysError("slow down", path="t", found={}, left=keys[1:2])
    assert throttled_partitions(keys, left) == ("b",)
    assert throttled_partitions("partition", SLOW) == ("partition",)
    assert throttled_partitions(keys[0], None) == ("a",)
    some = ThrottledError("slow down")
    some.positions = [3, 0]
    assert throttled_partitions([Delete(key, ABSENT) for key in keys], some) == ("c", "a")
    assert throttled_partitions([Check(keys[1], ABSENT)], SLOW) == ("b",)
    assert throttled_partitions([{"path": "p", "children": "c"}], SLOW) == ("p",)


async def test_time_in_the_queue_is_no_part_of_a_request() -> None:
    """With one slot the second request waits for the first, which is held for a while."""
    released = asyncio.Event()

    async def gate(call: Call) -> None:
        if call.number == 1:
            await released.wait()

    recorder, faults = Recorder(), FaultPlan()
    config = replace(memory_config(), tuning=replace(TUNING, max_concurrency=1))
    await init_volume(config)
    async with observed_client(recorder, faults, config=config) as client:
        recorder.clear()
        faults.gate = gate
        tasks = [asyncio.create_task(client.exists(f"/{number}")) for number in range(2)]
        await asyncio.sleep(0.1)
        assert len(recorder.sent) == 1
        released.set()
        await asyncio.gather(*tasks)
        (first, slow), (second, fast) = recorder.requests
    assert first.queued == 0.0
    assert second.queued > fast.seconds
    assert slow.seconds > fast.seconds


async def test_a_refused_condition_is_an_error_by_its_class() -> None:
    recorder, faults = Recorder(), FaultPlan()
    async with observed_client(recorder, faults) as client:
        await client.write("/f", b"")
        recorder.clear()
        with pytest.raises(PathExistsError):
            await client.write("/f", b"", overwrite=False)
        assert [result.outcome for _, result in recorder.verbs] == ["error"]


# Totals


def ended(totals: MetricTotals, seconds: float, partition: str = "") -> None:
    request = RequestAttempt("v", "table", "GetItem", False, False, seconds / 2, None)
    partitions = (partition,) if partition else ()
    result = RequestResult("success", None, seconds, 1, 2, bool(partition), partitions)
    totals.request_ended(request, result, totals.request_started(request, None))
    verb = VerbCall("v", "stat", "/f", "id")
    totals.verb_ended(
        verb, VerbResult("success", None, seconds, Requests()), totals.verb_started(verb)
    )


def test_totals_of_several_threads_are_exact() -> None:
    totals = MetricTotals()

    def work() -> None:
        for _ in range(2000):
            ended(totals, 0.003)
            totals.event("v", "conflict")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        totals.snapshot()
    for thread in threads:
        thread.join()
    found = totals.snapshot()
    (requests,) = found.requests.values()
    assert requests.latency.count == found.verbs["v", "stat", ""].count == 8000
    assert (requests.sent, requests.received) == (8000, 16000)
    assert found.events == {("v", "conflict"): 8000}
    assert requests.latency.sum == pytest.approx(24.0)


def test_quantiles_are_upper_bounds() -> None:
    histogram = Histogram((1.0, 2.0, 4.0))
    assert histogram.quantile(0.5) == 0.0
    for value in (0.5, 1.0, 1.5, 3.0, 100.0):
        histogram.add(value)
    assert histogram.buckets == [2, 1, 1, 1]
    assert [histogram.quantile(share) for share in (0.0, 0.4, 0.5, 0.8, 1.0)] == [1, 1, 2, 4, 4]


def test_the_hottest_partitions_are_kept_in_bounded_memory() -> None:
    totals = TotalsSnapshot((1.0,))
    for number in range(5000):
        totals.add_partition(f"cold-{number}", 1)
        totals.add_partition("hot", 1)
    assert len(totals.partitions) == 64
    assert max(totals.partitions, key=totals.partitions.__getitem__) == "hot"
    assert totals.partitions["hot"] == 5000


def test_a_forked_child_has_totals_of_its_own() -> None:
    """While a thread of the parent adds to its totals: no lock is inherited."""
    config = memory_config()
    asyncio.run(init_volume(config))
    totals = MetricTotals()
    with S3kSyncClient(config=config, metrics=totals) as fs:
        fs.write("/f", b"data")
        before = totals.snapshot().verbs
        ongoing = threading.Event()

        def busy() -> None:
            while not ongoing.is_set():
                ended(totals, 0.001)

        thread = threading.Thread(target=busy)
        thread.start()

        def child() -> None:
            assert totals.snapshot().verbs == {}
            assert fs.read("/f") == b"data"
            assert fs.exists("/missing") is False
            found = totals.snapshot().verbs
            assert {verb: each.count for (_, verb, _), each in found.items()} == {
                "read": 1,
                "exists": 1,
            }

        code = fork_and_run(child)
        ongoing.set()
        thread.join()
        assert code == 0
        after = totals.snapshot().verbs
        assert (config.name, "read", "") not in after
        assert after[config.name, "write", ""].count == before[config.name, "write", ""].count == 1


def test_a_throttled_transaction_names_its_throttled_actions() -> None:
    answer = {
        "__type": "TransactionCanceledException",
        "CancellationReasons": [{"Code": "None"}, {"Code": "ThrottlingError"}],
    }
    error = dynamodb_refusal(json.dumps(answer).encode(), 400, path="t")
    assert isinstance(error, ThrottledError)
    assert error.positions == [1]
