"""Temporary credentials of a role from AWS STS, which is assumed by the credentials of the settings
or of the default chain, or by a web identity token.

They are temporary, and renewed by aiobotocore before they expire. Source: AWS STS API Reference,
AssumeRole and AssumeRoleWithWebIdentity.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiobotocore.config import AioConfig
from aiobotocore.credentials import (
    AioAssumeRoleCredentialFetcher,
    AioAssumeRoleWithWebIdentityCredentialFetcher,
    AioCredentialResolver,
    AioCredentials,
    AioDeferredRefreshableCredentials,
)
from botocore.exceptions import ClientError

from s3k_async.backends.aws.access import AwsConfig
from s3k_async.errors import ConfigError, CredentialsError

__all__ = ["use_role"]

_METHOD: Final = "s3k-assumed-role"
_GLOBAL_REGION: Final = "us-east-1"
_SESSION_NAME: Final = "s3k-async"
_Fetch = Callable[[], Awaitable[dict[str, Any]]]


def use_role(session: Any, config: AwsConfig) -> None:
    """Make all clients of a session use the credentials of the role in the settings."""
    chain = session.get_component("credential_provider")
    provider: Any = _RoleProvider(session, config, chain)
    session.register_component("credential_provider", AioCredentialResolver(providers=[provider]))


class _RoleProvider:
    """A credential provider of aiobotocore. It calls STS when credentials are first needed."""

    METHOD = _METHOD
    CANONICAL_NAME = None

    def __init__(self, session: Any, config: AwsConfig, chain: Any) -> None:
        self._session = session
        self._config = config
        self._role = str(config.role_arn)
        self._chain = chain

    async def load(self) -> AioDeferredRefreshableCredentials:
        """The credentials of the role, which are fetched later."""
        fetch = self._by_token() if self._config.web_identity_token_file else await self._by_keys()

        async def fetched() -> dict[str, Any]:
            try:
                return await fetch()
            except ClientError as error:
                code = error.response.get("Error", {}).get("Code", "Unknown")
                raise CredentialsError(
                    f"AWS STS does not give the credentials of the role {self._role} "
                    f"({code}): its trust policy has to allow the caller"
                ) from error

        return AioDeferredRefreshableCredentials(fetched, _METHOD)

    def _by_token(self) -> _Fetch:
        path = str(self._config.web_identity_token_file)

        def token() -> str:
            try:
                with open(path, encoding="utf-8") as file:
                    return file.read()
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or "not UTF-8"
                raise ConfigError(
                    f"the web identity token cannot be read: {reason}", path=path
                ) from None

        fetcher: Any = AioAssumeRoleWithWebIdentityCredentialFetcher(
            self._sts, token, self._role, extra_args=self._arguments()
        )
        fetch: _Fetch = fetcher.fetch_credentials
        return fetch

    async def _by_keys(self) -> _Fetch:
        fetcher: Any = AioAssumeRoleCredentialFetcher(
            self._sts, await self._source(), self._role, extra_args=self._arguments()
        )
        fetch: _Fetch = fetcher.fetch_credentials
        return fetch

    async def _source(self) -> Any:
        """The credentials that sign the request to STS. Raises CredentialsError."""
        config = self._config
        if config.access_key_id:
            return AioCredentials(
                config.access_key_id.reveal(),
                config.secret_access_key.reveal(),
                config.session_token.reveal() or None,
            )
        found = await self._chain.load_credentials()
        if found is None:
            raise CredentialsError(
                f"there are no credentials to assume the role {self._role}: set access_key_id "
                "and secret_access_key, a profile, or web_identity_token_file"
            )
        return found

    def _arguments(self) -> dict[str, Any]:
        config = self._config
        given = {
            "RoleSessionName": config.role_session_name or _SESSION_NAME,
            "DurationSeconds": config.role_duration,
            "ExternalId": None if config.web_identity_token_file else config.external_id,
        }
        return {name: value for name, value in given.items() if value is not None}

    def _sts(self, service: str, *, config: AioConfig | None = None, **options: Any) -> Any:
        """A client of STS, as botocore's `create_client`."""
        mine = self._config
        region = mine.region or self._session.get_config_variable("region")
        basis = AioConfig(
            connect_timeout=mine.connect_timeout,
            read_timeout=mine.read_timeout,
            proxies={"http": mine.proxy, "https": mine.proxy} if mine.proxy else None,
        )
        return self._session.create_client(
            service,
            region_name=region or os.environ.get("AWS_REGION") or _GLOBAL_REGION,
            endpoint_url=mine.sts_endpoint,
            verify=mine.ca_bundle or (None if mine.verify_tls else False),
            config=basis if config is None else basis.merge(config),
            **options,
        )
