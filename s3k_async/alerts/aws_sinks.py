"""Alerts in AWS: messages of SQS and SNS, and metrics of CloudWatch.

Limits as in the API references: 10 messages and 256 KiB in a batch of SQS and of SNS, 1,000 metrics
in a request of CloudWatch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from s3k_async._core.retry import TRANSIENT
from s3k_async.alerts.alert import Alert
from s3k_async.alerts.sink_address import SinkAddress
from s3k_async.backends.aws.error_mapping import map_exceptions
from s3k_async.backends.aws.error_responses import service_error
from s3k_async.backends.aws.session import AwsClient, Service
from s3k_async.config import AwsConfig
from s3k_async.errors import S3kError, ServiceError

__all__ = ["CloudWatchSink", "SnsSink", "SqsSink", "alert_client", "batches"]

_BATCH: Final = 10
_BYTES: Final = 240 * 1024
_METRICS: Final = 1000


def alert_client(service: Service, address: SinkAddress, aws: AwsConfig) -> AwsClient:
    """The client of a service, in the region that the address names, else in that of the
    settings."""
    return AwsClient(service, replace(aws, region=address.region or aws.region))


@dataclass(frozen=True, slots=True)
class _Message:
    """An alert in a batch."""

    id: str
    """Identifies it in the answer."""
    kind: str
    text: str

    @property
    def attributes(self) -> dict[str, dict[str, str]]:
        """The attributes of a message of SQS or SNS."""
        return {"kind": {"DataType": "String", "StringValue": self.kind}}


class SqsSink:
    """Sends each alert as a message to a queue, with the attribute `kind`."""

    def __init__(self, address: SinkAddress, aws: AwsConfig) -> None:
        self._address = address
        self._client = alert_client("sqs", address, aws)
        self._delivery = _Delivery(address)

    async def send(self, alerts: Sequence[Alert]) -> None:
        """As `AlertSink.send`."""
        client = await self._client.get()

        async def one(messages: Sequence[_Message]) -> Any:
            bodies = [
                {
                    "Id": each.id,
                    "MessageBody": each.text,
                    "MessageAttributes": each.attributes,
                }
                for each in messages
            ]
            return await client.send_message_batch(QueueUrl=self._address.target, Entries=bodies)

        await self._delivery.send(alerts, one)

    async def close(self) -> None:
        """As `AlertSink.close`."""
        await self._client.close()


class SnsSink:
    """Publishes each alert to a topic, with a subject for subscriptions by mail and the attribute
    `kind`, by which subscriptions can filter."""

    def __init__(self, address: SinkAddress, aws: AwsConfig) -> None:
        self._address = address
        self._client = alert_client("sns", address, aws)
        self._delivery = _Delivery(address)

    async def send(self, alerts: Sequence[Alert]) -> None:
        """As `AlertSink.send`."""
        client = await self._client.get()

        async def one(messages: Sequence[_Message]) -> Any:
            bodies = [
                {
                    "Id": each.id,
                    "Message": each.text,
                    "Subject": f"s3k alert: {each.kind}",
                    "MessageAttributes": each.attributes,
                }
                for each in messages
            ]
            return await client.publish_batch(
                TopicArn=self._address.target, PublishBatchRequestEntries=bodies
            )

        await self._delivery.send(alerts, one)

    async def close(self) -> None:
        """As `AlertSink.close`."""
        await self._client.close()


class CloudWatchSink:
    """Writes one metric for each kind of alert, such as `missing`: the number of findings, with the
    dimension `Volume`."""

    def __init__(self, address: SinkAddress, aws: AwsConfig) -> None:
        self._address = address
        self._client = alert_client("cloudwatch", address, aws)

    async def send(self, alerts: Sequence[Alert]) -> None:
        """As `AlertSink.send`."""
        client = await self._client.get()
        counts: Counter[tuple[str, str]] = Counter()
        for alert in alerts:
            counts[alert.volume, alert.kind] += alert.count
        metrics = [
            {
                "MetricName": kind,
                "Dimensions": [{"Name": "Volume", "Value": _dimension(volume)}],
                "Timestamp": alerts[0].time_ms / 1000,
                "Value": count,
                "Unit": "Count",
            }
            for (volume, kind), count in sorted(counts.items())
        ]
        for start in range(0, len(metrics), _METRICS):
            with map_exceptions(str(self._address), writing=True):
                answer = await client.put_metric_data(
                    Namespace=self._address.target, MetricData=metrics[start : start + _METRICS]
                )
            if not answer["ResponseMetadata"].get("RequestId"):
                raise ServiceError(
                    "the answer is not that of CloudWatch: check alerts_endpoint",
                    path=str(self._address),
                )

    async def close(self) -> None:
        """As `AlertSink.close`."""
        await self._client.close()


def _dimension(volume: str) -> str:
    """The value of a dimension: printable ASCII, not empty, and not beginning with a colon."""
    text = "".join(each if " " <= each <= "~" else "?" for each in volume)
    return text.lstrip(": ") or "?"


def batches(texts: Sequence[str]) -> Iterator[range]:
    """The indexes of the ASCII texts in each batch."""
    start = size = 0
    for index, text in enumerate(texts):
        if index > start and (index - start == _BATCH or size + len(text) > _BYTES):
            yield range(start, index)
            start, size = index, 0
        size += len(text)
    if start < len(texts):
        yield range(start, len(texts))


class _Delivery:
    """Delivery of alerts in batches. A retried call omits messages that were already accepted."""

    def __init__(self, address: SinkAddress) -> None:
        self._address = address
        self._accepted: set[str] = set()

    async def send(
        self,
        alerts: Sequence[Alert],
        request: Callable[[Sequence[_Message]], Awaitable[Mapping[str, Any]]],
    ) -> None:
        """Send all batches, then raise an error for a rejected message: a permanent rejection must
        not delay the other messages. A rejection that a retry may resolve takes precedence."""
        left = [(each.kind, text) for each in alerts if (text := each.json()) not in self._accepted]
        refusals: list[S3kError] = []
        for batch in batches([text for _, text in left]):
            messages = [_Message(str(index), *left[index]) for index in batch]
            with map_exceptions(str(self._address), writing=True):
                answer = await request(messages)
            accepted = {each["Id"] for each in answer.get("Successful", ())}
            self._accepted |= {each.text for each in messages if each.id in accepted}
            refusals += _refusals(self._address, {each.id for each in messages}, answer)
        if refusals:
            raise next((each for each in refusals if isinstance(each, TRANSIENT)), refusals[0])


def _refusals(address: SinkAddress, sent: set[str], answer: Mapping[str, Any]) -> list[S3kError]:
    """The rejections of messages in a batch."""
    failed = list(answer.get("Failed", ()))
    told = {each["Id"] for each in (*answer.get("Successful", ()), *failed)}
    found: list[S3kError] = [
        service_error(each["Code"], each.get("Message", ""), path=str(address)) for each in failed
    ]
    if told != sent and not found:
        text = "the answer does not list all messages: check alerts_endpoint"
        found.append(ServiceError(text, path=str(address)))
    return found
