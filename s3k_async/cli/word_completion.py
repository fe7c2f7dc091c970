"""Completion of the arguments of a command by type: volumes, paths in volumes, local files."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, cast

import click
from click.shell_completion import CompletionItem

from s3k_async.cli.invocation import Clients, Invocation
from s3k_async.cli.volume_addresses import parse_address
from s3k_async.namespace.addresses import TABLE_FILE

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from s3k_async.model import FileStatus

__all__ = ["MOST", "SECONDS", "completions"]

MOST: Final = 200
"""Most completions of a path."""
SECONDS: Final = 2.0
"""Time limit of a listing, seconds; names found by then are returned."""
_LOCAL: Final = frozenset({"LOCAL", "FILE"})
_DIRECTORIES: Final = frozenset({"DIR"})
_PATHS: Final = frozenset(
    {
        "BUCKET",
        "DIRECTORY",
        "DIRECTORIES",
        "OBJECT",
        "OBJECT-ID",
        "OPERANDS",
        "PATH",
        "PATHS",
        "PREFIX",
        "SOURCE",
        "TARGET",
    }
)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


def completions(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem[Any]]:
    """The completions of a word that is the value of a parameter; none for other texts. After a
    list of arguments, also those of the arguments that may follow it. Raises what opening a volume
    raises."""
    kinds = _kinds(param)
    if isinstance(param, click.Argument) and param.nargs == -1:
        after = [each for each in ctx.command.params if isinstance(each, click.Argument)]
        kinds = kinds.union(*map(_kinds, after[after.index(param) + 1 :]))
    found: list[CompletionItem[Any]] = []
    if kinds & {"path", "volume"}:
        is_path = "path" in kinds
        invocation = ctx.ensure_object(Invocation)
        found += map(CompletionItem, _volumes(invocation, incomplete, is_path=is_path))
        if is_path:
            found += map(CompletionItem, _paths(invocation, incomplete))
    found += (CompletionItem(incomplete, type=kind) for kind in ("file", "dir") if kind in kinds)
    return found


def _kinds(param: click.Parameter) -> set[str]:
    """What the value of a parameter may be: `path`, `volume`, `file` or `dir`."""
    words = set(re.findall(r"[A-Z-]+", param.metavar or (param.name or "").upper()))
    is_option = isinstance(param, click.Option)
    kinds = {"file"} if words & _LOCAL else set()
    if words & _DIRECTORIES or (is_option and "DIRECTORY" in words):
        kinds.add("dir")
    elif words & _PATHS:
        kinds.add("path")
    if words & {"VOLUME"}:
        kinds.add("volume")
    return kinds


def _volumes(invocation: Invocation, text: str, *, is_path: bool) -> Iterator[str]:
    """Named volumes of the configuration, and directories: embedded ones and those above them."""
    from s3k_async.settings import config_path, read_config

    file = invocation.config or config_path(os.environ)
    if "s3k://".startswith(text) or text.startswith("s3k://"):
        for name in sorted(read_config(file).volumes):
            address = f"s3k://{name}/" if is_path else f"s3k://{name}"
            if address.startswith(text):
                yield address
    if ":/" in text or (is_path and text and not text.startswith((".", "~"))):
        return
    above, slash, name = text.rpartition("/")
    above = f"{above}{slash}" or "./"
    try:
        entries = sorted(os.listdir(os.path.expanduser(above)))
    except OSError:
        return
    for each in entries:
        place = above + each
        if not each.startswith(name) or (each.startswith(".") and not name):
            continue
        directory = os.path.expanduser(place)
        if os.path.isfile(os.path.join(directory, TABLE_FILE)):
            yield f"{place}:/" if is_path else place
        elif text and os.path.isdir(directory):
            yield f"{place}/"


def _paths(invocation: Invocation, text: str) -> list[str]:
    """Paths in a volume that begin with the text, up to the next component."""
    if not text.startswith("/") and ":/" not in text:
        return []
    above, _, name = text.rpartition("/")
    if text.startswith("s3k://") and text.count("/") < 3:
        return []
    address = parse_address(f"{above}/")

    async def work(clients: Clients) -> list[str]:
        import anyio

        found: list[str] = []
        with anyio.move_on_after(SECONDS):
            client = await clients.of(address)
            async with aclosing(_closable(client.list(address.path))) as statuses:
                async for status in statuses:
                    if status.name.startswith(name) and not _CONTROL.search(status.name):
                        found.append(f"{above}/{status.name}{'/' if status.is_dir else ''}")
                    if len(found) >= MOST:
                        break
        return sorted(found)

    return invocation.run(work)


def _closable(found: AsyncIterator[FileStatus]) -> AsyncGenerator[FileStatus, None]:
    return cast("AsyncGenerator[FileStatus, None]", found)
