"""set-capacity, and the options of a new table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar, get_args

import click

from s3k_async.backends.dynamodb import with_options
from s3k_async.backends.dynamodb.table_options import StreamView, TableOptions
from s3k_async.cli.command import VolumeCommand
from s3k_async.cli.event_loop import run_loop
from s3k_async.cli.invocation import Invocation
from s3k_async.cli.volume_addresses import parse_volume_address
from s3k_async.config import VolumeConfig
from s3k_async.errors import ConfigError, InvalidArgumentError

__all__ = ["set_capacity", "table_options", "with_table_options"]

F = TypeVar("F", bound=Callable[..., Any])


def _units(command: F) -> F:
    for kind in ("write", "read"):
        command = click.option(
            f"--{kind}-units",
            type=click.IntRange(min=1),
            help=f"Provisioned {kind} units of the table per second [default: on demand].",
        )(command)
    return command


def table_options(command: F) -> F:
    """The options of a new DynamoDB table."""
    for option in (
        click.option(
            "--stream",
            type=click.Choice(get_args(StreamView)),
            help="Enable a stream of changes to the table, with this view.",
        ),
        click.option(
            "--table-tag",
            multiple=True,
            metavar="NAME=VALUE",
            help="A tag of the table. Repeatable.",
        ),
        click.option(
            "--deletion-protection",
            is_flag=True,
            help="Protect the table from deletion, also by s3k destroy.",
        ),
        click.option(
            "--point-in-time-recovery",
            is_flag=True,
            help="Keep backups of the table for 35 days.",
        ),
        click.option(
            "--table-kms-key",
            metavar="KEY",
            help="KMS key that encrypts the table, or aws for the account's key for DynamoDB.",
        ),
    ):
        command = option(command)
    return _units(command)


def with_table_options(config: VolumeConfig, given: Mapping[str, Any]) -> VolumeConfig:
    """The configuration with the options of `table_options`. Raises ConfigError."""
    if not any(value not in (None, False, ()) for value in given.values()):
        return config
    tags = []
    for text in given["table_tag"]:
        name, separator, value = text.partition("=")
        if not separator:
            raise ConfigError(f"--table-tag {text!r} is not NAME=VALUE", path=config.table.label)
        tags.append((name, value))
    options = TableOptions(
        read_units=given["read_units"],
        write_units=given["write_units"],
        kms_key=given["table_kms_key"],
        point_in_time_recovery=given["point_in_time_recovery"],
        deletion_protection=given["deletion_protection"],
        tags=tuple(tags),
        stream=given["stream"],
    )
    return replace(config, table=with_options(config.table, options))


@click.command("set-capacity", cls=VolumeCommand)
@click.argument("volume")
@click.option("--on-demand", is_flag=True, help="Pay for requests instead of provisioned units.")
@_units
@click.pass_obj
def set_capacity(
    invocation: Invocation,
    volume: str,
    on_demand: bool,
    read_units: int | None,
    write_units: int | None,
) -> None:
    """Set the capacity of the DynamoDB table of a volume, which may be in use.

    Either --on-demand, or both --read-units and --write-units. Waits until the change is complete.
    """
    from s3k_async.volumes.table_capacity import set_capacity as apply

    given = (read_units is not None, write_units is not None)
    if on_demand == any(given) or (not on_demand and not all(given)):
        raise click.UsageError("give --on-demand, or both --read-units and --write-units")
    address = parse_volume_address(volume)
    if address.path != "/" or address.volume is None:
        raise InvalidArgumentError("expected a volume, not a path in a volume", path=volume)
    config = invocation.resolve(address.volume)
    changed = run_loop(lambda: apply(config, read_units=read_units, write_units=write_units))
    text = "on demand" if on_demand else f"{read_units} read units, {write_units} write units"
    invocation.say(
        f"{config.table.label}: {text}{'' if changed else ' (unchanged)'}",
        table=config.table.label,
        read_units=read_units,
        write_units=write_units,
        changed=changed,
    )
