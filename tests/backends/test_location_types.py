"""What differs between backends is asked of the location: no module outside `backends` tests its
type."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from s3k_async.backends.location import Location
from s3k_async.backends.registry import BLOBS, TABLES

PACKAGE = Path(__file__).resolve().parents[2] / "s3k_async"

TYPES = {
    each.__name__
    for registry in (TABLES, BLOBS)
    for scheme in registry.schemes()
    for each in registry.backend(scheme).__mro__
    if issubclass(each, Location)
}
"""The location classes and their bases."""


def type_tests(tree: ast.Module) -> Iterator[int]:
    """Lines that test for a location class: `isinstance`, `issubclass`, a comparison with the
    class, or a class pattern."""
    known = TYPES | set(_aliases(tree))

    def names(node: ast.AST) -> bool:
        return any(
            (isinstance(each, ast.Name) and each.id in known)
            or (isinstance(each, ast.Attribute) and each.attr in known)
            for each in ast.walk(node)
        )

    for node in ast.walk(tree):
        if isinstance(node, ast.expr | ast.pattern) and any(names(each) for each in _tested(node)):
            yield node.lineno


def _tested(node: ast.expr | ast.pattern) -> list[ast.expr]:
    """What the node compares something with."""
    match node:
        case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, *classes]):
            return classes
        case ast.Compare(left=left, comparators=comparators):
            return [each for each in (left, *comparators) if not isinstance(each, ast.Call)]
        case ast.MatchClass(cls=cls):
            return [cls]
    return []


def _aliases(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (
                each.asname for each in node.names if each.name in TYPES and each.asname is not None
            )


def test_no_module_outside_backends_tests_the_type_of_a_location() -> None:
    assert len(TYPES) > 6
    modules = [
        path
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0] != "backends"
    ]
    assert len(modules) > 100
    found = [
        f"{path}:{line}"
        for path in modules
        for line in type_tests(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not found, "\n".join(["ask the location instead (backends/location.py):", *found])


@pytest.mark.parametrize(
    "code",
    [
        "isinstance(config.table, SqliteFile)",
        "isinstance(place, (int, config.S3Bucket))",
        "isinstance(place, DynamoTable | S3Bucket)",
        "issubclass(type(place), BlobLocation)",
        "type(place) is LocalDirectory",
        "type(place) == MemoryTable",
        "from s3k_async.config import S3Bucket as Bucket\nisinstance(place, Bucket)",
        "match place:\n    case S3Bucket(bucket=name):\n        pass",
    ],
)
def test_a_test_of_a_type_is_noticed(code: str) -> None:
    assert list(type_tests(ast.parse(code)))


def test_other_uses_of_a_class_are_allowed() -> None:
    code = 'data == LocalDirectory("data")\nS3Bucket("b")\nisinstance(value, str)'
    assert not list(type_tests(ast.parse(code)))
