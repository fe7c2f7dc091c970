"""The commands by name, each imported when it runs, and the mapping of errors to exit codes."""

from __future__ import annotations

import io
import logging
import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from importlib import import_module
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, Final, TextIO

import click

from s3k_async._core.metering import counting
from s3k_async.cli.command import HELP, CommandGroup
from s3k_async.cli.exit_codes import ExitCode
from s3k_async.cli.invocation import Invocation
from s3k_async.cli.reporting import report, warn
from s3k_async.cli.termination import Termination

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer
    from click.shell_completion import CompletionItem

    from s3k_async.cli.stats import Statistics

__all__ = ["run", "s3k"]

_SECTIONS: Final = {
    "Lookup commands": {
        "ls": ("browse", "List a directory."),
        "tree": ("browse", "Show a directory as a tree."),
        "stat": ("browse", "Show the attributes of files and directories."),
        "find": ("browse", "Search for files and directories."),
        "du": ("browse", "Show the total size of directories."),
        "count": ("inspection", "Count directories, files and bytes."),
        "checksum": ("inspection", "Show or verify the checksums of files."),
        "test": ("inspection", "Test whether a path exists, is a file, or is empty."),
        "diff": ("sync_verbs", "Compare two trees: volumes, directories, buckets, listings."),
        "whois": ("whois", "Show the file that a physical object belongs to."),
    },
    "Content commands": {
        "cat": ("content", "Write files to standard output."),
        "presign": ("presign", "Print a URL by which others can read a file in S3."),
        "head": ("excerpts", "Write the first lines of files to standard output."),
        "tail": ("excerpts", "Write the last lines of files to standard output."),
        "put": ("content", "Upload local files."),
        "get": ("content", "Download files."),
        "sync": ("sync_verbs", "Synchronize a tree with another one; copy only differences."),
        "import": (
            "sync_verbs",
            "Import the files of a bucket or a local directory into a volume.",
        ),
        "append": ("in_place", "Add local files at the end of a file."),
        "truncate": ("in_place", "Give files a size."),
        "concat": ("in_place", "Append files to a file, and remove them."),
        "compact": ("in_place", "Join the parts of files that were changed in place."),
    },
    "Change commands": {
        "cp": ("change_verbs", "Copy files and directories."),
        "mv": ("change_verbs", "Move or rename files and directories."),
        "rm": ("change_verbs", "Remove files and directories."),
        "mkdir": ("change_verbs", "Create directories."),
        "touch": ("change_verbs", "Create empty files, or update modification times."),
        "attr": ("attr", "Show or change mode, owner and user metadata."),
        "rules": ("rules", "Lifecycle rules: files that expire or become read-only."),
        "versions": ("version_verbs", "List the former contents of files."),
        "undelete": ("version_verbs", "Bring deleted files and directories back."),
        "restore": ("version_verbs", "Bring a subtree to its state at an earlier time."),
        "trash": ("trash_verbs", "List, restore and reclaim deleted directories."),
        "object": ("object_verbs", "Buckets and objects: make, list, copy, move, remove."),
    },
    "Volume commands": {
        "init": ("lifecycle", "Create a volume."),
        "volumes": ("volumes", "List the volumes of a table."),
        "info": ("info", "Describe a volume: record, locations, settings and sizes."),
        "set-capacity": ("capacity", "Set the capacity of the table of a volume."),
        "destroy": ("lifecycle", "Delete a volume and all of its data."),
        "dump": ("migrate", "Export the file tree of a volume to a file."),
        "load": ("migrate", "Import a dump into an empty volume."),
        "reshard": ("migrate", "Change the suffix count of a volume."),
        "migrate": ("migrate", "Change the layout of a volume."),
        "df": ("df", "Show the free space of a volume's storage."),
        "cache": ("cache", "Show, evict and clear the read cache of this machine."),
        "policy": ("policy", "Print the IAM policy of a role in a volume."),
        "plan": ("plan", "Estimate the requests, capacity units and time of an operation."),
    },
    "Maintenance commands": {
        "doctor": ("doctor", "Diagnose problems with a volume, or with access to it."),
        "fsck": ("check", "Check, repair or restore a volume."),
        "verify": ("listed_paths", "Check that listed files and their data exist."),
        "gc": ("gc", "Delete unreferenced data. A dry run without --yes."),
        "uploads": ("uploads", "List or abort the unfinished uploads of a volume."),
        "stats": ("service_stats", "Show the calls, requests and latencies of a running service."),
        "alerts": ("alerts", "Read or empty a queue of alerts of fsck and gc."),
        "oplog": ("oplog", "Show, follow and compact the operation log."),
        "transactions": (
            "transactions",
            "List running and interrupted transactions; finish interrupted ones.",
        ),
        "tier": (
            "tier",
            "Move data from the hot location to the cold one; show how much is where.",
        ),
        "spark": ("spark", "Run bulk operations and fsck on Spark."),
    },
    "Development commands": {
        "dev": ("dev", "Start and stop local engines for development."),
        "completion": ("completion", "Print the completion script for bash, zsh or fish."),
    },
}
"""The sections of the overview: name to module of `s3k_async.cli.commands` and a summary, so that
the overview imports no module."""

_COMMANDS: Final = {
    name: command for section in _SECTIONS.values() for name, command in section.items()
}


_ELSEWHERE: Final = {
    "copy": "cp",
    "create": "init",
    "delete": "rm",
    "dir": "ls",
    "download": "get",
    "help": "--help",
    "list": "ls",
    "move": "mv",
    "remove": "rm",
    "sign": "presign",
    "rename": "mv",
    "rmdir": "rm",
    "upload": "put",
    "version": "--version",
}
"""Names of commands in other programs, and the names here."""


class _Commands(CommandGroup):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(_COMMANDS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        cmd_name: str,
    ) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(f"s3k_async.cli.commands.{_COMMANDS[cmd_name][0]}")
        name = cmd_name.replace("-", "_")
        name += "_" * iskeyword(name)
        command: click.Command = getattr(module, name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        from difflib import get_close_matches

        if not ctx.resilient_parsing and not args[0].startswith("-") and args[0] not in _COMMANDS:
            near = (
                [_ELSEWHERE[args[0]]]
                if args[0] in _ELSEWHERE
                else get_close_matches(args[0], _COMMANDS, n=1)
            )
            hint = f"; did you mean {near[0]}?" if near else ""
            raise click.UsageError(f"there is no command {args[0]!r}{hint}", ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[Any]]:
        """Commands and options, without the import of any command."""
        from click.shell_completion import CompletionItem

        found = [
            CompletionItem(name, help=summary)
            for name, (_, summary) in _COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        formatter: click.HelpFormatter,
    ) -> None:
        width = max(map(len, _COMMANDS))
        for title, section in _SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(name.ljust(width), summary) for name, (_, summary) in section.items()]
                )


def _show_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"s3k {version('s3k-async')}")
        ctx.exit()


s3k = _Commands(
    name="s3k",
    help="""A filesystem with its file tree in DynamoDB or SQLite and its data in S3 or a directory.

    PATH is s3k://NAME/path in a named volume, DIRECTORY:/path in an embedded one, or /path in the
    default volume: --volume, else S3K_VOLUME, else that of the configuration file.""",
    context_settings={"help_option_names": [*sorted(HELP)], "max_content_width": 100},
    show_common=True,
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_show_version,
            help="Show the version and exit.",
        ),
    ],
)
"""The root of the commands."""


def run(arguments: Sequence[str], termination: Termination) -> int:
    """Run one command; returns its exit code. Errors are reported on standard error."""
    if "_S3K_COMPLETE" in os.environ:
        from s3k_async.cli.shell_completion import respond

        return respond(s3k)
    invocation = Invocation(json="--json" in arguments, debug="--debug" in arguments)
    _need_streams()
    try:
        return _invoke(arguments, invocation)
    except BrokenPipeError:
        _discard_output()
        return ExitCode.BROKEN_PIPE
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return ExitCode.USAGE
    # The edge: every error ends as a line and an exit code.
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001
        try:
            return report(
                termination.cause(error),
                as_json=invocation.json,
                debug=invocation.debug,
                # Without it, the remedies assume no pattern.
                command=None if invocation.literal else invocation.command,
            )
        except BrokenPipeError:
            return ExitCode.BROKEN_PIPE
        finally:
            _flush_or_discard()


def _invoke(arguments: Sequence[str], invocation: Invocation) -> int:
    code = 0
    _quiet_log()
    statistics = _statistics() if "--stats" in arguments else None
    observed = nullcontext() if statistics is None else statistics.observed()
    with warnings.catch_warnings(), counting() as counter, observed:
        _shown_as_lines(invocation)
        try:
            with s3k.make_context("s3k", list(arguments), obj=invocation) as context:
                s3k.invoke(context)
        except click.exceptions.Exit as error:
            code = error.exit_code
        finally:
            if invocation.stats and statistics is not None:
                statistics.tell(
                    counter.requests,
                    invocation.cache_statistics,
                    invocation.fill_statistics,
                    as_json=invocation.json,
                )
    sys.stdout.flush()
    return code


def _statistics() -> Statistics:
    from s3k_async.cli.stats import Statistics

    return Statistics()


def _quiet_log() -> None:
    """The library's log is for programs that enable it, not for standard error."""
    log = logging.getLogger("s3k_async")
    if not log.handlers:
        log.addHandler(logging.NullHandler())


def _shown_as_lines(invocation: Invocation) -> None:
    """Show Python's warnings to the user as lines of the command; others are unchanged."""
    usual = warnings.showwarning

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if category is UserWarning:
            warn(str(message), as_json=invocation.json)
        else:
            usual(message, category, filename, lineno, file, line)

    warnings.simplefilter("default", UserWarning)
    warnings.showwarning = show


class _ClosedOutput(io.FileIO):
    """Standard output that was closed before the start. Its descriptor is in use again, by the null
    device opened for reading, so that no other file gets it; each write fails until the output is
    discarded."""

    def __init__(self) -> None:
        super().__init__(os.open(os.devnull, os.O_RDONLY), "w")

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise OSError(error.errno, "standard output is closed") from error


def _need_streams() -> None:
    """Replace closed output streams: standard error by the null device, standard output by a stream
    that fails when it is written to."""
    if sys.stdout is None:
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(_ClosedOutput()), encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def _flush_or_discard() -> None:
    try:
        sys.stdout.flush()
    except OSError:
        _discard_output()


def _discard_output() -> None:
    """Standard output is closed: replace it, so that the interpreter reports no error at its
    exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        sys.stdout = None
