"""The configuration file: named volumes in TOML.

    default_volume = "s3k://analytics"

    [defaults]                      # how services are reached, how clients behave
    region = "eu-west-1"

    [volumes.analytics]             # s3k://analytics
    table = "analytics-meta"
    bucket = "analytics-data"

It is `S3K_CONFIG`, else `$XDG_CONFIG_HOME/s3k/config.toml`, else `~/.config/s3k/config.toml`.
Relative paths are below the file's directory.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from s3k_async.config import without_user
from s3k_async.errors import ConfigError
from s3k_async.settings.locations import anchored, check_name
from s3k_async.settings.options import OPTIONS, Setting, nearest, parse

__all__ = ["ConfigFile", "config_path", "read_config", "save_volume"]


_URLS = ("endpoint", "proxy")
"""Options that may contain a user and password."""


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The checked contents of a configuration file."""

    path: str
    default_volume: str | None = None
    defaults: Mapping[str, Setting] = field(default_factory=dict)
    volumes: Mapping[str, Mapping[str, Setting]] = field(default_factory=dict)


def config_path(environ: Mapping[str, str]) -> str:
    """Path of the configuration file."""
    if environ.get("S3K_CONFIG"):
        return os.path.abspath(os.path.expanduser(environ["S3K_CONFIG"]))
    home = environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(home):
        home = os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".config")
    return os.path.join(home, "s3k", "config.toml")


def read_config(path: str, *, required: bool = False) -> ConfigFile:
    """Read a configuration file; a missing one is empty, unless it is `required`. Raises
    ConfigError."""
    text = _read(path)
    if text is None:
        if required:
            raise ConfigError("the configuration file does not exist", path=path)
        return ConfigFile(path)
    return _checked(_parsed(text, path), path)


def save_volume(name: str, options: Mapping[str, object], path: str) -> bool:
    """Add `[volumes.<name>]` to a configuration file; a missing one is created, readable by its
    owner alone.

    False if it has the same section already. Secrets among the options, and users and passwords in
    their URLs, are left out. The file is replaced atomically, and concurrent calls do not lose each
    other's section. Raises ConfigError if a section of that name differs, or the file cannot be
    read or written.
    """
    check_name(name)
    given = {key: value for key, value in options.items() if value is not None}
    wanted = {
        key: without_user(value) or value
        if isinstance(value, str) and OPTIONS[key].stem in _URLS
        else value
        for key, value in _values(given, "option", None).items()
        if OPTIONS[key].type != "secret"
    }
    target = os.path.realpath(path)
    try:
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        lock = os.open(os.path.dirname(target), os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return _add_section(name, wanted, target)
        finally:
            os.close(lock)
    except OSError as error:
        raise ConfigError(
            f"the configuration file cannot be written: {error.strerror}", path=path
        ) from error


def _add_section(name: str, wanted: Mapping[str, Setting], path: str) -> bool:
    before = _read(path) or ""
    present = _checked(_parsed(before, path), path).volumes.get(name)
    if present is not None:
        if present == wanted:
            return False
        raise ConfigError(
            f"the configuration file has another section [volumes.{_key(name)}]", path=path
        )
    lines = [f"{key} = {_literal(value)}" for key, value in wanted.items()]
    section = "\n".join([f"[volumes.{_key(name)}]", *lines, ""])
    after = f"{before.rstrip()}\n\n{section}" if before.strip() else section
    if _checked(_parsed(after, path), path).volumes.get(name) != wanted:
        raise ConfigError(
            f"a section [volumes.{_key(name)}] cannot be added to the configuration file", path=path
        )
    _replace(path, after.encode())
    return True


def _replace(path: str, data: bytes) -> None:
    mode = os.stat(path).st_mode & 0o777 if os.path.exists(path) else 0o600
    fresh = f"{path}.new"
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(file.fileno(), mode)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the configuration file cannot be read: {error}", path=path) from error


def _parsed(text: str, path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"the configuration file is not TOML: {error}", path=path) from error


def _checked(content: Mapping[str, Any], path: str) -> ConfigFile:
    known = ("default_volume", "defaults", "volumes")
    for key in content:
        if key not in known:
            raise ConfigError(f"{path}: unknown key {key!r}{nearest(key, known)}", path=path)
    default = content.get("default_volume")
    if default is not None and (not isinstance(default, str) or not default):
        raise ConfigError(f"{path}: default_volume is not a volume's URL or path", path=path)
    volumes = {
        _name(name, path): _section(section, f"[volumes.{_key(name)}]", path)
        for name, section in _table(content, "volumes", path).items()
    }
    defaults = _section(_table(content, "defaults", path), "[defaults]", path)
    for key in defaults:
        if OPTIONS[key].scope == "volume":
            raise ConfigError(
                f"{path}: {key!r} is about one volume and cannot be in [defaults]", path=path
            )
    return ConfigFile(path, default, defaults, volumes)


def _name(name: str, path: str) -> str:
    try:
        return check_name(name)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}", path=path) from error


def _table(content: Mapping[str, Any], key: str, path: str) -> Mapping[str, Any]:
    table = content.get(key, {})
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: {key!r} is not a table", path=path)
    return table


def _section(section: object, title: str, path: str) -> dict[str, Setting]:
    if not isinstance(section, dict):
        raise ConfigError(f"{path}: {title} is not a table", path=path)
    return _values(section, f"{path}, {title},", os.path.dirname(path))


def _values(given: Mapping[str, object], source: str, base: str | None) -> dict[str, Setting]:
    values: dict[str, Setting] = {}
    for key, value in given.items():
        if key not in OPTIONS:
            raise ConfigError(f"{source} unknown key {key!r}{nearest(key, OPTIONS)}")
        values[key] = anchored(OPTIONS[key], parse(OPTIONS[key], value, f"{source} {key}"), base)
    return values


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)


def _literal(value: Setting) -> str:
    """A TOML value. JSON's escapes are TOML's, except DEL, which TOML requires to be escaped."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
