"""The server of a Redis URL, and its credentials."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from s3k_async.backends.aws.access import AwsConfig, Secret

__all__ = ["PORT", "RedisServer"]

PORT: Final = 6379
"""The port without one in the URL."""


@dataclass(frozen=True, slots=True)
class RedisServer:
    """A database of a Redis server and the user who connects to it."""

    host: str
    port: int = PORT
    database: int = 0
    user: str = ""
    """Name of the user; empty: no authentication."""
    tls: bool = False
    relaxed: bool = False
    """Whether a server that may lose acknowledged writes is accepted."""

    @property
    def address(self) -> str:
        """`HOST:PORT/DATABASE`, the same for every client."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}/{self.database}"

    def password(self, service: AwsConfig) -> str | None:
        """The password of the user; None if the settings have none. Credentials of another user,
        such as an AWS access key, are not sent to the server."""
        if self.user and service.access_key_id.reveal() == self.user:
            return service.secret_access_key.reveal()
        return None

    def with_credentials(self, before: AwsConfig, after: AwsConfig) -> AwsConfig:
        """The settings `after`, with the credentials of `before` unless it has the user's own."""
        if self.password(after) is not None or self.password(before) is None:
            return after
        return replace(
            after,
            access_key_id=before.access_key_id,
            secret_access_key=before.secret_access_key,
            session_token=Secret(),
        )
