"""Sessions and clients of aioboto3, made from the settings on first use.

A client belongs to the process and the event loop that first used it. Signed requests need only a
channel, which does not need botocore if region, endpoint and credentials are known without it
(`static_access`). botocore is imported, and its service models are read and parsed, in a worker
thread. The first call on the loop only makes the client's classes and, over TLS, loads the
certificates (some tens of milliseconds).
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import anyio
import anyio.to_thread

from s3k_async._core.concurrency import to_the_end
from s3k_async._core.runtime import SYSTEM, Runtime
from s3k_async.backends.aws.access import AwsConfig, without_user
from s3k_async.backends.aws.encryption import (
    REQUESTER_PAYS,
    customer_key_headers,
    require_private,
)
from s3k_async.backends.aws.error_mapping import is_of_library, map_exceptions
from s3k_async.backends.aws.service_answers import check_dynamodb, check_s3
from s3k_async.backends.aws.static_access import REGION_VARIABLE, default_region, static_access
from s3k_async.errors import ClosedClientError, ConfigError, S3kError, WrongLoopError

if TYPE_CHECKING:
    from aiobotocore.config import AioConfig

    from s3k_async.backends.aws.endpoint import Channel

__all__ = ["AwsClient", "Service", "Session"]

Service: TypeAlias = Literal["cloudwatch", "dynamodb", "s3", "sns", "sqs", "sts"]


_inherited: list[object] = []
"""Clients inherited by a forked child: kept for good, because collecting one would close
connections through the selector that the child shares with its parent."""


class Session(Protocol):
    """The part of `aioboto3.Session` in use."""

    @property
    def region_name(self) -> str | None:
        """The region of the environment or the profile."""

    def client(self, service_name: Any, **options: Any) -> Any:
        """An async context manager around a client."""


class AwsClient:
    """One service's client: made on first use, for one process and event loop, until `close`.

    `session` is the user's own `aioboto3.Session` or `aiobotocore` session, None to make one from
    the settings. Pickled, it is its settings without secrets, session and open client.
    """

    def __init__(self, service: Service, config: AwsConfig, session: object | None = None) -> None:
        self.service = service
        self.config = config
        self.given = session
        self._client: Any = None
        self._context: Any = None
        self._channel: Channel | None = None
        self._process = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._making: anyio.Lock | None = None
        self._closed = False

    def __reduce__(self) -> tuple[Any, ...]:
        return AwsClient, (self.service, self.config)

    def __repr__(self) -> str:
        endpoint = without_user(self.config.endpoint)
        return f"AwsClient({self.service!r}, region={self.config.region!r}, endpoint={endpoint!r})"

    def shares_account_with(self, other: AwsClient) -> bool:
        """Whether both have the same installation of the service and the same identity by their
        settings."""
        mine, others = self.config, other.config
        return (
            mine.installation == others.installation
            and mine.profile == others.profile
            and mine.access_key_id == others.access_key_id
            and mine.session_token == others.session_token
            and mine.role_arn == others.role_arn
            and mine.external_id == others.external_id
            and mine.delegated == others.delegated
            and self.given is other.given
            and _partition(mine.region) == _partition(others.region)
        )

    async def get(self) -> Any:
        """The client. Raises ClosedClientError, WrongLoopError (another live loop uses it),
        ConfigError, CredentialsError."""
        making = await self._join()
        if self._client is None:
            async with making:
                if self._client is None:
                    await self._open()
        return self._client

    async def _join(self) -> anyio.Lock:
        """Bind the client to the running loop and this process, and discard the parts of others.
        Returns the lock for creating its parts. Raises ClosedClientError, WrongLoopError."""
        if self._closed:
            raise ClosedClientError(f"the {self.service} client is closed")
        loop = asyncio.get_running_loop()
        if self._process != os.getpid():
            held = (self._client, self._context, self._channel, self._loop)
            _inherited.extend(each for each in held if each is not None)
            self._reset(loop)
        elif self._loop is not loop:
            if self._loop is not None and not self._loop.is_closed():
                raise WrongLoopError(f"the {self.service} client is in use by another event loop")
            context, channel = self._context, self._channel
            self._reset(loop)
            await _close_client(context, channel)
        assert self._making is not None
        return self._making

    async def region(self) -> str:
        """The region that requests are signed for. Errors as for `get`."""
        return (await self.channel()).region

    async def channel(self, runtime: Runtime = SYSTEM) -> Channel:
        """Endpoint, region and credentials of the client, and a session for requests signed by this
        package. Errors as for `get`."""
        making = await self._join()
        async with making:
            if self._channel is None:
                channel = await self._made_channel(runtime)
                if self._closed:
                    await channel.close()
                    raise ClosedClientError(
                        f"the {self.service} client was closed while it was being made"
                    )
                self._channel = channel
            return self._channel

    async def _made_channel(self, runtime: Runtime) -> Channel:
        from s3k_async.backends.aws.endpoint import open_channel, static_channel

        access = None
        if self.given is None:
            access = await anyio.to_thread.run_sync(static_access, self.config, self.service)
        with map_exceptions(None):
            if access is not None:
                if self.service == "s3":
                    require_private(self.config, access.endpoint)
                return await static_channel(access, self.config, runtime)
            if self._client is None:
                await self._open()
            return await open_channel(self._client, runtime)

    async def close(self) -> None:
        """Close the connections. Idempotent; a client of another process or of a closed loop is
        skipped."""
        self._closed = True
        context, self._context, self._client = self._context, None, None
        channel, self._channel = self._channel, None
        if context is None and channel is None:
            return
        if self._process != os.getpid():
            _inherited.extend(each for each in (context, channel) if each is not None)
        elif self._loop is asyncio.get_running_loop():
            await to_the_end(partial(_close_client, context, channel))

    def _reset(self, loop: asyncio.AbstractEventLoop) -> None:
        self._process = os.getpid()
        self._loop = loop
        self._client = self._context = self._channel = None
        self._making = anyio.Lock()

    async def _open(self) -> None:
        endpoint = self.config.endpoint
        if endpoint is not None and not endpoint.lower().startswith(("http://", "https://")):
            raise ConfigError(
                f"the endpoint of {self.service} is no URL of http or https: "
                f"{without_user(endpoint)}"
            )
        with map_exceptions(None):
            try:
                session = await anyio.to_thread.run_sync(
                    _prepare, self.config, self.given, self.service
                )
                context = session.client(self.service, **self._options(session))
                client = await context.__aenter__()
            except (ArithmeticError, LookupError, OSError, TypeError, ValueError) as error:
                if isinstance(error, S3kError) or is_of_library(error):
                    raise
                # Its message may quote the endpoint with a password.
                error.args = (str(error).replace(str(endpoint), str(without_user(endpoint))),)
                raise ConfigError(f"the {self.service} client cannot be made: {error}") from error
        refusal = self._refusal(client)
        if refusal is not None:
            await context.__aexit__(None, None, None)
            raise refusal
        if self.service == "dynamodb":
            client.meta.events.register("before-parse.dynamodb", _check_dynamodb)
        elif self.service == "s3":
            client.meta.events.register("before-parse.s3", _check_s3)
            if self.config.requester_pays:
                client.meta.events.register("before-call.s3", _pay)
            if self.config.customer_key:
                add = functools.partial(_add_customer_key, self.config)
                client.meta.events.register("before-call.s3", add)
        self._context, self._client = context, client

    def _refusal(self, client: Any) -> ClosedClientError | ConfigError | None:
        """The reason why a new client must not be used."""
        from s3k_async.backends.aws.endpoint import http_session
        from s3k_async.backends.aws.http import SingleAttemptSession

        if self._closed:
            return ClosedClientError(
                f"the {self.service} client was closed while it was being made"
            )
        if self.service == "s3":
            try:
                require_private(self.config, str(client.meta.endpoint_url))
            except ConfigError as error:
                return error
        if not isinstance(http_session(client), SingleAttemptSession):
            return ConfigError(
                "the session has a default client configuration, with which aiobotocore discards "
                "our HTTP session"
                " (and PUT requests would be repeated unseen); clear it with "
                "set_default_client_config(None)"
            )
        return None

    def _options(self, session: Session) -> dict[str, Any]:
        config = self.config
        region = config.region or session.region_name or os.environ.get(REGION_VARIABLE)
        if region is None and config.endpoint is not None:
            region = default_region(config.endpoint)
        options = {
            "region_name": region,
            "endpoint_url": config.endpoint,
            "verify": config.ca_bundle or (None if config.verify_tls else False),
            "config": _client_config(config),
        }
        if config.role_arn is None:
            options |= {
                "aws_access_key_id": config.access_key_id.reveal() or None,
                "aws_secret_access_key": config.secret_access_key.reveal() or None,
                "aws_session_token": config.session_token.reveal() or None,
            }
        return {name: value for name, value in options.items() if value is not None}


async def _close_client(context: Any, channel: Channel | None) -> None:
    if channel is not None:
        await channel.close()
    if context is not None:
        await context.__aexit__(None, None, None)


def _client_config(config: AwsConfig) -> AioConfig:
    """One attempt a call, only required checksums, path-style addressing at an endpoint.

    Retries are `retry`'s, so `total_max_attempts` is 1. Only the legacy mode verifies the CRC-32 of
    DynamoDB's answers without retries.
    """
    from aiobotocore.config import AioConfig

    from s3k_async.backends.aws.http import SingleAttemptSession

    return AioConfig(
        http_session_cls=SingleAttemptSession,
        connect_timeout=config.connect_timeout,
        read_timeout=config.read_timeout,
        max_pool_connections=config.max_connections,
        retries={"total_max_attempts": 1, "mode": "legacy"},
        tcp_keepalive=True,
        proxies={"http": config.proxy, "https": config.proxy} if config.proxy else None,
        s3={"addressing_style": "path"} if config.endpoint else None,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )


def _prepare(config: AwsConfig, given: object | None, service: Service) -> Session:
    """The session, with the files loaded that botocore reads when a client is made. Blocking."""
    import aioboto3

    from s3k_async.backends.aws.assumed_role import use_role
    from s3k_async.backends.aws.http import (
        DirectSession,  # here too, so that the loop does not import it
    )

    if given is None:
        core: Any = DirectSession()
        session: Any = aioboto3.Session(profile_name=config.profile, botocore_session=core)
        if os.environ.get(REGION_VARIABLE):
            core.set_config_variable("region", os.environ[REGION_VARIABLE])
        core.register_component("data_loader", _loader(core.get_config_variable("data_path")))
        if config.delegated is not None:
            from s3k_async.backends.aws.delegated_session import use_source

            use_source(core, config.delegated)
        elif config.role_arn is not None:
            use_role(core, config)
    elif config.role_arn is not None:
        raise ConfigError(
            "role_arn is for the package's own sessions: let the given session assume the role"
        )
    elif hasattr(given, "client"):
        session = given
    elif hasattr(given, "create_client"):
        session = _BotocoreSession(given)
    else:
        raise ConfigError("the session is neither an aioboto3 nor an aiobotocore session")
    loader = getattr(session, "_session", session).get_component("data_loader")
    loader.load_service_model(service, "service-2")
    loader.load_service_model(service, "endpoint-rule-set-1")
    if config.role_arn is not None:
        loader.load_service_model("sts", "service-2")
        loader.load_service_model("sts", "endpoint-rule-set-1")
    for data in ("endpoints", "partitions", "sdk-default-configuration", "_retry"):
        loader.load_data(data)
    return session  # type: ignore[no-any-return]


@functools.cache
def _loader(data_path: str | None) -> object:
    """The loader of botocore models. It caches parsed models, so the sessions of a process
    share it."""
    from botocore.loaders import create_loader

    return create_loader(data_path)


class _BotocoreSession:
    """An aiobotocore session as a Session."""

    def __init__(self, session: Any) -> None:
        self._session = session

    @property
    def region_name(self) -> str | None:
        region = self._session.get_config_variable("region")
        return None if region is None else str(region)

    def client(self, service_name: Any, **options: Any) -> Any:
        return self._session.create_client(service_name, **options)


def _check_dynamodb(response_dict: Mapping[str, Any], **_: Any) -> None:
    """Refuse an answer that is not DynamoDB's: botocore treats any other with status 200 as an
    empty one, so a write would be acknowledged and a read would find nothing."""
    check_dynamodb(response_dict["status_code"], response_dict["headers"], response_dict["body"])


def _check_s3(response_dict: Mapping[str, Any], operation_model: Any, **_: Any) -> None:
    """Refuse an answer that is not S3's. A body that is read later is checked by its entity tag."""
    body = response_dict["body"]
    content = body if isinstance(body, bytes) else b""
    check_s3(operation_model.name, response_dict["status_code"], response_dict["headers"], content)


def _pay(params: Mapping[str, Any], **_: Any) -> None:
    """Add the header of a requester who pays. botocore knows it for some operations only."""
    name, value = REQUESTER_PAYS
    params["headers"][name] = value


def _add_customer_key(config: AwsConfig, params: Mapping[str, Any], model: Any, **_: Any) -> None:
    """Add the headers of SSE-C to requests of any operation."""
    params["headers"].update(customer_key_headers(config, model.name))


def _partition(region: str | None) -> str:
    """The AWS partition of a region; copies do not cross partitions."""
    for prefix, name in (("cn-", "aws-cn"), ("us-gov-", "aws-us-gov"), ("us-iso", "aws-iso")):
        if region is not None and region.startswith(prefix):
            return name
    return "aws"
