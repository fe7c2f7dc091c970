"""The README's Python and its `sh` blocks are run as they are, in order, on one embedded volume."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path
from types import CodeType

import pytest

BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```", re.DOTALL | re.MULTILINE)
README = Path(__file__).parent.parent / "README.md"


def test_the_examples_run_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = README.read_text(encoding="utf-8")
    Path(README.name).write_text(text, encoding="utf-8")
    blocks = BLOCK.findall(text)
    assert [language for language, _ in blocks] == ["sh", *["python"] * 4]
    for language, block in blocks:
        if language == "sh":
            run_commands(block)
        else:
            code = textwrap.dedent(block)
            run(code.replace('"s3k://analytics", hadoop=spark_conf', '"./my-volume"'))


def run_commands(block: str) -> None:
    """Each line is a command of `s3k`."""
    for line in block.splitlines():
        name, *arguments = shlex.split(line)
        assert name == "s3k"
        command = [sys.executable, "-m", "s3k_async.cli", *arguments]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, (line, done.stdout, done.stderr)


def run(text: str) -> None:
    code: CodeType = compile(text, README.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(eval(code, {}))  # a module with `await` in it evaluates to a coroutine
    else:
        exec(code, {})
