"""An unsigned request to a service of AWS, and the source of the credentials for it."""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from s3k_async._core.runtime import Runtime
from s3k_async.backends.aws.direct_http import Bounds
from s3k_async.backends.aws.endpoint import Channel
from s3k_async.backends.aws.error_mapping import map_exceptions
from s3k_async.backends.aws.session import AwsClient
from s3k_async.backends.ports.service_inspection import Contact, KeySource
from s3k_async.errors import ResponseLostError, S3kError, UnreachableError

__all__ = ["ServiceContact"]

_MOST = Bounds(most=64 * 1024)
_OTHER = {"http": "https", "https": "http"}
_REGION = "x-amz-bucket-region"
_SHOWN = 4
"""Characters of an access key id."""


class ServiceContact:
    """A ServiceInspection over a client, which it closes. `path`: what is requested."""

    def __init__(self, client: AwsClient, runtime: Runtime, method: str, path: str) -> None:
        self.client = client
        self._runtime = runtime
        self._method = method
        self._path = path

    async def contact(self) -> Contact:
        """As `ServiceInspection.contact`."""
        channel = await self.client.channel(self._runtime)
        parts = urlsplit(channel.endpoint)
        place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        try:
            return await self._ask(channel, place)
        except (ResponseLostError, UnreachableError) as error:
            other = place.replace(parts.scheme, _OTHER[parts.scheme], 1)
            try:
                await self._ask(channel, other)
            except S3kError:
                raise error from None
            raise UnreachableError(
                f"no answer by {parts.scheme}: the service speaks {_OTHER[parts.scheme]}, so the "
                f"endpoint is {other}",
                path=place,
            ) from error

    async def _ask(self, channel: Channel, place: str) -> Contact:
        headers = [("Host", urlsplit(place).netloc), ("Accept-Encoding", "identity")]
        began, sent_ms = self._runtime.monotonic(), self._runtime.now_ms()
        with map_exceptions(place):
            await channel.http.need_context(place)
            _, found, _ = await channel.exchange(place).ask(
                self._method, self._path, headers, b"", _MOST
            )
        milliseconds = round((self._runtime.monotonic() - began) * 1000)
        there = _date_ms(found.get("Date", ""))
        return Contact(
            address=place,
            milliseconds=milliseconds,
            ahead_ms=None if there is None else there - sent_ms - milliseconds // 2,
            region=channel.region,
            there=found.get(_REGION, ""),
        )

    async def key_source(self) -> KeySource:
        """As `ServiceInspection.key_source`."""
        channel = await self.client.channel(self._runtime)
        with map_exceptions(None):
            keys = await channel.credentials.get()
        return KeySource(channel.credentials.method, keys.access_key[-_SHOWN:])

    async def close(self) -> None:
        """Close the client."""
        await self.client.close()


def _date_ms(text: str) -> int | None:
    try:
        return round(parsedate_to_datetime(text).timestamp() * 1000)
    except ValueError:
        return None
