"""The examples of docs/libraries.md are run as they stand, one after the other, on the volume that
it configures."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from s3k_async.settings import resolve
from s3k_async.volumes import init_volume
from tests.engines.process import ROOT

PAGE = ROOT / "docs" / "libraries.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
LIBRARIES = {"pandas", "pyarrow", "polars", "duckdb", "dask", "zarr", "upath", "s3k_async"}


@pytest.mark.filterwarnings(
    "ignore:The inplace keyword"
)  # Dask 2026.8 uses what pandas 3.1 deprecates
def test_every_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    (configuration,) = (text for language, text in blocks if language == "toml")
    examples = [text for language, text in blocks if language == "python"]
    (tmp_path / "config.toml").write_text(configuration, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("S3K_CONFIG", "config.toml")
    asyncio.run(init_volume(resolve("s3k://lake")))
    names: dict[str, Any] = {}
    for text in examples:
        code = compile(text, PAGE.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if code.co_flags & inspect.CO_COROUTINE:
            asyncio.run(eval(code, names))
        else:
            exec(code, names)
    assert imported(examples) >= LIBRARIES


def imported(examples: list[str]) -> set[str]:
    """The top-level packages that examples import."""
    nodes = [node for text in examples for node in ast.walk(ast.parse(text))]
    modules = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    modules += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return {module.partition(".")[0] for module in modules}
