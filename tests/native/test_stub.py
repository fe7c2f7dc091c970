"""The stub and the built module agree."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from s3k_async import _native

STUB = Path(_native.__file__).with_name("_native.pyi")


def _stub_names() -> dict[str, ast.FunctionDef | ast.ClassDef]:
    body = ast.parse(STUB.read_text(encoding="utf-8")).body
    return {node.name: node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def _parameters(function: ast.FunctionDef) -> list[str]:
    arguments = function.args
    return [
        argument.arg
        for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    ]


def _built_parameters(function: object) -> list[str]:
    return list(inspect.signature(function).parameters)  # type: ignore[arg-type]


def _public(names: Iterable[str]) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def _is_property(method: ast.FunctionDef) -> bool:
    return any(
        isinstance(each, ast.Name) and each.id == "property" for each in method.decorator_list
    )


def test_the_same_names() -> None:
    built = {name for name in vars(_native) if not name.startswith("_")}
    assert built == set(_stub_names())


def test_the_same_parameters() -> None:
    for name, node in _stub_names().items():
        built = getattr(_native, name)
        if isinstance(node, ast.FunctionDef):
            assert _built_parameters(built) == _parameters(node), name
            continue
        methods = {
            method.name: method for method in node.body if isinstance(method, ast.FunctionDef)
        }
        assert _public(vars(built)) == _public(methods), name
        for method, signature in methods.items():
            assert _is_property(signature) == inspect.isdatadescriptor(getattr(built, method)), (
                f"{name}.{method}"
            )
            if method != "__new__" and not _is_property(signature):
                assert _built_parameters(getattr(built, method)) == _parameters(signature), (
                    f"{name}.{method}"
                )


def test_everything_is_described() -> None:
    for name, node in _stub_names().items():
        assert ast.get_docstring(node), name
        assert getattr(_native, name).__doc__, name


def test_stubtest_finds_no_difference() -> None:
    command = [
        sys.executable,
        "-m",
        "mypy.stubtest",
        "s3k_async._native",
        "--mypy-config-file",
        "pyproject.toml",
    ]
    run = subprocess.run(command, cwd=STUB.parents[1], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
