"""Tables and blobs in Redis."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Final, Self
from urllib.parse import parse_qs, quote, unquote, urlsplit

from s3k_async.backends.aws.access import AwsConfig, Secret, without_user
from s3k_async.backends.location import (
    BlobCapabilities,
    BlobLocation,
    Location,
    OpenContext,
    TableCapabilities,
    TableLocation,
    TableStore,
)
from s3k_async.backends.ports.blobs import BlobStore
from s3k_async.backends.redis.redis_server import PORT, RedisServer
from s3k_async.errors import ConfigError

if TYPE_CHECKING:
    from s3k_async.backends.redis.redis_connection import RedisConnection

__all__ = ["RedisBlobs", "RedisServer", "RedisTable"]

_FORM: Final = "redis://USER:PASSWORD@HOST:PORT/DATABASE/PREFIX"
_OPTIONS: Final = frozenset({"prefix", "durability"})
_PATH: Final = re.compile(r"/(\d{1,9})(?:/(.*))?", re.DOTALL)


def _parsed(text: str, service: AwsConfig) -> tuple[RedisServer, str, AwsConfig]:
    """The server, the prefix without `/` at its ends, and the settings with the URL's password.
    Raises ConfigError, without the password in its message."""
    shown = without_user(text) or ""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port or PORT
        options = parse_qs(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        # The cause could quote the password.
        raise ConfigError(f"a Redis URL has the form {_FORM}", path=shown) from None
    path = _PATH.fullmatch(parts.path or "/0")
    if not host or path is None or parts.fragment:
        raise ConfigError(f"a Redis URL has the form {_FORM}", path=shown)
    unknown = options.keys() - _OPTIONS
    if unknown or any(len(values) > 1 for values in options.values()):
        raise ConfigError(
            "a Redis URL has the options prefix and durability, each once", path=shown
        )
    durability = options.get("durability", ["strict"])[0]
    if durability not in ("strict", "relaxed"):
        raise ConfigError("durability is strict or relaxed", path=shown)
    prefix = unquote(path[2] or "").strip("/")
    if "prefix" in options:
        if prefix:
            raise ConfigError("a Redis URL has its prefix in the path or as option", path=shown)
        prefix = options["prefix"][0].strip("/")
    user = unquote(parts.username or "")
    if parts.password is not None:
        user = user or "default"
        service = replace(
            service,
            access_key_id=Secret(user),
            secret_access_key=Secret(unquote(parts.password)),
            session_token=Secret(),
        )
    server = RedisServer(
        host, port, int(path[1]), user, parts.scheme == "rediss", durability == "relaxed"
    )
    return server, prefix, service


def _url(server: RedisServer, prefix: str) -> str:
    """The URL without user, options and `/` at its end."""
    scheme = "rediss" if server.tls else "redis"
    below = f"/{quote(prefix)}" if prefix else ""
    return f"{scheme}://{server.address}{below}"


@dataclass(frozen=True, slots=True)
class _RedisLocation(Location):
    """The keys of `prefix` in a Redis database."""

    server: RedisServer
    prefix: str = ""
    aws: AwsConfig = field(default_factory=AwsConfig)
    """Timeouts, certificates, and the credentials of the user: its name as `access_key_id`, its
    password as `secret_access_key`."""

    scheme: ClassVar[str] = "redis"
    form: ClassVar[str] = "redis://HOST/DATABASE/PREFIX"

    @classmethod
    def parse(cls, text: str, service: AwsConfig) -> Self:
        return cls(*_parsed(text, service))

    @property
    def service(self) -> AwsConfig:
        return self.aws

    def with_service(self, service: AwsConfig) -> Self:
        return replace(self, aws=self.server.with_credentials(self.aws, service))

    def _connection(self) -> RedisConnection:
        from s3k_async.backends.redis.redis_connection import RedisConnection

        return RedisConnection(self.server, self.aws, self.label)


@dataclass(frozen=True, slots=True)
class RedisTable(_RedisLocation, TableLocation):
    """A table in a Redis database, under the keys of `prefix`."""

    capabilities: ClassVar[TableCapabilities] = TableCapabilities(
        conditional_writes=True, transaction_size=100, snapshot_reads=True
    )

    def open(self, opening: OpenContext) -> TableStore:
        from s3k_async.backends.redis.redis_items import RedisItemStore

        return RedisItemStore(self._connection(), self.prefix, opening.runtime)

    @property
    def label(self) -> str:
        return _url(self.server, self.prefix)

    def identity(self, *, embedded: bool) -> str:  # noqa: ARG002 - the same for any volume
        return _url(replace(self.server, tls=False), self.prefix)

    @property
    def volume_name(self) -> str:
        return self.prefix.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class RedisBlobs(_RedisLocation, BlobLocation):
    """Blobs in a Redis database, under the keys of `prefix`. A place has no others inside it."""

    capabilities: ClassVar[BlobCapabilities] = BlobCapabilities(
        conditional_writes=True, multipart=True, sorted_listing=True
    )

    def open(self, opening: OpenContext) -> BlobStore:
        from s3k_async.backends.redis.redis_blobs import RedisBlobStore

        return RedisBlobStore(self._connection(), self.prefix, opening.runtime)

    @property
    def label(self) -> str:
        return self.text(None)

    def text(self, home: str | None) -> str:  # noqa: ARG002 - it is in no directory
        return f"{_url(self.server, self.prefix)}/"

    def below(self, name: str) -> Self:
        return replace(self, prefix=f"{self.prefix}/{name}".lstrip("/"))

    @property
    def place(self) -> object:
        return self.server.address, self.prefix
