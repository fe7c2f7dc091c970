"""Settings in the keys of S3-FileSystem 1.0 of a Hadoop configuration.

A key of scope bucket is `<key>.<bucket>`; one of scope context is `<key>.<bucket>.<context>`, and,
unlike in S3-FileSystem 1.0, `<key>.<bucket>` where that is missing. Keys are compared as a whole,
so buckets may have `.` and `_` in their names, and other keys with such an end have no meaning.

The data's own service is reached by S3A's properties (`s3a_properties`). What becomes of each key
is in the table of `hadoop_keys`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from s3k_async.errors import ConfigError
from s3k_async.settings.hadoop_keys import HADOOP_KEYS, JVM_KEYS, S3A_KEYS, HadoopKey
from s3k_async.settings.options import DESCRIBING, OPTIONS, Option, Setting, parse
from s3k_async.settings.s3a_properties import Given, ignored_halves, s3a_options, values_in

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
_CONTEXT_CLASS = "fs.s3k.configuration.context.class"
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
    mapping: Mapping[str, object],
    bucket: str,
    context: str | None = None,
    *,
    over: Mapping[str, Setting] | None = None,
) -> HadoopSettings:
    """Translate the settings of `bucket`. `over`: options that take precedence; if they describe
    the volume, the mapping does so only by a key for its table. Raises ConfigError for an invalid
    value."""
    source = _HadoopKeys(mapping, bucket, context or _text(mapping.get(CONTEXT_KEY)) or None)
    _check_refused(source)
    values: dict[str, Setting] = {}
    for option, (key, scoped, convert) in _PLAIN.items():
        found = source.find(key, scoped=scoped)
        if found is not None:
            values[option] = _converted(option, convert, *found)
    over = over or {}
    is_other = "table" not in values and any(name in over for name in DESCRIBING)
    kind = over.get("kind") or values.get("kind") or ("native" if is_other else None)
    is_native = kind == "native"
    _modes(source, values, is_native=is_native)
    _pairs(source, values)
    _data(source, values, is_native=is_native)
    required = {"table": _TABLE}
    if not is_native:
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

    def names(self, key: HadoopKey) -> list[str]:
        """The full keys of a row of the table, those that precede first."""
        if key.scope == "s3a":
            return [form.format(name=key.name, bucket=self.bucket) for form in _FORMS]
        if key.scope in ("global", "job"):
            return [key.name]
        names = [f"{key.name}.{self.bucket}"]
        if key.scope == "context" and self.context is not None:
            names.insert(0, f"{key.name}.{self.bucket}.{self.context}")
        return names

    def ignore(self, *keys: str) -> None:
        """Mark full keys as unused."""
        self._used.difference_update(keys)

    def s3a(self) -> list[dict[str, Given]]:
        """The properties of S3A that take effect, by name, for each of its scopes."""
        names = [key.name for key in S3A_KEYS if key.outcome == "effect"]
        names.append("aws.credentials.provider")
        scopes = []
        for form in _FORMS:
            found = {name: self.first(form.format(name=name, bucket=self.bucket)) for name in names}
            scopes.append({name: given for name, given in found.items() if given is not None})
        return scopes

    def ignored(self) -> Iterator[str]:
        """Unused keys of S3-FileSystem 1.0 and of S3A for this volume."""
        ends: tuple[str, ...] = (f".{self.bucket}",)
        if self.context is not None:
            ends += (f".{self.bucket}.{self.context}",)
        for name, value in self.mapping.items():
            if name in self._used or name in JVM_KEYS or not _text(value):
                continue
            if name in _NAMED:
                yield name
            elif name.startswith("fs.s3k."):
                if name.startswith(_OF_JOBS) or name.endswith(ends):
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

_FORMS: Final = tuple(
    form
    for key in ("fs.s3a.bucket.{bucket}.{name}", "fs.s3a.{name}")
    for form in (f"{_MARKER}.{key}.{{bucket}}", key)
)
"""Order of S3A's lookup of a property, after S3-FileSystem 1.0 has copied marked ones over the
rest."""

_OF_JOBS: Final = (
    "fs.s3k.fsck.",
    "fs.s3k.cmd.",
    "fs.s3k.metastorescan.",
    "fs.s3k.raws3.",
    "fs.s3k.purge.",
)
"""Prefix of keys of the MapReduce jobs, which have no bucket."""
_NAMED: Final = frozenset(key.name for key in HADOOP_KEYS if key.outcome != "jvm")
"""Keys that are named in a warning as they are: global ones, and those of a bucket without one,
which apply to none."""

_SWITCH: Final = Option("async", "boolean", "client", "Whether tree operations are concurrent.")


def _converted(option: str, convert: Callable[[str], object], key: str, text: str) -> Setting:
    try:
        value = convert(text)
    except ValueError:
        value = text
    return parse(OPTIONS[option], value, f"Hadoop setting {key}")


def _modes(source: _HadoopKeys, values: dict[str, Setting], *, is_native: bool) -> None:
    """Options with other spellings there: the log's and the hash's class, both of the volumes of
    S3-FileSystem 1.0 alone, and sequential tree operations."""
    factory = source.first(_LOG_FACTORY)
    if factory is not None and not is_native and "Disabled" in factory[1].rpartition(".")[2]:
        values["log_mode"] = "disabled"
    function = source.first(_HASH)
    if function is not None and not is_native:
        if function[1].rpartition(".")[2] != "DefaultHashFunction":
            raise ConfigError(f"Hadoop setting {_HASH}: {function[1]!r} is an unknown hash")
        values["hash"] = "java31"
    found = source.find(_ASYNC, scoped=True)
    if found is not None and not parse(_SWITCH, found[1], f"Hadoop setting {found[0]}"):
        values["max_concurrency"] = 1


def _check_refused(source: _HadoopKeys) -> None:
    """Raise ConfigError for a value that requests what this package does not support; values that
    request what is done anyway need no warning."""
    for key in (*HADOOP_KEYS, *S3A_KEYS):
        if key.outcome not in ("refused", "warned"):
            continue
        found = source.first(*source.names(key))
        if found is None:
            continue
        if all(key.accepts(each) for each in values_in(found[1])):
            continue
        if key.outcome == "warned" or (key.name == _CONTEXT_CLASS and source.context is not None):
            source.ignore(*source.names(key))
        else:
            raise ConfigError(
                f"Hadoop setting {found[0]}: {found[1]!r} is not supported: {key.note}"
            )


def _pairs(source: _HadoopKeys, values: dict[str, Setting]) -> None:
    for first_key, first, second_key, second in _PAIRS:
        one, two = source.find(first_key), source.find(second_key)
        if one is None or two is None:
            source.ignore(*(each[0] for each in (one, two) if each is not None))
        else:
            values[first] = _converted(first, _url if first.endswith("_endpoint") else _same, *one)
            values[second] = _converted(second, _same, *two)


def _data(source: _HadoopKeys, values: dict[str, Setting], *, is_native: bool) -> None:
    """The data location: the bucket of the volume's name, with S3A's properties."""
    found = source.find(_SCHEME)
    if found is not None and found[1].lower() not in _S3_SCHEMES:
        raise ConfigError(
            f"Hadoop setting {found[0]}: {found[1]!r} is none of {', '.join(_S3_SCHEMES)}"
        )
    if found is not None or values.get("kind") == "native" or (is_native and "table" in values):
        values["bucket"] = source.bucket
    scopes = source.s3a()
    values |= s3a_options(scopes)
    source.ignore(*ignored_halves(scopes))
