"""Temporary credentials for another process.

Credentials that are already temporary, such as those of a role, are passed on; long-lived ones are
exchanged for session credentials. Source: AWS STS API Reference, GetSessionToken.
"""

from __future__ import annotations

from dataclasses import replace

from s3k_async._core.runtime import SYSTEM, Runtime
from s3k_async.backends.aws.access import AwsConfig
from s3k_async.backends.aws.credential_source import TemporaryCredentials
from s3k_async.backends.aws.error_mapping import map_exceptions
from s3k_async.backends.aws.secret_text import Secret
from s3k_async.backends.aws.session import AwsClient
from s3k_async.errors import ConfigError

__all__ = ["temporary_credentials"]


async def temporary_credentials(
    config: AwsConfig, runtime: Runtime = SYSTEM
) -> TemporaryCredentials:
    """Temporary credentials of the identity in the settings.

    A role is assumed anew; other temporary credentials keep their remaining lifetime; for
    long-lived ones GetSessionToken returns new ones, valid for twelve hours. Raises ConfigError (an
    `endpoint` without `sts_endpoint`), CredentialsError, and errors of the service.
    """
    client = AwsClient("sts", replace(config, endpoint=config.sts_endpoint))
    try:
        credentials = (await client.channel(runtime)).credentials
        with map_exceptions(None):
            keys = await credentials.get()
        if keys.token:
            return TemporaryCredentials(
                Secret(keys.access_key),
                Secret(keys.secret_key),
                Secret(keys.token),
                credentials.expires_ms,
            )
        if config.endpoint is not None and config.sts_endpoint is None:
            raise ConfigError(
                "delegate_credentials needs sts_endpoint, the URL of the service that gives "
                "temporary credentials, because endpoint is set"
            )
        with map_exceptions(None):
            answer = await (await client.get()).get_session_token()
        given = answer["Credentials"]
        return TemporaryCredentials(
            Secret(given["AccessKeyId"]),
            Secret(given["SecretAccessKey"]),
            Secret(given["SessionToken"]),
            int(given["Expiration"].timestamp() * 1000),
        )
    finally:
        await client.close()
