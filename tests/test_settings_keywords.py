"""The typed keywords: generated from the table of options, and checked by mypy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import s3k_async
from s3k_async.settings.options import OPTIONS
from tests.settings_keywords import TARGET, source


def test_the_module_is_what_the_table_of_options_gives() -> None:
    assert TARGET.read_text("utf-8") == source(), "run python -m tests.settings_keywords"


def test_every_option_is_a_keyword() -> None:
    assert list(s3k_async.Settings.__annotations__) == list(OPTIONS)


REFUSED = {
    'S3kClient("v", regoin="eu")': 'Unexpected keyword argument "regoin"',
    'S3kClient("v", suffix_count="ten")': 'Argument "suffix_count" to "S3kClient"',
    'S3kSyncClient("v", log_mode="both")': 'Argument "log_mode" to "S3kSyncClient"',
    'S3kSyncClient("v", batch=1)': 'Unexpected keyword argument "batch"',
    'made = init_volume("v", max_connections=[])': 'Argument "max_connections" to "init_volume"',
}
ACCEPTED = [
    "from pathlib import Path",
    "from s3k_async import S3kClient, S3kSyncClient, init_volume",
    'S3kClient("v", region="eu", read_ahead="8MiB", log_location=Path("d"), lease=None)',
]


def test_mypy_refuses_unknown_options_and_wrong_types(tmp_path: Path) -> None:
    (tmp_path / "snippet.py").write_text("\n".join([*ACCEPTED, *REFUSED]))
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--follow-imports=silent"]
    done = subprocess.run(
        [*command, "--config-file=", f"--cache-dir={tmp_path / 'cache'}", "snippet.py"],
        check=False,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
    )
    found = [line for line in done.stdout.splitlines() if ": error: " in line]
    wanted = enumerate(REFUSED.values(), len(ACCEPTED) + 1)
    assert len(found) == len(REFUSED), done.stdout + done.stderr
    for line, (number, message) in zip(found, wanted, strict=True):
        assert line.startswith(f"snippet.py:{number}: error: {message}"), done.stdout
