"""volumes: the volumes of a table."""

from __future__ import annotations

import os
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import click

from s3k_async.cli.command import VolumeCommand
from s3k_async.cli.event_loop import run_loop
from s3k_async.cli.invocation import Invocation
from s3k_async.cli.output import time_text
from s3k_async.cli.volume_addresses import is_volume, whole_volume
from s3k_async.volumes.table_volumes import TableVolume, table_volumes

if TYPE_CHECKING:
    from s3k_async.config import TableLocation, Tuning

__all__ = ["volumes"]


@click.command(cls=VolumeCommand)
@click.argument("table")
@click.pass_obj
def volumes(invocation: Invocation, table: str) -> None:
    """List the volumes of TABLE, given as the setting table: a DynamoDB table, or sqlite:PATH.

    TABLE can also be a volume, s3k://NAME or the directory of an embedded one: then the volumes of
    its table are listed. Each line: prefix, state, layout, time of creation, id, name, location of
    the data, features. A volume without a prefix has a table of its own and the prefix -. Other
    states than ready are locked (by work in progress), interrupted, destroying and damaged. With
    --json, one JSON object per line.
    """
    location, tuning = _table(invocation, table)

    async def work() -> None:
        async with aclosing(table_volumes(location, tuning)) as found:
            async for each in found:
                if invocation.json:
                    invocation.output.json(_document(each))
                else:
                    invocation.output.line(_line(each))

    run_loop(work)


def _table(invocation: Invocation, text: str) -> tuple[TableLocation, Tuning]:
    """The table that is named, or that of a volume, and the settings of clients."""
    from s3k_async.settings import local_table

    if text.startswith("s3k://") or is_volume(os.path.expanduser(text)):
        config = invocation.resolve(whole_volume(text).volume)
        return config.table, config.tuning
    location = local_table(text, config=invocation.config, **invocation.settings)
    return location, invocation.tuning()


def _document(found: TableVolume) -> dict[str, Any]:
    document: dict[str, Any] = {"prefix": found.prefix, "state": found.state}
    record = found.record
    if record is None:
        return {**document, "problem": found.problem}
    return {
        **document,
        "id": record.volume_id,
        "name": record.name,
        "layout": record.layout,
        "suffix_count": record.suffix_count,
        "data": record.data,
        "log": record.log,
        "flags": list(record.flags),
        "created_ms": record.created_ms,
    }


def _line(found: TableVolume) -> str:
    prefix, record = found.prefix or "-", found.record
    if record is None:
        return f"{prefix}  {found.state}  {found.problem}"
    created = time_text(record.created_ms)
    return (
        f"{prefix}  {found.state}  {record.layout}  {created}  {record.volume_id}  "
        f"{record.name}  {record.data}  {','.join(record.flags) or '-'}"
    )
