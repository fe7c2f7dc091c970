"""Registry of backends by the scheme of their URLs.

Those of this package are listed here; others are entry points of installed distributions, in the
groups `s3k_async.table_backends` and `s3k_async.blob_backends`: the scheme is the entry point's
name, the location class its value. They are looked up when a scheme is not listed here.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from typing import Any, Final, Generic, TypeVar

from s3k_async.backends.aws.access import AwsConfig
from s3k_async.backends.location import BlobLocation, Location, TableLocation
from s3k_async.errors import ConfigError

__all__ = ["BLOBS", "TABLES", "Registry"]

LocationT = TypeVar("LocationT", bound=Location)

_HERE: Final = "s3k_async.backends"


class Registry(Generic[LocationT]):
    """Location classes of one kind. A location class is imported when a setting has its scheme."""

    def __init__(
        self,
        kind: type[LocationT],
        what: str,
        group: str,
        listed: Mapping[str, str],
        *,
        scheme: re.Pattern[str],
        default: str,
    ) -> None:
        """`what`: the kind in messages. `group`: of the entry points. `listed`: scheme to
        `module:class`. `scheme` matches the scheme of a setting; settings without one have the
        `default`."""
        self.group: Final = group
        self._kind: type[Location] = kind
        self._what = what
        self._listed = listed
        self._scheme = scheme
        self._default = default

    def schemes(self) -> list[str]:
        """The listed schemes and those of installed distributions."""
        from importlib.metadata import entry_points

        return sorted({*self._listed, *entry_points(group=self.group).names})

    def backend(self, scheme: str) -> type[LocationT]:
        """The location class for a scheme. Raises ConfigError if it is unknown or cannot be
        imported."""
        value = self._listed.get(scheme) or self._installed(scheme)
        module, _, name = value.partition(":")
        try:
            found: Any = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise ConfigError(
                f"the backend for {self._what} with the scheme {scheme!r} cannot be loaded from "
                f"{value!r}: {error}; install what it needs, or another version of it",
                path=scheme,
            ) from error
        if not (isinstance(found, type) and issubclass(found, self._kind)):
            raise ConfigError(
                f"{value!r}, registered for {self._what} with the scheme {scheme!r}, is no "
                f"subclass of {self._kind.__name__}",
                path=scheme,
            )
        return found  # type: ignore[return-value]  # a subclass of `kind`, as checked above

    def of_setting(self, text: str) -> type[LocationT]:
        """The location class for a setting. Raises ConfigError as `backend`."""
        found = self._scheme.match(text)
        return self.backend(found[1] if found else self._default)

    def location(self, text: str, service: AwsConfig) -> LocationT:
        """The location of a setting. Raises ConfigError."""
        return self.of_setting(text).parse(text, service)

    def _forms(self) -> list[str]:
        listed = {self.backend(scheme).form for scheme in self._listed}
        return sorted(
            {*listed, *(f"{each}:" for each in self.schemes() if each not in self._listed)}
        )

    def _installed(self, scheme: str) -> str:
        from importlib.metadata import entry_points

        found = {each.value: each for each in entry_points(group=self.group, name=scheme)}
        if len(found) > 1:
            raise ConfigError(
                f"several distributions register {self._what} with the scheme {scheme!r}: "
                f"{', '.join(sorted(found))}; uninstall all but one",
                path=scheme,
            )
        if not found:
            raise ConfigError(
                f"no backend for {self._what} has the scheme {scheme!r}; there are "
                f"{', '.join(self._forms())}",
                path=scheme,
            )
        return next(iter(found))


TABLES: Final = Registry[TableLocation](
    TableLocation,  # type: ignore[type-abstract]  # only compared with
    "tables",
    "s3k_async.table_backends",
    {
        "arn": f"{_HERE}.dynamodb:DynamoTable",
        "dynamodb": f"{_HERE}.dynamodb:DynamoTable",
        "memory": f"{_HERE}.memory:MemoryTable",
        "redis": f"{_HERE}.redis:RedisTable",
        "rediss": f"{_HERE}.redis:RedisTable",
        "rocksdb": f"{_HERE}.rocksdb:RocksdbTable",
        "sqlite": f"{_HERE}.sqlite:SqliteFile",
    },
    scheme=re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):"),
    default="dynamodb",
)
BLOBS: Final = Registry[BlobLocation](
    BlobLocation,  # type: ignore[type-abstract]  # only compared with
    "blobs",
    "s3k_async.blob_backends",
    {
        "file": f"{_HERE}.local:LocalDirectory",
        "memory": f"{_HERE}.memory:MemoryBlobs",
        "redis": f"{_HERE}.redis:RedisBlobs",
        "rediss": f"{_HERE}.redis:RedisBlobs",
        "rocksdb": f"{_HERE}.rocksdb:RocksdbBlobs",
        "s3": f"{_HERE}.s3:S3Bucket",
    },
    scheme=re.compile(r"(.*?)://", re.DOTALL),  # `a:b` is a path
    default="file",
)
