"""Completion of commands, options, volumes and paths, by the program and through a real bash."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from s3k_async.cli import shell_completion, word_completion
from s3k_async.errors import PermissionDeniedError
from s3k_async.testing import FaultPlan
from tests.cli.conftest import Cli

LIMIT = 20


class Completer:
    """Completes lines in this process."""

    def __init__(self, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
        self._cli = cli
        self._patch = monkeypatch
        monkeypatch.setattr(shell_completion, "_LIMIT", float(LIMIT))

    def __call__(self, line: str, *, breaks: str | None = None) -> list[str]:
        """The values; those that the shell completes itself as `<kind>`. `breaks`: the characters
        at which bash divides words."""
        with self._patch.context() as patch:
            patch.setenv(shell_completion.VARIABLE, "bash")
            patch.setenv(shell_completion.LINE, line)
            if breaks is not None:
                patch.setenv(shell_completion.BREAKS, breaks)
            done = self._cli()
        assert done.errors == ""
        rows = [row.split("\t") for row in done.lines]
        return [value if kind == "plain" else f"<{kind}>" for kind, value, _ in rows]


@pytest.fixture
def complete(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Iterator[Completer]:
    yield Completer(cli, monkeypatch)
    import logging

    logging.disable(logging.NOTSET)


@pytest.fixture
def filled(cli: Cli) -> str:
    """An embedded volume, `./vol`, with some directories and files."""
    cli.ok("init", "./vol")
    for path in ("/raw/day=1/part-0", "/raw/day=2/part-0", "/rest", "/with space/a"):
        cli.ok("put", "-", f"./vol:{path}", stdin=b"x")
    return "./vol"


def test_commands_and_options(complete: Completer) -> None:
    assert complete("s3k comp") == ["compact", "completion"]
    assert complete("s3k fsck re") == ["repair", "restore"]
    assert complete("s3k trash ") == ["empty", "ls", "restore", "retention"]
    assert complete("s3k rm --rec") == ["--recursive"]
    assert complete("s3k policy w") == ["writer"]
    assert complete("s3k migrate --layout ") == ["path", "tree"]
    assert complete("s3k migrate --layout=t") == ["--layout=tree"]
    assert "--json" in complete("s3k --j")
    assert complete("s3k nonsense ") == complete("s3k nonsense ")


def test_paths(complete: Completer, filled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert complete("s3k ls ./vol:/") == ["./vol:/raw/", "./vol:/rest", "./vol:/with space/"]
    assert complete("s3k cat ./vol:/raw/da") == ["./vol:/raw/day=1/", "./vol:/raw/day=2/"]
    assert complete("s3k cat './vol:/with s") == ["./vol:/with space/"]
    assert complete("s3k cp ./vol:/rest ./vol:/ra") == ["./vol:/raw/"]
    assert complete("s3k rules set ./vol:/ra") == ["./vol:/raw/"]
    assert complete("s3k ls --volume ./vol /re") == ["/rest"]
    monkeypatch.setenv("S3K_VOLUME", filled)
    assert complete("s3k ls /r") == ["/raw/", "/rest"]
    assert complete("s3k dump --path=/ra") == ["--path=/raw/"]
    assert complete("s3k find --name /r") == []


def test_what_bash_replaces(complete: Completer, filled: str) -> None:
    for line, whole in {
        "s3k ls ./vo": ["./vol:/"],
        "s3k ls ./vol:/wi": ["/with\\ space/"],
        "s3k ls ./vol:/raw/day=": ["1/", "2/"],
        "s3k ls './vol:/wi": ["./vol:/with space/"],
        'cat "a b"; s3k': [],
        "s3k dump ./vol --path=/ra": [],
        "s3k dump --volume ./vol --path=/ra": ["/raw/"],
    }.items():
        assert complete(line, breaks=" \t\n\"'><=;|&(:") == whole, line
    assert complete("s3k ls ./vol:/wi", breaks=" ") == ["./vol:/with\\ space/"]


def test_volumes_and_local_files(complete: Completer, filled: str) -> None:
    Path("volumes").mkdir()
    config = Path.home() / ".config" / "s3k"
    config.mkdir(parents=True)
    (config / "config.toml").write_text('[volumes.analytics]\ntable = "a"\nbucket = "b"\n')
    assert complete("s3k doctor ./vo") == ["./vol", "./volumes/"]
    assert complete("s3k ls ./vo") == ["./vol:/", "./volumes/"]
    assert complete("s3k info s3k://a") == ["s3k://analytics"]
    assert complete("s3k ls s3k") == ["s3k://analytics/"]
    assert complete("s3k put ./vo") == ["./vol:/", "./volumes/", "<file>"]
    assert complete("s3k load ") == ["<file>"]
    assert complete("s3k stats ") == ["<file>"]
    assert complete("s3k dump -o ") == ["<file>"]
    assert complete("s3k fsck verify --resume ") == ["<dir>"]


def test_errors_are_silent_and_listings_bounded(
    complete: Completer, cli: Cli, volume: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.ok("mkdir", *(f"/{number}" for number in range(20)))
    assert complete("s3k ls ./none:/a") == []
    assert complete("s3k ls s3k://unknown/a") == []
    assert complete("s3k ls /none/a") == []
    plan = FaultPlan()
    plan.fail_when(lambda _: True, PermissionDeniedError("no"), times=LIMIT)
    with plan.injected():
        assert complete("s3k ls /") == []
    monkeypatch.setattr(word_completion, "MOST", 7)
    assert len(complete("s3k ls /")) == 7
    monkeypatch.setattr(word_completion, "SECONDS", 0.0)
    assert complete("s3k ls /") == []


def test_a_completion_that_hangs_ends(tmp_path: Path) -> None:
    program = """
import sys, time
from s3k_async.cli import main, shell_completion, word_completion
shell_completion._LIMIT = 0.2
word_completion.completions = lambda *_: time.sleep(600)
sys.exit(main([]))
"""
    environment = {**os.environ, "_S3K_COMPLETE": "bash", "S3K_COMPLETION_LINE": "s3k ls /"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        timeout=LIMIT,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")


@pytest.mark.parametrize("shell", sorted(shell_completion.SCRIPTS))
def test_the_scripts_are_valid(cli: Cli, shell: str) -> None:
    script = cli.ok("completion", shell).out
    assert script == shell_completion.SCRIPTS[shell]
    assert f"s3k completion {shell}" in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script.encode(), check=True, timeout=LIMIT)


class Shell:
    """A bash on a terminal."""

    def __init__(self, directory: Path) -> None:
        pid, self._terminal = pty.fork()
        if pid == 0:
            environment = {
                **os.environ,
                "TERM": "dumb",
                "PS1": "$ ",
                "PATH": f"{directory}:{os.environ['PATH']}",
            }
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], environment)
        self._pid = pid

    def type(self, text: str, until: str) -> str:
        """Type, and read until a text is shown; returns what was shown."""
        os.write(self._terminal, text.encode())
        shown = ""
        end = time.monotonic() + LIMIT
        while until not in shown:
            assert time.monotonic() < end, shown
            if select.select([self._terminal], [], [], 0.1)[0]:
                shown += os.read(self._terminal, 65536).decode(errors="replace")
        return shown

    def close(self) -> None:
        """End it."""
        os.write(self._terminal, b"\x15exit\n")
        os.waitpid(self._pid, 0)
        os.close(self._terminal)


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_through_bash(filled: str, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "s3k"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m s3k_async.cli "$@"\n')
    program.chmod(0o755)
    shell = Shell(program.parent)
    try:
        shell.type("source <(s3k completion bash); echo rea''dy\n", "ready")
        shell.type("s3k ls ./vol:/wi\t", "./vol:/with\\ space/")
        assert "\r\na\r\n" in shell.type("\n", "\r\na\r\n")
    finally:
        shell.close()
