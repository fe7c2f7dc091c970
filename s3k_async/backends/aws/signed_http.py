"""Signed requests over aiohttp: the hot path beside botocore's.

Endpoint, region, credentials, TLS and proxy are those of an aioboto3 client. A request is sent
once; again only with a corrected clock after the service refused its time, and with other
credentials after it refused its credentials. Both are refusals, so nothing was applied.

Signatures as in "Signature Version 4 for API requests" of the AWS IAM User Guide.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import BytesPayload, Payload
from yarl import URL

from s3k_async import _native
from s3k_async._core.runtime import SYSTEM, Runtime
from s3k_async.backends.aws.bounds import in_time, read_body
from s3k_async.backends.aws.credentials import Keys
from s3k_async.backends.aws.endpoint import Channel
from s3k_async.backends.aws.error_mapping import EXPIRED
from s3k_async.backends.aws.fast_http import Body, Bounds, Exchange
from s3k_async.backends.aws.service_answers import check_redirect, refusal_code
from s3k_async.backends.aws.session import AwsClient
from s3k_async.errors import ClosedClientError, ConfigError

__all__ = ["Answer", "Headers", "Wire"]

Headers: TypeAlias = list[tuple[str, str]]

_API = "DynamoDB_20120810."
_REFUSALS = (400, 401, 403)
_LEAST_SKEW_MS = 60_000
"""Clock skew that every service accepts."""
_WRONG_CLOCK = ("Signature expired", "Signature not yet current")
_PIECE = 256 * 1024
_PLAIN = ("Accept-Encoding", "identity")
_TABLE = Bounds()


class Answer(NamedTuple):
    """A whole response."""

    status: int
    headers: Mapping[str, str]
    """Header names in any case."""
    body: bytes
    host: str
    """The answering host."""


@dataclass(eq=False, slots=True)
class _Link:
    """A channel with the constant parts of its requests."""

    channel: Channel
    base: str
    host: str
    path: str
    service: str
    root: URL = field(init=False)
    exchange: Exchange | None = field(init=False)
    """For small requests; None behind a proxy or over an unknown aiohttp."""
    keys: Keys | None = None
    signer: _native.Signer | None = None

    def __post_init__(self) -> None:
        self.root = URL(f"{self.base}{self.path}/", encoded=True)
        self.exchange = (
            Exchange.over(self.channel.session, self.root) if self.channel.direct else None
        )

    def signed_by(self, keys: Keys) -> _native.Signer:
        """The signer with these keys. Raises ConfigError."""
        if self.signer is None or self.keys is not keys:
            if not all(
                part.isprintable()
                for part in (keys.access_key, keys.token or "", self.channel.region)
            ):
                raise ConfigError("the access key, session token or region is invalid in a header")
            self.keys = keys
            self.signer = _native.Signer(
                keys.access_key, keys.secret_key, keys.token, self.channel.region, self.service
            )
        return self.signer


_Sign: TypeAlias = Callable[[_native.Signer, int], Headers]
"""The headers of a request, signed at a time in epoch milliseconds."""
_Exchange: TypeAlias = Callable[[Headers], Awaitable[tuple[int, Mapping[str, str], bytes]]]
"""Sends a request with these headers; returns status, headers and body of the answer."""


class Wire:
    """Signed requests to the service of `client`, over one aiohttp session for each process and
    event loop.

    `host_prefix` goes before the host of the endpoint, as `<bucket>.` does. Closing the client
    closes the wire.
    """

    def __init__(
        self, client: AwsClient, runtime: Runtime = SYSTEM, *, host_prefix: str = ""
    ) -> None:
        self._client = client
        self._runtime = runtime
        self._prefix = host_prefix
        self._link: _Link | None = None
        self._skew_ms = 0

    def __repr__(self) -> str:
        return f"Wire({self._client!r})"

    async def dynamodb(self, target: str, body: bytes) -> Answer:
        """The answer, possibly a refusal, to a request of DynamoDB's API with the operation
        `target`.

        Raises ClosedClientError, WrongLoopError, ConfigError, CredentialsError, ServiceError (a
        redirect), and the errors that `backends.aws.error_mapping.map_exceptions` maps.
        """
        link = self._current() or await self._connect()
        name = _API + target
        if link.path:
            headers = [("Content-Type", "application/x-amz-json-1.0"), ("X-Amz-Target", name)]
            return await self.send("POST", "/", "", headers, body)
        exchange = link.exchange

        def sign(by: _native.Signer, at: int) -> Headers:
            return by.dynamodb(link.host, name, body, at)

        if exchange is None or len(body) > _PIECE:
            return await self._send(
                link, sign, self._request(link, "POST", link.root, body, _TABLE)
            )
        return await self._send(
            link, sign, lambda headers: exchange.ask("POST", "/", headers, body, _TABLE)
        )

    async def send(
        self,
        method: str,
        path: str,
        query: str,
        headers: Headers,
        body: Body = b"",
        *,
        sha256: str | None = None,
        bounds: Bounds = _TABLE,
    ) -> Answer:
        """The answer, possibly a refusal, to any request. Errors as for `dynamodb`.

        `path` and `query` are percent-encoded as signed and sent, the query in the order of its
        names. Every header is signed. `sha256` is the body's digest in hex, computed here if it is
        not given; `bounds` are those of the answer.
        """
        link = self._current() or await self._connect()
        place = link.path + path
        target = f"{place}?{query}" if query else place
        digest = _native.sha256_hex(body) if sha256 is None else sha256
        exchange = link.exchange

        def sign(by: _native.Signer, at: int) -> Headers:
            return by.headers(method, link.host, place, query, headers, digest, at)

        if exchange is None or len(body) > _PIECE:
            return await self._send(
                link,
                sign,
                self._request(link, method, URL(link.base + target, encoded=True), body, bounds),
            )
        return await self._send(
            link, sign, lambda signed: exchange.ask(method, target, [*signed, _PLAIN], body, bounds)
        )

    def _request(self, link: _Link, method: str, url: URL, body: Body, bounds: Bounds) -> _Exchange:
        """Any request through aiohttp's own client."""
        session = link.channel.session
        seconds = math.inf if bounds.long else session.timeout.sock_read or math.inf

        async def request(headers: Headers) -> tuple[int, Mapping[str, str], bytes]:
            data = _Body(body) if len(body) else None
            response = await session.request(
                method, url, data=data, headers=headers, allow_redirects=False
            )
            async with response:
                return (
                    response.status,
                    response.headers,
                    await read_body(response.content, bounds.most, seconds),
                )

        return request

    async def _send(self, link: _Link, sign: _Sign, exchange: _Exchange) -> Answer:
        channel = link.channel
        credentials = channel.credentials
        clock_corrected = keys_renewed = False
        while True:
            keys = credentials.ready()
            if keys is None:
                with in_time():
                    keys = await credentials.get()
            now = self._runtime.now_ms() + self._skew_ms
            try:
                with in_time():
                    answer = Answer(*await exchange(sign(link.signed_by(keys), now)), link.host)
            except (RuntimeError, asyncio.CancelledError) as error:
                # aiohttp cancels waiters for a connection when the session is closed.
                task = asyncio.current_task()
                if channel.open or (
                    isinstance(error, asyncio.CancelledError) and task and task.cancelling()
                ):
                    raise
                raise ClosedClientError("the client was closed during the request") from error
            check_redirect(answer.host, answer.status, answer.headers, answer.body)
            if answer.status not in _REFUSALS:
                return answer
            code = refusal_code(answer.body)
            if not clock_corrected and self._correct_clock(answer, code, now):
                clock_corrected = True
            elif not keys_renewed and code in EXPIRED and await credentials.invalidate(keys):
                keys_renewed = True
            else:
                return answer

    def _correct_clock(self, answer: Answer, code: str, sent_ms: int) -> bool:
        """Whether the request was refused for its time, and the service's clock is now known."""
        if code == "InvalidSignatureException":
            if not any(text in answer.body.decode(errors="replace") for text in _WRONG_CLOCK):
                return False
        elif code != "RequestTimeTooSkewed" and (code or answer.body):
            return False
        try:
            there = int(parsedate_to_datetime(answer.headers.get("Date", "")).timestamp() * 1000)
        except ValueError:
            return False
        if abs(there - sent_ms) < _LEAST_SKEW_MS:
            return False
        self._skew_ms = there - self._runtime.now_ms()
        return True

    def _current(self) -> _Link | None:
        """The open link of this process and loop, if there is one."""
        link = self._link
        if link is None:
            return None
        channel = link.channel
        if (
            channel.open
            and channel.process == os.getpid()
            and channel.loop is asyncio.get_running_loop()
        ):
            return link
        return None

    async def _connect(self) -> _Link:
        channel = await self._client.channel(self._runtime)
        parts = urlsplit(channel.endpoint)
        host = self._prefix + parts.netloc.rpartition("@")[2].lower()
        standard = {"http": ":80", "https": ":443"}[parts.scheme]
        link = _Link(
            channel=channel,
            base=f"{parts.scheme}://{host}",
            host=host.removesuffix(standard),
            path=parts.path.rstrip("/"),
            service=self._client.service,
        )
        self._link = link
        return link


class _Body(BytesPayload):
    """Bytes written in pieces, so that other requests run in between; a service that accepts none
    within the response timeout is given up."""

    def __init__(self, value: Body) -> None:
        Payload.__init__(self, value, content_type="application/octet-stream")
        self._size = memoryview(value).nbytes

    async def write_with_length(
        self, writer: AbstractStreamWriter, content_length: int | None
    ) -> None:
        view = memoryview(self._value).cast("B")[:content_length]
        protocol: Any = writer.protocol  # type: ignore[attr-defined]
        for start in range(0, len(view), _PIECE):
            protocol.start_timeout()
            await writer.write(view[start : start + _PIECE])
