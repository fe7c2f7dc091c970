"""Tables in SQLite databases on local disks."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from s3k_async._core.file_modes import make_parent
from s3k_async._core.worker_threads import in_thread
from s3k_async.backends.aws.access import AwsConfig
from s3k_async.backends.ballast import Ballast
from s3k_async.backends.location import OpenContext, TableCapabilities, TableLocation, TableStore
from s3k_async.backends.ports.service_inspection import Inspection
from s3k_async.backends.url_parts import TABLE_FILE, absolute_path

__all__ = ["SqliteFile"]


@dataclass(frozen=True, slots=True)
class SqliteFile(TableLocation):
    """A table in an SQLite database on a local disk."""

    path: str

    scheme: ClassVar[str] = "sqlite"
    form: ClassVar[str] = "sqlite:PATH"
    capabilities: ClassVar[TableCapabilities] = TableCapabilities(
        conditional_writes=True, transaction_size=100, snapshot_reads=True
    )

    @classmethod
    def parse(cls, text: str, service: AwsConfig) -> Self:  # noqa: ARG003
        return cls(text.removeprefix("sqlite:"))

    @classmethod
    def anchored(cls, text: str, base: str | None) -> str:
        return f"sqlite:{absolute_path(re.sub('^sqlite:(//(?=/))?', '', text), base)}"

    def open(self, opening: OpenContext) -> TableStore:  # noqa: ARG002
        from s3k_async.backends.sqlite.sqlite_items import SqliteItems

        return SqliteItems(self.path)

    def inspection(self, opening: OpenContext) -> Inspection:  # noqa: ARG002
        from s3k_async.backends.local.disk_space import LocalDisk

        return LocalDisk(self.home)

    async def prepare(self) -> None:
        await in_thread(make_parent, self.path)

    @property
    def label(self) -> str:
        return self.path

    def identity(self, *, embedded: bool) -> str:
        if embedded:
            return f"sqlite:./{os.path.basename(self.path)}"
        return f"sqlite:{os.path.abspath(self.path)}"

    @classmethod
    def same_table(cls, one: str, other: str) -> bool:
        mine, theirs = one.removeprefix("sqlite:"), other.removeprefix("sqlite:")
        if mine.startswith("./") or theirs.startswith("./"):
            # Earlier versions wrote this also for a log in another place.
            return os.path.basename(mine) == os.path.basename(theirs)
        return os.path.realpath(mine) == os.path.realpath(theirs)

    @property
    def directory(self) -> str:
        return self.home

    @property
    def home(self) -> str:
        return os.path.dirname(os.path.abspath(self.path))

    @property
    def files(self) -> Sequence[str]:
        from s3k_async.backends.sqlite.sqlite_items import BESIDES

        path = os.path.abspath(self.path)
        return [path, *(path + each for each in BESIDES)]

    def ballast(self) -> Ballast:
        from s3k_async.backends.sqlite.sqlite_connections import BALLAST

        return Ballast(os.path.abspath(self.path) + BALLAST)

    @property
    def path_prefix(self) -> str:
        if os.path.basename(self.path) == TABLE_FILE:
            return f"{os.path.dirname(self.path)}:"
        return ""
