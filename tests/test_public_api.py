"""What the public packages export: every type of the package that a public signature mentions."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import get_overloads

import pytest

import s3k_async
from s3k_async import FileStatus, _native
from s3k_async.backends import ballast, location
from s3k_async.backends.ports import blobs, service_inspection

PUBLIC = ("s3k_async", "s3k_async.adapters.hadoop", "s3k_async.objects")

GIVEN = frozenset(
    {
        "BatchListing",
        "FileReader",
        "FileWriter",
        "HadoopInputStream",
        "HadoopOutputStream",
        "OpenFileBuilder",
        "Opening",
        "OutputStreamBuilder",
        "RequestCounter",
        "RowList",
        "RowListing",
        "StagedWriter",
        "SyncBatchListing",
        "SyncFileReader",
        "SyncFileWriter",
        "SyncRowListing",
        "SyncStagedWriter",
        "SyncTransaction",
        "SyncTrash",
        "Transaction",
        "Trash",
    }
)
"""Classes that callers get from a method and do not make: their constructors are internal."""


@cache
def own_names(module: str) -> frozenset[str]:
    """The names in a module that the package defines: its own, and what it imports from others."""
    found = set()
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("s3k_async"):
            found |= {each.asname or each.name for each in node.names}
    for statement in tree.body:
        found |= defined(statement)
    return frozenset(found)


def defined(statement: ast.stmt) -> set[str]:
    if isinstance(statement, ast.ClassDef):
        return {statement.name}
    value = getattr(statement, "value", None)
    if isinstance(value, ast.Call) and ast.unparse(value.func) in {"TypeVar", "ParamSpec"}:
        return set()
    if isinstance(statement, ast.Assign):
        return {target.id for target in statement.targets if isinstance(target, ast.Name)}
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return {statement.target.id}
    return set()


def mentioned(annotations: object, module: str) -> set[str]:
    """The names of the package in an annotation, or in several."""
    texts = annotations.values() if isinstance(annotations, dict) else [annotations]
    words = {word for text in texts for word in re.findall(r"[A-Za-z_]\w*", str(text))}
    return words & own_names(module)


def of_stub(name: str) -> set[str]:
    """What the stub of a class of the native core mentions."""
    stub = Path(_native.__file__).with_name("_native.pyi").read_text("utf-8")
    (found,) = (
        node
        for node in ast.parse(stub).body
        if isinstance(node, ast.ClassDef) and node.name == name
    )
    imports = [node for node in ast.walk(ast.parse(stub)) if isinstance(node, ast.ImportFrom)]
    own = {
        each.name
        for node in imports
        if str(node.module).startswith("s3k_async")
        for each in node.names
    }
    return own & {node.id for node in ast.walk(found) if isinstance(node, ast.Name)}


def of_function(function: object) -> set[str]:
    if not inspect.isfunction(function):
        return set()
    return set().union(
        *(
            mentioned(each.__annotations__, each.__module__)
            for each in (inspect.unwrap(function), *get_overloads(inspect.unwrap(function)))
        )
    )


def of_class(cls: type) -> set[str]:
    found: set[str] = set()
    for owner in cls.__mro__:
        if not owner.__module__.startswith("s3k_async") or not hasattr(owner, "__module__"):
            continue
        fields = vars(owner).get("__annotations__", {})
        public = {name: text for name, text in fields.items() if not name.startswith("_")}
        found |= mentioned(public, owner.__module__)
        for name, member in vars(owner).items():
            made = name == "__init__" and cls.__name__ not in GIVEN
            if made or name in {"__enter__", "__aenter__"} or not name.startswith("_"):
                function = member.fget if isinstance(member, property) else member
                found |= of_function(getattr(function, "__func__", function))
    return found


def of_alias(module: ModuleType, name: str) -> set[str]:
    """What an alias stands for. Aliases that are imported are looked up where they are defined."""
    tree = ast.parse(inspect.getsource(module))
    for statement in tree.body:
        if name in defined(statement):
            value = statement.value  # type: ignore[attr-defined]
            return mentioned(ast.unparse(value), module.__name__) - {name}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(each.name == name for each in node.names):
            return of_alias(importlib.import_module(str(node.module)), name)
    raise AssertionError(f"{module.__name__} has no {name}")


def unexported(package: ModuleType, known: set[str]) -> Iterator[str]:
    """What the names of a package mention and is not among the known ones."""
    for name in package.__all__:
        value = getattr(package, name)
        if value is FileStatus:
            found = of_stub(name)
        elif inspect.isclass(value):
            found = of_class(value)
        elif inspect.isfunction(value):
            found = of_function(value)
        else:
            found = of_alias(package, name)
        for missing in sorted(found - known):
            yield f"{name} mentions {missing}"


@pytest.mark.parametrize("package", PUBLIC)
def test_what_signatures_mention_is_exported(package: str) -> None:
    names = importlib.import_module(package)
    for_backends = {
        *location.__all__,
        *blobs.__all__,
        *ballast.__all__,
        *service_inspection.__all__,
    }
    found = list(unexported(names, {*names.__all__, *s3k_async.__all__, *for_backends}))
    assert not found, "\n".join(found)


def test_what_is_given_is_exported() -> None:
    exported = {name for package in PUBLIC for name in importlib.import_module(package).__all__}
    assert exported >= GIVEN


def test_a_name_that_is_missing_is_found() -> None:
    found = set(unexported(s3k_async, set(s3k_async.__all__) - {"Progress", "FileReader", "Path"}))
    assert {"Entry", "Value"} <= of_stub("Rows") | of_stub("Entries")
    assert found >= {
        "S3kClient mentions FileReader",
        "S3kSyncClient mentions Path",
        "destroy_volume mentions Path",
        "ProgressCallback mentions Progress",
    }


def test_type_checkers_see_the_names_that_there_are() -> None:
    """The names are said twice: for type checkers, and for the import on first use."""
    (seen,) = (
        node.value
        for node in ast.walk(ast.parse(inspect.getsource(s3k_async)))
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    assert isinstance(seen, ast.List)
    named = {each.value for each in seen.elts if isinstance(each, ast.Constant)}
    assert named == set(s3k_async.__all__) - set(s3k_async.errors.__all__)


REPLACES = frozenset({"create", "download", "upload", "write", "write_many"})
"""Bytes from the caller replace a file, as `open(path, "wb")` does; an existing entry, upload or
object is given a path only where nothing is."""


@pytest.mark.parametrize("module", PUBLIC)
def test_overwrite_has_one_default_for_bytes_and_one_for_entries(module: str) -> None:
    found = {
        name: parameter.default
        for each in exported(module)
        if isinstance(each, type)
        for name, method in inspect.getmembers(each, inspect.isroutine)
        if not name.startswith("_")
        and (parameter := parameters(method).get("overwrite")) is not None
        and parameter.default is not inspect.Parameter.empty
    }
    assert found
    # As in H3, the verbs of the object API replace objects by default.
    is_of_objects = module == "s3k_async.objects"
    assert found == {name: is_of_objects or name in REPLACES for name in found}


def exported(module: str) -> list[object]:
    package = importlib.import_module(module)
    return [getattr(package, name) for name in package.__all__]


def parameters(method: object) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(method).parameters  # type: ignore[arg-type]  # a routine
    except ValueError:  # of the interpreter
        return {}
