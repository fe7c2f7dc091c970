"""Trees of files in volumes, directories and buckets: diff, sync, import."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from s3k_async.cli.command import VolumeCommand
from s3k_async.cli.exit_codes import ExitCode
from s3k_async.cli.invocation import Clients, Invocation
from s3k_async.cli.output import plural
from s3k_async.cli.reporting import FailedOperandsError, report
from s3k_async.cli.tree_addresses import (
    TreeAddress,
    need_listing,
    open_tree,
    parse_tree_address,
)
from s3k_async.errors import InvalidArgumentError, S3kError

if TYPE_CHECKING:
    from s3k_async.trees import (
        ChangeKind,
        ComparisonRule,
        Difference,
        FileTree,
        SyncResult,
        TreeComparison,
        TreeEntry,
    )

__all__ = ["diff", "import_", "sync"]

Command = TypeVar("Command", bound=Callable[..., Any])

TROUBLE: Final = ExitCode.USAGE
"""The exit code of `diff` for every error, after that of diff(1)."""


def _selecting(command: Command) -> Command:
    """`--include` and `--exclude`."""
    for name, effect in (("exclude", "Leave out"), ("include", "Take only")):
        command = click.option(
            f"--{name}",
            multiple=True,
            metavar="GLOB",
            help=f"{effect} files that match: the name, or, if GLOB contains a /, the path below "
            "the root. Repeatable; exclude takes precedence.",
        )(command)
    return command


def _comparing(command: Command) -> Command:
    """`--size-only` and `--checksum`."""
    for option in (
        click.option(
            "--checksum",
            is_flag=True,
            help="Compare size and content, by recorded checksums and ETags, or by reading.",
        ),
        click.option("--size-only", is_flag=True, help="Compare only sizes."),
    ):
        command = option(command)
    return command


_dry_run = click.option("-n", "--dry-run", is_flag=True, help="Show the changes; change nothing.")
_verbose = click.option("-v", "--verbose", is_flag=True, help="Show each change.")


def _rule(size_only: bool, checksum: bool) -> ComparisonRule:
    if size_only and checksum:
        raise click.UsageError("--size-only and --checksum exclude each other")
    return "size" if size_only else "checksum" if checksum else "time"


@click.command(cls=VolumeCommand)
@click.argument("left", metavar="A")
@click.argument("right", metavar="B")
@_comparing
@_selecting
@click.option("-s", "--summarize", is_flag=True, help="Show only the summary.")
@click.pass_obj
def diff(
    invocation: Invocation,
    left: str,
    right: str,
    size_only: bool,
    checksum: bool,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    summarize: bool,
) -> None:
    """Compare two trees, and show what s3k sync --delete would change in B.

    A and B are directories of volumes (s3k://NAME/path, DIRECTORY:/path, :/path), local
    directories, buckets (s3://BUCKET/PREFIX) or listings (FILE.jsonl, FILE.parquet). Each line
    has the difference, the sizes in A and in B, and the path, separated by tabs. Files differ if
    their sizes differ, or if the one in A was modified later. Exits with 0 without differences,
    with 1 if there are some, and with 2 after errors.
    With --json, one JSON object per line.
    """
    code = ExitCode.OK
    try:
        addresses = parse_tree_address(left), parse_tree_address(right)
        for each in addresses:
            need_listing(each)
        rule = _rule(size_only, checksum)

        async def work(clients: Clients) -> tuple[TreeComparison, Counter[str]]:
            from s3k_async.trees import Selection, TreeComparison

            one, other = addresses
            trees = (
                await open_tree(invocation, clients, one, beside=other),
                await open_tree(invocation, clients, other, beside=one),
            )
            comparison = TreeComparison(*trees, rule, Selection(include, exclude))
            kinds: Counter[str] = Counter()
            if not await trees[1].exists():
                raise InvalidArgumentError("no such directory", path=trees[1].label)
            async with aclosing(comparison.differences()) as differences:
                async for each in differences:
                    kinds[each.kind] += 1
                    if not summarize:
                        _show(invocation, each)
            return comparison, kinds

        comparison, kinds = invocation.run(work)
        count = sum(kinds.values())
        parts = ", ".join(f"{number:,} {kind}" for kind, number in sorted(kinds.items()))
        invocation.say(
            f"{plural(count, 'difference')}{f' ({parts})' if parts else ''}, "
            f"{plural(comparison.same, 'file')} the same",
            differences=count,
            same=comparison.same,
            failed=len(comparison.skipped),
            **kinds,
        )
        code = ExitCode.FAILURE if count else ExitCode.OK
        if comparison.skipped:
            raise FailedOperandsError(list(comparison.skipped.items()), some_succeeded=True)
    except (S3kError, FailedOperandsError) as error:
        code = report(
            error,
            as_json=invocation.json,
            debug=invocation.debug,
            command=invocation.command,
            code=TROUBLE,
        )
    if code:
        raise click.exceptions.Exit(code)


def _show(invocation: Invocation, each: Difference) -> None:
    if invocation.json:
        invocation.output.json(
            {
                "path": each.path,
                "difference": each.kind,
                "left": _fields(each.left),
                "right": _fields(each.right),
            }
        )
        return
    sizes = ("-" if side is None or side.is_dir else side.size for side in (each.left, each.right))
    either = each.left or each.right
    mark = "/" if either is not None and either.is_dir else ""
    invocation.output.line("\t".join([each.kind, *map(str, sizes), each.path + mark]))


def _fields(entry: TreeEntry | None) -> dict[str, object] | None:
    if entry is None:
        return None
    return {
        "type": "directory" if entry.is_dir else "file",
        "size": entry.size,
        "mtime_ms": entry.mtime_ms,
        "etag": entry.etag,
        "checksum": entry.checksum,
    }


@click.command(cls=VolumeCommand)
@click.argument("source")
@click.argument("target")
@_comparing
@_selecting
@click.option("--delete", is_flag=True, help="Remove what exists only in TARGET, after all copies.")
@click.option("-f", "--force", is_flag=True, help="Delete even if SOURCE has no files.")
@_dry_run
@_verbose
@click.pass_obj
def sync(
    invocation: Invocation,
    source: str,
    target: str,
    size_only: bool,
    checksum: bool,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    delete: bool,
    force: bool,
    dry_run: bool,
    verbose: bool,
) -> None:
    """Copy to TARGET the files of SOURCE that are missing there or differ.

    SOURCE is a directory of a volume (s3k://NAME/path, DIRECTORY:/path, :/path), a local directory
    or a bucket (s3://BUCKET/PREFIX); TARGET a directory of a volume, or a local one. The contents
    of SOURCE become the contents of TARGET. Files differ if their sizes differ, or if the one in
    SOURCE was modified later; a copy has the modification time of its source. Repeat the command
    to finish an interrupted run.
    """
    if force and not delete:
        raise click.UsageError("--force belongs to --delete")
    rule = _rule(size_only, checksum)
    addresses = parse_tree_address(source), parse_tree_address(target)

    async def work(clients: Clients) -> tuple[SyncResult, str]:
        from s3k_async.trees import Selection, SyncOptions, synchronize

        one, other = addresses
        tree = await open_tree(invocation, clients, one, beside=other)
        goal = await open_tree(invocation, clients, other, beside=one)
        options = SyncOptions(
            rule, Selection(include, exclude), delete=delete, force=force, dry_run=dry_run
        )
        with invocation.meter("sync") as meter:
            done = await synchronize(
                tree,
                goal,
                options,
                on_change=_teller(invocation, shown=dry_run or verbose),
                progress=meter.part(),
            )
        return done, _named(goal)

    _finish(invocation, "synced", *invocation.run(work), dry_run=dry_run)


@click.command("import", cls=VolumeCommand)
@click.argument("source")
@click.argument("target")
@click.option(
    "--adopt",
    is_flag=True,
    help="Copy nothing: the objects stay where they are, in any bucket of the data's service.",
)
@click.option("-f", "--overwrite", is_flag=True, help="Replace existing files that differ.")
@_selecting
@_dry_run
@_verbose
@click.pass_obj
def import_(
    invocation: Invocation,
    source: str,
    target: str,
    adopt: bool,
    overwrite: bool,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    dry_run: bool,
    verbose: bool,
) -> None:
    """Import the objects of a bucket, or the files of a local directory, into a volume.

    SOURCE is s3://BUCKET/PREFIX or a directory, TARGET a directory of a volume; or SOURCE is the
    URI of an object, and TARGET its new path, or a directory: one that exists, or with a / at the
    end. The files are copied, inside the service where that is possible, with their modification
    times; objects of volumes are left out. With --adopt the objects stay where they are, and become
    files that refer to their URI and ETag; their data is never deleted by the volume. Files that
    were imported before are skipped, so repeat the command to finish an interrupted run.
    """
    addresses = _import_source(source, adopt=adopt), parse_tree_address(target)
    if addresses[1].volume is None:
        raise InvalidArgumentError(
            "the target of an import is a directory of a volume: s3k://NAME/path, DIRECTORY:/path "
            "or :/path",
            path=target,
        )

    async def work(clients: Clients) -> tuple[SyncResult, str]:
        from s3k_async.trees import (
            BucketTree,
            Selection,
            SyncOptions,
            VolumeTree,
            adopt_tree,
            import_object,
            synchronize,
        )

        one, other = addresses
        goal = await open_tree(invocation, clients, other)
        options = SyncOptions(
            selection=Selection(include, exclude), overwrite=overwrite, dry_run=dry_run
        )
        tell = _teller(invocation, shown=dry_run or verbose)
        with invocation.meter("import") as meter:
            assert isinstance(goal, VolumeTree)
            tree = await _import_tree(invocation, clients, one, other, adopt=adopt)
            single = await tree.single_object() if isinstance(tree, BucketTree) else None
            if single is not None:
                into = other.volume is not None and other.volume.is_into
                done = await import_object(
                    *single, goal, options, adopt=adopt, into=into, on_change=tell
                )
                return done, _named(goal)
            if not adopt:
                done = await synchronize(tree, goal, options, on_change=tell, progress=meter.part())
                return done, _named(goal)
            assert isinstance(tree, BucketTree)
            done = await adopt_tree(tree, goal, options, on_change=tell, progress=meter.part())
            return done, _named(goal)

    done = "adopted" if adopt else "imported"
    _finish(invocation, done, *invocation.run(work), dry_run=dry_run)


def _import_source(text: str, *, adopt: bool) -> TreeAddress:
    """The address of a bucket or a local directory; with `adopt` also of one in the directory of an
    embedded volume, where its data is."""
    if adopt and ":/" not in text:
        return TreeAddress("directory", text)
    address = parse_tree_address(text)
    if address.kind not in ("bucket", "directory"):
        raise InvalidArgumentError(
            "only buckets and local directories are imported; s3k sync and s3k cp copy from a "
            "volume",
            path=text,
        )
    return address


async def _import_tree(
    invocation: Invocation,
    clients: Clients,
    source: TreeAddress,
    target: TreeAddress,
    *,
    adopt: bool,
) -> FileTree:
    """The source of an import; a local directory to adopt as objects."""
    from s3k_async.config import LocalDirectory

    if source.kind == "bucket" or not adopt:
        return await open_tree(invocation, clients, source, beside=target)
    return await clients.bucket(LocalDirectory(source.directory), "")


def _teller(
    invocation: Invocation, *, shown: bool
) -> Callable[[ChangeKind, TreeEntry], object] | None:
    """The output of each change."""
    if not shown or (invocation.quiet and not invocation.json):
        return None

    def tell(kind: ChangeKind, entry: TreeEntry) -> None:
        if invocation.json:
            invocation.output.json({"change": kind, "path": entry.path, **(_fields(entry) or {})})
        else:
            invocation.output.line(f"{kind}\t{entry.path}{'/' if entry.is_dir else ''}")

    return tell


def _named(target: FileTree) -> str:
    """The target, with the whole path of a local one."""
    from s3k_async.trees import DirectoryTree

    is_local = isinstance(target, DirectoryTree)
    return os.path.abspath(target.full_name("")) if is_local else target.label


def _finish(
    invocation: Invocation, done: str, result: SyncResult, target: str, *, dry_run: bool
) -> None:
    """Print the summary; raise FailedOperandsError for failures."""
    counts = [plural(result.files, "file"), f"{result.bytes:,} bytes"]
    if result.directories:
        counts.insert(1, plural(result.directories, "directory"))
    text = f"{'dry run: ' if dry_run else ''}{done} {', '.join(counts)} to {target}"
    if result.deleted or result.deleted_directories:
        removed = [plural(result.deleted, "file")]
        if result.deleted_directories:
            removed.append(plural(result.deleted_directories, "directory"))
        text += f"; deleted {', '.join(removed)}"
    invocation.say(
        f"{text}; {plural(result.unchanged, 'file')} unchanged",
        target=target,
        files=result.files,
        directories=result.directories,
        bytes=result.bytes,
        unchanged=result.unchanged,
        deleted=result.deleted,
        deleted_directories=result.deleted_directories,
        failed=len(result.failures),
        dry_run=dry_run,
    )
    if result.failures:
        # The same code in a repeated run, in which the other entries are unchanged.
        raise FailedOperandsError(result.failures, some_succeeded=True)
