"""The same random operations by aioboto3 and by the wire, on two tables of DynamoDB Local: the same
answers, the same errors, the same contents in the end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, fields
from functools import partial
from itertools import count
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from s3k_async._core.runtime import SYSTEM
from s3k_async.backends.dynamodb.dynamodb_wire import WireItems
from s3k_async.backends.ports.items import (
    ABSENT,
    Action,
    Check,
    Condition,
    Delete,
    ItemPage,
    Key,
    Put,
    Update,
    Value,
)
from s3k_async.errors import ConditionFailedError, S3kError
from s3k_async.testing import DynamoItems
from tests.backends.aws.places import Items
from tests.engines.process import Engine

_examples = count()

TEXTS = st.one_of(
    st.sampled_from(
        [
            "",
            "a",
            "plain",
            '"\\/\b\f\n\r\t',
            "\x00\x1f\x7f",
            "ü漢\U0001f600",
            "#p",
            ":v0",
            '{"S":"x"}',
        ]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
)
NUMBERS = st.one_of(
    st.integers(-3, 3), st.sampled_from([10**37, -(10**37) - 1, 10**38 - 1, 2**63, 10**40])
)
VALUES: st.SearchStrategy[Value] = st.one_of(TEXTS, NUMBERS, st.booleans())
NAMES = st.sampled_from(
    ["ver", "id", "op", "next", "size", "a b", "näme", "#p", ":v0", "_.-", "x" * 255]
)
ATTRIBUTES = st.dictionaries(NAMES, VALUES, max_size=4)
CONDITIONS = st.one_of(
    st.just(ABSENT),
    st.just(Condition()),
    st.builds(
        lambda equals, missing: Condition(equals=equals, missing=tuple(missing)),
        st.dictionaries(
            st.sampled_from(["ver", "op"]), st.one_of(st.integers(-3, 3), st.booleans()), max_size=1
        ),
        st.sets(st.sampled_from(["next", "id"]), max_size=2),
    ),
)
KEYS = st.builds(
    Key,
    st.sampled_from(["ks://v/-sf0", 'ks://v/a "b"\\-sf1']),
    st.sampled_from(["a", "b", '"\\', "\U0001f600é", "\x01"]),
)
ACTIONS: st.SearchStrategy[Action] = st.one_of(
    st.builds(
        lambda key, more, when: Put({"path": key.partition, "children": key.sort, **more}, when),
        KEYS,
        ATTRIBUTES,
        CONDITIONS,
    ),
    st.builds(
        lambda key, when, change, gone: Update(key, when, change, tuple(gone)),
        KEYS,
        CONDITIONS,
        ATTRIBUTES,
        st.sets(NAMES, max_size=2),
    ),
    st.builds(Delete, KEYS, CONDITIONS),
)
LOADED = st.builds(
    lambda key, more: {"path": key.partition, "children": key.sort, **more}, KEYS, ATTRIBUTES
)
IN_TRANSACTION = st.one_of(ACTIONS, st.builds(Check, KEYS, CONDITIONS))
FOREIGN = st.dictionaries(
    st.sampled_from(["tags", "fraction", "raw", "map"]),
    st.sampled_from(
        [
            {"SS": ["x", "y"]},
            {"N": "1.5"},
            {"N": "1E-7"},
            {"B": b"\x00\x01"},
            {"BS": [b"a"]},
            {"NULL": True},
            {"L": [{"S": '"'}, {"M": {"k": {"BOOL": True}}}]},
        ]
    ),
    min_size=1,
)


@dataclass(frozen=True)
class Get:
    key: Key


@dataclass(frozen=True)
class GetMany:
    keys: list[Key]


@dataclass(frozen=True)
class Transact:
    actions: list[Action]
    token: int


@dataclass(frozen=True)
class Load:
    items: list[dict[str, Value]]


@dataclass(frozen=True)
class Pages:
    """All pages of a query (of a partition) or a scan (of some segments)."""

    partition: str | None
    segments: int
    limit: int | None


@dataclass(frozen=True)
class Foreign:
    """An item that somebody else writes."""

    key: Key
    attributes: dict[str, Any]


Step: TypeAlias = Get | GetMany | Transact | Load | Pages | Foreign | Action
STEPS: st.SearchStrategy[list[Step]] = st.lists(
    st.one_of(
        ACTIONS,
        ACTIONS,
        st.builds(Get, KEYS),
        st.builds(GetMany, st.lists(KEYS, max_size=6)),
        st.builds(Transact, st.lists(IN_TRANSACTION, max_size=4), st.integers(0, 2)),
        st.builds(Load, st.lists(LOADED, max_size=4)),
        st.builds(
            Pages,
            st.one_of(st.none(), KEYS.map(lambda key: key.partition)),
            st.integers(1, 2),
            st.none(),
        ),
        st.builds(
            Pages,
            st.one_of(st.none(), KEYS.map(lambda key: key.partition)),
            st.just(1),
            st.integers(0, 3),
        ),
        st.builds(Foreign, KEYS, FOREIGN),
    ),
    min_size=1,
    max_size=14,
)


@dataclass
class Side:
    """A way to a table of its own. Every example begins with an empty table, as all its keys are
    its own."""

    items: Items
    client: Any
    name: str
    example: str = ""

    def __post_init__(self) -> None:
        self._tokens = SYSTEM.uuid()[:20]

    def key(self, key: Key) -> Key:
        return Key(f"{self.example}{key.partition}", key.sort)

    def action(self, action: Action) -> Action:
        if isinstance(action, Put):
            return Put({**action.item, "path": self.key(action.key).partition}, action.when)
        given = {each.name: getattr(action, each.name) for each in fields(action)}
        return type(action)(**{**given, "key": self.key(action.key)})

    async def take(self, step: Step) -> object:
        """What a step comes to: what was read, or the error."""
        try:
            return _plain(await self._take(step))
        except (S3kError, ValueError) as error:
            return self._told(error)

    async def _take(self, step: Step) -> object:
        match step:
            case Get():
                return await self.items.get(self.key(step.key))
            case GetMany():
                return await self.items.get_many([self.key(key) for key in step.keys])
            case Transact():
                token = f"{self._tokens}-{self.example[:10]}{step.token}"
                await self.items.transact([self.action(action) for action in step.actions], token)
            case Load():
                await self.items.load(
                    [{**item, "path": f"{self.example}{item['path']}"} for item in step.items]
                )
            case Pages():
                return await self._pages(step)
            case Foreign():
                path = {
                    "path": {"S": self.key(step.key).partition},
                    "children": {"S": step.key.sort},
                }
                await self.client.put_item(TableName=self.name, Item={**path, **step.attributes})
            case Check():
                raise AssertionError("not alone")
            case _:
                action = self.action(step)
                assert not isinstance(action, Check)
                await self.items.write(action)
        return None

    async def _pages(self, step: Pages) -> object:
        if step.partition is not None:
            partition = f"{self.example}{step.partition}"
            return await _all(
                lambda cursor: self.items.query(partition, cursor=cursor, limit=step.limit)
            )
        found = []
        for segment in range(step.segments):
            scan = partial(self.items.scan, segment, step.segments, limit=step.limit)
            found += await _all(lambda cursor, scan=scan: scan(cursor=cursor))  # type: ignore[misc]
        ours = [item for item in found if str(item["path"]).startswith(self.example)]
        return sorted(ours, key=lambda item: (str(item["path"]), str(item["children"])))

    def _told(self, error: Exception) -> object:
        current = dict(error.current) if isinstance(error, ConditionFailedError) else None
        told = (type(error), str(error), getattr(error, "path", None), _plain(current))
        return repr(told).replace(self.name, "<table>")


async def _all(fetch: Callable[[str | None], Awaitable[ItemPage]]) -> list[dict[str, Value]]:
    found: list[dict[str, Value]] = []
    page = await fetch(None)
    while True:
        found += map(dict, page.items)
        if page.next is None:
            return found
        page = await fetch(page.next)


def _plain(found: object) -> object:
    return (
        {key: _plain(value) for key, value in found.items()} if isinstance(found, dict) else found
    )


@pytest.fixture
async def sides(dynamodb_local: Engine) -> AsyncIterator[list[Side]]:
    names = [f"differential-{SYSTEM.uuid()}" for _ in range(2)]
    reference = DynamoItems(names[0], dynamodb_local.aws())
    wire = WireItems(names[1], dynamodb_local.aws())
    client = await reference.aws.get()
    sides = [Side(reference, client, names[0]), Side(wire, client, names[1])]
    for side in sides:
        await side.items.create()
    yield sides
    for side in sides:
        await side.items.drop()
        await side.items.close()


@settings(
    max_examples=60,
    deadline=None,
    print_blob=True,
    phases=[phase for phase in Phase if phase is not Phase.explain],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=STEPS)
async def test_both_ways_do_the_same(sides: list[Side], steps: list[Step]) -> None:
    example = f"{next(_examples):08}/"
    for side in sides:
        side.example = example
    for at, step in enumerate(steps):
        expected, found = [await side.take(step) for side in sides]
        note(f"step {at}: {step}: {expected}")
        assert found == expected
    everything = Pages(None, 1, None)
    expected, found = [await side.take(everything) for side in sides]
    assert found == expected
