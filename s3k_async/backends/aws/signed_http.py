"""Signed requests: the hot path beside botocore's.

Endpoint, region, credentials, TLS and proxy are those of an aioboto3 client. A request is sent
once; again only with a corrected clock after the service refused its time, and with other
credentials after it refused its credentials. Both are refusals, so nothing was applied.

Signatures as in "Signature Version 4 for API requests" of the AWS IAM User Guide.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import NamedTuple, TypeAlias
from urllib.parse import urlsplit

from s3k_async import _native
from s3k_async._core.runtime import SYSTEM, Runtime
from s3k_async.backends.aws.bounds import in_time
from s3k_async.backends.aws.connection_pool import Body
from s3k_async.backends.aws.credentials import Keys
from s3k_async.backends.aws.direct_http import Bounds
from s3k_async.backends.aws.endpoint import AnyExchange, Channel
from s3k_async.backends.aws.error_responses import EXPIRED
from s3k_async.backends.aws.presigned_url import Presigning
from s3k_async.backends.aws.service_answers import check_redirect, refusal_code
from s3k_async.backends.aws.session import AwsClient
from s3k_async.errors import ConfigError

__all__ = ["Answer", "Headers", "Wire"]

Headers: TypeAlias = list[tuple[str, str]]

_API = "DynamoDB_20120810."
_REFUSALS = (400, 401, 403)
_LEAST_SKEW_MS = 60_000
"""Clock skew that every service accepts."""
_WRONG_CLOCK = ("Signature expired", "Signature not yet current")
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
    exchange: AnyExchange
    host: str
    path: str
    service: str
    keys: Keys | None = None
    signer: _native.Signer | None = None

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


class Wire:
    """Signed requests to the service of `client`, over connections that belong to one process and
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

        def sign(by: _native.Signer, at: int) -> Headers:
            return by.dynamodb(link.host, name, body, at)

        return await self._send(link, sign, "POST", "/", body, _TABLE)

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
        given = [*headers, _PLAIN]

        def sign(by: _native.Signer, at: int) -> Headers:
            return by.headers(method, link.host, place, query, given, digest, at)

        return await self._send(link, sign, method, target, body, bounds)

    async def presign(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, str],
        seconds: int,
        headers: Mapping[str, str],
    ) -> str:
        """A URL with a signature that is valid for `seconds` from now by the service's clock, if it
        is known. No request is sent. Path as of `send`; `parameters` and `headers` as of
        `Presigning.url`. Raises ClosedClientError, WrongLoopError, ConfigError,
        CredentialsError."""
        link = self._current() or await self._connect()
        keys = link.channel.credentials.ready()
        if keys is None:
            with in_time():
                keys = await link.channel.credentials.get()
        scheme = urlsplit(link.channel.endpoint).scheme
        signing = Presigning(scheme, link.host, link.channel.region, keys)
        now = self._runtime.now_ms() + self._skew_ms
        return signing.url(method, link.path + path, parameters, seconds, now, headers)

    async def _send(
        self, link: _Link, sign: _Sign, method: str, target: str, body: Body, bounds: Bounds
    ) -> Answer:
        credentials = link.channel.credentials
        clock_corrected = keys_renewed = False
        while True:
            keys = credentials.ready()
            if keys is None:
                with in_time():
                    keys = await credentials.get()
            now = self._runtime.now_ms() + self._skew_ms
            headers = sign(link.signed_by(keys), now)
            answer = Answer(
                *await link.exchange.ask(method, target, headers, body, bounds), link.host
            )
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
            exchange=channel.exchange(f"{parts.scheme}://{host}"),
            host=host.removesuffix(standard),
            path=parts.path.rstrip("/"),
            service=self._client.service,
        )
        self._link = link
        return link
