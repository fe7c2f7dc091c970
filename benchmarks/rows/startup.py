"""Import time, what an import loads, and resident memory during a listing. Each in processes of its
own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

from benchmarks.environment import ROOT
from benchmarks.measuring import Result
from benchmarks.rows.scope import Scope
from benchmarks.servers import Canned

__all__ = ["results"]

MODULES = (
    "s3k_async",
    "boto3",
    "aioboto3",
    "aiobotocore.session",
    "aiodynamo.client",
    "s3fs",
    "pyarrow.fs",
    "obstore",
)
UNWANTED = ("botocore", "aiohttp", "pyarrow", "pyspark", "numpy")

_IMPORT = """
import sys, time
began, busy = time.perf_counter(), time.process_time()
import {module}
taken, busy = time.perf_counter() - began, time.process_time() - busy
import json
print(json.dumps([taken, busy, [name for name in {unwanted!r} if name in sys.modules]]))
"""


async def results(scope: Scope, server: Canned) -> AsyncIterator[Result]:
    """Imports, each module in turn; then memory."""
    times: dict[str, list[float]] = {module: [] for module in MODULES}
    processor: dict[str, list[float]] = {module: [] for module in MODULES}
    loaded: dict[str, list[str]] = {}
    for _ in range(scope.pick(2, 15)):
        for module in MODULES:
            taken, busy, loaded[module] = _child(
                "-c", _IMPORT.format(module=module, unwanted=UNWANTED)
            )
            times[module].append(taken)
            processor[module].append(busy)
    for module in MODULES:
        name = "ours" if module == "s3k_async" else module
        facts = {"loaded": loaded[module]}
        yield Result(
            "import", "", name, 1, "imports", times[module], processor[module], "boto3", facts=facts
        )
    entries = scope.pick(100_000, 1_000_000)
    for mode in ("objects", "Arrow"):
        server.command("forget")
        memory = _child("-m", "benchmarks.rows.memory", server.engine.endpoint, str(entries), mode)
        yield Result(
            "memory",
            f"listing {entries:,} entries",
            f"ours, {mode}",
            entries,
            "entries",
            [],
            [],
            "",
            facts=memory,
        )


def _child(*words: str) -> Any:
    said = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return json.loads(said.stdout)
