"""Measures of the code's structure: `make house`.

Counts files of the package as they are in the checkout, and profiles one rename and one stat on a
volume in memory. Nothing here is timed.
"""

from __future__ import annotations

import ast
import asyncio
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

PACKAGE = Path(__file__).resolve().parents[1] / "s3k_async"
RUST = PACKAGE.parent / "rust"
COLUMNS = 100


def main() -> None:
    """Print a table of all measures."""
    rows = [*sizes(), *names(), *imports(), *asyncio.run(calls())]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {value}")


def sources() -> Iterator[tuple[Path, str]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path, path.read_text(encoding="utf-8")


def sizes() -> Iterator[tuple[str, str]]:
    lines = [line for _, text in sources() for line in text.splitlines()]
    rust = [line for path in RUST.rglob("*.rs") for line in path.read_text("utf-8").splitlines()]
    long = sum(len(line) > COLUMNS for line in lines)
    comments = sum(line.lstrip().startswith("#") for line in lines)
    yield "lines of s3k_async", f"{len(lines):,}"
    yield "lines of Rust", f"{len(rust):,}"
    yield "modules", f"{sum(1 for _ in sources()):,}"
    yield f"lines over {COLUMNS} columns", f"{long:,}"
    yield "comment lines", f"{comments / len(lines):.1%}"


def names() -> Iterator[tuple[str, str]]:
    stems = Counter(path.stem for path, _ in sources() if path.stem != "__init__")
    classes: Counter[str] = Counter()
    private = 0
    for _, text in sources():
        tree = ast.parse(text)
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes[node.name] += 1
            elif isinstance(node, ast.Attribute) and _is_private_of_another(node):
                private += 1
    yield "basenames that occur twice", str(sum(count > 1 for count in stems.values()))
    yield "class names that occur twice", str(sum(count > 1 for count in classes.values()))
    yield "accesses to another object's privates", str(private)


def _is_private_of_another(node: ast.Attribute) -> bool:
    hidden = re.fullmatch(r"_[A-Za-z]\w*", node.attr)
    own = isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}
    own |= isinstance(node.value, ast.Call) and ast.unparse(node.value) == "super()"
    module = isinstance(node.value, ast.Name) and node.value.id == "_native"
    return bool(hidden) and not own and not module


def imports() -> Iterator[tuple[str, str]]:
    """Cycles among modules at import time, and the rooms at the root."""
    known = {_name(path): text for path, text in sources()}
    graph: dict[str, set[str]] = defaultdict(set)
    for module, text in known.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for each in node.names:
                    whole = f"{node.module}.{each.name}"
                    target = whole if whole in known else node.module
                    if target in known and target not in (module, PACKAGE.name):
                        graph[module].add(target)
    root = {name.split(".")[1] for name in known if "." in name}
    yield "packages and modules at the root", str(len(root))
    yield "cycles of imports", str(len(_cycles(graph)))


def _name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected components of more than one module (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for each in sorted(graph[node]):
            if each not in index:
                visit(each)
                low[node] = min(low[node], low[each])
            elif each in stack:
                low[node] = min(low[node], index[each])
        if low[node] == index[node]:
            at = stack.index(node)
            component = stack[at:]
            del stack[at:]
            if len(component) > 1:
                found.append(component)

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


@dataclass
class Walk:
    """The package's functions that a call passes through."""

    modules: set[str] = field(default_factory=set)
    changes: int = 0
    calls: int = 0
    _last: str = ""

    def profile(self, frame: FrameType, event: str, argument: Any) -> None:  # noqa: ARG002 - of setprofile
        if event != "call" or not frame.f_code.co_filename.startswith(str(PACKAGE)):
            return
        module = frame.f_code.co_filename
        self.calls += 1
        self.changes += module != self._last
        self.modules.add(module)
        self._last = module

    async def of(self, call: Callable[[], Awaitable[object]]) -> Walk:
        """Profile one call."""
        sys.setprofile(self.profile)
        try:
            await call()
        finally:
            sys.setprofile(None)
        return self


async def calls() -> list[tuple[str, str]]:
    """How many modules and Python calls a rename of one file takes, and a stat."""
    from s3k_async import S3kClient, init_volume
    from s3k_async.config import MemoryBlobs, MemoryTable, VolumeConfig

    config = VolumeConfig("house", MemoryTable("house"), MemoryBlobs("house"))
    await init_volume(config=config)
    async with S3kClient(config=config) as fs:
        for name in ("warm", "file"):
            await fs.write(f"/d/{name}", b"x")
        await fs.rename("/d/warm", "/d/warmed")
        await fs.stat("/d/file")
        stat = await Walk().of(lambda: fs.stat("/d/file"))
        rename = await Walk().of(lambda: fs.rename("/d/file", "/d/moved"))
    return [
        ("rename of one file: modules", str(len(rename.modules))),
        ("rename of one file: changes of module", str(rename.changes)),
        ("rename of one file: Python calls", str(rename.calls)),
        ("stat: Python calls", str(stat.calls)),
    ]


if __name__ == "__main__":
    main()
