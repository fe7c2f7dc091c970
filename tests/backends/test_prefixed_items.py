"""Properties of items below a prefix that the contract suite does not cover."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from s3k_async._core.retry import RetryPolicy
from s3k_async._core.runtime import SYSTEM
from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.ports.items import (
    ABSENT,
    Condition,
    Delete,
    Item,
    Key,
    Put,
    UnloadedItemsError,
    UnprocessedKeysError,
    Update,
)
from s3k_async.backends.ports.pagination import scan_all
from s3k_async.backends.retrying.prefixed_items import CATALOG, PrefixedItems
from s3k_async.backends.retrying.retrying_items import RetryingItems
from s3k_async.errors import ConditionFailedError, UnsupportedError
from s3k_async.testing import FaultPlan
from tests.engines.volumes import fresh_name

POLICY = RetryPolicy(attempts=3, base=0.0)


@pytest.fixture
async def whole() -> AsyncIterator[MemoryItems]:
    """A table in memory."""
    store = MemoryItems(fresh_name("prefixed"))
    await store.create()
    yield store
    await store.drop()


def item(partition: str, name: str = "x", **values: int) -> Item:
    return {"path": partition, "children": name, **values}


async def test_keys_in_the_table_begin_with_the_prefix(whole: MemoryItems) -> None:
    one, two = PrefixedItems(whole, "a"), PrefixedItems(whole, "a.b")
    for store in (one, two):
        await store.write(Put(item("p", n=1), ABSENT))
        await store.transact([Put(item("q", n=1), ABSENT)], fresh_name("t"))
        await store.load([item("r", n=1)])
    found = {str(each["path"]) for each in (await whole.scan(0, 1)).items}
    assert found == {"a/p", "a/q", "a/r", "a.b/p", "a.b/q", "a.b/r"}
    await one.write(Update(Key("p", "x"), Condition(), {"n": 2}))
    await one.write(Delete(Key("q", "x"), Condition()))
    assert [each async for page in scan_all(two) for each in page] == [
        item(partition, n=1) for partition in "pqr"
    ]
    own = {str(each["path"]) async for page in scan_all(one) for each in page}
    assert own == {"p", "r"}
    assert (await one.query("p")).items == [item("p", n=2)]
    assert (await one.query("")).items == []


async def test_errors_name_relative_keys(whole: MemoryItems) -> None:
    store = PrefixedItems(whole, "a")
    await store.write(Put(item("p", n=1), ABSENT))
    for refused in (
        store.write(Put(item("p", n=2), ABSENT)),
        store.transact([Put(item("p", n=2), ABSENT)], "token"),
    ):
        with pytest.raises(ConditionFailedError) as failure:
            await refused
        assert failure.value.path == "p/x"
        assert failure.value.current == {0: item("p", n=1)}


async def test_what_the_service_left_out_is_requested_again(whole: MemoryItems) -> None:
    plan = FaultPlan()
    store = RetryingItems(PrefixedItems(plan.items(whole), "a"), POLICY, SYSTEM)
    some = [item("p", str(number), n=number) for number in range(4)]
    below = [{**each, "path": "a/p"} for each in some]
    plan.fail_when(
        lambda call: call.method == "load",
        UnloadedItemsError("some", path="", left=below[2:]),
    )
    await whole.load(below[:2])
    with store.loading(lambda: None):
        await store.load(some)
    keys = [Key("p", str(number)) for number in range(4)]
    found: dict[Key, Item] = {Key("a/p", "0"): below[0]}
    left = [Key("a/p", str(number)) for number in (1, 2, 3)]
    plan.fail_when(
        lambda call: call.method == "get_many",
        UnprocessedKeysError("some", path="", found=found, left=left),
    )
    assert await store.get_many(keys) == dict(zip(keys, some, strict=True))
    assert [call.method for call in plan.calls] == ["load", "load", "get_many", "get_many"]


async def test_tags_are_in_the_catalog(whole: MemoryItems) -> None:
    one, two = PrefixedItems(whole, "a"), PrefixedItems(whole, "b")
    for value in ("1", "2", "2"):
        await one.write_tag("t", value)
        assert await one.read_tag("t") == value
    await one.write_tag("u", "3")
    assert (await one.read_tag("t"), await one.read_tag("u")) == ("2", "3")
    assert await two.read_tag("t") is None
    assert await whole.read_tag("t") is None
    catalog = (await whole.query(CATALOG)).items
    assert catalog == [{"path": CATALOG, "children": "a", "t": "2", "u": "3"}]
    assert [each async for page in scan_all(one) for each in page] == []


async def test_the_table_is_not_dropped(whole: MemoryItems) -> None:
    with pytest.raises(UnsupportedError):
        await PrefixedItems(whole, "a").drop()
    assert await whole.exists()
