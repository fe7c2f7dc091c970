"""Common parts of all commands: options, settings as flags, and work on several operands."""

from __future__ import annotations

import math
import os
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click
from click.types import StringParamType

from s3k_async._core.duration_syntax import duration_text, seconds_of
from s3k_async.cli.invocation import Invocation

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from s3k_async.settings import Option

__all__ = [
    "Amount",
    "CommandGroup",
    "OutputFile",
    "PlainCommand",
    "Seconds",
    "Size",
    "VolumeCommand",
    "capacity_options",
    "common_options",
    "for_each",
    "grace_option",
    "literal_option",
    "setting_options",
]

T = TypeVar("T")

HELP: Final = frozenset({"-h", "--help"})

_PREFIX = "common_"
"""Prefix that distinguishes parameters of common options from those of commands with the same
name."""


class Amount(click.FloatRange):
    """A finite number that is not negative: click accepts `nan` and `inf`, too."""

    def __init__(self, *, min_open: bool = False) -> None:
        super().__init__(min=0, min_open=min_open)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number. Raises BadParameter."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number in the allowed range.", param, ctx)
        return number


class Seconds(Amount):
    """A duration, as a number of seconds or with a unit: `90`, `1.5`, `36h`, `7d`."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number of seconds. Raises BadParameter."""
        if not isinstance(value, str):
            return super().convert(value, param, ctx)
        seconds = seconds_of(value)
        if seconds is not None:
            return float(seconds)
        try:
            float(value)
        except ValueError:
            self.fail(f"{value!r} is not a duration: 3600, 90s, 15m, 2h, 3d or 1w", param, ctx)
        return super().convert(value, param, ctx)


class Size(click.ParamType):  # type: ignore[type-arg]  # not generic in older versions
    """A number of bytes, with or without a unit: `500`, `1k`, `1MiB`."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number of bytes. Raises UsageError."""
        if isinstance(value, int):
            return value
        # Imported here: the table of settings loads slowly, and help does not need it.
        from s3k_async.errors import ConfigError
        from s3k_async.settings.options import Option, parse

        flag = param.opts[-1] if param is not None else "size"
        try:
            return cast("int", parse(Option("size", "size", "client", ""), value, flag))
        except ConfigError as error:
            raise click.UsageError(error.message, ctx) from error


class _Word(StringParamType):
    """Text whose completion depends on what it stands for."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[Any]]:
        """Volumes, paths and local files; nothing for other texts."""
        # Imported here: only completion needs it.
        from s3k_async.cli.word_completion import completions

        return completions(ctx, param, incomplete)


class OutputFile(_Word):
    """A local file to write, which is no part of an embedded volume. With `streams`, - is standard
    output; without it, - is refused."""

    name = "file"

    def __init__(self, *, streams: bool = False) -> None:
        self._streams = streams

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path. Raises BadParameter."""
        # Imported here: volumes load slowly, and help does not need them.
        from s3k_async.cli.volume_addresses import volume_with

        if value == "-" and not self._streams:
            self.fail("this output cannot go to standard output; a file - is ./-", param, ctx)
        volume = None if value == "-" else volume_with(os.path.realpath(value))
        if volume is not None:
            self.fail(f"{value} is a part of the volume {volume}: choose another place", param, ctx)
        return super().convert(value, param, ctx)


def _note(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Store a common option in the invocation; one after the command's name takes precedence."""
    invocation = ctx.ensure_object(Invocation)
    name = (param.name or "").removeprefix(_PREFIX)
    if value:
        setattr(invocation, name, (*invocation.hadoop, *value) if name == "hadoop" else value)


def common_options(*, hidden: bool) -> list[click.Parameter]:
    """Options allowed before and after a command's name."""

    def option(*flags: str, **attributes: Any) -> click.Option:
        name = _PREFIX + flags[-1].removeprefix("--")
        return click.Option([*flags, name], expose_value=False, callback=_note, **attributes)

    return [
        option(
            "--volume",
            metavar="VOLUME",
            hidden=hidden,
            help="Default volume, for paths without a volume.",
        ),
        option(
            "--config",
            metavar="FILE",
            hidden=hidden,
            help="Configuration file [default: ~/.config/s3k/config.toml].",
        ),
        option(
            "--context",
            metavar="ID",
            hidden=hidden,
            help="Context id in the keys of Hadoop properties.",
        ),
        option(
            "--hadoop",
            metavar="FILE",
            multiple=True,
            hidden=hidden,
            help="File of Hadoop properties, JSON or XML. Repeatable; later files take precedence.",
        ),
        option("--json", is_flag=True, help="Write results and errors as JSON."),
        option("-q", "--quiet", is_flag=True, help="Show no progress and no summary line."),
        option(
            "--stats",
            is_flag=True,
            help="Print the number of requests, retries and bytes to standard error.",
        ),
        option("--debug", is_flag=True, hidden=hidden, help="Show the traceback of an error."),
    ]


def setting_options(*, shown: bool = False, without: Collection[str] = ()) -> list[click.Parameter]:
    """Every setting as a flag, except those that a command has itself. `shown`: in the help, if
    they are for all parts of a volume."""
    from s3k_async.settings import OPTIONS

    return [
        _flag(option, hidden=not shown or option.part is not None)
        for option in OPTIONS.values()
        if option.flag is not None and option.flag not in without
    ]


class CommandGroup(click.Group):
    """A group of commands. The common options are allowed before the commands' names as well.

    `default` is the command to run without a name. `show_common`: list the common options in the
    help.
    """

    default: str | None = None

    def __init__(self, *arguments: Any, show_common: bool = False, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.params += common_options(hidden=not show_common)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The arguments, with the default command before them if none is named."""
        known = HELP.union(*(param.opts for param in self.params))
        if any(word.startswith("--") and word.partition("=")[0] not in known for word in args):
            # Imported here: the table of settings loads slowly, and help does not need it.
            self.params += setting_options(without=known)
        if (
            self.default is not None
            and not HELP & {*args}
            and not (ctx.resilient_parsing and self._first_word(args) is None)
            and self._first_word(args) not in self.list_commands(ctx)
        ):
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def _first_word(self, args: list[str]) -> str | None:
        """The first argument that is neither an option of the group nor the value of one."""
        takes_value = {
            flag: not param.is_flag
            for param in self.params
            if isinstance(param, click.Option)
            for flag in param.opts
        }
        words = iter(args)
        for word in words:
            if not word.startswith("-"):
                return word
            if takes_value.get(word):
                next(words, None)
        return None


class _ExampleCommand(click.Command):
    """A command whose help ends with examples."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The epilog, and the examples."""
        # Imported here: only help needs it.
        from s3k_async.cli.examples import examples_of

        super().format_epilog(ctx, formatter)
        if examples := examples_of(ctx.command_path):
            with formatter.section("Examples" if len(examples) > 1 else "Example"):
                for example in examples:
                    formatter.write(f"{'':>{formatter.current_indent}}{example}\n")


class PlainCommand(_ExampleCommand):
    """A command without a volume."""

    def __init__(self, *arguments: Any, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.params += common_options(hidden=True)

    def invoke(self, ctx: click.Context) -> Any:
        """Run it. Raises UsageError for a setting before its name."""
        _begin(ctx, lambda _: False)
        return super().invoke(ctx)


class VolumeCommand(_ExampleCommand):
    """A command that opens volumes: every setting is also a flag of it, listed in the help if
    `show_settings`."""

    def __init__(self, *arguments: Any, show_settings: bool = False, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self._own = {name for param in self.params for name in param.opts}
        for param in self.params:
            if param.type is click.STRING:
                param.type = _Word()
        self.params += [
            *common_options(hidden=True),
            *setting_options(shown=show_settings, without=self._own),
        ]
        if self.epilog is None:
            self.epilog = (
                "Every setting is also a flag, such as --region or --max-concurrency; s3k init "
                "--help lists all."
            )

    def invoke(self, ctx: click.Context) -> Any:
        """Run it. Raises UsageError for a flag before its name that has another meaning after
        it."""
        _begin(ctx, lambda flag: flag not in self._own)
        return super().invoke(ctx)


def _begin(ctx: click.Context, is_setting: Callable[[str], bool]) -> None:
    """Record the command, and refuse flags before its name that are no settings of it."""
    invocation = ctx.ensure_object(Invocation)
    invocation.command = ctx.info_name
    for flag in invocation.flags:
        if not is_setting(flag):
            name = ctx.info_name
            raise click.UsageError(
                f"{flag} before {name} is a setting of volumes; {name}'s own options follow it", ctx
            )


_METAVARS: Final = {"integers": "INTEGER,..."}


def _flag(option: Option, *, hidden: bool) -> click.Option:
    def keep(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
        if value is None:
            return
        from s3k_async.errors import ConfigError
        from s3k_async.settings.locations import anchored
        from s3k_async.settings.options import parse

        try:
            setting = anchored(option, parse(option, value, str(option.flag)), None)
        except ConfigError as error:
            raise click.UsageError(error.message, ctx) from error
        invocation = ctx.ensure_object(Invocation)
        invocation.settings[option.name] = setting
        invocation.flags.add(str(option.flag))

    metavar = "|".join(option.choices) or _METAVARS.get(option.type, option.type.upper())
    return click.Option(
        [str(option.flag), f"setting_{option.name}"],
        metavar=metavar,
        hidden=hidden,
        help=option.doc,
        expose_value=False,
        callback=keep,
    )


async def for_each(operands: Sequence[T], work: Callable[[T], Awaitable[object]]) -> None:
    """Process each operand in turn. The error of a single one is raised; with several, the others
    are processed nevertheless, and FailedOperandsError is raised at the end."""
    from s3k_async.cli.reporting import FailedOperandsError
    from s3k_async.errors import S3kError

    if len(operands) == 1:
        await work(operands[0])
        return
    failures: list[tuple[str, Exception]] = []
    for operand in operands:
        try:
            await work(operand)
        except S3kError as error:
            failures.append((str(operand), error))
    if failures:
        raise FailedOperandsError(failures, some_succeeded=len(failures) < len(operands))


def grace_option(default: float, what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`--grace DURATION`: newer objects are skipped; `what` is the verb for the help."""
    return click.option(
        "--grace",
        type=Seconds(),
        default=duration_text(int(default)),
        show_default=True,
        metavar="DURATION",
        help=what,
    )


def literal_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--literal`: the arguments of a command that expands patterns are paths."""

    def note(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        ctx.ensure_object(Invocation).literal = value

    return click.option(
        "--literal",
        f"{_PREFIX}literal",
        is_flag=True,
        expose_value=False,
        callback=note,
        help="Take every PATH as it is: no patterns.",
    )(command)


def adopted_option(what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`--adopted BUCKET[/PREFIX]`, repeatable: other buckets with adopted objects; `what` is the
    help."""

    def names(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
        if not all(given):
            raise click.UsageError("--adopted needs the name of a bucket: BUCKET or BUCKET/PREFIX")
        return given

    return click.option(
        "--adopted", multiple=True, metavar="BUCKET[/PREFIX]", callback=names, help=what
    )


def capacity_options(*kinds: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`--read-units N` and `--write-units N`: limits of what the command consumes in the table."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for kind in reversed(kinds):
            command = click.option(
                f"--{kind}-units",
                type=Amount(min_open=True),
                metavar="UNITS",
                help=f"Maximum {kind} units of the table consumed per second; DynamoDB only.",
            )(command)
        return command

    return add
