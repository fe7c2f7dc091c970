"""The README's Python is run as it stands, one block after the other, on one embedded volume."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import textwrap
from pathlib import Path
from types import CodeType

import pytest

from s3k_async import init_volume
from s3k_async.settings import resolve

BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
README = Path(__file__).parent.parent / "README.md"


def test_the_examples_run_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asyncio.run(init_volume(resolve("./my-volume")))
    blocks = [textwrap.dedent(block) for block in BLOCK.findall(README.read_text(encoding="utf-8"))]
    assert len(blocks) == 3
    for block in blocks:
        run(block.replace('"s3k://analytics", hadoop=spark_conf', '"./my-volume"'))


def run(text: str) -> None:
    code: CodeType = compile(text, README.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(eval(code, {}))  # a module with `await` in it evaluates to a coroutine
    else:
        exec(code, {})
