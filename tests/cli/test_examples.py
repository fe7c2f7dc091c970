"""The examples at the end of each command's help: all are run, in an embedded volume; interrupted,
to the end at a terminal, and into a pipe that is closed."""

from __future__ import annotations

import io
import os
import pty
import re
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import click
import pytest

from s3k_async.cli import main
from s3k_async.cli.application import s3k
from s3k_async.cli.examples import EXAMPLES
from s3k_async.testing import Call, FaultPlan
from s3k_async.txn import volume_lock
from tests.cli.conftest import Cli
from tests.cli.example_places import ELSEWHERE, OFFLINE, example_words


def leaves(group: click.Group, path: str = "") -> list[str]:
    """The names of the commands that are no groups."""
    found: list[str] = []
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            found += leaves(command, f"{path}{name} ")
        else:
            found.append(path + name)
    return found


def test_every_command_has_examples_at_the_end_of_its_help(cli: Cli) -> None:
    assert sorted(leaves(s3k)) == sorted(EXAMPLES)
    for command, examples in EXAMPLES.items():
        assert 1 <= len(examples) <= 2
        shown = cli.ok(*command.split(), "--help").lines
        assert [line.strip() for line in shown[-len(examples) :]] == list(examples)
        group, _, name = command.rpartition(" ")
        default = name in ("verify", "list") and group in ("fsck", "transactions")
        for example in examples:
            assert len(example) <= 98
            assert example.startswith(f"s3k {group if default else command}")


@pytest.mark.parametrize("command", sorted({*EXAMPLES} - {*ELSEWHERE}))
def test_the_examples_can_be_run(
    command: str,
    model: Path,
    cli: Cli,
    capsysbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(volume_lock, "QUIET_SECONDS", 0.0)
    monkeypatch.setenv("S3K_VOLUME", "./vol")
    for number, example in enumerate(EXAMPLES[command]):
        words = example_words(example, tmp_path / str(number), model, cli, monkeypatch)
        assert interrupted(cli, words) == (command not in OFFLINE)
        code, shown = at_a_terminal(words)
        assert code == 0, (example, shown)
        assert not re.search(r"[^\t\r\n -~\x80-\U0010ffff]", shown), shown
        assert "s3k: " not in shown
        again = example_words(example, tmp_path / f"{number}-pipe", model, cli, monkeypatch)
        with_a_closed_pipe(again, capsysbinary)


def interrupted(cli: Cli, words: Sequence[str]) -> bool:
    """Ctrl-C before the first request ends a command with code 130 and one line. Whether it sends
    requests."""
    calls = 0

    async def gate(_: Call) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            signal.raise_signal(signal.SIGINT)

    with FaultPlan(gate).injected():
        done = cli(*words)
    if calls:
        assert (done.code, done.output, done.errors) == (130, b"", "s3k: interrupted\n"), words
    return bool(calls)


def at_a_terminal(words: Sequence[str]) -> tuple[int, str]:
    """The code of a command with a terminal on all its streams, and what was shown."""
    ours, theirs = pty.openpty()
    pieces: list[bytes] = []

    def read() -> None:
        with suppress(OSError):  # the other end was closed
            while piece := os.read(ours, 65536):
                pieces.append(piece)

    reader = threading.Thread(target=read)
    reader.start()
    with (
        patch.object(sys, "stdin", open(os.dup(theirs), encoding="utf-8")),
        patch.object(sys, "stdout", open(os.dup(theirs), "w", encoding="utf-8")),
        patch.object(sys, "stderr", open(os.dup(theirs), "w", encoding="utf-8")),
    ):
        code = main(words)
        for stream in (sys.stdin, sys.stdout, sys.stderr):
            stream.close()
    os.close(theirs)
    reader.join()
    os.close(ours)
    return code, b"".join(pieces).decode()


def with_a_closed_pipe(words: Sequence[str], capture: pytest.CaptureFixture[bytes]) -> None:
    """A command whose output pipe is closed ends quietly with code 141, unless it writes
    nothing."""
    ours, theirs = os.pipe()
    os.close(ours)
    with (
        patch.object(sys, "stdout", open(theirs, "w", encoding="utf-8")),
        patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO())),
    ):
        output = sys.stdout
        capture.readouterr()
        code = main(words)
        shown = capture.readouterr()
        output.close()
    assert (code in (0, 141), shown.err) == (True, b""), (words, code, shown.err)
