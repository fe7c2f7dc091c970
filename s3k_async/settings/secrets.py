"""Static credentials: absent from pickles, resolved again where a pickle is loaded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, TypeVar

from s3k_async.backends.aws.access import BY_CUSTOMER_KEY
from s3k_async.backends.location import Location
from s3k_async.config import AwsConfig, VolumeConfig, without_user
from s3k_async.settings.options import CREDENTIALS
from s3k_async.settings.resolution import local_services

__all__ = ["with_local_secrets"]

Place = TypeVar("Place", bound=Location)

_NONE: Final = AwsConfig()
_URLS: Final = ("endpoint", "proxy", "sts_endpoint")
"""Options whose user and password are left out as well."""


def with_local_secrets(config: VolumeConfig) -> VolumeConfig:
    """The configuration with the credentials of this machine's environment and configuration file
    for its services, those of a client of this machine. Existing credentials and all other settings
    are kept.

    Local settings with another endpoint for a part are for another service, and are not used.
    Without any, the services' default chain applies. Raises ConfigError for invalid local settings.
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
        alerts=replace(
            config.alerts, service=_with_credentials(config.alerts.service, here["alerts"])
        ),
    )


def _completed(place: Place, here: AwsConfig) -> Place:
    service = place.service
    if service is None:
        return place
    return place.with_service(_with_credentials(service, here))


def _with_credentials(service: AwsConfig, here: AwsConfig) -> AwsConfig:
    if here.installation not in ("", service.installation):
        return service
    mine: dict[str, Any] = {
        name: getattr(here, name)
        for name in _URLS
        if without_user(getattr(here, name)) == getattr(service, name)
    }
    if service.encryption == BY_CUSTOMER_KEY and not service.customer_key:
        mine["customer_key"] = here.customer_key
    if service.delegated is None and _credentials(service) == _credentials(_NONE):
        mine |= _credentials(here)
    return replace(service, **mine)


def _credentials(aws: AwsConfig) -> dict[str, Any]:
    return {name: getattr(aws, name) for name in CREDENTIALS}
