"""Temporary credentials as a value, and a port for sources outside the default chain of AWS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from s3k_async.backends.aws.secret_text import Secret

__all__ = ["CredentialSource", "TemporaryCredentials"]


@dataclass(frozen=True, slots=True)
class TemporaryCredentials:
    """Credentials of an AWS STS session. Repr and pickle omit the secrets."""

    access_key_id: Secret
    secret_access_key: Secret
    session_token: Secret
    expires_ms: int | None
    """When they expire, ms since 1970; None if that is not known."""


class CredentialSource(Protocol):
    """Temporary credentials that another process obtained. Equal sources return credentials of the
    same identity."""

    def current(self) -> TemporaryCredentials:
        """The newest credentials. Raises CredentialsError if they have expired."""
