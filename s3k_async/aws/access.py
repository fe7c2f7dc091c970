"""How to reach one AWS service, and text that must not be shown."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

__all__ = ["ENCRYPTIONS", "AwsConfig", "Secret", "without_user"]

ENCRYPTIONS: Final = ("AES256", "aws:kms", "aws:kms:dsse")
"""Server-side encryption that can be asked of S3, as the header `x-amz-server-side-encryption` says
it."""

_USER = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*://)?[^/?#]*@")


class Secret:
    """Text that never shows in a repr, a log line or a pickle. Unpickled, it is empty and means:
    resolve anew."""

    __slots__ = ("_value",)

    def __init__(self, value: str = "") -> None:
        self._value = value

    def reveal(self) -> str:
        """The text itself."""
        return self._value

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __repr__(self) -> str:
        return "Secret('***')" if self._value else "Secret('')"

    def __reduce__(self) -> tuple[Any, ...]:
        return Secret, ()


def without_user(url: str | None) -> str | None:
    """A URL, or an address without a scheme, without the user and password in it."""
    return None if url is None else _USER.sub(r"\1", url)


@dataclass(frozen=True, slots=True)
class AwsConfig:
    """How to reach one AWS service (or one that speaks its protocol). Unset fields fall to the AWS
    default chain.

    Neither its repr nor its pickle has static credentials, or the user and password of `endpoint`
    or `proxy`.
    """

    region: str | None = None
    endpoint: str | None = None
    profile: str | None = None
    access_key_id: Secret = field(default_factory=Secret)
    secret_access_key: Secret = field(default_factory=Secret)
    session_token: Secret = field(default_factory=Secret)
    max_connections: int = 64
    connect_timeout: float = 5.0
    read_timeout: float = 30.0
    ca_bundle: str | None = None
    verify_tls: bool = True
    proxy: str | None = None
    encryption: str | None = None
    """Of S3: the server-side encryption of what is stored, one of ENCRYPTIONS; None: the bucket's
    default. Another value is a method of S3A that is not supported here: nothing is written then.
    """
    kms_key: str | None = None
    """Id or ARN of the key for `aws:kms` and `aws:kms:dsse`; None: the account's key for S3."""

    @property
    def installation(self) -> str:
        """Which installation of the service is meant: its endpoint without a user; empty for AWS
        itself."""
        return (without_user(self.endpoint) or "").rstrip("/").lower()

    def without_secrets(self) -> AwsConfig:
        """The same without static credentials, and without the user and password in a URL."""
        return replace(
            self,
            endpoint=without_user(self.endpoint),
            proxy=without_user(self.proxy),
            access_key_id=Secret(),
            secret_access_key=Secret(),
            session_token=Secret(),
        )

    def __repr__(self) -> str:
        shown = replace(self, endpoint=without_user(self.endpoint), proxy=without_user(self.proxy))
        values = (f"{each.name}={getattr(shown, each.name)!r}" for each in fields(self))
        return f"AwsConfig({', '.join(values)})"

    def __reduce__(self) -> tuple[Any, ...]:
        bare = self.without_secrets()
        return AwsConfig, tuple(getattr(bare, each.name) for each in fields(self))
