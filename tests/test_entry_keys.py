"""Entry keys: what the key of an item is made of, and who makes keys."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

import pytest

from s3k_async.backends.ports.items import Key
from s3k_async.model import Entry
from s3k_async.table.codec import in_columns
from s3k_async.table.keys import Directory, KeyScheme, is_entry_partition
from s3k_async.table.stored_reader import ROOT_ENTRY
from tests.test_layers import modules, source

KEY_FUNCTIONS = frozenset(
    {
        "decode_key",
        "decode_keys",
        "item_key",
        "item_keys",
        "partition_key",
        "partition_keys",
        "suffix_index",
        "suffix_indexes",
    }
)
"""Functions of the native core that make or read keys of items."""


def key_functions(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of each key function that the tree uses."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="_native"), attr=name) if name in KEY_FUNCTIONS:
                yield node.lineno, name
            case ast.ImportFrom(module=module, names=names) if module and "_native" in module:
                yield from (
                    (node.lineno, each.name) for each in names if each.name in KEY_FUNCTIONS
                )


def test_only_the_table_layer_makes_and_reads_keys() -> None:
    found = {
        module: [
            f"{source(module)}:{line} uses {name}"
            for line, name in key_functions(ast.parse(source(module).read_text(encoding="utf-8")))
        ]
        for module in modules()
    }
    assert found["s3k_async.table.keys"]
    outside = [use for module, uses in found.items() for use in uses if ".table." not in module]
    assert not outside, "\n".join(outside)


@pytest.mark.parametrize(
    "statement",
    ["_native.item_key('v', '/a', 1, 'xxh3')", "from s3k_async._native import decode_keys"],
)
def test_another_maker_of_keys_is_noticed(statement: str) -> None:
    assert list(key_functions(ast.parse(statement)))


def entry(path: str, directory: str = "") -> Entry:
    return Entry(path, False, "an-id", 1, ctime=1, mtime_ms=1, directory=directory)


def test_an_entry_key_is_the_path_or_the_key_of_the_directory_and_the_name() -> None:
    assert entry("/a/b").entry_key == "/a/b"
    assert entry("/a/b", "1f").entry_key == "1f/b"
    assert entry("/b", "1f").entry_key == "1f/b"
    assert entry("1f/b", "1f").entry_key == "1f/b"


def test_a_key_and_its_entry_key_stand_for_each_other() -> None:
    keys = KeyScheme("v", 4)
    texts = ["/a", "/a/b", "/é/ü x"]
    assert [keys.entry_key(keys.key(text)) for text in texts] == texts
    assert keys.entry_keys(keys.keys(texts)) == texts
    assert [keys.of(entry(text)) for text in texts] == keys.keys(texts)
    assert keys.child("/a", "b") == "/a/b"
    assert keys.child("/", "b") == "/b"


def test_a_partition_of_entries_is_that_of_any_volume_and_layout() -> None:
    for partition in ("ks://v/a-sf0", "ks://v-2/-sf1", "s3k:tree/1f-sf0"):
        assert is_entry_partition(partition)
    for partition in ("s3k:volume", "s3k:root", "s3k:job", "s3k:tree", "ks:", ""):
        assert not is_entry_partition(partition)


def test_a_volumes_own_partitions_are_those_of_its_name_and_layout() -> None:
    path, tree = KeyScheme("v", 1), KeyScheme("v", 1, layout="tree")
    assert path.is_own("ks://v/a-sf0")
    assert path.is_own(path.key("/a").partition)
    assert not path.is_own("ks://v-2/a-sf0")
    assert not path.is_own("s3k:tree/1f-sf0")
    assert tree.is_own("s3k:tree/1f-sf0")
    assert not tree.is_own("ks://v/a-sf0")
    assert not tree.is_own(Key("s3k:root", "root").partition)


def test_a_directory_has_the_key_of_its_children_and_that_of_its_own_item() -> None:
    path, tree = KeyScheme("v", 1), KeyScheme("v", 1, layout="tree")
    above = Entry("/a/b", True, "an-id", 1, ctime=1, mtime_ms=1)
    assert path.directory(above) == Directory.at("/a/b") == Directory("/a/b", "/a/b", "/a/b")
    assert tree.directory(replace(above, directory="1f")) == Directory("an-id", "/a/b", "1f/b")
    assert tree.directory(ROOT_ENTRY) == Directory(ROOT_ENTRY.id, "/", "/")
    page = in_columns([above, entry("/a/c"), replace(above, path="/a/d")], path)
    assert path.directories(page) == [Directory.at("/a/b"), Directory.at("/a/d")]
    assert path.directory_keys(page) == ["/a/b", "/a/d"]


def test_an_entry_key_has_the_directory_key_in_it() -> None:
    path, tree = KeyScheme("v", 1), KeyScheme("v", 1, layout="tree")
    assert [path.parent_key(each) for each in ("/a", "/a/b")] == ["/", "/a"]
    assert tree.parent_key("1f/b") == "1f"
