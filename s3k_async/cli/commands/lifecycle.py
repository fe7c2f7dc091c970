"""Volumes as a whole: init, destroy."""

from __future__ import annotations

import os
import sys
from typing import Any

import anyio
import click

from s3k_async.cli.addresses import Address, parse_volume_address
from s3k_async.cli.command import VolumeCommand
from s3k_async.cli.invocation import Invocation
from s3k_async.cli.output import one_line, plural
from s3k_async.errors import ConfigError, DirectoryNotEmptyError, InvalidArgumentError
from s3k_async.volumes.adapters import table_text

__all__ = ["destroy", "init"]


@click.command(
    cls=VolumeCommand,
    show_settings=True,
    epilog="Each of table, data and log may have a service setting"
    " of its own: --table-region, --data-endpoint, --log-profile and so on.",
)
@click.argument("volume", required=False)
@click.option(
    "--exist-ok", is_flag=True, help="A volume that is there already and agrees is no error."
)
@click.option(
    "--take-over",
    is_flag=True,
    help=(
        "This table, restored or renamed, is the volume's from now on: mark its locations with it."
    ),
)
@click.option(
    "--no-save",
    is_flag=True,
    help="Do not add the settings of s3k://NAME to the configuration file.",
)
@click.pass_obj
def init(
    invocation: Invocation, volume: str | None, exist_ok: bool, take_over: bool, no_save: bool
) -> None:
    """Make a volume: VOLUME is a directory for an embedded one, or s3k://NAME.

    The settings given for s3k://NAME are saved in the configuration file, so that the name is
    enough from then on.
    """
    from s3k_async.volumes import init_volume

    address = None if volume is None else _volume(volume)
    config = invocation.resolve(address.volume if address else None)
    saved = _section(invocation, address) if not no_save else None
    if saved is not None:
        _need_free(*saved)
    record = anyio.run(lambda: init_volume(config, exist_ok=exist_ok, take_over=take_over))
    written = _save(*saved) if saved is not None else None
    text = (
        f"volume {record.name}: table {table_text(config.table)}, suffix count "
        f"{record.suffix_count}"
    )
    invocation.say(
        f"{text}; saved in {written}" if written else text,
        name=record.name,
        id=record.volume_id,
        table=table_text(config.table),
        data=record.data,
        log=record.log,
        log_mode=record.log_mode,
        suffix_count=record.suffix_count,
        hash=record.hash,
        saved=written,
    )


def _volume(text: str) -> Address:
    address = parse_volume_address(text)
    if address.path != "/" or address.volume is None:
        raise InvalidArgumentError("a volume is meant here, not a path in one", path=text)
    return address


def _section(
    invocation: Invocation, address: Address | None
) -> tuple[str, dict[str, Any], str] | None:
    """Name, settings and file of what is to be saved; None if there is nothing to save."""
    from s3k_async.settings import config_path

    if address is None or not str(address.volume).startswith("s3k://") or not invocation.settings:
        return None
    path = (
        os.path.abspath(os.path.expanduser(invocation.config))
        if invocation.config
        else config_path(os.environ)
    )
    return str(address.volume).removeprefix("s3k://"), invocation.settings, path


def _need_free(name: str, settings: dict[str, Any], path: str) -> None:
    """Raise ConfigError, before anything is made, if the section could not be saved."""
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
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--force", is_flag=True, help="Even if the volume holds files or directories.")
@click.pass_obj
def destroy(invocation: Invocation, volume: str, yes: bool, force: bool) -> None:
    """Remove a volume with everything in it. Nobody may use it meanwhile.

    Asks first, if there is a terminal; without one --yes is needed. Only what is recognised as the
    volume's is deleted; a bucket stays.
    """
    from s3k_async.volumes import destroy_volume

    address = _volume(volume)
    config = invocation.resolve(address.volume)
    where = table_text(config.table)
    if not yes and not _confirmed(f"Destroy the volume {volume} (table {where}) for good?"):
        raise click.UsageError("nothing was destroyed: it was not confirmed (--yes confirms)")
    try:
        left = anyio.run(lambda: destroy_volume(config, force=force))
    except DirectoryNotEmptyError as error:
        raise DirectoryNotEmptyError(f"{error.message} (--force)", path=where) from error
    text = f"destroyed {volume}"
    if left:
        text += f"; {plural(left, 'object')} that are not the volume's were left in its places"
    invocation.say(text, volume=volume, table=where, left=left)


def _confirmed(question: str) -> bool:
    if sys.stdin is None or not sys.stdin.isatty():
        return False
    print(f"{one_line(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
