"""Static credentials do not travel in pickles; this finds them again where a pickle arrives."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from s3k_async.config import BlobLocation, DynamoTable, S3Bucket, TableLocation, VolumeConfig
from s3k_async.errors import ConfigError
from s3k_async.settings.resolution import resolve

__all__ = ["with_local_secrets"]

Place = TypeVar("Place", bound=TableLocation | BlobLocation | None)


def with_local_secrets(config: VolumeConfig) -> VolumeConfig:
    """The configuration with the static credentials that this machine's environment and configuration file have for
    the same volume at the same places. Without any, the services' default chain is left to find some.
    """
    if not any(isinstance(place, DynamoTable | S3Bucket) for place in (config.table, config.data, config.log)):
        return config
    try:
        here = resolve(f"s3k://{config.name}")
    except ConfigError:
        return config
    return replace(
        config,
        table=_completed(config.table, here.table),
        data=_completed(config.data, here.data),
        log=_completed(config.log, here.log),
    )


def _completed(place: Place, here: object) -> Place:
    if not isinstance(place, DynamoTable | S3Bucket) or not isinstance(here, type(place)) or place.aws.access_key_id:
        return place
    alike = here.aws.without_secrets() == place.aws.without_secrets() and replace(here, aws=place.aws) == place
    return here if alike else place
