"""One command in a process of its own that may do less: `python -m tests.bad_input.confined LIMIT
ARGUMENTS...`.

LIMIT is `size=N`, no file may grow over N bytes, or `nobody`, without privileges. Everything the
command needs is imported before, because without privileges the interpreter's own files may be out
of reach; what the command does is rehearsed on the volume of S3K_REHEARSAL.
"""

from __future__ import annotations

import contextlib
import io
import os
import resource
import signal
import sys

from s3k_async.cli import main

NOBODY = 65534


def rehearse(volume: str) -> None:
    """Run the commands once, so that nothing is left to import."""
    with (
        contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        for command in (
            "ls {}:/",
            "cat {}:/none",
            "put - {}:/none/x",
            "mkdir {}:/none",
            "rm {}:/none",
            "fsck {}",
            "init {}2",
        ):
            main(command.format(volume).split())


def confine(limit: str) -> None:
    if limit == "nobody":
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        return
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    size = int(limit.removeprefix("size="))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


if __name__ == "__main__":
    rehearse(os.environ["S3K_REHEARSAL"])
    confine(sys.argv[1])
    sys.exit(main(sys.argv[2:]))
