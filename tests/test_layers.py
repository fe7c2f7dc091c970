"""The order of the layers in docs/design/001-the-volume.md: a module imports only from its own
layer and those below.

Every import statement counts, inside functions and under TYPE_CHECKING too, and so does what the
native core imports while it runs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = "s3k_async"
ROOT = Path(__file__).resolve().parents[1] / PACKAGE

LAYERS: tuple[tuple[str, ...], ...] = (
    ("testing",),
    ("__init__", "cli", "adapters", "spark"),
    ("_sync",),
    (
        "client",
        "bulk",
        "transaction",
        "migrate",
        "cost_model",
        "files",
        "listing",
        "volumes",
        "settings",
    ),
    ("integrity",),
    ("namespace",),
    ("txn",),
    ("table",),
    ("oplog",),
    ("storage",),
    ("config",),
    ("backends",),
    ("backends.retrying",),
    ("backends.ports", "backends.aws"),
    ("model", "errors", "_core", "_native"),
)
"""From the top down; a name is a module or a subpackage of the package, without what has a layer of
its own."""

DEPTH = {name: depth for depth, names in enumerate(LAYERS) for name in names}


def modules() -> list[str]:
    """Dotted names of the package's Python modules; a package by its own name."""
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        found.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return found


MODULES = frozenset([*modules(), f"{PACKAGE}._native"])


def source(module: str) -> Path:
    path = ROOT.parent.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def imported(module: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and dotted name of every module of the package that the tree imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (
                (node.lineno, each.name)
                for each in node.names
                if each.name.split(".")[0] == PACKAGE
            )
        elif isinstance(node, ast.ImportFrom):
            origin = absolute(module, node)
            if origin.split(".")[0] == PACKAGE:
                for each in node.names:
                    name = f"{origin}.{each.name}"
                    yield node.lineno, name if name in MODULES else origin


def absolute(module: str, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = module.split(".")
    drop = node.level - 1 if source(module).name == "__init__.py" else node.level
    return ".".join([*package[: len(package) - drop], *([node.module] if node.module else [])])


def layer(module: str) -> str:
    """The name in LAYERS that the module belongs to."""
    _, first, second = (*module.split("."), "__init__", "")[:3]
    nested = f"{first}.{second}"
    return nested if nested in DEPTH else first


def test_every_module_is_in_a_layer() -> None:
    homeless = [module for module in modules() if layer(module) not in DEPTH]
    assert not homeless, "\n".join(["put into docs/design/001-the-volume.md and here:", *homeless])


def test_modules_import_only_from_their_layer_and_below() -> None:
    assert len(modules()) > 100
    upward = [
        f"{source(module)}:{line} imports {name}"
        for module in modules()
        for line, name in imported(module, ast.parse(source(module).read_text(encoding="utf-8")))
        if DEPTH.get(layer(name), -1) < DEPTH[layer(module)]
    ]
    assert not upward, "\n".join(upward)


def rust_imports(text: str) -> set[str]:
    """Modules of the package that Rust code names, but for the one that it defines."""
    code = re.sub(r"//.*", "", text)
    return set(re.findall(rf"\b{PACKAGE}(?:\.\w+)+", code)) - {f"{PACKAGE}._native"}


def test_the_native_core_imports_only_from_its_layer() -> None:
    found = {
        f"{path.relative_to(ROOT.parent)} imports {name}"
        for path in (ROOT.parent / "rust").rglob("*.rs")
        for name in rust_imports(path.read_text(encoding="utf-8"))
        if DEPTH.get(layer(name), -1) < DEPTH["_native"]
    }
    assert not found, "\n".join(sorted(found))


@pytest.mark.parametrize(
    "code",
    [
        'py.import(intern!(py, "s3k_async.backends.ports.items"))',
        "pyo3::import_exception!(s3k_async.client, Missing);",
    ],
)
def test_an_upward_import_in_rust_is_noticed(code: str) -> None:
    assert any(DEPTH[layer(name)] < DEPTH["_native"] for name in rust_imports(code))


@pytest.mark.parametrize(
    "statement",
    [
        "from s3k_async.client import S3kClient",
        "import s3k_async.client",
        "from s3k_async import client",
        "from s3k_async import S3kClient",
        "def later():\n    from s3k_async.namespace.store import MetadataStore",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import s3k_async.client",
        "from ...volumes import open_volume",
        "from ... import integrity",
        "from s3k_async.in_no_layer import something",
    ],
)
def test_an_upward_import_is_noticed(statement: str) -> None:
    module = "s3k_async.backends.ports.items"
    names = [layer(name) for _, name in imported(module, ast.parse(statement))]
    assert any(DEPTH.get(name, -1) < DEPTH[layer(module)] for name in names)
