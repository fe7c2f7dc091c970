"""Partitions and pages, and the bounds of what depends on hashing."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3k_async._native import suffix_index
from s3k_async.cost_model.partition_layout import (
    Page,
    Partition,
    alike,
    even_partitions,
    page_runs,
    paged,
)
from s3k_async.cost_model.service_limits import Service
from s3k_async.cost_model.tree_shape import Kind, TreeShape, lay_out
from s3k_async.errors import InvalidArgumentError

counts = st.integers(0, 400)


@given(counts, counts, st.integers(1, 40))
def test_runs_of_pages_are_the_pages_one_by_one(
    files: int, directories: int, capacity: int
) -> None:
    children = [(True, 1)] * directories + [(False, 1)] * files
    assert list(expanded(page_runs(files, directories, capacity))) == list(
        expanded(paged(children, capacity, 0))
    )


def expanded(pages: tuple[Page, ...]) -> list[tuple[int, int]]:
    return [(page.files, page.directories) for page in pages for _ in range(page.times)]


@given(counts, counts, st.integers(1, 50), st.integers(1, 40))
def test_an_even_division_is_even(
    files: int, directories: int, suffix_count: int, capacity: int
) -> None:
    partitions = even_partitions(files, directories, suffix_count, capacity)
    assert sum(each.times for each in partitions) == suffix_count
    assert sum(each.files * each.times for each in partitions) == files
    assert sum(each.directories * each.times for each in partitions) == directories
    for numbers in ({each.files for each in partitions}, {each.directories for each in partitions}):
        assert max(numbers) - min(numbers) <= 1


@given(st.integers(0, 2000), st.integers(1, 30), st.integers(1, 120), st.integers())
def test_bounds_hold_for_any_names(files: int, suffix_count: int, capacity: int, seed: int) -> None:
    generator = random.Random(seed)
    prefix = generator.randbytes(4).hex()
    numbers = [0] * suffix_count
    for number in range(files):
        numbers[suffix_index(f"{prefix}-{number}", suffix_count, "xxh3")] += 1
    certain = kind(files, suffix_count, capacity, certain=True)
    real = replace(
        certain, partitions=alike([page_runs(number, 0, capacity) for number in numbers])
    )
    guess = kind(files, suffix_count, capacity, certain=False)
    true, guessed = real.pages(), guess.pages()
    assert true.exact
    assert guessed.low <= true.likely <= guessed.high
    assert guessed.low <= guessed.likely <= guessed.high


def kind(files: int, suffix_count: int, capacity: int, *, certain: bool) -> Kind:
    return Kind(
        count=1,
        level=0,
        files=files,
        directories=0,
        partitions=even_partitions(files, 0, suffix_count, capacity),
        capacity=capacity,
        certain=certain,
        file_item=400,
        directory_item=200,
        own_item=200,
    )


def test_a_page_ends_before_the_item_that_is_too_much() -> None:
    assert paged([(False, 400)] * 5, None, 1000) == (Page(2, 0, 2), Page(1, 0))
    assert paged([(True, 2000), (False, 10)], None, 1000) == (Page(0, 1), Page(1, 0))
    assert paged([], None, 1000) == (Page(0, 0),)


def test_alike() -> None:
    one, two = (Page(1, 0),), (Page(2, 0),)
    assert alike([one, two, one]) == (Partition(one, 2), Partition(two, 1))


@pytest.mark.parametrize(
    ("shape", "levels"),
    [
        (TreeShape(10), [1]),
        (TreeShape(10, leaves=7), [1, 7]),
        (TreeShape(10, leaves=7, fan_out=3), [1, 3, 7]),
        (TreeShape(10, leaves=1000, fan_out=10), [1, 10, 100, 1000]),
        (TreeShape(10, leaves=1, fan_out=1), [1]),
    ],
)
def test_levels(shape: TreeShape, levels: list[int]) -> None:
    assert shape.levels() == levels
    tree = lay_out(shape, 4, Service())
    assert (tree.files, tree.directories, tree.depth) == (10, sum(levels), len(levels) - 1)
    for level in range(len(levels) - 1):
        assert (
            sum(each.count * each.directories for each in tree.kinds if each.level == level)
            == levels[level + 1]
        )


@pytest.mark.parametrize(
    "numbers",
    [
        {"files": -1},
        {"leaves": 0},
        {"leaves": 2, "fan_out": 1},
        {"fan_out": 0},
        {"name_bytes": 0},
        {"item_bytes": 0},
    ],
)
def test_a_tree_that_cannot_be(numbers: dict[str, int]) -> None:
    with pytest.raises(InvalidArgumentError):
        TreeShape(**{"files": 1} | numbers)


def test_the_fullest_partition_is_fuller_than_the_mean() -> None:
    (tree,) = lay_out(TreeShape(100_000), 10, Service()).kinds
    files, directories = tree.fullest()
    assert (10_000 < files < 10_500, directories) == (True, 0)
    assert replace(tree, certain=True).fullest() == (10_000, 0)
