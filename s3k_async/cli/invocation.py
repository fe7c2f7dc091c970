"""One run of the command line: its global options, and the volumes it opens."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from s3k_async.cli.event_loop import run_loop
from s3k_async.cli.output import Output
from s3k_async.model import CacheStatistics, FillStatistics

if TYPE_CHECKING:
    from s3k_async.cli.progress import ProgressMeter
    from s3k_async.cli.volume_addresses import Address
    from s3k_async.client import S3kClient
    from s3k_async.config import (
        AlertSettings,
        AwsConfig,
        BlobLocation,
        TableLocation,
        Tuning,
        VolumeConfig,
    )
    from s3k_async.settings import ConfigFile
    from s3k_async.trees import BucketTree

__all__ = ["Clients", "Invocation"]

T = TypeVar("T")


@dataclass
class Invocation:
    """Values of the common options."""

    volume: str | None = None
    """Volume of paths without one."""
    config: str | None = None
    context: str | None = None
    hadoop: tuple[str, ...] = ()
    quiet: bool = False
    json: bool = False
    stats: bool = False
    debug: bool = False
    literal: bool = False
    """Whether no argument is a pattern."""
    verbose: bool = False
    """Whether Spark's own log is shown."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings given as flags."""
    command: str | None = None
    """The name of the command without its groups."""
    flags: set[str] = field(default_factory=set)
    """Those flags."""
    cache_statistics: CacheStatistics = field(default_factory=CacheStatistics)
    """What the read caches of the clients did, after they were closed."""
    fill_statistics: FillStatistics = field(default_factory=FillStatistics)
    """What their reads copied to hot locations, after they were closed."""

    @cached_property
    def output(self) -> Output:
        """Output of results."""
        return Output(sys.stdout)

    def run(self, work: Callable[[Clients], Awaitable[T]]) -> T:
        """Run a command's work in an event loop, with its volumes."""

        async def main() -> T:
            async with Clients(self) as clients:
                return await work(clients)

        return run_loop(main)

    def resolve(self, volume: str | None, *, file: ConfigFile | None = None) -> VolumeConfig:
        """The configuration for a volume's address, or for the default volume. `file`: contents of
        a configuration file, instead of reading one. Raises ConfigError."""
        from s3k_async.settings import resolve

        if volume is None:
            volume = self.volume
        return resolve(
            volume,
            config=file or self.config,
            context=self.context,
            hadoop=self._properties(),
            **self.settings,
        )

    def tuning(self) -> Tuning:
        """The settings of clients, of the default volume if it has some. Raises ConfigError."""
        from s3k_async.settings import local_tuning

        volume = self.volume or os.environ.get("S3K_VOLUME") or None
        return local_tuning(
            volume,
            config=self.config,
            context=self.context,
            hadoop=self._properties(),
            **self.settings,
        )

    def alerts(self) -> AlertSettings:
        """The settings of alerts, of the default volume if it has some. Raises ConfigError."""
        from s3k_async.settings import local_alerts

        volume = self.volume or os.environ.get("S3K_VOLUME") or None
        return local_alerts(volume, config=self.config, **self.settings)

    def service(self, volume: str | None, bucket: str) -> AwsConfig:
        """The settings of the service of a bucket, as for the data of a volume, by default of the
        default one. Raises ConfigError."""
        from s3k_async.settings import local_service

        chosen = volume or self.volume or os.environ.get("S3K_VOLUME") or None
        return local_service(
            chosen,
            config=self.config,
            context=self.context,
            hadoop=self._properties(),
            of_bucket=bucket,
            **self.settings,
        )

    def say(self, text: str, **fields: Any) -> None:
        """Print a summary: a line unless quiet, or a JSON document."""
        if self.json:
            self.output.json(fields)
        elif not self.quiet:
            self.output.line(text)

    def meter(self, title: str) -> ProgressMeter:
        """Progress of long work, shown on a terminal."""
        from s3k_async.cli.progress import ProgressMeter

        return ProgressMeter(title, shown=sys.stderr.isatty() and not self.quiet and not self.json)

    def _properties(self) -> dict[str, str] | None:
        from s3k_async.cli.hadoop_file import expand_variables, read_hadoop_file

        merged: dict[str, str] = {}
        for path in self.hadoop:
            merged |= read_hadoop_file(path)
        return expand_variables(merged) if self.hadoop else None


class Clients:
    """The volumes of one command, each opened once."""

    def __init__(self, invocation: Invocation) -> None:
        self._invocation = invocation
        self._open: dict[tuple[TableLocation, str], S3kClient] = {}
        self._stack = AsyncExitStack()
        self._shows_verbs = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()
        for client in self._open.values():
            self._invocation.cache_statistics += client.cache_statistics
            self._invocation.fill_statistics += client.fill_statistics

    @property
    def literal(self) -> bool:
        """Whether no argument of the command is a pattern."""
        return self._invocation.literal

    async def of(self, address: Address) -> S3kClient:
        """The client of an address's volume. Raises ConfigError, VolumeNotFoundError, and the
        errors of opening."""
        from s3k_async.client import S3kClient

        config = self._resolve(address)
        place = config.table, config.table_prefix
        if place not in self._open:
            self._show_verbs(config)
            self._open[place] = await self._stack.enter_async_context(S3kClient(config=config))
        return self._open[place]

    async def bucket(self, location: BlobLocation, prefix: str) -> BucketTree:
        """A tree of the objects in a bucket, or in a directory. Raises ConfigError."""
        from s3k_async.trees import open_bucket

        tree = open_bucket(location, prefix, tuning=self._invocation.tuning())
        return await self._stack.enter_async_context(tree)

    def _show_verbs(self, config: VolumeConfig) -> None:
        """Show the log of verbs on standard error, if the client writes one."""
        from s3k_async.cli.verb_records import VERBS, shown

        if config.tuning.log_verbs != "off" and not self._shows_verbs:
            self._shows_verbs = True
            self._stack.enter_context(shown(VERBS, as_json=self._invocation.json))

    def _resolve(self, address: Address) -> VolumeConfig:
        from s3k_async.errors import ConfigError

        try:
            return self._invocation.resolve(address.volume)
        except ConfigError as error:
            if address.volume is None and os.path.isdir(address.path) and address.path.strip("/"):
                hint = (
                    f"the directory of an embedded volume is written {address.path.rstrip('/')}:/"
                )
                raise ConfigError(f"{error.message}; {hint}", path=error.path) from error
            raise
