"""Settings in the keys of S3-FileSystem 1.0 of a Hadoop configuration.

A key of scope bucket is `<key>.<bucket>`; one of scope context is `<key>.<bucket>.<context>`, and,
unlike in S3-FileSystem 1.0, `<key>.<bucket>` where that is missing. Keys are compared as a whole,
so buckets may have `.` and `_` in their names, and other keys with such an end have no meaning.

The data's own service is reached by S3A's settings, `fs.s3a.bucket.<bucket>.<property>`, then
`fs.s3a.<property>`. Each of these may be given as
`fs.s3k.storage.underlying.fs.prop.marker.<key>.<bucket>`, which precedes the key. S3A's encryption
applies to data and log; the name of an unsupported method is kept, so that the volume cannot be
written unencrypted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from s3k_async.errors import ConfigError
from s3k_async.settings.options import OPTIONS, Option, Setting, parse

__all__ = ["CONTEXT_KEY", "GIDS_KEY", "KIND_KEY", "UID_KEY", "HadoopSettings", "read_hadoop"]

CONTEXT_KEY: Final = "fs.s3k.metastore.context.id"
KIND_KEY: Final = "fs.s3k.volume.kind"
"""Key of this project, of scope bucket: `native` or `s3k-1.0`. Without it the table decides."""

UID_KEY: Final = "fs.s3k.client.uid"
"""Key of this project, of scope bucket: the user for whom the client acts."""
GIDS_KEY: Final = "fs.s3k.client.gids"
"""Key of this project, of scope bucket: the groups of that user, separated by commas."""

_DYNAMO = "fs.s3k.metastore.dynamo"
_OPLOG = "fs.s3k.operationlog.s3"
_TABLE = f"{_DYNAMO}.table"
_SUFFIX_COUNT = f"{_DYNAMO}.suffix.count"
_LOG_BUCKET = f"{_OPLOG}.bucket"
_SCHEME = "fs.s3k.storage.underlying.filesystem.scheme"
_LOG_FACTORY = "fs.s3k.metastore.operation.log.factory.class"
_HASH = f"{_DYNAMO}.hash.function.class"
_ASYNC = "fs.s3k.metastore.operations.async"
_MARKER = "fs.s3k.storage.underlying.fs.prop.marker"
_S3_SCHEMES = ("s3", "s3a", "s3n")


@dataclass(frozen=True, slots=True)
class HadoopSettings:
    """The settings of one bucket in a mapping."""

    values: Mapping[str, Setting] = field(default_factory=dict)
    """By option name."""
    ignored: tuple[str, ...] = ()
    """Keys of this bucket, or of all, without effect here."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Option name to the key that S3-FileSystem 1.0 requires for it, where the mapping lacks it."""


def read_hadoop(
    mapping: Mapping[str, object], bucket: str, context: str | None = None
) -> HadoopSettings:
    """Translate the settings of `bucket`. Raises ConfigError for an invalid value."""
    source = _HadoopKeys(mapping, bucket, context or _text(mapping.get(CONTEXT_KEY)) or None)
    values: dict[str, Setting] = {}
    for option, (key, scoped, convert) in _PLAIN.items():
        found = source.find(key, scoped=scoped)
        if found is not None:
            values[option] = _converted(option, convert, *found)
    _modes(source, values)
    _pairs(source, values)
    _data(source, values)
    required = {"table": _TABLE}
    if values.get("kind") != "native":
        required |= {"suffix_count": _SUFFIX_COUNT, "bucket": _SCHEME}
        if values.get("log_mode") != "disabled":
            required["log_bucket"] = _LOG_BUCKET
    missing = {
        option: f"{key}.{bucket}" for option, key in required.items() if option not in values
    }
    return HadoopSettings(values, tuple(sorted(source.ignored())), missing)


class _HadoopKeys:
    """The mapping for one bucket and context, with a record of the used keys."""

    def __init__(self, mapping: Mapping[str, object], bucket: str, context: str | None) -> None:
        self.mapping = mapping
        self.bucket = bucket
        self.context = context
        self._used = {CONTEXT_KEY}

    def find(self, key: str, *, scoped: bool = False) -> tuple[str, str] | None:
        """The full key and its value."""
        names = [f"{key}.{self.bucket}"]
        if scoped and self.context is not None:
            names.insert(0, f"{key}.{self.bucket}.{self.context}")
        return self.first(*names)

    def first(self, *names: str) -> tuple[str, str] | None:
        """The first of these full keys that has a value."""
        for name in names:
            value = _text(self.mapping.get(name))
            if value:
                self._used.update(names)
                return name, value
        return None

    def ignore(self, found: tuple[str, str] | None) -> None:
        """Mark a key as unused."""
        if found is not None:
            self._used.discard(found[0])

    def s3a(self, form: str) -> dict[str, tuple[str, str]]:
        """S3A's settings of one scope: name to full key and value."""
        names = [name for name, _, _ in _S3A] + [name for name, _ in _S3A_CREDENTIALS]
        names += [*_S3A_ENCRYPTION, *_S3A_ENCRYPTION_KEY, _S3A_ENCRYPTION_CONTEXT]
        found = {name: self.first(form.format(name=name, bucket=self.bucket)) for name in names}
        return {name: given for name, given in found.items() if given is not None}

    def ignored(self) -> Iterator[str]:
        """Unused keys of S3-FileSystem 1.0 and of S3A for this volume."""
        ends: tuple[str, ...] = (f".{self.bucket}",)
        if self.context is not None:
            ends += (f".{self.bucket}.{self.context}",)
        for name, value in self.mapping.items():
            if name in self._used or name in _OF_THE_JVM or not _text(value):
                continue
            if name.startswith("fs.s3k."):
                if name in _GLOBAL | _BARE or name.startswith(_OF_JOBS) or name.endswith(ends):
                    yield name
            elif name.startswith("fs.s3a.bucket."):
                if name.startswith(f"fs.s3a.bucket.{self.bucket}."):
                    yield name
            elif name.startswith("fs.s3a."):
                yield name


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value).strip()


def _seconds(text: str) -> object:
    return int(text) / 1000


def _attempts(text: str) -> object:
    return int(text) + 1


def _same(text: str) -> object:
    return text


def _url(text: str) -> object:
    return text if "://" in text else f"https://{text}"


_PLAIN: Final[Mapping[str, tuple[str, bool, Callable[[str], object]]]] = {
    "kind": (KIND_KEY, False, _same),
    "table": (_TABLE, False, _same),
    "suffix_count": (_SUFFIX_COUNT, False, _same),
    "log_bucket": (_LOG_BUCKET, False, _same),
    "retry_base": (f"{_DYNAMO}.base.exponential.delay", True, _seconds),
    "retry_cap": (f"{_DYNAMO}.max.exponential.delay", True, _seconds),
    "retry_attempts": (f"{_DYNAMO}.max.retries", True, _attempts),
    "table_max_connections": (f"{_DYNAMO}.max.http.conn", True, _same),
    "log_max_connections": (f"{_OPLOG}.max.http.conn", True, _same),
    "max_concurrency": ("fs.s3k.thread.pool.size", True, _same),
    "uid": (UID_KEY, False, _same),
    "gids": (GIDS_KEY, False, _same),
}
"""Option: key, whether it has scope context, conversion of its text."""

_PAIRS: Final = (
    (f"{_DYNAMO}.access", "table_access_key_id", f"{_DYNAMO}.secret", "table_secret_access_key"),
    (f"{_DYNAMO}.endpoint", "table_endpoint", f"{_DYNAMO}.signing.region", "table_region"),
    (f"{_OPLOG}.access", "log_access_key_id", f"{_OPLOG}.secret", "log_secret_access_key"),
    (f"{_OPLOG}.endpoint", "log_endpoint", f"{_OPLOG}.signing.region", "log_region"),
)
"""Credentials and endpoints take effect only when both halves are set."""

_S3A_KEYS: Final = ("fs.s3a.bucket.{bucket}.{name}", "fs.s3a.{name}")
_S3A_FORMS: Final = tuple(
    form for key in _S3A_KEYS for form in (f"{_MARKER}.{key}.{{bucket}}", key)
)
"""Order of S3A's lookup of a property, after S3-FileSystem 1.0 has copied marked ones over the
rest."""
_S3A: Final[tuple[tuple[str, str, Callable[[str], object]], ...]] = (
    ("endpoint", "data_endpoint", _url),
    ("endpoint.region", "data_region", _same),
    ("connection.maximum", "data_max_connections", _same),
)
_S3A_CREDENTIALS: Final = (
    ("access.key", "data_access_key_id"),
    ("secret.key", "data_secret_access_key"),
    ("session.token", "data_session_token"),
)

_S3A_ENCRYPTION: Final = ("encryption.algorithm", "server-side-encryption-algorithm")
_S3A_ENCRYPTION_KEY: Final = (
    "encryption.key",
    "server-side-encryption.key",
    "server-side-encryption-key",
)
_S3A_ENCRYPTION_CONTEXT: Final = "encryption.context"
_S3A_METHODS: Final = {"AES256": "AES256", "SSE-KMS": "aws:kms", "DSSE-KMS": "aws:kms:dsse"}
"""S3A's name of a method to S3's."""
_S3A_OTHER_METHODS: Final = ("SSE-C", "CSE-KMS", "CSE-CUSTOM")

_OF_JOBS: Final = (
    "fs.s3k.fsck.",
    "fs.s3k.cmd.",
    "fs.s3k.metastorescan.",
    "fs.s3k.raws3.",
    "fs.s3k.purge.",
)
"""Prefix of keys of the MapReduce jobs, which have no bucket."""
_BARE: Final = frozenset(
    {key for key, _, _ in _PLAIN.values()}
    | {key for pair in _PAIRS for key in (pair[0], pair[2])}
    | {_SCHEME, _ASYNC, f"{_DYNAMO}.backoff.full.jitter", "fs.s3k.thread.pool.max.tasks"}
)
"""Keys without a bucket, which apply to none."""

_OF_THE_JVM: Final = frozenset({"fs.s3a.impl", "fs.s3a.downgrade.syncable.exceptions"})
"""Keys for the JVM alone, set by Spark in every session or by a cluster in every file."""

_SWITCH: Final = Option("async", "boolean", "client", "Whether tree operations are concurrent.")

_GLOBAL: Final = frozenset(
    {
        "fs.s3k.keyvalue.config.factory",
        "fs.s3k.external.hadoop.config.factory.config.location",
        "fs.s3k.configuration.context.class",
        "fs.s3k.metastore.factory.class",
        _LOG_FACTORY,
        "fs.s3k.metastore.operation.log.extended.factory.class",
        "fs.s3k.storage.factory.class",
        "fs.s3k.storage.path.translator.factory",
        _HASH,
    }
)


def _converted(option: str, convert: Callable[[str], object], key: str, text: str) -> Setting:
    try:
        value = convert(text)
    except ValueError:
        value = text
    return parse(OPTIONS[option], value, f"Hadoop setting {key}")


def _modes(source: _HadoopKeys, values: dict[str, Setting]) -> None:
    """Options with other spellings there: the log's and the hash's class, sequential tree
    operations."""
    factory = source.first(_LOG_FACTORY)
    if factory is not None and "Disabled" in factory[1].rpartition(".")[2]:
        values["log_mode"] = "disabled"
    function = source.first(_HASH)
    if function is not None and values.get("kind") != "native":
        if function[1].rpartition(".")[2] != "DefaultHashFunction":
            raise ConfigError(f"Hadoop setting {_HASH}: {function[1]!r} is an unknown hash")
        values["hash"] = "java31"
    found = source.find(_ASYNC, scoped=True)
    if found is not None and not parse(_SWITCH, found[1], f"Hadoop setting {found[0]}"):
        values["max_concurrency"] = 1


def _pairs(source: _HadoopKeys, values: dict[str, Setting]) -> None:
    for first_key, first, second_key, second in _PAIRS:
        one, two = source.find(first_key), source.find(second_key)
        if one is None or two is None:
            source.ignore(one or two)
        else:
            values[first] = _converted(first, _url if first.endswith("_endpoint") else _same, *one)
            values[second] = _converted(second, _same, *two)


def _data(source: _HadoopKeys, values: dict[str, Setting]) -> None:
    """The data location: the bucket of the volume's name, with S3A's settings."""
    found = source.find(_SCHEME)
    if found is not None and found[1].lower() not in _S3_SCHEMES:
        raise ConfigError(
            f"Hadoop setting {found[0]}: {found[1]!r} is none of {', '.join(_S3_SCHEMES)}"
        )
    if found is not None or values.get("kind") == "native":
        values["bucket"] = source.bucket
    scopes = [source.s3a(form) for form in _S3A_FORMS]
    for name, option, convert in _S3A:
        given = next((scope[name] for scope in scopes if name in scope), None)
        if given is not None:
            values[option] = _converted(option, convert, *given)
    _encryption(source, values, scopes)
    # Both halves of the credentials and the token come from the same scope.
    for scope in scopes:
        if "access.key" in scope and "secret.key" in scope:
            for name, option in _S3A_CREDENTIALS:
                if name in scope:
                    values[option] = _converted(option, _same, *scope[name])
            break
        for name, _ in _S3A_CREDENTIALS:
            source.ignore(scope.get(name))


def _encryption(
    source: _HadoopKeys, values: dict[str, Setting], scopes: list[dict[str, tuple[str, str]]]
) -> None:
    """S3A's encryption of stored objects. Raises ConfigError for an unknown method."""

    def found(*names: str) -> tuple[str, str] | None:
        return next((scope[name] for scope in scopes for name in names if name in scope), None)

    method, key, context = (
        found(*_S3A_ENCRYPTION),
        found(*_S3A_ENCRYPTION_KEY),
        found(_S3A_ENCRYPTION_CONTEXT),
    )
    name = "" if method is None else method[1].upper()
    if method is not None and name not in (*_S3A_METHODS, *_S3A_OTHER_METHODS):
        known = ", ".join((*_S3A_METHODS, *_S3A_OTHER_METHODS))
        raise ConfigError(f"Hadoop setting {method[0]}: {method[1]!r} is none of {known}")
    if name in ("", "AES256"):
        source.ignore(key)
        source.ignore(context)
    if name in _S3A_OTHER_METHODS:
        values["data_encryption"] = name
    elif name not in ("", "AES256") and context is not None:
        values["data_encryption"] = f"{name} with {context[0]}"
    elif name:
        values["data_encryption"] = _S3A_METHODS[name]
        if key is not None and name != "AES256":
            values["data_kms_key"] = _converted("data_kms_key", _same, *key)
