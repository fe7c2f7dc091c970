"""Alerts in moto's SQS, SNS and CloudWatch: what is sent, what comes back, and refusals."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from s3k_async._core.runtime import SYSTEM
from s3k_async.alerts.alert import AlertOrigin, AlertSource
from s3k_async.alerts.alert_queue import AlertQueue
from s3k_async.alerts.dispatch import send_alerts
from s3k_async.alerts.sink_address import SinkAddress
from s3k_async.backends.aws.session import AwsClient
from s3k_async.config import AlertSettings, Secret
from s3k_async.errors import BusyError, InvalidArgumentError, RequestTimeoutError, ServiceError
from tests.engines.process import Engine
from tests.proxy import Answer, FaultProxy

SOURCE = AlertSource("gc", "v", AlertOrigin("host", "user"))
ALERTS = [
    SOURCE.alert("missing" if number % 2 else "orphan", "data_missing", number, ["/é"])
    for number in range(1, 13)
]


@pytest.fixture
async def sqs(moto_s3: Engine) -> AsyncIterator[Any]:
    client = AwsClient("sqs", moto_s3.aws())
    yield await client.get()
    await client.close()


@pytest.fixture
async def queue(sqs: Any) -> str:
    answer = await sqs.create_queue(QueueName=f"alerts-{SYSTEM.uuid()}")
    return str(answer["QueueUrl"])


def settings(moto: Engine, sinks: str, endpoint: str | None = None) -> AlertSettings:
    aws = moto.aws()
    aws = replace(aws, endpoint=endpoint or aws.endpoint)
    return AlertSettings(Secret(sinks), aws, on_error="error", on_timeout="error")


async def drained(moto: Engine, url: str) -> list[Any]:
    found: list[Any] = []
    async with AlertQueue(SinkAddress("sqs", url), moto.aws()) as queue:
        async for batch in queue.batches():
            found += batch.documents
            await batch.delete()
    return found


async def test_messages_of_a_queue_are_read_once(moto_s3: Engine, sqs: Any, queue: str) -> None:
    await send_alerts(settings(moto_s3, f"sqs:{queue}"), ALERTS)
    await sqs.send_message(QueueUrl=queue, MessageBody="not JSON")
    answer = await sqs.receive_message(
        QueueUrl=queue, MessageAttributeNames=["All"], VisibilityTimeout=0
    )
    assert answer["Messages"][0]["MessageAttributes"]["kind"]["StringValue"] == "missing"
    found = await drained(moto_s3, queue)
    assert found.pop() == {"body": "not JSON"}
    assert found == [alert.message() for alert in ALERTS]
    assert await drained(moto_s3, queue) == []


async def test_a_queue_is_purged(moto_s3: Engine, queue: str) -> None:
    await send_alerts(settings(moto_s3, f"sqs:{queue}"), ALERTS)
    async with AlertQueue(SinkAddress("sqs", queue), moto_s3.aws()) as opened:
        assert await opened.count() == len(ALERTS)
        await opened.purge()
        assert await opened.count() == 0
    assert await drained(moto_s3, queue) == []


async def test_a_topic_passes_alerts_to_its_subscribers(
    moto_s3: Engine, sqs: Any, queue: str
) -> None:
    own = AwsClient("sns", moto_s3.aws())
    sns = await own.get()
    topic = (await sns.create_topic(Name="alerts"))["TopicArn"]
    attributes = await sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])
    await sns.subscribe(
        TopicArn=topic,
        Protocol="sqs",
        Endpoint=attributes["Attributes"]["QueueArn"],
        Attributes={"FilterPolicy": json.dumps({"kind": ["orphan"]})},
    )
    await own.close()
    await send_alerts(settings(moto_s3, f"sns:{topic}"), ALERTS)
    envelopes = await drained(moto_s3, queue)
    assert {each["Subject"] for each in envelopes} == {"s3k alert: orphan"}
    found = [json.loads(each["Message"]) for each in envelopes]
    assert found == [alert.message() for alert in ALERTS if alert.kind == "orphan"]


async def test_findings_are_counted_by_a_metric_of_each_kind(moto_s3: Engine) -> None:
    namespace = f"S3k/{SYSTEM.uuid()}"
    await send_alerts(settings(moto_s3, f"cloudwatch:{namespace}"), ALERTS)
    own = AwsClient("cloudwatch", moto_s3.aws())
    cloudwatch = await own.get()
    found = (await cloudwatch.list_metrics(Namespace=namespace))["Metrics"]
    assert sorted((each["MetricName"], each["Dimensions"][0]["Value"]) for each in found) == [
        ("missing", "v"),
        ("orphan", "v"),
    ]
    at = ALERTS[0].time_ms / 1000
    counted = await cloudwatch.get_metric_statistics(
        Namespace=namespace,
        MetricName="missing",
        Dimensions=[{"Name": "Volume", "Value": "v"}],
        StartTime=at - 3600,
        EndTime=at + 3600,
        Period=7200,
        Statistics=["Sum"],
    )
    await own.close()
    assert [each["Sum"] for each in counted["Datapoints"]] == [1 + 3 + 5 + 7 + 9 + 11]


@pytest.mark.parametrize(("name", "value"), [("./v\u00f6l\n", "./v?l?"), (":", "?")])
async def test_a_volume_without_a_name_has_a_dimension(
    moto_s3: Engine, name: str, value: str
) -> None:
    namespace = f"S3k/{SYSTEM.uuid()}"
    source = AlertSource("gc", name, AlertOrigin())
    sink = settings(moto_s3, f"cloudwatch:{namespace}")
    await send_alerts(sink, [source.alert("orphan", "unpublished", 1)])
    own = AwsClient("cloudwatch", moto_s3.aws())
    found = (await (await own.get()).list_metrics(Namespace=namespace))["Metrics"]
    await own.close()
    assert [each["Dimensions"][0]["Value"] for each in found] == [value]


async def test_a_queue_that_is_missing_is_a_named_error(moto_s3: Engine, queue: str) -> None:
    with pytest.raises(ServiceError, match=r"NonExistent|QueueDoesNotExist"):
        await send_alerts(settings(moto_s3, f"sqs:{queue}-gone"), ALERTS)


@pytest.mark.parametrize("scheme", ["sqs", "sns", "cloudwatch"])
async def test_an_answer_of_something_else_is_no_success(moto_s3: Engine, scheme: str) -> None:
    target = {
        "sqs": "http://127.0.0.1/1/q",
        "sns": "arn:aws:sns:us-east-1:123456789012:t",
        "cloudwatch": "N",
    }[scheme]
    async with FaultProxy() as proxy:
        proxy.rule(Answer(200, b"{}"))
        with pytest.raises((ServiceError, RequestTimeoutError)):
            await send_alerts(settings(moto_s3, f"{scheme}:{target}", proxy.url), ALERTS)
        assert proxy.calls


async def test_a_batch_that_was_refused_in_part_is_sent_again(moto_s3: Engine, queue: str) -> None:
    failed = {"Id": "0", "Code": "ThrottlingException", "SenderFault": False}
    async with FaultProxy(moto_s3.endpoint) as proxy:
        proxy.rule(
            Answer(
                200,
                json.dumps({"Successful": [], "Failed": [failed]}).encode(),
                {"Content-Type": "application/x-amz-json-1.0"},
            ),
            target="SendMessageBatch",
            times=1,
        )
        await send_alerts(settings(moto_s3, f"sqs:{queue}", proxy.url), ALERTS)
        assert proxy.count(target="SendMessageBatch") == 3
    assert len(await drained(moto_s3, queue)) == len(ALERTS)


async def test_a_message_that_is_refused_for_good_does_not_hold_up_others(
    moto_s3: Engine, queue: str
) -> None:
    failed = {"Id": "0", "Code": "InvalidMessageContents", "SenderFault": True}
    body = json.dumps({"Successful": [], "Failed": [failed]}).encode()
    async with FaultProxy(moto_s3.endpoint) as proxy:
        answer = Answer(200, body, {"Content-Type": "application/x-amz-json-1.0"})
        proxy.rule(answer, target="SendMessageBatch", times=1)
        with pytest.raises(ServiceError, match="InvalidMessageContents"):
            await send_alerts(settings(moto_s3, f"sqs:{queue}", proxy.url), ALERTS)
        assert proxy.count(target="SendMessageBatch") == 2
    found = await drained(moto_s3, queue)
    assert found == [alert.message() for alert in ALERTS[10:]]


async def test_a_message_that_is_refused_for_good_does_not_prevent_repetitions(
    moto_s3: Engine, queue: str
) -> None:
    failed = [
        {"Id": "0", "Code": "InvalidMessageContents", "SenderFault": True},
        {"Id": "1", "Code": "ThrottlingException", "SenderFault": False},
    ]
    body = json.dumps({"Successful": [], "Failed": failed}).encode()
    async with FaultProxy(moto_s3.endpoint) as proxy:
        answer = Answer(200, body, {"Content-Type": "application/x-amz-json-1.0"})
        proxy.rule(answer, target="SendMessageBatch", times=1)
        await send_alerts(settings(moto_s3, f"sqs:{queue}", proxy.url), ALERTS[:2])
        assert proxy.count(target="SendMessageBatch") == 2
    assert await drained(moto_s3, queue) == [alert.message() for alert in ALERTS[:2]]


async def test_a_second_purge_is_busy(moto_s3: Engine, queue: str) -> None:
    kind = "com.amazonaws.sqs#PurgeQueueInProgress"
    body = json.dumps({"__type": kind, "message": "wait"}).encode()
    async with FaultProxy(moto_s3.endpoint) as proxy:
        code = "AWS.SimpleQueueService.PurgeQueueInProgress;Sender"
        proxy.rule(Answer(403, body, {"x-amzn-query-error": code}), target="PurgeQueue")
        aws = replace(moto_s3.aws(), endpoint=proxy.url)
        async with AlertQueue(SinkAddress("sqs", queue), aws) as opened:
            with pytest.raises(BusyError, match="60 s"):
                await opened.purge()


async def test_only_queues_are_read(moto_s3: Engine) -> None:
    with pytest.raises(InvalidArgumentError, match="sqs:QUEUE-URL"):
        AlertQueue(SinkAddress("log"), moto_s3.aws())
