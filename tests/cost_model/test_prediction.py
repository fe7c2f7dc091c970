"""Times and bounds, at figures that the service's documentation gives."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from s3k_async.cost_model import (
    COLD,
    WARM,
    Latency,
    Prediction,
    Service,
    TreeShape,
    VerbArguments,
    deletion,
    lay_out,
    listing,
    on_files,
    predict,
    renaming,
    suggest_suffix_count,
)
from s3k_async.cost_model.work_load import Workload

TREES: dict[str, Callable[..., Workload]] = {
    "list": listing,
    "rename": renaming,
    "delete": deletion,
    "plain rename": partial(renaming, atomic=False),
}


def prediction(
    verb: str,
    files: int,
    suffix_count: int,
    service: Service,
    *,
    leaves: int = 1,
    concurrency: int = 32,
) -> Prediction:
    tree = lay_out(TreeShape(files, leaves), suffix_count, service)
    return predict(verb, tree, TREES[verb](tree, service), service, concurrency=concurrency)


@pytest.mark.parametrize(("verb", "actions"), [("plain rename", 2), ("rename", 4)])
def test_a_rename_on_a_cold_table_is_bound_by_the_table(verb: str, actions: int) -> None:
    """Actions of two units each: 40,000 units for 10,000 files at 4,000 a second; twice that to be
    visible at once."""
    found = prediction(verb, 10_000, 10, Service(quota=COLD))
    assert found.write_units == pytest.approx(20_000 * actions, rel=0.001)
    assert (found.bounds[0].name, round(found.seconds)) == ("table", 5 * actions)


@pytest.mark.parametrize(("verb", "actions"), [("plain rename", 2), ("rename", 4)])
def test_a_rename_on_a_warm_table_is_bound_by_the_partitions(verb: str, actions: int) -> None:
    found = prediction(verb, 10_000, 10, Service(quota=WARM))
    assert found.bounds[0].name == "partition"
    assert found.seconds == pytest.approx(actions, rel=0.1)
    assert found.hottest.write_units == pytest.approx(1000 * actions, rel=0.1)


def test_one_suffix_lists_as_fast_as_its_pages() -> None:
    """A page of a megabyte is 256 units, so that a partition gives 11.7 of them a second."""
    service = Service(quota=WARM)
    found = prediction("list", 1_000_000, 1, service)
    pages = found.requests["table", "Query"].likely
    assert found.read_units == pytest.approx(256 * pages, rel=0.01)
    assert found.bounds[0].name == "partition"
    assert pages / found.seconds == pytest.approx(11.7, rel=0.01)


def test_latency_bounds_what_nothing_else_does() -> None:
    slow = Service(latency=Latency.of(1.0, 1.0))
    one, many = (
        prediction("delete", 1000, 10, slow, leaves=100, concurrency=each) for each in (1, 10_000)
    )
    assert one.bounds[0].name == "latency"
    assert one.seconds > 10 * many.seconds
    assert many.bounds[0].name == "chain"


def test_a_hot_parent_bounds_single_renames() -> None:
    """Each checks its target's directory, which is two write units on one item."""
    service = Service(quota=WARM, latency=Latency(1e-6, 1e-6, 1e-6, 1e-6, 1e-6))
    tree = lay_out(TreeShape(10_000), 100, service)
    work = on_files("rename-file", tree, VerbArguments(), service)
    found = predict("rename-file", tree, work, service, concurrency=1000)
    assert found.bounds[0].name == "partition"
    assert found.seconds == pytest.approx(20)
    assert "the item of" in found.hottest.partition


@pytest.mark.parametrize("verb", TREES)
def test_a_hundred_million_files_are_as_quick_as_one(verb: str) -> None:
    """The number of steps does not depend on the number of files."""
    service = Service()
    tree = lay_out(TreeShape(100_000_000, leaves=100_000, fan_out=50), 100, service)
    assert len(tree.kinds) <= 2 * (tree.depth + 1)
    assert all(
        len(kind.partitions) <= 3 and len(each.pages) <= 3
        for kind in tree.kinds
        for each in kind.partitions
    )
    found = prediction(verb, 100_000_000, 100, service, leaves=100_000)
    assert found.files == 100_000_000
    assert found.total.low <= found.total.likely <= found.total.high


def test_suffixes_are_suggested_until_they_bring_nothing() -> None:
    warm, cold = Service(quota=WARM), Service(quota=COLD)
    assert suggest_suffix_count(lambda number: prediction("list", 1_000_000, number, warm)) == 16
    assert suggest_suffix_count(lambda number: prediction("list", 1_000_000, number, cold)) == 4
    assert suggest_suffix_count(lambda number: prediction("list", 100, number, warm)) == 1
