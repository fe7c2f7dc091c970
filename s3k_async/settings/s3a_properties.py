"""S3A's properties as options: how the data is reached, and how objects are stored.

A property has its value from the first of these keys, each of which may be given as
`fs.s3k.storage.underlying.fs.prop.marker.<key>.<bucket>`, which precedes it:
`fs.s3a.bucket.<bucket>.<property>`, `fs.s3a.<property>`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias
from urllib.parse import quote

from s3k_async.config import BY_CUSTOMER_KEY
from s3k_async.errors import ConfigError
from s3k_async.settings.hadoop_keys import ASSUMED_ROLE
from s3k_async.settings.options import OPTIONS, Option, Setting, parse

__all__ = ["S3A_EFFECTS", "Given", "ignored_halves", "s3a_options", "values_in"]

Given: TypeAlias = tuple[str, str]
"""The full key and its value."""

_SIZES: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_UNITS: Final = {"": 1e-3, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SWITCH: Final = Option("switch", "boolean", "client", "A switch of S3A.")
_METHODS: Final = {"AES256": "AES256", "SSE-KMS": "aws:kms", "DSSE-KMS": "aws:kms:dsse"}
"""S3A's name of a method to S3's."""
_OTHER_METHODS: Final = ("CSE-KMS", "CSE-CUSTOM")
_METHOD: Final = ("encryption.algorithm", "server-side-encryption-algorithm")
_KEY: Final = ("encryption.key", "server-side-encryption.key", "server-side-encryption-key")
_CONTEXT: Final = "encryption.context"
_CREDENTIALS: Final = (
    ("access.key", "data_access_key_id"),
    ("secret.key", "data_secret_access_key"),
    ("session.token", "data_session_token"),
)
_PROXY: Final = ("proxy.host", "proxy.port", "proxy.username", "proxy.password")
_TLS: Final = ("connection.ssl.enabled", "proxy.ssl.enabled")


def _same(text: str) -> object:
    return text


def _bytes(text: str) -> object:
    """A size of Hadoop: K, M, G and T are powers of 1,024."""
    found = re.fullmatch(r"(\d+)\s*([kmgt]?)b?", text.lower())
    return text if found is None else int(found[1]) * 1024 ** _SIZES[found[2]]


def _seconds(text: str) -> object:
    """A duration of Hadoop: milliseconds, or with a unit."""
    found = re.fullmatch(r"(\d+)\s*(|ms|s|m|h|d)", text.lower())
    return text if found is None else int(found[1]) * _UNITS[found[2]]


def _whole_seconds(text: str) -> object:
    found = re.fullmatch(r"(\d+)\s*([smhd])", text.lower())
    return text if found is None else int(int(found[1]) * _UNITS[found[2]])


def _url(text: str) -> object:
    return text if "://" in text else f"https://{text}"


def _binding(text: str) -> object:
    return text.rpartition(".")[2] == "SessionTokenBinding" or text


def _storage_class(text: str) -> object:
    return text.upper()


_PLAIN: Final[Mapping[str, tuple[str, Callable[[str], object]]]] = {
    "endpoint.region": ("data_region", _same),
    "connection.maximum": ("data_max_connections", _same),
    "connection.establish.timeout": ("data_connect_timeout", _seconds),
    "connection.timeout": ("data_read_timeout", _seconds),
    "multipart.size": ("part_size", _bytes),
    "multipart.threshold": ("multipart_threshold", _bytes),
    "change.detection.mode": ("change_detection", _same),
    "create.storage.class": ("data_storage_class", _storage_class),
    "delegation.token.binding": ("delegate_credentials", _binding),
    "requester.pays.enabled": ("data_requester_pays", _same),
}
"""Property: option, conversion of its text."""

_ROLE: Final[Mapping[str, tuple[str, Callable[[str], object]]]] = {
    "assumed.role.arn": ("data_role_arn", _same),
    "assumed.role.external.id": ("data_external_id", _same),
    "assumed.role.session.name": ("data_role_session_name", _same),
    "assumed.role.session.duration": ("data_role_duration", _whole_seconds),
    "assumed.role.sts.endpoint": ("data_sts_endpoint", _url),
}
"""Property of the role that is assumed: option, conversion of its text."""

S3A_EFFECTS: Final = frozenset(
    {"endpoint", *_PLAIN, *_ROLE, *_PROXY, *_TLS, *_METHOD, *_KEY, _CONTEXT}
    | {name for name, _ in _CREDENTIALS}
)
"""The properties that take effect."""


def s3a_options(scopes: Sequence[Mapping[str, Given]]) -> dict[str, Setting]:
    """The options, from the properties of each scope, those that precede first. Raises ConfigError
    for an invalid value."""
    found = {name: each for scope in reversed(scopes) for name, each in scope.items()}
    values = {
        option: _parsed(option, convert, found[name])
        for name, (option, convert) in _PLAIN.items()
        if name in found
    }
    if "endpoint" in found:
        scheme = "https" if _switch(found.get("connection.ssl.enabled"), default=True) else "http"
        values["data_endpoint"] = _parsed(
            "data_endpoint",
            lambda text: text if "://" in text else f"{scheme}://{text}",
            found["endpoint"],
        )
    if "proxy.host" in found:
        values["data_proxy"] = _proxy(found)
    if _has_role(found):
        values |= {
            option: _parsed(option, convert, found[name])
            for name, (option, convert) in _ROLE.items()
            if name in found
        }
    return values | _encryption(scopes) | _credentials(scopes)


def ignored_halves(scopes: Sequence[Mapping[str, Given]]) -> list[str]:
    """The full keys without effect because something that belongs to them is missing."""
    found = {name: each for scope in reversed(scopes) for name, each in scope.items()}
    lone: list[str] = []
    if "proxy.host" not in found:
        lone += [*_PROXY, "proxy.ssl.enabled"]
    if "endpoint" not in found or "://" in found["endpoint"][1]:
        lone.append("connection.ssl.enabled")
    if not _has_role(found):
        lone += list(_ROLE)
    if _method(scopes) in ("", "AES256"):
        lone += [*_KEY, _CONTEXT]
    keys = [found[name][0] for name in lone if name in found]
    for scope in scopes:
        if "access.key" in scope and "secret.key" in scope:
            break
        keys += [scope[name][0] for name, _ in _CREDENTIALS if name in scope]
    return keys


def values_in(text: str) -> list[str]:
    """The values of a property with several, separated by commas or line breaks."""
    return [each.strip() for each in re.split(r"[,\n]", text) if each.strip()]


def _has_role(found: Mapping[str, Given]) -> bool:
    """Whether the credentials are those of a role. Raises ConfigError without its ARN."""
    key, classes = found.get("aws.credentials.provider", ("", ""))
    if ASSUMED_ROLE not in {each.rpartition(".")[2] for each in values_in(classes)}:
        return False
    if "assumed.role.arn" not in found:
        raise ConfigError(f"Hadoop setting {key}: {ASSUMED_ROLE} needs fs.s3a.assumed.role.arn")
    return True


def _parsed(option: str, convert: Callable[[str], object], given: Given) -> Setting:
    key, text = given
    return parse(OPTIONS[option], convert(text), f"Hadoop setting {key}")


def _switch(given: Given | None, *, default: bool) -> bool:
    if given is None:
        return default
    return bool(parse(_SWITCH, given[1], f"Hadoop setting {given[0]}"))


def _proxy(found: Mapping[str, Given]) -> Setting:
    """The URL of the proxy. Its user and password are never in a message."""
    host, port, user, password = (found.get(name, ("", ""))[1] for name in _PROXY)
    is_tls = _switch(found.get("proxy.ssl.enabled"), default=False)
    secret = f":{quote(password, safe='')}" if password else ""
    login = f"{quote(user, safe='')}{secret}@" if user else ""
    place = f"{host}:{port or (443 if is_tls else 80)}"
    if port and not port.isdecimal():
        key, text = found["proxy.port"]
        raise ConfigError(f"Hadoop setting {key}: {text!r} is not a whole number")
    return f"{'https' if is_tls else 'http'}://{login}{place}"


def _first(scopes: Sequence[Mapping[str, Given]], *names: str) -> Given | None:
    """The property under one of its names, of the first scope that has one."""
    return next((scope[name] for scope in scopes for name in names if name in scope), None)


def _method(scopes: Sequence[Mapping[str, Given]]) -> str:
    """S3A's name of the method of encryption; empty without one. Raises ConfigError."""
    given = _first(scopes, *_METHOD)
    if given is None:
        return ""
    name = given[1].upper()
    if name not in (*_METHODS, BY_CUSTOMER_KEY, *_OTHER_METHODS):
        known = ", ".join((*_METHODS, BY_CUSTOMER_KEY, *_OTHER_METHODS))
        raise ConfigError(f"Hadoop setting {given[0]}: {given[1]!r} is none of {known}")
    return name


def _encryption(scopes: Sequence[Mapping[str, Given]]) -> dict[str, Setting]:
    """The encryption of stored objects; the name of an unsupported method is kept, so that nothing
    is written unencrypted."""
    name, context = _method(scopes), _first(scopes, _CONTEXT)
    if not name:
        return {}
    if name == BY_CUSTOMER_KEY:
        own = _first(scopes, *_KEY)
        given = {} if own is None else {"data_customer_key": own}
        return {"data_encryption": name} | {
            option: _parsed(option, _same, value) for option, value in given.items()
        }
    if name in _OTHER_METHODS:
        return {"data_encryption": name}
    if name != "AES256" and context is not None:
        return {"data_encryption": f"{name} with {context[0]}"}
    values: dict[str, Setting] = {"data_encryption": _METHODS[name]}
    key = _first(scopes, *_KEY)
    if key is not None and name != "AES256":
        values["data_kms_key"] = _parsed("data_kms_key", _same, key)
    return values


def _credentials(scopes: Sequence[Mapping[str, Given]]) -> dict[str, Setting]:
    """Both halves of the credentials and the token, from the same scope."""
    for scope in scopes:
        if "access.key" in scope and "secret.key" in scope:
            return {
                option: _parsed(option, _same, scope[name])
                for name, option in _CREDENTIALS
                if name in scope
            }
    return {}
