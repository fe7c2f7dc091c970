"""Connections to one Redis database: scripts, the check of the server's settings, and errors.

A connection pool belongs to the process and event loop that first used it; a forked child makes its
own. redis-py is imported on first use. It never repeats a command: `retrying` does.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import anyio

from s3k_async.backends.aws.access import AwsConfig
from s3k_async.backends.redis.redis_server import RedisServer
from s3k_async.errors import (
    ClosedClientError,
    ConfigError,
    CredentialsError,
    NoSpaceError,
    PermissionDeniedError,
    RequestTimeoutError,
    ResponseLostError,
    S3kError,
    ServiceError,
    ThrottledError,
    UnreachableError,
    UnsupportedError,
    WrongLoopError,
)
from s3k_async.storage_space import StorageSpace

if TYPE_CHECKING:
    from redis.asyncio import BlockingConnectionPool

__all__ = ["RedisConnection", "Script"]

_LOG = logging.getLogger(__name__)

_OLDEST: Final = 7
"""Major version of the oldest server whose scripts have flags."""
_CHECKED: Final = (
    "appendonly",
    "appendfsync",
    "maxmemory-policy",
    "no-appendfsync-on-rewrite",
)
_DURABLE: Final = {
    "appendonly": "yes",
    "appendfsync": "always",
    "no-appendfsync-on-rewrite": "no",
}
_inherited: list[object] = []
"""Pools inherited by a forked child: kept for good, because collecting one would close connections
of the parent through the selector that both share."""


class Script:
    """A Lua script, which the server runs as one atomic step.

    `writes`: whether it may change anything, so that after a lost response the outcome is unknown.
    `frees`: whether the server runs it though its memory is full. It refuses others that write
    before their first command: in a script without flags, a command that frees memory would allow
    all later ones.
    """

    def __init__(self, text: str, *, writes: bool, frees: bool = False) -> None:
        flags = ("allow-oom" if frees else "") if writes else "no-writes"
        self.text = f"#!lua flags={flags}\n{text}".encode()
        self.sha = hashlib.sha1(self.text, usedforsecurity=False).hexdigest()
        self.writes = writes


class RedisConnection:
    """Pool of connections to a database, made on first use, until `close`. `label`: the location in
    messages, without secrets."""

    def __init__(self, server: RedisServer, service: AwsConfig, label: str) -> None:
        self.server = server
        self.label = label
        self._service = service
        self._pool: _Pool | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"RedisConnection({self.label!r})"

    async def run(self, script: Script, key: bytes, *arguments: bytes | str | int) -> Any:
        """The script's answer; `key` is its only one. Raises S3kError."""
        pool = await self._ready()
        shape = (1, key, *arguments)
        found = await self._exchange(pool, ("EVALSHA", script.sha, *shape), script.writes)
        if _is_unknown_script(found):
            found = await self._exchange(pool, ("EVAL", script.text, *shape), script.writes)
        if isinstance(found, Exception):
            raise _refusal(found, self.label) from found
        return found

    async def space(self) -> StorageSpace:
        """The memory of the server, of which `maxmemory` is the limit; all unknown where the user
        may not run INFO. Raises S3kError."""
        pool = await self._ready()
        found = await self._exchange(pool, ("INFO", "memory"), False)
        if isinstance(found, Exception):
            self._unknown(found)
            return StorageSpace()
        info = _info(found)
        used, limit = (int(info.get(name, "0")) for name in ("used_memory", "maxmemory"))
        if not limit:
            return StorageSpace(used=used)
        return StorageSpace(total=limit, used=used, free=max(limit - used, 0))

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        pool, self._pool = self._pool, None
        self._closed = True
        if pool is not None and pool.process == os.getpid():
            await pool.connections.disconnect(inuse_connections=True)

    async def _ready(self) -> _Pool:
        """The pool of this process, whose server was checked."""
        if self._closed:
            raise ClosedClientError("the connection to Redis is closed", path=self.label)
        pool = self._pool
        if pool is not None and pool.process != os.getpid():
            _inherited.append(pool)
            pool = None
        if pool is None:
            pool = self._pool = _Pool(self._connections())
        elif pool.loop is not asyncio.get_running_loop():
            raise WrongLoopError("the connection belongs to another event loop", path=self.label)
        if not pool.checked:
            async with pool.lock:
                if not pool.checked:
                    await self._check(pool)
                    pool.checked = True
        return pool

    def _connections(self) -> BlockingConnectionPool:
        try:
            from redis.asyncio import BlockingConnectionPool, Connection, SSLConnection
            from redis.asyncio.retry import Retry
            from redis.backoff import NoBackoff
        except ImportError as error:
            raise ConfigError(
                "redis-py is not installed: pip install 's3k-async[redis]'", path=self.label
            ) from error
        server, service = self.server, self._service
        password = server.password(service)
        if server.user and password is None:
            raise CredentialsError(
                f"no password for the Redis user {server.user!r}: give it in the URL, or the user "
                "as access_key_id and the password as secret_access_key",
                path=self.label,
            )
        options: dict[str, Any] = {
            "host": server.host,
            "port": server.port,
            "db": server.database,
            "username": server.user or None,
            "password": password,
            "socket_connect_timeout": service.connect_timeout,
            "socket_timeout": service.read_timeout,
            "protocol": 2,
            "retry": Retry(NoBackoff(), 0),
            "driver_info": None,
        }
        if server.tls:
            options |= {
                "ssl_ca_certs": service.ca_bundle,
                "ssl_cert_reqs": "required" if service.verify_tls else "none",
                "ssl_check_hostname": service.verify_tls,
            }
        return BlockingConnectionPool(
            connection_class=SSLConnection if server.tls else Connection,
            max_connections=service.max_connections,
            timeout=None,
            **options,
        )

    async def _exchange(self, pool: _Pool, command: tuple[Any, ...], writes: bool) -> Any:
        """The server's answer to a command; an error that it reports is returned. Raises S3kError
        if there is no answer."""
        from redis.exceptions import AuthenticationError, BusyLoadingError, ResponseError

        with _connecting(self.label):
            connection = await pool.connections.get_connection()  # type: ignore[no-untyped-call]
        answered = False
        try:
            with _exchanging(self.label, writes):
                await connection.send_command(*command)
                try:
                    answer = await connection.read_response(disconnect_on_error=False)
                except (ResponseError, AuthenticationError, BusyLoadingError) as error:
                    answer = error
            answered = True
            return answer
        finally:
            with anyio.CancelScope(shield=True):
                if not answered:  # a late response must not be read as that to another command
                    await connection.disconnect(nowait=True)
                await pool.connections.release(connection)

    async def _check(self, pool: _Pool) -> None:
        """Raises S3kError for a server on which acknowledged writes may be lost; a warning where
        that cannot be found out, or was accepted in the URL."""
        info = await self._exchange(pool, ("INFO",), False)
        if isinstance(info, Exception):
            self._unknown(info)
        else:
            self._check_server(_info(info))
        found = await self._exchange(pool, ("CONFIG", "GET", *_CHECKED), False)
        if isinstance(found, Exception):
            self._unknown(found)
            return
        pairs = iter([each.decode() for each in found])
        self._check_settings(dict(zip(pairs, pairs, strict=True)))

    def _check_server(self, info: Mapping[str, str]) -> None:
        version = info.get("redis_version", "")
        if version.partition(".")[0].isdecimal() and int(version.partition(".")[0]) < _OLDEST:
            raise UnsupportedError(
                f"Redis {version} is too old: a volume needs version {_OLDEST}", path=self.label
            )
        if info.get("cluster_enabled") == "1":
            raise UnsupportedError(
                "Redis Cluster is not supported: a transaction of a volume changes keys of several "
                "slots; use a server without cluster mode",
                path=self.label,
            )

    def _check_settings(self, found: Mapping[str, str]) -> None:
        policy = found.get("maxmemory-policy", "noeviction")
        if policy != "noeviction":
            raise ConfigError(
                f"Redis may evict parts of the volume: its maxmemory-policy is {policy}; "
                "set it to noeviction",
                path=self.label,
            )
        lacking = [
            f"{name} {value}" for name, value in _DURABLE.items() if found.get(name) != value
        ]
        if not lacking:
            return
        needs = f"Redis may lose acknowledged writes: it needs {', '.join(lacking)}"
        if not self.server.relaxed:
            raise ConfigError(
                f"{needs}; set this, or accept the loss with ?durability=relaxed in the URL",
                path=self.label,
            )
        _LOG.warning("%s: %s", self.label, needs)

    def _unknown(self, error: Exception) -> None:
        refused = _refusal(error, self.label)
        if not isinstance(refused, PermissionDeniedError | ServiceError) or isinstance(
            refused, CredentialsError
        ):
            raise refused from error
        _LOG.warning(
            "%s: the server does not report its settings, so that its durability is unknown: %s",
            self.label,
            error,
        )


class _Pool:
    """Connections of one process and event loop."""

    def __init__(self, connections: BlockingConnectionPool) -> None:
        self.connections = connections
        self.process = os.getpid()
        self.loop = asyncio.get_running_loop()
        self.lock = asyncio.Lock()
        self.checked = False


def _info(data: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in data.decode(errors="replace").splitlines())
    return {name: value for name, _, value in lines}


@contextmanager
def _connecting(label: str) -> Iterator[None]:
    """Errors before a command was sent."""
    from redis.exceptions import ConnectionError as NoConnectionError
    from redis.exceptions import RedisError, ResponseError
    from redis.exceptions import TimeoutError as NoAnswerError

    try:
        yield
    except (NoConnectionError, NoAnswerError, OSError) as error:
        refused = _refusal(error, label)
        if type(refused) is not ServiceError:
            raise refused from error
        raise UnreachableError(f"no connection to Redis: {error}", path=label) from error
    except (ResponseError, RedisError) as error:
        raise _refusal(error, label) from error


@contextmanager
def _exchanging(label: str, writes: bool) -> Iterator[None]:
    """Errors after a command was sent, in part at least."""
    from redis.exceptions import RedisError
    from redis.exceptions import TimeoutError as NoAnswerError

    try:
        yield
    except (RedisError, OSError) as error:
        if isinstance(error, NoAnswerError | TimeoutError) and not writes:
            raise RequestTimeoutError("no response from Redis", path=label) from error
        raise ResponseLostError(f"the response of Redis was lost: {error}", path=label) from error


def _is_unknown_script(answer: object) -> bool:
    from redis.exceptions import NoScriptError

    return isinstance(answer, NoScriptError)


def _refusal(error: Exception, label: str) -> S3kError:
    """The error for one that the server reports; nothing was applied."""
    from redis import exceptions

    text = str(error)
    code = text.partition(" ")[0]
    if isinstance(error, exceptions.AuthenticationError):
        return CredentialsError(f"Redis refused the credentials: {text}", path=label)
    if isinstance(error, exceptions.NoPermissionError) or "user executing the script" in text:
        return PermissionDeniedError(f"Redis denied access: {text}", path=label)
    if isinstance(error, exceptions.BusyLoadingError | exceptions.MasterDownError):
        return UnreachableError(f"Redis is not ready: {text}", path=label)
    if isinstance(error, exceptions.OutOfMemoryError):
        return NoSpaceError("Redis has reached its maxmemory: raise it or free space", path=label)
    if code == "BUSY" or "max number of clients" in text:
        return ThrottledError(f"Redis is overloaded: {text}", path=label)
    if isinstance(error, exceptions.ReadOnlyError):
        return ServiceError(
            "the Redis server is a replica: connect to its primary",
            path=label,
            service_code="READONLY",
        )
    if code == "MISCONF":
        return ServiceError(
            f"Redis cannot persist data, and refuses writes: {text}",
            path=label,
            service_code="MISCONF",
        )
    return ServiceError(f"Redis returned an error: {text}", path=label, service_code=code)
