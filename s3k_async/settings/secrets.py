"""Static credentials do not travel in pickles; this finds them again where a pickle arrives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, TypeVar

from s3k_async.config import (
    AwsConfig,
    BlobLocation,
    DynamoTable,
    S3Bucket,
    TableLocation,
    VolumeConfig,
    without_user,
)
from s3k_async.settings.options import CREDENTIALS
from s3k_async.settings.resolution import local_services

__all__ = ["with_local_secrets"]

Place = TypeVar("Place", bound=TableLocation | BlobLocation | None)

_NONE: Final = AwsConfig()
_URLS: Final = ("endpoint", "proxy")
"""Options whose user and password stay behind as well."""


def with_local_secrets(config: VolumeConfig) -> VolumeConfig:
    """The configuration with the credentials that this machine's environment and configuration file
    have for the services of its places, which are those that a client of this machine would use
    there. Places that have credentials keep them, and everything else stays as it arrived.

    Local settings that name another endpoint for a part are about another service, and give that
    part none. Without any, the services' default chain is left to find some. Raises ConfigError if
    the local settings are wrong.
    """
    if not any(
        isinstance(place, DynamoTable | S3Bucket)
        for place in (config.table, config.data, config.log)
    ):
        return config
    here = local_services(config.name)
    return replace(
        config,
        table=_completed(config.table, here["table"]),
        data=_completed(config.data, here["data"]),
        log=_completed(config.log, here["log"]),
    )


def _completed(place: Place, here: AwsConfig) -> Place:
    if not isinstance(place, DynamoTable | S3Bucket) or here.installation not in (
        "",
        place.aws.installation,
    ):
        return place
    mine: dict[str, Any] = {
        name: getattr(here, name)
        for name in _URLS
        if without_user(getattr(here, name)) == getattr(place.aws, name)
    }
    if _credentials(place.aws) == _credentials(_NONE):
        mine |= _credentials(here)
    return replace(place, aws=replace(place.aws, **mine))


def _credentials(aws: AwsConfig) -> dict[str, Any]:
    return {name: getattr(aws, name) for name in CREDENTIALS}
