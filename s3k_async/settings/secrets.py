"""Static credentials, which are left out of pickles and looked up again where a pickle is
loaded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, TypeVar

from s3k_async.backends.location import Location
from s3k_async.config import AwsConfig, VolumeConfig, without_user
from s3k_async.settings.options import CREDENTIALS
from s3k_async.settings.resolution import local_services

__all__ = ["with_local_secrets"]

Place = TypeVar("Place", bound=Location)

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
    places = (config.table, config.data, config.log)
    if all(place is None or place.service is None for place in places):
        return config
    here = local_services(config.name)
    return replace(
        config,
        table=_completed(config.table, here["table"]),
        data=_completed(config.data, here["data"]),
        log=None if config.log is None else _completed(config.log, here["log"]),
    )


def _completed(place: Place, here: AwsConfig) -> Place:
    service = place.service
    if service is None or here.installation not in ("", service.installation):
        return place
    mine: dict[str, Any] = {
        name: getattr(here, name)
        for name in _URLS
        if without_user(getattr(here, name)) == getattr(service, name)
    }
    if _credentials(service) == _credentials(_NONE):
        mine |= _credentials(here)
    return place.with_service(replace(service, **mine))


def _credentials(aws: AwsConfig) -> dict[str, Any]:
    return {name: getattr(aws, name) for name in CREDENTIALS}
