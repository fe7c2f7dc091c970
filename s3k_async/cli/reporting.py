"""Error reports on standard error: one line each, or one JSON document, and the exit code."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import click

from s3k_async.cli.exit_codes import ExitCode, exit_code, exit_code_of_all
from s3k_async.cli.output import one_line, safe_text
from s3k_async.cli.remedies import remedy_for
from s3k_async.cli.termination import TerminatedError
from s3k_async.errors import PartialFailureError, S3kError, mentions

__all__ = ["SHOWN", "FailedOperandsError", "failure_fields", "report", "warn"]

SHOWN = 50
"""Most failures printed one by one; JSON has them all."""

Failures = Sequence[tuple[str, Exception]]


class FailedOperandsError(Exception):
    """Some operands of a command failed; `failures` lists (path, error), of altogether `count`."""

    def __init__(
        self, failures: Failures, *, some_succeeded: bool, count: int | None = None
    ) -> None:
        self.count = len(failures) if count is None else count
        super().__init__(f"{self.count} failed")
        self.failures = failures
        self.exit_code = (
            ExitCode.PARTIAL
            if some_succeeded
            else exit_code_of_all([error for _, error in failures])
        )


def report(
    error: BaseException,
    *,
    as_json: bool,
    debug: bool,
    command: str | None = None,
    code: ExitCode | None = None,
) -> ExitCode:
    """Write an error of a command, with its remedy, and return its exit code; `code` for a command
    with codes of its own."""
    if debug:
        traceback.print_exception(error, file=sys.stderr)
    code = _code(error) if code is None else code
    if as_json:
        print(json.dumps({"error": _document(error, code, command)}), file=sys.stderr)
        return code
    for line in _lines(error, command):
        print(safe_text(f"s3k: {one_line(line)}", sys.stderr.encoding), file=sys.stderr)
    return code


def warn(text: str, *, as_json: bool) -> None:
    """Write a warning."""
    line = (
        json.dumps({"warning": text})
        if as_json
        else safe_text(f"s3k: {one_line(text)}", sys.stderr.encoding)
    )
    print(line, file=sys.stderr)


def _code(error: BaseException) -> ExitCode:
    if isinstance(error, FailedOperandsError):
        return error.exit_code
    if isinstance(error, TerminatedError):
        return ExitCode.TERMINATED
    if isinstance(error, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    if isinstance(error, click.UsageError | UnicodeEncodeError):
        return ExitCode.USAGE
    return exit_code(error)


def _failures(error: BaseException) -> Failures:
    return error.failures if isinstance(error, FailedOperandsError | PartialFailureError) else ()


def _lines(error: BaseException, command: str | None) -> list[str]:
    failures = _failures(error)
    lines = [_with_path(path, each, command) for path, each in failures[:SHOWN]]
    count = error.count if isinstance(error, FailedOperandsError) else len(failures)
    if count > SHOWN:
        lines.append(f"and {count - SHOWN:,} more failures")
    return lines if isinstance(error, FailedOperandsError) else [*lines, _message(error, command)]


def _with_path(path: str, error: Exception, command: str | None) -> str:
    text = _message(error, command)
    return text if mentions(text, path) else f"{text}: {path}"


def _message(error: BaseException, command: str | None = None) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "terminated" if isinstance(error, TerminatedError) else "interrupted"
    if isinstance(error, click.UsageError):
        return _usage(error)
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, S3kError):
        remedy = remedy_for(error, command)
        return (
            str(error)
            if not remedy
            else str(S3kError(f"{error.message}; {remedy}", path=error.path))
        )
    if isinstance(error, OSError):
        return f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"
    if isinstance(error, UnicodeEncodeError):
        # Text that is not UTF-8 comes from an argument or the name of a local file.
        return f"cannot be encoded as UTF-8: {error.object!a}"
    return f"internal error, {type(error).__name__}: {error} (--debug shows where)"


def _usage(error: click.UsageError) -> str:
    """A usage error: click's message in one line, and the command's arguments."""
    text = " ".join(error.format_message().split()).rstrip(".")
    if error.ctx is None:
        return f"{text} (see s3k --help)"
    command = error.ctx.command_path
    if isinstance(error, click.MissingParameter) and isinstance(error.param, click.Argument):
        text += (
            f"; it takes {' '.join([command, *error.ctx.command.collect_usage_pieces(error.ctx)])}"
        )
    return f"{text} (see {command} --help)"


def _document(error: BaseException, code: ExitCode, command: str | None) -> dict[str, Any]:
    document: dict[str, Any] = {
        "code": _name(error),
        "message": _message(error, command),
        "path": error.path if isinstance(error, S3kError) else None,
        "exit_code": int(code),
    }
    if failures := _failures(error):
        document["failures"] = [failure_fields(path, each) for path, each in failures]
        if isinstance(error, FailedOperandsError):
            document["message"] = f"{error.count} failed"
    return document


def failure_fields(path: str, error: Exception) -> dict[str, Any]:
    """The JSON fields of one of several failures."""
    return {"path": path, "code": _name(error), "message": _message(error)}


def _name(error: BaseException) -> str:
    if isinstance(error, FailedOperandsError):
        return PartialFailureError.code
    if isinstance(error, KeyboardInterrupt):
        return "terminated" if isinstance(error, TerminatedError) else "interrupted"
    if isinstance(error, click.UsageError | UnicodeEncodeError):
        return "usage"
    return error.code if isinstance(error, S3kError) else S3kError.code
