"""The command line `s3k`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from s3k_async.cli.termination import TerminatedError, Termination

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; `arguments` without the program's name, by default
    the process's."""
    termination = Termination()
    try:
        with termination.handled():
            from s3k_async.cli.application import run

            return run(sys.argv[1:] if arguments is None else list(arguments), termination)
    except KeyboardInterrupt as error:
        # During imports; `run` reports later interrupts itself.
        terminated = isinstance(error, TerminatedError)
        if sys.stderr is not None:
            sys.stderr.write(f"s3k: {'terminated' if terminated else 'interrupted'}\n")
        return 143 if terminated else 130
