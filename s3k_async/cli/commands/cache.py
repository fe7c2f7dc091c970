"""cache: the read cache in a directory of this machine. Shows it, evicts from it, and clears it."""

from __future__ import annotations

from typing import cast

import click

from s3k_async._core.duration_syntax import duration_text
from s3k_async._core.os_errors import os_errors
from s3k_async._core.runtime import SYSTEM
from s3k_async.cli.command import CommandGroup, VolumeCommand
from s3k_async.cli.invocation import Invocation
from s3k_async.cli.output import human_size, plural, time_text
from s3k_async.errors import ConfigError
from s3k_async.settings.options import OPTIONS, parse
from s3k_async.storage.cache_directory import CacheDirectory, CacheLimits, Eviction

__all__ = ["cache"]

cache = CommandGroup(
    name="cache",
    help="""The read cache in a directory of this machine.

    The directory and its limits are the settings cache, cache_size, cache_high, cache_low and
    cache_age: flags, S3K_* variables, or keys of the configuration file.""",
)


def _directory(invocation: Invocation) -> tuple[CacheDirectory, CacheLimits]:
    """The cache that is configured. Raises ConfigError without one."""
    tuning = invocation.tuning()
    if tuning.cache is None:
        raise ConfigError(
            "no cache is configured: give --cache DIRECTORY, or set S3K_CACHE, or cache in the "
            "configuration file"
        )
    return CacheDirectory(tuning.cache, SYSTEM), CacheLimits.of(tuning)


@cache.command(cls=VolumeCommand)
@click.pass_obj
def info(invocation: Invocation) -> None:
    """Show how much is in the cache, when it was used, and its limits."""
    directory, limits = _directory(invocation)
    with os_errors(directory.path):
        usage = directory.usage()
    if invocation.json:
        invocation.output.json(
            {
                "directory": directory.path,
                "blocks": usage.blocks,
                "bytes": usage.bytes,
                "oldest_use_ms": usage.oldest_ms,
                "newest_use_ms": usage.newest_ms,
                "size": limits.size,
                "high_bytes": limits.high_bytes,
                "low_bytes": limits.low_bytes,
                "age_seconds": limits.age,
            }
        )
        return
    line = invocation.output.line
    line(f"directory  {directory.path}")
    line(f"content    {plural(usage.blocks, 'block')}, {plural(usage.bytes, 'byte')}")
    if usage.oldest_ms is not None and usage.newest_ms is not None:
        line(f"used       {time_text(usage.oldest_ms)} to {time_text(usage.newest_ms)}")
    line(
        f"limits     {human_size(limits.size)}; evicts above {human_size(limits.high_bytes)} to "
        f"{human_size(limits.low_bytes)}, and after {duration_text(int(limits.age))} without use"
    )


@cache.command(cls=VolumeCommand)
@click.option(
    "--to", metavar="SIZE", help="Evict until there are no more bytes than this (500, 1k, 1MiB)."
)
@click.pass_obj
def evict(invocation: Invocation, to: str | None) -> None:
    """Remove blocks that were not used for cache_age and temporary files of killed processes; and
    above the high watermark, the blocks that were not used for longest, until the low one."""
    directory, limits = _directory(invocation)
    try:
        target = None if to is None else cast("int", parse(OPTIONS["cache_size"], to, "--to"))
    except ConfigError as error:
        raise click.UsageError(error.message) from error
    with os_errors(directory.path):
        _say(invocation, "evicted", directory.evict(limits, to=target))


@cache.command(cls=VolumeCommand)
@click.pass_obj
def clear(invocation: Invocation) -> None:
    """Remove everything from the cache. Running clients go on, and fill it again."""
    directory, _ = _directory(invocation)
    with os_errors(directory.path):
        _say(invocation, "removed", directory.clear())


def _say(invocation: Invocation, verb: str, done: Eviction) -> None:
    text = f"{verb} {plural(done.blocks, 'block')}, {plural(done.bytes, 'byte')}"
    invocation.say(text, blocks=done.blocks, bytes=done.bytes)
