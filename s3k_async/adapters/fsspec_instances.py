"""Which filesystem object somebody gets: fsspec keeps one for equal arguments, here for equal
meaning."""

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
"""Options of fsspec's own that a filesystem is told apart by, and what they are if they are not
given."""


class Volumes(type(AsyncFileSystem)):  # type: ignore[misc]  # fsspec is untyped
    """The class of the class: settings are resolved before fsspec looks for an object that it has
    already.

    So a relative directory means the one of now, a changed environment or configuration file is
    noticed, and who gives other credentials gets another object.
    """

    def __call__(cls, volume: Any = None, **given: Any) -> Any:
        if volume is not None:
            given["volume"] = volume
        settings = dict(apply_config(cls, given))
        options = {name: settings.pop(name, usual) for name, usual in OPTIONS_OF_FSSPEC.items()}
        options |= {
            name: settings.pop(name) for name in ("loop", "skip_instance_cache") if name in settings
        }
        session = settings.pop("session", None)
        config = _config(settings)
        made = super().__call__(
            config=config, session=session, identity=_identity(config), **options
        )
        if "identity" in made.storage_options:
            # What travels as JSON, and what people look at: as it was given, but for secrets and
            # live objects.
            made.storage_options = {
                name: _shown(name, value) for name, value in given.items() if _can_be_shown(name)
            }
        return made


def unpickled(cls: Any, config: VolumeConfig, options: dict[str, Any]) -> Any:
    """A filesystem from its pickle: with the secrets of the machine where it arrives."""
    return cls(config=with_local_secrets(config), **options)


def _config(settings: dict[str, Any]) -> VolumeConfig:
    """What the settings mean; `name` is what a URL says, and has to be the name of what else is
    given."""
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
    """Tells credentials apart, which no text of a configuration shows."""
    digest = sha256()
    for place in (config.table, config.data, config.log):
        service = None if place is None else place.service
        if service is not None:
            for secret in (service.access_key_id, service.secret_access_key, service.session_token):
                digest.update(sha256(secret.reveal().encode()).digest())
    return digest.hexdigest()


def _can_be_shown(name: str) -> bool:
    return name not in ("session", "loop", "skip_instance_cache") and not (
        name in OPTIONS and OPTIONS[name].type == "secret"
    )


def _shown(name: str, value: Any) -> Any:
    """A path is what it means in this working directory."""
    if name == "volume" and "://" not in os.fspath(value):
        return os.path.abspath(os.path.expanduser(value))
    return os.path.abspath(value) if isinstance(value, os.PathLike) else value
