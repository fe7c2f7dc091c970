"""transactions: running and interrupted transactions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

import click

from s3k_async._core.runtime import SYSTEM
from s3k_async.cli.command import CommandGroup, VolumeCommand, for_each
from s3k_async.cli.event_loop import run_loop
from s3k_async.cli.invocation import Invocation
from s3k_async.cli.output import time_text
from s3k_async.cli.volume_addresses import shown_in, whole_volume
from s3k_async.errors import BusyError, ItemFormatError, PathNotFoundError
from s3k_async.model import ROOT
from s3k_async.txn.txn_record import TransactionRecord
from s3k_async.volumes import Volume, open_volume

__all__ = ["list_transactions", "resolve", "transactions"]

T = TypeVar("T")

_UNITS = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))


class _TransactionsCommands(CommandGroup):
    """The group, with list as its default command."""

    default = "list"


transactions = _TransactionsCommands(
    name="transactions",
    help="""List running and interrupted transactions, and renames and deletions of directories.

    The default command is list: s3k transactions ./vol.""",
)


@transactions.command(name="list", cls=VolumeCommand)
@click.argument("volume", required=False)
@click.pass_obj
def list_transactions(invocation: Invocation, /, volume: str | None) -> None:
    """List transactions.

    Each line: id, kind, state, paths, age, and whether the lease is valid."""

    async def work(opened: Volume) -> None:
        found = opened.store.transactions
        async for record in found.records():
            runs = found.lease_runs(record)
            if invocation.json:
                place = shown_in(opened.config)
                invocation.output.json({"volume": place, **_document(record), "lease_runs": runs})
            else:
                invocation.output.line(_line(record, runs=runs))

    _run(invocation, volume, work)


@transactions.command(cls=VolumeCommand)
@click.argument("arguments", nargs=-1, metavar="[VOLUME] [ID]...")
@click.pass_obj
def resolve(invocation: Invocation, /, arguments: tuple[str, ...]) -> None:
    """Finish interrupted transactions: all, or those with the given ids.

    A transaction is interrupted if its lease has expired, or is not renewed.

    Published transactions are completed, others aborted. Transactions with a valid lease are
    skipped; giving the id of one is an error (6).
    """
    named = bool(arguments) and _is_volume(arguments[0])
    volume, ids = (arguments[0], arguments[1:]) if named else (None, arguments)

    async def work(opened: Volume) -> None:
        opened.store.require_writable(ROOT)
        found = opened.store.transactions
        if ids:
            with suppress(ItemFormatError):  # which the command reports with its id
                await found.wait_for_renewals((await found.record_many(ids)).values())
            await for_each(
                tuple(dict.fromkeys(ids)), lambda txn: _finish_named(invocation, opened, txn)
            )
            return
        records = [record async for record in found.records()]
        if await found.wait_for_renewals(records):
            records = [record async for record in found.records()]
        over = {record.id: record for record in records if not found.lease_runs(record)}
        for record in records:
            if record.id not in over:
                why = f"its lease runs until {time_text(record.lease_ms)}"
                _tell(invocation, opened, record, "left", why)
        await for_each(tuple(over), lambda txn: _finish(invocation, opened, over[txn]))

    _run(invocation, volume, work)


async def _finish_named(invocation: Invocation, opened: Volume, txn: str) -> None:
    record = await opened.store.transactions.record(txn)
    if record is None:
        raise PathNotFoundError("no such transaction (s3k transactions lists them)", path=txn)
    if opened.store.transactions.lease_runs(record):
        raise BusyError(
            f"the transaction is active: its lease is valid until {time_text(record.lease_ms)}",
            path=txn,
        )
    await _finish(invocation, opened, record)


async def _finish(invocation: Invocation, opened: Volume, record: TransactionRecord) -> None:
    if not await opened.store.resolver.complete(record):
        raise BusyError("another client has taken over the transaction", path=record.id)
    if record.kind == "mark":
        _tell(invocation, opened, record, "released")
    else:
        outcome = "completed" if record.is_published else "aborted"
        _tell(invocation, opened, record, outcome)


def _tell(
    invocation: Invocation,
    opened: Volume,
    record: TransactionRecord,
    outcome: str,
    why: str = "",
) -> None:
    text = f"{outcome}: {record.id}  {record.kind}  {_what(record)}"
    place = shown_in(opened.config)
    said = f"{text} ({why})" if why else text
    invocation.say(said, volume=place, **_document(record), outcome=outcome)


def _run(invocation: Invocation, volume: str | None, work: Callable[[Volume], Awaitable[T]]) -> T:
    config = invocation.resolve(whole_volume(volume).volume)

    async def main() -> T:
        opened = await open_volume(config)
        try:
            return await work(opened)
        finally:
            await opened.close()

    return run_loop(main)


def _is_volume(text: str) -> bool:
    """Whether an argument is a volume's address: ids have none of the characters of addresses."""
    return "/" in text or text.startswith((".", "~"))


def _line(record: TransactionRecord, *, runs: bool) -> str:
    lease = "lease runs" if runs else "lease over"
    age = _age(SYSTEM.now_ms() - record.started_ms) if record.started_ms else "-"
    return (
        f"{record.id}  {record.kind:<11}  {record.state or '-':<9}  {_what(record)}  {age}  {lease}"
    )


def _what(record: TransactionRecord) -> str:
    return f"{record.source} -> {record.target}" if record.target else record.source or "-"


def _age(milliseconds: int) -> str:
    """Whole days, hours, minutes or seconds: `45s`, `2h`."""
    seconds = max(0, milliseconds // 1000)
    unit, size = next((each for each in _UNITS if seconds >= each[1]), _UNITS[-1])
    return f"{seconds // size}{unit}"


def _document(record: TransactionRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "kind": record.kind,
        "state": record.state or None,
        "source": record.source or None,
        "target": record.target or None,
        "lease_ms": record.lease_ms,
        "started_ms": record.started_ms,
        "published_ms": record.published_ms or None,
    }
