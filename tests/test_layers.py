"""The order of the layers in docs/design/001-the-volume.md: a module imports only from its own
layer and those below.

Every import statement counts, inside functions and under TYPE_CHECKING too, and so does what the
native core imports while it runs. A protocol may carry an object of an upper layer downwards
without an import; `INVERSIONS` names those that do.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = "s3k_async"
ROOT = Path(__file__).resolve().parents[1] / PACKAGE

LAYERS: tuple[tuple[str, ...], ...] = (
    ("testing",),
    ("__init__", "cli", "adapters", "spark", "objects"),
    ("_sync",),
    (
        "alerts",
        "client",
        "bulk",
        "transaction",
        "migrate",
        "cost_model",
        "files",
        "listing",
        "diagnosis",
        "trees",
        "volumes",
        "settings",
    ),
    ("layouts",),
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
    (
        "permissions",
        "attributes",
        "lifecycle_rules",
        "storage_space",
        "model",
        "errors",
        "_core",
        "_native",
    ),
)
"""From the top down; a name is a module or a subpackage of the package, without what has a layer of
its own."""

INVERSIONS = {
    "_core.observation.Metrics": "receives observations: adapters of other libraries implement it",
    "backends.ports.blobs.BlobStore": "a port: adapters implement it",
    "backends.ports.blobs.Upload": "a port: adapters implement it",
    "backends.ports.interception.Interceptor": "a hook for tests: `testing.faults` implements it",
    "backends.ports.interception.TableStore": "a port: adapters implement it",
    "backends.ports.items.ProvisionedTable": "a port: adapters implement it",
    "backends.ports.items.ItemStore": "a port: adapters implement it",
    "backends.ports.items.ItemTable": "a port: adapters implement it",
    "backends.ports.service_inspection.BucketInspection": "a port: adapters implement it",
    "backends.ports.service_inspection.ServiceInspection": "a port: adapters implement it",
    "backends.ports.service_inspection.TableInspection": "a port: adapters implement it",
    "backends.retrying.request_pipeline.Fence": "the volume lock stops requests before they go out",
    "bulk.transfer.TransferClient": "the verbs of the client, which hands itself to transfers",
    "integrity.repair_actions.FsckVolume": "the part of an open volume that fsck and gc use",
    "migrate.load.Loader": "the phases of a load: in this process, or as tasks of Spark",
    "migrate.reshard.TableWalker": "the passes over a table: in this process, or as tasks of Spark",
    "namespace.layout.Layout": "what differs between layouts: `layouts` implements it",
    "namespace.layout.LayoutCheck": "what differs between layouts: `layouts` implements it",
    "namespace.layout.TrashStore": "what differs between layouts: `layouts` implements it",
    "txn.logged_write.IndexItems": "index items that travel in the transactions of their entries",
    "txn.logged_write.OperationIndex": "the indexes that have an entry before, or with, the table",
    "volumes.restoration.PlannedRestore": "the parts of a restore: here, or as tasks of Spark",
}
"""Protocols with implementations in a layer above theirs, and why. One member alone is a callback,
and not counted."""

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


def layouts_imported(module: str, tree: ast.AST) -> list[str]:
    """The modules of single layouts that a module imports, unless it may choose between them."""
    chooses = layer(module) in {"layouts", "volumes", "migrate"}
    names = () if chooses else (name for _, name in imported(module, tree))
    return [name for name in names if name.startswith(f"{PACKAGE}.layouts.")]


def test_only_volumes_and_the_migration_choose_a_layout() -> None:
    trees = ((each, ast.parse(source(each).read_text(encoding="utf-8"))) for each in modules())
    found = [
        f"{each} imports {name}" for each, tree in trees for name in layouts_imported(each, tree)
    ]
    assert not found, "\n".join(found)


def test_another_choice_of_a_layout_is_noticed() -> None:
    tree = ast.parse("from s3k_async.layouts.path.path_layout import PathLayout")
    for module in ("volumes.volume", "layouts.tree.tree_restore"):
        assert layouts_imported(f"{PACKAGE}.{module}", tree) == []
    for module in ("client", "integrity.verify", "spark.restore_job", "namespace.store"):
        assert layouts_imported(f"{PACKAGE}.{module}", tree)


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


@dataclass(frozen=True, slots=True)
class ClassSource:
    module: str
    bases: tuple[str, ...]
    members: frozenset[str]
    """Methods, fields and attributes of `self`, inherited ones not included."""

    @property
    def is_protocol(self) -> bool:
        return "Protocol" in self.bases

    @property
    def depth(self) -> int:
        return DEPTH[layer(self.module)]


def classes(module: str, tree: ast.AST) -> Iterator[tuple[str, ClassSource]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            bases = (ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases)
            yield node.name, ClassSource(module, tuple(bases), frozenset(own_members(node)))


def own_members(node: ast.ClassDef) -> Iterator[str]:
    for statement in node.body:
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
    for each in ast.walk(node):
        match each:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name


def inversions(found: dict[str, list[ClassSource]]) -> dict[str, list[str]]:
    """Protocols by dotted name, with the classes of upper layers that have all of their members."""

    def members(name: str) -> frozenset[str]:
        own = found.get(name, [])
        inherited = (members(base) for each in own for base in each.bases if base != name)
        return frozenset().union(*(each.members for each in own), *inherited)

    concrete = [
        (f"{each.module}.{name}", each.depth, members(name))
        for name, sources in found.items()
        for each in sources
        if not each.is_protocol
    ]
    carried = {}
    for name, sources in found.items():
        for each in sources:
            wanted = {member for member in members(name) if not member.startswith("__")}
            if each.is_protocol and len(wanted) > 1:
                carried[f"{each.module.removeprefix(f'{PACKAGE}.')}.{name}"] = [
                    by for by, depth, has in concrete if depth < each.depth and wanted <= has
                ]
    return {protocol: by for protocol, by in carried.items() if by}


def all_classes(trees: Iterable[tuple[str, ast.AST]]) -> dict[str, list[ClassSource]]:
    found = defaultdict(list)
    for module, tree in trees:
        for name, each in classes(module, tree):
            found[name].append(each)
    return found


def test_protocols_that_carry_objects_downwards_are_listed() -> None:
    trees = ((each, ast.parse(source(each).read_text(encoding="utf-8"))) for each in modules())
    found = inversions(all_classes(trees))
    problems = [
        f"{protocol} is implemented above its layer by {', '.join(by)}"
        for protocol, by in found.items()
        if protocol not in INVERSIONS
    ]
    problems += [f"{each} no longer is" for each in INVERSIONS if each not in found]
    assert not problems, "\n".join(problems)


def test_an_implementation_above_its_protocol_is_noticed() -> None:
    port = "class Opener(Protocol):\n    def open(self) -> None: ...\n    path: str"
    client = (
        "class Base:\n    def __init__(self):\n        self.path = ''\n"
        "class Client(Base):\n    def open(self): ..."
    )
    names = ("s3k_async.backends.ports.items", "s3k_async.client")
    found = all_classes(zip(names, map(ast.parse, (port, client)), strict=True))
    assert inversions(found) == {"backends.ports.items.Opener": ["s3k_async.client.Client"]}
    assert (
        inversions(all_classes(zip(reversed(names), map(ast.parse, (port, client)), strict=True)))
        == {}
    )
