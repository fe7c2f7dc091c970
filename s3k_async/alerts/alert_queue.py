"""Reading and emptying a queue of alerts."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from types import TracebackType
from typing import Any, Final, Self

from s3k_async._core.retry import RetryPolicy, retry
from s3k_async._core.runtime import SYSTEM
from s3k_async.alerts.aws_sinks import alert_client
from s3k_async.alerts.sink_address import SinkAddress
from s3k_async.backends.aws.error_mapping import map_exceptions
from s3k_async.backends.aws.error_responses import Codes, service_error
from s3k_async.config import AwsConfig
from s3k_async.errors import BusyError, InvalidArgumentError, PathNotFoundError

__all__ = ["AlertQueue", "QueueBatch"]

_BATCH: Final = 10
_WAIT_SECONDS: Final = 1
"""Long polling asks all servers of the queue; a short poll may find nothing in a full queue."""
_RETRIES: Final = RetryPolicy(attempts=4, base=0.2)
_PURGED: Final = (BusyError, "the queue was purged less than 60 s ago; try again later")
_MISSING: Final = (PathNotFoundError, "no such queue")
_CODES: Final[Codes] = {
    "AWS.SimpleQueueService.NonExistentQueue": _MISSING,
    "AWS.SimpleQueueService.PurgeQueueInProgress": _PURGED,
    "PurgeQueueInProgress": _PURGED,
    "QueueDoesNotExist": _MISSING,
}


class QueueBatch:
    """Received messages: `documents`, and `delete` to remove them from the queue."""

    def __init__(self, queue: AlertQueue, messages: Sequence[dict[str, Any]]) -> None:
        self._queue = queue
        self._messages = messages
        self.documents = [_document(str(each["Body"])) for each in messages]
        """The messages as JSON; one that is not JSON is `{"body": text}`."""

    async def delete(self) -> None:
        """Remove the messages. Raises the errors of the queue."""
        await self._queue.delete([str(each["ReceiptHandle"]) for each in self._messages])


class AlertQueue:
    """A queue of SQS, an async context manager. Raises InvalidArgumentError for another sink.

    Its errors: PathNotFoundError (no such queue), ThrottledError, UnreachableError,
    PermissionDeniedError, CredentialsError, RequestTimeoutError, ServiceError, ConfigError.
    """

    def __init__(self, address: SinkAddress, aws: AwsConfig) -> None:
        if address.scheme != "sqs":
            raise InvalidArgumentError(
                "only a queue has messages to read: give sqs:QUEUE-URL", path=str(address)
            )
        self._address = address
        self._client = alert_client("sqs", address, aws)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._client.close()

    async def batches(self) -> AsyncGenerator[QueueBatch, None]:
        """The messages of the queue, until a request finds none. What is not deleted is visible to
        others again after the visibility timeout of the queue."""
        while True:
            answer = await self._ask(
                "receive_message", MaxNumberOfMessages=_BATCH, WaitTimeSeconds=_WAIT_SECONDS
            )
            messages = answer.get("Messages") or ()
            if not messages:
                return
            yield QueueBatch(self, messages)

    async def delete(self, receipts: Sequence[str]) -> None:
        """Remove received messages, at most ten."""
        entries = [
            {"Id": str(index), "ReceiptHandle": receipt} for index, receipt in enumerate(receipts)
        ]
        answer = await self._ask("delete_message_batch", Entries=entries)
        for each in answer.get("Failed", ()):
            raise service_error(each["Code"], each.get("Message", ""), path=str(self._address))

    async def count(self) -> int:
        """The approximate number of messages, those included that a reader holds."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        answer = await self._ask("get_queue_attributes", AttributeNames=names)
        return sum(int(answer.get("Attributes", {}).get(name, 0)) for name in names)

    async def purge(self) -> None:
        """Remove all messages, which takes the service up to 60 s. Raises BusyError within 60 s of
        another purge."""
        await self._ask("purge_queue")

    async def _ask(self, operation: str, **arguments: Any) -> Any:
        client = await self._client.get()

        async def once() -> Any:
            with map_exceptions(str(self._address), codes=_CODES):
                return await getattr(client, operation)(QueueUrl=self._address.target, **arguments)

        return await retry(once, _RETRIES, SYSTEM)


def _document(body: str) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return {"body": body}
