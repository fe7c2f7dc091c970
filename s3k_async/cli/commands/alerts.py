"""alerts: the messages of a queue of alerts."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import TypeVar

import click

from s3k_async.alerts.alert_queue import AlertQueue
from s3k_async.alerts.sink_address import parse_sink
from s3k_async.cli.command import CommandGroup, VolumeCommand
from s3k_async.cli.event_loop import run_loop
from s3k_async.cli.invocation import Invocation
from s3k_async.cli.output import plural

__all__ = ["alerts"]

T = TypeVar("T")

alerts = CommandGroup(
    name="alerts",
    help="""Read or empty a queue of alerts.

    SINK is sqs:QUEUE-URL. The settings alerts-region, alerts-profile and others apply.""",
)


def _with_queue(invocation: Invocation, sink: str, work: Callable[[AlertQueue], Awaitable[T]]) -> T:
    address, settings = parse_sink(sink), invocation.alerts()

    async def main() -> T:
        async with AlertQueue(address, settings.service) as queue:
            return await work(queue)

    return run_loop(main)


@alerts.command(cls=VolumeCommand)
@click.argument("sink")
@click.pass_obj
def drain(invocation: Invocation, sink: str) -> None:
    """Write the messages of a queue, a JSON document each, and delete them.

    Ten at a time are written and then deleted, so that an interrupted run loses none.
    """

    async def work(queue: AlertQueue) -> None:
        async with aclosing(queue.batches()) as batches:
            async for batch in batches:
                for document in batch.documents:
                    invocation.output.line(json.dumps(document))
                sys.stdout.flush()
                await batch.delete()

    _with_queue(invocation, sink, work)


@alerts.command(cls=VolumeCommand)
@click.argument("sink")
@click.option("--yes", is_flag=True, help="Delete. Without it, only show how many there are.")
@click.pass_obj
def purge(invocation: Invocation, sink: str, yes: bool) -> None:
    """Delete all messages of a queue without reading them. A dry run without --yes.

    The number of messages is approximate. The service takes up to 60 seconds.
    """

    async def work(queue: AlertQueue) -> int:
        count = await queue.count()
        if yes:
            await queue.purge()
        return count

    count = _with_queue(invocation, sink, work)
    text = f"{'deleted' if yes else 'would delete'} about {plural(count, 'message')} in {sink}"
    text = text if yes else f"{text} (--yes deletes)"
    invocation.say(text, sink=sink, dry_run=not yes, messages=count)
