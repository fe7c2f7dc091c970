"""Resolution of settings to one VolumeConfig.

Precedence, option by option: keywords, environment, the volume's section of the configuration file,
its defaults, a Hadoop mapping, built-in values. Alternative options (`bucket` and `data_location`,
a profile and static credentials) override each other across these layers and contradict each other
within one.

Environment variables of a volume's locations (`S3K_TABLE`, `S3K_BUCKET`, `S3K_SUFFIX_COUNT`, ...)
describe the volume of `S3K_VOLUME`, or, without that, any volume opened by name; never one opened
by its directory or keywords. Those of services and clients (`S3K_REGION`, `S3K_MAX_CONCURRENCY`,
...) apply to every volume.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from s3k_async._core.retry import Retries, RetryBudget, RetryPolicy
from s3k_async.alerts.sink_address import parse_sinks
from s3k_async.backends.aws.access import BY_CUSTOMER_KEY
from s3k_async.backends.aws.encryption import is_customer_key
from s3k_async.backends.registry import BLOBS, TABLES
from s3k_async.backends.retrying.prefixed_items import check_table_prefix
from s3k_async.backends.s3 import s3_prefix
from s3k_async.backends.url_parts import TABLE_FILE
from s3k_async.config import (
    ENCRYPTIONS,
    AlertSettings,
    AwsConfig,
    BlobLocation,
    LocalDirectory,
    LogMode,
    S3Bucket,
    Secret,
    SqliteFile,
    TableLocation,
    Tuning,
    VolumeConfig,
)
from s3k_async.errors import ConfigError
from s3k_async.model import HashName, LayoutName, VolumeKind
from s3k_async.settings.config_file import ConfigFile, config_path, read_config
from s3k_async.settings.hadoop_mapping import HadoopSettings, read_hadoop
from s3k_async.settings.locations import (
    EmbeddedVolume,
    MemoryVolume,
    NamedVolume,
    VolumeAddress,
    anchored,
    check_name,
    parse_volume,
)
from s3k_async.settings.options import (
    CREDENTIALS,
    DESCRIBING,
    KINDS,
    OPTIONS,
    PARTS,
    Setting,
    nearest,
    parse,
)
from s3k_async.storage.storage_rules import StorageRules

__all__ = [
    "local_alerts",
    "local_service",
    "local_services",
    "local_table",
    "local_tuning",
    "resolve",
]

Values = dict[str, Setting]

_ENCRYPTION = ("encryption", "kms_key", "bucket_key", "customer_key")
_OF_OBJECTS = ("storage_class", "requester_pays")
_WITHOUT_OBJECTS = ("table", "alerts")
_OF_ROLES = (
    "external_id",
    "role_session_name",
    "role_duration",
    "web_identity_token_file",
    "sts_endpoint",
)


def resolve(
    volume: str | os.PathLike[str] | None = None,
    *,
    config: VolumeConfig | ConfigFile | str | os.PathLike[str] | None = None,
    context: str | None = None,
    hadoop: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    **options: object,
) -> VolumeConfig:
    """The configuration of the volume to open.

    `volume` is a directory's path, `file:///path`, `s3k://name` or `memory://name`; without it, the
    options `directory` or `table` decide, else `S3K_VOLUME`, else the environment's `S3K_DIRECTORY`
    or `S3K_TABLE`, else `default_volume` of the configuration file. `config` is that file's path,
    its contents, or a VolumeConfig, which is returned. `hadoop` is a mapping in S3-FileSystem 1.0's
    keys, read for the volume's name and for `context` (else `S3K_CONTEXT`, else the mapping's own).
    Options are those of OPTIONS; None means not given. Raises ConfigError.
    """
    given = {name: value for name, value in options.items() if value is not None}
    if isinstance(config, VolumeConfig):
        if volume is not None or given:
            raise ConfigError("a VolumeConfig is complete; give either it or a volume and options")
        return config
    environ = os.environ if environ is None else environ
    file = config if isinstance(config, ConfigFile) else _config_file(config, environ)
    keywords = _keywords(given)
    environment = _environment(environ)
    address = _address(volume, keywords, environment, environ, file)
    if not _describes(environment, address, environ, volume):
        environment = {
            name: value for name, value in environment.items() if OPTIONS[name].scope != "volume"
        }
    layers = [
        _Layer(f"{file.path}, [defaults]", dict(file.defaults)),
        _Layer(f"{file.path}, [volumes]", _section(address, file)),
        _Layer("the environment", environment),
        _Layer("the address", _of_address(address)),
        _Layer("the options", keywords),
    ]
    values = _merged(layers)
    is_described = any(name in values for name in DESCRIBING)
    mapping = HadoopSettings()
    if isinstance(address, NamedVolume) and hadoop is not None:
        context = context or environ.get("S3K_CONTEXT") or None
        mapping = read_hadoop(hadoop, address.name, context, over=values)
        if mapping.ignored:
            # Always from this line, so that Python shows the warning once.
            warnings.warn(
                f"Hadoop settings without effect on s3k://{address.name}: "
                f"{', '.join(mapping.ignored)}",
                stacklevel=1,
            )
        values = _merged([_Layer("the Hadoop mapping", dict(mapping.values)), *layers])
    by_mapping = hadoop is not None and ("table" in mapping.values or not is_described)
    if isinstance(address, NamedVolume):
        _check_named(address, values, file, mapping.missing if by_mapping else {})
    return _built(values, "native" if not by_mapping else None)


def _config_file(config: str | os.PathLike[str] | None, environ: Mapping[str, str]) -> ConfigFile:
    if config is None:
        return read_config(config_path(environ), required=bool(environ.get("S3K_CONFIG")))
    return read_config(os.path.abspath(os.path.expanduser(config)), required=True)


def local_services(name: str) -> Mapping[str, AwsConfig]:
    """Service settings of the volume `name` (empty: of one without a name) in this machine's
    environment and configuration file, by part. They need not have the volume's locations. Raises
    ConfigError."""
    file = read_config(config_path(os.environ), required=bool(os.environ.get("S3K_CONFIG")))
    layers = [
        _Layer(f"{file.path}, [defaults]", dict(file.defaults)),
        _Layer(f"{file.path}, [volumes]", dict(file.volumes.get(name, {}))),
        _Layer("the environment", _environment(os.environ)),
    ]
    values = _merged(layers)
    return {part: _aws(values, part) for part in PARTS}


def local_tuning(
    volume: str | os.PathLike[str] | None = None,
    *,
    config: str | os.PathLike[str] | None = None,
    context: str | None = None,
    hadoop: Mapping[str, object] | None = None,
    **options: object,
) -> Tuning:
    """The settings of clients in this machine's environment, configuration file and `options`, and
    in `hadoop`, without opening a volume, nor needing its locations. `volume`: for one with a
    section in the file, by its address; else for `default_volume` of the file. Raises
    ConfigError."""
    return _tuning(_local_values(volume, config, options, _Mapping(hadoop, context)))


def local_service(
    volume: str | os.PathLike[str] | None = None,
    *,
    config: str | os.PathLike[str] | None = None,
    context: str | None = None,
    hadoop: Mapping[str, object] | None = None,
    of_bucket: str = "",
    **options: object,
) -> AwsConfig:
    """As `local_tuning`, the settings of the service of the data, for the bucket `of_bucket` of no
    volume, whose keys in `hadoop` count if there is no volume."""
    mapping = _Mapping(hadoop, context, of_bucket)
    return _aws(_local_values(volume, config, options, mapping), "data")


def local_table(
    table: str,
    *,
    config: str | os.PathLike[str] | None = None,
    **options: object,
) -> TableLocation:
    """The location of a table in the form of the option `table`, with the service settings of
    tables that `local_tuning` reads. Raises ConfigError."""
    kind = TABLES.of_setting(table)
    return kind.parse(
        kind.anchored(table, None), _aws(_local_values(None, config, options), "table")
    )


def local_alerts(
    volume: str | os.PathLike[str] | None = None,
    *,
    config: str | os.PathLike[str] | None = None,
    **options: object,
) -> AlertSettings:
    """As `local_tuning`, the settings of alerts."""
    return _alerts(_local_values(volume, config, options))


def _local_values(
    volume: str | os.PathLike[str] | None,
    config: str | os.PathLike[str] | None,
    options: Mapping[str, object],
    mapping: _Mapping | None = None,
) -> Values:
    path = os.path.abspath(os.path.expanduser(config)) if config else config_path(os.environ)
    file = read_config(path, required=bool(config or os.environ.get("S3K_CONFIG")))
    address = None
    if volume is not None:
        address = parse_volume(volume)
    elif file.default_volume is not None:
        address = parse_volume(file.default_volume, os.path.dirname(file.path))
    layers = [
        _Layer("the Hadoop mapping", {} if mapping is None else mapping.values(address)),
        _Layer(f"{file.path}, [defaults]", dict(file.defaults)),
        _Layer(f"{file.path}, [volumes]", _section(address, file)),
        _Layer("the environment", _environment(os.environ)),
        _Layer("the address", {}),
        _Layer("the options", _keywords(options)),
    ]
    return _merged(layers)


@dataclass(frozen=True, slots=True)
class _Mapping:
    """A Hadoop mapping, for settings of services and clients."""

    hadoop: Mapping[str, object] | None
    context: str | None = None
    bucket: str = ""
    """The bucket whose keys count without a named volume."""

    def values(self, address: VolumeAddress | None) -> Values:
        """The settings for a volume, without those of its locations. Raises ConfigError."""
        if self.hadoop is None:
            return {}
        name = address.name if isinstance(address, NamedVolume) else self.bucket
        context = self.context or os.environ.get("S3K_CONTEXT") or None
        found = read_hadoop(self.hadoop, name, context).values
        return {name: value for name, value in found.items() if OPTIONS[name].scope != "volume"}


@dataclass(frozen=True, slots=True)
class _Layer:
    source: str
    values: Values


def _keywords(given: Mapping[str, object]) -> Values:
    values: Values = {}
    for name, value in given.items():
        if name not in OPTIONS:
            raise ConfigError(f"unknown option {name!r}{nearest(name, OPTIONS)}")
        values[name] = anchored(OPTIONS[name], parse(OPTIONS[name], value, f"option {name}"), None)
    return values


def _environment(environ: Mapping[str, str]) -> Values:
    return {
        option.name: anchored(
            option, parse(option, environ[option.env], f"environment variable {option.env}"), None
        )
        for option in OPTIONS.values()
        if environ.get(option.env)
    }


def _address(
    volume: str | os.PathLike[str] | None,
    keywords: Values,
    environment: Values,
    environ: Mapping[str, str],
    file: ConfigFile,
) -> VolumeAddress | None:
    """The volume's address; None: the options describe the volume."""
    if volume is not None:
        return parse_volume(volume)
    if any(name in keywords for name in DESCRIBING):
        return None
    if environ.get("S3K_VOLUME"):
        return parse_volume(environ["S3K_VOLUME"])
    if any(name in environment for name in DESCRIBING):
        return None
    if file.default_volume is not None:
        return parse_volume(file.default_volume, os.path.dirname(file.path))
    raise ConfigError(
        "which volume? Give its URL or path, or set S3K_VOLUME, or default_volume in the "
        "configuration file",
        path=file.path,
    )


def _describes(
    environment: Values, address: VolumeAddress | None, environ: Mapping[str, str], volume: object
) -> bool:
    """Whether the environment's location variables apply to this volume."""
    if address is None:
        return any(name in environment for name in DESCRIBING) and not environ.get("S3K_VOLUME")
    if not isinstance(address, NamedVolume):
        return False
    if volume is None or not environ.get("S3K_VOLUME"):
        return True
    return parse_volume(environ["S3K_VOLUME"]) == address


def _section(address: VolumeAddress | None, file: ConfigFile) -> Values:
    return dict(file.volumes.get(address.name, {})) if isinstance(address, NamedVolume) else {}


def _of_address(address: VolumeAddress | None) -> Values:
    if isinstance(address, EmbeddedVolume):
        return {"directory": address.directory}
    if isinstance(address, MemoryVolume):
        where = f"memory://{address.name}"
        return {"name": address.name, "table": where, "data_location": where}
    return {} if address is None else {"name": address.name}


def _displaced() -> dict[str, tuple[str, ...]]:
    """Options of lower layers that an option overrides."""
    table = {
        "directory": (
            "table",
            "table_prefix",
            "bucket",
            "prefix",
            "data_location",
            "log_bucket",
            "log_prefix",
            "log_location",
        ),
        "data_location": ("bucket", "prefix"),
        "bucket": ("data_location",),
        "prefix": ("data_location",),
        "log_location": ("log_bucket", "log_prefix"),
        "log_bucket": ("log_location",),
        "log_prefix": ("log_location",),
    }
    for part in ("", *(f"{part}_" for part in PARTS)):
        for name in ("encryption", "customer_key"):
            table[part + name] = tuple(part + other for other in _ENCRYPTION if other != name)
        for name in CREDENTIALS:
            table[part + name] = tuple(part + other for other in CREDENTIALS if other != name)
    return table


def _contradictions() -> list[tuple[str, str]]:
    pairs = [("bucket", "data_location"), ("prefix", "data_location")]
    pairs += [("log_bucket", "log_location"), ("log_prefix", "log_location")]
    return pairs + [
        (part + first, part + second)
        for part in ("", *(f"{part}_" for part in PARTS))
        for first, second in (("profile", "access_key_id"), ("encryption", "customer_key"))
    ]


def _merged(layers: list[_Layer]) -> Values:
    """Lowest layer first."""
    displaced = _displaced()
    values: Values = {}
    for layer in layers:
        for first, second in _contradictions():
            of_key = second.endswith("customer_key") and layer.values.get(first) == BY_CUSTOMER_KEY
            if first in layer.values and second in layer.values and not of_key:
                raise ConfigError(f"{layer.source}: {first} and {second} contradict each other")
        for name in layer.values:
            for other in displaced.get(name, ()):
                values.pop(other, None)
        values |= layer.values
        if layer.source == "the options":
            _check_name_agrees(layers, layer.values)
    return values


def _check_name_agrees(layers: list[_Layer], keywords: Values) -> None:
    """Refuse options that contradict the address."""
    address = next(layer.values for layer in layers if layer.source == "the address")
    for name in ("name", "directory"):
        if name in address and keywords.get(name, address[name]) != address[name]:
            raise ConfigError(
                f"option {name}: {keywords[name]!r} is not the {name} of the volume given"
            )


def _check_named(
    address: NamedVolume, values: Values, file: ConfigFile, missing: Mapping[str, str]
) -> None:
    """Raises ConfigError without any setting of the volume's locations; `missing` are required keys
    of a mapping."""
    for option, key in missing.items():
        others = {"bucket": ("data_location",), "log_bucket": ("log_location", "log_prefix")}.get(
            option, ()
        )
        if not any(name in values for name in (option, *others)):
            raise ConfigError(f"the Hadoop mapping lacks {key}", path=address.name)
    if "table" not in values and "directory" not in values:
        raise ConfigError(
            f"no volume named {address.name!r} is configured{nearest(address.name, file.volumes)}: "
            "add"
            f" [volumes.{address.name}] to {file.path}, or give table and bucket as options or as "
            "S3K_TABLE and"
            " S3K_BUCKET",
            path=f"s3k://{address.name}",
        )


def _built(values: Values, kind: VolumeKind | None) -> VolumeConfig:
    kind = cast("VolumeKind | None", values.get("kind", kind))
    directory = cast("str | None", values.get("directory"))
    data = _data(values, directory)
    name = str(values.get("name", ""))
    config = VolumeConfig(
        name=check_name(name) if name else "",
        table=_table(values, directory),
        data=data,
        log=_log(values, directory, data, kind),
        kind=kind,
        suffix_count=cast("int | None", values.get("suffix_count")),
        hash=cast("HashName | None", values.get("hash")),
        layout=cast("LayoutName | None", values.get("layout")),
        log_mode=cast("LogMode | None", values.get("log_mode")),
        table_prefix=_table_prefix(values),
        tuning=_tuning(values),
        alerts=_alerts(values),
    )
    if config.kind == "s3k-1.0" and config.suffix_count is None:
        raise ConfigError("an s3k-1.0 volume needs its suffix_count", path=name or None)
    return config


def _table(values: Values, directory: str | None) -> TableLocation:
    if "table" in values:
        return TABLES.location(str(values["table"]), _aws(values, "table"))
    assert directory is not None
    return SqliteFile(os.path.join(directory, TABLE_FILE))


def _table_prefix(values: Values) -> str:
    prefix = str(values.get("table_prefix", ""))
    return check_table_prefix(prefix) if prefix else ""


def _data(values: Values, directory: str | None) -> BlobLocation:
    aws = _aws(values, "data")
    if "data_location" in values:
        return BLOBS.location(str(values["data_location"]), aws)
    if "bucket" in values:
        return S3Bucket(str(values["bucket"]), s3_prefix(str(values.get("prefix", ""))), aws)
    if "prefix" in values:
        raise ConfigError("a prefix needs the bucket it is in")
    if directory is None:
        raise ConfigError(
            "where is the volume's data? Give bucket or data_location",
            path=str(values.get("name", "")) or None,
        )
    return LocalDirectory(os.path.join(directory, "data"))


def _log(
    values: Values, directory: str | None, data: BlobLocation, kind: VolumeKind | None
) -> BlobLocation | None:
    """The log location; None: beside the data. S3-FileSystem 1.0 has its log among the data."""
    aws = _aws(values, "log")
    if "log_location" in values:
        return BLOBS.location(str(values["log_location"]), aws)
    if "log_bucket" in values:
        return S3Bucket(
            str(values["log_bucket"]), s3_prefix(str(values.get("log_prefix", ""))), aws
        )
    if "log_prefix" in values:
        log = data.with_prefix(str(values["log_prefix"]))
        if log is None:
            raise ConfigError("log_prefix needs the log_bucket it is in")
        return log.with_service(aws)
    if kind == "s3k-1.0":
        return data.with_service(aws)
    if data.service is not None:
        return data.below("oplog").with_service(aws)
    if directory is not None and data == LocalDirectory(os.path.join(directory, "data")):
        return LocalDirectory(os.path.join(directory, "oplog"))
    return None


def _aws(values: Values, part: str) -> AwsConfig:
    """The part's own options, else for the log those of the data, else those for all."""
    prefixes = [f"{part}_", *(["data_"] if part == "log" else []), ""]
    fields: dict[str, Any] = {}
    for name in AwsConfig.__dataclass_fields__:
        if part in _WITHOUT_OBJECTS and name in _OF_OBJECTS:
            continue
        if name not in (*CREDENTIALS, *_ENCRYPTION):
            # Small objects, such as those of the log, cost more in classes for infrequent access.
            apart = name == "storage_class" and part == "log"
            places = prefixes[:1] if apart else prefixes
            found = next(
                (values[prefix + name] for prefix in places if prefix + name in values), None
            )
            if found is not None:
                fields[name] = found
    for prefix in prefixes:
        credentials = {
            name: values[prefix + name] for name in CREDENTIALS if prefix + name in values
        }
        if credentials:
            if ("access_key_id" in credentials) != ("secret_access_key" in credentials):
                raise ConfigError(
                    f"{prefix}access_key_id and {prefix}secret_access_key go together"
                )
            fields |= credentials
            break
    lone = [name for name in _OF_ROLES if name in fields]
    if lone == ["sts_endpoint"] and values.get("delegate_credentials"):
        lone = []
    if "role_arn" not in fields and lone:
        raise ConfigError(f"{lone[0]} needs role_arn, the role that it applies to", path=part)
    if part not in _WITHOUT_OBJECTS:
        fields |= _encryption(values, prefixes)
    return AwsConfig(**fields)


def _encryption(values: Values, prefixes: list[str]) -> Values:
    """The encryption of stored objects and its key, both from the first of `prefixes` that has
    either."""
    for prefix in prefixes:
        given = {name: values[prefix + name] for name in _ENCRYPTION if prefix + name in values}
        if not given:
            continue
        for name, methods in (("kms_key", ENCRYPTIONS[1:]), ("bucket_key", ENCRYPTIONS[1:2])):
            if name in given and given.get("encryption") not in methods:
                raise ConfigError(
                    f"{prefix}{name} needs {prefix}encryption to be one of {', '.join(methods)}"
                )
        key = given.get("customer_key")
        if isinstance(key, Secret) and not is_customer_key(key.reveal()):
            raise ConfigError(f"{prefix}customer_key is not the base64 of a key of 256 bits")
        return given
    return {}


def _alerts(values: Values) -> AlertSettings:
    text = str(values.get("alerts", ""))
    parse_sinks(text)
    names = ("on_error", "on_timeout", "deadline", "job", "email")
    fields = {name: values[f"alerts_{name}"] for name in names if f"alerts_{name}" in values}
    return AlertSettings(Secret(text), _aws(values, "alerts"), **cast("Any", fields))


def _tuning(values: Values) -> Tuning:
    fields = {name: values[name] for name in Tuning.__dataclass_fields__ if name in values}
    StorageRules.parse(str(values.get("storage_rules", "")))
    return Tuning(retry=_retries(values), **cast("Any", fields))


def _retries(values: Values) -> Retries:
    """Retry policies; options of one kind of requests precede those of all."""
    usual = Retries()
    policies: dict[str, RetryPolicy] = {}
    for kind in KINDS:
        given = {
            name: values[key]
            for name in RetryPolicy.__dataclass_fields__
            for key in (f"retry_{name}", f"{kind}_retry_{name}")
            if key in values
        }
        policies[kind] = replace(cast("RetryPolicy", getattr(usual, kind)), **cast("Any", given))
    budget = {
        name: values[f"retry_{name}"]
        for name in RetryBudget.__dataclass_fields__
        if f"retry_{name}" in values
    }
    return Retries(**policies, budget=RetryBudget(**cast("Any", budget)))
