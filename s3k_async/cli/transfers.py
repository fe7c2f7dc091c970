"""Common parts of put, get, cp, mv and rm: targets, work on several sources, the summary at the
end."""

from __future__ import annotations

import os
import shlex
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import click

from s3k_async._core.concurrency import run_all
from s3k_async._core.duration_syntax import duration_text
from s3k_async._core.paths import normalize
from s3k_async.bulk.transfer import is_hopeless
from s3k_async.cli.invocation import Invocation
from s3k_async.cli.output import plural
from s3k_async.cli.reporting import FailedOperandsError
from s3k_async.cli.volume_addresses import Address
from s3k_async.errors import PartialFailureError, S3kError
from s3k_async.model import ChangeResult, ChangeTally

if TYPE_CHECKING:
    from s3k_async.client import S3kClient

__all__ = [
    "TrashNotice",
    "destination",
    "finish",
    "last_name",
    "local_name",
    "need_distinct",
    "some_of",
    "transfer_each",
]

T = TypeVar("T")
Transfer: TypeAlias = tuple[ChangeResult, str]
"""The result for one source, and its target with the volume."""

SHOWN_TARGETS = 3
"""Most targets in a summary line."""


@dataclass(slots=True)
class TrashNotice:
    """What a summary says about directories that were moved into the trash."""

    places: list[str] = field(default_factory=list)
    """Their former paths, with the volume; of a list of paths, the volume."""
    retention: int | None = None
    """How long they can be restored, seconds; None: nothing was removed from a volume with a
    trash."""

    def add(self, place: str, removed: ChangeResult, retention: int) -> None:
        """Note the removal of a directory, or of a list with directories in it."""
        self.retention = retention
        if removed.directories:
            self.places = list(dict.fromkeys([*self.places, place]))

    def text(self, *, listed: bool = False) -> str:
        """The end of the summary line; empty if nothing went into the trash. `listed`: the places
        are volumes."""
        if not self.places or self.retention is None:
            return ""
        places = " ".join(shlex.quote(place) for place in self.places)
        if listed or len(self.places) > SHOWN_TARGETS:
            more = f"; s3k trash ls {places} lists them" if listed else "; s3k trash ls lists them"
            how = f"s3k trash restore restores the directories{more}"
        else:
            how = f"s3k trash restore {places} restores {'it' if len(self.places) == 1 else 'them'}"
        return f"; for {duration_text(self.retention)}, {how}"

    def fields(self) -> dict[str, object]:
        """The JSON field of the summary; none without a trash."""
        return {} if self.retention is None else {"trashed": self.places}


def some_of(places: Sequence[str]) -> str:
    """The first of the places in a summary line, and how many more there are."""
    left = len(places) - SHOWN_TARGETS
    return f"{', '.join(places[:SHOWN_TARGETS])}{f' and {left:,} more' if left > 0 else ''}"


def last_name(address: Address) -> str:
    """The last component of an address; empty for a root."""
    return normalize(address.path).rpartition("/")[2]


def local_name(path: str) -> str:
    """The name of a local file or directory; empty for a path without one (`.`, `dir/..`, `/`)."""
    name = os.path.basename(path.rstrip("/"))
    return "" if name in (".", "..") else name


def need_distinct(names: Sequence[str]) -> None:
    """Raise a usage error if two sources have the same target; that of sources without a name is
    the directory that is copied into."""
    for name in names:
        if names.count(name) > 1:
            which = f"have the name {name!r}" if name else "have no name of their own"
            raise click.UsageError(f"several sources {which}, and would replace each other")


async def destination(
    client: S3kClient, target: Address, name: str, *, is_dir: bool, several: bool
) -> str:
    """The path of a source's copy: the target itself, or the source's own name below it if the
    target ends with a `/`, if there are several sources, or if a file's target is a directory."""
    if several or target.is_into or (not is_dir and await client.is_dir(target.path)):
        return target.below(name)
    return target.path


async def transfer_each(
    sources: Sequence[T], work: Callable[[T], Awaitable[Transfer]], *, limit: int = 1
) -> tuple[ChangeResult, list[str]]:
    """Transfer each source, at most `limit` at a time; returns the sum of the results, and the
    targets of the successful ones.

    The error of a single source is raised; with several it is recorded, and the others are
    transferred, unless it would stop them too.
    """
    total = ChangeTally()
    targets: dict[int, str] = {}

    async def one(numbered: tuple[int, T]) -> None:
        number, source = numbered
        try:
            result, target = await work(source)
        except S3kError as error:
            if len(sources) == 1 or is_hopeless(error):
                raise
            inner = error.failures if isinstance(error, PartialFailureError) else ()
            total.failures.extend(inner or [(str(source), error)])
            return
        targets[number] = target
        total.files += result.files
        total.directories += result.directories
        total.bytes += result.bytes
        total.failures += result.failures

    await run_all(one, enumerate(sources), limit=limit)
    return total.result(), [targets[number] for number in sorted(targets)]


def finish(
    invocation: Invocation,
    done: str,
    result: ChangeResult,
    targets: Sequence[str],
    *,
    to: str,
    sources: Sequence[str] | None = None,
    undo: TrashNotice | None = None,
    skipped: int | None = None,
) -> None:
    """Print the summary, with the places after `to` (or `from`), the `sources` of local ones, in
    their order, how to undo it, and the number of `skipped` files; raise FailedOperandsError for
    failures."""
    undo = undo or TrashNotice()
    counts = [plural(result.files, "file"), f"{result.bytes:,} bytes"]
    if result.directories:
        counts.insert(1, plural(result.directories, "directory"))
    if undo.places and not result.files:
        counts = counts[1:2]  # the files below a directory in the trash are not counted
    named = targets
    if sources is not None:
        named = [f"{each}, from {source}" for each, source in zip(targets, sources, strict=True)]
    places = list(dict.fromkeys(named))
    changed = bool(result.files or result.directories)
    left = f"; {plural(skipped, 'existing file')} skipped" if skipped else ""
    if changed or invocation.json or not result.failures:
        invocation.say(
            f"{done} {', '.join(counts)} {to} {some_of(places)}{undo.text()}{left}",
            target=list(targets),
            **({} if sources is None else {"source": list(sources)}),
            files=result.files,
            directories=result.directories,
            bytes=result.bytes,
            failed=len(result.failures),
            **undo.fields(),
            **({} if skipped is None else {"skipped": skipped}),
        )
    if result.failures:
        raise FailedOperandsError(result.failures, some_succeeded=changed)
