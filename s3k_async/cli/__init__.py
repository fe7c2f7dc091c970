"""The command line `s3k`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; `arguments` without the program's name, by default
    the process's."""
    try:
        from s3k_async.cli.application import run

        return run(sys.argv[1:] if arguments is None else list(arguments))
    except KeyboardInterrupt:
        # During imports; `run` reports later interrupts itself.
        if sys.stderr is not None:
            sys.stderr.write("s3k: interrupted\n")
        return 130
