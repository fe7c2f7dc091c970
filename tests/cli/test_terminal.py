"""What a person at a terminal sees."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest

import pytest
from rich.cells import cell_len

from s3k_async.cli import progress as progress_module
from s3k_async.cli.output import Output
from s3k_async.cli.progress import ProgressMeter
from s3k_async.model import Progress
from tests.support import FakeClock, fake_runtime

COMMAND = [sys.executable, "-m", "s3k_async.cli"]
LIMIT = 60


@contextmanager
def terminal() -> Iterator[tuple[int, int]]:
    """Our end of a terminal, and the end for a process."""
    ours, theirs = pty.openpty()
    settings = termios.tcgetattr(theirs)
    settings[3] &= ~termios.ECHO
    termios.tcsetattr(theirs, termios.TCSANOW, settings)
    try:
        yield ours, theirs
    finally:
        os.close(ours)


def at_a_terminal(
    *arguments: str, answer: bytes = b"", command: Sequence[str] = COMMAND
) -> tuple[int, str]:
    """Run a command with a terminal on all its streams; its code and what was shown."""
    environment = {**os.environ, "TERM": "xterm"}
    with (
        terminal() as (ours, theirs),
        subprocess.Popen(
            [*command, *arguments], env=environment, stdin=theirs, stdout=theirs, stderr=theirs
        ) as process,
    ):
        os.close(theirs)
        if answer:
            os.write(ours, answer)
        shown = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:
                break
            if not piece:
                break
            shown += piece
        return process.wait(LIMIT), shown.decode().replace("\r\n", "\n")


@pytest.fixture
def embedded() -> str:
    subprocess.run([*COMMAND, "init", "./vol", "-q"], check=True, timeout=LIMIT)
    return "./vol"


def test_control_characters_in_names_are_escaped(embedded: str) -> None:
    subprocess.run(
        [*COMMAND, "touch", "./vol:/a\x1b[31mred\nline\u202e"], check=True, timeout=LIMIT
    )
    assert at_a_terminal("ls", embedded) == (0, "a\\x1b[31mred\\nline\\u202e\n")
    assert "\x1b" not in at_a_terminal("tree", embedded)[1]


class Screen(io.StringIO):
    """A terminal as the stream of an output."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("width", [80, 40, 10])
def test_columns_fit_the_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    numbered = sorted(f"{number:02}-{'x' * (number % 9)}" for number in range(60))
    names = [*numbered, "äö", "日本語"]
    monkeypatch.setenv("COLUMNS", str(width))
    Output(screen := Screen()).columns(names)
    lines = screen.getvalue().splitlines()
    assert max(map(cell_len, lines)) <= max(width, *map(cell_len, names))
    columns = zip_longest(*(line.split() for line in lines))
    assert [name for column in columns for name in column if name] == names
    assert len(lines) <= {80: 11, 40: 21, 10: 62}[width]


def test_a_listing_is_in_columns_at_a_terminal_alone(embedded: str) -> None:
    subprocess.run([*COMMAND, "touch", "./vol:/a", "./vol:/b"], check=True, timeout=LIMIT)
    assert at_a_terminal("ls", embedded) == (0, "a  b\n")
    piped = subprocess.run([*COMMAND, "ls", embedded], check=True, timeout=LIMIT, stdout=-1)
    assert piped.stdout == b"a\nb\n"


def test_headers_and_results_of_lookups(embedded: str) -> None:
    subprocess.run([*COMMAND, "touch", "./vol:/a\x1b[31m", "./vol:/b"], check=True, timeout=LIMIT)
    for command in ("head", "tail"):
        code, shown = at_a_terminal(command, "./vol:/a\x1b[31m", "./vol:/b")
        assert code == 0
        assert "/a\\x1b[31m <==" in shown
        assert "\x1b" not in shown
    for command in ("checksum", "count"):
        code, shown = at_a_terminal(command, "./vol:/a\x1b[31m")
        assert code == 0
        assert shown.endswith("/a\\x1b[31m\n")
    assert at_a_terminal("test", "-f", "./vol:/b") == (0, "")
    assert at_a_terminal("test", "-d", "./vol:/b") == (1, "")


def test_a_tree_ends_with_an_empty_line_and_its_counts(embedded: str) -> None:
    subprocess.run([*COMMAND, "touch", "./vol:/a"], check=True, timeout=LIMIT)
    assert at_a_terminal("tree", embedded) == (0, "/\n└── a\n\n0 directories, 1 file\n")


def test_destroy_asks(embedded: str) -> None:
    code, shown = at_a_terminal("destroy", embedded, answer=b"no\n")
    assert code == 2
    assert "[y/N]" in shown
    assert os.path.exists("vol/metadata.sqlite")
    code, shown = at_a_terminal("destroy", embedded, answer=b"y\n")
    assert code == 0
    assert shown.endswith("[y/N] destroyed ./vol\n")
    assert not os.path.exists("vol")


IMPATIENT = """
import sys
from s3k_async.cli import main, progress
progress.PATIENCE = 0.0
sys.exit(main(sys.argv[1:]))
"""


def test_progress_is_shown_on_a_terminal_unless_quiet(embedded: str) -> None:
    os.mkdir("source")
    for number in range(50):
        with open(f"source/{number}", "wb") as file:
            file.write(b"x" * 1000)
    impatient = [sys.executable, "-c", IMPATIENT]
    code, shown = at_a_terminal("put", "-r", "source", f"{embedded}:/in", command=impatient)
    assert code == 0
    assert "/50" in shown
    assert shown.endswith(
        f"put 50 files, 1 directory, 50,000 bytes to {os.path.abspath(embedded)}:/in\n"
    )
    for silent in (["-q"], ["--json"]):
        code, shown = at_a_terminal(
            "get", "-r", f"{embedded}:/in", "copy", *silent, command=impatient
        )
        assert code == 0
        assert "\x1b" not in shown
        assert "/50" not in shown


@pytest.fixture
def meter(monkeypatch: pytest.MonkeyPatch) -> Iterator[ProgressMeter]:
    monkeypatch.setattr(progress_module, "PATIENCE", 0.0)
    with ProgressMeter("put", shown=True) as shown:
        yield shown


def test_a_meter_adds_up_its_parts(
    meter: ProgressMeter, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = meter.part(), meter.part()
    assert first is not None
    assert second is not None
    first(Progress("put", 10, 100, 5_000_000, "/a"))
    second(Progress("put", 1, 11, 1_000_000, "/b"))
    (task,) = meter.tasks
    assert (task.completed, task.total) == (11, 111)
    assert task.fields["moved"] == "6.0 MB"
    second(Progress("put", 11, 11, 2_000_000, "/b"))
    assert meter.tasks[0].completed == 21


def test_a_meter_that_nobody_watches_is_not_called() -> None:
    with ProgressMeter("put", shown=False) as meter:
        assert meter.part() is None
        assert meter.tasks == []


def test_a_meter_waits_before_it_shows_anything(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressMeter("put", shown=True) as meter:
        part = meter.part()
        assert part is not None
        part(Progress("put", 1, 2))
        assert meter.tasks == []
    assert capsys.readouterr() == ("", "")


def test_a_meter_shows_phases_and_units_and_counts_each_from_the_start(
    meter: ProgressMeter,
) -> None:
    part = meter.part()
    assert part is not None
    shown: list[tuple[str, float, str]] = []
    for phase, unit, done in (
        ("data", "objects", 500),
        ("data", "objects", 900),
        ("table", "entries", 10),
        ("table", "entries", 20),
    ):
        part(Progress("gc", done, phase=phase, unit=unit))
        (task,) = meter.tasks
        shown.append((task.description, task.completed, task.fields["unit"]))
    assert shown == [
        ("put: data", 500, "objects"),
        ("put: data", 900, "objects"),
        ("put: table", 10, "entries"),
        ("put: table", 20, "entries"),
    ]


def test_the_rate_is_that_of_the_phase(
    meter: ProgressMeter, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    monkeypatch.setattr(progress_module, "SYSTEM", fake_runtime(clock))
    part = meter.part()
    assert part is not None
    rates = []
    for seconds, phase, done, size in (
        (0, "log", 1000, 0),
        (2, "log", 3000, 0),
        (5, "table", 10, 0),
        (4, "table", 8000, 0),
        (0, "sweep", 1, 0),
        (2, "sweep", 10, 5_000_000),
    ):
        clock.advance(seconds)
        part(Progress("gc", done, bytes=size, phase=phase))
        rates.append(meter.tasks[0].fields["speed"])
    assert rates == ["", "1,500/s", "", "2,000/s", "", "2.5 MB/s"]
