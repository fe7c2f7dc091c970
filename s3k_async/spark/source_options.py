"""Options of the data source: its own, and those of a volume."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, cast, get_args

from s3k_async.errors import ConfigError, InvalidArgumentError
from s3k_async.namespace.addresses import SCHEME
from s3k_async.settings import OPTIONS, Option
from s3k_async.settings.options import nearest, parse
from s3k_async.spark.settings import SparkSettings, SparkVolume

__all__ = [
    "FORMATS",
    "FileFormat",
    "SourceOptions",
    "SourceSettings",
    "is_of_a_table",
    "need_no_secrets",
]

FileFormat: TypeAlias = Literal["parquet", "orc", "csv", "json", "arrow", "feather"]
FORMATS: Final[tuple[str, ...]] = get_args(FileFormat)
MIB: Final = 1024 * 1024
DAY: Final = 86_400.0
REGISTERED: Final = (
    "Spark passes a table's options to no data source in Python, so register a format that has the "
    "path:"
    " register(spark, short_name='events', options={'path': '/events'})"
)
_OPTION: Final = "option."

_OWN: Final[Mapping[str, Option]] = {
    option.name: option
    for option in (
        Option("path", "text", "client", "The path, or a URL `s3k://volume/path`."),
        Option(
            "paths",
            "text",
            "client",
            "Several paths, as a JSON list, into which `load` converts a list.",
        ),
        Option(
            "volume",
            "text",
            "client",
            "The volume, as for `S3kClient`; the path's URL may contain it instead.",
        ),
        Option(
            "context",
            "text",
            "client",
            "Context id of S3-FileSystem 1.0, for driver and executors.",
        ),
        Option("format", "choice", "client", "Format of the files.", choices=FORMATS),
        Option("columns", "text", "client", "Columns to read, with commas between them."),
        Option(
            "merge_schema",
            "boolean",
            "client",
            "Whether to merge the schemas of all files instead of using that of the newest.",
        ),
        Option(
            "max_partition_bytes",
            "size",
            "client",
            "Bytes of files in an input partition.",
            minimum=1,
        ),
        Option(
            "partition_columns",
            "text",
            "client",
            "Columns by which directories are made, with commas.",
        ),
        Option(
            "partition_overwrite_mode",
            "choice",
            "client",
            "Whether overwriting replaces the whole directory, or the partitions that are written.",
            choices=("static", "dynamic"),
        ),
        Option(
            "max_records_per_file",
            "integer",
            "client",
            "Rows of a file at most; 0: no bound.",
            minimum=0,
        ),
        Option(
            "lease",
            "number",
            "client",
            "Seconds from a task's first byte to the commit, at most.",
            minimum=0.001,
        ),
        Option(
            "compression",
            "choice",
            "client",
            "Codec of Parquet.",
            choices=("snappy", "zstd", "gzip", "lz4", "none"),
        ),
    )
}


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Validated options."""

    paths: tuple[str, ...] = ()
    volume: str | None = None
    context: str | None = None
    format: str = "parquet"
    columns: tuple[str, ...] | None = None
    """What to read; None: everything."""
    merge_schema: bool = False
    max_partition_bytes: int = 128 * MIB
    partition_columns: tuple[str, ...] = ()
    partition_overwrite_mode: str = "static"
    max_records_per_file: int = 0
    compression: str = "snappy"
    lease: float = DAY
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Options of the volume."""

    @classmethod
    def of(cls, given: Mapping[str, object]) -> SourceOptions:
        """The options by name, case-insensitive. Raises ConfigError (an unknown option, an invalid
        value, a secret)."""
        values: dict[str, Any] = {}
        settings: dict[str, Any] = {}
        for name, value in given.items():
            option = name.lower()
            if option in _OWN:
                values[option] = parse(_OWN[option], value, f"option {option}")
            elif option not in OPTIONS:
                raise ConfigError(f"unknown option {name!r}{nearest(option, [*_OWN, *OPTIONS])}")
            else:
                settings[option] = value
        need_no_secrets(settings)
        paths = [values.pop("path")] if "path" in values else []
        if "paths" in values:
            paths += _list_of(values.pop("paths"))
        for name in ("columns", "partition_columns"):
            if name in values:
                values[name] = _names(name, values[name])
        return cls(paths=tuple(paths), settings=settings, **values)

    def one_path(self) -> str:
        """The path, for a table or a write, which has exactly one. Raises ConfigError."""
        if len(self.paths) != 1:
            raise ConfigError(f"expected one path, not {len(self.paths)}")
        return self.paths[0]


def need_no_secrets(settings: Iterable[str]) -> None:
    """Raise ConfigError if one of the options is a secret: shipped options appear in plans and in
    Spark's own files."""
    for name in settings:
        if name in OPTIONS and OPTIONS[name].type == "secret":
            raise ConfigError(
                f"option {name}: secrets are not shipped; they are looked for where tasks run"
            )


def is_of_a_table(given: Mapping[str, object]) -> bool:
    """Whether these are the properties of a table that is being created in Spark's catalog instead
    of options: there the options of the table begin with `option.`, and Spark adds other properties
    (`TableCatalog.PROP_*`).
    """
    return {"provider", "owner"} <= given.keys()


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """The settings of the session and of `register`, shipped with each read and write."""

    session: SparkSettings
    volume: str | SparkVolume | None = None
    context: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    parallelism: int = 1
    """Tasks that may run at once."""
    short_name: str = "s3k"
    options: Mapping[str, object] = field(default_factory=dict)
    """Defaults of reads and writes; its path is the only one."""
    pushes_filters: bool = False
    """Whether Spark pushes filters (`spark.sql.python.filterPushdown.enabled`): Spark refuses a
    reader with filter support if it does not."""

    def asked(self, given: Mapping[str, object]) -> SourceOptions:
        """The options of a read or write. Raises ConfigError, InvalidArgumentError (no path, or
        more than one)."""
        fixed = SourceOptions.of(self.options)
        if is_of_a_table(given):
            found = SourceOptions.of({**self.options, **_of_table(given)})
            if not fixed.paths or found.paths != fixed.paths or "location" in given:
                raise InvalidArgumentError(f"a table cannot say where its files are: {REGISTERED}")
            return found
        found = SourceOptions.of({**self.options, **given})
        if not found.paths:
            raise InvalidArgumentError(
                f"which path? Give it to load or save; for a table: {REGISTERED}"
            )
        if fixed.paths and found.paths != fixed.paths:
            raise InvalidArgumentError(
                f"the format {self.short_name} is for {fixed.one_path()}", path=found.paths[-1]
            )
        return found

    def volume_of(self, options: SourceOptions) -> SparkVolume:
        """The volume of the options, else that of the path's URL, else the given one. Raises
        ConfigError."""
        volume: str | SparkVolume | None = options.volume
        if volume is None and not {"directory", "table"} & options.settings.keys():
            named = {
                path[len(SCHEME) :].partition("/")[0] for path in options.paths if _is_url(path)
            }
            if len(named) > 1:
                raise ConfigError(f"the paths are in several volumes: {', '.join(sorted(named))}")
            volume = self.volume
            if named and _may_be_another(self.volume, *named):
                volume = SCHEME + named.pop()
        if isinstance(volume, SparkVolume):
            if options.settings:
                raise ConfigError(
                    f"the volume is complete: option {next(iter(options.settings))} has no use"
                )
            return volume
        settings = {**self.settings, **options.settings}
        return self.session.volume(volume, context=options.context or self.context, **settings)


def _of_table(properties: Mapping[str, object]) -> dict[str, object]:
    """The options among the properties of a table."""
    return {
        name[len(_OPTION) :]: value
        for name, value in properties.items()
        if name.startswith(_OPTION)
    }


def _may_be_another(volume: str | SparkVolume | None, name: str) -> bool:
    """Whether the volume of a URL has to be resolved by its name; otherwise the given volume
    accepts or refuses the path."""
    if isinstance(volume, SparkVolume):
        return volume.driver.name not in ("", name)
    return volume is None or _is_url(volume)


def _is_url(text: str) -> bool:
    return text[: len(SCHEME)].lower() == SCHEME


def _list_of(text: str) -> list[str]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(path, str) for path in found):
        raise ConfigError("option paths: a JSON list of paths is wanted")
    return cast("list[str]", found)


def _names(option: str, text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names) or len(set(names)) < len(names):
        raise ConfigError(
            f"option {option}: {text!r} is no list of different columns with commas between them"
        )
    return names
