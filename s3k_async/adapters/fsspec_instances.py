"""Cache of filesystem objects: fsspec's keys are the arguments, here the resolved configuration."""

from __future__ import annotations

import os
from dataclasses import replace
from hashlib import sha256
from typing import Any

from fsspec.asyn import AsyncFileSystem
from fsspec.config import apply_config

from s3k_async.config import VolumeConfig
from s3k_async.errors import ConfigError
from s3k_async.settings import OPTIONS, resolve, with_local_secrets

__all__ = ["OPTIONS_OF_FSSPEC", "Volumes", "unpickled"]

OPTIONS_OF_FSSPEC: dict[str, Any] = {
    "asynchronous": False,
    "batch_size": None,
    "use_listings_cache": False,
    "listings_expiry_time": None,
    "max_paths": None,
}
"""Options of fsspec in the key of a filesystem object, with their defaults."""


class Volumes(type(AsyncFileSystem)):  # type: ignore[misc]  # fsspec is untyped
    """The metaclass: settings are resolved before fsspec's lookup in its cache.

    So a relative directory is below the current working directory, a changed environment or
    configuration file takes effect, and other credentials give another object.
    """

    def __call__(cls, volume: Any = None, **given: Any) -> Any:
        if volume is not None:
            given["volume"] = volume
        settings = dict(apply_config(cls, given))
        options = {name: settings.pop(name, usual) for name, usual in OPTIONS_OF_FSSPEC.items()}
        options |= {
            name: settings.pop(name) for name in ("loop", "skip_instance_cache") if name in settings
        }
        objects = {name: settings.pop(name, None) for name in ("session", "metrics")}
        config = _config(settings)
        made = super().__call__(config=config, identity=_identity(config), **objects, **options)
        if "identity" in made.storage_options:
            # For JSON and display: the given arguments without secrets and live objects.
            made.storage_options = {
                name: _shown(name, value) for name, value in given.items() if _can_be_shown(name)
            }
        return made


def unpickled(cls: Any, config: VolumeConfig, options: dict[str, Any]) -> Any:
    """A filesystem from its pickle, with the secrets of the local machine."""
    return cls(config=with_local_secrets(config), **options)


def _config(settings: dict[str, Any]) -> VolumeConfig:
    """The configuration of the settings; `name` is the volume in a URL, which other settings must
    not contradict."""
    volume, name, config = (
        settings.pop("volume", None),
        settings.get("name"),
        settings.get("config"),
    )
    if isinstance(config, VolumeConfig):
        settings.pop("name", None)
        if name and config.name and name != config.name:
            raise ConfigError(
                f"the volume of the configuration is {config.name!r}, not {name!r}", path=name
            )
        config = resolve(volume, **settings)
        return replace(config, name=name) if name else config
    if volume is None and name:
        volume = f"s3k://{settings.pop('name')}"
    return resolve(volume, **settings)


def _identity(config: VolumeConfig) -> str:
    """Key of the credentials, which no text of a configuration shows."""
    digest = sha256()
    for place in (config.table, config.data, config.log):
        service = None if place is None else place.service
        if service is not None:
            for secret in (service.access_key_id, service.secret_access_key, service.session_token):
                digest.update(sha256(secret.reveal().encode()).digest())
    return digest.hexdigest()


def _can_be_shown(name: str) -> bool:
    return name not in ("session", "metrics", "loop", "skip_instance_cache") and not (
        name in OPTIONS and OPTIONS[name].type == "secret"
    )


def _shown(name: str, value: Any) -> Any:
    """An argument for display; a path is made absolute."""
    if name == "volume" and "://" not in os.fspath(value):
        return os.path.abspath(os.path.expanduser(value))
    return os.path.abspath(value) if isinstance(value, os.PathLike) else value
