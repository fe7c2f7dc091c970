"""Volumes as a whole: init, destroy."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from s3k_async.cli.command import VolumeCommand
from s3k_async.cli.commands.capacity import table_options, with_table_options
from s3k_async.cli.durations import duration_option
from s3k_async.cli.event_loop import run_loop
from s3k_async.cli.invocation import Invocation
from s3k_async.cli.output import one_line, plural
from s3k_async.cli.volume_addresses import Address, parse_volume_address
from s3k_async.errors import (
    ConfigError,
    DirectoryNotEmptyError,
    InvalidArgumentError,
    PartialFailureError,
    PermissionDeniedError,
)
from s3k_async.model import DEFAULT_FEATURES, FEATURES, Feature

if TYPE_CHECKING:
    from s3k_async.settings import ConfigFile

__all__ = ["destroy", "init"]


@click.command(
    cls=VolumeCommand,
    show_settings=True,
    epilog="Each of table, data and log may have a service setting"
    " of its own: --table-region, --data-endpoint, --log-profile and so on.",
)
@click.argument("volume", required=False)
@click.option("--exist-ok", is_flag=True, help="Accept an existing volume with the same settings.")
@click.option(
    "--take-over",
    is_flag=True,
    help=("Claim the volume's locations for this table, after it was restored or renamed."),
)
@duration_option(
    "--trash-retention",
    help="How long a deleted directory stays in the trash, if the layout has one, such as 7d "
    "[default: 1d].",
)
@click.option(
    "--enable",
    type=click.Choice([each for each in FEATURES if each not in DEFAULT_FEATURES]),
    multiple=True,
    help="A feature beside the default ones, which costs requests.",
)
@click.option(
    "--without",
    type=click.Choice(DEFAULT_FEATURES),
    multiple=True,
    help="A feature that earlier versions do not know, so that they can use the volume, too.",
)
@click.option(
    "--hot",
    default="",
    metavar="LOCATION",
    help="A hot data location, which gets what is written until s3k tier run moves it: "
    "s3://BUCKET/PREFIX, or a directory.",
)
@click.option(
    "--hot-on-this-machine",
    is_flag=True,
    help="Accept a directory as hot location, although only clients of this machine can use the "
    "volume then.",
)
@table_options
@click.option(
    "--no-save",
    is_flag=True,
    help="Do not save the settings of s3k://NAME in the configuration file.",
)
@click.pass_obj
def init(
    invocation: Invocation,
    /,
    volume: str | None,
    exist_ok: bool,
    take_over: bool,
    trash_retention: int | None,
    enable: tuple[Feature, ...],
    without: tuple[Feature, ...],
    hot: str,
    hot_on_this_machine: bool,
    no_save: bool,
    **table: Any,
) -> None:
    """Create a volume. VOLUME is a directory (embedded volume) or s3k://NAME.

    The settings of s3k://NAME are saved in the configuration file, so that later commands need only
    the name.
    """
    from s3k_async.volumes import init_volume

    address = None if volume is None else _volume(volume)
    saved = _section(invocation, address) if not no_save else None
    config = replace(
        invocation.resolve(address.volume if address else None, file=_new_file(saved)),
        trash_retention=trash_retention,
    )
    config = with_table_options(config, table)
    if saved is not None:
        _need_free(*saved)
    record = run_loop(
        lambda: init_volume(
            config,
            exist_ok=exist_ok,
            take_over=take_over,
            enable=enable,
            without=without,
            hot=hot,
            hot_on_this_machine=hot_on_this_machine,
        )
    )
    written = _save(*saved) if saved is not None else None
    text = f"volume {record.name}: table {config.where}, suffix count {record.suffix_count}"
    invocation.say(
        f"{text}; saved in {written}" if written else text,
        name=record.name,
        id=record.volume_id,
        table=config.where,
        data=record.data,
        log=record.log,
        log_mode=record.log_mode,
        suffix_count=record.suffix_count,
        hash=record.hash,
        layout=record.layout,
        **({"hot": record.hot} if record.hot else {}),
        saved=written,
    )


def _volume(text: str) -> Address:
    address = parse_volume_address(text)
    if address.path != "/" or address.volume is None:
        raise InvalidArgumentError("expected a volume, not a path in a volume", path=text)
    return address


def _section(
    invocation: Invocation, address: Address | None
) -> tuple[str, dict[str, Any], str] | None:
    """Name, settings and file of the section to save; None without one."""
    from s3k_async.settings import config_path

    if address is None or not str(address.volume).startswith("s3k://") or not invocation.settings:
        return None
    path = (
        os.path.abspath(os.path.expanduser(invocation.config))
        if invocation.config
        else config_path(os.environ)
    )
    return str(address.volume).removeprefix("s3k://"), invocation.settings, path


def _new_file(saved: tuple[str, dict[str, Any], str] | None) -> ConfigFile | None:
    """An empty configuration file, if the one to save to does not exist yet."""
    from s3k_async.settings import ConfigFile

    if saved is None or os.path.lexists(saved[2]):
        return None
    return ConfigFile(saved[2])


def _need_free(name: str, settings: dict[str, Any], path: str) -> None:
    """Raise ConfigError, before the volume is made, if the section could not be saved."""
    from s3k_async.settings import read_config

    present = read_config(path).volumes.get(name)
    if present is not None and present != settings:
        raise ConfigError(
            f"[volumes.{name}] is in the configuration file with other settings; change it there, "
            "or use --no-save",
            path=path,
        )


def _save(name: str, settings: dict[str, Any], path: str) -> str:
    from s3k_async.settings import save_volume

    try:
        save_volume(name, settings, path)
    except ConfigError as error:
        raise ConfigError(f"the volume was made, but {error.message}", path=error.path) from error
    return path


@click.command(cls=VolumeCommand)
@click.argument("volume")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--force", is_flag=True, help="Destroy the volume even if it is not empty.")
@click.pass_obj
def destroy(invocation: Invocation, volume: str, yes: bool, force: bool) -> None:
    """Delete a volume and all of its data. The volume must not be in use.

    Asks for confirmation on a terminal; --yes is required otherwise. Only the volume's own objects
    are deleted; the bucket remains, and so does a table that it shares with other volumes.
    """
    from s3k_async.volumes import destroy_volume

    address = _volume(volume)
    config = invocation.resolve(address.volume)
    where = config.where
    if not yes and not _confirmed(f"Destroy the volume {volume} (table {where}) permanently?"):
        raise click.UsageError("nothing was destroyed: confirm with --yes")
    try:
        left = run_loop(lambda: destroy_volume(config, force=force))
    except DirectoryNotEmptyError as error:
        raise DirectoryNotEmptyError(f"{error.message} (--force)", path=where) from error
    except PartialFailureError as error:
        if (denied := _denied(error)) is None:
            raise
        raise denied from error
    text = f"destroyed {volume}"
    if config.table_prefix:
        text += f"; the table {config.table.label} was kept"
    if left:
        text += f"; {plural(left, 'object')} that are not the volume's were left in its places"
    invocation.say(text, volume=volume, table=where, left=left)


def _denied(error: PartialFailureError) -> PermissionDeniedError | None:
    """The error of a destruction that only lacks permissions, which a repetition needs first; None
    for others."""
    denied = [each for _, each in error.failures if isinstance(each, PermissionDeniedError)]
    if not denied or len(denied) < len(error.failures):
        return None
    return PermissionDeniedError(f"{error.message} ({denied[0].message})", path=error.path)


def _confirmed(question: str) -> bool:
    if sys.stdin is None or not sys.stdin.isatty():
        return False
    print(f"{one_line(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
