"""info: what a volume is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import click

from s3k_async.cli.command import VolumeCommand
from s3k_async.cli.event_loop import run_loop
from s3k_async.cli.exit_codes import ExitCode
from s3k_async.cli.invocation import Invocation
from s3k_async.cli.output import human_size, plural, time_text
from s3k_async.cli.reporting import warn
from s3k_async.cli.volume_addresses import whole_volume
from s3k_async.diagnosis.volume_summary import BlobSummary, VolumeSummary, summarize
from s3k_async.volumes import open_volume

__all__ = ["info"]


@click.command(cls=VolumeCommand)
@click.argument("volume", required=False)
@click.option(
    "--sizes",
    is_flag=True,
    help="Count the objects and bytes of data and log, with a request for each thousand objects.",
)
@click.option(
    "--expect",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Exit with 1 unless this field of --json, such as data.encryption, has this value. "
    "Repeatable.",
)
@click.pass_obj
def info(invocation: Invocation, volume: str | None, sizes: bool, expect: tuple[str, ...]) -> None:
    """Describe a volume: its record, layout and features, its locations and their settings.

    What the service does not report, or the credentials may not read, is left out. The service
    updates the items and size of a table every few hours.
    """
    expected = [_expectation(text) for text in expect]
    config = invocation.resolve(whole_volume(volume).volume)

    async def work() -> VolumeSummary:
        opened = await open_volume(config)
        try:
            return await summarize(opened, sizes=sizes)
        finally:
            await opened.close()

    document = _document(run_loop(work))
    unmet = [text for name, value in expected if (text := _unmet(document, name, value))]
    if invocation.json:
        invocation.output.json(document)
    else:
        for name, text in _lines(document):
            invocation.output.line(f"{name:>16}: {text}")
    for text in unmet:
        warn(text, as_json=invocation.json)
    if unmet:
        raise click.exceptions.Exit(ExitCode.FAILURE)


def _expectation(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not name or not separator:
        raise click.UsageError(f"--expect {text!r} is not FIELD=VALUE")
    return name, value


def _unmet(document: dict[str, Any], name: str, expected: str) -> str:
    """How a field differs from its expected value; empty if it does not."""
    found: Any = document
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    if found is None:
        return f"expected {name} {expected}, but there is no such field, or it is not reported"
    text = found if isinstance(found, str) else json.dumps(found)
    return "" if text == expected else f"expected {name} {expected}, found {text}"


_IN_CAPACITY: Final = ("read_units", "write_units")
"""What the text of the capacity of a table says, too."""


def _document(summary: VolumeSummary) -> dict[str, Any]:
    record = summary.record
    table: dict[str, Any] = {"location": summary.table}
    if (found := summary.description) is not None:
        table |= {
            "status": found.status.lower(),
            "capacity": found.capacity,
            "read_units": found.read_units,
            "write_units": found.write_units,
            "encryption": found.encryption,
            "items": found.items,
            "bytes": found.bytes,
            "protected": found.is_protected,
            "replicas": list(found.replicas),
        }
    if summary.backups is not None:
        table["backups"] = summary.backups
    return {
        "name": record.name,
        "id": record.volume_id,
        "kind": record.kind,
        "created_ms": record.created_ms,
        "layout": record.layout,
        "suffix_count": record.suffix_count,
        "hash": record.hash,
        "log_mode": record.log_mode,
        "flags": list(record.flags),
        "trash_retention": record.trash_retention,
        "table": table,
        **{name: _blobs(each) for name, each in summary.blobs.items()},
        "last_runs": {
            each.kind: {"time_ms": each.time_ms, "clean": each.clean, "counts": dict(each.counts)}
            for each in summary.last_runs
        },
    }


def _blobs(found: BlobSummary) -> dict[str, Any]:
    fields: dict[str, Any] = {"location": found.location}
    if found.versioning is not None:
        fields["versioning"] = found.versioning
    if found.encryption:
        fields["encryption"] = found.encryption
    if found.usage is not None:
        fields |= {"objects": found.usage.objects, "bytes": found.usage.bytes}
        if found.usage.audited_ms:
            fields["last_audit_ms"] = found.usage.audited_ms
    return fields


def _lines(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Names and texts of the lines. Parts are named once, their settings with the part's name."""
    for name, value in document.items():
        if name == "last_runs":
            for kind, run in value.items():
                yield f"last {kind.replace('_', ' ')}", _run_text(run)
        elif isinstance(value, dict):
            yield name, value.pop("location")
            for part, each in value.items():
                if each not in ("", []) and part not in _IN_CAPACITY:
                    label = part.removesuffix("_ms").replace("_", " ")
                    yield f"{name} {label}", _text(part, each)
        elif value not in ("", None, []):
            yield name.removesuffix("_ms").replace("_", " "), _text(name, value)


def _run_text(run: dict[str, Any]) -> str:
    """The end of a run, and what it found."""
    counts = ", ".join(f"{count:,} {name}" for name, count in run["counts"].items())
    result = "clean" if run["clean"] else "with problems"
    return f"{time_text(run['time_ms'])}, {result}{counts and f': {counts}'}"


def _text(name: str, value: Any) -> str:
    if name.endswith("_ms"):
        return time_text(value)
    if name == "trash_retention":
        return plural(value, "second")
    if name == "bytes":
        return f"{value:,} ({human_size(value)})"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) else str(value)
