"""The wire: what it sends, what it makes of answers, and when it sends again."""

from __future__ import annotations

import asyncio
import gzip
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import aiobotocore.session
import pytest
from aiobotocore.credentials import AioRefreshableCredentials

from s3k_async._core.runtime import SYSTEM, Runtime
from s3k_async.backends.aws.direct_http import Exchange
from s3k_async.backends.aws.error_mapping import map_exceptions
from s3k_async.backends.aws.session import AwsClient
from s3k_async.backends.aws.signed_http import Answer, Wire
from s3k_async.backends.dynamodb.dynamodb_wire import WireItems
from s3k_async.backends.ports.items import Key
from s3k_async.backends.s3.s3_blobs import S3Blobs
from s3k_async.config import AwsConfig, Secret
from s3k_async.errors import (
    ClosedClientError,
    ConfigError,
    CredentialsError,
    UnreachableError,
)
from tests.backends.aws.doors import Authority, connect_proxy, tls_door
from tests.backends.aws.places import SESSION_TOKEN, open_blobs, settings
from tests.proxy import Answer as Given
from tests.proxy import Call, Delay, FaultProxy, dynamodb_error, json_answer, s3_error, served

KEY = Key("p", "s")


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


@asynccontextmanager
async def wired(
    aws: AwsConfig,
    session: object | None = None,
    *,
    runtime: Runtime = SYSTEM,
    s3: bool = False,
    prefix: str = "",
) -> AsyncIterator[Wire]:
    client = AwsClient("s3" if s3 else "dynamodb", aws, session)
    try:
        yield Wire(client, runtime, host_prefix=prefix)
    finally:
        await client.close()


@pytest.fixture
async def service() -> AsyncIterator[FaultProxy]:
    async with FaultProxy() as proxy:
        yield proxy


def port_of(service: FaultProxy) -> int:
    return int(service.url.rpartition(":")[2])


# What is sent


async def test_a_call_of_dynamodb(service: FaultProxy) -> None:
    service.rule(json_answer({}))
    async with wired(settings(service.url, region="eu-west-1")) as wire:
        assert (await wire.dynamodb("GetItem", b'{"a":1}'))[::2] == (200, b"{}")
    (call,) = service.calls
    assert (call.method, call.raw_path, call.target, call.body) == (
        "POST",
        "/",
        "GetItem",
        b'{"a":1}',
    )
    headers = call.headers
    assert headers["host"] == service.url.removeprefix("http://")
    assert headers["content-type"] == "application/x-amz-json-1.0"
    assert headers["accept-encoding"] == "identity"
    assert headers["x-amz-security-token"] == SESSION_TOKEN
    assert "/eu-west-1/dynamodb/aws4_request" in headers["authorization"]
    assert "accept" not in headers


async def test_any_request(service: FaultProxy) -> None:
    service.rule(Given(200, b"data", {"ETag": '"e"'}))
    async with wired(settings(service.url), s3=True) as wire:
        answer = await wire.send(
            "GET", "/bucket/a%20b%2Fc", "list-type=2&prefix=%2F", [("Range", "bytes=0-1")]
        )
        assert (answer.status, answer.body, answer.headers["etag"]) == (200, b"data", '"e"')
    (call,) = service.calls
    assert call.raw_path == "/bucket/a%20b%2Fc?list-type=2&prefix=%2F"
    assert call.headers["range"] == "bytes=0-1"
    assert "range;" in call.headers["authorization"]
    assert "content-type" not in call.headers


async def test_an_endpoint_below_a_path_with_a_user_in_it(service: FaultProxy) -> None:
    service.rule(json_answer({}))
    place = service.url.replace("http://", "HTTP://user:password@") + "/below/"
    async with wired(settings(place)) as wire:
        assert (await wire.dynamodb("GetItem", b"{}")).status == 200
        assert (await wire.send("GET", "/k", "", [])).status == 200
    assert [call.raw_path for call in service.calls] == ["/below/", "/below/k"]
    assert service.calls[0].target == "GetItem"
    assert all(
        call.headers["authorization"].startswith("AWS4-HMAC-SHA256") for call in service.calls
    )


async def test_a_name_before_the_host(service: FaultProxy) -> None:
    service.rule(Given(200))
    through = settings("http://service.invalid", proxy=service.url)
    async with wired(through, s3=True, prefix="bucket.") as wire:
        await wire.send("GET", "/k", "", [])
    assert service.calls[0].headers["host"] == "bucket.service.invalid"


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("size", [0, 1, 256 * 1024, 256 * 1024 + 1, 3 * 1024 * 1024 + 1])
async def test_bodies(service: FaultProxy, kind: Callable[[bytes], Any], size: int) -> None:
    service.rule(Given(200))
    data = os.urandom(size)
    async with wired(settings(service.url), s3=True) as wire:
        await wire.send("PUT", "/b/k", "", [], kind(data))
    (call,) = service.calls
    assert call.body == data
    assert call.headers["content-length"] == str(size)


# What comes


async def test_answers_are_left_as_they_are(service: FaultProxy) -> None:
    packed = gzip.compress(b"{}")
    service.rule(Given(200, packed, {"Content-Encoding": "gzip", "Set-Cookie": "a=b"}), times=1)
    service.rule(json_answer({}))
    async with wired(settings(service.url)) as wire:
        assert (await wire.dynamodb("GetItem", b"{}")).body == packed
        assert (await wire.dynamodb("GetItem", b"{}")).status == 200
    assert len(service.calls) == 2
    assert "cookie" not in service.calls[1].headers


async def test_connections_are_kept_and_bounded(service: FaultProxy) -> None:
    service.rule(json_answer({}))
    async with wired(settings(service.url, max_connections=3)) as wire:
        for _ in range(5):
            await wire.dynamodb("GetItem", b"{}")
        assert service.connections == 1
        await asyncio.gather(*(wire.dynamodb("GetItem", b"{}") for _ in range(20)))
        assert service.connections == 3


async def test_connections_have_the_options_of_the_client(service: FaultProxy) -> None:
    service.rule(json_answer({}))
    async with wired(settings(service.url, connect_timeout=7.0, max_connections=3)) as wire:
        await wire.dynamodb("GetItem", b"{}")
        assert wire._link is not None
        exchange = wire._link.exchange
        assert isinstance(exchange, Exchange)
        pool = exchange._pool
        given = pool._settings
        assert (given.most, given.keepalive, given.connect_timeout) == (3, 12, 7.0)
        (connection,) = pool._all
        assert connection._transport is not None
        opened: socket.socket = connection._transport.get_extra_info("socket")
        assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_closing_ends_requests(service: FaultProxy) -> None:
    arrived = asyncio.Event()

    def arrives(_: Call) -> bool:
        arrived.set()
        return True

    service.rule(Delay(60.0), when=arrives)
    items = WireItems("table", settings(service.url, max_connections=1))
    under_way = [asyncio.create_task(items.get(KEY)) for _ in range(3)]
    await arrived.wait()
    await items.close()
    found = await asyncio.gather(*under_way, return_exceptions=True)
    # One was sent, and its answer is lost; the others waited for the connection.
    assert sorted(type(each).__name__ for each in found) == [
        "ClosedClientError",
        "ClosedClientError",
        "ResponseLostError",
    ]
    with pytest.raises(ClosedClientError):
        await items.get(KEY)


async def test_a_cancellation_while_closing_is_one(service: FaultProxy) -> None:
    arrived = asyncio.Event()

    def arrives(_: Call) -> bool:
        arrived.set()
        return True

    service.rule(Delay(60.0), when=arrives)
    async with wired(settings(service.url, max_connections=1)) as wire:
        under_way = [asyncio.create_task(wire.dynamodb("GetItem", b"{}")) for _ in range(2)]
        await arrived.wait()
        for each in under_way:
            each.cancel()
    found = await asyncio.gather(*under_way, return_exceptions=True)
    assert all(isinstance(each, asyncio.CancelledError) for each in found)


# The clock

HOUR = 3_600_000


def late(sent: Call) -> bool:
    """Whether a request was signed more than five minutes from now."""
    signed = datetime.strptime(sent.headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    return abs(signed - datetime.now(UTC)) > timedelta(minutes=5)


def refusing_late_ones(service: FaultProxy, answer: Given, *, date: bool = True) -> None:
    now = {"Date": format_datetime(datetime.now(UTC), usegmt=True)} if date else {}
    service.rule(replace(answer, headers={**answer.headers, **now}), when=late)
    service.rule(json_answer({}))


EXPIRED = dynamodb_error(
    "InvalidSignatureException", "Signature expired: 20261121T060000Z is now earlier than ..."
)
EARLY = dynamodb_error(
    "InvalidSignatureException", "Signature not yet current: 20261121T080000Z is still later ..."
)
SKEWED = s3_error("RequestTimeTooSkewed", "The difference between ... is too large.", status=403)
NO_TEXT = Given(403)


@pytest.mark.parametrize("off", [-HOUR, HOUR])
@pytest.mark.parametrize("answer", [EXPIRED, EARLY, SKEWED, NO_TEXT])
async def test_a_clock_that_is_wrong(service: FaultProxy, answer: Given, off: int) -> None:
    refusing_late_ones(service, answer)
    runtime = replace(SYSTEM, now_ms=lambda: SYSTEM.now_ms() + off)
    async with wired(settings(service.url), runtime=runtime) as wire:
        for _ in range(3):
            assert (await wire.dynamodb("PutItem", b"{}")).status == 200
    assert [late(call) for call in service.calls] == [True, False, False, False]
    assert {call.body for call in service.calls} == {b"{}"}


@pytest.mark.parametrize("answer", [EXPIRED, SKEWED])
async def test_a_clock_that_cannot_be_corrected(service: FaultProxy, answer: Given) -> None:
    refusing_late_ones(service, answer, date=False)
    runtime = replace(SYSTEM, now_ms=lambda: SYSTEM.now_ms() + HOUR)
    async with wired(settings(service.url), runtime=runtime) as wire:
        assert (await wire.dynamodb("PutItem", b"{}")).status == answer.status
    assert len(service.calls) == 1


async def test_a_service_that_refuses_every_time(service: FaultProxy) -> None:
    """Its clock may run away from what it says."""
    past = format_datetime(datetime.now(UTC) - timedelta(hours=2), usegmt=True)
    service.rule(replace(SKEWED, headers={"Date": past}))
    async with wired(settings(service.url)) as wire:
        assert (await wire.dynamodb("PutItem", b"{}")).status == 403
    assert len(service.calls) == 2


@pytest.mark.parametrize(
    "answer",
    [
        dynamodb_error("InvalidSignatureException", "does not match"),
        dynamodb_error("ValidationException"),
    ],
)
async def test_another_refusal_has_nothing_to_do_with_the_clock(
    service: FaultProxy, answer: Given
) -> None:
    refusing_late_ones(service, answer)
    runtime = replace(SYSTEM, now_ms=lambda: SYSTEM.now_ms() + HOUR)
    async with wired(settings(service.url), runtime=runtime) as wire:
        assert (await wire.dynamodb("PutItem", b"{}")).status == 400
    assert len(service.calls) == 1


# Credentials


def lending(fetched: list[str], *, fresh: bool = True) -> object:
    """A session whose credentials are renewed as `NEW<n>`, or as the old ones."""

    async def fetch() -> dict[str, str]:
        fetched.append(f"NEW{len(fetched)}" if fresh else "OLD")
        expiry = datetime.now(UTC) + timedelta(hours=1)
        return {
            "access_key": fetched[-1],
            "secret_key": "s",
            "token": "t",
            "expiry_time": expiry.isoformat(),
        }

    session: Any = aiobotocore.session.get_session()
    expiry = datetime.now(UTC) + timedelta(hours=1)
    session._credentials = AioRefreshableCredentials("OLD", "s", "t", expiry, fetch, "test")
    return session


def signer(call: Call) -> str:
    return call.headers["authorization"].partition("Credential=")[2].partition("/")[0]


REFUSED = [
    dynamodb_error(
        "ExpiredTokenException", "The security token included in the request is expired"
    ),
    dynamodb_error(
        "UnrecognizedClientException", "The security token included in the request is invalid."
    ),
    s3_error("ExpiredToken", "The provided token has expired.", status=400),
]


@pytest.mark.parametrize("answer", REFUSED)
async def test_credentials_that_are_refused_are_renewed(service: FaultProxy, answer: Given) -> None:
    service.rule(answer, when=lambda call: signer(call) == "OLD")
    service.rule(json_answer({}))
    fetched: list[str] = []
    async with wired(AwsConfig(endpoint=service.url, region="r"), lending(fetched)) as wire:
        answers = await asyncio.gather(*(wire.dynamodb("PutItem", b"{}") for _ in range(5)))
        assert {each.status for each in answers} == {200}
    assert fetched == ["NEW0"]
    assert sorted(map(signer, service.calls)) == ["NEW0"] * 5 + ["OLD"] * 5


@pytest.mark.parametrize(("fresh", "sent"), [(True, 2), (False, 1)])
async def test_credentials_that_are_refused_again(
    service: FaultProxy, fresh: bool, sent: int
) -> None:
    service.rule(REFUSED[0])
    async with wired(AwsConfig(endpoint=service.url, region="r"), lending([], fresh=fresh)) as wire:
        assert (await wire.dynamodb("PutItem", b"{}")).status == 400
    assert len(service.calls) == sent


async def test_credentials_that_last_are_not_tried_again(service: FaultProxy) -> None:
    service.rule(REFUSED[0])
    items = WireItems("table", settings(service.url))
    with pytest.raises(CredentialsError, match="expired"):
        await items.get(KEY)
    await items.close()
    assert len(service.calls) == 1


@pytest.mark.parametrize("token", ["one\ntwo", "one\r\nX-Other: two"])
async def test_a_token_that_no_header_may_hold(service: FaultProxy, token: str) -> None:
    service.rule(json_answer({}))
    async with wired(replace(settings(service.url), session_token=Secret(token))) as wire:
        for call in (wire.dynamodb("GetItem", b"{}"), wire.send("GET", "/", "", [])):
            with pytest.raises(ConfigError):
                await call
    assert not service.calls


async def test_an_answer_after_an_informational_one() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
        )
        await reader.read()

    async with served(answer) as place, wired(settings(place)) as wire:
        assert (await wire.dynamodb("GetItem", b"{}"))[::2] == (200, b"{}")


async def test_a_request_that_is_cancelled_takes_its_connection_along(service: FaultProxy) -> None:
    """Its answer, should it still come, is nobody else's."""
    service.rule(json_answer({"late": True}), target="Late")
    service.rule(json_answer({}))
    async with wired(settings(service.url, max_connections=1)) as wire:
        await wire.dynamodb("GetItem", b"{}")
        late = asyncio.create_task(wire.dynamodb("Late", b"{}"))
        for _ in range(3):
            await asyncio.sleep(0)
        late.cancel()
        assert (await wire.dynamodb("GetItem", b"{}")).body == b"{}"
        with pytest.raises(asyncio.CancelledError):
            await late


# TLS and proxies


async def got(wire: Wire) -> Answer:
    with map_exceptions("table"):
        return await wire.dynamodb("GetItem", b"{}")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.new(tmp_path_factory.mktemp("certificates"))


async def test_tls(service: FaultProxy, authority: Authority) -> None:
    service.rule(json_answer({}))
    async with tls_door(authority.server("127.0.0.1"), port_of(service)) as port:
        place = f"https://127.0.0.1:{port}"
        async with wired(settings(place, ca_bundle=str(authority.bundle))) as wire:
            assert (await got(wire)).status == 200
        async with wired(settings(place, verify_tls=False)) as wire:
            assert (await got(wire)).status == 200
        async with wired(settings(place)) as wire:
            with pytest.raises(UnreachableError):
                await got(wire)
    assert len(service.calls) == 2


async def test_large_bodies_by_tls(service: FaultProxy, authority: Authority) -> None:
    data = os.urandom(3 * 1024 * 1024 + 1)
    service.rule(Given(200, data))
    async with tls_door(authority.server("127.0.0.1"), port_of(service)) as port:
        place = f"https://127.0.0.1:{port}"
        aws = settings(place, ca_bundle=str(authority.bundle), max_connections=1)
        async with wired(aws, s3=True) as wire:
            for _ in range(2):
                found = await wire.send("PUT", "/b/k", "", [("Expect", "100-continue")], data)
                assert found.body == data
    assert [call.body == data for call in service.calls] == [True, True]


async def test_tls_of_requests_that_botocore_signs(
    service: FaultProxy, authority: Authority
) -> None:
    service.rule(Given(200))
    async with tls_door(authority.server("127.0.0.1"), port_of(service)) as port:
        place = f"https://127.0.0.1:{port}"
        async with open_blobs(S3Blobs, settings(place, ca_bundle=str(authority.bundle))) as blobs:
            assert await blobs.exists()
        async with open_blobs(S3Blobs, settings(place, verify_tls=False)) as blobs:
            assert await blobs.exists()
        async with open_blobs(S3Blobs, settings(place)) as blobs:
            with pytest.raises(UnreachableError):
                await blobs.exists()
    assert len(service.calls) == 2


async def test_plain_http_needs_no_certificates(service: FaultProxy) -> None:
    service.rule(Given(200))
    async with open_blobs(S3Blobs, settings(service.url, ca_bundle="/nowhere/ca.pem")) as blobs:
        assert await blobs.exists()


async def test_a_certificate_of_somebody_else(service: FaultProxy, authority: Authority) -> None:
    async with (
        tls_door(authority.server("127.0.0.2"), port_of(service)) as port,
        wired(settings(f"https://127.0.0.1:{port}", ca_bundle=str(authority.bundle))) as wire,
    ):
        with pytest.raises(UnreachableError):
            await got(wire)
    assert not service.calls


async def test_a_bundle_that_is_none(tmp_path: Path) -> None:
    bundle = tmp_path / "authority.pem"
    bundle.write_text("nothing")
    async with wired(settings("https://127.0.0.1:9", ca_bundle=str(bundle))) as wire:
        with pytest.raises(ConfigError, match="certificates"):
            await got(wire)


async def test_a_bundle_that_the_environment_names(
    service: FaultProxy, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", str(authority.bundle))
    service.rule(json_answer({}))
    async with (
        tls_door(authority.server("127.0.0.1"), port_of(service)) as port,
        wired(settings(f"https://127.0.0.1:{port}")) as wire,
    ):
        assert (await got(wire)).status == 200


async def test_a_proxy_that_passes_requests_on(service: FaultProxy) -> None:
    service.rule(json_answer({}))
    proxy = service.url.replace("http://", "http://me:secret@")
    async with wired(settings("http://service.invalid", proxy=proxy)) as wire:
        assert (await got(wire)).status == 200
    (call,) = service.calls
    assert call.raw_path == "http://service.invalid/"
    assert call.headers["host"] == "service.invalid"
    assert call.headers["proxy-authorization"] == "Basic bWU6c2VjcmV0"


async def test_a_proxy_that_tunnels(service: FaultProxy, authority: Authority) -> None:
    """The service proves who it is; nobody else sees the request."""
    service.rule(json_answer({}))
    heads: list[str] = []
    async with (
        tls_door(authority.server("127.0.0.1"), port_of(service)) as port,
        connect_proxy(heads) as door,
    ):
        place, proxy = f"https://127.0.0.1:{port}", f"http://me:secret@127.0.0.1:{door}"
        async with wired(settings(place, proxy=proxy, ca_bundle=str(authority.bundle))) as wire:
            assert (await got(wire)).status == 200
        async with wired(settings(place, proxy=proxy)) as wire:
            with pytest.raises(UnreachableError):
                await got(wire)
    assert len(service.calls) == 1
    assert heads[0].startswith(f"CONNECT 127.0.0.1:{port} ")
    assert "Basic bWU6c2VjcmV0" in heads[0]
    assert "x-amz" not in heads[0].lower()


@pytest.mark.parametrize("refusing", [False, True])
async def test_what_a_proxy_is_told_does_not_show(
    service: FaultProxy, authority: Authority, refusing: bool
) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with (
        server,
        tls_door(authority.server("127.0.0.1"), port_of(service)) as port,
        connect_proxy([]) as open_door,
    ):
        door = server.sockets[0].getsockname()[1] if refusing else open_door
        async with wired(
            settings(f"https://127.0.0.1:{port}", proxy=f"http://me:secret@127.0.0.1:{door}")
        ) as wire:
            with pytest.raises(UnreachableError) as caught:
                await got(wire)
    error: BaseException | None = caught.value
    while error is not None:
        assert "secret" not in f"{error} {error!r} {vars(error)} {error.args}"
        error = error.__cause__ or error.__context__


async def test_a_proxy_that_the_environment_names(
    service: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.rule(json_answer({}))
    monkeypatch.setenv("http_proxy", service.url)
    async with wired(settings("http://service.invalid")) as wire:
        assert (await got(wire)).status == 200
    monkeypatch.setenv("no_proxy", "service.invalid")
    async with wired(settings("http://service.invalid")) as wire:
        with pytest.raises(UnreachableError):
            await got(wire)


async def test_a_proxy_that_is_not_there() -> None:
    async with wired(settings("http://service.invalid", proxy="http://127.0.0.1:9")) as wire:
        with pytest.raises(UnreachableError):
            await got(wire)
